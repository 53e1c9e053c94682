//! Moderation that adapts to the traffic: the kernel's dynamic interrupt moderation (DIM) for
//! received packets, with its profile for events.
//!
//! Source: the Linux kernel's documentation of DIM, and `net_dim.c` as the ENA driver ships it.
//! The profile is a list of delays, and the algorithm searches for the best one step by step. After
//! each 64 interrupts, the rates since the last decision are compared with the rates before it. A
//! step that improved the rates is repeated; any other step is reversed. If the next shorter and
//! the next longer delay are both worse, the search parks: the delay stays until the traffic
//! changes.

use srd_proto::time::{Duration, Instant};

/// Interrupt delays in microseconds, from the shortest to the longest.
const PROFILE_US: [u64; 5] = [1, 8, 64, 128, 256];
/// Index in [`PROFILE_US`] of the delay with which a queue begins.
const START: usize = 1;
/// Number of interrupts between two decisions about the delay.
const EVENTS: u32 = 64;
/// Number of steps without parking after which the search pauses.
const TIRED: usize = 2 * PROFILE_US.len();

/// Packets and bytes per second since the last decision about the interrupt delay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Rates {
    bytes: u64,
    packets: u64,
    events: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Search {
    /// Both neighbouring delays were worse: the delay stays until the traffic changes.
    Parked,
    /// The search has made [`TIRED`] steps without parking, and pauses.
    Resting,
    /// The search moves towards longer delays.
    Longer,
    /// The search moves towards shorter delays.
    Shorter,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Better,
    Worse,
    Same,
}

/// Adaptive interrupt delay of one receive queue.
#[derive(Clone, Debug)]
pub struct Adaptive {
    index: usize,
    search: Search,
    /// Number of steps to longer delays and of steps to shorter delays, each since the search last
    /// turned in that direction.
    steps: (u32, u32),
    tired: usize,
    before: Rates,
    /// Time of the last decision about the delay.
    since: Instant,
    events: u32,
    packets: u64,
    bytes: u64,
}

impl Adaptive {
    /// Number of waiting packets at which an interrupt is raised before its delay has passed (D7).
    pub const PACKETS: u32 = 256;

    /// Begins with a delay of 8 us, the second of the profile (D7).
    pub fn new(now: Instant) -> Self {
        Self {
            index: START,
            search: Search::Parked,
            steps: (0, 0),
            tired: 0,
            before: Rates::default(),
            since: now,
            events: 0,
            packets: 0,
            bytes: 0,
        }
    }

    /// Returns the delay of the next interrupt.
    pub fn delay(&self) -> Duration {
        Duration::from_micros(PROFILE_US[self.index])
    }

    /// Counts a received packet of `bytes` bytes.
    pub fn packet(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }

    /// Counts an interrupt. After each 64 interrupts, decides whether the delay changes.
    pub fn interrupt(&mut self, now: Instant) {
        self.events += 1;
        let elapsed = now.since(self.since).as_nanos();
        if self.events < EVENTS || elapsed == 0 {
            return;
        }
        let second = 1_000_000_000;
        let rate = |count: u64| count.saturating_mul(second).div_ceil(elapsed);
        let rates = Rates {
            bytes: rate(self.bytes),
            packets: rate(self.packets),
            events: rate(u64::from(self.events)),
        };
        (self.since, self.events, self.packets, self.bytes) = (now, 0, 0, 0);
        self.decide(rates);
    }

    fn decide(&mut self, now: Rates) {
        let was_parked = self.search == Search::Parked;
        match self.search {
            Search::Parked => {
                if compare(now, self.before) != Change::Same {
                    self.leave();
                }
            }
            Search::Resting => {
                self.tired = self.tired.saturating_sub(1);
                if self.tired == 0 {
                    self.leave();
                }
            }
            Search::Longer | Search::Shorter => {
                if compare(now, self.before) != Change::Better {
                    self.turn();
                }
                if self.is_between_worse() {
                    self.park();
                } else {
                    self.step();
                }
            }
        }
        // While the search is parked, rates are compared with those at the time of parking.
        if !(was_parked && self.search == Search::Parked) {
            self.before = now;
        }
    }

    fn leave(&mut self) {
        self.search = if self.index == 0 { Search::Longer } else { Search::Shorter };
        self.step();
    }

    fn turn(&mut self) {
        if self.search == Search::Longer {
            (self.search, self.steps.1) = (Search::Shorter, 0);
        } else {
            (self.search, self.steps.0) = (Search::Longer, 0);
        }
    }

    fn is_between_worse(&self) -> bool {
        let (longer, shorter) = self.steps;
        match self.search {
            Search::Longer => shorter > 1 && longer == 1,
            Search::Shorter => longer > 1 && shorter == 1,
            Search::Parked | Search::Resting => true,
        }
    }

