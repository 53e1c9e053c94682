//! Limits of instance types, in simulated time. Most tests repeat measurements of the talk NET402
//! (AWS re:Invent 2024, "EC2 Nitro networking under the hood") on a c7i.large. The load is
//! simulated packets, not programs such as iperf3.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use srd_card::Direction;
use srd_card::limits::{Allowances, Ceiling, FlowKind, FlowMeter, Limits, Offer, Outcome};
use srd_card::profile::{InstanceType, Profile};
use srd_proto::rng::Rng;
use srd_proto::time::{Duration, Instant};

/// A flow that sends packets of one size. The pauses between packets are random, from half of the
/// mean to one and a half of the mean.
#[derive(Clone, Copy)]
struct Load {
    bytes: u32,
    bps: u64,
    kind: FlowKind,
}

/// Bits that arrived in one interval, for each flow.
type Interval = Vec<u64>;

/// A simulation of several flows that pass the limits of one instance.
struct Run {
    limits: Limits<usize>,
    flows: Vec<(FlowMeter, Ceiling)>,
    loads: Vec<Load>,
    next_ns: Vec<u64>,
    now_ns: u64,
    direction: Direction,
    rng: Rng,
}

impl Run {
    fn new(profile: &Profile, loads: &[Load], direction: Direction) -> Self {
        let start = Instant::ZERO;
        let ceiling = |load: &Load| profile.ceiling(load.kind);
        Self {
            limits: Limits::new(&profile.limits(), 1, start),
            flows: loads.iter().map(|load| (FlowMeter::new(start), ceiling(load))).collect(),
            loads: loads.to_vec(),
            next_ns: (0..loads.len() as u64).collect(),
            now_ns: 0,
            direction,
            rng: Rng::new(1),
        }
    }

    /// Sends packets of all flows for the given time. Returns the number of bits that passed, for
    /// each flow.
    fn send(&mut self, time: Duration) -> Interval {
        let end = self.now_ns + time.as_nanos();
        let mut bits = vec![0; self.loads.len()];
        loop {
            let (flow, at) = self.next_ns.iter().copied().enumerate().min_by_key(|n| n.1).unwrap();
            if at >= end {
                break;
            }
            let load = self.loads[flow];
            let offer = Offer {
                direction: self.direction,
                bytes: load.bytes,
                packets: 1,
                eni: 0,
                gateway: false,
                link_local: false,
                fragment: false,
            };
            let now = Instant::from_nanos(at);
            let (meter, ceiling) = &mut self.flows[flow];
            let outcome = self.limits.offer(now, offer, Some((meter, ceiling)), flow);
            match outcome {
                Outcome::Passed(flow) => bits[flow] += u64::from(load.bytes) * 8,
                Outcome::Undrained(_) => panic!("all frames were popped"),
                Outcome::Taken(_) | Outcome::Dropped(..) => (),
            }
            let mean = u64::from(load.bytes) * 8_000_000_000 / load.bps;
            self.next_ns[flow] += mean / 2 + self.rng.next_u64() % (mean + 1);
            while let Some((offer, flow)) = self.limits.pop(now) {
                bits[flow] += u64::from(offer.bytes) * 8;
            }
        }
        self.now_ns = end;
        bits
    }

    fn moved(&self) -> Vec<&'static str> {
        moved(self.limits.allowances(0))
    }
}

fn moved(allowances: Allowances) -> Vec<&'static str> {
    let all = allowances.ethtool(0).into_iter().chain(allowances.ours());
    all.filter(|(_, n)| *n > 0).map(|(name, _)| name).collect()
}

fn profile(name: &str) -> Profile {
    Profile::of(InstanceType::find(name).unwrap())
}

fn load(bytes: u32, mbps: u64, kind: FlowKind) -> Load {
    Load { bytes, bps: mbps * 1_000_000, kind }
}

/// Checks that the number of bits differs by at most 1.2 percent from the number at a rate; the
/// burst that may pass at the beginning is within this bound.
fn assert_near(bits: u64, rate_bps: u64, time: Duration) {
    let expected = rate_bps * (time.as_nanos() / 1_000_000) / 1000;
    let off = bits.abs_diff(expected) * 1000 / expected;
    assert!(off <= 12, "{bits} bits instead of {expected}");
}

const SECOND: Duration = Duration::from_secs(1);
const TENTH: Duration = Duration::from_millis(100);

/// One flow is limited to 5, 10 or 25 Gb/s, and only the counter of the flow ceiling changes. For
/// comparison, the talk NET402 measures 9.54 Gb/s of payload with the ceiling of 10 Gb/s.
#[test]
fn one_flow_is_held_at_the_ceiling_of_its_kind() {
    for (kind, gbps) in
        [(FlowKind::Exterior, 5), (FlowKind::ClusterPlacementGroup, 10), (FlowKind::Express, 25)]
    {
        let mut run =
            Run::new(&profile("c7i.16xlarge"), &[load(9001, 40_000, kind)], Direction::Egress);
        assert_near(run.send(TENTH)[0], gbps * 1_000_000_000, TENTH);
        assert_eq!(run.moved(), ["flow_allowance_exceeded"], "{kind:?}");
    }
}

