//! Metrics for Prometheus, in the format OpenMetrics.

use std::fmt;

use crate::{Request, Response, Status};

/// Type of the content of a response with metrics.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers a request of a server that has only `/metrics`. `encode` writes the metrics.
pub fn answer(request: &Request, encode: impl FnOnce(&mut String) -> fmt::Result) -> Response {
    if request.path != "/metrics" {
        return Response::text(Status::NotFound, "there is /metrics");
    }
    let mut text = String::new();
    match encode(&mut text) {
        Ok(()) => Response::ok(CONTENT_TYPE, text),
        Err(error) => Response::text(Status::Unavailable, error.to_string()),
    }
}
