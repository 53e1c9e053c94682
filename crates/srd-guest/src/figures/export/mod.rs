//! Figures of the card in the forms of OpenTelemetry and of CloudWatch, one line of JSON each.
//!
//! | module | content |
//! |---|---|
//! | `samples` | OpenMetrics text of the card, as names, labels and values |
//! | `opentelemetry` | all metrics of the card in the JSON form of OTLP |
//! | `cloudwatch` | the counters of each interface under the names of the agent of CloudWatch |

mod cloudwatch;
mod opentelemetry;
mod samples;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use cloudwatch::NAMESPACE_DEFAULT;
pub use cloudwatch::is_namespace;

use crate::control::protocol::{FlowLog, Status};
use crate::figures::metrics;

/// Form of exported figures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Form {
    /// OTLP in JSON: one line with all metrics, which a collector of OpenTelemetry reads.
    OpenTelemetry,
    /// The embedded metric format: a line for each interface, which the agent of CloudWatch reads.
    CloudWatch {
        /// Namespace of the metrics; [`is_namespace`] must accept it.
        namespace: String,
    },
}

/// Returns the lines that contain the figures of a card at a time, in this form.
///
/// # Panics
/// The function never panics, because writing to a text in memory cannot fail.
pub fn lines(form: &Form, status: &Status, logs: &[FlowLog], at: SystemTime) -> Vec<String> {
    let at = at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    match form {
        Form::OpenTelemetry => {
            let text = metrics::text(status, logs);
            let families = samples::families(&text);
            vec![opentelemetry::line(status, &families, at)]
        }
        Form::CloudWatch { namespace } => cloudwatch::lines(namespace, status, at),
    }
}
