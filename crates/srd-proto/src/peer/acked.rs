//! Effects of an acknowledgement: datagrams complete, paths are evaluated, losses are detected, and
//! the window changes.

use super::timeout::FirstProbe;
use super::{CreditSeen, DATAGRAM_HEADER_BYTES, OutProbe, Peer, ProbeKind, Tx};
use crate::event::{Event, Status};
use crate::ids::PeerId;
use crate::path::PathLatency;
use crate::send::cc::AckSignal;
use crate::send::send_queue::DatagramState;
use crate::send::sent_packets::{Fate, SentPacket};
use crate::shared::Shared;
use crate::time::{Duration, Instant};
use crate::wire::ack::AckView;
use crate::wire::expand;

/// Sums over the packets that one acknowledgement settles or shows to be lost.
#[derive(Debug, Default)]
struct Tally {
    acked_bytes: u64,
    lost_bytes: u64,
    marked: bool,
    /// Size of the largest packet that this acknowledgement is the first to acknowledge, in bytes
    /// as windows count them.
    largest_bytes: u16,
    /// Newest packet that this acknowledgement is the first to acknowledge, with its PSN.
    newest: Option<(u64, SentPacket)>,
    progress: bool,
}

/// First pause of a sender after an RNR refusal, and longest pause.
const RNR_FIRST: Duration = Duration::from_micros(50);
const RNR_MAX: Duration = Duration::from_secs(1);
/// Number of answers in a row that show lost data without any acknowledged data, after which a loss
/// no longer causes a probe of all paths: the paths work, and the data is lost for another reason.
const FUTILE_ASKED: u8 = 2;
/// The only verdict after which a refused datagram is sent again.
const STATUS_RNR: u8 = Status::RemoteRnr as u8;

impl Peer {
    /// Processes an acknowledgement. `number`: its control number, if it is a packet of its own.
    pub(crate) fn on_ack(
        &mut self,
        now: Instant,
        ack: &AckView<'_>,
        number: Option<u32>,
        shared: &mut Shared,
    ) {
        let id = self.id;
        let Some(tx) = self.tx.as_deref_mut() else { return };
        let mut tally = Tally::default();
        let cumulative = expand(ack.head.cumulative, tx.cumulative);
        if cumulative > tx.sent.next().0 {
            return; // A6: acknowledges a PSN that was never sent
        }
        tx.take_tuples(now, ack, &mut tally);
        // D9. Before the SACK, so that a refused datagram is never treated as a delivered one.
        tx.take_verdicts(now, id, ack, shared, &mut tally);
        tx.take_sack(now, id, cumulative, ack, shared, &mut tally);
        let answered = tx.take_echo(now, ack, &mut tally);
        tx.take_credit_limit(ack, number);
        tx.paths.set_own_senders(shared.senders());
        let rtt = tx.take_rtt(now, &tally);
        tx.find_losses(now, &mut tally);
        tx.advance();
        let received = ack.head.received_bytes;
        let known =
            answered.is_none_or(|p| tx.resolve_exhaustion(&p, received, &shared.node.config));
        tx.window.on_ack(&AckSignal {
            now,
            acked_bytes: tally.acked_bytes,
            lost_bytes: tally.lost_bytes,
            marked: tally.marked,
            median: tx.delay.median(),
            rtt_base: rtt,
            in_flight_bytes: tx.sent.in_flight_bytes(),
            credit_limited: tx.credit_limited,
        });
        tx.set_pace(now, &shared.node.config);
        if tally.progress {
            tx.last_progress_at = now;
            tx.probe_backoff = 0;
            tx.first_probe = tx.first_probe.answered();
            tx.rto_backoff = 0;
            // If data is lost again and again while probes are answered, retransmissions are
            // delayed, otherwise they would follow each answer. Several answers in one round trip
            // count once. A credit limit already limits the rate.
            let futile = tally.acked_bytes == 0 && tally.lost_bytes > 0 && !tx.credit_limited;
            if tally.acked_bytes > 0 {
                tx.futile = 0;
            } else if futile && now >= tx.futile_at + tx.rtt.smoothed() {
                tx.futile = tx.futile.saturating_add(1);
                tx.futile_at = now;
            }
            tx.again_at = tx.repeats_at(now, &shared.node.config);
        }
        tx.silence.answered(now, tx.sent.in_flight_packets() > 0);
        if let (Some(session), Some(largest)) = (&mut self.protected.session, tx.largest_acked) {
            session.on_acknowledged(largest);
        }
        tx.arm(&shared.node.config);
        if tx.paths.newly_impaired(now) {
            shared.stats.impaired_remote_conn_events += 1;
        }
        if let Some((_, newest)) = tally.newest {
            let entropy = tx.paths.entropy(newest.path);
            self.on_entropy_acked(entropy);
        }
        self.on_passed(now, tally.largest_bytes, shared);
        if let Some(OutProbe { kind: ProbeKind::Mtu(size, _), .. }) = answered {
            self.on_mtu_answer(now, size, shared);
        }
        self.fail_oversize(shared);
        self.notify_writable(shared);
        if !known {
            self.give_up(now, shared);
        }
    }
}

