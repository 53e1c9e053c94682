//! Assigns the driver's allowance counters, which count packets that the card queued or dropped, to
//! bursts.
//!
//! ```text
//!  samples      |         |    +9   |         |          of a counter
//!  bursts            [--]     [------]   [--]
//!                             belongs here
//! ```
//!
//! The growth between two samples belongs to every burst of the counter's direction that overlaps
//! the time between these samples. A burst is therefore reported after the next sample. Growth that
//! overlaps no burst is counted separately. It means that the card queued or dropped packets
//! because of traffic that this program did not capture.
//!
//! Limits: at most [`GROWTHS_MAX`] samples with growth are kept, and each for at most twice the
//! length of the longest burst.

use std::collections::VecDeque;

use crate::analysis::burst::{Burst, Increment};
use crate::analysis::find::RUN_NS_MAX;
use crate::sources::arrival::PacketDirection;

/// The driver's counters of packets queued or dropped, in ENA's order. Each has the direction that
/// it counts; `None` means both directions.
pub const COUNTERS: [(&str, Option<PacketDirection>); 5] = [
    ("bw_in_allowance_exceeded", Some(PacketDirection::In)),
    ("bw_out_allowance_exceeded", Some(PacketDirection::Out)),
    ("pps_allowance_exceeded", None),
    ("conntrack_allowance_exceeded", None),
    ("linklocal_allowance_exceeded", None),
];
/// Largest number of samples with growth that are kept.
pub const GROWTHS_MAX: usize = 1024;
/// Time in nanoseconds for which the growth of a sample is kept for a burst: twice the longest
/// burst.
const KEPT_NS: u64 = 2 * RUN_NS_MAX;

/// Growth of the counters between two samples.
#[derive(Clone, Debug)]
struct Growth {
    from_ns: u64,
    to_ns: u64,
    by: Vec<u64>,
    belongs: bool,
}

/// The allowance counters of a driver, and their growth.
#[derive(Clone, Debug)]
pub struct Allowances {
    /// For each counter, its index in the driver's statistics and in [`COUNTERS`].
    places: Vec<(usize, usize)>,
    last: Option<(u64, Vec<u64>)>,
    samples: u64,
    growths: VecDeque<Growth>,
    total: Vec<u64>,
    strays: Vec<u64>,
}

impl Allowances {
    /// Returns the allowance counters among the names of a driver's statistics; `None` if no name
    /// is that of a counter.
    pub fn among(names: &[String]) -> Option<Self> {
        let place = |(n, (counter, _)): (usize, &(&str, Option<PacketDirection>))| {
            Some((names.iter().position(|name| name == counter)?, n))
        };
        let places: Vec<_> = COUNTERS.iter().enumerate().filter_map(place).collect();
        let zeros = vec![0; places.len()];
        (!places.is_empty()).then(|| Self {
            places,
            last: None,
            samples: 0,
            growths: VecDeque::new(),
            total: zeros.clone(),
            strays: zeros,
        })
    }

    /// Adds a sample of all statistics of the driver. If a counter is smaller than in the sample
    /// before, the driver was reset, so the counter's whole value is its growth.
    pub fn sample(&mut self, now_ns: u64, statistics: &[u64]) {
        let value = |(place, _): &(usize, usize)| statistics.get(*place).copied().unwrap_or(0);
        let values: Vec<u64> = self.places.iter().map(value).collect();
        if let Some((from_ns, before)) = self.last.take() {
            let grown = |(now, before): (&u64, &u64)| now.checked_sub(*before).unwrap_or(*now);
            let by: Vec<u64> = values.iter().zip(&before).map(grown).collect();
            self.total.iter_mut().zip(&by).for_each(|(total, by)| *total += by);
            if by.iter().any(|by| *by > 0) {
                self.growths.push_back(Growth { from_ns, to_ns: now_ns, by, belongs: false });
            }
        }
        self.samples += 1;
        self.last = Some((now_ns, values));
        while self.growths.front().is_some_and(|growth| growth.to_ns + KEPT_NS < now_ns)
            || self.growths.len() > GROWTHS_MAX
        {
            self.forget();
        }
    }

    /// Returns the time of the last sample in nanoseconds; `None` before the first sample.
    pub fn sampled_ns(&self) -> Option<u64> {
        self.last.as_ref().map(|(at, _)| *at)
    }

    /// Returns the number of samples.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Sets the burst's `allowances` to the growth that belongs to it. Call this function after the
    /// first sample that follows the end of the burst.
    pub fn attribute(&mut self, burst: &mut Burst) {
        let mut sum = vec![0_u64; self.places.len()];
        for growth in &mut self.growths {
            let overlaps = growth.from_ns < burst.end_ns() && growth.to_ns > burst.start_ns;
            if !overlaps {
                continue;
            }
            for ((sum, by), (_, counter)) in sum.iter_mut().zip(&growth.by).zip(&self.places) {
                let way = COUNTERS[*counter].1;
                if *by > 0 && way.is_none_or(|way| way == burst.way) {
                    *sum += by;
                    growth.belongs = true;
                }
            }
        }
        let named = self.places.iter().zip(sum).filter(|(_, packets)| *packets > 0);
        burst.allowances = named
            .map(|((_, counter), packets)| Increment {
                counter: COUNTERS[*counter].0.to_owned(),
                packets,
            })
            .collect();
    }

    /// Ends the assignment of the counters' growth to bursts. To be called after the last burst:
    /// growth that was not assigned is counted as growth that belongs to no burst.
    pub fn finish(&mut self) {
        while !self.growths.is_empty() {
            self.forget();
        }
    }

    /// Returns three values for each counter: its name, its growth since the first sample, and the
    /// part of the growth that belongs to no burst.
    pub fn totals(&self) -> Vec<(&'static str, u64, u64)> {
        let both = self.total.iter().zip(&self.strays);
        let named = self.places.iter().zip(both);
        named.map(|((_, counter), (total, stray))| (COUNTERS[*counter].0, *total, *stray)).collect()
    }

    fn forget(&mut self) {
        let Some(growth) = self.growths.pop_front() else { return };
        if !growth.belongs {
            self.strays.iter_mut().zip(&growth.by).for_each(|(stray, by)| *stray += by);
        }
    }
}

#[cfg(test)]
#[path = "allowances_tests.rs"]
mod tests;
