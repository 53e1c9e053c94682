//! The experiment `objects`: clients read objects from an object store by S3's protocol, as the
//! tasks of Hadoop do that read their input by S3A.
//!
//! The store is Moto's server, in one host, and the clients are the S3 library boto3, in hosts
//! under the other leaf. Hadoop's own connector (S3A) is not used: its library for S3 has 600 MB.

use super::fetched::MOTO;
use super::machines::{Machines, UNSHARE};
use crate::experiment::measure::programs;
use crate::experiment::measure::result::{Figure, Measured};
use crate::experiment::{Case, Experiment, Options, Stage, describe, hosts};
use anyhow::{Context, Result, bail};
use srd_lab::config::FabricConfig;
use srd_lab::id::HostId;
use srd_lab::running::Running;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SOURCE: &str = include_str!("objects_client.py");
const STORE: HostId = HostId { leaf: 0, host: 0 };
/// Port of the object store.
const PORT: u16 = 5000;
/// Number of hosts with clients.
const READERS: u16 = 2;
/// Number of bytes of an object.
const OBJECT_BYTES: u64 = 8 << 20;
const SPINES: u16 = 4;
const RATE_MBPS: u32 = 200;
const QUEUE_BYTES: u32 = 100_000;
/// Longest time that a client may take.
const JOB_MAX: Duration = Duration::from_secs(300);

/// The experiment `objects`.
pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "objects",
    summary: "How fast do nodes read from an object store if each connection has all paths?",
    about: "An object store with S3's protocol (Moto's server) is in a host of the first leaf, and \
            a client (boto3) is in each of two hosts of the second one. Each client reads objects \
            of 8 MB one after the other, in ranges of 1 MB over one connection, as a Hadoop task \
            reads its input by S3A, or four ranges at a time over four connections. Links of hosts \
            have 200 Mb/s, and each of four uplinks has 50. The run counts only if every byte is \
            right.",
    repetitions: 3,
    variants: crate::experiment::variant::USUAL,
    programs: |_| vec![UNSHARE],
    cases,
};

/// Size of a run.
#[derive(Clone, Copy, Debug)]
struct Job {
    /// Number of objects that each client reads.
    objects: u64,
    /// Number of ranges that a client reads at a time.
    streams: u64,
}

fn cases(options: &Options) -> Vec<Case> {
    let all = [("one range at a time", 1), ("four ranges at a time", 4)];
    let case = |(name, streams)| case(options, name, Job { objects: objects(options), streams });
    all.into_iter().take(options.cases_or(1, all.len())).map(case).collect()
}

/// Returns the number of objects that each client reads.
fn objects(options: &Options) -> u64 {
    options.quick_or(1, 16)
}

fn case(options: &Options, name: &str, job: Job) -> Case {
    let fabric = FabricConfig {
        hosts_per_leaf: READERS,
        spines: options.spines.unwrap_or(SPINES),
        host_rate_mbps: RATE_MBPS,
        uplink_rate_mbps: RATE_MBPS / 4,
        queue_bytes: QUEUE_BYTES,
        ..FabricConfig::default()
    };
    let mb = (job.objects * u64::from(READERS) * OBJECT_BYTES) >> 20;
    let cache = options.cache.clone();
    Case {
        name: name.into(),
        setting: format!("{mb} MB read by {READERS} clients; {}", describe(&fabric)),
        hosts: [STORE].into_iter().chain(readers()).collect(),
        fabric,
        only: None,
        measure: Box::new(move |stage| measure(stage, job, &cache)),
    }
}

fn readers() -> impl Iterator<Item = HostId> {
    hosts(1, READERS)
}

fn measure(stage: &Stage<'_>, job: Job, cache: &Path) -> Result<Measured> {
    let python = MOTO.python(cache)?;
    let source = stage.directory.join("objects_client.py");
    fs::write(&source, SOURCE).with_context(|| source.display().to_string())?;
    let all: Vec<HostId> = [STORE].into_iter().chain(readers()).collect();
    let lab = Lab { machines: Machines::new(stage, &all)?, python, source };
    let _store = lab.up()?;
    lab.fill(job)?;
    let before = (stage.fabric.tcp_counters(&all)?, stage.fabric.dropped_packets()?);
    let running = (0..).zip(readers()).map(|(n, host)| lab.read(host, n * job.objects, job));
    let running: Vec<(HostId, Running)> = running.collect::<Result<_>>()?;
    let mut reads = Vec::new();
    for (host, client) in running {
        let status = client.wait(JOB_MAX).with_context(|| format!("client in {host}"))?;
        if !status.success() {
            let why = programs::complaint(stage, host, CLIENT);
            bail!("the client in {host} ended with {status}: {why}");
        }
        reads.push(Read::of(&programs::printed(stage, host, CLIENT)?)?);
    }
    let after = (stage.fabric.tcp_counters(&all)?, stage.fabric.dropped_packets()?);
    let config = stage.fabric.config();
    let mbps = goodput_mbps(&reads, job)?;
    Ok(Measured {
        figures: vec![
            Figure::new("read", "Mb/s", mbps)
                .beside(config.goodput_mbps(config.host_rate_mbps), "the link of the store"),
            Figure::new(
                "TCP sent again",
                "segments",
                after.0.since(&before.0).segments_again as f64,
            ),
            Figure::new("dropped by ports", "packets", after.1.saturating_sub(before.1) as f64),
        ],
        ..Measured::default()
    })
}

