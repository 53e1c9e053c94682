//! An endpoint, with the operations that the functions of `srd.h` need.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use srd_efa::layer::{Peer, World};
use srd_host::{Handle, Host};

use crate::address::Address;
use crate::event::Event;
use crate::options::Checked;
use crate::peers::{ANY, ENDPOINTS, Peers};
use crate::queue::Queue;
use crate::shares::Shares;
use crate::sink::EventSink;
use crate::{Error, Outcome, Status};

/// Time for which a blocking call polls before it sleeps.
const SPIN: Duration = Duration::from_micros(20);

/// An endpoint.
#[derive(Debug)]
pub struct Endpoint {
    handle: Handle<EventSink>,
    /// The host; `None` after the endpoint was closed.
    host: Mutex<Option<Host<EventSink>>>,
    address: Address,
    queue: Arc<Queue>,
    /// Process that opened the endpoint.
    process: u32,
    /// Whether a call has panicked. Then the state may be inconsistent.
    failed: AtomicBool,
}

/// Parts of the endpoint that a call may use.
pub(crate) struct Submitter<'a> {
    pub(crate) rdm: &'a mut srd_efa::rdm::Rdm,
    pub(crate) world: World<'a>,
    pub(crate) sink: &'a mut EventSink,
}

impl Endpoint {
    /// Opens an endpoint.
    ///
    /// # Errors
    /// `System`, if the address does not belong to this machine, the port is in use, or the system
    /// lacks descriptors, memory or threads.
    pub fn open(options: &Checked) -> Outcome<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = NEXT.fetch_add(1, Ordering::Relaxed) % (ENDPOINTS - 1) + 1;
        let refused = |error: std::io::Error| {
            let text = format!("cannot open an endpoint at {}: {error}", options.host.address);
            Error::new(Status::System, text)
        };
        let queue = Arc::new(Queue::new(options.events_max).map_err(refused)?);
        let sink = EventSink {
            peers: Peers::new(name),
            shares: Shares::default(),
            queue: Arc::clone(&queue),
            logs: EventSink::wants_log(),
        };
        let host = Host::open(&options.host, sink).map_err(refused)?;
        Ok(Self {
            handle: host.handle().clone(),
            address: Address { place: host.address(), incarnation: host.incarnation() },
            host: Mutex::new(Some(host)),
            queue,
            process: std::process::id(),
            failed: AtomicBool::new(false),
        })
    }

    /// Closes the endpoint. When the function returns, the endpoint's memory is free. Calls of
    /// other threads end with an error.
    pub fn close(&self) {
        let host = self.host.lock().unwrap_or_else(PoisonError::into_inner).take();
        if self.process == std::process::id() {
            self.queue.end(Status::Handle);
        }
        if let Some(host) = host {
            host.close();
        }
    }

    /// Checks that the endpoint may be used.
    ///
    /// # Errors
    /// `Forked` in a child of the endpoint's process; `Internal` after a panic.
    pub fn check(&self) -> Outcome {
        if self.process != std::process::id() {
            return Err(Status::Forked.into());
        }
        if self.failed.load(Ordering::Relaxed) {
            return Err(Status::Internal.into());
        }
        Ok(())
    }

    /// Disables the endpoint after a call has panicked: every later call returns an error.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
        self.queue.end(Status::Internal);
    }

    /// Returns the address of the endpoint.
    #[must_use]
    pub fn address(&self) -> Address {
        self.address
    }

    /// Returns the descriptor that is readable while events are in the queue.
    #[must_use]
    pub fn descriptor(&self) -> i32 {
        self.queue.watch()
    }

    /// Returns the handle through which the host is called.
    pub(crate) fn handle(&self) -> &Handle<EventSink> {
        &self.handle
    }

    /// Calls the Messaging Layer.
    ///
    /// # Errors
    /// The errors of `f`, or an error if the endpoint is closed or has failed.
    ///
    /// # Safety
    /// The conditions of [`Handle::call`]: memory that `f` names has to be valid until the end of
    /// its operation was reported.
    #[allow(unsafe_code, reason = "the program vouches for its memory")]
    pub(crate) unsafe fn submit<R>(
        &self,
        f: impl FnOnce(&mut Submitter<'_>) -> Outcome<R>,
    ) -> Outcome<R> {
        // SAFETY: the caller fulfils the conditions of `# Safety`.
        let outcome = unsafe {
            self.handle.call(|mut call| {
                let (rdm, world, sink) = call.parts();
                f(&mut Submitter { rdm, world, sink })
            })
        }?;
        if outcome.as_ref().is_err_and(|error| error.status == Status::Again) {
            // The call may be repeated at once, so it makes progress itself instead of waiting for
            // the progress thread to free slots.
            self.handle.poll();
        }
        outcome
    }

    /// Passes up to `most` events to `each`. Waits for the first event at most `timeout_ms`
    /// milliseconds, or without limit if the number is negative. Returns the number of events; zero
    /// after the timeout.
    ///
    /// # Errors
    /// `Interrupted` after a signal; the status of the queue, if it has ended and is empty.
    pub fn poll(
        &self,
        most: usize,
        timeout_ms: i32,
        mut each: impl FnMut(usize, Event),
    ) -> Outcome<usize> {
        let begin = Instant::now();
        let limit = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        loop {
            let taken = self.queue.take(most, &mut each)?;
            if taken > 0 {
                return Ok(taken);
            }
            self.handle.poll();
            let taken = self.queue.take(most, &mut each)?;
            let elapsed = begin.elapsed();
            if taken > 0 || limit.is_some_and(|limit| elapsed >= limit) {
                if taken == 0 && self.queue.is_watched() {
                    // From now on the program waits for the descriptor, and only the progress
                    // thread works.
                    self.handle.hand_over();
                }
                return Ok(taken);
            }
            // Usually an event arrives soon, and sleeping immediately would cost more time than
            // polling.
            if elapsed > SPIN {
                self.handle.hand_over();
                self.queue.wait(limit.map(|limit| limit.saturating_sub(elapsed)))?;
            }
        }
    }
}

