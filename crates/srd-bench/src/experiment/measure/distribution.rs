//! A distribution of many numbers of one kind, and its percentiles.

use crate::experiment::measure::counts::Counts;
use serde::Serialize;
use serde::ser::SerializeStruct;
use std::collections::BTreeMap;

/// Percentiles that are reported for a distribution; the last percentile is the largest sample.
pub const PERCENTILES: [f64; 9] = [50.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999, 99.9999, 100.0];

/// Percentiles from this percentile on are reported only if [`BEYOND_MIN`] samples are beyond them.
const FAR: f64 = 99.99;
/// Smallest number of samples beyond a far percentile. With fewer, the percentile would be one of
/// the few largest samples, and depend on chance.
const BEYOND_MIN: f64 = 10.0;

/// Samples in order, as a list or as a histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// Name of the samples, such as `latency`.
    pub name: &'static str,
    /// Unit of the samples; empty for a pure number.
    pub unit: &'static str,
    values: Values,
}

#[derive(Clone, Debug, PartialEq)]
enum Values {
    Sorted(Vec<f64>),
    Counted(Counts),
}

impl Distribution {
    /// Creates a distribution of values in any order.
    #[must_use]
    pub fn new(name: &'static str, unit: &'static str, mut values: Vec<f64>) -> Distribution {
        values.sort_by(f64::total_cmp);
        Distribution { name, unit, values: Values::Sorted(values) }
    }

    /// Creates a distribution of durations from a histogram; the unit is `us`, `ms` or `s`.
    #[must_use]
    pub fn counted(name: &'static str, unit: &'static str, counts: Counts) -> Distribution {
        Distribution { name, unit, values: Values::Counted(counts) }
    }

    /// Returns the number of samples.
    #[must_use]
    pub fn count(&self) -> usize {
        match &self.values {
            Values::Sorted(sorted) => sorted.len(),
            Values::Counted(counts) => usize::try_from(counts.count()).unwrap_or(usize::MAX),
        }
    }

    /// Returns the sample that has exactly `at` samples below it in sorted order; `None` if there
    /// are not so many.
    #[must_use]
    pub fn nth(&self, at: usize) -> Option<f64> {
        match &self.values {
            Values::Sorted(sorted) => sorted.get(at).copied(),
            Values::Counted(counts) => Some(counts.nth_ns(at as u64)? / ns_of(self.unit)),
        }
    }

    /// Returns a percentile by nearest rank; 100 is the largest sample. At least one sample must be
    /// beyond the percentile, and at least ten from p99.99 upwards; otherwise returns `None`.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Option<f64> {
        let count = self.count() as f64;
        let beyond = (100.0 - percent) / 100.0 * count;
        let wanted = if percent < FAR { 1.0 } else { BEYOND_MIN };
        // The tolerance is relative, because percentiles are not exact in binary and numbers of
        // samples may be large.
        if percent < 100.0 && beyond < wanted * (1.0 - 1e-7) {
            return None;
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // at most the count
        let rank = (percent / 100.0 * count - 1e-9).ceil().max(1.0) as usize;
        self.nth(rank - 1)
    }
}

/// Returns the number of nanoseconds in a unit of time.
fn ns_of(unit: &str) -> f64 {
    match unit {
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        other => unreachable!("times are in us, ms or s, not {other}"),
    }
}

impl Serialize for Distribution {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut all = serializer.serialize_struct("Distribution", 4)?;
        all.serialize_field("name", self.name)?;
        all.serialize_field("unit", self.unit)?;
        all.serialize_field("count", &self.count())?;
        let known =
            PERCENTILES.iter().filter_map(|p| Some((format!("p{p}"), self.percentile(*p)?)));
        all.serialize_field("percentiles", &known.collect::<BTreeMap<_, _>>())?;
        all.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_far_percentile_needs_ten_samples_beyond_it() {
        let ramp = |count: u32| Distribution::new("", "", (1..=count).map(f64::from).collect());
        assert_eq!(ramp(100).percentile(99.0), Some(99.0));
        assert_eq!(ramp(99).percentile(99.0), None);
        assert_eq!(ramp(1000).percentile(99.9), Some(999.0));
        assert_eq!(ramp(999).percentile(99.9), None);
        assert_eq!(ramp(100_000).percentile(99.99), Some(99_990.0));
        assert_eq!(ramp(99_000).percentile(99.99), None);
        assert_eq!(ramp(1_000_000).percentile(99.999), Some(999_990.0));
        assert_eq!(ramp(1_000_000).percentile(99.9999), None);
        assert_eq!(ramp(3).percentile(100.0), Some(3.0));
        assert_eq!(ramp(0).percentile(100.0), None);
    }

    #[test]
    fn counted_times_are_shown_in_their_unit() {
        let mut counts = Counts::default();
        (1..=1000).for_each(|us| counts.record(Duration::from_micros(us)));
        let times = Distribution::counted("latency", "us", counts.clone());
        assert_eq!(times.count(), 1000);
        assert!((times.percentile(99.0).unwrap() - 990.0).abs() < 1.0, "{times:?}");
        assert!((times.nth(0).unwrap() - 1.0).abs() < 1e-2);
        let ms = Distribution::counted("latency", "ms", counts).percentile(100.0).unwrap();
        assert!((1.0..1.001).contains(&ms), "{ms}");
    }

    #[test]
    fn six_nines_of_ten_million_counted_times_are_known() {
        let mut counts = Counts::default();
        let mut half = Counts::default();
        half.record(Duration::from_micros(100));
        for _ in 0..24 {
            counts.add(&half);
            half.add(&half.clone());
        }
        let times = Distribution::counted("", "us", counts);
        assert!(times.count() > 10_000_000 && times.percentile(99.9999).is_some());
    }
}
