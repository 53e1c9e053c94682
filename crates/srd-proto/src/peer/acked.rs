//! What an acknowledgement changes: datagrams complete, paths are evaluated, losses are found,
//! the window moves.

use super::timeout::FirstProbe;
use super::{DATAGRAM_HEADER_BYTES, OutProbe, Peer, ProbeKind, Tx};
use crate::cc::AckSignal;
use crate::event::{Event, Status};
use crate::ids::PeerId;
use crate::path::PathLatency;
use crate::send_queue::Place;
use crate::sent_packets::{Fate, Sent};
use crate::shared::Shared;
use crate::time::{Duration, Instant};
use crate::wire::ack::AckView;
use crate::wire::expand;

/// What one acknowledgement added up to.
#[derive(Debug, Default)]
struct Tally {
    acked_bytes: u64,
    lost_bytes: u64,
    marked: bool,
    /// The largest packet that this acknowledgement is the first to cover, as windows count it.
    largest_bytes: u16,
    /// The newest packet that this acknowledgement is the first to cover.
    newest: Option<(u64, Sent)>,
    progress: bool,
}

/// First and longest wait after a refusal because there was no receive buffer.
const RNR_FIRST: Duration = Duration::from_micros(50);
const RNR_MAX: Duration = Duration::from_secs(1);
/// So many probes that are answered, and nothing else is, ask all paths.
const FUTILE_ASKED: u8 = 2;
/// A refusal that RNR may retry.
const STATUS_RNR: u8 = Status::RemoteRnr as u8;

