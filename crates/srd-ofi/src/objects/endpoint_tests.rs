use super::*;
use crate::objects::domain::{Kind, tests::domain};
use crate::results::completion::Format;
use crate::results::queue::WaitMode;

const CAPS: u64 = FI_SEND | FI_RECV;

struct Parts {
    domain: Arc<Domain>,
    endpoint: Endpoint,
}

impl Parts {
    fn new() -> Self {
        let domain = domain();
        let endpoint = endpoint_in(&domain, 0).unwrap();
        Self { domain, endpoint }
    }

    fn vector(&self) -> Arc<AddressVector> {
        Arc::new(AddressVector::new(Slot::take(&self.domain, Kind::Vector).unwrap()))
    }

    fn counter(&self) -> Arc<Counter> {
        Arc::new(Counter::new(Slot::take(&self.domain, Kind::Counter).unwrap(), WaitMode::None))
    }

    fn queue(&self) -> Arc<CompletionQueue> {
        let slot = Slot::take(&self.domain, Kind::CompletionQueue).unwrap();
        Arc::new(CompletionQueue::new(slot, 8, Format::Tagged, WaitMode::None).unwrap())
    }
}

fn endpoint_in(domain: &Arc<Domain>, port: u16) -> Outcome<Endpoint> {
    let source = Address { ip: domain.ip, port, incarnation: 0 };
    let slot = Slot::take(domain, Kind::Endpoint).unwrap();
    let service = Service::Messages;
    let plan =
        Plan { service, caps: CAPS, source, tx_flags: 0, rx_flags: 0, operations: 0, order: 0 };
    Endpoint::new(slot, plan)
}

#[test]
fn an_endpoint_needs_a_vector_and_a_queue_for_each_half() {
    let parts = Parts::new();
    assert_eq!(parts.endpoint.enable(), Err(Errno(FI_ENOAV)));
    parts.endpoint.bind_vector(&parts.vector()).unwrap();
    assert_eq!(parts.endpoint.enable(), Err(Errno(FI_ENOCQ)));
    parts.endpoint.bind_completions(&parts.queue(), FI_TRANSMIT).unwrap();
    assert_eq!(parts.endpoint.enable(), Err(Errno(FI_ENOCQ)));
    // A counter is enough as well.
    parts.endpoint.bind_counter(&parts.counter(), FI_RECV).unwrap();
    parts.endpoint.enable().unwrap();
    assert_eq!(parts.endpoint.enable(), Err(Errno(FI_EOPBADSTATE)));
    assert_eq!(parts.endpoint.bind_vector(&parts.vector()), Err(Errno(FI_EOPBADSTATE)));
}

#[test]
fn what_is_bound_is_bound_once_and_from_the_same_domain() {
    let (parts, others) = (Parts::new(), Parts::new());
    let endpoint = &parts.endpoint;
    assert_eq!(endpoint.bind_vector(&others.vector()), Err(Errno(FI_EDOMAIN)));
    assert_eq!(endpoint.bind_completions(&others.queue(), FI_RECV), Err(Errno(FI_EDOMAIN)));
    assert_eq!(endpoint.bind_counter(&others.counter(), FI_RECV), Err(Errno(FI_EDOMAIN)));
    endpoint.bind_vector(&parts.vector()).unwrap();
    assert_eq!(endpoint.bind_vector(&parts.vector()), Err(Errno(FI_EBUSY)));
    endpoint.bind_completions(&parts.queue(), FI_RECV | FI_SELECTIVE_COMPLETION).unwrap();
    let both = FI_RECV | FI_TRANSMIT;
    assert_eq!(endpoint.bind_completions(&parts.queue(), both), Err(Errno(FI_EBUSY)));
    assert_eq!(endpoint.bind_completions(&parts.queue(), 0), Err(Errno(FI_EBADFLAGS)));
    assert_eq!(endpoint.bind_counter(&parts.counter(), 1), Err(Errno(FI_EBADFLAGS)));
}

#[test]
fn counters_of_an_endpoint_have_a_limit() {
    let parts = Parts::new();
    for _ in 0..COUNTERS_MAX {
        parts.endpoint.bind_counter(&parts.counter(), FI_SEND).unwrap();
    }
    let refused = parts.endpoint.bind_counter(&parts.counter(), FI_SEND);
    assert_eq!(refused, Err(Errno(FI_EBUSY)));
}

#[test]
fn a_port_has_one_owner_and_each_owner_another_incarnation() {
    let domain = domain();
    let first = endpoint_in(&domain, 0).unwrap();
    let name = first.name();
    assert!(name.port != 0 && name.incarnation != 0);
    assert_eq!(endpoint_in(&domain, name.port).unwrap_err(), Errno(FI_EADDRNOTAVAIL));
    drop(first);
    let second = endpoint_in(&domain, name.port).unwrap();
    assert_eq!(second.name().place(), name.place());
    assert!(second.name().incarnation > name.incarnation);
}

#[test]
fn an_endpoint_moves_before_it_is_enabled() {
    let parts = Parts::new();
    let before = parts.endpoint.name();
    parts.endpoint.rename(Address { port: 0, incarnation: 0, ..before }).unwrap();
    assert_ne!(parts.endpoint.name(), before);
    let elsewhere = Address { ip: [192, 0, 2, 1].into(), port: 0, incarnation: 0 };
    assert_eq!(parts.endpoint.rename(elsewhere), Err(Errno(FI_EADDRNOTAVAIL)));
}

#[test]
fn the_room_that_a_shared_buffer_keeps_is_the_applications() {
    let parts = Parts::new();
    parts.endpoint.set_multi_recv_bytes(4096).unwrap();
    assert_eq!(parts.endpoint.multi_recv_bytes(), 4096);
}
