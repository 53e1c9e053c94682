//! Peers that end after they have acknowledged an operation, and the probes that notice it (H8).

use super::*;

/// Time between two probes.
const EVERY_MS: u64 = 100;

impl Net {
    /// A network whose transport sends nothing to an idle peer.
    fn quiet(nodes: usize) -> Self {
        let mut net = Self::new(nodes);
        net.core.keepalive = Duration::MAX;
        net.nodes = (0..nodes).map(|node| net.node(node)).collect();
        net
    }

    /// Runs while every node probes at intervals.
    fn probe_ms(&mut self, ms: u64) {
        for _ in 0..ms / EVERY_MS {
            for node in 0..self.nodes.len() {
                if self.nodes[node].rdm.awaits_peers() {
                    self.nodes[node].rdm.probe();
                }
            }
            self.run_ms(EVERY_MS);
        }
    }

    fn read(&mut self, to: Peer) {
        let local = [Iov { addr: 0, length: 100 }];
        let remote = [RmaIov { addr: 0, length: 100, rkey: 9 }];
        let read = Rma {
            to,
            read: true,
            local: &local,
            remote: &remote,
            data: None,
            context: 1,
            until: Until::Transmitted,
            signaled: true,
        };
        self.on(0, |rdm, world| rdm.rma(world, read)).unwrap();
    }

    fn add(&mut self, to: Peer) {
        let (local, remote) = ([7u8; 8], [RmaIov { addr: 0, length: 8, rkey: 9 }]);
        self.nodes[0].ram.0[..8].copy_from_slice(&local);
        let iov = [Iov { addr: 0, length: 8 }];
        let atomic = Atomic {
            to,
            op: AtomicOp::Sum,
            datatype: Datatype::Uint64,
            operand: &iov,
            compare: &[],
            result: &[],
            remote: &remote,
            context: 1,
            until: Until::Transmitted,
            signaled: true,
        };
        self.on(0, |rdm, world| rdm.atomic(world, atomic)).unwrap();
    }
}

/// Begins an operation of node 0 to a peer.
type Begin = fn(&mut Net, Peer);

/// Operations that a node has begun when its peer ends.
const BEGUN: [(&str, Begin); 6] = [
    ("a long message", |net, to| net.send(0, to, 1, 0, 300_000)),
    ("a delivery", |net, to| {
        let iov = [Iov { addr: 0, length: 8 }];
        net.try_send(0, Message { until: Until::Delivered, ..message(to, 1, &iov) }).unwrap();
    }),
    ("a delivery in parts", |net, to| {
        let iov = [Iov { addr: 0, length: 30_000 }];
        net.try_send(0, Message { until: Until::Delivered, ..message(to, 1, &iov) }).unwrap();
    }),
    ("a read", Net::read),
    ("an atomic operation", Net::add),
    ("a message without credit", |net, to| {
        // These messages use all credit, and the peer returns none.
        let window = net.nodes[1].rdm.bounds.window_bytes_min;
        for _ in 0..window / 1200 {
            net.send(0, to, 2, 0, 1000);
        }
        net.run_ms(20);
        net.done(0);
        net.send(0, to, 1, 0, 1000);
    }),
];

#[test]
fn regression_a_peer_that_ends_after_it_has_acknowledged_is_unresponsive() {
    for (what, begin) in BEGUN {
        let mut net = Net::quiet(2);
        net.nodes[1].rdm.bounds.credit_bytes = 0;
        let to = net.peer(0, 1);
        let access = Access { remote_read: true, remote_write: true, ..Access::default() };
        let shared = Shared { region: 0, addr: 0, length: 1000, rkey: 9, access };
        net.on(1, |rdm, _| rdm.share(shared)).unwrap();
        net.send(0, to, 9, 0, 8);
        net.run_ms(5);
        net.done(0);
        net.frozen = Some(1);
        begin(&mut net, to);
        net.run_ms(20);
        assert_eq!(net.outcomes(0), [], "{what}");
        net.wire.dead = Some(1);
        net.probe_ms(2000);
        let ended = net.outcomes(0);
        assert!(ended.iter().any(|(_, tag, end)| (*tag, *end) == (1, Outcome::Unresponsive)));
        assert!(net.nodes[0].rdm.is_quiet(), "{what}: {ended:?}");
    }
}

#[test]
fn regression_a_peer_that_ends_after_it_has_acknowledged_a_hello_is_unresponsive() {
    let mut net = Net::quiet(2);
    let to = net.peer(0, 1);
    net.frozen = Some(1);
    net.send(0, to, 1, 0, 8);
    net.run_ms(20);
    net.wire.dead = Some(1);
    net.probe_ms(2000);
    assert_eq!(net.outcomes(0), [(Kind::Send, 1, Outcome::Unresponsive)]);
}

#[test]
fn regression_a_sender_that_ends_in_the_middle_of_a_message_is_unresponsive() {
    for length in [60_000u64, 1_500_000] {
        let mut net = Net::quiet(2);
        let to = net.peer(0, 1);
        net.send(0, to, 5, 0, 1);
        net.run_ms(5);
        net.recv(1, None, 1, 0, length);
        net.wire.loss_permille = 300;
        net.send(0, to, 1, 0, length);
        while net.nodes[1].rdm.tagged.len().0 > 0 {
            net.run_us(1);
        }
        net.wire.gone.push(0);
        net.probe_ms(2000);
        assert_eq!(net.outcomes(1), [(Kind::Receive, 1, Outcome::Unresponsive)], "{length}");
    }
}

#[test]
fn a_slow_peer_is_probed_and_waited_for_and_an_idle_one_is_left_alone() {
    let mut net = Net::quiet(2);
    let to = net.peer(0, 1);
    let back = net.peer(1, 0);
    net.send(0, to, 1, 0, 300_000);
    net.probe_ms(10_000);
    assert_eq!(net.outcomes(0), []);
    let probes = net.nodes[0].rdm.counters().probes;
    assert!((90..=100).contains(&probes), "{probes}");
    assert_eq!(net.nodes[1].rdm.counters().unasked, 0);
    assert_eq!(net.nodes[1].rdm.counters().stale, 0);
    net.recv(1, None, 1, 0, 300_000);
    net.probe_ms(200);
    assert_eq!(net.outcomes(0), [(Kind::Send, 1, Outcome::Ok)]);
    net.done(1);
    // A posted receive waits for no peer in particular.
    net.recv(0, Some(back), 3, 0, 8);
    let sent = |net: &Net| net.nodes.iter().map(|n| n.endpoint.stats().send_wrs).sum::<u64>();
    let before = sent(&net);
    for _ in 0..20 {
        net.nodes.iter_mut().for_each(|node| node.rdm.probe());
        net.run_ms(EVERY_MS);
    }
    assert_eq!(sent(&net), before);
}

#[test]
fn a_silent_peer_gets_one_probe_at_a_time() {
    let mut net = Net::quiet(2);
    net.core.peer_timeout = Duration::from_secs(50);
    net.nodes = (0..2).map(|node| net.node(node)).collect();
    let to = net.peer(0, 1);
    net.send(0, to, 1, 0, 300_000);
    net.run_ms(20);
    net.wire.dead = Some(1);
    net.probe_ms(5000);
    assert_eq!(net.nodes[0].rdm.counters().probes, 1);
    assert_eq!(net.nodes[0].rdm.controls.len(), 1);
    net.wire.dead = None;
    net.recv(1, None, 1, 0, 300_000);
    net.probe_ms(20_000);
    assert_eq!(net.outcomes(0), [(Kind::Send, 1, Outcome::Ok)]);
}
