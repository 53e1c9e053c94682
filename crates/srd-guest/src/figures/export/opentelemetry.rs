//! All metrics of the card in the JSON form of OTLP, the protocol of OpenTelemetry: one line for
//! each point in time, as in files of its "file exporter".
//!
//! Integers of 64 bits are texts in this form. A counter is a cumulative sum that begins with the
//! card. If a counter is new or has fallen, for example because its instance has restarted, it
//! begins at the time of the last line. Otherwise its start time stays the same: a collector takes
//! another start time for a restart, and counts the whole value once more. Prometheus has no type
//! for the counters of `ethtool -S`; [`GAUGES`] contains the names of those that are gauges.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::samples::{Family, Sample};
use crate::control::protocol::Status;

/// Prefix of the counters of `ethtool -S`, as exporters for Prometheus write them.
const OF_ETHTOOL: &str = "node_ethtool_";
/// Values of `ethtool -S` that may fall.
const GAUGES: [&str; 3] =
    ["conntrack_allowance_available", "ena_srd_mode", "ena_srd_resource_utilization"];
/// Aggregation of sums: each value is the sum since the start.
const CUMULATIVE: u8 = 2;
/// Units by the endings of names.
const UNITS: [(&str, &str); 5] =
    [("_bytes", "By"), ("_seconds", "s"), ("_bits", "bit"), ("_bps", "bit/s"), ("", "1")];

/// Name of a metric, and the labels of one of its samples.
type Key = (String, Vec<(String, String)>);

/// The cumulative sums of a line. There is one entry for each counter of the card.
#[derive(Debug)]
pub(super) struct Sums {
    /// Time of the line.
    at: Duration,
    /// Time at which the card began.
    began: Duration,
    /// Value and start time of each sum.
    sums: BTreeMap<Key, (f64, Duration)>,
}

impl Sums {
    /// Returns the sums of a line before any is added. `began`: the time at which the card began,
    /// according to its status.
    fn new(began: Duration, at: Duration, last: Option<&Self>) -> Self {
        // Another process that took the card over may have computed another time for the same
        // start.
        let began = last.map_or(began, |last| last.began).min(at);
        Self { at, began, sums: BTreeMap::new() }
    }

    /// Adds a sum, and returns its start time. `last`: the sums of the last line.
    fn add(&mut self, name: &str, sample: &Sample, last: Option<&Self>) -> Duration {
        let key = (name.to_owned(), sample.labels.clone());
        let value = sample.value.parse().unwrap_or(0.0);
        let start = match last.map(|last| (last.at, last.sums.get(&key))) {
            None => self.began,
            Some((_, Some((before, start)))) if value >= *before => *start,
            Some((at, _)) => at,
        };
        // The wall clock may have been set back since the last line.
        let start = start.min(self.at);
        self.sums.insert(key, (value, start));
        start
    }
}

/// Returns the time since 1970 at which a card began.
fn began(status: &Status, at: Duration) -> Duration {
    let seconds = |of: f64| Duration::try_from_secs_f64(of).unwrap_or_default();
    let began = seconds(status.began_unix_s);
    // A card of an earlier version sends no start time.
    if began.is_zero() { at.saturating_sub(seconds(status.uptime_s)) } else { began }
}

/// Returns the metrics of a card at a time since 1970. `last` has the sums of the last line, and
/// then those of this line.
pub(super) fn line(
    status: &Status,
    families: &[Family],
    at: Duration,
    last: &mut Option<Sums>,
) -> String {
    let began = began(status, at);
    // A card that began after the last line is another card.
    let before = last.take().filter(|last| began <= last.at);
    let mut sums = Sums::new(began, at, before.as_ref());
    let convert = |of| metric(of, &mut sums, before.as_ref());
    let metrics: Vec<Value> = families.iter().map(convert).collect();
    *last = Some(sums);
    let resource = [("service.name", "srd-card"), ("host.name", status.host.as_str())];
    json!({
        "resourceMetrics": [{
            "resource": {"attributes": attributes(resource.into_iter())},
            "scopeMetrics": [{
                "scope": {"name": "srd-card", "version": status.version},
                "metrics": metrics,
            }],
        }],
    })
    .to_string()
}