/// Name of the client in the names of its files.
const CLIENT: &str = "client";

/// The hosts, and the programs that run in them.
struct Lab<'a> {
    machines: Machines<'a>,
    python: PathBuf,
    source: PathBuf,
}

impl Lab<'_> {
    /// Starts the object store, and waits until it accepts connections.
    fn up(&self) -> Result<Running> {
        let stage = self.machines.stage();
        let mut command = self.machines.command(STORE, &self.python)?;
        command.args(["-m", "moto.server", "-H", "0.0.0.0", "-p", &PORT.to_string()]);
        let mut store = programs::start(stage, STORE, "store", &mut command)?;
        programs::wait_for_listener(stage, STORE, PORT, &mut store, "store")?;
        Ok(store)
    }

    fn client(&self, host: HostId, mode: &str, first: u64, job: Job) -> Result<Command> {
        let url = format!("http://{}:{PORT}", self.machines.stage().address(STORE)?);
        let mut command = self.machines.command(host, &self.python)?;
        command.arg(&self.source).args([mode, &url]);
        let count = if mode == "fill" { job.objects * u64::from(READERS) } else { job.objects };
        command.args([first, count, OBJECT_BYTES, job.streams].map(|number| number.to_string()));
        Ok(command)
    }

    /// Puts all objects into the store.
    fn fill(&self, job: Job) -> Result<()> {
        let mut command = self.client(STORE, "fill", 0, job)?;
        programs::run_to_end(self.machines.stage(), STORE, "fill", &mut command, JOB_MAX).map(drop)
    }

    /// Starts a client that reads its objects, from the object `first` on.
    fn read(&self, host: HostId, first: u64, job: Job) -> Result<(HostId, Running)> {
        let mut command = self.client(host, "read", first, job)?;
        let client = programs::start(self.machines.stage(), host, CLIENT, &mut command)?;
        Ok((host, client))
    }
}

/// Result that a client has printed. Times are in seconds of the machine's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Read {
    begin_s: f64,
    end_s: f64,
    bytes: u64,
    /// Number of objects with a wrong byte.
    wrong: u64,
}

impl Read {
    fn of(printed: &str) -> Result<Read> {
        let line = printed.lines().rev().find_map(|line| line.strip_prefix("RESULT "));
        let line = line.with_context(|| format!("no result in {printed:?}"))?;
        let word = |name: &str| {
            let found = line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            found.with_context(|| format!("no {name} in {line:?}"))
        };
        Ok(Read {
            begin_s: word("begin")?.parse().context("begin")?,
            end_s: word("end")?.parse().context("end")?,
            bytes: word("bytes")?.parse().context("bytes")?,
            wrong: word("wrong")?.parse().context("wrong")?,
        })
    }
}

/// Returns the bits per second in millions that all clients read together, from the first beginning
/// to the last end.
///
/// # Errors
/// If the objects that were read are not those that were stored.
fn goodput_mbps(reads: &[Read], job: Job) -> Result<f64> {
    let wrong: u64 = reads.iter().map(|read| read.wrong).sum();
    let bytes: u64 = reads.iter().map(|read| read.bytes).sum();
    let wanted = job.objects * reads.len() as u64 * OBJECT_BYTES;
    if wrong > 0 || bytes != wanted {
        bail!("{wrong} objects with wrong bytes; {bytes} bytes in place of {wanted}");
    }
    let begin_s = reads.iter().map(|read| read.begin_s).fold(f64::INFINITY, f64::min);
    let end_s = reads.iter().map(|read| read.end_s).fold(f64::NEG_INFINITY, f64::max);
    if end_s <= begin_s {
        bail!("the clients took no time: {reads:?}");
    }
    Ok(bytes as f64 * 8.0 / (end_s - begin_s) / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: Job = Job { objects: 1, streams: 1 };

    #[test]
    fn the_goodput_counts_from_the_first_beginning_to_the_last_end() {
        let one = Read::of("noise\nRESULT begin=10.5 end=12.5 bytes=8388608 wrong=0\n").unwrap();
        assert_eq!(one, Read { begin_s: 10.5, end_s: 12.5, bytes: OBJECT_BYTES, wrong: 0 });
        let other = Read { begin_s: 11.5, end_s: 14.5, ..one };
        let mbps = goodput_mbps(&[one, other], JOB).unwrap();
        assert!((mbps - 2.0 * 8.0 * 8.388_608 / 4.0).abs() < 1e-9, "{mbps}");
    }

    #[test]
    fn what_is_not_the_objects_that_were_stored_is_refused() {
        let good = Read { begin_s: 1.0, end_s: 2.0, bytes: OBJECT_BYTES, wrong: 0 };
        assert!(goodput_mbps(&[good], JOB).is_ok());
        for bad in [
            Read { wrong: 1, ..good },
            Read { bytes: OBJECT_BYTES - 1, ..good },
            Read { end_s: 1.0, ..good },
        ] {
            assert!(goodput_mbps(&[bad], JOB).is_err(), "{bad:?}");
        }
        for text in ["", "RESULT filled", "RESULT begin=1 end=x bytes=1 wrong=0"] {
            assert!(Read::of(text).is_err(), "{text}");
        }
    }
}
