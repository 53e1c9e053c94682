//! A card that was killed starts again, although guests and local users try to prevent it. A card
//! that cannot create an instance keeps its state. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::support::machine::*;
use crate::support::pair::must;
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;

/// The helper process of the killed card removes everything that the card set up, while the next
/// card sets up the same.
#[test]
fn regression_what_a_killed_card_had_is_not_taken_from_the_next_one() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("kr");
    let before = machine.facts();
    let file = machine.example("vpc.toml", |text| text);
    let mut card = machine.up(&[&file, "--internet"]);
    let sleeper = sleeper(&machine.instance("web"));
    let wanted = machine.facts();
    assert!(wanted[4].contains("srd-igw") && wanted[5].starts_with('1'), "{wanted:#?}");
    for _ in 0..3 {
        card.end(Signal::KILL);
        card = machine.up(&[&file, "--internet"]);
        thread::sleep(Duration::from_millis(300));
        let now = machine.facts();
        assert_eq!(now[4..], wanted[4..]);
        let resolver = format!("/etc/netns/{}/resolv.conf", machine.instance("web"));
        assert!(std::fs::read_to_string(resolver).unwrap().contains("nameserver 10.0.0.2"));
    }
    drop(sleeper);
    assert_eq!(card.end(Signal::TERM), 0);
    assert_eq!(machine.facts(), before);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}

/// Any user can open the file of a namespace, and can therefore lock it.
#[test]
fn regression_a_user_without_rights_keeps_no_namespace_from_a_card() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("ku");
    let file = machine.example("vpc.toml", |text| text);
    let mut card = machine.up(&[&file]);
    let web = format!("/run/netns/{}", machine.instance("web"));
    let mut waits = Command::new("flock");
    waits.args(["--no-fork", &web, "sleep", LONG_S]).uid(65_534).gid(65_534).current_dir("/");
    let waits = Running(waits.stdin(Stdio::null()).spawn().unwrap());
    wait_until("a lock of the user's", || {
        // When the file is removed, its lock is removed as well.
        flock(File::open(&web).unwrap(), FlockOperation::NonBlockingLockShared).is_err()
    });
    card.end(Signal::KILL);
    let mut again = machine.up(&[&file]);
    assert_eq!(again.end(Signal::TERM), 0);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
    drop(waits);
    let mut locks = Command::new("cat");
    locks.arg("/run/srd-card/locks/x").uid(65_534).gid(65_534).current_dir("/");
    let said = String::from_utf8(locks.output().unwrap().stderr).unwrap();
    assert!(said.contains("Permission denied"), "{said}");
}

