//! Conversion of runs into charts, tables and sentences for the figures of the SRD paper.

use std::fmt::Write as _;

use super::{Figure, Kind};
use crate::engine::world::US;
use crate::runs::report;
use crate::runs::run::RunResult;

/// Minimum retransmission timeout of TCP in the figures, in microseconds.
const RTO_MIN_US: f64 = 50_000.0;

/// A file that belongs to a figure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct File {
    /// Name of the file.
    pub name: String,
    /// Content of the file.
    pub text: String,
}

/// The results of a figure.
#[derive(Clone, PartialEq, Debug)]
pub struct Drawn {
    /// The charts of the figure, as SVG.
    pub charts: Vec<File>,
    /// The numbers of the figure, as CSV.
    pub table: File,
    /// The simulator's results in words: a sentence for each transport.
    pub ours: Vec<String>,
}

impl Figure {
    /// Creates charts, table and sentences from the results of the figure's jobs.
    pub fn draw(&self, results: &[RunResult]) -> Drawn {
        let all: Vec<&RunResult> = results.iter().collect();
        let chart = |what: &str, svg: Option<String>| {
            let name = format!("figure-{}{what}.svg", self.number);
            svg.map(|text| File { name, text })
        };
        let (charts, text) = match self.kind {
            Kind::Sizes => (vec![chart("", report::slowest_by_size_svg(&all))], sizes_csv(results)),
            Kind::Distribution => {
                (vec![chart("", report::completion_svg(&all))], distribution_csv(results))
            }
            Kind::Throughput => {
                let one = |result: &RunResult| {
                    let RunResult { transport, .. } = result;
                    chart(&format!("-{transport}"), report::throughput_svg(result))
                };
                (results.iter().map(one).collect(), throughput_csv(results))
            }
        };
        Drawn {
            charts: charts.into_iter().flatten().collect(),
            table: File { name: format!("figure-{}.csv", self.number), text },
            ours: by_transport(results).iter().map(|of_one| self.sentence(of_one)).collect(),
        }
    }

    /// Returns a sentence about the runs of one transport.
    fn sentence(&self, results: &[&RunResult]) -> String {
        let name = results.first().map_or("", |result| result.transport);
        let what = match self.kind {
            Kind::Sizes => slowest(results),
            Kind::Distribution => quantiles(results),
            Kind::Throughput => shares(results),
        };
        match results.iter().map(|result| result.unfinished).sum::<usize>() {
            0 => format!("{name}: {what}"),
            open => format!("{name}: {what}; {open} flows did not finish"),
        }
    }
}

/// Returns the results of each transport, in the order in which transports first appear.
fn by_transport(results: &[RunResult]) -> Vec<Vec<&RunResult>> {
    let mut groups: Vec<Vec<&RunResult>> = Vec::new();
    for result in results {
        match groups.iter_mut().find(|group| group[0].transport == result.transport) {
            Some(group) => group.push(result),
            None => groups.push(vec![result]),
        }
    }
    groups
}

fn slowest(results: &[&RunResult]) -> String {
    let mut sizes: Vec<(u64, f64)> = Vec::new();
    for result in results {
        let (bytes, over) = (report::flow_bytes(result), result.over_ideal.max);
        match sizes.iter_mut().find(|(size, _)| *size == bytes) {
            Some((_, most)) => *most = most.max(over),
            None => sizes.push((bytes, over)),
        }
    }
    let list: Vec<_> =
        sizes.iter().map(|(bytes, over)| format!("{over:.2} at {} KB", bytes >> 10)).collect();
    format!("slowest flow of the worst seed over the ideal {}", list.join(", "))
}

fn quantiles(results: &[&RunResult]) -> String {
    let flows = results.iter().flat_map(|r| r.flow_records.iter().map(move |f| (r, f)));
    let mut over: Vec<f64> =
        flows.filter_map(|(r, f)| Some(f.fct_us? / r.ideal_us.max(1e-9))).collect();
    over.sort_by(f64::total_cmp);
    let (Some(median), Some(most)) = (report::median(&over), over.last()) else {
        return "no flow was done".to_owned();
    };
    let mean = over.iter().sum::<f64>() / over.len() as f64;
    let records = || results.iter().flat_map(|r| &r.flow_records);
    let late = records().filter(|f| f.fct_us.is_none_or(|us| us > RTO_MIN_US)).count();
    let share = late as f64 * 100.0 / records().count().max(1) as f64;
    format!(
        "median {median:.3}, average {mean:.3}, slowest {most:.2} of the ideal; {share:.1} % of \
        the \
         flows took more than 50 ms"
    )
}

fn shares(results: &[&RunResult]) -> String {
    let one = |result: &&RunResult| match &result.shares {
        Some(shares) => format!(
            "in any interval a flow had {:.2} to {:.2} of its fair share; Jain's index {:.3} or \
            more, \
             over all {:.3}",
            shares.min, shares.max, shares.jain_min, result.jain
        ),
        None => "too short to tell".to_owned(),
    };
    results.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn sizes_csv(results: &[RunResult]) -> String {
    let mut csv =
        String::from("bytes,transport,seed,ideal_us,min_us,p50_us,mean_us,p99_us,max_us\n");
    for r in results {
        let fct = &r.fct_us;
        let _ = writeln!(
            csv,
            "{},{},{},{:.3},{:.3},{:.3},{:.3},{:.3},{:.3}",
            report::flow_bytes(r),
            r.transport,
            r.seed,
            r.ideal_us,
            fct.min,
            fct.p50,
            fct.mean,
            fct.p99,
            fct.max
        );
    }
    csv
}

fn distribution_csv(results: &[RunResult]) -> String {
    let mut csv = String::from("transport,seed,flow,ideal_us,fct_us\n");
    for r in results {
        for flow in &r.flow_records {
            let fct = flow.fct_us.map_or_else(String::new, |us| format!("{us:.3}"));
            let _ = writeln!(csv, "{},{},{},{:.3},{fct}", r.transport, r.seed, flow.id, r.ideal_us);
        }
    }
    csv
}

fn throughput_csv(results: &[RunResult]) -> String {
    let mut csv = String::from("transport,seed,until_us,flow,gbps\n");
    for r in results {
        let Some(series) = &r.series else { continue };
        let scale = 8e3 / series.interval_ps as f64;
        for (at_ps, row) in series.at_ps.iter().zip(&series.flow_bytes) {
            let until_us = *at_ps as f64 / US as f64;
            for (flow, bytes) in row.iter().enumerate() {
                let gbps = *bytes as f64 * scale;
                let _ = writeln!(csv, "{},{},{until_us:.1},{flow},{gbps:.4}", r.transport, r.seed);
            }
        }
    }
    csv
}
