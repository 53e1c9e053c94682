//! Traffic patterns: incast, permutations, rack to rack, all to all, ring all-reduce, and
//! random arrivals.

use srd_proto::rng::Rng;

use super::sizes::Sizes;
use super::{FlowPlan, Start, TriggerId, TriggerKind, Workload, WorkloadError};
use crate::engine::node::ENDLESS;

/// Largest number of flows in a pattern.
pub const FLOWS_MAX: u64 = 20_000_000;

fn fail<T>(text: String) -> Result<T, WorkloadError> {
    Err(WorkloadError(text))
}

fn bounded(flows: u64) -> Result<(), WorkloadError> {
    if flows > FLOWS_MAX {
        return fail(format!("{flows} flows: at most {FLOWS_MAX} are supported"));
    }
    Ok(())
}

/// An incast: many senders to one receiver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Incast {
    /// Numbers of the sending hosts.
    pub senders: Vec<u32>,
    /// Number of the receiving host.
    pub receiver: u32,
    /// Number of flows from each sender.
    pub flows_per_sender: u32,
    /// Bytes of each flow, or [`crate::node::ENDLESS`].
    pub bytes: u64,
    /// Time at which the first round starts, in picoseconds.
    pub start_ps: u64,
    /// Number of rounds. A round starts when every flow of the previous round is done.
    pub rounds: u32,
}

impl Incast {
    /// Returns `count` senders that are spread evenly over the hosts, from the receiver on. For
    /// example, four senders to host 0 of 128 are the hosts 31, 63, 95 and 127.
    pub fn spread(hosts: u32, count: u32, receiver: u32) -> Vec<u32> {
        let step = |i: u32| {
            let place = u64::from(i + 1) * u64::from(hosts - 1) / u64::from(count);
            u32::try_from(place).expect("below the number of hosts")
        };
        (0..count).map(|i| (receiver + step(i)) % hosts).collect()
    }

    /// Creates the flows, round by round. Within a round, the first flows of all senders come
    /// first.
    ///
    /// # Errors
    /// If there are too many flows.
    pub fn plan(&self) -> Result<Workload, WorkloadError> {
        let per_round = self.senders.len() as u64 * u64::from(self.flows_per_sender);
        // Each round counts as at least one flow, because it takes time and memory.
        bounded(per_round.max(1).saturating_mul(self.rounds.into()))?;
        let barrier = u32::try_from(per_round).unwrap_or(u32::MAX);
        let mut workload = Workload::default();
        for round in 0..self.rounds {
            if round > 0 {
                workload.triggers.push(TriggerKind::Barrier(barrier));
            }
            for _ in 0..self.flows_per_sender {
                for &sender in &self.senders {
                    let mut flow = FlowPlan::at(self.start_ps, sender, self.receiver, self.bytes);
                    if round > 0 {
                        flow.start = Start::On(TriggerId(round - 1));
                    }
                    if round + 1 < self.rounds {
                        flow.sent_trigger = Some(TriggerId(round));
                    }
                    workload.flows.push(flow);
                }
            }
        }
        Ok(workload)
    }
}

/// Creates the flows of a random permutation: every host sends to one other host and receives from
/// one other host.
///
/// # Errors
/// If there are too many flows.
pub fn permutation(
    hosts: u32,
    flows_per_host: u32,
    bytes: u64,
    rng: &mut Rng,
) -> Result<Workload, WorkloadError> {
    // Sattolo's shuffle makes a single cycle, so no host is mapped to itself.
    let mut to: Vec<u32> = (0..hosts).collect();
    for i in (1..to.len()).rev() {
        let bound = u32::try_from(i).expect("fewer than 2^32 hosts");
        to.swap(i, rng.below(bound) as usize);
    }
    pairs((0..hosts).zip(to), flows_per_host, bytes)
}

/// Creates the flows of a tornado: every host sends to the host half the network away, so that all
/// flows cross the top tier.
///
/// # Errors
/// If there are too many flows.
pub fn tornado(hosts: u32, flows_per_host: u32, bytes: u64) -> Result<Workload, WorkloadError> {
    pairs((0..hosts).map(|h| (h, (h + hosts / 2) % hosts)), flows_per_host, bytes)
}

