//! The peers as the control thread sees them, and their states, read from the pages of all workers.
//!
//! [`crate::pages::peer`] defines when a peer is up. This module compares the state of a peer with
//! that of the previous check. If a peer was up, and every context that was up has gone down since,
//! then the peer was down in between, even if only for a short time.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use ipnet::IpNet;
use srd_proto::{Duration, Instant};

use super::Control;
use crate::config::{Mode, PeerSettings};
use crate::handover::state::identity;
use crate::pages::Listed;
use crate::pages::peer::{Link, PeerFigures, PeerPage};
use crate::plane::PeerNumber;
use crate::routing::Behind;
use crate::run::evidence::Evidence;
use crate::run::orders::{Change, NewPeer};
use crate::run::resolve::Lookup;
use crate::snapshot::{PeerState, refused_in_words};

/// A peer, as the control thread sees it.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) number: PeerNumber,
    pub(super) settings: PeerSettings,
    pub(super) page: Arc<PeerPage>,
    pub(super) state: PeerState,
    /// State of each worker's context at the last check.
    seen: Vec<LinkObservation>,
    evidence: Evidence,
    /// Progress of the resolution of the peer's host name; `None` if it has no name.
    pub(super) lookup: Option<Lookup>,
    /// The peer's prefixes and endpoint for the routes. Built again only if they change.
    behind: Arc<Behind>,
    /// For the log: the number of paths that passed packets at the last tick, the number of ticks
    /// with an equal number, and the number in the last line of the log.
    passing: u16,
    passing_for: u8,
    passing_said: Option<u16>,
    /// For the log: the configured packet size, once another size was found to pass; the size at
    /// the last check; the size in the last line of the log.
    size_configured: Option<u16>,
    size: u16,
    size_said: Option<u16>,
    /// The peer's address at the last check at which it was up.
    at: Option<SocketAddr>,
    /// Time of the last line of the log about packets refused for their source address, and the
    /// number of refused packets at that time.
    refused_said: Option<(Instant, u64)>,
    /// Bytes sent to the peer and received from it until the last tick.
    pub(super) before: [u64; 2],
}

/// State of one worker's context with a peer at the last check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct LinkObservation {
    link: Link,
    ups: u64,
    downs: u64,
}

/// Shortest time between two lines of the log about refused packets of one peer.
const REFUSED_EVERY: Duration = Duration::from_secs(60);
/// Number of ticks for which the number of passing paths must be equal before it is logged.
const PASSING_TICKS: u8 = 3;

