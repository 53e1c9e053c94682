//! iperf3 between two instances, with the command lines of the talk.

use crate::experiment::measure::programs::{IPERF3, listens};
use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use srd_lab::command::program;
use srd_lab::running::Running;
use std::fs::File;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use super::cloud::{Cloud, address};

/// Time that iperf3 may take in addition to the requested duration.
const GRACE: Duration = Duration::from_secs(30);
/// Largest number of checks whether the server of iperf3 listens.
const TRIES_MAX: u32 = 100;
const TRY_EACH: Duration = Duration::from_millis(20);
const PORT: u16 = 5201;

/// Results of an iperf3 run, mostly as counted by the receiver.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Report {
    /// Rate of all flows together, in Mb/s.
    pub(super) mbps: f64,
    /// Rate of each flow, in Mb/s.
    pub(super) flows_mbps: Vec<f64>,
    /// Rate of all flows in each second, in Mb/s, as counted by the sender.
    pub(super) seconds_mbps: Vec<f64>,
    /// Number of bytes that arrived.
    pub(super) bytes: f64,
    /// Number of datagrams sent, and number of datagrams lost; zero without the option `-u`.
    pub(super) datagrams: (f64, f64),
}

/// Sends from instance `a` to instance `b` for `seconds` with the iperf3 options `words`.
pub(super) fn run(cloud: &Cloud, words: &[&str], seconds: u32) -> Result<Report> {
    let iperf = program(IPERF3.name)?;
    let iperf = iperf.to_str().context("a path that is no text")?;
    let mut server = cloud.command("b", &[iperf, "-s", "-1"])?;
    server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = Running::new(server.spawn()?, Duration::from_secs(3));
    wait_for_listener(cloud, &mut server)?;
    let out = cloud.file("iperf3.json");
    let seconds_text = seconds.to_string();
    let mut all = vec![iperf, "-J", "-c", address("b"), "-t", &seconds_text];
    all.extend_from_slice(words);
    let mut client = cloud.command("a", &all)?;
    client.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(Stdio::null());
    let client = Running::new(client.spawn()?, Duration::from_secs(3));
    client.wait(Duration::from_secs(seconds.into()) + GRACE).context("iperf3")?;
    server.wait(GRACE).context("iperf3's server")?;
    parse(&std::fs::read_to_string(out)?)
}

fn wait_for_listener(cloud: &Cloud, server: &mut Running) -> Result<()> {
    for _ in 0..TRIES_MAX {
        if let Some(status) = server.ended()? {
            bail!("iperf3's server ended with {status}");
        }
        let listens = cloud.within("b", || {
            let tables = ["tcp", "tcp6"].map(|t| format!("/proc/thread-self/net/{t}"));
            let mut tables = tables.iter().filter_map(|path| std::fs::read_to_string(path).ok());
            Ok(tables.any(|table| listens(&table, PORT)))
        })?;
        if listens {
            return Ok(());
        }
        thread::sleep(TRY_EACH);
    }
    bail!("iperf3's server does not listen")
}

fn parse(text: &str) -> Result<Report> {
    let json: Value = serde_json::from_str(text).context("the report of iperf3")?;
    if let Some(error) = json["error"].as_str() {
        bail!("iperf3: {error}");
    }
    let end = &json["end"];
    let udp = json["start"]["test_start"]["protocol"] == "UDP";
    let streams = end["streams"].as_array().context("iperf3 reports no streams")?;
    let lost = |stream: &Value| {
        let all = stream["packets"].as_f64().unwrap_or(0.0);
        (all, stream["lost_packets"].as_f64().unwrap_or(0.0))
    };
    let rate = |stream: &Value| {
        if udp {
            // The rate is the rate that the sender counted, minus the lost share.
            let (all, lost) = lost(&stream["udp"]);
            let sent = stream["udp"]["bits_per_second"].as_f64().unwrap_or(0.0);
            return if all > 0.0 { sent * (all - lost) / all / 1e6 } else { 0.0 };
        }
        stream["receiver"]["bits_per_second"].as_f64().unwrap_or(0.0) / 1e6
    };
    let flows_mbps: Vec<f64> = streams.iter().map(rate).collect();
    let steps = json["intervals"].as_array().map(Vec::as_slice).unwrap_or_default();
    let step = |step: &Value| step["sum"]["bits_per_second"].as_f64().unwrap_or(0.0) / 1e6;
    let datagrams = streams.iter().map(|stream| lost(&stream["udp"]));
    Ok(Report {
        mbps: flows_mbps.iter().sum(),
        seconds_mbps: steps.iter().map(step).collect(),
        bytes: end["sum_received"]["bytes"].as_f64().unwrap_or(0.0),
        datagrams: datagrams.fold((0.0, 0.0), |(a, b), (c, d)| (a + c, b + d)),
        flows_mbps,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrived_is_the_figure() {
        let tcp = r#"{"start": {"test_start": {"protocol": "TCP"}},
            "intervals": [{"sum": {"bits_per_second": 2e6}}],
            "end": {"streams": [{"receiver": {"bits_per_second": 3e6}},
                                {"receiver": {"bits_per_second": 4e6}}],
                    "sum_received": {"bytes": 17}}}"#;
        let report = parse(tcp).unwrap();
        assert_eq!((report.mbps, report.bytes), (7.0, 17.0));
        assert_eq!((report.flows_mbps, report.seconds_mbps), (vec![3.0, 4.0], vec![2.0]));
        let udp = r#"{"start": {"test_start": {"protocol": "UDP"}}, "intervals": [],
            "end": {"streams": [
                {"udp": {"bits_per_second": 8e6, "packets": 100, "lost_packets": 25}}]}}"#;
        let report = parse(udp).unwrap();
        assert_eq!((report.mbps, report.datagrams), (6.0, (100.0, 25.0)));
        assert_eq!(parse(r#"{"error": "no"}"#).unwrap_err().to_string(), "iperf3: no");
        assert!(parse("{}").is_err() && parse("no report").is_err());
    }
}
