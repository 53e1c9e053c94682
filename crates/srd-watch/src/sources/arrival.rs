//! A packet as the analysis needs it: time, direction, size and flow.

use std::fmt;

use serde::{Serialize, Serializer};
use srd_card::FlowKey;
use srd_card::packet::protocol;
use srd_proto::time::Instant;

/// Direction of packets, seen from the interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PacketDirection {
    /// Packets that the interface received.
    In,
    /// Packets that the interface sent.
    Out,
}

impl PacketDirection {
    /// Both directions, in the order of their indices.
    pub const BOTH: [Self; 2] = [Self::In, Self::Out];

    /// Returns `in` or `out`.
    pub fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

/// Tunnel protocol by which packets are encapsulated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Tunnel {
    /// RFC 7348, at UDP port 4789 or Linux's older 8472.
    Vxlan,
    /// RFC 8926, at UDP port 6081.
    Geneve,
    /// RFC 2784 and 2890, with IP or Ethernet inside.
    Gre,
    /// IP in IP, of either version: RFC 2003, 2473, 4213.
    IpInIp,
}

impl fmt::Display for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vxlan => "VXLAN",
            Self::Geneve => "Geneve",
            Self::Gre => "GRE",
            Self::IpInIp => "IP-in-IP",
        })
    }
}

/// A flow: the outer flow that the network sees and, if the outer flow is a tunnel, the inner flow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Flow {
    /// Fields of the outermost headers, which switches and cards use.
    pub outer: FlowKey,
    /// The kind of the outermost tunnel, and the innermost flow; `None` if the outer flow is no
    /// tunnel.
    pub inner: Option<(Tunnel, FlowKey)>,
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.inner {
            None => key(f, &self.outer),
            Some((tunnel, inner)) => {
                key(f, inner)?;
                write!(f, " in {tunnel} ")?;
                key(f, &self.outer)
            }
        }
    }
}

impl Serialize for Flow {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// Writes a flow in the form `UDP 10.0.0.1:7 > 10.0.0.2:53`.
fn key(f: &mut fmt::Formatter<'_>, key: &FlowKey) -> fmt::Result {
    match key.protocol {
        protocol::TCP => f.write_str("TCP")?,
        protocol::UDP => f.write_str("UDP")?,
        protocol::ICMP => f.write_str("ICMP")?,
        protocol::ICMP_V6 => f.write_str("ICMPv6")?,
        47 => f.write_str("GRE")?,
        50 => f.write_str("ESP")?,
        132 => f.write_str("SCTP")?,
        other => write!(f, "protocol {other}")?,
    }
    let (from, to) = key.ports;
    for (sign, address, port) in [(" ", key.source, from), (" > ", key.destination, to)] {
        f.write_str(sign)?;
        match (key.ports, address.is_ipv6()) {
            ((0, 0), _) => write!(f, "{address}")?,
            (_, false) => write!(f, "{address}:{port}")?,
            (_, true) => write!(f, "[{address}]:{port}")?,
        }
    }
    Ok(())
}

/// A packet, or a super-packet (several packets that segmentation offload handles as one).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Time of the packet, from the kernel's time stamp.
    pub time: Instant,
    /// Direction of the packet.
    pub way: PacketDirection,
    /// Flow of the packet.
    pub flow: Flow,
    /// Bytes from the IP header on, of all packets that this value stands for.
    pub bytes: u32,
    /// Number of packets that this value stands for, at least one.
    pub packets: u32,
    /// Bytes of the largest packet that this value stands for, from the IP header on.
    pub packet_bytes: u32,
    /// Whether the packet is an IP fragment.
    pub fragment: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_read_as_people_write_them() {
        let v4 = |protocol, ports| FlowKey {
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            protocol,
            ports,
        };
        let plain = Flow { outer: v4(protocol::UDP, (7, 53)), inner: None };
        assert_eq!(plain.to_string(), "UDP 10.0.0.1:7 > 10.0.0.2:53");
        let inner =
            Some((Tunnel::Gre, FlowKey { source: "fd00::1".parse().unwrap(), ..plain.outer }));
        let whale = Flow { outer: v4(47, (0, 0)), inner };
        let text = "UDP [fd00::1]:7 > 10.0.0.2:53 in GRE GRE 10.0.0.1 > 10.0.0.2";
        assert_eq!(whale.to_string(), text);
    }
}
