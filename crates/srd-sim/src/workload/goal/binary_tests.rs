//! Tests of the binary form of GOAL: its result equals that of the text, and invalid files are
//! refused.

use super::super::write::Collective;
use super::*;
use crate::workload::schedule::Schedule;

const HOSTS: [u32; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
const TEXT: &str = "num_ranks 3\n\
    rank 0 {\na: calc 100 cpu 2\nb: send 1024b to 1 tag 7\nc: calc 5\nb requires a\n\
    c irequires b\n}\nrank 1 {\na: recv 2048b from 0 tag 7\nb: send 0b to 2\nb requires a }\n\
    rank 2 { recv 0b from 1\n}";

/// Returns a schedule, which was parsed from text, in the binary form that `txt2bin` would write.
fn write(workload: &Workload, ranks: u32, tag: impl Fn(u32) -> u32) -> Vec<u8> {
    let schedule = workload.schedule.as_ref().unwrap();
    let mut table = Vec::new();
    let mut data = Vec::new();
    let data_at = 6 + 16 * u64::from(ranks);
    for rank in 0..ranks {
        let begin = data_at + data.len() as u64;
        write_rank(&mut data, workload, schedule, rank, &tag);
        table.extend(begin.to_le_bytes());
        table.extend((data_at + data.len() as u64).to_le_bytes());
    }
    [&MAGIC[..], &ranks.to_le_bytes(), &[0, 0], &table, &data].concat()
}

fn write_rank(
    data: &mut Vec<u8>,
    workload: &Workload,
    schedule: &Schedule,
    rank: u32,
    tag: &impl Fn(u32) -> u32,
) {
    let own: Vec<u32> = (0..u32::try_from(schedule.operations.len()).unwrap())
        .filter(|n| schedule.operations[*n as usize].rank == rank)
        .collect();
    let place =
        |operation: u32| u32::try_from(own.iter().position(|n| *n == operation).unwrap()).unwrap();
    let waits_of = |waits: &[Wait], operation: u32| -> Vec<u32> {
        let after = waits.iter().filter(|wait| wait.earlier == operation);
        after.map(|wait| place(wait.later)).collect()
    };
    let count = |operation: u32| {
        let all = schedule.after_end.iter().chain(&schedule.after_begin);
        u32::try_from(all.filter(|wait| wait.later == operation).count()).unwrap()
    };
    let roots: Vec<u32> = own.iter().filter(|n| count(**n) == 0).map(|n| place(*n)).collect();
    let number = |n: usize| u32::try_from(n).unwrap().to_le_bytes();
    data.extend(number(own.len()));
    data.extend(number(roots.len()));
    data.extend(roots.iter().flat_map(|root| root.to_le_bytes()));
    let mut appendix: Vec<u32> = Vec::new();
    for &operation in &own {
        let flow = |flow: u32| &workload.flows[flow as usize];
        let (kind, peer, size, tag, cpu) = match schedule.operations[operation as usize].what {
            Action::Send { flow: n } => (1_u8, flow(n).dst.0, flow(n).bytes, tag(n), 0),
            Action::Receive { flow: n } => (2, flow(n).src.0, flow(n).bytes, tag(n), 0),
            Action::Calculate { ps, cpu } => (3, 0, ps / 1000, 0, u8::try_from(cpu).unwrap()),
        };
        data.extend(count(operation).to_le_bytes());
        data.push(kind);
        data.extend(peer.to_le_bytes());
        data.extend(size.to_le_bytes());
        data.extend(tag.to_le_bytes());
        data.extend([cpu, 0]);
        for waits in [&schedule.after_end, &schedule.after_begin] {
            let after = waits_of(waits, operation);
            data.extend(number(after.len()));
            data.extend(number(appendix.len()));
            appendix.extend(after);
        }
    }
    data.extend(appendix.iter().flat_map(|entry| entry.to_le_bytes()));
}

/// A file that the program `txt2bin` of ATLAHS wrote for the text `MADE_OF`.
const MADE: &[u8] = include_bytes!("../../../../../fuzz/corpus/traces/txt2bin.goal.bin");
const MADE_OF: &str = "num_ranks 3\n\
    rank 0 {\na: calc 100 cpu 2\nb: send 1024b to 1 tag 7\nc: calc 5\nb requires a\n\
    c irequires b\n}\nrank 1 {\na: recv 2048b from 0 tag 7\nb: send 8b to 2\nb requires a\n}\n\
    rank 2 {\nrecv 8b from 1\n}\n";

#[test]
fn what_txt2bin_writes_is_read_as_its_text_is() {
    let wanted = super::super::parse(MADE_OF, &HOSTS).unwrap();
    assert_eq!(sorted(parse(MADE, &HOSTS).unwrap()), sorted(wanted));
    assert_eq!(super::super::read(MADE, &HOSTS), Ok(parse(MADE, &HOSTS).unwrap()));
    let text = super::super::read(MADE_OF.as_bytes(), &HOSTS).unwrap();
    assert_eq!(text.flows.len(), 2);
    let neither = super::super::read(&[0xff, 0xfe], &HOSTS).unwrap_err().to_string();
    assert!(neither.contains("neither text (UTF-8) nor"), "{neither}");
}

fn sorted(workload: Workload) -> Workload {
    let mut workload = workload;
    let schedule = workload.schedule.as_mut().unwrap();
    schedule.after_end.sort_by_key(|wait| (wait.later, wait.earlier));
    schedule.after_begin.sort_by_key(|wait| (wait.later, wait.earlier));
    workload
}

fn sample() -> Vec<u8> {
    write(&super::super::parse(TEXT, &HOSTS).unwrap(), 3, |flow| flow)
}

fn refused(bytes: &[u8]) -> Fault {
    parse(bytes, &HOSTS).unwrap_err()
}

/// Returns the sample file with some bytes replaced, beginning at offset `at`.
fn changed(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut sample = sample();
    sample[at..at + bytes.len()].copy_from_slice(bytes);
    sample
}

#[test]
fn the_binary_form_is_read_as_its_text_is() {
    let mut schedules = vec![(TEXT.to_owned(), 3)];
    for (collective, _) in Collective::ALL {
        schedules.push((collective.write(8, 4096).unwrap(), 8));
    }
    for (text, ranks) in schedules {
        let wanted = super::super::parse(&text, &HOSTS).unwrap();
        // Every message has a different tag, so that its two ends match regardless of their order.
        let bytes = write(&wanted, ranks, |flow| flow);
        assert!(begins(&bytes) && !begins(text.as_bytes()));
        assert_eq!(sorted(parse(&bytes, &HOSTS).unwrap()), sorted(wanted));
    }
}

#[test]
fn what_is_wrong_is_named_with_its_byte() {
    let sample = sample();
    let rank = |n: usize| ORIGIN + usize::from(sample[TABLE_AT + n * 16]);
    let zero = rank(0);
    // The first operation of the rank follows the head and one root.
    let (first, second) = (zero + 12, zero + 12 + 39);
    let any = u32::MAX.to_le_bytes();
    for (bytes, offset, said) in [
        (changed(0, &SPOILT), 0, "make it again with txt2bin"),
        (changed(8, &9_u32.to_le_bytes()), 8, "the network has 8 hosts"),
        (changed(8, &any), 8, "4294967295 ranks, whose table would end at byte 68719476734 of"),
        (changed(TABLE_AT, &u64::MAX.to_le_bytes()), TABLE_AT, "behind the end of the file"),
        (changed(TABLE_AT + 16, &[20]), TABLE_AT + 16, "rank 1 lies from 28 to"),
        (changed(zero, &any), zero, "4294967295 operations and 1 roots, which do not fit"),
        (changed(zero + 4, &any), zero, "4294967295 roots, which do not fit"),
        (changed(zero + 8, &[1]), zero + 8, "operation 1 is no root"),
        (changed(first, &[1]), zero + 4, "1 roots, but 0 operations wait for nothing"),
        (changed(first + 4, &[9]), first + 4, "9 is no kind of operation"),
        (changed(first + 16, &[9]), first + 9, "nanoseconds are above 86400000000000"),
        (changed(second + 16, &[9]), second + 9, "bytes are above 1099511627776"),
        (changed(second + 5, &any), second + 5, "-1 stands for any rank"),
        (changed(second + 17, &any), second + 17, "-1 stands for any tag"),
        (changed(second + 5, &[3]), second + 5, "rank 3, but there are 3"),
        (changed(second + 17, &[9]), second, "no receive fits this send from rank 0 to rank 1"),
        (changed(second + 9, &[1, 9]), rank(1) + 12, "2305 bytes of the send at byte"),
        (changed(second, &[2]), second, "waits for 1 more than any that name it"),
        (changed(first + 23, &[3]), first + 23, "3 waits from entry 0 of an appendix that has 2"),
        (changed(first + 27, &any), first + 23, "1 waits from entry 4294967295"),
        (changed(first + 39 * 3, &[2]), second + 39, "more operations name this one"),
        (changed(first + 39 * 3, &[7]), first + 39 * 3, "operation 7, but the rank has 3"),
    ] {
        let fault = refused(&bytes);
        assert!(fault.what.contains(said), "{said}: {fault}");
        assert_eq!(fault.offset, offset, "{fault}");
    }
    let nothing = [&MAGIC[..], &[0; 6]].concat();
    assert!(refused(&nothing).what.contains("no rank has an operation"));
}

#[test]
fn operations_that_wait_for_each_other_are_named() {
    // Rank 0 sends after it has received, and rank 1 as well: neither begins.
    let text = "num_ranks 2\nrank 0 {\na: recv 1b from 1\nb: send 1b to 1\n}\n\
                rank 1 {\na: recv 1b from 0\nb: send 1b to 0\n}";
    let mut workload = super::super::parse(text, &HOSTS).unwrap();
    let schedule = workload.schedule.as_mut().unwrap();
    schedule.after_end = vec![Wait { later: 1, earlier: 0 }, Wait { later: 3, earlier: 2 }];
    let fault = refused(&write(&workload, 2, |flow| flow));
    assert!(
        fault.to_string().starts_with("byte ") && fault.what.contains("in a circle"),
        "{fault}"
    );
}

#[test]
fn a_file_that_is_cut_anywhere_is_refused() {
    let sample = sample();
    for length in MAGIC.len()..sample.len() {
        let fault = refused(&sample[..length]);
        assert!(fault.offset <= length, "{length}: {fault}");
    }
}

#[test]
fn no_flipped_bit_makes_the_reader_panic() {
    let sample = sample();
    let (mut read, mut refusals) = (0, 0);
    for bit in 64..sample.len() * 8 {
        let mut bytes = sample.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        match parse(&bytes, &HOSTS) {
            Ok(_) => read += 1,
            Err(fault) => {
                assert!(fault.offset < bytes.len(), "{fault}");
                refusals += 1;
            }
        }
    }
    // Flips in sizes, processors and links may be accepted; flips in counts, kinds and positions
    // may not.
    assert!(refusals > read, "{refusals} {read}");
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(
        ranks in 0..4_u32,
        rest in proptest::collection::vec(proptest::num::u8::ANY, 0..200),
    ) {
        let bytes = [&MAGIC[..], &ranks.to_le_bytes(), &rest].concat();
        let _ = parse(&bytes, &HOSTS);
    }

    #[test]
    fn no_changes_of_a_file_make_the_reader_panic(
        changes in proptest::collection::vec((8..400_usize, proptest::num::u8::ANY), 1..8),
    ) {
        let mut bytes = sample();
        for (at, value) in changes {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        let _ = parse(&bytes, &HOSTS);
    }
}
