//! Reads and writes: their effects, access rights, the reasons for which they end, and their
//! largest number.

use super::*;
use crate::RDMA_BYTES_MAX;

/// Time in which a transfer starts, but cannot transfer megabytes: the first window is 128 KiB, and
/// a round trip takes 40 us.
const BRIEFLY: Duration = Duration::from_micros(100);

/// Returns lengths around one datagram and its header, and the length of many datagrams.
fn lengths(rig: &Rig) -> Vec<usize> {
    let most = rig.ends[0].endpoint.payload_bytes_max();
    vec![0, 1, most - 21, most - 20, most - 19, most, most + 1, 3 * most, 300_000]
}

#[test]
fn a_write_changes_the_peers_memory_and_nothing_beside_it() {
    for mut rig in [Rig::new(2), Rig::bad(2)] {
        rig.ends[0].fill(0, 400_000, 1);
        for (n, length) in (0..).zip(lengths(&rig)) {
            rig.ends[1].ram.0[0].fill(0);
            rig.write(n, 100, 1000, length, None);
            rig.run_ms(200);
            let ended = rig.ends[0].completions();
            assert_eq!((ended.len(), ended[0].wr_id, ended[0].status), (1, n, WcStatus::Ok));
            assert_eq!(ended[0].opcode, WcOpcode::RdmaWrite);
            assert_eq!(rig.ends[1].bytes(1000, length), rig.ends[0].bytes(100, length));
            assert_eq!(rig.ends[1].bytes(0, 1000), [0; 1000]);
            assert_eq!(rig.ends[1].bytes(1000 + length, 1000), [0; 1000]);
            assert_eq!(rig.ends[1].completions(), [], "the peer hears nothing of it");
        }
        assert_eq!(rig.ends[1].device.transfers_in(), (0, 0));
        let total: usize = lengths(&rig).iter().sum();
        let (here, there) = (rig.ends[0].device.counters(), rig.ends[1].device.counters());
        assert_eq!(here.rdma_write_bytes, total as u64);
        assert_eq!(there.rdma_write_recv_bytes, total as u64);
    }
}

#[test]
fn transfers_that_a_path_turns_out_to_be_too_narrow_for_are_cut_again() {
    for mtu_bytes in [1472, 1471, 1400, 1300] {
        let mut rig = Rig { wire: Wire { mtu_bytes, ..Wire::new() }, ..Rig::new(2) };
        rig.ends[0].fill(0, 400_000, 1);
        rig.ends[1].fill(1 << 20, 400_000, 2);
        // The path is still unknown, and the transfers are so large that most bytes wait.
        rig.write(1, 0, 0, 300_000, None);
        rig.read(2, 1 << 20, 1 << 20, 300_000);
        rig.write(3, 300_000, 300_000, 1200, None);
        rig.read(4, (1 << 20) + 300_000, (1 << 20) + 300_000, 1430);
        rig.run_ms(500);
        let mut statuses = rig.ends[0].statuses();
        assert_eq!(statuses.len(), 4, "{mtu_bytes} bytes");
        statuses.retain(|status| *status != WcStatus::Ok);
        assert_eq!(statuses, []);
        assert!(rig.ends[0].bytes(0, 301_200) == rig.ends[1].bytes(0, 301_200));
        assert!(rig.ends[0].bytes(1 << 20, 301_430) == rig.ends[1].bytes(1 << 20, 301_430));
        assert_eq!(rig.ends[1].device.transfers_in(), (0, 0));
    }
}

#[test]
fn a_read_brings_the_peers_memory() {
    for mut rig in [Rig::new(2), Rig::bad(2)] {
        rig.ends[1].fill(0, 400_000, 2);
        for (n, length) in (0..).zip(lengths(&rig)) {
            rig.ends[0].ram.0[0].fill(0);
            rig.read(n, 1000, 100, length);
            rig.run_ms(200);
            let ended = rig.ends[0].completions();
            assert_eq!((ended.len(), ended[0].wr_id, ended[0].status), (1, n, WcStatus::Ok));
            assert_eq!(rig.ends[0].bytes(1000, length), rig.ends[1].bytes(100, length));
            assert_eq!(rig.ends[0].bytes(1000 + length, 1000), [0; 1000]);
            assert_eq!(rig.ends[1].completions(), []);
        }
        assert_eq!(rig.ends[1].device.transfers_in(), (0, 0));
        let total: usize = lengths(&rig).iter().sum();
        assert_eq!(rig.ends[0].device.counters().rdma_read_bytes, total as u64);
        assert_eq!(rig.ends[1].device.counters().rdma_read_resp_bytes, total as u64);
    }
}

