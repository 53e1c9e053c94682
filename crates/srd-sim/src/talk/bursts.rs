//! The experiment `microburst`: bursts that the average of a minute hides.

use super::ceilings::{HEADERS, HEADERS_PERCENT, moved};
use super::figure::{DERIVED, DOCUMENTED, Figure, Near};
use super::lab::{self, MS, MTU, RECEIVER, SECOND, SENDER, Traffic};
use super::{Curve, Experiment, Findings, Options};
use crate::machines::card::{Datagrams, Pair, Ports};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "microburst",
    about: "c7i.large: six seconds at the ceiling of a flow look like a tenth of it in a minute's \
            average; eight UDP flows of 3.28 Gb/s for a second are more than the instance may \
            send.",
    run,
};

/// Traffic of one second in the talk NET402: eight flows of 26.2 Gb/s together, 364,279 datagrams.
const FLOWS: u32 = 8;
const OFFERED_BPS: u64 = 26_200_000_000;
const DATAGRAMS: f64 = 364_279.0;
/// Largest UDP payload in bytes that is not fragmented.
const PAYLOAD_BYTES: u16 = 8972;
/// Peak rate at which the instance may send, in bits per second.
const PEAK_BPS: u64 = 12_500_000_000;

fn run(options: &Options) -> Result<Findings, String> {
    let mut found = Findings::default();
    six_seconds(options, &mut found)?;
    eight_flows(options, &mut found)?;
    Ok(found)
}

/// Runs a TCP flow for six seconds, as `iperf3 -t 6 -M 9000 -P 1` does, and measures its rate in
/// intervals of a second and of a millisecond.
fn six_seconds(options: &Options, found: &mut Findings) -> Result<(), String> {
    let seconds = options.quick_or(1, 6);
    let mut world = lab::world(&Pair::of("c7i.large"), MTU, &lab::streams(1), options.seed)?;
    let bins = lab::steps(&mut world, MS, seconds * 1000);
    lab::check(&world)?;
    let bytes: Vec<u64> = bins.iter().map(|flows| flows[0]).collect();
    let each: Vec<f64> =
        bytes.chunks(1000).map(|second| lab::gbps(second.iter().sum(), SECOND)).collect();
    let least = each.iter().copied().fold(f64::MAX, f64::min);
    found.figures.push(
        Figure::new("least of the seconds", "Gb/s", least)
            .slide(9.52)
            .because(HEADERS, HEADERS_PERCENT),
    );
    let all: u64 = bytes.iter().sum();
    // A short run is scaled to the bytes of six seconds.
    let minute = lab::gbps(all, 60 * SECOND) * 6.0 / f64::from(seconds);
    let figure = Figure::new("the minute's average", "Gb/s", minute);
    found.figures.push(
        figure.wanted(0.953, Near::SIMULATED, DERIVED).given().because(HEADERS, HEADERS_PERCENT),
    );
    let most = bytes.iter().map(|bytes| lab::gbps(*bytes, MS)).fold(0.0, f64::max);
    found.figures.push(Figure::new("most of a millisecond", "Gb/s", most));
    let again = world.nodes()[SENDER as usize].tcp().segments_resent as f64;
    let figure = Figure::new("segments sent again", "", again);
    found.figures.push(figure.wanted(0.0, Near::Exactly, super::figure::TALK));
    found.notes.push("the talk's metric printed 0.899 Gb/s; its own seconds make 0.953".into());
    let points = (0..).zip(&each).map(|(at, rate)| (f64::from(at), *rate)).collect();
    let name = "each second".to_owned();
    found.lines.push(Curve { name, x: "time, s", y: "Gb/s", points });
    Ok(())
}

/// Runs eight UDP flows for a second, as `iperf3 -t 1 -u -b 10G -P 8` does.
fn eight_flows(options: &Options, found: &mut Findings) -> Result<(), String> {
    let time_ps = SECOND;
    let rate_bps = OFFERED_BPS / u64::from(FLOWS);
    let plan = Datagrams { payload_bytes: PAYLOAD_BYTES, rate_bps, ports: Ports::One };
    let bytes = rate_bps / 8;
    let traffic = vec![Traffic::Datagrams { from_ps: 0, bytes, plan }; FLOWS as usize];
    let mut world = lab::world(&Pair::of("c7i.large"), MTU, &traffic, options.seed)?;
    world.run_until(time_ps);
    let delivered: u64 = world.flows().iter().map(|flow| flow.delivered_bytes).sum();
    let gbps = lab::gbps(delivered, time_ps);
    world.run_until(time_ps + 100 * MS);
    lab::check(&world)?;
    let [sent, arrived] = [SENDER, RECEIVER].map(|host| world.nodes()[host as usize].counts());
    let datagrams = sent.datagrams_sent as f64;
    let figure = Figure::new("eight UDP flows: datagrams sent in a second", "", datagrams);
    found.figures.push(figure.slide(DATAGRAMS).given());
    let figure = Figure::new("  what arrives", "Gb/s", gbps);
    found.figures.push(figure.wanted(PEAK_BPS as f64 / 1e9, Near::SIMULATED, DOCUMENTED));
    let lost = 1.0 - arrived.datagrams_received as f64 / sent.datagrams_sent as f64;
    let figure = Figure::new("  share that is dropped", "", lost);
    found.figures.push(figure.wanted(
        1.0 - PEAK_BPS as f64 / OFFERED_BPS as f64,
        Near::SIMULATED,
        DERIVED,
    ));
    let held = world.nodes()[SENDER as usize].held(srd_card::limits::Limit::BandwidthOut);
    found.figures.push(Figure::new("  waited for bw_out", "packets", held.queued as f64));
    found.figures.push(Figure::new("  dropped by bw_out", "packets", held.dropped as f64));
    found.notes.push(moved("eight UDP flows", &world));
    Ok(())
}
