//! Counters of a process, as OpenMetrics.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use srd_http::{Listener, Request, Response, Server, exposition};

use crate::limits;

/// Counters of a process. Clones share them.
#[derive(Clone, Default, Debug)]
pub struct Metrics {
    /// Number of client connections that are served now.
    pub clients: Gauge,
    /// Client connections that were accepted.
    pub clients_taken: Counter,
    /// Client connections that were refused at the limit or because the system had no file
    /// descriptor or thread for them, or evicted for a newer connection.
    pub clients_refused: Counter,
    /// Client connections that were closed because their source address reached its limit.
    pub clients_address_refused: Counter,
    /// Client connections from ports that any user may bind, closed at once.
    pub clients_unprivileged: Counter,
    /// Client connections that ended by an error of the client: a TLS failure, an invalid record,
    /// or silence.
    pub clients_failed: Counter,
    /// Number of times that the limit of open files prevented a connection.
    pub files_exhausted: Counter,
    /// Number of connections to the server that are up now.
    pub upstreams: Gauge,
    /// Connections to the server that were lost.
    pub upstreams_lost: Counter,
    /// Tries to reach the server that failed.
    pub upstreams_failed: Counter,
    /// Connections to the server from ports that any user may bind, because no port below 1024 was
    /// free.
    pub upstreams_unprivileged: Counter,
    /// Connections to the server that were added because a client's other connections were busy.
    pub upstreams_added: Counter,
    /// Calls accepted from clients.
    pub calls: Counter,
    /// Calls that were sent again over another connection.
    pub calls_again: Counter,
    /// Current number of unanswered calls.
    pub calls_outstanding: Gauge,
    /// Number of times that a client had to wait because it reached its limit of unanswered calls.
    pub waits: Counter,
    /// Replies sent to clients.
    pub replies: Counter,
    /// Replies to calls that are not, or no longer, outstanding: dropped.
    pub replies_unknown: Counter,
    /// Calls of servers to clients.
    pub callbacks: Counter,
    /// Calls of servers, and replies to them, that were dropped because the table of callbacks was
    /// full or had no such call.
    pub callbacks_dropped: Counter,
    /// Bytes towards the server, before encryption.
    pub bytes_up: Counter,
    /// Bytes towards the client, after decryption.
    pub bytes_down: Counter,
    /// Number of times that certificates were read again.
    pub reloads: Counter,
    /// Number of times that certificates could not be read again; the old certificates stay in use.
    pub reloads_failed: Counter,
}

impl Metrics {
    fn registry(&self) -> Registry {
        let mut all = Registry::with_prefix("srd_nfs");
        let mut gauge = |name: &str, help: &str, gauge: &Gauge| {
            all.register(name, help, gauge.clone());
        };
        gauge("clients", "Connections served now", &self.clients);
        gauge("upstreams", "Connections to the server that are up now", &self.upstreams);
        gauge("calls_outstanding", "Calls without a reply now", &self.calls_outstanding);
        let mut counter = |name: &str, help: &str, counter: &Counter| {
            all.register(name, help, counter.clone());
        };
        counter("clients_taken", "Connections taken", &self.clients_taken);
        counter("clients_refused", "Connections beyond the limit, closed", &self.clients_refused);
        let files = &self.files_exhausted;
        counter("files_exhausted", "Times that no file descriptor was left", files);
        let (address, port) = (&self.clients_address_refused, &self.clients_unprivileged);
        counter("clients_address_refused", "Connections beyond their address's limit", address);
        counter("clients_unprivileged", "Connections from ports from 1024 on, closed", port);
        counter("clients_failed", "Connections that ended by an error", &self.clients_failed);
        counter("upstreams_lost", "Connections to the server lost", &self.upstreams_lost);
        counter("upstreams_failed", "Failed tries to reach the server", &self.upstreams_failed);
        let port = &self.upstreams_unprivileged;
        counter("upstreams_unprivileged", "Connections to the server from a high port", port);
        counter("upstreams_added", "Connections added under load", &self.upstreams_added);
        counter("calls", "Calls taken from clients", &self.calls);
        counter("calls_again", "Calls sent again over another connection", &self.calls_again);
        counter("waits", "Times a client waited for replies", &self.waits);
        counter("replies", "Replies handed to clients", &self.replies);
        counter("replies_unknown", "Replies without a call, dropped", &self.replies_unknown);
        counter("callbacks", "Calls of servers to clients", &self.callbacks);
        counter("callbacks_dropped", "Calls of servers dropped", &self.callbacks_dropped);
        counter("up_bytes", "Bytes towards the server, without TLS", &self.bytes_up);
        counter("down_bytes", "Bytes towards the client, without TLS", &self.bytes_down);
        counter("reloads", "Times certificates were read again", &self.reloads);
        counter("reloads_failed", "Times that failed; old ones stay", &self.reloads_failed);
        all
    }

    /// Returns an error with its remedy, and counts it, if the system has refused another file
    /// descriptor; otherwise returns the error as it is.
    pub(crate) fn explained(&self, error: io::Error) -> io::Error {
        let Some(remedy) = limits::files_remedy(&error) else { return error };
        self.files_exhausted.inc();
        io::Error::new(error.kind(), format!("{error}: {remedy}"))
    }

    /// Serves the counters. `allow_remote`: whether other machines may request them.
    ///
    /// # Errors
    /// An error of the operating system, if the address cannot be bound.
    pub fn serve(&self, at: SocketAddr, allow_remote: bool) -> io::Result<Server> {
        let registry = Arc::new(self.registry());
        Server::start(
            Listener::bind(at, allow_remote)?,
            Box::new(move |request| answer(request, &registry)),
        )
    }
}

fn answer(request: &Request, registry: &Registry) -> Response {
    exposition::answer(request, |text| encode(text, registry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_descriptors_is_counted_and_has_its_remedy() {
        let metrics = Metrics::default();
        let explained = |raw: i32| metrics.explained(io::Error::from_raw_os_error(raw)).to_string();
        let [own, all, other] = [24, 23, 111].map(explained);
        assert!(own.contains("Too many open files") && own.contains("LimitNOFILE="), "{own}");
        assert!(all.contains("fs.file-max"), "{all}");
        assert!(other.starts_with("Connection refused"), "{other}");
        assert_eq!(metrics.files_exhausted.get(), 2);
    }
}
