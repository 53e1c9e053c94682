//! Requests about pods of this host, which the controller answers.
//!
//! ```text
//!   srd-cni --control socket--> PodRequests --a connection of its own--> controller
//!                                                session of follow  <--  part with the instance
//! ```
//!
//! Bounds: at most four requests are sent at the same time; further ones wait.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use srd_enrol::message::VERSION;
use srd_enrol::{Fingerprint, FromController, FromHost, Identity, PodAnswer, PodRequest};

use super::link::{Link, LinkError};
use super::state::Enrolment;
use crate::config::HostPort;

/// Largest number of requests at the same time. The controller accepts 8 connections of one host.
const AT_ONCE_MAX: u32 = 4;
/// Longest wait for an answer, together with the wait for earlier requests. A client of the control
/// socket waits longer.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(12);

/// The session of this host with the controller, which requests about pods follow.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionOrigin {
    /// Address of the controller; `None`: there is no session.
    pub(super) address: Option<SocketAddr>,
    /// Fingerprints of the controllers that this host accepts.
    pub(super) accepted: Vec<Fingerprint>,
}

/// The session, as the thread that follows the controller has it at present.
pub(crate) type SharedSession = Arc<Mutex<SessionOrigin>>;

/// Makes requests about pods accept the controllers of an enrolment.
pub(super) fn accept(session: &SharedSession, enrolment: &Enrolment) {
    session.lock().unwrap_or_else(PoisonError::into_inner).accepted =
        enrolment.identities().accepted();
}

/// Sends requests about pods of this host to the controller.
pub struct PodRequests {
    pub(super) controller: HostPort,
    pub(super) identity: Identity,
    /// Of several controllers, the one that sends the part of the cloud places the instances.
    pub(super) session: SharedSession,
    pub(super) turns: Turns,
}

impl fmt::Debug for PodRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PodRequests").field("controller", &self.controller).finish_non_exhaustive()
    }
}

impl PodRequests {
    /// Sends a request, and waits for its answer.
    ///
    /// # Errors
    /// A text for the user: no answer has come, so it is unknown whether the request had an effect.
    pub fn send(&self, request: PodRequest) -> Result<PodAnswer, String> {
        let until = Instant::now() + ANSWER_WAIT_MAX;
        let _turn = self.turns.take(until)?;
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match self.exchange(&session, request, until) {
            Ok(answer) => Ok(answer),
            Err(LinkError::Refused(refusal)) => {
                let code = if refusal.reason.is_temporary() { "Unavailable" } else { "Refused" };
                Ok(PodAnswer::Refused { code: code.to_owned(), message: refusal.message })
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn exchange(
        &self,
        session: &SessionOrigin,
        request: PodRequest,
        until: Instant,
    ) -> Result<PodAnswer, LinkError> {
        let (controller, own) = (&self.controller, &self.identity);
        let mut link = match session.address {
            Some(address) => Link::open_any(controller, &[address], own, &session.accepted)?,
            None => Link::open(controller, own, &session.accepted, 0)?,
        };
        link.send(&FromHost::Pod { version: VERSION, request })?;
        match link.expect(until)? {
            FromController::Pod { answer } => Ok(answer),
            _ => Err(LinkError::Broken("the controller has sent another message".to_owned())),
        }
    }
}

/// Turns of requests, of which a limited number has one.
#[derive(Debug, Default)]
pub(super) struct Turns {
    taken: Mutex<u32>,
    given_back: Condvar,
}

/// A turn, which is given back when this value is dropped.
#[derive(Debug)]
struct Turn<'a>(&'a Turns);

impl Turns {
    fn lock(&self) -> MutexGuard<'_, u32> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// If there is none until this time.
    fn take(&self, until: Instant) -> Result<Turn<'_>, String> {
        let mut taken = self.lock();
        while *taken >= AT_ONCE_MAX {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("too many requests about pods wait: try again".to_owned());
            }
            let woken = self.given_back.wait_timeout(taken, left);
            taken = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        *taken += 1;
        Ok(Turn(self))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.given_back.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_beyond_the_bound_wait_for_a_turn() {
        let turns = Turns::default();
        let soon = || Instant::now() + Duration::from_millis(1);
        let mut all: Vec<_> = (0..AT_ONCE_MAX).map(|_| turns.take(soon()).unwrap()).collect();
        assert!(turns.take(soon()).unwrap_err().contains("try again"));
        std::thread::scope(|scope| {
            let long = Instant::now() + Duration::from_secs(600);
            let waits = scope.spawn({
                let turns = &turns;
                move || turns.take(long).map(drop)
            });
            all.pop();
            waits.join().unwrap().unwrap();
        });
        turns.take(soon()).unwrap();
    }
}
