//! Result of a measurement, as text and as JSON.

use super::intervals::Interval;
use super::params::{Params, ServerResult};
use crate::units;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Duration;

/// Longest round trip that is recorded, in nanoseconds; a longer round trip is recorded as this
/// time.
const RTT_MAX_NS: u64 = 60_000_000_000;

/// Percentiles of the round trips, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct RttUs {
    p50: f64,
    p99: f64,
    p999: f64,
    p9999: f64,
    max: f64,
}

/// CPU time of each end, in seconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct CpuSeconds {
    client: f64,
    server: f64,
}

/// Parameters of the measurement, as the user gave them.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct ConfigEcho {
    pub(super) host: String,
    #[serde(flatten)]
    pub(super) params: Params,
}

/// Results that the client measured.
#[derive(Clone, Debug)]
pub(super) struct ClientResult {
    /// Payload bytes: in bulk mode the sent bytes, in rr mode the bytes of both directions.
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) cpu_s: f64,
    /// Share of the data packets that were retransmissions; `None` for UDP, which never
    /// retransmits.
    pub(super) retransmitted_share: Option<f64>,
    /// Round trips in rr mode; `None` in bulk mode.
    pub(super) rtt: Option<Rtt>,
    pub(super) intervals: Vec<Interval>,
}

/// Report on a measurement.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    /// Payload rate in Gbit/s: at the receiver (bulk), or of both directions (rr).
    gbps: f64,
    /// Round trips of the requests in rr mode; null in bulk mode.
    rtt_us: Option<RttUs>,
    /// Share of the data packets that were retransmissions; null for UDP, which never retransmits.
    retransmitted_share: Option<f64>,
    /// CPU time of both ends together, in seconds for each GB of payload.
    cpu_s_per_gb: f64,
    cpu_s: CpuSeconds,
    bytes: u64,
    seconds: f64,
    /// Share of the sent bytes that did not arrive; null except for UDP in bulk mode.
    lost_share: Option<f64>,
    requests: Option<u64>,
    /// Threads of the server that sent and received packets; null except for SRD.
    server_workers: Option<u8>,
    intervals: Vec<Interval>,
    config: ConfigEcho,
}

/// Histogram of round trips, in constant memory.
#[derive(Clone, Debug)]
pub(super) struct Rtt {
    histogram: Histogram<u64>,
}

impl Rtt {
    pub(super) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, RTT_MAX_NS, 3);
        Self { histogram: histogram.expect("constant bounds that the histogram accepts") }
    }

    pub(super) fn record(&mut self, took: Duration) {
        self.histogram.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(RTT_MAX_NS));
    }

    pub(super) fn count(&self) -> u64 {
        self.histogram.len()
    }

    fn percentiles(&self) -> RttUs {
        let at = |quantile| self.histogram.value_at_quantile(quantile) as f64 / 1e3;
        let max = self.histogram.max() as f64 / 1e3;
        RttUs { p50: at(0.5), p99: at(0.99), p999: at(0.999), p9999: at(0.9999), max }
    }
}

impl Report {
    /// Returns the report, from the results of the two ends.
    pub(super) fn new(config: ConfigEcho, client: ClientResult, server: ServerResult) -> Self {
        let rr = client.rtt.is_some();
        let (bytes, seconds) =
            if rr { (client.bytes, client.seconds) } else { (server.bytes, server.seconds) };
        let never_repeats = config.params.transport == super::Transport::Udp;
        let lost = 1.0 - server.bytes as f64 / client.bytes.max(1) as f64;
        Self {
            gbps: bytes as f64 * 8.0 / 1e9 / seconds.max(1e-9),
            rtt_us: client.rtt.as_ref().map(Rtt::percentiles),
            retransmitted_share: client.retransmitted_share,
            cpu_s_per_gb: (client.cpu_s + server.cpu_s) * 1e9 / bytes.max(1) as f64,
            cpu_s: CpuSeconds { client: client.cpu_s, server: server.cpu_s },
            bytes,
            seconds,
            lost_share: (never_repeats && !rr).then_some(lost.max(0.0)),
            requests: client.rtt.as_ref().map(Rtt::count),
            server_workers: (config.params.transport == super::Transport::Srd)
                .then_some(server.workers),
            intervals: client.intervals,
            config,
        }
    }

