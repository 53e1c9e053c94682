//! A host, as its callers see it.

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

/// Time for which a host that is closed waits until everything is acknowledged.
pub const LINGER: Duration = Duration::from_secs(1);
/// Time for which it then still answers: due acknowledgements leave, and a datagram that a peer
/// repeats because it missed an acknowledgement is acknowledged again.
const FINAL_ACKS: Duration = Duration::from_millis(3);
/// An endpoint of the Messaging Layer. See the crate's page.
#[derive(Debug)]
pub struct Host<S: Sink> {
    handle: Handle<S>,
    progress: Option<JoinHandle<()>>,
    address: SocketAddr,
    incarnation: u64,
}

/// Handle through which a host is called. Handles outlive their host; calls then return an error.
#[derive(Debug)]
pub struct Handle<S: Sink>(Arc<Shared<S>>);

impl<S: Sink> Clone for Handle<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Sink<Layer = Rdm>> Host<S> {
    /// Opens sockets, and starts the progress thread: a host of the Messaging Layer.
    ///
    /// # Errors
    /// What the system refuses: the address or port, memory, descriptors or a thread.
    pub fn open(options: &Options, sink: S) -> io::Result<Self> {
        Self::open_with(options, sink, |endpoint, place| {
            Box::new(place.messaging(options, endpoint))
        })
    }
}

/// Properties of a host from which its layer is made.
#[derive(Clone, Copy, Debug)]
pub struct HostProperties {
    /// Address of the host.
    pub address: SocketAddr,
    /// Run of the endpoint at this address.
    pub incarnation: u64,
    /// A secret for tables.
    pub seed: u64,
}

impl HostProperties {
    /// A Messaging Layer here.
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
    /// As [`Host::open`], over the layer that `make` makes.
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
            coalesce_until: Instant::FAR_FUTURE,
        };
        let shared = Arc::new(Shared::new(core)?);
        let progress = progress::start(Arc::clone(&shared), arrivals)?;
        Ok(Self { handle: Handle(shared), progress: Some(progress), address, incarnation })
    }

    /// Address for peers.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Run of the endpoint at this address.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Handle through which the host is called.
    #[must_use]
    pub fn handle(&self) -> &Handle<S> {
        &self.handle
    }

    /// Closes the host; returns within [`LINGER`] and a little more. Afterwards the application's
    /// memory is not touched, and the sink is gone.
    pub fn close(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(progress) = self.progress.take() else { return };
        if !self.handle.0.process.is_current() {
            // Neither the progress thread nor a thread that held the lock at the fork is one of
            // this process: nothing can be waited for, and memory is all there is to lose.
            std::mem::forget(Arc::clone(&self.handle.0));
            std::mem::forget(progress);
            return;
        }
        self.linger();
        self.handle.0.closing.store(true, Ordering::SeqCst);
        self.handle.0.wake();
        // A progress thread that panicked has printed why, and has ended as well.
        let _ = progress.join();
        drop(self.handle.0.lock().take());
    }

    fn linger(&self) {
        let start = srd_net::clock::now();
        let mut last = start + LINGER;
        let mut quiet = false;
        loop {
            let Some((due, is_quiet)) = self.handle.0.round_for_progress() else { return };
            let now = srd_net::clock::now();
            if is_quiet && !quiet {
                quiet = true;
                last = last.min(now + FINAL_ACKS);
            }
            if now >= last {
                return;
            }
            let wait = due.min(last).since(now).min(Duration::from_millis(1));
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
    /// The host is closed, its sockets are lost, or this process is the child of a fork.
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

    /// One round of work, without waiting.
    pub fn poll(&self) {
        self.0.poll();
    }

    /// The progress thread does the work from now on, until the next poll.
    pub fn hand_over(&self) {
        self.0.hand_over();
    }

    /// A number that the handles of no other host have, as long as this one is held.
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

    /// A sink that counts how often it is notified that the sockets are lost.
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
            // SAFETY: names no memory.
            unsafe { handle.call(|_| panic!("a bug, for a test")) }
        });
        assert!(std::panic::catch_unwind(bug).is_err());
        // SAFETY: names no memory.
        assert_eq!(unsafe { handle.call(|_| ()) }, Err(CallError::Broken));
        handle.poll();
        assert_eq!(failures.load(Ordering::SeqCst), 1, "told once");
        host.close();
    }

    /// Calls without a poll kept the progress thread from working as well. An application that
    /// only made calls never processed arrivals, and messages took as long as time-outs.
    #[test]
    #[allow(unsafe_code, reason = "a call that names no memory")]
    fn regression_only_a_poll_keeps_the_progress_thread_from_working() {
        let options = Options::at("127.0.0.1:0".parse().unwrap());
        let host = Host::open(&options, Nobody).unwrap();
        let (handle, shared) = (host.handle(), &host.handle().0);
        // SAFETY: names no memory.
        let now = unsafe { handle.call(|mut call| call.parts().1.now) }.unwrap();
        assert!(shared.fresh_until() < now);
        handle.poll();
        assert!(shared.fresh_until() > now);
    }

    /// With memory between endpoints a poll takes back what would wake the progress thread. It
    /// slept on, and what came when the application stayed away lay there for a second and more.
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