#[test]
fn many_transfers_share_a_bad_wire() {
    let mut rig = Rig::bad(2);
    rig.ends[0].fill(0, 1 << 20, 3);
    rig.ends[1].fill(2 << 20, 1 << 20, 4);
    for n in 0..32 {
        let at = n * 32_000;
        rig.write(n as u64, at, at, 20_000 + n * 300, None);
        rig.read(100 + n as u64, (2 << 20) + at, (2 << 20) + at, 30_000 - n * 300);
    }
    rig.run_ms(1000);
    assert_eq!(rig.ends[0].statuses(), [WcStatus::Ok; 64]);
    for n in 0..32 {
        let at = n * 32_000;
        let (wrote, read) = (20_000 + n * 300, 30_000 - n * 300);
        assert_eq!(rig.ends[1].bytes(at, wrote), rig.ends[0].bytes(at, wrote));
        let at = (2 << 20) + at;
        assert_eq!(rig.ends[0].bytes(at, read), rig.ends[1].bytes(at, read));
    }
}

#[test]
fn immediate_data_is_told_when_all_bytes_have_arrived() {
    let mut rig = Rig::bad(2);
    rig.ends[0].fill(0, 200_000, 5);
    for n in 0..4 {
        rig.ends[1].recv(n, 0, 0);
    }
    for (n, length) in (0..).zip([0, 500, 200_000]) {
        rig.write(n, 0, 1 << 20, length, Some(u32::try_from(n).unwrap() + 40));
        let got = loop {
            rig.run_ms(1);
            let got = rig.ends[1].completions();
            if !got.is_empty() {
                break got;
            }
        };
        assert_eq!((got[0].wr_id, got[0].opcode), (n, WcOpcode::RecvRdmaWithImm));
        assert_eq!(got[0].imm, Some(u32::try_from(n).unwrap() + 40));
        assert_eq!(got[0].byte_len as usize, length);
        assert_eq!(rig.ends[1].bytes(1 << 20, length), rig.ends[0].bytes(0, length));
    }
}

#[test]
fn a_write_with_immediate_data_waits_for_a_request() {
    let mut rig = Rig::new(2);
    for length in [100, 50_000] {
        rig.write(1, 0, 0, length, Some(1));
        rig.run_ms(100);
        assert_eq!(rig.ends[0].statuses(), []);
        assert!(rig.ends[1].device.counters().rnr > 0);
        rig.ends[1].recv(0, 0, 0);
        rig.run_ms(500);
        assert_eq!(rig.ends[0].statuses(), [WcStatus::Ok]);
        assert_eq!(rig.ends[1].completions().len(), 1);
    }
}

#[test]
fn unsolicited_writes_use_no_request_but_need_room_to_be_told() {
    let mut rig = Rig::new(2);
    let now = rig.now;
    let end = &mut rig.ends[1];
    let cq = end.device.create_cq(2).unwrap();
    let init = QpInit { recv_cq: cq, unsolicited_write_recv: true, ..end.init() };
    end.qpn = end.device.create_qp(&mut end.endpoint, init).unwrap();
    let qpn = end.qpn;
    end.start(now, qpn, 7);
    for n in 0..3 {
        rig.write(n, 0, 0, 10, Some(9));
    }
    rig.run_ms(20);
    assert_eq!(rig.ends[0].statuses(), [WcStatus::Ok; 2]);
    let got = rig.ends[1].device.poll_cq(cq).unwrap();
    assert!(got.unsolicited && got.imm == Some(9) && got.wr_id == 0);
    rig.run_ms(200);
    assert_eq!(rig.ends[0].statuses(), [WcStatus::Ok]);
}

#[test]
fn keys_ranges_and_rights_are_the_targets_to_judge() {
    let mut rig = Rig::new(2);
    let end = &mut rig.ends[1];
    let other = end.device.alloc_pd().unwrap();
    let register = |device: &mut Device, pd, access| {
        let registration = Registration { region: 0, addr: 0, length: 100_000, access };
        device.reg_mr(pd, registration).unwrap().rkey
    };
    let elsewhere = register(&mut end.device, other, everything());
    let nothing = register(&mut end.device, end.pd, Access::default());
    let whole = end.mr.rkey;
    let past = BASE + RAM_BYTES as u64;
    let cases = [
        Remote { addr: 0, rkey: elsewhere },
        Remote { addr: 0, rkey: nothing },
        Remote { addr: BASE, rkey: whole ^ 1 },
        Remote { addr: BASE - 1, rkey: whole },
        Remote { addr: past - 4999, rkey: whole },
        Remote { addr: u64::MAX - 3, rkey: whole },
    ];
    for remote in cases {
        for length in [5, 5000] {
            if remote.addr == past - 4999 && length == 5 {
                continue; // this size fits
            }
            let local = rig.ends[0].sge(0, length);
            rig.post(0, 1, 1, SendOp::RdmaWrite { local, remote, imm: None });
            rig.post(0, 1, 2, SendOp::RdmaRead { local, remote });
            rig.run_ms(10);
            assert_eq!(rig.ends[0].statuses(), [WcStatus::RemoteBadAddress; 2], "{remote:?}");
        }
    }
    assert_eq!(rig.ends[1].device.transfers_in(), (0, 0));
    assert!(rig.ends[1].ram.0[0].iter().all(|b| *b == 0));
    let c = rig.ends[0].device.counters();
    assert_eq!((c.rdma_write_wr_err, c.rdma_read_wr_err), (11, 11));
}

