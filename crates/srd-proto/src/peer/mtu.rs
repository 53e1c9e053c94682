//! Path MTU: the largest packet that the network passes to this peer at present. It is probed when
//! a context begins. It is doubted when large packets are lost and smaller ones are not. While it
//! is less than configured, larger sizes are probed from time to time.
//!
//! | stage | probes | ends with |
//! |---|---|---|
//! | `Settled` | none | 3 large or 8 small successive losses; unreliable packets of unproven size |
//! | `First` | the size in use, once | an answer, or `Search` |
//! | `Search` | up to seven sizes at once, and one that every path passes | the largest answered |
//! | `Raise` | the configured size, and a little more than is in use | `Settled`, or `Search` |
//!
//! Two rounds of probes, each on one path, show that a size does not pass: probes of smaller sizes
//! are answered, and none of this size. Eight rounds are needed if a smaller probe was lost, or if
//! the size passed before: a dead path loses all probes, and full queues have space for small ones.

use core::net::IpAddr;

use super::{OutProbe, Peer, ProbeKind};
use crate::config::Config;
use crate::event::{Event, Status};
use crate::ids::PathId;
use crate::send::send_queue::DatagramState;
use crate::shared::Shared;
use crate::time::{Duration, Instant};

/// Size at which a search begins: the minimum IPv6 MTU less headers, which passes nearly
/// everywhere.
const USUAL_MIN: u16 = 1232;
/// Size that every path is assumed to pass: the 576 bytes that each IPv4 host accepts, less
/// headers. A search uses it after several rounds without any answer from `USUAL_MIN` up.
pub(super) const WORKS_MIN: u16 = 548;
/// Number of rounds without any answer after which a search uses [`WORKS_MIN`].
const VOIDS_USUAL: u8 = 2;
/// Distance between a size that passes and the next that does not, at which a search ends.
const RESOLUTION: u16 = 16;
/// Number of sizes in a round: one that passes everywhere, and seven under test.
const SIZES: usize = 8;
/// Sizes that usual links pass (1460, 1480, 1500 over IPv4, 1500 over IPv6), and a larger size.
const USUAL: [u16; 5] = [USUAL_MIN, 1432, 1452, 1472, 1488];
/// Number of rounds without an answer after which a size counts as not passing.
const TRIES: u8 = 2;
/// Value of [`TRIES`] if smaller probes were lost as well, or if the size has passed before.
const TRIES_DOUBTED: u8 = 8;
/// Number of packets larger than `USUAL_MIN`, lost in a row, that begin a search.
const DOUBTFUL: u8 = 3;
/// Number of packets between `WORKS_MIN` and `USUAL_MIN`, lost in a row, that begin a search.
const DOUBTFUL_SMALL: u8 = 8;
/// Number of rounds without any answer after which a search ends.
const VOIDS_MAX: u8 = 8;
/// Minimum and maximum time in which the probes of a round can be answered.
const WAIT_MIN: Duration = Duration::from_millis(2);
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Minimum time between two probes of larger sizes, which leave only while packets are sent.
const RAISE_EVERY: Duration = Duration::from_secs(1);
/// If a raised size lasts for less, only some paths pass it. The next probe waits twice as long.
const RAISED_LASTS: Duration = Duration::from_secs(30);
const RAISE_EVERY_MAX: Duration = Duration::from_secs(64);
/// Time for which a size counts as proved after a packet of this size passed.
const PROOF_LASTS: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Settled,
    First,
    Search,
    Raise,
}

/// Number of packets lost in a row since a packet as large passed, and size of the smallest.
#[derive(Clone, Copy, Debug)]
struct Losses {
    count: u8,
    bytes: u16,
}

impl Losses {
    const NONE: Self = Self { count: 0, bytes: u16::MAX };
}

