//! A [`Host`]: an endpoint of the Messaging Layer with its sockets and its progress thread, and the
//! calls of its users. In this crate, *host* means this object, not a machine.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use srd_efa::rdm::{Config, Rdm};
use srd_net::LocalEndpoint;
use srd_proto::{Duration, Endpoint, Instant};

use crate::core::{Core, Sink};
use crate::memory::UserMemory;
use crate::options::Options;
use crate::progress;
use crate::shared::{Call, CallError, Shared};

/// Longest time for which the close of a host waits until every datagram is acknowledged.
pub const LINGER: Duration = Duration::from_secs(1);
/// Time for which a closed host still answers: it sends due acknowledgements. If an acknowledgement
/// was lost and a peer repeats its datagram, the datagram is acknowledged again.
const FINAL_ACKS: Duration = Duration::from_millis(3);
/// Part of the peer timeout, as a divisor, after which a peer is probed for which an operation
/// waits.
const PROBE_PART: u64 = 4;
/// Shortest time between two probes of a peer.
const PROBE_EVERY_MIN: Duration = Duration::from_millis(10);
/// An endpoint of the Messaging Layer, with sockets and a progress thread. The documentation of the
/// crate describes its threads, its use of the application's memory, and its close.
#[derive(Debug)]
pub struct Host<S: Sink> {
    handle: Handle<S>,
    progress: Option<JoinHandle<()>>,
    address: SocketAddr,
    incarnation: u64,
}

/// Handle for calls to a host. A handle may exist longer than its host; calls then return an error.
#[derive(Debug)]
pub struct Handle<S: Sink>(Arc<Shared<S>>);

impl<S: Sink> Clone for Handle<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Sink<Layer = Rdm>> Host<S> {
    /// Opens sockets and starts the progress thread of a host with the Messaging Layer.
    ///
    /// # Errors
    /// An error of the operating system, if it refuses the address, the port, memory, descriptors
    /// or a thread.
    pub fn open(options: &Options, sink: S) -> io::Result<Self> {
        Self::open_with(options, sink, |endpoint, place| {
            Box::new(place.messaging(options, endpoint))
        })
    }
}

/// Properties of a host that are needed to make its layer, which is usually the Messaging Layer.
#[derive(Clone, Copy, Debug)]
pub struct HostProperties {
    /// Address of the host.
    pub address: SocketAddr,
    /// Number of the endpoint's run. After a restart, the endpoint has a larger number.
    pub incarnation: u64,
    /// Secret key of hash tables.
    pub seed: u64,
}

impl HostProperties {
    /// Makes a Messaging Layer for this host.
    #[must_use]
    pub fn messaging(&self, options: &Options, endpoint: &mut Endpoint) -> Rdm {
        let config = Config {
            operations_max: options.operations_max,
            receives_max: options.receives_max,
            report_remote: true,
            seed: self.seed,
        };
        Rdm::new(config, endpoint, self.address, self.incarnation)
    }
}

impl<S: Sink> Host<S> {
    /// Opens a host, as [`Host::open`] does, with the layer that `make` returns.
    ///
    /// # Errors
    /// As [`Host::open`].
    pub fn open_with(
        options: &Options,
        sink: S,
        make: impl FnOnce(&mut Endpoint, &HostProperties) -> Box<S::Layer>,
    ) -> io::Result<Self> {
        let mut local = LocalEndpoint::bind_near(&options.bind(), options.shared_memory)?;
        let address = local.local_address();
        let incarnation = srd_net::clock::epoch().0;
        let place = HostProperties { address, incarnation, seed: srd_net::clock::secret()?.word() };
        let layer = make(local.core_mut().0, &place);
        let arrivals = local.arrivals()?;
        let core = Core {
            local,
            layer,
            memory: UserMemory::default(),
            sink,
            broken: false,
            more: false,
            put_off: false,
            coalesce_until: Instant::FAR_FUTURE,
            excess: 0,
            probe_at: Instant::ZERO,
            probe_every: options.peer_timeout.over(PROBE_PART).max(PROBE_EVERY_MIN),
        };
        let shared = Arc::new(Shared::new(core)?);
        let progress = progress::start(Arc::clone(&shared), arrivals)?;
        Ok(Self { handle: Handle(shared), progress: Some(progress), address, incarnation })
    }

