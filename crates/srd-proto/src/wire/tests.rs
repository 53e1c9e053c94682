use alloc::vec::Vec;

use proptest::prelude::*;

use super::ack::{AckHead, AckView, Tuple, Verdict};
use super::data::Data;
use super::greeting::Greeting;
use super::handshake::{Hello, Reset};
use super::probe::Probe;
use super::*;

#[test]
fn rtt_code_never_exceeds_the_time_and_stays_within_an_eighth() {
    for ns in [200, 1_000, 9_350, 14_023, 65_000, 700_000, 20_000_000, 3_000_000_000] {
        let back = decode_rtt(encode_rtt(ns));
        assert!(back <= ns && back * 9 >= ns * 8, "{ns} came back as {back}");
    }
    assert_eq!(encode_rtt(0), encode_rtt(144));
    assert_ne!(encode_rtt(0), RTT_UNKNOWN, "what is measured is not unknown");
    assert!(decode_rtt(encode_rtt(u64::MAX)) > 100_000_000_000);
}

#[test]
fn expand_finds_the_nearest_number() {
    assert_eq!(expand(5, 3), 5);
    assert_eq!(expand(0xffff_fff0, 3), 0xffff_fff0);
    assert_eq!(expand(2, 0xffff_fffe), 0x1_0000_0002);
    assert_eq!(expand(0xffff_fffe, 0x1_0000_0002), 0xffff_fffe);
    assert_eq!(expand(7, 0x5_0000_0007), 0x5_0000_0007);
}

#[test]
fn data_header_is_thirty_six_bytes() {
    let mut out = Vec::new();
    header(Kind::Data).encode(&mut out);
    data().encode(&mut out);
    assert_eq!(out.len(), 36);
    assert_eq!(out[..12], [0x21, 2, 0, 9, 0, 0, 0, 7, 0xde, 0xad, 0xbe, 0xef]);
}

fn header(kind: Kind) -> Header {
    Header {
        kind,
        flags: FLAG_ACK_NOW,
        key_phase: 0,
        rtt_code: 9,
        dst_context: 7,
        number: 0xdead_beef,
    }
}

fn data() -> Data {
    Data {
        first_delta: 3,
        floor_delta: 9,
        sent_at: 1,
        queued_bytes: 2,
        dst_qpn: 3,
        src_qpn: 4,
        imm: 5,
    }
}

#[test]
fn every_body_survives_a_round_trip_and_no_truncation_decodes() {
    let mut out = Vec::new();
    data().encode(&mut out);
    assert_eq!(Data::decode(&out), Ok((data(), &[][..])));
    assert!((0..out.len()).all(|n| Data::decode(&out[..n]).is_err()));

    let probe = Probe { sent_at: 1, queued_bytes: 2, floor: 3 };
    out.clear();
    probe.encode(&mut out, 100);
    assert_eq!(out.len(), 112);
    assert_eq!(Probe::decode(&out), Ok(probe));

    let greeting = Greeting { context: 1, epoch: 2, port: 3, features: 4 };
    out.clear();
    greeting.encode(&mut out);
    assert_eq!(Greeting::decode(&out), Ok((greeting, &[][..])));
    assert!((0..out.len()).all(|n| Greeting::decode(&out[..n]).is_err()));

    let hello =
        Hello { mac: [2; 16], context: 8, cookie: [1; 16], noise: &[1, 2, 3, 4, 5, 6, 7, 8] };
    out.clear();
    hello.encode(&mut out);
    assert_eq!(Hello::decode(&out), Ok(hello));

    let reset = Reset { context: 8, number: 9 };
    out.clear();
    reset.encode(&mut out);
    assert_eq!(Reset::decode(&out), Ok(reset));
}

#[test]
fn ack_round_trip_and_every_truncation() {
    let head = AckHead {
        cumulative: 100,
        received_bytes: 5000,
        credit_limit_bytes: 9000,
        credit_limited: true,
        senders: 4,
        echo: Some((77, 1234)),
    };
    let tuples =
        [Tuple { psn: 101, delay: 5, ce: false }, Tuple { psn: 105, delay: u32::MAX, ce: true }];
    let verdicts = [Verdict { psn: 103, status: 10 }];
    let mut out = Vec::new();
    ack::encode(&mut out, &head, &[u64::MAX, 1], &tuples, &verdicts);
    let view = AckView::decode(&out).unwrap();
    assert_eq!(view.head, head);
    assert!(view.sack().eq([u64::MAX, 1]));
    assert!(view.tuples().eq(tuples));
    assert!(view.verdicts().eq(verdicts));
    assert!((0..out.len()).all(|n| AckView::decode(&out[..n]).is_err()));
}

proptest! {
    #[test]
    fn decoding_any_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Header::decode(&bytes);
        let _ = Data::decode(&bytes);
        let _ = AckView::decode(&bytes).map(|a| (a.sack().count(), a.tuples().count()));
        let _ = Probe::decode(&bytes);
        let _ = Greeting::decode(&bytes);
        let _ = Hello::decode(&bytes);
        let _ = Reset::decode(&bytes);
    }

    #[test]
    fn a_decoded_header_encodes_to_the_same_bytes(
        bytes in proptest::collection::vec(any::<u8>(), 12),
    ) {
        if let Ok((header, _)) = Header::decode(&bytes) {
            let mut out = Vec::new();
            header.encode(&mut out);
            prop_assert_eq!(out, bytes);
        }
    }

    #[test]
    fn expand_recovers_any_number_within_half_the_space(
        number in 0u64..1 << 40,
        distance in 0u64..1 << 30,
    ) {
        #[allow(clippy::cast_possible_truncation)]
        let low = number as u32;
        prop_assert_eq!(expand(low, number + distance), number);
        prop_assert_eq!(expand(low, number.saturating_sub(distance)), number);
    }
}

#[test]
fn only_data_carries_an_acknowledgement() {
    for kind in [Kind::Ack, Kind::Probe, Kind::Hello, Kind::Reset, Kind::Unreliable] {
        let mut out = Vec::new();
        Header { flags: FLAG_ACK, ..header(kind) }.encode(&mut out);
        assert_eq!(Header::decode(&out), Err(WireError::Malformed), "{kind:?}");
    }
    let mut out = Vec::new();
    Header { flags: FLAG_ACK, ..header(Kind::Data) }.encode(&mut out);
    assert!(Header::decode(&out).is_ok());
}

#[test]
fn an_acknowledgement_ends_where_its_counts_say() {
    let (sack, tuples) = ([5, 6], [Tuple { psn: 9, delay: 8, ce: true }]);
    let mut out = Vec::new();
    super::ack::encode(
        &mut out,
        &AckHead { cumulative: 7, ..AckHead::default() },
        &sack,
        &tuples,
        &[],
    );
    let bytes = out.len();
    out.extend_from_slice(b"payload");
    let (ack, rest) = AckView::decode_first(&out).unwrap();
    assert_eq!((ack.head.cumulative, rest), (7, &b"payload"[..]));
    assert_eq!(AckView::decode(&out).unwrap_err(), WireError::Malformed, "bytes are left");
    for end in 0..bytes {
        assert!(AckView::decode_first(&out[..end]).is_err(), "{end} bytes");
    }
}
