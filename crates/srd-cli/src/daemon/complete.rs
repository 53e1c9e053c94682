//! Completions for a peer's name: the peers of the running daemon.

use clap_complete::CompletionCandidate;
use srd_daemon::control::{Client, Request};
use srd_daemon::snapshot::Snapshot;

use crate::nodes;

/// Returns the names of all peers of the only daemon that runs. The list is empty if no daemon or
/// several run, or if this user is not permitted to connect to it.
pub(super) fn peer_names() -> Vec<CompletionCandidate> {
    let Ok(path) = nodes::only() else { return Vec::new() };
    let Ok(client) = Client::connect(&path) else { return Vec::new() };
    let Ok(snapshot) = client.ask::<Snapshot>(&Request::status()) else { return Vec::new() };
    let candidate = |peer: srd_daemon::snapshot::PeerSnapshot| {
        let state = peer.state.to_string();
        CompletionCandidate::new(peer.name).help(Some(state.into()))
    };
    snapshot.peers.into_iter().map(candidate).collect()
}

/// Returns the names of all peers, and the word for all of them.
pub(super) fn peer_names_and_all() -> Vec<CompletionCandidate> {
    let all = CompletionCandidate::new(srd_daemon::config::ALL_PEERS);
    peer_names().into_iter().chain([all]).collect()
}
