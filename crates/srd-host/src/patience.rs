//! Who looks in vain gives way to others.
//!
//! MPI's ranks wait by polling. Where there are more of them than cores, the one that could go on
//! waits for the time slices, milliseconds each, of those that cannot. So after some time in vain
//! each look ends with the offer to let another run: late, for who has the core alone, and soon
//! for a while after an offer was taken.

use std::sync::atomic::{AtomicU64, Ordering};

use srd_proto::{Duration, Instant};

/// How long nothing must have arrived where nobody else wants the core. Answers within a data
/// center take less, so who waits for one makes no system call more.
const ALONE: Duration = Duration::from_micros(50);
/// And where somebody does: an answer that takes longer comes from who does not run.
const SHARED: Duration = Duration::from_micros(5);
/// An offer that nobody takes is over sooner than this, with the interrupts that fall into it; one
/// that a rank takes lasts as long as the rank's patience, and two changes of the thread.
const NOBODY: Duration = Duration::from_micros(6);
/// How long one that was taken is remembered. Where ranks share a core each offer is taken.
const MEMORY: Duration = Duration::from_millis(2);

/// All hosts of this process: those that hear nothing must not take the core from the one that
/// does.
pub(crate) static PROCESS: Patience = Patience::new();

/// What is known of arrivals, and of who else wants the core. Times are nanoseconds on the clock
/// of the transport; zero: never.
pub(crate) struct Patience {
    /// When something last arrived.
    arrived_at_ns: AtomicU64,
    /// When an offer was last taken.
    taken_at_ns: AtomicU64,
}

impl Patience {
    const fn new() -> Self {
        Self { arrived_at_ns: AtomicU64::new(0), taken_at_ns: AtomicU64::new(0) }
    }

    /// Notes what a look brought. Returns whether it is time to give way.
    pub(crate) fn looked(&self, now: Instant, arrived: bool) -> bool {
        if arrived {
            self.arrived_at_ns.store(now.as_nanos(), Ordering::Relaxed);
            return false;
        }
        let since = |at_ns: &AtomicU64| match at_ns.load(Ordering::Relaxed) {
            0 => Duration::MAX,
            at_ns => now.since(Instant::from_nanos(at_ns)),
        };
        let is_shared = since(&self.taken_at_ns) < MEMORY;
        since(&self.arrived_at_ns) > if is_shared { SHARED } else { ALONE }
    }

    /// Notes how long an offer took.
    fn offered(&self, now: Instant, took: Duration) {
        if took > NOBODY {
            self.taken_at_ns.store(now.as_nanos(), Ordering::Relaxed);
        }
    }
}

/// Lets another run, if there is one that wants to.
pub(crate) fn give_way() {
    let before = srd_net::clock::now();
    std::thread::yield_now();
    let now = srd_net::clock::now();
    PROCESS.offered(now, now.since(before));
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_nanos(1);
    const ARRIVAL: Instant = Instant::from_nanos(1_000_000);

    #[test]
    fn patience_ends_some_time_after_the_last_arrival() {
        let patience = Patience::new();
        assert!(patience.looked(ARRIVAL, false));
        assert!(!patience.looked(ARRIVAL, true));
        assert!(!patience.looked(ARRIVAL + ALONE, false));
        assert!(patience.looked(ARRIVAL + ALONE + TICK, false));
        assert!(!patience.looked(ARRIVAL + ALONE.times(2), true));
        assert!(!patience.looked(ARRIVAL + ALONE.times(3), false));
        // Another thread saw a later arrival meanwhile.
        assert!(!patience.looked(ARRIVAL, false));
    }

    #[test]
    fn it_is_short_for_a_while_after_an_offer_was_taken() {
        let patience = Patience::new();
        patience.looked(ARRIVAL, true);
        patience.offered(ARRIVAL, NOBODY);
        assert!(!patience.looked(ARRIVAL + ALONE, false));
        patience.offered(ARRIVAL, NOBODY + TICK);
        assert!(!patience.looked(ARRIVAL + SHARED, false));
        assert!(patience.looked(ARRIVAL + SHARED + TICK, false));
        let later = ARRIVAL + MEMORY;
        patience.looked(later, true);
        assert!(!patience.looked(later + SHARED + TICK, false));
    }
}
