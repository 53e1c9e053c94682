//! The HTTP server of the metrics: the answer to a request for each path.

use std::io;
use std::os::fd::OwnedFd;

use srd_http::{Request, Response, Status, Tab, query_value};

use super::cache::Cache;
use super::exposition;
use crate::config::Metrics;
use crate::plane::{Detail, PathsOf, PlaneHandle};

/// Largest number of paths of all peers together at which `/metrics` contains metrics for each
/// path. Beyond it, only metrics for peers are written.
pub const PATH_SERIES_MAX: usize = 16_384;
/// Largest number of flows in `/status.json`.
pub const FLOWS_MAX: usize = 50;

/// Opens the listening socket. Call it before privileges are dropped.
///
/// # Errors
/// The system's error, with a text for a person.
pub fn bind(metrics: &Metrics) -> io::Result<srd_http::Listener> {
    let listener = srd_http::Listener::bind(metrics.listen, metrics.allow_remote)?;
    Ok(listener.also_named(&metrics.host_names))
}

/// Continues to listen at the socket of another process, which has the address of these settings.
pub(crate) fn adopt(socket: OwnedFd, metrics: &Metrics) -> srd_http::Listener {
    let listener = srd_http::Listener::adopt(socket, metrics.allow_remote);
    listener.also_named(&metrics.host_names)
}

/// Starts to serve requests at a listener. Dropping the returned server ends it. `instances`: the
/// figures of instances, if the node has any.
///
/// # Errors
/// If no thread can be started.
pub fn start(
    listener: srd_http::Listener,
    plane: PlaneHandle,
    instances: Option<InstanceFigures>,
) -> io::Result<srd_http::Server> {
    let cache = Cache::new(plane);
    let tabs: &[Tab] = if instances.is_some() { &TABS } else { &[] };
    let page = srd_http::page(include_str!("page.html"), tabs);
    let answer = move |request: &Request| answer(request, &cache, &page, instances.as_ref());
    srd_http::Server::start(listener, Box::new(answer))
}

/// The tabs of the page of a node with instances, as the page of the interface shows them.
const TABS: [Tab; 2] = [
    Tab { name: "Interface", path: "./", is_present: true },
    Tab { name: "Instances", path: "instances/", is_present: false },
];
/// The tabs of the page of a node with instances, as the page of the instances shows them.
pub const TABS_OF_INSTANCES: [Tab; 2] = [
    Tab { name: "Interface", path: "../", is_present: false },
    Tab { name: "Instances", path: "./", is_present: true },
];
/// Path below which the figures of instances are.
const INSTANCES: &str = "/instances";

/// Figures of the instances of a node.
pub struct InstanceFigures {
    /// Answers requests for paths below `/instances`; the first argument is the rest of the path.
    #[allow(clippy::type_complexity)] // one function
    pub answer: Box<dyn Fn(&str, &Request) -> Response + Send + Sync>,
    /// Returns OpenMetrics text, or the reason why the figures are missing.
    pub metrics: Box<dyn Fn() -> Result<String, String> + Send + Sync>,
    /// Whether the node has neither an interface nor other hosts. Then `/` and `/status.json` are
    /// those of the instances.
    pub is_alone: bool,
}

impl std::fmt::Debug for InstanceFigures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InstanceFigures")
    }
}

fn answer(
    request: &Request,
    cache: &Cache,
    page: &str,
    instances: Option<&InstanceFigures>,
) -> Response {
    if let Some(figures) = instances
        && let Some(rest) = request.path.strip_prefix(INSTANCES)
        && rest.starts_with('/')
    {
        return (figures.answer)(rest, request);
    }
    if let Some(figures) = instances.filter(|figures| figures.is_alone)
        && matches!(request.path.as_str(), "/" | "/status.json")
    {
        return (figures.answer)(&request.path, request);
    }
    let made = match request.path.as_str() {
        "/" => Ok(Response::ok("text/html; charset=utf-8", page.to_owned())),
        "/status.json" => status(request, cache),
        "/metrics" => metrics(cache, instances),
        _ => Ok(Response::text(Status::NotFound, "there are /, /status.json and /metrics")),
    };
    made.unwrap_or_else(|why| Response::text(Status::Unavailable, why))
}

fn status(request: &Request, cache: &Cache) -> Result<Response, String> {
    let peer = query_value(&request.query, "peer").filter(|peer| !peer.is_empty());
    let paths = peer.map_or(PathsOf::Nobody, PathsOf::Peer);
    let detail = Detail { paths, flows_max: FLOWS_MAX };
    let snapshot = cache.snapshot(detail).map_err(|e| e.to_string())?;
    let body = serde_json::to_string(&*snapshot).map_err(|e| e.to_string())?;
    Ok(Response::ok("application/json", body))
}

/// Answers a request for `/metrics`. If one part of a node with instances gives no figures, the
/// answer contains those of the other part, and the name of the missing part.
fn metrics(cache: &Cache, instances: Option<&InstanceFigures>) -> Result<Response, String> {
    let interface = of_interface(cache);
    let body = match instances {
        None => interface?,
        Some(figures) => both(interface, (figures.metrics)())?,
    };
    Ok(Response::ok(exposition::CONTENT_TYPE, body))
}

/// Joins the metrics of both parts of a node.
///
/// # Errors
/// If neither part gave figures.
fn both(
    interface: Result<String, String>,
    instances: Result<String, String>,
) -> Result<String, String> {
    let parts = [("interface", interface.is_ok()), ("instances", instances.is_ok())];
    let known = match (interface, instances) {
        (Ok(interface), Ok(instances)) => srd_http::exposition::joined(&interface, &instances),
        (Ok(known), Err(_)) | (Err(_), Ok(known)) => known,
        (Err(why), Err(_)) => return Err(why),
    };
    let parts = exposition::write_parts(&parts).map_err(|e| e.to_string())?;
    Ok(srd_http::exposition::joined(&known, &parts))
}

/// Returns the metrics of the interface and its peers.
fn of_interface(cache: &Cache) -> Result<String, String> {
    let ask = |paths: PathsOf| {
        let detail = Detail { paths, flows_max: 0 };
        cache.snapshot(detail).map_err(|e| e.to_string())
    };
    let mut snapshot = ask(PathsOf::Nobody)?;
    if snapshot.peers.len() * usize::from(snapshot.paths) <= PATH_SERIES_MAX {
        snapshot = ask(PathsOf::Everybody)?;
    }
    exposition::write(snapshot).map_err(|e| e.to_string())
}
