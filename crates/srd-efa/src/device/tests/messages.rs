//! Messages: SRD and UD, receive requests, statuses, full queues.

use super::*;

#[test]
fn a_message_fills_the_oldest_request_and_says_who_sent_it() {
    let mut rig = Rig::new(2);
    rig.ends[0].fill(0, 1000, 1);
    rig.ends[1].recv(50, 4096, 2000);
    rig.ends[1].recv(51, 8192, 2000);
    let sges = [rig.ends[0].sge(0, 600), rig.ends[0].sge(600, 400)];
    let source = Source::Gather(&sges);
    rig.post(0, 1, 9, SendOp::Send { source, imm: Some(77) });
    rig.run_ms(5);
    let sent = rig.ends[0].completions();
    assert_eq!((sent[0].wr_id, sent[0].status, sent[0].opcode), (9, WcStatus::Ok, WcOpcode::Send));
    let got = rig.ends[1].completions();
    assert_eq!(got.len(), 1);
    assert_eq!((got[0].wr_id, got[0].byte_len, got[0].imm), (50, 1000, Some(77)));
    assert_eq!((got[0].src_qpn, got[0].ah), (Some(rig.ends[0].qpn), rig.ends[1].ahs[0]));
    assert_eq!(rig.ends[1].bytes(4096, 1000), rig.ends[0].bytes(0, 1000));
    assert_eq!(rig.ends[1].bytes(5096, 3000), [0; 3000], "nothing beyond the message");
}

#[test]
fn a_message_is_scattered_over_the_pieces_of_its_request() {
    let mut rig = Rig::new(2);
    rig.ends[0].fill(0, 300, 2);
    let sges = [rig.ends[1].sge(0, 100), rig.ends[1].sge(5000, 400)];
    let qpn = rig.ends[1].qpn;
    rig.ends[1].device.post_recv(qpn, &RecvWr { wr_id: 1, sges: &sges }).unwrap();
    rig.send(0, 1, 1, 0, 300);
    rig.run_ms(5);
    assert_eq!(rig.ends[1].bytes(0, 100), rig.ends[0].bytes(0, 100));
    assert_eq!(rig.ends[1].bytes(5000, 200), rig.ends[0].bytes(100, 200));
    assert_eq!(rig.ends[1].bytes(5200, 200), [0; 200]);
}

#[test]
fn on_a_bad_wire_every_message_arrives_once() {
    let mut rig = Rig::bad(2);
    rig.ends[0].fill(0, 1000, 3);
    for n in 0..500 {
        rig.ends[1].recv(n, 4096, 1000);
    }
    for n in 0..500 {
        let imm = Some(u32::try_from(n).unwrap());
        let source = Source::Inline(b"hello");
        while rig.try_post(0, 1, n, SendOp::Send { source, imm }) == Err(PostError::QueueFull) {
            rig.run_ms(1);
            let ended = rig.ends[0].completions();
            assert!(ended.iter().all(|c| c.status == WcStatus::Ok));
        }
    }
    rig.run_ms(200);
    let mut imms: Vec<u32> = rig.ends[1].completions().iter().filter_map(|c| c.imm).collect();
    assert!(!imms.is_sorted(), "the wire has reordered");
    imms.sort_unstable();
    assert_eq!(imms, (0..500).collect::<Vec<_>>());
    assert_eq!(rig.ends[0].device.counters().send_wrs, 500);
    assert_eq!(rig.ends[1].device.counters().recv_bytes, 2500);
    let named = rig.ends[0].device.counters().hw_counters(rig.ends[0].endpoint.stats());
    assert!(named.contains(&("send_bytes", 2500)) && named.contains(&("send_wrs", 500)));
}

#[test]
fn a_message_that_fits_no_datagram_is_a_local_length_error() {
    let mut rig = Rig::new(2);
    let most = rig.ends[0].endpoint.payload_bytes_max();
    rig.ends[1].recv(0, 0, 4000);
    rig.send(0, 1, 1, 0, most);
    rig.send(0, 1, 2, 0, most + 1);
    let early = rig.ends[0].completions();
    assert_eq!((early[0].wr_id, early[0].status), (2, WcStatus::LocalBadLength));
    rig.run_ms(5);
    assert_eq!(rig.ends[0].statuses(), [WcStatus::Ok]);
}

