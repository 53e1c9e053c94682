//! Errors that the application gets if peers end, restart, do not exist, or do not listen: real
//! processes, over libfabric.

#![allow(clippy::unwrap_used, reason = "a test, with helpers")]

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use crate::node::{End, Node, PATIENCE_MS, Program};

const REMOVED: (i32, i32) = (libc::ECANCELED, 7);
const KEY_REJECTED: (i32, i32) = (libc::EKEYREJECTED, 8);
const NEVER_ANSWERED: (i32, i32) = (libc::EHOSTUNREACH, 4);
const RESTARTED: (i32, i32) = (libc::ECONNRESET, 6);
const SILENT: (i32, i32) = (libc::ETIMEDOUT, 5);

const LOCAL: &str = "127.0.0.1";
/// Number of short messages that can be posted to a peer which posts no receives: 32,768 of credit,
/// and a queue of some thousands. Less if they are longer.
const POSTED: std::ops::Range<u64> = 1000..40_000;
/// Answer timeout in milliseconds, longer than twice the pause between two attempts to open a
/// session: an operation that only tries to open a session must end as well.
const ANSWERS_WITHIN_MS: &str = "2500";
/// Limit of operations that take about a second on an idle machine: the return of `fi_close`, and
/// the failure of a peer whose host reports that its port is closed. Peers have three times as
/// long to answer.
const SOON: Duration = Duration::from_secs(10);

/// Posts every kind of operation to peer `to`: small messages and messages of several packets, each
/// completed when sent and when delivered; a message that the receiver reads; a remote read and a
/// remote write. Returns their contexts.
fn post_every_kind(node: &mut Node, to: u64) -> Vec<u64> {
    let commands = [
        format!("send {to} 8 2 1"),
        format!("deliver {to} 8 3 1"),
        format!("send {to} 30000 4 1"),
        format!("deliver {to} 30000 5 1"),
        format!("send {to} 1000000 6 1"),
        format!("read {to} 100 9"),
        format!("write {to} 500000 9 1"),
    ];
    for command in commands {
        assert_eq!(node.post(&command), 1, "{command}");
    }
    vec![2, 3, 4, 5, 6, 9, 9]
}

/// Returns a port that stays without a listener: the connected socket receives only packets of its
/// own peer.
fn nobody() -> (UdpSocket, u16) {
    let held = UdpSocket::bind("127.0.0.1:0").unwrap();
    held.connect("127.0.0.1:9").unwrap();
    let port = held.local_addr().unwrap().port();
    (held, port)
}

fn contexts(ends: &[End]) -> Vec<u64> {
    let context = |end: &End| match end {
        End::Ok(context, _) | End::Failed(context, ..) => *context,
    };
    let mut contexts: Vec<u64> = ends.iter().map(context).collect();
    contexts.sort_unstable();
    contexts
}

/// Returns two endpoints that have exchanged messages, the number of the second endpoint in the
/// first endpoint's vector, and the port of the second endpoint.
fn acquainted(program: &Program, settings: &[(&str, &str)]) -> (Node, Node, u64, u16) {
    let (mut a, mut b) = (program.start(settings), program.start(settings));
    a.open(LOCAL, 0);
    let name = b.open(LOCAL, 0);
    assert_eq!(b.ask("share 9", "shared "), "0");
    let to = a.insert(&name);
    a.post(&format!("send {to} 8 1 1"));
    assert_eq!(a.end(), End::Ok(1, 8));
    let port = u16::from_str_radix(&name[4..8], 16).unwrap();
    (a, b, to, port)
}

#[test]
fn a_killed_peer_is_told_as_silent_for_every_kind_of_operation() {
    let Some(program) = Program::compile("node") else { return };
    // The host runs and reports that no process listens at the port, so the operation ends before
    // the timeout.
    let (mut a, b, to, port) = acquainted(&program, &[]);
    b.stop();
    let posted = post_every_kind(&mut a, to);
    b.kill();
    let start = Instant::now();
    let ends = a.ends(posted.len(), PATIENCE_MS);
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    assert_eq!(contexts(&ends), posted);
    for end in &ends {
        assert_eq!(end.errors(), SILENT, "{end:?}");
        let named = end.text().contains(&format!("127.0.0.1:{port}"));
        assert!(named && end.text().contains("has gone silent"), "{end:?}");
    }
    assert!(a.close() < SOON);
}

