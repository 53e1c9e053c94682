use std::collections::BTreeSet;
use std::string::{String, ToString};

use super::*;

type Set = fn(&mut Config, u64);

fn nanos(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}

/// Each numeric parameter: its name, the largest value of its type, and its setter. Values beyond
/// the type are not tested.
#[rustfmt::skip] // a table
#[allow(clippy::cast_possible_truncation)] // a value that does not fit is not tried
const KNOBS: [(&str, u64, Set); 39] = [
    ("local_port", u16::MAX as u64, |c, v| c.local_port = v as u16),
    ("local_addresses", u8::MAX as u64, |c, v| c.local_addresses = v as u8),
    ("packet_bytes_max", u16::MAX as u64, |c, v| c.packet_bytes_max = v as u16),
    ("wire_overhead_bytes", u16::MAX as u64, |c, v| c.wire_overhead_bytes = v as u16),
    ("own_packet_bytes_max", u16::MAX as u64, |c, v| c.own_packet_bytes_max = v as u16),
    ("link_rate_bps", u64::MAX, |c, v| c.link_rate_bps = v),
    ("rtt_initial", u64::MAX, |c, v| c.rtt_initial = nanos(v)),
    ("paths", u16::MAX as u64, |c, v| c.paths = v as u16),
    ("spray_burst_packets", u8::MAX as u64, |c, v| c.spray_burst_packets = v as u8),
    ("delay_target_percent", u32::MAX as u64, |c, v| c.delay_target_percent = v as u32),
    ("delay_target_min", u64::MAX, |c, v| c.delay_target_min = nanos(v)),
    ("window_initial_bytes", u64::MAX, |c, v| c.window_initial_bytes = v),
    ("window_max_percent", u32::MAX as u64, |c, v| c.window_max_percent = v as u32),
    ("credit_percent", u32::MAX as u64, |c, v| c.credit_percent = v as u32),
    ("unsolicited_percent", u32::MAX as u64, |c, v| c.unsolicited_percent = v as u32),
    ("ack_packets", u16::MAX as u64, |c, v| c.ack_packets = v as u16),
    ("ack_bytes", u32::MAX as u64, |c, v| c.ack_bytes = v as u32),
    ("ack_delay", u64::MAX, |c, v| c.ack_delay = nanos(v)),
    ("ack_delay_interactive", u64::MAX, |c, v| c.ack_delay_interactive = nanos(v)),
    ("interactive_bytes_max", u16::MAX as u64, |c, v| c.interactive_bytes_max = v as u16),
    ("run_first_bytes", u16::MAX as u64, |c, v| c.run_first_bytes = v as u16),
    ("ack_tuples_max", u8::MAX as u64, |c, v| c.ack_tuples_max = v as u8),
    ("rto_min", u64::MAX, |c, v| c.rto_min = nanos(v)),
    ("rto_max", u64::MAX, |c, v| c.rto_max = nanos(v)),
    ("peer_timeout", u64::MAX, |c, v| c.peer_timeout = nanos(v)),
    ("answer_timeout", u64::MAX, |c, v| c.answer_timeout = nanos(v)),
    ("keepalive", u64::MAX, |c, v| c.keepalive = nanos(v)),
    ("idle_reclaim", u64::MAX, |c, v| c.idle_reclaim = nanos(v)),
    ("idle_hibernate", u64::MAX, |c, v| c.idle_hibernate = nanos(v)),
    ("rnr_retries", u8::MAX as u64, |c, v| c.rnr_retries = v as u8),
    ("peers_max", u32::MAX as u64, |c, v| c.peers_max = v as u32),
    ("flows_max", u32::MAX as u64, |c, v| c.flows_max = v as u32),
    ("send_queue_datagrams_max", u32::MAX as u64, |c, v| c.send_queue_datagrams_max = v as u32),
    ("unreliable_queue_datagrams_max", u32::MAX as u64,
     |c, v| c.unreliable_queue_datagrams_max = v as u32),
    ("window_packets_max", u16::MAX as u64, |c, v| c.window_packets_max = v as u16),
    ("events_max", u32::MAX as u64, |c, v| c.events_max = v as u32),
    ("handshakes_per_second_max", u32::MAX as u64, |c, v| c.handshakes_per_second_max = v as u32),
    ("key_packets_max", u64::MAX, |c, v| c.key_packets_max = v),
    ("key_lifetime", u64::MAX, |c, v| c.key_lifetime = nanos(v)),
];

