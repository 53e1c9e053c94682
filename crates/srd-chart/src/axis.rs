//! Axes: conversion of values to positions, and selection of ticks.

/// Largest ratio of maximum to minimum for which [`Axis::fitting`] returns a linear axis.
const LINEAR_SPAN_MAX: f64 = 20.0;
/// Largest number of ticks of an axis.
const TICKS_MAX: u32 = 100;

/// One axis of a chart: label, range and scale.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Label of the axis, with the unit.
    pub label: String,
    /// Value at the beginning of the axis; above zero for a logarithmic axis.
    pub min: f64,
    /// Value at the end of the axis.
    pub max: f64,
    /// Whether the axis is logarithmic.
    pub log: bool,
}

impl Axis {
    /// Returns a linear axis. If `max` is not above `min`, the axis ends at `min + 1`, or further
    /// if the sum would be equal to `min`.
    #[must_use]
    pub fn linear(label: &str, min: f64, max: f64) -> Self {
        let max = if max > min { max } else { min + (min.abs() * 1e-9).max(1.0) };
        Self { label: label.to_owned(), min, max, log: false }
    }

    /// Returns a logarithmic axis. A `min` below 1e-9 is replaced by 1e-9, and a `max` that is not
    /// above `min` by a slightly larger value.
    #[must_use]
    pub fn log(label: &str, min: f64, max: f64) -> Self {
        let min = min.max(1e-9);
        Self { label: label.to_owned(), min, max: max.max(min * 1.001), log: true }
    }

    /// Returns an axis that covers the values from `min` to `max`, with a margin. The axis of
    /// values that are not negative begins at zero or above. It is logarithmic if `min` is positive
    /// and `max` is more than 20 times as large.
    #[must_use]
    pub fn fitting(label: &str, min: f64, max: f64) -> Self {
        if min > 0.0 && max > min * LINEAR_SPAN_MAX {
            return Self::log(label, min * 0.9, max * 1.1);
        }
        let margin = (max - min) * 0.05;
        let begin = if min < 0.0 { min - margin } else { (min - margin).max(0.0) };
        Self::linear(label, begin, max + margin)
    }

    /// Whether a value is on the axis, except for the error of its computation.
    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        let error = (self.max - self.min) * 1e-9;
        (self.min - error..=self.max + error).contains(&value)
    }

    /// Returns the position of a value along the axis, from 0 (beginning) to 1 (end).
    #[must_use]
    pub fn place(&self, value: f64) -> f64 {
        let place = if self.log {
            (value.max(self.min) / self.min).ln() / (self.max / self.min).ln()
        } else {
            (value - self.min) / (self.max - self.min)
        };
        place.clamp(0.0, 1.0)
    }

    /// Returns about `count` round values in ascending order, at which the axis has ticks.
    #[must_use]
    pub fn ticks(&self, count: usize) -> Vec<f64> {
        if self.log { self.log_ticks(count) } else { self.linear_ticks(count) }
    }

    fn linear_ticks(&self, count: usize) -> Vec<f64> {
        let rough = (self.max - self.min) / count.max(1) as f64;
        let power = 10_f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
        let step = steps.into_iter().find(|step| *step >= rough * 0.999).unwrap_or(power * 10.0);
        let first = (self.min / step).ceil();
        let tick = |n: u32| (first + f64::from(n)) * step;
        let last = self.max + (self.max - self.min) * 1e-9;
        (0..TICKS_MAX).map(tick).take_while(|tick| *tick <= last).collect()
    }

    fn log_ticks(&self, count: usize) -> Vec<f64> {
        let decades = (self.max / self.min).log10();
        let digits: &[f64] = match decades * 3.0 / count.max(1) as f64 {
            dense if dense <= 0.5 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
            dense if dense <= 1.2 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let mut ticks = Vec::new();
        let mut power = 10_f64.powf(self.min.log10().floor());
        while power <= self.max && ticks.len() < TICKS_MAX as usize {
            let here = digits.iter().map(|digit| digit * power);
            ticks.extend(here.filter(|tick| (self.min..=self.max).contains(tick)));
            power *= 10.0;
        }
        ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_ticks_are_round_and_inside() {
        assert_eq!(
            Axis::linear("", 0.0, 1000.0).ticks(5),
            [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0]
        );
        assert_eq!(Axis::linear("", 0.0, 4.6).ticks(5), [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(Axis::linear("", -60.0, 20.0).ticks(4), [-60.0, -40.0, -20.0, 0.0, 20.0]);
        assert_eq!(Axis::linear("", 3.0, 3.0).ticks(5).len(), 6, "an empty range is widened");
    }

    #[test]
    fn log_ticks_are_inside_and_spread() {
        let axis = Axis::log("", 80.0, 9000.0);
        assert_eq!(axis.ticks(6), [100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0]);
        assert!((axis.place(80.0)).abs() < 1e-9 && (axis.place(9000.0) - 1.0).abs() < 1e-9);
        assert!(axis.place(0.0).abs() < 1e-9, "what is off the axis stays at its end");
    }

    #[test]
    fn values_that_are_far_apart_get_a_logarithmic_axis() {
        assert!(Axis::fitting("", 10.0, 9000.0).log);
        let near = Axis::fitting("", 10.0, 20.0);
        assert!(!near.log && near.min == 9.5 && near.max == 20.5);
    }

    /// In an earlier version, the axis of negative values began at zero, where all of them were
    /// drawn, and an axis of one huge value had no length.
    #[test]
    fn regression_every_value_has_its_place() {
        let axis = Axis::fitting("", -10.0, 10.0);
        assert_eq!((axis.min, axis.max), (-11.0, 11.0));
        assert!(axis.place(-10.0) < axis.place(-5.0));
        assert!(Axis::linear("", 1e20, 1e20).place(1e20).is_finite());
    }
}
