//! An interface of this host, and the environment of the card.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use srd_vpc::express::Plainly;
use srd_vpc::id::EniId;
use srd_vpc::judge::{Reason, Service};

use super::envelope::Envelope;
use super::tables::nat_error::NatError;
use crate::store::stored_counters;
use crate::track::{State, Timeouts};

/// An interface of this host, by its slot in the card.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct PortId(pub u32);

/// Receiver of the frames that the card passes on. A frame consists of an offload header and its
/// packet. The *edge* of a gateway is the host that connects the gateway to the network outside of
/// the cloud.
pub trait Environment {
    /// Passes a frame to a guest.
    fn to_guest(&mut self, port: PortId, frame: Vec<u8>);
    /// Sends a frame to another host, or to the edge of a gateway.
    fn to_host(&mut self, way: FrameRoute<'_>, frame: Vec<u8>);
    /// Sends a frame to the edge of a gateway, where a NAT gateway translates it.
    ///
    /// # Errors
    /// The edge is on this host, and its NAT gateway does not translate the frame.
    fn to_nat(&mut self, way: FrameRoute<'_>, frame: Vec<u8>) -> Result<(), NatError> {
        self.to_host(way, frame);
        Ok(())
    }
    /// Returns the largest packet, in bytes, that is sent to a host outside of SRD at present. If
    /// it is `None`, the size of [`crate::vpc::Card::set_host_bytes_max`] applies.
    fn host_bytes_max(&self, _host: &str) -> Option<usize> {
        None
    }
    /// Passes a frame to a service of the network itself, such as the DNS resolver.
    fn to_service(&mut self, port: PortId, service: Service, frame: Vec<u8>);
}

/// Route of a frame to another host, or to the edge of a gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameRoute<'a> {
    /// Name of the host that receives the frame; for a gateway, its edge.
    pub host: &'a Arc<str>,
    /// Instance that sends the frame, by its number in this card.
    pub instance: u32,
    /// Sender and receiver of the frame.
    pub envelope: Envelope,
    /// Whether SRD carries the frame: both interfaces have ENA Express for packets of this kind.
    pub express: bool,
}

/// One interface of an instance that is added to a card.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guest {
    /// Identifier of the interface.
    pub eni: EniId,
    /// Idle times of the interface's connections.
    pub timeouts: Timeouts,
}

/// Counters of an interface; a super-packet counts as the packets that it represents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortCounts {
    /// Packets that the guest has sent and that passed.
    pub tx_packets: u64,
    /// Bytes of the packets in `tx_packets`, from the IP header on.
    pub tx_bytes: u64,
    /// Packets that were passed to the guest.
    pub rx_packets: u64,
    /// Bytes of the packets in `rx_packets`, from the IP header on.
    pub rx_bytes: u64,
    /// Packets that the rules evaluated, because there was no valid verdict for their flow.
    pub judged: u64,
    /// Packets to other hosts that SRD carries (`ena_srd_tx_pkts`).
    pub express_tx_packets: u64,
    /// Packets to other hosts that SRD carries, or would carry if they were smaller
    /// (`ena_srd_eligible_tx_pkts`).
    pub express_eligible_packets: u64,
    /// Packets received from other hosts over SRD (`ena_srd_rx_pkts`).
    pub express_rx_packets: u64,
    /// Copies of the interface's packets that mirror sessions have sent.
    pub mirrored_packets: u64,
    /// Bytes of the copies in `mirrored_packets`, with the headers around them.
    pub mirrored_bytes: u64,
    /// Copies that were dropped because no bandwidth was left, or because there is no route to the
    /// target.
    pub mirror_dropped: u64,
}

impl PortCounts {
    /// Counts packets that leave for another host. `eligible` states whether SRD may carry them,
    /// and `rides` whether it does.
    #[inline]
    pub(super) fn count_express(&mut self, eligible: bool, rides: bool, packets: u64) {
        self.express_eligible_packets += u64::from(eligible) * packets;
        self.express_tx_packets += u64::from(rides) * packets;
    }
}

stored_counters!(PortCounts {
    tx_packets,
    tx_bytes,
    rx_packets,
    rx_bytes,
    judged,
    express_tx_packets,
    express_eligible_packets,
    express_rx_packets,
    mirrored_packets,
    mirrored_bytes,
    mirror_dropped,
});

/// `Ok` for packets that SRD carries, or the reason why they go without SRD.
pub type Ride = Result<(), Plainly>;

/// State of a flow of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowState {
    /// Address and port of the interface's end of the flow.
    pub local: (IpAddr, u16),
    /// Address and port of the other end of the flow.
    pub remote: (IpAddr, u16),
    /// Number of the flow's transport protocol.
    pub protocol: u8,
    /// State of the connection; `None` for a flow that is not tracked.
    pub connection: Option<State>,
    /// Whether the interface sent the first packet.
    pub local_first: bool,
    /// Verdict of packets that the interface sends.
    pub sent: Direct,
    /// Verdict of packets that the interface receives.
    pub received: Direct,
    /// Whether SRD carries packets that the interface sends; `None` if there is no valid verdict
    /// for them, or if they are for a service of the network itself.
    pub ride: Option<Ride>,
}

/// Verdict of one direction of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direct {
    /// There is no valid verdict, so the rules will evaluate the next packet.
    Pending,
    /// The rules admit the packets.
    Complete,
    /// The rules refuse the packets.
    Refused(Reason),
}
