//! Local users gain nothing by placing sockets or files between root and its card. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};

use rustix::process::{Pid, Signal, Uid, kill_process};
use rustix::thread::set_thread_res_uid;

use crate::support::machine::*;
use crate::support::pair::must;

/// A user without rights.
const NOBODY: u32 = 65_534;

/// Runs `work` on a thread that has the rights of another user.
fn by<T: Send + 'static>(user: u32, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    thread::spawn(move || {
        let user = Uid::from_raw(user);
        set_thread_res_uid(user, user, user).unwrap();
        work()
    })
}

/// Starts a thread of `user` that listens at a socket as a card does, and sends `answer` to each
/// request.
fn listen_as(user: u32, path: &str, answer: &'static str) {
    let (ready, begun) = channel();
    let path = path.to_owned();
    by(user, move || {
        let listener = UnixListener::bind(path).unwrap();
        ready.send(()).unwrap();
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut line = String::new();
            while stream.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                let begins = line.contains("\"request\":\"instances\"");
                let answer = if begins { "{\"ok\":null}" } else { answer };
                let _ = stream.get_mut().write_all(format!("{answer}\n").as_bytes());
                line.clear();
            }
        }
    });
    begun.recv().unwrap();
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The directory of the socket, and everything in it, belongs to another user, as systemd arranges
/// for the user of a unit.
#[test]
fn regression_another_user_gets_no_answer_though_the_socket_is_its_own() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("tra");
    let mut card = machine.up(&[]);
    for path in [machine.directory.path().to_owned(), machine.socket().into()] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let socket = machine.socket();
    let asked = by(NOBODY, move || {
        let mut stream = UnixStream::connect(socket).unwrap();
        let _ = stream.write_all(b"{\"request\":\"instances\"}\n");
        let mut stream = BufReader::new(stream);
        let mut answer = String::new();
        for _ in 0..2 {
            stream.read_line(&mut answer).unwrap();
        }
        answer
    });
    let answer = asked.join().unwrap();
    assert!(answer.contains("only root and the user of this card may ask"), "{answer}");
    assert!(machine.srd(&["card", "status"]).status.success(), "root may");
    assert_eq!(card.end(Signal::TERM), 0);
}

#[test]
fn regression_a_card_keeps_nothing_where_another_user_may_change_it() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("trb");
    let directory = machine.directory.path();
    for (owner, mode) in [(NOBODY, 0o700), (0, 0o777)] {
        chown(directory, Some(owner), None).unwrap();
        fs::set_permissions(directory, Permissions::from_mode(mode)).unwrap();
        let output = machine.srd(&["card", "up"]);
        let named = format!("others than root may change {}", directory.display());
        assert!(!output.status.success() && said(&output).contains(&named), "{output:#?}");
        assert!(!Path::new(&machine.socket()).exists());
    }
    // The directory of an instance's vhost-user socket must not belong to another user either.
    let own = machine.path("own");
    fs::create_dir(&own).unwrap();
    fs::set_permissions(directory, Permissions::from_mode(0o700)).unwrap();
    chown(&own, Some(NOBODY), None).unwrap();
    let file = machine.example("vpc.toml", |text| text);
    let web = format!("{}web={}", machine.prefix, own.join("web.sock").display());
    let output = machine.srd(&["card", "up", &file, "--vhost-user", &web]);
    let named = format!("others than root may change {}", own.display());
    assert!(!output.status.success() && said(&output).contains(&named), "{output:#?}");
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}

#[test]
fn regression_root_believes_no_other_user_and_no_path_for_a_namespace() {
    if !ready_with_nsenter() {
        return;
    }
    const ANSWER: &str = r#"{"answer":"attached","name":"x","id":"i-1",
        "instance_type":"c7i.large","namespace":"../../tmp/x","interfaces":[],"tracked":0,
        "untracked":0,"credits_bits":[0,0],"bandwidth_bps":[0,0],"packets_per_second":0}"#;
    let answer: &'static str = ANSWER.replace('\n', " ").leak();
    let machine = Machine::new("trc");
    listen_as(0, &machine.socket(), answer);
    let output = machine.srd(&["run", "--", "true"]);
    assert!(said(&output).contains("is no name of an instance's namespace"), "{output:#?}");
    assert_eq!(output.status.code(), Some(1));
    // In the second part, the socket belongs to another user.
    fs::remove_file(machine.socket()).unwrap();
    fs::set_permissions(machine.directory.path(), Permissions::from_mode(0o777)).unwrap();
    listen_as(NOBODY, &machine.socket(), answer);
    fs::set_permissions(machine.socket(), Permissions::from_mode(0o666)).unwrap();
    for words in [&["card", "status"][..], &["card", "flows", "x"]] {
        let output = machine.srd(words);
        assert!(said(&output).contains("belongs to user 65534"), "{output:#?}");
    }
    let output = machine.srd(&["run", "--", "true"]);
    assert!(!output.status.success(), "{output:#?}");
}

