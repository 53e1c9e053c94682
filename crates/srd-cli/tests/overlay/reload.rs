//! A reload of `srd up` is a transaction: it makes all changes, or none. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::time::{Duration, Instant};

use crate::support::pair::{Pair, Settings, must, ready};

/// Returns the public key of a new private key, which is not stored.
fn key() -> String {
    srd_daemon::keys::SecretKey::draw_private().unwrap().public().to_string()
}

/// Writes the configuration of the first end with these peers. Each peer has a name, a key, an
/// endpoint and an allowed prefix.
fn configure(pair: &Pair, interface: &str, peers: &[[&str; 4]]) {
    let mut text = format!(
        "[expert]\npaths = 4\n\
         [interface]\naddress = [\"10.77.0.1/24\"]\nlisten = \"198.18.0.1:7471\"\n\
         {interface}\n[control]\nsocket = \"{}\"\n",
        pair.path("0.sock".into()).display()
    );
    for [name, key, endpoint, allowed] in peers {
        text += &format!("[[peer]]\nname = \"{name}\"\nallowed = [\"{allowed}\"]\n");
        for (name, value) in [("public_key", key), ("endpoint", endpoint)] {
            if !value.is_empty() {
                text += &format!("{name} = \"{value}\"\n");
            }
        }
    }
    std::fs::write(pair.path("0.toml".into()), text).unwrap();
}

/// Returns each peer of the running daemon as `name endpoint prefixes`.
fn running(pair: &Pair) -> Vec<String> {
    let status = pair.ask(0, &["status"]).unwrap();
    let row = |peer: &serde_json::Value| {
        let allowed = peer["allowed"].as_array().unwrap();
        let allowed: Vec<&str> = allowed.iter().map(|a| a.as_str().unwrap()).collect();
        let text = |name: &str| peer[name].as_str().unwrap_or("-").to_owned();
        format!("{} {} {}", text("name"), text("endpoint"), allowed.join(","))
    };
    status["peers"].as_array().unwrap().iter().map(row).collect()
}

/// Waits until the daemon reports these peers. It reports pages that its workers write, so this
/// takes a moment.
fn wait_for_running(pair: &Pair, expected: &[String]) {
    pair.wait(&format!("{expected:?}"), |pair| running(pair) == expected);
}

/// Waits until Express of the only peer is off (`is_off`), or is not off.
fn wait_for_off(pair: &Pair, is_off: bool) {
    pair.wait("express", |pair| {
        let status = pair.ask(0, &["status"]).unwrap();
        (status["peers"][0]["express"] == "off") == is_off
    });
}

fn key_file(pair: &Pair, end: usize) -> String {
    format!("private_key_file = \"{}\"", pair.path(format!("{end}.key")).display())
}

const B: &str = "198.18.0.2:7471";
const C: &str = "198.18.0.3:7471";

#[test]
fn regression_peers_that_exchange_endpoints_names_or_prefixes_survive_a_reload() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("x");
    let own = key_file(&pair, 0);
    let (b, c) = (key(), key());
    configure(&pair, &own, &[["b", &b, B, "10.77.0.2/32"], ["c", &c, C, "10.77.0.3/32"]]);
    pair.start(0);
    pair.wait("a socket", |p| p.ask(0, &["status"]).is_some());
    // The peers exchange their endpoints.
    configure(&pair, &own, &[["b", &b, C, "10.77.0.2/32"], ["c", &c, B, "10.77.0.3/32"]]);
    let report = pair.ask(0, &["reload"]).expect("a report");
    assert_eq!(report["changed"], serde_json::json!(["b", "c"]));
    wait_for_running(&pair, &[format!("b {C} 10.77.0.2/32"), format!("c {B} 10.77.0.3/32")]);
    // The peers exchange their prefixes and their order in the file.
    configure(&pair, &own, &[["c", &c, B, "10.77.0.2/32"], ["b", &b, C, "10.77.0.3/32"]]);
    pair.ask(0, &["reload"]).expect("a report");
    wait_for_running(&pair, &[format!("c {B} 10.77.0.2/32"), format!("b {C} 10.77.0.3/32")]);
    for prefix in ["10.77.0.2", "10.77.0.3"] {
        pair.wait("a route", |pair| {
            must(&format!("-n {} route get {prefix}", pair.names[0])).contains("dev srd0")
        });
    }
    // The peers exchange their names, which identify nothing else.
    configure(&pair, &own, &[["b", &c, B, "10.77.0.2/32"], ["c", &b, C, "10.77.0.3/32"]]);
    pair.ask(0, &["reload"]).expect("a report");
    wait_for_running(&pair, &[format!("b {B} 10.77.0.2/32"), format!("c {C} 10.77.0.3/32")]);
}

