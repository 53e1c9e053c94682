//! Programs of libfabric in the instances of two hosts: their messages pass the card, which admits
//! them by security groups. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::support::hosts::Hosts;
use crate::support::machine::*;

/// Port at which a server of `fi_pingpong` listens for the TCP connection of its client.
const CONTROL: &str = "47592";
const ROUNDS: &str = "50";

/// Returns `fi_pingpong` with the provider, in the network namespace of an instance.
fn pingpong(instance: &str, provider: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{instance}")).arg("fi_pingpong");
    command.args(["-p", "srd", "-e", "rdm", "-I", ROUNDS, "-S", "4096", "-c"]).args(words);
    command.env("FI_PROVIDER_PATH", provider).env("FI_PROVIDER", "srd");
    // A peer that does not answer is an error soon, but not before a busy machine has answered.
    command.env("FI_SRD_IFACE", "ens5").env("FI_SRD_ANSWER_TIMEOUT_MS", "5000");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The control connection uses TCP and is always admitted, so only the messages depend on the rule.
#[test]
fn libfabric_reaches_an_instance_of_another_host_if_a_security_group_admits_it() {
    let found = Command::new("sh").args(["-c", "command -v fi_pingpong"]).output().unwrap();
    if !found.status.success() {
        println!("skipped: no fi_pingpong (apt-get install libfabric-bin)");
        return;
    }
    if !ready_with_nsenter() {
        return;
    }
    let library = std::env::current_exe().unwrap().with_file_name("libsrd_fi.so");
    assert!(library.exists(), "{} is built with the tests", library.display());
    let provider = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(library, provider.path().join("libsrd-fi.so")).unwrap();

    let hosts = Hosts::new("fi", 1500);
    let control = format!("'tcp {CONTROL} from 10.0.0.0/16'");
    let closed = hosts.machines[0].two_hosts(&control);
    hosts.configure(&closed, "");
    let _cards = hosts.both_up();
    let [a, b] = ["a", "b"].map(|name| hosts.instance(name));
    let listens = || {
        let table = within(&b, || std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap());
        let port: u16 = CONTROL.parse().unwrap();
        table.lines().any(|line| line.contains(&format!(":{port:04X} 00000000:0000 0A")))
    };
    let exchange = || {
        let server = Running(pingpong(&b, provider.path(), &[]).spawn().unwrap());
        wait_until("a server", listens);
        let client = pingpong(&a, provider.path(), &["10.0.1.11"]).output().unwrap();
        (server, client)
    };
    let received = || hosts.counter(1, "b", "rx_packets");
    let name = format!("{}b", hosts.machines[0].prefix);
    let refused = || hosts.machines[1].drops(&name, "security groups in");

    let (mut server, client) = exchange();
    assert!(!client.status.success(), "{client:#?}");
    assert!(refused() > 0);
    server.end(Signal::KILL);
    wait_until("the end of the server", || !listens());

    let all_of_udp = "'udp from 10.0.0.0/16'";
    let open = hosts.machines[0].two_hosts_with(
        "open.toml",
        &format!("{control}, {all_of_udp}"),
        ["", ""],
    );
    hosts.apply(&open);
    let (before, refused_before) = (received(), refused());
    let (mut server, client) = exchange();
    assert!(client.status.success(), "{client:#?}");
    assert!(server.0.wait().unwrap().success());
    let said = String::from_utf8_lossy(&client.stdout);
    assert!(said.contains("4k"), "{said}");
    // Each round has a message of 4 KiB, which is three packets of 1,500 bytes or fewer of the
    // instances' own size.
    let rounds: u64 = ROUNDS.parse().unwrap();
    assert!(received() >= before + rounds, "{} packets after {before}", received());
    assert_eq!(refused(), refused_before);
}
