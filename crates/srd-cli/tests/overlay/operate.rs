//! Operation of `srd up`: its log, peers with names instead of addresses, and commands that add and
//! remove peers. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use crate::support;
use crate::support::pair::{Pair, Settings, must, ready};
use std::fs::File;
use std::time::{Duration, Instant};

/// Interval at which the log repeats that packets of an address are refused.
const REFUSED_EVERY: Duration = Duration::from_secs(60);

/// Starts an end's daemon with its log in a file.
pub(crate) fn start_logged(pair: &mut Pair, end: usize) {
    let log = File::create(pair.path(format!("{end}.log"))).unwrap();
    let config = pair.path(format!("{end}.toml"));
    let child = pair.command(end).arg("up").arg("-c").arg(config).stderr(log).spawn().unwrap();
    pair.daemons[end] = Some(child);
}

pub(crate) fn log(pair: &Pair, end: usize) -> String {
    std::fs::read_to_string(pair.path(format!("{end}.log"))).unwrap()
}

#[test]
fn regression_the_log_says_in_words_and_with_the_time_what_listens_and_which_peers_answer() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("l");
    for end in [0, 1] {
        pair.configure(end, &Settings::OVERLAY);
        start_logged(&mut pair, end);
    }
    pair.wait_for_express();
    pair.wait("the line", |p| log(p, 0).contains("other (198.18.0.2:7471) answers"));
    let text = log(&pair, 0);
    assert!(text.contains("srd0 is up: 10.77.0.1/24, encrypted, MTU 1410, listening on"), "{text}");
    let begin = text.len();
    let mut peer = pair.daemons[1].take().unwrap();
    peer.kill().unwrap();
    peer.wait().unwrap();
    let warning = "warning: other (198.18.0.2:7471) does not answer";
    pair.wait("the warning", |p| log(p, 0)[begin..].contains(warning));
    let text = log(&pair, 0);
    for line in text.lines() {
        assert!(line.starts_with("20") && line.as_bytes()[23] == b'Z', "no time: {line}");
        assert!(!line.contains("::") && !line.contains('{'), "not for people: {line}");
    }
    // If a reason is found later, it is logged as a line with other words.
    assert_eq!(text[begin..].matches(warning).count(), 1, "{text}");
}

/// Regression: all packets of an address that is not in `allowed` were lost, and each end reported
/// only that the other end was up.
#[test]
fn regression_an_address_that_is_not_allowed_is_named_in_log_and_status() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("w");
    for end in [0, 1] {
        pair.configure(end, &Settings::OVERLAY);
    }
    let path = pair.path("1.toml".into());
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("10.77.0.1/32", "10.77.0.9/32")).unwrap();
    for end in [0, 1] {
        start_logged(&mut pair, end);
    }
    pair.wait_for_express();
    let began = Instant::now();
    let ping = |pair: &Pair| {
        let words = format!("netns exec {} ping -c 3 -i 0.2 -W 1 10.77.0.2", pair.names[0]);
        let lost = support::pair::ip(&words);
        assert!(!lost.status.success(), "{lost:?}");
    };
    let count = |pair: &Pair| {
        let peer = pair.ask(1, &["status"]).map(|status| status["peers"][0].clone());
        let peer = peer.filter(|of| of["refused_from"] == "10.77.0.1");
        peer.and_then(|of| of["refused_pkts"].as_u64()).unwrap_or(0)
    };
    ping(&pair);
    // If a busy machine interrupts the session, packets are lost before they are counted.
    pair.wait("a count", |pair| {
        let is_counted = count(pair) >= 3;
        if !is_counted {
            ping(pair);
        }
        is_counted
    });
    let refused = "from 10.77.0.1 (not in allowed of peer other)";
    pair.wait("the line", |p| log(p, 1).contains(refused));
    pair.wait("the status", |pair| {
        let socket = pair.path("1.sock".into());
        let shown = pair.command(1).arg("status").arg("--socket").arg(socket).output().unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        shown.contains(&format!("refused: {} packets {refused}", count(pair)))
    });
    // After further packets from the address, the log has no second line.
    ping(&pair);
    std::thread::sleep(Duration::from_secs(2));
    let lines = log(&pair, 1).matches(refused).count();
    assert!(lines == 1 || began.elapsed() >= REFUSED_EVERY, "{}", log(&pair, 1));
}

