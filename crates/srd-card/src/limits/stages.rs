//! The limits of an instance one after the other, each with a queue before it.
//!
//! ```text
//! offer --> flow --> gateway --> bandwidth --> packets a second --> fragments, link-local --> pop
//!             |         |            |                |                    |
//!             +-- queue +--- queue --+----- queue ----+                    +--> dropped
//!                   | too long, or too many: dropped
//! ```
//!
//! A packet that a limit holds up waits before that limit only, and enters the next one when its
//! wait is over. So a flow beyond its own ceiling does not delay the flows beside it.
//!
//! Invariants: packets leave each limit in the order in which they entered it. Bound: each limit
//! holds at most [`Settings::queue_packets_max`] frames, and offers are refused while as many are
//! through and wait to be popped; so there are at most six times as many in all, and one call moves
//! no more than these.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use srd_proto::time::{Duration, Instant};

use crate::limits::allowances::{Allowances, Limit};
use crate::limits::bandwidth::{Bandwidth, Rates, bits_in};
use crate::limits::bucket::{Bucket, TooLong};
use crate::limits::ceiling::{Ceiling, FlowMeter};
use crate::limits::waiting::Waiting;
use crate::meta::key::Direction;

/// Packets a second of an ENI to link-local services, and of egress fragments.
/// Sources: Amazon VPC quotas; ENA Linux driver, README.
pub const ENI_PACKETS_PER_SECOND: u64 = 1024;
/// Packets of either sort that may pass at once: an eighth of a second.
const ENI_PACKETS_DEPTH: u64 = ENI_PACKETS_PER_SECOND / 8;
/// Frames that are kept until [`Limits::pop_late`].
const DROPPED_LATE_MAX: usize = 64;
/// A caller is late by this at most: a guest whose devices hold more than that has lost packets.
pub const LATE_MAX: Duration = Duration::from_millis(100);
/// Limits, as an index.
const LIMITS: usize = Limit::Gateway as usize + 1;

/// The limits of an instance. [`crate::profile::Profile::limits`] makes them from a type.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bandwidth from the network to the guest.
    pub rates_in: Rates,
    /// Bandwidth from the guest to the network.
    pub rates_out: Rates,
    /// Bandwidth through gateways, of each direction, bits a second.
    pub gateway_bps: u64,
    /// Packets a second, both directions together.
    pub packets_per_second: u64,
    /// What may pass at once above a rate, in time at that rate.
    pub tolerance: Duration,
    /// Longest wait before one limit.
    pub queue_delay_max: Duration,
    /// Most frames that wait before one limit.
    pub queue_packets_max: u32,
    /// By what the limits of an ENI are divided; 1 outside of a lab.
    pub scale: u32,
}

/// What the limits need to know of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Which way it goes.
    pub direction: Direction,
    /// Its bytes from the IP header on; of a super-packet those of all packets it stands for.
    pub bytes: u32,
    /// The packets that it stands for, at least one (L8).
    pub packets: u32,
    /// The ENI, below the number that [`Limits::new`] was given.
    pub eni: u16,
    /// Whether it passes an internet or local gateway.
    pub gateway: bool,
    /// Whether it goes to a link-local service: the resolver, metadata, time.
    pub link_local: bool,
    /// Whether it is a fragment.
    pub fragment: bool,
}

/// What became of an offered frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome<T> {
    /// It is through all limits.
    Passed(T),
    /// It waits before this limit, or behind frames that are through already, and [`Limits::pop`]
    /// returns it when its time has come.
    Taken(Option<Limit>),
    /// It is over this limit, and counted there.
    Dropped(Limit, T),
    /// The caller has not popped the frames before it: nothing is counted.
    Undrained(T),
}

/// What the limits say of a frame, before they have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// It is through all limits.
    Through,
    /// It is, but behind frames that wait to be popped.
    Behind,
    /// The caller has not popped the frames before it.
    Undrained,
    /// A limit holds it up.
    Held(HeldUp),
}

/// Which limit holds a frame up, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldUp {
    before: Limit,
    wait: Result<Duration, TooLong>,
    next: Stage,
}

/// Packets that a limit held up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// They waited.
    pub queued: u64,
    /// They were dropped.
    pub dropped: u64,
}

