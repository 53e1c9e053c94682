//! Networks: hosts, switches, directed ports between them, and routes that are computed instead of
//! looked up.
//!
//! Every switch covers a contiguous range of hosts below it, which is divided evenly among its
//! children. So a route needs no table: a packet for a host inside the range goes down to the child
//! that covers the host, and any other packet goes up. Among equal links the hash of the 5-tuple
//! decides. The ports are numbered: first those of the hosts (port = host), then each switch's down
//! ports and up ports.

pub mod clos;
pub mod dumbbell;
pub mod name;
pub mod ring;
pub mod topo_file;

use crate::engine::hash;

/// A host or switch at one end of a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum End {
    /// A host, by its number.
    Host(u32),
    /// A switch, as an index into [`Topology::switches`].
    Switch(u32),
}

/// A directed link, with the egress port at its beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Port {
    /// Host or switch to which the port belongs.
    pub from: End,
    /// Host or switch at the far end of the link.
    pub to: End,
    /// Speed of the link, in bits per second.
    pub rate_bps: u64,
    /// Propagation delay of the link plus the delay of the switch at the far end, in picoseconds.
    pub latency_ps: u64,
    /// Queue limit of the port in bytes; `None` if the topology sets none.
    pub queue_bytes: Option<u64>,
    /// Number of the port that sends in the opposite direction of the link.
    pub reverse: u32,
    /// Index of the link among parallel links between its two ends, from 0.
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
    /// Returns the port through which this switch sends a packet with the given destination and
    /// hash.
    #[inline]
    pub fn route(&self, dst: u32, hash: u32) -> u32 {
        let (first, ways) = self.ways_to(dst);
        if ways == 1 {
            return first;
        }
        first + hash::choose(hash, self.salt, ways)
    }

    /// Returns the equal ports of this switch that lead towards a host: first number and count.
    #[inline]
    pub const fn ways_to(&self, dst: u32) -> (u32, u32) {
        let offset = dst.wrapping_sub(self.low);
        if offset >= self.span {
            return (self.port_up, self.ways_up);
        }
        (self.port_down + offset / self.child_hosts * self.ways_down, self.ways_down)
    }

    /// Returns the largest number of equal ports that lead towards any host.
    pub(crate) const fn ways_max(&self) -> u32 {
        if self.ways_up > self.ways_down { self.ways_up } else { self.ways_down }
    }

    /// Returns the value that makes the switch's choices differ from the choices of other switches.
    pub(crate) const fn salt(&self) -> u32 {
        self.salt
    }

    /// Returns the hosts below the switch: first number and count.
    pub const fn range(&self) -> (u32, u32) {
        (self.low, self.span)
    }

    /// Returns the ports towards hosts: first number and count.
    pub const fn ports_down(&self) -> (u32, u32) {
        (self.port_down, self.span / self.child_hosts * self.ways_down)
    }

    /// Returns the ports away from hosts: first number and count.
    pub const fn ports_up(&self) -> (u32, u32) {
        (self.port_up, self.ways_up)
    }
}

/// A tier: switches at equal distance from the hosts, with a common name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tier {
    /// Name of the tier's switches. The name of a switch is this name followed by its number within
    /// the tier.
    pub name: &'static str,
    /// Index of the tier's first switch in [`Topology::switches`].
    pub first: u32,
    /// Number of switches in the tier.
    pub count: u32,
}

/// A network: hosts, switches and links.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    /// Number of hosts.
    pub hosts: u32,
    /// All switches, tier by tier from the hosts up.
    pub switches: Vec<Switch>,
    /// All directed ports: first those of the hosts, then those of each switch.
    pub ports: Vec<Port>,
    /// The tiers, from the hosts up.
    pub tiers: Vec<Tier>,
}

impl Topology {
    /// Assigns an independent salt to every switch, derived from `seed`.
    #[allow(clippy::cast_possible_truncation)] // half of a mixed word is as good as the whole
    pub fn salt(&mut self, seed: u64) {
        let mut rng = srd_proto::rng::Rng::new(hash::mix(seed ^ 0x5a17));
        for switch in &mut self.switches {
            switch.salt = (rng.next_u64() >> 32) as u32;
        }
    }

    /// Returns the ports that a packet with this hash crosses, from `src` to `dst`.
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

    /// Returns the round trip of a packet of `data_bytes` and an acknowledgement of `ack_bytes`
    /// over an empty network, in picoseconds. Every switch stores and forwards.
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

    /// Returns the longest base round trip in picoseconds: between the first host and the last.
    pub fn diameter_rtt_ps(&self, data_bytes: u32, ack_bytes: u32) -> u64 {
        self.base_rtt_ps(0, self.hosts - 1, data_bytes, ack_bytes)
    }

    /// Returns the speed of a host's link, in bits per second.
    pub fn host_rate_bps(&self, host: u32) -> u64 {
        self.ports[host as usize].rate_bps
    }
}

/// Returns the time that `bytes` take on a link, in picoseconds, rounded down.
pub fn serialize_ps(rate_bps: u64, bytes: u32) -> u64 {
    let ps = u128::from(bytes) * 8 * 1_000_000_000_000 / u128::from(rate_bps);
    u64::try_from(ps).unwrap_or(u64::MAX)
}

/// Reason why a network cannot be built. The text suggests a solution.
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