/// After an interface was deleted, the kernel may give its index to another interface. Regression:
/// the daemon deleted that other interface at its end.
#[test]
fn regression_an_interface_of_another_program_with_our_index_is_left_alone() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("x");
    pair.configure(0, &Settings::OVERLAY);
    start_logged(&mut pair, 0);
    pair.wait("the interface", |p| log(p, 0).contains("srd0 is up"));
    let name = pair.names[0].clone();
    let mut daemon = pair.daemons[0].take().unwrap();
    let pid = daemon.id();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let network = children.split_whitespace().next().unwrap().parse().unwrap();
    let signal = |pid: u32, signal| {
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    };
    let index = must(&format!("netns exec {name} cat /sys/class/net/srd0/ifindex"));
    // The daemon's network process is stopped, so that it acts too late.
    signal(network, rustix::process::Signal::STOP);
    must(&format!("-n {name} link del srd0"));
    must(&format!("-n {name} link add other index {} type veth peer name beside", index.trim()));
    must(&format!("-n {name} link set other up"));
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    signal(network, rustix::process::Signal::CONT);
    // The network process removes its setup after the daemon has ended. The process that adopts it
    // may leave it a zombie.
    pair.wait("the end of the network process", |_| {
        let stat = std::fs::read_to_string(format!("/proc/{network}/stat")).unwrap_or_default();
        let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
        state.is_none_or(|state| state.starts_with('Z'))
    });
    let shown = must(&format!("-n {name} addr show other"));
    assert!(!shown.contains("10.77.0.1"), "it got our address: {shown}");
}

/// Names for the programs in one namespace: a file that `ip netns exec` mounts at /etc/hosts.
pub(crate) struct Hosts(std::path::PathBuf);

impl Hosts {
    pub(crate) fn new(namespace: &str) -> Self {
        let directory = std::path::Path::new("/etc/netns").join(namespace);
        let make = || {
            std::fs::create_dir_all(&directory)?;
            std::fs::write(directory.join("hosts"), "")
        };
        // Another test may have left /etc/netns empty and be removing it, so creation is repeated.
        let made = (0..100).any(|_| make().is_ok());
        assert!(made, "{}", directory.display());
        Self(directory)
    }

    /// Writes the lines into the existing file, because this file is mounted at the path that
    /// programs read.
    pub(crate) fn set(&self, lines: &str) {
        std::fs::write(self.0.join("hosts"), lines).unwrap();
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
        let _ = std::fs::remove_dir("/etc/netns");
    }
}

#[test]
fn a_peer_with_a_name_is_resolved_when_it_does_not_answer() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("n");
    let hosts = Hosts::new(&pair.names[0]);
    for end in [0, 1] {
        pair.configure(end, &Settings::OVERLAY);
    }
    let rewrite = |end: usize, from: &str, to: &str| {
        let file = pair.path(format!("{end}.toml"));
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(file, text.replace(from, to)).unwrap();
    };
    rewrite(0, "endpoint = \"198.18.0.2:7471\"", "endpoint = \"b.test:7471\"");
    // The second end has no address of the first and waits, so that no session exists without the
    // name.
    rewrite(1, "endpoint = \"198.18.0.1:7471\"", "");
    let mut check = pair.command(0);
    let check = check.args(["up", "--check", "-c"]).arg(pair.path("0.toml".into()));
    let said = check.output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.status.success() && text.contains("b.test:7471, which does not"), "{text}");
    for end in [0, 1] {
        start_logged(&mut pair, end);
    }
    pair.wait("a line about the name", |p| log(p, 0).contains("`b.test` does not resolve"));
    let status = pair.ask(0, &["status"]).unwrap();
    assert_eq!(status["peers"][0]["endpoint_name"], "b.test:7471");
    pair.wait("why", |p| p.ask(0, &["status"]).unwrap()["peers"][0]["endpoint_error"].is_string());
    // Of the two addresses of the name, one is that of the peer.
    hosts.set("198.18.0.77 b.test\n198.18.0.2 b.test\n");
    pair.wait_for_express();
    let status = pair.ask(0, &["status"]).unwrap();
    assert_eq!(status["peers"][0]["endpoint"], "198.18.0.2:7471");
    assert!(status["peers"][0]["endpoint_error"].is_null());
    // The peer's address changes, and so does the address of its name.
    let mut daemon = pair.daemons[1].take().unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    support::pair::must(&format!("-n {} addr add 198.18.0.3/24 dev v0", pair.names[1]));
    let file = pair.path("1.toml".into());
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(file, text.replace("198.18.0.2:7471", "198.18.0.3:7471")).unwrap();
    hosts.set("198.18.0.3 b.test\n");
    start_logged(&mut pair, 1);
    pair.wait("the peer at its new address", |p| {
        let peer = p.ask(0, &["status"]).unwrap()["peers"][0].clone();
        peer["state"] == "up" && peer["endpoint"] == "198.18.0.3:7471"
    });
}

