//! The device of an interface: its queues, rings, steering and interrupts, and changes of them.
//!
//! A rule of steering has the syntax of `ethtool -N`: `tcp4 dst-port 22 action 1 loc 0`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::NamespaceName;

/// Settings of a device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeviceSettings {
    /// Queue pairs.
    pub queues: u16,
    /// Packets that wait in a queue for the card.
    pub tx_ring: u32,
    /// Packets that wait in a queue for the instance while interrupts are held back.
    pub rx_ring: u32,
    /// The key of the hash, bytes in hexadecimal; `None` for the adapter's own key.
    pub rss_key: Option<String>,
    /// The queue of each entry of the indirection table.
    pub rss_table: Vec<u16>,
    /// Whether the user has filled the table; otherwise it follows the number of queues.
    pub rss_table_is_set: bool,
    /// Microseconds from a packet for the instance to its interrupt.
    pub rx_usecs: u32,
    /// Whether the time to the interrupt adapts to the traffic instead.
    pub adaptive_rx: bool,
}

/// A change of a device. Missing or empty fields change nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceChange {
    /// Queue pairs.
    pub queues: Option<u16>,
    /// Entries of the ring from the instance.
    pub tx_ring: Option<u32>,
    /// Entries of the ring to the instance.
    pub rx_ring: Option<u32>,
    /// New contents of the indirection table.
    pub rss: Option<RssTable>,
    /// The key of the hash: 40 bytes in hexadecimal with colons, or `default`.
    pub rss_key: Option<String>,
    /// Locations whose rules are removed, before all other changes.
    pub delete_rules: Vec<u32>,
    /// Rules to be added, each at its location.
    pub rules: Vec<DeviceRule>,
    /// Microseconds from a packet for the instance to its interrupt.
    pub rx_usecs: Option<u32>,
    /// Whether the time to the interrupt adapts to the traffic instead.
    pub adaptive_rx: Option<bool>,
}

/// Contents of the indirection table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RssTable {
    /// The first queues in turn, this number of them.
    Equal(u16),
    /// Queues from 0 on, in proportion to these weights.
    Weights(Vec<u32>),
    /// All queues in turn, even after their number has changed.
    Default,
}

/// The device of an interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeviceReport {
    /// The instance.
    pub instance: String,
    /// Its type.
    pub instance_type: String,
    /// The network namespace of the instance.
    pub namespace: Option<NamespaceName>,
    /// The device in the namespace.
    pub device: String,
    /// The name that the instance has given the device instead, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renamed: Option<String>,
    /// Maximum number of queue pairs for this type.
    pub queues_max: u16,
    /// The settings of the device.
    pub settings: DeviceSettings,
    /// The rules that steer packets before the hash is used, by location.
    pub rules: Vec<DeviceRule>,
    /// Entries for rules, which all interfaces of the instance share; 0 if the type has no
    /// steering.
    pub rule_places: u32,
}

/// A rule that steers packets to a queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeviceRule {
    /// tcp4, udp4, tcp6, udp6, ip4 or ip6.
    pub flow_type: String,
    /// The block of source addresses, like 10.0.0.0/24.
    pub source: Option<String>,
    /// The block of destination addresses.
    pub destination: Option<String>,
    /// The source port.
    pub source_port: Option<u16>,
    /// The destination port.
    pub destination_port: Option<u16>,
    /// The queue of matching packets.
    pub queue: u16,
    /// The location of the rule.
    pub location: Option<u32>,
}

/// The flow types of rules.
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
