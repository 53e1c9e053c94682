//! **Writes** the planned packet, and records it as sent. The only decision in this module is the
//! path.

use core::net::SocketAddr;

use bytes::Bytes;

use super::acknowledge::BESIDE_BYTES_MAX;
use super::plan::{Blocked, Plan};
use super::timeout::FirstProbe;
use super::{
    DATAGRAM_HEADER_BYTES, INTERACTIVE_PACKETS_MAX, OutProbe, PROBES_MAX, Peer, ProbeKind, Tx,
};
use crate::config::Config;
use crate::crypto::Space;
use crate::ids::{Entropy, PathId};
use crate::send::sent_packets::{Fate, SentPacket};
use crate::shared::Shared;
use crate::time::{Duration, Instant};
use crate::transmit::{Ecn, Transmit, TransmitBuf};
use crate::wire::data::Data;
use crate::wire::greeting::{GREETING_BYTES, Greeting};
use crate::wire::probe::Probe;
use crate::wire::{
    self, FLAG_ACK, FLAG_ACK_LATER, FLAG_ACK_NOW, FLAG_GREETING, Header, Kind, RTT_UNKNOWN,
};

/// A run of packets on one path has at most the window divided by this number, at most the bytes
/// that leave in `RUN_TIME`, and at most `RUN_BYTES_MAX` bytes.
const RUN_WINDOW_PART: u64 = 4;
const RUN_TIME: Duration = Duration::from_micros(50);
const RUN_BYTES_MAX: usize = 64_000;
/// Maximum size of a packet of interactive mode behind which other datagrams wait. A packet of this
/// mode does not request an acknowledgement at once, because the next packet of the peer
/// acknowledges several.
const INTERACTIVE_BYTES_MAX: usize = 512;
/// Maximum number of packets from one request for an acknowledgement to the next, for long packets
/// of interactive mode: the round trip is measured from packets with a request.
const REQUEST_PACKETS_MAX: u64 = 128;
/// Number of pauses between attempts that are as long as the first pause. Later pauses double. If a
/// path is dead, the next attempt and its answer use another path.
const PAUSES_ALIKE: u8 = 2;
/// Maximum size of a payload that is copied behind its header, in bytes. For small payloads a copy
/// costs less than a reference count, and less than gathering each packet from two parts in the
/// kernel.
const COPIED_BYTES_MAX: usize = 2048;

