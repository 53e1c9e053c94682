//! A status with one object of each kind, from which the reference of all metrics is generated.

use srd_card::limits::Allowances;
use srd_card::vpc::{Cause, PortCounts};

use crate::control::protocol::{FlowLog, Instance, Interface, PeerHost, Status, Tables};
use crate::figures::pages::figures::{DeviceFigures, InstanceFigures, InterfaceFigures};
use crate::figures::pages::read::counters;
use crate::interfaces::adapter::QueueCounts;
use crate::interfaces::port::DEVICE_DROPS;

/// Returns the metrics of a card with one instance, one other host and one flow log, as OpenMetrics
/// text. The text contains every family with its meaning, type and labels. All values are zero.
///
/// # Panics
/// The function never panics, because writing to a text in memory cannot fail.
pub fn metrics_sample() -> String {
    let written = super::exposition::write(&sample_status(), &[flow_log()]);
    written.expect("a text in memory can be written")
}

/// Returns a status with one object of each kind.
pub(crate) fn sample_status() -> Status {
    Status {
        host: "HOST".into(),
        scale: 1,
        internet: false,
        version: env!("CARGO_PKG_VERSION").into(),
        uptime_s: 0.0,
        began_unix_s: 0.0,
        cpu_s: 0.0,
        tables: Tables::default(),
        hosts: vec![host()],
        workers: 1,
        instances: vec![instance()],
        drops: [("CAUSE".into(), 0)].into(),
        internet_gone: None,
        rules_restored: 0,
        warnings: Vec::new(),
        stale_s: None,
    }
}

fn instance() -> Instance {
    Instance {
        name: "INSTANCE".into(),
        id: String::new(),
        instance_type: "TYPE".into(),
        namespace: None,
        worker: 0,
        interfaces: vec![interface()],
        tracked: 0,
        untracked: 0,
        credits_bits: [0; 2],
        bandwidth_bps: [0; 2],
        packets_per_second: 0,
        fragments_dropped: 0,
    }
}

/// An interface with one queue and all counters.
fn interface() -> Interface {
    let device =
        DeviceFigures { is_kernel: true, drops: [0; DEVICE_DROPS.len()], ..Default::default() };
    let figures = InterfaceFigures {
        counts: PortCounts::default(),
        allowances: Allowances::default(),
        available: 0,
        drops: [0; Cause::COUNT],
        device,
        instance: InstanceFigures::default(),
    };
    Interface {
        name: String::new(),
        id: String::new(),
        device: "DEVICE".into(),
        mac: String::new(),
        addresses: Vec::new(),
        counters: counters(&figures, Default::default(), 0, &[QueueCounts::default()]),
        drops: [("CAUSE".into(), 0)].into(),
        vhost_user: None,
        gone: None,
    }
}

fn host() -> PeerHost {
    PeerHost {
        name: "PEER".into(),
        address: ([0; 4], 0).into(),
        up: false,
        sent_frames: 0,
        sent_bytes: 0,
        sent_by_srd_frames: 0,
        received_frames: 0,
        received_bytes: 0,
        received_by_srd_frames: 0,
        heard_s: Some(0.0),
        down_s: Some(0.0),
        silent: false,
        problem: None,
    }
}

fn flow_log() -> FlowLog {
    FlowLog {
        name: "LOG".into(),
        id: String::new(),
        resource: String::new(),
        traffic: String::new(),
        directory: String::new(),
        files: String::new(),
        interfaces: 0,
        records_written: 0,
        records_dropped: 0,
        failure: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_a_meaning_that_is_a_sentence_and_a_sample_that_shows_its_labels() {
        let text = metrics_sample();
        let mut families = 0;
        for help in text.lines().filter_map(|line| line.strip_prefix("# HELP ")) {
            let (name, meaning) = help.split_once(' ').unwrap();
            assert!(meaning.contains(' ') && meaning.ends_with('.'), "{name}: {meaning}");
            let is_sample = |line: &str| line.starts_with(name) && line.contains('{');
            assert!(text.lines().any(is_sample), "{name} has no sample");
            families += 1;
        }
        assert!(families > 45, "{families} families");
    }
}
