//! Builds a [`Snapshot`] from the pages, on the thread of the reader.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use srd_card::packet::protocol;
use srd_card::{FlowKey, Reach};
use srd_proto::{DropReason, Instant};

use super::peer::PeerFigures;
use super::rows::{FlowRow, PathRow};
use super::totals::{Totals, Transport};
use super::{Directory, Listed, Pages, names};
use crate::config::{Mode, in_words};
use crate::plane::{Detail, PathsOf, PeerNumber, PlaneError};
use crate::run::evidence::Problem;
use crate::run::problems;
use crate::snapshot::{
    Counters, ExpressState, FlowSnapshot, PathCounts, PathSnapshot, PeerSnapshot, PeerState,
    Snapshot,
};

/// Nanoseconds in a microsecond.
const US: f64 = 1000.0;

/// Returns the present state of the daemon, with as many paths and flows as `detail` requests.
pub(super) fn snapshot(pages: &Pages, detail: &Detail) -> Result<Snapshot, PlaneError> {
    let about = &pages.about;
    let directory = pages.directory();
    let now = srd_net::Clock::new().now();
    let totals = pages.totals();
    let mut paths = paths(pages, &directory, detail)?;
    let peers: Vec<PeerSnapshot> = directory
        .peers
        .iter()
        .map(|peer| {
            let path_reports = paths.remove(&peer.number).unwrap_or_default();
            PeerSnapshot { path_reports, ..peer_snapshot(&directory, peer, now) }
        })
        .collect();
    let queue_bytes = peers.iter().map(|peer| peer.queue_bytes).sum();
    Ok(Snapshot {
        version: env!("CARGO_PKG_VERSION").into(),
        interface: about.interface.clone(),
        // Without an interface, a device of this name belongs to another program.
        interface_down: about.mode != Mode::Cloud
            && srd_net::link::is_up(&about.interface).is_ok_and(|is_up| !is_up),
        file: about.file.clone(),
        mode: about.mode,
        encrypted: about.encrypted,
        public_key: directory.public_key.clone(),
        listen: about.listen.clone(),
        mtu: about.mtu.into(),
        paths: about.paths,
        workers: u16::try_from(pages.totals.len()).unwrap_or(u16::MAX),
        uptime_s: seconds(now.since(about.started_at)),
        udp_ordering: directory.udp_ordering,
        link_rate_bps: about.link_rate_bps,
        counters: counters(&totals, queue_bytes),
        drops: drops(&totals),
        flows_total: totals.flows,
        flows: flows(pages, &directory, detail.flows_max)?,
        controller: pages.controller.snapshot(),
        peers,
    })
}

/// Returns the busiest outgoing flows of all workers, at most `most`.
fn flows(
    pages: &Pages,
    directory: &Directory,
    most: usize,
) -> Result<Vec<FlowSnapshot>, PlaneError> {
    if most == 0 {
        return Ok(Vec::new());
    }
    let mut rows = pages.lists.flows(most)?;
    rows.sort_by_key(|row| (std::cmp::Reverse(row.report.bps), row.report.key));
    rows.truncate(most);
    let names = names(directory);
    let one = |row: FlowRow| {
        let FlowKey { source, destination, protocol, ports } = row.report.key;
        FlowSnapshot {
            peer: names.get(&row.peer).copied().unwrap_or_default().to_owned(),
            direction: "tx".into(),
            protocol: protocol_name(protocol),
            source: end(protocol, source, ports.0),
            destination: end(protocol, destination, ports.1),
            srd: row.report.rides_srd,
            bps: row.report.bps,
            pkts: row.report.pkts,
            bytes: row.report.bytes,
        }
    };
    Ok(rows.into_iter().map(one).collect())
}

/// Returns the paths of the peers that `detail` selects.
fn paths(
    pages: &Pages,
    directory: &Directory,
    detail: &Detail,
) -> Result<BTreeMap<PeerNumber, Vec<PathSnapshot>>, PlaneError> {
    let is_wanted = |peer: &&Listed| match &detail.paths {
        PathsOf::Nobody => false,
        PathsOf::Everybody => true,
        PathsOf::Peer(wanted) => peer.name == *wanted || peer.has_key_like(wanted),
    };
    let wanted: Vec<PeerNumber> =
        directory.peers.iter().filter(is_wanted).map(|peer| peer.number).collect();
    if wanted.is_empty() {
        return Ok(BTreeMap::new());
    }
    Ok(paths_together(pages.lists.paths(&wanted, pages.about.paths.into())?))
}

