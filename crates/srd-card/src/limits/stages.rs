//! The limits of an instance, which each frame passes one after the other; most have a queue before
//! them.
//!
//! ```text
//! offer --> flow --> gateway --> bandwidth --> packets a second --> fragments, link-local --> pop
//!             |         |            |                |                    |
//!             +-- queue +--- queue --+----- queue ----+                    +--> dropped
//!                   | too long, or too many: dropped
//! ```
//!
//! A packet that exceeds a limit waits before that limit only. When its wait is over, it enters the
//! next limit. So a flow beyond its own ceiling does not delay other flows.
//!
//! Invariants: packets leave each limit in the order in which they entered it. Bound: each limit
//! holds at most [`Settings::queue_packets_max`] frames. Offers are refused while the same number
//! of frames have passed all limits and wait for [`Limits::pop`]. So the limits hold at most six
//! times this number of frames, and one call moves no more than these.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use srd_proto::time::{Duration, Instant};

use crate::limits::allowances::{Allowances, Limit};
use crate::limits::bandwidth::{Bandwidth, Rates, bits_in};
use crate::limits::bucket::{Bucket, TooLong};
use crate::limits::ceiling::{Ceiling, FlowMeter};
use crate::limits::waiting::DelayQueue;
use crate::meta::key::Direction;

/// Packets per second that an ENI may send to link-local services, and also the number of fragments
/// per second that it may send.
/// Sources: Amazon VPC quotas; ENA Linux driver, README.
pub const ENI_PACKETS_PER_SECOND: u64 = 1024;
/// Depth of the buckets of one ENI, in packets: an eighth of a second at
/// [`ENI_PACKETS_PER_SECOND`].
const ENI_PACKETS_DEPTH: u64 = ENI_PACKETS_PER_SECOND / 8;
/// Capacity of the list of late drops, which [`Limits::pop_late`] empties.
const DROPPED_LATE_MAX: usize = 64;
/// Longest delay of a caller that the limits take into account. After a longer delay, the guest's
/// devices have overflowed anyway, and lost packets.
pub const LATE_MAX: Duration = Duration::from_millis(100);
/// Number of limits: length of the arrays that a [`Limit`] indexes.
const LIMITS: usize = Limit::Gateway as usize + 1;

/// Settings of the limits of an instance. [`crate::profile::Profile::limits`] derives them from an
/// instance type.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bandwidth from the network to the guest.
    pub rates_in: Rates,
    /// Bandwidth from the guest to the network.
    pub rates_out: Rates,
    /// Bandwidth through internet and local gateways in each direction, in bits per second.
    pub gateway_bps: u64,
    /// Packets per second, both directions together.
    pub packets_per_second: u64,
    /// Largest burst above a rate, as the time that it takes at that rate.
    pub tolerance: Duration,
    /// Longest time that a frame waits before one limit.
    pub queue_delay_max: Duration,
    /// Largest number of frames that may wait for one limit.
    pub queue_packets_max: u32,
    /// Divisor of the limits of an ENI; 1 outside of a lab.
    pub scale: u32,
}

/// Properties of a frame that the limits depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Direction of the frame.
    pub direction: Direction,
    /// Bytes from the IP header on; for a super-packet, the bytes of all packets that it
    /// represents.
    pub bytes: u32,
    /// Packets that the frame represents, at least one (L8).
    pub packets: u32,
    /// Index of the ENI, below the number that [`Limits::new`] was given.
    pub eni: u16,
    /// Whether the frame passes an internet or local gateway.
    pub gateway: bool,
    /// Whether the frame goes to a link-local service: the resolver, metadata, time.
    pub link_local: bool,
    /// Whether the frame is a fragment.
    pub fragment: bool,
}

/// Result of [`Limits::offer`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome<T> {
    /// The frame has passed all limits.
    Passed(T),
    /// The frame waits before this limit, and [`Limits::pop`] returns it later. `None` means that
    /// the frame has passed all limits, but has to wait until [`Limits::pop`] has returned earlier
    /// frames.
    Taken(Option<Limit>),
    /// The frame exceeds this limit, which has counted it, and may not wait.
    Dropped(Limit, T),
    /// The frame is refused, without being counted, because too many earlier frames wait for
    /// [`Limits::pop`].
    Undrained(T),
}

/// Result of [`Limits::ask`] for a frame that stays with its caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitDecision {
    /// The frame has passed all limits.
    Through,
    /// The frame has passed all limits, but earlier frames wait for [`Limits::pop`].
    Behind,
    /// The frame is refused, because too many earlier frames wait for [`Limits::pop`].
    Undrained,
    /// The frame exceeds a limit. [`Limits::keep`] makes the frame wait for this limit, or drops it
    /// if it may not wait.
    Held(HeldUp),
}

