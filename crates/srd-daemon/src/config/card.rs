//! Files `card.toml` of an earlier form, in which earlier versions had the settings of instances.
//! Such files are refused, and the error contains their settings in the present form. It also names
//! the keys that have no counterpart, at most [`NAMED_MAX`] of them.

use std::collections::BTreeMap;

use srd_config::{ConfigError, Source};
use toml::{Table, Value};

/// Keys at the beginning of a file of the earlier form. The present form has no such keys.
const KEYS: [&str; 7] =
    ["vpc", "host", "internet", "internet_private", "end_programs", "socket", "poll"];
/// Tables of the earlier form that the present form does not have.
const TABLES: [&str; 3] = ["transport", "vhost_user", "vhost_user_client"];
/// Keys of `[transport]` that `[interface]` has under the same name.
const SAME: [&str; 4] = ["listen", "private_key_file", "protection", "dscp"];

/// Largest number of keys without a counterpart that the error names.
const NAMED_MAX: usize = 20;

/// Returns the error for a file of the earlier form; `None` for any other text.
pub(super) fn refusal(source: &Source<'_>) -> Option<ConfigError> {
    let old: Table = toml::from_str(source.text).ok()?;
    let is_old = KEYS.iter().any(|key| old.get(*key).is_some_and(|value| !value.is_table()))
        || TABLES.iter().any(|table| old.get(*table).is_some_and(Value::is_table));
    if !is_old || old.contains_key("interface") || old.contains_key("cloud") {
        return None;
    }
    let what = "this has the form of card.toml, which earlier versions had for instances";
    let New { text, left_out } = new(&old);
    let remedy = match left_out.as_slice() {
        [] => String::from("write these lines instead; their meaning is the same:"),
        names => format!(
            "write these lines instead. Unknown keys are left out: {}. For the others, \
             their meaning is the same:",
            listed(names)
        ),
    };
    Some(source.error(None, what, format!("{remedy}\n\n{text}")))
}

/// Returns a list of names for people.
fn listed(names: &[String]) -> String {
    let shown = names.iter().take(NAMED_MAX).map(|name| format!("`{name}`"));
    let shown = shown.collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(NAMED_MAX) {
        None | Some(0) => shown,
        Some(others) => format!("{shown} and {others} more"),
    }
}

/// Result of the conversion of a file from the earlier form to the present form.
struct New {
    /// Text of the new file.
    text: String,
    /// Keys of the earlier file that have no counterpart in `text`.
    left_out: Vec<String>,
}

/// Converts a file of the earlier form to the present form.
fn new(old: &Table) -> New {
    let table = |name: &str| old.get(name).and_then(Value::as_table);
    let (mut interface, mut cloud, mut control) = (Table::new(), Table::new(), Table::new());
    let mut left_out = Vec::new();
    for (key, value) in old {
        match key.as_str() {
            "poll" => drop(interface.insert(key.clone(), value.clone())),
            "socket" => drop(control.insert(key.clone(), value.clone())),
            key if KEYS.contains(&key) || TABLES[1..].contains(&key) => {
                cloud.insert(key.to_owned(), value.clone());
            }
            "transport" | "metrics" if value.is_table() => {}
            "peer" if value.as_array().is_some_and(|all| all.iter().all(Value::is_table)) => {}
            "expert" => {}
            _ => left_out.push(key.clone()),
        }
    }
    for (key, value) in table("transport").into_iter().flatten() {
        match (key.as_str(), value.as_integer()) {
            ("link_rate_mbps", Some(rate)) => {
                interface.insert("link_rate".into(), Value::String(format!("{rate}M")));
            }
            (key, _) if SAME.contains(&key) => {
                interface.insert(key.to_owned(), value.clone());
            }
            _ => left_out.push(format!("transport.{key}")),
        }
    }
    if !interface.is_empty() {
        interface.insert("mode".into(), Value::String("cloud".into()));
    }
    let mut new = BTreeMap::from([("cloud", Value::Table(cloud))]);
    if !interface.is_empty() {
        new.insert("interface", Value::Table(interface));
    }
    if !control.is_empty() {
        new.insert("control", Value::Table(control));
    }
    if let Some(expert) = old.get("expert") {
        new.insert("expert", expert.clone());
    }
    if let Some(metrics) = table("metrics") {
        new.insert("metrics", Value::Table(renamed(metrics, "remote", "allow_remote")));
    }
    if let Some(peers) = old.get("peer").and_then(Value::as_array) {
        let peers = peers.iter().filter_map(Value::as_table);
        let peers = peers.map(|peer| Value::Table(renamed(peer, "name", "host")));
        new.insert("peer", Value::Array(peers.collect()));
    }
    // Values that were parsed from TOML can be written as TOML.
    New { text: toml::to_string(&new).unwrap_or_default(), left_out }
}

