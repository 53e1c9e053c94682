//! The fuzz target of WireGuard's files. A text is refused with its line and a cause, or it is
//! converted to TOML in the form of `srd.toml`. A text within a value must not become a key of the
//! result.

use srd_daemon::config::wireguard::{Names, convert, is_meant};

/// Keys that a table of the result may have. This is the list for `[interface]`.
const INTERFACE: [&str; 4] = ["name", "private_key_file", "address", "listen"];
const EXPERT: [&str; 2] = ["paths", "table"];
const PEER: [&str; 4] = ["public_key", "preshared_key_file", "endpoint", "allowed"];

/// Converts a file, and checks the result.
pub(crate) fn wireguard(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let names = Names { file: "fuzz.conf", interface: "srd0", key_file: "/etc/srd/private.key" };
    let made = match convert(&text, names) {
        Ok(made) => made.text,
        Err(why) => {
            assert!(why.starts_with("fuzz.conf, line "), "{why}");
            return;
        }
    };
    assert!(!is_meant(&made), "{made}");
    let table: toml::Table = toml::from_str(&made).expect("it is TOML");
    let keys = |table: &toml::Value, known: &[&str]| {
        let table = table.as_table().expect("a table");
        assert!(table.keys().all(|key| known.contains(&key.as_str())), "{made}");
    };
    keys(&table["interface"], &INTERFACE);
    table.get("expert").into_iter().for_each(|expert| keys(expert, &EXPERT));
    let peers = table.get("peer").and_then(toml::Value::as_array);
    peers.into_iter().flatten().for_each(|peer| keys(peer, &PEER));
    let tables = ["interface", "expert", "peer"];
    assert!(table.keys().all(|key| tables.contains(&key.as_str())), "{made}");
}
