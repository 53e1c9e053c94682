//! Privileges of the processes of a card, and the operation of a card while its helper process is
//! stopped. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::fs;
use std::process::Stdio;
use std::thread;

use crate::support::hosts::Hosts;
use crate::support::machine::*;
use crate::support::pair::must;
use rustix::process::{Pid, Signal, kill_process};

const NOTHING: &str = "0000000000000000";
/// Privileges of the helper process, in the form of /proc: `CAP_DAC_OVERRIDE`, `CAP_KILL`,
/// `CAP_NET_ADMIN`, `CAP_SYS_PTRACE` and `CAP_SYS_ADMIN`.
const OF_HELPER: &str = "0000000000281022";

/// Returns the texts of /proc/PID/task/*/status for all threads of a process. Threads that have
/// just ended are left out.
fn threads(pid: u32) -> Vec<String> {
    let all = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let all = all.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
    all.collect()
}

fn value<'a>(status: &'a str, key: &str) -> &'a str {
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{key}")).trim()
}

/// Checks that no thread of a process that reads packets of guests has a privilege.
#[track_caller]
pub(super) fn has_no_privilege(pid: u32) {
    let all = threads(pid);
    assert!(all.len() > 2, "{all:?}");
    for status in &all {
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(value(status, set), NOTHING, "{set}: {status}");
        }
        for ids in ["Uid", "Gid"] {
            assert!(value(status, ids).split_whitespace().all(|id| id != "0"), "{status}");
        }
        assert_eq!(value(status, "Groups"), "", "{status}");
        assert_eq!(value(status, "NoNewPrivs"), "1", "{status}");
    }
}

fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Returns the targets of those descriptors of a helper process that it has no reason to hold.
fn others_of(helper: u32) -> Vec<String> {
    let is_own = |number: &str, target: &str| {
        ["0", "1", "2"].contains(&number)
            || target.starts_with("socket:")
            || target.starts_with("/run/srd-card/locks/")
            // The helper holds its namespaces, which it compares with those of the same names.
            || target.starts_with("/run/netns/")
    };
    let entries = fs::read_dir(format!("/proc/{helper}/fd")).unwrap().flatten();
    let named = entries.filter_map(|entry| {
        let target = fs::read_link(entry.path()).ok()?.to_str()?.to_owned();
        Some((entry.file_name().to_str()?.to_owned(), target))
    });
    let others = named.filter(|(number, target)| !is_own(number, target));
    others.map(|(number, target)| format!("{number}: {target}")).collect()
}

/// Returns the process id of the only child of a card, which is its helper.
#[track_caller]
pub(super) fn helper_of(card: u32) -> u32 {
    let all = children(card);
    let command = fs::read_to_string(format!("/proc/{}/cmdline", all[0])).unwrap();
    assert!(all.len() == 1 && command.ends_with("card-helper\0"), "{all:?} {command}");
    all[0]
}

pub(super) fn tell(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
}

#[test]
fn the_process_that_reads_packets_has_no_privilege_in_any_thread() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("pva");
    let before = machine.facts();
    let directory = machine.path("logs").to_str().unwrap().to_owned();
    let log = format!("[flow_log.all]\ninterface = \"web\"\ndirectory = {directory:?}\n");
    let file = machine.example("vpc.toml", |text| format!("{text}{log}"));
    let words = [file.as_str(), "--internet", "--metrics", "127.0.0.1:9472"];
    let mut card = machine.up(&words);
    let https = listen(&machine.instance("web"), 443);
    let mut client = connect(&machine.instance("app"), WEB, 443).unwrap();
    let (mut server, _) = https.accept().unwrap();
    assert!(passes(&mut client, &mut server));
    has_no_privilege(card.0.id());
    let helper = helper_of(card.0.id());
    for status in threads(helper) {
        for set in ["CapPrm", "CapEff", "CapBnd"] {
            assert_eq!(value(&status, set), OF_HELPER, "{set}");
        }
        for set in ["CapInh", "CapAmb"] {
            assert_eq!(value(&status, set), NOTHING, "{set}");
        }
        assert_eq!(value(&status, "NoNewPrivs"), "1");
    }
    // The helper inherits neither descriptors nor the environment of the card. While it runs a
    // program, it also has pipes.
    wait_until("the helper has descriptors of its own alone", || others_of(helper).is_empty());
    let environment = fs::read_to_string(format!("/proc/{helper}/environ")).unwrap();
    assert!(!environment.contains("STATE_DIRECTORY"), "{environment}");

    // A card that has taken over another, and a card that starts after a kill, have no privileges
    // either.
    let mut next = machine.take_over(&mut card, &words);
    assert!(passes(&mut client, &mut server));
    has_no_privilege(next.0.id());
    let lives = || fs::exists(format!("/proc/{helper}/exe")).unwrap();
    assert!(lives(), "the helper serves the next process");
    next.end(Signal::KILL);
    wait_until("the end of the helper", || !lives());
    let mut again = machine.up(&words);
    has_no_privilege(again.0.id());
    assert_eq!(again.end(Signal::TERM), 0);
    assert_eq!(machine.facts(), before);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}