#[test]
fn rdma_needs_an_address_handle_at_the_target() {
    let mut rig = Rig::new(2);
    let ah = rig.ends[1].ahs[0].unwrap();
    rig.ends[1].device.destroy_ah(ah).unwrap();
    rig.write(1, 0, 0, 10, None);
    rig.read(2, 0, 0, 10);
    rig.run_ms(10);
    assert_eq!(rig.ends[0].statuses(), [WcStatus::RemoteUnknownPeer; 2]);
    rig.ends[1].recv(0, 0, 10);
    rig.send(0, 1, 3, 0, 10);
    rig.run_ms(10);
    assert_eq!(rig.ends[0].statuses(), [WcStatus::Ok], "a message does not");
    let got = rig.ends[1].completions();
    assert!(got[0].ah.is_none() && got[0].peer.is_some());
}

#[test]
fn local_keys_and_lengths_are_told_by_a_completion() {
    let mut rig = Rig::new(2);
    let remote = rig.remote(1, 0);
    let good = rig.ends[0].sge(0, 10);
    let bad_key = Sge { lkey: good.lkey ^ 1, ..good };
    let long = Sge { length: RDMA_BYTES_MAX + 1, ..good };
    rig.post(0, 1, 1, SendOp::RdmaWrite { local: bad_key, remote, imm: None });
    rig.post(0, 1, 2, SendOp::RdmaRead { local: bad_key, remote });
    rig.post(0, 1, 3, SendOp::RdmaWrite { local: long, remote, imm: None });
    let gathered = [bad_key];
    let source = Source::Gather(&gathered);
    rig.post(0, 1, 4, SendOp::Send { source, imm: None });
    let expected = [
        WcStatus::LocalInvalidLkey,
        WcStatus::LocalInvalidLkey,
        WcStatus::LocalBadLength,
        WcStatus::LocalInvalidLkey,
    ];
    assert_eq!(rig.ends[0].statuses(), expected);
    let qpn = rig.ends[0].qpn;
    let wr = RecvWr { wr_id: 5, sges: &gathered };
    assert_eq!(rig.ends[0].device.post_recv(qpn, &wr), Err(PostError::BadKey));
}

#[test]
fn memory_that_is_deregistered_ends_its_transfers() {
    let mut rig = Rig::new(2);
    rig.read(1, 0, 0, 3 << 20);
    rig.write(2, 0, 0, 3 << 20, None);
    rig.run(BRIEFLY);
    let mr = rig.ends[1].mr;
    rig.ends[1].device.dereg_mr(mr).unwrap();
    rig.run_ms(300);
    assert_eq!(rig.ends[0].statuses(), [WcStatus::RemoteBadAddress; 2]);
    assert_eq!(rig.ends[1].device.transfers_in(), (0, 0));
    let mut rig = Rig::new(2);
    rig.read(1, 0, 0, 3 << 20);
    rig.write(2, 0, 0, 3 << 20, None);
    rig.run(BRIEFLY);
    let mr = rig.ends[0].mr;
    rig.ends[0].device.dereg_mr(mr).unwrap();
    rig.run_ms(300);
    assert_eq!(rig.ends[0].statuses(), [WcStatus::LocalInvalidLkey; 2]);
    assert_eq!(rig.ends[1].device.transfers_in(), (0, 0));
}

#[test]
fn a_queue_pair_that_goes_aborts_the_transfers_of_its_peers() {
    let mut rig = Rig::new(2);
    rig.read(1, 0, 0, 3 << 20);
    rig.run(BRIEFLY);
    let End { device, endpoint, qpn, .. } = &mut rig.ends[1];
    device.destroy_qp(rig.now, endpoint, *qpn).unwrap();
    rig.run_ms(300);
    assert_eq!(rig.ends[0].statuses(), [WcStatus::RemoteAbort]);
    // The other direction: the initiator ends, and the target removes its state.
    let mut rig = Rig::new(2);
    rig.write(1, 0, 0, 3 << 20, None);
    rig.run(BRIEFLY);
    assert_eq!(rig.ends[1].device.transfers_in().0, 1);
    let End { device, endpoint, qpn, .. } = &mut rig.ends[0];
    device.destroy_qp(rig.now, endpoint, *qpn).unwrap();
    rig.run_ms(300);
    assert_eq!(rig.ends[1].device.transfers_in().0, 0);
    assert_eq!(rig.ends[1].device.counters().writes_forgotten, 1);
}