/// Creates flows between given pairs of hosts. All flows start at time 0.
///
/// # Errors
/// If there are too many flows.
pub fn pairs(
    pairs: impl ExactSizeIterator<Item = (u32, u32)> + Clone,
    flows_per_pair: u32,
    bytes: u64,
) -> Result<Workload, WorkloadError> {
    bounded((pairs.len() as u64).saturating_mul(flows_per_pair.into()))?;
    let flow = |(src, dst)| FlowPlan::at(0, src, dst, bytes);
    let flows = (0..flows_per_pair).flat_map(|_| pairs.clone().map(flow)).collect();
    Ok(Workload { flows, ..Workload::default() })
}

/// Creates flows from every host to every other host of a list. With `at_once`, a host has this
/// number of flows at a time: the next flow starts when another flow is done.
///
/// # Errors
/// If there are too many flows, or if `at_once` is zero.
pub fn all_to_all(
    hosts: &[u32],
    bytes: u64,
    at_once: Option<u32>,
) -> Result<Workload, WorkloadError> {
    let n = hosts.len();
    bounded((n as u64).saturating_mul(n as u64))?;
    let at_once = match at_once {
        Some(0) => return fail("`at_once` must be above zero".to_owned()),
        Some(at_once) => at_once as usize,
        None => n,
    };
    let number = |host: usize| u32::try_from(host).expect("bounded above");
    // Each host begins with its successor, so that the hosts do not all begin with one receiver.
    let flow = |i: usize, step: usize| {
        let mut flow = FlowPlan::at(0, hosts[i], hosts[(i + step) % n], bytes);
        if step > at_once {
            flow.start = Start::On(TriggerId(number(i)));
        }
        flow.sent_trigger = (at_once + 1 < n).then(|| TriggerId(number(i)));
        flow
    };
    let flows = (1..n).flat_map(|step| (0..n).map(move |i| flow(i, step))).collect();
    let triggers = if at_once + 1 < n { vec![TriggerKind::MultiShot; n] } else { Vec::new() };
    Ok(Workload { flows, triggers, ..Workload::default() })
}

/// Creates the flows of a ring all-reduce, which has 2(n-1) steps. In each step every host sends
/// one n-th of the data to its successor, as soon as it has received the part of the previous step
/// from its predecessor.
///
/// # Errors
/// If there are fewer than two hosts, too many flows, or if the data is endless.
pub fn all_reduce_ring(hosts: &[u32], bytes: u64) -> Result<Workload, WorkloadError> {
    let n = hosts.len();
    if n < 2 {
        return fail("an all-reduce needs two hosts or more".to_owned());
    }
    if bytes == ENDLESS {
        return fail("an all-reduce has an end: its data cannot be endless".to_owned());
    }
    let steps = 2 * (n - 1);
    bounded((n as u64).saturating_mul(steps as u64))?;
    let number = |value: usize| u32::try_from(value).expect("bounded above");
    let mut workload = Workload::default();
    for step in 0..steps {
        for i in 0..n {
            let next = (i + 1) % n;
            let chunk = (bytes / n as u64).max(1);
            let mut flow = FlowPlan::at(0, hosts[i], hosts[next], chunk);
            // Trigger k * n + i is activated when host i has received its part in step k.
            if step > 0 {
                flow.start = Start::On(TriggerId(number((step - 1) * n + i)));
            }
            if step + 1 < steps {
                flow.received_trigger = Some(TriggerId(number(step * n + next)));
            }
            workload.flows.push(flow);
        }
    }
    workload.triggers = vec![TriggerKind::OneShot; (steps - 1) * n];
    Ok(workload)
}

/// Flows with random hosts, sizes and times of arrival (a Poisson process).
#[derive(Clone, PartialEq, Debug)]
pub struct Poisson {
    /// Number of hosts that send and receive.
    pub hosts: u32,
    /// Speed of the hosts' links, in bits per second.
    pub host_bps: u64,
    /// Average load: the share of all host links that the flows' bytes use.
    pub load: f64,
    /// Distribution of flow sizes.
    pub sizes: Sizes,
    /// Time after which no flow starts, in picoseconds.
    pub duration_ps: u64,
}