#[test]
fn peers_come_and_go_by_command_and_stay_if_they_are_saved() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("p");
    for end in [0, 1] {
        pair.configure(end, &Settings::OVERLAY);
    }
    // The first end has no peers in its configuration.
    let file = pair.path("0.toml".into());
    let text = std::fs::read_to_string(&file).unwrap();
    let (alone, _) = text.split_once("[[peer]]").unwrap();
    let alone = alone.to_owned();
    std::fs::write(&file, &alone).unwrap();
    for end in [0, 1] {
        start_logged(&mut pair, end);
    }
    pair.wait("a socket", |p| p.ask(0, &["status"]).is_some());
    let socket = pair.path("0.sock".into());
    let key = pair.public[1].clone();
    let peer = |words: &[&str]| {
        let mut command = pair.command(0);
        let output = command.arg("peer").args(words).arg("--socket").arg(&socket).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let add = ["add", "b", "--public-key", &key, "--endpoint", "198.18.0.2:7471", "--allowed"];
    let (code, said) = peer(&[&add[..], &["10.77.0.1/32"]].concat());
    assert!(code == Some(2) && said.contains("our own address"), "{code:?} {said}");
    let (code, said) = peer(&[&add[..], &["10.77.0.2/32"]].concat());
    assert!(code == Some(0) && said.contains("peers added: b"), "{code:?} {said}");
    assert!(said.contains("until the next restart or reload"), "{said}");
    pair.wait_for_express();
    pair.transfer("10.77.0.2");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), alone);
    // The completions of a shell contain the peer's name.
    let mut shell = pair.command(0);
    shell.env("COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", "3").env("_CLAP_IFS", "\n");
    assert!(shell.args(["--", "srd", "peer", "remove", ""]).output().unwrap().status.success());
    // A reload reads the configuration file, which lacks the peer, and so removes the peer.
    let report = pair.ask(0, &["reload"]).unwrap();
    assert_eq!(report["removed"], serde_json::json!(["b"]));
    let (code, said) = peer(&[&add[..], &["10.77.0.2/32", "--save"]].concat());
    assert!(code == Some(0) && said.contains("saved to"), "{code:?} {said}");
    let report = pair.ask(0, &["reload"]).unwrap();
    assert_eq!(report["removed"], serde_json::json!([]));
    let (code, said) = peer(&["remove", "nobody"]);
    assert!(code == Some(2) && said.contains("there are: b"), "{code:?} {said}");
    let (code, said) = peer(&["remove", "b", "--save"]);
    assert!(code == Some(0) && said.contains("peers removed: b"), "{code:?} {said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim_end(), alone.trim_end());
    assert_eq!(pair.ask(0, &["status"]).unwrap()["peers"], serde_json::json!([]));
}

#[test]
fn hooks_run_around_the_interface_and_after_a_daemon_that_was_killed() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("h");
    let file = pair.path("hooks".into());
    let hook = |point: &str| {
        let there = "ip link show %i > /dev/null 2>&1 && echo there || echo gone";
        format!("{point} = [\"echo {point} $({there}) >> {}\"]", file.display())
    };
    let hooks = ["pre_up", "post_up", "pre_down", "post_down"].map(hook).join("\n");
    pair.configure(0, &Settings { interface: &hooks, ..Settings::OVERLAY });
    let config = pair.path("0.toml".into());
    let mode = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&config, mode).unwrap();
    };
    mode(0o666);
    let mut check = pair.command(0);
    let refused = check.args(["up", "--check", "-c"]).arg(&config).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "others may write the file");
    mode(0o644);
    let read = || std::fs::read_to_string(&file).unwrap_or_default();
    for signal in ["-TERM", "-KILL"] {
        let _ = std::fs::remove_file(&file);
        pair.start(0);
        pair.wait("a socket", |p| p.ask(0, &["status"]).is_some());
        pair.wait("the second hook", |_| read().contains("post_up"));
        let mut daemon = pair.daemons[0].take().unwrap();
        let pid = daemon.id().to_string();
        let mut kill = std::process::Command::new("kill");
        assert!(kill.args([signal, &pid]).status().unwrap().success());
        daemon.wait().unwrap();
        pair.wait("the last hook", |_| read().contains("post_down"));
        let text = read();
        if signal == "-TERM" {
            let wanted = "pre_up gone\npost_up there\npre_down there\npost_down gone\n";
            assert_eq!(text, wanted);
        } else {
            // It is not determined when the interface of a killed process is removed.
            let points: Vec<&str> =
                text.lines().filter_map(|line| line.split(' ').next()).collect();
            assert_eq!(points, ["pre_up", "post_up", "pre_down", "post_down"]);
        }
    }
}

