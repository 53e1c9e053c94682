//! Gate for requests for other rules, which closes while another process takes over.
//!
//! The process that takes over reads the files of its configuration. Rules that are confirmed after
//! that would end with this process. So the gate first waits until no such request is under way,
//! and then refuses further ones until the hand-over has failed. After a success it stays closed.
//!
//! Bound: the gate waits for [`CLOSE_WAIT_MAX`]. The number of requests under way is that of the
//! connections.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest wait for the end of requests that are under way.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(5);

/// The gate, which all threads of connections share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    passed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Number of requests that are under way.
    under_way: usize,
    is_closed: bool,
}

/// A request that is under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct Passage(Gate);

/// A gate that is closed, until it is dropped.
#[derive(Debug)]
pub(crate) struct Closed(Gate);

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a request begin.
    ///
    /// # Errors
    /// If the gate is closed: a text for the user.
    pub(crate) fn enter(&self) -> Result<Passage, String> {
        let mut state = self.lock();
        if state.is_closed {
            return Err("the rules stay as they are: the node is being taken over by another \
                        process, try again"
                .to_owned());
        }
        state.under_way += 1;
        Ok(Passage(self.clone()))
    }

    /// Closes the gate, and waits until no request is under way.
    ///
    /// # Errors
    /// If a request takes too long, or the gate is closed already: a text for the user.
    pub(crate) fn close(&self) -> Result<Closed, String> {
        self.close_within(CLOSE_WAIT_MAX)
    }

    fn close_within(&self, time: Duration) -> Result<Closed, String> {
        let mut state = self.lock();
        if state.is_closed {
            return Err("another process is taking over already".to_owned());
        }
        state.is_closed = true;
        let closed = Closed(self.clone());
        let is_busy = |state: &mut State| state.under_way > 0;
        let waited = self.0.passed.wait_timeout_while(state, time, is_busy);
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        // Dropping `closed` takes the lock.
        drop(state);
        if waited.timed_out() {
            return Err("other rules are being put in force: try again".to_owned());
        }
        Ok(closed)
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        self.0.lock().under_way -= 1;
        self.0.0.passed.notify_all();
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.lock().is_closed = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_closed_gate_refuses_until_it_is_open_again() {
        let gate = Gate::default();
        drop((gate.enter().unwrap(), gate.enter().unwrap()));
        let closed = gate.close().unwrap();
        assert!(gate.enter().unwrap_err().contains("is being taken over"));
        assert!(gate.close().is_err());
        drop(closed);
        drop(gate.enter().unwrap());
    }

    #[test]
    fn a_gate_waits_for_requests_under_way_and_opens_if_they_take_too_long() {
        let gate = Gate::default();
        let passage = gate.enter().unwrap();
        let error = gate.close_within(Duration::from_millis(10)).unwrap_err();
        assert!(error.contains("try again"), "{error}");
        let other = gate.enter().unwrap();
        let waits = thread::spawn({
            let gate = gate.clone();
            move || gate.close_within(Duration::from_secs(60)).map(drop)
        });
        while gate.enter().is_ok() {
            thread::yield_now();
        }
        drop((passage, other));
        waits.join().unwrap().unwrap();
    }
}