#[test]
fn a_peer_that_restarts_or_falls_silent_ends_its_transfers() {
    for silent in [true, false] {
        let mut rig = Rig::new(2);
        rig.read(1, 0, 0, 3 << 20);
        rig.write(2, 0, 0, 3 << 20, None);
        rig.run(BRIEFLY);
        if silent {
            rig.wire.dead = Some(0);
        } else {
            rig.restart(1);
        }
        rig.run_ms(3000);
        let ended = rig.ends[0].statuses();
        assert_eq!(ended.len(), 2);
        let expected = |s: &WcStatus| match silent {
            true => *s == WcStatus::UnrespRemote,
            false => matches!(s, WcStatus::RemoteAbort | WcStatus::RemoteBadAddress),
        };
        assert!(ended.iter().all(expected), "{ended:?}");
        assert_eq!(rig.ends[1].device.transfers_in(), (0, 0));
    }
}

#[test]
fn peers_transfers_beyond_the_bound_wait_their_turn() {
    let config = Config { writes_in_max: 2, reads_in_max: 2, ..Config::default() };
    let mut rig = Rig::with(2, config);
    rig.ends[0].fill(0, 1 << 20, 6);
    for n in 0..8 {
        rig.write(n, 0, 100_000 * usize::try_from(n).unwrap(), 100_000, None);
        rig.read(100 + n, 2 << 20, 0, 100_000);
    }
    rig.run_ms(2000);
    assert_eq!(rig.ends[0].statuses(), [WcStatus::Ok; 16]);
    assert!(rig.ends[1].device.counters().rnr > 0);
    for n in 0..8 {
        assert_eq!(rig.ends[1].bytes(100_000 * n, 100_000), rig.ends[0].bytes(0, 100_000));
    }
}

#[test]
fn a_write_that_stays_silent_gives_its_place_away() {
    let idle = Duration::from_millis(100);
    let config = Config { writes_in_max: 1, write_idle: idle, ..Config::default() };
    let mut rig = Rig::with(3, config);
    let (local, remote) = (rig.ends[2].sge(0, 1 << 20), rig.remote(1, 0));
    rig.post(2, 1, 1, SendOp::RdmaWrite { local, remote, imm: None });
    rig.run(BRIEFLY);
    assert_eq!(rig.ends[1].device.transfers_in().0, 1);
    // The initiator has ended permanently, but the target gets no event about it.
    rig.ends[2] = End::new(Config::default(), 2, 3, 1, rig.now);
    rig.wire.lose_to(2);
    rig.wire.dead = Some(2);
    rig.write(1, 0, 0, 100_000, None);
    rig.run_ms(50);
    assert_eq!(rig.ends[0].statuses(), []);
    rig.run_ms(2000);
    assert_eq!(rig.ends[0].statuses(), [WcStatus::Ok]);
    assert_eq!(rig.ends[1].device.counters().writes_forgotten, 1);
}

#[test]
fn a_message_does_not_wait_behind_a_large_transfer() {
    let mut rig = Rig::new(2);
    rig.ends[1].recv(0, 0, 10);
    rig.write(1, 0, 0, 4 << 20, None);
    while rig.ends[1].device.counters().rdma_write_recv_bytes < 1 << 19 {
        rig.run(Duration::from_micros(20));
    }
    rig.send(0, 1, 2, 0, 10);
    loop {
        rig.run(Duration::from_micros(20));
        let ended = rig.ends[0].completions();
        if let Some(first) = ended.first() {
            assert_eq!((first.wr_id, ended.len()), (2, 1));
            break;
        }
    }
    assert!(rig.ends[1].device.counters().rdma_write_recv_bytes < 3 << 20);
}

/// Regression: in an exchange, each end would start to read only after the other end has read
/// everything.
#[test]
fn regression_a_request_does_not_wait_for_what_its_target_reads() {
    const LONG: usize = 900_000;
    let mut rig = Rig::new(2);
    let (local, remote) = (rig.ends[1].sge(0, LONG), rig.remote(0, 0));
    rig.post(1, 0, 1, SendOp::RdmaRead { local, remote });
    rig.run(BRIEFLY);
    assert_eq!(rig.ends[0].device.transfers_in().1, 1, "the answer is on its way");
    rig.read(2, LONG, 0, 100);
    rig.run(BRIEFLY);
    assert_eq!(rig.ends[0].statuses(), [WcStatus::Ok]);
    assert_eq!(rig.ends[1].completions(), [], "nine tenths of the answer still wait");
    rig.run_ms(100);
    assert_eq!(rig.ends[1].statuses(), [WcStatus::Ok]);
}
