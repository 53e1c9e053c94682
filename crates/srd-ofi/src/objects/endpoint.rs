//! Endpoints: names, bindings and options. Calls that move data are in
//! [`crate::objects::transfer`].

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use srd_efa::direct::{self, Direct};
use srd_efa::layer::Layer;
use srd_host::{Host, HostProperties, Options};
use srd_proto::Duration;

use crate::abi::bits::{
    FI_COMPLETION, FI_MULTI_RECV, FI_READ, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE,
    FI_SELECTIVE_COMPLETION, FI_SEND, FI_SOURCE, FI_TRANSMIT, FI_WRITE,
};
use crate::abi::errno::{
    FI_EADDRNOTAVAIL, FI_EBADFLAGS, FI_EBUSY, FI_EDOMAIN, FI_EINVAL, FI_ENOAV, FI_ENOCQ, FI_ENOMEM,
    FI_EOPBADSTATE,
};
use crate::core::{Level, log};
use crate::objects::domain::{Domain, Slot};
use crate::objects::handle::HostHandle;
use crate::objects::vector::AddressVector;
use crate::requests::address::Address;
use crate::requests::offers::{OPERATIONS, TX_FLAGS};
use crate::requests::service::Service;
use crate::results::completion::CompletionQueue;
use crate::results::counter::Counter;
use crate::results::event::EventQueue;
use crate::results::sink::{Bindings, EndpointSink};
use crate::{Errno, Outcome};

/// Initial value of [`Endpoint::multi_recv_bytes`]: the number of free bytes that a buffer for many
/// messages must have to stay in use.
const MULTI_RECV_BYTES: usize = 64;
/// Largest number of counters of one endpoint: one for each kind of operation, and some that count
/// several kinds.
pub const COUNTERS_MAX: usize = 12;
/// Largest number of peers of an endpoint of [`Service::Direct`].
const PEERS_MAX: u32 = 1 << 16;

/// Requested properties of an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Service of the endpoint.
    pub service: Service,
    /// Capabilities of the endpoint, as bits.
    pub caps: u64,
    /// Local address; port zero lets the kernel choose a port.
    pub source: Address,
    /// Default flags of transmit operations (`tx_attr.op_flags`).
    pub tx_flags: u64,
    /// Default flags of receive operations (`rx_attr.op_flags`).
    pub rx_flags: u64,
    /// Number of operations that may be outstanding; zero for the provider's choice.
    pub operations: usize,
    /// Order between operations (`tx_attr.msg_order`).
    pub order: u64,
}

/// An open endpoint.
#[derive(Debug)]
pub struct Endpoint {
    /// Slot of the endpoint, of the limited number of endpoints in its domain.
    pub slot: Slot,
    /// Properties with which the endpoint was opened.
    pub plan: Plan,
    /// The parts that move data; empty until the endpoint is enabled.
    active: OnceLock<Active>,
    tx_flags: AtomicU64,
    rx_flags: AtomicU64,
    multi_recv_bytes: AtomicUsize,
    state: Mutex<State>,
}

/// The parts of an enabled endpoint that move data.
#[derive(Debug)]
pub struct Active {
    /// Handle of the host, which runs the endpoint's sockets and progress thread.
    pub host: HostHandle,
    /// Whether successes of the endpoint's sending half are reported only for operations with
    /// `FI_COMPLETION`.
    pub transmit_selective: bool,
    /// Whether successes of the endpoint's receiving half are reported only for operations with
    /// `FI_COMPLETION`.
    pub receive_selective: bool,
}

#[derive(Debug)]
struct State {
    /// Host of the endpoint; `None` only while the endpoint is being closed.
    host: Option<Host<EndpointSink>>,
    name: Address,
    bindings: Bindings,
    transmit_selective: bool,
    receive_selective: bool,
    events: Option<Arc<EventQueue>>,
    enabled: bool,
}

impl Endpoint {
    /// Opens an endpoint and takes its port.
    ///
    /// # Errors
    /// `FI_EADDRNOTAVAIL` if the address is not of this machine, or the port is taken.
    pub fn new(slot: Slot, plan: Plan) -> Outcome<Self> {
        let (host, name) = open(&slot, &plan, plan.source)?;
        let state = State {
            host: Some(host),
            name,
            bindings: Bindings::default(),
            transmit_selective: false,
            receive_selective: false,
            events: None,
            enabled: false,
        };
        Ok(Self {
            slot,
            plan,
            active: OnceLock::new(),
            tx_flags: AtomicU64::new(plan.tx_flags),
            rx_flags: AtomicU64::new(plan.rx_flags),
            multi_recv_bytes: AtomicUsize::new(MULTI_RECV_BYTES),
            state: Mutex::new(state),
        })
    }

