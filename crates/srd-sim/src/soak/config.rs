//! Random endpoint configurations and port rules for the soak. Every parameter has values that suit
//! the network; some are tiny limits.

use srd_proto::{Admission, Config, Duration, Protection, Spray};

use super::dice::Dice;
use crate::engine::topology::Topology;
use crate::engine::world::{ACK_BYTES, PortRules, QueueSize};

/// Returns a duration of `us` microseconds.
fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// Draws the largest packet size, in bytes on the wire.
pub(super) fn packet_bytes(dice: &mut Dice) -> u16 {
    dice.pick(&[300, 512, 1500, 1500, 4150, 4150, 4150, 9000])
}

/// Draws the rules of the switch ports.
pub(super) fn rules(dice: &mut Dice, packet_bytes: u16) -> PortRules {
    let queue = match dice.between(0, 3) {
        0 => QueueSize::Bytes(u64::from(packet_bytes) * u64::from(dice.between(2, 20))),
        1 => QueueSize::Bdp(0.5),
        _ => QueueSize::Bdp(5.0),
    };
    let mark = dice.percent(25).then_some((QueueSize::Bdp(0.2), QueueSize::Bdp(0.8)));
    let (trim, control_first) = (dice.percent(10), dice.percent(10));
    PortRules { queue, mark, trim, control_first, packet_bytes, ..PortRules::default() }
}

fn protection(dice: &mut Dice) -> Protection {
    match dice.between(0, 3) {
        0 | 1 => Protection::Plain,
        2 => Protection::JobKey([7; 32]),
        // Every host replaces this key by a key that is derived from its number.
        _ => Protection::Static([9; 32]),
    }
}

/// Draws the configuration of every endpoint.
pub(super) fn endpoint(dice: &mut Dice, topology: &Topology, packet_bytes: u16) -> Config {
    let base = Config::default();
    let rtt_ns = topology.diameter_rtt_ps(packet_bytes.into(), ACK_BYTES.into()) / 1000;
    let rtt = Duration::from_nanos(rtt_ns.max(100));
    let mut config = Config {
        protection: protection(dice),
        packet_bytes_max: packet_bytes - base.wire_overhead_bytes,
        link_rate_bps: if dice.percent(25) { 0 } else { topology.host_rate_bps(0) },
        rtt_initial: if dice.percent(75) { rtt } else { us(dice.log_between(1, 1000)) },
        ..base
    };
    if dice.percent(30) {
        config.admission = Admission::Anyone;
    }
    paths(dice, &mut config);
    control(dice, &mut config);
    acknowledgements(dice, &mut config);
    timers(dice, &mut config, rtt);
    limits(dice, &mut config);
    config.check().expect("the plan keeps within the bounds");
    config
}

fn paths(dice: &mut Dice, config: &mut Config) {
    config.spray = dice.pick(&[
        Spray::Adaptive,
        Spray::Adaptive,
        Spray::Adaptive,
        Spray::Oblivious,
        Spray::Single,
    ]);
    config.paths = dice.pick(&[1, 2, 8, 32, 128, 256]);
    if dice.percent(30) {
        config.spray_burst_packets = dice.pick(&[2, 16, 64]);
    }
}

fn control(dice: &mut Dice, config: &mut Config) {
    if dice.percent(30) {
        config.delay_target_percent = dice.between(5, 400);
        config.delay_target_min = us(dice.log_between(1, 100));
        config.window_initial_bytes = dice.log_between(1, 1 << 20);
        config.window_max_percent = dice.between(50, 1000);
    }
    config.receiver_share = dice.percent(80);
    if dice.percent(30) {
        config.credit_percent = dice.between(50, 400);
    }
    config.ecn = dice.percent(50);
}

fn acknowledgements(dice: &mut Dice, config: &mut Config) {
    if dice.percent(40) {
        config.ack_packets = dice.pick(&[1, 2, 16, 64, 256]);
        config.ack_bytes = dice.pick(&[1, 4096, 1 << 16, 1 << 20]);
        config.ack_delay = us(dice.log_between(1, 100));
        config.ack_tuples_max = dice.pick(&[1, 2, 8, 16]);
    }
}

fn timers(dice: &mut Dice, config: &mut Config, rtt: Duration) {
    config.rto_min = us(dice.log_between(20, 1000));
    config.rto_max = config.rto_min.times(dice.pick(&[1, 4, 16]));
    // The timeout leaves time for a few attempts, including the opening of the session.
    let opening_us = if config.protection.is_on() { 30_000 } else { 0 };
    let least_us = (rtt.as_nanos() + config.rto_max.as_nanos()) / 1000 * 2 + opening_us;
    config.peer_timeout = us(dice.log_between(least_us.max(2000), 50_000.max(least_us)));
    if dice.percent(20) {
        config.keepalive = us(dice.log_between(500, 5000));
    }
    if dice.percent(25) {
        // The receiver keeps an idle context for longer than a sender may still use it.
        config.idle_reclaim = config.peer_timeout.times(2) + us(dice.log_between(100, 20_000));
    }
    config.rnr_retries = dice.pick(&[0, 1, 3, 7, 7]);
}

fn limits(dice: &mut Dice, config: &mut Config) {
    config.send_queue_datagrams_max = dice.pick(&[1, 2, 8, 256, 256, 8192]);
    config.window_packets_max = dice.pick(&[128, 256, 1024, 4096]);
    config.flows_max = dice.pick(&[1, 2, 4096, 4096, 4096]);
    config.events_max = dice.pick(&[8, 1 << 20]);
    config.handshakes_per_second_max = dice.pick(&[200, 1000, 10_000]);
    config.key_packets_max = dice.pick(&[500, 5000, 1 << 26]);
    config.key_lifetime = dice.pick(&[us(1000), us(20_000), Duration::from_secs(120)]);
}
