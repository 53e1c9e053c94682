//! Faults that the soak test found; each test is named after the fault.

use super::*;
use crate::OFFER_QPN;
use crate::order::OrderCounts;
use crate::wire::offer::Offer;
use srd_proto::Delivery;

fn id_of(end: &End) -> PeerId {
    end.endpoint.peer_at(outer(1)).unwrap()
}

#[test]
fn regression_peers_that_come_and_go_leave_nothing_in_the_table_of_flows() {
    let mut rig = Rig::new(Config { flows_max: 4, ..settings() }, settings());
    for round in 0..50u16 {
        let end = &mut rig.ends[0];
        end.express.remove_peer(end.peer);
        end.endpoint.remove_peer(rig.now, id_of(end));
        let id = end.endpoint.add_peer(rig.now, known(1)).unwrap();
        let peer = PeerSettings { id, allowed: vec![inner(1)], express: true, express_udp: true };
        end.peer = end.express.add_peer(rig.now, peer);
        for port in 0..8 {
            rig.send(0, &udp(1, 100 * round + port + 1));
        }
        rig.run_ms(1500);
        let (known, _) = rig.ends[0].express.flow_counts();
        assert!(known <= 4, "{known} flows in round {round}");
    }
}

#[test]
fn regression_a_flow_takes_a_new_number_when_its_peer_was_removed() {
    let mut rig = Rig::both();
    for n in 0..300 {
        rig.send(0, &tcp(n));
        if n % 20 == 0 {
            rig.run_ms(1);
        }
    }
    rig.run_ms(20);
    let end = &mut rig.ends[0];
    end.endpoint.remove_peer(rig.now, id_of(end));
    end.express.remove_peer(end.peer);
    // Meanwhile the other end restarts without its state.
    rig.epoch += 1;
    rig.ends[1] = stage(1, rig.epoch, rig.now, &settings());
    rig.wire.lose_all();
    let end = &mut rig.ends[0];
    let id = end.endpoint.add_peer(rig.now, known(1)).unwrap();
    let peer = PeerSettings { id, allowed: vec![inner(1)], express: true, express_udp: true };
    end.peer = end.express.add_peer(rig.now, peer);
    rig.run_ms(2000);
    assert_eq!(rig.reach(0), Reach::Express { udp: true, tunnels: false });
    for n in 300..400 {
        rig.send(0, &tcp(n));
    }
    rig.run_ms(20);
    assert_eq!(numbers(&rig.ends[1].guest.0), (300..400).collect::<Vec<_>>());
    assert_eq!(rig.ends[1].express.counters().order, OrderCounts::default());
}

#[test]
fn regression_an_offer_of_the_peer_does_not_keep_a_change_of_ours_from_it() {
    let mut rig = Rig::both();
    let (now, end) = (rig.now, &mut rig.ends[0]);
    end.express.set_express(now, end.peer, false, false);
    // Before our offer leaves, an offer of the peer arrives, which needs no answer.
    let (peer, src_qpn, dst_qpn) = (id_of(end), OFFER_QPN, OFFER_QPN);
    let payload = &Offer { express: true, udp: true, ..Offer::default() }.encode();
    let delivery = Delivery { peer, src_qpn, dst_qpn, imm: 0, reliable: true, ce: false, payload };
    end.express.delivered(now, &delivery, &mut end.guest);
    rig.run_ms(20);
    assert_eq!(rig.reach(1), Reach::Off);
}
