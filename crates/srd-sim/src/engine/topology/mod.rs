//! Networks: hosts, switches, directed ports between them, and routes by arithmetic.
//!
//! Every switch covers a contiguous range of hosts below it, split evenly over its children. So a
//! route needs no table: a packet for a destination inside the range goes down to its child, any
//! other packet goes up, and among equal links the hash of the 5-tuple decides. The ports are
//! numbered: first those of the hosts (port = host), then each switch's down ports, then its up
//! ports.

pub mod clos;
pub mod dumbbell;
pub mod name;
pub mod ring;
pub mod topo_file;

use crate::engine::hash;

/// One end of a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum End {
    /// A host.
    Host(u32),
    /// A switch, as an index into [`Topology::switches`].
    Switch(u32),
}

/// A directed link with the egress port that feeds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Port {
    /// Position of the port.
    pub from: End,
    /// Far end of the link.
    pub to: End,
    /// Speed of the link.
    pub rate_bps: u64,
    /// Propagation delay, and the switching delay of the switch at the far end.
    pub latency_ps: u64,
    /// Size of the port's queue, if the topology sets one.
    pub queue_bytes: Option<u64>,
    /// The port in the opposite direction.
    pub reverse: u32,
    /// Index among parallel links between the two ends.
    pub parallel: u32,
}

/// A switch: the range of hosts below it, and the ranges of its ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switch {
    low: u32,
    span: u32,
    child_hosts: u32,
    ways_down: u32,
    port_down: u32,
    ways_up: u32,
    port_up: u32,
    salt: u32,
}

impl Switch {
    /// The port through which this switch sends a packet.
    #[inline]
    pub fn route(&self, dst: u32, hash: u32) -> u32 {
        let (first, ways) = self.ways_to(dst);
        if ways == 1 {
            return first;
        }
        first + hash::choose(hash, self.salt, ways)
    }

    /// The equal ports of this switch that lead towards a host: the first number and the count.
    #[inline]
    pub const fn ways_to(&self, dst: u32) -> (u32, u32) {
        let offset = dst.wrapping_sub(self.low);
        if offset >= self.span {
            return (self.port_up, self.ways_up);
        }
        (self.port_down + offset / self.child_hosts * self.ways_down, self.ways_down)
    }

    /// The largest number of equal ports towards any host.
    pub(crate) const fn ways_max(&self) -> u32 {
        if self.ways_up > self.ways_down { self.ways_up } else { self.ways_down }
    }

    /// Value that makes the switch's choices differ from those of other switches.
    pub(crate) const fn salt(&self) -> u32 {
        self.salt
    }

    /// Hosts below the switch: first number and count.
    pub const fn range(&self) -> (u32, u32) {
        (self.low, self.span)
    }

    /// Ports towards hosts: first number and count.
    pub const fn ports_down(&self) -> (u32, u32) {
        (self.port_down, self.span / self.child_hosts * self.ways_down)
    }

    /// Ports away from hosts: first number and count.
    pub const fn ports_up(&self) -> (u32, u32) {
        (self.port_up, self.ways_up)
    }
}

/// A named class of switches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tier {
    /// Name of its switches: the n-th has this name followed by n.
    pub name: &'static str,
    /// Index of the first switch.
    pub first: u32,
    /// Number of switches.
    pub count: u32,
}

/// A network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    /// Number of hosts.
    pub hosts: u32,
    /// Every switch, tier by tier from the hosts up.
    pub switches: Vec<Switch>,
    /// Every directed port.
    pub ports: Vec<Port>,
    /// The tiers, from the hosts up.
    pub tiers: Vec<Tier>,
}

impl Topology {
    /// Gives every switch its own salt, from `seed`.
    #[allow(clippy::cast_possible_truncation)] // half of a mixed word is as good as the whole
    pub fn salt(&mut self, seed: u64) {
        let mut rng = srd_proto::rng::Rng::new(hash::mix(seed ^ 0x5a17));
        for switch in &mut self.switches {
            switch.salt = (rng.next_u64() >> 32) as u32;
        }
    }

    /// The ports that a packet with this hash crosses.
    pub fn path(&self, src: u32, dst: u32, hash: u32) -> Vec<u32> {
        let mut path = vec![src];
        let mut at = self.ports[src as usize].to;
        while let End::Switch(index) = at {
            assert!(path.len() < 16, "the route from {src} to {dst} does not end");
            let port = self.switches[index as usize].route(dst, hash);
            path.push(port);
            at = self.ports[port as usize].to;
        }
        assert_eq!(at, End::Host(dst), "the route from {src} leads astray");
        path
    }

    /// Round trip of a `data_bytes` packet and an `ack_bytes` acknowledgement over an empty
    /// network, with store and forward at every hop, in picoseconds.
    pub fn base_rtt_ps(&self, src: u32, dst: u32, data_bytes: u32, ack_bytes: u32) -> u64 {
        let one_way = |from, to, bytes| -> u64 {
            let hop = |port: u32| {
                let port = &self.ports[port as usize];
                port.latency_ps + serialize_ps(port.rate_bps, bytes)
            };
            self.path(from, to, 0).into_iter().map(hop).sum()
        };
        one_way(src, dst, data_bytes) + one_way(dst, src, ack_bytes)
    }

    /// The longest base round trip: between the first host and the last.
    pub fn diameter_rtt_ps(&self, data_bytes: u32, ack_bytes: u32) -> u64 {
        self.base_rtt_ps(0, self.hosts - 1, data_bytes, ack_bytes)
    }

    /// The speed of a host's link.
    pub fn host_rate_bps(&self, host: u32) -> u64 {
        self.ports[host as usize].rate_bps
    }
}

/// Time that `bytes` take on a link, in picoseconds, rounded down.
pub fn serialize_ps(rate_bps: u64, bytes: u32) -> u64 {
    let ps = u128::from(bytes) * 8 * 1_000_000_000_000 / u128::from(rate_bps);
    u64::try_from(ps).unwrap_or(u64::MAX)
}

/// Reason for which a network cannot be built. The text contains a remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopologyError(pub String);

impl std::fmt::Display for TopologyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TopologyError {}

#[cfg(test)]
mod tests;