/// State of the search for the size that the network passes. All sizes are UDP payload bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mtu {
    configured: u16,
    /// Bytes of the authentication tag, which windows do not count.
    tag_bytes: u16,
    /// Maximum size of a packet at present.
    limit: u16,
    /// Smallest size that a search probes.
    floor: u16,
    /// In a search: the largest size that is known to pass. It is the lower end of the search.
    low: u16,
    /// In a search: the smallest size that is not known to pass.
    high: u16,
    /// Whether `high` was found not to pass.
    bounded: bool,
    stage: Stage,
    /// Sizes that this round probes; unused entries are zero.
    sizes: [u16; SIZES],
    /// Bitmap of the indices in `sizes` whose probes were answered in this try.
    answered: u8,
    /// Value of `low` when this try began. The try probes the first size, and all above this value.
    low_before: u16,
    /// Index in `sizes` of the next size to be sent.
    next: u8,
    tries: u8,
    voids: u8,
    /// Whether a probe smaller than a size that passes was lost in this search.
    lossy: bool,
    /// Path on which the probes of this round are sent.
    path: PathId,
    /// Losses in a row of packets larger than `USUAL_MIN`.
    large: Losses,
    /// Losses in a row of packets larger than `WORKS_MIN` and not larger than `USUAL_MIN`.
    small: Losses,
    /// Whether the queue may still contain datagrams that are larger than `limit` allows.
    culls: bool,
    /// Size of the largest packet that passed recently; `u16::MAX` if sizes are never probed.
    proved_bytes: u16,
    /// Time when a packet of `proved_bytes` passed.
    proved_at: Instant,
    /// Largest size that passed since a search last found a size that does not pass any more.
    passed_bytes: u16,
    /// Time from which a packet that leaves causes a probe of larger sizes.
    raise_at: Instant,
    /// Time between two probes of larger sizes.
    raise_every: Duration,
    /// Time when a probe last raised the size; `None` if the size has fallen since.
    raised_at: Option<Instant>,
    /// Time when the next probe is due, or when the wait for answers ends.
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
        // E3: Path MTU discovery
        if config.mtu_discovery && configured > WORKS_MIN {
            mtu.ask_first(now);
        } else {
            // The size is never doubted.
            mtu.proved_bytes = u16::MAX;
        }
        mtu
    }

    /// Creates the state of a context that hibernated, for which the size `limit` is known.
    pub(crate) fn known(config: &Config, ip: IpAddr, now: Instant, limit: u16) -> Self {
        let mut mtu = Self::new(config, ip, now);
        if !mtu.is_fixed() {
            (mtu.limit, mtu.low, mtu.raise_at) = (limit, limit, now);
            mtu.floor = mtu.least();
            mtu.settle(now, limit);
        }
        mtu
    }

    /// Maximum size of a packet, header and tag included.
    pub(crate) fn limit(&self) -> u16 {
        self.limit
    }

    /// Whether a lost packet of `bytes`, as windows count them, may be too large.
    pub(crate) fn doubts(&self, bytes: u16) -> bool {
        let searches = self.stage == Stage::Search && self.low < self.limit;
        searches && bytes.saturating_add(self.tag_bytes) > self.low
    }

    fn is_fixed(&self) -> bool {
        self.proved_bytes == u16::MAX
    }

    /// Begins a probe of the size in use.
    fn ask_first(&mut self, now: Instant) {
        self.stage = Stage::First;
        self.large.bytes = self.limit;
        self.sizes = [0; SIZES];
        self.sizes[0] = self.limit;
        self.begin_round(now);
    }

    /// The smaller size at which a search begins, in UDP payload bytes.
    fn least(&self) -> u16 {
        if self.limit > USUAL_MIN { USUAL_MIN } else { WORKS_MIN }
    }

    /// Searches for the largest size that passes, among all sizes up to the size in use.
    fn search_all(&mut self, now: Instant) {
        self.floor = self.least();
        self.search(now, self.floor, self.limit.saturating_add(1));
    }

    /// Searches for the largest size that passes, in `low..high`. The size `low` passes.
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

    /// Chooses the sizes of a round: the smallest, usual sizes in the range of the search, and
    /// further sizes at equal distances. The highest is included, unless it was found not to pass.
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

    /// Adds a size to a free entry of a round, if it is in the range of the search and new.
    fn add(&self, sizes: &mut [u16; SIZES], size: u16) {
        let wanted = size > self.low && size < self.high && !sizes.contains(&size);
        if let Some(free) = sizes.iter_mut().find(|free| wanted && **free == 0) {
            *free = size;
        }
    }

    /// Begins a probe of larger sizes when a packet leaves, if a probe is due.
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

    /// Records an unreliable packet of this size that left: such packets are never acknowledged.
    pub(crate) fn on_unreliable(&mut self, now: Instant, bytes: u16) {
        self.on_departure(now);
        let proven = self.proved_bytes >= bytes && now.since(self.proved_at) < PROOF_LASTS;
        if bytes > self.least() && self.stage == Stage::Settled && !proven && !self.is_fixed() {
            self.ask_first(now);
        }
    }

    /// Records the loss of a datagram's packet of `bytes`, as windows count them.
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

    /// Records that a data packet of `bytes`, as windows count them, was acknowledged: it passed.
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

    /// Ends a search, or the probe of the size in use: now `limit` is the size in use.
    fn settle(&mut self, now: Instant, limit: u16) {
        let before = self.limit;
        self.limit = limit.min(self.configured);
        if self.limit > before {
            self.raised_at = Some(now);
        } else if self.limit < before {
            self.fell(now);
        }
        // A doubt without a result does not delay the probe of larger sizes.
        self.raise_at = self.raise_at.min(now + self.raise_every);
        self.stage = Stage::Settled;
        (self.large, self.small) = (Losses::NONE, Losses::NONE);
        self.probe_at = Instant::FAR_FUTURE;
    }

    /// Handles a size that has become smaller. If the size was raised a short time ago, only some
    /// paths pass it, and each raise costs lost packets until the size falls again (E3b).
    fn fell(&mut self, now: Instant) {
        let lasted = self.raised_at.take().map_or(RAISED_LASTS, |raised| now.since(raised));
        self.raise_every = if lasted < RAISED_LASTS {
            self.raise_every.times(2).min(RAISE_EVERY_MAX)
        } else {
            RAISE_EVERY
        };
        self.raise_at = now + self.raise_every;
    }

    /// Processes the answer to a probe of `size`.
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

    /// Ends the wait for the answers of a round.
    fn end_wait(&mut self, now: Instant) {
        match self.stage {
            Stage::First => self.search_all(now),
            Stage::Search => self.evaluate_round(now),
            Stage::Settled | Stage::Raise => self.probe_at = Instant::FAR_FUTURE,
        }
    }

    /// Whether even 1232 bytes may be too large: several rounds from this size up had no answer.
    fn is_floored_by_usual(&self) -> bool {
        let is_unheard = self.tries == 0 && !self.bounded && self.low == self.floor;
        is_unheard && self.floor > WORKS_MIN && self.voids >= VOIDS_USUAL
    }

    fn evaluate_round(&mut self, now: Instant) {
        if self.answered == 0 {
            // If no probe passes, the size is not the reason.
            self.voids += 1;
            self.begin_try();
            if self.voids >= VOIDS_MAX {
                self.settle(now, self.limit);
            } else if self.is_floored_by_usual() {
                // E3: Path MTU discovery
                (self.floor, self.low) = (WORKS_MIN, WORKS_MIN);
                self.sizes = self.choose();
                self.begin_round(now);
            }
            return;
        }
        self.tries += 1;
        self.lossy |= (0..SIZES).any(|at| self.was_asked(at) && self.is_missed(at));
        // E3: Path MTU discovery
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

    /// Whether the size at an index is probed in the present try.
    fn was_asked(&self, at: usize) -> bool {
        self.sizes[at] > 0 && (at == 0 || self.sizes[at] > self.low_before)
    }

    /// Whether the probe of the size at an index was not answered although this size passes.
    fn is_missed(&self, at: usize) -> bool {
        self.sizes[at] <= self.low && self.answered & 1 << at == 0
    }

    /// Takes the next size that the present try probes.
    fn take_size(&mut self) -> Option<u16> {
        let at = (self.next.into()..SIZES).find(|at| self.was_asked(*at))?;
        self.next = u8::try_from(at + 1).unwrap_or(u8::MAX);
        Some(self.sizes[at])
    }

    /// Whether the present try has sent all its probes.
    fn is_sent(&self) -> bool {
        !(self.next.into()..SIZES).any(|at| self.was_asked(at))
    }

    /// Time for which a round waits for the answers to its probes.
    fn wait(&self, timeout: Duration, config: &Config) -> Duration {
        let least = WAIT_MIN.max(config.rto_min.times(5));
        timeout.max(least).times(1 << self.voids.min(VOIDS_MAX)).min(WAIT_MAX)
    }
}

