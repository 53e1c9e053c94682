//! `srd card` and `srd run` as users run them: instances in namespaces, a machine's namespace that
//! simulates the internet, and Linux sockets in all of them. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::fs;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::machine::*;
use crate::support::pair::must;
use rustix::process::Signal;

/// The example of the talk NET402: a client, an internet gateway, a web server and an application
/// server.
#[test]
fn the_example_connects_whom_its_rules_allow_and_nobody_else() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("a");
    let before = machine.facts();
    let file = machine.example("vpc.toml", |text| text);
    let mut card = machine.up(&[&file, "--internet"]);
    let (web, app) = (machine.instance("web"), machine.instance("app"));
    let outside = machine.namespace.clone();
    let https = listen(&web, 443);
    let _http = listen(&web, 80);

    let mut client = connect(&outside, WEB_PUBLIC, 443).unwrap();
    let (mut server, peer) = https.accept().unwrap();
    assert_eq!(peer.ip(), IpAddr::from(OUTSIDE));
    assert!(passes(&mut client, &mut server) && passes(&mut server, &mut client));
    let mut inner = connect(&app, WEB, 443).unwrap();
    let (mut inner_server, _) = https.accept().unwrap();
    assert!(passes(&mut inner, &mut inner_server));
    assert!(connect_in_vain(&app, WEB, 80).is_err(), "no rule allows port 80");
    let private = connect_in_vain(&outside, [10, 0, 2, 10], 443);
    assert!(private.is_err(), "a private address from outside");

    // A connection through the NAT gateway: the internet sees the gateway's public address.
    let far = listen(&outside, 9999);
    let mut out = connect(&app, OUTSIDE, 9999).unwrap();
    let (mut far_end, peer) = far.accept().unwrap();
    assert_eq!(peer.ip(), IpAddr::from(NAT_PUBLIC));
    assert!(passes(&mut out, &mut far_end) && passes(&mut far_end, &mut out));

    // The rules are evaluated once for each direction of a flow, and not for later packets.
    let judged = settled(|| machine.counter("web", "judged_packets"));
    for _ in 0..200 {
        assert!(passes(&mut client, &mut server) && passes(&mut server, &mut client));
    }
    assert_eq!(machine.counter("web", "judged_packets"), judged);
    assert!(machine.counter("web", "tx_packets") > 200);

    // The web server's flow is recorded in both directions without tracking; the application
    // server's flow is tracked.
    let flows_of =
        |instance: &str| machine.json(&["card", "flows", &format!("{}{instance}", machine.prefix)]);
    let find = |flows: serde_json::Value, remote: &str| {
        let all = flows.as_array().unwrap().clone();
        let found = all.iter().find(|flow| flow["remote"].as_str().unwrap().starts_with(remote));
        found.unwrap_or_else(|| panic!("no flow with {remote}: {flows}")).clone()
    };
    let outside_flow = find(flows_of("web"), "203.0.113.1:");
    assert_eq!(outside_flow["local"], "10.0.1.10:443");
    assert_eq!(outside_flow["connection"], serde_json::Value::Null);
    assert_eq!(
        (&outside_flow["sent"], &outside_flow["local_first"]),
        (&"complete".into(), &false.into())
    );
    assert_eq!(outside_flow["received"], "complete");
    let tracked = find(flows_of("app"), "203.0.113.1:9999");
    assert_eq!(tracked["connection"], "established");

    // A rule is removed. Open connections that a rule allows for all addresses are not tracked, so
    // they end at once. The tracked connection continues.
    let without = machine.example("without.toml", |text| {
        text.replace("\"tcp 443 from 0.0.0.0/0\", ", "\"tcp 444 from 0.0.0.0/0\", ")
    });
    machine.json(&["card", "apply", &without]);
    assert!(is_held_up(&mut client, &mut server), "an untracked connection ends with its rule");
    assert!(passes(&mut out, &mut far_end), "a tracked one outlives it");
    machine.json(&["card", "apply", &file]);
    let mut rest = [0; 4];
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(server.read_exact(&mut rest).is_ok(), "what was sent arrives when it may");

    // A network ACL also ends tracked connections whose packets it does not allow.
    let closed = machine.example("closed.toml", |text| {
        text.replace("100 allow all from 0.0.0.0/0", "100 allow tcp 443 from 0.0.0.0/0")
    });
    machine.json(&["card", "apply", &closed]);
    assert!(passes(&mut client, &mut server), "port 443 is on the list");
    assert!(is_held_up(&mut far_end, &mut out), "answers from outside are not");

    assert_eq!(card.end(Signal::TERM), 0);
    assert_eq!(machine.facts(), before, "everything is given back");
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}

