//! Tests of the law by which the window changes.

use super::*;

const R: Duration = Duration::from_micros(10);

fn window(link_rate_bps: u64) -> Window {
    let config = Config { link_rate_bps, rtt_initial: R, ..Config::default() };
    Window::new(&config, Instant::ZERO)
}

/// An acknowledgement of one packet, for a sender that uses its window.
fn ack(window: &Window, now: Instant, median: Duration) -> AckSignal {
    AckSignal {
        now,
        acked_bytes: 8900,
        lost_bytes: 0,
        marked: false,
        median,
        rtt_base: R,
        in_flight_bytes: window.bytes(),
        credit_limited: false,
    }
}

#[test]
fn regression_a_trickle_does_not_teach_a_rate() {
    let mut w = window(0);
    let first = w.bytes();
    for second in 1..30 {
        let s = AckSignal {
            acked_bytes: 50,
            in_flight_bytes: 0,
            ..ack(&w, after(Duration::from_secs(second)), Duration::ZERO)
        };
        w.on_ack(&s);
    }
    assert!(w.bytes() < first * 11 / 10, "the trickle says nothing about the network");
    let target = w.target();
    assert!(target < Duration::from_millis(1), "{target:?}");
    for i in 0..200u64 {
        let at = after(Duration::from_secs(30) + Duration::from_micros(10 * i));
        let s = AckSignal { acked_bytes: w.bytes(), ..ack(&w, at, Duration::ZERO) };
        w.on_ack(&s);
    }
    assert!(w.bytes() > 2 * first, "{} from {first}", w.bytes());
}

/// Simulates a path whose round trip under load is six times that of the idle path. The rate
/// that a window has reached must not prevent it from growing further.
#[test]
fn regression_a_measured_rate_does_not_hold_the_window_down() {
    let config = Config { packet_bytes_max: 1472, ..Config::sockets() };
    let mut w = Window::new(&config, Instant::ZERO);
    let (base, loaded) = (Duration::from_micros(30), Duration::from_micros(700));
    let mut now = Instant::ZERO;
    for _ in 0..3000 {
        now += loaded.over(10);
        let s = AckSignal {
            now,
            acked_bytes: w.bytes() / 10,
            rtt_base: base,
            ..ack(&w, now, Duration::from_micros(20))
        };
        w.on_ack(&s);
    }
    let packets = w.bytes() / 1472;
    assert!(packets > 200, "{packets} packets");
}

fn after(span: Duration) -> Instant {
    Instant::ZERO + span
}

#[test]
fn it_grows_while_queues_are_short_and_shrinks_when_they_are_long() {
    let mut w = window(100_000_000_000);
    let before = w.bytes();
    w.on_ack(&ack(&w, after(R), Duration::ZERO));
    assert!(w.bytes() > before);
    let before = w.bytes();
    w.on_ack(&ack(&w, after(R.times(4)), R.times(2)));
    assert!(w.bytes() < before);
}

#[test]
fn a_decrease_waits_until_the_last_one_has_had_its_effect() {
    let mut w = window(100_000_000_000);
    let long = R.times(3);
    w.on_ack(&ack(&w, after(R.times(10)), long));
    let once = w.bytes();
    w.on_ack(&ack(&w, after(R.times(10) + R + long.over(2)), long));
    assert!(w.bytes() >= once, "{} after {once}", w.bytes());
    w.on_ack(&ack(&w, after(R.times(10) + R + long), long));
    assert!(w.bytes() < once);
}

#[test]
fn a_mark_never_makes_it_grow() {
    let mut w = window(400_000_000_000);
    let before = w.bytes();
    // Between half of the target and the target, where only the mark counts.
    let signal = AckSignal { marked: true, ..ack(&w, after(R.times(10)), R.times(3).over(4)) };
    w.on_ack(&signal);
    assert!(w.bytes() < before, "{} after {before}", w.bytes());
}

#[test]
fn the_target_is_a_few_packets_where_they_take_long() {
    assert_eq!(window(400_000_000_000).target(), R);
    let packet = Duration::from_nanos(8900 * 8);
    assert_eq!(window(1_000_000_000).target(), packet.times(TARGET_PACKETS));
}