/// The ceiling of a flow is never above the peak of its instance, which is 12.5 Gb/s in this test.
#[test]
fn an_express_flow_of_a_small_instance_has_the_instances_rate() {
    let flow = load(8900, 40_000, FlowKind::Express);
    let mut run = Run::new(&profile("c7i.large"), &[flow], Direction::Egress);
    assert_near(run.send(TENTH)[0], 12_500_000_000, TENTH);
}

/// Two flows of a placement group share the 12.5 Gb/s of a c7i.large evenly.
#[test]
fn two_flows_have_the_instances_peak() {
    let flow = load(9001, 9_000, FlowKind::ClusterPlacementGroup);
    for (direction, name) in [
        (Direction::Egress, "bw_out_allowance_exceeded"),
        (Direction::Ingress, "bw_in_allowance_exceeded"),
    ] {
        let mut run = Run::new(&profile("c7i.large"), &[flow, flow], direction);
        let bits = run.send(TENTH);
        assert_near(bits.iter().sum(), 12_500_000_000, TENTH);
        assert!(bits[0].abs_diff(bits[1]) < bits[0] / 5, "{bits:?}");
        assert_eq!(run.moved(), [name]);
    }
}

/// With packets of 128 bytes, a million packets a second pass, whether one flow or two send them.
/// Only the counter of packets per second changes.
#[test]
fn packets_a_second_are_those_of_the_instance_with_one_flow_and_with_two() {
    for flows in [1, 2] {
        let flow = load(128, 1_200 / flows, FlowKind::ClusterPlacementGroup);
        let loads = vec![flow; usize::try_from(flows).unwrap()];
        let mut run = Run::new(&profile("c7i.large"), &loads, Direction::Egress);
        run.send(TENTH);
        let packets = run.send(SECOND).iter().sum::<u64>() / (128 * 8);
        assert!(packets.abs_diff(1_000_000) < 100, "{packets}");
        assert_eq!(run.moved(), ["pps_allowance_exceeded"]);
    }
}

/// The whole curve of credits, in a lab with a hundredth of all rates: the peak (12.5 Gb/s) for the
/// time T, then the baseline (0.781 Gb/s). Idle time earns credits again, and the time of a stopped
/// instance does not. The other direction keeps its own credits.
#[test]
fn credits_carry_the_peak_for_t_and_then_the_baseline() {
    let mut profile = profile("c7i.large").scaled(100);
    profile.burst = Duration::from_secs(60);
    profile.tolerance = Duration::from_millis(1);
    let flow = load(9001, 45, FlowKind::ClusterPlacementGroup);
    let mut run = Run::new(&profile, &[flow; 3], Direction::Egress);
    let curve: Vec<u64> = (0..80).map(|_| run.send(SECOND).iter().sum()).collect();
    for (second, bits) in curve.iter().enumerate() {
        match second {
            0..59 => assert_near(*bits, 125_000_000, SECOND),
            62.. => assert_near(*bits, 7_810_000, SECOND),
            _ => (),
        }
    }
    // The bits that have passed are the credits, and the baseline rate for the whole time.
    let sum: u64 = curve.iter().sum();
    let expected = (125_000_000 - 7_810_000) * 60 + 7_810_000 * 80;
    assert!(sum.abs_diff(expected) < expected / 500, "{sum} instead of {expected}");
    assert_eq!(run.moved(), ["bw_out_allowance_exceeded"]);
    let at = Instant::from_nanos(run.now_ns);
    assert!(run.limits.credits_bits(at, Direction::Egress) < 9001 * 8, "less than a packet");
    let full = profile.limits().rates_in.credits_bits_max();
    assert_eq!(run.limits.credits_bits(at, Direction::Ingress), full);

    // The instance is stopped for an hour, and then idle for ten minutes.
    let hour = Duration::from_secs(3600);
    while run.limits.poll_timeout().is_some_and(|due| run.limits.pop(due).is_some()) {}
    run.limits.stop(at);
    run.limits.start(at + hour);
    assert!(run.limits.credits_bits(at + hour, Direction::Egress) < 7_810_000);
    let earned = run.limits.credits_bits(at + hour + Duration::from_secs(600), Direction::Egress);
    assert!(earned.abs_diff(7_810_000 * 600) < 7_810_000, "{earned}");
}

/// The throughput for a packet size is the smallest of three limits: packets per second, ceiling of
/// the flow, bandwidth of the instance.
#[test]
fn throughput_over_packet_size_is_the_least_of_all_limits() {
    for (kind, ceiling) in
        [(FlowKind::Exterior, 5_000_000_000), (FlowKind::ClusterPlacementGroup, 10_000_000_000)]
    {
        for flows in [1, 2] {
            for bytes in (128..=9000).step_by(128) {
                let mut profile = profile("c7i.large").scaled(100);
                profile.queue_delay_max = Duration::from_millis(50);
                let loads = vec![load(bytes, 200, kind); usize::try_from(flows).unwrap()];
                let mut run = Run::new(&profile, &loads, Direction::Egress);
                run.send(SECOND);
                let bits: u64 = run.send(SECOND).iter().sum();
                let packets = 1_000_000 * u64::from(bytes) * 8;
                let expected = packets.min(ceiling * flows).min(12_500_000_000) / 100;
                let off = bits.abs_diff(expected) * 1000 / expected;
                assert!(off < 15, "{kind:?} {flows} {bytes}: {bits} instead of {expected}");
            }
        }
    }
}
