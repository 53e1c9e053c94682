//! The experiment `pps`: limit of packets per second.

use super::ceilings::{SHARES, SHARES_PERCENT, moved, ran};
use super::figure::{DERIVED, Figure, Near, TALK};
use super::lab::{self, MS, RECEIVER, SECOND, SENDER};
use super::{Curve, Experiment, Findings, Options};
use crate::engine::world::World;
use crate::machines::card::{CardNode, Pair};
use srd_card::profile::{InstanceType, Profile};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "pps",
    about: "c7i.large, `iperf3 -M 128`, one flow and two: packets a second of the instance are the \
            limit of one flow, and a second flow brings nothing. Then segments in steps of 128 \
            bytes, also on a c5.large, and on both outside of a placement group.",
    run,
};

/// Packet rate in the talk, in thousands per second: its throughput divided into packets of 128
/// bytes of payload.
const TALK_KPPS: f64 = 906.0;
const TALK_SEGMENT_BYTES: f64 = 128.0;
/// Payload bytes in segments of 128 bytes, without TCP's timestamps.
const PAYLOAD_SMALL: u32 = 128 - lab::TIMESTAMP_BYTES;
/// Packets per second that the instance type may send and receive. `CEILING_GBPS` is the limit of a
/// flow inside of a placement group, `CEILING_OUTSIDE_GBPS` that of any other flow.
const PACKETS_PER_SECOND: f64 = 1e6;
const CEILING_GBPS: f64 = 10.0;
const CEILING_OUTSIDE_GBPS: f64 = 5.0;

/// Explanation why fewer data packets per second are sent than the limit allows.
const ANSWERS: &str = "acknowledgements are packets, too, and both directions count together; the \
    model's guests send a super-packet for each one, where Linux waits for more to send, and so \
    has fewer of both";
const ANSWERS_PERCENT: f64 = 40.0;

fn run(options: &Options) -> Result<Findings, String> {
    let time_ps = options.quick_or(100 * MS, SECOND);
    let pair = Pair::of("c7i.large");
    let mut found = Findings::default();
    for (name, flows, gbps) in [("one flow", 1, 0.928), ("two flows", 2, 0.929)] {
        let mtu = lab::mtu_of_segments(128);
        let ran = ran(&pair, mtu, flows, time_ps, options.seed)?;
        let here = ran.all_gbps();
        found.figures.push(
            Figure::new(name, "Gb/s", here).slide(gbps).given().because(ANSWERS, ANSWERS_PERCENT),
        );
        let kpps = here * 1e6 / (TALK_SEGMENT_BYTES * 8.0);
        let counted = "  in packets of 128 bytes, as the talk counts";
        found.figures.push(
            Figure::new(counted, "kpps", kpps)
                .slide(TALK_KPPS)
                .given()
                .because(ANSWERS, ANSWERS_PERCENT),
        );
        let packets = here * 1e6 / (f64::from(PAYLOAD_SMALL) * 8.0);
        found.figures.push(Figure::new("  packets with data", "kpps", packets));
        let answers = acknowledgements_per_second(&ran.world, time_ps) / 1e3;
        found.figures.push(Figure::new("  acknowledgements", "kpps", answers));
        for (flow, talk) in ran.flows_gbps.iter().zip([0.471, 0.477]).filter(|_| flows > 1) {
            let figure = Figure::new("  each of them", "Gb/s", *flow);
            found.figures.push(figure.slide(talk).because(SHARES, SHARES_PERCENT));
        }
        let [of_pps, others] = counters(&ran.world);
        let only = "  only `pps_allowance_exceeded` moved";
        let alone = f64::from(u8::from(of_pps > 0 && others == 0));
        found.figures.push(Figure::new(only, "", alone).wanted(1.0, Near::Exactly, TALK));
        found.notes.push(moved(name, &ran.world));
    }
    sizes(options, &pair, &mut found)?;
    further(options, &mut found)?;
    Ok(found)
}

/// Returns the sum of `pps_allowance_exceeded` of both instances, and the sum of all other
/// counters.
fn counters(world: &World<CardNode>) -> [u64; 2] {
    let mut sums = [0; 2];
    for host in [SENDER, RECEIVER] {
        let (allowances, _) = world.nodes()[host as usize].allowances();
        for (name, count) in allowances.ethtool(0).into_iter().chain(allowances.ours()) {
            sums[usize::from(name != "pps_allowance_exceeded")] += count;
        }
    }
    sums
}

