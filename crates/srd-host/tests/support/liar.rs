//! A peer with the job's key. One half of its operations is correct, so that many operations are in
//! progress; the other half is false.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use srd_efa::layer::{Iov, Message, Peer, Receive, Rma, RmaIov, Selector, Shared, Until, World};
use srd_efa::rdm::{Config, Rdm};
use srd_efa::{Access, Memory};
use srd_host::Options;
use srd_net::{Application, BindOptions, Context, LocalEndpoint};
use srd_proto::config::Protection;
use srd_proto::rng::Rng;
use srd_proto::{Class, Datagram, Delivery, Duration, Event, Instant, Qpn, Status};

use super::bodies::forge::Forger;
use super::bodies::man::{Man, Rates};
use super::bodies::script::Input;

const RAM_BYTES: usize = 1 << 20;

/// Memory of the peer that sends false data. Every address and region refers to the same bytes.
struct Ram(Vec<u8>);

impl Memory for Ram {
    fn read(&mut self, _: u64, _: u64, bytes: usize) -> Bytes {
        Bytes::copy_from_slice(&self.0[..bytes])
    }

    fn write(&mut self, _: u64, _: u64, bytes: &[u8]) {
        self.0[..bytes.len()].copy_from_slice(bytes);
    }
}

struct Ears {
    rdm: Rdm,
    ram: Ram,
    man: Man,
}

impl Application for Ears {
    fn admit(&mut self, now: Instant, delivery: &Delivery<'_>) -> Status {
        let Self { rdm, ram, man } = self;
        man.meddle(0, delivery, |delivery| rdm.admit(now, delivery, ram))
    }

    fn delivered(&mut self, _: &mut Context<'_>, _: Delivery<'_>) {}

    fn event(&mut self, context: &mut Context<'_>, event: Event) {
        self.rdm.event(context.now(), &event);
    }

    fn notice(&mut self, _: srd_net::Notice) {}
}

/// A peer that sends false data.
pub(crate) struct Liar {
    local: LocalEndpoint,
    ears: Ears,
    victim: Peer,
    at: SocketAddr,
    runs: [u64; 2],
}

impl Liar {
    /// Makes a peer that sends false data to the endpoint at the address `at`, in the run `run` of
    /// this endpoint.
    pub(crate) fn new(options: &Options, (at, run): (SocketAddr, u64)) -> Self {
        let mut bind = BindOptions::at("127.0.0.1:0".parse().unwrap());
        bind.config.protection = Protection::JobKey(options.job_key.unwrap());
        bind.config.paths = options.paths;
        bind.config.packet_bytes_max = 1472;
        bind.config.peer_timeout = Duration::from_secs(1);
        let mut local = LocalEndpoint::bind(&bind).unwrap();
        let (address, own) = (local.local_address(), 99);
        let config = Config { operations_max: 64, receives_max: 64, report_remote: true, seed: 3 };
        let mut rdm = Rdm::new(config, local.core_mut().0, address, own);
        let access = Access { local_write: true, remote_write: true, remote_read: true };
        let shared = Shared { region: 1, addr: 0, length: 400_000, rkey: 5, access };
        rdm.share(shared).unwrap();
        let mut ram = Ram(vec![3; RAM_BYTES]);
        let (endpoint, now) = local.core_mut();
        let victim = rdm.add_peer(&mut World { now, endpoint, memory: &mut ram }, at, 0).unwrap();
        let ears = Ears { rdm, ram, man: Man::default() };
        Self { local, ears, victim, at, runs: [run, own] }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.local.local_address()
    }

    /// Sends false data until `stop` is set. Counts the packets that the victim's transport
    /// accepted.
    pub(crate) fn run(mut self, stop: &AtomicBool, lies: &AtomicU64) {
        let mut rng = Rng::new(11);
        for round in 0u64.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            if round % 200 == 0 {
                let mut rate = |most: u32| rng.below(most);
                let (swallow, refuse, twice) = (rate(5), rate(8), rate(5));
                let (hold, change) = (rate(5), rate(5));
                self.ears.man.rates = Rates { loss: 0, swallow, refuse, twice, hold, change };
                self.ears.man.held.clear();
            }
            self.be_honest(&mut rng);
            if rng.below(2) == 0 {
                lies.fetch_add(u64::from(self.lie(&mut rng)), Ordering::Relaxed);
            }
            self.work();
        }
    }

    fn work(&mut self) {
        let Self { local, ears, .. } = self;
        // It is possible that nothing arrives for a while.
        let until = local.now() + Duration::from_micros(100);
        local.receive(until, ears).unwrap();
        for _ in 0..8 {
            let Ears { rdm, ram, .. } = ears;
            let (endpoint, now) = local.core_mut();
            let took = rdm.pump(&mut World { now, endpoint, memory: ram });
            local.transmit(ears).unwrap();
            if !took {
                break;
            }
        }
        while self.ears.rdm.poll().is_some() {}
    }

    /// Starts a correct operation.
    fn be_honest(&mut self, rng: &mut Rng) {
        let Self { local, ears: Ears { rdm, ram, .. }, victim, .. } = self;
        let (endpoint, now) = local.core_mut();
        let world = &mut World { now, endpoint, memory: ram };
        let length = u64::from([1u32, 1000, 20_000, 200_000][rng.below(4) as usize]);
        let iov = &[Iov { addr: 0, length }];
        let tag = (rng.below(4) > 0).then_some(u64::from(rng.below(4)));
        let (to, data, context, signaled) = (*victim, None, 1, false);
        let until = Until::Delivered;
        let _ = match rng.below(4) {
            0 => rdm.send(world, Message { to, tag, iov, data, context, until, signaled }),
            1 | 2 => {
                let want = Selector { tag: 0, ignore: u64::MAX, source: None };
                let (tagged, multi) = (tag.is_some(), None);
                rdm.recv(world, Receive { tagged, want, iov, context, multi, signaled })
            }
            _ => {
                let length = length.min(4096);
                let (local, remote) =
                    (&[Iov { addr: 0, length }], &[RmaIov { addr: 0, length, rkey: 5 }]);
                let read = rng.below(2) == 0;
                rdm.rma(world, Rma { to, read, local, remote, data, context, until, signaled })
            }
        };
    }

    /// Sends false data; returns false if it cannot be sent now.
    fn lie(&mut self, rng: &mut Rng) -> bool {
        let script: Vec<u8> = (0..64).map(|_| u8::try_from(rng.below(256)).unwrap()).collect();
        let (input, man) = (&mut Input(&script), &mut self.ears.man);
        let replays = rng.below(4) == 0 && !man.templates.is_empty();
        let (imm, mut payload) = if replays {
            let known = &man.templates[rng.below(64) as usize % man.templates.len()];
            (known.imm, known.payload.clone())
        } else {
            let forged = Forger { input, man, to: 1, runs: self.runs }.forge();
            (forged.imm, forged.payload)
        };
        payload.truncate(self.local.payload_bytes_max());
        let (endpoint, now) = self.local.core_mut();
        let Some(peer) = endpoint.peer_at(self.at) else { return false };
        let datagram = Datagram {
            src_qpn: Qpn(1),
            dst_qpn: Qpn(1),
            imm,
            payload: payload.into(),
            class: Class::Bulk,
            user: 0,
        };
        endpoint.send(now, peer, datagram).is_ok()
    }
}
