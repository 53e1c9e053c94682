//! Packets that are followed through the card: what each table said of them, and what became of
//! them.
//!
//! A trace has a filter, follows a number of packets, and keeps records until they are taken.
//! Bounds: [`TRACES_MAX`] traces; each keeps [`RECORDS_MAX`] records and [`BYTES_MAX`] bytes of
//! packets, counts what it could not keep, and follows so many packets as it was made for.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use srd_proto::time::Instant;
use srd_vpc::id::{EniId, NatGatewayId};
use srd_vpc::judge::{Exit, Service};
use srd_vpc::packet::{Inner, Packet};

use super::drops::Cause;
use super::flow::To;
use super::port::{PortId, Ride};
use crate::limits::Limit;
use crate::meta::key::Direction;
use crate::track::State;

/// Traces at once.
pub const TRACES_MAX: usize = 8;
/// Records of a trace that wait to be taken.
pub const RECORDS_MAX: usize = 1 << 15;
/// Bytes of packets of a trace that wait to be taken.
pub const BYTES_MAX: usize = 4 << 20;

/// Which packets are followed: all conditions hold that are given.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// Interfaces of this host; all if there are none.
    pub interfaces: Vec<PortId>,
    /// The transport protocol.
    pub protocol: Option<u8>,
    /// The source address.
    pub source: Option<IpAddr>,
    /// The destination address.
    pub destination: Option<IpAddr>,
    /// One of the two addresses.
    pub host: Option<IpAddr>,
    /// The source port.
    pub source_port: Option<u16>,
    /// The destination port.
    pub destination_port: Option<u16>,
    /// One of the two ports.
    pub port: Option<u16>,
}

impl Filter {
    fn takes(&self, interface: PortId, packet: &Packet) -> bool {
        let ports = match packet.inner {
            Inner::Tcp(from, to) | Inner::Udp(from, to) => Some((from, to)),
            Inner::Icmp(..) | Inner::Other(_) => None,
        };
        let (from, to) = (packet.source, packet.destination);
        let holds = |wanted: Option<u16>, is: fn((u16, u16), u16) -> bool| {
            wanted.is_none_or(|wanted| ports.is_some_and(|ports| is(ports, wanted)))
        };
        (self.interfaces.is_empty() || self.interfaces.contains(&interface))
            && self.protocol.is_none_or(|protocol| protocol == packet.protocol())
            && self.source.is_none_or(|source| source == from)
            && self.destination.is_none_or(|destination| destination == to)
            && self.host.is_none_or(|host| host == from || host == to)
            && holds(self.source_port, |ports, wanted| ports.0 == wanted)
            && holds(self.destination_port, |ports, wanted| ports.1 == wanted)
            && holds(self.port, |ports, wanted| ports.0 == wanted || ports.1 == wanted)
    }
}

/// A trace of a card.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TraceId(pub u64);

/// There are [`TRACES_MAX`] traces already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooManyTraces;

/// A packet that is followed; 0: none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Followed(u32);

impl Followed {
    pub(super) const NO: Self = Self(0);

    pub(super) fn is_some(self) -> bool {
        self != Self::NO
    }
}

/// Something that happened to a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The packet. One that goes from an interface of this host to another has a number on each.
    pub packet: u32,
    /// When.
    pub at: Instant,
    /// What.
    pub event: Event,
}

/// What happened to a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The card has read it: the first record of each packet.
    Arrived(Arrived),
    /// Groups, lists and routes have spoken.
    Judged {
        /// Whether the rules were asked; else the verdict was kept with the flow.
        by_rules: bool,
        /// Where it goes, or why not.
        verdict: Result<Next, Cause>,
        /// Its flow after it.
        flow: Option<FlowSeen>,
    },
    /// A limit holds it up.
    Waits(Option<Limit>),
    /// The packet is held until the place of its receiver is known, or of its sender if it is for
    /// the interface. (V15)
    Asks,
    /// A limit has dropped it: the last record.
    OverLimit(Limit),
    /// The rules changed while it waited, and refuse it now; or it is too large for its way, or a
    /// NAT gateway does not translate it; or it was dropped before the interface's rules: the last
    /// record.
    Dropped(Cause),
    /// It is through: the last record.
    Gone(Next),
}

impl Event {
    fn is_last(&self) -> bool {
        match self {
            Self::Arrived(_) | Self::Waits(_) | Self::Asks => false,
            Self::Judged { verdict, .. } => verdict.is_err(),
            Self::OverLimit(_) | Self::Dropped(_) | Self::Gone(_) => true,
        }
    }

    fn bytes(&self) -> usize {
        if let Self::Arrived(arrived) = self { arrived.head.len() } else { 0 }
    }
}

/// A packet as it came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// The interface that sends it, or that it is for.
    pub interface: PortId,
    /// From the interface, or to it.
    pub direction: Direction,
    /// Its addresses, protocol and ports.
    pub packet: Packet,
    /// Whether it is a fragment.
    pub is_fragment: bool,
    /// Its bytes, from the IP header on; those of all packets that a super-packet stands for.
    pub bytes: u32,
    /// How many packets it stands for.
    pub packets: u32,
    /// Its flow before it; none if the card knew none.
    pub flow: Option<FlowSeen>,
    /// Its first bytes.
    pub head: Vec<u8>,
}

/// The state of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowSeen {
    /// The state of its connection.
    pub state: State,
    /// Whether it is tracked, or only remembered.
    pub tracked: bool,
    /// Whether the interface sent its first packet.
    pub local_first: bool,
}

