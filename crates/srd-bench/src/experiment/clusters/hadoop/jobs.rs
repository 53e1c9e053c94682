//! The jobs on a Hadoop cluster: TestDFSIO, and TeraGen, TeraSort and TeraValidate.

use super::MASTER;
use super::cluster::Cluster;
use crate::experiment::Stage;
use crate::experiment::measure::programs::{complaint, logged};
use crate::experiment::measure::result::{Figure, Measured};
use anyhow::{Context, Result, bail};
use std::thread;
use std::time::{Duration, Instant};

/// Longest duration of a job. Dead paths can delay kernel TCP for minutes.
const JOB_MAX: Duration = Duration::from_secs(900);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const DFSIO: &str = "org.apache.hadoop.fs.TestDFSIO";
const EXAMPLES: &str = "org.apache.hadoop.examples.terasort";
const SHELL: &str = "org.apache.hadoop.fs.FsShell";

/// The failure of a spine, some time after a sort has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Outage {
    after: Duration,
    pub(super) spine: u16,
}

/// The failure of a spine while the map tasks write their output.
pub(super) const OUTAGE: Outage = Outage { after: Duration::from_secs(25), spine: 1 };

/// Number and size of the files that TestDFSIO writes or reads at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DfsIo {
    pub(super) files: u32,
    pub(super) file_mb: u32,
}

impl Default for DfsIo {
    fn default() -> Self {
        Self { files: 4, file_mb: 256 }
    }
}

/// The figures in a report of TestDFSIO.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct IoReport {
    /// Bytes divided by the sum of the times of all tasks, in MB (2^20 bytes) per second.
    pub(super) throughput: f64,
    /// Mean of the rates of the tasks, in MB per second.
    pub(super) rate: f64,
    /// Seconds from the start of the job to its end.
    pub(super) seconds: f64,
}

impl DfsIo {
    pub(super) fn write(self, cluster: &Cluster<'_>, copies: usize) -> Result<IoReport> {
        self.run(cluster, "-write", copies)
    }

    pub(super) fn read(self, cluster: &Cluster<'_>) -> Result<IoReport> {
        self.run(cluster, "-read", 1)
    }

    fn run(self, cluster: &Cluster<'_>, what: &str, copies: usize) -> Result<IoReport> {
        let file = cluster.directory().join(format!("dfsio{what}-{copies}.txt"));
        let (copies, files) = (format!("-Ddfs.replication={copies}"), self.files.to_string());
        let (size, result) = (format!("{}MB", self.file_mb), file.display().to_string());
        let words = [&copies, what, "-nrFiles", &files, "-size", &size, "-resFile", &result];
        cluster.run("dfsio", DFSIO, &words, JOB_MAX)?;
        let text = std::fs::read_to_string(&file).with_context(|| result.clone())?;
        let seen = seen(&text).with_context(|| format!("no figures in {text:?}"))?;
        let bytes = number(&text, "Total MBytes processed");
        let wanted = f64::from(self.files * self.file_mb);
        if bytes.is_none_or(|mb| (mb - wanted).abs() > 0.5) {
            bail!("TestDFSIO moved {bytes:?} MB in place of {wanted}");
        }
        Ok(seen)
    }
}

fn seen(text: &str) -> Option<IoReport> {
    Some(IoReport {
        throughput: number(text, "Throughput mb/sec")?,
        rate: number(text, "Average IO rate mb/sec")?,
        seconds: number(text, "Test exec time sec")?,
    })
}

/// Returns the number after a name and a colon in a report; `None` if the report does not contain
/// it.
fn number(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.trim_start().starts_with(name))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

/// TeraSort: creates, sorts and checks records of 100 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sort {
    pub(super) rows: u64,
    pub(super) outage: Option<Outage>,
}

impl Default for Sort {
    fn default() -> Self {
        Self { rows: 5_000_000, outage: None }
    }
}

