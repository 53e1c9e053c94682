//! Two machines with two network cards each. The two cards of a machine carry traffic together, and
//! each of them may fail and come back. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::cable::{End, plug};
use crate::support::pair::{Pair, must, ready};

/// Time for which a card that fails or comes back is observed.
const WHILE: Duration = Duration::from_millis(1000);
/// Longest silence that a failing card may cause, in addition to the silence while both cards work.
/// A busy machine also causes silence. So only one of [`DEATHS`] failures must be within this
/// bound, and each must be within [`SILENCE_EVER_MAX`].
const SILENCE_MAX: Duration = Duration::from_millis(50);
const SILENCE_EVER_MAX: Duration = Duration::from_secs(30);
/// Number of failures of each card, at least one of which must be within the bound.
const DEATHS: usize = 12;

/// Creates two machines with two wires between them, each wire with a network of its own.
fn two_wires(tag: &str) -> Pair {
    let pair = Pair::new(tag);
    let [a, b] = &pair.names;
    let end = |namespace, addresses| End { namespace, interface: "v1", addresses };
    plug(&[end(a, &["198.19.0.1/24"]), end(b, &["198.19.0.2/24"])], "mtu 1500");
    pair
}

/// Writes the configuration of an end. `interface` are the lines of `[interface]` except the key,
/// and `allowed` are the prefixes behind the other end.
fn configure(pair: &Pair, end: usize, interface: &str, allowed: &str) {
    let (own, other) = (end + 1, 2 - end);
    let text = format!(
        "[expert]\npaths = 16\n[interface]\n{interface}\n\
         listen = [\"198.18.0.{own}:7471\", \"198.19.0.{own}:7471\"]\n\
         private_key_file = \"{key}\"\n[control]\nsocket = \"{socket}\"\n\
         [[peer]]\nname = \"other\"\npublic_key = \"{public}\"\n\
         endpoint = [\"198.18.0.{other}:7471\", \"198.19.0.{other}:7471\"]\n\
         allowed = [{allowed}]\n",
        key = pair.path(format!("{end}.key")).display(),
        socket = pair.path(format!("{end}.sock")).display(),
        public = pair.public[1 - end],
    );
    std::fs::write(pair.path(format!("{end}.toml")), text).unwrap();
}

fn overlay(pair: &Pair, end: usize) {
    let address = format!("address = [\"10.77.0.{}/24\"]", end + 1);
    configure(pair, end, &address, &format!("\"10.77.0.{}/32\"", 2 - end));
}

fn card(pair: &Pair, end: usize, number: usize, state: &str) {
    must(&format!("-n {} link set v{number} {state}", pair.names[end]));
}

/// Returns the number of bytes that have left the first machine through each card.
fn left(pair: &Pair) -> [u64; 2] {
    [0, 1].map(|number| {
        let text = must(&format!("-n {} -s -j link show v{number}", pair.names[0]));
        let links: serde_json::Value = serde_json::from_str(&text).unwrap();
        links[0]["stats64"]["tx"]["bytes"].as_u64().unwrap()
    })
}

/// Returns the share of the bytes that leaves through the second card while `work` runs.
fn second_card_part(pair: &Pair, work: impl FnOnce()) -> f64 {
    let before = left(pair);
    work();
    let after = left(pair);
    let [first, second] = [0, 1].map(|n| (after[n] - before[n]) as f64);
    second / (first + second)
}

/// Waits until the share of the sent bytes that the second card carries, in an interval of 300 ms,
/// is in the range `wanted`.
fn wait_for_part(pair: &Pair, what: &str, wanted: std::ops::Range<f64>) {
    pair.wait(what, |pair| {
        let part = second_card_part(pair, || std::thread::sleep(Duration::from_millis(300)));
        wanted.contains(&part)
    });
}

/// Load during a test: a TCP connection that always has data to send, and pings.
struct Load<'a> {
    ends: &'a AtomicBool,
    received: &'a AtomicU64,
    /// Longest time without an answer to a ping since the last reset, in nanoseconds.
    silence_ns: &'a AtomicU64,
}

/// Sends a ping every few milliseconds, and records the longest silence.
fn ping(socket: &UdpSocket, load: &Load<'_>) {
    socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let mut heard = Instant::now();
    let mut buffer = [0; 16];
    while !load.ends.load(Ordering::Relaxed) {
        // Sending may return an error while a card is down.
        let _ = socket.send_to(b"ping", "10.77.0.2:9001");
        if socket.recv_from(&mut buffer).is_ok() {
            let silence = u64::try_from(heard.elapsed().as_nanos()).unwrap();
            load.silence_ns.fetch_max(silence, Ordering::Relaxed);
            heard = Instant::now();
        }
    }
}

fn echo(socket: &UdpSocket, load: &Load<'_>) {
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut buffer = [0; 16];
    while !load.ends.load(Ordering::Relaxed) {
        if let Ok((n, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..n], from);
        }
    }
}

