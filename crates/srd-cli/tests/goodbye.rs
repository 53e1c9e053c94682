//! A daemon that ends says so: the other side is back at the host's own way at once; one that is
//! killed is found out within a second. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

mod support;

use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::pair::{Pair, Settings, must, ready};

/// How long after a goodbye the other side may go on steering packets to the peer.
const GOODBYE_MAX: Duration = Duration::from_millis(50);
/// Time after which it is noticed never.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a host that died may go unnoticed.
const DEAD_MAX: Duration = Duration::from_secs(1);

/// Two daemons in transparent mode that steer packets to each other.
fn met(tag: &str) -> Pair {
    let mut pair = Pair::new(tag);
    for end in [0, 1] {
        pair.configure(end, &Settings::TRANSPARENT);
        pair.start(end);
    }
    pair.wait_for_express();
    pair.wait("steering", is_steered);
    pair
}

/// Whether what the first sends to the second goes through the interface.
fn is_steered(pair: &Pair) -> bool {
    must(&format!("-n {} route get 198.18.0.2", pair.names[0])).contains("dev srd0")
}

/// Sends a signal to the second's daemon, and measures how long the first steers packets to it:
/// none, or one every 10 ms.
fn steered_for(pair: &mut Pair, signal: &str, is_busy: bool) -> Duration {
    let mut daemon = pair.daemons[1].take().unwrap();
    let pair = &*pair;
    let over = AtomicBool::new(false);
    let took = std::thread::scope(|scope| {
        if is_busy {
            scope.spawn(|| pair.within(0, || chatter(&over)));
        }
        std::thread::sleep(Duration::from_millis(500));
        assert!(is_steered(pair));
        let begin = Instant::now();
        let pid = daemon.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        while is_steered(pair) && begin.elapsed() < PATIENCE {}
        let took = begin.elapsed();
        over.store(true, Ordering::Relaxed);
        took
    });
    daemon.wait().unwrap();
    took
}

/// Sends a datagram every 10 ms.
fn chatter(over: &AtomicBool) {
    let socket = UdpSocket::bind("198.18.0.1:0").unwrap();
    while !over.load(Ordering::Relaxed) {
        // Nobody listens there; what the kernel says of that is no matter.
        let _ = socket.send_to(&[0; 100], "198.18.0.2:9");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What starting a process and asking the kernel costs on this machine, now.
fn cost_of_looking(pair: &Pair) -> Duration {
    let begin = Instant::now();
    for _ in 0..4 {
        is_steered(pair);
    }
    begin.elapsed()
}

#[test]
fn a_daemon_that_is_told_to_end_leaves_no_one_waiting() {
    if !ready() {
        return;
    }
    for signal in ["-TERM", "-INT"] {
        let mut pair = met("gt");
        let took = steered_for(&mut pair, signal, true);
        let most = GOODBYE_MAX + cost_of_looking(&pair);
        println!("{signal}: steered for {took:?}");
        assert!(took <= most, "{signal}: steered for {took:?}, not {most:?}");
        pair.transfer("198.18.0.2");
    }
}

#[test]
fn a_peer_that_is_removed_by_a_reload_knows_it_at_once() {
    if !ready() {
        return;
    }
    let pair = met("gr");
    let path = pair.path("1.toml".into());
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, &text[..text.find("[[peer]]").unwrap()]).unwrap();
    pair.ask(1, &["reload"]).expect("a report");
    let begin = Instant::now();
    while is_steered(&pair) {
        assert!(begin.elapsed() < GOODBYE_MAX + cost_of_looking(&pair), "still steered");
    }
}

#[test]
fn a_daemon_that_is_killed_is_found_out_within_a_second() {
    if !ready() {
        return;
    }
    for is_busy in [true, false] {
        let mut pair = met("gk");
        let took = steered_for(&mut pair, "-KILL", is_busy);
        println!("busy: {is_busy}: steered for {took:?}");
        let most = DEAD_MAX + cost_of_looking(&pair);
        assert!(took <= most, "steered for {took:?}");
        pair.transfer("198.18.0.2");
    }
}

#[test]
fn regression_a_daemon_whose_network_process_was_killed_ends_and_steers_nothing() {
    if !ready() {
        return;
    }
    let mut pair = met("gn");
    let mut daemon = pair.daemons[0].take().unwrap();
    let pid = daemon.id();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let network = children.split_whitespace().next().unwrap();
    assert!(Command::new("kill").args(["-9", network]).status().unwrap().success());
    // It could not take the routes back when the peer falls silent.
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = daemon.try_wait().unwrap() {
            break status;
        }
        if begin.elapsed() > PATIENCE {
            let _ = daemon.kill();
            let _ = daemon.wait();
            panic!("the daemon went on");
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(status.code(), Some(1));
    assert!(!is_steered(&pair));
}