impl Peer {
    /// Returns the size to probe now, and the path of the probe.
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
            // Answers to earlier probes would otherwise count as answers to this round.
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

    /// Processes the answer to a probe of `size`.
    pub(super) fn on_mtu_answer(&mut self, now: Instant, size: u16, shared: &mut Shared) {
        let Some(tx) = self.tx.as_deref_mut() else { return };
        let before = tx.mtu.limit;
        tx.mtu.on_answer(now, size);
        self.apply_mtu(before, shared);
    }

    /// Records that a packet of `bytes`, as windows count them, was acknowledged.
    pub(super) fn on_passed(&mut self, now: Instant, bytes: u16, shared: &mut Shared) {
        if let Some(tx) = self.tx.as_deref_mut().filter(|_| bytes > 0) {
            let before = tx.mtu.limit;
            tx.mtu.on_passed(now, bytes);
            self.apply_mtu(before, shared);
        }
    }

    /// Releases the datagrams that waited for the end of a search, reports a new size, and begins
    /// to fail the datagrams that are too large now.
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

    /// Fails the datagrams that are too large and not in flight. The oversize datagrams in flight
    /// fail when they are found to be lost, for which a probe is sent now.
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
            if held.place == DatagramState::InFlight {
                under_way = true;
                continue;
            }
            // D13. The receiver does not count a datagram that never arrived as queued. Its
            // completion may have been reported already, when its queue pair was closed.
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

    /// Maximum packet size to this peer at present, in UDP payload bytes.
    pub(crate) fn packet_bytes_max(&self, config: &Config) -> u16 {
        let hibernated = self.hibernated.as_ref().map(|kept| kept.mtu_limit());
        let working = self.tx.as_ref().map(|tx| tx.mtu.limit());
        working.or(hibernated).unwrap_or_else(|| config.packet_bytes_to(self.address.ip()))
    }

    /// Maximum payload of one datagram to this peer.
    pub(crate) fn payload_bytes_max(&self, config: &Config) -> usize {
        usize::from(self.packet_bytes_max(config)) - super::packet_overhead(config)
    }
}

#[cfg(test)]
mod tests;