impl Peer {
    /// Plans, writes and records one batch. If it returns `None`, it has written nothing.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        shared: &mut Shared,
        buf: &mut TransmitBuf,
    ) -> Option<Transmit> {
        let plan = self.plan(now, shared);
        let mut aside = None;
        let (entropy, ecn, control) = match plan {
            Plan::Nothing => {
                self.note_departure(now, &shared.node.config);
                return None;
            }
            Plan::Hello => {
                let begins = self.protected.hello_at() <= now;
                let entropy = self.write_hello(now, shared, buf, begins)?;
                aside = self.opening_to(begins);
                (entropy, Ecn::NotEct, true)
            }
            Plan::HelloReply => {
                let (to, entropy) = self.write_hello_reply(shared.node.config.paths, buf)?;
                aside = Some(to);
                (entropy, Ecn::NotEct, true)
            }
            Plan::Close => (self.write_close(now, shared, buf)?, Ecn::NotEct, true),
            Plan::Challenge => {
                aside = self.protected.roam.as_ref().map(|roam| roam.to);
                (self.write_challenge(now, shared, buf)?, Ecn::NotEct, true)
            }
            Plan::ChallengeReply => {
                (self.write_challenge_reply(now, shared, buf)?, Ecn::NotEct, true)
            }
            Plan::Ack => (self.write_ack(now, shared, buf)?, Ecn::NotEct, true),
            Plan::PathProbe => {
                // The probe may not be due any more: then plan again.
                let Some(probe) = self.tx.as_mut()?.paths.next_probe(now) else {
                    return self.poll_transmit(now, shared, buf);
                };
                let kind = ProbeKind::Path(probe.path);
                (self.write_probe(now, shared, buf, kind)?, Ecn::NotEct, true)
            }
            Plan::MtuProbe => {
                let Some((size, path)) = self.next_mtu_probe(now, shared) else {
                    return self.poll_transmit(now, shared, buf);
                };
                let kind = ProbeKind::Mtu(size, path);
                (self.write_probe(now, shared, buf, kind)?, Ecn::NotEct, true)
            }
            Plan::TailProbe => {
                aside = self.tail_probe_to();
                (self.write_probe(now, shared, buf, ProbeKind::Tail)?, Ecn::NotEct, true)
            }
            Plan::Unreliable => {
                let ecn = Ecn::NotEct;
                (self.write_unreliable(now, shared, buf)?, ecn, false)
            }
            Plan::Data(slot) => {
                // W3: Data is ECN-capable
                let ecn = if shared.node.config.ecn { Ecn::Ect } else { Ecn::NotEct };
                (self.write_run(now, shared, buf, slot)?, ecn, false)
            }
        };
        shared.stats.tx_pkts += buf.len() as u64;
        shared.stats.tx_bytes += buf.total_bytes() as u64;
        Some(Transmit {
            destination: aside.unwrap_or_else(|| self.destination(entropy)),
            entropy,
            ecn,
            segment_bytes: buf.first_segment_bytes(),
            segments: buf.len(),
            total_bytes: buf.total_bytes(),
            control,
        })
    }

    pub(super) fn header(&mut self, now: Instant, kind: Kind, number: u64, flags: u8) -> Header {
        let greeting = if self.greeted { 0 } else { FLAG_GREETING };
        Header {
            kind,
            flags: greeting | flags,
            key_phase: self.protected.session.as_mut().map_or(0, |s| s.prepare_send(now)),
            rtt_code: self.rtt_code(),
            dst_context: self.remote_context,
            #[allow(clippy::cast_possible_truncation)] // the wire carries the low half
            number: number as u32,
        }
    }

    /// Completes a segment whose bytes begin at `start`. With protection on, the payload is
    /// appended, and the bytes after the header are sealed in place. Returns `None` if the key is
    /// used up.
    pub(super) fn finish(
        &mut self,
        buf: &mut TransmitBuf,
        start: usize,
        space: Space,
        number: u64,
        payload: Bytes,
    ) -> Option<()> {
        let Some(session) = &mut self.protected.session else {
            buf.finish_segment(payload);
            return Some(());
        };
        buf.bytes.extend_from_slice(&payload);
        let sealed =
            session.seal_packet(space, number, &mut buf.bytes, start, start + wire::HEADER_BYTES);
        if sealed.is_err() {
            // S8. The key is used up and could not be replaced: a new session is needed.
            buf.bytes.truncate(start);
            self.protected.reopen = true;
            return None;
        }
        buf.finish_segment(Bytes::new());
        Some(())
    }

    /// Writes an opening.
    fn write_hello(
        &mut self,
        now: Instant,
        shared: &mut Shared,
        buf: &mut TransmitBuf,
        begins: bool,
    ) -> Option<Entropy> {
        // The silence also begins if no Hello can be created: the datagrams that wait for the
        // session must end at some time.
        let tx = self.tx.as_mut()?;
        tx.silence.begin(now);
        let body = self.hello(now, shared)?;
        bare_header(Kind::Hello, 0).encode(&mut buf.bytes);
        buf.bytes.extend_from_slice(&body);
        buf.finish_segment(Bytes::new());
        Some(self.control_paths.take_opening(shared.node.config.paths, begins))
    }

    /// Writes the answer to the peer's opening. Returns its destination and entropy.
    fn write_hello_reply(
        &mut self,
        paths: u16,
        buf: &mut TransmitBuf,
    ) -> Option<(SocketAddr, Entropy)> {
        let (entropy, again) = self.control_paths.take_answer(paths);
        let (to, context, token, answer) = self.protected.take_answer(again)?;
        bare_header(Kind::HelloReply, context).encode(&mut buf.bytes);
        buf.bytes.extend_from_slice(&token);
        buf.bytes.extend_from_slice(answer);
        buf.finish_segment(Bytes::new());
        Some((to, entropy))
    }

    pub(super) fn begin(&self, shared: &Shared, buf: &mut TransmitBuf, header: Header) {
        header.encode(&mut buf.bytes);
        if header.flags & FLAG_GREETING != 0 {
            Greeting {
                context: self.local_context,
                epoch: shared.epoch.0.saturating_add(self.epoch_bump),
                port: shared.node.config.local_port,
                features: 0,
            }
            .encode(&mut buf.bytes);
        }
    }

    /// Records when the next datagram may leave, if only the pacer delays it. If a window or credit
    /// limit delays it and no timer for a probe is set, sets the timers.
    fn note_departure(&mut self, now: Instant, config: &Config) {
        let Some(tx) = self.tx.as_deref_mut() else { return };
        let blocked = tx.plan_data(now, config);
        tx.departure_at = match blocked {
            Err(Blocked::Until(at)) => at,
            _ => Instant::FAR_FUTURE,
        };
        if blocked == Err(Blocked::Window) && tx.probe_at == Instant::FAR_FUTURE {
            tx.arm(config);
        }
    }

    pub(super) fn next_control_number(&mut self) -> u64 {
        // W5: Two number spaces
        self.control_number += 1;
        self.control_number - 1
    }

    fn write_probe(
        &mut self,
        now: Instant,
        shared: &mut Shared,
        buf: &mut TransmitBuf,
        kind: ProbeKind,
    ) -> Option<Entropy> {
        let number = self.next_control_number();
        let start = buf.head_start();
        let header = self.header(now, Kind::Probe, number, FLAG_ACK_NOW);
        self.begin(shared, buf, header);
        let tx = self.tx.as_mut()?;
        #[allow(clippy::cast_possible_truncation)] // modulo 2^32 on the wire
        Probe {
            sent_at: now.wire(),
            queued_bytes: tx.queued_bytes as u32,
            floor: tx.sent.base().0 as u32,
        }
        .encode(&mut buf.bytes, 0);
        if let ProbeKind::Mtu(size, _) = kind {
            let tag = if shared.node.config.protection.is_on() { wire::TAG_BYTES } else { 0 };
            buf.bytes.resize((start + usize::from(size) - tag).max(buf.bytes.len()), 0);
        }
        let path = match kind {
            ProbeKind::Path(path) | ProbeKind::Mtu(_, path) => path,
            ProbeKind::Tail if self.remote_context == 0 => {
                // The peer has not sent any packet yet. As with openings, one path after another is
                // used.
                let begins = !self.control_paths.has_left();
                let entropy = self.control_paths.take_opening(shared.node.config.paths, begins);
                tx.probe_due = self.control_paths.has_left();
                tx.paths.path_of(entropy)
            }
            ProbeKind::Tail => {
                tx.probe_due = false;
                let fresh = tx.fresh();
                tx.paths.pick_safe(now, fresh)
            }
        };
        if !matches!(kind, ProbeKind::Path(_)) {
            tx.paths.on_probe_sent(path);
        }
        if tx.probes.len() == PROBES_MAX {
            tx.probes.pop_front();
        }
        #[allow(clippy::cast_possible_truncation)] // the wire carries the low half
        tx.probes.push_back(OutProbe { number: number as u32, kind, path, sent_at: now });
        let entropy = tx.paths.entropy(path);
        shared.stats.probe_pkts += 1;
        self.finish(buf, start, Space::Control, number, Bytes::new())?;
        Some(entropy)
    }

    /// Writes a run of datagrams on one path. The run ends at its maximum length, when the buffer
    /// is full or the windows allow no more, before a larger datagram or a retransmission, and
    /// after a smaller datagram.
    fn write_run(
        &mut self,
        now: Instant,
        shared: &mut Shared,
        buf: &mut TransmitBuf,
        first: u32,
    ) -> Option<Entropy> {
        // P2: Path chosen at departure
        let path = self.tx.as_mut()?.pick_path(now, first);
        let mut slot = first;
        let mut size = 0;
        let mut left = shared.node.config.spray_burst_packets;
        let run_bytes = self.tx.as_ref()?.run_bytes(&shared.node.config);
        let payload_bytes = self.tx.as_ref()?.queue.held(first).payload.len();
        let mut beside = self.carries_ack(payload_bytes, &shared.node.config);
        // If the key is used up, the packets that were sealed before leave nevertheless.
        while let Some((bytes, next)) = self.write_data(now, shared, buf, slot, path, beside) {
            left -= 1;
            // A packet that carries an acknowledgement is the last of its run.
            // P6: Runs of packets on one path
            let full = beside || left == 0 || buf.total_bytes() >= run_bytes;
            if full || (size != 0 && bytes < size) {
                break;
            }
            size = bytes;
            // The next datagram joins if it may leave, fits, and is not larger.
            let Some(next) = next else { break };
            let held = self.tx.as_ref()?.queue.held(next);
            let greeting = if self.greeted { 0 } else { GREETING_BYTES };
            let next_bytes = held.payload.len() + DATAGRAM_HEADER_BYTES + greeting;
            let retransmits = held.first_psn().is_some();
            if next_bytes > size || retransmits || !buf.has_room(next_bytes) {
                break;
            }
            let with_ack = next_bytes + wire::TAG_BYTES + BESIDE_BYTES_MAX;
            beside = with_ack <= size
                && buf.has_room(with_ack)
                && self.ends_with_ack(held.payload.len(), &shared.node.config);
            slot = next;
        }
        // Once for the run: all of its packets leave at the same time.
        self.tx.as_mut()?.arm(&shared.node.config);
        let is_answered = self.tx.as_ref().is_some_and(|tx| tx.queue.peek().is_none());
        if is_answered && !beside {
            self.acknowledge_after_answer(&shared.node.config);
        }
        let tx = self.tx.as_ref().filter(|_| !buf.is_empty())?;
        Some(tx.paths.entropy(path))
    }

    /// Writes one datagram, followed by an acknowledgement if `beside` is set. Returns the packet's
    /// UDP payload bytes, and the slot of the next datagram that may leave.
    fn write_data(
        &mut self,
        now: Instant,
        shared: &mut Shared,
        buf: &mut TransmitBuf,
        slot: u32,
        path: PathId,
        beside: bool,
    ) -> Option<(usize, Option<u32>)> {
        self.first_sent_at = self.first_sent_at.min(now);
        let tx = self.tx.as_mut()?;
        // D4: A new PSN for each transmission
        let psn = tx.sent.next();
        let again = tx.queue.held(slot).first_psn().is_some();
        let bytes = tx.queue.held(slot).payload.len() + DATAGRAM_HEADER_BYTES;
        let short =
            bytes <= INTERACTIVE_BYTES_MAX && !psn.0.is_multiple_of(INTERACTIVE_PACKETS_MAX);
        let interactive = !again
            && self.to_answer > 0
            && (short || tx.ends_message(psn.0, slot, &shared.node.config));
        self.to_answer = self.to_answer.saturating_sub(1);
        tx.interactive = interactive;
        tx.queue.take(slot, psn.0, bytes);
        let record = SentPacket {
            sent_at: now,
            slot,
            bytes: u16::try_from(bytes).unwrap_or(u16::MAX),
            path,
            generation: tx.paths.generation(path),
            fate: Fate::InFlight,
            first: tx.queue.held(slot).first_psn() == Some(psn.0),
            asks: !interactive,
        };
        tx.sent.push(record);
        tx.record_departure(now, shared, bytes, again, path);
        let next = tx.plan_data(now, &shared.node.config);
        let last = matches!(next, Err(Blocked::Empty | Blocked::Window));
        let ack_flag = if interactive {
            FLAG_ACK_LATER
        } else if again || last {
            tx.requested_psn = psn.0;
            FLAG_ACK_NOW
        } else {
            0
        };
        let ack_flag = ack_flag | if beside { FLAG_ACK } else { 0 };
        let header = self.header(now, Kind::Data, psn.0, ack_flag);
        let start = buf.head_start();
        self.begin(shared, buf, header);
        let tx = self.tx.as_ref()?;
        let held = tx.queue.held(slot);
        let delta = |from: u64| u16::try_from(psn.0 - from).unwrap_or(u16::MAX);
        #[allow(clippy::cast_possible_truncation)] // modulo 2^32 on the wire
        Data {
            // D5: Identity and floor in each packet
            first_delta: delta(held.first_psn().unwrap_or(psn.0)),
            floor_delta: delta(tx.sent.base().0),
            sent_at: now.wire(),
            queued_bytes: tx.queued_bytes as u32,
            dst_qpn: held.dst_qpn.0,
            src_qpn: held.src_qpn.0,
            imm: held.imm,
        }
        .encode(&mut buf.bytes);
        if beside && let Some(rx) = self.rx.as_mut() {
            rx.write(shared, &mut buf.bytes);
        }
        let total = buf.bytes.len() - start + held.payload.len();
        let payload =
            if shared.node.config.protection.is_on() || held.payload.len() <= COPIED_BYTES_MAX {
                buf.bytes.extend_from_slice(&held.payload);
                Bytes::new()
            } else {
                held.payload.clone()
            };
        self.finish(buf, start, Space::Data, psn.0, payload)?;
        Some((total, next.ok()))
    }
}

