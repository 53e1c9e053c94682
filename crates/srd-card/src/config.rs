//! Parameters of the stage, with unit, default and meaning.

use srd_proto::Secret;
use srd_proto::time::Duration;

use crate::flow::table::ENTRY_BYTES;
use crate::meta::FRAME_BYTES_MAX;
use crate::order;

/// Parameters of the stage.
#[derive(Clone, Debug)]
pub struct Config {
    /// Largest inner packet that SRD carries, and to which TCP connections are clamped: the MTU of
    /// the guest's interface. Larger UDP packets go without SRD.
    pub mtu: u16,
    /// Whether SRD is on at all (`ena_srd_enabled`).
    pub express: bool,
    /// Whether SRD is on for UDP (`ena_srd_udp_enabled`).
    pub express_udp: bool,
    /// Whether SRD is on for tunnels without ports: GRE, ESP, IP in IP.
    pub express_tunnels: bool,
    /// Whether the stage sends and accepts frames of clouds: a card of instances is behind this
    /// one.
    pub cloud: bool,
    /// Whether UDP datagrams go up in order of arrival.
    pub udp_bypass: bool,
    /// Longest wait for a missing frame of a flow.
    pub order_wait: Duration,
    /// Queueing delay above which a queue is too long.
    pub queue_target: Duration,
    /// Time above the target after which frames of a flow are marked, or dropped if they cannot be
    /// marked.
    pub queue_interval: Duration,
    /// Largest number of bytes that wait for one peer.
    pub queue_bytes_max: usize,
    /// Largest number of flows in the flow table, and of flows of peers whose order is kept. Peers
    /// share those of their own flows.
    pub flows_max: u32,
    /// Largest number of bytes for the order of peers' flows: arrived frames that wait for their
    /// turn or for more chunks, with the records of frames and flows. Half of it belongs to the
    /// peers in equal parts.
    pub receive_bytes_max: usize,
    /// Secret under which flows are hashed. Programs draw their own, because the default is
    /// public.
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
    /// Returns the largest number of heap bytes of the flow table, without the frames in its
    /// queues.
    pub fn flow_table_bytes_max(&self) -> usize {
        self.flows_max as usize * ENTRY_BYTES
    }

    /// Returns the largest number of heap bytes of the receiving side, whatever peers send:
    /// `receive_bytes_max`, the flow table, and spare buffers for large frames.
    pub fn receive_memory_bytes_max(&self) -> usize {
        let spare = order::SPARE_MAX * FRAME_BYTES_MAX;
        self.receive_bytes_max + self.flow_table_bytes_max() + spare
    }
}