/// Limits that have held a frame up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Holds(u8);

impl Holds {
    fn with(self, limit: Limit) -> Self {
        Self(self.0 | 1 << limit as u8)
    }

    /// The limits in the order in which a frame comes to them (L5).
    pub fn limits(self) -> impl Iterator<Item = Limit> {
        let all =
            [Limit::Flow, Limit::Gateway, Limit::BandwidthIn, Limit::BandwidthOut, Limit::Packets];
        all.into_iter().filter(move |limit| self.0 & 1 << *limit as u8 != 0)
    }
}

/// The limits in their order (L5).
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

/// The limits of one ENI, and its counters.
#[derive(Clone)]
struct Eni {
    link_local: Bucket,
    fragments: Bucket,
    bypass: bool,
    allowances: Allowances,
}

/// A frame before a limit: which one, and where it goes then.
struct Parcel<T> {
    before: Limit,
    next: Stage,
    frame: Frame<T>,
}

/// A frame on its way.
struct Frame<T> {
    offer: Offer,
    item: T,
    /// With the limit that it waits before.
    held: Holds,
}

/// The limits of one instance, with the frames `T` that wait.
pub struct Limits<T> {
    bandwidth: [Bandwidth; 2],
    gateway: [Bucket; 2],
    packets: Bucket,
    enis: Vec<Eni>,
    waiting: Waiting<Parcel<T>>,
    counts: [u32; LIMITS],
    held: [Held; LIMITS],
    ready: VecDeque<(Offer, T, Holds)>,
    /// Frames that a limit dropped after they had waited before another; at most
    /// [`DROPPED_LATE_MAX`].
    dropped_late: VecDeque<(Limit, T)>,
    now: Instant,
    /// How long before they are offered packets may have arrived.
    late: Duration,
    queue_delay_max: Duration,
    queue_packets_max: u32,
}

