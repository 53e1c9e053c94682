//! Changes while packets move: settings that are set, and configurations that are read anew.
//!
//! A reload is a transaction. Everything that could be refused is looked at first, and then nothing
//! has happened yet. After that all that goes is taken away before anything new comes, so that
//! peers may exchange keys, endpoints and prefixes.
//!
//! Invariant: the settings in [`Data::peers`] and the interface's in [`Data::config`] are what
//! runs; what a configuration changes is told from them, and from nothing else.

use std::net::SocketAddr;

use srd_proto::Instant;

use super::data::{Data, Peer, duration, prefixes};
use super::evidence::Evidence;
use super::resolve::{Lookup, Step};
use crate::config::diff::is_same;
use crate::config::{Config, PeerChange, PeerSettings, ReloadReport, UdpOrdering};
use crate::plane::Change;
use crate::snapshot::PeerState;

impl Data {
    fn find(&self, wanted: &str) -> Option<usize> {
        let by_name = self.peers.iter().position(|p| p.settings.name == wanted);
        by_name.or_else(|| self.peers.iter().position(|p| p.has_key_like(wanted)))
    }

    /// Changes a setting until the next restart or reload.
    ///
    /// # Errors
    /// Why not, for a person.
    pub(super) fn set(&mut self, change: &Change) -> Result<(), String> {
        let now = self.endpoint.now();
        if let Some(wanted) = &change.peer {
            let index = self.find(wanted).ok_or_else(|| format!("there is no peer `{wanted}`"))?;
            if change.udp_ordering.is_some() {
                return Err("the order of UDP is a setting of the whole interface".into());
            }
            let peer = &mut self.peers[index];
            let settings = &mut peer.settings;
            settings.express = change.express.unwrap_or(settings.express);
            settings.express_udp = change.udp.unwrap_or(settings.express_udp);
            let (express, udp) = (settings.express, settings.express_udp);
            self.card.express.set_express(now, peer.slot, express, udp);
            return Ok(());
        }
        let interface = &mut self.config.interface;
        interface.express = change.express.unwrap_or(interface.express);
        interface.express_udp = change.udp.unwrap_or(interface.express_udp);
        interface.udp_ordering = change.udp_ordering.unwrap_or(interface.udp_ordering);
        self.apply_interface(now);
        Ok(())
    }

    fn apply_interface(&mut self, now: Instant) {
        let interface = &self.config.interface;
        self.card.express.set_enabled(now, interface.express, interface.express_udp);
        let bypass = interface.udp_ordering == UdpOrdering::Bypass;
        self.card.express.set_order(bypass, duration(interface.order_wait));
        self.card.express.set_queue_target(duration(interface.queue_delay));
    }

    /// The configuration that runs.
    pub(super) fn running(&self) -> Config {
        let peers = self.peers.iter().map(|peer| peer.settings.clone()).collect();
        Config { peers, ..self.config.clone() }
    }

    /// Takes over a new configuration, as far as that is possible while running.
    ///
    /// # Errors
    /// Why nothing was changed, for a person.
    pub(super) fn reload(&mut self, config: &Config) -> Result<ReloadReport, String> {
        if let Some(unfit) = config.peers.iter().find_map(|p| self.config.interface.unfit(p)) {
            return Err(format!("nothing was changed: {unfit}"));
        }
        let difference = self.running().diff(config);
        let mut report = difference.report();
        let now = self.endpoint.now();
        for gone in &difference.removed {
            if let Some(index) = self.position(gone) {
                self.remove_peer(index);
            }
        }
        for change in &difference.changed {
            self.give_up(change);
        }
        for change in &difference.changed {
            let mut settings = change.new.clone();
            if settings.host.is_some() && settings.host == change.old.host {
                settings.endpoint = change.old.endpoint;
            }
            let is_anew = change.is_anew();
            let done = if is_anew { self.renew(&settings) } else { self.settle(now, &settings) };
            note(&mut report, &settings, done);
        }
        for settings in &difference.added {
            let done = self.add_peer(settings.clone());
            note(&mut report, settings, done);
        }
        let place = |peer: &Peer| config.peers.iter().position(|p| is_same(p, &peer.settings));
        self.peers.sort_by_key(place);
        let (fixed, wanted) = (&mut self.config.interface, &config.interface);
        fixed.express = wanted.express;
        fixed.express_udp = wanted.express_udp;
        fixed.udp_ordering = wanted.udp_ordering;
        fixed.order_wait = wanted.order_wait;
        fixed.queue_delay = wanted.queue_delay;
        self.apply_interface(now);
        self.want_routes();
        Ok(report)
    }

    fn position(&self, settings: &PeerSettings) -> Option<usize> {
        self.peers.iter().position(|peer| is_same(&peer.settings, settings))
    }

