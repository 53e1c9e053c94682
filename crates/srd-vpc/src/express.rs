//! ENA Express: conditions of SRD for packets between two interfaces (V21 of `spec/card.md`).
//!
//! The card decides for each flow in `ask_sent` (`vpc/frames/egress.rs` of `srd-card`): it checks
//! middleboxes, gateways and hosts itself, and uses [`between`] for the settings of the two
//! interfaces. `rides_srd` in `vpc/frames/onward.rs` applies the limit on the size of a packet.
//! [`of_judged`] gives the whole answer for `srd vpc explain`.
//!
//! Source: Amazon EC2 User Guide, *Improve network performance between EC2 instances with ENA
//! Express*. Zones make no difference: both interfaces are in one Region, as all parts of a cloud
//! are.

use core::fmt;
use core::net::IpAddr;

use crate::id::EniId;
use crate::judge::{Judgement, Verdict};
use crate::object::{Eni, ExpressSpec, World};
use crate::packet::{Inner, Packet};

/// Reason why packets between two interfaces do not use SRD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Plainly {
    /// The sending interface has ENA Express off.
    Sender,
    /// The receiving interface has ENA Express off.
    Receiver,
    /// The sending interface has ENA Express off for UDP.
    SenderUdp,
    /// The receiving interface has ENA Express off for UDP.
    ReceiverUdp,
    /// The packets are neither TCP nor UDP.
    Protocol,
    /// A middlebox forwards the packets: an interface that is neither their source nor their
    /// destination.
    Middlebox,
    /// The packets pass a gateway.
    Gateway,
    /// Both interfaces are on one host, so the packets do not use the network.
    OneHost,
}

impl fmt::Display for Plainly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sender => "the interface that sends has no `express`",
            Self::Receiver => "the interface that receives has no `express`",
            Self::SenderUdp => "the interface that sends has no `express_udp`",
            Self::ReceiverUdp => "the interface that receives has no `express_udp`",
            Self::Protocol => "neither TCP nor UDP",
            Self::Middlebox => "a middlebox forwards the packets",
            Self::Gateway => "a gateway carries the packets",
            Self::OneHost => "both interfaces are on one host",
        })
    }
}

/// Checks whether packets with this content may use SRD from one interface to another.
///
/// # Errors
/// The reason why the packets may not use SRD.
pub fn between(from: ExpressSpec, to: ExpressSpec, inner: &Inner) -> Result<(), Plainly> {
    match inner {
        Inner::Tcp(..) | Inner::Udp(..) if !from.enabled => Err(Plainly::Sender),
        Inner::Tcp(..) | Inner::Udp(..) if !to.enabled => Err(Plainly::Receiver),
        Inner::Udp(..) if !from.udp => Err(Plainly::SenderUdp),
        Inner::Udp(..) if !to.udp => Err(Plainly::ReceiverUdp),
        Inner::Tcp(..) | Inner::Udp(..) => Ok(()),
        Inner::Icmp(..) | Inner::Other(_) => Err(Plainly::Protocol),
    }
}

/// Returns whether a packet that the interface `from` sends uses SRD: `Ok` if it does, otherwise
/// the reason. `judgement` is the evaluation of the packet. Returns `None` if the packet reaches no
/// interface and leaves through no gateway.
pub fn of_judged(
    world: &World,
    from: EniId,
    packet: &Packet,
    judgement: &Judgement,
) -> Option<Result<(), Plainly>> {
    let to = match judgement.verdict {
        Verdict::Delivered(to) => to,
        Verdict::Left(_) => return Some(Err(Plainly::Gateway)),
        Verdict::Served(_) | Verdict::Dropped(_) => return None,
    };
    if judgement.packet != *packet {
        return Some(Err(Plainly::Gateway));
    }
    let (from, to) = (world.enis.get(&from)?, world.enis.get(&to)?);
    if !has(from, packet.source) || !has(to, packet.destination) {
        return Some(Err(Plainly::Middlebox));
    }
    let (own, other) = (from.attachment.as_ref()?, to.attachment.as_ref()?);
    let host = |id| world.instances.get(&id).and_then(|instance| instance.host.as_deref());
    if host(own.instance) == host(other.instance) {
        return Some(Err(Plainly::OneHost));
    }
    Some(between(own.express, other.express, &packet.inner))
}

/// Whether an address belongs to the interface, as a single address or within a delegated prefix.
fn has(eni: &Eni, address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            eni.ipv4.contains(&address) || eni.ipv4_prefixes.iter().any(|of| of.contains(&address))
        }
        IpAddr::V6(address) => {
            eni.ipv6.contains(&address) || eni.ipv6_prefixes.iter().any(|of| of.contains(&address))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFF: ExpressSpec = ExpressSpec { enabled: false, udp: false };
    const TCP: ExpressSpec = ExpressSpec { enabled: true, udp: false };
    const BOTH: ExpressSpec = ExpressSpec { enabled: true, udp: true };
    /// ENA Express off, with a UDP setting that has no effect until ENA Express is on.
    const REMEMBERED: ExpressSpec = ExpressSpec { enabled: false, udp: true };

    #[test]
    fn both_ends_have_to_have_it_and_udp_separately() {
        use Plainly::*;
        let (tcp, udp) = (Inner::Tcp(1, 2), Inner::Udp(1, 2));
        let all = [
            (BOTH, BOTH, Ok(()), Ok(())),
            (TCP, TCP, Ok(()), Err(SenderUdp)),
            (TCP, BOTH, Ok(()), Err(SenderUdp)),
            (BOTH, TCP, Ok(()), Err(ReceiverUdp)),
            (OFF, BOTH, Err(Sender), Err(Sender)),
            (BOTH, OFF, Err(Receiver), Err(Receiver)),
            (REMEMBERED, BOTH, Err(Sender), Err(Sender)),
            (BOTH, REMEMBERED, Err(Receiver), Err(Receiver)),
        ];
        for (from, to, of_tcp, of_udp) in all {
            assert_eq!(between(from, to, &tcp), of_tcp, "{from:?} {to:?}");
            assert_eq!(between(from, to, &udp), of_udp, "{from:?} {to:?}");
        }
    }

    #[test]
    fn other_protocols_never_ride() {
        for inner in [Inner::Icmp(8, 0), Inner::Icmp(128, 0), Inner::Other(47)] {
            assert_eq!(between(BOTH, BOTH, &inner), Err(Plainly::Protocol));
        }
    }
}
