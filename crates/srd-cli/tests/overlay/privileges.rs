//! Privileges of the processes of `srd up`, requests that its network process refuses, and a start
//! that fails and leaves nothing behind. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use crate::support::pair::{ip, must, ready};
use crate::support::routed::{Routed, must_run};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Child, Command, Stdio};

const SRD: &str = env!("CARGO_BIN_EXE_srd");
/// User that has no account: one of the numbers that daemons without an account use.
const USER: u32 = 60_900;
/// `CAP_NET_ADMIN` in the form of /proc.
const NET_ADMIN: &str = "0000000000001000";
const NOTHING: &str = "0000000000000000";

/// Returns the value of the line `key` in /proc/PID/status.
fn status(pid: u32, key: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{key}:")));
    line.unwrap_or_else(|| panic!("{key}")).trim().to_owned()
}

/// Whether a user is a spare user: one of those that no account has.
fn is_spare(user: &str) -> bool {
    user.parse().is_ok_and(srd_trust::spare::is_spare)
}

/// Returns the process ids of a user.
fn processes_of(user: &str) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_of = |pid: &u32| {
        // A process may end meanwhile.
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let users = text.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
        users.split_whitespace().any(|id| id == user)
    };
    all.filter(is_of).collect()
}

/// Returns the process id of a daemon's network process.
fn child_of(pid: u32) -> u32 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

fn has_no_more_than(pid: u32, capabilities: &str) {
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        assert_eq!(status(pid, set), capabilities, "{set}");
    }
    for set in ["CapInh", "CapAmb"] {
        assert_eq!(status(pid, set), NOTHING, "{set}");
    }
    assert_eq!(status(pid, "NoNewPrivs"), "1");
}

#[test]
fn regression_no_process_keeps_more_privileges_than_it_needs() {
    if !ready() {
        return;
    }
    let mut net = Routed::new("v");
    net.configure_overlay("", "\"10.78.0.2/32\"");
    // In this directory, only root can read the keys. So the daemon keeps the user root, to be able
    // to reload.
    net.start(0);
    let daemon = net.daemons[0].as_ref().unwrap().id();
    let network = child_of(daemon);
    has_no_more_than(daemon, NOTHING);
    has_no_more_than(network, NET_ADMIN);
    let of_network = status(network, "Uid").split_whitespace().next().unwrap().to_owned();
    assert!(is_spare(&of_network), "{of_network}");
    assert!(status(network, "Uid").split_whitespace().all(|id| id == of_network));
    assert!(status(network, "Gid").split_whitespace().all(|id| id == of_network));
    assert_eq!(status(network, "Groups"), "");
    assert!(net.srd(0, &["reload"]), "{}", net.log(0));
    assert!(net.log(0).contains("stays user root"), "{}", net.log(0));
    net.stop(0);
    // All users can now read the files. So the daemon changes to the user `srd`, or to a user of no
    // other process if that does not exist, and can still reload.
    let directory = net.directory.path().to_owned();
    std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o755)).unwrap();
    let text = std::fs::read_to_string(net.path("0.toml")).unwrap();
    let key = text.lines().find(|line| line.starts_with("private_key_file")).unwrap();
    let public = text.lines().find(|line| line.starts_with("public_key")).unwrap();
    let text = text.replace(key, "protection = \"plain\"").replace(public, "");
    std::fs::write(net.path("0.toml"), text).unwrap();
    net.start(0);
    let daemon = net.daemons[0].as_ref().unwrap().id();
    has_no_more_than(daemon, NOTHING);
    let of_daemon = status(daemon, "Uid").split_whitespace().next().unwrap().to_owned();
    let of_network = status(child_of(daemon), "Uid");
    assert!(!of_network.contains(&of_daemon), "{of_network} may end {of_daemon}");
    if nix::unistd::User::from_name("srd").unwrap().is_none() {
        assert!(is_spare(&of_daemon), "{of_daemon}");
        assert_eq!(processes_of(&of_daemon), [daemon]);
    }
    assert!(status(daemon, "Uid").split_whitespace().all(|id| id == of_daemon));
    assert!(status(daemon, "Gid").split_whitespace().all(|id| id != "0"));
    assert_eq!(status(daemon, "Groups"), "");
    for thread in std::fs::read_dir(format!("/proc/{daemon}/task")).unwrap().flatten() {
        // A thread that served a command may have ended by now.
        let Ok(text) = std::fs::read_to_string(thread.path().join("status")) else { continue };
        let kept = text.lines().filter(|l| l.starts_with("CapPrm") || l.starts_with("Uid"));
        assert!(
            kept.clone().count() == 2 && kept.clone().all(|l| !l.contains("Uid:\t0")),
            "{text}"
        );
    }
    assert!(net.srd(0, &["reload"]), "{}", net.log(0));
    assert!(net.srd(0, &["status"]));
    net.stop(0);
}

