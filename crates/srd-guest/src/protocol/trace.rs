//! Packets that are followed: which ones, and what happened to them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use srd_vpc_file::words::Line;

/// Which packets are followed: all conditions hold that are given.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TraceFilter {
    /// The number of the transport protocol.
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

/// Something that happened to a packet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TraceRecord {
    /// The packet. One that goes from an interface of this host to another has a number on each.
    pub packet: u32,
    /// When, in nanoseconds since 1970.
    pub unix_ns: u64,
    /// What.
    #[serde(flatten)]
    pub event: TraceEvent,
}

/// What happened to a packet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum TraceEvent {
    /// The card has read it: the first event of each packet.
    Arrived(TraceArrived),
    /// Groups, lists and routes have spoken; if they refuse the packet, this is the last event.
    Judged(TraceJudged),
    /// A limit holds it up.
    Waits {
        /// The limit; none if it stands behind other packets of the same limit.
        limit: Option<TraceLimit>,
    },
    /// The packet is held for another reason than a limit.
    Held {
        /// The reason.
        why: String,
    },
    /// A limit has dropped it: the last event.
    OverLimit {
        /// The limit.
        limit: TraceLimit,
    },
    /// The rules changed while it waited, and refuse it now; or it is too large for its way: the
    /// last event.
    Dropped(TraceRefusal),
    /// It is through: the last event.
    Gone {
        /// Where it went.
        to: TraceHop,
    },
}

impl TraceEvent {
    /// Whether no other event of the packet follows.
    pub fn is_last(&self) -> bool {
        match self {
            Self::Arrived(_) | Self::Waits { .. } | Self::Held { .. } => false,
            Self::Judged(judged) => judged.refusal.is_some(),
            Self::OverLimit { .. } | Self::Dropped(_) | Self::Gone { .. } => true,
        }
    }
}

/// A packet as it came.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TraceArrived {
    /// The instance whose packet it is.
    pub instance: String,
    /// Its device there.
    pub device: String,
    /// Whether the interface sends it; else it is for the interface.
    pub is_egress: bool,
    /// Its source address.
    pub source: IpAddr,
    /// Its destination address.
    pub destination: IpAddr,
    /// tcp, udp, icmp, icmpv6, or a number.
    pub protocol: String,
    /// Its ports, or type and code of ICMP; none of other protocols, and of fragments without them.
    pub ports: Option<(u16, u16)>,
    /// Whether it is a fragment.
    pub is_fragment: bool,
    /// Its bytes, from the IP header on; those of all packets that a super-packet stands for.
    pub bytes: u32,
    /// How many packets it stands for.
    pub packets: u32,
    /// Its flow before it; none if the card knew none.
    pub flow: Option<TraceFlow>,
    /// Its first bytes, in base64.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub head: String,
}

/// The state of a flow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TraceFlow {
    /// The state of its connection: opening, established, closing, closed, single or stream.
    pub state: String,
    /// Whether it is tracked, or only remembered.
    pub is_tracked: bool,
    /// Whether the interface sent its first packet.
    pub local_first: bool,
}

/// What groups, lists and routes said.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TraceJudged {
    /// Whether the rules were asked; else the verdict was kept with the flow.
    pub by_rules: bool,
    /// Where it goes; none if it is refused.
    pub next: Option<TraceHop>,
    /// Why it is refused.
    pub refusal: Option<TraceRefusal>,
    /// What each table said, if the rules were asked or refuse it.
    pub steps: Vec<Line>,
    /// Its flow after it.
    pub flow: Option<TraceFlow>,
}

/// Why a packet is dropped.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TraceRefusal {
    /// The cause, by its name in `srd card status`.
    pub cause: String,
    /// The same in words.
    pub why: String,
    /// What to do about it.
    pub remedy: String,
}

/// A limit of an instance or an interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TraceLimit {
    /// What is limited.
    pub what: String,
    /// The counter of `ethtool -S` that has counted it.
    pub counter: String,
}

/// Where a packet goes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum TraceHop {
    /// To the interface that it is for.
    Guest,
    /// To an interface of this host.
    Interface {
        /// The instance.
        instance: String,
        /// The device there.
        device: String,
    },
    /// To an interface of another host.
    Host {
        /// The host.
        host: String,
        /// The interface.
        interface: String,
        /// Whether it rides SRD.
        express: bool,
        /// Why it goes plainly.
        #[serde(default)]
        plainly: Option<String>,
        /// Whether it waits on this host: there is no session with that one yet.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        waits: bool,
    },
    /// To a gateway.
    Gateway {
        /// The gateway.
        gateway: String,
        /// The host that is its edge.
        host: String,
        /// Whether it waits on this host: there is no session with that one yet.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        waits: bool,
    },
    /// To a NAT gateway that leads to an interface.
    Nat {
        /// The gateway.
        gateway: String,
        /// The interface; none: it is an answer, which goes back to where its connection is from.
        interface: Option<String>,
    },
    /// To a service of the network's own.
    Service {
        /// The service.
        service: String,
    },
}

impl TraceHop {
    /// Notes that the packet waits on this host for a session with the other one.
    pub(crate) fn wait_for_session(&mut self) {
        if let Self::Host { waits, .. } | Self::Gateway { waits, .. } = self {
            *waits = true;
        }
    }
}
