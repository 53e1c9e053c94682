//! The last that the thread that follows the controller has seen of it.
//!
//! Unlike the pages of workers, this has a lock: its writer waits for the network anyway.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::run::evidence::Problem;
use crate::snapshot::{ControllerSnapshot, ControllerState};

/// The state of the connection to the controller; empty if this host has not enrolled at one.
#[derive(Debug, Default)]
pub(crate) struct ControllerPage(Mutex<Option<Observation>>);

#[derive(Debug)]
struct Observation {
    /// Host and port of the controller.
    address: String,
    fingerprint: String,
    state: ControllerState,
    /// The beginning of the state.
    since: Instant,
    heard_at: Option<Instant>,
    generation: u64,
    /// The reason why the host is not connected, and the time since which it is this one.
    problem: Option<(Problem, Instant)>,
}

impl Observation {
    fn change(&mut self, state: ControllerState, problem: Option<Problem>) {
        if self.state != state {
            (self.state, self.since) = (state, Instant::now());
        }
        let since = match (&self.problem, &problem) {
            (Some((former, since)), Some(new)) if former.kind == new.kind => *since,
            _ => Instant::now(),
        };
        self.problem = problem.map(|problem| (problem, since));
    }
}

impl ControllerPage {
    /// Records the controller that the host follows from now on, and the generation of the peers
    /// that it has.
    pub(crate) fn begin(&self, address: String, fingerprint: String, generation: u64) {
        *self.lock() = Some(Observation {
            address,
            fingerprint,
            state: ControllerState::Connecting,
            since: Instant::now(),
            heard_at: None,
            generation,
            problem: None,
        });
    }

    /// Records the fingerprint that the controller has from now on.
    pub(crate) fn identify(&self, fingerprint: String) {
        if let Some(seen) = &mut *self.lock() {
            seen.fingerprint = fingerprint;
        }
    }

    /// Records a message of the controller, and the generation of the peers after it.
    pub(crate) fn heard(&self, generation: u64) {
        if let Some(seen) = &mut *self.lock() {
            (seen.heard_at, seen.generation) = (Some(Instant::now()), generation);
            seen.change(ControllerState::Connected, None);
        }
    }

    /// Records the end of a connection, or of an attempt to connect, with its reason.
    pub(crate) fn lost(&self, problem: Problem, generation: u64) {
        if let Some(seen) = &mut *self.lock() {
            seen.generation = generation;
            seen.change(ControllerState::Disconnected, Some(problem));
        }
    }

    /// Returns the state at present; `None` if this host has not enrolled.
    pub(super) fn snapshot(&self) -> Option<ControllerSnapshot> {
        let seen = self.lock();
        let seen = seen.as_ref()?;
        let problem = seen.problem.as_ref();
        Some(ControllerSnapshot {
            address: seen.address.clone(),
            fingerprint: seen.fingerprint.clone(),
            state: seen.state,
            since_s: seen.since.elapsed().as_secs_f64(),
            last_contact_s: seen.heard_at.map(|at| at.elapsed().as_secs_f64()),
            generation: seen.generation,
            problem: problem.map(|(of, _)| of.kind.to_owned()),
            problem_text: problem.map(|(of, _)| of.text.clone()),
            problem_since_s: problem.map(|(_, since)| since.elapsed().as_secs_f64()),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Observation>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_is_connected_from_its_first_message_to_the_end_of_the_connection() {
        let page = ControllerPage::default();
        page.heard(1);
        assert!(page.snapshot().is_none(), "no controller");
        page.begin("192.0.2.1:4600".to_owned(), "f".to_owned(), 3);
        let now = page.snapshot().unwrap();
        assert_eq!((now.state, now.generation), (ControllerState::Connecting, 3));
        assert_eq!(now.last_contact_s, None);
        page.heard(4);
        let now = page.snapshot().unwrap();
        assert_eq!((now.state, now.generation), (ControllerState::Connected, 4));
        assert!(now.last_contact_s.is_some() && now.problem.is_none());
        let lost = |kind| page.lost(Problem { kind, text: format!("{kind}, in words") }, 4);
        lost("unreachable");
        let began = page.lock().as_ref().unwrap().since;
        lost("other-controller");
        let now = page.snapshot().unwrap();
        assert_eq!(now.state, ControllerState::Disconnected);
        assert_eq!(now.problem.as_deref(), Some("other-controller"));
        assert_eq!(now.problem_text.as_deref(), Some("other-controller, in words"));
        assert!(now.last_contact_s.is_some());
        assert_eq!(page.lock().as_ref().unwrap().since, began, "another reason is no other state");
        page.heard(5);
        assert_eq!(page.snapshot().unwrap().problem, None);
        assert_eq!(page.snapshot().unwrap().problem_since_s, None);
        page.identify("g".to_owned());
        assert_eq!(page.snapshot().unwrap().fingerprint, "g");
    }

    /// The status had the time since which the host was not connected, and not since which it was
    /// refused.
    #[test]
    fn regression_each_reason_has_its_own_beginning() {
        let page = ControllerPage::default();
        page.begin("192.0.2.1:4600".to_owned(), "f".to_owned(), 3);
        let lost = |kind| {
            std::thread::sleep(std::time::Duration::from_millis(2));
            page.lost(Problem { kind, text: String::new() }, 3);
            page.lock().as_ref().unwrap().problem.as_ref().unwrap().1
        };
        let away = lost("unreachable");
        assert_eq!(lost("unreachable"), away, "each attempt fails for the same reason");
        let refused = lost("refused");
        assert!(refused > away);
        assert_eq!(lost("refused"), refused);
        assert!(page.snapshot().unwrap().problem_since_s.is_some());
    }
}
