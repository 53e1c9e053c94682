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

/// Converts the figures of a card to lines, one time after the other.
#[derive(Debug)]
pub struct Exporter {
    form: Form,
    last: Option<opentelemetry::Sums>,
}

impl Exporter {
    /// Returns an exporter whose lines have this form.
    pub fn new(form: Form) -> Self {
        Self { form, last: None }
    }

    /// Returns the lines that contain the figures of the card at a time. In the form of OTLP, a
    /// counter keeps its start time until the card restarts or the counter falls.
    ///
    /// # Panics
    /// The function never panics, because writing to a text in memory cannot fail.
    pub fn lines(&mut self, status: &Status, logs: &[FlowLog], at: SystemTime) -> Vec<String> {
        let at = at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        match &self.form {
            Form::OpenTelemetry => {
                let text = metrics::text(status, logs);
                let families = samples::families(&text);
                vec![opentelemetry::line(status, &families, at, &mut self.last)]
            }
            Form::CloudWatch { namespace } => cloudwatch::lines(namespace, status, at),
        }
    }
}