/// Returns the source ports that other workers use for a path, each preceded by a comma.
fn other_ports(rows: &[PathRow], most: &PathRow) -> String {
    let own = most.source.map(|source| source.port());
    let others: BTreeSet<u16> = rows.iter().filter_map(|row| Some(row.source?.port())).collect();
    let others = others.into_iter().filter(|port| Some(*port) != own);
    others.map(|port| format!(",{port}")).collect()
}

/// Combines the rows of all workers for each path. The source lists the port of each worker, and
/// numbers of sent and lost packets are added up. State and delay come from the worker that has
/// sent most packets.
pub(super) fn paths_together(rows: Vec<PathRow>) -> BTreeMap<PeerNumber, Vec<PathSnapshot>> {
    let mut by_path = BTreeMap::<(PeerNumber, u16), Vec<PathRow>>::new();
    for row in rows {
        by_path.entry((row.peer, row.path)).or_default().push(row);
    }
    let mut paths = BTreeMap::<PeerNumber, Vec<PathSnapshot>>::new();
    for ((peer, path), rows) in by_path {
        let Some(most) = rows.iter().max_by_key(|row| row.report.sent_pkts) else { continue };
        let text = |address: Option<SocketAddr>| address.map_or(String::new(), |a| a.to_string());
        paths.entry(peer).or_default().push(PathSnapshot {
            path,
            source_port: most.source.map_or(0, |source| source.port()),
            source: text(most.source) + &other_ports(&rows, most),
            destination: text(most.destination),
            state: most.report.state.to_owned(),
            delay_us: ns(most.report.delay_ns.into()) / US,
            sent_pkts: rows.iter().map(|row| row.report.sent_pkts).sum(),
            lost_pkts: rows.iter().map(|row| row.report.lost_pkts).sum(),
        });
    }
    paths
}

fn counters(totals: &Totals, queue_bytes: u64) -> Counters {
    let Totals { transport, card, work, mode, utilization, .. } = totals;
    let (traffic, order) = (card.traffic, card.order);
    // The pattern names every field, so that a new one is shown.
    let Transport {
        tx_pkts: outer_tx_pkts,
        tx_bytes: outer_tx_bytes,
        rx_pkts: outer_rx_pkts,
        rx_bytes: outer_rx_bytes,
        retrans_pkts: retransmissions,
        retrans_timeout_events: retransmission_timeouts,
        spurious_losses,
        drops,
    } = *transport;
    Counters {
        ena_srd_mode: *mode,
        ena_srd_tx_pkts: traffic.srd_tx_pkts,
        ena_srd_eligible_tx_pkts: traffic.eligible_tx_pkts,
        ena_srd_rx_pkts: traffic.srd_rx_pkts,
        ena_srd_resource_utilization: *utilization,
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
            + card.cloud_malformed
            + card.cloud_no_peer
            + card.cloud_too_big
            + card.send_refused
            + traffic.queue_dropped_late
            + traffic.queue_dropped_full,
        rx_drops: card.peer_malformed
            + card.peer_bad_source
            + order.bad_chunks
            + order.full
            + work.refused,
        queue_drops: traffic.queue_dropped_late + traffic.queue_dropped_full,
        ecn_marks: traffic.queue_marked,
        queue_bytes,
        order_waits: order.waited,
        order_timeouts: order.wait_timeouts,
        order_late_pkts: order.bad_chunks,
        reassembly_drops: order.given_up,
        decrypt_failures: drops[DropReason::Unauthentic as usize],
        retransmissions,
        retransmission_timeouts,
        spurious_losses,
        handshakes_done: work.ups,
        peer_downs: work.downs,
        outer_tx_pkts,
        outer_tx_bytes,
        outer_rx_pkts,
        outer_rx_bytes,
    }
}

/// Returns the number of drops for every reason. Reasons without drops are included, so that
/// readers notice the first drop.
fn drops(totals: &Totals) -> BTreeMap<String, u64> {
    let by_transport = DropReason::ALL.iter().zip(totals.transport.drops);
    // Debug form: the name of a counter is derived from that of its reason.
    let by_transport = by_transport.map(|(reason, n)| (snake(&format!("{reason:?}")), n));
    let card = totals.card.drops().map(|(name, n)| (name.to_owned(), n));
    let guest = [("interface_refused".to_owned(), totals.work.refused)];
    by_transport.chain(card).chain(guest).collect()
}