#[test]
fn regression_the_network_process_inherits_no_descriptors_and_no_environment() {
    if !ready() {
        return;
    }
    let mut net = Routed::new("i");
    net.configure_overlay("", "\"10.78.0.2/32\"");
    let config = net.path("0.toml");
    let line = format!("exec 9</etc/passwd; exec {SRD} up -c {}", config.display());
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &net.a, "bash", "-c", &line]).env("SECRET", "hush");
    net.daemons[0] = Some(command.spawn().unwrap());
    net.wait("a daemon", |n| n.srd(0, &["status"]));
    let network = child_of(net.daemons[0].as_ref().unwrap().id());
    // The process belongs to another user, but only root may read its descriptors.
    for entry in std::fs::read_dir(format!("/proc/{network}/fd")).unwrap().flatten() {
        let number: u32 = entry.file_name().to_str().unwrap().parse().unwrap();
        // The descriptor may be closed by now.
        let Ok(target) = std::fs::read_link(entry.path()) else { continue };
        let target = target.to_str().unwrap();
        let is_own = number <= 2 || target.starts_with("socket:");
        assert!(
            is_own && !target.contains("passwd") && !target.contains("tun"),
            "{number} {target}"
        );
    }
    assert!(std::fs::read(format!("/proc/{network}/environ")).unwrap().is_empty());
    net.stop(0);
}

