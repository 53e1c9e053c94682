//! All metrics of the card in the JSON form of OTLP, the protocol of OpenTelemetry: one line for
//! each point in time, as in files of its "file exporter".
//!
//! Integers of 64 bits are texts in this form. A counter is a cumulative sum that begins with the
//! card. Prometheus has no type for the counters of `ethtool -S`; [`GAUGES`] contains the names of
//! those that are gauges.

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

/// Returns the metrics of a card at a time since 1970.
pub(super) fn line(status: &Status, families: &[Family], at: Duration) -> String {
    let up = Duration::try_from_secs_f64(status.uptime_s).unwrap_or_default();
    let began = at.saturating_sub(up);
    let metrics: Vec<Value> = families.iter().map(|of| metric(of, began, at)).collect();
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

fn metric(family: &Family, began: Duration, at: Duration) -> Value {
    let points: Vec<Value> =
        family.samples.iter().filter_map(|sample| point(sample, began, at)).collect();
    let unit = UNITS.iter().find(|(end, _)| family.name.ends_with(end));
    let mut metric = Map::new();
    metric.insert("name".into(), family.name.clone().into());
    metric.insert("description".into(), family.help.clone().into());
    metric.insert("unit".into(), unit.map_or("1", |(_, unit)| *unit).into());
    if is_sum(family) {
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
fn point(sample: &Sample, began: Duration, at: Duration) -> Option<Value> {
    let labels = sample.labels.iter().map(|(name, value)| (&**name, &**value));
    let mut point = Map::new();
    point.insert("attributes".into(), attributes(labels));
    point.insert("startTimeUnixNano".into(), began.as_nanos().to_string().into());
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
    use super::super::{Form, lines};
    use super::*;
    use crate::figures::metrics::sample_status;
    use std::time::UNIX_EPOCH;

    fn exported() -> Value {
        let mut status = sample_status();
        status.uptime_s = 1.5;
        status.instances[0].name = "web \"1\"".into();
        status.instances[0].interfaces[0].counters[0].1 = u64::from(u32::MAX) + 1;
        let at = UNIX_EPOCH + Duration::from_secs(100);
        let lines = lines(&Form::OpenTelemetry, &status, &[], at);
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