    /// Returns the address that peers send to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of the endpoint's run. After a restart, the endpoint has a larger number.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Returns the handle for calls to the host.
    #[must_use]
    pub fn handle(&self) -> &Handle<S> {
        &self.handle
    }

    /// Closes the host, within [`LINGER`] and a few milliseconds. When this call returns, the sink
    /// has been dropped, and the host no longer accesses the application's memory.
    pub fn close(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(progress) = self.progress.take() else { return };
        if !self.handle.0.process.is_current() {
            // In the child of a fork, neither the progress thread exists nor a thread that held the
            // lock at the fork. So waiting is impossible, and the memory stays allocated.
            std::mem::forget(Arc::clone(&self.handle.0));
            std::mem::forget(progress);
            return;
        }
        self.linger();
        self.handle.0.closing.store(true, Ordering::SeqCst);
        self.handle.0.wake();
        // If the progress thread panicked, it has printed the reason, and has ended as well.
        let _ = progress.join();
        drop(self.handle.0.lock().take());
    }

    fn linger(&self) {
        let start = srd_net::clock::now();
        let mut last = start + LINGER;
        let mut quiet = false;
        loop {
            let Some(round) = self.handle.0.round_for_progress() else { return };
            let now = srd_net::clock::now();
            if round.is_quiet && !quiet {
                quiet = true;
                last = last.min(now + FINAL_ACKS);
            }
            if now >= last {
                return;
            }
            let wait = round.due.min(last).since(now).min(Duration::from_millis(1));
            std::thread::sleep(std::time::Duration::from_nanos(wait.as_nanos()));
        }
    }
}

