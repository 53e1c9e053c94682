//! CoDel's law (RFC 8289) for one flow: it decides when the frame at the head of a queue that is
//! too long is marked or dropped.

use srd_proto::time::{Duration, Instant};

/// State of CoDel's law for one flow.
#[derive(Debug, Default)]
pub(super) struct Codel {
    /// Time at which the delay will have been above the target for an interval; `None` while it is
    /// below the target.
    above_until: Option<Instant>,
    striking: bool,
    strike_next: Instant,
    strikes: u32,
}

impl Codel {
    /// Decides whether the frame at the head of the queue is marked or dropped. `late` states
    /// whether the frame has waited longer than the target, with other frames behind it.
    pub(super) fn strikes(&mut self, late: bool, now: Instant, interval: Duration) -> bool {
        if !late {
            self.above_until = None;
            self.striking = false;
            return false;
        }
        let until = *self.above_until.get_or_insert(now + interval);
        if self.striking {
            if now < self.strike_next {
                return false;
            }
            self.strikes += 1;
        } else {
            if now < until {
                return false;
            }
            // Soon after the last episode, the rate of marks continues near its last value.
            let recent = now.since(self.strike_next) < interval.times(16);
            self.strikes = if recent && self.strikes > 2 { self.strikes - 2 } else { 1 };
            self.striking = true;
            self.strike_next = now;
        }
        let wait = interval.as_nanos() / u64::from(self.strikes).isqrt().max(1);
        self.strike_next += Duration::from_nanos(wait);
        true
    }
}