/// The limit that a frame exceeds, and the time for which the frame has to wait before this limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldUp {
    before: Limit,
    wait: Result<Duration, TooLong>,
    next: Stage,
}

/// Counters of the packets that exceeded one limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LimitCounts {
    /// Packets that waited before the limit.
    pub queued: u64,
    /// Packets that were dropped at the limit.
    pub dropped: u64,
}

/// Set of the limits before which a frame has waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Holds(u8);

impl Holds {
    fn with(self, limit: Limit) -> Self {
        Self(self.0 | 1 << limit as u8)
    }

    /// Returns the limits of the set in the order in which they apply to a frame (L5).
    pub fn limits(self) -> impl Iterator<Item = Limit> {
        let all =
            [Limit::Flow, Limit::Gateway, Limit::BandwidthIn, Limit::BandwidthOut, Limit::Packets];
        all.into_iter().filter(move |limit| self.0 & 1 << *limit as u8 != 0)
    }
}

/// The limit that a frame meets next after the ceiling of its flow. The values are in the order in
/// which the limits apply (L5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Gateway,
    Bandwidth,
    Packets,
    Eni,
    Done,
}

impl Stage {
    fn next(self) -> Self {
        match self {
            Self::Gateway => Self::Bandwidth,
            Self::Bandwidth => Self::Packets,
            Self::Packets => Self::Eni,
            Self::Eni | Self::Done => Self::Done,
        }
    }
}

/// Limits and counters of one ENI.
#[derive(Clone)]
struct Eni {
    link_local: Bucket,
    fragments: Bucket,
    bypass: bool,
    allowances: Allowances,
}

/// A frame that waits: the limit before which it waits, and the limit that follows.
struct Parcel<T> {
    before: Limit,
    next: Stage,
    frame: Frame<T>,
}

/// A frame that has to pass further limits.
struct Frame<T> {
    offer: Offer,
    item: T,
    /// Limits before which the frame has waited, including the limit before which it waits now.
    held: Holds,
}

/// The limits of one instance, with the frames `T` that wait.
pub struct Limits<T> {
    bandwidth: [Bandwidth; 2],
    gateway: [Bucket; 2],
    packets: Bucket,
    enis: Vec<Eni>,
    waiting: DelayQueue<Parcel<T>>,
    counts: [u32; LIMITS],
    held: [LimitCounts; LIMITS],
    ready: VecDeque<(Offer, T, Holds)>,
    /// Frames that a limit dropped after they had waited before an earlier limit; at most
    /// [`DROPPED_LATE_MAX`].
    dropped_late: VecDeque<(Limit, T)>,
    now: Instant,
    /// Time by which the caller is late: a frame may have arrived this long before it is offered.
    late: Duration,
    queue_delay_max: Duration,
    queue_packets_max: u32,
}

impl<T> Limits<T> {
    /// Creates the limits of an instance with `enis` ENIs, as at launch.
    pub fn new(settings: &Settings, enis: u16, now: Instant) -> Self {
        let bucket = |rate, tolerance| Bucket::new(rate, bits_in(rate, tolerance), now);
        let gateway = bucket(settings.gateway_bps, settings.tolerance);
        let scale = u64::from(settings.scale.max(1));
        let depth = (ENI_PACKETS_DEPTH / scale).max(1);
        let each = Bucket::new(ENI_PACKETS_PER_SECOND / scale, depth, now);
        let eni = || Eni {
            link_local: each,
            fragments: each,
            bypass: false,
            allowances: Allowances::default(),
        };
        let directions = [&settings.rates_in, &settings.rates_out];
        Self {
            bandwidth: directions.map(|rates| Bandwidth::new(rates, now)),
            gateway: [gateway, gateway],
            packets: bucket(settings.packets_per_second, settings.tolerance),
            enis: (0..enis).map(|_| eni()).collect(),
            waiting: DelayQueue::new(),
            counts: [0; LIMITS],
            held: [LimitCounts::default(); LIMITS],
            ready: VecDeque::new(),
            dropped_late: VecDeque::new(),
            now,
            late: Duration::ZERO,
            queue_delay_max: settings.queue_delay_max,
            queue_packets_max: settings.queue_packets_max,
        }
    }

