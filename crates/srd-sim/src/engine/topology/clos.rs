//! Leaf-spine networks and three-tier fat trees, from parameters such as those in htsim's files.
//!
//! Tiers are numbered from the hosts up. Within a pod every tier-0 switch has `bundle` links to
//! every tier-1 switch. A two-tier network is one pod. In a three-tier network, the n-th tier-1
//! switch of every pod has `bundle` links to every core switch whose number is n modulo the number
//! of tier-1 switches per pod.

use super::{End, Port, Switch, Tier, Topology, TopologyError};

/// Parameters of one tier: its switches, and the links below them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TierSpec {
    /// Speed of the links to the tier below (for tier 0: to the hosts), in bits per second.
    pub down_bps: u64,
    /// Number of links down of each switch.
    pub radix_down: u32,
    /// Number of links up of each switch; 0 in the top tier.
    pub radix_up: u32,
    /// Number of parallel links between a switch of this tier and a switch of the tier below.
    pub bundle: u32,
    /// Queue limit of each port up, in bytes; `None` if the topology sets none.
    pub queue_up_bytes: Option<u64>,
    /// Queue limit of each port down, in bytes; `None` if the topology sets none.
    pub queue_down_bytes: Option<u64>,
    /// Propagation delay of the links to the tier below, in picoseconds.
    pub link_latency_ps: u64,
    /// Time from a packet's arrival at a switch of this tier until it enters a queue, in
    /// picoseconds.
    pub switch_latency_ps: u64,
}

/// Parameters of a network of two or three tiers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClosSpec {
    /// Number of hosts.
    pub hosts: u32,
    /// Number of hosts in each pod. In a two-tier network all hosts are in one pod.
    pub pod_hosts: u32,
    /// Parameters of the two or three tiers, from the hosts up.
    pub tiers: Vec<TierSpec>,
}

/// Largest number of hosts or ports of a network.
pub const PORTS_MAX: u32 = 1 << 24;

impl ClosSpec {
    /// Returns the parameters of a leaf-spine network, with `link.bundle` links from every leaf to
    /// every spine.
    pub fn leaf_spine(leaves: u32, spines: u32, leaf_hosts: u32, link: &Links) -> Self {
        let hosts = leaves.saturating_mul(leaf_hosts);
        let leaf = link.tier(link.host_bps, leaf_hosts, spines.saturating_mul(link.bundle), 1);
        let spine = link.tier(link.up_bps, leaves.saturating_mul(link.bundle), 0, link.bundle);
        Self { hosts, pod_hosts: hosts, tiers: vec![leaf, spine] }
    }

    /// Returns the parameters of a three-tier fat tree of switches with `k` ports: k³/4 hosts at
    /// full bisection. The numbers of uplinks of tier 0 and of tier 1 are divided by the
    /// `oversubscribed` factors.
    pub fn fat_tree(k: u32, oversubscribed: [u32; 2], link: &Links) -> Self {
        let half = k / 2;
        let [over_tor, over_agg] = oversubscribed.map(|o| o.max(1));
        let aggs = (half / over_tor).max(1);
        let up = (half / over_agg).max(1);
        let hosts = half.saturating_mul(half).saturating_mul(k);
        Self {
            hosts,
            pod_hosts: half.saturating_mul(half),
            tiers: vec![
                link.tier(link.host_bps, half, aggs, 1),
                link.tier(link.up_bps, half, up, 1),
                link.tier(link.up_bps, k, 0, 1),
            ],
        }
    }
}

/// Properties of the links of a regular network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Links {
    /// Speed of the hosts' links, in bits per second.
    pub host_bps: u64,
    /// Speed of the links between switches, in bits per second.
    pub up_bps: u64,
    /// Propagation delay of every link, in picoseconds.
    pub latency_ps: u64,
    /// Delay of every switch, in picoseconds.
    pub switch_latency_ps: u64,
    /// Number of parallel links between each leaf and each spine.
    pub bundle: u32,
}

impl Links {
    const fn tier(&self, down_bps: u64, radix_down: u32, radix_up: u32, bundle: u32) -> TierSpec {
        TierSpec {
            down_bps,
            radix_down,
            radix_up,
            bundle,
            queue_up_bytes: None,
            queue_down_bytes: None,
            link_latency_ps: self.latency_ps,
            switch_latency_ps: self.switch_latency_ps,
        }
    }
}

/// Numbers of switches that follow from the parameters of a network.
struct Shape {
    tors: u32,
    tors_per_pod: u32,
    aggs_per_pod: u32,
    aggs: u32,
    cores: u32,
}

fn fail<T>(text: String) -> Result<T, TopologyError> {
    Err(TopologyError(text))
}

