//! Writes a snapshot as OpenMetrics text.
//!
//! The five counters of the ENA driver have the names that existing exporters use for ENA, and also
//! their type (unknown): `node_ethtool_ena_srd_tx_pkts{device="srd0"}`. Therefore dashboards and
//! alerts for ENA Express work without changes. The other metrics are `srd_*{device}`,
//! `srd_peer_*{device,peer}` and `srd_path_*{device,peer,path}`.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::EncodeMetric;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::sync::Arc;

pub(super) use srd_http::exposition::CONTENT_TYPE;

use crate::snapshot::{
    ControllerSnapshot, ControllerState, Counter, ExpressState, Kind, PathSnapshot, PeerSnapshot,
    PeerState, Snapshot,
};

/// Number of counters of the ENA driver, which are the first in the list of counters.
const DRIVER_COUNTERS: usize = 5;

/// Writes a snapshot as OpenMetrics text.
pub(super) fn write(snapshot: Arc<Snapshot>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Figures(snapshot)));
    let mut written = String::new();
    text::encode(&mut written, &registry)?;
    Ok(written)
}

/// Writes for each part of a node whether it has answered, as OpenMetrics text.
pub(super) fn write_parts(parts: &[(&str, bool)]) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    let parts = parts.iter().map(|(name, has_answered)| ((*name).to_owned(), *has_answered));
    registry.register_collector(Box::new(Parts(parts.collect())));
    let mut written = String::new();
    text::encode(&mut written, &registry)?;
    Ok(written)
}

/// The parts of a node, and whether each has answered.
#[derive(Debug)]
struct Parts(Vec<(String, bool)>);

impl Collector for Parts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Whether this part of a node with instances has answered; if it has not, its \
                    metrics are absent.";
        let name = "srd_metrics_up";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (part, has_answered) in &self.0 {
            let labels = [("part", part.as_str())];
            ConstGauge::new(truth(*has_answered)).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Figures(Arc<Snapshot>);

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let snapshot = &*self.0;
        interface(snapshot, &mut encoder)?;
        for family in PEER_FAMILIES {
            family.encode(snapshot, &mut encoder)?;
        }
        for family in PATH_FAMILIES {
            family.encode(snapshot, &mut encoder)?;
        }
        problems(snapshot, &mut encoder)?;
        controller(snapshot, &mut encoder)
    }
}

/// Writes the connection to the controller, if this host has enrolled at one.
fn controller(snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let Some(controller) = &snapshot.controller else { return Ok(()) };
    let labels =
        [("device", snapshot.interface.as_str()), ("controller", controller.address.as_str())];
    let mut write = |name: &str, help: &str, value: f64| {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(value).encode(family.encode_family(&labels)?)
    };
    let is_connected = truth(controller.state == ControllerState::Connected);
    write("srd_controller_connected", "Whether the controller answers this host.", is_connected)?;
    let help = "Generation of the peers that this host has from its controller.";
    write("srd_controller_generation", help, controller.generation as f64)?;
    if let Some(seconds) = controller.last_contact_s {
        let help = "Seconds since the last message of the controller; absent before the first.";
        write("srd_controller_last_contact_seconds", help, seconds)?;
    }
    let Some(problem) = &controller.problem else { return Ok(()) };
    let help = "Why the host is not connected to its controller; absent if it is connected.";
    let name = "srd_controller_problem";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    let labels = [labels[0], labels[1], ("problem", problem.as_str())];
    ConstGauge::new(1_u64).encode(family.encode_family(&labels)?)
}

