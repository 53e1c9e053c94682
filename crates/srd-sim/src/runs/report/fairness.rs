//! Fairness between endless flows that share a network, computed for each interval of recording.

use serde::Serialize;

use crate::engine::world::{Series, US};

/// Largest deviation of a flow from its fair share in any interval, with which a result still
/// counts as fair.
pub const DEVIATION_MAX: f64 = 0.05;
/// Smallest value of Jain's index in any interval, with which a result still counts as fair.
pub const JAIN_MIN: f64 = 0.995;

/// Shares of the flows in one interval. A share of 1 is the fair share.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Interval {
    /// End of the interval in microseconds.
    pub end_us: f64,
    /// Fair share of a flow in bits per second: the goodput of all flows divided by their number.
    pub fair_bps: f64,
    /// Smallest share of any flow, relative to the fair share.
    pub min: f64,
    /// Largest share of any flow, relative to the fair share.
    pub max: f64,
    /// Jain's fairness index of the flows in the interval.
    pub jain: f64,
}

/// Shares of flows relative to the fair share, over all intervals after the first.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Shares {
    /// Smallest share of any flow in any interval, relative to the fair share.
    pub min: f64,
    /// Largest share of any flow in any interval, relative to the fair share.
    pub max: f64,
    /// Smallest value of Jain's fairness index in any interval.
    pub jain_min: f64,
    /// Length of an interval in microseconds.
    pub interval_us: f64,
    /// Shares in each interval after the first.
    pub intervals: Vec<Interval>,
    /// For each flow, the share that was furthest from the fair share in any interval.
    pub furthest: Vec<f64>,
}

impl Shares {
    /// Whether the share of every flow, and Jain's index, stayed within the bounds in every
    /// interval.
    pub fn is_fair(&self) -> bool {
        let least = self.min >= 1.0 - DEVIATION_MAX;
        least && self.max <= 1.0 + DEVIATION_MAX && self.jain_min >= JAIN_MIN
    }

    /// Returns the number of the flow that was furthest from its fair share, and its share.
    pub fn furthest_flow(&self) -> Option<(usize, f64)> {
        let far = |share: f64| (share - 1.0).abs();
        let flows = self.furthest.iter().copied().enumerate();
        flows.max_by(|a, b| far(a.1).total_cmp(&far(b.1)))
    }
}

/// Returns the shares of endless flows. `None` if there are fewer than two flows or two intervals,
/// or if an interval has no delivered bytes.
pub fn shares(series: &Series) -> Option<Shares> {
    let flows = series.flow_bytes.first()?.len();
    if flows < 2 || series.flow_bytes.len() < 2 {
        return None;
    }
    let mut intervals = Vec::new();
    let mut furthest = vec![1.0_f64; flows];
    for (bytes, at_ps) in series.flow_bytes.iter().zip(&series.at_ps).skip(1) {
        let fair = bytes.iter().sum::<u64>() as f64 / flows as f64;
        if fair == 0.0 {
            return None;
        }
        let shares = bytes.iter().map(|&b| b as f64 / fair);
        for (share, furthest) in shares.clone().zip(&mut furthest) {
            if (share - 1.0).abs() > (*furthest - 1.0).abs() {
                *furthest = share;
            }
        }
        intervals.push(Interval {
            end_us: *at_ps as f64 / US as f64,
            fair_bps: fair * 8e12 / series.interval_ps as f64,
            min: shares.clone().fold(f64::INFINITY, f64::min),
            max: shares.clone().fold(0.0, f64::max),
            jain: flows as f64 / shares.map(|s| s * s).sum::<f64>(),
        });
    }
    let least = |pick: fn(&Interval) -> f64| intervals.iter().map(pick).fold(1.0, f64::min);
    Some(Shares {
        min: least(|i| i.min),
        max: intervals.iter().map(|i| i.max).fold(1.0, f64::max),
        jain_min: least(|i| i.jain),
        interval_us: series.interval_ps as f64 / US as f64,
        intervals,
        furthest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(flow_bytes: Vec<Vec<u64>>) -> Series {
        let at_ps = (1..=flow_bytes.len() as u64).map(|n| n * 10 * US).collect();
        Series { interval_ps: 10 * US, at_ps, flow_bytes, ..Series::default() }
    }

    #[test]
    fn the_first_interval_does_not_count_and_the_worst_does() {
        let shares = shares(&series(vec![vec![0, 9], vec![100, 100], vec![96, 104]])).unwrap();
        assert_eq!(shares.intervals.len(), 2);
        assert!((shares.min - 0.96).abs() < 1e-9 && (shares.max - 1.04).abs() < 1e-9);
        assert!(shares.is_fair() && shares.jain_min < 1.0 && shares.jain_min > 0.998);
        assert!(shares.furthest_flow().is_some_and(|(_, share)| (share - 1.0).abs() > 0.039));
        // The fair share is 100 bytes in 10 us.
        assert!((shares.intervals[0].fair_bps - 80e6).abs() < 1.0);
    }

    #[test]
    fn six_percent_are_not_fair() {
        assert!(!shares(&series(vec![vec![1, 1], vec![94, 106]])).unwrap().is_fair());
    }

    #[test]
    fn nothing_is_said_of_one_flow_one_interval_or_silence() {
        for bytes in [vec![], vec![vec![1, 1]], vec![vec![1], vec![1]], vec![vec![0, 0]; 3]] {
            assert_eq!(shares(&series(bytes)), None);
        }
    }
}
