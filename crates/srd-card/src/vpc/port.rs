//! An interface of this host, and what is around the card.

use alloc::sync::Arc;
use alloc::vec::Vec;

use srd_vpc::id::{EniId, VpcId};
use srd_vpc::judge::Service;

use super::envelope::Envelope;
use crate::track::Timeouts;

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
}
