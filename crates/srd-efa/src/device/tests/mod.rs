//! Devices over endpoints and a lossy wire. The name of each test is the rule that the test shows.

mod control;
mod hostile;
mod messages;
mod rdma;

use super::*;
use crate::cq::Completion;
use crate::handle::{Ah, Cq, Pd};
use crate::lossy_wire::{Arrival, Wire, address};
use crate::memory::{Memory, Sge};
use crate::mr::{Access, Mr, Registration};
use crate::qp::{QpAttr, QpInit, QpType};
use crate::wr::{RecvWr, Remote, SendOp, SendWr, Source};
use crate::{Config, PostError, WcOpcode, WcStatus};
use bytes::Bytes;
use core::net::SocketAddr;
use srd_proto::rng::Rng;
use srd_proto::{
    Config as CoreConfig, Datagram, Duration, Ecn, Endpoint, Epoch, Instant, PacketMeta, PacketRef,
    PeerConfig, PeerId, Qpn, TransmitBuf,
};
use std::vec;
use std::vec::Vec;

/// Bytes of each end's registered memory.
const RAM_BYTES: usize = 4 << 20;
/// Address of the registered memory.
const BASE: u64 = 0x7000_0000_0000;
const QKEY: u32 = 0x1234_5678;

/// Memory with one vector for each region.
#[derive(Default)]
struct Ram(Vec<Vec<u8>>);

impl Memory for Ram {
    fn read(&mut self, region: u64, offset: u64, bytes: usize) -> Bytes {
        let at = usize::try_from(offset).unwrap();
        Bytes::copy_from_slice(&self.0[usize::try_from(region).unwrap()][at..at + bytes])
    }

