//! The attacker has the keys of the encryption, so all its datagrams are authentic.

use srd_proto::rng::Rng;
use srd_proto::{Delivery, PeerId, Qpn, Status};

/// Maximum number of frames, and of numbers, that the attacker records.
const KNOWN_MAX: usize = 64;

/// Percentage of packets or datagrams that the attacker manipulates, for each kind of manipulation.
#[derive(Clone, Copy, Default)]
pub(crate) struct Rates {
    /// Packets that are lost.
    pub(crate) loss: u32,
    /// Datagrams that are acknowledged by the transport, but not delivered to the messaging layer.
    pub(crate) swallow: u32,
    /// Datagrams that are refused with a verdict.
    pub(crate) refuse: u32,
    /// Datagrams that are delivered twice.
    pub(crate) twice: u32,
    /// Datagrams that are delayed.
    pub(crate) hold: u32,
    /// Datagrams with a changed bit.
    pub(crate) change: u32,
}

/// A recorded datagram.
#[derive(Clone)]
pub(crate) struct RecordedDatagram {
    /// Node to which it was sent.
    pub(crate) to: usize,
    pub(crate) imm: u64,
    pub(crate) payload: Vec<u8>,
}

/// State of the attacker.
pub(crate) struct Man {
    rng: Rng,
    dead: bool,
    pub(crate) rates: Rates,
    pub(crate) templates: Vec<RecordedDatagram>,
    pub(crate) held: Vec<RecordedDatagram>,
    /// Numbers from recorded frames, such as tokens, keys and addresses.
    pub(crate) words: Vec<u64>,
    /// Latest session towards each node. `id` is the next message id in it.
    pub(crate) session: [u32; 2],
    pub(crate) id: [u32; 2],
}

impl Default for Man {
    fn default() -> Self {
        Self {
            rng: Rng::new(1),
            dead: false,
            rates: Rates::default(),
            templates: Vec::new(),
            held: Vec::new(),
            words: vec![0, 1, 5, 1 << 31, 1 << 63, u64::MAX - 7, u64::MAX],
            session: [0; 2],
            id: [0; 2],
        }
    }
}

/// Creates a datagram from a peer, for the queue pair that all nodes use.
pub(crate) fn delivery(peer: PeerId, imm: u64, payload: &[u8]) -> Delivery<'_> {
    Delivery { peer, src_qpn: Qpn(1), dst_qpn: Qpn(1), imm, reliable: true, ce: false, payload }
}

impl Man {
    /// Returns an attacker that drops every packet.
    pub(crate) fn dead() -> Self {
        Self { dead: true, ..Self::default() }
    }

    fn chance(&mut self, percent: u32) -> bool {
        percent > 0 && self.rng.below(100) < percent
    }

    pub(crate) fn loses(&mut self) -> bool {
        let loss = self.rates.loss;
        self.dead || self.chance(loss)
    }

    /// Discards the delayed datagrams for a node that has ended.
    pub(crate) fn forget(&mut self, at: usize) {
        self.held.retain(|known| known.to != at);
    }

    /// Manipulates a datagram that has arrived at a node. Returns the status with which the node
    /// answers it.
    pub(crate) fn meddle(
        &mut self,
        to: usize,
        delivery: &Delivery<'_>,
        mut admit: impl FnMut(&Delivery<'_>) -> Status,
    ) -> Status {
        self.learn(to, delivery);
        let Rates { swallow, refuse, twice, hold, change, .. } = self.rates;
        if self.chance(swallow) {
            return Status::Ok;
        }
        if self.chance(refuse) {
            let all = [Status::RemoteRnr, Status::BadDestQpn, Status::RemoteBadAddress];
            let more = [Status::RemoteAbort, Status::UnknownPeer, Status::RemoteBadLength];
            let which = self.rng.below(6) as usize;
            return all.into_iter().chain(more).nth(which).unwrap_or(Status::RemoteRnr);
        }
        if self.held.len() < KNOWN_MAX && self.chance(hold) {
            self.held.push(RecordedDatagram {
                to,
                imm: delivery.imm,
                payload: delivery.payload.to_vec(),
            });
            return Status::Ok;
        }
        if self.chance(change) {
            let mut payload = delivery.payload.to_vec();
            let mut imm = delivery.imm;
            let bit = 1 << self.rng.below(8);
            match payload.len() {
                0 => imm ^= 1 << self.rng.below(64),
                length => payload[self.rng.below(length.min(64) as u32) as usize] ^= bit,
            }
            return admit(&Delivery { imm, payload: &payload, ..*delivery });
        }
        if self.chance(twice) {
            admit(delivery);
        }
        admit(delivery)
    }

    /// Records a datagram, and the numbers that it contains.
    fn learn(&mut self, to: usize, delivery: &Delivery<'_>) {
        let payload = delivery.payload;
        if self.templates.len() == KNOWN_MAX {
            self.templates.swap_remove(0);
        }
        self.templates.push(RecordedDatagram { to, imm: delivery.imm, payload: payload.to_vec() });
        for word in payload.get(8..).unwrap_or_default().chunks_exact(8).take(4) {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            if self.words.len() == KNOWN_MAX {
                self.words.swap_remove(0);
            }
            self.words.push(u64::from_be_bytes(bytes));
        }
        if let [kind, _, _, _, a, b, c, d, ..] = *payload {
            let number = u32::from_be_bytes([a, b, c, d]);
            match kind {
                1 => (self.session[to], self.id[to]) = (number, 0),
                2 => (self.session[1 - to], self.id[1 - to]) = (number, 0),
                4 | 5 | 7 => self.id[to] = number.wrapping_add(1),
                _ => {}
            }
        }
    }
}
