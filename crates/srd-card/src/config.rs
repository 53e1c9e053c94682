//! Every knob of the stage, with unit, default and meaning.

use alloc::vec::Vec;

use srd_proto::PeerId;
use srd_proto::time::Duration;

use crate::order;
use crate::rules::prefix::Prefix;
use crate::wire::frame::FRAME_BYTES_MAX;

/// How the stage behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// Largest inner packet that rides SRD, and what TCP connections are clamped to: the guest
    /// interface's MTU. Larger UDP packets go plain.
    pub mtu: u16,
    /// Whether SRD is on at all (`ena_srd_enabled`).
    pub express: bool,
    /// Whether it is on for UDP, too (`ena_srd_udp_enabled`).
    pub express_udp: bool,
    /// Whether UDP datagrams go up as they come, in any order.
    pub udp_bypass: bool,
    /// Longest wait for a hole in one flow.
    pub order_wait: Duration,
    /// Queueing delay that is too long.
    pub queue_target: Duration,
    /// Time above the target after which a flow has frames marked, or dropped if they cannot be.
    pub queue_interval: Duration,
    /// Bytes that may wait for one peer.
    pub queue_bytes_max: usize,
    /// Flows known at a time, in each direction. Peers share those that they send.
    pub flows_max: u32,
    /// Bytes of arrived frames that may wait for their turn or for their other chunks, with the
    /// records of them. Half of it belongs to the peers in equal parts.
    pub receive_bytes_max: usize,
    /// Secret that flows are hashed with.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mtu: 8900,
            express: true,
            express_udp: true,
            udp_bypass: false,
            order_wait: Duration::from_millis(100),
            queue_target: Duration::from_millis(5),
            queue_interval: Duration::from_millis(50),
            queue_bytes_max: 32 << 20,
            flows_max: 65_536,
            receive_bytes_max: 64 << 20,
            seed: 0,
        }
    }
}

impl Config {
    /// Bytes of heap that the receiving side takes at most, whatever peers send:
    /// `receive_bytes_max`, `flows_max` entries, and buffers that are kept for large frames.
    pub fn receive_memory_bytes_max(&self) -> usize {
        let flows = self.flows_max as usize * order::FLOW_BYTES;
        self.receive_bytes_max + flows + order::SPARE_MAX * FRAME_BYTES_MAX
    }
}

/// A peer, as the stage is told of it.
#[derive(Clone, Debug)]
pub struct PeerSettings {
    /// Its name in the transport.
    pub id: PeerId,
    /// Inner addresses behind it.
    pub allowed: Vec<Prefix>,
    /// Whether SRD is on towards it.
    pub express: bool,
    /// For UDP, too.
    pub express_udp: bool,
}