fn divides(what: &str, whole: u32, part_name: &str, part: u32) -> Result<u32, TopologyError> {
    if part == 0 || !whole.is_multiple_of(part) {
        return fail(format!("{what} ({whole}) is not a multiple of {part_name} ({part})"));
    }
    Ok(whole / part)
}

impl ClosSpec {
    fn shape(&self) -> Result<Shape, TopologyError> {
        let [tor, agg, ..] = self.tiers[..] else {
            return fail(format!("{} tiers: only 2 and 3 are supported", self.tiers.len()));
        };
        if self.hosts < 2 || self.hosts > PORTS_MAX {
            return fail(format!("{} hosts: there must be 2 to {PORTS_MAX}", self.hosts));
        }
        for (n, tier) in self.tiers.iter().enumerate() {
            if tier.down_bps == 0 || tier.radix_down == 0 || tier.bundle == 0 {
                return fail(format!("tier {n}: speed, down radix and bundle must not be zero"));
            }
            if tier.radix_down > 65_536 || tier.radix_up > 65_536 {
                return fail(format!("tier {n}: a switch has at most 65536 ports each way"));
            }
        }
        if tor.bundle != 1 {
            return fail("tier 0: a host has one link, so its bundle must be 1".to_owned());
        }
        let pods = divides("the number of nodes", self.hosts, "the pod size", self.pod_hosts)?;
        let tors_per_pod =
            divides("the pod size", self.pod_hosts, "tier 0's down radix", tor.radix_down)?;
        let aggs_per_pod =
            divides("tier 0's up radix", tor.radix_up, "tier 1's bundle", agg.bundle)?;
        if aggs_per_pod == 0 {
            return fail("tier 0's up radix must not be zero".to_owned());
        }
        if tors_per_pod.checked_mul(agg.bundle) != Some(agg.radix_down) {
            return fail(format!(
                "tier 1's down radix is {}, but {tors_per_pod} tier-0 switches per pod with {} \
                 link(s) each need {}",
                agg.radix_down,
                agg.bundle,
                u64::from(tors_per_pod) * u64::from(agg.bundle)
            ));
        }
        let mut shape = Shape {
            tors: tors_per_pod * pods,
            tors_per_pod,
            aggs_per_pod,
            aggs: aggs_per_pod.saturating_mul(pods),
            cores: 0,
        };
        match self.tiers.get(2) {
            None if pods != 1 => {
                return fail(format!("two tiers are one pod, but the pod size makes {pods}"));
            }
            None => {}
            Some(core) => {
                let groups =
                    divides("tier 1's up radix", agg.radix_up, "tier 2's bundle", core.bundle)?;
                if groups == 0 {
                    return fail("tier 1's up radix must not be zero".to_owned());
                }
                if pods.checked_mul(core.bundle) != Some(core.radix_down) {
                    return fail(format!(
                        "tier 2's down radix is {}, but {pods} pods with {} link(s) each need {}",
                        core.radix_down,
                        core.bundle,
                        u64::from(pods) * u64::from(core.bundle)
                    ));
                }
                shape.cores = groups.saturating_mul(aggs_per_pod);
            }
        }
        let ports = [(shape.tors, tor), (shape.aggs, agg)]
            .into_iter()
            .chain(self.tiers.get(2).map(|&core| (shape.cores, core)))
            .map(|(n, t)| u64::from(n) * (u64::from(t.radix_down) + u64::from(t.radix_up)))
            .sum::<u64>();
        if ports > u64::from(PORTS_MAX) {
            return fail(format!("{ports} switch ports: at most {PORTS_MAX} are supported"));
        }
        Ok(shape)
    }

    /// Builds the network.
    ///
    /// # Errors
    /// If the numbers do not fit together.
    pub fn build(&self) -> Result<Topology, TopologyError> {
        let shape = self.shape()?;
        let mut build = Build::new(self, &shape);
        build.switches();
        build.host_ports();
        for tier in 0..self.tiers.len() {
            build.tier_ports(tier);
        }
        Ok(build.finish())
    }
}

struct Build<'a> {
    spec: &'a ClosSpec,
    shape: &'a Shape,
    tiers: Vec<Tier>,
    switches: Vec<Switch>,
    ports: Vec<Port>,
}

impl<'a> Build<'a> {
    fn new(spec: &'a ClosSpec, shape: &'a Shape) -> Self {
        let names = if shape.cores == 0 { ["leaf", "spine", ""] } else { ["tor", "agg", "core"] };
        let mut tiers = Vec::new();
        let mut first = 0;
        for (name, count) in names.into_iter().zip([shape.tors, shape.aggs, shape.cores]) {
            if count > 0 {
                tiers.push(Tier { name, first, count });
                first += count;
            }
        }
        Self { spec, shape, tiers, switches: Vec::new(), ports: Vec::new() }
    }