/// Simulates a slow link with a queue of eleven packets. The target allows sixteen packets, and
/// four times as many under a credit limit.
#[test]
fn regression_a_target_that_no_queue_holds_comes_down_to_what_it_holds() {
    for credit_limited in [false, true] {
        let mut w = window(250_000_000);
        let packet = Duration::from_nanos(8900 * 8 * 4);
        let mut now = Instant::ZERO;
        let mut after_a_loss = |w: &mut Window, lost_bytes, packets: u64| {
            now += R + packet.times(16);
            let median = packet.times(packets);
            let before = w.bytes();
            w.on_ack(&AckSignal { lost_bytes, credit_limited, ..ack(w, now, median) });
            w.bytes().cmp(&before)
        };
        for _ in 0..20 {
            assert!(after_a_loss(&mut w, 0, 10).is_gt(), "ten of sixteen packets wait");
        }
        assert!(after_a_loss(&mut w, 8900, 11).is_gt(), "one packet is lost anywhere");
        assert!(after_a_loss(&mut w, 8900, 11).is_lt(), "the queue is full at eleven");
        assert!(after_a_loss(&mut w, 0, 8).is_lt());
        assert!(after_a_loss(&mut w, 0, 5).is_gt(), "half a queue is to be used");
        for _ in 0..40 {
            after_a_loss(&mut w, 0, 5);
        }
        assert!(after_a_loss(&mut w, 0, 10).is_gt(), "it may have become longer");
    }
}

#[test]
fn regression_a_grant_can_be_used_before_a_long_queue() {
    let packet = Duration::from_nanos(8900 * 8 * 4);
    let shrunk = |credit_limited| {
        let mut w = window(250_000_000);
        let (mut now, long) = (Instant::ZERO, packet.times(100));
        for _ in 0..50 {
            now += R + long;
            w.on_ack(&AckSignal { credit_limited, ..ack(&w, now, long) });
        }
        w.bytes() / 8900
    };
    assert_eq!([true, false].map(shrunk), [4, 1]);
}

#[test]
fn regression_delays_of_a_shared_receiver_do_not_collapse_the_window_when_its_limit_is_lifted() {
    let collapsed = |limited_until| {
        let mut w = window(100_000_000_000);
        let before = w.bytes();
        let (mut now, long) = (Instant::ZERO, R.times(9));
        for _ in 0..3 {
            now += R + long;
            let credit_limited = now <= limited_until;
            w.on_ack(&AckSignal { credit_limited, in_flight_bytes: 0, ..ack(&w, now, long) });
        }
        w.bytes() < before / 4
    };
    assert!(!collapsed(after((R + R.times(9)).times(2))), "lifted before the last one");
    assert!(collapsed(Instant::ZERO), "as one without a limit");
}

#[test]
fn a_loss_before_short_queues_says_nothing_about_their_length() {
    let [mut lossy, mut clean] = [(); 2].map(|()| window(250_000_000));
    let packet = Duration::from_nanos(8900 * 8 * 4);
    for i in 0..1000 {
        let at = after(packet.times(i));
        clean.on_ack(&ack(&clean, at, packet));
        let lost_bytes = if i % 10 == 0 { 8900 } else { 0 };
        lossy.on_ack(&AckSignal { lost_bytes, ..ack(&lossy, at, packet) });
    }
    assert_eq!(lossy.bytes(), clean.bytes());
    // If a share of the round trip determines the target, the queues of the fabric can hold it.
    let mut w = window(400_000_000_000);
    let late = R.times(3).over(4);
    let before = w.bytes();
    let signal = AckSignal {
        acked_bytes: before / 2,
        lost_bytes: 17_800,
        ..ack(&w, after(R.times(10)), late)
    };
    w.on_ack(&signal);
    assert!(w.bytes() > before);
}

#[test]
fn a_timeout_leaves_one_packet_and_the_first_answer_half() {
    let mut w = window(100_000_000_000);
    let before = w.bytes();
    w.on_timeout();
    assert_eq!(w.bytes(), 8900);
    w.on_ack(&ack(&w, after(R.times(50)), Duration::ZERO));
    assert!(w.bytes() >= before / 2 && w.bytes() < before);
}

/// The delay grows but stays below the target, and half of the sent bytes are acknowledged.
#[test]
fn less_acknowledged_than_sent_shrinks_the_window_and_limits_the_rate_with_the_rules_about_rates() {
    let after_congestion = |rate_rules| {
        let config = Config { rate_rules, rtt_initial: R, ..Config::default() };
        let mut w = Window::new(&config, Instant::ZERO);
        let mut before = 0;
        // In each period as many bytes are sent as were acknowledged in the period before.
        for (n, acked_bytes) in [(1, 200_000), (2, 200_000), (3, 100_000)] {
            before = w.bytes();
            let in_flight_bytes = 400_000 - acked_bytes;
            let median = if n == 3 { R.over(4) } else { Duration::ZERO };
            let signal = AckSignal {
                acked_bytes,
                in_flight_bytes,
                ..ack(&w, after(R.times(4 * n)), median)
            };
            w.on_ack(&signal);
        }
        (w.bytes() as f64 / before as f64, w.pacing_rate_bps(R))
    };
    let (share, rate_bps) = after_congestion(false);
    assert!(share > 1.0 && rate_bps > 100_000_000_000, "{share} {rate_bps}");
    let (share, rate_bps) = after_congestion(true);
    assert!((0.5..0.6).contains(&share), "{share}");
    assert_eq!(rate_bps, 20_000_000_000, "100,000 bytes in 40 us");
}
