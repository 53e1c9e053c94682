//! Tests of snapshots: they write pages as workers do, and read the result.

use std::sync::Arc;

use srd_card::{Counters, Reach, Traffic};
use srd_proto::{Diagnosis, PathReport};

use super::peer::{Link, PeerFigures, PeerPage};
use super::read::paths_together;
use super::rows::PathRow;
use super::totals::{Totals, Transport, Work};
use super::*;
use crate::snapshot::{ExpressState, PeerState};

fn about() -> About {
    About {
        interface: "srd0".into(),
        file: "/etc/srd/srd0.toml".into(),
        mode: Mode::Overlay,
        encrypted: true,
        listen: "192.0.2.1:7471".into(),
        mtu: 8900,
        paths: 16,
        link_rate_bps: 0,
        started_at: Instant::ZERO,
    }
}

fn listed(number: u32, name: &str, page: &Arc<PeerPage>) -> Listed {
    Listed {
        number: PeerNumber(number),
        name: name.into(),
        public_key: None,
        host: None,
        lookup_error: String::new(),
        allowed: vec!["10.77.0.2/32".into()],
        express: true,
        page: Arc::clone(page),
    }
}

fn totals(n: u64) -> Totals {
    let traffic = Traffic { srd_tx_pkts: 10 * n, plain_tx_pkts: n, ..Traffic::default() };
    let mut transport = Transport { retrans_pkts: n, ..Transport::default() };
    transport.drops[0] = 2;
    Totals {
        transport,
        card: Counters { traffic, guest_malformed: 1, ..Counters::default() },
        work: Work { ups: n, refused: n, ..Work::default() },
        mode: 3,
        utilization: 10 * n,
        flows: 5,
    }
}

#[test]
fn a_snapshot_adds_up_what_workers_have_counted() {
    let both = [1, 2].map(|n| {
        let page = Arc::<Page<Totals>>::default();
        page.publish(&totals(n));
        page
    });
    let (silent, known) = (Arc::new(PeerPage::new(2)), Arc::new(PeerPage::new(2)));
    known.rows[1].publish(&PeerFigures {
        link: Link::Up,
        ups: 2,
        reach: Reach::Express { udp: true, tunnels: false },
        addresses: [Some("192.0.2.2:7471".parse().unwrap()), None, None, None],
        queued_bytes: 100,
        ..PeerFigures::default()
    });
    known.set_rates([1000, 2000]);
    let mut row = PeerFigures { link: Link::Down, ..PeerFigures::default() };
    row.evidence.saw(Diagnosis::OtherVersion);
    silent.rows[0].publish(&row);
    let pages = Pages::new(about(), both.to_vec(), Vec::new());
    let peers = vec![listed(7, "known", &known), listed(3, "silent", &silent)];
    let public_key = Some("key".into());
    pages.list(Directory { express: true, udp_ordering: UdpOrdering::Ordered, public_key, peers });
    let snapshot = pages.snapshot(&Detail::default()).unwrap();
    let counters = snapshot.counters;
    assert_eq!((counters.ena_srd_mode, counters.ena_srd_tx_pkts, counters.tx_pkts), (3, 30, 33));
    assert_eq!((counters.retransmissions, counters.handshakes_done), (3, 3));
    assert_eq!((counters.ena_srd_resource_utilization, counters.queue_bytes), (20, 100));
    assert_eq!((counters.rx_drops, snapshot.flows_total), (3, 10));
    let drops = [("malformed", 4), ("guest_malformed", 2), ("interface_refused", 3)];
    for (name, packets) in &snapshot.drops {
        let known = drops.iter().find(|(of, _)| of == name);
        assert_eq!(*packets, known.map_or(0, |(_, packets)| *packets), "{name}");
    }
    assert!(snapshot.drops.len() > 20, "those that have not occurred are there, too");
    let [first, second] = snapshot.peers.as_slice() else { panic!("in the order of the file") };
    assert_eq!((first.name.as_str(), first.state), ("known", PeerState::Up));
    assert_eq!((first.endpoint.as_deref(), first.handshakes), (Some("192.0.2.2:7471"), 2));
    assert_eq!(
        (first.express, first.express_udp, first.express_tunnels),
        (ExpressState::On, true, false)
    );
    assert_eq!([first.tx_bps, first.rx_bps], [1000, 2000]);
    assert_eq!(second.state, PeerState::Down);
    assert_eq!(second.problem.as_deref(), Some("other-version"));
    assert_eq!((second.express, second.endpoint.as_ref()), (ExpressState::Waiting, None));
    pages.end();
    assert_eq!(pages.snapshot(&Detail::default()), Err(PlaneError::Gone));
}

#[test]
fn paths_are_those_of_the_worker_that_sent_most_and_their_counts_add_up() {
    let row = |path, state, sent_pkts, delay_ns| PathRow {
        peer: PeerNumber(1),
        path,
        report: PathReport { entropy: path, state, delay_ns, sent_pkts, lost_pkts: 1 },
        source: Some("192.0.2.1:7480".parse().unwrap()),
        destination: None,
    };
    let other = PathRow { source: Some("192.0.2.1:7500".parse().unwrap()), ..row(1, "good", 0, 0) };
    let rows = vec![
        other,
        row(0, "good", 5, 1000),
        row(1, "skip", 90, 4000),
        row(0, "assumed-bad", 7, 3000),
        row(1, "good", 10, 2000),
    ];
    let paths = paths_together(rows).remove(&PeerNumber(1)).unwrap();
    let told: Vec<_> = paths.iter().map(|p| (p.path, p.state.as_str(), p.sent_pkts)).collect();
    assert_eq!(told, [(0, "assumed-bad", 12), (1, "skip", 100)]);
    assert_eq!((paths[1].delay_us, paths[1].lost_pkts, paths[1].source_port), (4.0, 3, 7480));
    // The source of a path lists the ports of all workers.
    assert_eq!((&*paths[0].source, &*paths[1].source), ("192.0.2.1:7480", "192.0.2.1:7480,7500"));
}