#[test]
fn a_program_runs_as_an_instance_and_leaves_nothing() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("r");
    let before = machine.facts();
    let name = |name: &str| format!("{}{name}", machine.prefix);
    let limits = ["--scale", "1/100", "--type", "c7i.large"];
    let program = ["--name", &name("one"), "--", "sh", "-c", "exit 7"];
    let output = machine.srd(&[&["run"], &limits[..], &program].concat());
    assert_eq!(output.status.code(), Some(7), "{output:#?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("c7i.large, 172.31.0.4/20"), "{said}");
    assert!(said.contains("no limit of the type was met"), "{said}");
    assert_eq!(machine.instances_left(), Vec::<String>::new());

    let mut first = machine.command(&["run", "--name", &name("a"), "--", "sleep", LONG_S]);
    let first_run = Running(first.stderr(Stdio::null()).spawn().unwrap());
    let status = |name: &str| machine.srd(&["card", "status", name]).status.success();
    wait_until("the first instance", || status(&name("a")));
    let listener = listen(&machine.instance("a"), 5000);
    let joined = machine.srd(&[
        "run",
        "--name",
        &name("b"),
        "--peer-of",
        &name("a"),
        "--",
        "bash",
        "-c",
        "echo hello > /dev/tcp/172.31.0.4/5000",
    ]);
    assert!(joined.status.success(), "{joined:#?}");
    let (mut stream, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip(), IpAddr::from([172, 31, 0, 5]));
    let mut line = String::new();
    stream.read_to_string(&mut line).unwrap();
    assert_eq!(line, "hello\n");

    // An instance ends when its program ends, for whatever reason.
    let mut third = machine.command(&["run", "--name", &name("c"), "--", "sleep", LONG_S]);
    let mut third = Running(third.stderr(Stdio::null()).spawn().unwrap());
    wait_until("the third instance", || status(&name("c")));
    third.end(Signal::KILL);
    wait_until("the end of the third instance", || !status(&name("c")));
    // If `srd run` is killed, its program continues in the namespace, and the next card does not
    // touch it.
    drop(first_run);
    let again = machine.srd(&["run", "--name", &name("d"), "--", "true"]);
    assert!(again.status.success(), "{again:#?}");
    assert_eq!(machine.facts(), before);
}

/// After the card is killed with SIGKILL, its helper process removes everything.
#[test]
fn a_card_that_is_killed_leaves_a_machine_as_it_was() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("k");
    let before = machine.facts();
    let file = machine.example("vpc.toml", |text| text);
    let mut card = machine.up(&[&file, "--internet"]);
    assert_ne!(machine.facts(), before);
    for instance in machine.json(&["card", "status"])["instances"].as_array().unwrap() {
        for interface in instance["interfaces"].as_array().unwrap() {
            let drops = interface["drops"].as_object().unwrap();
            assert!(drops.is_empty(), "nobody has sent anything yet: {interface}");
        }
    }
    card.end(Signal::KILL);
    let began = Instant::now();
    while machine.facts() != before || !machine.instances_left().is_empty() {
        assert!(began.elapsed() < PATIENCE, "{:#?}", machine.facts());
        thread::sleep(Duration::from_millis(50));
    }
    let mut again = machine.up(&[&file, "--internet"]);
    assert_eq!(again.end(Signal::INT), 0);
    assert_eq!(machine.facts(), before);
}

