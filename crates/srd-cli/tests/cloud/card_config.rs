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
    let path = directory.path().join("srd0.toml");
    let check = |text: &str| {
        fs::write(&path, text).unwrap();
        let mut command = Command::new(SRD);
        let output = command.args(["card", "up", "--check", "-c"]).arg(&path).output().unwrap();
        let said = if output.status.success() { output.stdout } else { output.stderr };
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vpc/web-app.toml");
    fs::copy(example, directory.path().join("cloud.toml")).unwrap();
    let (code, said) =
        check("[cloud]\nvpc = \"cloud.toml\"\n[cloud.vhost_user]\nweb = \"web.sock\"\n");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("app: c7i.large, a namespace"), "{said}");
    assert!(said.contains("web: c7i.large, vhost-user at "), "{said}");
    let (code, said) = check("[cloud]\nvpc = \"cloud.toml\"\n[expert]\nscale = \"1/0\"\n");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("srd0.toml:4:9: `1/0` is no scale"), "{said}");
    assert!(said.contains("remedy: write 1/N"), "{said}");
    let (code, said) =
        check("[cloud]\nvpc = \"cloud.toml\"\n[cloud.vhost_user]\ndb = \"web.sock\"\n");
    assert_eq!(code, Some(2));
    assert!(said.contains("there is no instance `db` on this host"), "{said}");
    // The socket of the file, unless the command line has another one.
    let (code, said) =
        check("[cloud]\nvpc = \"cloud.toml\"\n[control]\nsocket = \"/run/my.sock\"\n");
    assert!(code == Some(0) && said.contains("requests: /run/my.sock\n"), "{said}");
    let mut command = Command::new(SRD);
    command.args(["card", "up", "--check", "--socket", "/run/your.sock", "-c"]).arg(&path);
    let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(said.contains("requests: /run/your.sock\n"), "{said}");
    // The table of the example of the package, with its keys active.
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/srd0.toml.example");
    let example = fs::read_to_string(example).unwrap();
    let (_, table) = example.split_once("# [cloud]\n").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let lines: Vec<&str> = table.lines().filter_map(|line| line.strip_prefix("# ")).collect();
    let table = lines.join("\n").replace("/etc/srd/cloud.toml", "cloud.toml");
    let (code, said) = check(&format!("[cloud]\n{table}\n"));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("app: c7i.large, vhost-user at /run/srd-card/app.sock"), "{said}");
    // A file of the form that earlier versions had.
    let (code, said) = check("vpc = \"cloud.toml\"\n[vhost_user]\nweb = \"web.sock\"\n");
    assert_eq!(code, Some(2), "{said}");
    let (_, new) = said.split_once("their meaning is the same:\n\n").expect(&said);
    assert_eq!(check(new).0, Some(0), "{new}");
    // Regression: files of the two kinds in each other's place were an unknown field of line 1.
    let (code, said) = check("[vpc.main]\ncidr = [\"10.0.0.0/16\"]\n");
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("this is the file of a VPC") && said.contains("`srd card up /"),
        "{said}"
    );
    fs::write(&path, "[cloud]\nvpc = \"cloud.toml\"\n").unwrap();
    for words in [&["card", "up", "--check"][..], &["card", "apply"], &["vpc", "check"]] {
        let output = Command::new(SRD).args(words).arg(&path).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("this is a file of settings (srd.toml(5))"), "{said}");
        assert!(said.contains(&format!("srd card up -c {}", path.display())), "{said}");
    }
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
    let config = machine.path("srd0.toml");
    fs::write(&config, "[cloud]\nvpc = \"cloud.toml\"\n").unwrap();
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
    let scaled = "[cloud]\nvpc = \"cloud.toml\"\n[expert]\nscale = \"1/10\"\n";
    fs::write(&config, scaled).unwrap();
    reload("--take-over) or a restart: scale; changes in the VPC's file taken over");
    let http = listen(&web, 80);
    assert!(connect(&app, WEB, 80).is_ok());
    drop(http);
    fs::write(&config, "[cloud]\nvpc = 1\n").unwrap();
    reload("srd0.toml:2:7: invalid type");
    assert!(passes(&mut inner, &mut inner_end), "the card goes on");
    // Regression: a file without content ended all instances.
    fs::write(&config, "[cloud]\nvpc = \"cloud.toml\"\n").unwrap();
    fs::write(&file, "").unwrap();
    reload("cloud.toml: is empty");
    let refused = machine.srd(&["card", "apply", &file]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("is empty") && said.contains("end the card"), "{said}");
    assert!(passes(&mut inner, &mut inner_end), "the card goes on");
    // Regression: a file that was cut off before its instances ended them as well.
    let (cut, _) = text.split_once("[instance.").unwrap();
    fs::write(&file, cut).unwrap();
    reload("the file has no instances");
    let refused = machine.srd(&["card", "apply", &file]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("--remove-all"), "{said}");
    assert!(passes(&mut inner, &mut inner_end), "the card goes on");
    let removed = machine.json(&["card", "apply", "--remove-all", &file]);
    assert_eq!(removed["removed"].as_array().unwrap().len(), 2, "{removed}");
    let again = machine.srd(&["card", "apply", &file]);
    assert!(again.status.success(), "there is nothing left to end: {again:#?}");
    assert_eq!(card.end(Signal::TERM), 0);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}
