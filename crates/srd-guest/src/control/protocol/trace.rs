//! Traces of packets: the selection of packets, and their events.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use srd_vpc_file::words::StepRecord;

/// Conditions for traced packets. A packet has to fulfil all conditions that are not `None`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TraceFilter {
    /// The number of the transport protocol.
    pub protocol: Option<u8>,
    /// The source address of the packets.
    pub source: Option<IpAddr>,
    /// The destination address of the packets.
    pub destination: Option<IpAddr>,
    /// An address that is the source or the destination.
    pub host: Option<IpAddr>,
    /// The source port of the packets.
    pub source_port: Option<u16>,
    /// The destination port of the packets.
    pub destination_port: Option<u16>,
    /// A port that is the source port or the destination port.
    pub port: Option<u16>,
}

/// An event of a traced packet, with its time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TraceRecord {
    /// The number of the packet. A packet between two interfaces of this host has one number at the
    /// sending and another number at the receiving interface.
    pub packet: u32,
    /// Time of the event, in nanoseconds since 1970.
    pub unix_ns: u64,
    /// Kind and details of the event.
    #[serde(flatten)]
    pub event: TraceEvent,
}

/// An event of a traced packet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum TraceEvent {
    /// The card has read the packet. This is the first event of each packet.
    Arrived(TraceArrived),
    /// The security groups, access control lists and routes were applied. If they refuse the
    /// packet, this is the last event.
    Judged(TraceJudged),
    /// A limit delays the packet.
    Waits {
        /// The limit that delays the packet; `None` if the packet waits behind other packets of the
        /// same limit.
        limit: Option<TraceLimit>,
    },
    /// The packet waits for another reason than a limit.
    Held {
        /// The reason why the packet waits, as a sentence.
        why: String,
    },
    /// A limit has dropped the packet. This is the last event.
    OverLimit {
        /// The limit that has dropped the packet.
        limit: TraceLimit,
    },
    /// The packet was dropped after it had waited, because the rules have changed, or because it is
    /// too large for its path. This is the last event.
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
    /// The instance that sends or receives the packet.
    pub instance: String,
    /// The device in the instance.
    pub device: String,
    /// Whether the interface sends the packet; otherwise the packet is for the interface.
    pub is_egress: bool,
    /// The source address of the packet.
    pub source: IpAddr,
    /// The destination address of the packet.
    pub destination: IpAddr,
    /// The transport protocol: tcp, udp, icmp, icmpv6, or a number.
    pub protocol: String,
    /// The ports, or type and code of ICMP; `None` for other protocols, and for fragments without
    /// ports.
    pub ports: Option<(u16, u16)>,
    /// Whether the packet is a fragment.
    pub is_fragment: bool,
    /// Size in bytes, from the IP header on. A super-packet has the size of all its packets.
    pub bytes: u32,
    /// Number of packets that a super-packet represents; otherwise 1.
    pub packets: u32,
    /// The state of the flow before the packet; `None` if the flow was new to the card.
    pub flow: Option<TraceFlow>,
    /// The first bytes of the packet, in base64.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub head: String,
}

/// The state of a traced packet's flow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TraceFlow {
    /// The state of the connection: opening, established, closing, closed, single or stream.
    pub state: String,
    /// Whether the flow is tracked: it counts against the allowance of tracked connections. If
    /// false, the card stores the flow without counting it.
    pub is_tracked: bool,
    /// Whether the interface sent the first packet of the flow.
    pub local_first: bool,
}

/// Result of the security groups, access control lists and routes for a traced packet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TraceJudged {
    /// Whether the rules were applied; otherwise the verdict was stored with the flow.
    pub by_rules: bool,
    /// The next hop; `None` if the packet is refused.
    pub next: Option<TraceHop>,
    /// The reason why the packet is refused; `None` if it is not refused.
    pub refusal: Option<TraceRefusal>,
    /// Decision of each table, if the rules were applied or refuse the packet.
    pub steps: Vec<StepRecord>,
    /// The state of the flow after the packet.
    pub flow: Option<TraceFlow>,
}

/// Reason why a traced packet is dropped, and the remedy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TraceRefusal {
    /// The name of the cause in `srd card status`.
    pub cause: String,
    /// The cause as a sentence.
    pub why: String,
    /// The remedy, as a sentence.
    pub remedy: String,
}

/// A limit that has delayed or dropped a traced packet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TraceLimit {
    /// The limited quantity, such as the bandwidth of the instance.
    pub what: String,
    /// The counter of `ethtool -S` that has counted the packet.
    pub counter: String,
}

/// The next hop of a traced packet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum TraceHop {
    /// The interface that the packet is for.
    Guest,
    /// An interface of this host.
    Interface {
        /// The name of the instance.
        instance: String,
        /// The device in the instance.
        device: String,
    },
    /// An interface of another host.
    Host {
        /// The name of the host.
        host: String,
        /// The name of the interface.
        interface: String,
        /// Whether the packet uses SRD.
        express: bool,
        /// The reason why the packet does not use SRD; `None` if it uses SRD.
        #[serde(default)]
        plainly: Option<String>,
        /// Whether the packet waits on this host, because there is no session with the other host
        /// yet.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        waits: bool,
    },
    /// A gateway.
    Gateway {
        /// The kind, name and identifier of the gateway.
        gateway: String,
        /// The host that connects the gateway to the network outside of the cloud (the gateway's
        /// edge).
        host: String,
        /// Whether the packet waits on this host, because there is no session with the edge yet.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        waits: bool,
    },
    /// A NAT gateway that leads to an interface.
    Nat {
        /// The kind, name and identifier of the gateway.
        gateway: String,
        /// The interface; `None` if the packet is an answer, which returns to the origin of its
        /// connection.
        interface: Option<String>,
    },
    /// A service of the network itself.
    Service {
        /// The name of the service.
        service: String,
    },
}

impl TraceHop {
    /// Records that the packet waits on this host, because there is no session with the other host.
    pub(crate) fn wait_for_session(&mut self) {
        if let Self::Host { waits, .. } | Self::Gateway { waits, .. } = self {
            *waits = true;
        }
    }
}