/// Runs `work` during a transfer over one TCP connection and pings. The connection must survive.
fn under_load(pair: &Pair, work: impl FnOnce(&Load<'_>)) {
    let (ends, received, silence_ns) =
        (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let load = &Load { ends: &ends, received: &received, silence_ns: &silence_ns };
    let listener = pair.within(1, || TcpListener::bind("10.77.0.2:9000").unwrap());
    let answers = pair.within(1, || UdpSocket::bind("10.77.0.2:9001").unwrap());
    let asks = pair.within(0, || UdpSocket::bind("10.77.0.1:0").unwrap());
    let mut stream = pair.within(0, || TcpStream::connect("10.77.0.2:9000").unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| echo(&answers, load));
        scope.spawn(|| ping(&asks, load));
        scope.spawn(|| {
            let (mut from, _) = listener.accept().unwrap();
            let mut buffer = vec![0; 1 << 16];
            while let Ok(n @ 1..) = from.read(&mut buffer) {
                received.fetch_add(n as u64, Ordering::Relaxed);
            }
        });
        let sender = scope.spawn(move || {
            let bytes = vec![7; 1 << 16];
            while !load.ends.load(Ordering::Relaxed) {
                stream.write_all(&bytes).expect("the connection lives");
            }
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(load)));
        ends.store(true, Ordering::Relaxed);
        sender.join().expect("the connection lives");
        if let Err(panic) = done {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Takes a card down for a while; the transfer must continue. Returns the silence. Returns `None`
/// if the silence was too long, or if a daemon considered its peer dead because the machine was too
/// busy.
fn death(pair: &Pair, load: &Load<'_>, (end, number): (usize, usize)) -> Option<Duration> {
    let silence_of_a_while = || {
        load.silence_ns.store(0, Ordering::Relaxed);
        std::thread::sleep(WHILE);
        // A silence is recorded only at its end.
        pair.wait("an answer to a ping", |_| load.silence_ns.load(Ordering::Relaxed) > 0);
        Duration::from_nanos(load.silence_ns.load(Ordering::Relaxed))
    };
    let downs = || pair.counter(0, "peer_downs");
    let calm = silence_of_a_while();
    let downs_before = downs();
    card(pair, end, number, "down");
    let silence = silence_of_a_while();
    let before = load.received.load(Ordering::Relaxed);
    pair.wait("more of the transfer", |_| load.received.load(Ordering::Relaxed) > before);
    let status = pair.ask(0, &["status"]).unwrap();
    let is_up = status["peers"][0]["state"] == "up" && downs() == downs_before;
    card(pair, end, number, "up");
    wait_for_part(pair, "traffic on the card that is back", 0.3..0.7);
    println!("{end} {number}: {silence:?} after {calm:?}, up: {is_up}");
    assert!(silence <= SILENCE_EVER_MAX, "{silence:?}");
    (is_up && silence <= SILENCE_MAX + calm).then_some(silence)
}

#[test]
fn one_connection_uses_both_cards_and_outlives_either() {
    if !ready() {
        return;
    }
    let mut pair = two_wires("hm");
    for end in [0, 1] {
        overlay(&pair, end);
        pair.start(end);
    }
    pair.wait_for_express();
    let pair = &pair;
    under_load(pair, |load| {
        wait_for_part(pair, "traffic on both cards", 0.3..0.7);
        let mut silences = Vec::new();
        // The first machine's cards fail, then the second machine's; on each machine first the
        // second card, then the first.
        for (end, number) in [(0, 1), (0, 0), (1, 1), (1, 0)] {
            let best = (0..DEATHS).find_map(|_| death(pair, load, (end, number)));
            silences.push(best.expect("the peer is not taken for dead, and hears us soon again"));
        }
        println!("silences: {silences:?}");
    });
    let paths = pair.ask(0, &["paths", "other"]).unwrap();
    let text = paths.to_string();
    for end in ["198.18.0.1:7471", "198.19.0.1:7472", "198.18.0.2:7471", "198.19.0.2:7471"] {
        assert!(text.contains(end), "{end} is not in {text}");
    }
}

#[test]
fn a_start_with_a_dead_first_card_finds_the_second() {
    if !ready() {
        return;
    }
    let mut pair = two_wires("hmd");
    card(&pair, 0, 0, "down");
    for end in [0, 1] {
        overlay(&pair, end);
        pair.start(end);
    }
    pair.wait_for_express();
    under_load(&pair, |_| {
        // While no bytes are sent, the share is not a number.
        let mut part = f64::NAN;
        pair.wait("a transfer", |pair| {
            part = second_card_part(pair, || std::thread::sleep(Duration::from_millis(500)));
            !part.is_nan()
        });
        assert!(part > 0.99, "{part}");
        card(&pair, 0, 0, "up");
        wait_for_part(&pair, "traffic on the first card", 0.3..0.7);
    });
}

#[test]
fn a_transparent_interface_takes_packets_for_both_addresses_of_the_peer() {
    if !ready() {
        return;
    }
    let mut pair = two_wires("hmt");
    for end in [0, 1] {
        let other = 2 - end;
        let allowed = format!("\"198.18.0.{other}/32\", \"198.19.0.{other}/32\"");
        configure(&pair, end, "mode = \"transparent\"", &allowed);
        pair.start(end);
    }
    pair.wait_for_express();
    for to in ["198.18.0.2", "198.19.0.2"] {
        pair.transfer_by_srd(to);
    }
}
