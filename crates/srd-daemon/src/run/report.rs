//! The data plane's state, for people and machines.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use srd_card::packet::protocol;
use srd_card::{FlowKey, Reach};
use srd_proto::{DropReason, Entropy};

use super::data::{Data, Peer};
use crate::config::in_words;
use crate::plane::{Detail, PathsOf};
use crate::snapshot::{
    Counters, ExpressState, FlowSnapshot, PathCounts, PathSnapshot, PeerSnapshot, Snapshot,
};

/// Nanoseconds of a microsecond.
const US: f64 = 1000.0;

impl Data {
    /// How things stand.
    pub(super) fn snapshot(&mut self, detail: &Detail) -> Snapshot {
        let interface = &self.config.interface;
        let now = self.endpoint.now();
        let mut snapshot = Snapshot {
            version: env!("CARGO_PKG_VERSION").into(),
            interface: interface.name.clone(),
            file: absolute(&self.config.file),
            mode: interface.mode,
            encrypted: self.endpoint.core().config().protection.is_on(),
            public_key: interface.protection.private_key().map(|key| key.public().to_string()),
            listen: in_words(interface.listens()),
            mtu: self.mtu.into(),
            paths: self.endpoint.core().config().paths,
            uptime_s: seconds(now.since(self.started_at)),
            udp_ordering: interface.udp_ordering,
            link_rate_bps: self.endpoint.core().config().link_rate_bps,
            counters: self.counters(),
            drops: self.drops(),
            ..Snapshot::default()
        };
        let (tx, rx) = self.card.express.flow_counts();
        snapshot.flows_total = (tx + rx) as u64;
        snapshot.flows = self.flows(detail.flows_max);
        snapshot.peers = self.peers.iter().map(|peer| self.peer_snapshot(peer, detail)).collect();
        snapshot
    }

    /// The busiest flows that leave.
    fn flows(&self, most: usize) -> Vec<FlowSnapshot> {
        let name = |slot| {
            let peer = self.peers.iter().find(|p| p.slot == slot);
            peer.map_or(String::new(), |p| p.settings.name.clone())
        };
        let one = |flow: srd_card::FlowReport| {
            let FlowKey { source, destination, protocol, ports } = flow.key;
            FlowSnapshot {
                peer: name(flow.peer),
                direction: "tx".into(),
                protocol: protocol_name(protocol),
                source: end(protocol, source, ports.0),
                destination: end(protocol, destination, ports.1),
                srd: flow.rides_srd,
                bps: flow.bps,
                pkts: flow.pkts,
                bytes: flow.bytes,
            }
        };
        self.card.express.busiest(most).into_iter().map(one).collect()
    }

    /// Who is at which address now, for captures of outer packets.
    pub(super) fn names_by_address(&self) -> BTreeMap<IpAddr, String> {
        let core = self.endpoint.core();
        let each = |peer: &Peer| {
            let name = peer.settings.name.clone();
            let known = core.addresses_of(peer.id).into_iter().filter(|a| a.port() != 0);
            known.map(move |address| (address.ip().to_canonical(), name.clone()))
        };
        self.peers.iter().flat_map(each).collect()
    }