    /// Creates every switch, with its ranges of hosts and ports.
    fn switches(&mut self) {
        let (spec, shape) = (self.spec, self.shape);
        let mut port = spec.hosts;
        for (number, (tier, layer)) in spec.tiers.iter().zip(&self.tiers).enumerate() {
            let (span, child_hosts) = match number {
                0 => (tier.radix_down, 1),
                1 => (spec.pod_hosts, spec.tiers[0].radix_down),
                _ => (spec.hosts, spec.pod_hosts),
            };
            for index in 0..layer.count {
                let low = match number {
                    0 => index * span,
                    1 => index / shape.aggs_per_pod * span,
                    _ => 0,
                };
                self.switches.push(Switch {
                    low,
                    span,
                    child_hosts,
                    ways_down: tier.bundle,
                    port_down: port,
                    ways_up: tier.radix_up,
                    port_up: port + tier.radix_down,
                    salt: 0,
                });
                port += tier.radix_down + tier.radix_up;
            }
        }
    }

    fn host_ports(&mut self) {
        let tor = &self.spec.tiers[0];
        for host in 0..self.spec.hosts {
            let switch = host / tor.radix_down;
            self.ports.push(Port {
                from: End::Host(host),
                to: End::Switch(switch),
                rate_bps: tor.down_bps,
                latency_ps: tor.link_latency_ps + tor.switch_latency_ps,
                queue_bytes: None,
                reverse: self.switches[switch as usize].port_down + host % tor.radix_down,
                parallel: 0,
            });
        }
    }

    fn tier_ports(&mut self, tier: usize) {
        let layer = self.tiers[tier].clone();
        for index in 0..layer.count {
            self.ports_down(tier, index, layer.first + index);
            self.ports_up(tier, index, layer.first + index);
        }
    }

    fn ports_down(&mut self, tier: usize, index: u32, switch: u32) {
        let (spec, shape) = (self.spec, self.shape);
        let this = &spec.tiers[tier];
        for n in 0..this.radix_down {
            let (child, parallel) = (n / this.bundle, n % this.bundle);
            let (to, reverse, switch_latency_ps) = match tier {
                0 => {
                    let host = self.switches[switch as usize].low + child;
                    (End::Host(host), host, 0)
                }
                1 => {
                    let (pod, place) = (index / shape.aggs_per_pod, index % shape.aggs_per_pod);
                    let tor = self.tiers[0].first + pod * shape.tors_per_pod + child;
                    let up = self.switches[tor as usize].port_up;
                    let reverse = up + place * this.bundle + parallel;
                    (End::Switch(tor), reverse, spec.tiers[0].switch_latency_ps)
                }
                _ => {
                    let (group, place) = (index / shape.aggs_per_pod, index % shape.aggs_per_pod);
                    let agg = self.tiers[1].first + child * shape.aggs_per_pod + place;
                    let up = self.switches[agg as usize].port_up;
                    let reverse = up + group * this.bundle + parallel;
                    (End::Switch(agg), reverse, spec.tiers[1].switch_latency_ps)
                }
            };
            self.ports.push(Port {
                from: End::Switch(switch),
                to,
                rate_bps: this.down_bps,
                latency_ps: this.link_latency_ps + switch_latency_ps,
                queue_bytes: this.queue_down_bytes,
                reverse,
                parallel,
            });
        }
    }

    fn ports_up(&mut self, tier: usize, index: u32, switch: u32) {
        let (spec, shape) = (self.spec, self.shape);
        let this = &spec.tiers[tier];
        for n in 0..this.radix_up {
            let above = &spec.tiers[tier + 1];
            let (parent, parallel) = (n / above.bundle, n % above.bundle);
            let (number, child) = if tier == 0 {
                (
                    index / shape.tors_per_pod * shape.aggs_per_pod + parent,
                    index % shape.tors_per_pod,
                )
            } else {
                let place = index % shape.aggs_per_pod;
                (parent * shape.aggs_per_pod + place, index / shape.aggs_per_pod)
            };
            let to = self.tiers[tier + 1].first + number;
            let down = self.switches[to as usize].port_down;
            self.ports.push(Port {
                from: End::Switch(switch),
                to: End::Switch(to),
                rate_bps: above.down_bps,
                latency_ps: above.link_latency_ps + above.switch_latency_ps,
                queue_bytes: this.queue_up_bytes,
                reverse: down + child * above.bundle + parallel,
                parallel,
            });
        }
    }

    fn finish(self) -> Topology {
        Topology {
            hosts: self.spec.hosts,
            switches: self.switches,
            ports: self.ports,
            tiers: self.tiers,
        }
    }
}