impl Tx {
    /// Processes the path observations. This must be done before the packets that they name are
    /// settled.
    fn take_tuples(&mut self, now: Instant, ack: &AckView<'_>, tally: &mut Tally) {
        let expected = self.sent.next().0;
        for tuple in ack.tuples() {
            let psn = expand(tuple.psn, expected);
            let Some(&record) = self.sent.record(psn) else { continue };
            let delay_ns =
                self.delay.sample(now, record.bytes, tuple.delay, now.since(record.sent_at));
            let median = self.delay.median();
            let target = self.window.target();
            let late = Duration::from_nanos(delay_ns.into());
            // A path is skipped once if it is half a target later than most, and once more for each
            // further quarter. Tighter thresholds reject more paths than they find better ones
            // (`docs/perf-notes.md`).
            let quarters = (late - median).as_nanos() * 4 / target.as_nanos().max(1);
            let latency = match u8::try_from(quarters.saturating_sub(1)).unwrap_or(u8::MAX) {
                0 if (median - late).times(2) >= target => PathLatency::Early,
                0 => PathLatency::Typical,
                penalty => PathLatency::Late(penalty),
            };
            tally.marked |= tuple.ce;
            self.paths.on_delay(now, record.path, record.generation, delay_ns, latency);
        }
    }

    /// Processes the verdicts: each refused datagram fails alone, or is sent again.
    fn take_verdicts(
        &mut self,
        now: Instant,
        peer: PeerId,
        ack: &AckView<'_>,
        shared: &mut Shared,
        tally: &mut Tally,
    ) {
        let expected = self.sent.next().0;
        for verdict in ack.verdicts() {
            let psn = expand(verdict.psn, expected);
            let Some(&record) = self.sent.record(psn) else { continue };
            if record.fate == Fate::Acked || self.is_stale(&record, psn) {
                continue;
            }
            let held = self.queue.held(record.slot);
            let bytes = (held.payload.len() + DATAGRAM_HEADER_BYTES) as u64;
            let retries = shared.rnr_retries.get(&held.src_qpn).copied();
            let retries = retries.unwrap_or(shared.node.config.rnr_retries);
            // D10: RNR retries
            let retry = verdict.status == STATUS_RNR && (retries == 7 || held.rnr_count < retries);
            self.settle_acked(psn, tally);
            self.settled_bytes += bytes;
            if retry {
                self.back_off_rnr(now);
                self.queue.renew(record.slot);
                self.queued_bytes += bytes;
            } else if let Some((id, user)) = self.queue.finish(record.slot) {
                let status = Status::of_verdict(verdict.status);
                shared.events.push_back(Event::Completed { peer, id, user, status });
            }
        }
    }

    /// Delays the retries of refused datagrams after an RNR refusal: by 50 us at first, then by
    /// twice as long each time, up to a second. An accepted datagram resets the delay.
    fn back_off_rnr(&mut self, now: Instant) {
        if now < self.rnr_until {
            return;
        }
        // D10: RNR retries
        self.rnr_backoff = self.rnr_backoff.times(2).clamp(RNR_FIRST, RNR_MAX);
        self.rnr_until = now + self.rnr_backoff;
    }

    /// Whether the slot that a record names belongs to another datagram now, or is free.
    fn is_stale(&self, record: &SentPacket, psn: u64) -> bool {
        let held = self.queue.held(record.slot);
        if held.place == DatagramState::Free {
            return true;
        }
        // L8: A PSN settles its own datagram
        match held.first_psn() {
            None => true,
            Some(first) if record.first => first != psn,
            Some(first) => first > psn || held.last_psn < psn,
        }
    }