/// A card that was killed starts again while programs run in its instances. The programs continue.
#[test]
fn regression_a_card_that_was_killed_starts_again_beside_programs() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("kp");
    let file = machine.example("vpc.toml", |text| text);
    let mut card = machine.up(&[&file, "--internet"]);
    let web = machine.instance("web");
    let mut sleeper = Command::new("ip");
    let sleeper = sleeper.args(["netns", "exec", &web, "sleep", LONG_S]).spawn().unwrap();
    let sleeper = Running(sleeper);
    let listener = listen(&web, 443);
    let pids = || must(&format!("netns pids {web}"));
    wait_until("a program in the instance", || !pids().trim().is_empty());
    must(&format!("-n {web} rule add from 10.0.1.99 table 10001 priority 10001"));
    card.end(Signal::KILL);
    let app = machine.instance("app");
    let lists = |name: &str| machine.instances_left().iter().any(|line| line.starts_with(name));
    wait_until("the end of the instance without a program", || !lists(&app));
    let mut again = machine.up(&[&file, "--internet"]);
    connect(&machine.namespace, WEB_PUBLIC, 443).unwrap();
    listener.accept().unwrap();
    assert!(!must(&format!("-n {web} rule show")).contains("10.0.1.99"));
    drop(sleeper);
    assert_eq!(again.end(Signal::TERM), 0);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}

/// A second card, at another socket, must not take over the namespaces of the first.
#[test]
fn regression_a_second_card_leaves_the_instances_of_the_first_alone() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("s");
    let before = machine.facts();
    let file = machine.example("vpc.toml", |text| text);
    let mut card = machine.up(&[&file]);
    let inode = |name: &str| {
        use std::os::unix::fs::MetadataExt;
        let path = Path::new("/run/netns").join(machine.instance(name));
        fs::metadata(path).map(|found| found.ino()).ok()
    };
    let namespaces = ["web", "app"].map(inode);
    let mut second = Command::new(SRD);
    second.args(["card", "up", &file, "--socket", machine.path("second.sock").to_str().unwrap()]);
    let output = second.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("another card has"), "{said}");
    assert_eq!(["web", "app"].map(inode), namespaces);
    assert_eq!(card.end(Signal::TERM), 0);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
    assert_eq!(machine.facts(), before);
}

/// Services and containers end a program with a signal to its process only.
#[test]
fn regression_a_signal_to_srd_run_alone_ends_its_program() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("t");
    let name = format!("{}a", machine.prefix);
    let mut run = machine.command(&["run", "--name", &name, "--", "sleep", LONG_S]);
    let mut run = Running(run.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let pids = || must(&format!("netns pids {}", machine.instance("a")));
    wait_until("the program", || !machine.instances_left().is_empty() && !pids().trim().is_empty());
    let asked = Instant::now();
    assert_eq!(run.end(Signal::TERM), 128 + 15);
    assert!(asked.elapsed() < PATIENCE, "long before the program's own end");
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}

/// The first `srd run` owns the card, and may end before other `srd run` commands that use it.
#[test]
fn regression_a_program_whose_card_has_ended_keeps_its_exit_code() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("x");
    let own = |name: &str| format!("{}{name}", machine.prefix);
    let mut first = machine.command(&["run", "--name", &own("a"), "--", "sleep", LONG_S]);
    let mut first = Running(first.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let wait = |name: &str| {
        let status = || machine.srd(&["card", "status", &own(name)]).status;
        wait_until("an instance", || status().success());
    };
    wait("a");
    let mut second =
        machine.command(&["run", "--name", &own("b"), "--", "sh", "-c", "read line; exit 7"]);
    second.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut second = second.spawn().unwrap();
    wait("b");
    // When the card ends, it removes namespaces without programs. So wait until each program has
    // entered its namespace.
    for name in ["a", "b"] {
        let pids = || must(&format!("netns pids {}", machine.instance(name)));
        wait_until("a program in its instance", || !pids().trim().is_empty());
    }
    first.end(Signal::TERM);
    second.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let output = second.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("is not known"), "{said}");
}

