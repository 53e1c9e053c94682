//! Requests and answers on the control socket: each is one line of JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use srd_enrol::PodRequest;

use crate::capture::Filter;
use crate::config::PeerForm;
use crate::plane::{Change, PlaneError};
use crate::snapshot::Counters;

/// Largest number of bytes of a request, including its line break.
pub const REQUEST_BYTES_MAX: usize = 4096;
/// Allowed times between two answers of a watch, in milliseconds.
pub const WATCH_INTERVAL_MS: RangeInclusive<u64> = 100..=60_000;
/// Largest number of flows that a request may list.
pub const FLOWS_MAX: usize = 1000;

/// A request to the daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Requests the present state; answer: a [`crate::snapshot::Snapshot`].
    Status {
        /// Whether to list each path of every peer.
        #[serde(default)]
        paths: bool,
        /// Largest number of flows to list.
        #[serde(default)]
        flows: usize,
    },
    /// Requests the counters of the interface; answer: [`Stats`].
    Stats,
    /// Requests one peer with each of its paths; answer: a [`crate::snapshot::PeerSnapshot`].
    Paths {
        /// Name of the peer, or the beginning of its key.
        peer: String,
    },
    /// Changes a setting until the next restart or reload; answer: null.
    Set(Change),
    /// Adds a peer until the next restart or reload; answer: a [`crate::config::ReloadReport`].
    #[serde(rename = "add-peer")]
    AddPeer(PeerForm),
    /// Removes a peer until the next restart or reload; answer: a [`crate::config::ReloadReport`].
    #[serde(rename = "remove-peer")]
    RemovePeer {
        /// Name of the peer, or the beginning of its key.
        peer: String,
    },
    /// Reads the configuration file again and applies it; answer: a
    /// [`crate::config::ReloadReport`].
    Reload,
    /// Requests the state at regular intervals, until the client closes the connection; each answer
    /// is a [`crate::snapshot::Snapshot`].
    Watch {
        /// Milliseconds between two answers.
        interval_ms: u64,
        /// Whether to list each path of every peer.
        #[serde(default)]
        paths: bool,
        /// Largest number of flows to list.
        #[serde(default)]
        flows: usize,
    },
    /// Starts a capture; the answer is null, and packets follow it as pcapng. Root and the user
    /// that started the daemon may do this, and the group of the socket if the configuration
    /// permits it.
    Capture(Filter),
    /// Hands the interface and everything that belongs to it over to the process that sends this
    /// request ([`crate::handover`]). Root and the user of the daemon may do this.
    #[serde(rename = "take-over")]
    TakeOver {
        /// Version of the form of the state that the process reads.
        version: u32,
    },
    /// Starts a process that takes over from this daemon, as a child of the daemon, so that it
    /// belongs to the unit of the daemon. The answer is the number of the process, after it has
    /// taken over. Root and the user of the daemon may do this.
    Succeed,
    /// Begins requests about instances; the answer is null. The requests and answers that follow on
    /// this connection are those of the crate srd-guest.
    Instances,
    /// Sends a request about pods of this host to its controller; answer: a
    /// [`srd_enrol::PodAnswer`]. Root and the user that started the daemon may do this.
    Pod {
        /// The request.
        pod: PodRequest,
    },
}

impl Request {
    /// A request for the present state, without paths and flows.
    pub fn status() -> Self {
        Self::Status { paths: false, flows: 0 }
    }

    /// Name of the request, for the log.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Status { .. } => "status",
            Self::Stats => "stats",
            Self::Paths { .. } => "paths",
            Self::Set(_) => "set",
            Self::AddPeer(_) => "add-peer",
            Self::RemovePeer { .. } => "remove-peer",
            Self::Reload => "reload",
            Self::Watch { .. } => "watch",
            Self::Capture(_) => "capture",
            Self::TakeOver { .. } => "take-over",
            Self::Succeed => "succeed",
            Self::Instances => "instances",
            Self::Pod { .. } => "pod",
        }
    }

    /// Whether the request keeps its connection for long: a watch or a capture.
    pub(super) fn is_stream(&self) -> bool {
        matches!(self, Self::Watch { .. } | Self::Capture(_))
    }
}

/// An answer of the daemon.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer<T> {
    /// The request was carried out; contains the requested data.
    Ok(T),
    /// The request was refused; contains the reason.
    Error(Refusal),
}

/// The counters of the interface.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Stats {
    /// Name of the interface.
    pub interface: String,
    /// Counters of the interface.
    pub counters: Counters,
    /// Number of dropped packets, by reason.
    pub drops: BTreeMap<String, u64>,
}