/// Creates the header of a packet that belongs to no session.
pub(crate) fn bare_header(kind: Kind, dst_context: u32) -> Header {
    Header { kind, flags: 0, key_phase: 0, rtt_code: RTT_UNKNOWN, dst_context, number: 0 }
}

/// Number of times that a pause has doubled after `pauses` pauses without success.
fn doublings(pauses: u8) -> u8 {
    pauses.saturating_sub(PAUSES_ALIKE).min(16)
}

impl Tx {
    /// Maximum number of bytes of a run of packets on one path: a small part of the window, so that
    /// the paths stay balanced, and at most one segmentation batch.
    fn run_bytes(&self, config: &Config) -> usize {
        let most = if self.sent.in_flight_packets() == 0 {
            RUN_BYTES_MAX.min(config.run_first_bytes.into())
        } else {
            RUN_BYTES_MAX
        };
        let rate_bps = self.window.pacing_rate_bps(self.rtt.smoothed());
        let timely = rate_bps / 8 * RUN_TIME.as_nanos() / 1_000_000_000;
        usize::try_from(timely.min(self.window.bytes() / RUN_WINDOW_PART)).unwrap_or(most).min(most)
    }

    /// Whether no datagram waits behind a datagram of this many payload bytes that waits.
    pub(super) fn is_last(&self, payload_bytes: usize) -> bool {
        self.queue.unsent_bytes() <= payload_bytes as u64
    }