/// After a failed change, the former settings apply again, in the instances and outside of them.
#[test]
fn regression_a_file_that_cannot_be_applied_changes_nothing() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("w");
    let file = machine.example("vpc.toml", |text| text);
    must(&format!("-n {} route add 198.51.100.77/32 dev lo", machine.namespace));
    let before = machine.facts();
    let mut card = machine.up(&[&file, "--internet"]);
    let during = machine.facts();
    let in_use = machine.example("in_use.toml", |text| {
        // The file removes one address, adds one, and has one that is already in use on the
        // machine.
        let text = text.replace("198.51.100.5\"", "198.51.100.6\"");
        text.replace("198.51.100.10\"", "198.51.100.77\"").replace("tcp 443", "tcp 444")
    });
    let many = machine.example("many.toml", |text| {
        let of = |n: u8| {
            let instance = format!("{}web", machine.prefix);
            format!(
                "[interface.more{n}]\nsubnet = \"web\"\naddress = [\"10.0.1.{n}\"]\n\
                 groups = [\"web\"]\ninstance = \"{instance}\"\ndevice_index = {n}\n"
            )
        };
        text + &(20..30).map(of).collect::<String>()
    });
    for (file, says) in [(in_use, "198.51.100.77 is in use"), (many, "at most")] {
        let output = machine.srd(&["card", "apply", &file]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(says), "{said}");
        assert_eq!(machine.facts(), during);
        let web = listen(&machine.instance("web"), 443);
        connect(&machine.namespace, WEB_PUBLIC, 443).unwrap();
        drop(web);
    }
    assert_eq!(card.end(Signal::TERM), 0);
    assert_eq!(machine.facts(), before);
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_made() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("e");
    let before = machine.facts();
    let name = format!("{}x", machine.prefix);
    for (words, says) in [
        (&["--type", "c7i.lrage"][..], "did you mean c7i.large"),
        (&["--subnet", "nowhere"], "no subnet `nowhere`"),
        (&["--group", "nobody"], "no group `nobody`"),
        (&["--peer-of", "ghost"], "no instance `ghost`"),
        (&["--vpc", "/nonexistent.toml"], "cannot be read"),
        (&["--scale", "1/0"], "1/N"),
    ] {
        let all = [&["run", "--name", &name], words, &["--", "true"]].concat();
        let output = machine.srd(&all);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(says), "{words:?}: {said}");
    }
    // Exit codes as in shells; nothing is created for a program that does not exist.
    for (program, code) in [("/no/such/program", 127), ("srd-no-program", 127), ("/etc", 126)] {
        let output = machine.srd(&["run", "--name", &name, "--", program]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{program}: {said}");
        assert!(said.contains(program) && !said.contains("instance"), "{said}");
    }
    assert_eq!(machine.facts(), before);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}

/// A wrong argument such as `--socket cloud.toml` must not destroy a file.
#[test]
fn regression_what_is_no_socket_stays_where_it_is() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("sk");
    let file = machine.example("vpc.toml", |text| text);
    fs::write(machine.path("card.sock"), "precious").unwrap();
    let refused = machine.srd(&["card", "up", &file]);
    assert_eq!(refused.status.code(), Some(2), "{refused:#?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no socket"), "{refused:#?}");
    assert_eq!(fs::read_to_string(machine.path("card.sock")).unwrap(), "precious");
    fs::remove_file(machine.path("card.sock")).unwrap();
    // The socket of a killed card is replaced. If another program has put a file at the path since,
    // the file stays.
    let mut card = machine.up(&[&file]);
    card.end(Signal::KILL);
    assert!(machine.path("card.sock").exists());
    wait_until("what the killed card had is given back", || machine.instances_left().is_empty());
    let mut card = machine.up(&[&file]);
    fs::remove_file(machine.path("card.sock")).unwrap();
    fs::write(machine.path("card.sock"), "another's").unwrap();
    assert_eq!(card.end(Signal::TERM), 0);
    assert_eq!(fs::read_to_string(machine.path("card.sock")).unwrap(), "another's");
}

