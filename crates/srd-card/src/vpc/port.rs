//! An interface of this host, and what is around the card.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use srd_vpc::express::Plainly;
use srd_vpc::id::EniId;
use srd_vpc::judge::{Reason, Service};

use super::envelope::Envelope;
use super::nat_error::NatError;
use crate::store::stored_counters;
use crate::track::{State, Timeouts};

/// An interface of this host, by its place in the card.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct PortId(pub u32);

/// What is around the card. A frame is an offload header and its packet.
pub trait Around {
    /// A frame for a guest.
    fn to_guest(&mut self, port: PortId, frame: Vec<u8>);
    /// A frame for another host, or for the edge of a gateway.
    fn to_host(&mut self, way: Way<'_>, frame: Vec<u8>);
    /// A frame for the edge of a gateway, where a NAT gateway translates it.
    ///
    /// # Errors
    /// The edge is on this host, and its NAT gateway does not translate the frame.
    fn to_nat(&mut self, way: Way<'_>, frame: Vec<u8>) -> Result<(), NatError> {
        self.to_host(way, frame);
        Ok(())
    }
    /// A frame for a service of the network's own.
    fn to_service(&mut self, port: PortId, service: Service, frame: Vec<u8>);
}

/// The way of a frame to another host, or to the edge of a gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way<'a> {
    /// The name of the host, or of the edge.
    pub host: &'a Arc<str>,
    /// The instance that sends it, by its number in this card.
    pub instance: u32,
    /// From where to where it goes.
    pub envelope: Envelope,
    /// SRD carries it: both interfaces have ENA Express for packets of this kind.
    pub express: bool,
}

/// An interface of a guest, as it is added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guest {
    /// The interface.
    pub eni: EniId,
    /// Idle times of its connections.
    pub timeouts: Timeouts,
}

/// Packets of an interface; a super-packet counts as the packets it stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortCounts {
    /// Packets that the guest has sent and that passed.
    pub tx_packets: u64,
    /// Their bytes, from the IP header on.
    pub tx_bytes: u64,
    /// Packets that were handed to the guest.
    pub rx_packets: u64,
    /// Their bytes, from the IP header on.
    pub rx_bytes: u64,
    /// Packets that the rules judged, since no verdict was kept for them.
    pub judged: u64,
    /// Packets for other hosts that ride SRD (`ena_srd_tx_pkts`).
    pub express_tx_packets: u64,
    /// Packets for other hosts that ride SRD, or would if they were smaller
    /// (`ena_srd_eligible_tx_pkts`).
    pub express_eligible_packets: u64,
    /// Packets from other hosts that came by SRD (`ena_srd_rx_pkts`).
    pub express_rx_packets: u64,
    /// Copies of its packets that mirror sessions have sent.
    pub mirrored_packets: u64,
    /// Their bytes, with the headers around them.
    pub mirrored_bytes: u64,
    /// Copies that were dropped: no bandwidth was left, or no way leads to the target.
    pub mirror_dropped: u64,
}

impl PortCounts {
    /// Packets leave for another host, which may ride SRD, and do or do not.
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

/// Whether packets ride SRD, or why they go plainly.
pub type Ride = Result<(), Plainly>;

/// What the card knows of a flow of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowState {
    /// The interface's end: address and port.
    pub local: (IpAddr, u16),
    /// The other end.
    pub remote: (IpAddr, u16),
    /// The transport protocol.
    pub protocol: u8,
    /// The state of the connection, if it is tracked.
    pub connection: Option<State>,
    /// Whether the interface sent the first packet.
    pub local_first: bool,
    /// What is kept of packets that the interface sends.
    pub sent: Direct,
    /// What is kept of packets that it receives.
    pub received: Direct,
    /// Whether packets that it sends ride SRD; none if nothing is kept of them, or if they go to a
    /// service of the network's own.
    pub ride: Option<Ride>,
}

/// What is kept of one direction of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direct {
    /// Nothing: the rules are asked at its next packet.
    Pending,
    /// The rules let it pass.
    Complete,
    /// The rules refuse it.
    Refused(Reason),
}