/// Returns a copy of a table in which one key has another name.
fn renamed(table: &Table, from: &str, to: &str) -> Table {
    let name = |key: &String| if key == from { to.to_owned() } else { key.clone() };
    table.iter().map(|(key, value)| (name(key), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::{Config, Mode};

    const OLD: &str = r#"
        vpc = "cloud.toml"
        host = "alpha"
        internet = true
        internet_private = true
        poll = "spin"
        end_programs = true
        socket = "/run/other.sock"
        [expert]
        paths = 8
        scale = "1/100"
        credits = 600
        [transport]
        listen = "192.0.2.1:7535"
        protection = "plain"
        link_rate_mbps = 10000
        dscp = 46
        [[peer]]
        name = "beta"
        endpoint = "192.0.2.2:7535"
        [metrics]
        listen = "0.0.0.0:9472"
        remote = true
        host_names = ["Card.rack.example"]
        [vhost_user]
        web = "/run/web.sock"
        [vhost_user_client]
        app = "app.sock"
    "#;

    /// Returns the text in the error for a file of the earlier form.
    fn converted(old: &str) -> String {
        let error = Config::parse(old, Path::new("/etc/srd/card.toml")).unwrap_err();
        assert!(error.what.contains("the form of card.toml"), "{error}");
        error.remedy.split_once("\n\n").unwrap().1.to_owned()
    }

    #[test]
    fn a_file_of_the_earlier_form_is_refused_with_its_settings_in_the_present_form() {
        let text = converted(OLD);
        let config = Config::parse(&text, Path::new("/etc/srd/srd0.toml")).expect(&text);
        let cloud = config.cloud.unwrap();
        assert_eq!(cloud.vpc.as_deref(), Some(Path::new("/etc/srd/cloud.toml")));
        assert_eq!((cloud.host.as_str(), cloud.scale, cloud.credits_s), ("alpha", 100, 600));
        assert!(cloud.internet && cloud.internet_private && cloud.end_programs);
        assert_eq!(config.control.socket, Path::new("/run/other.sock"));
        assert_eq!(cloud.vhost_user["web"], Path::new("/run/web.sock"));
        assert_eq!(cloud.vhost_user["app"], Path::new("/etc/srd/app.sock"));
        assert!(cloud.vhost_user_client.contains("app"));
        let interface = &config.interface;
        assert_eq!((interface.mode, interface.listen.port()), (Mode::Cloud, 7535));
        assert_eq!((interface.paths, interface.dscp), (8, 46));
        assert_eq!(interface.link_rate_bps, Some(10_000_000_000));
        assert_eq!(interface.poll, srd_net::PollMode::Spin);
        assert_eq!(config.peers[0].cloud_host.as_deref(), Some("beta"));
        assert_eq!(config.peers[0].endpoint.unwrap().to_string(), "192.0.2.2:7535");
        let metrics = config.metrics.unwrap();
        assert!(metrics.allow_remote && metrics.host_names == ["card.rack.example"]);
    }

    #[test]
    fn keys_of_the_earlier_form_that_are_unknown_are_named() {
        let remedy =
            |old: &str| Config::parse(old, Path::new("/etc/srd/card.toml")).unwrap_err().remedy;
        let old = "vpc = \"cloud.toml\"\nhsot = \"a\"\n[transport]\nlinkrate = 1\n[metric]\n";
        let text = remedy(old);
        let (said, text) = text.split_once("\n\n").unwrap();
        assert!(said.contains("left out: `hsot`, `metric`, `transport.linkrate`."), "{said}");
        Config::parse(text, Path::new("/etc/srd/srd0.toml")).expect(text);
        let unknown = |count| (0..count).map(|n| format!("x{n:02} = 1\n")).collect::<String>();
        let said = remedy(&format!("vpc = \"a\"\n{}", unknown(super::NAMED_MAX)));
        assert!(said.contains("`x19`."), "{said}");
        let said = remedy(&format!("vpc = \"a\"\n{}", unknown(super::NAMED_MAX + 1)));
        assert!(said.contains("`x19` and 1 more.") && !said.contains("x20"), "{said}");
        assert!(!remedy(OLD).contains("left out"));
    }

    #[test]
    fn a_file_of_the_earlier_form_without_other_hosts_needs_no_interface() {
        let text = converted("vpc = \"cloud.toml\"\n[vhost_user]\nweb = \"web.sock\"\n");
        assert!(!text.contains("[interface]"), "{text}");
        let config = Config::parse(&text, Path::new("/etc/srd/srd0.toml")).expect(&text);
        assert_eq!(config.interface.mode, Mode::Cloud);
        assert!(config.peers.is_empty());
    }
}
