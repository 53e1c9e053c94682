//! Many numbers of one kind, in order, and their percentiles.

use serde::Serialize;
use serde::ser::SerializeStruct;
use std::collections::BTreeMap;

/// Percentiles that a distribution is reported with; the last is the worst of all samples.
pub const PERCENTILES: [f64; 8] = [50.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999, 100.0];

/// A distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// What it is of.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    sorted: Vec<f64>,
}

impl Distribution {
    /// A distribution of values in any order.
    #[must_use]
    pub fn new(name: &'static str, unit: &'static str, mut values: Vec<f64>) -> Distribution {
        values.sort_by(f64::total_cmp);
        Distribution { name, unit, sorted: values }
    }

    /// How many samples.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// The samples, least first.
    #[must_use]
    pub fn sorted(&self) -> &[f64] {
        &self.sorted
    }

    /// The nearest rank; `None` if there are too few samples for one to lie beyond it, except
    /// for the worst of all.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Option<f64> {
        let count = self.sorted.len() as f64;
        let beyond = (100.0 - percent) / 100.0 * count;
        if percent < 100.0 && beyond < 1.0 - 1e-9 {
            return None;
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // at most the count
        let rank = (percent / 100.0 * count - 1e-9).ceil().max(1.0) as usize;
        self.sorted.get(rank - 1).copied()
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