/// Where a packet goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// To the guest.
    Guest,
    /// To an interface of this host.
    Interface(PortId),
    /// To an interface of another host.
    Host {
        /// The host.
        host: Arc<str>,
        /// The interface.
        eni: EniId,
        /// Whether it rides SRD, or why not.
        ride: Ride,
    },
    /// To the edge of a gateway.
    Edge(Exit, Arc<str>),
    /// To a NAT gateway, and from there to this interface; none: it is an answer for the gateway.
    Nat(NatGatewayId, Option<EniId>),
    /// To a service of the network's own.
    Service(Service),
}

impl Next {
    pub(super) fn of(to: &To) -> Self {
        match to {
            To::Port(port) => Self::Interface(*port),
            To::Host { host, eni, ride } => {
                Self::Host { host: host.clone(), eni: *eni, ride: *ride }
            }
            To::Edge { exit, edge, .. } => Self::Edge(*exit, edge.clone()),
            To::ByNat { nat, eni, .. } => Self::Nat(*nat, Some(*eni)),
            To::BackByNat(nat) => Self::Nat(*nat, None),
            To::Service(service) => Self::Service(*service),
        }
    }
}

/// What a trace has kept since it was last asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taken {
    /// The records in the order of their times.
    pub records: Vec<Record>,
    /// Packets that it could not follow since it was last asked: too many records waited.
    pub lost: u64,
    /// No further record comes: it has followed all packets that it was made for.
    pub is_over: bool,
}

#[derive(Debug)]
struct Trace {
    id: TraceId,
    filter: Filter,
    /// Packets that it will follow yet.
    left: u32,
    /// First bytes of each packet that are kept.
    head_bytes: usize,
    records: VecDeque<Record>,
    /// Bytes of packets in the records.
    bytes: usize,
    lost: u64,
    /// Packets that have not had their last record.
    followed: BTreeSet<u32>,
}

/// All traces of a card.
#[derive(Debug, Default)]
pub(super) struct Traces {
    all: Vec<Trace>,
    made: u64,
    packets: u32,
    /// The packet that is read next, if it was held.
    resumed: Followed,
}

impl Traces {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn begin(
        &mut self,
        filter: Filter,
        packets: u32,
        head_bytes: usize,
    ) -> Result<TraceId, TooManyTraces> {
        if self.all.len() >= TRACES_MAX {
            return Err(TooManyTraces);
        }
        self.made += 1;
        let id = TraceId(self.made);
        let (records, followed) = (VecDeque::new(), BTreeSet::new());
        let left = packets;
        self.all.push(Trace { id, filter, left, head_bytes, records, bytes: 0, lost: 0, followed });
        Ok(id)
    }

    pub(super) fn end(&mut self, id: TraceId) {
        self.all.retain(|trace| trace.id != id);
    }

    pub(super) fn take(&mut self, id: TraceId, most: usize, bytes: usize) -> Option<Taken> {
        let trace = self.all.iter_mut().find(|trace| trace.id == id)?;
        let mut sum = 0;
        let fitting = trace.records.iter().take(most).take_while(|record| {
            sum += record.event.bytes();
            sum <= bytes || sum == record.event.bytes()
        });
        let number = fitting.count();
        let records: Vec<Record> = trace.records.drain(..number).collect();
        trace.bytes -= records.iter().map(|record| record.event.bytes()).sum::<usize>();
        let lost = core::mem::take(&mut trace.lost);
        let is_over = trace.left == 0 && trace.followed.is_empty() && trace.records.is_empty();
        Some(Taken { records, lost, is_over })
    }

    /// How many bytes of a packet are to be kept; none if no trace wants it.
    pub(super) fn wanted_bytes(&self, interface: PortId, packet: &Packet) -> Option<usize> {
        let wants = |trace: &&Trace| trace.left > 0 && trace.filter.takes(interface, packet);
        self.all.iter().filter(wants).map(|trace| trace.head_bytes).max()
    }

    /// The packet that is read next is this one, which was held; none any more.
    pub(super) fn resume(&mut self, packet: Followed) {
        self.resumed = packet;
    }

    /// The packet that is read, if it was held: it is followed already.
    pub(super) fn take_resumed(&mut self) -> Option<Followed> {
        Some(core::mem::take(&mut self.resumed)).filter(|packet| packet.is_some())
    }

    /// Follows a packet.
    pub(super) fn follow(&mut self, now: Instant, arrived: &Arrived) -> Followed {
        self.packets = self.packets.checked_add(1).unwrap_or(1);
        let (packet, mut is_followed) = (self.packets, false);
        for trace in &mut self.all {
            if trace.left == 0 || !trace.filter.takes(arrived.interface, &arrived.packet) {
                continue;
            }
            let head = &arrived.head[..trace.head_bytes.min(arrived.head.len())];
            if trace.records.len() >= RECORDS_MAX || trace.bytes + head.len() > BYTES_MAX {
                trace.lost += 1;
                continue;
            }
            let head = head.to_vec();
            trace.left -= 1;
            trace.bytes += head.len();
            trace.followed.insert(packet);
            let event = Event::Arrived(Arrived { head, ..arrived.clone() });
            trace.records.push_back(Record { packet, at: now, event });
            is_followed = true;
        }
        if is_followed { Followed(packet) } else { Followed::NO }
    }

    /// Something happened to a packet. A packet has few records, so that their number stays in
    /// proportion to [`RECORDS_MAX`].
    pub(super) fn note(&mut self, now: Instant, packet: Followed, event: &Event) {
        for trace in &mut self.all {
            if !trace.followed.contains(&packet.0) {
                continue;
            }
            if event.is_last() {
                trace.followed.remove(&packet.0);
            }
            trace.records.push_back(Record { packet: packet.0, at: now, event: event.clone() });
        }
    }
}