    fn park(&mut self) {
        (self.search, self.steps, self.tired) = (Search::Parked, (0, 0), 0);
    }

    fn step(&mut self) {
        if self.tired >= TIRED {
            (self.search, self.steps) = (Search::Resting, (0, 0));
            return;
        }
        let longer = self.search == Search::Longer;
        let edge = if longer { PROFILE_US.len() - 1 } else { 0 };
        if self.index == edge {
            self.park();
            return;
        }
        self.tired += 1;
        if longer {
            (self.index, self.steps.0) = (self.index + 1, self.steps.0 + 1);
        } else {
            (self.index, self.steps.1) = (self.index - 1, self.steps.1 + 1);
        }
    }
}

/// Compares rates: first by bytes, then by packets, then by interrupts, of which fewer are better.
/// A difference of up to a tenth does not count.
fn compare(now: Rates, before: Rates) -> Change {
    let differs = |a: u64, b: u64| a.abs_diff(b).saturating_mul(100) / b.max(1) > 10;
    let better = |is: bool| if is { Change::Better } else { Change::Worse };
    if before.bytes == 0 {
        return if now.bytes > 0 { Change::Better } else { Change::Same };
    }
    if differs(now.bytes, before.bytes) {
        return better(now.bytes > before.bytes);
    }
    if differs(now.packets, before.packets) {
        return better(now.packets > before.packets);
    }
    if differs(now.events, before.events) {
        return better(now.events < before.events);
    }
    Change::Same
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Causes a decision after 64 interrupts over `us`, with `packets` packets of 1,000 bytes.
    fn decide(adaptive: &mut Adaptive, now: &mut Instant, us: u64, packets: u32) -> u64 {
        (0..packets).for_each(|_| adaptive.packet(1000));
        for _ in 0..EVENTS {
            *now += Duration::from_nanos(us * 1000 / u64::from(EVENTS));
            adaptive.interrupt(*now);
        }
        adaptive.delay().as_nanos() / 1000
    }

    #[test]
    fn it_begins_with_eight_microseconds_and_stays_within_the_profile() {
        let mut now = Instant::ZERO;
        let mut adaptive = Adaptive::new(now);
        assert_eq!(adaptive.delay(), Duration::from_micros(8));
        let mut seen = alloc::collections::BTreeSet::new();
        for round in 0..300_u32 {
            let packets = if round / 20 % 2 == 0 { 10 } else { 4000 + round };
            seen.insert(decide(&mut adaptive, &mut now, 1000, packets));
        }
        assert!(seen.iter().all(|us| PROFILE_US.contains(us)) && seen.len() > 1, "{seen:?}");
    }

    /// With a packet each microsecond, a longer delay means fewer interrupts, up to the longest
    /// delay.
    #[test]
    fn steady_traffic_parks_at_the_longest_delay() {
        let mut now = Instant::ZERO;
        let mut adaptive = Adaptive::new(now);
        let mut delays = alloc::vec::Vec::new();
        for _ in 0..40 {
            let us = u64::from(EVENTS) * adaptive.delay().as_nanos() / 1000;
            delays.push(decide(&mut adaptive, &mut now, us, u32::try_from(us).unwrap()));
        }
        assert!(delays[20..].iter().all(|us| *us == 256), "{delays:?}");
    }

    /// If all delays are equally good, the search pauses after each [`TIRED`] steps.
    #[test]
    fn a_search_without_an_end_rests() {
        let mut now = Instant::ZERO;
        let mut adaptive = Adaptive::new(now);
        let delays: alloc::vec::Vec<u64> =
            (0..100).map(|_| decide(&mut adaptive, &mut now, 1000, 500)).collect();
        let moved = delays.windows(2).filter(|two| two[0] != two[1]).count();
        assert!(moved > 10 && moved < 60, "{delays:?}");
    }

    #[test]
    fn fewer_interrupts_at_the_same_rate_are_better() {
        let of = |bytes, packets, events| Rates { bytes, packets, events };
        assert_eq!(compare(of(100, 100, 50), of(100, 100, 100)), Change::Better);
        assert_eq!(compare(of(100, 100, 200), of(100, 100, 100)), Change::Worse);
        assert_eq!(compare(of(105, 95, 109), of(100, 100, 100)), Change::Same);
        assert_eq!(compare(of(80, 100, 10), of(100, 100, 100)), Change::Worse);
        assert_eq!(compare(of(100, 120, 10), of(100, 100, 100)), Change::Better);
        assert_eq!(compare(of(0, 0, 0), of(0, 0, 0)), Change::Same);
    }
}
