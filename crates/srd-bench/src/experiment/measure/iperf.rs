//! Runs iperf3 from one host to another, and reads its report.

use crate::experiment::Stage;
use crate::experiment::measure::programs::{self, IPERF3};
use crate::experiment::measure::result::{Figure, Measured, Timeline, jain};
use anyhow::{Context, Result};
use serde_json::Value;
use srd_lab::id::HostId;
use std::time::Duration;

const PORT: u16 = 5201;
/// Seconds at the start that are not counted, because transports start up in them.
const OMIT_S: u64 = 1;
/// Length of a step in the report and the chart.
const STEP_MS: u64 = 500;
/// Time that iperf3 may take in addition to the requested duration.
const GRACE: Duration = Duration::from_secs(20);

/// Parameters of one run of iperf3.
pub(in crate::experiment) struct Iperf {
    pub(in crate::experiment) from: HostId,
    pub(in crate::experiment) to: HostId,
    pub(in crate::experiment) flows: u32,
    pub(in crate::experiment) seconds: u64,
}

/// The figures in a report of iperf3.
#[derive(Debug, PartialEq)]
struct Report {
    /// Goodput of all flows in Mb/s, as the receiver counted it.
    mbps: f64,
    /// Number of segments that the sender's TCP sent again.
    again: f64,
    /// Rate of each flow in Mb/s.
    flows_mbps: Vec<f64>,
    /// Rate of all flows in each step, in Mb/s.
    steps_mbps: Vec<f64>,
}

impl Iperf {
    /// Runs iperf3. Returns the goodput, its share of the ideal, its ratio to the rate of one path,
    /// and for several flows their fairness.
    pub(in crate::experiment) fn measure(&self, stage: &Stage<'_>) -> Result<Measured> {
        let config = stage.fabric.config();
        let _subflows = stage.subflows()?;
        let report = self.run(stage)?;
        let uplinks_mbps = config.uplink_rate_mbps * u32::from(config.spines);
        let most_mbps = uplinks_mbps.min(config.host_rate_mbps);
        let path_mbps = config.goodput_mbps(config.uplink_rate_mbps);
        let mut figures = vec![
            Figure::new("goodput", "Mb/s", report.mbps)
                .beside(f64::from(most_mbps), "line rate of all uplinks"),
            Figure::new("of the uplinks", "", report.mbps / f64::from(most_mbps)),
            Figure::new("of one path", "x", report.mbps / path_mbps),
            Figure::new("sent again", "segments", report.again),
        ];
        if self.flows > 1 {
            figures
                .push(Figure::new("Jain", "", jain(&report.flows_mbps)).beside(1.0, "all equal"));
        }
        let timeline = Timeline {
            name: "goodput",
            unit: "Mb/s",
            step_ms: STEP_MS,
            values: report.steps_mbps,
            marks: Vec::new(),
        };
        Ok(Measured { figures, timelines: vec![timeline], ..Measured::default() })
    }

    fn run(&self, stage: &Stage<'_>) -> Result<Report> {
        let target = stage.address(self.to)?;
        let port = PORT.to_string();
        let mut command = programs::command(stage, IPERF3)?;
        command.args(["-s", "-1", "-p", &port]);
        let mut server = programs::start(stage, self.to, "iperf3-server", &mut command)?;
        // The wait makes no connection to the server, because the server serves only one
        // connection.
        programs::wait_for_listener(stage, self.to, PORT, &mut server, "iperf3-server")?;
        let mut command = programs::command(stage, IPERF3)?;
        let interval = format!("{}", STEP_MS as f64 / 1e3);
        command.args(["-c", &target.to_string(), "-p", &port, "-J", "-i", &interval]);
        command.args(["-t", &self.seconds.to_string(), "-O", &OMIT_S.to_string()]);
        command.args(["-P", &self.flows.to_string()]);
        if stage.variant.mptcp_subflows() == 0 {
            command.args(["-C", stage.variant.congestion().name()]);
        }
        let limit = Duration::from_secs(self.seconds + OMIT_S) + GRACE;
        let text = programs::run_to_end(stage, self.from, "iperf3", &mut command, limit)?;
        server.wait(GRACE).context("iperf3 server")?;
        parse(&text)
    }
}

fn parse(text: &str) -> Result<Report> {
    let json: Value = serde_json::from_str(text).context("the report of iperf3")?;
    if let Some(error) = json["error"].as_str() {
        anyhow::bail!("iperf3: {error}");
    }
    let number = |value: &Value, what: &str| {
        value.as_f64().with_context(|| format!("iperf3 does not report {what}"))
    };
    let end = &json["end"];
    let streams = end["streams"].as_array().context("iperf3 reports no streams")?;
    let flow = |stream: &Value| {
        Ok(number(&stream["receiver"]["bits_per_second"], "a receiver's rate")? / 1e6)
    };
    let steps = json["intervals"].as_array().context("iperf3 reports no intervals")?;
    // The first counted interval is skipped, because it still contains a part of the omitted time.
    let counted = steps.iter().filter(|step| step["sum"]["omitted"] != true).skip(1);
    let step = |step: &Value| Ok(number(&step["sum"]["bits_per_second"], "an interval")? / 1e6);
    Ok(Report {
        mbps: number(&end["sum_received"]["bits_per_second"], "the receiver's rate")? / 1e6,
        again: end["sum_sent"]["retransmits"].as_f64().unwrap_or(0.0),
        flows_mbps: streams.iter().map(flow).collect::<Result<_>>()?,
        steps_mbps: counted.map(step).collect::<Result<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_receiver_counted_is_the_figure() {
        let text = r#"{
            "intervals": [
                {"sum": {"bits_per_second": 1e6, "omitted": true}},
                {"sum": {"bits_per_second": 2e6, "omitted": false}},
                {"sum": {"bits_per_second": 9e6, "omitted": false}}],
            "end": {
                "streams": [{"sender": {"bits_per_second": 9e9},
                             "receiver": {"bits_per_second": 7e6}}],
                "sum_sent": {"bits_per_second": 9e9, "retransmits": 3},
                "sum_received": {"bits_per_second": 8e6}}}"#;
        let expected =
            Report { mbps: 8.0, again: 3.0, flows_mbps: vec![7.0], steps_mbps: vec![9.0] };
        assert_eq!(parse(text).unwrap(), expected);
    }

    #[test]
    fn its_own_error_is_passed_on() {
        let error = parse(r#"{"error": "unable to connect"}"#).expect_err("error").to_string();
        assert_eq!(error, "iperf3: unable to connect");
        assert!(parse("{}").is_err() && parse("not json").is_err());
    }
}
