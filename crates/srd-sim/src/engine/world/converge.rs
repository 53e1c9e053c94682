//! Routing that follows failures. Some time after a link has failed, switches stop choosing routes
//! that end at it; some time after its repair, they choose these routes again.
//!
//! A switch keeps its choice among equal links for each packet whose route still leads to the
//! destination. It hashes only the other packets over the remaining links (resilient hashing; RFC
//! 2992, section 3, calls the opposite "disruption"). A packet without any remaining route takes
//! its previous route, and is lost at the failed link.

use super::World;
use crate::engine::hash;
use crate::engine::node::Node;
use crate::engine::topology::{End, Topology};

/// Number of bits in a word of [`Withdrawn::usable`].
const WORD_BITS: u32 = u64::BITS;

/// The routes that remain after link failures: for each switch, the ports that still lead to each
/// host.
pub(super) struct Withdrawn {
    // By port: whether routing treats its link as failed.
    dead: Vec<bool>,
    // By host: the lowest switch above it (its edge), as an index into `edges`.
    edge_of_host: Vec<u32>,
    edges: Vec<u32>,
    // For each switch and edge: one bit for each port of the switch, set if the port leads to the
    // edge's hosts.
    usable: Vec<u64>,
    words: usize,
}

/// Returns the ports through which a switch may send packets to the hosts of an edge switch: first
/// number and count.
fn ways(topology: &Topology, switch: u32, edge: u32) -> (u32, u32) {
    let (at, below) = (&topology.switches[switch as usize], &topology.switches[edge as usize]);
    at.ways_to(below.range().0)
}

impl Withdrawn {
    fn new(topology: &Topology) -> Self {
        let above = topology.ports[..topology.hosts as usize].iter().map(|port| match port.to {
            End::Switch(switch) => switch,
            End::Host(_) => u32::MAX,
        });
        let above: Vec<u32> = above.collect();
        let mut edges: Vec<u32> = above.iter().copied().filter(|&edge| edge != u32::MAX).collect();
        edges.sort_unstable();
        edges.dedup();
        let place = |edge| u32::try_from(edges.partition_point(|&of| of < edge)).unwrap_or(0);
        let edge_of_host = above.iter().map(|&edge| place(edge)).collect();
        let switches = 0..u32::try_from(topology.switches.len()).unwrap_or(0);
        let most = switches.map(|switch| topology.switches[switch as usize].ways_max()).max();
        let words = most.unwrap_or(1).div_ceil(WORD_BITS) as usize;
        let usable = vec![0; topology.switches.len() * edges.len() * words];
        Self { dead: vec![false; topology.ports.len()], edge_of_host, edges, usable, words }
    }

    fn at(&self, switch: u32, edge: usize) -> usize {
        (switch as usize * self.edges.len() + edge) * self.words
    }

    /// Recomputes, for every switch, which ports lead to each edge switch.
    fn settle(&mut self, topology: &Topology) {
        let switches = topology.switches.len();
        for edge in 0..self.edges.len() {
            let mut reached = vec![None; switches];
            for switch in 0..u32::try_from(switches).unwrap_or(0) {
                self.reaches(topology, &mut reached, switch, edge);
            }
        }
    }

    /// Whether a switch has a route to an edge switch. Records which ports of the switch lead
    /// there, and the results in `reached`.
    fn reaches(
        &mut self,
        topology: &Topology,
        reached: &mut [Option<bool>],
        switch: u32,
        edge: usize,
    ) -> bool {
        if self.edges[edge] == switch {
            return true;
        }
        if let Some(known) = reached[switch as usize] {
            return known;
        }
        // Routes go up and then down, so no route returns to this switch.
        reached[switch as usize] = Some(false);
        let (first, count) = ways(topology, switch, self.edges[edge]);
        let at = self.at(switch, edge);
        let mut any = false;
        for way in 0..count {
            let port = first + way;
            let leads = !self.dead[port as usize]
                && match topology.ports[port as usize].to {
                    End::Switch(next) => self.reaches(topology, reached, next, edge),
                    End::Host(_) => true,
                };
            let word = &mut self.usable[at + (way / WORD_BITS) as usize];
            let bit = 1 << (way % WORD_BITS);
            *word = if leads { *word | bit } else { *word & !bit };
            any |= leads;
        }
        reached[switch as usize] = Some(any);
        any
    }

    /// Returns the port through which a switch sends a packet: `port` if it still leads to the
    /// destination, or a remaining port. If no port remains, returns `port`.
    fn detour(&self, topology: &Topology, switch: u32, port: u32, dst: u32, hash: u32) -> u32 {
        let edge = self.edge_of_host[dst as usize] as usize;
        if self.edges.get(edge) == Some(&switch) {
            return port;
        }
        let (first, count) = ways(topology, switch, self.edges[edge]);
        let at = self.at(switch, edge);
        let words = &self.usable[at..at + self.words];
        let is_usable = |way: u32| words[(way / WORD_BITS) as usize] >> (way % WORD_BITS) & 1 == 1;
        if is_usable(port - first) {
            return port;
        }
        let left = (0..count).filter(|&way| is_usable(way));
        let ways = u32::try_from(left.clone().count()).unwrap_or(0);
        if ways == 0 {
            return port;
        }
        let salt = topology.switches[switch as usize].salt();
        // The hash differs from that of the first choice. Otherwise all packets of a failed port
        // would go to the same remaining port.
        let choice = hash::choose(!hash, salt, ways);
        left.clone().nth(choice as usize).map_or(port, |way| first + way)
    }
}

impl<N: Node> World<N> {
    /// Updates the routes after link failures and repairs, when the time of convergence has passed.
    pub(super) fn converge(&mut self, ports: &[u32]) {
        let Some(after_ps) = self.faults.converges_after_ps() else { return };
        let settled = self.now_ps.saturating_sub(after_ps);
        let withdrawn = self.withdrawn.get_or_insert_with(|| Withdrawn::new(&self.topology));
        for &port in ports {
            if let Some(is_dead) = self.faults.settled_state(port, settled) {
                withdrawn.dead[port as usize] = is_dead;
            }
        }
        withdrawn.settle(&self.topology);
    }

    /// Returns the port through which a switch sends a packet if a link has failed in this run.
    pub(super) fn route_around(&self, switch: u32, dst: u32, hash: u32) -> u32 {
        let port = self.switches[switch as usize].route(dst, hash);
        let detour = |of: &Withdrawn| of.detour(&self.topology, switch, port, dst, hash);
        self.withdrawn.as_ref().map_or(port, detour)
    }
}
