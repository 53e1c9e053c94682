//! `srd check` as a program: on this system, and in a separate network namespace.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

const UNCHECKED: i32 = 255;
/// An account without privileges.
const NOBODY: u32 = 65534;

fn srd(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_srd")).args(args).stdin(Stdio::null()).output().unwrap()
}

fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    status.lines().any(|line| line.starts_with("Uid:\t0\t"))
}

#[track_caller]
fn refused(args: &[&str], says: &[&str]) {
    let output = srd(args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(UNCHECKED), "srd {args:?}\n{error}");
    assert!(output.stdout.is_empty(), "srd {args:?}");
    for text in says {
        assert!(error.contains(text), "srd {args:?}: `{text}` is not in\n{error}");
    }
}

#[test]
fn what_cannot_be_checked_is_no_count() {
    refused(&["check", "--nonsense"], &["--nonsense", "--help"]);
    refused(&["check", "--for", "nobody"], &["ena, daemon"]);
    refused(&["check", "--interface", "nosuch0"], &["nosuch0", "lo"]);
    refused(&["check", "--interface", "../lo"], &["../lo"]);
    refused(&["check", "--interface", "lo", "--only", "99"], &["99", "tcp-autocorking"]);
    refused(&["check", "--root", "/no/such/dir"], &["/no/such/dir"]);
    refused(&["check", "--interface", "lo", "--json", "/no/such/dir/x"], &["no such directory"]);
}

