//! Many endpoints in one process that all exchange messages with each other: the smallest queues
//! are enough, and a peer costs little memory.

#![allow(clippy::unwrap_used, reason = "a test, with helpers")]

use crate::node::Program;

/// Largest number of bytes of state that an endpoint may keep for an active peer, without buffers:
/// 2,327 were measured with 128 endpoints.
const PEER_BYTES_MAX: u64 = 2560;
/// Largest number of file descriptors of an endpoint on loopback: a socket, a duplicate of it, a
/// timer and an event descriptor; for shared memory an event descriptor, a listening socket, and
/// two epoll sets.
const DESCRIPTORS: u64 = 8;
/// Largest number of ends of shared-memory links in a process, with two descriptors each.
const LINKS: u64 = 256;

/// Output of the program: values by name.
struct Report(String);

impl Report {
    fn of(&self, when: &str, figure: &str) -> u64 {
        let line = self.0.lines().find(|line| line.starts_with(when));
        let line = line.unwrap_or_else(|| panic!("no {when} in {}", self.0));
        let mut words = line.split(' ').skip_while(|word| *word != figure).skip(1);
        words.next().and_then(|word| word.parse().ok()).unwrap()
    }
}

/// Runs the program. `numbers` holds the number of endpoints, of messages from each endpoint to
/// every other, of bytes per message, and of operations in a queue.
fn exchange(program: &Program, numbers: [u64; 4], further: &[&str]) -> Report {
    let arguments = numbers.map(|number| number.to_string());
    let output = program.command().args(arguments).args(further).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{numbers:?}: {said}");
    println!("{said}");
    Report(said)
}

#[test]
fn a_queue_of_one_operation_completes_all_to_all_64_deep() {
    let Some(program) = Program::compile("alltoall") else { return };
    for bytes in [8, 1024, 30_000, 300_000] {
        exchange(&program, [5, 64, bytes, 1], &["0"]);
    }
}

fn costs_little(endpoints: u64) {
    let Some(program) = Program::compile("alltoall") else { return };
    let report = exchange(&program, [endpoints, 1, 64, 0], &[]);
    let heap = report.of("rested", "heap_bytes_per_pair");
    assert!(heap <= PEER_BYTES_MAX, "{heap} bytes of a peer");
    // Descriptors of the program itself, and the standard descriptors.
    let descriptors = report.of("exchanged", "descriptors");
    let most = DESCRIPTORS * endpoints + 2 * LINKS + 16;
    assert!(descriptors <= most, "{descriptors} descriptors");
    assert_eq!(report.of("exchanged", "threads"), endpoints + 1);
}

#[test]
fn a_peer_beyond_those_in_memory_costs_two_and_a_half_kilobytes_at_most_and_no_descriptor() {
    costs_little(96);
}

/// Runs on demand: `cargo test --release -p srd-ofi --test it alltoall:: -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes and gigabytes"]
fn a_thousand_endpoints_talk_all_to_all() {
    costs_little(1024);
}