#[test]
fn regression_a_peer_that_dies_after_it_took_an_operation_is_told_as_silent() {
    let Some(program) = Program::compile("node") else { return };
    for command in ["send {} 1000000 6 1", "deliver {} 8 6 1", "deliver {} 30000 6 1"] {
        // Longer than a process of a busy machine may be delayed.
        let settings = [("FI_SRD_PEER_TIMEOUT_MS", "4000")];
        let (mut a, b, to, _) = acquainted(&program, &settings);
        a.post(&command.replace("{}", &to.to_string()));
        assert_eq!(a.ends(1, 500), [], "the peer has acknowledged it, and has posted no receive");
        b.kill();
        assert_eq!(a.end().errors(), SILENT, "{command}");
    }
}

#[test]
fn a_restarted_peer_is_told_as_restarted_and_its_new_address_works() {
    let Some(program) = Program::compile("node") else { return };
    let (mut a, b, to, port) = acquainted(&program, &[]);
    b.stop();
    let posted = post_every_kind(&mut a, to);
    // The peer restarts soon: the host's report that no process listens takes effect after 0.7 s.
    let next = program.start(&[]);
    b.kill();
    let mut b = next;
    let name = b.open(LOCAL, port);
    let ends = a.ends(posted.len(), PATIENCE_MS);
    assert_eq!(contexts(&ends), posted);
    for end in &ends {
        // The error is `SILENT` if the restart took longer than these 0.7 s.
        assert!([RESTARTED, SILENT].contains(&end.errors()), "{end:?}");
        assert!(end.text().contains(&format!("127.0.0.1:{port}")), "{end:?}");
        let reason = if end.errors() == SILENT { "has gone silent" } else { "has restarted" };
        assert!(end.text().contains(reason), "{end:?}");
    }
    // The old address still means the run that has ended.
    a.post(&format!("send {to} 8 7 1"));
    assert_eq!(a.end().errors(), RESTARTED);
    let anew = a.insert(&name);
    assert_ne!(anew, to);
    a.post(&format!("send {anew} 8 8 1"));
    b.post("recv 8 8 1");
    assert_eq!((a.end(), b.end()), (End::Ok(8, 8), End::Ok(8, 8)));
    assert!(a.close() < SOON);
}

#[test]
fn whoever_is_there_is_reached_again_after_a_restart() {
    let Some(program) = Program::compile("node") else { return };
    let (mut a, b, _, port) = acquainted(&program, &[]);
    let anyone = a.insert_place(LOCAL, port);
    a.post(&format!("send {anyone} 8 2 1"));
    assert_eq!(a.end(), End::Ok(2, 8));
    b.kill();
    let mut b = program.start(&[]);
    b.open(LOCAL, port);
    // The first message may get the error; messages that are posted after the error arrive.
    a.post(&format!("send {anyone} 8 3 1"));
    assert!(matches!(a.end().errors(), (0, 0) | RESTARTED));
    a.post(&format!("send {anyone} 8 4 1"));
    b.post("recv 8 4 1");
    assert_eq!((a.end(), b.end()), (End::Ok(4, 8), End::Ok(4, 8)));
}

#[test]
fn a_receiver_hears_of_a_sender_that_died_in_the_middle_when_it_next_speaks_to_it() {
    let Some(program) = Program::compile("node") else { return };
    let (mut a, mut b) = (program.start(&[]), program.start(&[]));
    let (from, name) = (a.open(LOCAL, 0), b.open(LOCAL, 0));
    let (to, back) = (a.insert(&name), b.insert(&from));
    a.post(&format!("send {to} 4000000 2 1"));
    assert_eq!(a.ends(1, 50), [], "nobody has received it");
    a.stop();
    // The message is announced: its receiver must read it, and gets no answer from the stopped
    // sender.
    b.post("recv 4000000 2 1");
    a.kill();
    b.post(&format!("send {back} 8 3 1"));
    let ends = b.ends(2, PATIENCE_MS);
    assert_eq!(contexts(&ends), [2, 3]);
    for end in ends {
        assert_eq!(end.errors(), SILENT, "{end:?}");
        assert!(end.text().contains("has gone silent"), "{end:?}");
    }
    assert!(b.close() < SOON);
}