    /// Takes away from a peer that stays what it loses: its context if its address or preshared key
    /// changes, and prefixes.
    fn give_up(&mut self, change: &PeerChange) {
        let Some(index) = self.position(&change.old) else { return };
        let (hooked, is_anew) = ((self.peers[index].id, self.peers[index].slot), change.is_anew());
        if is_anew {
            self.unhook(hooked);
        }
        let peer = &mut self.peers[index];
        let kept = change.old.allowed.iter().filter(|net| change.new.allowed.contains(net));
        peer.settings.allowed = kept.copied().collect();
        if !is_anew {
            self.card.express.set_allowed(peer.slot, prefixes(&peer.settings.allowed));
        }
    }

    /// Gives a peer whose context was given up a new one.
    fn renew(&mut self, settings: &PeerSettings) -> anyhow::Result<()> {
        let Some(index) = self.position(settings) else { return Ok(()) };
        match self.hook(settings) {
            Ok(hooked) => {
                self.take_over(index, settings);
                let peer = &mut self.peers[index];
                (peer.id, peer.slot) = hooked;
                peer.state = PeerState::Connecting;
                peer.met_at = None;
                peer.evidence = Evidence::default();
                peer.before = srd_card::Traffic::default();
                Ok(())
            }
            Err(error) => {
                let peer = self.peers.remove(index);
                self.log.forget(&peer.settings.name);
                Err(error)
            }
        }
    }

    /// Gives a peer that keeps its context its new settings.
    fn settle(&mut self, now: Instant, settings: &PeerSettings) -> anyhow::Result<()> {
        let Some(index) = self.position(settings) else { return Ok(()) };
        self.take_over(index, settings);
        let (id, slot) = (self.peers[index].id, self.peers[index].slot);
        self.card.names.insert(id, settings.name.clone());
        self.card.express.set_allowed(slot, prefixes(&settings.allowed));
        self.card.express.set_express(now, slot, settings.express, settings.express_udp);
        Ok(())
    }

    /// Takes over a peer's settings.
    fn take_over(&mut self, index: usize, settings: &PeerSettings) {
        let peer = &mut self.peers[index];
        if peer.settings.name != settings.name {
            self.log.forget(&peer.settings.name);
        }
        if peer.settings.host != settings.host {
            peer.lookup = settings.host.clone().map(Lookup::new);
        }
        peer.settings = settings.clone();
    }
}

/// Names of peers.
impl Data {
    /// Takes what the resolver has found.
    pub(super) fn take_names(&mut self, now: Instant) {
        let mut is_found = false;
        while let Some((host, found)) = self.resolver.next() {
            for peer in &mut self.peers {
                let Some(lookup) = peer.lookup.as_mut().filter(|l| l.host == host) else {
                    continue;
                };
                let name = &peer.settings.name;
                if lookup.answered(now, found.clone()) {
                    match &found {
                        Ok(_) => tracing::info!("{name}: `{}` resolves now", host.host),
                        Err(e) => tracing::warn!(
                            "{name}: `{}` does not resolve ({e}); it is tried again",
                            host.host
                        ),
                    }
                }
            }
            is_found = true;
        }
        if is_found {
            self.look_up(now);
        }
    }

    /// Asks for names of peers that do not answer, and calls these at the next of their addresses.
    pub(super) fn look_up(&mut self, now: Instant) {
        for index in 0..self.peers.len() {
            let peer = &mut self.peers[index];
            let is_up = peer.state == PeerState::Up;
            let Some(lookup) = &mut peer.lookup else { continue };
            match lookup.poll(now, is_up) {
                Step::Wait => {}
                Step::Ask if self.resolver.ask(&lookup.host) => {}
                Step::Ask => lookup.refused(now),
                Step::Try(address) if peer.settings.endpoint == Some(address) => {}
                Step::Try(address) => self.move_peer(index, address),
            }
        }
    }

    /// Calls a peer that does not answer at another address.
    fn move_peer(&mut self, index: usize, address: SocketAddr) {
        let peer = &mut self.peers[index];
        let name = &peer.settings.name;
        if self.endpoint.core().peer_at(address).is_some_and(|id| id != peer.id) {
            tracing::warn!("{name} is not called at {address}, which is another peer's");
            return;
        }
        if self.config.interface.is_inside(address.ip()) {
            tracing::warn!("{name} is not called at {address}, which is inside the overlay itself");
            return;
        }
        tracing::debug!("{name} is called at {address}");
        let hooked = (peer.id, peer.slot);
        let settings = PeerSettings { endpoint: Some(address), ..peer.settings.clone() };
        self.unhook(hooked);
        if let Err(error) = self.renew(&settings) {
            tracing::error!("{} is gone: {error:#}", settings.name);
        }
        self.want_routes();
    }
}

/// Moves a peer that could not be taken over to where the report says so.
fn note(report: &mut ReloadReport, settings: &PeerSettings, done: anyhow::Result<()>) {
    if let Err(error) = done {
        report.added.retain(|name| *name != settings.name);
        report.changed.retain(|name| *name != settings.name);
        report.failed.push(format!("{} ({error:#})", settings.name));
    }
}