    /// Returns the endpoint's complete address.
    #[must_use]
    pub fn name(&self) -> Address {
        self.lock().name
    }

    /// Moves the endpoint to another address (IP address and port), where it gets a new
    /// incarnation: the number of this run of the endpoint. The old address with its incarnation
    /// becomes invalid.
    ///
    /// # Errors
    /// The errors of [`Endpoint::new`], also for an address outside the domain; `FI_EOPBADSTATE` if
    /// the endpoint is enabled.
    pub fn rename(&self, place: Address) -> Outcome {
        let mut state = self.before_enabling()?;
        if place.ip != self.slot.domain().ip {
            return Err(Errno(FI_EADDRNOTAVAIL));
        }
        let (host, name) = open(&self.slot, &self.plan, place)?;
        if let Some(old) = state.host.replace(host) {
            close(old, &self.slot);
        }
        state.name = name;
        Ok(())
    }

    /// Binds an address vector to the endpoint.
    ///
    /// # Errors
    /// `FI_EDOMAIN` if the vector belongs to another domain; `FI_EBUSY` if the endpoint already has
    /// a vector.
    pub fn bind_vector(&self, vector: &Arc<AddressVector>) -> Outcome {
        let mut state = self.before_enabling()?;
        self.same_domain(&vector.slot)?;
        place(&mut state.bindings.vector, vector)
    }

    /// Binds a queue for completions of the endpoint's sending half, its receiving half, or both.
    ///
    /// # Errors
    /// `FI_EDOMAIN` if the queue belongs to another domain; `FI_EBUSY` if one of the halves already
    /// has a queue; `FI_EBADFLAGS` if the flags name neither half.
    pub fn bind_completions(&self, queue: &Arc<CompletionQueue>, flags: u64) -> Outcome {
        let halves = flags & (FI_TRANSMIT | FI_RECV);
        if halves == 0 || flags & !(halves | FI_SELECTIVE_COMPLETION) != 0 {
            return Err(Errno(FI_EBADFLAGS));
        }
        let mut state = self.before_enabling()?;
        self.same_domain(&queue.slot)?;
        let taken = (halves & FI_TRANSMIT != 0 && state.bindings.transmit.is_some())
            || (halves & FI_RECV != 0 && state.bindings.receive.is_some());
        if taken {
            return Err(Errno(FI_EBUSY));
        }
        if halves & FI_TRANSMIT != 0 {
            state.bindings.transmit = Some(Arc::clone(queue));
            state.transmit_selective = flags & FI_SELECTIVE_COMPLETION != 0;
        }
        if halves & FI_RECV != 0 {
            state.bindings.receive = Some(Arc::clone(queue));
            state.receive_selective = flags & FI_SELECTIVE_COMPLETION != 0;
        }
        Ok(())
    }

    /// Binds a counter for the kinds of operations in `flags`.
    ///
    /// # Errors
    /// `FI_EDOMAIN` if the counter belongs to another domain; `FI_EBADFLAGS` if the flags name no
    /// kind or an unknown kind; `FI_EBUSY` beyond [`COUNTERS_MAX`].
    pub fn bind_counter(&self, counter: &Arc<Counter>, flags: u64) -> Outcome {
        let kinds = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
        if flags == 0 || flags & !kinds != 0 {
            return Err(Errno(FI_EBADFLAGS));
        }
        let mut state = self.before_enabling()?;
        self.same_domain(&counter.slot)?;
        if state.bindings.counters.len() == COUNTERS_MAX {
            return Err(Errno(FI_EBUSY));
        }
        state.bindings.counters.push((Arc::clone(counter), flags));
        Ok(())
    }

    /// Binds an event queue to the endpoint.
    ///
    /// # Errors
    /// `FI_EDOMAIN` if the queue belongs to another fabric; `FI_EBUSY` if the endpoint already has
    /// an event queue.
    pub fn bind_events(&self, events: &Arc<EventQueue>) -> Outcome {
        let mut state = self.before_enabling()?;
        if !Arc::ptr_eq(&events.fabric, &self.slot.domain().fabric) {
            return Err(Errno(FI_EDOMAIN));
        }
        place(&mut state.events, events)
    }

