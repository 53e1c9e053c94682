//! Control verbs: dependencies between objects, limits, states, and the effects of destruction.

use super::*;
use crate::{CreateError, DestroyError, QpState};

fn modify(rig: &mut Rig, end: usize, attr: &QpAttr) {
    let End { device, endpoint, qpn, .. } = &mut rig.ends[end];
    device.modify_qp(rig.now, endpoint, *qpn, attr).unwrap();
}

#[test]
fn what_others_depend_on_is_busy() {
    let mut rig = Rig::new(2);
    let now = rig.now;
    let End { device, endpoint, pd, cq, mr, qpn, ahs, .. } = &mut rig.ends[0];
    assert_eq!(device.dealloc_pd(*pd), Err(DestroyError::Busy));
    assert_eq!(device.destroy_cq(*cq), Err(DestroyError::Busy));
    device.destroy_qp(now, endpoint, *qpn).unwrap();
    device.destroy_cq(*cq).unwrap();
    assert_eq!(device.dealloc_pd(*pd), Err(DestroyError::Busy));
    device.dereg_mr(*mr).unwrap();
    assert_eq!(device.dealloc_pd(*pd), Err(DestroyError::Busy));
    device.destroy_ah(ahs[1].unwrap()).unwrap();
    device.dealloc_pd(*pd).unwrap();
    assert_eq!(device.dealloc_pd(*pd), Err(DestroyError::NoSuchObject));
    assert_eq!(device.destroy_cq(*cq), Err(DestroyError::NoSuchObject));
    assert_eq!(device.destroy_qp(now, endpoint, *qpn), Err(DestroyError::NoSuchObject));
}

#[test]
fn every_table_has_a_bound() {
    let config =
        Config { pds_max: 2, ahs_max: 2, cqs_max: 2, mrs_max: 2, qps_max: 2, ..Config::default() };
    let mut rig = Rig::with(4, Config { ahs_max: 3, ..config });
    let end = &mut rig.ends[0];
    let device = &mut end.device;
    let other = device.alloc_pd().unwrap();
    assert_eq!(device.alloc_pd(), Err(CreateError::Full));
    let peer = end.endpoint.peer_at(address(1)).unwrap();
    assert_eq!(device.create_ah(end.pd, peer), Err(CreateError::Exists));
    assert_eq!(device.create_ah(other, peer), Err(CreateError::Full));
    device.create_cq(1).unwrap();
    assert_eq!(device.create_cq(1), Err(CreateError::Full));
    assert_eq!(device.create_cq(0), Err(CreateError::Invalid));
    let registration = Registration { region: 0, addr: 0, length: 1, access: Access::default() };
    device.reg_mr(other, registration).unwrap();
    assert_eq!(device.reg_mr(other, registration), Err(CreateError::Full));
    let init = end.init();
    let device = &mut end.device;
    device.create_qp(&mut end.endpoint, init).unwrap();
    assert_eq!(device.create_qp(&mut end.endpoint, init), Err(CreateError::Full));
    let large = QpInit { sq_wrs_max: 4097, ..init };
    assert_eq!(device.create_qp(&mut end.endpoint, large), Err(CreateError::Invalid));
}

#[test]
fn a_number_is_not_used_again_before_all_others_had_their_turn() {
    let mut rig = Rig::with(2, Config { qps_max: 8, ..Config::default() });
    let now = rig.now;
    let End { device, endpoint, qpn, .. } = &mut rig.ends[0];
    let init = device.qp(*qpn).unwrap().init;
    let mut seen = vec![];
    for _ in 0..7 {
        let new = device.create_qp(endpoint, init).unwrap();
        device.destroy_qp(now, endpoint, new).unwrap();
        assert!(!seen.contains(&new) && new != *qpn);
        seen.push(new);
    }
    assert_eq!(device.create_qp(endpoint, init), Ok(seen[0]));
}

#[test]
fn requests_are_taken_in_the_states_that_the_driver_takes_them_in() {
    let mut rig = Rig::new(2);
    let now = rig.now;
    let End { device, endpoint, qpn, .. } = &mut rig.ends[0];
    let init = device.qp(*qpn).unwrap().init;
    let fresh = device.create_qp(endpoint, init).unwrap();
    rig.ends[0].qpn = fresh;
    let op = SendOp::Send { source: Source::Inline(b"x"), imm: None };
    let wr = RecvWr { wr_id: 0, sges: &[] };
    // Each step, and whether sends and receives are accepted after it.
    let steps = [
        (None, false, false),
        (Some(QpAttr::init(QKEY)), false, true),
        (Some(QpAttr::rtr()), false, true),
        (Some(QpAttr::rts()), true, true),
        (Some(QpAttr::to(QpState::Sqd)), true, true),
        (Some(QpAttr::to(QpState::Error)), false, false),
        (Some(QpAttr::to(QpState::Reset)), false, false),
    ];
    for (attr, sends, receives) in steps {
        if let Some(attr) = attr {
            let End { device, endpoint, .. } = &mut rig.ends[0];
            device.modify_qp(now, endpoint, fresh, &attr).unwrap();
        }
        assert_eq!(rig.try_post(0, 1, 1, op).is_ok(), sends, "{attr:?}");
        assert_eq!(rig.ends[0].device.post_recv(fresh, &wr).is_ok(), receives, "{attr:?}");
    }
}