#[test]
fn regression_a_reload_that_cannot_be_done_changes_nothing() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("z");
    let own = key_file(&pair, 0);
    let (b, c, d) = (key(), key(), key());
    let first = [["b", b.as_str(), B, "10.77.0.2/32"], ["c", &c, "", "10.77.0.3/32"]];
    configure(&pair, &own, &first);
    pair.start(0);
    pair.wait("a socket", |p| p.ask(0, &["status"]).is_some());
    let before = [format!("b {B} 10.77.0.2/32"), "c - 10.77.0.3/32".to_owned()];
    wait_for_running(&pair, &before);
    let refused = |says: &str| {
        let mut command = pair.command(0);
        let reload = command.args(["reload", "--socket"]).arg(pair.path("0.sock".into()));
        let output = reload.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(says), "{text}");
        assert!(text.contains("nothing was changed"), "{text}");
        assert_eq!(running(&pair), before);
    };
    // The file is valid, but its peers need settings that only apply after a restart.
    configure(&pair, "protection = \"plain\"", &[["d", "", C, "10.77.0.3/32"]]);
    refused("`protection` waits for a restart");
    let peers = [first[0], ["d", &d, "[2001:db8::1]:7471", "10.77.0.4/32"]];
    configure(&pair, &own, &peers);
    let file = pair.path("0.toml".into());
    let text = std::fs::read_to_string(&file).unwrap().replace("198.18.0.1:7471", "[::]:7471");
    std::fs::write(&file, text).unwrap();
    refused("`listen` waits for a restart");
    configure(&pair, &own, &[first[0], ["d", &d, C, "10.77.0.1/32"]]);
    let text = std::fs::read_to_string(&file).unwrap().replace("10.77.0.1/24", "10.77.0.9/24");
    std::fs::write(&file, text).unwrap();
    refused("`address` waits for a restart");
    // The refused reloads have no lasting effect.
    configure(&pair, &own, &[first[0], ["d", &d, C, "10.77.0.3/32"]]);
    let report = pair.ask(0, &["reload"]).expect("a report");
    assert_eq!(report["added"], serde_json::json!(["d"]));
    assert_eq!(report["removed"], serde_json::json!(["c"]));
}

#[test]
fn regression_a_setting_of_one_peer_lasts_until_the_next_reload() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("s");
    let own = key_file(&pair, 0);
    let b = key();
    configure(&pair, &own, &[["b", &b, B, "10.77.0.2/32"]]);
    pair.start(0);
    pair.wait("a socket", |p| p.ask(0, &["status"]).is_some());
    let socket = pair.path("0.sock".into());
    let mut set = pair.command(0);
    let set = set.args(["set", "b", "express", "off", "--socket"]).arg(&socket);
    assert!(set.status().unwrap().success());
    wait_for_off(&pair, true);
    let report = pair.ask(0, &["reload"]).expect("a report");
    assert_eq!(report["changed"], serde_json::json!(["b"]));
    wait_for_off(&pair, false);
}

/// A new private key waited for a restart.
#[test]
fn regression_a_daemon_uses_another_private_key_after_a_reload() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("pk");
    for end in [0, 1] {
        pair.configure(end, &Settings::OVERLAY);
        pair.start(end);
    }
    pair.wait_for_express();
    let before = pair.ask(0, &["status"]).unwrap()["public_key"].as_str().unwrap().to_owned();
    let next = srd_daemon::keys::SecretKey::draw_private().unwrap();
    let public = next.public().to_string();
    std::fs::write(pair.path("0.key".into()), next.expose()).unwrap();
    let report = pair.ask(0, &["reload"]).expect("a report");
    assert_eq!(report["live"], serde_json::json!(["private_key_file"]), "{report}");
    pair.wait("the new key", |pair| pair.ask(0, &["status"]).unwrap()["public_key"] == public);
    // The other end has the former public key.
    let file = pair.path("1.toml".into());
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(&before), "{text}");
    std::fs::write(&file, text.replace(&before, &public)).unwrap();
    let report = pair.ask(1, &["reload"]).expect("a report");
    assert_eq!(report["changed"].as_array().unwrap().len(), 1, "{report}");
    pair.wait_for_express();
    pair.transfer_by_srd("10.77.0.2");
    let report = pair.ask(0, &["reload"]).expect("a report");
    assert_eq!(report["live"], serde_json::json!([]), "{report}");
}

/// Returns the time for which a daemon's worker has run or waited for a processor so far, in
/// nanoseconds.
fn worker_ns(process: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    // Other threads of the daemon start and end, so the worker is found by its name.
    let worker = threads.map(|thread| thread.unwrap().path()).find(|thread| {
        std::fs::read_to_string(thread.join("comm")).is_ok_and(|name| name.trim() == "srd-worker-0")
    });
    let text = std::fs::read_to_string(worker.expect("a worker").join("schedstat")).unwrap();
    text.split(' ').take(2).map(|time| time.parse::<u64>().unwrap()).sum()
}

#[test]
fn a_daemon_spins_and_sleeps_again_as_a_reload_says() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("poll");
    for end in [0, 1] {
        pair.configure(end, &Settings::OVERLAY);
        pair.start(end);
    }
    pair.wait_for_express();
    let process = pair.daemons[0].as_ref().unwrap().id();
    // A worker that spins runs or waits for a processor all the time.
    let is_spinning = || {
        let (before, began) = (worker_ns(process), Instant::now());
        std::thread::sleep(Duration::from_millis(500));
        let wanted = Duration::from_nanos(worker_ns(process) - before);
        wanted * 5 > began.elapsed() * 4
    };
    pair.wait("sleep", |_| !is_spinning());
    for (mode, spins) in [("spin", true), ("adaptive", false), ("spin", true), ("block", false)] {
        let interface = format!("poll = \"{mode}\"");
        pair.configure(0, &Settings { interface: &interface, ..Settings::OVERLAY });
        let report = pair.ask(0, &["reload"]).expect("a report");
        assert_eq!(report["live"], serde_json::json!(["poll"]), "{report}");
        pair.wait(mode, |_| is_spinning() == spins);
    }
    pair.transfer_by_srd("10.77.0.2");
}
