//! Decodes and dispatches packets: data into the receive window, acknowledgements and probes to
//! their handlers.

use alloc::collections::VecDeque;

use super::{DATAGRAM_HEADER_BYTES, ECHOES_MAX, INTERACTIVE_PACKETS_MAX, Peer, Refusal, Rx};
use crate::error::DropReason;
use crate::event::Status;
use crate::received::Arrival;
use crate::shared::Shared;
use crate::time::Instant;
use crate::transmit::{Ecn, PacketMeta};
use crate::wire::ack::Tuple;
use crate::wire::data::Data;
use crate::wire::probe::Probe;
use crate::wire::{FLAG_ACK_LATER, FLAG_ACK_NOW, Header, expand};

/// Number of answers to one probe. They use different paths, because one path may be dead.
const ANSWERS: usize = 2;

/// Result of processing a data packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Accepted {
    /// The datagram is new and is delivered.
    Deliver,
    /// The packet was recorded, and no datagram is delivered.
    Noted,
}

/// A data packet, decoded.
pub(crate) struct DataPacket<'a> {
    pub header: &'a Header,
    pub data: Data,
    pub payload_bytes: usize,
}

impl Peer {
    /// Processes a data packet. `verdict` returns the status with which the destination queue pair
    /// and the layer above accept or refuse the datagram. It is called for new datagrams only.
    pub(crate) fn on_data(
        &mut self,
        now: Instant,
        meta: &PacketMeta,
        packet: &DataPacket<'_>,
        shared: &mut Shared,
        verdict: impl FnOnce() -> Status,
    ) -> Result<Accepted, DropReason> {
        let DataPacket { header, data, payload_bytes } = *packet;
        let tuples_max = usize::from(shared.node.config.ack_tuples_max);
        let rx = self.rx(&shared.node.config);
        let psn = expand(header.number, rx.received.highest());
        let floor = psn.checked_sub(data.floor_delta.into()).ok_or(DropReason::Malformed)?;
        let first = psn - u64::from(data.first_delta);
        let arrival = rx.received.classify(psn, first, floor);
        match arrival {
            Arrival::Outside => return Err(DropReason::OutsideWindow),
            Arrival::Replay => {
                // Our acknowledgement may have been lost: send another.
                rx.ack_now = true;
                return Err(DropReason::Replay);
            }
            Arrival::New | Arrival::Duplicate => {}
        }
        // The floor is moved first, because this removes verdicts that are settled.
        rx.move_floor(floor);
        let status = if arrival == Arrival::New {
            verdict()
        } else {
            // D9. Another packet of a refused datagram gets the same verdict.
            let before = rx.verdicts.iter().find(|r| r.first == first);
            before.map_or(Status::Ok, |r| r.status)
        };
        if status != Status::Ok {
            // E6. The window limits this list: each verdict is about another PSN of the window.
            rx.verdicts.push(Refusal { psn, first, status });
        }
        rx.received.record(psn, first);
        rx.observe(meta, psn, &data, tuples_max);
        let bytes = (payload_bytes + DATAGRAM_HEADER_BYTES) as u64;
        if psn + 1 == rx.received.highest() {
            rx.share.queued = expand(data.queued_bytes, rx.share.queued);
        }
        rx.note_for_ack(now, header, bytes, meta.ecn, shared);
        if arrival == Arrival::Duplicate {
            shared.stats.rx_duplicates += 1;
            rx.ack_now = true;
            return Ok(Accepted::Noted);
        }
        // R2: Credit counts bytes once
        rx.share.received += bytes;
        if status == Status::Ok {
            self.to_answer = self.to_answer.saturating_add(1).min(INTERACTIVE_PACKETS_MAX);
            Ok(Accepted::Deliver)
        } else {
            // D8: A refusal fails one datagram
            if status == Status::RemoteRnr {
                shared.stats.rx_rnr += 1;
            }
            rx.ack_now = true;
            Ok(Accepted::Noted)
        }
    }

    /// Processes a probe. Every probe is answered at once, whatever its purpose.
    pub(crate) fn on_probe(
        &mut self,
        meta: &PacketMeta,
        header: &Header,
        probe: &Probe,
        shared: &Shared,
    ) {
        let rx = self.rx(&shared.node.config);
        rx.share.queued = rx.share.queued.max(expand(probe.queued_bytes, rx.share.queued));
        let floor = expand(probe.floor, rx.received.cumulative());
        // A9. A floor beyond all received PSNs would empty the window. Therefore it is accepted
        // only up to one window beyond the highest PSN.
        if floor <= rx.received.highest() + u64::from(shared.node.config.window_packets_max) {
            rx.move_floor(floor);
        }
        rx.newest_port = meta.source.port();
        let delay = meta.received_at.wire().wrapping_sub(probe.sent_at);
        // A8: Answers to probes
        for _ in 0..ANSWERS {
            push_bounded(&mut rx.echoes, (header.number, delay));
        }
        rx.ack_now = true;
    }
}

fn push_bounded(echoes: &mut VecDeque<(u32, u32)>, echo: (u32, u32)) {
    if echoes.len() == ECHOES_MAX {
        echoes.pop_front();
    }
    echoes.push_back(echo);
}

impl Rx {
    /// Moves the floor of the receive window. The sender has settled everything below it, so the
    /// verdicts on PSNs below the floor have arrived there.
    fn move_floor(&mut self, floor: u64) {
        self.received.advance_floor(floor);
        self.verdicts.retain(|r| r.psn >= floor);
    }

    /// Keeps a path observation for the next acknowledgement. Consecutive packets from one source
    /// port used one path. They leave one observation, that of the newest packet.
    fn observe(&mut self, meta: &PacketMeta, psn: u64, data: &Data, tuples_max: usize) {
        let delay = meta.received_at.wire().wrapping_sub(data.sent_at);
        #[allow(clippy::cast_possible_truncation)] // the wire carries the low half
        let mut tuple = Tuple { psn: psn as u32, delay, ce: meta.ecn == Ecn::Ce };
        let port = meta.source.port();
        self.newest_port = port;
        // A3: Observations in an Ack
        let same_path = port == self.last_source_port;
        self.last_source_port = port;
        if same_path && let Some(last) = self.tuples.last_mut() {
            tuple.ce |= last.ce;
            *last = tuple;
        } else if self.tuples.len() < tuples_max {
            self.tuples.push(tuple);
        } else {
            // The list is full: the oldest observation is dropped. Its packet is still in the SACK.
            self.tuples.rotate_left(1);
            if let Some(last) = self.tuples.last_mut() {
                *last = tuple;
            }
        }
    }

    fn note_for_ack(
        &mut self,
        now: Instant,
        header: &Header,
        bytes: u64,
        ecn: Ecn,
        shared: &Shared,
    ) {
        self.unacked_packets = self.unacked_packets.saturating_add(1);
        self.unacked_bytes = self.unacked_bytes.saturating_add(u32::try_from(bytes).unwrap_or(0));
        // A2: Time of an Ack
        let config = &shared.node.config;
        // A full list of observations is reported at once if a packet was marked. Each mark alone
        // does not make an acknowledgement due, because the observations contain all marks.
        let enough = self.unacked_packets >= config.ack_packets
            || self.unacked_bytes >= config.ack_bytes
            || ecn == Ecn::Ce && self.tuples.len() >= usize::from(config.ack_tuples_max);
        if enough || header.flags & FLAG_ACK_NOW != 0 {
            self.ack_now = true;
        } else {
            let wait = config.ack_wait(header.flags & FLAG_ACK_LATER != 0);
            self.ack_due = self.ack_due.min(now + wait);
        }
    }
}
