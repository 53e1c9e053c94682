//! Two situations of a card: it ends while programs run in its instances, and devices are deleted
//! while it runs. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::io::Read;
use std::process::{Command, Stdio};

use crate::support::machine::*;
use crate::support::pair::must;
use rustix::process::Signal;

/// Starts a program that sleeps in a namespace. Returns the program and its process id.
fn sleeper(namespace: &str) -> (Running, String) {
    let sleeper = crate::support::machine::sleeper(namespace);
    let pid = sleeper.0.id().to_string();
    assert!(pids(namespace).contains(&pid));
    (sleeper, pid)
}

fn pids(namespace: &str) -> Vec<String> {
    let all = must(&format!("netns pids {namespace}"));
    all.lines().map(|line| line.trim().to_owned()).collect()
}

fn log(machine: &Machine) -> String {
    std::fs::read_to_string(machine.path("up.log")).unwrap()
}

/// Regression: the card removed the name of a namespace in which a program ran. So the program
/// could not be found, and the next card created another namespace of the same name.
#[test]
fn regression_programs_that_outlive_an_orderly_end_keep_their_namespace() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("eo");
    let file = machine.example("vpc.toml", |text| text);
    let (web, app) = (machine.instance("web"), machine.instance("app"));
    let mut card = machine.up(&[&file]);
    let (sleeper, pid) = sleeper(&web);
    let inode = || std::fs::metadata(format!("/proc/{pid}/ns/net")).unwrap();
    let before = std::os::unix::fs::MetadataExt::ino(&inode());
    assert_eq!(card.end(Signal::TERM), 0);
    assert!(pids(&web).contains(&pid), "it is found");
    assert!(log(&machine).contains(&format!("sleep ({pid})")), "{}", log(&machine));
    let left = machine.instances_left();
    assert!(left.iter().any(|line| line.starts_with(&web)), "{left:?}");
    assert!(!left.iter().any(|line| line.starts_with(&app)), "no program runs in {app}");
    // The next card takes over the namespace.
    let mut again = machine.up(&[&file]);
    assert!(must(&format!("-n {web} addr show ens5")).contains("10.0.1.10"));
    assert!(pids(&web).contains(&pid));
    let own = std::fs::metadata(format!("/run/netns/{web}")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::ino(&own), before, "its own namespace");
    drop(sleeper);
    wait_until("an empty namespace", || pids(&web).is_empty());
    assert_eq!(again.end(Signal::TERM), 0);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}

/// One program ends at SIGTERM, the other program does not.
#[test]
fn programs_end_with_the_card_if_that_is_wanted() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("ep");
    let file = machine.example("vpc.toml", |text| text);
    let (web, app) = (machine.instance("web"), machine.instance("app"));
    let mut card = machine.up(&[&file, "--end-programs"]);
    let (mut ends, pid) = sleeper(&web);
    let mut stubborn = Command::new("ip");
    let words =
        ["netns", "exec", &app, "sh", "-c", "trap '' TERM; echo; while :; do sleep 1; done"];
    stubborn.args(words).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut stubborn = Running(stubborn.spawn().unwrap());
    // The program has installed its signal handler once it prints a byte.
    stubborn.0.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    assert_eq!(card.end(Signal::TERM), 0);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
    let said = log(&machine);
    assert!(said.contains("got SIGTERM: ") && said.contains(&format!("sleep ({pid})")), "{said}");
    assert!(said.contains("got SIGKILL: sh ("), "{said}");
    for program in [&mut ends, &mut stubborn] {
        wait_until("the end of a program", || program.0.try_wait().unwrap().is_some());
    }
}

