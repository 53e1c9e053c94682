//! Quantities in units that are easy to read: `935 Mb/s`, not `934536978`.

use crate::{figure, grouped};

/// Value from which the next larger unit is used, if there is a larger unit.
const VALUE_MAX: f64 = 10_000.0;

/// Units of one quantity, in ascending order: the name of each unit, and its size in the base unit
/// of the quantity.
type Family = &'static [(&'static str, f64)];

const BITS_PER_SECOND: Family = &[("b/s", 1.0), ("kb/s", 1e3), ("Mb/s", 1e6), ("Gb/s", 1e9)];
const BYTES_PER_SECOND: Family = &[("B/s", 1.0), ("kB/s", 1e3), ("MB/s", 1e6), ("GB/s", 1e9)];
const BYTES: Family = &[("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9)];
const SECONDS: Family = &[("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];
const PER_SECOND: Family = &[("/s", 1.0), ("k/s", 1e3), ("M/s", 1e6)];
const FAMILIES: [Family; 5] = [BITS_PER_SECOND, BYTES_PER_SECOND, BYTES, SECONDS, PER_SECOND];

/// Pairs of an alternative name of a unit and the name of that unit in [`FAMILIES`].
const OTHER_NAMES: [(&str, &str); 14] = [
    ("bit/s", "b/s"),
    ("bits/s", "b/s"),
    ("bps", "b/s"),
    ("Kb/s", "kb/s"),
    ("kbit/s", "kb/s"),
    ("Mbit/s", "Mb/s"),
    ("Gbit/s", "Gb/s"),
    ("bytes/s", "B/s"),
    ("KB/s", "kB/s"),
    ("bytes", "B"),
    ("us", "µs"),
    ("seconds", "s"),
    ("1/s", "/s"),
    ("requests/s", "/s"),
];

/// The unit in which a group of values is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    name: String,
    /// Factor by which values are multiplied to convert them to this unit.
    factor: f64,
}

impl Unit {
    /// Returns the unit in which `values`, given in `unit`, are easy to read. The result is the
    /// largest unit in which the smallest value is at least 1. If the largest value would then
    /// reach 10,000, a larger unit is selected. An unknown `unit` is kept.
    #[must_use]
    pub fn fitting(unit: &str, values: impl IntoIterator<Item = f64>) -> Self {
        let sizes = values.into_iter().map(f64::abs);
        let sizes = sizes.filter(|size| *size > 0.0 && size.is_finite());
        let range = sizes.fold(None, |range: Option<(f64, f64)>, size| {
            Some(range.map_or((size, size), |(least, most)| (least.min(size), most.max(size))))
        });
        let Some((family, own)) = known(unit) else {
            return Self { name: unit.to_owned(), factor: 1.0 };
        };
        let Some((least, most)) = range else {
            return Self { name: unit.to_owned(), factor: 1.0 };
        };
        let holds = |(_, size): &&(&str, f64)| least * own / size >= 0.9995;
        let short = |(_, size): &&(&str, f64)| most * own / size < VALUE_MAX;
        let found = family.iter().rev().find(holds).unwrap_or(&family[0]);
        let found = match short(&found) {
            true => found,
            false => family.iter().find(short).unwrap_or(&family[family.len() - 1]),
        };
        Self { name: found.0.to_owned(), factor: own / found.1 }
    }

    /// Returns the name of the unit.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Converts a value to this unit.
    #[must_use]
    pub fn scale(&self, value: f64) -> f64 {
        value * self.factor
    }

    /// Returns a value, converted to this unit, as text without the unit's name.
    #[must_use]
    pub fn digits(&self, value: f64) -> String {
        let scaled = self.scale(value);
        if scaled.abs() >= VALUE_MAX {
            grouped(format_args!("{scaled:.0}"))
        } else {
            figure(scaled)
        }
    }

    /// Returns a value, converted to this unit, as text with the unit's name.
    #[must_use]
    pub fn show(&self, value: f64) -> String {
        let digits = self.digits(value);
        match self.name.as_str() {
            "" => digits,
            "x" | "%" => format!("{digits}{}", self.name),
            name => format!("{digits} {name}"),
        }
    }
}

/// Returns the text of a value in a suitable unit: `quantity(934_536_978.0, "b/s")` is `935 Mb/s`.
#[must_use]
pub fn quantity(value: f64, unit: &str) -> String {
    Unit::fitting(unit, [value]).show(value)
}

/// Converts a value between units of one quantity, such as `ms` and `s`. Returns `None` if a unit
/// is unknown, or if the units measure different quantities.
#[must_use]
pub fn converted(value: f64, from: &str, to: &str) -> Option<f64> {
    let ((family, from), (other, to)) = (known(from)?, known(to)?);
    (family[0] == other[0]).then(|| value * from / to)
}

/// Whether a larger value of this unit is better: true for rates, false for times, `None` for
/// numbers of bytes and unknown units.
#[must_use]
pub fn more_is_better(unit: &str) -> Option<bool> {
    let (family, _) = known(unit)?;
    let first = family[0].0;
    match first {
        "ns" => Some(false),
        "B" => None,
        _ => Some(true),
    }
}

/// Returns the family of a unit, and the size of the unit in the family's base unit.
fn known(unit: &str) -> Option<(Family, f64)> {
    let other = OTHER_NAMES.iter().find(|(other, _)| *other == unit);
    let name = other.map_or(unit, |(_, name)| *name);
    FAMILIES.into_iter().find_map(|family| {
        let (_, size) = family.iter().find(|(known, _)| *known == name)?;
        Some((family, *size))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_has_three_digits_and_the_unit_that_suits_it() {
        for (value, unit, text) in [
            (934_536_978.0, "b/s", "935 Mb/s"),
            (9_874.0, "Mb/s", "9.87 Gb/s"),
            (952.0, "Mbit/s", "952 Mb/s"),
            (0.0021, "s", "2.10 ms"),
            (48_000.0, "us", "48.0 ms"),
            (5.012, "s", "5.01 s"),
            (123_456.0, "requests/s", "123 k/s"),
            (1_500.0, "bytes", "1.50 kB"),
            (0.0, "b/s", "0 b/s"),
            (2.5, "x", "2.50x"),
            (41.0, "%", "41.0%"),
            (1_234_567.0, "things", "1,234,567 things"),
            (7.0, "", "7.00"),
        ] {
            assert_eq!(quantity(value, unit), text);
        }
    }

    #[test]
    fn units_of_one_family_are_converted() {
        assert_eq!(converted(250.0, "Mb/s", "bits/s"), Some(250e6));
        assert_eq!(converted(250.0, "Mb/s", "MB/s"), None);
        assert_eq!(
            ["Gb/s", "ms", "requests/s", "B", "°C"].map(more_is_better),
            [Some(true), Some(false), Some(true), None, None]
        );
    }

    #[test]
    fn values_that_stand_together_have_one_unit() {
        let unit = Unit::fitting("b/s", [247e6, 1e9]);
        assert_eq!([247e6, 1e9].map(|value| unit.show(value)), ["247 Mb/s", "1000 Mb/s"]);
        let unit = Unit::fitting("b/s", [900.0, 40e9]);
        assert_eq!([900.0, 40e9].map(|value| unit.show(value)), ["0.000 Gb/s", "40.0 Gb/s"]);
        assert_eq!(Unit::fitting("b/s", []).name(), "b/s");
    }
}
