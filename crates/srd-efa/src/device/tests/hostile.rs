//! A peer that sends arbitrary datagrams.

use super::*;
use crate::wire::{Opaque, RdmaHeader, TRANSFERS, check_of};
use srd_proto::{Class, Event, Status};

/// A peer that sends arbitrary datagrams: the endpoint of end 0, without its device.
struct Stranger {
    rig: Rig,
    to: PeerId,
    sent: u64,
    verdicts: Vec<Status>,
}

impl Stranger {
    fn new() -> Self {
        let mut rig = Rig::new(2);
        rig.ends[1].ram.0[0].fill(0xaa);
        let to = rig.ends[0].endpoint.peer_at(address(1)).unwrap();
        Self { rig, to, sent: 0, verdicts: vec![] }
    }

    fn throw(&mut self, imm: u64, payload: &[u8]) {
        let end = &mut self.rig.ends[0];
        self.sent += 1;
        let datagram = Datagram {
            src_qpn: end.qpn,
            dst_qpn: self.rig.ends[1].qpn,
            imm,
            payload: Bytes::copy_from_slice(payload),
            class: Class::Bulk,
            user: self.sent,
        };
        self.rig.ends[0].endpoint.send(self.rig.now, self.to, datagram).unwrap();
    }

    /// Returns the statuses of the datagrams that were sent since the last call.
    fn hear(&mut self) -> Vec<Status> {
        let mut buf = TransmitBuf::new(16, 65_000);
        for _ in 0..20 {
            self.rig.now += Duration::from_micros(300);
            for (from, to) in [(0, 1), (1, 0)] {
                loop {
                    buf.clear();
                    let now = self.rig.now;
                    let Some(t) = self.rig.ends[from].endpoint.poll_transmit(now, &mut buf) else {
                        break;
                    };
                    let source = SocketAddr::new(address(from).ip(), 7471 + t.entropy.0);
                    for (head, payload) in buf.segments() {
                        let mut bytes = [head, payload].concat();
                        let meta =
                            PacketMeta { source, local: 0, ecn: Ecn::NotEct, received_at: now };
                        let End { endpoint, device, ram, .. } = &mut self.rig.ends[to];
                        let whole = PacketRef::Whole(&mut bytes);
                        let admit = |d: &srd_proto::Delivery<'_>| device.admit(now, d, ram);
                        endpoint.handle_packet_with(now, meta, whole, admit);
                    }
                }
                let now = self.rig.now;
                self.rig.ends[from].endpoint.handle_timeout(now);
            }
        }
        while let Some(event) = self.rig.ends[0].endpoint.poll_event() {
            if let Event::Completed { status, .. } = event {
                self.verdicts.push(status);
            }
        }
        core::mem::take(&mut self.verdicts)
    }

    fn untouched(&self) -> bool {
        self.rig.ends[1].ram.0[0].iter().all(|b| *b == 0xaa)
    }
}

#[test]
fn rubbish_is_refused_and_counted_and_touches_nothing() {
    let mut stranger = Stranger::new();
    let End { endpoint, qpn, .. } = &mut stranger.rig.ends[0];
    endpoint.set_rnr_retries(*qpn, 0);
    let mut rng = Rng::new(9);
    for round in 0..100 {
        for _ in 0..40 {
            let imm = rng.next_u64();
            let length = rng.below(60) as usize;
            let payload: Vec<u8> =
                (0..length).map(|_| u8::try_from(rng.below(256)).unwrap()).collect();
            stranger.throw(imm, &payload);
        }
        let verdicts = stranger.hear();
        assert_eq!(verdicts.len(), 40, "round {round}");
        assert!(verdicts.iter().all(|v| *v != Status::Ok), "round {round}");
    }
    assert!(stranger.untouched());
    let c = *stranger.rig.ends[1].device.counters();
    let refused = c.malformed + c.bad_qkey + c.bad_address + c.no_transfer + c.rnr + c.bad_qpn;
    assert_eq!(refused + c.unknown_peer + c.bad_length, 4000);
    assert!(c.malformed > 0 && c.bad_qkey > 0 && c.no_transfer > 0);
}