#[test]
fn without_a_receive_request_a_send_is_retried_as_often_as_was_asked() {
    let mut rig = Rig::new(2);
    let mut init = rig.ends[0].init();
    init.service_level = crate::SERVICE_LEVEL_LOW_LATENCY;
    let End { device, endpoint, .. } = &mut rig.ends[0];
    let few = device.create_qp(endpoint, init).unwrap();
    let now = rig.now;
    rig.ends[0].start(now, few, 2);
    let for_ever = core::mem::replace(&mut rig.ends[0].qpn, few);
    rig.send(0, 1, 1, 0, 10);
    rig.run_ms(50);
    assert_eq!(rig.ends[0].statuses(), [WcStatus::RemoteRnr]);
    assert_eq!(rig.ends[1].device.counters().rnr, 3);
    rig.ends[0].qpn = for_ever;
    rig.send(0, 1, 2, 0, 10);
    rig.run_ms(100);
    assert_eq!(rig.ends[0].statuses(), []);
    rig.ends[1].recv(0, 0, 10);
    rig.run_ms(200);
    assert_eq!(rig.ends[0].statuses(), [WcStatus::Ok]);
}

#[test]
fn a_request_that_is_too_small_refuses_the_message_and_stays() {
    let mut rig = Rig::new(2);
    rig.ends[1].recv(5, 0, 99);
    rig.send(0, 1, 1, 0, 100);
    rig.run_ms(5);
    assert_eq!(rig.ends[0].statuses(), [WcStatus::RemoteBadLength]);
    rig.send(0, 1, 2, 0, 99);
    rig.run_ms(5);
    assert_eq!(rig.ends[1].completions()[0].wr_id, 5);
}

#[test]
fn another_q_key_or_another_number_is_no_such_queue_pair() {
    let mut rig = Rig::new(2);
    rig.ends[1].recv(5, 0, 100);
    let (ah, qpn) = (rig.ends[0].ahs[1].unwrap(), rig.ends[1].qpn);
    let op = SendOp::Send { source: Source::Inline(b"x"), imm: None };
    let wrong_key =
        SendWr { wr_id: 1, ah, remote_qpn: qpn, remote_qkey: QKEY ^ 0x0100_0000, op, part: false };
    let nobody = SendWr { remote_qpn: Qpn(qpn.0 + 1), remote_qkey: QKEY, ..wrong_key };
    rig.post_wr(0, wrong_key).unwrap();
    rig.post_wr(0, nobody).unwrap();
    rig.run_ms(5);
    assert_eq!(rig.ends[0].statuses(), [WcStatus::RemoteBadDestQpn; 2]);
    assert_eq!(rig.ends[1].device.counters().bad_qkey, 1);
    assert_eq!(rig.ends[1].completions(), []);
}

#[test]
fn one_queue_pair_talks_to_many_peers_and_a_dead_one_holds_up_none() {
    let mut rig = Rig::new(5);
    rig.wire.dead = Some(1);
    for to in 1..5 {
        rig.ends[to].recv(0, 0, 1000);
        rig.send(0, to, to as u64, 0, 1000);
    }
    rig.run_ms(20);
    let mut reached: Vec<u64> = rig.ends[0].completions().iter().map(|c| c.wr_id).collect();
    reached.sort_unstable();
    assert_eq!(reached, [2, 3, 4]);
    rig.run_ms(2000);
    assert_eq!(rig.ends[0].statuses(), [WcStatus::UnreachRemote]);
}

#[test]
fn a_peer_that_falls_silent_is_unresponsive() {
    let mut rig = Rig::new(2);
    rig.ends[1].recv(0, 0, 10);
    rig.send(0, 1, 1, 0, 10);
    rig.run_ms(20);
    assert_eq!(rig.ends[0].statuses(), [WcStatus::Ok]);
    rig.wire.dead = Some(1);
    rig.send(0, 1, 2, 0, 10);
    rig.run_ms(2000);
    assert_eq!(rig.ends[0].statuses(), [WcStatus::UnrespRemote]);
}

