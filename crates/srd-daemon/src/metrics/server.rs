//! The HTTP server of the metrics: the answer to a request for each path.

use std::io;

use srd_http::{Request, Response, Status, query_value};

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

/// Starts to serve requests at a listener. Dropping the returned server ends it.
///
/// # Errors
/// If no thread can be started.
pub fn start(listener: srd_http::Listener, plane: PlaneHandle) -> io::Result<srd_http::Server> {
    let cache = Cache::new(plane);
    let page = srd_http::page(include_str!("page.html"));
    srd_http::Server::start(listener, Box::new(move |request| answer(request, &cache, &page)))
}

fn answer(request: &Request, cache: &Cache, page: &str) -> Response {
    let made = match request.path.as_str() {
        "/" => Ok(Response::ok("text/html; charset=utf-8", page.to_owned())),
        "/status.json" => status(request, cache),
        "/metrics" => metrics(cache),
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

fn metrics(cache: &Cache) -> Result<Response, String> {
    let ask = |paths: PathsOf| {
        let detail = Detail { paths, flows_max: 0 };
        cache.snapshot(detail).map_err(|e| e.to_string())
    };
    let mut snapshot = ask(PathsOf::Nobody)?;
    if snapshot.peers.len() * usize::from(snapshot.paths) <= PATH_SERIES_MAX {
        snapshot = ask(PathsOf::Everybody)?;
    }
    let body = exposition::write(snapshot).map_err(|e| e.to_string())?;
    Ok(Response::ok(exposition::CONTENT_TYPE, body))
}