/// Returns the name and the group ids of that account of this machine that is in the most groups.
fn account() -> (String, String) {
    let groups = |name: &str| {
        let output = Command::new("id").args(["-G", name]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let accounts = fs::read_to_string("/etc/passwd").unwrap();
    let names = accounts.lines().filter_map(|line| line.split(':').next());
    let all = names.filter(|name| *name != "root").map(|name| (name.to_owned(), groups(name)));
    all.max_by_key(|(_, groups)| groups.split(' ').count()).unwrap()
}

#[test]
fn a_program_has_the_user_and_the_groups_that_are_asked_for() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("trd");
    let (user, groups) = account();
    let script = "id -un; id -G; grep CapEff /proc/self/status; echo $USER; ls /sys/class/net";
    let output = machine.srd(&["run", "--user", &user, "--", "sh", "-c", script]);
    assert!(output.status.success(), "{output:#?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = printed.lines().collect();
    let wanted = [&user, &groups, "CapEff:\t0000000000000000", &user, "ens5", "lo"];
    assert_eq!(lines, wanted);
    let output = machine.srd(&["run", "--user", "no-such-user", "--", "true"]);
    assert!(output.status.code() == Some(2) && said(&output).contains("getent passwd"));
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}

/// Returns a command that runs `srd` with the capabilities of a unit with instances.
fn confined(machine: &Machine, words: &[&str]) -> Command {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let unit = fs::read_to_string(packaging.join("cloud.conf")).unwrap();
    let set = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
    let set = set.to_lowercase().replace("cap_", "+").replace(' ', ",");
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{}", machine.namespace));
    command.args(["setpriv", &format!("--bounding-set=-all,{set}"), "--no-new-privs", SRD]);
    command.args(words).args(["--socket", &machine.socket()]);
    command
}

#[test]
fn a_card_works_with_the_capabilities_of_its_unit() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("tre");
    let before = machine.facts();
    let file = machine.example("vpc.toml", |text| text);
    let words = ["card", "up", &file, "--internet"];
    let mut card = machine.up_by(confined(&machine, &words));
    let (web, app) = (machine.instance("web"), machine.instance("app"));
    let talk = || {
        let https = listen(&web, 443);
        for (from, to) in [(&machine.namespace, WEB_PUBLIC), (&app, WEB)] {
            let mut client = connect(from, to, 443).unwrap();
            let (mut server, _) = https.accept().unwrap();
            assert!(passes(&mut client, &mut server));
        }
    };
    talk();
    let other = machine.example("other.toml", |text| text.replace("tcp 8080", "tcp 8081"));
    assert!(machine.srd(&["card", "apply", &other]).status.success());
    let ring = format!("{}web", machine.prefix);
    assert!(machine.srd(&["card", "set", &ring, "--tx-ring", "256"]).status.success());
    let resolver = format!("/etc/netns/{web}/resolv.conf");
    assert!(fs::read_to_string(&resolver).unwrap().contains("nameserver"));
    // A program of root with all capabilities runs in the instance's namespace. The next card lacks
    // these capabilities, and must still detect the program.
    let mut command = Command::new("ip");
    let sleeper = Running(command.args(["netns", "exec", &web, "sleep", LONG_S]).spawn().unwrap());
    wait_until("a program in the namespace", || !must(&format!("netns pids {web}")).is_empty());
    card.end(Signal::KILL);
    let mut again = machine.up_by(confined(&machine, &words));
    talk();
    let log = fs::read_to_string(machine.path("up.log")).unwrap();
    assert!(!log.contains("left out"), "{log}");
    assert!(must(&format!("netns pids {web}")).contains(&sleeper.0.id().to_string()));
    drop(sleeper);
    assert_eq!(again.end(Signal::TERM), 0);
    assert_eq!(machine.facts(), before);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}

/// The front end of a guest belongs to another user, and listens in a directory that only this user
/// may enter.
#[test]
fn a_card_with_the_capabilities_of_its_unit_connects_to_front_ends_of_other_users() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("trf");
    let own = machine.path("own");
    fs::create_dir(&own).unwrap();
    fs::set_permissions(&own, Permissions::from_mode(0o700)).unwrap();
    let socket = own.join("web.sock");
    let front_end = UnixListener::bind(&socket).unwrap();
    chown(&own, Some(NOBODY), None).unwrap();
    chown(&socket, Some(NOBODY), None).unwrap();
    let file = machine.example("vpc.toml", |text| text);
    let web = format!("{}web={}", machine.prefix, socket.display());
    let words = ["card", "up", &file, "--vhost-user-client", &web];
    let mut card = machine.up_by(confined(&machine, &words));
    front_end.set_nonblocking(true).unwrap();
    wait_until("the card", || front_end.accept().is_ok());
    assert_eq!(card.end(Signal::TERM), 0);
}

