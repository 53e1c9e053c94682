//! Traces of packets through the card: the result of each table, and the end of each packet's path.
//!
//! A trace has a filter, follows a given number of packets, and keeps records until the caller
//! takes them. Bounds: [`TRACES_MAX`] traces. A trace with [`RECORDS_MAX`] records follows no
//! further packet. Neither does a trace that would then keep more than [`BYTES_MAX`] bytes of
//! packets. Packets that are not followed because of these bounds are counted. Events of packets
//! that a trace already follows are recorded even beyond [`RECORDS_MAX`].

use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use srd_proto::time::Instant;
use srd_vpc::id::{EniId, NatGatewayId};
use srd_vpc::judge::{Exit, Service};
use srd_vpc::packet::{Inner, Packet};

use crate::limits::Limit;
use crate::meta::key::Direction;
use crate::track::State;
use crate::vpc::drops::Cause;
use crate::vpc::port::{PortId, Ride};
use crate::vpc::tables::flow::To;

/// Largest number of traces at the same time.
pub const TRACES_MAX: usize = 8;
/// Largest number of records of a trace that wait to be taken.
pub const RECORDS_MAX: usize = 1 << 15;
/// Largest number of packet bytes of a trace that wait to be taken.
pub const BYTES_MAX: usize = 4 << 20;

/// Filter of the packets that a trace follows. A packet has to meet all conditions; a field that is
/// `None` is no condition.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// Interfaces of this host; an empty list means all.
    pub interfaces: Vec<PortId>,
    /// Number of the transport protocol.
    pub protocol: Option<u8>,
    /// Source address of the packets.
    pub source: Option<IpAddr>,
    /// Destination address of the packets.
    pub destination: Option<IpAddr>,
    /// Source or destination address of the packets.
    pub host: Option<IpAddr>,
    /// Source port of the packets.
    pub source_port: Option<u16>,
    /// Destination port of the packets.
    pub destination_port: Option<u16>,
    /// Source or destination port of the packets.
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

/// Identifier of a trace; a card uses each identifier only once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TraceId(pub u64);

/// Error: the card has [`TRACES_MAX`] traces already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooManyTraces;

/// Number of a packet that is followed; 0 for a packet that is not followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::vpc) struct Followed(u32);

impl Followed {
    pub(in crate::vpc) const NO: Self = Self(0);

    pub(in crate::vpc) fn is_some(self) -> bool {
        self != Self::NO
    }
}

/// Event of a packet, as a trace records it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Number of the packet. A packet between two interfaces of this host has two numbers: one at
    /// the sender, one at the receiver.
    pub packet: u32,
    /// Time of the event.
    pub at: Instant,
    /// Event that is recorded.
    pub event: Event,
}

/// Event in the path of a packet through the card.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The card has read the packet: the first record of each packet.
    Arrived(Arrived),
    /// The card has a verdict about the packet: the result of security groups, network ACLs and
    /// routes.
    Judged {
        /// Whether the rules evaluated this packet; otherwise the verdict was stored with the flow.
        by_rules: bool,
        /// Next destination of the packet, or the cause of its drop.
        verdict: Result<Next, Cause>,
        /// State of the flow after this packet; `None` if the card has no entry for the flow.
        flow: Option<FlowSeen>,
    },
    /// The packet waits before this limit. `None` means that it has passed all limits, and waits
    /// behind earlier packets that have done so as well.
    Waits(Option<Limit>),
    /// The packet waits until the location of its receiver is known, or, if it arrives for an
    /// interface, the location of its sender. (V15)
    Asks,
    /// A limit has dropped the packet. This is the packet's last record.
    OverLimit(Limit),
    /// The packet was dropped after, or without, the verdict of the interface's rules. This is the
    /// packet's last record. Examples of causes: the rules changed while the packet waited; it is
    /// too large for its path; a NAT gateway does not translate it.
    Dropped(Cause),
    /// The packet has left the card for this destination. This is the packet's last record.
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

/// Data of a packet that the card has read, and the state of its flow at this time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// Interface that sends or receives the packet.
    pub interface: PortId,
    /// Whether the packet comes from the interface or goes to it.
    pub direction: Direction,
    /// Addresses, protocol and ports of the packet.
    pub packet: Packet,
    /// Whether the packet is a fragment.
    pub is_fragment: bool,
    /// Bytes from the IP header on; for a super-packet, the bytes of all packets that it
    /// represents.
    pub bytes: u32,
    /// Number of packets: more than one for a super-packet.
    pub packets: u32,
    /// State of the flow before this packet; `None` if the card had no entry for the flow.
    pub flow: Option<FlowSeen>,
    /// First bytes of the packet, as many as the trace keeps.
    pub head: Vec<u8>,
}