impl<T> Limits<T> {
    /// The limits of an instance with so many ENIs, as at launch.
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
            waiting: Waiting::new(),
            counts: [0; LIMITS],
            held: [Held::default(); LIMITS],
            ready: VecDeque::new(),
            dropped_late: VecDeque::new(),
            now,
            late: Duration::ZERO,
            queue_delay_max: settings.queue_delay_max,
            queue_packets_max: settings.queue_packets_max,
        }
    }

    /// From now on frames may have arrived so long before they are offered, [`LATE_MAX`] at most:
    /// the caller did not look for them meanwhile. What limits have earned in that time is theirs;
    /// zero: the caller is in time (L11).
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

    /// Offers a frame. `flow` is the meter of its direction of its flow with its ceiling; `None`
    /// if the flow has none.
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
            Asked::Through => Outcome::Passed(item),
            asked => self.keep(asked, offer, item),
        }
    }

    /// What the limits say of a frame, which has then paid to those that let it on. The frame
    /// stays with the caller: nearly all go on at once. With any other answer than
    /// [`Asked::Through`] it goes to [`Limits::keep`] next, before anything else happens here.
    ///
    /// # Panics
    /// If the ENI is not below the number given to [`Limits::new`].
    pub fn ask(
        &mut self,
        now: Instant,
        offer: &Offer,
        flow: Option<(&mut FlowMeter, &Ceiling)>,
    ) -> Asked {
        assert!(usize::from(offer.eni) < self.enis.len(), "an ENI of this instance");
        self.advance(now);
        if self.ready.len() >= self.queue_packets_max as usize {
            return Asked::Undrained;
        }
        let wait_max = self.wait_max(Limit::Flow);
        let wait = flow.map_or(Ok(Duration::ZERO), |(meter, ceiling)| {
            meter.take(ceiling, (self.now, self.late), bits(offer), wait_max)
        });
        if wait == Ok(Duration::ZERO) && self.ready.is_empty() && self.pays_at_once(offer) {
            return Asked::Through;
        }
        let held = match wait {
            Ok(Duration::ZERO) => self.pass(self.now, Stage::Gateway, offer),
            wait => Err(HeldUp { before: Limit::Flow, wait, next: Stage::Gateway }),
        };
        match held {
            Ok(()) if self.ready.is_empty() => Asked::Through,
            // Those that are through already come first.
            Ok(()) => Asked::Behind,
            Err(held) => Asked::Held(held),
        }
    }

    /// Keeps a frame that does not go on at once, or says that it is dropped.
    #[cold]
    pub fn keep(&mut self, asked: Asked, offer: Offer, item: T) -> Outcome<T> {
        match asked {
            Asked::Through => Outcome::Passed(item),
            Asked::Undrained => Outcome::Undrained(item),
            Asked::Behind => {
                self.ready.push_back((offer, item, Holds::default()));
                Outcome::Taken(None)
            }
            Asked::Held(held) => {
                self.hold(held, self.now, Frame { offer, item, held: Holds::default() })
            }
        }
    }

    /// Pays for a packet that may be lost: it passes now, or not at all, and not while a frame
    /// waits for bandwidth of its direction or for packets a second. // M4
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

    /// The next frame that is through all limits. Frames that a limit drops after they waited
    /// before an earlier one are counted and freed.
    pub fn pop(&mut self, now: Instant) -> Option<(Offer, T)> {
        self.pop_held(now).map(|(offer, item, _)| (offer, item))
    }

    /// The same, with the limits that have held it up.
    pub fn pop_held(&mut self, now: Instant) -> Option<(Offer, T, Holds)> {
        self.advance(now);
        self.ready.pop_front()
    }

    /// The next frame that had waited before one limit and was dropped by another, for callers that
    /// want to say so. A few are kept.
    pub fn pop_late(&mut self) -> Option<(Limit, T)> {
        self.dropped_late.pop_front()
    }

    /// When to call [`Limits::pop`] next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.ready.is_empty() { self.waiting.next() } else { Some(self.now) }
    }

    /// The instance stops: nothing is earned until it starts (L3).
    pub fn stop(&mut self, now: Instant) {
        self.advance(now);
        self.bandwidth.iter_mut().for_each(|direction| direction.stop(now));
    }

    /// The instance starts again (L3).
    pub fn start(&mut self, now: Instant) {
        self.advance(now);
        self.bandwidth.iter_mut().for_each(|direction| direction.start(now));
    }

    /// Whether egress fragments of an ENI pass without their limit (`enable_frag_bypass` of the
    /// driver) (L7).
    pub fn set_fragment_bypass(&mut self, eni: u16, bypass: bool) {
        if let Some(eni) = self.enis.get_mut(usize::from(eni)) {
            eni.bypass = bypass;
        }
    }

    /// Counts packets of a new connection that the tracking table refused.
    pub fn count_refused_connection(&mut self, eni: u16, packets: u32) {
        self.count(eni, Limit::Tracking, packets, false);
    }

    /// Counts packets that waited for their instance's share of the host's time. // N4
    pub fn count_over_share(&mut self, eni: u16, packets: u32) {
        self.count(eni, Limit::Packets, packets, true);
    }

    /// The counters of an ENI.
    pub fn allowances(&self, eni: u16) -> Allowances {
        self.enis.get(usize::from(eni)).map(|eni| eni.allowances).unwrap_or_default()
    }

    /// What a limit held up, of all ENIs.
    pub fn held(&self, limit: Limit) -> Held {
        self.held[limit as usize]
    }

    /// Credits of a direction, in bits.
    pub fn credits_bits(&mut self, now: Instant, direction: Direction) -> u64 {
        self.bandwidth[index(direction)].credits_bits(now)
    }

    /// Lets all frames on whose wait ends by `now`, in the order of those ends.
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

    /// Takes a frame that waited through the limits from `stage` on, as far as it may go.
    fn run(&mut self, at: Instant, stage: Stage, frame: Frame<T>) -> Outcome<T> {
        match self.pass(at, stage, &frame.offer) {
            Ok(()) => Outcome::Passed(frame.item),
            Err(held) => self.hold(held, at, frame),
        }
    }

    /// A frame that needs to wait nowhere pays at each limit behind that of its flow; any other
    /// pays nothing.
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

    /// A frame pays at each limit from `stage` on, until one holds it up.
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

    /// What a limit says of a frame: how long it waits.
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

    /// The limits of an ENI have no queue (L7).
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

    /// Keeps a frame until its wait before a limit ends, or drops it (L5, L9).
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

    /// How long a frame may wait before a limit: not at all if its queue is full.
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
