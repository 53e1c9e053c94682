//! Traced packets: their selection, and their events.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use srd_vpc_file::words::StepRecord;

/// Conditions for traced packets. A packet has to fulfil all given conditions.
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

/// An event of a packet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TraceRecord {
    /// The number of the packet. A packet between two interfaces of this host has a number at each.
    pub packet: u32,
    /// Time of the event, in nanoseconds since 1970.
    pub unix_ns: u64,
    /// The event.
    #[serde(flatten)]
    pub event: TraceEvent,
}

/// An event of a packet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum TraceEvent {
    /// The card has read it: the first event of each packet.
    Arrived(TraceArrived),
    /// Groups, lists and routes were applied. If they refuse the packet, this is the last event.
    Judged(TraceJudged),
    /// A limit holds the packet up.
    Waits {
        /// The limit; `None` if the packet waits behind other packets of the same limit.
        limit: Option<TraceLimit>,
    },
    /// The packet is held for another reason than a limit.
    Held {
        /// The reason.
        why: String,
    },
    /// A limit has dropped the packet. This is the last event.
    OverLimit {
        /// The limit.
        limit: TraceLimit,
    },
    /// The rules changed while the packet waited, and refuse it now; or it is too large for its
    /// route. This is the last event.
    Dropped(TraceRefusal),
    /// The packet has passed. This is the last event.
    Gone {
        /// Next hop of the packet.
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

/// A packet at its arrival.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TraceArrived {
    /// The instance of the packet.
    pub instance: String,
    /// The device in the instance.
    pub device: String,
    /// Whether the interface sends the packet; otherwise the packet is for the interface.
    pub is_egress: bool,
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// tcp, udp, icmp, icmpv6, or a number.
    pub protocol: String,
    /// The ports, or type and code of ICMP; `None` for other protocols, and for fragments without
    /// ports.
    pub ports: Option<(u16, u16)>,
    /// Whether the packet is a fragment.
    pub is_fragment: bool,
    /// Size in bytes, from the IP header on. A super-packet has the size of all its packets.
    pub bytes: u32,
    /// Packets that this one represents.
    pub packets: u32,
    /// The state of the flow before the packet; `None` if the flow was new to the card.
    pub flow: Option<TraceFlow>,
    /// The first bytes of the packet, in base64.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub head: String,
}

/// The state of a flow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TraceFlow {
    /// The state of the connection: opening, established, closing, closed, single or stream.
    pub state: String,
    /// Whether the flow is tracked, or only stored.
    pub is_tracked: bool,
    /// Whether the interface sent the first packet of the flow.
    pub local_first: bool,
}

/// Result of groups, lists and routes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TraceJudged {
    /// Whether the rules were applied; otherwise the verdict was stored with the flow.
    pub by_rules: bool,
    /// The next hop; `None` if the packet is refused.
    pub next: Option<TraceHop>,
    /// The reason of a refusal.
    pub refusal: Option<TraceRefusal>,
    /// Decision of each table, if the rules were applied or refuse the packet.
    pub steps: Vec<StepRecord>,
    /// The state of the flow after the packet.
    pub flow: Option<TraceFlow>,
}

/// Reason why a packet is dropped.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TraceRefusal {
    /// The name of the cause in `srd card status`.
    pub cause: String,
    /// The cause as a sentence.
    pub why: String,
    /// The remedy.
    pub remedy: String,
}

/// A limit of an instance or an interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TraceLimit {
    /// The limited quantity.
    pub what: String,
    /// The counter of `ethtool -S` that has counted the packet.
    pub counter: String,
}

/// The next hop of a packet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum TraceHop {
    /// The interface that the packet is for.
    Guest,
    /// An interface of this host.
    Interface {
        /// The instance.
        instance: String,
        /// The device in the instance.
        device: String,
    },
    /// An interface of another host.
    Host {
        /// The host.
        host: String,
        /// The interface.
        interface: String,
        /// Whether the packet uses SRD.
        express: bool,
        /// The reason why the packet is sent plainly.
        #[serde(default)]
        plainly: Option<String>,
        /// Whether the packet waits on this host, because there is no session with the other host
        /// yet.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        waits: bool,
    },
    /// A gateway.
    Gateway {
        /// The gateway.
        gateway: String,
        /// The host that is the edge of the gateway.
        host: String,
        /// Whether the packet waits on this host, because there is no session with the edge yet.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        waits: bool,
    },
    /// A NAT gateway that leads to an interface.
    Nat {
        /// The gateway.
        gateway: String,
        /// The interface; `None` if the packet is an answer, which returns to the origin of its
        /// connection.
        interface: Option<String>,
    },
    /// A service of the network itself.
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