impl Peer {
    pub(super) fn new(number: PeerNumber, settings: PeerSettings, workers: usize) -> Self {
        Self {
            number,
            lookup: settings.host.clone().map(Lookup::new),
            settings,
            page: Arc::new(PeerPage::new(workers)),
            state: PeerState::Connecting,
            seen: vec![LinkObservation::default(); workers],
            evidence: Evidence::default(),
            behind: Arc::default(),
            passing: 0,
            passing_for: 0,
            passing_said: None,
            size_configured: None,
            size: 0,
            size_said: None,
            at: None,
            refused_said: None,
            before: [0; 2],
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.state == PeerState::Up
    }

    /// Returns the figures of the peer, combined from all workers.
    pub(super) fn figures(&self) -> PeerFigures {
        PeerFigures::together(&self.page.read())
    }

    /// Resets the state of the peer, because its contexts are being created again.
    pub(super) fn begin_anew(&mut self) {
        self.state = PeerState::Connecting;
        self.evidence = Evidence::default();
        self.seen.iter_mut().for_each(|seen| seen.link = Link::Untried);
    }

    /// Returns the peer's prefixes and endpoint for the routes, from its present settings.
    pub(super) fn behind(&mut self) -> Arc<Behind> {
        let PeerSettings { allowed, endpoint, .. } = &self.settings;
        if self.behind.prefixes != *allowed || self.behind.endpoint != *endpoint {
            self.behind = Arc::new(Behind { prefixes: allowed.clone(), endpoint: *endpoint });
        }
        Arc::clone(&self.behind)
    }

    /// Returns the peer's entry for the directory.
    pub(super) fn listed(&self) -> Listed {
        let settings = &self.settings;
        let error = self.lookup.as_ref().map(|lookup| lookup.error.clone());
        Listed {
            number: self.number,
            name: settings.name.clone(),
            public_key: settings.public_key.map(|key| key.to_string()),
            host: settings.host.clone(),
            lookup_error: error.unwrap_or_default(),
            allowed: settings.allowed.iter().map(ToString::to_string).collect(),
            express: settings.express,
            page: Arc::clone(&self.page),
        }
    }

    /// Returns the change that adds the peer to a worker.
    pub(super) fn addition(&self) -> Change {
        let settings = &self.settings;
        let peer = NewPeer {
            transport: settings.transport(),
            allowed: prefixes(&settings.allowed),
            express: settings.express,
            express_udp: settings.express_udp,
            cloud_host: settings.cloud_host.as_deref().map(Arc::from),
            page: Arc::clone(&self.page),
        };
        Change::Add(self.number, Box::new(peer))
    }

    /// Logs the number of paths that pass packets, if it differs from the logged number and was
    /// stable for [`PASSING_TICKS`].
    pub(super) fn log_passing(&mut self, figures: &PeerFigures) {
        let (passing, all) = (figures.stats.paths_passing, figures.stats.paths.iter().sum());
        if !self.is_up() || passing == 0 || all == 0 {
            return;
        }
        self.passing_for =
            if self.passing == passing { self.passing_for.saturating_add(1) } else { 0 };
        self.passing = passing;
        let before = self.passing_said.unwrap_or(all);
        if self.passing_for != PASSING_TICKS || before == passing {
            return;
        }
        self.passing_said = Some(passing);
        let name = &self.settings.name;
        if passing == all {
            tracing::info!("all {all} paths to {name} pass packets again");
        } else {
            tracing::warn!(
                "{passing} of {all} paths to {name} pass packets: a firewall on the way lets only \
                 some source ports through, or a link is down (`srd paths {name}` lists them)"
            );
        }
    }

    /// Logs the packet size that the network passes to the peer, if it changed and was equal at two
    /// checks. The second check is necessary because each worker finds the size on its own.
    pub(super) fn log_size(&mut self, figures: &PeerFigures) {
        let Some(configured) = self.size_configured.filter(|_| self.is_up()) else { return };
        let size = figures.packet_bytes_max;
        let is_settled = std::mem::replace(&mut self.size, size) == size;
        if !is_settled || size == self.size_said.unwrap_or(configured) {
            return;
        }
        self.size_said = Some(size);
        let name = &self.settings.name;
        if size < configured {
            tracing::warn!(
                "on the way to {name} UDP packets of {size} bytes pass and of {configured} bytes \
                 do not: the smaller size is used; an MTU that is the same all the way carries more"
            );
        } else {
            tracing::info!("on the way to {name} UDP packets of {size} bytes pass again");
        }
    }

    /// Logs that the peer has moved to another address.
    pub(super) fn log_move(&mut self, figures: &PeerFigures) {
        let Some(at) = figures.known_addresses().next().filter(|_| self.is_up()) else { return };
        if let Some(before) = self.at.replace(at).filter(|before| *before != at) {
            tracing::info!("{} has moved from {before} to {at}", self.settings.name);
        }
    }

    /// Logs that packets from the peer are refused for their source address. After the first line,
    /// at most one line follows in each [`REFUSED_EVERY`], and only if more packets were refused.
    pub(super) fn log_refused(&mut self, now: Instant, figures: &PeerFigures) {
        let packets = figures.traffic.refused_pkts;
        let (said_at, before) = self.refused_said.unwrap_or((now, 0));
        let is_early = self.refused_said.is_some() && now.since(said_at) < REFUSED_EVERY;
        let Some(from) = figures.refused_from.filter(|_| packets > before && !is_early) else {
            return;
        };
        self.refused_said = Some((now, packets));
        tracing::warn!(
            "{}",
            refused_in_words(&self.settings.name, packets - before, &from.ip().to_string())
        );
    }

    /// Whether the peer's key begins with `wanted`. A text of fewer than eight characters matches
    /// no key.
    pub(super) fn has_key_like(&self, wanted: &str) -> bool {
        let key = self.settings.public_key.map(|key| key.to_string());
        key.is_some_and(|key| crate::keys::is_meant(&key, wanted))
    }

    /// Compares the peer's rows with those of the last check. Returns the states that the peer has
    /// entered since then, and whether the reason why it does not answer may have changed.
    fn look(&mut self) -> (Vec<PeerState>, bool) {
        let rows = self.page.read();
        let all = PeerFigures::together(&rows);
        let was_gone = was_gone(&self.seen, &rows);
        let one =
            |row: &PeerFigures| LinkObservation { link: row.link, ups: row.ups, downs: row.downs };
        self.seen = rows.iter().map(one).collect();
        let is_stirred = self.evidence != all.evidence;
        self.evidence = all.evidence;
        let mut states = Vec::new();
        if self.state == PeerState::Up && all.state() == PeerState::Up && was_gone {
            states.push(PeerState::Down);
        }
        if self.state != all.state() || !states.is_empty() {
            states.push(all.state());
        }
        self.state = all.state();
        if !states.is_empty() {
            // The call at each tick could miss the new address if the peer is up for less than a
            // tick.
            self.log_move(&all);
        }
        (states, is_stirred)
    }
}

/// Whether every context that was up at the last check has gone down since.
fn was_gone(seen: &[LinkObservation], rows: &[PeerFigures]) -> bool {
    let mut were_up = seen.iter().zip(rows).filter(|(seen, _)| seen.link == Link::Up).peekable();
    were_up.peek().is_some() && were_up.all(|(seen, row)| row.downs > seen.downs)
}

impl Control {
    /// Returns the index of the peer with this name, or with a key that begins with `wanted`.
    pub(super) fn find(&self, wanted: &str) -> Result<usize, String> {
        let by_name = self.peers.iter().position(|peer| peer.settings.name == wanted);
        let by_key = || self.peers.iter().position(|peer| peer.has_key_like(wanted));
        by_name.or_else(by_key).ok_or_else(|| format!("there is no peer `{wanted}`"))
    }

