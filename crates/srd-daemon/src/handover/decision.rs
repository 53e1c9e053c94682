//! The decision which of the two processes of a hand-over goes on.
//!
//! The daemon that runs decides by one byte on a socket that carries nothing else: the other
//! process goes on, or this daemon does. The other process moves no packet before it has read that
//! it goes on, or the end of the socket. Only the end of the daemon that runs causes the latter. So
//! one process goes on, and never both, in every order of events:
//!
//! - The socket always has space for the byte, while unread descriptors may fill the
//!   connection of the hand-over.
//! - A daemon that fails in any step drops the decision, and thereby sends that it goes on itself.
//! - A process that does not wait any longer closes the socket for reading first, and then reads
//!   once more. The kernel orders this and the byte. If the byte came first, it is read. Otherwise
//!   the daemon that runs cannot send it, and goes on.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Byte of the daemon that runs: it does not go on, and is about to end.
const ENDS: u8 = b'e';
/// Byte of the daemon that runs: it goes on as before, and the other process has to end.
const BACK: u8 = b'b';

/// The decision of the daemon that runs. If it is dropped before, this daemon goes on.
#[derive(Debug)]
pub struct Decision {
    socket: UnixStream,
    is_made: bool,
}

impl Decision {
    /// Returns the decision, and the end of its socket for [`AwaitedDecision`] in the other
    /// process. This process must close that end as soon as the other process has it.
    ///
    /// # Errors
    /// An error of the operating system, if there is no free descriptor.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let (socket, of_other) = UnixStream::pair()?;
        // There is always space, and the process that moves packets waits for no other process.
        socket.set_nonblocking(true)?;
        Ok((Self { socket, is_made: false }, of_other.into()))
    }

    /// Decides that the other process goes on.
    ///
    /// # Errors
    /// If the other process has ended or does not wait any more. This process goes on.
    pub(super) fn hand_over(mut self) -> io::Result<()> {
        self.socket.write_all(&[ENDS])?;
        self.is_made = true;
        Ok(())
    }
}

impl Drop for Decision {
    fn drop(&mut self) {
        if !self.is_made {
            // An error means that the other process does not go on anyway.
            let _ = self.socket.write_all(&[BACK]);
        }
    }
}

/// The decision of the daemon that runs, which the other process waits for.
#[derive(Debug)]
pub(crate) struct AwaitedDecision(UnixStream);

impl From<OwnedFd> for AwaitedDecision {
    fn from(socket: OwnedFd) -> Self {
        Self(socket.into())
    }
}

impl AwaitedDecision {
    /// Waits for the decision, for at most this time. Returns whether this process goes on. If it
    /// returns false, this process has to end; the daemon that runs goes on, and cannot decide
    /// otherwise any more.
    pub(super) fn goes_on(&self, wait: Duration) -> bool {
        let read = self.0.set_read_timeout(Some(wait)).and_then(|()| self.read());
        read.unwrap_or_else(|_| self.refuse())
    }

    /// Reads the decision. The end of the socket without a decision is the end of the other
    /// process.
    fn read(&self) -> io::Result<bool> {
        let mut byte = [0];
        loop {
            match (&self.0).read(&mut byte) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return Ok(read? == 0 || byte == [ENDS]),
            }
        }
    }

    /// Makes another decision of the daemon that runs impossible, and returns the decision that it
    /// has made before.
    fn refuse(&self) -> bool {
        let _ = self.0.shutdown(Shutdown::Read);
        let mut byte = [0];
        let read = (&self.0).read(&mut byte);
        read.is_ok_and(|bytes| bytes > 0) && byte == [ENDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(1);

    fn pair() -> (Decision, AwaitedDecision) {
        let (decision, of_other) = Decision::new().unwrap();
        (decision, of_other.into())
    }

    #[test]
    fn the_daemon_that_runs_decides_and_its_failure_is_a_decision() {
        let (decision, awaited) = pair();
        decision.hand_over().unwrap();
        assert!(awaited.goes_on(LONG));
        let (decision, awaited) = pair();
        drop(decision);
        assert!(!awaited.goes_on(LONG));
        // A daemon that is killed sends nothing.
        let (killed, of_other) = UnixStream::pair().unwrap();
        drop(killed);
        assert!(AwaitedDecision(of_other).goes_on(LONG));
    }

    #[test]
    fn a_daemon_whose_successor_has_ended_goes_on() {
        let (decision, awaited) = pair();
        drop(awaited);
        decision.hand_over().unwrap_err();
    }

    /// A process that had waited too long ended, and so did the daemon, which had just decided that
    /// the process goes on.
    #[test]
    fn regression_a_decision_beside_the_end_of_the_wait_counts_and_a_later_one_fails() {
        let (decision, awaited) = pair();
        decision.hand_over().unwrap();
        assert!(awaited.refuse(), "the decision came after the wait and before the refusal");
        let (decision, awaited) = pair();
        assert!(!awaited.goes_on(SHORT));
        decision.hand_over().unwrap_err();
        let (decision, awaited) = pair();
        drop(decision);
        assert!(!awaited.refuse());
    }

    #[test]
    fn exactly_one_process_goes_on_if_both_act_at_the_same_time() {
        for round in 0..500 {
            let (decision, awaited) = pair();
            let begins = std::sync::Barrier::new(2);
            let (is_handed_over, goes_on) = std::thread::scope(|scope| {
                let gives = scope.spawn(|| {
                    begins.wait();
                    decision.hand_over().is_ok()
                });
                begins.wait();
                let goes_on =
                    if round % 2 == 0 { awaited.refuse() } else { awaited.goes_on(SHORT) };
                (gives.join().unwrap(), goes_on)
            });
            assert_eq!(is_handed_over, goes_on, "round {round}");
        }
    }
}