#[test]
fn cards_of_several_hosts_have_none_and_keep_keys_and_epochs() {
    if !ready_with_nsenter() {
        return;
    }
    let hosts = Hosts::new("pvb", 9000);
    let file = hosts.machines[0].two_hosts("'all from 10.0.0.0/16'");
    hosts.configure(&file, "");
    let [mut card, mut other] = hosts.both_up();
    has_no_privilege(card.0.id());
    let https = listen(&hosts.instance("a"), 443);
    let mut client = connect(&hosts.instance("b"), [10, 0, 1, 10], 443).unwrap();
    let (mut server, _) = https.accept().unwrap();
    assert!(passes(&mut client, &mut server));
    let mut next = hosts.take_over(0, &mut card);
    assert!(passes(&mut client, &mut server) && passes(&mut server, &mut client));
    has_no_privilege(next.0.id());
    // The helper process reads the files again that only root can read.
    tell(next.0.id(), Signal::HUP);
    let log = || fs::read_to_string(hosts.machines[0].path("next.log")).unwrap();
    wait_until("a line of the log", || log().contains("read the configuration again: "));
    let said = log();
    assert!(!said.contains("cannot keep the time"), "{said}");
    assert_eq!((next.end(Signal::TERM), other.end(Signal::TERM)), (0, 0));
}

/// The process `srd run` stays root, because it starts the user's program. The card that it starts
/// is a separate process, and has no privileges.
#[test]
fn the_card_of_a_run_has_none_either() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("pvc");
    let before = machine.facts();
    let name = format!("{}a", machine.prefix);
    let mut run = machine.command(&["run", "--name", &name, "--internet", "--", "sleep", LONG_S]);
    let mut run = Running(run.stderr(Stdio::null()).spawn().unwrap());
    wait_until("the instance", || machine.srd(&["card", "status", &name]).status.success());
    let of_run = children(run.0.id());
    let is_card = |pid: &&u32| {
        fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap().contains("--for-run")
    };
    let card = *of_run.iter().find(is_card).unwrap();
    has_no_privilege(card);
    helper_of(card);
    run.end(Signal::TERM);
    wait_until("what was there before", || machine.facts() == before);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}

/// Returns the text of `count` further instances, to be added to the example cloud.
fn more(machine: &Machine, count: u8) -> String {
    let one = |n: u8| {
        let instance = format!("{}n{n}", machine.prefix);
        format!(
            "[interface.n{n}]\nsubnet = \"web\"\naddress = [\"10.0.1.{n}\"]\n\
             instance = \"{instance}\"\n[instance.{instance}]\ntype = \"c7i.large\"\n\
             [elastic_address.n{n}]\npublic = \"198.51.100.{n}\"\ninterface = \"n{n}\"\n"
        )
    };
    (30..30 + count).map(one).collect()
}