impl Poisson {
    /// Draws flows between random pairs of hosts until the duration is over.
    ///
    /// # Errors
    /// If the load is out of range, or if there are too many flows.
    pub fn plan(&self, rng: &mut Rng) -> Result<Workload, WorkloadError> {
        if !(self.load > 0.0 && self.load <= 2.0) {
            return fail(format!("`load` must be above 0 and at most 2, not {}", self.load));
        }
        if self.hosts < 2 {
            return fail("random arrivals need two hosts or more".to_owned());
        }
        let bytes_per_ps = self.load * f64::from(self.hosts) * self.host_bps as f64 / 8e12;
        let gap_ps = self.sizes.mean_bytes() / bytes_per_ps;
        let expected = self.duration_ps as f64 / gap_ps;
        if expected > FLOWS_MAX as f64 {
            return fail(format!("about {expected:.0} flows: at most {FLOWS_MAX} are supported"));
        }
        let mut workload = Workload::default();
        let mut at_ps = 0.0;
        loop {
            let u = ((rng.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
            at_ps -= gap_ps * u.ln();
            if at_ps >= self.duration_ps as f64 {
                return Ok(workload);
            }
            let src = rng.below(self.hosts);
            let dst = (src + 1 + rng.below(self.hosts - 1)) % self.hosts;
            let bytes = self.sizes.draw(rng);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // below duration
            workload.flows.push(FlowPlan::at(at_ps as u64, src, dst, bytes));
        }
    }
}

impl Workload {
    /// Adds the flows, triggers, background load and schedule of another workload to this workload.
    ///
    /// # Errors
    /// If there are too many flows or triggers, or two schedules.
    pub fn merge(&mut self, other: Self) -> Result<(), WorkloadError> {
        bounded((self.flows.len() + other.flows.len()) as u64)?;
        let base = u32::try_from(self.triggers.len())
            .map_err(|_| WorkloadError("too many triggers".to_owned()))?;
        let first_flow = u32::try_from(self.flows.len()).unwrap_or(u32::MAX);
        let shift = |id: TriggerId| TriggerId(id.0 + base);
        self.triggers.extend(other.triggers);
        self.flows.extend(other.flows.into_iter().map(|flow| FlowPlan {
            start: match flow.start {
                Start::On(id) => Start::On(shift(id)),
                at => at,
            },
            sent_trigger: flow.sent_trigger.map(shift),
            received_trigger: flow.received_trigger.map(shift),
            ..flow
        }));
        self.background.extend(other.background);
        if let Some(mut schedule) = other.schedule {
            if self.schedule.is_some() {
                return fail("there may be one schedule".to_owned());
            }
            schedule.shift_flows(first_flow);
            self.schedule = Some(schedule);
        }
        Ok(())
    }

    /// Delays the flows that start at a fixed time.
    pub fn delay(&mut self, by_ps: u64) {
        for flow in &mut self.flows {
            if let Start::At(at_ps) = &mut flow.start {
                *at_ps = at_ps.saturating_add(by_ps);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn count(workload: &Workload, end: impl Fn(&FlowPlan) -> u32, host: u32) -> usize {
        workload.flows.iter().filter(|f| end(f) == host).count()
    }

    #[test]
    fn permutation_gives_everybody_one_in_and_one_out() {
        let workload = permutation(128, 1, 1000, &mut Rng::new(3)).unwrap();
        workload.check(128).unwrap();
        for host in 0..128 {
            assert_eq!(count(&workload, |f| f.src.0, host), 1);
            assert_eq!(count(&workload, |f| f.dst.0, host), 1);
        }
        assert_ne!(workload, permutation(128, 1, 1000, &mut Rng::new(4)).unwrap());
        tornado(16, 2, 1).unwrap().check(16).unwrap();
    }

    /// In an earlier version, patterns created flows until all memory was used.
    #[test]
    fn regression_each_pattern_refuses_too_many_flows() {
        let too_many = |plan: Result<Workload, WorkloadError>| {
            let WorkloadError(text) = plan.unwrap_err();
            assert!(text.contains("at most 20000000 are supported"), "{text}");
        };
        too_many(permutation(16, u32::MAX, 1, &mut Rng::new(1)));
        too_many(tornado(16, u32::MAX, 1));
        too_many(pairs((0..8).map(|i| (i, 8 + i)), u32::MAX, 1));
        too_many(pairs((0..u32::MAX).map(|i| (i, 8)), 1, 1));
        let incast = |senders: u32, flows_per_sender, rounds| Incast {
            senders: (1..=senders).collect(),
            receiver: 0,
            flows_per_sender,
            bytes: 1,
            start_ps: 0,
            rounds,
        };
        // The product of the numbers has more than 64 bits.
        too_many(incast(16, u32::MAX, u32::MAX).plan());
        too_many(incast(0, 1, u32::MAX).plan());
        assert_eq!(pairs([(0, 1)].into_iter(), 7, 1).unwrap().flows.len(), 7);
    }

    #[test]
    fn spread_senders_differ_from_each_other_and_the_receiver() {
        for (hosts, count) in [(128, 4), (128, 127), (1024, 1000), (2, 1)] {
            let mut senders = Incast::spread(hosts, count, 5 % hosts);
            assert!(!senders.contains(&(5 % hosts)));
            senders.sort_unstable();
            senders.dedup();
            assert_eq!(senders.len(), count as usize);
        }
    }

    #[test]
    fn rounds_wait_for_each_other() {
        let incast = Incast {
            senders: vec![1, 2],
            receiver: 0,
            flows_per_sender: 3,
            bytes: 10,
            start_ps: 0,
            rounds: 3,
        };
        let workload = incast.plan().unwrap();
        workload.check(3).unwrap();
        assert_eq!(workload.triggers, [TriggerKind::Barrier(6); 2]);
        assert_eq!(workload.flows.len(), 18);
        assert_eq!(workload.flows[6].start, Start::On(TriggerId(0)));
        assert_eq!(workload.flows[17].sent_trigger, None);
    }

    #[test]
    fn all_to_all_and_ring_have_their_flows() {
        let hosts: Vec<u32> = (0..8).collect();
        let all = all_to_all(&hosts, 5, None).unwrap();
        all.check(8).unwrap();
        assert_eq!(all.flows.len(), 56);
        assert!(all_to_all(&hosts, 5, Some(0)).is_err());
        let some = all_to_all(&hosts, 5, Some(3)).unwrap();
        some.check(8).unwrap();
        let waiting = some.flows.iter().filter(|f| matches!(f.start, Start::On(_))).count();
        assert_eq!((waiting, some.triggers.len()), (56 - 8 * 3, 8));
        let ring = all_reduce_ring(&hosts, 800).unwrap();
        ring.check(8).unwrap();
        assert_eq!((ring.flows.len(), ring.triggers.len()), (112, 104));
        assert!(ring.flows.iter().all(|f| f.bytes == 100));
        let waiting = ring.flows.iter().filter(|f| matches!(f.start, Start::On(_))).count();
        assert_eq!(waiting, 104);
    }

    #[test]
    fn arrivals_make_the_load_that_was_asked_for() {
        let sizes = Sizes::find("web-search", Path::new(".")).unwrap();
        let poisson = Poisson {
            hosts: 64,
            host_bps: 100_000_000_000,
            load: 0.5,
            sizes,
            duration_ps: 100_000_000_000,
        };
        let workload = poisson.plan(&mut Rng::new(1)).unwrap();
        workload.check(64).unwrap();
        let bytes: u64 = workload.flows.iter().map(|f| f.bytes).sum();
        let expected = 0.5 * 64.0 * 100e9 / 8.0 * 0.1;
        assert!((bytes as f64 / expected - 1.0).abs() < 0.1, "{bytes} of {expected}");
        let times = workload.flows.windows(2);
        assert!(times.clone().count() > 1000);
    }

    #[test]
    fn merged_workloads_keep_their_own_triggers() {
        let hosts: Vec<u32> = (0..4).collect();
        let mut both = all_reduce_ring(&hosts, 40).unwrap();
        let (flows, triggers) = (both.flows.len(), both.triggers.len());
        both.merge(all_reduce_ring(&hosts, 40).unwrap()).unwrap();
        both.check(4).unwrap();
        let id = TriggerId(u32::try_from(triggers).unwrap());
        assert_eq!(both.flows[flows + 4].start, Start::On(id));
    }

    /// In an earlier version, the parts of endless data had an end after 2^64 / n bytes.
    #[test]
    fn regression_an_all_reduce_has_an_end() {
        assert!(all_reduce_ring(&[0, 1], ENDLESS).unwrap_err().0.contains("endless"));
    }
}
