//! Accounting: the numbers of packets that were injected, delivered and dropped, and the counters
//! of each port.

use crate::engine::node::Node;

use super::World;

/// Reason for which a packet did not arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DropCause {
    /// The queue of a port was full.
    QueueFull,
    /// The link was down when the packet left the port.
    LinkDown,
    /// A link with the fault "loss" lost the packet.
    RandomLoss,
    /// The receiving host's checksum found flipped bits.
    Corrupted,
    /// Sender and receiver were in different parts of a partition.
    Partition,
}

impl DropCause {
    /// Number of causes for which packets are dropped.
    pub const COUNT: usize = 5;
    /// All causes with their names, in the order of [`Counters::dropped`].
    pub const ALL: [(Self, &str); Self::COUNT] = [
        (Self::QueueFull, "queue_full"),
        (Self::LinkDown, "link_down"),
        (Self::RandomLoss, "random_loss"),
        (Self::Corrupted, "corrupted"),
        (Self::Partition, "partition"),
    ];
}

/// Counters of a world since the start of the run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Events that were processed.
    pub events: u64,
    /// Packets that nodes and background flows sent.
    pub injected: u64,
    /// Copies of packets that links with the fault "duplication" made.
    pub duplicated: u64,
    /// Packets that hosts received.
    pub delivered: u64,
    /// Packets that did not arrive, by cause.
    pub dropped: [u64; DropCause::COUNT],
    /// Packets that switches marked (ECN).
    pub marked: u64,
    /// Packets from which switches trimmed the payload.
    pub trimmed: u64,
    /// Number of times that a node's deadline was still due after it had been served: an error of
    /// the node.
    pub timer_livelocks: u64,
    port_drops: Vec<u32>,
}

impl Counters {
    pub(super) fn new(ports: usize) -> Self {
        Self {
            events: 0,
            injected: 0,
            duplicated: 0,
            delivered: 0,
            dropped: [0; DropCause::COUNT],
            marked: 0,
            trimmed: 0,
            timer_livelocks: 0,
            port_drops: vec![0; ports],
        }
    }

    #[cold]
    pub(super) fn drop_at(&mut self, port: u32, cause: DropCause) {
        self.dropped[cause as usize] += 1;
        self.port_drops[port as usize] += 1;
    }

    /// Returns the number of packets that did not arrive, for any cause.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }
}

/// Counters of one port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortReport {
    /// Name of the port, as scenarios use it.
    pub name: String,
    /// Packets that the port sent.
    pub packets: u64,
    /// Bytes that the port sent.
    pub bytes: u64,
    /// Packets lost at this port or on its link.
    pub drops: u32,
    /// Largest number of bytes that ever waited at the port.
    pub queue_bytes_max: u64,
}

impl<N: Node> World<N> {
    /// Returns the counters of the whole world.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the number of transmissions of a packet over a link: a packet counts once for each
    /// link of its path.
    pub fn packet_hops(&self) -> u64 {
        self.ports.iter().map(crate::engine::egress::Egress::packets).sum()
    }

    /// Bytes that hosts sent over their links.
    pub fn host_bytes(&self) -> u64 {
        self.ports[..self.hosts.len()].iter().map(crate::engine::egress::Egress::bytes).sum()
    }

    /// Returns the number of packets that are in the network now.
    pub fn packets_in_network(&self) -> u64 {
        self.packets.live() as u64
    }

    /// Returns the largest number of bytes that ever waited at a switch port.
    pub fn queue_bytes_max(&self) -> u64 {
        let ports = self.ports.iter().zip(0_u32..).skip(self.hosts.len());
        ports.map(|(port, number)| self.queue_peak(port, number)).max().unwrap_or(0)
    }

    /// Returns the largest number of bytes that ever waited at a port.
    fn queue_peak(&self, port: &crate::engine::egress::Egress, number: u32) -> u64 {
        let sampled = self.sampler.as_ref().map_or(0, |sampler| sampler.queue_peak(number));
        let (_, waited) = self.lossless.waiting_bytes(number);
        port.backlog_bytes_max().max(sampled).max(waited)
    }

    /// Returns the counters of every port, in port order.
    pub fn port_reports(&self) -> Vec<PortReport> {
        let one = |(port, number)| {
            let egress: &crate::engine::egress::Egress = port;
            PortReport {
                name: self.topology.port_name(number),
                packets: egress.packets(),
                bytes: egress.bytes(),
                drops: self.counters.port_drops[number as usize],
                queue_bytes_max: self.queue_peak(egress, number),
            }
        };
        self.ports.iter().zip(0_u32..).map(one).collect()
    }

    /// Checks that every packet was delivered, was dropped or is in the network.
    ///
    /// # Errors
    /// A description of the numbers that differ.
    pub fn check_conservation(&self) -> Result<(), String> {
        let c = &self.counters;
        let came = c.injected + c.duplicated;
        let went = c.delivered + c.dropped_total() + self.packets_in_network();
        if came == went {
            return Ok(());
        }
        Err(format!(
            "{} injected + {} duplicated, but {} delivered + {} dropped + {} in the network",
            c.injected,
            c.duplicated,
            c.delivered,
            c.dropped_total(),
            self.packets_in_network()
        ))
    }
}