/// Regression: a change of an instance's addresses, for which the card makes the instance again,
/// ended the programs of the instance.
#[test]
fn regression_programs_continue_when_their_instance_is_made_again() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("em");
    let file = machine.example("vpc.toml", |text| text);
    let web = machine.instance("web");
    let more = machine.example("more.toml", |text| {
        text.replace("\"10.0.1.10\"]", "\"10.0.1.10\", \"10.0.1.11\"]")
    });
    let name = format!("{}web", machine.prefix);
    let elsewhere = machine.example("elsewhere.toml", |text| {
        let instance = format!("[instance.{name}]\n");
        text.replace(&instance, &format!("{instance}host = \"elsewhere\"\n"))
    });
    let mut card = machine.up(&[&file, "--end-programs"]);
    let (mut sleeper, pid) = sleeper(&web);
    assert!(machine.srd(&["card", "apply", &more]).status.success());
    assert!(must(&format!("-n {web} addr show ens5")).contains("10.0.1.11"));
    assert!(pids(&web).contains(&pid), "the program continues: {}", log(&machine));
    assert!(machine.srd(&["card", "apply", &elsewhere]).status.success());
    wait_until("the end of the program", || sleeper.0.try_wait().unwrap().is_some());
    assert_eq!(card.end(Signal::TERM), 0);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}

/// An instance is removed from the cloud while a program runs in it. Its namespace keeps its name
/// until the card ends, for the program.
#[test]
fn programs_of_an_instance_that_is_removed_keep_its_namespace() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("er");
    let file = machine.example("vpc.toml", |text| text);
    let web = machine.instance("web");
    let name = format!("{}web", machine.prefix);
    let elsewhere = machine.example("elsewhere.toml", |text| {
        let instance = format!("[instance.{name}]\n");
        assert!(text.contains(&instance), "{text}");
        text.replace(&instance, &format!("{instance}host = \"elsewhere\"\n"))
    });
    let mut card = machine.up(&[&file]);
    let (sleeper, pid) = sleeper(&web);
    assert!(machine.srd(&["card", "apply", &elsewhere]).status.success());
    wait_until("a line of the log", || log(&machine).contains(&format!("sleep ({pid})")));
    assert!(pids(&web).contains(&pid));
    drop(sleeper);
    wait_until("an empty namespace", || pids(&web).is_empty());
    assert_eq!(card.end(Signal::TERM), 0);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}

/// The file before could not be applied again, because programs ran in the namespace of the
/// instance that it contains again.
#[test]
fn regression_an_instance_that_was_removed_comes_again_to_its_programs() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("ec");
    let file = machine.example("vpc.toml", |text| text);
    let (web, name) = (machine.instance("web"), format!("{}web", machine.prefix));
    let other = format!("{}new", machine.prefix);
    let renamed = machine.example("renamed.toml", |text| {
        text.replace(&format!("[instance.{name}]"), &format!("[instance.{other}]"))
            .replace(&format!("instance = \"{name}\""), &format!("instance = \"{other}\""))
    });
    let mut card = machine.up(&[&file]);
    let (sleeper, pid) = sleeper(&web);
    let removed = machine.json(&["card", "apply", &renamed]);
    assert_eq!(removed["removed"], serde_json::json!([name]), "{removed}");
    let app = format!("{}app", machine.prefix);
    let run = machine.srd(&["run", "--name", &name, "--peer-of", &app, "--", "true"]);
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(!run.status.success() && said.contains("programs run in it"), "{said}");
    let back = machine.srd(&["card", "apply", &file]);
    assert!(back.status.success(), "{back:#?}");
    let said = String::from_utf8_lossy(&back.stdout).into_owned();
    assert!(said.contains(&format!("removed: {other}\n")), "{said}");
    assert!(must(&format!("-n {web} addr show ens5")).contains("10.0.1.10"));
    assert!(pids(&web).contains(&pid), "the program continues: {}", log(&machine));
    let https = listen(&web, 443);
    let mut client = connect(&machine.instance("app"), WEB, 443).unwrap();
    let (mut server, _) = https.accept().unwrap();
    assert!(passes(&mut client, &mut server));
    drop((client, server, https, sleeper));
    wait_until("an empty namespace", || pids(&web).is_empty());
    assert_eq!(card.end(Signal::TERM), 0);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}

