//! A daemon that ends sends a Close packet (a goodbye) to each peer, and the peer then uses its
//! host's own routes again at once. The end of a killed daemon is detected within a second. Needs
//! root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use crate::support::pair::{PATIENCE, Pair, Settings, must, ready};
use rustix::process::{Pid, Signal, kill_process};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Maximum time after a goodbye until the peer's packets are no longer steered through the tunnel.
/// It is less than the 600 ms after which a silent peer is considered down. So only the goodbye can
/// be the cause.
const GOODBYE_MAX: Duration = Duration::from_millis(400);
/// Time between two looks at the route.
const LOOK: Duration = Duration::from_millis(10);
/// Maximum number of goodbyes, one of which must take effect within [`GOODBYE_MAX`], because a busy
/// machine delays some of them.
const ATTEMPTS: usize = 12;
/// Maximum time until a failed host is detected. It is usually a second, and much longer if the
/// machine is busy.
const DEAD_MAX: Duration = Duration::from_secs(60);

/// Starts two daemons in transparent mode, and waits until each daemon steers the packets for the
/// other machine through the tunnel.
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

/// Whether packets from the first machine to the second go through the tunnel interface.
fn is_steered(pair: &Pair) -> bool {
    must(&format!("-n {} route get 198.18.0.2", pair.names[0])).contains("dev srd0")
}

/// Sends a signal to the second machine's daemon. Returns the time for which the first machine
/// still steers packets to it. If `is_busy` is set, a datagram is sent every 10 ms; otherwise there
/// is no traffic.
fn steered_for(pair: &mut Pair, signal: Signal, is_busy: bool) -> Duration {
    let mut daemon = pair.daemons[1].take().unwrap();
    let pair = &*pair;
    let over = AtomicBool::new(false);
    let took = std::thread::scope(|scope| {
        if is_busy {
            scope.spawn(|| pair.within(0, || chatter(&over)));
        }
        // For this time, only probes keep the session alive, unless `chatter` sends datagrams.
        std::thread::sleep(Duration::from_millis(500));
        pair.wait("steering", is_steered);
        let begin = Instant::now();
        kill_process(Pid::from_child(&daemon), signal).unwrap();
        while is_steered(pair) && begin.elapsed() < PATIENCE {
            std::thread::sleep(LOOK);
        }
        let took = begin.elapsed();
        over.store(true, Ordering::Relaxed);
        took
    });
    daemon.wait().unwrap();
    took
}

/// Sends a datagram every 10 ms until `over` is set.
fn chatter(over: &AtomicBool) {
    let socket = UdpSocket::bind("198.18.0.1:0").unwrap();
    let begin = Instant::now();
    // The loop also ends if the test fails.
    while !over.load(Ordering::Relaxed) && begin.elapsed() < 3 * PATIENCE {
        // No program listens there; the kernel's error does not matter.
        let _ = socket.send_to(&[0; 100], "198.18.0.2:9");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Calls `goodbye`, which returns the time for which packets were still steered, up to [`ATTEMPTS`]
/// times. Fails if none of the times is within [`GOODBYE_MAX`].
fn heard_at_once(what: &str, mut goodbye: impl FnMut() -> Duration) {
    let mut times = Vec::new();
    while times.len() < ATTEMPTS {
        let took = goodbye();
        println!("{what}: steered for {took:?}");
        if took <= GOODBYE_MAX {
            return;
        }
        times.push(took);
    }
    panic!("{what}: steered for {times:?}, each time longer than {GOODBYE_MAX:?}");
}

#[test]
fn a_daemon_that_is_told_to_end_leaves_no_one_waiting() {
    if !ready() {
        return;
    }
    for signal in [Signal::TERM, Signal::INT] {
        heard_at_once(&format!("{signal:?}"), || {
            let mut pair = met("gt");
            let took = steered_for(&mut pair, signal, true);
            pair.transfer("198.18.0.2");
            took
        });
    }
}

#[test]
fn a_peer_that_is_removed_by_a_reload_knows_it_at_once() {
    if !ready() {
        return;
    }
    heard_at_once("removed", || {
        let pair = met("gr");
        let path = pair.path("1.toml".into());
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.find("[[peer]]").unwrap()]).unwrap();
        let begin = Instant::now();
        pair.ask(1, &["reload"]).expect("a report");
        while is_steered(&pair) && begin.elapsed() < PATIENCE {
            std::thread::sleep(LOOK);
        }
        begin.elapsed()
    });
}

#[test]
fn a_daemon_that_is_killed_is_found_out_within_a_second() {
    if !ready() {
        return;
    }
    for is_busy in [true, false] {
        let mut pair = met("gk");
        let took = steered_for(&mut pair, Signal::KILL, is_busy);
        println!("busy: {is_busy}: steered for {took:?}");
        assert!(took <= DEAD_MAX, "steered for {took:?}");
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
    let network = children.split_whitespace().next().unwrap().parse().unwrap();
    kill_process(Pid::from_raw(network).unwrap(), Signal::KILL).unwrap();
    // Without its network process, the daemon could not remove its routes when its peer becomes
    // silent. So it ends.
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
    pair.wait("the end of steering", |pair| !is_steered(pair));
}
