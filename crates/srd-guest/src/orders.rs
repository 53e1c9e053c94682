//! Requests on their way to the loop.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use srd_proto::time::Instant;
use srd_vpc_file::VpcFile;

use crate::place::Places;
use crate::protocol::{Answer, Request};
use crate::trace::Noted;

/// A request with the way back for its answer, or the end of what a connection has begun.
pub(crate) enum Command {
    Ask(Request, Sender<Answer>),
    /// Take the rules of a file that was read since this time.
    Apply(Box<VpcFile>, Instant, Sender<Answer>),
    Detach(String),
    /// The namespaces of a change are there, or could not be made.
    Made(anyhow::Result<Places>),
    /// What a trace has noted; none if there is no such trace.
    Traced(u64, Sender<Option<Noted>>),
    EndTrace(u64),
    /// Hand everything to the process at the other end.
    HandOver(UnixStream, Sender<Result<(), String>>),
}

/// Hands commands to the service, and wakes it.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) queue: Sender<Command>,
    pub(crate) wake: Arc<OwnedFd>,
}

impl Orders {
    pub(crate) fn give(&self, command: Command) -> bool {
        self.queue.send(command).is_ok() && self.wake()
    }

    pub(crate) fn wake(&self) -> bool {
        rustix::io::write(&self.wake, &1_u64.to_ne_bytes()).is_ok()
    }
}

/// Ends a service from another thread.
#[derive(Clone, Debug)]
pub struct Stopper {
    pub(crate) is_ending: Arc<AtomicBool>,
    pub(crate) orders: Orders,
}

impl Stopper {
    /// The service ends soon.
    pub fn stop(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
        self.orders.wake();
    }
}
