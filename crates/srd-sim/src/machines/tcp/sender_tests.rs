use super::*;
use crate::machines::tcp::config::Congestion;
use crate::machines::tcp::congestion_control::window::THRESHOLD_INFINITE;
use crate::machines::tcp::segment::{ByteRange, FLAG_DSACK};

const MSS: u64 = 1000;

fn at(us: u64) -> Instant {
    Instant::from_nanos(us * 1000)
}

// Returns a configuration with exact timers, and without an assumption about the round trip.
fn config() -> TcpConfig {
    TcpConfig {
        mtu_bytes: 1052,
        timer_tick: Duration::ZERO,
        rtt_assumed: Duration::ZERO,
        ..TcpConfig::default()
    }
}

struct Rig {
    sender: Sender,
}

impl Rig {
    fn new(config: &TcpConfig, segments: u64) -> Self {
        Self { sender: Sender::new(config, 0, segments * MSS, at(0)) }
    }

    /// Returns the numbers of all segments that may be sent at the time `us`.
    fn sent(&mut self, us: u64) -> Vec<u64> {
        std::iter::from_fn(|| self.sender.poll(at(us))).map(|out| out.segment.seq / MSS).collect()
    }

    fn ack(&mut self, us: u64, ack: u64, sacks: &[(u64, u64)], echo_us: u64, flags: u8) {
        let mut segment = TcpSegment {
            ack: ack * MSS,
            timestamp_echo_ns: echo_us * 1000,
            flags: FLAG_ACK | flags,
            ..TcpSegment::default()
        };
        for &(start, end) in sacks {
            segment.push_sack(ByteRange { start: start * MSS, end: end * MSS });
        }
        self.sender.on_ack(at(us), &segment);
    }

    fn deadline_us(&self) -> u64 {
        self.sender.deadline().expect("a timer").as_nanos() / 1000
    }

    fn fire(&mut self) -> u64 {
        let us = self.deadline_us();
        assert_eq!(self.sender.on_timer(at(us)), Fired::Alive);
        us
    }
}

#[test]
fn initial_window_is_ten_and_slow_start_doubles() {
    let mut rig = Rig::new(&config(), 1000);
    assert_eq!(rig.sent(0), (0..10).collect::<Vec<_>>());
    rig.ack(100, 10, &[], 0, 0);
    assert_eq!(rig.sent(100), (10..30).collect::<Vec<_>>());
}

#[test]
fn tail_is_probed_after_two_round_trips_and_the_floor() {
    let mut rig = Rig::new(&config(), 10);
    rig.sent(0);
    rig.ack(100, 5, &[], 0, 0);
    assert_eq!(rig.deadline_us(), 100 + 200 + 2000);
    rig.fire();
    assert_eq!(rig.sent(2300), [9]);
    // The timeout is 100 us of srtt plus 200 ms of rto_min, counted from the probe.
    assert_eq!(rig.deadline_us(), 2300 + 200_100);
    // The SACK of the probe shows the missing segments. So recovery begins instead of a timeout.
    rig.ack(2400, 5, &[(9, 10)], 0, 0);
    assert_eq!(rig.sender.phase, Phase::Recovery);
    assert_eq!(rig.sent(2400)[0], 5);
    assert_eq!(rig.sender.timeouts(), 0);
}

#[test]
fn answered_probe_cuts_the_window_unless_a_duplicate_is_reported() {
    for (duplicate, threshold) in [(true, THRESHOLD_INFINITE), (false, 14)] {
        // The peer's window is full, so the probe cannot be a new segment.
        let mut rig = Rig::new(&TcpConfig { window_bytes_max: 10 * MSS, ..config() }, 100);
        rig.sent(0);
        let us = rig.fire();
        assert_eq!(rig.sent(us), [9]);
        let (sacks, flags) = if duplicate { (&[(9, 10)][..], FLAG_DSACK) } else { (&[][..], 0) };
        rig.ack(us + 100, 10, sacks, us, flags);
        assert_eq!(rig.sent(us + 100), (10..20).collect::<Vec<_>>());
        rig.ack(us + 200, 20, &[], us + 100, 0);
        assert_eq!(rig.sender.window.threshold, threshold);
        assert_eq!(rig.sender.timeouts(), 0);
    }
}

#[test]
fn one_segment_waits_for_a_delayed_acknowledgement_before_the_probe() {
    let mut rig = Rig::new(&config(), 11);
    rig.sent(0);
    rig.ack(100, 10, &[], 0, 0);
    assert_eq!(rig.sent(100), [10]);
    // The probe's time, 2 * 100 us + 200 ms, is later than the timeout. So the timeout applies.
    assert_eq!(rig.deadline_us(), 100 + 200_100);
}