/// A configuration in which only the parameter under test can be out of range.
fn roomy() -> Config {
    Config {
        rto_max: nanos(60 * S),
        idle_reclaim: Duration::MAX,
        answer_timeout: nanos(MS),
        ..Config::default()
    }
}

#[test]
fn every_number_is_accepted_at_its_bounds_and_refused_beyond() {
    let table = roomy().bounds();
    let named = |names: &mut dyn Iterator<Item = &'static str>| names.collect::<BTreeSet<_>>();
    assert_eq!(named(&mut table.iter().map(|b| b.0)), named(&mut KNOBS.iter().map(|k| k.0)));
    for (name, type_max, set) in KNOBS {
        let (_, _, min, max) = *table.iter().find(|bound| bound.0 == name).unwrap();
        for (value, good) in [(min, true), (max, true)]
            .into_iter()
            .chain(min.checked_sub(1).map(|v| (v, false)))
            .chain(max.checked_add(1).filter(|v| *v <= type_max).map(|v| (v, false)))
        {
            let mut config = roomy();
            set(&mut config, value);
            // An `answer_timeout` of zero means `peer_timeout`.
            if (name, value) == ("answer_timeout", 0) {
                continue;
            }
            let told = config.check().map_err(|e| (e.field, e.value));
            let expected = if good { Ok(()) } else { Err((name, value)) };
            assert_eq!(told, expected, "{name} = {value}");
        }
    }
}

#[test]
fn regression_knobs_that_were_never_looked_at_are_refused() {
    let wrong: [(&str, Config); 6] = [
        ("window_initial_bytes", Config { window_initial_bytes: u64::MAX / 2, ..roomy() }),
        ("peer_timeout", Config { peer_timeout: Duration::ZERO, ..roomy() }),
        ("key_packets_max", Config { key_packets_max: 0, ..roomy() }),
        ("ack_delay", Config { ack_delay: Duration::MAX, ..roomy() }),
        ("keepalive", Config { keepalive: Duration::ZERO, ..roomy() }),
        ("idle_reclaim", Config { idle_reclaim: roomy().peer_timeout, ..roomy() }),
    ];
    for (field, config) in wrong {
        assert_eq!(config.check().map_err(|e| e.field), Err(field));
    }
}

#[test]
fn what_depends_on_another_knob_is_held_to_it() {
    let seconds = Duration::from_secs;
    let short = Config { rto_min: seconds(2), rto_max: seconds(1), ..roomy() };
    assert_eq!(short.check().map_err(|e| (e.field, e.min)), Err(("rto_max", 2 * S)));
    let odd = Config { window_packets_max: 1000, ..roomy() };
    let told = odd.check().map_err(|e| e.to_string());
    assert!(told.is_err_and(|text: String| text.contains("a power of two")));
}

#[test]
fn the_presets_are_within_their_bounds() {
    for config in [Config::default(), Config::sockets(), roomy()] {
        assert_eq!(config.check(), Ok(()), "{config:?}");
    }
}

/// Each endpoint has a copy of the configuration, so copies of its keys have to be overwritten.
#[test]
fn regression_keys_are_overwritten_when_they_are_dropped() {
    const { assert!(core::mem::needs_drop::<Protection>()) };
    for mut protection in [Protection::Static([7; 32]), Protection::JobKey([7; 32])] {
        protection.wipe();
        match &protection {
            Protection::Static(key) | Protection::JobKey(key) => assert_eq!(*key, [0; 32]),
            Protection::Plain => unreachable!("no key"),
        }
    }
}
