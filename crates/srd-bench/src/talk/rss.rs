//! The experiment `rss`: the receive queue of a packet is always the same, depends on the hash, or
//! follows the talk's three rules.

use crate::experiment::measure::programs::IPERF3;
use anyhow::{Context as _, Result};

use super::cloud::{Cloud, IP, Pair, SETPRIV, UNSHARE};
use super::{Context, Experiment, Findings, iperf, stream};
use srd_sim::talk::figure::{Figure, Near, TALK};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "rss",
    about: "c8g.8xlarge, 64 flows of `iperf3`: without RSS one queue has all packets, with it they \
            spread over all queues. With the talk's n-tuple rules (`tcp4 dst-port 22 action 1 loc \
            0`, `tcp4 action 2 loc 1`, `udp4 action 3 loc 2`) SSH is queue 1's, all other TCP \
            queue 2's, UDP queue 3's.",
    scale: 100,
    takes_s: 20,
    needs: &[IPERF3, IP, SETPRIV, UNSHARE],
    run,
};

const KIND: Pair = Pair::of("c8g.8xlarge");
const FLOWS: &str = "64";
/// Largest accepted share of the busiest queue, in multiples of an even share. The hash does not
/// distribute the flows exactly evenly.
const UNEVEN_MAX: f64 = 3.0;
/// Required share of the packets in the right queue. It is less than 1, because the last packets of
/// a run are counted in the next run.
const NEARLY_ALL: f64 = 0.95;
const RULES: [&str; 3] =
    ["tcp4 dst-port 22 action 1 loc 0", "tcp4 action 2 loc 1", "udp4 action 3 loc 2"];

fn run(context: &Context<'_>) -> Result<Findings> {
    let mut found = Findings::default();
    let cloud = Cloud::of(context, &KIND)?;
    let seconds = context.quick_or(1, 5);
    let words = ["-P", FLOWS, "-l", "9000"];

    (context.say)("off: all entries of the table name queue 0");
    cloud.set("b", &["--rss-equal", "1"])?;
    let off = watch(&cloud, || iperf::run(&cloud, &words, seconds).map(drop))?;
    let queues = off.iter().filter(|packets| **packets > 0).count();
    found.figures.push(Figure::new("off: queues with packets", "", queues as f64).slide_count(1.0));
    found.notes.push(shown("off", &off));

    (context.say)("on: the table names all queues in turn");
    cloud.set("b", &["--rss-default"])?;
    let on = watch(&cloud, || iperf::run(&cloud, &words, seconds).map(drop))?;
    let queues = on.iter().filter(|packets| **packets > 0).count();
    let all = on.len() as f64;
    found.figures.push(Figure::new("on: queues with packets", "", queues as f64).slide_count(all));
    let busiest = share(&on, on.iter().copied().max().unwrap_or_default());
    let figure = Figure::new("  share of the busiest", "", busiest);
    found.figures.push(figure.wanted(UNEVEN_MAX / all, Near::AtMost, "an eighth each, by chance"));
    found.notes.push(shown("on", &on));

    (context.say)("n-tuple: the talk's three rules");
    let rules: Vec<&str> = RULES.iter().flat_map(|rule| ["--rule", rule]).collect();
    cloud.set("b", &rules)?;
    let ssh = watch(&cloud, || {
        let listener = stream::listen(&cloud, 22)?;
        let (mut out, mut into) = stream::connect(&cloud, &listener)?;
        (0..100).try_for_each(|_| stream::passes(&mut out, &mut into).map(drop))
    })?;
    let tcp = watch(&cloud, || iperf::run(&cloud, &words, seconds).map(drop))?;
    let udp = watch(&cloud, || {
        iperf::run(&cloud, &["-u", "-P", "8", "-l", "1400", "-b", "1M"], seconds).map(drop)
    })?;
    for (name, counts, queue) in [
        ("rules: share of port 22 in queue 1", &ssh, 1),
        ("rules: share of other TCP in queue 2", &tcp, 2),
    ] {
        let figure = Figure::new(name, "", share(counts, of(counts, queue)));
        found.figures.push(figure.wanted(NEARLY_ALL, Near::AtLeast, TALK));
    }
    // The control connection of iperf3 uses TCP, so its packets go to queue 2.
    let datagrams = share(&udp, of(&udp, 3) + of(&udp, 2));
    let figure = Figure::new("rules: share of UDP in queue 3, its control in 2", "", datagrams);
    found.figures.push(figure.wanted(NEARLY_ALL, Near::AtLeast, TALK));
    for (name, counts) in [("port 22", &ssh), ("other TCP", &tcp), ("UDP", &udp)] {
        found.notes.push(shown(name, counts));
    }
    Ok(found)
}

/// Adds a target to a figure: a count that a slide of the talk shows exactly.
trait Slide {
    fn slide_count(self, value: f64) -> Self;
}

impl Slide for Figure {
    fn slide_count(self, value: f64) -> Self {
        self.wanted(value, Near::Exactly, TALK)
    }
}

/// Returns the number of packets that each queue of the instance `b` receives during `work`.
fn watch(cloud: &Cloud, work: impl FnOnce() -> Result<()>) -> Result<Vec<u64>> {
    let before = cloud.queues("b")?;
    work()?;
    let after = cloud.queues("b")?;
    let each = after.iter().zip(&before).map(|(after, before)| after.checked_sub(*before));
    each.collect::<Option<_>>().context("a counter of a queue went back")
}

fn of(counts: &[u64], queue: usize) -> u64 {
    counts.get(queue).copied().unwrap_or_default()
}

fn share(counts: &[u64], packets: u64) -> f64 {
    packets as f64 / counts.iter().sum::<u64>().max(1) as f64
}

fn shown(what: &str, counts: &[u64]) -> String {
    let counts: Vec<String> = counts.iter().map(u64::to_string).collect();
    format!("{what}: packets of queues 0 to {}: {}", counts.len().max(1) - 1, counts.join(" "))
}