#[test]
fn a_peer_that_never_was_is_told_as_one_that_never_answered() {
    let Some(program) = Program::compile("node") else { return };
    let mut a = program.start(&[("FI_SRD_ANSWER_TIMEOUT_MS", "1500")]);
    a.open(LOCAL, 0);
    let (_held, port) = nobody();
    let to = a.insert_place(LOCAL, port);
    let start = Instant::now();
    let posted = post_every_kind(&mut a, to);
    let ends = a.ends(posted.len(), PATIENCE_MS);
    assert!(start.elapsed() >= Duration::from_millis(1400), "FI_SRD_ANSWER_TIMEOUT_MS");
    assert_eq!(contexts(&ends), posted);
    for end in &ends {
        assert_eq!(end.errors(), NEVER_ANSWERED, "{end:?}");
        let named = end.text().contains(&format!("127.0.0.1:{port}"));
        assert!(named && end.text().contains("never answered"), "{end:?}");
    }
    assert!(a.close() < SOON);
}

/// Starts one process of a job that is encrypted with this key or, without a key, not encrypted.
fn start_keyed(program: &Program, key: Option<&str>) -> Node {
    let mut settings = vec![("FI_SRD_ANSWER_TIMEOUT_MS", ANSWERS_WITHIN_MS)];
    settings.extend(key.map(|key| ("FI_SRD_JOB_KEY", key)));
    program.start(&settings)
}

/// Asserts that a send to `to` fails as unreachable, after the timeout and not before.
fn assert_never_answers(a: &mut Node, to: u64) {
    let (start, patience) = (Instant::now(), ANSWERS_WITHIN_MS.parse().unwrap());
    a.post(&format!("send {to} 8 2 1"));
    let end = a.end();
    let took = start.elapsed();
    assert_eq!(end.errors(), NEVER_ANSWERED, "{end:?}");
    assert!(end.text().contains("never answered"), "{end:?}");
    assert!(end.text().contains("has another key"), "{end:?}");
    let least = Duration::from_millis(patience) - Duration::from_millis(100);
    assert!(took >= least && took < least + SOON, "{took:?}");
}

#[test]
fn another_key_or_none_is_told_as_a_peer_that_never_answered() {
    let Some(program) = Program::compile("node") else { return };
    let (ours, others) = ("a5".repeat(32), "5a".repeat(32));
    let (ours, others) = (ours.as_str(), others.as_str());
    for (left, right) in [(Some(ours), Some(others)), (Some(ours), None), (None, Some(ours))] {
        let (mut a, mut b) = (start_keyed(&program, left), start_keyed(&program, right));
        a.open(LOCAL, 0);
        let to = a.insert(&b.open(LOCAL, 0));
        assert_never_answers(&mut a, to);
        b.post("recv 8 2 1");
        assert_eq!(b.ends(1, 50), []);
        assert!(a.close() < SOON && b.close() < SOON);
    }
}

#[test]
fn regression_nobody_at_the_port_is_told_in_time_with_and_without_a_key() {
    let Some(program) = Program::compile("node") else { return };
    let key = "a5".repeat(32);
    for key in [Some(key.as_str()), None] {
        let mut a = start_keyed(&program, key);
        a.open(LOCAL, 0);
        let (_held, port) = nobody();
        let to = a.insert_place(LOCAL, port);
        assert_never_answers(&mut a, to);
        assert!(a.close() < SOON);
    }
}

#[test]
fn regression_a_key_file_that_cannot_be_used_is_said_on_the_standard_error() {
    use std::os::unix::fs::PermissionsExt;
    let Some(program) = Program::compile("node") else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    std::fs::write(&file, "a5".repeat(32)).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    let mut command = program.command();
    command.env("FI_SRD_KEY_FILE", &file).stdin(std::process::Stdio::piped());
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, b"open 127.0.0.1 0\n").unwrap();
    drop(input);
    let said = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    let remedy = format!("chmod 600 {}", file.display());
    let lines: Vec<_> = said.lines().filter(|line| line.contains(&remedy)).collect();
    assert!(lines.len() == 1 && lines[0].contains("FI_SRD_KEY_FILE"), "{said}");
}

#[test]
fn memory_that_is_not_shared_is_refused_with_that_reason() {
    let Some(program) = Program::compile("node") else { return };
    let (mut a, b, to, _) = acquainted(&program, &[]);
    for command in [format!("read {to} 100 10"), format!("write {to} 2000000 9 1")] {
        a.post(&command);
        let end = a.end();
        assert_eq!(end.errors(), KEY_REJECTED, "{command}: {end:?}");
        assert!(end.text().contains("no such memory key"), "{end:?}");
    }
    a.post(&format!("read {to} 100 9"));
    assert_eq!(a.end().errors(), (0, 0), "and what is shared is read");
    drop(b);
}