#[test]
fn a_drained_queue_pair_receives_and_keeps_its_sends() {
    let mut rig = Rig::new(2);
    modify(&mut rig, 0, &QpAttr::to(QpState::Sqd));
    rig.ends[0].recv(3, 0, 10);
    rig.ends[1].recv(4, 0, 10);
    rig.send(0, 1, 1, 0, 10);
    rig.send(1, 0, 2, 0, 10);
    rig.run_ms(20);
    let drained = rig.ends[0].completions();
    assert_eq!((drained.len(), drained[0].wr_id), (1, 3));
    modify(&mut rig, 0, &QpAttr::to(QpState::Rts));
    rig.run_ms(20);
    assert_eq!(rig.ends[0].completions()[0].wr_id, 1);
}

#[test]
fn error_flushes_both_queues_and_reset_forgets_them() {
    let mut rig = Rig::new(2);
    rig.wire.dead = Some(1);
    rig.ends[0].recv(1, 0, 10);
    rig.send(0, 1, 2, 0, 10);
    rig.write(3, 0, 0, 100_000, None);
    rig.run_ms(1);
    modify(&mut rig, 0, &QpAttr::to(QpState::Error));
    let flushed = rig.ends[0].completions();
    assert!(flushed.iter().all(|c| c.status == WcStatus::Flushed));
    let mut ids: Vec<u64> = flushed.iter().map(|c| c.wr_id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3]);
    modify(&mut rig, 0, &QpAttr::to(QpState::Reset));
    let now = rig.now;
    let qpn = rig.ends[0].qpn;
    rig.ends[0].start(now, qpn, 7);
    rig.ends[0].recv(1, 0, 10);
    rig.send(0, 1, 2, 0, 10);
    modify(&mut rig, 0, &QpAttr::to(QpState::Reset));
    rig.run_ms(2000);
    assert_eq!(rig.ends[0].completions(), []);
    // Every reserved entry was released.
    let queue = rig.ends[0].device.cqs.get(rig.ends[0].cq.0).unwrap();
    assert!(queue.has_room() && rig.ends[0].device.ops.is_empty());
}

#[test]
fn destroying_a_queue_pair_cancels_silently_and_leaves_others_alone() {
    let mut rig = Rig::new(2);
    let now = rig.now;
    let End { device, endpoint, qpn, .. } = &mut rig.ends[0];
    let init = device.qp(*qpn).unwrap().init;
    let second = device.create_qp(endpoint, init).unwrap();
    rig.ends[0].start(now, second, 7);
    let first = rig.ends[0].qpn;
    rig.send(0, 1, 1, 0, 10);
    rig.ends[0].qpn = second;
    rig.send(0, 1, 2, 0, 10);
    rig.run_ms(5);
    let End { device, endpoint, .. } = &mut rig.ends[0];
    device.destroy_qp(rig.now, endpoint, first).unwrap();
    for n in 0..2 {
        rig.ends[1].recv(n, 0, 10);
    }
    rig.run_ms(200);
    let ended = rig.ends[0].completions();
    assert_eq!((ended.len(), ended[0].wr_id, ended[0].status), (1, 2, WcStatus::Ok));
}

#[test]
fn destroying_an_address_handle_fails_what_is_outstanding_on_it_alone() {
    let mut rig = Rig::new(3);
    rig.send(0, 1, 1, 0, 10);
    rig.send(0, 2, 2, 0, 10);
    rig.run_ms(5);
    let ah = rig.ends[0].ahs[1].unwrap();
    rig.ends[0].device.destroy_ah(ah).unwrap();
    let ended = rig.ends[0].completions();
    assert_eq!((ended.len(), ended[0].wr_id, ended[0].status), (1, 1, WcStatus::Flushed));
    let op = SendOp::Send { source: Source::Inline(b"x"), imm: None };
    assert_eq!(rig.try_post(0, 1, 3, op), Err(PostError::BadAh));
    rig.ends[2].recv(0, 0, 10);
    rig.run_ms(200);
    assert_eq!(rig.ends[0].completions()[0].wr_id, 2);
}
