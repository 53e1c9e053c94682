//! Flow logs of `srd card up`: programs in instances send packets, and the files must contain the
//! records about them. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::machine::*;
use rustix::process::Signal;

/// Returns the records of the files with this ending in a directory, as words. The first line,
/// which must be the same in all files, is left out.
fn records(directory: PathBuf, ending: &str) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        assert!(path.to_str().unwrap().ends_with(ending), "{path:?}");
        let program = if ending == ".log.gz" { "zcat" } else { "cat" };
        let text = Command::new(program).arg(&path).output().unwrap().stdout;
        let text = String::from_utf8(text).unwrap();
        let mut lines = text.lines();
        assert!(lines.next().unwrap().starts_with("version account-id interface-id srcaddr"));
        all.extend(lines.map(|line| line.split(' ').map(str::to_owned).collect()));
    }
    all
}

#[test]
fn what_programs_send_and_what_rules_refuse_is_in_the_files() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("l");
    let directory = |name: &str| machine.path(name).to_str().unwrap().to_owned();
    let logs = format!(
        "[flow_log.all]\ninterval = 60\ndirectory = {:?}\n\
         [flow_log.rows]\nsubnet = \"web\"\nfiles = \"parquet\"\ndirectory = {:?}\n\
         [flow_log.refused]\ninterface = \"web\"\ntraffic = \"reject\"\nfiles = \"gzip\"\n\
         directory = {:?}\n",
        directory("all"),
        directory("rows"),
        directory("refused")
    );
    let account = "account = \"123456789010\"\nregion = \"eu-central-1\"\n";
    let file = machine.example("vpc.toml", |text| format!("{account}{text}{logs}"));
    let mut card = machine.up(&[&file, "--internet"]);
    let (web, app) = (machine.instance("web"), machine.instance("app"));
    let https = listen(&web, 443);
    let mut client = connect(&app, WEB, 443).unwrap();
    let (mut server, _) = https.accept().unwrap();
    for _ in 0..20 {
        assert!(passes(&mut client, &mut server) && passes(&mut server, &mut client));
    }
    assert!(connect_in_vain(&app, WEB, 80).is_err(), "no rule allows port 80");
    let name_of_web = format!("{}web", machine.prefix);
    wait_until("a drop", || machine.drops(&name_of_web, "security groups in") > 0);
    drop((client, server));

    // The records of an instance are written at once when the instance ends.
    let name = format!("{}x", machine.prefix);
    let ran = machine.srd(&["run", "--name", &name, "--subnet", "web", "--", "true"]);
    assert!(ran.status.success(), "{ran:#?}");
    let began = Instant::now();
    let shown = loop {
        let shown = machine.json(&["card", "logs"]);
        let all = shown.as_array().unwrap().iter().find(|log| log["name"] == "all").unwrap();
        // The number of logged interfaces no longer includes the ended instance.
        if all["records_written"].as_u64().unwrap() > 0 && all["interfaces"] == 2 {
            break shown;
        }
        assert!(began.elapsed() < PATIENCE, "{shown}");
        thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(shown.as_array().unwrap().len(), 3);
    for log in shown.as_array().unwrap() {
        let interfaces = if log["name"] == "all" { 2 } else { 1 };
        assert_eq!(log["interfaces"], interfaces, "{log}");
        assert_eq!(
            (&log["records_dropped"], &log["failure"]),
            (&0.into(), &serde_json::Value::Null)
        );
    }
    let said = String::from_utf8(machine.srd(&["card", "logs"]).stdout).unwrap();
    assert!(said.contains(&format!("text files in {}", directory("all"))), "{said}");

    // No further packets are sent, so records and counters agree.
    let counter = |name: &str| machine.counter("web", name);
    let counted = settled(|| ["rx_packets", "rx_bytes", "tx_packets", "tx_bytes"].map(counter));
    assert_eq!(card.end(Signal::TERM), 0);
    let all = records(machine.path("all"), ".log");
    let sum = |at: usize, ipv4_of_web: usize| -> u64 {
        let own = all.iter().filter(|r| r[ipv4_of_web] == "10.0.1.10" && r[12] == "ACCEPT");
        own.filter(|r| r[2] == web_eni(&all)).map(|r| r[at].parse::<u64>().unwrap()).sum()
    };
    assert_eq!([sum(8, 4), sum(9, 4), sum(8, 3), sum(9, 3)], counted, "{all:#?}");
    assert!(counted[0] > 20 && counted[2] > 20, "{counted:?}");
    assert!(all.iter().all(|r| r.len() == 14 && r[0] == "2" && r[1] == "123456789010"));

    let refused = records(machine.path("refused"), ".log.gz");
    assert!(!refused.is_empty());
    for record in &refused {
        let ends = [&record[3][..], &record[4], &record[6], &record[7], &record[12]];
        assert_eq!(ends, ["10.0.2.10", "10.0.1.10", "80", "6", "REJECT"], "{record:?}");
    }
    let rows: Vec<_> = fs::read_dir(machine.path("rows")).unwrap().collect();
    assert_eq!(rows.len(), 1);
    let bytes = fs::read(rows[0].as_ref().unwrap().path()).unwrap();
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
}

/// If the terminal of a card is closed, the card ends as after SIGTERM: the records of all counted
/// packets are written.
#[test]
fn regression_a_hangup_loses_no_records() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("u");
    let directory = machine.path("logs").to_str().unwrap().to_owned();
    let log = format!("[flow_log.all]\ndirectory = {directory:?}\n");
    let file = machine.example("vpc.toml", |text| {
        format!("account = \"123456789010\"\nregion = \"eu-central-1\"\n{text}{log}")
    });
    let mut card = machine.up(&[&file]);
    let https = listen(&machine.instance("web"), 443);
    let client = connect(&machine.instance("app"), WEB, 443).unwrap();
    assert_eq!(card.end(Signal::HUP), 0);
    drop((client, https));
    assert!(!records(machine.path("logs"), ".log").is_empty());
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}

/// Returns the id of the web server's interface, which is the interface that refused packets to
/// port 80.
fn web_eni(all: &[Vec<String>]) -> String {
    let refused = all.iter().find(|r| r[4] == "10.0.1.10" && r[6] == "80" && r[12] == "REJECT");
    refused.unwrap()[2].clone()
}
