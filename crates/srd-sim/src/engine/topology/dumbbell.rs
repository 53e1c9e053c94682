//! Dumbbell networks: two switches with hosts, and a bottleneck of one or several parallel links
//! between them.

use super::{End, Port, Switch, Tier, Topology, TopologyError};

/// Parameters of a dumbbell. The hosts at the left switch have the lower numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DumbbellSpec {
    /// Number of hosts on each side.
    pub side_hosts: u32,
    /// Speed of the hosts' links, in bits per second.
    pub host_bps: u64,
    /// Speed of each link between the two switches, in bits per second.
    pub middle_bps: u64,
    /// Number of parallel links between the two switches.
    pub middle_links: u32,
    /// Propagation delay of every link, in picoseconds.
    pub latency_ps: u64,
    /// Delay of each of the two switches, in picoseconds.
    pub switch_latency_ps: u64,
}

impl DumbbellSpec {
    /// Builds the network.
    ///
    /// # Errors
    /// If the numbers describe no valid network.
    pub fn build(&self) -> Result<Topology, TopologyError> {
        let (n, links) = (self.side_hosts, self.middle_links);
        if n == 0 || n > 65_536 || links == 0 || links > 65_536 {
            return Err(TopologyError(
                "a dumbbell needs 1 to 65536 hosts a side and 1 to 65536 links".to_owned(),
            ));
        }
        if self.host_bps == 0 || self.middle_bps == 0 {
            return Err(TopologyError("a link's speed must not be zero".to_owned()));
        }
        let switch = |low, first| Switch {
            low,
            span: n,
            child_hosts: 1,
            ways_down: 1,
            port_down: first,
            ways_up: links,
            port_up: first + n,
            salt: 0,
        };
        let switches = vec![switch(0, 2 * n), switch(n, 3 * n + links)];
        let edge = |from, to, reverse, latency_ps| Port {
            from,
            to,
            rate_bps: self.host_bps,
            latency_ps,
            queue_bytes: None,
            reverse,
            parallel: 0,
        };
        let through_ps = self.latency_ps + self.switch_latency_ps;
        let mut ports = Vec::new();
        for host in 0..2 * n {
            let side = host / n;
            let reverse = switches[side as usize].port_down + host % n;
            ports.push(edge(End::Host(host), End::Switch(side), reverse, through_ps));
        }
        for side in 0..2 {
            for host in side * n..(side + 1) * n {
                ports.push(edge(End::Switch(side), End::Host(host), host, self.latency_ps));
            }
            for parallel in 0..links {
                ports.push(Port {
                    from: End::Switch(side),
                    to: End::Switch(1 - side),
                    rate_bps: self.middle_bps,
                    latency_ps: through_ps,
                    queue_bytes: None,
                    reverse: switches[1 - side as usize].port_up + parallel,
                    parallel,
                });
            }
        }
        let tiers = vec![Tier { name: "side", first: 0, count: 2 }];
        Ok(Topology { hosts: 2 * n, switches, ports, tiers })
    }
}