/// Returns the text that a command has printed so far.
fn printed(path: &std::path::Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn a_first_try_needs_what_each_side_prints_and_leaves_nothing() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("y");
    // Each machine has a separate /run/srd and /run/srd-try.
    let directories = [0, 1].map(|end| pair.path(format!("run{end}")));
    let on = |pair: &Pair, end: usize, words: &str| {
        std::fs::create_dir_all(&directories[end]).unwrap();
        // The directory belongs to another user than root, as after a start of the package's unit.
        std::os::unix::fs::chown(&directories[end], Some(60_900), None).unwrap();
        let mut command = std::process::Command::new("ip");
        command.args(["netns", "exec", &pair.names[end], "unshare", "--mount", "sh", "-c"]);
        let run = directories[end].display();
        let srd = env!("CARGO_BIN_EXE_srd");
        let script = format!(
            "mkdir -p /run/srd /run/srd-try {run}/try; mount --bind {run} /run/srd; \
             mount --bind {run}/try /run/srd-try; exec {srd} {words}"
        );
        command.arg(script);
        command
    };
    let first = on(&pair, 0, "up --try 198.18.0.2").output().unwrap();
    assert!(first.status.success(), "{first:?}");
    let first = String::from_utf8(first.stdout).unwrap();
    let typed = |text: &str| {
        let line = text.lines().find(|line| line.contains("sudo srd ")).unwrap();
        line.trim().strip_prefix("sudo srd ").unwrap().to_owned()
    };
    let said = [0, 1].map(|end| pair.path(format!("{end}.said")));
    let start = |pair: &mut Pair, end: usize, words: &str| {
        let out = File::create(&said[end]).unwrap();
        let log = File::create(pair.path(format!("{end}.log"))).unwrap();
        pair.daemons[end] = Some(on(pair, end, words).stdout(out).stderr(log).spawn().unwrap());
    };
    start(&mut pair, 1, &typed(&first));
    pair.wait("what to type", |_| printed(&said[1]).contains("sudo srd"));
    start(&mut pair, 0, &typed(&printed(&said[1])));
    pair.wait("the two", |p| log(p, 0).contains("answers") && log(p, 1).contains("answers"));
    pair.wait("what to try", |_| printed(&said[0]).contains("try `ping "));
    let words = printed(&said[0]);
    let there = words.split_once("try `ping ").unwrap().1.split_once('`').unwrap().0;
    pair.transfer(there);
    for end in [0, 1] {
        let mut daemon = pair.daemons[end].take().unwrap();
        let pid = daemon.id().to_string();
        let mut kill = std::process::Command::new("kill");
        assert!(kill.args(["-INT", &pid]).status().unwrap().success());
        assert!(daemon.wait().unwrap().success());
        let link = support::pair::ip(&format!("-n {} link show srdtry0", pair.names[end]));
        assert!(!link.status.success(), "the interface is left");
        assert!(!directories[end].join("srdtry0.sock").exists(), "the socket is left");
    }
}

#[test]
fn a_wrong_key_is_told_from_a_dead_host_in_log_status_and_metrics() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("k");
    for end in [0, 1] {
        pair.configure(end, &Settings::OVERLAY);
    }
    // The first end's configuration has a wrong public key for the second end.
    let file = pair.path("0.toml".into());
    let text = std::fs::read_to_string(&file).unwrap();
    let other = srd_daemon::keys::SecretKey::draw_private().unwrap().public().to_string();
    std::fs::write(&file, text.replace(&pair.public[1], &other)).unwrap();
    let problem = |p: &Pair, end: usize| {
        let status = p.ask(end, &["status"]);
        status.map_or_else(String::new, |s| s["peers"][0]["problem"].to_string())
    };
    start_logged(&mut pair, 0);
    pair.wait("silence", |p| {
        ["\"nothing-heard\"", "\"port-closed\""].contains(&problem(p, 0).as_str())
    });
    start_logged(&mut pair, 1);
    pair.wait("the key that calls", |p| problem(p, 0) == "\"unknown-key\"");
    pair.wait("the key that is called", |p| problem(p, 1) == "\"other-key-for-us\"");
    pair.wait("a line", |p| log(p, 0).contains(&format!("it uses the key {}", p.public[1])));
    pair.wait("a line there", |p| log(p, 1).contains("it calls us by another public key"));
}