/// A NAT gateway answers a packet of a connection without an entry by a reset, so that the program
/// notices the end. In this test, the gateway has lost its entries because its public address was
/// changed.
#[test]
fn regression_a_connection_that_a_nat_gateway_does_not_know_is_reset() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("nr");
    let file = machine.example("vpc.toml", |text| text);
    let mut card = machine.up(&[&file, "--internet"]);
    let (app, outside) = (machine.instance("app"), machine.namespace.clone());
    let far = listen(&outside, 9999);
    let mut out = connect(&app, OUTSIDE, 9999).unwrap();
    let (mut far_end, _) = far.accept().unwrap();
    assert!(passes(&mut out, &mut far_end));
    let other =
        machine.example("other.toml", |text| text.replace("198.51.100.5\"", "198.51.100.6\""));
    machine.json(&["card", "apply", &other]);
    // The first write is answered with the reset, and a later one fails because of it.
    wait_until("the reset of a connection", || out.write_all(b"is somebody there?").is_err());
    let status = machine.json(&["card", "status"]).to_string();
    assert!(status.contains("nat of a segment of no connection"), "{status}");
    let mut again = connect(&app, OUTSIDE, 9999).unwrap();
    let (mut far_end, _) = far.accept().unwrap();
    assert!(passes(&mut again, &mut far_end), "the next one begins as any other does");
    assert_eq!(card.end(Signal::TERM), 0);
}

/// The example in the help of `srd card up` names existing files, and a port that the cloud allows.
#[test]
fn regression_the_example_of_the_help_works_as_it_is_written() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("hx");
    let help = String::from_utf8(machine.srd(&["card", "up", "--help"]).stdout).unwrap();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files = help.split_whitespace().filter(|word| word.ends_with(".toml"));
    for file in files.filter(|file| !file.starts_with('/')) {
        assert!(root.join(file).exists(), "{file}: {help}");
    }
    let file = machine.example("vpc.toml", |text| text);
    let mut card = machine.up(&[&file]);
    let port = help.split_once("curl http://10.0.1.10").unwrap().1.split_once('/').unwrap().0;
    let port = port.strip_prefix(':').map_or(80, |port| port.parse().unwrap());
    let server = listen(&machine.instance("web"), port);
    let mut client = connect(&machine.instance("app"), WEB, port).unwrap();
    let (mut there, _) = server.accept().unwrap();
    assert!(passes(&mut client, &mut there));
    assert_eq!(card.end(Signal::TERM), 0);
}

/// Wrong settings exit with 2, with and without --check. An obstacle on the machine exits with 1.
#[test]
fn regression_exit_codes_of_a_card_are_of_their_kind() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("xc");
    let file = machine.example("vpc.toml", |text| text);
    let ends = |words: &[&str], code: i32, text: &str| {
        let output = machine.srd(words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(text), "{words:?}: {said}");
    };
    for check in [&[][..], &["--check"]] {
        let up = |words: &[&str], text| {
            ends(&[&["card", "up", &file], words, check].concat(), 2, text);
        };
        up(&["--vhost-user", "db=/run/srd-card/db.sock"], "no instance `db`");
        up(&["--vhost-user", "web=/s", "--vhost-user-client", "web=/t"], "has two sockets");
    }
    ends(&["card", "up", "/nonexistent.toml"], 2, "cannot be read");
    ends(&["card", "status"], 1, "no card answers");
    let mut card = machine.up(&[&file]);
    ends(&["card", "up", &file], 1, "a card serves");
    ends(&["card", "up", &file, "--take-over", "--host", "beta"], 2, "values of host");
    ends(&["card", "status", "nobody"], 2, "no instance `nobody`");
    ends(&["card", "up", "/nonexistent.toml"], 2, "cannot be read");
    ends(&["card", "apply", "/nonexistent.toml"], 2, "cannot be read");
    assert_eq!(card.end(Signal::TERM), 0);
}