fn metric(family: &Family, sums: &mut Sums, last: Option<&Sums>) -> Value {
    let is_sum = is_sum(family);
    let convert = |sample: &Sample| {
        let start = if is_sum { sums.add(&family.name, sample, last) } else { sums.began };
        point(sample, start, sums.at)
    };
    let points: Vec<Value> = family.samples.iter().filter_map(convert).collect();
    let unit = UNITS.iter().find(|(end, _)| family.name.ends_with(end));
    let mut metric = Map::new();
    metric.insert("name".into(), family.name.clone().into());
    metric.insert("description".into(), family.help.clone().into());
    metric.insert("unit".into(), unit.map_or("1", |(_, unit)| *unit).into());
    if is_sum {
        let sum = json!({
            "dataPoints": points,
            "aggregationTemporality": CUMULATIVE,
            "isMonotonic": true,
        });
        metric.insert("sum".into(), sum);
    } else {
        metric.insert("gauge".into(), json!({"dataPoints": points}));
    }
    metric.into()
}

fn is_sum(family: &Family) -> bool {
    let of_ethtool = family.name.strip_prefix(OF_ETHTOOL);
    family.kind == "counter" || of_ethtool.is_some_and(|name| !GAUGES.contains(&name))
}

/// Returns a value with its time; `None` if the text of the value is no number.
fn point(sample: &Sample, start: Duration, at: Duration) -> Option<Value> {
    let labels = sample.labels.iter().map(|(name, value)| (&**name, &**value));
    let mut point = Map::new();
    point.insert("attributes".into(), attributes(labels));
    point.insert("startTimeUnixNano".into(), start.as_nanos().to_string().into());
    point.insert("timeUnixNano".into(), at.as_nanos().to_string().into());
    match sample.value.parse::<i64>() {
        Ok(value) => point.insert("asInt".into(), value.to_string().into()),
        Err(_) => {
            let value: f64 = sample.value.parse().ok()?;
            point.insert("asDouble".into(), serde_json::Number::from_f64(value)?.into())
        }
    };
    Some(point.into())
}