    fn counters(&self) -> Counters {
        let core = self.endpoint.core().stats();
        let card = self.card.express.counters();
        let (traffic, order) = (card.traffic, card.order);
        let express = &self.card.express;
        let waiting = self.peers.iter().filter_map(|p| express.report(p.slot));
        Counters {
            ena_srd_mode: express.mode(),
            ena_srd_tx_pkts: traffic.srd_tx_pkts,
            ena_srd_eligible_tx_pkts: traffic.eligible_tx_pkts,
            ena_srd_rx_pkts: traffic.srd_rx_pkts,
            ena_srd_resource_utilization: express.resource_utilization(),
            tx_pkts: traffic.srd_tx_pkts + traffic.plain_tx_pkts,
            tx_bytes: traffic.srd_tx_bytes + traffic.plain_tx_bytes,
            rx_pkts: traffic.srd_rx_pkts + traffic.plain_rx_pkts,
            rx_bytes: traffic.srd_rx_bytes + traffic.plain_rx_bytes,
            srd_tx_bytes: traffic.srd_tx_bytes,
            srd_rx_bytes: traffic.srd_rx_bytes,
            plain_tx_pkts: traffic.plain_tx_pkts,
            plain_tx_bytes: traffic.plain_tx_bytes,
            plain_rx_pkts: traffic.plain_rx_pkts,
            plain_rx_bytes: traffic.plain_rx_bytes,
            tx_drops: card.guest_malformed
                + card.guest_no_peer
                + card.guest_too_big
                + card.send_refused
                + traffic.queue_dropped_late
                + traffic.queue_dropped_full,
            rx_drops: card.peer_malformed
                + card.peer_bad_source
                + order.bad_chunks
                + order.full
                + self.card.port.refused,
            queue_drops: traffic.queue_dropped_late + traffic.queue_dropped_full,
            ecn_marks: traffic.queue_marked,
            queue_bytes: waiting.map(|r| r.queued_bytes as u64).sum(),
            order_waits: order.waited,
            order_timeouts: order.wait_timeouts,
            order_late_pkts: order.bad_chunks,
            reassembly_drops: order.given_up,
            decrypt_failures: core.drops[DropReason::Unauthentic as usize],
            retransmissions: core.retrans_pkts,
            retransmission_timeouts: core.retrans_timeout_events,
            spurious_retransmissions: core.spurious_retrans_pkts,
            handshakes_done: self.peers.iter().map(|p| p.handshakes).sum(),
            peer_downs: self.card.peer_downs,
            outer_tx_pkts: core.tx_pkts,
            outer_tx_bytes: core.tx_bytes,
            outer_rx_pkts: core.rx_pkts,
            outer_rx_bytes: core.rx_bytes,
            ..Counters::default()
        }
    }

    fn drops(&self) -> BTreeMap<String, u64> {
        let core = self.endpoint.core().stats();
        let by_transport = DropReason::ALL.iter().zip(core.drops);
        let by_transport = by_transport.map(|(reason, n)| (snake(&format!("{reason:?}")), n));
        let counters = self.card.express.counters();
        let card = counters.drops().map(|(name, n)| (name.to_owned(), n));
        let guest = [("interface_refused".to_owned(), self.card.port.refused)];
        by_transport.chain(card).chain(guest).filter(|(_, n)| *n > 0).collect()
    }

    fn peer_snapshot(&self, peer: &Peer, detail: &Detail) -> PeerSnapshot {
        let core = self.endpoint.core();
        let stats = core.peer_stats(peer.id).unwrap_or_default();
        let report = self.card.express.report(peer.slot);
        let traffic = report.map(|r| r.traffic).unwrap_or_default();
        let reach = report.map_or(Reach::Off, |r| r.reach);
        let address = core.address_of(peer.id).filter(|a| a.port() != 0);
        let now = self.endpoint.now();
        let [good, skip, assumed_bad, denied] = stats.paths;
        let settings = &peer.settings;
        let problem = self.problem(peer);
        let listed = match &detail.paths {
            PathsOf::Nobody => false,
            PathsOf::Everybody => true,
            PathsOf::Peer(name) => peer.settings.name == *name || peer.has_key_like(name),
        };
        PeerSnapshot {
            name: settings.name.clone(),
            public_key: settings.public_key.map(|key| key.to_string()),
            endpoint: address.map(|_| in_words(core.addresses_of(peer.id))),
            endpoint_name: settings.host.as_ref().map(ToString::to_string),
            endpoint_error: peer.lookup.as_ref().map(|l| l.error.clone()).filter(|e| !e.is_empty()),
            allowed: settings.allowed.iter().map(ToString::to_string).collect(),
            state: peer.state,
            express: match reach {
                Reach::Express { .. } => ExpressState::On,
                Reach::Waiting => ExpressState::Waiting,
                Reach::Off if self.config.interface.express && settings.express => {
                    ExpressState::Waiting
                }
                Reach::Off => ExpressState::Off,
            },
            express_udp: matches!(reach, Reach::Express { udp: true }),
            problem: problem.as_ref().map(|p| p.kind.to_owned()),
            problem_text: problem.map(|p| p.text),
            last_handshake_s: peer.met_at.map(|at| seconds(now.since(at))),
            handshakes: peer.handshakes,
            rtt_us: ns(stats.rtt_smoothed_ns) / US,
            rtt_base_us: ns(stats.rtt_base_ns) / US,
            queue_delay_us: ns(stats.delay_median_ns) / US,
            delay_spread_us: ns(stats.delay_spread_ns) / US,
            tx_bps: peer.tx_bps,
            rx_bps: peer.rx_bps,
            srd_tx_pkts: traffic.srd_tx_pkts,
            srd_tx_bytes: traffic.srd_tx_bytes,
            srd_rx_pkts: traffic.srd_rx_pkts,
            srd_rx_bytes: traffic.srd_rx_bytes,
            plain_tx_pkts: traffic.plain_tx_pkts,
            plain_tx_bytes: traffic.plain_tx_bytes,
            plain_rx_pkts: traffic.plain_rx_pkts,
            plain_rx_bytes: traffic.plain_rx_bytes,
            retransmissions: stats.retrans_pkts,
            queue_drops: traffic.queue_dropped_full + traffic.queue_dropped_late,
            ecn_marks: traffic.queue_marked,
            queue_bytes: report.map_or(0, |r| r.queued_bytes as u64),
            window_bytes: stats.window_bytes,
            in_flight_bytes: stats.in_flight_bytes,
            delivery_rate_bps: stats.delivery_rate_bps,
            credit_limited: stats.credit_limited,
            packet_bytes_max: core.packet_bytes_max_to(peer.id).into(),
            paths: PathCounts { good, skip, assumed_bad, denied, passing: stats.paths_passing },
            path_reports: if listed { self.path_reports(peer) } else { Vec::new() },
            ..PeerSnapshot::default()
        }
    }

