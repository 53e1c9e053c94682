//! Changes while the daemon runs: single settings, and whole configurations.
//!
//! A reload is a transaction over all workers. All checks that may refuse it come before any
//! change. Then one batch goes to every worker. In the batch all removals precede all additions, so
//! that keys, endpoints and prefixes may be swapped between peers. The reload is complete when
//! every worker has acknowledged the batch. If a worker cannot add a peer, the peer is removed from
//! the other workers and reported, so that all workers have the same peers.

use anyhow::Result;

use super::Control;
use super::peers::{Peer, prefixes};
use crate::config::diff::{PRIVATE_KEY, REKEYED, is_same};
use crate::config::{
    Config, Difference, Mode, PeerChange, PeerSettings, Protection, ReloadReport, UdpOrdering,
};
use crate::keys::SecretKey;
use crate::plane;
use crate::run::orders::{CardSettings, Change};
use crate::run::resolve::Lookup;

/// Refusal of a setting of an interface by a node without one.
const NO_INTERFACE: &str = "this node has no interface: `express` and `express_udp` of \
                            [interface.N] in the VPC's file switch ENA Express of instances, and \
                            `srd card apply` applies the file";

/// A peer that was removed because a worker could not add it: its name, and the reason.
pub(super) type RemovedPeer = (String, srd_proto::AddPeerError);

impl Control {
    /// Changes settings until the next restart or reload.
    ///
    /// # Errors
    /// The reason of a refusal, as a text for people.
    pub(super) fn set(&mut self, change: &plane::Change) -> Result<(), String> {
        if self.config.interface.mode == Mode::Cloud {
            return Err(NO_INTERFACE.into());
        }
        if let Some(wanted) = &change.peer {
            let index = self.find(wanted)?;
            if change.udp_ordering.is_some() {
                return Err("the order of UDP is a setting of the whole interface".into());
            }
            if change.tunnels.is_some() {
                return Err("tunnels are a setting of the whole interface".into());
            }
            let peer = &mut self.peers[index];
            let settings = &mut peer.settings;
            settings.express = change.express.unwrap_or(settings.express);
            settings.express_udp = change.udp.unwrap_or(settings.express_udp);
            let change = Change::Express(peer.number, settings.express, settings.express_udp);
            return self.apply_at_once(&[change]);
        }
        let interface = &mut self.config.interface;
        interface.express = change.express.unwrap_or(interface.express);
        interface.express_udp = change.udp.unwrap_or(interface.express_udp);
        interface.express_tunnels = change.tunnels.unwrap_or(interface.express_tunnels);
        interface.udp_ordering = change.udp_ordering.unwrap_or(interface.udp_ordering);
        self.apply_at_once(&[Change::Card(self.card_settings())])
    }

    /// Applies changes that no worker can refuse.
    fn apply_at_once(&mut self, changes: &[Change]) -> Result<(), String> {
        self.is_relisted = true;
        self.settle();
        self.apply(changes).map(|_| ()).map_err(|error| error.to_string())
    }

    /// Applies changes in all workers. If a worker could not add a peer, the peer is removed from
    /// all workers. Returns the peers that were removed.
    ///
    /// # Errors
    /// If a worker has ended. In this case the daemon is about to end.
    pub(super) fn apply(&mut self, changes: &[Change]) -> Result<Vec<RemovedPeer>> {
        let mut refused = self.crew.apply(changes)?;
        refused.sort_unstable_by_key(|(number, _)| *number);
        refused.dedup_by_key(|(number, _)| *number);
        let gone: Vec<Change> = refused.iter().map(|(number, _)| Change::Remove(*number)).collect();
        self.crew.apply(&gone)?;
        let mut names = Vec::new();
        for (number, error) in refused {
            let Some(index) = self.peers.iter().position(|peer| peer.number == number) else {
                continue;
            };
            let name = self.peers.remove(index).settings.name;
            self.log.forget(&name);
            names.push((name, error));
        }
        Ok(names)
    }

    /// Returns the settings of the interface in the form that workers need.
    pub(super) fn card_settings(&self) -> CardSettings {
        let interface = &self.config.interface;
        CardSettings {
            express: interface.express,
            express_udp: interface.express_udp,
            express_tunnels: interface.express_tunnels,
            udp_bypass: interface.udp_ordering == UdpOrdering::Bypass,
            order_wait: crate::run::duration(interface.order_wait),
            queue_target: crate::run::duration(interface.queue_delay),
            poll: interface.poll,
        }
    }

    /// Returns the configuration that is in use, with all changes since the start.
    pub(super) fn running(&self) -> Config {
        let peers = self.peers.iter().map(|peer| peer.settings.clone()).collect();
        Config { peers, ..self.config.clone() }
    }