    /// Whether the datagram in a slot may be sent in interactive mode although it is long. It is
    /// the last of a message, and neither the window nor a credit limit is nearly used up: a sender
    /// that needs the acknowledgement to continue requests it.
    fn ends_message(&self, psn: u64, slot: u32, config: &Config) -> bool {
        let payload_bytes = self.queue.held(slot).payload.len();
        let bytes = payload_bytes + DATAGRAM_HEADER_BYTES;
        let in_flight = self.sent.in_flight_bytes() + bytes as u64;
        bytes > INTERACTIVE_BYTES_MAX
            && bytes <= config.interactive_bytes_max.into()
            && self.is_last(payload_bytes)
            && psn - self.requested_psn < REQUEST_PACKETS_MAX
            && in_flight + in_flight / 2 <= self.window.bytes()
            && !self.credit_limited
    }

    fn pick_path(&mut self, now: Instant, slot: u32) -> PathId {
        let fresh = self.fresh();
        // L4: Retransmissions first
        if self.queue.held(slot).first_psn().is_some() {
            self.paths.pick_safe(now, fresh)
        } else {
            self.paths.pick(now, fresh)
        }
    }

    fn record_departure(
        &mut self,
        now: Instant,
        shared: &mut Shared,
        bytes: usize,
        again: bool,
        path: PathId,
    ) {
        self.paths.on_sent(path);
        self.pacer.on_sent(now, bytes as u64);
        shared.stats.data_pkts += 1;
        if again {
            shared.stats.retrans_pkts += 1;
            self.retrans_pkts += 1;
            shared.stats.retrans_bytes += bytes as u64;
        }
        self.last_sent_at = now;
        self.first_probe = FirstProbe::After(now);
        self.mtu.on_departure(now);
        self.silence.begin(now);
        if self.rto_at == Instant::FAR_FUTURE {
            self.last_progress_at = now;
        }
    }

