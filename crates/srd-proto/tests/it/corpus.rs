//! Replays the fuzzers' corpus on a stable toolchain, through the same functions, and writes
//! the seeds: `cargo test -p srd-proto --test it corpus:: -- --ignored`.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

use crate::{bodies, seeds};
use std::fs;

use srd_proto::wire::ack::{self, AckHead, Tuple, Verdict};
use srd_proto::wire::data::Data;
use srd_proto::wire::greeting::Greeting;
use srd_proto::wire::handshake::{Hello, Reset};
use srd_proto::wire::probe::Probe;
use srd_proto::wire::{FLAG_ACK_NOW, FLAG_GREETING, Header, Kind};

/// Maximum number of bytes of all seeds together, those of the simulator's readers included.
const CORPUS_BYTES_MAX: u64 = 200_000;

type Body = fn(&[u8]);

const TARGETS: [(&str, Body); 8] = [
    ("header", bodies::header),
    ("data", bodies::data),
    ("ack", bodies::ack),
    ("probe", bodies::probe),
    ("greeting", bodies::greeting),
    ("hello", bodies::hello),
    ("endpoint_plain", bodies::endpoint_plain),
    ("endpoint_sealed", bodies::endpoint_sealed),
];

fn replay(target: &str) {
    let (_, body) = TARGETS.iter().find(|(name, _)| *name == target).unwrap();
    seeds::replay(target, body);
}

#[test]
fn codec_seeds_replay() {
    for target in ["header", "data", "ack", "probe", "greeting", "hello"] {
        replay(target);
    }
}

#[test]
fn plain_endpoint_seeds_replay() {
    replay("endpoint_plain");
}

#[test]
fn sealed_endpoint_seeds_replay() {
    replay("endpoint_sealed");
}

/// A small part of the fuzzers' work: every seed cut short, and with single bytes changed.
#[test]
fn codec_seeds_survive_cuts_and_changes() {
    for (target, body) in &TARGETS[..6] {
        for seed in seeds::paths(target) {
            let bytes = fs::read(&seed).unwrap();
            for n in 0..bytes.len().min(200) {
                body(&bytes[..n]);
                for mask in [0x01, 0x80, 0xff] {
                    let mut changed = bytes.clone();
                    changed[n] ^= mask;
                    body(&changed);
                }
            }
        }
    }
}

#[test]
fn the_corpus_stays_small() {
    let mut bytes = 0;
    for target in fs::read_dir(seeds::corpus()).unwrap() {
        let name = target.unwrap().file_name();
        for seed in seeds::paths(&name.to_string_lossy()) {
            bytes += fs::metadata(seed).unwrap().len();
        }
    }
    assert!(bytes < CORPUS_BYTES_MAX, "{bytes} bytes of seeds");
}

#[test]
#[ignore = "writes the seeds"]
fn write_seeds() {
    let write = |target: &str, name: &str, bytes: &[u8]| {
        let directory = seeds::corpus().join(target);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(name), bytes).unwrap();
    };
    for (name, bytes) in headers() {
        write("header", name, &bytes);
    }
    for (target, name, bytes) in bodies_of_packets() {
        write(target, name, &bytes);
    }
    for (name, script) in scripts() {
        write("endpoint_plain", name, &script);
        for (mode, key) in [(0, "static"), (1, "job")] {
            write("endpoint_sealed", &format!("{key}-{name}"), &[&[mode], &script[..]].concat());
        }
    }
}

fn headers() -> Vec<(&'static str, Vec<u8>)> {
    let kinds = [
        ("data", Kind::Data),
        ("ack", Kind::Ack),
        ("probe", Kind::Probe),
        ("hello", Kind::Hello),
        ("hello-reply", Kind::HelloReply),
        ("retry", Kind::Retry),
        ("close", Kind::Close),
        ("challenge", Kind::Challenge),
        ("challenge-reply", Kind::ChallengeReply),
        ("reset", Kind::Reset),
    ];
    let header = |kind| {
        let header = Header {
            kind,
            flags: FLAG_ACK_NOW | FLAG_GREETING,
            key_phase: 3,
            rtt_code: 77,
            dst_context: 0x0050_0001,
            number: 0xdead_beef,
        };
        let mut out = Vec::new();
        header.encode(&mut out);
        out
    };
    kinds.map(|(name, kind)| (name, header(kind))).to_vec()
}