fn attributes<'a>(of: impl Iterator<Item = (&'a str, &'a str)>) -> Value {
    of.map(|(key, value)| json!({"key": key, "value": {"stringValue": value}})).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Exporter, Form};
    use super::*;
    use crate::figures::metrics::sample_status;
    use std::time::UNIX_EPOCH;

    fn exported() -> Value {
        let mut status = sample_status();
        status.uptime_s = 1.5;
        status.instances[0].name = "web \"1\"".into();
        status.instances[0].interfaces[0].counters[0].1 = u64::from(u32::MAX) + 1;
        let at = UNIX_EPOCH + Duration::from_secs(100);
        let lines = Exporter::new(Form::OpenTelemetry).lines(&status, &[], at);
        assert_eq!((lines.len(), lines[0].lines().count()), (1, 1), "one line of JSON");
        serde_json::from_str(&lines[0]).unwrap()
    }

    fn metric_named<'a>(of: &'a Value, name: &str) -> &'a Value {
        let metrics = &of["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
        let found = metrics.as_array().unwrap().iter().find(|metric| metric["name"] == name);
        found.unwrap_or_else(|| panic!("{name} is not in {of}"))
    }

    #[test]
    fn counters_are_sums_since_the_start_and_other_values_are_gauges() {
        let exported = exported();
        let metric = metric_named(&exported, "node_ethtool_bw_in_allowance_exceeded");
        let sum = &metric["sum"];
        assert_eq!(
            (&sum["isMonotonic"], &sum["aggregationTemporality"]),
            (&true.into(), &2.into())
        );
        let point = &sum["dataPoints"][0];
        assert_eq!(point["asInt"], "4294967296", "an integer of 64 bits is a text");
        assert_eq!(point["startTimeUnixNano"], "98500000000");
        assert_eq!(point["timeUnixNano"], "100000000000");
        let guest = json!({"key": "guest", "value": {"stringValue": "web \"1\""}});
        assert_eq!(point["attributes"][0], guest);
        for gauge in GAUGES {
            let metric = metric_named(&exported, &format!("{OF_ETHTOOL}{gauge}"));
            assert!(metric["gauge"]["dataPoints"][0]["asInt"].is_string(), "{metric}");
        }
        let uptime = metric_named(&exported, "srd_card_uptime_seconds");
        assert_eq!(
            (&uptime["unit"], &uptime["gauge"]["dataPoints"][0]["asDouble"]),
            (&"s".into(), &1.5.into())
        );
        let bytes = metric_named(&exported, "srd_card_interface_tx_bytes");
        assert!(bytes["sum"].is_object() && bytes["unit"] == "By", "{bytes}");
    }

    /// Start times of the counter of received bytes, and of the processor time of the card.
    fn starts(of: &Value) -> [String; 2] {
        ["srd_card_interface_rx_bytes", "srd_card_cpu_seconds"].map(|name| {
            let point = &metric_named(of, name)["sum"]["dataPoints"][0];
            point["startTimeUnixNano"].as_str().unwrap().to_owned()
        })
    }

    /// Regression: the start time was the time of the line minus the card's uptime, which is
    /// measured a moment earlier. So it was another one in each line.
    #[test]
    fn regression_a_counter_keeps_its_start_time_until_it_falls_or_the_card_restarts() {
        let mut exporter = Exporter::new(Form::OpenTelemetry);
        let mut status = sample_status();
        let mut next = |began_unix_s: f64, uptime_s: f64, [bytes, cpu]: [u64; 2], at_ms: u64| {
            (status.began_unix_s, status.uptime_s) = (began_unix_s, uptime_s);
            status.cpu_s = cpu as f64;
            let counters = &mut status.instances[0].interfaces[0].counters;
            counters.iter_mut().find(|(name, _)| name == "rx_bytes").unwrap().1 = bytes;
            let lines = exporter.lines(&status, &[], UNIX_EPOCH + Duration::from_millis(at_ms));
            starts(&serde_json::from_str(&lines[0]).unwrap())
        };
        let [first, second] = ["98500000000", "110003000000"].map(String::from);
        let both = [first.clone(), first.clone()];
        assert_eq!(next(98.5, 1.5, [7, 1], 100_001), both);
        assert_eq!(next(98.5, 11.5, [7, 2], 110_003), both);
        // The instance has restarted, and its counter with it.
        assert_eq!(next(98.5, 21.5, [6, 3], 120_000), [second.clone(), first.clone()]);
        assert_eq!(next(98.5, 31.5, [9, 3], 130_000), [second.clone(), first.clone()]);
        // Another process has taken the card over, after a correction of the wall clock.
        assert_eq!(next(98.75, 41.5, [9, 4], 140_000), [second, first]);
        let third = "145000000000".to_owned();
        assert_eq!(next(145.0, 5.0, [9, 4], 150_000), [third.clone(), third]);
        // A card of an earlier version sends no start time.
        let fourth = "152000000000".to_owned();
        assert_eq!(next(0.0, 8.0, [9, 4], 160_000), [fourth.clone(), fourth.clone()]);
        assert_eq!(next(0.0, 17.9, [9, 4], 170_000), [fourth.clone(), fourth]);
        // An instance that was absent in a line begins again.
        let instances = std::mem::take(&mut status.instances);
        exporter.lines(&status, &[], UNIX_EPOCH + Duration::from_secs(180));
        status.instances = instances;
        let lines = exporter.lines(&status, &[], UNIX_EPOCH + Duration::from_secs(190));
        let starts = starts(&serde_json::from_str(&lines[0]).unwrap());
        assert_eq!(starts, ["180000000000".to_owned(), "152000000000".to_owned()]);
    }

    /// A counter that fell, or was new, began at the time of the last line. If the wall clock had
    /// been set back, this was later than the counter's own time.
    #[test]
    fn regression_no_counter_begins_after_its_time_if_the_wall_clock_is_set_back() {
        let mut exporter = Exporter::new(Form::OpenTelemetry);
        let mut status = sample_status();
        (status.began_unix_s, status.uptime_s) = (98.5, 1.5);
        let mut next = |bytes: u64, at_s: u64| {
            let counters = &mut status.instances[0].interfaces[0].counters;
            counters.iter_mut().find(|(name, _)| name == "rx_bytes").unwrap().1 = bytes;
            let lines = exporter.lines(&status, &[], UNIX_EPOCH + Duration::from_secs(at_s));
            serde_json::from_str::<Value>(&lines[0]).unwrap()
        };
        next(7, 200);
        for (bytes, at_s) in [(6, 150), (9, 90), (9, 160)] {
            let exported = next(bytes, at_s);
            let metrics = &exported["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
            for metric in metrics.as_array().unwrap() {
                let of = if metric["sum"].is_object() { &metric["sum"] } else { &metric["gauge"] };
                for point in of["dataPoints"].as_array().unwrap() {
                    let ns = |key: &str| point[key].as_str().unwrap().parse::<u64>().unwrap();
                    let (start, at) = (ns("startTimeUnixNano"), ns("timeUnixNano"));
                    assert!(start <= at, "{start} {at} {metric}");
                }
            }
        }
    }

    #[test]
    fn each_metric_of_the_exposition_is_exported_with_its_meaning() {
        let exported = exported();
        let text = crate::figures::metrics::text(&sample_status(), &[]);
        let mut families = 0;
        for help in text.lines().filter_map(|line| line.strip_prefix("# HELP ")) {
            let (name, meaning) = help.split_once(' ').unwrap();
            let metric = metric_named(&exported, name);
            assert_eq!(metric["description"], meaning);
            families += 1;
        }
        let metrics = &exported["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
        assert_eq!(metrics.as_array().unwrap().len(), families);
        assert!(families > 45, "{families}");
    }
}
