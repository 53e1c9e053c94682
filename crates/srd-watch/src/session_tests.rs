use super::*;
use crate::analysis::watch::Settings;
use crate::{Model, Watch};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

fn session(kept_bytes: usize) -> Session {
    let tolerance = crate::analysis::model::Duration::from_millis(1);
    let model = Model::of_rate(100_000_000, None).with_tolerance(tolerance);
    let watch = Watch::new("if", Settings::default(), &model, Instant::ZERO);
    let names = ["bw_out_allowance_exceeded".to_owned()];
    Session::new(watch, Allowances::among(&names), kept_bytes)
}

/// Adds the packets of 10 ms at 240 Mb/s, then advances time by 20 ms.
fn burst(session: &mut Session, from_ns: u64) {
    let mut bytes = vec![0; 256];
    bytes[0] = 0x45;
    (bytes[2], bytes[3], bytes[9]) = (3, 0xe8, 17);
    for n in 0..300 {
        session.see(&Raw {
            time: Instant::from_nanos(from_ns + n * MS / 30),
            way: PacketDirection::Out,
            ethertype: Some(0x0800),
            length: 1000,
            segment_bytes: None,
            mtu_bytes: None,
            bytes: &bytes,
        });
    }
    session.advance(Instant::from_nanos(from_ns + 30 * MS));
}

fn sample(session: &mut Session, now_ns: u64) {
    session.allowances.as_mut().unwrap().sample(now_ns, &[0]);
}

fn reported(session: &mut Session) -> Vec<(u64, usize)> {
    let all = std::iter::from_fn(|| session.next_report(false));
    let ended = all.filter_map(|report| match report {
        Report::Ended(burst, kept) => Some((burst.start_ns / S, kept.unwrap().count().0)),
        Report::Began(_) => None,
    });
    ended.collect()
}

#[test]
fn regression_packets_of_bursts_that_wait_for_a_sample_are_bounded() {
    // The memory holds the packets of two bursts. The driver's counters are never sampled.
    let mut session = session(2 * 300 * (256 + 64));
    let mut all = 0;
    for n in 1..=40 {
        burst(&mut session, n * S);
        all += reported(&mut session).len();
        assert!(session.waiting_bytes <= 3 * 300 * 320, "{}", session.waiting_bytes);
    }
    assert_eq!((all, session.waiting.len()), (38, 2));
    // If no packets are kept, the number of waiting bursts reaches its limit.
    let mut session = super::Session { keeper: None, ..session };
    for n in 41..200 {
        burst(&mut session, n * S);
        while session.next_report(false).is_some() {}
        assert!(session.waiting.len() <= WAITING_MAX);
    }
    assert_eq!(session.waiting.len(), WAITING_MAX);
}

#[test]
fn regression_a_burst_does_not_wait_until_a_clock_that_was_set_back_is_where_it_was() {
    let mut session = session(1 << 20);
    sample(&mut session, 5_000 * S);
    burst(&mut session, 5_001 * S);
    assert!(reported(&mut session).is_empty());
    // The first burst has the packets from before the clock was set back, and the next burst has
    // the later packets.
    burst(&mut session, 1_001 * S);
    sample(&mut session, 1_002 * S);
    assert!(reported(&mut session).is_empty(), "the first sample may be of before");
    sample(&mut session, 1_003 * S);
    let found = reported(&mut session);
    assert_eq!(found.iter().map(|(start_s, _)| *start_s).collect::<Vec<_>>(), [5_001, 1_001]);
    assert!(found.iter().all(|(_, packets)| (280..=300).contains(packets)), "{found:?}");
}
