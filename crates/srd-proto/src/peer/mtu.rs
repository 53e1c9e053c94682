//! Path MTU: the largest packet that the network passes to this peer, now. It is asked for as a
//! context begins, doubted when large packets are lost and smaller ones are not, and asked for
//! again upward once it is known to be less than configured.
//!
//! | stage | what is asked | ends with |
//! |---|---|---|
//! | `Settled` | nothing | three large packets lost in a row, or eight; unproven unreliable ones |
//! | `First` | the size in use, once | an answer, or `Search` |
//! | `Search` | up to seven sizes at a time, and one that every path passes | the largest that is answered |
//! | `Raise` | the configured size, and a little more than is in use | `Settled`, or `Search` |
//!
//! A size is condemned only by a round in which smaller probes were answered and this one was not,
//! twice; eight times where any of the smaller was lost, too, or where this size has passed before.
//! On one path each time, and while no datagram as large was acknowledged. What a dead path
//! swallows, it swallows whatever its size; a queue that is full of large packets has mostly room
//! for small ones only, and now and then for a large one.

use core::net::IpAddr;

use super::{OutProbe, Peer, ProbeKind};
use crate::config::Config;
use crate::event::{Event, Status};
use crate::ids::PathId;
use crate::send_queue::Place;
use crate::shared::Shared;
use crate::time::{Duration, Instant};

/// What nearly every path passes, and a search begins at: the least IPv6 MTU less its headers.
const USUAL_MIN: u16 = 1232;
/// What every path is taken to pass: the 576 bytes that each host takes in IPv4, less its headers.
/// A search goes down to it once several rounds, the usual least among their sizes, were void.
pub(super) const WORKS_MIN: u16 = 548;
const VOIDS_USUAL: u8 = 2;
/// The search ends when it is this close.
const RESOLUTION: u16 = 16;
/// Sizes asked for together: one that passes everywhere, and seven of interest.
const SIZES: usize = 8;
/// What usual links pass: 1460, 1480 and 1500 bytes over IPv4, 1500 over IPv6; and one that only
/// larger ones do.
const USUAL: [u16; 5] = [USUAL_MIN, 1432, 1452, 1472, 1488];
/// Rounds that condemn a size, and those that do where probes that should pass were lost, too, or
/// where it has passed before.
const TRIES: u8 = 2;
const TRIES_DOUBTED: u8 = 8;
/// Packets lost in a row that raise doubt: of those larger than the usual least, and of all.
const DOUBTFUL: u8 = 3;
const DOUBTFUL_SMALL: u8 = 8;
/// Rounds in which nothing was answered at all before the question is dropped.
const VOIDS_MAX: u8 = 8;
/// The least time for an answer, and the longest.
const WAIT_MIN: Duration = Duration::from_millis(2);
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Time between two looks upward, while anything is sent.
const RAISE_EVERY: Duration = Duration::from_secs(1);
/// A larger size that lasts for less than this was not one of all paths: the next look is at twice
/// the distance, up to a most.
const RAISED_LASTS: Duration = Duration::from_secs(30);
const RAISE_EVERY_MAX: Duration = Duration::from_secs(64);
/// Large unreliable packets are sent for so long on the strength of one proof.
const PROOF_LASTS: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Settled,
    First,
    Search,
    Raise,
}

/// Packets lost in a row since one as large passed, and the smallest of them.
#[derive(Clone, Copy, Debug)]
struct Losses {
    count: u8,
    bytes: u16,
}

impl Losses {
    const NONE: Self = Self { count: 0, bytes: u16::MAX };
}

/// What is known of the size that the network passes. All sizes are UDP payload bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mtu {
    configured: u16,
    /// What a packet has beside what windows count.
    tag_bytes: u16,
    /// What datagrams must fit.
    limit: u16,
    /// The smallest size that is asked for.
    floor: u16,
    /// In a search: what is known to pass, and the least that is not known to.
    low: u16,
    high: u16,
    /// Whether `high` was found not to pass.
    bounded: bool,
    stage: Stage,
    /// The sizes of this round; zero: none. A bit for each that was answered in this try.
    sizes: [u16; SIZES],
    answered: u8,
    /// Known to pass when this try began: of the others all were asked, and the first.
    low_before: u16,
    /// The next of them to be sent.
    next: u8,
    tries: u8,
    voids: u8,
    /// Whether a probe was lost in this search that was smaller than what passes.
    lossy: bool,
    /// The path of this round.
    path: PathId,
    /// Of those larger than the usual least, and of the others above the least of all.
    large: Losses,
    small: Losses,
    /// Whether datagrams that are too large may still be held.
    culls: bool,
    /// The largest packet that passed lately, and when.
    proved_bytes: u16,
    proved_at: Instant,
    /// The largest size that has passed since one that had was found not to.
    passed_bytes: u16,
    /// When to look upward, at the next departure, and how long after that again.
    raise_at: Instant,
    raise_every: Duration,
    /// When a look upward last found more.
    raised_at: Option<Instant>,
    /// When to send the next probe.
    pub probe_at: Instant,
}

