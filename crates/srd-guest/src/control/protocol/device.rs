//! The device of an interface: its queues, rings, steering and interrupts, and changes of them.
//!
//! An n-tuple rule has the syntax of `ethtool -N`: `tcp4 dst-port 22 action 1 loc 0`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::NamespaceName;

/// Settings of a device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeviceSettings {
    /// Number of queue pairs.
    pub queues: u16,
    /// Maximum number of packets that wait in a queue for the card.
    pub tx_ring: u32,
    /// Maximum number of packets that wait in a queue for the instance while interrupts are
    /// delayed.
    pub rx_ring: u32,
    /// The key of the RSS hash, as bytes in hexadecimal; `None`: the adapter's default key.
    pub rss_key: Option<String>,
    /// The index of the queue in each entry of the RSS indirection table.
    pub rss_table: Vec<u16>,
    /// Whether the user has set the indirection table. Otherwise it adapts to the number of queues.
    pub rss_table_is_set: bool,
    /// Delay of the interrupt after a packet for the instance, in microseconds.
    pub rx_usecs: u32,
    /// Whether the delay of interrupts adapts to the traffic, in place of `rx_usecs`.
    pub adaptive_rx: bool,
}

/// A change of a device. A field that is `None` or empty changes nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceChange {
    /// New number of queue pairs.
    pub queues: Option<u16>,
    /// New number of entries of each ring for packets from the instance.
    pub tx_ring: Option<u32>,
    /// New number of entries of each ring for packets to the instance.
    pub rx_ring: Option<u32>,
    /// New contents of the indirection table.
    pub rss: Option<RssTable>,
    /// New key of the RSS hash: 40 bytes in hexadecimal with colons, or `default`.
    pub rss_key: Option<String>,
    /// Locations of n-tuple rules that are removed before rules are added.
    pub delete_rules: Vec<u32>,
    /// N-tuple rules that are added, each at its location.
    pub rules: Vec<DeviceRule>,
    /// New delay of the interrupt after a packet for the instance, in microseconds.
    pub rx_usecs: Option<u32>,
    /// Whether the delay of interrupts shall adapt to the traffic, in place of `rx_usecs`.
    pub adaptive_rx: Option<bool>,
}

/// Contents of the indirection table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RssTable {
    /// The first queues, in turn. The value is the number of these queues.
    Equal(u16),
    /// Queues from 0 on, in proportion to these weights.
    Weights(Vec<u32>),
    /// All queues in turn, even after their number has changed.
    Default,
}

/// The settings and rules of an interface's device, for `srd card set`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeviceReport {
    /// The name of the instance.
    pub instance: String,
    /// The type of the instance.
    pub instance_type: String,
    /// The network namespace of the instance.
    pub namespace: Option<NamespaceName>,
    /// The device in the namespace.
    pub device: String,
    /// The present name of the device, if the instance has renamed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renamed: Option<String>,
    /// Maximum number of queue pairs of an interface of this instance type.
    pub queues_max: u16,
    /// The settings of the device.
    pub settings: DeviceSettings,
    /// The n-tuple rules of the device, sorted by location. They have priority over the RSS hash.
    pub rules: Vec<DeviceRule>,
    /// Number of entries for n-tuple rules, which all interfaces of the instance share; 0 if the
    /// instance type does not support such rules.
    pub rule_places: u32,
}

/// An n-tuple rule, which selects the queue of matching packets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeviceRule {
    /// The kind of packets that the rule matches: tcp4, udp4, tcp6, udp6, ip4 or ip6.
    pub flow_type: String,
    /// The block of source addresses, like 10.0.0.0/24; `None`: all addresses.
    pub source: Option<String>,
    /// The block of destination addresses; `None`: all addresses.
    pub destination: Option<String>,
    /// The source port; `None`: all ports.
    pub source_port: Option<u16>,
    /// The destination port; `None`: all ports.
    pub destination_port: Option<u16>,
    /// The index of the queue of matching packets.
    pub queue: u16,
    /// The location of the rule in the table. Rules with smaller locations are evaluated first. A
    /// rule without a location (`None`) is refused.
    pub location: Option<u32>,
}

/// The kinds of packets that n-tuple rules can match.
pub(crate) const FLOW_TYPES: [&str; 6] = ["tcp4", "udp4", "tcp6", "udp6", "ip4", "ip6"];

impl FromStr for DeviceRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace().peekable();
        words.next_if_eq(&"flow-type");
        let flow_type = words.next().unwrap_or_default();
        if !FLOW_TYPES.contains(&flow_type) {
            return Err(format!(
                "a rule begins with its flow type, {}: `tcp4 dst-port 22 action 1 loc 0`",
                FLOW_TYPES.join(", ")
            ));
        }
        let mut rule = Self {
            flow_type: flow_type.to_owned(),
            source: None,
            destination: None,
            source_port: None,
            destination_port: None,
            queue: 0,
            location: None,
        };
        let mut action = None;
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(|| format!("`{word}` needs a value"))?;
            let bad = |_| format!("`{word} {value}`: {value} is no number that it can have");
            match word {
                "src-ip" => rule.source = Some(value.to_owned()),
                "dst-ip" => rule.destination = Some(value.to_owned()),
                "src-port" => rule.source_port = Some(value.parse().map_err(bad)?),
                "dst-port" => rule.destination_port = Some(value.parse().map_err(bad)?),
                "action" => action = Some(value.parse().map_err(bad)?),
                "loc" => rule.location = Some(value.parse().map_err(bad)?),
                _ => {
                    return Err(format!(
                        "`{word}` is no word of a rule: src-ip, dst-ip, src-port, dst-port, \
                         action, loc"
                    ));
                }
            }
        }
        rule.queue = action.ok_or("the rule has no queue; add `action N`")?;
        Ok(rule)
    }
}

impl fmt::Display for DeviceRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.flow_type)?;
        for (word, value) in [("src-ip", &self.source), ("dst-ip", &self.destination)] {
            if let Some(value) = value {
                write!(f, " {word} {value}")?;
            }
        }
        let ports = [("src-port", self.source_port), ("dst-port", self.destination_port)];
        for (word, port) in ports {
            if let Some(port) = port {
                write!(f, " {word} {port}")?;
            }
        }
        write!(f, " action {}", self.queue)?;
        self.location.map_or(Ok(()), |location| write!(f, " loc {location}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_written_and_read_as_for_ethtool() {
        for text in [
            "tcp4 dst-port 22 action 1 loc 0",
            "udp6 src-ip fd00::/8 dst-ip fd00::1 src-port 1 dst-port 2 action 0 loc 7",
            "ip4 action 3",
        ] {
            let rule: DeviceRule = text.parse().unwrap();
            assert_eq!(rule.to_string(), text);
        }
        let with = "flow-type tcp4 action 2 loc 1".parse::<DeviceRule>().unwrap();
        assert_eq!(with.to_string(), "tcp4 action 2 loc 1");
        let said = |text: &str| text.parse::<DeviceRule>().unwrap_err();
        assert!(said("").contains("begins with its flow type, tcp4"));
        assert!(said("tcp5 action 1").contains("flow type"));
        assert!(said("tcp4 dst-port 22").contains("add `action N`"));
        assert!(said("tcp4 dst-port").contains("needs a value"));
        assert!(said("tcp4 dst-port 65536 action 1").contains("65536 is no number"));
        assert!(said("tcp4 tos 3 action 1").contains("`tos` is no word"));
    }
}