#[test]
fn timeouts_back_off_and_start_from_one_segment() {
    let mut rig = Rig::new(&TcpConfig { tail_probe: false, ..config() }, 20);
    rig.sent(0);
    rig.ack(100, 1, &[], 0, 0);
    rig.sent(100);
    let mut last = 100;
    for timeout_us in [200_100, 400_200, 800_400] {
        let us = rig.fire();
        assert_eq!(us - last, timeout_us);
        assert_eq!(rig.sent(us), [1]);
        last = us;
    }
    assert_eq!((rig.sender.timeouts(), rig.sender.window_segments()), (3, 1));
    assert_eq!(rig.sender.window.threshold, 7, "0.7 of 11, cut once");
}

#[test]
fn connection_that_hears_nothing_dies() {
    let mut rig = Rig::new(&TcpConfig { tail_probe: false, retries_max: 3, ..config() }, 20);
    rig.sent(0);
    for _ in 0..3 {
        let us = rig.fire();
        rig.sent(us);
    }
    let us = rig.deadline_us();
    assert_eq!(rig.sender.on_timer(at(us)), Fired::Dead);
}

#[test]
fn needless_timeout_is_undone_by_an_original() {
    let mut rig = Rig::new(&TcpConfig { tail_probe: false, ..config() }, 100);
    rig.sent(0);
    rig.ack(100, 10, &[], 0, 0);
    rig.sent(100);
    let window = rig.sender.window_segments();
    let us = rig.fire();
    assert_eq!(rig.sent(us), [10]);
    // The acknowledgements were late: the timestamps show that both acknowledge originals.
    rig.ack(us + 10, 12, &[], 100, 0);
    assert_eq!(rig.sender.phase, Phase::Open);
    assert!(rig.sender.window_segments() >= window);
    assert_eq!(rig.sender.board.lost(), 0);
}

#[test]
fn three_sacks_start_recovery_at_once() {
    for (congestion, threshold) in [(Congestion::Cubic, 14), (Congestion::Reno, 10)] {
        let mut rig = Rig::new(&TcpConfig { congestion, ..config() }, 1000);
        rig.sent(0);
        rig.ack(100, 10, &[], 0, 0);
        assert_eq!(rig.sent(100).len(), 20);
        rig.ack(200, 10, &[(11, 12)], 100, 0);
        rig.ack(201, 10, &[(11, 13)], 100, 0);
        assert_eq!(rig.sender.phase, Phase::Disorder);
        rig.ack(202, 10, &[(11, 14)], 100, 0);
        assert_eq!(rig.sender.phase, Phase::Recovery);
        assert_eq!(rig.sent(202)[0], 10);
        assert_eq!(rig.sender.window.threshold, threshold, "{congestion:?}");
        // The retransmission fills the gap after all other segments have arrived.
        rig.ack(230, 10, &[(11, 30)], 100, 0);
        rig.sent(230);
        rig.ack(302, 30, &[], 202, 0);
        assert_eq!(rig.sender.phase, Phase::Open);
        assert_eq!(rig.sender.window_segments(), threshold);
        assert_eq!(rig.sender.timeouts(), 0);
    }
}

#[test]
fn dctcp_cuts_once_per_window_by_alpha() {
    let mut rig = Rig::new(&TcpConfig { mtu_bytes: 1052, ..TcpConfig::dctcp() }, 1000);
    rig.sent(0);
    rig.ack(100, 2, &[], 0, crate::machines::tcp::segment::FLAG_ECE);
    assert_eq!(rig.sender.window.threshold, 5, "alpha is one: half of ten");
    rig.ack(110, 4, &[], 0, crate::machines::tcp::segment::FLAG_ECE);
    assert_eq!(rig.sender.window.threshold, 5);
    assert_eq!(rig.sender.phase, Phase::Reduced);
}

#[test]
fn reused_connection_keeps_its_window_unless_it_was_idle_for_a_timeout() {
    for (idle_us, window) in [(100_000, 20), (300_000, 10)] {
        let mut rig = Rig::new(&config(), 10);
        rig.sent(0);
        rig.ack(100, 10, &[], 0, 0);
        assert!(rig.sender.is_complete());
        assert_eq!(rig.sender.window_segments(), 20);
        rig.sender.reopen(1, 50 * MSS, at(100 + idle_us));
        assert_eq!(rig.sent(100 + idle_us).len(), window, "{idle_us} us");
    }
}