impl Mtu {
    pub(crate) fn new(config: &Config, ip: IpAddr, now: Instant) -> Self {
        let configured = config.packet_bytes_to(ip);
        let tag_bytes = super::packet_overhead(config) - super::DATAGRAM_HEADER_BYTES;
        let mut mtu = Self {
            configured,
            tag_bytes: u16::try_from(tag_bytes).unwrap_or(0),
            limit: configured,
            floor: configured.min(USUAL_MIN),
            low: configured,
            high: configured.saturating_add(1),
            bounded: false,
            stage: Stage::Settled,
            sizes: [0; SIZES],
            answered: 0,
            low_before: 0,
            next: 0,
            tries: 0,
            voids: 0,
            lossy: false,
            path: PathId(0),
            large: Losses::NONE,
            small: Losses::NONE,
            culls: false,
            proved_bytes: 0,
            proved_at: now,
            passed_bytes: 0,
            raise_at: Instant::FAR_FUTURE,
            raise_every: RAISE_EVERY,
            raised_at: None,
            probe_at: Instant::FAR_FUTURE,
        };
        // E3
        if config.mtu_discovery && configured > WORKS_MIN {
            mtu.ask_first(now);
        } else {
            // Never doubted.
            mtu.proved_bytes = u16::MAX;
        }
        mtu
    }

    /// Of a context that hibernated: the size is known.
    pub(crate) fn known(config: &Config, ip: IpAddr, now: Instant, limit: u16) -> Self {
        let mut mtu = Self::new(config, ip, now);
        if !mtu.is_fixed() {
            (mtu.limit, mtu.low, mtu.raise_at) = (limit, limit, now);
            mtu.floor = mtu.least();
            mtu.settle(now, limit);
        }
        mtu
    }

    /// What datagrams must fit, the header and the tag included.
    pub(crate) fn limit(&self) -> u16 {
        self.limit
    }

    /// Whether a packet that was lost, of so many bytes as windows count, may be too large.
    pub(crate) fn doubts(&self, bytes: u16) -> bool {
        let searches = self.stage == Stage::Search && self.low < self.limit;
        searches && bytes.saturating_add(self.tag_bytes) > self.low
    }

    fn is_fixed(&self) -> bool {
        self.proved_bytes == u16::MAX
    }

    /// Asks whether the size in use passes.
    fn ask_first(&mut self, now: Instant) {
        self.stage = Stage::First;
        self.large.bytes = self.limit;
        self.sizes = [0; SIZES];
        self.sizes[0] = self.limit;
        self.begin_round(now);
    }

    /// The least that a search begins at, below the size in use.
    fn least(&self) -> u16 {
        if self.limit > USUAL_MIN { USUAL_MIN } else { WORKS_MIN }
    }

    /// Looks for the largest size that passes, of all.
    fn search_all(&mut self, now: Instant) {
        self.floor = self.least();
        self.search(now, self.floor, self.limit.saturating_add(1));
    }

    /// Looks for the largest size between what passes and what may.
    fn search(&mut self, now: Instant, low: u16, high: u16) {
        self.stage = Stage::Search;
        (self.low, self.high, self.bounded, self.voids) = (low, high, false, 0);
        self.lossy = false;
        self.sizes = self.choose();
        self.begin_round(now);
    }

    fn begin_round(&mut self, now: Instant) {
        self.tries = 0;
        self.probe_at = now;
        self.begin_try();
    }

    fn begin_try(&mut self) {
        (self.next, self.answered, self.low_before) = (0, 0, self.low);
    }

    /// The sizes of a round, rising: the least, usual ones if they may be it, and others at equal
    /// distances; the highest itself unless it was found not to pass.
    fn choose(&self) -> [u16; SIZES] {
        let mut sizes = [0; SIZES];
        sizes[0] = self.floor;
        if !self.bounded {
            self.add(&mut sizes, self.high - 1);
        }
        if self.low == self.floor {
            USUAL.iter().for_each(|size| self.add(&mut sizes, *size));
        }
        let points = sizes.iter().map(|size| u32::from(*size == 0)).sum::<u32>();
        let span = u32::from(self.high - self.low);
        for i in 1..=points {
            let size = self.low + u16::try_from(span * i / (points + 1)).unwrap_or(0);
            self.add(&mut sizes, size);
        }
        sizes[1..].sort_unstable_by_key(|size| if *size == 0 { u16::MAX } else { *size });
        sizes
    }

