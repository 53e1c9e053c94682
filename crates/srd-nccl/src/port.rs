//! An endpoint: everything of one communicator on one interface shares it.

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

/// Operations of an endpoint that may be under way.
pub const OPERATIONS_MAX: u32 = 1 << 16;
/// Receives of an endpoint that may be posted.
const RECEIVES_MAX: u32 = 1 << 16;
/// Largest number of these operations that may be receives for control messages.
pub const CONTROL_RECEIVES: usize = 256;
/// Time that closing a connection waits for requests under way. A transfer with a live peer ends
/// sooner, unless it is very long.
const DRAIN: Duration = Duration::from_millis(250);

/// See the module.
#[derive(Debug)]
pub struct Port {
    handle: Handle<PortSink>,
    /// `None` once it was given up.
    host: Mutex<Option<Host<PortSink>>>,
    status: Arc<PortStatus>,
    target: Target,
}

/// Parts of the endpoint that a call may use.
pub struct Submitter<'a> {
    /// The Messaging Layer.
    pub rdm: &'a mut Rdm,
    /// Parts of the world that its calls borrow.
    pub world: World<'a>,
    /// State of the connections.
    pub sink: &'a mut PortSink,
}

impl Port {
    /// Opens an endpoint.
    ///
    /// # Errors
    /// The address is not of this machine, or there are no descriptors, memory or threads.
    pub fn open(options: &Options) -> Outcome<Self> {
        let options = Options {
            operations_max: OPERATIONS_MAX,
            receives_max: RECEIVES_MAX,
            ..options.clone()
        };
        let status = Arc::new(PortStatus::default());
        status.control.store(true, Ordering::Relaxed); // its receives are to be posted
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

    /// Address of the endpoint.
    #[must_use]
    pub fn target(&self) -> Target {
        self.target
    }

    /// Whether it is of no use any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.status.over.load(Ordering::SeqCst)
    }

    /// One round of work, and the control messages that have arrived.
    pub fn drive(&self) {
        self.handle.poll();
        if self.status.control.swap(false, Ordering::Acquire) {
            // What cannot be done now is tried again; an endpoint that is closed has nothing to do.
            let _ = self.call(|submitter| submitter.control());
        }
    }

    /// Calls the Messaging Layer with operations that name none of NCCL's memory.
    ///
    /// # Errors
    /// The endpoint is closed, lost, or another process's.
    #[allow(unsafe_code, reason = "the call names no memory")]
    pub fn call<R>(&self, f: impl FnOnce(&mut Submitter<'_>) -> R) -> Outcome<R> {
        // SAFETY: nothing of NCCL's is named; control messages have no bytes.
        unsafe { self.submit(f) }
    }

    /// Calls the Messaging Layer.
    ///
    /// # Errors
    /// The endpoint is closed, lost, or another process's.
    ///
    /// # Safety
    /// As of [`Handle::call`].
    #[allow(unsafe_code, reason = "NCCL vouches for its memory")]
    pub unsafe fn submit<R>(&self, f: impl FnOnce(&mut Submitter<'_>) -> R) -> Outcome<R> {
        // SAFETY: as our caller promises.
        let called = unsafe {
            self.handle.call(|mut call| {
                let (rdm, world, sink) = call.parts();
                f(&mut Submitter { rdm, world, sink })
            })
        };
        Ok(called?)
    }

    /// Reserves so many receives; false if there would be too many.
    #[must_use]
    pub fn reserve_receives(&self, count: usize) -> bool {
        let room = RECEIVES_MAX as usize - CONTROL_RECEIVES;
        let more = |now: usize| Some(now + count).filter(|sum| *sum <= room);
        let receives = &self.status.receives;
        receives.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Gives back reserved receives that were not posted.
    pub fn return_receives(&self, count: usize) {
        self.status.receives.fetch_sub(count, Ordering::Relaxed);
    }

    /// The result of a request, after a round of progress if necessary; `None` if it is not
    /// complete.
    ///
    /// # Errors
    /// The request has failed.
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

    /// Sends a probe to the other end of a flow, if nothing has come from it for some time.
    pub fn probe(&self, flow: &Flow, peer: Peer) {
        if flow.should_probe(Instant::now()) {
            let purpose = Purpose::Probe(flow.id());
            let _ = self.call(|submitter| submitter.send_control(peer, Control::Probe, purpose));
        }
    }

    /// Waits until nothing of a flow is under way, for a quarter of a second at most. If something
    /// is left, the whole endpoint is given up: afterwards NCCL's memory is not touched.
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

    /// Gives the endpoint up: every connection of it fails. Returns within
    /// [`srd_host::LINGER`] and a little more, when nothing touches NCCL's memory any more.
    ///
    /// A transfer that a peer takes part in cannot be taken back alone: the peer may be silent, and
    /// its part of the transfer unknown. NCCL closes connections with requests under way only when
    /// it aborts a communicator, and the endpoint is that communicator's.
    pub fn abandon(&self) {
        let mut host = self.host.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(closing) = host.take() else { return };
        let fault = Fault::system("a connection was closed with requests under way");
        let _ = self.call(|submitter| submitter.sink.fail_all(&fault));
        self.status.over.store(true, Ordering::SeqCst);
        log::info(&format!("the endpoint at {} is given up: {}", self.target.address, fault.text));
        // The lock is held meanwhile: other threads that give up must wait, too.
        closing.close();
    }
}