    /// Processes the packets that this acknowledgement is the first to acknowledge, by its
    /// cumulative point or its bitmap.
    fn take_sack(
        &mut self,
        now: Instant,
        peer: PeerId,
        cumulative: u64,
        ack: &AckView<'_>,
        shared: &mut Shared,
        tally: &mut Tally,
    ) {
        let next = self.sent.next().0;
        let mut psn = self.cumulative.max(self.sent.base().0);
        while psn < cumulative {
            self.cover(now, peer, psn, shared, tally);
            psn += 1;
        }
        self.cumulative = self.cumulative.max(cumulative);
        let mut start = cumulative & !63;
        for word in ack.sack() {
            let index = self.known_index(start);
            // Bits that a former turn of the ring left behind are below the base. They are
            // harmless, because `advance` clears each word as the base leaves it.
            let mut new = word & !self.known[index];
            while new != 0 {
                let psn = start + u64::from(new.trailing_zeros());
                new &= new - 1;
                if psn < next {
                    self.cover(now, peer, psn, shared, tally);
                }
            }
            start += 64;
            if start >= next {
                break;
            }
        }
    }

    fn known_index(&self, psn: u64) -> usize {
        let mask = self.known.len() as u64 - 1;
        usize::try_from((psn / 64) & mask).unwrap_or(0)
    }

    /// Records that the peer has received the packet `psn`. This completes its datagram.
    fn cover(
        &mut self,
        now: Instant,
        peer: PeerId,
        psn: u64,
        shared: &mut Shared,
        tally: &mut Tally,
    ) {
        let Some(record) = self.settle_acked(psn, tally) else { return };
        self.delay.on_arrival(self.newest_acked_sent_at.since(record.sent_at));
        self.paths.on_acked(now, record.path, record.generation, psn);
        if tally.newest.is_none_or(|(p, _)| psn > p) {
            tally.newest = Some((psn, record));
        }
        if record.fate == Fate::Lost {
            shared.stats.spurious_losses += 1;
            // L3: A wider reordering window
            self.reorder_eighths = (self.reorder_eighths + 2).min(32);
        }
        // Another packet of the same datagram may have settled the datagram, and its slot may be
        // used again.
        if self.is_stale(&record, psn) {
            return;
        }
        let held = self.queue.held(record.slot);
        let bytes = held.payload.len();
        // D7. Only an acknowledgement completes a datagram as `Ok`.
        self.settled_bytes += (bytes + DATAGRAM_HEADER_BYTES) as u64;
        self.rnr_backoff = Duration::ZERO;
        // L7. If a retransmission waits, it is withdrawn.
        let Some((id, user)) = self.queue.finish(record.slot) else { return };
        shared.stats.send_wrs += 1;
        shared.stats.send_bytes += bytes as u64;
        shared.events.push_back(Event::Completed { peer, id, user, status: Status::Ok });
    }

    fn settle_acked(&mut self, psn: u64, tally: &mut Tally) -> Option<SentPacket> {
        let record = self.sent.settle(psn, Fate::Acked)?;
        let index = self.known_index(psn);
        self.known[index] |= 1 << (psn % 64);
        tally.acked_bytes += u64::from(record.bytes);
        tally.largest_bytes = tally.largest_bytes.max(record.bytes);
        tally.progress = true;
        self.largest_acked = self.largest_acked.max(Some(psn));
        Some(record)
    }

    /// Processes the answer to a probe. It counts like the acknowledgement of a packet that was
    /// sent at the same time as the probe.
    fn take_echo(
        &mut self,
        now: Instant,
        ack: &AckView<'_>,
        tally: &mut Tally,
    ) -> Option<OutProbe> {
        let (number, _delay) = ack.head.echo?;
        let at = self.probes.iter().position(|p| p.number == number)?;
        let probe = self.probes.remove(at)?;
        tally.progress = true;
        self.newest_acked_sent_at = self.newest_acked_sent_at.max(probe.sent_at);
        self.newest_answered_sent_at = self.newest_answered_sent_at.max(probe.sent_at);
        self.paths.on_probe_answer(now, probe.path);
        Some(probe)
    }

