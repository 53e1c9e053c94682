//! Parameters of the ENA Express stage, with unit, default and meaning.

use srd_proto::Secret;
use srd_proto::time::Duration;

use crate::flow::table::ENTRY_BYTES;
use crate::meta::FRAME_BYTES_MAX;
use crate::order;

/// Parameters of the ENA Express stage ([`crate::Express`]).
#[derive(Clone, Debug)]
pub struct Config {
    /// Largest inner packet that SRD carries, in bytes: the MTU of the guest's interface. The MSS
    /// of TCP connections is lowered to fit it. Larger UDP packets are sent without SRD.
    pub mtu: u16,
    /// Whether SRD is on (`ena_srd_enabled`). If not, all packets use plain encapsulation.
    pub express: bool,
    /// Whether SRD is on for UDP (`ena_srd_udp_enabled`).
    pub express_udp: bool,
    /// Whether SRD is on for tunnels without ports: GRE, ESP, IP in IP.
    pub express_tunnels: bool,
    /// Whether the stage sends and accepts frames of clouds, which are packets between interfaces
    /// of virtual private clouds. True if this host runs a card of instances.
    pub cloud: bool,
    /// Whether UDP packets are delivered to the guest in order of arrival, without a wait for
    /// missing packets.
    pub udp_bypass: bool,
    /// Longest time for which the later frames of a flow wait for a missing frame.
    pub order_wait: Duration,
    /// Queueing delay above which a queue counts as too long (the target of CoDel).
    pub queue_target: Duration,
    /// Time for which a flow's queueing delay must stay above `queue_target` until its frames are
    /// marked (ECN), or dropped if they are not ECN-capable (the interval of CoDel).
    pub queue_interval: Duration,
    /// Largest number of bytes that wait in the queue for one peer.
    pub queue_bytes_max: usize,
    /// Largest number of bytes that wait for all absent peers of one worker together. Absent peers
    /// have made no offer.
    pub absent_bytes_max: usize,
    /// Largest number of flows in the flow table; also the largest number of received flows whose
    /// order is restored. Half of the received flows, and a quarter of the table, are reserved for
    /// the peers in equal parts.
    pub flows_max: u32,
    /// Largest number of bytes that restore the order of received flows: frames that have arrived
    /// and wait for earlier frames or for their other chunks, and the records of frames and flows.
    /// Half of the bytes are reserved for the peers in equal parts.
    pub receive_bytes_max: usize,
    /// Secret under which flows are hashed. A program must set a random secret, because the default
    /// is public.
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
            absent_bytes_max: 256 << 20,
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

    /// Returns the largest number of heap bytes that the receiving side uses, whatever peers send:
    /// `receive_bytes_max`, the flow table, and spare buffers for large frames.
    pub fn receive_memory_bytes_max(&self) -> usize {
        let spare = order::SPARE_MAX * FRAME_BYTES_MAX;
        self.receive_bytes_max + self.flow_table_bytes_max() + spare
    }
}