/// A program that `srd run` leaves behind keeps its namespace. The next card reports this
/// namespace. A card that runs after the program's end removes it.
#[test]
fn regression_a_namespace_that_run_has_left_is_named_and_then_removed() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("el");
    let file = machine.example("vpc.toml", |text| text);
    let name = format!("{}a", machine.prefix);
    let outlives = format!("sleep {LONG_S} <&- >&- 2>&- &");
    let run = machine.srd(&["run", "--name", &name, "--", "sh", "-c", &outlives]);
    assert!(run.status.success(), "{run:#?}");
    let left = machine.instance("a");
    let programs = pids(&left);
    assert_eq!(programs.len(), 1, "{programs:?}");
    let mut card = machine.up(&[&file]);
    let said = log(&machine);
    assert!(said.contains(&format!("the namespace {left} of an earlier card stays")), "{said}");
    assert!(said.contains(&format!("sleep ({})", programs[0])), "{said}");
    assert_eq!(card.end(Signal::TERM), 0);
    assert_eq!(pids(&left), programs, "it is left alone");
    must(&format!("netns exec {left} kill {}", programs[0]));
    wait_until("an empty namespace", || pids(&left).is_empty());
    let mut card = machine.up(&[&file]);
    let has = |line: &String| line.split(' ').next() == Some(&left);
    assert!(!machine.instances_left().iter().any(has), "{:?}", machine.instances_left());
    assert_eq!(card.end(Signal::TERM), 0);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}

/// If the administrator, or root of an instance, deletes a device, the card creates it again.
/// Connections and other devices are not affected.
#[test]
fn regression_devices_that_are_deleted_end_nobody_and_are_made_again() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("eg");
    let file = machine.example("vpc.toml", |text| text);
    let (web, app) = (machine.instance("web"), machine.instance("app"));
    let mut card = machine.up(&[&file, "--internet"]);
    let server = listen(&app, 443);
    let mut out = connect(&web, [10, 0, 2, 10], 443).unwrap();
    let (mut into, _) = server.accept().unwrap();
    let from_outside = listen(&web, 443);
    assert!(passes(&mut out, &mut into));

    must(&format!("-n {} link del srd-igw", machine.namespace));
    let gone = |status: &serde_json::Value| status["internet_gone"].as_str().map(str::to_owned);
    wait_until("a line of the log", || log(&machine).contains("srd-igw was deleted"));
    assert!(passes(&mut out, &mut into), "instances go on");
    wait_until("the device again", || gone(&machine.json(&["card", "status"])).is_none());
    let status = String::from_utf8(machine.srd(&["card", "status"]).stdout).unwrap();
    let version = "Nitro v4: 200 Gb/s and 12 times the packets/s of v1 a card, encryption between";
    assert_eq!(status.matches(version).count(), 2, "{status}");
    let shown = must(&format!("-n {} route show dev srd-igw", machine.namespace));
    assert!(shown.contains("198.51.100.10"), "{shown}");
    // A connection from the internet's side is opened through the new device.
    let mut around = within(&machine.namespace, || {
        std::net::TcpStream::connect((std::net::Ipv4Addr::from(WEB_PUBLIC), 443)).unwrap()
    });
    let (mut arrived, _) = from_outside.accept().unwrap();
    assert!(passes(&mut around, &mut arrived));

    // The device of one instance.
    must(&format!("-n {app} link del ens5"));
    let interface = || {
        let name = format!("{}app", machine.prefix);
        machine.json(&["card", "status", &name])["instances"][0]["interfaces"][0].clone()
    };
    wait_until("a line of the log", || log(&machine).contains("the device ens5 of the instance"));
    wait_until("the device again", || interface()["gone"].is_null());
    assert!(must(&format!("-n {app} addr show ens5")).contains("10.0.2.10"));
    // The connection works, because its address and its route exist again.
    assert!(passes(&mut out, &mut into));
    assert_eq!(card.end(Signal::TERM), 0);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}