    /// Puts a size into a free place of a round, if it is of interest and not there yet.
    fn add(&self, sizes: &mut [u16; SIZES], size: u16) {
        let wanted = size > self.low && size < self.high && !sizes.contains(&size);
        if let Some(free) = sizes.iter_mut().find(|free| wanted && **free == 0) {
            *free = size;
        }
    }

    /// A packet left: is it time to look upward?
    pub(crate) fn on_departure(&mut self, now: Instant) {
        if self.stage == Stage::Settled && self.limit < self.configured && now >= self.raise_at {
            self.stage = Stage::Raise;
            self.sizes = [0; SIZES];
            self.sizes[0] = self.limit.saturating_add(RESOLUTION + 1).min(self.configured);
            self.sizes[1] = self.configured;
            self.low = self.limit;
            self.begin_round(now);
        }
    }

    /// An unreliable packet of this size left, which is never acknowledged.
    pub(crate) fn on_unreliable(&mut self, now: Instant, bytes: u16) {
        self.on_departure(now);
        let proven = self.proved_bytes >= bytes && now.since(self.proved_at) < PROOF_LASTS;
        if bytes > self.least() && self.stage == Stage::Settled && !proven && !self.is_fixed() {
            self.ask_first(now);
        }
    }

    /// A datagram's packet was lost, of so many bytes as windows count.
    pub(crate) fn on_lost(&mut self, now: Instant, bytes: u16) {
        let bytes = bytes.saturating_add(self.tag_bytes);
        if bytes <= WORKS_MIN || bytes > self.limit || self.is_fixed() {
            return;
        }
        let settled = self.stage == Stage::Settled;
        let losses = if bytes > USUAL_MIN { &mut self.large } else { &mut self.small };
        losses.count = losses.count.saturating_add(1);
        if settled {
            losses.bytes = losses.bytes.min(bytes);
        }
        let doubted = self.large.count >= DOUBTFUL || self.small.count >= DOUBTFUL_SMALL;
        if settled && doubted {
            if self.large.count < DOUBTFUL {
                self.large.bytes = self.large.bytes.min(self.small.bytes);
            }
            self.search_all(now);
        }
    }

    /// A datagram's packet was acknowledged: what is as large passes, whatever became of probes.
    fn on_passed(&mut self, now: Instant, bytes: u16) {
        let bytes = bytes.saturating_add(self.tag_bytes);
        if self.is_fixed() {
            return;
        }
        if bytes >= self.proved_bytes || now.since(self.proved_at) >= PROOF_LASTS {
            (self.proved_bytes, self.proved_at) = (bytes, now);
        }
        self.passed_bytes = self.passed_bytes.max(bytes);
        if bytes >= self.small.bytes {
            self.small = Losses::NONE;
        }
        if bytes < self.large.bytes {
            return;
        }
        self.large = Losses::NONE;
        let doubted = match self.stage {
            Stage::First => true,
            Stage::Search => self.doubts(u16::MAX),
            Stage::Settled | Stage::Raise => false,
        };
        if doubted {
            self.settle(now, self.limit);
        }
    }

    /// The end of a search.
    fn settle(&mut self, now: Instant, limit: u16) {
        let before = self.limit;
        self.limit = limit.min(self.configured);
        if self.limit > before {
            self.raised_at = Some(now);
        } else if self.limit < before {
            self.fell(now);
        }
        // A doubt that comes to nothing does not put off the look upward.
        self.raise_at = self.raise_at.min(now + self.raise_every);
        self.stage = Stage::Settled;
        (self.large, self.small) = (Losses::NONE, Losses::NONE);
        self.probe_at = Instant::FAR_FUTURE;
    }

    /// Less passes than before. If a look upward had just found more, that was true of some paths
    /// only, and each such look costs what is lost until it is taken back (E3b).
    fn fell(&mut self, now: Instant) {
        let lasted = self.raised_at.take().map_or(RAISED_LASTS, |raised| now.since(raised));
        self.raise_every = if lasted < RAISED_LASTS {
            self.raise_every.times(2).min(RAISE_EVERY_MAX)
        } else {
            RAISE_EVERY
        };
        self.raise_at = now + self.raise_every;
    }