    fn write(&mut self, region: u64, offset: u64, bytes: &[u8]) {
        let at = usize::try_from(offset).unwrap();
        self.0[usize::try_from(region).unwrap()][at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// One end of the network: an endpoint, and a device with one object of each kind.
struct End {
    endpoint: Endpoint,
    device: Device,
    ram: Ram,
    pd: Pd,
    cq: Cq,
    mr: Mr,
    qpn: Qpn,
    /// Address handles by the number of the other end.
    ahs: Vec<Option<Ah>>,
}

struct Rig {
    ends: Vec<End>,
    now: Instant,
    wire: Wire,
}

fn everything() -> Access {
    Access { local_write: true, remote_write: true, remote_read: true }
}

fn new_endpoint(end: usize, ends: usize, epoch: u64, now: Instant) -> Endpoint {
    let config = CoreConfig {
        packet_bytes_max: 1472,
        keepalive: Duration::from_millis(50),
        peer_timeout: Duration::from_millis(500),
        ..CoreConfig::sockets()
    };
    // Each run has a different seed, and so different context numbers.
    let seed = [u8::try_from(end as u64 + 16 * epoch).unwrap(); 32];
    let mut endpoint = Endpoint::new(config, Epoch(epoch), seed, now).unwrap();
    for other in (0..ends).filter(|other| *other != end) {
        endpoint.add_peer(now, PeerConfig::at(address(other))).unwrap();
    }
    endpoint
}

impl End {
    fn new(config: Config, end: usize, ends: usize, epoch: u64, now: Instant) -> Self {
        let mut endpoint = new_endpoint(end, ends, epoch, now);
        let mut device = Device::new(config, &endpoint);
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(10_000).unwrap();
        let ram = Ram(vec![vec![0; RAM_BYTES]]);
        let registration =
            Registration { region: 0, addr: BASE, length: RAM_BYTES as u64, access: everything() };
        let mr = device.reg_mr(pd, registration).unwrap();
        let ahs = (0..ends)
            .map(|other| {
                let peer = endpoint.peer_at(address(other))?;
                Some(device.create_ah(pd, peer).unwrap())
            })
            .collect();
        let init = QpInit {
            pd,
            qp_type: QpType::Srd,
            send_cq: cq,
            recv_cq: cq,
            sq_wrs_max: 256,
            rq_wrs_max: 2048,
            inline_bytes_max: 32,
            service_level: 0,
            unsolicited_write_recv: false,
        };
        let qpn = device.create_qp(&mut endpoint, init).unwrap();
        let mut end = Self { endpoint, device, ram, pd, cq, mr, qpn, ahs };
        end.start(now, qpn, 7);
        end
    }

    fn init(&self) -> QpInit {
        self.device.qp(self.qpn).unwrap().init
    }

    fn start(&mut self, now: Instant, qpn: Qpn, rnr_retry: u8) {
        let rts = QpAttr { rnr_retry: Some(rnr_retry), ..QpAttr::rts() };
        for attr in [QpAttr::init(QKEY), QpAttr::rtr(), rts] {
            self.device.modify_qp(now, &mut self.endpoint, qpn, &attr).unwrap();
        }
    }

    fn sge(&self, offset: usize, length: usize) -> Sge {
        let length = u32::try_from(length).unwrap();
        Sge { addr: BASE + offset as u64, length, lkey: self.mr.lkey }
    }

    fn fill(&mut self, offset: usize, length: usize, seed: u32) {
        let mut rng = Rng::new(seed.into());
        for byte in &mut self.ram.0[0][offset..offset + length] {
            *byte = u8::try_from(rng.below(256)).unwrap();
        }
    }

    fn bytes(&self, offset: usize, length: usize) -> &[u8] {
        &self.ram.0[0][offset..offset + length]
    }

    fn recv(&mut self, wr_id: u64, offset: usize, length: usize) {
        let sges = [self.sge(offset, length)];
        self.device.post_recv(self.qpn, &RecvWr { wr_id, sges: &sges }).unwrap();
    }

    fn completions(&mut self) -> Vec<Completion> {
        core::iter::from_fn(|| self.device.poll_cq(self.cq)).collect()
    }

    /// Returns the statuses of the requests that have completed.
    fn statuses(&mut self) -> Vec<WcStatus> {
        self.completions().iter().map(|c| c.status).collect()
    }
}

impl Rig {
    fn new(ends: usize) -> Self {
        Self::with(ends, Config::default())
    }

    fn with(ends: usize, config: Config) -> Self {
        let now = Instant::ZERO + Duration::from_secs(1);
        Self {
            ends: (0..ends).map(|end| End::new(config, end, ends, 1, now)).collect(),
            now,
            wire: Wire::new(),
        }
    }

    fn bad(ends: usize) -> Self {
        let wire = Wire { loss_permille: 50, jitter_us: 200, ..Wire::new() };
        Self { wire, ..Self::new(ends) }
    }

    fn post(&mut self, from: usize, to: usize, wr_id: u64, op: SendOp<'_>) {
        self.try_post(from, to, wr_id, op).unwrap();
    }

    fn try_post(
        &mut self,
        from: usize,
        to: usize,
        wr_id: u64,
        op: SendOp<'_>,
    ) -> Result<(), PostError> {
        let (ah, remote_qpn) = (self.ends[from].ahs[to].unwrap(), self.ends[to].qpn);
        self.post_wr(from, SendWr { wr_id, ah, remote_qpn, remote_qkey: QKEY, op, part: false })
    }

    fn post_wr(&mut self, from: usize, wr: SendWr<'_>) -> Result<(), PostError> {
        let End { endpoint, device, ram, qpn, .. } = &mut self.ends[from];
        device.post_send(self.now, endpoint, ram, *qpn, wr)
    }

    /// Sends a registered range as a message.
    fn send(&mut self, from: usize, to: usize, wr_id: u64, offset: usize, length: usize) {
        let sges = [self.ends[from].sge(offset, length)];
        self.post(from, to, wr_id, SendOp::Send { source: Source::Gather(&sges), imm: None });
    }

    fn remote(&self, of: usize, offset: usize) -> Remote {
        Remote { addr: BASE + offset as u64, rkey: self.ends[of].mr.rkey }
    }

    fn write(&mut self, wr_id: u64, from: usize, to: usize, length: usize, imm: Option<u32>) {
        let (local, remote) = (self.ends[0].sge(from, length), self.remote(1, to));
        self.post(0, 1, wr_id, SendOp::RdmaWrite { local, remote, imm });
    }

    fn read(&mut self, wr_id: u64, to: usize, from: usize, length: usize) {
        let (local, remote) = (self.ends[0].sge(to, length), self.remote(1, from));
        self.post(0, 1, wr_id, SendOp::RdmaRead { local, remote });
    }

    fn drain(&mut self) {
        let mut buf = TransmitBuf::new(16, 65_000);
        for end in 0..self.ends.len() {
            let End { endpoint, device, ram, .. } = &mut self.ends[end];
            let mut idle_rounds = 0;
            while idle_rounds < 2 {
                let handed = device.pump(self.now, endpoint, ram);
                buf.clear();
                let transmit = endpoint.poll_transmit(self.now, &mut buf);
                idle_rounds = if handed == 0 && transmit.is_none() { idle_rounds + 1 } else { 0 };
                let Some(t) = transmit else { continue };
                self.wire.put(self.now, end, &t, &buf);
            }
            while let Some(event) = endpoint.poll_event() {
                device.event(self.now, &event);
            }
        }
    }

    fn run_ms(&mut self, ms: u64) {
        self.run(Duration::from_millis(ms));
    }

    fn run(&mut self, span: Duration) {
        let until = self.now + span;
        loop {
            self.drain();
            let timers = self.ends.iter().filter_map(|end| end.endpoint.poll_timeout());
            let next = self.wire.next().into_iter().chain(timers).min();
            let Some(next) = next.filter(|next| *next <= until) else {
                self.now = until;
                return;
            };
            self.now = self.now.max(next);
            while let Some(Arrival { to, meta, mut bytes }) = self.wire.take(self.now) {
                let End { endpoint, device, ram, .. } = &mut self.ends[to];
                let (now, whole) = (self.now, PacketRef::Whole(&mut bytes));
                endpoint.handle_packet_with(now, meta, whole, |d| device.admit(now, d, ram));
            }
            for end in &mut self.ends {
                end.endpoint.handle_timeout(self.now);
            }
        }
    }

    /// Restarts an end after a crash, without its former state.
    fn restart(&mut self, end: usize) {
        let ends = self.ends.len();
        self.ends[end] = End::new(Config::default(), end, ends, 2, self.now);
    }
}
