//! The status of the card as OpenMetrics text.
//!
//! The counters of `ethtool -S` have the names and the type (unknown) of exporters on EC2:
//! `node_ethtool_bw_in_allowance_exceeded{guest="web",device="ens5"}`. So dashboards and alerts for
//! EC2's limits work unchanged. All other names begin with `srd_card_`. The label is `guest`,
//! because `instance` is a label of Prometheus.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::counters::meaning;
use crate::control::protocol::{FlowLog, Instance, Interface, PeerHost, Status};

/// Counters that count every packet or byte. All other counters are counters of EC2's driver, or
/// additional counters of this project.
const PACKET_COUNTERS: [&str; 5] =
    ["tx_packets", "tx_bytes", "rx_packets", "rx_bytes", "judged_packets"];

/// Returns a status and the flow logs as OpenMetrics text.
pub(super) fn write(status: &Status, logs: &[FlowLog]) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    let figures = Arc::new((status.clone(), logs.to_vec()));
    registry.register_collector(Box::new(Figures(figures)));
    let mut written = String::new();
    text::encode(&mut written, &registry)?;
    Ok(written)
}

#[derive(Debug)]
struct Figures(Arc<(Status, Vec<FlowLog>)>);

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (status, logs) = &*self.0;
        interfaces(status, &mut encoder)?;
        drops(status, &mut encoder)?;
        for family in INSTANCE_FAMILIES {
            family.encode(status, &mut encoder)?;
        }
        flow_logs(logs, &mut encoder)?;
        hosts(status, &mut encoder)?;
        let help = "Seconds since the card began to move packets.";
        let name = "srd_card_uptime_seconds";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        let host = [("host", status.host.as_str())];
        ConstGauge::new(status.uptime_s).encode(family.encode_family(&host)?)?;
        let help = "Seconds of processor time that the card has used, without its helper process.";
        let name = "srd_card_cpu_seconds";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(status.cpu_s).encode(family.encode_family(&host)?)?;
        let help = "Seconds since these figures were written, if the thread that moves packets \
                    writes no newer ones; 0 while it does.";
        let name = "srd_card_stale_seconds";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        let stale_s = status.stale_s.unwrap_or(0.0);
        ConstGauge::new(stale_s).encode(family.encode_family(&host)?)?;
        let help = "How often packet rules of the card were put back that another program had \
                    removed or changed.";
        let name = "srd_card_packet_rules_restored";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(status.rules_restored).encode(family.encode_family(&host)?)?;
        let help = "Version of the card, and by what its rates are divided.";
        let mut family = encoder.encode_descriptor("srd_card", help, None, MetricType::Gauge)?;
        let scale = status.scale.to_string();
        let labels = [host[0], ("version", status.version.as_str()), ("scale", scale.as_str())];
        ConstGauge::new(1_u64).encode(family.encode_family(&labels)?)
    }
}

fn each(status: &Status) -> impl Iterator<Item = (&Instance, &Interface)> {
    status
        .instances
        .iter()
        .flat_map(|of| of.interfaces.iter().map(move |interface| (of, interface)))
}