    /// A probe of `size` was answered.
    fn on_answer(&mut self, now: Instant, size: u16) {
        if self.is_fixed() {
            return;
        }
        if let Some(at) = self.sizes.iter().position(|asked| *asked == size) {
            self.answered |= 1 << at;
        }
        if size >= self.proved_bytes || now.since(self.proved_at) >= PROOF_LASTS {
            (self.proved_bytes, self.proved_at) = (size, now);
        }
        self.passed_bytes = self.passed_bytes.max(size);
        match self.stage {
            Stage::First if size >= self.limit => self.settle(now, self.limit),
            Stage::Search => self.on_found(now, size),
            Stage::Settled | Stage::Raise if size >= self.configured => self.settle(now, size),
            Stage::Settled | Stage::Raise if size > self.limit => {
                self.search(now, size, self.configured.saturating_add(1));
            }
            _ => {}
        }
    }

    fn on_found(&mut self, now: Instant, size: u16) {
        if size >= self.high {
            (self.high, self.bounded) = (self.configured.saturating_add(1), false);
        }
        self.low = self.low.max(size);
        if self.low + 1 >= self.high {
            self.settle(now, self.low);
        }
    }

    /// The wait for a round's answers is over.
    fn end_wait(&mut self, now: Instant) {
        match self.stage {
            Stage::First => self.search_all(now),
            Stage::Search => self.evaluate_round(now),
            Stage::Settled | Stage::Raise => self.probe_at = Instant::FAR_FUTURE,
        }
    }

    /// Whether the usual least is asked for, and nothing was ever answered.
    fn is_floored_by_usual(&self) -> bool {
        let is_unheard = self.tries == 0 && !self.bounded && self.low == self.floor;
        is_unheard && self.floor > WORKS_MIN && self.voids >= VOIDS_USUAL
    }

    fn evaluate_round(&mut self, now: Instant) {
        if self.answered == 0 {
            // If nothing passes, the size is not the reason.
            self.voids += 1;
            self.begin_try();
            if self.voids >= VOIDS_MAX {
                self.settle(now, self.limit);
            } else if self.is_floored_by_usual() {
                // E3
                (self.floor, self.low) = (WORKS_MIN, WORKS_MIN);
                self.sizes = self.choose();
                self.begin_round(now);
            }
            return;
        }
        self.tries += 1;
        self.lossy |= (0..SIZES).any(|at| self.was_asked(at) && self.is_missed(at));
        // E3
        let unanswered = self.sizes[1..].iter().copied().find(|size| *size > self.low);
        let has_passed = unanswered.is_some_and(|size| size <= self.passed_bytes);
        let tries = if self.lossy || has_passed { TRIES_DOUBTED } else { TRIES };
        if unanswered.is_some() && self.tries < tries {
            self.begin_try();
            return;
        }
        if let Some(size) = unanswered {
            (self.high, self.bounded) = (size, true);
        }
        if has_passed {
            self.passed_bytes = 0;
        }
        if self.high - self.low <= RESOLUTION {
            self.settle(now, self.low);
        } else {
            self.sizes = self.choose();
            self.begin_round(now);
        }
    }

    /// Whether a size is, or was, part of this try.
    fn was_asked(&self, at: usize) -> bool {
        self.sizes[at] > 0 && (at == 0 || self.sizes[at] > self.low_before)
    }

    /// Whether a probe that should have passed was not answered.
    fn is_missed(&self, at: usize) -> bool {
        self.sizes[at] <= self.low && self.answered & 1 << at == 0
    }

    /// The next size of the try.
    fn take_size(&mut self) -> Option<u16> {
        let at = (self.next.into()..SIZES).find(|at| self.was_asked(*at))?;
        self.next = u8::try_from(at + 1).unwrap_or(u8::MAX);
        Some(self.sizes[at])
    }

    /// Whether every size of the try was sent.
    fn is_sent(&self) -> bool {
        !(self.next.into()..SIZES).any(|at| self.was_asked(at))
    }

    /// How long a round's answers may take.
    fn wait(&self, timeout: Duration, config: &Config) -> Duration {
        let least = WAIT_MIN.max(config.rto_min.times(5));
        timeout.max(least).times(1 << self.voids.min(VOIDS_MAX)).min(WAIT_MAX)
    }
}