/// Writes the reason why a peer does not answer: one sample for each peer with a known reason.
fn problems(snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Why the peer does not answer, as far as known; absent if it answers.";
    let name = "srd_peer_problem";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for peer in &snapshot.peers {
        let Some(problem) = &peer.problem else { continue };
        let labels = [
            ("device", snapshot.interface.as_str()),
            ("peer", peer.name.as_str()),
            ("problem", problem.as_str()),
        ];
        ConstGauge::new(1_u64).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn interface(snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let device = [("device", snapshot.interface.as_str())];
    for (at, counter) in snapshot.counters.all().into_iter().enumerate() {
        let Counter { name, help, kind, value } = counter;
        let (name, metric) = match kind {
            _ if at < DRIVER_COUNTERS => (format!("node_ethtool_{name}"), MetricType::Unknown),
            Kind::Counter => (format!("srd_{name}"), MetricType::Counter),
            Kind::Gauge => (format!("srd_{name}"), MetricType::Gauge),
        };
        let mut family = encoder.encode_descriptor(&name, help, None, metric)?;
        let one = family.encode_family(&device)?;
        match metric {
            MetricType::Counter => ConstCounter::new(value).encode(one)?,
            _ => ConstGauge::new(value).encode(one)?,
        }
    }
    let help = "Packets dropped, by reason.";
    let mut family = encoder.encode_descriptor("srd_drops", help, None, MetricType::Counter)?;
    for (reason, count) in &snapshot.drops {
        let labels = [("device", snapshot.interface.as_str()), ("reason", reason.as_str())];
        ConstCounter::new(*count).encode(family.encode_family(&labels)?)?;
    }
    let help = "Seconds since the daemon began to move packets.";
    let name = "srd_uptime_seconds";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(snapshot.uptime_s).encode(family.encode_family(&device)?)?;
    let help = "Version of the daemon.";
    let mut family = encoder.encode_descriptor("srd_build", help, None, MetricType::Gauge)?;
    let labels = [device[0], ("version", snapshot.version.as_str())];
    ConstGauge::new(1_u64).encode(family.encode_family(&labels)?)
}

/// A metric with one value for each peer.
struct PeerFamily {
    name: &'static str,
    help: &'static str,
    value: Value<PeerSnapshot>,
}

/// A metric with one value for each path.
struct PathFamily {
    name: &'static str,
    help: &'static str,
    value: Value<PathSnapshot>,
}

enum Value<T> {
    Counter(fn(&T) -> u64),
    Gauge(fn(&T) -> f64),
}

impl<T> Value<T> {
    fn metric(&self) -> MetricType {
        match self {
            Self::Counter(_) => MetricType::Counter,
            Self::Gauge(_) => MetricType::Gauge,
        }
    }
}

const fn count(
    name: &'static str,
    help: &'static str,
    value: fn(&PeerSnapshot) -> u64,
) -> PeerFamily {
    PeerFamily { name, help, value: Value::Counter(value) }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    value: fn(&PeerSnapshot) -> f64,
) -> PeerFamily {
    PeerFamily { name, help, value: Value::Gauge(value) }
}

const PEER_FAMILIES: [PeerFamily; 27] = [
    gauge("srd_peer_up", "Whether the peer answers.", |p| truth(p.state == PeerState::Up)),
    gauge("srd_peer_express", "Whether packets to the peer ride SRD.", |p| {
        truth(p.express == ExpressState::On)
    }),
    gauge("srd_peer_rtt_seconds", "Smoothed round trip.", |p| p.rtt_us / 1e6),
    gauge("srd_peer_queue_delay_seconds", "Median queueing delay over paths.", |p| {
        p.queue_delay_us / 1e6
    }),
    gauge("srd_peer_window_bytes", "Congestion window.", |p| p.window_bytes as f64),
    gauge("srd_peer_in_flight_bytes", "Bytes in flight.", |p| p.in_flight_bytes as f64),
    gauge("srd_peer_queue_bytes", "Inner bytes that wait.", |p| p.queue_bytes as f64),
    gauge("srd_peer_delivery_rate_bps", "Delivery rate, bits per second.", |p| {
        p.delivery_rate_bps as f64
    }),
    gauge("srd_peer_paths_passing", "Paths that pass packets; 0: the peer does not answer.", |p| {
        p.paths.passing.into()
    }),
    gauge("srd_peer_paths_good", "Paths that nothing speaks against.", |p| p.paths.good.into()),
    gauge("srd_peer_paths_skip", "Paths skipped for a while.", |p| p.paths.skip.into()),
    gauge("srd_peer_paths_assumed_bad", "Paths held to be broken.", |p| p.paths.assumed_bad.into()),
    gauge("srd_peer_paths_denied", "Paths denied by hand.", |p| p.paths.denied.into()),
    gauge("srd_peer_tx_bps", "Inner bits per second to the peer.", |p| p.tx_bps as f64),
    gauge("srd_peer_rx_bps", "Inner bits per second from the peer.", |p| p.rx_bps as f64),
    count("srd_peer_srd_tx_pkts", "Inner packets sent over SRD.", |p| p.srd_tx_pkts),
    count("srd_peer_srd_tx_bytes", "Inner bytes sent over SRD.", |p| p.srd_tx_bytes),
    count("srd_peer_srd_rx_pkts", "Inner packets received over SRD.", |p| p.srd_rx_pkts),
    count("srd_peer_srd_rx_bytes", "Inner bytes received over SRD.", |p| p.srd_rx_bytes),
    count("srd_peer_plain_tx_pkts", "Inner packets sent without SRD.", |p| p.plain_tx_pkts),
    count("srd_peer_plain_rx_pkts", "Inner packets received without SRD.", |p| p.plain_rx_pkts),
    count("srd_peer_plain_tx_bytes", "Inner bytes sent without SRD.", |p| p.plain_tx_bytes),
    count("srd_peer_plain_rx_bytes", "Inner bytes received without SRD.", |p| p.plain_rx_bytes),
    count("srd_peer_retransmissions", "Data packets sent again.", |p| p.retransmissions),
    count(
        "srd_peer_queue_drops",
        "Inner packets dropped at the queue: it was full, or they had waited too long.",
        |p| p.queue_drops,
    ),
    count("srd_peer_refused_pkts", "Inner packets refused by their source address.", |p| {
        p.refused_pkts
    }),
    count("srd_peer_handshakes", "Handshakes that ended with a session.", |p| p.handshakes),
];

const PATH_FAMILIES: [PathFamily; 4] = [
    PathFamily {
        name: "srd_path_good",
        help: "Whether the path carries packets.",
        value: Value::Gauge(|p| truth(p.state == "good")),
    },
    PathFamily {
        name: "srd_path_delay_seconds",
        help: "Last queueing delay of the path.",
        value: Value::Gauge(|p| p.delay_us / 1e6),
    },
    PathFamily {
        name: "srd_path_sent_pkts",
        help: "Packets sent on the path.",
        value: Value::Counter(|p| p.sent_pkts),
    },
    PathFamily {
        name: "srd_path_lost_pkts",
        help: "Packets lost on the path.",
        value: Value::Counter(|p| p.lost_pkts),
    },
];

fn truth(is: bool) -> f64 {
    if is { 1.0 } else { 0.0 }
}

impl PeerFamily {
    fn encode(&self, snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let metric = self.value.metric();
        let mut family = encoder.encode_descriptor(self.name, self.help, None, metric)?;
        for peer in &snapshot.peers {
            let labels = [("device", snapshot.interface.as_str()), ("peer", peer.name.as_str())];
            let one = family.encode_family(&labels)?;
            match self.value {
                Value::Counter(of) => ConstCounter::new(of(peer)).encode(one)?,
                Value::Gauge(of) => ConstGauge::new(of(peer)).encode(one)?,
            }
        }
        Ok(())
    }
}

impl PathFamily {
    fn encode(&self, snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let metric = self.value.metric();
        let mut family = encoder.encode_descriptor(self.name, self.help, None, metric)?;
        for peer in &snapshot.peers {
            for path in &peer.path_reports {
                let number = path.path.to_string();
                let labels = [
                    ("device", snapshot.interface.as_str()),
                    ("peer", peer.name.as_str()),
                    ("path", number.as_str()),
                ];
                let one = family.encode_family(&labels)?;
                match self.value {
                    Value::Counter(of) => ConstCounter::new(of(path)).encode(one)?,
                    Value::Gauge(of) => ConstGauge::new(of(path)).encode(one)?,
                }
            }
        }
        Ok(())
    }
}

/// Returns the metrics of a node with one peer and one path, without those of its instances, as
/// OpenMetrics text: every metric with its meaning, type and labels. All values are zero.
///
/// # Panics
/// Never: writing to a text in memory cannot fail.
pub fn sample() -> String {
    let peer = PeerSnapshot {
        name: "PEER".into(),
        problem: Some("PROBLEM".into()),
        path_reports: vec![PathSnapshot::default()],
        ..PeerSnapshot::default()
    };
    let snapshot = Snapshot {
        version: env!("CARGO_PKG_VERSION").into(),
        interface: "DEVICE".into(),
        drops: [("REASON".into(), 0)].into(),
        peers: vec![peer],
        controller: Some(ControllerSnapshot {
            address: "CONTROLLER".into(),
            last_contact_s: Some(0.0),
            problem: Some("PROBLEM".into()),
            ..ControllerSnapshot::default()
        }),
        ..Snapshot::default()
    };
    let written = write(Arc::new(snapshot)).expect("a text in memory can be written");
    let parts = write_parts(&[("PART", false)]).expect("a text in memory can be written");
    srd_http::exposition::joined(&written, &parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_plane::snapshot;
    use crate::plane::{Detail, PathsOf};
    use std::collections::BTreeSet;

    fn text() -> String {
        let detail = Detail { paths: PathsOf::Everybody, flows_max: 0 };
        write(Arc::new(snapshot(7, &detail))).unwrap()
    }

    #[test]
    fn names_are_those_of_exporters_for_ena_and_ours() {
        let text = text();
        let lines = [
            "# TYPE node_ethtool_ena_srd_tx_pkts unknown",
            "node_ethtool_ena_srd_mode{device=\"srd0\"} 3",
            "node_ethtool_ena_srd_tx_pkts{device=\"srd0\"} 7000",
            "srd_drops_total{device=\"srd0\",reason=\"malformed\"} 2",
            "srd_peer_up{device=\"srd0\",peer=\"b\"} 1.0",
            "srd_peer_up{device=\"srd0\",peer=\"c\"} 0.0",
            "srd_peer_problem{device=\"srd0\",peer=\"c\",problem=\"port-closed\"} 1",
            "srd_peer_srd_tx_pkts_total{device=\"srd0\",peer=\"b\"} 7000",
            "srd_path_sent_pkts_total{device=\"srd0\",peer=\"b\",path=\"1\"} 35",
            "srd_path_good{device=\"srd0\",peer=\"b\",path=\"7\"} 0.0",
            "srd_controller_connected{device=\"srd0\",controller=\"192.0.2.9:4600\"} 0.0",
            "srd_controller_generation{device=\"srd0\",controller=\"192.0.2.9:4600\"} 7.0",
            "srd_controller_problem{device=\"srd0\",controller=\"192.0.2.9:4600\",\
             problem=\"other-controller\"} 1",
        ];
        for line in lines {
            assert!(text.lines().any(|l| l == line), "`{line}` is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    /// Returns the names of our metrics that a text mentions. Names of metrics of a card are left
    /// out: a test of `srd-guest` checks them.
    fn mentioned(text: &str) -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let ours = |w: &&str| {
            (w.starts_with("srd_") && !w.starts_with("srd_card_"))
                || w.starts_with("node_ethtool_ena_srd_")
        };
        words.filter(ours).map(str::to_owned).collect()
    }

    #[test]
    fn the_dashboard_and_the_alert_rules_name_metrics_that_are_exported() {
        let exported = text();
        let exported: BTreeSet<&str> = exported
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split(['{', ' ']).next())
            .collect();
        let packaging = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
        let read = |file: &str| std::fs::read_to_string(packaging.join(file)).unwrap();
        let dashboard: serde_json::Value = serde_json::from_str(&read("grafana/srd.json")).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
        let asked: String = targets.map(|t| format!("{} ", t["expr"].as_str().unwrap())).collect();
        let variables = dashboard["templating"].to_string();
        let rules = read("prometheus/srd.rules.yml");
        // Comments are skipped: they contain the names of the file and of the job, which look like
        // metrics.
        let rules: String = rules.lines().filter(|l| !l.starts_with('#')).collect();
        for (from, least) in [(asked, 20), (variables, 2), (rules, 8)] {
            let names = mentioned(&from);
            assert!(names.len() >= least, "{names:?}");
            for name in names {
                assert!(exported.contains(name.as_str()), "{name} is not exported");
            }
        }
    }

    #[test]
    fn every_family_is_there_once_and_every_sample_belongs_to_the_one_before() {
        let (mut families, mut samples) = (BTreeSet::new(), BTreeSet::new());
        let mut current = String::new();
        for line in text().lines().filter(|l| !l.starts_with("# HELP") && *l != "# EOF") {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                current = rest.split(' ').next().unwrap().to_owned();
                assert!(families.insert(current.clone()), "{current} is there twice");
            } else {
                let (sample, value) = line.rsplit_once(' ').unwrap();
                assert!(value.parse::<f64>().unwrap().is_finite(), "{line}");
                assert!(sample.starts_with(&current), "{line} is not of {current}");
                assert!(samples.insert(sample.to_owned()), "{sample} is there twice");
            }
        }
        assert!(families.len() > 60 && samples.len() > 150);
    }
}