impl Sort {
    pub(super) fn run(self, stage: &Stage<'_>, cluster: &Cluster<'_>) -> Result<Measured> {
        let class = |name: &str| format!("{EXAMPLES}.{name}");
        let rows = self.rows.to_string();
        let two = "-Ddfs.replication=2";
        let generate = [two, "-Dmapreduce.job.maps=4", &rows, "/t/in"];
        let begun = Instant::now();
        cluster.run("teragen", &class("TeraGen"), &generate, JOB_MAX)?;
        let generated = begun.elapsed();
        let sort = [
            two,
            "-Dmapreduce.job.reduces=4",
            "-Dmapreduce.terasort.output.replication=2",
            "/t/in",
            "/t/out",
        ];
        let sorted = self.sort(stage, cluster, &class("TeraSort"), &sort)?;
        stage.fabric.heal_all()?;
        let validate = ["/t/out", "/t/validated"];
        cluster.run("teravalidate", &class("TeraValidate"), &validate, JOB_MAX)?;
        let words = ["-cat", "/t/validated/part-r-00000"];
        let verdict = cluster.run("verdict", SHELL, &words, JOB_MAX)?;
        in_order(&verdict)?;
        let counted = logged(stage, MASTER, "terasort")?;
        all_rows(&counted, self.rows)?;
        Ok(Measured {
            figures: vec![
                Figure::new("TeraSort", "s", sorted.as_secs_f64()),
                Figure::new("TeraGen", "s", generated.as_secs_f64()),
            ],
            ..Measured::default()
        })
    }

    fn sort(
        self,
        stage: &Stage<'_>,
        cluster: &Cluster<'_>,
        class: &str,
        words: &[&str],
    ) -> Result<Duration> {
        let begun = Instant::now();
        let mut client = cluster.client("terasort", class, words)?;
        let mut outage = self.outage;
        while begun.elapsed() < JOB_MAX {
            if let Some(status) = client.ended()? {
                if !status.success() {
                    bail!("TeraSort ended with {status}: {}", complaint(stage, MASTER, "terasort"));
                }
                if outage.is_some() {
                    bail!("TeraSort had ended before the spine was to die");
                }
                return Ok(begun.elapsed());
            }
            if let Some(due) = outage.filter(|outage| begun.elapsed() >= outage.after) {
                stage.fabric.fail_spine(due.spine)?;
                outage = None;
            }
            thread::sleep(LOOK_EVERY);
        }
        bail!("TeraSort did not end within {} s", JOB_MAX.as_secs())
    }
}

/// Checks the output of TeraValidate, which contains a checksum, and a line for each record that is
/// not in order.
fn in_order(verdict: &str) -> Result<()> {
    let mut lines = verdict.lines().filter(|line| !line.trim().is_empty());
    let first = lines.next().unwrap_or_default();
    if !first.starts_with("checksum") {
        bail!("TeraValidate found no records: {verdict:?}");
    }
    match lines.next() {
        Some(line) => bail!("the output is not in order: {line}"),
        None => Ok(()),
    }
}

/// Checks with the counters of the job that the output contains as many records as the input.
fn all_rows(log: &str, rows: u64) -> Result<()> {
    for name in ["Map input records", "Reduce output records"] {
        let counted =
            log.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='));
        if counted.and_then(|n| n.trim().parse().ok()) != Some(rows) {
            bail!("{name}: {counted:?} in place of {rows}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_in_the_words_of_the_program() {
        let text = "----- TestDFSIO ----- : read\n            Date & time: Mon Nov 23 10:00:00\n\
                    \x20       Number of files: 4\n Total MBytes processed: 1024\n\
                    \x20     Throughput mb/sec: 5.98\n Average IO rate mb/sec: 6.58\n\
                    \x20  IO rate std deviation: 1.2\n    Test exec time sec: 67.5\n";
        assert_eq!(seen(text), Some(IoReport { throughput: 5.98, rate: 6.58, seconds: 67.5 }));
        assert_eq!(number(text, "Total MBytes processed"), Some(1024.0));
        assert_eq!(seen("nothing"), None);
    }

    #[test]
    fn output_out_of_order_or_none_is_refused() {
        assert!(in_order("checksum\t4c49607ac53602\n").is_ok());
        for bad in ["", "checksum\t1\nmisorder\tpart-r-00001\n", "misorder\tx\n"] {
            assert!(in_order(bad).is_err(), "{bad:?}");
        }
        let log = "\t\tMap input records=7\n\t\tReduce output records=7\n";
        assert!(all_rows(log, 7).is_ok());
        assert!(all_rows(log, 8).is_err());
        assert!(all_rows("", 7).is_err());
    }
}
