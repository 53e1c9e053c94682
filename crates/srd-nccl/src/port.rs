//! An endpoint, which all connections of one communicator on one interface share.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use srd_efa::layer::{Peer, World};
use srd_efa::rdm::Rdm;
use srd_host::{Handle, Host, Options};

use crate::flow::{Flow, Purpose, Request, Sizes};
use crate::sink::{PortSink, PortStatus};
use crate::wire::{Control, Target};
use crate::{Fault, Outcome, log};

/// Largest number of operations in progress of an endpoint.
pub const OPERATIONS_MAX: u32 = 1 << 16;
/// Largest number of posted receives of an endpoint.
const RECEIVES_MAX: u32 = 1 << 16;
/// Number of posted receives of an endpoint that are for control messages.
pub const CONTROL_RECEIVES: usize = 256;
/// Time for which closing a connection waits for requests in progress. A transfer with a live peer
/// ends sooner, unless it is very long.
const DRAIN: Duration = Duration::from_millis(250);

/// An endpoint of one communicator on one interface.
#[derive(Debug)]
pub struct Port {
    handle: Handle<PortSink>,
    /// The host; `None` after the endpoint was abandoned.
    host: Mutex<Option<Host<PortSink>>>,
    status: Arc<PortStatus>,
    target: Target,
}

/// Parts of the endpoint that a call may use.
pub struct Submitter<'a> {
    /// The Messaging Layer.
    pub rdm: &'a mut Rdm,
    /// Time, transport and memory, which calls of the Messaging Layer borrow.
    pub world: World<'a>,
    /// State of the connections.
    pub sink: &'a mut PortSink,
}

impl Port {
    /// Opens an endpoint.
    ///
    /// # Errors
    /// A [`Fault`], if the address does not belong to this machine, or the system
    /// lacks descriptors, memory or threads.
    pub fn open(options: &Options) -> Outcome<Self> {
        let options = Options {
            operations_max: OPERATIONS_MAX,
            receives_max: RECEIVES_MAX,
            ..options.clone()
        };
        let status = Arc::new(PortStatus::default());
        status.control.store(true, Ordering::Relaxed); // its receives have to be posted
        let sink = PortSink::new(Arc::clone(&status), CONTROL_RECEIVES);
        let host = Host::open(&options, sink).map_err(|error| {
            Fault::system(format!("cannot open an endpoint at {}: {error}", options.address))
        })?;
        let target =
            Target { address: host.address(), incarnation: host.incarnation(), listener: 0 };
        let handle = host.handle().clone();
        let port = Self { handle, host: Mutex::new(Some(host)), status, target };
        port.drive();
        Ok(port)
    }

    /// Returns the address of the endpoint, with zero as the number of the listener.
    #[must_use]
    pub fn target(&self) -> Target {
        self.target
    }

    /// Whether the endpoint has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.status.over.load(Ordering::SeqCst)
    }

    /// Makes progress once, and processes the control messages that have arrived.
    pub fn drive(&self) {
        self.handle.poll();
        if self.status.control.swap(false, Ordering::Acquire) {
            // A call that fails now is repeated later, and a closed endpoint needs no call.
            let _ = self.call(|submitter| submitter.control());
        }
    }

    /// Calls the Messaging Layer with operations that do not use NCCL's memory.
    ///
    /// # Errors
    /// A [`Fault`], if the endpoint is closed, has lost its sockets, or belongs to
    /// another process.
    #[allow(unsafe_code, reason = "the call names no memory")]
    pub fn call<R>(&self, f: impl FnOnce(&mut Submitter<'_>) -> R) -> Outcome<R> {
        // SAFETY: the operations name no memory of NCCL; control messages have no bytes.
        unsafe { self.submit(f) }
    }

    /// Calls the Messaging Layer.
    ///
    /// # Errors
    /// A [`Fault`], if the endpoint is closed, has lost its sockets, or belongs to
    /// another process.
    ///
    /// # Safety
    /// The conditions of [`Handle::call`].
    #[allow(unsafe_code, reason = "NCCL vouches for its memory")]
    pub unsafe fn submit<R>(&self, f: impl FnOnce(&mut Submitter<'_>) -> R) -> Outcome<R> {
        // SAFETY: the caller fulfils the conditions of `# Safety`.
        let called = unsafe {
            self.handle.call(|mut call| {
                let (rdm, world, sink) = call.parts();
                f(&mut Submitter { rdm, world, sink })
            })
        };
        Ok(called?)
    }

    /// Reserves `count` receives. Returns false if there would be too many.
    #[must_use]
    pub fn reserve_receives(&self, count: usize) -> bool {
        let room = RECEIVES_MAX as usize - CONTROL_RECEIVES;
        let more = |now: usize| Some(now + count).filter(|sum| *sum <= room);
        let receives = &self.status.receives;
        receives.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Frees reserved receives that were not posted.
    pub fn return_receives(&self, count: usize) {
        self.status.receives.fetch_sub(count, Ordering::Relaxed);
    }

    /// Takes the result of a request, after one round of progress if necessary. Returns `None` if
    /// the request is not complete.
    ///
    /// # Errors
    /// A [`Fault`], if the request has failed.
    pub fn test(&self, flow: &Flow, peer: Peer, request: Request) -> Outcome<Option<Sizes>> {
        if let Some(sizes) = flow.take(request)? {
            return Ok(Some(sizes));
        }
        self.drive();
        let sizes = flow.take(request)?;
        if sizes.is_none() {
            self.probe(flow, peer);
        }
        Ok(sizes)
    }

    /// Sends a probe to the other end of a flow, if no message has arrived from it for some time.
    pub fn probe(&self, flow: &Flow, peer: Peer) {
        if flow.should_probe(Instant::now()) {
            let purpose = Purpose::Probe(flow.id());
            let _ = self.call(|submitter| submitter.send_control(peer, Control::Probe, purpose));
        }
    }

    /// Waits until no request of a flow is in progress, for at most a quarter of a second. If a
    /// request remains, the whole endpoint is abandoned, and after that no thread accesses NCCL's
    /// memory.
    pub fn drain(&self, flow: &Flow) {
        let begin = Instant::now();
        while flow.unfinished() > 0 && !self.is_over() && begin.elapsed() < DRAIN {
            self.drive();
            std::thread::yield_now();
        }
        if flow.unfinished() > 0 {
            self.abandon();
        }
        let _ = self.call(|submitter| submitter.sink.flows.remove(&flow.id()));
    }

    /// Abandons the endpoint: all of its connections fail. Returns within [`srd_host::LINGER`] and
    /// a little more. After that no thread accesses NCCL's memory.
    ///
    /// A transfer in which a peer takes part cannot be cancelled alone: the peer may be silent, and
    /// the state of its part is unknown. NCCL closes connections with requests in progress only
    /// when it aborts a communicator, and the endpoint belongs to this communicator.
    pub fn abandon(&self) {
        let mut host = self.host.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(closing) = host.take() else { return };
        let fault = Fault::system("a connection was closed with requests under way");
        let _ = self.call(|submitter| submitter.sink.fail_all(&fault));
        self.status.over.store(true, Ordering::SeqCst);
        log::info(&format!("the endpoint at {} is given up: {}", self.target.address, fault.text));
        // The lock is held during the close: other threads that abandon the endpoint have to wait,
        // too.
        closing.close();
    }
}
