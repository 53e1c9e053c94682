//! Line charts that an experiment shows in addition to its figures.

use serde::Serialize;

/// A line chart.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// Title of the chart.
    pub title: String,
    /// Label and unit of the horizontal axis.
    pub x: &'static str,
    /// Label and unit of the vertical axis.
    pub y: &'static str,
    /// The name of each line, and its points.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}
