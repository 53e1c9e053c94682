//! A ring of switches. Packets go round in one direction only, so that every link between two
//! switches waits for the next link. The buffers of the switches depend on each other in a circle,
//! which lossless networks must avoid.
//!
//! The links in the opposite direction carry only pause frames.

use super::{End, Port, Switch, Tier, Topology, TopologyError};

/// Largest number of switches in a ring. With this number a path crosses fewer than sixteen links.
pub const SWITCHES_MAX: u32 = 12;

/// Parameters of a ring of switches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingSpec {
    /// Number of switches.
    pub switches: u32,
    /// Number of hosts at each switch.
    pub switch_hosts: u32,
    /// Speed of the hosts' links, in bits per second.
    pub host_bps: u64,
    /// Speed of the links between switches, in bits per second.
    pub ring_bps: u64,
    /// Propagation delay of every link, in picoseconds.
    pub latency_ps: u64,
    /// Delay of every switch, in picoseconds.
    pub switch_latency_ps: u64,
}

impl RingSpec {
    /// Builds the network.
    ///
    /// # Errors
    /// If the numbers describe no valid network.
    pub fn build(&self) -> Result<Topology, TopologyError> {
        let (n, hosts) = (self.switches, self.switch_hosts);
        if !(3..=SWITCHES_MAX).contains(&n) || hosts == 0 || hosts > 65_536 {
            return Err(TopologyError(format!(
                "a ring needs 3 to {SWITCHES_MAX} switches, with 1 to 65536 hosts each"
            )));
        }
        if self.host_bps == 0 || self.ring_bps == 0 {
            return Err(TopologyError("a link's speed must not be zero".to_owned()));
        }
        // The ports of each switch lead to its hosts, to the next switch, and to the previous
        // switch.
        let first = |switch: u32| n * hosts + switch * (hosts + 2);
        let switch = |index: u32| Switch {
            low: index * hosts,
            span: hosts,
            child_hosts: 1,
            ways_down: 1,
            port_down: first(index),
            ways_up: 1,
            port_up: first(index) + hosts,
            salt: 0,
        };
        let port = |from, to, reverse, rate_bps| Port {
            from,
            to,
            rate_bps,
            latency_ps: match to {
                End::Host(_) => self.latency_ps,
                End::Switch(_) => self.latency_ps + self.switch_latency_ps,
            },
            queue_bytes: None,
            reverse,
            parallel: 0,
        };
        let up = |host: u32| {
            let (at, place) = (host / hosts, host % hosts);
            port(End::Host(host), End::Switch(at), first(at) + place, self.host_bps)
        };
        let mut ports: Vec<Port> = (0..n * hosts).map(up).collect();
        for at in 0..n {
            let (next, before) = ((at + 1) % n, (at + n - 1) % n);
            let down = |host| port(End::Switch(at), End::Host(host), host, self.host_bps);
            ports.extend((at * hosts..(at + 1) * hosts).map(down));
            let to = |to, reverse| port(End::Switch(at), End::Switch(to), reverse, self.ring_bps);
            ports.push(to(next, first(next) + hosts + 1));
            ports.push(to(before, first(before) + hosts));
        }
        let tiers = vec![Tier { name: "ring", first: 0, count: n }];
        Ok(Topology { hosts: n * hosts, switches: (0..n).map(switch).collect(), ports, tiers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(switches: u32) -> Result<Topology, TopologyError> {
        let (host_bps, ring_bps) = (100_000_000_000, 100_000_000_000);
        let spec = RingSpec {
            switches,
            switch_hosts: 2,
            host_bps,
            ring_bps,
            latency_ps: 1_000_000,
            switch_latency_ps: 0,
        };
        spec.build()
    }

    #[test]
    fn packets_go_one_way_round_and_every_port_has_its_reverse() {
        for switches in [3, 4, SWITCHES_MAX] {
            let ring = ring(switches).unwrap();
            for (number, port) in (0..).zip(&ring.ports) {
                let back = &ring.ports[port.reverse as usize];
                assert_eq!((back.from, back.to, back.reverse), (port.to, port.from, number));
            }
            for src in 0..ring.hosts {
                for dst in (0..ring.hosts).filter(|dst| *dst != src) {
                    let hops = (dst / 2 + switches - src / 2) % switches;
                    assert_eq!(ring.path(src, dst, 0).len(), hops as usize + 2);
                }
            }
        }
        let ring = ring(4).unwrap();
        let names: Vec<_> = ring.path(0, 4, 0).into_iter().map(|p| ring.port_name(p)).collect();
        assert_eq!(names, ["host0->ring0", "ring0->ring1", "ring1->ring2", "ring2->host4"]);
        assert_eq!(ring.select("ring3->ring0").unwrap().len(), 1);
        assert!(self::ring(2).is_err() && self::ring(SWITCHES_MAX + 1).is_err());
    }
}