#[test]
fn ud_completes_at_once_loses_without_a_word_and_leaves_room_for_a_header() {
    let mut rig = Rig::new(2);
    let now = rig.now;
    for end in &mut rig.ends {
        let init = QpInit { qp_type: QpType::Ud, ..end.init() };
        end.qpn = end.device.create_qp(&mut end.endpoint, init).unwrap();
        let qpn = end.qpn;
        end.start(now, qpn, 0);
    }
    rig.ends[0].fill(0, 100, 4);
    rig.ends[1].recv(7, 1000, 140);
    for n in 0..3 {
        rig.send(0, 1, n, 0, 100);
    }
    assert_eq!(rig.ends[0].statuses(), [WcStatus::Ok; 3]);
    rig.run_ms(20);
    let got = rig.ends[1].completions();
    assert_eq!((got.len(), got[0].byte_len), (1, 140));
    assert_eq!(rig.ends[1].bytes(1000, 40), [0; 40]);
    assert_eq!(rig.ends[1].bytes(1040, 100), rig.ends[0].bytes(0, 100));
    assert_eq!(rig.ends[1].device.counters().rnr, 2);
    let (local, remote) = (rig.ends[0].sge(0, 10), rig.remote(1, 0));
    let op = SendOp::RdmaWrite { local, remote, imm: None };
    assert_eq!(rig.try_post(0, 1, 9, op), Err(PostError::Unsupported));
}

#[test]
fn a_reliable_datagram_does_not_enter_a_ud_queue_pair() {
    let mut rig = Rig::new(2);
    let now = rig.now;
    let end = &mut rig.ends[1];
    let init = QpInit { qp_type: QpType::Ud, ..end.init() };
    end.qpn = end.device.create_qp(&mut end.endpoint, init).unwrap();
    let qpn = end.qpn;
    end.start(now, qpn, 0);
    end.recv(0, 0, 1000);
    rig.send(0, 1, 1, 0, 10);
    rig.run_ms(20);
    assert_eq!(rig.ends[0].statuses(), [WcStatus::RemoteBadDestQpn]);
}

#[test]
fn full_queues_refuse_and_a_completion_queue_never_overflows() {
    let mut rig = Rig::new(2);
    let end = &mut rig.ends[0];
    let cq = end.device.create_cq(3).unwrap();
    let init = QpInit { send_cq: cq, recv_cq: cq, sq_wrs_max: 2, rq_wrs_max: 2, ..end.init() };
    end.qpn = end.device.create_qp(&mut end.endpoint, init).unwrap();
    let (now, qpn) = (rig.now, end.qpn);
    end.start(now, qpn, 7);
    end.recv(0, 0, 10);
    let op = SendOp::Send { source: Source::Inline(b"x"), imm: None };
    rig.post(0, 1, 1, op);
    rig.post(0, 1, 2, op);
    assert_eq!(rig.try_post(0, 1, 3, op), Err(PostError::QueueFull));
    let wr = RecvWr { wr_id: 4, sges: &[] };
    assert_eq!(rig.ends[0].device.post_recv(qpn, &wr), Err(PostError::CqFull));
    for n in 0..2 {
        rig.ends[1].recv(n, 0, 10);
    }
    rig.run_ms(20);
    // The queue holds two completions of sends, and a reserved entry for the receive: it is full.
    assert_eq!(rig.try_post(0, 1, 3, op), Err(PostError::CqFull));
    assert_eq!(rig.ends[0].device.poll_cq(cq).map(|c| c.status), Some(WcStatus::Ok));
    rig.post(0, 1, 3, op);
    let long = [0; 33];
    let inline = SendOp::Send { source: Source::Inline(&long), imm: None };
    while rig.ends[0].device.poll_cq(cq).is_some() {}
    assert_eq!(rig.try_post(0, 1, 5, inline), Err(PostError::TooMany));
    rig.ends[0].device.post_recv(qpn, &wr).unwrap();
    assert_eq!(rig.ends[0].device.post_recv(qpn, &wr), Err(PostError::QueueFull));
}
