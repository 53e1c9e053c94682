//! A back end without a network, for a node without other hosts: nothing arrives, and nothing
//! leaves this process. It opens no socket, so no other program can reach the node.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use srd_proto::time::Instant;
use srd_proto::transmit::{PacketMeta, Transmit};

use crate::back_ends::io::{IoStats, Notice, PacketIo, Segments, SendOutcome, Wait};
use crate::clock::Clock;
use crate::endpoints::wake::IoWaker;
use crate::sys::os::{self, Interest};

/// Port of the discard protocol (RFC 863).
const DISCARD: u16 = 9;

/// A back end that sends no packet and receives none.
#[derive(Debug)]
pub struct NoIo {
    clock: Clock,
    waker: Arc<IoWaker>,
    /// A descriptor that ends a wait when it is readable.
    watched: Option<Arc<OwnedFd>>,
    stats: IoStats,
}

impl NoIo {
    /// Creates the back end.
    ///
    /// # Errors
    /// An error of the operating system, if it has no free descriptor.
    pub fn new() -> io::Result<Self> {
        let waker = Arc::new(IoWaker::with_descriptor()?);
        Ok(Self { clock: Clock::new(), waker, watched: None, stats: IoStats::default() })
    }

    /// Returns a descriptor that is readable while packets wait, which is never the case.
    pub(crate) fn arrivals(&self) -> io::Result<OwnedFd> {
        Ok(rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?)
    }

    /// Sets a descriptor that ends a wait when it is readable.
    pub(crate) fn watch(&mut self, fd: Arc<OwnedFd>) {
        self.watched = Some(fd);
    }
}

impl PacketIo for NoIo {
    /// Drops the batches, because there is no other host.
    fn send<S: Segments>(&mut self, _: &[(Transmit, S)]) -> io::Result<SendOutcome> {
        Ok(SendOutcome::All)
    }

    fn receive(
        &mut self,
        wait: Wait,
        _: impl FnMut(Instant, PacketMeta, &mut [u8]),
    ) -> io::Result<usize> {
        self.stats.receive_calls += 1;
        let now = self.clock.now();
        if now >= wait.until || !self.waker.prepare_sleep() {
            return Ok(0);
        }
        self.stats.sleeps += 1;
        let limit_ns = wait.until.since(now).as_nanos();
        let limit_ns = (wait.until != Instant::FAR_FUTURE).then_some(limit_ns);
        let fds = self.waker.fd().into_iter().chain(self.watched.as_ref().map(|fd| fd.as_fd()));
        let mut interests: Vec<Interest<'_>> = fds.map(Interest::readable).collect();
        let waited = os::wait(&mut interests, limit_ns);
        self.waker.finish_sleep(interests.first().is_some_and(Interest::is_ready));
        waited.map(|_| 0)
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns an address at which no packet arrives. An endpoint needs a port: this is that of the
    /// discard protocol (RFC 863).
    fn local_address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, DISCARD))
    }

    fn paths(&self) -> u16 {
        1
    }

    fn batch_segments_max(&self) -> usize {
        1
    }

    fn take_notice(&mut self) -> Option<Notice> {
        None
    }

    fn stats(&self) -> IoStats {
        self.stats
    }

    fn sockets(&self) -> io::Result<Vec<OwnedFd>> {
        Ok(Vec::new())
    }

    fn waker(&mut self) -> io::Result<Arc<IoWaker>> {
        Ok(Arc::clone(&self.waker))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    fn wait(io: &mut NoIo, until: Instant) -> usize {
        io.receive(Wait::until(until), |_, _, _| panic!("a packet")).unwrap()
    }

    #[test]
    fn a_wait_ends_at_its_time_by_another_thread_and_by_a_watched_descriptor() {
        let mut io = NoIo::new().unwrap();
        let at = io.clock().now() + srd_proto::Duration::from_millis(20);
        assert_eq!(wait(&mut io, at), 0);
        assert!(io.clock().now() >= at);
        let waker = io.waker().unwrap();
        // A call before the wait counts as well.
        waker.wake();
        assert_eq!(wait(&mut io, Instant::FAR_FUTURE), 0);
        let other = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            waker.wake();
        });
        assert_eq!(wait(&mut io, Instant::FAR_FUTURE), 0);
        other.join().unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        io.watch(Arc::new(read));
        rustix::io::write(&write, b"x").unwrap();
        assert_eq!(wait(&mut io, Instant::FAR_FUTURE), 0);
        assert!(io.sockets().unwrap().is_empty(), "another process has nothing to continue");
    }
}