/// Measures throughput by segment size. It is limited by packets per second for small segments, and
/// by the limit of a flow for large segments.
fn sizes(options: &Options, pair: &Pair, found: &mut Findings) -> Result<(), String> {
    let time_ps = options.quick_or(50 * MS, 500 * MS);
    let steps: &[u32] = options.quick_or(&STEPS_QUICK, &STEPS);
    let (mut points, mut answers) = (Vec::new(), Vec::new());
    let (mut of_data, mut of_all) = (0.0, 0.0);
    for segment in steps {
        let mtu = lab::mtu_of_segments(*segment);
        let payload = f64::from(segment - lab::TIMESTAMP_BYTES);
        let ran = ran(pair, mtu, 1, time_ps, options.seed)?;
        let here = ran.all_gbps();
        points.push((f64::from(*segment), here));
        let data = here * 1e9 / 8.0 / payload;
        let back = acknowledgements_per_second(&ran.world, time_ps);
        answers.push((f64::from(*segment), back / 1e3));
        let of_ceiling = here / (CEILING_GBPS * payload / f64::from(mtu));
        farther(&mut of_data, of_ceiling.max(data / PACKETS_PER_SECOND));
        farther(&mut of_all, of_ceiling.max((data + back) / PACKETS_PER_SECOND));
    }
    let farthest = |name: &str, off: f64| {
        let name = format!("steps of 128 bytes: farthest from {name}");
        Figure::new(name, "%", 100.0 + off).wanted(100.0, Near::SIMULATED, DERIVED)
    };
    let data = farthest("min(packets a second, ceiling)", of_data);
    found.figures.push(data.given().because(ANSWERS, ANSWERS_PERCENT));
    found.figures.push(farthest("the same, acknowledgements counted", of_all).given());
    let name = "acknowledgements by segment size".to_owned();
    let line = Curve { name, x: "bytes of a segment", y: "kpps", points: answers };
    found.lines.push(line);
    let name = "one flow by segment size".to_owned();
    found.lines.insert(0, Curve { name, x: "bytes of a segment", y: "Gb/s", points });
    Ok(())
}

/// Instance type, whether both ends are in one placement group, and ceiling of one flow in Gb/s.
/// The limits of a c7i.large in a placement group are those of [`sizes`].
const FURTHER: [(&str, bool, f64); 3] = [
    ("c5.large", true, CEILING_GBPS),
    ("c5.large", false, CEILING_OUTSIDE_GBPS),
    ("c7i.large", false, CEILING_OUTSIDE_GBPS),
];

/// Measures throughput by segment size with other limits. EC2 publishes no packet rate of a
/// c5.large, so the limit is an estimate (P2), from which the result follows.
fn further(options: &Options, found: &mut Findings) -> Result<(), String> {
    for (name, clustered, ceiling_gbps) in FURTHER {
        let kind = InstanceType::find(name).map_err(|error| error.to_string())?;
        let allowed = Profile::of(kind).packets_per_second.value as f64;
        let pair = Pair { clustered, ..Pair::of(name) };
        let (points, off) = against(options, &pair, ceiling_gbps, allowed)?;
        let name = if clustered { name.to_owned() } else { format!("{name} outside") };
        let figure = format!("{name}, the same steps: farthest from its own limits");
        let figure = Figure::new(figure, "%", 100.0 + off).wanted(100.0, Near::SIMULATED, DERIVED);
        found.figures.push(figure.given());
        let line = format!("one flow of a {name} by segment size");
        found.lines.push(Curve { name: line, x: "bytes of a segment", y: "Gb/s", points });
        found.notes.push(format!("{name}: {allowed:.0} packets a second, {ceiling_gbps} Gb/s"));
    }
    Ok(())
}

/// Returns the throughput by segment size, and the largest deviation from the lower of two limits
/// in percent: the ceiling of a flow, and the packets per second that are allowed.
fn against(
    options: &Options,
    pair: &Pair,
    ceiling_gbps: f64,
    allowed: f64,
) -> Result<(Vec<(f64, f64)>, f64), String> {
    let time_ps = options.quick_or(50 * MS, 500 * MS);
    let (mut points, mut off) = (Vec::new(), 0.0);
    for segment in options.quick_or(&STEPS_QUICK[..], &STEPS) {
        let mtu = lab::mtu_of_segments(*segment);
        let payload = f64::from(segment - lab::TIMESTAMP_BYTES);
        let ran = ran(pair, mtu, 1, time_ps, options.seed)?;
        let here = ran.all_gbps();
        points.push((f64::from(*segment), here));
        let packets = here * 1e9 / 8.0 / payload + acknowledgements_per_second(&ran.world, time_ps);
        let of_ceiling = here / (ceiling_gbps * payload / f64::from(mtu));
        farther(&mut off, of_ceiling.max(packets / allowed));
    }
    Ok((points, off))
}

/// Replaces `worst`, a deviation in percent, by the deviation of `share` from 1, if that is larger.
fn farther(worst: &mut f64, share: f64) {
    let off = (share - 1.0) * 100.0;
    *worst = if off.abs() > worst.abs() { off } else { *worst };
}

fn acknowledgements_per_second(world: &World<CardNode>, time_ps: u64) -> f64 {
    let sent = world.nodes()[RECEIVER as usize].tcp().acknowledgements;
    sent as f64 * SECOND as f64 / time_ps as f64
}

/// Segment sizes of a short run. Packets per second limit the first two, and the rate of a flow
/// limits the last size.
const STEPS_QUICK: [u32; 3] = [256, 1152, 1408];
/// Segment sizes of the talk, up to the size at which the rate of a flow is the limit.
const STEPS: [u32; 12] = [128, 256, 384, 512, 640, 768, 896, 1024, 1152, 1280, 1408, 8192];
