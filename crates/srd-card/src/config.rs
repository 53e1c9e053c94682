//! Every knob of the stage, with unit, default and meaning.

use srd_proto::Secret;
use srd_proto::time::Duration;

use crate::flow::table::ENTRY_BYTES;
use crate::meta::FRAME_BYTES_MAX;
use crate::order;

/// How the stage behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// Largest inner packet that rides SRD, and that TCP connections are clamped to: the MTU of the
    /// guest's interface. Larger UDP packets go plain.
    pub mtu: u16,
    /// Whether SRD is on at all (`ena_srd_enabled`).
    pub express: bool,
    /// Whether it is on for UDP, too (`ena_srd_udp_enabled`).
    pub express_udp: bool,
    /// Whether it is on for tunnels without ports, too: GRE, ESP, IP in IP.
    pub express_tunnels: bool,
    /// Whether frames of clouds are sent and taken: a card of instances is behind this one.
    pub cloud: bool,
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
    /// Flows in the flow table, and flows of peers whose order is kept. Peers share those that
    /// they send.
    pub flows_max: u32,
    /// Bytes that the order of peers' flows may take: arrived frames that wait for their turn or
    /// for their other chunks, with the records of frames and flows. Half of it belongs to the
    /// peers in equal parts.
    pub receive_bytes_max: usize,
    /// Flows are hashed under it. Programs draw their own: the default is known.
    pub secret: Secret,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mtu: 8900,
            express: true,
            express_udp: true,
            express_tunnels: false,
            cloud: false,
            udp_bypass: false,
            order_wait: Duration::from_millis(100),
            queue_target: Duration::from_millis(5),
            queue_interval: Duration::from_millis(50),
            queue_bytes_max: 32 << 20,
            flows_max: 65_536,
            receive_bytes_max: 64 << 20,
            secret: Secret::known(0),
        }
    }
}

impl Config {
    /// Bytes of heap that the flow table takes at most, beside the frames in its queues.
    pub fn flow_table_bytes_max(&self) -> usize {
        self.flows_max as usize * ENTRY_BYTES
    }

    /// Bytes of heap that the receiving side takes at most, whatever peers send:
    /// `receive_bytes_max`, the flow table, and buffers that are kept for large frames.
    pub fn receive_memory_bytes_max(&self) -> usize {
        let spare = order::SPARE_MAX * FRAME_BYTES_MAX;
        self.receive_bytes_max + self.flow_table_bytes_max() + spare
    }
}
