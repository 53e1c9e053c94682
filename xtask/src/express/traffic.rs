//! Traffic of the soak: many short TCP, UDP and GRE flows, and long flows with super-packets.

use std::net::Ipv4Addr;

use srd_proto::rng::Rng;
use srd_proto::time::Duration;

use super::NODES;
use super::frames::{self, CELL_HEADER_BYTES, CELLS_MAX, FlowHeader, MOVING, Transport, inner};
use super::world::World;

/// Largest payload of a packet in bytes: with any header it fits the MTU of 1400.
const CELL_BYTES_MAX: u32 = 1300;

/// Duration and amount of one burst of traffic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    /// Duration of the burst, in milliseconds.
    ms: u64,
    /// Number of new flows per node in a hundred milliseconds.
    births_percent: u32,
    /// Number of frames per node and millisecond.
    frames: u32,
    /// Largest number of packets of one flow.
    packets_max: u32,
    /// Whether some flows go to the inner address that moves between the nodes.
    moving: bool,
}

impl Burst {
    /// Returns a random burst: ordinary traffic, many short flows, few long flows, or more packets
    /// at the same time than queues can hold.
    pub(super) fn any(rng: &mut Rng) -> Self {
        let ordinary =
            Self { ms: 150, births_percent: 40, frames: 3, packets_max: 300, moving: true };
        match rng.below(8) {
            0 => Self { births_percent: 500, frames: 6, packets_max: 3, ..ordinary },
            1 => Self { ms: 30, frames: 60, packets_max: 4000, births_percent: 10, ..ordinary },
            2 => Self { ms: 400, births_percent: 2, packets_max: 8000, frames: 12, ..ordinary },
            _ => ordinary,
        }
    }

    /// Returns a burst that exceeds no limit, so that every packet must arrive.
    pub(super) fn calm() -> Self {
        Self { ms: 300, births_percent: 30, frames: 2, packets_max: 200, moving: false }
    }
}

#[derive(Debug)]
struct Flow {
    header: FlowHeader,
    node: usize,
    left: u32,
    cell_bytes: usize,
}

/// Flows that still have packets to send.
#[derive(Debug, Default)]
pub(super) struct Flows(Vec<Flow>);

impl Flows {
    /// Lets the guests send for a fraction of a burst: one of `parts` equal parts.
    pub(super) fn burst(
        &mut self,
        world: &mut World,
        burst: &Burst,
        parts: u64,
    ) -> Result<(), String> {
        for _ in 0..burst.ms.div_ceil(parts) {
            for node in 0..NODES {
                let births = burst.births_percent / 100
                    + u32::from(world.rng.below(100) < burst.births_percent % 100);
                for _ in 0..births {
                    self.begin(world, node, burst);
                }
            }
            for _ in 0..burst.frames * u32::try_from(NODES).unwrap_or(1) {
                self.send_one(world);
            }
            let us = 900 + u64::from(world.rng.below(200));
            world.run(Duration::from_micros(us))?;
        }
        Ok(())
    }

    fn begin(&mut self, world: &mut World, node: usize, burst: &Burst) {
        let rng = &mut world.rng;
        let others = u32::try_from(NODES - 1).unwrap_or(1);
        let other = (node + 1 + rng.below(others) as usize) % NODES;
        let moving = burst.moving && rng.below(4) == 0;
        let to: Ipv4Addr = if moving { MOVING } else { inner(other) };
        if moving && world.wanted[node].peers[node].owns_moving {
            return;
        }
        let transport = match rng.below(8) {
            0..=4 => Transport::Tcp,
            5 | 6 => Transport::Udp,
            _ => Transport::Gre,
        };
        let mut port = || u16::try_from(1024 + rng.below(60_000)).unwrap_or(u16::MAX);
        let ports = if transport == Transport::Gre { (0, 0) } else { (port(), port()) };
        let header = FlowHeader { id: 0, from: inner(node), to, transport, ports };
        let left = 1 + rng.below(burst.packets_max);
        let span = CELL_BYTES_MAX - u32::try_from(CELL_HEADER_BYTES).unwrap_or(0);
        let cell_bytes = CELL_HEADER_BYTES + rng.below(span) as usize;
        let header = world.ledger.open(header, false);
        self.0.push(Flow { header, node, left, cell_bytes });
    }

    fn send_one(&mut self, world: &mut World) {
        let Ok(count @ 1..) = u32::try_from(self.0.len()) else { return };
        // Newer flows are chosen more often, so that short flows end soon.
        let most = world.rng.below(count);
        let at = (most + world.rng.below(count - most)) as usize;
        let flow = &mut self.0[at];
        let many = flow.header.transport == Transport::Tcp && world.rng.below(4) == 0;
        let cells = if many { 1 + world.rng.below(CELLS_MAX) } else { 1 };
        let begins = world.ledger.give(flow.header.id, 0) == 0;
        // The first frame of a flow contains one packet, like the SYN of a connection.
        let cells = if begins { 1 } else { cells.min(flow.left) };
        let (header, node, cell_bytes) = (flow.header, flow.node, flow.cell_bytes);
        flow.left -= cells;
        if flow.left == 0 {
            self.0.swap_remove(at);
        }
        let first = world.ledger.give(header.id, cells);
        let full = |world: &World| world.nodes[node].express.counters().flows_full;
        let before = full(world);
        world.give(node, frames::frame(&header, first, cells, cell_bytes), cells);
        // Tunnels are delivered in order even if UDP packets are not.
        let udp = header.transport == Transport::Udp;
        let bypassed = udp && world.wanted.iter().any(|wanted| wanted.udp_bypass);
        if full(world) > before || bypassed {
            world.ledger.unordered(header.id);
        }
    }
}
