//! Endpoints: names, bindings and options. **Data transfer is missing**, and says so here: the
//! tables at the end refuse every call with `-FI_ENOSYS`.

use std::net::UdpSocket;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::abi::atomic::fi_ops_atomic;
use crate::abi::bits::{
    FI_EP_RDM, FI_READ, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_SELECTIVE_COMPLETION, FI_SEND,
    FI_TRANSMIT, FI_WRITE,
};
use crate::abi::errno::{
    FI_EADDRNOTAVAIL, FI_EBADFLAGS, FI_EBUSY, FI_EDOMAIN, FI_EINVAL, FI_ENOAV, FI_ENOCQ,
    FI_EOPBADSTATE,
};
use crate::abi::msg::fi_ops_msg;
use crate::abi::rma::fi_ops_rma;
use crate::abi::tagged::fi_ops_tagged;
use crate::address::Address;
use crate::completion::CompletionQueue;
use crate::counter::Counter;
use crate::domain::{Domain, Slot};
use crate::event::EventQueue;
use crate::vector::AddressVector;
use crate::{Errno, Outcome};

/// Bytes that a buffer for many messages keeps free unless the application says otherwise.
const MULTI_RECV_BYTES: usize = 64;
/// Counters of one endpoint: one for each kind of operation, and some that share.
pub const COUNTERS_MAX: usize = 12;

/// What an endpoint shall be.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// `FI_EP_RDM` or `FI_EP_DGRAM`.
    pub kind: i32,
    /// Capabilities.
    pub caps: u64,
    /// Where it shall be; port zero for any.
    pub source: Address,
}

/// An open endpoint.
#[derive(Debug)]
pub struct Endpoint {
    /// The domain that it belongs to.
    pub slot: Slot,
    /// What it was opened as.
    pub plan: Plan,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Keeps the port, and does nothing else yet.
    _socket: UdpSocket,
    name: Address,
    vector: Option<Arc<AddressVector>>,
    transmit: Option<Arc<CompletionQueue>>,
    receive: Option<Arc<CompletionQueue>>,
    counters: Vec<(Arc<Counter>, u64)>,
    events: Option<Arc<EventQueue>>,
    multi_recv_bytes: usize,
    enabled: bool,
}

impl Endpoint {
    /// Opens an endpoint and takes its port.
    ///
    /// # Errors
    /// `FI_EADDRNOTAVAIL` if the address is not of this machine, or the port is taken.
    pub fn new(slot: Slot, plan: Plan) -> Outcome<Self> {
        let (socket, name) = open(plan.source)?;
        let state = State {
            _socket: socket,
            name,
            vector: None,
            transmit: None,
            receive: None,
            counters: Vec::new(),
            events: None,
            multi_recv_bytes: MULTI_RECV_BYTES,
            enabled: false,
        };
        Ok(Self { slot, plan, state: Mutex::new(state) })
    }

    /// The endpoint's address, complete.
    #[must_use]
    pub fn name(&self) -> Address {
        self.lock().name
    }

    /// Moves the endpoint to another address. The old one is over: its incarnation, too.
    ///
    /// # Errors
    /// As [`Endpoint::new`]; `FI_EOPBADSTATE` once it is enabled.
    pub fn rename(&self, place: Address) -> Outcome {
        let mut state = self.before_enabling()?;
        (state._socket, state.name) = open(place)?;
        Ok(())
    }

    /// Gives the endpoint its address vector.
    ///
    /// # Errors
    /// `FI_EDOMAIN` for one of another domain; `FI_EBUSY` if it has one.
    pub fn bind_vector(&self, vector: &Arc<AddressVector>) -> Outcome {
        let mut state = self.before_enabling()?;
        self.same_domain(&vector.slot)?;
        place(&mut state.vector, vector)
    }

    /// Gives the endpoint a queue for completions of its sending or receiving half, or both.
    ///
    /// # Errors
    /// `FI_EDOMAIN`, `FI_EBUSY` as for vectors; `FI_EBADFLAGS` for no half.
    pub fn bind_completions(&self, queue: &Arc<CompletionQueue>, flags: u64) -> Outcome {
        let halves = flags & (FI_TRANSMIT | FI_RECV);
        if halves == 0 || flags & !(halves | FI_SELECTIVE_COMPLETION) != 0 {
            return Err(Errno(FI_EBADFLAGS));
        }
        let mut state = self.before_enabling()?;
        self.same_domain(&queue.slot)?;
        let taken = (halves & FI_TRANSMIT != 0 && state.transmit.is_some())
            || (halves & FI_RECV != 0 && state.receive.is_some());
        if taken {
            return Err(Errno(FI_EBUSY));
        }
        if halves & FI_TRANSMIT != 0 {
            state.transmit = Some(Arc::clone(queue));
        }
        if halves & FI_RECV != 0 {
            state.receive = Some(Arc::clone(queue));
        }
        Ok(())
    }

