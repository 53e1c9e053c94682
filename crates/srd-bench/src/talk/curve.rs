//! Lines beside the figures of an experiment.

use serde::Serialize;

/// Lines over one axis.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// What it shows.
    pub title: String,
    /// The axes: label and unit.
    pub x: &'static str,
    /// The other one.
    pub y: &'static str,
    /// Each line with its name.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}