#[test]
fn help_is_no_failure_and_tells_the_exit_codes() {
    let output = srd(&["check", "--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = String::from_utf8_lossy(&output.stdout);
    assert!(help.contains("EXIT CODES") && help.contains("255"), "{help}");
}

#[test]
fn the_count_in_the_result_is_the_exit_code_and_looking_needs_no_privilege() {
    let directory = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(directory.path(), open).unwrap();
    let binary = directory.path().join("srd");
    // `cp` copies the program in a separate process: `bad_input.rs` explains why.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_srd")).arg(&binary).status();
    assert!(copied.unwrap().success());
    let run = |args: &[&str]| {
        let mut command = Command::new(&binary);
        command.args(["check", "--interface", "lo"]).args(args).current_dir(directory.path());
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.output().unwrap()
    };
    let output = run(&["--json"]);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["interface"], "lo");
    assert_eq!(result["for"], "daemon");
    assert_eq!(result["checks"].as_array().unwrap().len(), 23);
    assert_eq!(result["required_failed"].as_i64(), output.status.code().map(i64::from));
    let output = run(&["--low-rtt", "--json"]);
    let low: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(low["checks"].as_array().unwrap().len(), 23);
    assert_ne!(low["checks"], result["checks"], "the limits of near peers are others");
    let output = run(&["--fix"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(UNCHECKED), "{error}");
    assert!(error.contains("sudo"), "{error}");
}

/// Runs a script in a new network namespace with a sysfs mounted for it and with an interface
/// `check0`, through which the default route leads. The namespace ends with the script.
fn in_namespace(script: &str) -> String {
    let before = "set -e\nmount -t sysfs sysfs /sys\nip link set lo up\n\
                  ip link add check0 mtu 1500 type veth peer name check1\n\
                  ip link set check0 up; ip link set check1 up\n\
                  ip addr add 192.0.2.1/24 dev check0\n\
                  ip route add default via 192.0.2.2 dev check0\n";
    let output = Command::new("unshare")
        .args(["--net", "--mount", "sh", "-c", &format!("{before}{script}")])
        .env("SRD", env!("CARGO_BIN_EXE_srd"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout).unwrap()
}

fn status(result: &Value, name: &str) -> String {
    let checks = result["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == name).unwrap();
    check["status"].as_str().unwrap().to_owned()
}

/// Number of CPUs of this machine.
fn cpus() -> usize {
    let names = fs::read_dir("/sys/devices/system/cpu").unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let is_cpu = |name: &String| name.strip_prefix("cpu").is_some_and(|n| n.parse::<u32>().is_ok());
    names.filter(is_cpu).count()
}

#[test]
fn a_real_kernel_is_read_and_mended() {
    if !is_root() {
        println!("skipped: it needs root");
        return;
    }
    // The script writes only settings of its network namespace, not of the machine.
    let script = "sysctl -qw net.ipv4.tcp_autocorking=1 net.ipv4.conf.all.rp_filter=1 \
                  net.ipv6.auto_flowlabels=0\n\
                  ethtool -K check0 gro off\n\
                  $SRD check --transparent --json || echo \"exit $?\"\n\
                  ip link set check0 mtu 1300\n\
                  $SRD check --only mtu >/dev/null || echo \"exit $?\"\n\
                  ip link set check0 mtu 9000\n\
                  $SRD check --transparent --fix --only 4,12,14,15,21 >/dev/null\n\
                  $SRD check --transparent --json --only 1,4,12,14,15,21\n\
                  sysctl -n net.ipv4.tcp_autocorking net.ipv4.conf.all.rp_filter \
                  net.ipv6.auto_flowlabels | tr '\\n' ' '\n\
                  cat /sys/class/net/check0/queues/rx-0/rps_cpus\n";
    let text = in_namespace(script);
    let (first, rest) = text.split_once("\nexit 1\nexit 1\n").expect(&text);
    let first: Value = serde_json::from_str(first).unwrap();
    assert_eq!(first["interface"], "check0");
    assert_eq!(status(&first, "mtu"), "warn");
    assert_eq!(status(&first, "tcp-autocorking"), "warn");
    assert_eq!(status(&first, "reverse-path-filter"), "error");
    assert_eq!(status(&first, "flow-labels"), "warn");
    assert_eq!(status(&first, "uplink-hash"), "not_applicable");
    assert_eq!(status(&first, "rx-ring"), "not_applicable");
    assert_eq!(status(&first, "udp-offload"), "warn");
    let (second, settings) = rest.trim_end().rsplit_once('\n').unwrap();
    let (settings, steered) = settings.rsplit_once(' ').unwrap();
    // The kernel now steers the packets of the single queue to each CPU (RPS).
    let mask = steered.split(',').map(|word| u32::from_str_radix(word, 16).unwrap());
    let steered_to: usize = mask.map(|word| word.count_ones() as usize).sum();
    if cpus() > 1 {
        assert_eq!((status(&first, "queue-spread").as_str(), steered_to), ("warn", cpus()));
    }
    let second: Value = serde_json::from_str(second).unwrap();
    for name in ["mtu", "tcp-autocorking", "udp-offload", "reverse-path-filter", "flow-labels"] {
        assert_eq!(status(&second, name), "ok", "{second}");
    }
    assert_eq!(status(&second, "queue-spread"), if cpus() > 1 { "ok" } else { "not_applicable" });
    assert_eq!(settings, "0 2 1");
}

#[test]
fn a_full_disk_leaves_nothing_half_written() {
    if !is_root() {
        println!("skipped: it needs root");
        return;
    }
    let script = "mount -t tmpfs -o size=64k,mode=755 tmpfs /etc\n\
                  mkdir /etc/sysctl.d; echo 'net.core.somaxconn = 7' >/etc/sysctl.d/90-srd.conf\n\
                  sysctl -qw net.ipv4.tcp_autocorking=1\n\
                  dd if=/dev/zero of=/etc/full bs=4096 2>/dev/null || true\n\
                  $SRD check --fix --persist --only 4 2>&1 >/dev/null || echo \"exit $?\"\n\
                  find /etc -type f | sort; cat /etc/sysctl.d/90-srd.conf\n\
                  rm /etc/full; sysctl -qw net.ipv4.tcp_autocorking=1\n\
                  $SRD check --fix --persist --only 4 >/dev/null\n\
                  find /etc -type f | sort; $SRD check --unpersist >/dev/null\n\
                  find /etc -type f | sort; cat /etc/sysctl.d/90-srd.conf\n";
    let text = in_namespace(script);
    let (error, rest) = text.split_once("exit 255\n").expect(&text);
    assert!(error.contains("until the next restart") && error.contains("No space"), "{error}");
    let before = "/etc/sysctl.d/90-srd.conf\nnet.core.somaxconn = 7\n";
    let kept = "/etc/srd/check-persisted.json\n/etc/sysctl.d/90-srd.conf\n";
    assert_eq!(rest, format!("/etc/full\n{before}{kept}{before}"));
}
