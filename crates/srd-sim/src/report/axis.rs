//! Axes: where values are, which deserve a tick, and how numbers are written.

/// An axis of a chart.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    /// What it shows, with its unit.
    pub label: String,
    /// The value at its beginning.
    pub min: f64,
    /// The value at its end.
    pub max: f64,
    /// Whether it is logarithmic.
    pub log: bool,
}

impl Axis {
    /// From `min` to `max`.
    pub fn linear(label: &str, min: f64, max: f64) -> Self {
        Self { label: label.to_owned(), min, max: max.max(min + 1e-9), log: false }
    }

    /// Logarithmic if the values span more than a factor of twenty.
    pub fn fitting(label: &str, min: f64, max: f64) -> Self {
        let log = min > 0.0 && max > min * 20.0;
        if log {
            return Self { label: label.to_owned(), min: min * 0.9, max: max * 1.1, log };
        }
        let rest = (max - min) * 0.05;
        Self::linear(label, (min - rest).max(0.0), max + rest)
    }

    /// Where a value is: 0 at the beginning, 1 at the end, and nothing beyond.
    pub fn place(&self, value: f64) -> f64 {
        let place = if self.log {
            (value.max(self.min) / self.min).ln() / (self.max / self.min).ln()
        } else {
            (value - self.min) / (self.max - self.min)
        };
        place.clamp(0.0, 1.0)
    }

    /// About `count` round values.
    pub fn ticks(&self, count: usize) -> Vec<f64> {
        let steps = if self.log { self.log_ticks(count) } else { self.linear_ticks(count) };
        let within = |t: &f64| *t >= self.min - 1e-12 && *t <= self.max * (1.0 + 1e-12);
        steps.into_iter().filter(within).collect()
    }

    fn linear_ticks(&self, count: usize) -> Vec<f64> {
        let rough = (self.max - self.min) / count.max(1) as f64;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|s| s * power >= rough * 0.999);
        let step = step.unwrap_or(10.0) * power;
        let first = (self.min / step).ceil();
        (0..50).map(|n| (first + f64::from(n)) * step).collect()
    }

    fn log_ticks(&self, count: usize) -> Vec<f64> {
        let decades = (self.max / self.min).log10();
        let digits: &[f64] = if decades * 3.0 <= count as f64 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let mut power = 10_f64.powf(self.min.log10().floor());
        let mut ticks = Vec::new();
        while power <= self.max && ticks.len() < 100 {
            ticks.extend(digits.iter().map(|d| d * power));
            power *= 10.0;
        }
        ticks
    }
}

/// A number with four significant digits at most, and no digit that says nothing.
pub fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".to_owned();
    }
    let (scaled, suffix) = match value.abs() {
        v if v >= 1e7 => (value / 1e6, " M"),
        v if v >= 1e5 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = 3.0 - scaled.abs().log10().floor().clamp(-6.0, 3.0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to 9
    let text = format!("{scaled:.*}", digits as usize);
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{suffix}")
}
