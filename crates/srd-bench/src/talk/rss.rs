//! The experiment `rss`: the receive queue of a packet is always the same, depends on the hash, or
//! follows the talk's three rules. The packets of a single queue stay on a processor, or the kernel
//! of the instance steers them to all (RPS).

use crate::experiment::measure::programs::IPERF3;
use anyhow::{Context as _, Result};
use std::fs;

use super::cloud::{Cloud, IP, Pair, SETPRIV, UNSHARE};
use super::{Context, Experiment, Findings, iperf, stream};
use srd_sim::talk::figure::{Figure, Near, TALK};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "rss",
    about: "c8g.8xlarge, 64 flows of `iperf3`: without RSS one queue has all packets, which the \
            kernel may steer to other processors (`rps_cpus`); with it they spread over all \
            queues. With the talk's n-tuple rules (`tcp4 dst-port 22 action 1 loc 0`, `tcp4 \
            action 2 loc 1`, `udp4 action 3 loc 2`) SSH is queue 1's, all other TCP queue 2's, \
            UDP queue 3's.",
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
/// Origin of the expected number of processors that another processor sends packets to.
const STEERING: &str = "Linux's receive packet steering";
const RULES: [&str; 3] =
    ["tcp4 dst-port 22 action 1 loc 0", "tcp4 action 2 loc 1", "udp4 action 3 loc 2"];

fn run(context: &Context<'_>) -> Result<Findings> {
    let mut found = Findings::default();
    let cloud = Cloud::of(context, &KIND)?;
    let seconds = context.quick_or(1, 5);
    let words = ["-P", FLOWS, "-l", "9000"];

    (context.say)("off: all entries of the table name queue 0");
    cloud.set("b", &["--rss-equal", "1"])?;
    let before = steered()?;
    let off = watch(&cloud, || iperf::run(&cloud, &words, seconds).map(drop))?;
    let others = more(&before, &steered()?);
    let figure = Figure::new("off: processors with packets from another", "", others as f64);
    found.figures.push(figure.wanted(0.0, Near::Exactly, STEERING));
    let queues = off.iter().filter(|packets| **packets > 0).count();
    found.figures.push(Figure::new("off: queues with packets", "", queues as f64).slide_count(1.0));
    found.notes.push(shown("off", &off));

    if before.len() > 1 {
        (context.say)("off, steered: queue 0, and rps_cpus of the instance names all processors");
        set_steering(&cloud, &processors(before.len()))?;
        let before = steered()?;
        let queue = watch(&cloud, || iperf::run(&cloud, &words, seconds).map(drop))?;
        let others = more(&before, &steered()?);
        set_steering(&cloud, "0")?;
        let name = "off, steered: processors with packets from another";
        let figure = Figure::new(name, "", others as f64);
        found.figures.push(figure.wanted(1.0, Near::AtLeast, STEERING));
        found.notes.push(shown("off, steered", &queue));
    } else {
        found.notes.push("one processor: packets are not steered to others".to_owned());
    }

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
    let mut arrived = 0.0;
    let udp = watch(&cloud, || {
        let words = ["-u", "-P", "8", "-l", "1400", "-b", "1M"];
        let (sent, lost) = iperf::run(&cloud, &words, seconds)?.datagrams;
        arrived = sent - lost;
        Ok(())
    })?;
    for (name, counts, queue) in [
        ("rules: share of port 22 in queue 1", &ssh, 1),
        ("rules: share of other TCP in queue 2", &tcp, 2),
    ] {
        let figure = Figure::new(name, "", share(counts, of(counts, queue)));
        found.figures.push(figure.wanted(NEARLY_ALL, Near::AtLeast, TALK));
    }
    // The control connection of iperf3 uses TCP, so its packets are in queue 2.
    let datagrams = of(&udp, 3) as f64 / arrived.max(1.0);
    let figure = Figure::new("rules: share of UDP in queue 3", "", datagrams);
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

/// Returns, for each processor of this machine, how often another processor has sent packets to it
/// (`received_rps` in `/proc/net/softnet_stat`). Only steering sends packets to other processors.
fn steered() -> Result<Vec<u64>> {
    const RECEIVED_RPS: usize = 9;
    let text = fs::read_to_string("/proc/net/softnet_stat").context("/proc/net/softnet_stat")?;
    let count = |line: &str| {
        let word = line.split_whitespace().nth(RECEIVED_RPS)?;
        u64::from_str_radix(word, 16).ok()
    };
    let counts: Option<Vec<u64>> = text.lines().map(count).collect();
    counts.context("a counter of /proc/net/softnet_stat")
}

/// Returns the number of processors whose counter has increased.
fn more(before: &[u64], after: &[u64]) -> usize {
    before.iter().zip(after).filter(|(before, after)| after > before).count()
}

/// Returns the set of this number of processors, as the kernel reads it: hexadecimal words of 32
/// bits.
fn processors(count: usize) -> String {
    let word = |first: usize| {
        let set = (first..count.min(first + 32)).fold(0_u32, |set, cpu| set | 1 << (cpu - first));
        format!("{set:08x}")
    };
    let words: Vec<String> = (0..count).step_by(32).map(word).collect();
    words.into_iter().rev().collect::<Vec<_>>().join(",")
}

/// Sets the processors to which the kernel of the instance `b` steers the packets of each queue.
fn set_steering(cloud: &Cloud, set: &str) -> Result<()> {
    let files = "/sys/class/net/ens5/queues/rx-*/rps_cpus";
    let write = format!("for file in {files}; do echo {set} > $file || exit 1; done");
    cloud.run("b", &["sh", "-c", &write]).map(drop)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_processors_has_words_of_32_bits() {
        let sets = [(1, "00000001"), (2, "00000003"), (33, "00000001,ffffffff")];
        for (count, set) in sets {
            assert_eq!(processors(count), set);
        }
    }
}