impl<S: Sink> Drop for Host<S> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<S: Sink> Handle<S> {
    /// Calls `f` with the Messaging Layer, then sends the datagrams that result.
    ///
    /// # Errors
    /// [`CallError`], if the host is closed, its sockets are lost, or this process is the child of
    /// a fork.
    ///
    /// # Safety
    /// Memory that is named in calls of the Messaging Layer must be valid: readable where it is
    /// sent or shared for reading, writable where it is received into or shared for writing. It
    /// must stay so, and no other thread may write memory that is read, or touch memory that is
    /// written, until the end of the operation was reported to the sink, the share was ended, or
    /// the host was closed.
    #[allow(unsafe_code, reason = "callers vouch for addresses")]
    pub unsafe fn call<R>(&self, f: impl FnOnce(Call<'_, S>) -> R) -> Result<R, CallError> {
        self.0.call(f)
    }

    /// Does one round of work on the calling thread, without waiting: receives, sends, and reports
    /// completions to the sink.
    pub fn poll(&self) {
        self.0.poll();
    }

    /// Makes the progress thread do the work from now on, until the next poll.
    pub fn hand_over(&self) {
        self.0.hand_over();
    }

    /// Returns a number that differs from those of all other hosts, as long as this handle exists.
    #[must_use]
    pub fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    use srd_efa::layer::OperationCompletion;

    struct Nobody;

    impl Sink for Nobody {
        type Layer = Rdm;

        fn has_room(&mut self) -> bool {
            true
        }

        fn done(&mut self, _: OperationCompletion, _: &Rdm) {}

        fn notice(&mut self, _: srd_net::Notice) {}

        fn broken(&mut self, error: &io::Error) {
            panic!("{error}");
        }
    }

    /// A sink that counts notifications that the sockets are lost.
    struct Failures(Arc<AtomicU64>);

    impl Sink for Failures {
        type Layer = Rdm;

        fn has_room(&mut self) -> bool {
            true
        }

        fn done(&mut self, _: OperationCompletion, _: &Rdm) {}

        fn notice(&mut self, _: srd_net::Notice) {}

        fn broken(&mut self, _: &io::Error) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    #[allow(unsafe_code, reason = "calls that name no memory")]
    fn regression_a_panic_in_a_call_ends_the_host_instead_of_going_on_with_half_a_change() {
        let options = Options::at("127.0.0.1:0".parse().unwrap());
        let failures = Arc::new(AtomicU64::new(0));
        let host = Host::open(&options, Failures(failures.clone())).unwrap();
        let handle = host.handle().clone();
        let bug = std::panic::AssertUnwindSafe(|| {
            // SAFETY: the call names no memory.
            unsafe { handle.call(|_| panic!("a bug, for a test")) }
        });
        assert!(std::panic::catch_unwind(bug).is_err());
        // SAFETY: the call names no memory.
        assert_eq!(unsafe { handle.call(|_| ()) }, Err(CallError::Broken));
        handle.poll();
        assert_eq!(failures.load(Ordering::SeqCst), 1, "told once");
        host.close();
    }

    /// Regression: after a failure the host reads no packets, so that a packet kept the progress
    /// thread awake for ever.
    #[test]
    #[allow(unsafe_code, reason = "a call that names no memory")]
    fn regression_after_a_failure_the_progress_thread_sleeps_although_a_packet_waits() {
        let options = Options::at("127.0.0.1:0".parse().unwrap());
        let host = Host::open(&options, Failures(Arc::default())).unwrap();
        let shared = &host.handle().0;
        shared.lock().as_mut().unwrap().fail(&io::Error::other("for a test"));
        shared.wake();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(&[0; 100], host.address()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        // The other tests of this process run at the same time, so the times that the progress
        // thread has worked are counted instead of its processor time.
        let before = shared.rounds();
        std::thread::sleep(std::time::Duration::from_millis(300));
        let more = shared.rounds() - before;
        assert!(more < 30, "{more} rounds");
        host.close();
    }

    /// Regression: calls without a poll prevented the progress thread from working as well. If an
    /// application only made calls, its arrivals were never processed, and messages took as long as
    /// timeouts.
    #[test]
    #[allow(unsafe_code, reason = "a call that names no memory")]
    fn regression_only_a_poll_keeps_the_progress_thread_from_working() {
        let options = Options::at("127.0.0.1:0".parse().unwrap());
        let host = Host::open(&options, Nobody).unwrap();
        let (handle, shared) = (host.handle(), &host.handle().0);
        // SAFETY: the call names no memory.
        let now = unsafe { handle.call(|mut call| call.parts().1.now) }.unwrap();
        assert!(shared.fresh_until() < now);
        handle.poll();
        assert!(shared.fresh_until() > now);
    }

    /// Regression: a poll without an arrival did not read the clock. So the application counted as
    /// absent a millisecond after the last packet, however often it polled: the progress thread
    /// worked beside it, and each poll woke that thread again.
    #[test]
    fn regression_a_poll_without_an_arrival_keeps_the_progress_thread_from_working() {
        let options = Options::at("127.0.0.1:0".parse().unwrap());
        let host = Host::open(&options, Nobody).unwrap();
        let (handle, shared) = (host.handle(), &host.handle().0);
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(2));
            let before = srd_net::clock::now();
            handle.poll();
            assert!(shared.fresh_until() >= before + crate::shared::STALE);
        }
    }

    /// Regression: with memory between endpoints, a poll disarms the descriptor that wakes the
    /// progress thread. The thread continued to sleep, and packets that arrived while the
    /// application did not poll waited for a second or longer.
    #[test]
    fn regression_after_a_poll_the_progress_thread_arms_its_descriptor_again() {
        let options = Options::at("127.0.0.1:0".parse().unwrap());
        let host = Host::open(&options, Nobody).unwrap();
        let (handle, shared) = (host.handle(), &host.handle().0);
        let begin = std::time::Instant::now();
        let arms = || {
            while !shared.is_armed() {
                assert!(begin.elapsed().as_secs() < 10, "the progress thread sleeps on");
                std::thread::yield_now();
            }
        };
        for _ in 0..10 {
            arms();
            handle.poll();
        }
        arms();
    }
}