    /// Returns the lines of text that follow the lines of the intervals.
    pub(super) fn summary(&self) -> String {
        let mut text = String::new();
        if let Some(rtt) = &self.rtt_us {
            text += &format!(
                "round trips: {}, p50 {:.1} us, p99 {:.1}, p99.9 {:.1}, p99.99 {:.1}, max {:.1}\n",
                self.requests.unwrap_or(0),
                rtt.p50,
                rtt.p99,
                rtt.p999,
                rtt.p9999,
                rtt.max
            );
        } else {
            text += &format!(
                "received: {} in {:.2} s, {}\n",
                units::bytes(self.bytes),
                self.seconds,
                units::rate(self.gbps * 1e9)
            );
        }
        let CpuSeconds { client, server } = self.cpu_s;
        if self.rtt_us.is_some() {
            text += &format!("CPU: client {client:.2} s, server {server:.2} s");
        } else {
            text += &format!(
                "CPU: {:.3} s per GB (client {client:.2} s, server {server:.2} s)",
                self.cpu_s_per_gb
            );
        }
        if let Some(share) = self.retransmitted_share {
            text += &format!("\nretransmitted: {:.3} %", share * 100.0);
        }
        if let Some(share) = self.lost_share {
            text += &format!("\nlost: {:.3} %", share * 100.0);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::params::{Mode, Protection, Transport};

    fn config(transport: Transport, mode: Mode) -> ConfigEcho {
        let params = Params {
            transport,
            mode,
            size_bytes: 64,
            time_ms: 1000,
            streams: 1,
            paths: 8,
            protection: Protection::Plain,
            busy_poll: false,
            link_rate_bps: 0,
            workers: 1,
        };
        ConfigEcho { host: "h".into(), params }
    }

    fn client(rtt: Option<Rtt>) -> ClientResult {
        ClientResult {
            bytes: 2_000_000_000,
            seconds: 2.0,
            cpu_s: 1.0,
            retransmitted_share: None,
            rtt,
            intervals: Vec::new(),
        }
    }

    #[test]
    fn bulk_is_what_arrived_and_cpu_is_of_both_ends() {
        let server = ServerResult {
            bytes: 1_000_000_000,
            seconds: 1.0,
            cpu_s: 2.0,
            workers: 1,
            unauthentic: 0,
        };
        let report = Report::new(config(Transport::Udp, Mode::Bulk), client(None), server);
        assert!((report.gbps - 8.0).abs() < 1e-9);
        assert!((report.cpu_s_per_gb - 3.0).abs() < 1e-9);
        assert_eq!(report.lost_share, Some(0.5));
        let json = serde_json::to_value(&report).unwrap();
        assert!(json["rtt_us"].is_null() && json["config"]["transport"] == "udp");
    }

    #[test]
    fn round_trips_have_percentiles_under_the_promised_names() {
        let mut rtt = Rtt::new();
        (1..=10_000).for_each(|us| rtt.record(Duration::from_micros(us)));
        let mode = Mode::RequestResponse;
        let report =
            Report::new(config(Transport::Srd, mode), client(Some(rtt)), ServerResult::default());
        let json = serde_json::to_value(&report).unwrap();
        for (name, us) in
            [("p50", 5e3), ("p99", 9.9e3), ("p999", 9.99e3), ("p9999", 9.999e3), ("max", 1e4)]
        {
            let seen = json["rtt_us"][name].as_f64().unwrap();
            assert!((seen / us - 1.0).abs() < 0.002, "{name} {seen}");
        }
        assert_eq!(json["config"]["mode"], "rr");
    }
}