    /// Applies a new configuration, as far as a running daemon can.
    ///
    /// # Errors
    /// The reason why nothing was changed, as a text for people.
    pub(super) fn reload(&mut self, config: &Config) -> Result<ReloadReport, String> {
        if let Some(unfit) = config.peers.iter().find_map(|p| self.config.interface.unfit(p)) {
            return Err(format!("nothing was changed: {unfit}"));
        }
        let prefixes = config.peers.iter().flat_map(|peer| peer.allowed.iter().copied());
        if let Some(why) = self.config.interface.unguarded(prefixes) {
            // The file is valid, so it switches `kill_switch` off or gives another `address`.
            return Err(format!(
                "nothing was changed: {why}; a changed `kill_switch` or `address` waits for a \
                 restart"
            ));
        }
        let difference = self.running().diff(config);
        let mut report = difference.report();
        let mut changes = Vec::new();
        if difference.live.contains(&PRIVATE_KEY) {
            changes.extend(self.key_change(&config.interface.protection));
        }
        self.take_away(&difference, &mut changes);
        self.bring(difference, &mut changes);
        self.take_over_interface(config);
        changes.push(Change::Card(self.card_settings()));
        let place = |peer: &Peer| config.peers.iter().position(|p| is_same(p, &peer.settings));
        self.peers.sort_by_key(place);
        (self.is_relisted, self.is_rerouted) = (true, true);
        for (name, error) in self.apply(&changes).map_err(|error| error.to_string())? {
            report.added.retain(|added| *added != name);
            let rekeyed = format!("{name}{REKEYED}");
            report.changed.retain(|changed| *changed != name && *changed != rekeyed);
            report.failed.push(format!("{name} (cannot add the peer {name}: {error})"));
        }
        Ok(report)
    }

    /// Changes the private key of this node. All sessions end, and open again with the peers that
    /// have its public key.
    ///
    /// # Errors
    /// The reason of a refusal, as a text for people.
    pub(super) fn rekey(&mut self, key: SecretKey) -> Result<(), String> {
        let changes = self.key_change(&Protection::Encrypted(key));
        self.apply_at_once(changes.as_slice())
    }

    /// Records a protection with another private key, and returns the change for the workers;
    /// `None` if it has no key.
    fn key_change(&mut self, protection: &Protection) -> Option<Change> {
        let key = protection.private_key()?.clone();
        self.config.interface.protection = protection.clone();
        Some(Change::Key(Box::new(key)))
    }

    /// Adds the changes that remove something to `changes`: peers, contexts of peers with another
    /// address or preshared key, and prefixes.
    fn take_away(&mut self, difference: &Difference, changes: &mut Vec<Change>) {
        for gone in &difference.removed {
            if let Some(index) = self.position(gone) {
                let peer = self.peers.remove(index);
                self.log.forget(&peer.settings.name);
                changes.push(Change::Remove(peer.number));
            }
        }
        for change in &difference.changed {
            let Some(index) = self.position(&change.old) else { continue };
            let peer = &self.peers[index];
            changes.push(if change.is_anew() {
                Change::Withdraw(peer.number)
            } else {
                let PeerChange { old, new, .. } = change;
                let kept = old.allowed.iter().filter(|net| new.allowed.contains(net));
                let kept: Vec<_> = kept.copied().collect();
                Change::Allow(peer.number, prefixes(&kept))
            });
        }
    }

    /// Appends to `changes` all changes that add something: new settings of peers, new contexts,
    /// and new peers.
    fn bring(&mut self, difference: Difference, changes: &mut Vec<Change>) {
        for change in difference.changed {
            let Some(index) = self.position(&change.old) else { continue };
            let is_anew = change.is_anew();
            let mut settings = change.new;
            if settings.host.is_some() && settings.host == change.old.host {
                settings.endpoint = change.old.endpoint;
            }
            self.take_over(index, settings);
            let peer = &mut self.peers[index];
            if is_anew {
                peer.begin_anew();
                changes.push(peer.addition());
            } else {
                let PeerSettings { allowed, express, express_udp, .. } = &peer.settings;
                changes.push(Change::Allow(peer.number, prefixes(allowed)));
                changes.push(Change::Express(peer.number, *express, *express_udp));
            }
        }
        for settings in difference.added {
            let peer = self.draft(settings);
            changes.push(peer.addition());
            self.peers.push(peer);
        }
    }

    /// Copies the settings of the interface that can change while the daemon runs.
    fn take_over_interface(&mut self, config: &Config) {
        let (runs, wanted) = (&mut self.config.interface, &config.interface);
        runs.express = wanted.express;
        runs.express_udp = wanted.express_udp;
        runs.express_tunnels = wanted.express_tunnels;
        runs.udp_ordering = wanted.udp_ordering;
        runs.order_wait = wanted.order_wait;
        runs.queue_delay = wanted.queue_delay;
        runs.poll = wanted.poll;
    }

    fn position(&self, settings: &PeerSettings) -> Option<usize> {
        self.peers.iter().position(|peer| is_same(&peer.settings, settings))
    }

    /// Replaces the settings of a peer.
    fn take_over(&mut self, index: usize, settings: PeerSettings) {
        let peer = &mut self.peers[index];
        if peer.settings.name != settings.name {
            self.log.forget(&peer.settings.name);
        }
        if peer.settings.host != settings.host {
            peer.lookup = settings.host.clone().map(Lookup::new);
        }
        peer.settings = settings;
    }
}
