//! Counters and events as Python objects.

use std::net::SocketAddr;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use srd_net::{EndpointEvent, Report};
use srd_proto::{PeerStats, Stats};

use super::peer::pair;

/// An event: its kind, its address, and a text for people.
pub(crate) type EventParts = (&'static str, Option<(String, u16)>, String);

const NS_PER_US: f64 = 1e3;

/// Returns the counters of the endpoint. Keys are the fields of `opensrd.Statistics`. The pattern
/// names every counter, so that a new one is returned, or left out on purpose.
pub(crate) fn counters<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyDict>> {
    let &Stats {
        send_wrs,
        send_bytes,
        recv_wrs,
        recv_bytes,
        tx_pkts,
        rx_pkts,
        rx_drops,
        retrans_pkts,
        retrans_timeout_events,
        spurious_losses,
        rx_duplicates,
        rx_rnr,
        unresponsive_remote_events,
        tx_bytes: _,
        rx_bytes: _,
        retrans_bytes: _,
        impaired_remote_conn_events: _,
        data_pkts: _,
        unreliable_tx_pkts: _,
        unreliable_rx_pkts: _,
        ack_pkts: _,
        probe_pkts: _,
        challenge_pkts: _,
        address_moves: _,
        clock_clamped: _,
        own_pauses: _,
        unreachable_hints: _,
        drops: _,
    } = &report.stats;
    let all = PyDict::new(py);
    all.set_item("sent_messages", send_wrs)?;
    all.set_item("sent_bytes", send_bytes)?;
    all.set_item("received_messages", recv_wrs)?;
    all.set_item("received_bytes", recv_bytes)?;
    all.set_item("sent_packets", tx_pkts)?;
    all.set_item("received_packets", rx_pkts)?;
    all.set_item("dropped_packets", rx_drops)?;
    all.set_item("retransmitted_packets", retrans_pkts)?;
    all.set_item("retransmission_timeouts", retrans_timeout_events)?;
    all.set_item("spurious_losses", spurious_losses)?;
    all.set_item("duplicates", rx_duplicates)?;
    all.set_item("refused_for_room", rx_rnr)?;
    all.set_item("peers_lost", unresponsive_remote_events)?;
    let peers = PyList::empty(py);
    for (address, stats) in &report.peers {
        peers.append(peer(py, *address, stats)?)?;
    }
    all.set_item("peers", peers)?;
    Ok(all)
}

/// Returns the counters of a peer. Keys are the fields of `opensrd.PeerStatistics`.
fn peer<'py>(
    py: Python<'py>,
    address: SocketAddr,
    stats: &PeerStats,
) -> PyResult<Bound<'py, PyDict>> {
    let one = PyDict::new(py);
    let us = |ns: u64| (ns > 0).then_some(ns as f64 / NS_PER_US);
    let [good, skipped, bad, denied] = stats.paths;
    one.set_item("address", pair(address))?;
    one.set_item("rtt_base_us", us(stats.rtt_base_ns))?;
    one.set_item("rtt_smoothed_us", us(stats.rtt_smoothed_ns))?;
    one.set_item("queueing_median_us", stats.delay_median_ns as f64 / NS_PER_US)?;
    one.set_item("window_bytes", stats.window_bytes)?;
    one.set_item("in_flight_bytes", stats.in_flight_bytes)?;
    one.set_item("outstanding_messages", stats.queued_datagrams)?;
    one.set_item("delivery_rate_bps", stats.delivery_rate_bps)?;
    one.set_item("retransmitted_packets", stats.retrans_pkts)?;
    one.set_item("paths_good", good)?;
    one.set_item("paths_skipped", skipped)?;
    one.set_item("paths_bad", bad)?;
    one.set_item("paths_denied", denied)?;
    Ok(one)
}

pub(crate) fn event(event: EndpointEvent) -> EventParts {
    match event {
        EndpointEvent::PeerUp(address) => ("peer-up", Some(pair(address)), String::new()),
        EndpointEvent::PeerDown(address, reason) => {
            ("peer-down", Some(pair(address)), reason.to_string())
        }
        EndpointEvent::PathMtu { peer, works_bytes, configured_bytes } => {
            let text =
                format!("the path passes packets of {works_bytes} of {configured_bytes} bytes");
            ("path-mtu", Some(pair(peer)), text)
        }
        EndpointEvent::Notice(notice) => ("notice", None, notice.to_string()),
        _ => ("notice", None, String::from("an event of a later version")),
    }
}