    /// Time after its transmission during which a packet and its answer may still be in transit. A
    /// packet may wait in a queue as long as congestion control allows, but no longer than the
    /// longest recent delay, or the smoothed round trip if that is longer.
    pub(super) fn tail_wait(&self) -> Duration {
        let (allowed, smoothed) = (self.window.allowed(self.credit_limited), self.rtt.smoothed());
        let queued = self.delay.longest().map_or(allowed, |d| d.max(smoothed).min(allowed));
        self.rtt.base() + queued + self.delay.spread_by_order()
    }

    /// Probes all unconfirmed paths, because a timer found the loss of a packet sent at `sent_at`.
    pub(super) fn ask_all_paths(&mut self, now: Instant, sent_at: Instant) {
        let pause = self.tail_wait().max(self.rtt.smoothed());
        self.paths.ask_all(now, sent_at, self.rtt.base(), pause);
    }

    /// Time at which lost datagrams may be sent again: at once, except after repeated losses while
    /// probes are answered.
    pub(super) fn repeats_at(&self, now: Instant, config: &Config) -> Instant {
        // E3a: Datagrams of doubtful size
        match doublings(self.futile) {
            0 => Instant::ZERO,
            n => now + self.tail_wait().times(1 << n).min(config.rto_max),
        }
    }

    /// Sets the timers for the tail probe and the retransmission timeout.
    pub(crate) fn arm(&mut self, config: &Config) {
        let Config { rto_min, rto_max, .. } = *config;
        let waits = self.sent.in_flight_packets() > 0;
        let blocked = !waits && self.queue.peek().is_some();
        if !waits && !blocked {
            self.probe_at = Instant::FAR_FUTURE;
            self.rto_at = Instant::FAR_FUTURE;
            return;
        }
        let ack_wait = config.ack_wait(self.interactive);
        let wait = self.tail_wait() + ack_wait;
        let from = self.last_sent_at.max(self.last_progress_at);
        let pauses = self.probe_backoff.max(self.futile);
        let again_at = from + wait.times(1 << doublings(pauses)).min(rto_max);
        let first_at = if waits { self.first_probe_at(ack_wait, config) } else { again_at };
        self.probe_at = first_at.min(again_at);
        // L6. The tail probe and its answer come first.
        let rto = self.rtt.timeout().max(rto_min).max(wait.times(2)) + ack_wait;
        let rto = rto.times(1 << doublings(self.rto_backoff.max(self.futile))).min(rto_max);
        self.rto_at = if waits { self.last_progress_at + rto } else { Instant::FAR_FUTURE };
    }
}