fn bodies_of_packets() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let mut all = Vec::new();
    let mut put = |target, name, write: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        write(&mut out);
        all.push((target, name, out));
    };
    let data = Data {
        first_delta: 3,
        floor_delta: 9,
        sent_at: u32::MAX,
        queued_bytes: 1 << 20,
        dst_qpn: 7,
        src_qpn: 1,
        imm: 0x0102_0304_0506_0708,
    };
    put("data", "first-sending", &|out| Data { first_delta: 0, ..data }.encode(out));
    put("data", "with-payload", &|out| {
        data.encode(out);
        out.extend_from_slice(&[0xab; 40]);
    });
    let head = AckHead {
        cumulative: 100,
        received_bytes: 5000,
        credit_limit_bytes: 9000,
        credit_limited: true,
        senders: 4,
        echo: Some((77, 1234)),
    };
    let tuple = |i: u32| Tuple { psn: 100 + i, delay: i * 1000, ce: i == 3 };
    let tuples: Vec<Tuple> = (0..16).map(tuple).collect();
    let verdicts = [Verdict { psn: 103, status: 10 }, Verdict { psn: 104, status: 9 }];
    put("ack", "empty", &|out| ack::encode(out, &AckHead::default(), &[], &[], &[]));
    put("ack", "full", &|out| ack::encode(out, &head, &[u64::MAX, 1], &tuples, &verdicts));
    put("ack", "longest-sack", &|out| ack::encode(out, &head, &[5; ack::SACK_WORDS_MAX], &[], &[]));
    put("probe", "bare", &|out| {
        Probe { sent_at: 1, queued_bytes: 2, floor: 3 }.encode(out, 0);
    });
    put("probe", "padded", &|out| {
        Probe { sent_at: 1, queued_bytes: 2, floor: 3 }.encode(out, 100);
    });
    let greeting = Greeting { context: 0x0050_0001, epoch: 9, port: 7471, features: 0 };
    put("greeting", "bare", &|out| greeting.encode(out));
    put("greeting", "then-data", &|out| {
        greeting.encode(out);
        data.encode(out);
    });
    put("hello", "noise", &|out| {
        Hello { mac: [9; 16], context: 8, cookie: [0; 16], noise: &[0x55; 120] }.encode(out);
    });
    put("hello", "job-with-cookie", &|out| {
        Hello { mac: [9; 16], context: 8, cookie: [1; 16], noise: &[0x66; 64] }.encode(out);
    });
    put("hello", "retry", &|out| out.extend_from_slice(&[7; 40]));
    put("hello", "reset", &|out| Reset { context: 8, number: 9 }.encode(out));
    all
}

// Steps of a script, as `bodies::World::step` reads them.
const DELIVER: u8 = 0;
const ALL: u8 = 2;
const LOSE: u8 = 3;
const CORRUPT: u8 = 4;
const REPLAY: u8 = 5;
const WAIT_NS: u8 = 6;
const WAIT_US: u8 = 7;
const WAIT_100US: u8 = 8;
const SEND: u8 = 9;
const RAW: u8 = 11;
const CRAFTED: u8 = 12;
const POST: u8 = 13;
const CLOSE: u8 = 14;
const NARROW: u8 = 15 + 16;
/// Bit of a step that applies to the second end instead of the first.
const B: u8 = 128;

/// Sends `bytes` to queue pair 7.
fn send(bytes: u16) -> [u8; 4] {
    let [high, low] = bytes.to_be_bytes();
    [SEND, 1 << 3, high, low]
}

/// Returns a script that opens the session, if the mode has one, with a datagram in each direction.
fn begin() -> Vec<u8> {
    let mut script = send(100).to_vec();
    script.extend_from_slice(&[ALL, ALL, WAIT_US, 0, 20, ALL, ALL, ALL]);
    script.extend_from_slice(&[SEND | B, 1 << 3, 0, 50, ALL, ALL, ALL]);
    script
}

fn scripts() -> Vec<(&'static str, Vec<u8>)> {
    let after = |steps: &[u8]| [&begin()[..], steps].concat();
    let many: Vec<u8> = (0..20).flat_map(|i| send(100 + 40 * i)).collect();
    let mut all = vec![
        ("there-and-back", begin()),
        ("both-open-at-once", [&send(100)[..], &[SEND | B, 1 << 3, 0, 9, ALL, ALL, ALL]].concat()),
        ("many", after(&[&many[..], &[ALL, ALL, WAIT_US, 0, 10, ALL, ALL]].concat())),
        ("loss", after(&[&many[..], &[LOSE, 0, 1, LOSE, 0, 3, ALL, WAIT_US, 1, 0, ALL]].concat())),
        ("reordered", after(&[&many[..], &[DELIVER, 0, 9, DELIVER, 0, 2, WAIT_NS, 1, 0]].concat())),
        ("silence", after(&[&many[..], &[WAIT_100US, 1, 0, WAIT_100US, 2, 0, ALL, ALL]].concat())),
        (
            "no-buffers",
            after(&[[SEND, 2 << 3, 0, 9].repeat(5), vec![ALL, ALL, POST | B, 9]].concat()),
        ),
        ("no-queue-pair", after(&[SEND, 0, 0, 9, ALL, ALL, WAIT_US, 0, 9, ALL])),
        ("closed", after(&[&many[..], &[CLOSE, 1, ALL, WAIT_US, 0, 9, ALL]].concat())),
        ("corrupted", after(&[&many[..], &[CORRUPT, 0, 1, 0, 20, 255, ALL, ALL]].concat())),
        ("replayed", after(&[REPLAY, 0, 1, 0, REPLAY, 0, 2, 9, ALL, WAIT_US, 0, 9])),
        (
            "narrow",
            [
                &[NARROW][..],
                &[SEND, 8, 6, 0].repeat(3),
                &begin(),
                &[WAIT_US, 20, 0, ALL].repeat(20),
            ]
            .concat(),
        ),
        ("raw", after(&[RAW, 1, 12, 0x11, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, ALL])),
    ];
    let mut crafted = begin();
    for (name, kind) in [(1, 1u8), (2, 2), (3, 3), (4, 7)] {
        crafted.extend_from_slice(&[CRAFTED | B, kind, 0, 9, 0, 0, 0, name, 24]);
        crafted.extend_from_slice(&[name; 24]);
        crafted.push(ALL);
    }
    all.push(("crafted", crafted));
    all
}