impl Stats {
    /// Returns every counter with its name, in the order of `ethtool -S`: the five counters of the
    /// ENA driver, our own counters, and drops by reason.
    pub fn all(&self) -> Vec<(String, u64)> {
        let counters = self.counters.all();
        let ours = counters.iter().map(|c| (c.name.to_owned(), c.value));
        ours.chain(self.drops.iter().map(|(why, n)| (format!("drop_{why}"), *n))).collect()
    }
}

/// Reason why a request was refused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Refusal {
    /// Kind of the refusal, for programs.
    pub kind: RefusalKind,
    /// Explanation and remedy, for people.
    pub text: String,
}

/// Kinds of refusals.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RefusalKind {
    /// The request is unknown, or one of its values is invalid.
    BadRequest,
    /// No peer has this name or key.
    UnknownPeer,
    /// The daemon is busy or ending, or has too many connections or captures.
    Busy,
    /// The new configuration has an error.
    BadConfig,
    /// The daemon cannot fulfil the request.
    Refused,
    /// This user is not permitted to send such a request.
    NotPermitted,
    /// The daemon belongs to a unit of systemd. Only a process that the daemon starts itself
    /// ([`Request::Succeed`]) can take over.
    OfUnit,
}

impl Refusal {
    pub(super) fn new(kind: RefusalKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Refusal {}

/// Converts a refusal of the control thread, which is a text for people.
impl From<String> for Refusal {
    fn from(text: String) -> Self {
        Self::new(RefusalKind::Refused, text)
    }
}

impl From<PlaneError> for Refusal {
    fn from(e: PlaneError) -> Self {
        Self::new(RefusalKind::Busy, e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_read_as_documented() {
        let read = |text: &str| serde_json::from_str::<Request>(text);
        let status = Request::Status { paths: false, flows: 0 };
        assert_eq!(read(r#"{"request":"status"}"#).unwrap(), status);
        assert_eq!(read(r#"{"request":"reload"}"#).unwrap(), Request::Reload);
        let set = read(r#"{"request":"set","peer":"b","express":false}"#).unwrap();
        let change = Change { peer: Some("b".into()), express: Some(false), ..Change::default() };
        assert_eq!(set, Request::Set(change));
        let capture = read(r#"{"request":"capture","layers":"inner","count":5}"#).unwrap();
        assert!(matches!(capture, Request::Capture(f) if f.count == Some(5)));
        for bad in ["{}", "[]", r#"{"request":"fly"}"#, r#"{"request":"set","colour":1}"#] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert!(read(r#"{"request":"status","path":true}"#).is_err());
    }

    #[test]
    fn every_request_survives_writing_and_reading() {
        let all = [
            Request::Status { paths: true, flows: 3 },
            Request::Stats,
            Request::Paths { peer: "b".into() },
            Request::Set(Change { udp: Some(true), ..Change::default() }),
            Request::AddPeer(PeerForm { name: "b".into(), ..PeerForm::default() }),
            Request::RemovePeer { peer: "b".into() },
            Request::Reload,
            Request::Watch { interval_ms: 1000, paths: false, flows: 1 },
            Request::Capture(Filter::default()),
            Request::TakeOver { version: 1 },
            Request::Succeed,
            Request::Instances,
            Request::Pod { pod: PodRequest::Terminate { instance: "i-1".into() } },
        ];
        for request in all {
            let text = serde_json::to_string(&request).unwrap();
            assert!(text.contains(&format!("\"request\":\"{}\"", request.name())), "{text}");
            assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), request);
        }
    }

    #[test]
    fn an_answer_is_ok_or_an_error_with_a_kind() {
        let ok = serde_json::to_string(&Answer::Ok(5)).unwrap();
        assert_eq!(ok, r#"{"ok":5}"#);
        let refusal = Refusal::new(RefusalKind::UnknownPeer, "no peer");
        let error = serde_json::to_string(&Answer::<()>::Error(refusal)).unwrap();
        assert_eq!(error, r#"{"error":{"kind":"unknown-peer","text":"no peer"}}"#);
    }

    #[test]
    fn stats_list_the_drivers_names_first_and_drops_last() {
        let drops = BTreeMap::from([("malformed".to_owned(), 3)]);
        let all = Stats { drops, ..Stats::default() }.all();
        assert_eq!(all[0].0, "ena_srd_mode");
        assert_eq!(all.last().unwrap(), &("drop_malformed".to_owned(), 3));
    }
}