/// State of a flow when a packet was traced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowSeen {
    /// State of the connection.
    pub state: State,
    /// Whether the connection is tracked; otherwise it is only remembered.
    pub tracked: bool,
    /// Whether the interface sent the first packet of the flow.
    pub local_first: bool,
}

/// Next destination of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// The guest of the interface for which the packet arrived.
    Guest,
    /// An interface of this host.
    Interface(PortId),
    /// An interface of another host.
    Host {
        /// Name of the host.
        host: Arc<str>,
        /// Interface that receives the packet.
        eni: EniId,
        /// Whether the packet is carried by SRD, or the reason why it is not.
        ride: Ride,
    },
    /// A gateway, and the name of its edge: the host that connects the gateway to the network
    /// outside of the cloud.
    Edge(Exit, Arc<str>),
    /// A NAT gateway that translates the packet, and the interface that receives it afterwards;
    /// `None` for an answer, whose receiver the gateway determines.
    Nat(NatGatewayId, Option<EniId>),
    /// A service of the network itself.
    Service(Service),
}

impl Next {
    pub(in crate::vpc) fn of(to: &To) -> Self {
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

/// Records that the caller takes from a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taken {
    /// Records in the order of their times.
    pub records: Vec<Record>,
    /// Number of packets that the trace did not follow since the last call, because too many
    /// records waited.
    pub lost: u64,
    /// Whether the trace has ended: it has followed all its packets, and has no further records.
    pub is_over: bool,
}

#[derive(Debug)]
struct Trace {
    id: TraceId,
    filter: Filter,
    /// Number of packets that the trace may still begin to follow.
    left: u32,
    /// Number of bytes that are kept of the beginning of each packet.
    head_bytes: usize,
    records: VecDeque<Record>,
    /// Bytes of packets in the records.
    bytes: usize,
    lost: u64,
    /// Numbers of the packets that are being followed: their last record has not been written.
    followed: BTreeSet<u32>,
}

/// All traces of a card.
#[derive(Debug, Default)]
pub(in crate::vpc) struct Traces {
    all: Vec<Trace>,
    made: u64,
    packets: u32,
    /// Number of the packet that is read next, if the packet has waited for a location and was
    /// followed before.
    resumed: Followed,
}

impl Traces {
    #[inline]
    pub(in crate::vpc) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(in crate::vpc) fn begin(
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

    pub(in crate::vpc) fn end(&mut self, id: TraceId) {
        self.all.retain(|trace| trace.id != id);
    }

    pub(in crate::vpc) fn take(&mut self, id: TraceId, most: usize, bytes: usize) -> Option<Taken> {
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

    /// Number of bytes of a packet that the traces keep; `None` if no filter accepts the packet.
    pub(in crate::vpc) fn wanted_bytes(&self, interface: PortId, packet: &Packet) -> Option<usize> {
        let wants = |trace: &&Trace| trace.left > 0 && trace.filter.takes(interface, packet);
        self.all.iter().filter(wants).map(|trace| trace.head_bytes).max()
    }

    /// Sets the number of the packet that is read next, which has waited for a location. The value
    /// `Followed::NO` clears the number.
    pub(in crate::vpc) fn resume(&mut self, packet: Followed) {
        self.resumed = packet;
    }

    /// Takes the number of the packet that is read now, if [`Traces::resume`] has set it because
    /// traces already follow this packet. Otherwise returns `None`.
    pub(in crate::vpc) fn take_resumed(&mut self) -> Option<Followed> {
        Some(core::mem::take(&mut self.resumed)).filter(|packet| packet.is_some())
    }

    /// Begins to follow a packet by each trace whose filter accepts it. Returns the number of the
    /// packet, or `Followed::NO` if no trace follows it.
    pub(in crate::vpc) fn follow(&mut self, now: Instant, arrived: &Arrived) -> Followed {
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

    /// Records an event of a packet in the traces that follow the packet. [`RECORDS_MAX`] is not
    /// checked here, only before a trace follows a further packet. A packet has few records, so a
    /// trace exceeds [`RECORDS_MAX`] by a small factor only.
    pub(in crate::vpc) fn note(&mut self, now: Instant, packet: Followed, event: &Event) {
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
