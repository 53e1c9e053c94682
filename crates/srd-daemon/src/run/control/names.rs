//! Resolves the host names of peers, and tries the addresses that are found.

use std::net::SocketAddr;

use srd_proto::Instant;

use super::Control;
use crate::config::PeerSettings;
use crate::run::orders::Change;
use crate::run::resolve::Step;

impl Control {
    /// Processes the answers of the resolver that have arrived.
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
            self.is_relisted = true;
            self.look_up(now);
        }
    }

    /// For each peer that has a host name and does not answer: requests the resolution of the name,
    /// or moves the peer to the next address.
    pub(super) fn look_up(&mut self, now: Instant) {
        // In reverse order, because a peer whose move fails is removed from the list.
        for index in (0..self.peers.len()).rev() {
            let peer = &mut self.peers[index];
            let is_up = peer.is_up();
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

    /// Moves a peer that does not answer to another of its addresses, with a new context.
    fn move_peer(&mut self, index: usize, address: SocketAddr) {
        let peer = &self.peers[index];
        let (name, number) = (&peer.settings.name, peer.number);
        if self.config.interface.is_inside(address.ip()) {
            tracing::warn!("{name} is not called at {address}, which is inside the overlay itself");
            return;
        }
        match self.crew.apply(&[Change::CheckAddress(number, address)]) {
            Ok(refused) if refused.is_empty() => {}
            Ok(_) => {
                let name = self.name_of(number);
                tracing::warn!("{name} is not called at {address}, which is another peer's");
                return;
            }
            // A worker has ended, which the control thread detects elsewhere.
            Err(_) => return,
        }
        tracing::debug!("{name} is called at {address}");
        let settings = PeerSettings { endpoint: Some(address), ..peer.settings.clone() };
        let peer = &mut self.peers[index];
        peer.settings = settings;
        peer.begin_anew();
        let changes = [Change::Withdraw(number), peer.addition()];
        for (name, error) in self.apply(&changes).unwrap_or_default() {
            tracing::error!("{name} is gone: {error}");
        }
        self.is_relisted = true;
        self.is_rerouted = true;
    }
}