/// Writes the counters of all interfaces, with one family for each name.
fn interfaces(status: &Status, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut names: Vec<&str> = Vec::new();
    for (_, interface) in each(status) {
        for (name, _) in &interface.counters {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
    }
    for counter in names {
        let is_ours = !counter.contains("allowance") && !counter.starts_with("ena_srd");
        let (name, metric) = if PACKET_COUNTERS.contains(&counter) || is_ours {
            (format!("srd_card_interface_{counter}"), MetricType::Counter)
        } else {
            (format!("node_ethtool_{counter}"), MetricType::Unknown)
        };
        let help = meaning(counter);
        let mut family = encoder.encode_descriptor(&name, &help, None, metric)?;
        for (instance, interface) in each(status) {
            let labels = [("guest", instance.name.as_str()), ("device", interface.device.as_str())];
            let found = interface.counters.iter().find(|(name, _)| name == counter);
            // Some counters exist for some kinds of devices only.
            let Some((_, value)) = found else { continue };
            let (one, value) = (family.encode_family(&labels)?, *value);
            match metric {
                MetricType::Counter => ConstCounter::new(value).encode(one)?,
                _ => ConstGauge::new(value).encode(one)?,
            }
        }
    }
    Ok(())
}

fn drops(status: &Status, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Packets dropped, by cause; those that belong to no interface have no guest.";
    let name = "srd_card_drops";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (instance, interface) in each(status) {
        for (cause, packets) in &interface.drops {
            let labels = [
                ("guest", instance.name.as_str()),
                ("device", interface.device.as_str()),
                ("cause", cause.as_str()),
            ];
            ConstCounter::new(*packets).encode(family.encode_family(&labels)?)?;
        }
    }
    for (cause, packets) in &status.drops {
        let labels = [("guest", ""), ("device", ""), ("cause", cause.as_str())];
        ConstCounter::new(*packets).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// A metric with values of each instance.
struct InstanceFamily {
    name: &'static str,
    help: &'static str,
    /// Returns the value of an instance, or one value for each direction.
    value: fn(&Instance) -> Values,
}

enum Values {
    One(u64),
    Directions([u64; 2]),
}

const INSTANCE_FAMILIES: [InstanceFamily; 6] = [
    InstanceFamily {
        name: "srd_card_credits_bits",
        help: "Credits of bandwidth that are left, in bits.",
        value: |of| Values::Directions(of.credits_bits),
    },
    InstanceFamily {
        name: "srd_card_peak_bps",
        help: "Bandwidth of each direction while credits last, bits per second.",
        value: |of| Values::One(of.bandwidth_bps[0]),
    },
    InstanceFamily {
        name: "srd_card_baseline_bps",
        help: "Bandwidth of each direction without credits, bits per second.",
        value: |of| Values::One(of.bandwidth_bps[1]),
    },
    InstanceFamily {
        name: "srd_card_packets_per_second",
        help: "Packets a second that the type allows, both directions together.",
        value: |of| Values::One(of.packets_per_second),
    },
    InstanceFamily {
        name: "srd_card_connections",
        help: "Connections that are tracked.",
        value: |of| Values::One(of.tracked.into()),
    },
    InstanceFamily {
        name: "srd_card_untracked_flows",
        help: "Flows that are remembered without being tracked.",
        value: |of| Values::One(of.untracked.into()),
    },
];

impl InstanceFamily {
    fn encode(&self, status: &Status, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut family =
            encoder.encode_descriptor(self.name, self.help, None, MetricType::Gauge)?;
        for of in &status.instances {
            let guest = ("guest", of.name.as_str());
            let kind = ("type", of.instance_type.as_str());
            match (self.value)(of) {
                Values::One(value) => {
                    ConstGauge::new(value).encode(family.encode_family(&[guest, kind])?)?;
                }
                Values::Directions(values) => {
                    for (direction, value) in ["in", "out"].into_iter().zip(values) {
                        let labels = [guest, kind, ("direction", direction)];
                        ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn flow_logs(logs: &[FlowLog], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let names = [
        ("srd_card_flow_log_records", "Records written to the flow log."),
        ("srd_card_flow_log_dropped", "Records that could not be written."),
    ];
    for (at, (name, help)) in names.into_iter().enumerate() {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for log in logs {
            let labels = [("log", log.name.as_str())];
            let value = [log.records_written, log.records_dropped][at];
            ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// Returns a counter of another host.
type HostCount = fn(&PeerHost) -> u64;

/// Returns a figure of another host; `None` if there is no value.
type HostFigure = fn(&PeerHost) -> Option<f64>;

fn hosts(status: &Status, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    if status.hosts.is_empty() {
        return Ok(());
    }
    let counters: [(&str, &str, HostCount); 6] = [
        ("sent_frames", "Frames for another host.", |of| of.sent_frames),
        ("sent_bytes", "Bytes of packets for another host.", |of| of.sent_bytes),
        ("sent_by_srd_frames", "Frames for another host that ride SRD.", |of| {
            of.sent_by_srd_frames
        }),
        ("received_frames", "Frames from another host.", |of| of.received_frames),
        ("received_bytes", "Bytes of packets from another host.", |of| of.received_bytes),
        ("received_by_srd_frames", "Frames from another host that came by SRD.", |of| {
            of.received_by_srd_frames
        }),
    ];
    for (name, help, value) in counters {
        let name = format!("srd_card_host_{name}");
        let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Counter)?;
        for of in &status.hosts {
            let labels = [("host", status.host.as_str()), ("peer", of.name.as_str())];
            ConstCounter::new(value(of)).encode(family.encode_family(&labels)?)?;
        }
    }
    let gauges: [(&str, &str, HostFigure); 4] = [
        ("up", "1 if a session with another host is up.", |of| Some(f64::from(u8::from(of.up)))),
        ("silent", "1 if another host has not answered for five seconds.", |of| {
            Some(f64::from(u8::from(of.silent)))
        }),
        ("heard_seconds", "Seconds since a frame came from another host.", |of| of.heard_s),
        ("down_seconds", "Seconds since the session with another host ended.", |of| of.down_s),
    ];
    for (name, help, value) in gauges {
        let name = format!("srd_card_host_{name}");
        let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
        for of in &status.hosts {
            let Some(value) = value(of) else { continue };
            let labels = [("host", status.host.as_str()), ("peer", of.name.as_str())];
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn status() -> Status {
        let interface = |device: &str| Interface {
            name: "web".into(),
            id: "eni-1".into(),
            device: device.into(),
            mac: String::new(),
            addresses: Vec::new(),
            counters: vec![
                ("bw_in_allowance_exceeded".into(), 3),
                ("conntrack_allowance_available".into(), 7),
                ("ena_srd_eligible_tx_pkts".into(), 4),
                ("tx_packets".into(), 5),
                ("mirrored_packets".into(), 6),
            ],
            drops: [(String::from("security groups in"), 9)].into(),
            vhost_user: None,
            gone: None,
        };
        let instance = Instance {
            name: "web \"1\"".into(),
            id: "i-1".into(),
            instance_type: "c7i.large".into(),
            namespace: None,
            worker: 0,
            interfaces: vec![interface("ens5"), interface("ens6")],
            tracked: 2,
            untracked: 1,
            credits_bits: [10, 11],
            bandwidth_bps: [12, 13],
            packets_per_second: 14,
            fragments_dropped: 0,
        };
        Status {
            host: "alpha".into(),
            scale: 100,
            internet: false,
            version: "1".into(),
            uptime_s: 1.5,
            began_unix_s: 0.0,
            cpu_s: 0.75,
            tables: crate::control::protocol::Tables::default(),
            hosts: vec![host()],
            workers: 1,
            instances: vec![instance],
            drops: [(String::from("not its host"), 8)].into(),
            internet_gone: None,
            rules_restored: 2,
            warnings: Vec::new(),
            stale_s: Some(6.25),
        }
    }

    fn host() -> PeerHost {
        PeerHost {
            name: "beta".into(),
            address: ([10, 77, 77, 2], 7535).into(),
            up: false,
            sent_frames: 20,
            sent_bytes: 21,
            sent_by_srd_frames: 19,
            received_frames: 22,
            received_bytes: 23,
            received_by_srd_frames: 18,
            heard_s: Some(6.5),
            down_s: Some(6.0),
            silent: true,
            problem: None,
        }
    }

    #[test]
    fn counters_have_the_names_of_exporters_on_ec2_and_ours_their_own() {
        let text = write(&status(), &[]).unwrap();
        let guest = r#"guest="web \"1\"""#;
        let beta = r#"host="alpha",peer="beta""#;
        let lines = [
            "# TYPE node_ethtool_bw_in_allowance_exceeded unknown".to_owned(),
            format!("node_ethtool_bw_in_allowance_exceeded{{{guest},device=\"ens6\"}} 3"),
            format!("node_ethtool_conntrack_allowance_available{{{guest},device=\"ens5\"}} 7"),
            format!("srd_card_interface_tx_packets_total{{{guest},device=\"ens5\"}} 5"),
            format!("srd_card_interface_mirrored_packets_total{{{guest},device=\"ens5\"}} 6"),
            format!(
                "srd_card_drops_total{{{guest},device=\"ens5\",cause=\"security groups in\"}} 9"
            ),
            "srd_card_drops_total{guest=\"\",device=\"\",cause=\"not its host\"} 8".to_owned(),
            format!("srd_card_credits_bits{{{guest},type=\"c7i.large\",direction=\"out\"}} 11"),
            "srd_card_uptime_seconds{host=\"alpha\"} 1.5".to_owned(),
            "srd_card_cpu_seconds_total{host=\"alpha\"} 0.75".to_owned(),
            "srd_card_stale_seconds{host=\"alpha\"} 6.25".to_owned(),
            "srd_card_packet_rules_restored_total{host=\"alpha\"} 2".to_owned(),
            format!("srd_card_host_sent_frames_total{{{beta}}} 20"),
            format!("srd_card_host_received_bytes_total{{{beta}}} 23"),
            format!("srd_card_host_up{{{beta}}} 0.0"),
            format!("srd_card_host_heard_seconds{{{beta}}} 6.5"),
            format!("srd_card_host_silent{{{beta}}} 1.0"),
        ];
        for line in lines {
            assert!(text.lines().any(|l| l == line), "`{line}` is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn regression_a_counter_that_an_interface_does_not_have_is_not_exported_as_zero() {
        let mut status = status();
        let without = &mut status.instances[0].interfaces[1].counters;
        without.retain(|(name, _)| name != "mirrored_packets");
        let text = write(&status, &[]).unwrap();
        let begin = "srd_card_interface_mirrored_packets_total{";
        let of = |device: &str| text.lines().any(|l| l.starts_with(begin) && l.contains(device));
        assert!(of("ens5") && !of("ens6"), "{text}");
    }

    #[test]
    fn the_alert_rules_name_metrics_that_are_exported() {
        let exported = write(&status(), &[]).unwrap();
        let samples = exported.lines().filter(|line| !line.starts_with('#'));
        let exported: BTreeSet<&str> =
            samples.filter_map(|line| line.split(['{', ' ']).next()).collect();
        let packaging = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
        let rules = std::fs::read_to_string(packaging.join("prometheus/srd.rules.yml")).unwrap();
        let words = rules.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let named: BTreeSet<&str> = words.filter(|word| word.starts_with("srd_card_")).collect();
        assert!(named.contains("srd_card_host_silent"), "{named:?}");
        assert!(named.is_subset(&exported), "{named:?}");
    }

    #[test]
    fn every_family_and_every_sample_is_there_once() {
        let text = write(&status(), &[]).unwrap();
        let (mut families, mut samples) = (BTreeSet::new(), BTreeSet::new());
        for line in text.lines().filter(|line| *line != "# EOF") {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                assert!(families.insert(rest.split(' ').next().unwrap()), "{line}");
            } else if !line.starts_with('#') {
                assert!(samples.insert(line.rsplit_once(' ').unwrap().0), "{line}");
            }
        }
        assert!(families.len() > 10 && samples.len() > 20);
    }
}