    /// Makes the endpoint ready. Afterwards no object can be bound to it.
    ///
    /// # Errors
    /// `FI_ENOAV` without an address vector; `FI_ENOCQ` if the capabilities include a half that has
    /// neither queue nor counter.
    pub fn enable(&self) -> Outcome {
        let mut state = self.before_enabling()?;
        if state.bindings.vector.is_none() {
            return Err(Errno(FI_ENOAV));
        }
        let counted = state.bindings.counters.iter().fold(0, |all, (_, flags)| all | flags);
        let sends = FI_SEND | FI_READ | FI_WRITE;
        let without_queue =
            |half: u64, queue: bool| self.plan.caps & half != 0 && !queue && counted & half == 0;
        if without_queue(sends, state.bindings.transmit.is_some())
            || without_queue(FI_RECV, state.bindings.receive.is_some())
        {
            return Err(Errno(FI_ENOCQ));
        }
        state.bindings.sources = self.plan.caps & FI_SOURCE != 0;
        let host = state.host.as_ref().ok_or(Errno(FI_EOPBADSTATE))?.handle().clone();
        let bindings = state.bindings.clone();
        bind(&host, &bindings, self.plan.order)?;
        let Bindings { vector, transmit, receive, counters, .. } = &bindings;
        let vector = vector.iter().map(|vector| &vector.hosts);
        let queues = [transmit, receive].into_iter().flatten().map(|queue| &queue.hosts);
        let counters = counters.iter().map(|(counter, _)| &counter.hosts);
        vector.chain(queues).chain(counters).for_each(|hosts| hosts.add(&host));
        let _ = self.active.set(Active {
            host,
            transmit_selective: state.transmit_selective,
            receive_selective: state.receive_selective,
        });
        state.enabled = true;
        Ok(())
    }

    /// Returns the parts of the enabled endpoint that move data.
    ///
    /// # Errors
    /// `FI_EOPBADSTATE` before the endpoint is enabled.
    pub fn active(&self) -> Outcome<&Active> {
        self.active.get().ok_or(Errno(FI_EOPBADSTATE))
    }

    /// Returns the default flags of transmit operations.
    #[must_use]
    pub fn tx_flags(&self) -> u64 {
        self.tx_flags.load(Ordering::Relaxed)
    }

    /// Returns the default flags of receive operations.
    #[must_use]
    pub fn rx_flags(&self) -> u64 {
        self.rx_flags.load(Ordering::Relaxed)
    }

    /// Sets the default flags of operations, for one half at a time.
    ///
    /// # Errors
    /// `FI_EBADFLAGS` if the flags name no half or both, or cannot be defaults.
    pub fn set_flags(&self, flags: u64) -> Outcome {
        let half = flags & (FI_TRANSMIT | FI_RECV);
        let flags = flags & !half;
        if half == FI_TRANSMIT && flags & !TX_FLAGS == 0 {
            self.tx_flags.store(flags, Ordering::Relaxed);
        } else if half == FI_RECV && flags & !(FI_COMPLETION | FI_MULTI_RECV) == 0 {
            self.rx_flags.store(flags, Ordering::Relaxed);
        } else {
            return Err(Errno(FI_EBADFLAGS));
        }
        Ok(())
    }

    /// Returns the free bytes that a multi-message buffer must have to stay in use.
    #[must_use]
    pub fn multi_recv_bytes(&self) -> usize {
        self.multi_recv_bytes.load(Ordering::Relaxed)
    }

