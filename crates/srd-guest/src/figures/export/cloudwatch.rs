//! The counters of each interface in CloudWatch's embedded metric format (EMF), under the names
//! and dimensions with which the agent of CloudWatch exports `ethtool -S` on EC2.
//!
//! Bounds: [`METRICS_MAX`] metrics in a line, as CloudWatch allows. An interface with more counters
//! has several lines.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::control::protocol::Status;

/// Namespace in which the agent of CloudWatch exports.
pub const NAMESPACE_DEFAULT: &str = "CWAgent";
/// Largest number of characters of a namespace.
const NAMESPACE_CHARACTERS_MAX: usize = 255;
/// Largest number of metrics of a line.
const METRICS_MAX: usize = 100;
/// Prefix of the counters of `ethtool -S`.
const PREFIX: &str = "ethtool_";
/// Driver of the interfaces whose counters have these names.
const DRIVER: &str = "ena";

/// Whether CloudWatch accepts a name of a namespace. The prefix `AWS/` belongs to AWS.
pub fn is_namespace(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || ".-_/#:".contains(c);
    (1..=NAMESPACE_CHARACTERS_MAX).contains(&name.len())
        && name.chars().all(is_allowed)
        && !name.starts_with([':', '/'])
        && !name.starts_with("AWS/")
}

/// Returns the counters of all interfaces at a time since 1970.
pub(super) fn lines(namespace: &str, status: &Status, at: Duration) -> Vec<String> {
    let mut lines = Vec::new();
    for instance in &status.instances {
        for interface in &instance.interfaces {
            for counters in interface.counters.chunks(METRICS_MAX) {
                let name = |name: &str| format!("{PREFIX}{name}");
                let metrics: Vec<Value> = counters
                    .iter()
                    .map(|(counter, _)| json!({"Name": name(counter), "Unit": "None"}))
                    .collect();
                let mut line = Map::new();
                let directive = json!({
                    "Namespace": namespace,
                    "Dimensions": [["InstanceId", "interface", "driver"]],
                    "Metrics": metrics,
                });
                let about = json!({
                    "Timestamp": u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
                    "CloudWatchMetrics": [directive],
                });
                line.insert("_aws".into(), about);
                line.insert("InstanceId".into(), instance.id.clone().into());
                line.insert("interface".into(), interface.device.clone().into());
                line.insert("driver".into(), DRIVER.into());
                line.insert("host".into(), status.host.clone().into());
                line.insert("name".into(), instance.name.clone().into());
                for (counter, value) in counters {
                    line.insert(name(counter), (*value).into());
                }
                lines.push(Value::Object(line).to_string());
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::{Exporter, Form};
    use super::*;
    use crate::figures::metrics::sample_status;
    use std::time::{SystemTime, UNIX_EPOCH};

    fn exported(status: &Status, at: SystemTime) -> Vec<String> {
        let form = Form::CloudWatch { namespace: NAMESPACE_DEFAULT.into() };
        Exporter::new(form).lines(status, &[], at)
    }

    #[test]
    fn each_interface_has_the_counters_of_ethtool_under_the_names_of_the_agent() {
        let mut status = sample_status();
        status.instances[0].id = "i-1".into();
        status.instances[0].interfaces[0].counters[0].1 = 7;
        let at = UNIX_EPOCH + Duration::from_millis(1500);
        let lines = exported(&status, at);
        assert_eq!(lines.len(), 1);
        let line: Value = serde_json::from_str(&lines[0]).unwrap();
        let directive = &line["_aws"]["CloudWatchMetrics"][0];
        assert_eq!(line["_aws"]["Timestamp"], 1500);
        assert_eq!(directive["Namespace"], "CWAgent");
        // Each metric and each dimension that is named has a value in the line.
        let metrics = directive["Metrics"].as_array().unwrap();
        assert_eq!(metrics.len(), status.instances[0].interfaces[0].counters.len());
        assert!(metrics.iter().all(|of| line[of["Name"].as_str().unwrap()].is_u64()), "{line}");
        let dimensions = directive["Dimensions"][0].as_array().unwrap();
        assert!(dimensions.iter().all(|of| line[of.as_str().unwrap()].is_string()), "{line}");
        assert_eq!(line["ethtool_bw_in_allowance_exceeded"], 7);
        assert_eq!((&line["InstanceId"], &line["interface"]), (&"i-1".into(), &"DEVICE".into()));
    }

    #[test]
    fn an_interface_with_more_counters_than_a_line_may_have_gets_another_line() {
        let mut status = sample_status();
        let counters = (0..=METRICS_MAX).map(|n| (format!("queue_{n}_tx_cnt"), 1)).collect();
        status.instances[0].interfaces[0].counters = counters;
        let lines = exported(&status, UNIX_EPOCH);
        let metrics = |line: &String| -> usize {
            let line: Value = serde_json::from_str(line).unwrap();
            line["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array().unwrap().len()
        };
        assert_eq!(lines.iter().map(metrics).collect::<Vec<_>>(), [METRICS_MAX, 1]);
    }

    #[test]
    fn namespaces_are_those_that_cloudwatch_accepts() {
        assert!(["CWAgent", "a/b", "srd:card#1", "x.y-z_"].into_iter().all(is_namespace));
        let long = "n".repeat(256);
        let refused = ["", "AWS/EC2", ":a", "/a", "a b", "a\"b", "ü", &long];
        assert!(!refused.into_iter().any(is_namespace));
    }
}
