//! `srd up` between two namespaces: an overlay, transparent steering, reload, and what is left
//! after `kill -9`. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const SRD: &str = env!("CARGO_BIN_EXE_srd");
/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(20);

fn ready() -> bool {
    let mut missing: Vec<String> =
        srd_lab::requirements().iter().filter(|m| m.required).map(ToString::to_string).collect();
    if !std::path::Path::new("/dev/net/tun").exists() {
        missing.push("/dev/net/tun does not exist".into());
    }
    if missing.is_empty() {
        return true;
    }
    let ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(!ci, "in CI this test must run: {}", missing.join("; "));
    println!("skipped: {}", missing.join("; "));
    false
}

fn ip(arguments: &str) -> Output {
    Command::new("ip").args(arguments.split(' ')).output().unwrap()
}

fn must(arguments: &str) -> String {
    let output = ip(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Two machines and the wire between them.
struct Pair {
    names: [String; 2],
    directory: tempfile::TempDir,
    public: [String; 2],
    daemons: [Option<Child>; 2],
}

impl Pair {
    fn new(tag: &str) -> Self {
        let names = ["a", "b"].map(|end| format!("srdup{tag}{end}{}", std::process::id()));
        for name in &names {
            must(&format!("netns add {name}"));
        }
        let [a, b] = &names;
        must(&format!("link add v0 netns {a} mtu 1500 type veth peer name v0 netns {b} mtu 1500"));
        for (i, name) in (1..).zip(&names) {
            must(&format!("-n {name} addr add 198.18.0.{i}/24 dev v0"));
            must(&format!("-n {name} link set v0 up"));
            must(&format!("-n {name} link set lo up"));
        }
        let directory = tempfile::tempdir().unwrap();
        let public = [0, 1].map(|end| {
            let private = Command::new(SRD).arg("genkey").output().unwrap().stdout;
            let path = directory.path().join(format!("{end}.key"));
            std::fs::write(&path, &private).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))
                .unwrap();
            let pubkey = Command::new(SRD)
                .arg("pubkey")
                .stdin(std::fs::File::open(&path).unwrap())
                .output()
                .unwrap();
            String::from_utf8(pubkey.stdout).unwrap().trim().to_owned()
        });
        Self { names, directory, public, daemons: [None, None] }
    }

    fn path(&self, file: String) -> PathBuf {
        self.directory.path().join(file)
    }

    /// Writes an end's configuration; `extra` goes into its `[[peer]]`.
    fn configure(&self, end: usize, overlay: bool, extra: &str) {
        let (own, other) = (end + 1, 2 - end);
        let (mode, allowed) = if overlay {
            (format!("address = [\"10.77.0.{own}/24\"]"), format!("10.77.0.{other}/32"))
        } else {
            ("mode = \"transparent\"".to_owned(), format!("198.18.0.{other}/32"))
        };
        let text = format!(
            "[interface]\n{mode}\nlisten = \"198.18.0.{own}:7471\"\npaths = 4\n\
             private_key_file = \"{key}\"\n[control]\nsocket = \"{socket}\"\n\
             [[peer]]\nname = \"other\"\npublic_key = \"{public}\"\n\
             endpoint = \"198.18.0.{other}:7471\"\nallowed = [\"{allowed}\"]\n{extra}\n",
            key = self.path(format!("{end}.key")).display(),
            socket = self.path(format!("{end}.sock")).display(),
            public = self.public[1 - end],
        );
        std::fs::write(self.path(format!("{end}.toml")), text).unwrap();
    }

    fn start(&mut self, end: usize) {
        let config = self.path(format!("{end}.toml"));
        let child = self.command(end).arg("up").arg("-c").arg(config).spawn().unwrap();
        self.daemons[end] = Some(child);
    }

    /// `srd` in an end's namespace.
    fn command(&self, end: usize) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[end], SRD]);
        command
    }

    fn ask(&self, end: usize, words: &[&str]) -> Option<Value> {
        let socket = self.path(format!("{end}.sock"));
        let mut command = Command::new(SRD);
        let output = command.args(words).arg("--socket").arg(socket).arg("--json").output();
        serde_json::from_slice(&output.unwrap().stdout).ok()
    }

    fn wait(&self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let begin = Instant::now();
        while !done(self) {
            assert!(begin.elapsed() < PATIENCE, "{what} did not happen");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn wait_for_express(&self) {
        self.wait("SRD between the two", |pair| {
            [0, 1].iter().all(|end| {
                let status = pair.ask(*end, &["status"]);
                status.is_some_and(|s| s["peers"][0]["express"] == "on")
            })
        });
    }

    /// Half a second of TCP from the first to the second.
    fn transfer(&self, to: &str) {
        let mut server = self
            .command(1)
            .args(["perf", "server", "--bind", to, "--port", "9000", "--one-off"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let begin = Instant::now();
        let result = loop {
            let output = self
                .command(0)
                .args(["perf", "client", to, "--port", "9000", "--transport", "tcp"])
                .args(["--time", "500ms", "--json", "-"])
                .output()
                .unwrap();
            if output.status.success() {
                break serde_json::from_slice::<Value>(&output.stdout).unwrap();
            }
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(begin.elapsed() < PATIENCE, "{error}");
            std::thread::sleep(Duration::from_millis(100));
        };
        let _ = server.kill();
        let _ = server.wait();
        assert!(result["gbps"].as_f64().unwrap() > 0.0, "{result}");
    }

    fn counter(&self, end: usize, name: &str) -> u64 {
        let status = self.ask(end, &["status"]).unwrap();
        status["counters"][name].as_u64().unwrap()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for mut child in self.daemons.iter_mut().filter_map(Option::take) {
            let _ = child.kill();
            let _ = child.wait();
        }
        for name in &self.names {
            ip(&format!("netns del {name}"));
        }
    }
}

#[test]
fn an_overlay_carries_tcp_and_obeys_reload_and_set() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("o");
    for end in [0, 1] {
        pair.configure(end, true, "");
        pair.start(end);
    }
    pair.wait_for_express();
    pair.transfer("10.77.0.2");
    let before = pair.counter(0, "ena_srd_tx_pkts");
    assert!(before > 100, "{before} packets by SRD");
    assert_eq!(pair.counter(0, "ena_srd_mode"), 3);

    // Off by reload: the next transfer goes plainly.
    pair.configure(0, true, "express = false");
    pair.ask(0, &["reload"]).expect("a report");
    pair.wait("express off", |p| p.ask(0, &["status"]).unwrap()["peers"][0]["express"] == "off");
    pair.transfer("10.77.0.2");
    let after = pair.counter(0, "ena_srd_tx_pkts");
    assert_eq!(after, before, "nothing rides SRD");
    assert!(pair.counter(0, "plain_tx_pkts") > 100);

    // In order: the interface goes, and the network process with it.
    let daemon = pair.daemons[0].as_mut().unwrap();
    let pid = daemon.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(daemon.wait().unwrap().success());
    assert!(!ip(&format!("-n {} link show srd0", pair.names[0])).status.success());
}

#[test]
fn transparent_steering_takes_packets_while_the_peer_answers_and_leaves_nothing_behind() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("t");
    for end in [0, 1] {
        pair.configure(end, false, "");
    }
    let name = pair.names[0].clone();
    let steered = move || must(&format!("-n {name} route get 198.18.0.2")).contains("dev srd0");
    pair.start(0);
    pair.wait("a socket", |p| p.ask(0, &["status"]).is_some());
    assert!(!steered(), "the peer does not answer yet");
    pair.transfer("198.18.0.2");
    pair.start(1);
    pair.wait_for_express();
    pair.wait("steering", |_| steered());
    pair.transfer("198.18.0.2");
    assert!(pair.counter(0, "ena_srd_tx_pkts") > 100);

    let mut daemon = pair.daemons[1].take().unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let name = pair.names[1].clone();
    pair.wait("the rule's end", |_| {
        !must(&format!("-n {name} rule show")).contains("lookup 7471")
            && !ip(&format!("-n {name} link show srd0")).status.success()
    });
    pair.wait("steering past the dead", |_| !steered());
    pair.transfer("198.18.0.2");
}
