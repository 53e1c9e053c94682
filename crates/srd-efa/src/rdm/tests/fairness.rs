//! Limits of the memory that one peer can take from other peers, and its release after the peer has
//! ended.

use super::*;
use crate::wire::Opaque;
use srd_proto::{Delivery, Status};

impl Net {
    /// Passes a frame to a node as if another node's transport had sent it.
    fn hear(&mut self, at: usize, from: usize, check: u32, payload: &[u8]) -> Status {
        let imm = Opaque::Send { check, imm: None }.encode();
        let Node { endpoint, rdm, ram, .. } = &mut self.nodes[at];
        let peer = endpoint.peer_at(address(from)).unwrap();
        let (src_qpn, dst_qpn) = (QPN, QPN);
        let delivery = Delivery { peer, src_qpn, dst_qpn, imm, reliable: true, ce: false, payload };
        rdm.admit(self.now, &delivery, ram)
    }
}

#[test]
fn regression_a_peer_that_answers_no_read_holds_up_nobody_else() {
    let mut net = Net::new(3);
    let [liar, honest] = [1, 2].map(|node| net.peer(node, 0));
    for tag in 0..40 {
        net.send(1, liar, tag, 0, 100_000);
    }
    net.run_ms(20);
    // From now on only the liar's transport runs, and no layer above it.
    net.frozen = Some(1);
    for tag in 0..40 {
        net.recv(0, None, tag, 0, 100_000);
    }
    net.run_ms(5);
    assert!(net.done(0).is_empty());
    net.fill(2, 0, 300_000, 9);
    for n in 0..20 {
        net.recv(0, None, 100 + n, 1 << 20, 300_000);
        net.send(2, honest, 100 + n, 0, 300_000);
    }
    net.run_ms(100);
    assert_eq!(net.done(0).len(), 20, "the honest peer's messages have come");
    assert!(net.bytes(0, 1 << 20, 300_000) == net.bytes(2, 0, 300_000));
    // When the liar continues, its own messages continue too.
    net.frozen = None;
    net.run_ms(100);
    assert_eq!(net.done(0).len(), 40);
    assert!(!net.nodes[0].rdm.has_work());
}

#[test]
fn regression_a_peer_that_greets_as_ever_new_runs_has_one_number() {
    let mut net = Net::new(2);
    let to = net.peer(0, 1);
    net.send(0, to, 1, 0, 10);
    net.run_ms(5);
    let check = net.nodes[1].rdm.local_check;
    for run in 1..2000u64 {
        let hello = wire::encode::hello(u32::try_from(run).unwrap(), 5000 + run);
        net.hear(1, 0, check, &hello);
        net.on(1, |rdm, world| rdm.pump(world));
        if run % 20 == 0 {
            net.run_ms(1);
        }
    }
    let held = net.nodes[1].rdm.occupancy();
    assert_eq!(held.peers, 1, "{held:?}");
}

/// Starts a node, which sends, is added by node 0 if `named`, and ends without a notice. Returns
/// the node's number at node 0, and how many times the number had been freed.
fn visit(net: &mut Net, node: usize, named: bool) -> (Peer, u32) {
    let tag = node as u64;
    net.wire.dead = None;
    let to = net.peer(node, 0);
    net.recv(0, None, tag, 0, 10);
    net.send(node, to, tag, 0, 10);
    net.run_ms(5);
    let received = net.done(0);
    assert_eq!(received.len(), 1);
    let peer = received[0].peer.unwrap();
    let uses = net.nodes[0].rdm.uses(peer);
    assert_eq!(net.done(node).len(), 1);
    if named {
        let run = net.nodes[node].incarnation;
        let back = net.on(0, |rdm, world| rdm.add_peer(world, address(node), run).unwrap());
        net.send(0, back, tag, 0, 10);
        net.run_ms(5);
        net.done(0);
        net.on(0, |rdm, world| rdm.remove_peer(world, back));
    }
    net.wire.gone.push(node);
    net.run_ms(70_000);
    (peer, uses)
}

#[test]
fn regression_what_is_kept_about_peers_that_have_gone_is_given_back() {
    for named in [true, false] {
        let mut net = Net::new(10);
        let mut names = Vec::new();
        for node in 1..10 {
            names.push(visit(&mut net, node, named));
            net.done(0);
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 9, "a number that is used again can be told from the first");
        let rdm = &net.nodes[0].rdm;
        assert!(rdm.conn_count <= 3, "{} conns, named: {named}", rdm.conn_count);
        assert!(rdm.occupancy().peers <= 3, "{:?}", rdm.occupancy());
    }
}

#[test]
fn peers_that_only_wrote_leave_the_application_its_numbers_and_wait_for_each_other() {
    let mut net = Net::new(5);
    net.nodes[0].rdm.bounds.strangers_max = 2;
    for node in 1..4 {
        let to = net.peer(node, 0);
        net.recv(0, None, node as u64, 0, 10);
        net.send(node, to, node as u64, 0, 10);
        net.run_ms(5);
    }
    assert_eq!(net.done(0).len(), 2, "the third has to wait");
    assert!(net.nodes[0].rdm.counters().rnr > 0);
    // There is space for the peers that the application adds.
    let to = net.peer(0, 4);
    net.recv(4, None, 9, 0, 10);
    net.send(0, to, 9, 0, 10);
    net.run_ms(5);
    assert_eq!(net.done(4).len(), 1);
    // A peer that the application adds is no longer a stranger.
    net.done(0);
    net.peer(0, 1);
    net.run_ms(3000);
    assert_eq!(net.done(0).len(), 1, "the third has come");
}