/// Root in an instance may change the devices of the instance in any way.
#[test]
fn regression_a_guest_keeps_no_card_from_starting() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("kg");
    let file = machine.example("vpc.toml", |text| text);
    let mut card = machine.up(&[&file]);
    let (web, app) = (machine.instance("web"), machine.instance("app"));
    let in_web = sleeper(&web);
    let in_app = sleeper(&app);
    // Of the two devices that are in the way of the next card, one can be removed and the other
    // cannot.
    must(&format!("-n {app} link set ens5 down"));
    must(&format!("-n {app} link set ens5 name mine"));
    must(&format!("-n {app} tuntap add ens5 mode tap"));
    must(&format!("-n {web} link set ens5 down"));
    must(&format!("-n {web} link set ens5 name mine"));
    must(&format!("-n {web} link set lo down"));
    must(&format!("-n {web} link set lo name ens5"));
    card.end(Signal::KILL);
    let mut again = machine.up(&[&file]);
    let names = || {
        let status = machine.json(&["card", "status"]);
        let all = status["instances"].as_array().unwrap().clone();
        all.into_iter().map(|of| of["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let name = |of: &str| format!("{}{of}", machine.prefix);
    assert_eq!(names(), [name("app")]);
    let log = std::fs::read_to_string(machine.path("up.log")).unwrap();
    assert!(log.contains("left out") && log.contains(&format!("ip netns pids {web}")), "{log}");
    assert!(must(&format!("-n {app} addr show ens5")).contains("10.0.2.10"));
    // A change of the rules also succeeds.
    assert!(machine.srd(&["card", "apply", &file]).status.success());
    assert_eq!(names(), [name("app")]);
    drop(in_web);
    let pids = || must(&format!("netns pids {web}"));
    wait_until("an empty namespace", || pids().trim().is_empty());
    assert!(machine.srd(&["card", "apply", &file]).status.success());
    assert_eq!(names(), [name("app"), name("web")]);
    drop(in_app);
    assert_eq!(again.end(Signal::TERM), 0);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}

/// Returns names and devices of the instances in `srd card status`.
fn devices(machine: &Machine) -> Vec<String> {
    let status = machine.json(&["card", "status"]);
    let mut all = Vec::new();
    for instance in status["instances"].as_array().unwrap() {
        for interface in instance["interfaces"].as_array().unwrap() {
            all.push(format!("{} {}", instance["name"], interface["device"]));
        }
    }
    all
}

/// If one of several new instances, or of several new interfaces, cannot be created, the other
/// instances or interfaces that were created are removed.
#[test]
fn what_was_made_is_given_back_when_the_rest_cannot_be() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("km");
    let more = |from: u8, to: u8, of: &dyn Fn(u8) -> String| (from..to).map(of).collect::<String>();
    let second = |n: u8| {
        let instance = format!("{}web", machine.prefix);
        format!(
            "[interface.second{n}]\nsubnet = \"web\"\naddress = [\"10.0.1.{n}\"]\n\
             groups = [\"web\"]\ninstance = \"{instance}\"\ndevice_index = {n}\n"
        )
    };
    let others = |n: u8| {
        let instance = format!("{}n{n}", machine.prefix);
        format!(
            "[interface.n{n}]\nsubnet = \"web\"\naddress = [\"10.0.1.{n}\"]\n\
             instance = \"{instance}\"\n[instance.{instance}]\ntype = \"c7i.large\"\n"
        )
    };
    let file = machine.example("vpc.toml", |text| text);
    let two = machine.example("two.toml", |text| text + &more(20, 21, &second));
    let many = machine.example("many.toml", |text| text + &more(30, 38, &others));
    let socket = machine.path("web.sock").to_str().unwrap().to_owned();
    let web = format!("{}web={socket}", machine.prefix);
    let mut card = machine.up(&[&file, "--vhost-user", &web]);
    let pid = card.0.id();
    let open = || std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let (before, left) = (devices(&machine), machine.instances_left());
    // The server closes a connection a moment after its client has ended.
    let opened = settled(open);

    let blocked = machine.path("web.sock.ens6");
    std::fs::write(&blocked, "not a socket").unwrap();
    let output = machine.srd(&["card", "apply", &two]);
    assert!(!output.status.success(), "{output:#?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("web.sock.ens6"), "{output:#?}");
    assert_eq!((devices(&machine), machine.instances_left()), (before.clone(), left.clone()));
    assert!(std::path::Path::new(&socket).exists());

    let name = machine.instance("n35");
    must(&format!("netns add {name}"));
    let sleeper = sleeper(&name);
    let output = machine.srd(&["card", "apply", &many]);
    assert!(!output.status.success(), "{output:#?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains(&name), "{output:#?}");
    assert_eq!(devices(&machine), before);
    drop(sleeper);
    must(&format!("netns del {name}"));
    wait_until("what was made is given back", || machine.instances_left() == left);
    wait_until("as many descriptors as before", || open() <= opened);

    // The obstacle is removed, so all files can be applied. An interface that a later file removes
    // must take its device with it.
    std::fs::remove_file(&blocked).unwrap();
    for file in [&two, &many, &file] {
        let output = machine.srd(&["card", "apply", file]);
        assert!(output.status.success(), "{output:#?}");
        let count = match file {
            file if *file == two => before.len() + 1,
            file if *file == many => before.len() + 8,
            _ => before.len(),
        };
        assert_eq!(devices(&machine).len(), count, "{file}");
    }
    // Regression: an interface that was removed kept its device.
    wait_until("a device goes with its interface", || !blocked.exists());
    assert_eq!(card.end(Signal::TERM), 0);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}