impl Peer {
    /// The size to ask for now, and the path to ask on.
    pub(super) fn next_mtu_probe(
        &mut self,
        now: Instant,
        shared: &mut Shared,
    ) -> Option<(u16, PathId)> {
        let tx = self.tx.as_deref_mut()?;
        if tx.mtu.is_sent() {
            let before = tx.mtu.limit;
            tx.mtu.end_wait(now);
            self.apply_mtu(before, shared);
        }
        let tx = self.tx.as_deref_mut()?;
        if tx.mtu.probe_at > now {
            return None;
        }
        if tx.mtu.next == 0 {
            // Answers to what was asked before would be taken for answers to this.
            tx.probes.retain(|p: &OutProbe| !matches!(p.kind, ProbeKind::Mtu(..)));
            let fresh = tx.fresh();
            tx.mtu.path = tx.paths.pick_safe(now, fresh);
        }
        let size = tx.mtu.take_size()?;
        if tx.mtu.is_sent() {
            tx.mtu.probe_at = if tx.mtu.stage == Stage::Raise {
                tx.mtu.stage = Stage::Settled;
                tx.mtu.raise_at = now + tx.mtu.raise_every;
                Instant::FAR_FUTURE
            } else {
                now + tx.mtu.wait(tx.rtt.timeout(), &shared.node.config)
            };
        }
        Some((size, tx.mtu.path))
    }

    /// A probe of `size` was answered.
    pub(super) fn on_mtu_answer(&mut self, now: Instant, size: u16, shared: &mut Shared) {
        let Some(tx) = self.tx.as_deref_mut() else { return };
        let before = tx.mtu.limit;
        tx.mtu.on_answer(now, size);
        self.apply_mtu(before, shared);
    }

    /// A packet of so many bytes, as windows count, was acknowledged.
    pub(super) fn on_passed(&mut self, now: Instant, bytes: u16, shared: &mut Shared) {
        if let Some(tx) = self.tx.as_deref_mut().filter(|_| bytes > 0) {
            let before = tx.mtu.limit;
            tx.mtu.on_passed(now, bytes);
            self.apply_mtu(before, shared);
        }
    }

    /// Releases what waited for the end of a search, reports a new size, and begins to fail
    /// what is too large now.
    fn apply_mtu(&mut self, before: u16, shared: &mut Shared) {
        let Some(tx) = self.tx.as_deref_mut() else { return };
        let configured_bytes = tx.mtu.configured;
        if !tx.mtu.doubts(u16::MAX) {
            tx.queue.take_back();
        }
        let works_bytes = tx.mtu.limit;
        if works_bytes == before {
            return;
        }
        (tx.futile, tx.again_at) = (0, Instant::ZERO);
        let event = Event::PathMtu { peer: self.id, works_bytes, configured_bytes };
        shared.events.push_back(event);
        if works_bytes < before {
            tx.mtu.culls = true;
            self.fail_oversize(shared);
        }
    }

    /// Fails what is held, not under way, and known never to get through. What is under way fails
    /// when it is found to be lost, which a probe now asks for.
    pub(super) fn fail_oversize(&mut self, shared: &mut Shared) {
        let overhead = super::packet_overhead(&shared.node.config);
        let Some(tx) = self.tx.as_deref_mut().filter(|tx| tx.mtu.culls) else { return };
        let limit = usize::from(tx.mtu.limit) - overhead;
        let mut under_way = false;
        for slot in tx.queue.slots(None) {
            let held = tx.queue.held(slot);
            let bytes = held.payload.len();
            if bytes <= limit {
                continue;
            }
            if held.place == Place::InFlight {
                under_way = true;
                continue;
            }
            // D13. It never arrived: for the receiver it was never queued. Its completion may have
            // been given, when its queue pair was closed.
            tx.queued_bytes -= (bytes + super::DATAGRAM_HEADER_BYTES) as u64;
            if let Some((id, user)) = tx.queue.finish(slot) {
                let status = Status::LocalBadLength;
                shared.events.push_back(Event::Completed { peer: self.id, id, user, status });
            }
        }
        tx.mtu.culls = under_way;
        tx.probe_due |= under_way && tx.probes.iter().all(|p| p.kind != ProbeKind::Tail);
        tx.arm(&shared.node.config);
    }

    /// The size of packet that this peer takes now, of UDP payload bytes.
    pub(crate) fn packet_bytes_max(&self, config: &Config) -> u16 {
        let hibernated = self.hibernated.as_ref().map(|kept| kept.mtu_limit());
        let working = self.tx.as_ref().map(|tx| tx.mtu.limit());
        working.or(hibernated).unwrap_or_else(|| config.packet_bytes_to(self.address.ip()))
    }

    /// The most payload that one datagram to this peer carries.
    pub(crate) fn payload_bytes_max(&self, config: &Config) -> usize {
        usize::from(self.packet_bytes_max(config)) - super::packet_overhead(config)
    }
}

#[cfg(test)]
mod tests;