#[test]
fn packets_pass_while_the_helper_stands_still() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("pvd");
    let file = machine.example("vpc.toml", |text| text);
    let many = machine.example("many.toml", |text| text + &more(&machine, 8));
    let mut card = machine.up(&[&file, "--internet"]);
    let https = listen(&machine.instance("web"), 443);
    let mut client = connect(&machine.instance("app"), WEB, 443).unwrap();
    let (mut server, _) = https.accept().unwrap();
    let helper = helper_of(card.0.id());
    tell(helper, Signal::STOP);
    // The change to the cloud needs everything that the helper does: instances, routes, resolvers.
    let mut apply = machine.command(&["card", "apply", &many]);
    let mut apply = Running(apply.stdin(Stdio::null()).spawn().unwrap());
    thread::sleep(SILENCE);
    for _ in 0..20 {
        assert!(passes(&mut client, &mut server) && passes(&mut server, &mut client));
    }
    let name = format!("{}app", machine.prefix);
    assert!(machine.srd(&["card", "status", &name]).status.success());
    assert!(apply.0.try_wait().unwrap().is_none(), "it waits for the helper");
    tell(helper, Signal::CONT);
    assert!(apply.0.wait().unwrap().success());
    let status = machine.json(&["card", "status"]);
    assert_eq!(status["instances"].as_array().unwrap().len(), 10);
    let routes = must(&format!("-n {} route show dev srd-igw", machine.namespace));
    assert_eq!(routes.lines().filter(|line| line.contains("198.51.100.3")).count(), 8, "{routes}");
    assert!(machine.srd(&["card", "apply", &file]).status.success());
    let has_gone = || {
        let routes = must(&format!("-n {} route show dev srd-igw", machine.namespace));
        !routes.contains("198.51.100.3")
    };
    wait_until("routes that go", has_gone);
    assert_eq!(card.end(Signal::TERM), 0);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}

/// If one address of a change is routed elsewhere by the machine, the whole change is undone.
#[test]
fn addresses_are_routed_all_or_none() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("pve");
    let file = machine.example("vpc.toml", |text| text);
    let many = machine.example("many.toml", |text| text + &more(&machine, 8));
    let mut card = machine.up(&[&file, "--internet"]);
    must(&format!("-n {} route add blackhole 198.51.100.35/32", machine.namespace));
    let routes = || must(&format!("-n {} route show", machine.namespace));
    let (before, left) = (routes(), machine.instances_left());
    let output = machine.srd(&["card", "apply", &many]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("198.51.100.35 is in use here"), "{said}");
    assert_eq!((routes(), machine.instances_left()), (before, left));
    must(&format!("-n {} route del blackhole 198.51.100.35/32", machine.namespace));
    assert!(machine.srd(&["card", "apply", &many]).status.success());
    assert_eq!(card.end(Signal::TERM), 0);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}

/// If the helper of a card was killed, the next card removes the namespaces and devices of that
/// card.
#[test]
fn a_card_goes_on_without_its_helper_and_says_what_it_cannot() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("pvf");
    let file = machine.example("vpc.toml", |text| text);
    let many = machine.example("many.toml", |text| text + &more(&machine, 1));
    let mut card = machine.up(&[&file]);
    let https = listen(&machine.instance("web"), 443);
    let mut client = connect(&machine.instance("app"), WEB, 443).unwrap();
    let (mut server, _) = https.accept().unwrap();
    tell(helper_of(card.0.id()), Signal::KILL);
    let log = || fs::read_to_string(machine.path("up.log")).unwrap();
    wait_until("a line of the log", || log().contains("the helper of this card has ended"));
    assert!(passes(&mut client, &mut server) && passes(&mut server, &mut client));
    // Regression: only the log contained it.
    let warnings = machine.json(&["card", "status"])["warnings"].clone();
    assert!(warnings[0].as_str().unwrap().contains("the helper of this card has ended"));
    let output = machine.srd(&["card", "apply", &many]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("the helper of this card"), "{said}");
    assert!(passes(&mut client, &mut server));
    assert_eq!(card.end(Signal::TERM), 0);
    drop((client, server, https));
    let mut again = machine.up(&[&file]);
    assert_eq!(again.end(Signal::TERM), 0);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}