#[test]
fn regression_what_this_machine_cannot_send_is_not_blamed_on_the_peer() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("s");
    for end in [0, 1] {
        pair.configure(end, &Settings::OVERLAY);
        start_logged(&mut pair, end);
    }
    pair.wait_for_express();
    let a = pair.names[0].clone();
    let problem = |p: &Pair| {
        let status = p.ask(0, &["status"]).unwrap();
        status["peers"][0]["problem_text"].as_str().unwrap_or_default().to_owned()
    };
    must(&format!("-n {a} link set v0 down"));
    pair.wait("a reason", |p| problem(p).starts_with("this machine has no route to it"));
    pair.wait("a line", |p| log(p, 0).contains("does not answer: this machine has no route to it"));
    must(&format!("-n {a} link set v0 up"));
    pair.wait_for_express();
    pair.wait("no reason any more", |p| problem(p).is_empty());
    // The machine gets another address, but `listen` in its configuration stays.
    must(&format!("-n {a} addr add 198.18.0.11/24 dev v0"));
    must(&format!("-n {a} addr del 198.18.0.1/24 dev v0"));
    pair.wait("the reason", |p| problem(p).contains("the address of `listen`"));
}

#[test]
fn regression_status_says_that_another_program_has_set_the_interface_down() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("d");
    for end in [0, 1] {
        pair.configure(end, &Settings::OVERLAY);
        start_logged(&mut pair, end);
    }
    pair.wait_for_express();
    let is_down = |pair: &Pair| pair.ask(0, &["status"]).unwrap()["interface_down"] == true;
    assert!(!is_down(&pair));
    must(&format!("-n {} link set srd0 down", pair.names[0]));
    assert!(is_down(&pair));
}

#[test]
fn regression_the_log_of_a_daemon_that_was_stopped_says_so() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("z");
    for end in [0, 1] {
        pair.configure(end, &Settings::OVERLAY);
        start_logged(&mut pair, end);
    }
    pair.wait_for_express();
    assert!(!log(&pair, 0).contains("stood still"));
    let pid = pair.daemons[0].as_ref().unwrap().id().to_string();
    let signal = |name: &str| {
        assert!(std::process::Command::new("kill").args([name, &pid]).status().unwrap().success());
    };
    signal("-STOP");
    // The program logs that it was stopped if this lasts for at least five seconds.
    std::thread::sleep(Duration::from_millis(5200));
    signal("-CONT");
    pair.wait("the line", |p| log(p, 0).contains("this program stood still for"));
}

/// `srd down` removes what a daemon has left behind, even if the daemon's key is missing or belongs
/// to another user.
#[test]
fn regression_removing_what_is_left_needs_no_key() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("k");
    let interface = "kill_switch = true";
    pair.configure(0, &Settings { interface, ..Settings::OVERLAY });
    start_logged(&mut pair, 0);
    pair.wait("the daemon", |p| p.ask(0, &["status"]).is_some());
    let mut daemon = pair.daemons[0].take().unwrap();
    let pid = rustix::process::Pid::from_child(&daemon);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(daemon.wait().unwrap().success());
    pair.wait("a line", |p| log(p, 0).contains("ends, by SIGTERM"));
    assert!(log(&pair, 0).contains("stay unreachable until the next start, or `srd down`"));
    std::fs::remove_file(pair.path("0.key".into())).unwrap();
    let config = pair.path("0.toml".into());
    let down = pair.command(0).arg("down").arg("-c").arg(config).output().unwrap();
    assert!(down.status.success(), "{down:?}");
    assert!(String::from_utf8_lossy(&down.stdout).contains("removed"), "{down:?}");
}

#[test]
fn regression_a_control_socket_that_something_removes_is_made_again() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("cs");
    pair.configure(0, &Settings::OVERLAY);
    start_logged(&mut pair, 0);
    pair.wait("the daemon", |p| p.ask(0, &["status"]).is_some());
    let socket = pair.path("0.sock".into());
    std::fs::remove_file(&socket).unwrap();
    let is_again = |pair: &Pair| log(pair, 0).contains("was removed: it is there again");
    assert!(pair.ask(0, &["status"]).is_none() || is_again(&pair));
    pair.wait("the line", is_again);
    pair.wait("the socket", |p| p.ask(0, &["status"]).is_some());
    let mut daemon = pair.daemons[0].take().unwrap();
    let pid = rustix::process::Pid::from_child(&daemon);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(daemon.wait().unwrap().success() && !socket.exists());
}