fn peer_snapshot(directory: &Directory, peer: &Listed, now: Instant) -> PeerSnapshot {
    let all = PeerFigures::together(&peer.page.read());
    let PeerFigures { traffic, stats, .. } = all;
    let [good, skip, assumed_bad, denied] = stats.paths;
    let [tx_bps, rx_bps] = peer.page.rates();
    let is_known = all.known_addresses().next().is_some();
    let problem = problems::of_peer(&all, peer.host.as_ref(), &peer.lookup_error);
    PeerSnapshot {
        name: peer.name.clone(),
        public_key: peer.public_key.clone(),
        endpoint: is_known.then(|| in_words(all.known_addresses())),
        endpoint_name: peer.host.as_ref().map(ToString::to_string),
        endpoint_error: Some(peer.lookup_error.clone()).filter(|error| !error.is_empty()),
        allowed: peer.allowed.clone(),
        state: all.state(),
        express: match all.reach {
            Reach::Express { .. } => ExpressState::On,
            Reach::Waiting => ExpressState::Waiting,
            Reach::Off if directory.express && peer.express => ExpressState::Waiting,
            Reach::Off => ExpressState::Off,
        },
        express_udp: matches!(all.reach, Reach::Express { udp: true, .. }),
        express_tunnels: matches!(all.reach, Reach::Express { tunnels: true, .. }),
        problem: problem.as_ref().map(|p| p.kind.to_owned()),
        problem_text: problem.map(|p| p.text),
        last_handshake_s: (all.up_at != Instant::ZERO).then(|| seconds(now.since(all.up_at))),
        handshakes: all.ups,
        rtt_us: ns(stats.rtt_smoothed_ns) / US,
        rtt_base_us: ns(stats.rtt_base_ns) / US,
        queue_delay_us: ns(stats.delay_median_ns) / US,
        delay_spread_us: ns(stats.delay_spread_ns) / US,
        tx_bps,
        rx_bps,
        srd_tx_pkts: traffic.srd_tx_pkts,
        srd_tx_bytes: traffic.srd_tx_bytes,
        srd_rx_pkts: traffic.srd_rx_pkts,
        srd_rx_bytes: traffic.srd_rx_bytes,
        plain_tx_pkts: traffic.plain_tx_pkts,
        plain_tx_bytes: traffic.plain_tx_bytes,
        plain_rx_pkts: traffic.plain_rx_pkts,
        plain_rx_bytes: traffic.plain_rx_bytes,
        retransmissions: all.retrans_pkts,
        queue_drops: traffic.queue_dropped_full + traffic.queue_dropped_late,
        ecn_marks: traffic.queue_marked,
        refused_pkts: traffic.refused_pkts,
        refused_from: all.refused_from.map(|from| from.ip().to_string()),
        queue_bytes: all.queued_bytes,
        window_bytes: stats.window_bytes,
        in_flight_bytes: stats.in_flight_bytes,
        delivery_rate_bps: stats.delivery_rate_bps,
        credit_limited: stats.credit_limited,
        packet_bytes_max: all.packet_bytes_max.into(),
        paths: PathCounts { good, skip, assumed_bad, denied, passing: stats.paths_passing },
        path_reports: Vec::new(),
    }
}

impl PeerFigures {
    /// Returns the reason why the peer does not answer, judged by packets only; `None` if it
    /// answers or the reason is not known. [`problems::of_peer`] also considers the resolution of
    /// its name.
    pub(crate) fn problem(&self) -> Option<Problem> {
        if self.state() == PeerState::Up {
            return None;
        }
        self.evidence.problem(self.refusal, self.unreachable)
    }
}

impl Listed {
    /// Whether the peer's key begins with `wanted`. A text of fewer than eight characters matches
    /// no key.
    fn has_key_like(&self, wanted: &str) -> bool {
        let key = self.public_key.as_deref();
        key.is_some_and(|key| crate::keys::is_meant(key, wanted))
    }
}

/// Returns the name of an IP protocol, or its number as text if it is not a common protocol.
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

/// Text of one end of a flow. Only TCP and UDP flows are shown with a port.
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

/// Converts `UnknownContext` to `unknown_context`.
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
