//! Replays the fuzzers' corpus of capture files on a stable toolchain, through the functions that
//! the fuzzers call. `cargo test -p srd-watch --test it corpus:: -- --ignored` writes the seeds.

use std::fs;

use crate::{bodies, seeds};

type Body = fn(&[u8]);

const TARGETS: [(&str, Body); 2] = [("pcap", bodies::pcap), ("pcapng", bodies::pcapng)];

#[test]
fn capture_seeds_replay() {
    for (target, body) in TARGETS {
        seeds::replay(target, body);
    }
}

/// A short form of the fuzzers' work: every seed is cut, and single bytes are changed.
#[test]
fn capture_seeds_survive_cuts_and_changes() {
    for (target, body) in TARGETS {
        for seed in seeds::paths(target) {
            let bytes = fs::read(&seed).unwrap();
            for n in 0..bytes.len() {
                body(&bytes[..n]);
                for change in [0x01, 0x80, 0xff] {
                    let mut changed = bytes.clone();
                    changed[n] ^= change;
                    body(&changed);
                }
            }
        }
    }
}

/// A UDP packet over IPv4.
const UDP: [u8; 28] = [
    0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 5, 0x12, 0xb5, 0, 8, 0,
    0,
];

fn number(number: u32, is_big_endian: bool) -> [u8; 4] {
    if is_big_endian { number.to_be_bytes() } else { number.to_le_bytes() }
}

/// Returns a pcap file with one packet for each frame.
fn pcap(magic: u32, link: u32, frames: &[&[u8]], is_big_endian: bool) -> Vec<u8> {
    let word = |of: u32| number(of, is_big_endian);
    let version = if is_big_endian { [0, 2, 0, 4] } else { [2, 0, 4, 0] };
    let head = [word(magic), version, word(0), word(0), word(0xffff), word(link)];
    let mut file = head.concat();
    for frame in frames {
        let length = u32::try_from(frame.len()).unwrap();
        file.extend([word(1), word(7), word(length), word(length)].concat());
        file.extend(*frame);
    }
    file
}

/// Returns a pcapng file of one section with blocks of all kinds.
fn pcapng(is_big_endian: bool) -> Vec<u8> {
    let word = |of: u32| number(of, is_big_endian);
    // Encodes two numbers of 16 bits.
    let pair = |one: u32, other: u32| {
        word(if is_big_endian { one << 16 | other } else { other << 16 | one })
    };
    let block = |kind: u32, body: &[u8]| {
        let length = word(u32::try_from(body.len() + 12).unwrap());
        [&word(kind)[..], &length, body, &length].concat()
    };
    let packet = [&word(28)[..], &word(28), &UDP].concat();
    let options = [&pair(2, 4)[..], &word(2 | 4 << 5), &pair(0, 0)].concat();
    [
        block(0x0a0d_0d0a, &[&word(0x1a2b_3c4d)[..], &pair(1, 0), &[0xff; 8]].concat()),
        block(
            1,
            &[
                &pair(101, 0)[..],
                &word(262_144),
                &pair(2, 4),
                b"eth0",
                &pair(9, 1),
                &[9, 0, 0, 0],
                &pair(14, 8),
                &word(0),
                &word(1),
                &pair(13, 1),
                &[4, 0, 0, 0],
                &pair(0, 0),
            ]
            .concat(),
        ),
        block(6, &[&word(0)[..], &word(0), &word(9), &packet, &options].concat()),
        block(2, &[&pair(0, 3)[..], &word(0), &word(9), &packet, &options].concat()),
        block(3, &[&word(28)[..], &UDP].concat()),
        block(5, &[&word(0)[..], &word(0), &word(9)].concat()),
        block(0x0bad, &[7; 16]),
        block(6, &[&word(7)[..], &word(0), &word(9), &packet].concat()),
    ]
    .concat()
}

#[test]
#[ignore = "writes the seeds"]
fn write_seeds() {
    let after_macs = |rest: &[u8]| [&[2; 12][..], rest, &UDP].concat();
    let nflog = |is_big_endian: bool| {
        let length = number(32 << 16 | 9, is_big_endian);
        let attribute = if is_big_endian { length } else { [32, 0, 9, 0] };
        [&[2, 0, 0, 5][..], &attribute, &UDP].concat()
    };
    let vxlan = {
        let inner = after_macs(&[8, 0]);
        let mut outer = UDP.to_vec();
        outer[3] = 78;
        [&[2; 12][..], &[8, 0], &outer, &[8, 0, 0, 0, 0, 0, 1, 0], &inner].concat()
    };
    let files = [
        (
            "ethernet.pcap",
            pcap(
                0xa1b2_c3d4,
                0x2400_0001,
                &[
                    &after_macs(&[8, 0]),
                    &after_macs(&[0x81, 0, 0, 7, 0x91, 0, 0, 8, 8, 0]),
                    &after_macs(&[0x88, 0x47, 0, 1, 0, 64, 0, 1, 1, 64]),
                    &after_macs(&[0x88, 0x64, 0x11, 0, 0, 7, 0, 30, 0, 0x21]),
                    &after_macs(&[0, 36, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0]),
                    &vxlan,
                ],
                false,
            ),
        ),
        ("ppp.pcap", pcap(0xa1b2_3c4d, 9, &[&[&[0xff, 3, 0, 0x21][..], &UDP].concat()], true)),
        ("nflog.pcap", pcap(0xa1b2_c3d4, 239, &[&nflog(false)], false)),
        ("nflog-big.pcap", pcap(0xa1b2_c3d4, 239, &[&nflog(true)], true)),
        ("null.pcap", pcap(0xa1b2_3c4d, 0, &[&[&[2, 0, 0, 0][..], &UDP].concat()], false)),
        ("sll2.pcap", pcap(0xa1b2_c3d4, 276, &[&[&[8, 0], &[0; 18][..], &UDP].concat()], false)),
    ];
    for (name, bytes) in files {
        fs::write(seeds::corpus().join("pcap").join(name), bytes).unwrap();
    }
    let (little, big) = (pcapng(false), pcapng(true));
    let both = [&little[..], &big].concat();
    for (name, bytes) in [("little.pcapng", little), ("big.pcapng", big), ("both.pcapng", both)] {
        fs::write(seeds::corpus().join("pcapng").join(name), bytes).unwrap();
    }
}