impl Submitter<'_> {
    /// Adds a peer. Returns the program's handle for the peer.
    pub(crate) fn connect(&mut self, own: SocketAddr, address: Address) -> Outcome<u64> {
        if own.is_ipv4() != address.place.is_ipv4() {
            let text = format!("the endpoint is at {own}, which cannot reach {}", address.place);
            return Err(Error::invalid(text));
        }
        let added = self.rdm.add_peer(&mut self.world, address.place, address.incarnation);
        let peer = added.map_err(|refused| match refused {
            srd_efa::layer::Refused::Again => {
                Error::new(Status::Full, "there are too many peers: disconnect from some")
            }
            other => other.into(),
        })?;
        Ok(self.sink.peers.connected(peer, self.rdm.uses(peer)))
    }

    /// Returns the peer of a handle.
    pub(crate) fn peer(&self, handle: u64) -> Outcome<Peer> {
        self.sink.peers.find(handle, |peer| self.rdm.uses(peer))
    }

    /// Removes a peer.
    pub(crate) fn disconnect(&mut self, handle: u64) -> Outcome {
        let peer = self.peer(handle)?;
        self.rdm.remove_peer(&mut self.world, peer);
        self.sink.peers.disconnected(peer);
        Ok(())
    }

    /// Returns address and incarnation of a peer; the incarnation is zero if it is unknown.
    pub(crate) fn address_of(&self, handle: u64) -> Outcome<Address> {
        let peer = self.peer(handle)?;
        let (place, incarnation) = self.rdm.address_of(peer).ok_or(Status::Handle)?;
        Ok(Address { place, incarnation })
    }

    /// Returns the number of the peer that a receive names; `None` for any peer.
    pub(crate) fn source(&self, handle: u64) -> Outcome<Option<u32>> {
        if handle == ANY {
            return Ok(None);
        }
        self.peer(handle).map(|peer| Some(peer.0))
    }
}