#[test]
fn every_truncation_of_a_request_is_refused() {
    let mut stranger = Stranger::new();
    let rkey = stranger.rig.ends[1].mr.rkey;
    let header = RdmaHeader { addr: BASE, rkey, length: 30, number: 1 }.encode();
    let check = check_of(QKEY);
    for n in 0..=header.len() {
        stranger.throw(Opaque::Write { check, imm: None, part: false }.encode(), &header[..n]);
        if n < header.len() {
            stranger.throw(Opaque::Read { check, part: false }.encode(), &header[..n]);
        }
    }
    let long = [&header[..], &[0]].concat();
    stranger.throw(Opaque::Read { check, part: false }.encode(), &long);
    let above = RdmaHeader { addr: BASE, rkey, length: 30, number: TRANSFERS }.encode();
    stranger.throw(Opaque::Read { check, part: false }.encode(), &above);
    let verdicts = stranger.hear();
    assert_eq!(verdicts, vec![Status::BadDestQpn; 51]);
    assert_eq!(stranger.rig.ends[1].device.counters().malformed, 51);
    assert!(stranger.untouched());
}

#[test]
fn an_opened_write_stays_in_its_range_whatever_offsets_say() {
    let mut stranger = Stranger::new();
    let rkey = stranger.rig.ends[1].mr.rkey;
    let open = RdmaHeader { addr: BASE + 100, rkey, length: 50, number: 1 }.encode();
    let whole = [&open[..], &[1; 10]].concat();
    stranger
        .throw(Opaque::Write { check: check_of(QKEY), imm: None, part: false }.encode(), &whole);
    assert_eq!(stranger.hear(), [Status::Ok]);
    for (offset, length) in [(50, 1), (49, 2), (u32::MAX, 1), (0, 41), (10, 0), (u32::MAX, 40)] {
        stranger.throw(Opaque::WriteData { number: 1, offset }.encode(), &vec![2; length]);
        assert_eq!(stranger.hear(), [Status::RemoteBadAddress], "{offset}, {length}");
    }
    stranger.throw(Opaque::WriteData { number: 2, offset: 10 }.encode(), &[2; 5]);
    assert_eq!(stranger.hear(), [Status::RemoteAbort], "another number");
    // Repeated bytes end the write too early, and have no other effect.
    for _ in 0..4 {
        stranger.throw(Opaque::WriteData { number: 1, offset: 0 }.encode(), &[3; 10]);
    }
    assert_eq!(stranger.hear(), [Status::Ok; 4]);
    assert_eq!(stranger.rig.ends[1].device.transfers_in().0, 0);
    let ram = &stranger.rig.ends[1].ram.0[0];
    assert!(ram[..100].iter().chain(&ram[110..]).all(|b| *b == 0xaa));
    stranger.throw(Opaque::WriteAbort { number: 1 }.encode(), &[]);
    assert_eq!(stranger.hear(), [Status::RemoteAbort]);
}

#[test]
fn an_answer_to_a_read_counts_only_from_whom_it_was_asked() {
    let mut rig = Rig::new(3);
    rig.ends[0].ram.0[0].fill(0xaa);
    rig.wire.dead = Some(1);
    rig.read(1, 0, 0, 1000); // the transfer's number is 1, because it is the first transfer
    rig.run_ms(5);
    let to = rig.ends[2].endpoint.peer_at(address(0)).unwrap();
    let words = [
        (Opaque::ReadData { number: 1, offset: 0 }, &[1; 1000][..]),
        (Opaque::ReadError { number: 1, status: 8 }, &[]),
    ];
    for (opaque, payload) in words {
        let datagram = Datagram {
            src_qpn: rig.ends[1].qpn,
            dst_qpn: rig.ends[0].qpn,
            imm: opaque.encode(),
            payload: Bytes::copy_from_slice(payload),
            class: Class::Bulk,
            user: 0,
        };
        rig.ends[2].endpoint.send(rig.now, to, datagram).unwrap();
    }
    rig.run_ms(5);
    assert_eq!(rig.ends[0].statuses(), []);
    assert!(rig.ends[0].ram.0[0].iter().all(|b| *b == 0xaa));
    assert_eq!(rig.ends[0].device.counters().no_transfer, 2);
}
