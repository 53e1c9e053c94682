//! `srd card up -c`: a file of settings that is checked, applied, and read again. Tests that create
//! namespaces need root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::machine::*;
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn a_check_says_what_the_file_means_or_what_is_wrong_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("card.toml");
    let check = |text: &str| {
        fs::write(&path, text).unwrap();
        let mut command = Command::new(SRD);
        let output = command.args(["card", "up", "--check", "-c"]).arg(&path).output().unwrap();
        let said = if output.status.success() { output.stdout } else { output.stderr };
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vpc/web-app.toml");
    fs::copy(example, directory.path().join("cloud.toml")).unwrap();
    let (code, said) = check("vpc = \"cloud.toml\"\n[vhost_user]\nweb = \"web.sock\"\n");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("app: c7i.large, a namespace"), "{said}");
    assert!(said.contains("web: c7i.large, vhost-user at "), "{said}");
    let (code, said) = check("vpc = \"cloud.toml\"\n[expert]\nscale = \"1/0\"\n");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("card.toml:3:9: `1/0` is no scale"), "{said}");
    assert!(said.contains("remedy: write 1/N"), "{said}");
    let (code, said) = check("vpc = \"cloud.toml\"\n[vhost_user]\ndb = \"web.sock\"\n");
    assert_eq!(code, Some(2));
    assert!(said.contains("there is no instance `db` on this host"), "{said}");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/card.toml.example");
    let (code, said) = check(&fs::read_to_string(example).unwrap());
    assert_eq!(code, Some(0), "{said}");
    let output = Command::new(SRD).args(["card", "up", "-c", "x", "--internet"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "the file and flags that say the same");
}

#[test]
fn sighup_reads_both_files_again_and_a_wrong_one_changes_nothing() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("hhd");
    let file = machine.example("cloud.toml", |text| text);
    let config = machine.path("card.toml");
    fs::write(&config, "vpc = \"cloud.toml\"\n").unwrap();
    let mut card = machine.up(&["-c", config.to_str().unwrap()]);
    let (web, app) = (machine.instance("web"), machine.instance("app"));
    let https = listen(&web, 443);
    let mut inner = connect(&app, WEB, 443).unwrap();
    let (mut inner_end, _) = https.accept().unwrap();
    assert!(passes(&mut inner, &mut inner_end));
    assert!(connect_in_vain(&app, WEB, 80).is_err(), "no rule allows port 80");

    let pid = Pid::from_raw(i32::try_from(card.0.id()).unwrap()).unwrap();
    let log = || fs::read_to_string(machine.path("up.log")).unwrap();
    let reload = |wanted: &str| {
        kill_process(pid, Signal::HUP).unwrap();
        let began = Instant::now();
        while !log().contains(wanted) {
            assert!(began.elapsed() < PATIENCE, "{}", log());
            thread::sleep(Duration::from_millis(20));
        }
    };
    let text = fs::read_to_string(&file).unwrap();
    let more = "\"tcp 443 from 0.0.0.0/0\", \"tcp 80 from 10.0.0.0/16\"";
    let wider = text.replace("\"tcp 443 from 0.0.0.0/0\"", more);
    fs::write(&file, wider).unwrap();
    fs::write(&config, "vpc = \"cloud.toml\"\n[expert]\nscale = \"1/10\"\n").unwrap();
    reload("but for scale: `srd card up -c ");
    let http = listen(&web, 80);
    assert!(connect(&app, WEB, 80).is_ok());
    drop(http);
    fs::write(&config, "vpc = 1\n").unwrap();
    reload("nothing has changed: ");
    assert!(passes(&mut inner, &mut inner_end), "the card goes on");
    assert_eq!(card.end(Signal::TERM), 0);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}
