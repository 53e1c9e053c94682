//! Lines beside the figures of an experiment.

use serde::Serialize;

/// Lines over one axis.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// Title of the chart.
    pub title: String,
    /// Label and unit of the horizontal axis.
    pub x: &'static str,
    /// Label and unit of the vertical axis.
    pub y: &'static str,
    /// Each line with its name.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}