    /// Sets the time by which the caller is late: a frame may have arrived this long before it is
    /// offered, because the caller did not poll meanwhile. The maximum is [`LATE_MAX`]. For this
    /// time, a bucket may hold more tokens than its depth: it keeps all tokens that it earns. Zero
    /// means that the caller
    /// polls in time (L11).
    #[inline]
    pub fn set_late(&mut self, late: Duration) {
        let late = late.min(LATE_MAX);
        if self.late == late {
            return;
        }
        self.late = late;
        self.bandwidth.iter_mut().for_each(|direction| direction.set_late(late));
        self.gateway.iter_mut().for_each(|direction| direction.set_late(late));
        self.packets.set_late(late);
    }

    /// Offers a frame. `flow` is the meter of the frame's flow in this direction, with its
    /// ceiling, or `None` for a flow without a ceiling.
    ///
    /// # Panics
    /// If the ENI is not below the number given to [`Limits::new`].
    pub fn offer(
        &mut self,
        now: Instant,
        offer: Offer,
        flow: Option<(&mut FlowMeter, &Ceiling)>,
        item: T,
    ) -> Outcome<T> {
        match self.ask(now, &offer, flow) {
            LimitDecision::Through => Outcome::Passed(item),
            asked => self.keep(asked, offer, item),
        }
    }

    /// Checks a frame against the limits, and charges those that it passes. The frame stays with
    /// the caller, since nearly all frames continue at once. If the result is not
    /// [`LimitDecision::Through`], the caller passes the frame to [`Limits::keep`] before any other
    /// call.
    ///
    /// # Panics
    /// If the ENI is not below the number given to [`Limits::new`].
    pub fn ask(
        &mut self,
        now: Instant,
        offer: &Offer,
        flow: Option<(&mut FlowMeter, &Ceiling)>,
    ) -> LimitDecision {
        assert!(usize::from(offer.eni) < self.enis.len(), "an ENI of this instance");
        self.advance(now);
        if self.ready.len() >= self.queue_packets_max as usize {
            return LimitDecision::Undrained;
        }
        let wait_max = self.wait_max(Limit::Flow);
        let wait = flow.map_or(Ok(Duration::ZERO), |(meter, ceiling)| {
            meter.take(ceiling, (self.now, self.late), bits(offer), wait_max)
        });
        if wait == Ok(Duration::ZERO) && self.ready.is_empty() && self.pays_at_once(offer) {
            return LimitDecision::Through;
        }
        let held = match wait {
            Ok(Duration::ZERO) => self.pass(self.now, Stage::Gateway, offer),
            wait => Err(HeldUp { before: Limit::Flow, wait, next: Stage::Gateway }),
        };
        match held {
            Ok(()) if self.ready.is_empty() => LimitDecision::Through,
            // Earlier frames that have passed the limits come first.
            Ok(()) => LimitDecision::Behind,
            Err(held) => LimitDecision::Held(held),
        }
    }

    /// Keeps a frame that may not continue at once, or drops it. `asked` is the result of
    /// [`Limits::ask`] for the frame.
    #[cold]
    pub fn keep(&mut self, asked: LimitDecision, offer: Offer, item: T) -> Outcome<T> {
        match asked {
            LimitDecision::Through => Outcome::Passed(item),
            LimitDecision::Undrained => Outcome::Undrained(item),
            LimitDecision::Behind => {
                self.ready.push_back((offer, item, Holds::default()));
                Outcome::Taken(None)
            }
            LimitDecision::Held(held) => {
                self.hold(held, self.now, Frame { offer, item, held: Holds::default() })
            }
        }
    }

    /// Charges the limits for a packet that may be lost, such as a copy of a mirror session.
    /// Returns whether the packet passes; it never waits. It does not pass while a frame waits for
    /// bandwidth of its direction or for packets per second. // M4
    pub fn spare(&mut self, now: Instant, offer: &Offer) -> bool {
        self.advance(now);
        let limit = match offer.direction {
            Direction::Ingress => Limit::BandwidthIn,
            Direction::Egress => Limit::BandwidthOut,
        };
        let waits = [limit, Limit::Packets].iter().any(|limit| self.counts[*limit as usize] > 0);
        let packets = u64::from(offer.packets);
        if waits || !self.ready.is_empty() || !self.packets.admits(now, packets, Duration::ZERO) {
            return false;
        }
        let bandwidth = &mut self.bandwidth[index(offer.direction)];
        bandwidth.take(now, bits(offer), Duration::ZERO).is_ok()
            && self.packets.take(now, packets, Duration::ZERO).is_ok()
    }

