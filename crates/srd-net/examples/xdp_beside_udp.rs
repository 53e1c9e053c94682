//! Comparison of the back ends over a veth, measured in turns: packets per second and CPU time per
//! packet. Needs root, to make two network namespaces.
//!
//! ```text
//! cargo run --release -p srd-net --example xdp_beside_udp -- [SECONDS] [ROUNDS]
//! ```
//!
//! One thread sends batches of 32 packets and keeps at most 512 in flight, another receives, and
//! sleeps if no packet waits. CPU time is the sum of both threads: it includes the kernel's work
//! within these threads, and excludes the kernel's own threads. Rates are meaningful only in
//! comparison.
#![allow(clippy::unwrap_used)]

#[path = "../tests/support/veth.rs"]
#[allow(dead_code)]
mod veth;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use srd_net::xdp::{AnyIo, IoChoice, XdpOptions};
use srd_net::{PacketIo, PollMode, SendOutcome, UdpOptions, Wait};
use srd_proto::ids::Entropy;
use srd_proto::transmit::{Ecn, Transmit};
use veth::Pair;

const BATCH: usize = 32;
const IN_FLIGHT_MAX: u64 = 512;

#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    choice: IoChoice,
    segmentation: bool,
    generic: bool,
}

const KINDS: [Kind; 4] = [
    Kind {
        name: "UDP, packet by packet",
        choice: IoChoice::Udp,
        segmentation: false,
        generic: false,
    },
    Kind { name: "UDP, segmentation", choice: IoChoice::Udp, segmentation: true, generic: false },
    Kind { name: "AF_XDP, copies", choice: IoChoice::AfXdp, segmentation: true, generic: false },
    Kind { name: "AF_XDP, generic", choice: IoChoice::AfXdp, segmentation: true, generic: true },
];

/// Measurements of one run of one back end: packets per second, and CPU time per packet.
#[derive(Clone, Copy, Default)]
struct Turn {
    packets_per_s: f64,
    sender_us: f64,
    receiver_us: f64,
}

impl Turn {
    fn cpu_us(&self) -> f64 {
        self.sender_us + self.receiver_us
    }
}

fn main() {
    let number = |place: usize, default: u64| {
        std::env::args().nth(place).map_or(default, |word| word.parse().expect("a number"))
    };
    let (seconds, rounds) = (number(1, 1), number(2, 3));
    println!("median of {rounds} turns of {seconds} s each; CPU time in us per packet");
    println!("| payload, MTU | back end | packets/s | sender | receiver | CPU against the first |");
    println!("|---|---|---|---|---|---|");
    for (mtu, payload) in [(1500, 64), (1500, 1400), (9000, 8900)] {
        let Some(pair) = Pair::new(mtu, 1) else { return };
        pair.acquaint();
        let mut turns = vec![Vec::new(); KINDS.len()];
        for _ in 0..rounds {
            for (kind, turns) in KINDS.iter().zip(&mut turns) {
                turns.push(turn(&pair, *kind, payload, Duration::from_secs(seconds)));
            }
        }
        let medians: Vec<Turn> = turns.into_iter().map(median).collect();
        for (kind, turn) in KINDS.iter().zip(&medians) {
            println!(
                "| {payload}, {mtu} | {} | {:.0} | {:.2} | {:.2} | {:.2} |",
                kind.name,
                turn.packets_per_s,
                turn.sender_us,
                turn.receiver_us,
                turn.cpu_us() / medians[0].cpu_us(),
            );
        }
    }
}

/// Returns the run with the median CPU time.
fn median(mut turns: Vec<Turn>) -> Turn {
    turns.sort_by(|a, b| a.cpu_us().total_cmp(&b.cpu_us()));
    turns[turns.len() / 2]
}

fn turn(pair: &Pair, kind: Kind, payload: usize, length: Duration) -> Turn {
    let open = |end: usize| {
        let ip = ["10.77.0.1", "10.77.0.2"][end].parse().unwrap();
        let mut udp = UdpOptions::new(SocketAddr::new(ip, 0));
        (udp.paths, udp.poll, udp.segmentation) = (4, PollMode::Block, kind.segmentation);
        let mut options = XdpOptions::new(udp);
        options.generic = kind.generic;
        pair.within(end, move || AnyIo::open(kind.choice, &options)).unwrap()
    };
    let (mut from, mut to) = (open(0), open(1));
    let (received, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let destination = to.local_address();
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let start = thread_cpu();
            while !done.load(Ordering::Relaxed) {
                let until = to.clock().now() + srd_proto::Duration::from_millis(20);
                let came = to.receive(Wait::until(until), |_, _, _| {}).unwrap();
                received.fetch_add(came as u64, Ordering::Relaxed);
            }
            thread_cpu() - start
        });
        let (start, cpu) = (Instant::now(), thread_cpu());
        send_for(&mut from, destination, payload, length, &received);
        let (took, sender) = (start.elapsed(), thread_cpu() - cpu);
        done.store(true, Ordering::Relaxed);
        let receiver = receiver.join().unwrap();
        #[allow(clippy::cast_precision_loss)] // the counts are a few million
        let packets = received.load(Ordering::Relaxed).max(1) as f64;
        let us = |time: Duration| time.as_secs_f64() * 1e6 / packets;
        Turn {
            packets_per_s: packets / took.as_secs_f64(),
            sender_us: us(sender),
            receiver_us: us(receiver),
        }
    })
}

fn send_for(
    io: &mut AnyIo,
    destination: SocketAddr,
    payload: usize,
    length: Duration,
    received: &AtomicU64,
) {
    // A batch that the kernel cuts has at most 65,400 bytes.
    let segments = BATCH.min(65_400 / payload);
    let transmit = Transmit {
        destination,
        entropy: Entropy(1),
        ecn: Ecn::Ect,
        segment_bytes: payload,
        segments,
        total_bytes: payload * segments,
        control: false,
    };
    let batch = [(transmit, vec![vec![7; payload]; segments])];
    let (start, mut sent, mut seen, mut seen_at) = (Instant::now(), 0, 0, Instant::now());
    while start.elapsed() < length {
        let came = received.load(Ordering::Relaxed);
        if came != seen {
            (seen, seen_at) = (came, Instant::now());
        }
        // Lost packets must not stop the sender permanently.
        if sent > came + IN_FLIGHT_MAX && seen_at.elapsed() < Duration::from_millis(50) {
            std::thread::sleep(Duration::from_micros(20));
            continue;
        }
        if sent > came + IN_FLIGHT_MAX {
            sent = came;
        }
        if io.send(&batch).unwrap() == SendOutcome::All {
            sent += segments as u64;
        }
    }
}

/// Returns the CPU time of this thread.
fn thread_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}