impl Peer {
    /// An acknowledgement.
    pub(crate) fn on_ack(&mut self, now: Instant, ack: &AckView<'_>, shared: &mut Shared) {
        let id = self.id;
        let Some(tx) = self.tx.as_deref_mut() else { return };
        let mut tally = Tally::default();
        let cumulative = expand(ack.head.cumulative, tx.cumulative);
        if cumulative > tx.sent.next().0 {
            return; // A6: acknowledges what was never sent
        }
        tx.take_tuples(now, ack, &mut tally);
        // D9. Before the SACK, so that a refused datagram is never taken for a delivered one.
        tx.take_verdicts(now, id, ack, shared, &mut tally);
        tx.take_sack(now, id, cumulative, ack, shared, &mut tally);
        let answered = tx.take_echo(now, ack, &mut tally);
        tx.take_credit_limit(ack);
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
        tx.set_pace(&shared.node.config);
        if tally.progress {
            tx.last_progress_at = now;
            tx.probe_backoff = 0;
            tx.first_probe = tx.first_probe.answered();
            tx.rto_backoff = 0;
            // What is lost again and again while probes pass is not sent at the pace of probes.
            // Several answers in one round trip count once. Credit has a pace of its own.
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
    /// Path observations, before the records they refer to are settled.
    fn take_tuples(&mut self, now: Instant, ack: &AckView<'_>, tally: &mut Tally) {
        let expected = self.sent.next().0;
        for tuple in ack.tuples() {
            let psn = expand(tuple.psn, expected);
            let Some(&record) = self.sent.record(psn) else { continue };
            let delay_ns = self.delay.sample(now, record.bytes, tuple.delay);
            let median = self.delay.median();
            let target = self.window.target();
            let late = Duration::from_nanos(delay_ns.into());
            // A path is passed over once if it is half a target later than most, and once more
            // for each quarter beyond. Tighter thresholds throw out more paths than they find
            // better ones (`docs/perf-notes.md`).
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

    /// Datagrams that arrived and were refused: they fail alone, or are tried again.
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
            // D10
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

    /// The receiver has no buffer: refused datagrams wait 50 us, then twice as long each time
    /// until one gets through, up to a second.
    fn back_off_rnr(&mut self, now: Instant) {
        if now < self.rnr_until {
            return;
        }
        // D10
        self.rnr_backoff = self.rnr_backoff.times(2).clamp(RNR_FIRST, RNR_MAX);
        self.rnr_until = now + self.rnr_backoff;
    }

    /// Whether a record's slot has since gone to another datagram.
    fn is_stale(&self, record: &Sent, psn: u64) -> bool {
        let held = self.queue.held(record.slot);
        if held.place == Place::Free {
            return true;
        }
        // L8
        match held.first_psn() {
            None => true,
            Some(first) if record.first => first != psn,
            Some(first) => first > psn || held.last_psn < psn,
        }
    }

    /// Everything newly covered by the cumulative point and the bitmap.
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
            // Bits that a former turn of the ring left behind are below the base: harmless,
            // since `advance` clears each word as the base leaves it.
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

    /// The peer has this packet.
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
            // L3
            self.reorder_eighths = (self.reorder_eighths + 2).min(32);
        }
        // The datagram may have been settled by another of its packets, its slot reused.
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

    fn settle_acked(&mut self, psn: u64, tally: &mut Tally) -> Option<Sent> {
        let record = self.sent.settle(psn, Fate::Acked)?;
        let index = self.known_index(psn);
        self.known[index] |= 1 << (psn % 64);
        tally.acked_bytes += u64::from(record.bytes);
        tally.largest_bytes = tally.largest_bytes.max(record.bytes);
        tally.progress = true;
        self.largest_acked = self.largest_acked.max(Some(psn));
        Some(record)
    }

    /// The answer to a probe: as good as an acknowledged packet sent then.
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

    fn take_credit_limit(&mut self, ack: &AckView<'_>) {
        self.paths.set_senders(ack.head.senders);
        let limit = expand(ack.head.credit_limit_bytes, self.settled_bytes);
        // R4
        if ack.head.credit_limited {
            // Credit limits never shrink; an older acknowledgement may arrive late.
            let known = self.credit_limited && self.credit_received;
            self.credit_limit = if known { self.credit_limit.max(limit) } else { limit };
            self.credit_limited = true;
        } else {
            self.credit_limited = false;
        }
        self.credit_received = true;
    }

    /// Round trip of the newest packet covered, if it is of ordinary size; returns the base.
    fn take_rtt(&mut self, now: Instant, tally: &Tally) -> Duration {
        if let Some((_, Sent { sent_at, bytes, asks, .. })) = tally.newest {
            self.newest_acked_sent_at = self.newest_acked_sent_at.max(sent_at);
            self.largest_packet = self.largest_packet.max(bytes);
            // A7
            if asks && u32::from(bytes) * 2 >= u32::from(self.largest_packet) {
                self.rtt.sample(now, now.since(sent_at));
            }
        }
        self.rtt.base()
    }

    /// Lost is what two later packets of its own path overtook, or what was sent too long
    /// before the newest packet that arrived.
    fn find_losses(&mut self, now: Instant, tally: &mut Tally) {
        let Some((mut psn, mut record)) = self.sent.oldest_in_flight() else { return };
        let deadline = self.loss_deadline();
        let newest = self.newest_acked_sent_at;
        loop {
            if record.sent_at > newest {
                return;
            }
            // L1
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

    /// A packet is lost: its datagram goes again, its path is evaluated.
    fn lose(&mut self, now: Instant, psn: u64, tally: &mut Tally) {
        let Some(record) = self.sent.settle(psn, Fate::Lost) else { return };
        tally.lost_bytes += u64::from(record.bytes);
        self.mtu.on_lost(now, record.bytes);
        let rtt = self.rtt.smoothed();
        self.paths.on_loss(now, record.path, record.generation, record.sent_at, rtt);
        // Where probes pass and nothing else does it is not the paths.
        let probed = self.probe_backoff > 0 || self.first_probe == FirstProbe::Out;
        if probed && self.rto_backoff <= 1 && self.futile <= FUTILE_ASKED {
            self.ask_all_paths(now, record.sent_at);
        }
        if !self.is_stale(&record, psn) {
            // E3a
            if self.mtu.doubts(record.bytes) {
                self.queue.set_aside(record.slot);
            } else {
                self.queue.requeue(record.slot);
            }
        }
    }

    /// Everything in flight is lost.
    pub(super) fn lose_all(&mut self, now: Instant) {
        let mut tally = Tally::default();
        while let Some((psn, _)) = self.sent.oldest_in_flight() {
            self.lose(now, psn.0, &mut tally);
        }
    }

    /// Lets go of records that nothing needs, and clears the bits they leave.
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