    /// Gives the endpoint a counter for the kinds of operations in `flags`.
    ///
    /// # Errors
    /// `FI_EDOMAIN` as for vectors; `FI_EBADFLAGS` for no kind or an unknown one; `FI_EBUSY`
    /// beyond [`COUNTERS_MAX`].
    pub fn bind_counter(&self, counter: &Arc<Counter>, flags: u64) -> Outcome {
        let kinds = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
        if flags == 0 || flags & !kinds != 0 {
            return Err(Errno(FI_EBADFLAGS));
        }
        let mut state = self.before_enabling()?;
        self.same_domain(&counter.slot)?;
        if state.counters.len() == COUNTERS_MAX {
            return Err(Errno(FI_EBUSY));
        }
        state.counters.push((Arc::clone(counter), flags));
        Ok(())
    }

    /// Gives the endpoint an event queue.
    ///
    /// # Errors
    /// `FI_EDOMAIN` for one of another fabric; `FI_EBUSY` if it has one.
    pub fn bind_events(&self, events: &Arc<EventQueue>) -> Outcome {
        let mut state = self.before_enabling()?;
        if !Arc::ptr_eq(&events.fabric, &self.slot.domain().fabric) {
            return Err(Errno(FI_EDOMAIN));
        }
        place(&mut state.events, events)
    }

    /// Makes the endpoint ready: from now on nothing can be bound.
    ///
    /// # Errors
    /// `FI_ENOAV` without an address vector; `FI_ENOCQ` if a half that the capabilities name
    /// has neither queue nor counter.
    pub fn enable(&self) -> Outcome {
        let mut state = self.before_enabling()?;
        if state.vector.is_none() {
            return Err(Errno(FI_ENOAV));
        }
        let counted = state.counters.iter().fold(0, |all, (_, flags)| all | flags);
        let sends = FI_SEND | FI_READ | FI_WRITE;
        let deaf =
            |half: u64, queue: bool| self.plan.caps & half != 0 && !queue && counted & half == 0;
        if deaf(sends, state.transmit.is_some()) || deaf(FI_RECV, state.receive.is_some()) {
            return Err(Errno(FI_ENOCQ));
        }
        state.enabled = true;
        Ok(())
    }

    /// Bytes that a buffer for many messages keeps free.
    #[must_use]
    pub fn multi_recv_bytes(&self) -> usize {
        self.lock().multi_recv_bytes
    }

    /// Sets what [`Endpoint::multi_recv_bytes`] returns.
    ///
    /// # Errors
    /// `FI_EINVAL` for an endpoint without such buffers.
    pub fn set_multi_recv_bytes(&self, bytes: usize) -> Outcome {
        if self.plan.kind != FI_EP_RDM {
            return Err(Errno(FI_EINVAL));
        }
        self.lock().multi_recv_bytes = bytes;
        Ok(())
    }

    fn before_enabling(&self) -> Outcome<MutexGuard<'_, State>> {
        let state = self.lock();
        if state.enabled { Err(Errno(FI_EOPBADSTATE)) } else { Ok(state) }
    }

    fn same_domain(&self, slot: &Slot) -> Outcome {
        let (ours, theirs): (&Arc<Domain>, &Arc<Domain>) = (self.slot.domain(), slot.domain());
        if Arc::ptr_eq(ours, theirs) { Ok(()) } else { Err(Errno(FI_EDOMAIN)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place<T>(to: &mut Option<Arc<T>>, what: &Arc<T>) -> Outcome {
    if to.is_some() {
        return Err(Errno(FI_EBUSY));
    }
    *to = Some(Arc::clone(what));
    Ok(())
}

/// Takes a port, and a new incarnation with it.
fn open(place: Address) -> Outcome<(UdpSocket, Address)> {
    let unavailable = |_| Errno(FI_EADDRNOTAVAIL);
    let socket = UdpSocket::bind(place.place()).map_err(unavailable)?;
    let local = socket.local_addr().map_err(unavailable)?;
    let incarnation = srd_net::clock::epoch().0;
    Ok((socket, Address { ip: local.ip(), port: local.port(), incarnation }))
}

/// Messages: none yet.
pub static MSG: fi_ops_msg = fi_ops_msg::REFUSING;
/// Tagged messages: none yet.
pub static TAGGED: fi_ops_tagged = fi_ops_tagged::REFUSING;
/// Remote memory: none yet.
pub static RMA: fi_ops_rma = fi_ops_rma::REFUSING;
/// Atomic operations: none yet.
pub static ATOMIC: fi_ops_atomic = fi_ops_atomic::REFUSING;

#[cfg(test)]
#[path = "endpoint_tests.rs"]
mod tests;