    /// Sets the value that [`Endpoint::multi_recv_bytes`] returns.
    ///
    /// # Errors
    /// `FI_EINVAL` for an endpoint that does not support buffers for many messages.
    pub fn set_multi_recv_bytes(&self, bytes: usize) -> Outcome {
        if self.plan.service != Service::Messages {
            return Err(Errno(FI_EINVAL));
        }
        self.multi_recv_bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn before_enabling(&self) -> Outcome<MutexGuard<'_, State>> {
        self.slot.check()?;
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

/// Removes the host from every object that drives it, and closes it in bounded time.
impl Drop for Endpoint {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(host) = state.host.take() else { return };
        let Bindings { vector, transmit, receive, counters, .. } = &state.bindings;
        let vector = vector.iter().map(|vector| &vector.hosts);
        let queues = [transmit, receive].into_iter().flatten().map(|queue| &queue.hosts);
        let counters = counters.iter().map(|(counter, _)| &counter.hosts);
        for hosts in vector.chain(queues).chain(counters) {
            hosts.remove(host.handle());
        }
        let came_to = record(host.handle());
        close(host, &self.slot);
        if let Some(came_to) = came_to {
            log(Level::Info, &format!("closed the endpoint at {}: {came_to}", state.name));
        }
    }
}

/// Closes a host in bounded time. Until it is closed, it serves its peers, and so it stays in the
/// list of the domain: the end of a registration waits until the host no longer uses the memory.
fn close(host: Host<EndpointSink>, slot: &Slot) {
    let handle = host.handle().clone();
    host.close();
    slot.domain().hosts.remove(&handle);
}

/// Returns the traffic counters of an endpoint, for the log. They show whether a program has used
/// SRD.
#[allow(unsafe_code, reason = "every call of a host is unsafe")]
fn record(host: &HostHandle) -> Option<String> {
    // SAFETY: names no memory.
    let called = unsafe {
        host.call(|mut call| {
            let stats = call.parts().1.endpoint.stats();
            format!(
                "sent {} datagrams with {} bytes, received {} with {}, repeated {}, dropped {}",
                stats.send_wrs,
                stats.send_bytes,
                stats.recv_wrs,
                stats.recv_bytes,
                stats.retrans_pkts,
                stats.rx_drops
            )
        })
    };
    called.ok()
}

/// Passes the bound objects of the endpoint and the requested order of operations to a host.
#[allow(unsafe_code, reason = "every call of a host is unsafe")]
fn bind(host: &HostHandle, bindings: &Bindings, order: u64) -> Outcome {
    // SAFETY: names no memory.
    let called = unsafe {
        host.call(|call| {
            call.layer.set_order(crate::requests::order::of_bits(order));
            call.sink.bindings = bindings.clone();
        })
    };
    called.map_err(|_| Errno(FI_EOPBADSTATE))
}

/// Returns the layer that implements a service.
fn layer(
    service: Service,
    options: &Options,
    endpoint: &mut srd_proto::Endpoint,
    place: &HostProperties,
) -> Box<dyn Layer> {
    let service = match service {
        Service::Messages => return Box::new(place.messaging(options, endpoint)),
        Service::Datagrams => direct::Service::Datagrams,
        Service::Direct => direct::Service::Direct,
    };
    let operations_max = u32::try_from(OPERATIONS).unwrap_or(u32::MAX);
    let config = direct::Config {
        service,
        operations_max,
        receives_max: operations_max,
        peers_max: PEERS_MAX,
        seed: place.seed,
    };
    Box::new(Direct::new(config, endpoint, place.address))
}

/// Opens the sockets and starts the thread of an endpoint (a [`Host`]). The host gets a port and a
/// new incarnation, and the memory registrations of the domain are shared with it.
fn open(slot: &Slot, plan: &Plan, place: Address) -> Outcome<(Host<EndpointSink>, Address)> {
    let domain = slot.domain();
    let settings = &domain.fabric.settings;
    let millis = |ms: u32| Duration::from_millis(ms.into());
    let defaults = Options::at(place.place());
    let paths = if place.ip.is_loopback() { 1 } else { defaults.paths };
    let options = Options {
        packet_bytes_max: settings.packet_bytes_max,
        paths: settings.paths.unwrap_or(paths),
        link_rate_bps: settings.link_rate_mbps.map(|mbps| u64::from(mbps) * 1_000_000),
        operations_max: match u32::try_from(plan.operations) {
            Ok(fewer) if (1..OPERATIONS).contains(&plan.operations) => fewer,
            _ => defaults.operations_max,
        },
        job_key: settings.job_key,
        shared_memory: settings.shared_memory,
        answer_timeout: millis(settings.answer_timeout_ms),
        peer_timeout: millis(settings.peer_timeout_ms),
        ..defaults
    };
    let host = Host::open_with(&options, EndpointSink::default(), |endpoint, place| {
        layer(plan.service, &options, endpoint, place)
    });
    let host = host.map_err(|error| {
        log(Level::Warn, &format!("cannot open an endpoint at {}: {error}", place.place()));
        match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => Errno(libc::EMFILE),
            Some(libc::ENOMEM) => Errno(FI_ENOMEM),
            _ => Errno(FI_EADDRNOTAVAIL),
        }
    })?;
    let name = Address {
        ip: host.address().ip(),
        port: host.address().port(),
        incarnation: if plan.service.knows_runs() { host.incarnation() } else { 0 },
    };
    // A registration that another thread makes during this call waits for the lock, and then finds
    // the host.
    let regions = domain.regions();
    regions.share_all(host.handle())?;
    domain.hosts.add(host.handle());
    Ok((host, name))
}

#[cfg(test)]
#[path = "endpoint_tests.rs"]
mod tests;
