//! An interface of this host, and what is around the card.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use srd_vpc::id::{EniId, VpcId};
use srd_vpc::judge::{Reason, Service};

use super::envelope::Envelope;
use super::nat::NatError;
use crate::store::stored_counters;
use crate::track::{State, Timeouts};

/// An interface of this host, by its place in the card.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct PortId(pub u32);

/// What is around the card. A frame is an offload header and its packet.
pub trait Around {
    /// A frame for a guest.
    fn to_guest(&mut self, port: PortId, frame: Vec<u8>);
    /// A frame for another host, or for the edge of a gateway. `express`: SRD may carry it.
    fn to_host(
        &mut self,
        host: &Arc<str>,
        vpc: VpcId,
        envelope: Envelope,
        frame: Vec<u8>,
        express: bool,
    );
    /// A frame for the edge of a gateway, where a NAT gateway translates it.
    ///
    /// # Errors
    /// The edge is on this host, and its NAT gateway does not translate the frame.
    fn to_nat(
        &mut self,
        edge: &Arc<str>,
        vpc: VpcId,
        envelope: Envelope,
        frame: Vec<u8>,
    ) -> Result<(), NatError> {
        self.to_host(edge, vpc, envelope, frame, false);
        Ok(())
    }
    /// A frame for a service of the network's own.
    fn to_service(&mut self, port: PortId, service: Service, frame: Vec<u8>);
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
    /// Packets that ride SRD, or may.
    pub express_tx_packets: u64,
    /// Copies of its packets that mirror sessions have sent.
    pub mirrored_packets: u64,
    /// Their bytes, with the headers around them.
    pub mirrored_bytes: u64,
    /// Copies that were dropped: no bandwidth was left, or no way leads to the target.
    pub mirror_dropped: u64,
}

stored_counters!(PortCounts {
    tx_packets,
    tx_bytes,
    rx_packets,
    rx_bytes,
    judged,
    express_tx_packets,
    mirrored_packets,
    mirrored_bytes,
    mirror_dropped,
});

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