    /// Creates a peer with a new number. No worker has it yet.
    pub(super) fn draft(&mut self, settings: PeerSettings) -> Peer {
        let number = PeerNumber(self.next_number);
        self.next_number += 1;
        Peer::new(number, settings, self.crew.len())
    }

    /// Adds the peers of the configuration when the daemon starts. `known`: addresses at which
    /// peers answer, by their identities.
    pub(super) fn add_first(
        &mut self,
        settings: Vec<PeerSettings>,
        known: &BTreeMap<String, SocketAddr>,
    ) -> Result<()> {
        for mut settings in settings {
            if settings.host.is_some() && settings.endpoint.is_none() {
                settings.endpoint = known.get(&identity(&settings)).copied();
            }
            let peer = self.draft(settings);
            self.peers.push(peer);
        }
        // Each worker waits for this batch before it starts, so it is sent even if there are no
        // peers.
        let settings = Change::Card(self.card_settings());
        let additions = self.peers.iter().map(Peer::addition);
        let mut changes: Vec<Change> = std::iter::once(settings).chain(additions).collect();
        for (change, peer) in changes.iter_mut().skip(1).zip(&self.peers) {
            // The peer may open a session from another address later.
            if let Change::Add(_, new) = change
                && new.transport.address.is_none()
            {
                new.transport.address = known.get(&identity(&peer.settings)).copied();
            }
        }
        match self.crew.apply(&changes)?.first() {
            Some((number, error)) => {
                let name = self.name_of(*number);
                Err(anyhow!(*error).context(format!("cannot add the peer {name}")))
            }
            None => Ok(()),
        }
    }

    /// Returns the name of a peer, for texts for people.
    pub(super) fn name_of(&self, number: PeerNumber) -> &str {
        let peer = self.peers.iter().find(|peer| peer.number == number);
        peer.map_or("a peer", |peer| peer.settings.name.as_str())
    }

    /// Checks a peer whose state may have changed, and updates log and routes.
    pub(super) fn look_at(&mut self, now: Instant, number: PeerNumber) {
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.number == number) else { return };
        let (states, is_stirred) = peer.look();
        for state in &states {
            tracing::debug!("{}: {state}", peer.settings.name);
            self.log.changed(now, &peer.settings.name, *state);
        }
        if is_stirred {
            self.log.stir();
        }
        if !states.is_empty() && self.config.interface.mode == Mode::Transparent {
            self.is_rerouted = true;
        }
    }

    /// Records that the network passes packets of another size to a peer than the configured size.
    /// The next tick logs this.
    pub(super) fn note_path_mtu(&mut self, number: PeerNumber, configured_bytes: u16) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.number == number) {
            peer.size_configured = Some(configured_bytes);
        }
    }
}

pub(super) fn prefixes(allowed: &[IpNet]) -> Vec<srd_card::Prefix> {
    let prefix = |net: &IpNet| srd_card::Prefix::new(net.network(), net.prefix_len());
    allowed.iter().filter_map(prefix).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(link: Link, downs: u64) -> PeerFigures {
        PeerFigures { link, downs, ..PeerFigures::default() }
    }

    #[test]
    fn a_peer_was_gone_only_if_every_context_that_was_up_went_down() {
        let up = LinkObservation { link: Link::Up, ups: 1, downs: 0 };
        let idle = LinkObservation::default();
        let (kept, anew, down) = (row(Link::Up, 0), row(Link::Up, 1), row(Link::Down, 1));
        assert!(was_gone(&[up], &[anew]), "it went and came between two looks");
        assert!(!was_gone(&[up], &[kept]));
        assert!(!was_gone(&[up, up], &[anew, kept]), "the other context carried on");
        assert!(was_gone(&[up, idle], &[anew, down]));
        assert!(!was_gone(&[idle, idle], &[kept, down]), "none was up");
    }
}
