//! `srd up` with a table `[cloud]`: an overlay and instances in one process, over the same ports
//! and sessions. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use super::privileges::{has_no_privilege, tell};
use crate::support::hosts::{Hosts, NAMES, PORT, carries_a_megabyte};
use crate::support::machine::*;
use crate::support::pair::must;

/// Addresses of the two machines in the overlay.
pub(super) const OVERLAY: [[u8; 4]; 2] = [[10, 77, 0, 1], [10, 77, 0, 2]];
pub(super) const RULES: &str = "'tcp 5000 from 10.0.0.0/16', 'icmp from 10.0.0.0/16'";

/// Returns the command `srd up` with the settings of a machine, in its network namespace.
pub(super) fn node(machine: &Machine, config: &str) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{}", machine.namespace)).arg(SRD);
    command.args(["up", "-c", config]).env("STATE_DIRECTORY", machine.path("state"));
    command
}

pub(super) fn up(hosts: &Hosts, end: usize) -> Running {
    hosts.machines[end].up_by(node(&hosts.machines[end], &hosts.config(end)))
}

/// Returns the state of the interface and its peers.
fn status(machine: &Machine) -> Value {
    let mut command = Command::new(SRD);
    command.args(["status", "--json", "--socket"]).arg(machine.socket());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:#?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Makes the node of a machine read its files again, and returns the output of the command.
fn reloaded(machine: &Machine) -> String {
    let output =
        Command::new(SRD).args(["reload", "--socket", &machine.socket()]).output().unwrap();
    assert!(output.status.success(), "{output:#?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Gives both machines an overlay beside the instances.
pub(super) fn with_overlay(hosts: &Hosts) {
    for end in [0, 1] {
        let [own, other] =
            [OVERLAY[end], OVERLAY[1 - end]].map(|[a, b, c, d]| format!("{a}.{b}.{c}.{d}"));
        hosts.edit(end, |text| {
            let text = text.replace("mode = \"cloud\"", &format!("address = [\"{own}/24\"]"));
            format!("{text}allowed = [\"{other}\"]\n")
        });
    }
}

/// Returns two machines with a cloud, whose nodes have the sockets of the machines.
fn nodes(tag: &str) -> (Hosts, String) {
    let hosts = Hosts::new(tag, 1500);
    let file = hosts.machines[0].two_hosts(RULES);
    configure(&hosts, &file, "");
    (hosts, file)
}

/// Writes the settings of two nodes, which have the sockets of their machines. `lines` are added to
/// the table `[cloud]`.
pub(super) fn configure(hosts: &Hosts, file: &str, lines: &str) {
    hosts.configure(file, lines);
    for end in [0, 1] {
        let socket = format!("[control]\nsocket = \"{}\"\n[cloud]\n", hosts.machines[end].socket());
        hosts.edit(end, |text| text.replace("[cloud]\n", &socket));
    }
}

/// Removes the keys from the settings of both machines, and lets every user read them, as the user
/// of the package can read those in `/etc/srd`.
pub(super) fn without_keys(hosts: &Hosts) {
    for end in [0, 1] {
        hosts.remove_keys(end);
        let directory = hosts.machines[end].path("");
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// Returns the network state of a machine, as soon as all of its addresses can be used: IPv6 checks
/// first whether another machine has the address.
pub(super) fn facts_with_addresses(machine: &Machine) -> Vec<String> {
    wait_until("all addresses", || !format!("{:?}", machine.facts()).contains("tentative"));
    machine.facts()
}

/// Checks that the machines reach each other through the overlay.
fn overlay_carries_a_megabyte(hosts: &Hosts) {
    let [a, b] = hosts.machines.each_ref().map(|machine| machine.namespace.as_str());
    carries_a_megabyte(a, b, OVERLAY[1]);
}

/// Returns the ports of the UDP sockets of a machine.
fn udp_ports(machine: &Machine) -> Vec<u16> {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{}", machine.namespace));
    let table = command.args(["cat", "/proc/net/udp"]).output().unwrap().stdout;
    let table = String::from_utf8(table).unwrap();
    let ports = table.lines().skip(1).map(|line| {
        let local = line.split_whitespace().nth(1).unwrap();
        u16::from_str_radix(local.split(':').nth(1).unwrap(), 16).unwrap()
    });
    let mut ports: Vec<u16> = ports.collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// Returns the answer of the server for figures of a machine.
fn figures(machine: &Machine, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    within(&machine.namespace, || {
        let mut stream = TcpStream::connect("127.0.0.1:9471").unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    })
}

/// Checks that the figures of the interface, of its peers and of the instances have one server.
fn one_server_has_all_figures(machine: &Machine) {
    let metrics = figures(machine, "/metrics");
    for sample in [
        "node_ethtool_ena_srd_mode{device=\"srd0\"}",
        "srd_peer_up{device=\"srd0\",peer=\"beta\"} 1",
        "srd_card_host_up{host=\"alpha\",peer=\"beta\"} 1",
    ] {
        assert!(metrics.contains(sample), "{sample} is not in\n{metrics}");
    }
    let guest = format!("guest=\"{}a\",device=\"ens5\"", machine.prefix);
    assert!(metrics.contains(&format!("node_ethtool_ena_srd_mode{{{guest}}}")), "{metrics}");
    assert_eq!(metrics.matches("# TYPE node_ethtool_ena_srd_mode ").count(), 1);
    assert!(figures(machine, "/").contains("<a href=\"instances/\">Instances</a>"));
    assert!(figures(machine, "/instances/").contains("<a href=\"../\">Interface</a>"));
    let status = figures(machine, "/instances/status.json");
    assert!(status.contains("\"host\":\"alpha\""), "{status}");
}

/// Checks that a packet of the overlay without a peer is not shown as a frame of an instance.
fn drops_of_the_overlay_are_shown_as_such(machine: &Machine) {
    // No peer has the address of a multicast group. There is no answer, so `ping` fails.
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{}", machine.namespace));
    command.args(["ping", "-c", "1", "-W", "1", "-I", "srd0", "224.0.0.1"]).output().unwrap();
    let drops = || machine.json(&["card", "status"])["drops"].clone();
    wait_until("the packet", || drops()["interface: guest_no_peer"].as_u64() > Some(0));
    let drops = drops();
    let names = drops.as_object().unwrap().keys();
    let of_instances: Vec<_> =
        names.filter(|name| name.starts_with("between hosts: guest")).collect();
    assert!(of_instances.is_empty(), "{drops}");
}

#[test]
fn an_overlay_and_instances_share_one_process_port_and_session() {
    if !ready_with_nsenter() {
        return;
    }
    let (hosts, _) = nodes("no");
    with_overlay(&hosts);
    let figures = "[metrics]\nlisten = \"127.0.0.1:9471\"\n";
    hosts.edit(0, |text| text.replace("[control]", &format!("{figures}[control]")));
    let facts = || hosts.machines.each_ref().map(facts_with_addresses);
    let before = facts();
    let mut running = [up(&hosts, 0), up(&hosts, 1)];
    (0..2).for_each(|end| hosts.wait_for_session(end));
    let [a, b] = ["a", "b"].map(|name| hosts.instance(name));
    carries_a_megabyte(&a, &b, [10, 0, 1, 11]);
    carries_a_megabyte(&b, &a, [10, 0, 1, 10]);
    overlay_carries_a_megabyte(&hosts);
    assert!(connect_in_vain(&a, [10, 0, 1, 11], 80).is_err(), "no rule allows port 80");
    // Instances do not reach the overlay, and the overlay does not reach instances.
    assert!(connect_in_vain(&a, OVERLAY[1], 5000).is_err());

    for (machine, node) in hosts.machines.iter().zip(&running) {
        assert_eq!(udp_ports(machine), (PORT..PORT + 64).collect::<Vec<_>>(), "one set of ports");
        has_no_privilege(node.0.id());
        let peers = status(machine)["peers"].clone();
        assert!(peers.as_array().unwrap().len() == 1 && peers[0]["state"] == "up", "{peers}");
    }
    one_server_has_all_figures(&hosts.machines[0]);
    drops_of_the_overlay_are_shown_as_such(&hosts.machines[0]);
    for (machine, node) in hosts.machines.iter().zip(&mut running) {
        assert_eq!(node.end(Signal::TERM), 0, "{:?}", fs::read_to_string(machine.path("up.log")));
    }
    assert_eq!(facts(), before, "everything is given back");
    assert_eq!(hosts.machines[0].instances_left(), Vec::<String>::new());
}

#[test]
fn a_killed_node_leaves_nothing_and_its_successor_goes_on() {
    if !ready_with_nsenter() {
        return;
    }
    let (hosts, _) = nodes("nk");
    with_overlay(&hosts);
    let before = facts_with_addresses(&hosts.machines[0]);
    let mut first = up(&hosts, 0);
    let _second = up(&hosts, 1);
    hosts.wait_for_session(0);
    first.end(Signal::KILL);
    wait_until("the end of what the node had", || {
        hosts.machines[0].facts() == before
            && !hosts.machines[0].instances_left().iter().any(|name| name.ends_with('a'))
    });
    let _next = up(&hosts, 0);
    (0..2).for_each(|end| hosts.wait_for_session(end));
    let [a, b] = ["a", "b"].map(|name| hosts.instance(name));
    carries_a_megabyte(&a, &b, [10, 0, 1, 11]);
    overlay_carries_a_megabyte(&hosts);
}

/// `srd up` runs instances without an overlay, with other hosts and without.
#[test]
fn instances_without_an_overlay_run_in_srd_up() {
    if !ready_with_nsenter() {
        return;
    }
    let (hosts, file) = nodes("nc");
    let [first, second] = &hosts.machines;
    let mut alpha = up(&hosts, 0);
    let mut beta = up(&hosts, 1);
    (0..2).for_each(|end| hosts.wait_for_session(end));
    let [a, b] = ["a", "b"].map(|name| hosts.instance(name));
    carries_a_megabyte(&a, &b, [10, 0, 1, 11]);
    let links = must(&format!("-n {} link show type tun", first.namespace));
    assert_eq!(links, "", "there is no interface");
    assert_eq!(alpha.end(Signal::TERM), 0);
    assert_eq!(beta.end(Signal::TERM), 0);

    // One host that needs no transport: it has no socket, and no network either.
    must(&format!("-n {} link set lo down", second.namespace));
    must(&format!("-n {} link set v0 down", second.namespace));
    let alone = second.path("alone.toml");
    let text = format!(
        "[control]\nsocket = \"{}\"\n[cloud]\nvpc = \"{file}\"\nhost = \"beta\"\n",
        second.socket()
    );
    fs::write(&alone, text).unwrap();
    let mut alone = second.up_by(node(second, alone.to_str().unwrap()));
    let hosts_of = second.json(&["card", "status"])["hosts"].clone();
    assert_eq!(hosts_of, Value::Array(Vec::new()));
    assert_eq!(udp_ports(second), Vec::<u16>::new());
    assert_eq!(alone.end(Signal::TERM), 0);
    assert_eq!(first.instances_left(), Vec::<String>::new());
}

/// A reload adds and removes hosts, and applies the changes in the file of the clouds.
#[test]
fn a_reload_applies_hosts_and_rules() {
    if !ready_with_nsenter() {
        return;
    }
    let (hosts, file) = nodes("nr");
    with_overlay(&hosts);
    without_keys(&hosts);
    let whole = fs::read_to_string(hosts.config(0)).unwrap();
    let (without, _) = whole.split_once("[[peer]]").unwrap();
    fs::write(hosts.config(0), without).unwrap();
    let first = up(&hosts, 0);
    let listed = || hosts.machines[0].json(&["card", "status"])["hosts"].clone();
    assert_eq!(listed(), Value::Array(Vec::new()));
    let reload = || tell(first.0.id(), Signal::HUP);

    fs::write(hosts.config(0), &whole).unwrap();
    reload();
    wait_until("the new host", || listed()[0]["name"] == NAMES[1]);
    let second = up(&hosts, 1);
    hosts.wait_for_session(0);
    let [a, b] = ["a", "b"].map(|name| hosts.instance(name));
    carries_a_megabyte(&a, &b, [10, 0, 1, 11]);
    overlay_carries_a_megabyte(&hosts);

    // The receiver's rules decide, so its node reads the file again, too.
    let rules = fs::read_to_string(&file).unwrap();
    fs::write(&file, rules.replace("tcp 5000 from", "tcp 5001 from")).unwrap();
    // The command reports whether the file has changed, also if no other file has.
    assert_eq!(reloaded(&hosts.machines[0]), "changes in the VPC's file taken over\n");
    assert_eq!(reloaded(&hosts.machines[0]), "nothing has changed\n");
    tell(second.0.id(), Signal::HUP);
    let listener = listen(&b, 5001);
    wait_until("the new rules", || connect_in_vain(&a, [10, 0, 1, 11], 5001).is_ok());
    drop(listener);

    fs::write(hosts.config(0), without).unwrap();
    reload();
    wait_until("the end of the host", || listed() == Value::Array(Vec::new()));
    // A file with an error changes nothing.
    fs::write(hosts.config(0), whole.replace("host = \"alpha\"", "host = \"\"")).unwrap();
    reload();
    let log = || fs::read_to_string(hosts.machines[0].path("up.log")).unwrap();
    wait_until("the refusal", || log().contains("the configuration stays as it was"));
    assert_eq!(listed(), Value::Array(Vec::new()));
}

#[test]
fn a_node_whose_instances_cannot_start_leaves_nothing() {
    if !ready_with_nsenter() {
        return;
    }
    let (hosts, _) = nodes("nf");
    with_overlay(&hosts);
    let machine = &hosts.machines[0];
    // An address of another interface in the subnet of the overlay.
    must(&format!("-n {} addr add 10.77.0.9/24 dev v0", machine.namespace));
    let before = facts_with_addresses(machine);
    let output = node(machine, &hosts.config(0)).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("would be cut off"), "{said}");
    assert_eq!((machine.facts(), machine.instances_left()), (before, Vec::new()));
    assert!(!fs::exists(machine.socket()).unwrap(), "the socket is removed");
}

/// A node with an overlay and instances starts and ends with the capabilities of `cloud.conf`, also
/// if its control socket belongs to a group.
#[test]
fn a_node_works_with_the_rights_of_its_unit() {
    if !ready_with_nsenter() {
        return;
    }
    let (hosts, _) = nodes("nu");
    with_overlay(&hosts);
    hosts.edit(0, |text| text.replace("[control]", "[control]\ngroup = \"daemon\""));
    let machine = &hosts.machines[0];
    let before = facts_with_addresses(machine);
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let unit = fs::read_to_string(packaging.join("cloud.conf")).unwrap();
    let set = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
    let set = set.to_lowercase().replace("cap_", "+").replace(' ', ",");
    let config = hosts.config(0);
    let confined = |set: &str| {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", machine.namespace));
        command.args(["setpriv", &format!("--bounding-set=-all,{set}"), "--no-new-privs", SRD]);
        command.args(["up", "-c", &config]).env("STATE_DIRECTORY", machine.path("state"));
        command
    };
    let mut first = machine.up_by(confined(&set));
    let _second = up(&hosts, 1);
    hosts.wait_for_session(0);
    let [a, b] = ["a", "b"].map(|name| hosts.instance(name));
    carries_a_megabyte(&a, &b, [10, 0, 1, 11]);
    overlay_carries_a_megabyte(&hosts);
    assert_eq!(first.end(Signal::TERM), 0, "{:?}", fs::read_to_string(machine.path("up.log")));
    assert_eq!(machine.facts(), before);
    // The capability of an overlay alone is not sufficient, and the error names the remedy.
    let output = confined("+net_admin").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(3) && said.contains("/usr/share/srd/cloud.conf"),
        "{said}"
    );
}