/// A network process under the control of the test, as if an attacker had taken over the daemon.
struct Taken {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Taken {
    fn new(net: &Routed, spec: &str) -> Self {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &net.a, SRD, "network", spec]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, answers }
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        answer.trim().to_owned()
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

fn spec(interface: &str, table: u32) -> String {
    format!(
        "{{\"interface\":\"{interface}\",\"addresses\":[\"10.78.0.1/24\"],\"table\":{table},\
         \"mark\":7471,\"kill_switch\":false}}"
    )
}

#[test]
fn regression_a_daemon_that_was_taken_over_reaches_its_own_interface_and_table_only() {
    if !ready() {
        return;
    }
    let net = Routed::new("x");
    let before = net.network();
    let mut taken = Taken::new(&net, &spec("v0", 7471));
    for line in [
        "+ link set dev v0 xdp object x.o",
        "- address add 10.0.0.1/8 dev v0",
        "rubbish",
        "{}",
        r#"{"Up":{"mtu":1500,"interface":"v0"}}"#,
        r#"{"Change":{"add":[{"prefix":"0.0.0.0/0","source":null,"table":254}],"remove":[]}}"#,
        r#"{"Change":{"add":[{"prefix":"0.0.0.0/0","source":null,"via":"1.1.1.1"}],"remove":[]}}"#,
        r#"{"Netns":{"link":"v0"}}"#,
    ] {
        assert!(taken.ask(line).contains("not a request"), "{line}");
    }
    // The interface for which the process was started must also be a TUN device.
    assert!(taken.ask(r#"{"Up":{"mtu":1400}}"#).contains("no TUN device"));
    let change =
        r#"{"Change":{"add":[{"prefix":"0.0.0.0/0","source":null}],"remove":["192.0.2.0/24"]}}"#;
    assert_eq!(taken.ask(change), r#""Done""#);
    taken.ask(r#""Apply""#);
    // Only rules of the process itself exist: it has created no route through another interface.
    let main = must(&format!("-n {} route show table main", net.a));
    assert!(main.contains("192.0.2.0/24") && main.contains("via 192.0.2.1"), "{main}");
    let own = ip(&format!("-n {} route show table 7471", net.a)).stdout;
    assert_eq!(String::from_utf8_lossy(&own), "");
    assert!(must(&format!("-n {} link show v0", net.a)).contains("mtu 1500"));
    // A request with too many changes is refused. Later, a line without an end ends the process.
    let many = vec![r#""10.0.0.0/8""#; 513].join(",");
    let many = format!(r#"{{"Change":{{"add":[],"remove":[{many}]}}}}"#);
    assert!(taken.ask(&many).contains("too many changes"));
    taken.end();
    assert_eq!(net.difference(&before), [""; 0]);
    let mut endless = Taken::new(&net, &spec("v0", 7471));
    let _ = endless.child.stdin.as_mut().unwrap().write_all(&vec![b'x'; 1 << 20]);
    let _ = endless.child.wait();
    assert_eq!(net.difference(&before), [""; 0]);
}

#[test]
fn regression_a_start_that_fails_half_way_leaves_nothing() {
    if !ready() {
        return;
    }
    let net = Routed::new("h");
    net.configure_overlay("", "\"10.78.0.2/32\", \"0.0.0.0/0\"");
    let before = net.network();
    let fails = |word: &str, before: &str| {
        let output = net.command(0, &["up"]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(word), "{word}: {error}");
        assert_eq!(net.difference(before), [""; 0], "{word}");
        assert!(!net.path("0.sock").exists(), "{word}");
        output.status.code()
    };
    let socket = net.within(&net.a, || std::net::UdpSocket::bind("192.0.2.10:7472").unwrap());
    fails("cannot listen at", &before);
    drop(socket);
    must_run(&net.a, &["ip", "tuntap", "add", "srd0", "mode", "tun"]);
    fails("is there already", &net.network());
    must(&format!("-n {} link delete srd0", net.a));
    must(&format!("-n {} link add srd0 type veth peer name w1", net.a));
    fails("is there already", &net.network());
    must(&format!("-n {} link delete srd0", net.a));
    // The overlay's network contains one of the machine's own networks.
    net.configure(0, "address = [\"192.0.2.99/16\"]", None);
    let text = std::fs::read_to_string(net.path("0.toml")).unwrap();
    let text = text.replace("listen = \"192.0.2.10:7471\"", "listen = \"0.0.0.0:7471\"");
    let text = text.replace("paths = 2", "paths = 2\ntable = 7000");
    std::fs::write(net.path("0.toml"), text).unwrap();
    fails("that network would be cut off", &before);
    // A start without the privilege to create the interface.
    net.configure_overlay("", "\"10.78.0.2/32\"");
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &net.a, "setpriv", "--bounding-set", "-net_admin", SRD]);
    let output = command.args(["up", "-c"]).arg(net.path("0.toml")).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(net.difference(&before), [""; 0]);
}

#[test]
fn an_ordinary_user_with_the_capability_runs_it_as_the_unit_does() {
    if !ready() {
        return;
    }
    let mut net = Routed::new("u");
    net.configure_overlay("", "\"10.78.0.2/32\"");
    let directory = net.directory.path().to_owned();
    std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o777)).unwrap();
    chown(net.path("0.key"), Some(USER), None).unwrap();
    let before = net.network();
    let user = USER.to_string();
    let ids = ["--reuid", &user, "--regid", &user, "--clear-groups", "--no-new-privs"];
    let caps =
        ["--inh-caps=+net_admin", "--ambient-caps=+net_admin", "--bounding-set=-all,+net_admin"];
    let mut command = Command::new("ip");
    // The script creates a TUN device that every user may open, as udev does. Only these processes
    // see it.
    let device = "mknod $0 c 10 200 && chmod 666 $0 && mount --bind $0 /dev/net/tun && exec $@";
    command.args(["netns", "exec", &net.a, "bash", "-c", device]).arg(net.path("tun"));
    command.arg("setpriv").args(ids).args(caps);
    command.args([SRD, "up", "-c"]).arg(net.path("0.toml"));
    net.daemons[0] = Some(command.spawn().unwrap());
    net.wait("a daemon", |n| n.srd(0, &["status"]));
    let daemon = net.daemons[0].as_ref().unwrap().id();
    let network = child_of(daemon);
    for (pid, capabilities) in [(daemon, NOTHING), (network, NET_ADMIN)] {
        for set in ["CapPrm", "CapEff"] {
            assert_eq!(status(pid, set), capabilities, "{set}");
        }
        for set in ["CapInh", "CapAmb"] {
            assert_eq!(status(pid, set), NOTHING, "{set}");
        }
        assert_eq!(status(pid, "NoNewPrivs"), "1");
    }
    assert!(net.route("10.78.0.2").contains("dev srd0"));
    net.stop(0);
    assert_eq!(net.difference(&before), [""; 0]);
}

/// The directory of the socket stayed that of root, so members of the group could not enter it.
#[test]
fn regression_a_group_reaches_a_daemon_that_follows_one_without_a_group() {
    if !ready() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let text = "[interface]\nname = \"srdg\"\naddress = [\"10.99.0.1/24\"]\n\
                listen = \"127.0.0.1:7471\"\nprotection = \"plain\"\nworkers = 1\n";
    let file = |name: &str| directory.path().join(name);
    std::fs::write(file("without.toml"), text).unwrap();
    let with = format!("{text}[control]\ngroup = \"daemon\"\n");
    std::fs::write(file("with.toml"), with).unwrap();
    let script = format!(
        "mount -t tmpfs none /run\nip link set lo up\n\
         trap 'kill $pid 2>/dev/null || true' EXIT\n\
         start() {{\nrm -f /run/srd/srdg.sock\n{SRD} up -c {0}/$1.toml &\npid=$!\nn=0\n\
         until [ -S /run/srd/srdg.sock ]; do n=$((n + 1)); [ $n -lt 600 ]; sleep 0.1; done\n}}\n\
         reaches() {{ setpriv --reuid 1 --regid 1 --clear-groups test -w /run/srd/srdg.sock; }}\n\
         start without\nif reaches; then echo the group reaches it; exit 9; fi\n\
         kill $pid\nwait $pid\nstart with\nreaches\nkill $pid\nwait $pid\n",
        directory.path().display()
    );
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "--net", "sh", "-eu", "-c", &script]);
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
