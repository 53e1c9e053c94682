//! Compares AES-256-GCM of `ring` and `aws-lc-rs`. On one thread, the two libraries alternately
//! seal and open packets in place, and the CPU time of the thread is measured. The program prints
//! the median of all rounds.
//!
//! ```sh
//! cargo run --release            # all sizes
//! cargo run --release -- ring seal 8900 1000000   # one case alone, for `perf stat`
//! ```

use std::hint::black_box;

use rustix::time::{ClockId, clock_gettime};

const SIZES: [usize; 3] = [64, 1400, 8900];
const HEADER_BYTES: usize = 12;
const TAG_BYTES: usize = 16;
const ROUNDS: usize = 15;
/// Number of payload bytes that a round processes.
const ROUND_BYTES: usize = 64 << 20;
/// Largest number of packets of a round, which limits the rounds of small packets.
const ROUND_PACKETS_MAX: usize = 200_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    Seal,
    Open,
}

/// Defines the measured function for one library. The two libraries have the same interface, but
/// different types.
macro_rules! library {
    ($name:ident, $library:ident) => {
        fn $name(work: Work, size: usize, packets: usize) {
            use $library::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
            let key = UnboundKey::new(&AES_256_GCM, &[7; 32]).expect("32 bytes are a key");
            let key = LessSafeKey::new(key);
            let nonce = |n: u64| {
                let mut bytes = [0; 12];
                bytes[4..].copy_from_slice(&n.to_be_bytes());
                Nonce::assume_unique_for_key(bytes)
            };
            let header = [1_u8; HEADER_BYTES];
            let mut packet = vec![3_u8; size + TAG_BYTES];
            let (body, tag) = packet.split_at_mut(size);
            let sealed = key.seal_in_place_separate_tag(nonce(0), Aad::from(&header), body);
            tag.copy_from_slice(sealed.expect("a short packet").as_ref());
            let original = packet.clone();
            for n in 0..packets as u64 {
                match work {
                    Work::Seal => {
                        let body = black_box(&mut packet[..size]);
                        let (nonce, aad) = (nonce(n), Aad::from(&header));
                        let tag = key.seal_in_place_separate_tag(nonce, aad, body);
                        let _ = black_box(tag.expect("a short packet"));
                    }
                    Work::Open => {
                        // Opening overwrites the packet, so a copy is necessary. The copy is part
                        // of the measured time of both libraries.
                        packet.copy_from_slice(&original);
                        let opened = key.open_in_place(nonce(0), Aad::from(&header), &mut packet);
                        black_box(opened.expect("it was sealed above"));
                    }
                }
            }
        }
    };
}

library!(with_ring, ring);
library!(with_aws_lc, aws_lc_rs);

/// Returns the CPU time in nanoseconds per packet.
fn measure(run: fn(Work, usize, usize), work: Work, size: usize, packets: usize) -> f64 {
    let now = || {
        let t = clock_gettime(ClockId::ThreadCPUTime);
        t.tv_sec as f64 * 1e9 + t.tv_nsec as f64
    };
    let before = now();
    run(work, size, packets);
    (now() - before) / packets as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [library, work, size, packets] = &args[..] {
        let run = if library == "ring" { with_ring } else { with_aws_lc };
        let work = if work == "seal" { Work::Seal } else { Work::Open };
        let number = |text: &str| text.parse().expect("size and packets are numbers");
        run(work, number(size), number(packets));
        return;
    }
    println!("{:>6} {:>5} {:>12} {:>12} {:>8}", "bytes", "", "ring ns", "aws-lc ns", "ratio");
    for size in SIZES {
        for work in [Work::Seal, Work::Open] {
            let packets = (ROUND_BYTES / size).min(ROUND_PACKETS_MAX);
            let (mut ring, mut aws, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                let one = measure(with_ring, work, size, packets);
                let other = measure(with_aws_lc, work, size, packets);
                ring.push(one);
                aws.push(other);
                ratios.push(one / other);
            }
            let (ring, aws, ratio) = (median(ring), median(aws), median(ratios));
            println!("{size:>6} {work:>5?} {ring:>12.1} {aws:>12.1} {ratio:>8.3}");
        }
    }
}