    /// Returns the next frame that has passed all limits. A frame that a later limit drops, after
    /// the frame has waited before an earlier limit, is counted and freed.
    pub fn pop(&mut self, now: Instant) -> Option<(Offer, T)> {
        self.pop_held(now).map(|(offer, item, _)| (offer, item))
    }

    /// Returns the next frame that has passed all limits, with the limits before which it waited.
    pub fn pop_held(&mut self, now: Instant) -> Option<(Offer, T, Holds)> {
        self.advance(now);
        self.ready.pop_front()
    }

    /// Returns the next frame that a limit dropped after it had waited before an earlier limit, so
    /// that the caller can report it. At most 64 frames are kept for this; further frames are only
    /// counted.
    pub fn pop_late(&mut self) -> Option<(Limit, T)> {
        self.dropped_late.pop_front()
    }

    /// Removes and returns all waiting frames: first the frames behind all limits, then the frames
    /// before a limit. No counter changes.
    pub fn take_all(&mut self) -> Vec<T> {
        self.counts = [0; LIMITS];
        let ready = core::mem::take(&mut self.ready).into_iter().map(|(_, item, _)| item);
        ready.chain(self.waiting.take_all().map(|parcel| parcel.frame.item)).collect()
    }

    /// Time of the next call of [`Limits::pop`]; `None` if no frame waits.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.ready.is_empty() { self.waiting.next() } else { Some(self.now) }
    }

    /// Stops the instance: the buckets earn nothing until it starts again (L3).
    pub fn stop(&mut self, now: Instant) {
        self.advance(now);
        self.bandwidth.iter_mut().for_each(|direction| direction.stop(now));
    }

    /// Starts the instance again: the buckets earn tokens from now on (L3).
    pub fn start(&mut self, now: Instant) {
        self.advance(now);
        self.bandwidth.iter_mut().for_each(|direction| direction.start(now));
    }

    /// Sets whether egress fragments of an ENI pass without their limit (`enable_frag_bypass` of
    /// the driver) (L7).
    pub fn set_fragment_bypass(&mut self, eni: u16, bypass: bool) {
        if let Some(eni) = self.enis.get_mut(usize::from(eni)) {
            eni.bypass = bypass;
        }
    }

    /// Counts packets of a new connection that the full tracking table refused.
    pub fn count_refused_connection(&mut self, eni: u16, packets: u32) {
        self.count(eni, Limit::Tracking, packets, false);
    }

    /// Counts packets that waited because their instance had used up its share of the host's
    /// processing time. // N4
    pub fn count_over_share(&mut self, eni: u16, packets: u32) {
        self.count(eni, Limit::Packets, packets, true);
    }

    /// Returns the counters of an ENI.
    pub fn allowances(&self, eni: u16) -> Allowances {
        self.enis.get(usize::from(eni)).map(|eni| eni.allowances).unwrap_or_default()
    }

    /// Returns the counters of a limit, for the packets of all ENIs.
    pub fn held(&self, limit: Limit) -> LimitCounts {
        self.held[limit as usize]
    }

    /// Returns the bandwidth credits that are left in a direction, in bits.
    pub fn credits_bits(&mut self, now: Instant, direction: Direction) -> u64 {
        self.bandwidth[index(direction)].credits_bits(now)
    }

    /// Continues with all frames whose wait ends by `now`, in the order of these times.
    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        while let Some((due, parcel)) = self.waiting.pop(self.now) {
            self.counts[parcel.before as usize] -= 1;
            let (offer, held) = (parcel.frame.offer, parcel.frame.held);
            match self.run(due, parcel.next, parcel.frame) {
                Outcome::Passed(item) => self.ready.push_back((offer, item, held)),
                Outcome::Dropped(limit, item) if self.dropped_late.len() < DROPPED_LATE_MAX => {
                    self.dropped_late.push_back((limit, item));
                }
                Outcome::Dropped(..) | Outcome::Taken(_) | Outcome::Undrained(_) => {}
            }
        }
    }

    /// Continues a frame that has waited, from `stage` on, until it exceeds another limit or has
    /// passed all limits.
    fn run(&mut self, at: Instant, stage: Stage, frame: Frame<T>) -> Outcome<T> {
        match self.pass(at, stage, &frame.offer) {
            Ok(()) => Outcome::Passed(frame.item),
            Err(held) => self.hold(held, at, frame),
        }
    }

    /// Charges all limits after the flow's limit if the frame exceeds no limit; otherwise charges
    /// nothing. Returns whether the frame has passed.
    #[inline]
    fn pays_at_once(&mut self, offer: &Offer) -> bool {
        if offer.gateway || offer.link_local || offer.fragment {
            return false;
        }
        let (at, bits, packets) = (self.now, bits(offer), u64::from(offer.packets));
        let bandwidth = &mut self.bandwidth[index(offer.direction)];
        if !bandwidth.has(at, bits) || !self.packets.has(at, packets) {
            return false;
        }
        bandwidth.pay(bits);
        self.packets.pay(packets);
        true
    }

    /// Charges each limit from `stage` on, until the frame exceeds a limit.
    fn pass(&mut self, at: Instant, mut stage: Stage, offer: &Offer) -> Result<(), HeldUp> {
        while stage != Stage::Done {
            let (before, wait) = self.enter(at, stage, offer);
            stage = stage.next();
            if wait != Ok(Duration::ZERO) {
                return Err(HeldUp { before, wait, next: stage });
            }
        }
        Ok(())
    }

    /// Charges one limit for a frame. Returns the limit, and the time that the frame waits before
    /// it (zero if the frame passes).
    fn enter(
        &mut self,
        at: Instant,
        stage: Stage,
        offer: &Offer,
    ) -> (Limit, Result<Duration, TooLong>) {
        let way = index(offer.direction);
        match stage {
            Stage::Gateway if offer.gateway => {
                let wait_max = self.wait_max(Limit::Gateway); // L6
                (Limit::Gateway, self.gateway[way].take(at, bits(offer), wait_max))
            }
            Stage::Bandwidth => {
                let limit = match offer.direction {
                    Direction::Ingress => Limit::BandwidthIn,
                    Direction::Egress => Limit::BandwidthOut,
                };
                let wait_max = self.wait_max(limit);
                (limit, self.bandwidth[way].take(at, bits(offer), wait_max))
            }
            Stage::Packets => {
                let wait_max = self.wait_max(Limit::Packets); // L8
                (Limit::Packets, self.packets.take(at, u64::from(offer.packets), wait_max))
            }
            Stage::Eni => self.enter_eni(at, offer),
            Stage::Gateway | Stage::Done => (Limit::Gateway, Ok(Duration::ZERO)),
        }
    }

    /// Charges the limits of an ENI, which have no queue (L7).
    fn enter_eni(&mut self, at: Instant, offer: &Offer) -> (Limit, Result<Duration, TooLong>) {
        let eni = &mut self.enis[usize::from(offer.eni)];
        let packets = u64::from(offer.packets);
        if offer.fragment && offer.direction == Direction::Egress && !eni.bypass {
            let taken = eni.fragments.take(at, packets, Duration::ZERO);
            if taken.is_err() {
                return (Limit::Fragments, taken);
            }
        }
        let limited = offer.link_local && offer.direction == Direction::Egress;
        let none = Duration::ZERO;
        let taken = if limited { eni.link_local.take(at, packets, none) } else { Ok(none) };
        (Limit::LinkLocal, taken)
    }

    /// Keeps a frame that exceeds a limit until its wait ends, or drops it if it may not wait;
    /// counts it in both cases (L5, L9).
    #[cold]
    fn hold(
        &mut self,
        HeldUp { before, wait, next }: HeldUp,
        at: Instant,
        mut frame: Frame<T>,
    ) -> Outcome<T> {
        let offer = &frame.offer;
        let (eni, packets) = (offer.eni, offer.packets);
        let Ok(wait) = wait else {
            self.count(eni, before, packets, false);
            return Outcome::Dropped(before, frame.item);
        };
        self.count(eni, before, packets, true);
        self.counts[before as usize] += 1;
        frame.held = frame.held.with(before);
        self.waiting.push(at + wait, Parcel { before, next, frame });
        Outcome::Taken(Some(before))
    }

    /// Longest wait of a frame before a limit: zero if the queue of the limit is full.
    fn wait_max(&self, limit: Limit) -> Duration {
        let full = self.counts[limit as usize] >= self.queue_packets_max;
        if full { Duration::ZERO } else { self.queue_delay_max }
    }

    fn count(&mut self, eni: u16, limit: Limit, packets: u32, queued: bool) {
        let packets = u64::from(packets);
        let held = &mut self.held[limit as usize];
        *(if queued { &mut held.queued } else { &mut held.dropped }) += packets;
        if let Some(eni) = self.enis.get_mut(usize::from(eni)) {
            eni.allowances.count(limit, packets);
        }
    }
}

fn bits(offer: &Offer) -> u64 {
    u64::from(offer.bytes) * 8
}

fn index(direction: Direction) -> usize {
    match direction {
        Direction::Ingress => 0,
        Direction::Egress => 1,
    }
}

mod stored;
#[cfg(test)]
mod tests;