    /// Processes the credit limit, unless a later acknowledgement has already arrived.
    fn take_credit_limit(&mut self, ack: &AckView<'_>, number: Option<u32>) {
        self.paths.set_senders(ack.head.senders);
        let limit = expand(ack.head.credit_limit_bytes, self.settled_bytes);
        let received_bytes = ack.head.received_bytes;
        // R4: Sender below its limit
        if self.credit_seen.is_some_and(|seen| seen.is_after(received_bytes, number)) {
            return;
        }
        if ack.head.credit_limited {
            // A credit limit never shrinks; a smaller one comes from an older acknowledgement that
            // arrived late.
            let known = self.credit_limited && self.credit_seen.is_some();
            self.credit_limit = if known { self.credit_limit.max(limit) } else { limit };
            self.credit_limited = true;
        } else {
            self.credit_limited = false;
        }
        let number = number.or(self.credit_seen.and_then(|seen| seen.number));
        self.credit_seen = Some(CreditSeen { received_bytes, number });
    }

    /// Measures the round trip of the newest packet that this acknowledgement is the first to
    /// acknowledge, if the packet meets the conditions of A7. Returns the base round trip.
    fn take_rtt(&mut self, now: Instant, tally: &Tally) -> Duration {
        if let Some((_, SentPacket { sent_at, bytes, asks, .. })) = tally.newest {
            self.newest_acked_sent_at = self.newest_acked_sent_at.max(sent_at);
            self.largest_packet = self.largest_packet.max(bytes);
            // A7: Round-trip samples
            if asks && u32::from(bytes) * 2 >= u32::from(self.largest_packet) {
                self.rtt.sample(now, now.since(sent_at), bytes);
            }
        }
        self.rtt.base()
    }

    /// Declares packets lost: packets that two later packets of their own path have overtaken, and
    /// packets that were sent too long before the newest packet that arrived.
    fn find_losses(&mut self, now: Instant, tally: &mut Tally) {
        let Some((mut psn, mut record)) = self.sent.oldest_in_flight() else { return };
        let deadline = self.loss_deadline();
        let newest = self.newest_acked_sent_at;
        loop {
            if record.sent_at > newest {
                return;
            }
            // L1: Overtaken on the same path
            let overtaken = record.generation == self.paths.generation(record.path)
                && psn.0 < self.paths.overtaken_twice_below(record.path);
            if overtaken || record.sent_at < deadline {
                self.lose(now, psn.0, tally);
            }
            match self.sent.next_in_flight(psn.0 + 1) {
                Some(next) => (psn, record) = next,
                None => return,
            }
        }
    }

    /// Declares a packet lost: its datagram is sent again, and its path is penalised or assumed
    /// bad.
    fn lose(&mut self, now: Instant, psn: u64, tally: &mut Tally) {
        let Some(record) = self.sent.settle(psn, Fate::Lost) else { return };
        tally.lost_bytes += u64::from(record.bytes);
        self.mtu.on_lost(now, record.bytes);
        let rtt = self.rtt.smoothed();
        self.paths.on_loss(now, record.path, record.generation, record.sent_at, rtt);
        // If probes are answered and no data is acknowledged, the cause is not a path.
        let probed = self.probe_backoff > 0 || self.first_probe == FirstProbe::Out;
        if probed && self.rto_backoff <= 1 && self.futile <= FUTILE_ASKED {
            self.ask_all_paths(now, record.sent_at);
        }
        if !self.is_stale(&record, psn) {
            // E3a: Datagrams of doubtful size
            if self.mtu.doubts(record.bytes) {
                self.queue.set_aside(record.slot);
            } else {
                self.queue.requeue(record.slot);
            }
        }
    }

    /// Declares everything in flight lost.
    pub(super) fn lose_all(&mut self, now: Instant) {
        let mut tally = Tally::default();
        while let Some((psn, _)) = self.sent.oldest_in_flight() {
            self.lose(now, psn.0, &mut tally);
        }
    }

    /// Drops the records of sent packets that are not needed any more, and clears their bits in
    /// `known`.
    fn advance(&mut self) {
        let before = self.sent.base().0;
        let queue = &self.queue;
        self.sent.advance(|record, psn| queue.is_settled(record.slot, psn.0));
        let after = self.sent.base().0;
        let mut word = before & !63;
        while word + 64 <= after {
            let index = self.known_index(word);
            self.known[index] = 0;
            word += 64;
        }
    }
}