#[test]
fn a_receiver_that_never_posts_costs_bounded_memory_and_holds_up_nobody_else() {
    let Some(program) = Program::compile("node") else { return };
    for bytes in [8u64, 2000, 100_000] {
        let (mut a, mut b, to, port) = acquainted(&program, &[]);
        let before = (a.memory_kb(), b.memory_kb());
        let posted = a.post(&format!("send {to} {bytes} 2 100000"));
        assert!(POSTED.contains(&posted), "{posted} of {bytes} bytes, then FI_EAGAIN");
        let after = (a.memory_kb(), b.memory_kb());
        let most_kb = 24 << 10;
        // The kernel may have taken pages of the program's file back meanwhile.
        assert!(after.0 < before.0 + most_kb, "the sender: {before:?} {after:?}");
        assert!(after.1 < before.1 + most_kb, "the receiver: {before:?} {after:?}");
        // Messages of its other peers arrive, and its own messages arrive at the flooding peer.
        let mut c = program.start(&[]);
        let stranger = c.open(LOCAL, 0);
        let b_at_c = c.insert_place(LOCAL, port);
        c.post(&format!("send {b_at_c} {bytes} 3 1"));
        b.post(&format!("recv {bytes} 3 1"));
        assert_eq!((c.end(), b.end()), (End::Ok(3, bytes), End::Ok(3, bytes)));
        let c_at_b = b.insert(&stranger);
        b.post(&format!("send {c_at_b} {bytes} 4 1"));
        c.post(&format!("recv {bytes} 4 1"));
        assert_eq!((c.end(), b.end()), (End::Ok(4, bytes), End::Ok(4, bytes)));
        // Finally the receiver posts receives: each message arrives once.
        let count = usize::try_from(posted).unwrap();
        b.post(&format!("recv {bytes} 2 {posted}"));
        b.all_ends(count);
        a.all_ends(count);
        assert!(a.close() < SOON && b.close() < SOON);
    }
}

#[test]
fn a_full_completion_queue_loses_nothing() {
    let Some(program) = Program::compile("node") else { return };
    let (mut a, mut b, to, _) = acquainted(&program, &[("CQ_SIZE", "16")]);
    let posted = a.post(&format!("send {to} 8 2 100000"));
    assert!(POSTED.contains(&posted), "{posted}, then FI_EAGAIN");
    let count = usize::try_from(posted).unwrap();
    let half = count / 2;
    b.post(&format!("recv 8 2 {posted}"));
    assert_eq!(a.ends(half, PATIENCE_MS).len(), half);
    assert!(a.post(&format!("send {to} 8 3 1")) == 1, "there is room again");
    a.all_ends(count - half + 1);
    b.all_ends(count);
}

#[test]
fn closing_takes_bounded_time_whatever_is_under_way() {
    let Some(program) = Program::compile("node") else { return };
    // State of the other process: it does nothing, it is stopped, it is killed, it never existed.
    for case in ["idle", "stopped", "killed", "absent"] {
        let (mut a, b, mut to, _) = acquainted(&program, &[]);
        let (_held, free) = nobody();
        if case == "absent" {
            to = a.insert_place(LOCAL, free);
        }
        if case == "stopped" || case == "killed" {
            b.stop();
        }
        post_every_kind(&mut a, to);
        a.post("recv 100000 5 100");
        let b = if case == "killed" {
            b.kill();
            None
        } else {
            Some(b)
        };
        let took = a.close();
        assert!(took < SOON, "{case}: {took:?}");
        if let Some(b) = b {
            b.go_on();
            // The announced message no longer exists.
            let took = b.close();
            assert!(took < SOON, "{case}, the other one: {took:?}");
        }
    }
}

#[test]
fn a_removed_address_ends_what_is_under_way_and_its_number_means_another_peer() {
    let Some(program) = Program::compile("node") else { return };
    let (mut a, b, to, _) = acquainted(&program, &[]);
    let mut c = program.start(&[]);
    let name = c.open(LOCAL, 0);
    b.stop();
    let posted = post_every_kind(&mut a, to);
    assert_eq!(a.ask(&format!("remove {to}"), "removed "), "0");
    assert_eq!(a.insert(&name), to, "the lowest free number");
    a.post(&format!("send {to} 8 77 1"));
    assert_eq!(a.end(), End::Ok(77, 8), "it does not wait for the other peer's");
    c.post("recv 8 77 1");
    assert_eq!(c.end(), End::Ok(77, 8));
    b.go_on();
    let ends = a.ends(posted.len(), PATIENCE_MS);
    assert_eq!(contexts(&ends), posted);
    assert!(ends.iter().all(|end| end.errors() == REMOVED), "{ends:?}");
    assert!(a.close() < SOON);
}
