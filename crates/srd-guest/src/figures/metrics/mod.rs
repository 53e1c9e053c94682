//! Figures of instances for the HTTP server of the node, which gives them to Prometheus and shows
//! them on its page.
//!
//! | path below `/instances` | content |
//! |---|---|
//! | `/` | the page: one file, without external resources |
//! | `/status.json` | [`Status`], and the flow logs; `?instance=NAME` adds flows of that instance |
//!
//! `srd_http` decides which readers get an answer. Whatever the number of readers, figures are
//! collected at most once in [`PAUSE`], on the thread of a reader. So figures are not older than
//! [`PAUSE`], unless [`Status::stale_s`] contains a larger age.
//!
//! | module | content |
//! |---|---|
//! | `exposition` | a status as OpenMetrics text |
//! | `counters` | meanings of the counters of an interface |
//! | `sample` | a status with one of everything, for the reference of all metrics |

#[cfg(test)]
mod browser_tests;
mod counters;
mod exposition;
mod sample;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use srd_daemon::metrics::{InstanceFigures, TABS_OF_INSTANCES};
use srd_http::{Request, Response, Tab};

pub use sample::metrics_sample;
#[cfg(test)]
pub(crate) use sample::sample_status;

use crate::control::orders::Orders;
use crate::control::protocol::{Flow, FlowLog, Status};
use crate::control::views;

/// Text of the page at `/`. Styles and functions that all pages share are in `srd_http`.
const PAGE: &str = include_str!("page.html");
/// Minimum time between two collections of figures. Meanwhile readers share the last figures.
const PAUSE: Duration = Duration::from_millis(250);
/// Maximum number of flows of each interface in `/status.json`.
const FLOWS_MAX: usize = 50;

/// The figures of one collection.
#[derive(Debug)]
struct Figures {
    status: Status,
    logs: Vec<FlowLog>,
}

/// Collects figures at a limited rate.
struct Asking {
    orders: Orders,
    /// The last figures, with the time of their collection. The lock is held during a collection,
    /// while other readers wait.
    last: Mutex<Option<(Instant, Arc<Figures>)>>,
    /// The last flows of an instance. The lock is held during a collection.
    flows: Mutex<Option<FlowsOf>>,
}

/// Flows of an instance, and the time of their collection.
struct FlowsOf {
    at: Instant,
    instance: String,
    flows: Arc<Vec<Flow>>,
}

/// Returns the figures of a card as OpenMetrics text.
///
/// # Panics
/// The function never panics, because writing to a text in memory cannot fail.
pub(in crate::figures) fn text(status: &Status, logs: &[FlowLog]) -> String {
    exposition::write(status, logs).expect("a text in memory can be written")
}

/// Returns the figures of instances for the server of a node. `is_alone`: whether the node has
/// neither an interface nor other hosts, so that its page shows only instances.
pub(crate) fn of_node(orders: Orders, is_alone: bool) -> InstanceFigures {
    let asking = Arc::new(Asking::new(orders));
    let tabs: &[Tab] = if is_alone { &[] } else { &TABS_OF_INSTANCES };
    let page = srd_http::page(PAGE, tabs);
    let of_metrics = Arc::clone(&asking);
    InstanceFigures {
        answer: Box::new(move |path, request| asking.respond(path, request, &page)),
        metrics: Box::new(move || {
            let metrics = of_metrics.figures().and_then(|figures| figures.exposition());
            metrics.map_err(|why| format!("{why:#}"))
        }),
        is_alone,
    }
}

fn answer(path: &str, request: &Request, asking: &Asking, page: &str) -> Result<Response> {
    match path {
        "/" => Ok(Response::ok("text/html; charset=utf-8", page.to_owned())),
        "/status.json" => {
            let figures = asking.figures()?;
            let instance = srd_http::query_value(&request.query, "instance");
            // An instance that no longer exists has no flows.
            let is_there = |name: &String| figures.status.instances.iter().any(|i| i.name == *name);
            let flows = match instance.filter(is_there) {
                Some(name) => asking.flows(&name)?,
                None => Arc::default(),
            };
            let Figures { status, logs } = &*figures;
            let body = serde_json::json!({ "status": status, "logs": logs, "flows": *flows });
            Ok(Response::ok("application/json", body.to_string()))
        }
        _ => {
            let text = "there are / and /status.json";
            Ok(Response::text(srd_http::Status::NotFound, text))
        }
    }
}

impl Figures {
    fn exposition(&self) -> Result<String> {
        Ok(exposition::write(&self.status, &self.logs)?)
    }
}

impl Asking {
    fn new(orders: Orders) -> Self {
        Self { orders, last: Mutex::default(), flows: Mutex::default() }
    }

    /// Answers a request for a path.
    fn respond(&self, path: &str, request: &Request, page: &str) -> Response {
        let made = answer(path, request, self, page);
        made.unwrap_or_else(|why| Response::text(srd_http::Status::Unavailable, format!("{why:#}")))
    }

    fn figures(&self) -> Result<Arc<Figures>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, figures)) = last.as_ref().filter(|(at, _)| at.elapsed() <= PAUSE) {
            return Ok(Arc::clone(figures));
        }
        let status = views::status(&self.orders)?;
        let figures = Arc::new(Figures { status, logs: views::logs(&self.orders) });
        *last = Some((Instant::now(), Arc::clone(&figures)));
        Ok(figures)
    }

    fn flows(&self, instance: &str) -> Result<Arc<Vec<Flow>>> {
        let mut last = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last.as_ref() {
            if last.at.elapsed() <= PAUSE && last.instance == instance {
                return Ok(Arc::clone(&last.flows));
            }
            // Flows of different instances are collected at intervals of at least a tenth of
            // [`PAUSE`].
            std::thread::sleep((PAUSE / 10).saturating_sub(last.at.elapsed()));
        }
        // The instance may be gone by now.
        let flows = views::flows(&self.orders, instance, FLOWS_MAX).unwrap_or_default();
        let flows = Arc::new(flows);
        let (at, instance) = (Instant::now(), instance.to_owned());
        *last = Some(FlowsOf { at, instance, flows: Arc::clone(&flows) });
        Ok(flows)
    }
}