    fn path_reports(&self, peer: &Peer) -> Vec<PathSnapshot> {
        let core = self.endpoint.core();
        let ends = |entropy| {
            let to = core.destination(peer.id, entropy)?;
            Some((self.endpoint.source(entropy, to), to))
        };
        let reports = core.paths(peer.id);
        let one = |(path, r): (u16, srd_proto::PathReport)| PathSnapshot {
            path,
            source_port: ends(Entropy(r.entropy)).map_or(0, |(from, _)| from.port()),
            source: ends(Entropy(r.entropy)).map_or(String::new(), |(from, _)| from.to_string()),
            destination: ends(Entropy(r.entropy)).map_or(String::new(), |(_, to)| to.to_string()),
            state: r.state.to_owned(),
            delay_us: ns(r.delay_ns.into()) / US,
            sent_pkts: r.sent_pkts,
            lost_pkts: r.lost_pkts,
        };
        (0u16..).zip(reports).map(one).collect()
    }
}

/// A path that means the same to programs that were started elsewhere.
fn absolute(file: &Path) -> String {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf());
    absolute.display().to_string()
}

/// A protocol by its name, where it is a common one.
fn protocol_name(number: u8) -> String {
    match number {
        protocol::TCP => "tcp".into(),
        protocol::UDP => "udp".into(),
        1 => "icmp".into(),
        47 => "gre".into(),
        50 => "esp".into(),
        58 => "icmpv6".into(),
        132 => "sctp".into(),
        other => other.to_string(),
    }
}

/// One end of a flow; only TCP and UDP have ports here.
fn end(number: u8, address: IpAddr, port: u16) -> String {
    match number {
        protocol::TCP | protocol::UDP => SocketAddr::new(address, port).to_string(),
        _ => address.to_string(),
    }
}

#[allow(clippy::cast_precision_loss)] // times of seconds at most
fn ns(value: u64) -> f64 {
    value as f64
}

fn seconds(time: srd_proto::Duration) -> f64 {
    ns(time.as_nanos()) / 1e9
}

/// `UnknownContext` as `unknown_context`.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for (i, c) in name.chars().enumerate() {
        if c.is_ascii_uppercase() && i > 0 {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_a_flow_without_ports_shows_none_and_its_protocol_has_a_name() {
        let [v4, v6]: [IpAddr; 2] = ["192.0.2.1", "2001:db8::1"].map(|a| a.parse().unwrap());
        assert_eq!((protocol_name(1), end(1, v4, 0)), ("icmp".into(), "192.0.2.1".into()));
        assert_eq!((protocol_name(58), end(58, v6, 0)), ("icmpv6".into(), "2001:db8::1".into()));
        assert_eq!((protocol_name(6), end(6, v6, 80)), ("tcp".into(), "[2001:db8::1]:80".into()));
        assert_eq!(protocol_name(200), "200");
    }

    #[test]
    fn reasons_are_written_as_words() {
        assert_eq!(snake("UnknownContext"), "unknown_context");
    }
}