/// Returns whether a process of this command leaves a core file when it is aborted, if the limits
/// of the system permit core files.
fn dumps(mut command: Command, is_up: impl FnOnce()) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = Running(command.spawn().unwrap());
    is_up();
    let pid = Pid::from_raw(i32::try_from(running.0.id()).unwrap()).unwrap();
    kill_process(pid, Signal::ABORT).unwrap();
    running.0.wait().unwrap().core_dumped()
}

#[test]
fn regression_a_card_that_dies_leaves_no_memory_behind() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("trg");
    let unlimited = |program: &Command| {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -c unlimited; exec \"$@\"", "sh"]);
        command.arg(program.get_program()).args(program.get_args());
        command.current_dir(machine.directory.path());
        command
    };
    let mut sleep = Command::new("sleep");
    let began = || thread::sleep(SILENCE);
    if !dumps(unlimited(sleep.arg(LONG_S)), began) {
        println!("skipped: this machine writes no core files");
        return;
    }
    let card = machine.command(&["card", "up"]);
    let is_up = || wait_until("a card", || machine.srd(&["card", "status"]).status.success());
    assert!(!dumps(unlimited(&card), is_up));
}

/// A card of an earlier version had its socket at another path. The next card must notice it there,
/// and cannot take it over.
#[test]
fn a_card_of_an_earlier_version_is_never_passed_over() {
    if !ready_with_nsenter() {
        return;
    }
    if Path::new("/run/srd").exists() || Path::new("/run/srd-card/card.sock").exists() {
        println!("skipped: a card of this machine's own may run");
        return;
    }
    let machine = Machine::new("trh");
    let command = |words: &[&str]| {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", machine.namespace)).arg(SRD).args(words);
        command.stdin(Stdio::null());
        command
    };
    let mut earlier = command(&["card", "up", "--socket", "/run/srd/card.sock"]);
    let mut earlier = Running(earlier.spawn().unwrap());
    let mut status = command(&["card", "status"]);
    let mut answer = || status.output().unwrap();
    wait_until("what to do", || said(&answer()).contains("is of an earlier version"));
    let refused = command(&["card", "up"]).output().unwrap();
    assert!(said(&refused).contains("a card of an earlier version serves"), "{refused:#?}");
    let refused = command(&["card", "up", "--take-over"]).output().unwrap();
    assert!(said(&refused).contains("no card runs at"), "{refused:#?}");
    assert_eq!(earlier.end(Signal::TERM), 0);
    let mut next = Running(command(&["card", "up"]).spawn().unwrap());
    wait_until("the next card", || answer().status.success());
    assert!(!Path::new("/run/srd/card.sock").exists(), "the old socket is removed");
    assert_eq!(next.end(Signal::TERM), 0);
    assert!(!Path::new("/run/srd-card/card.sock").exists(), "the helper removes the socket");
    let _ = fs::remove_dir("/run/srd");
}
