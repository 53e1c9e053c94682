//! Troubles of the soak: failures and changes of daemons and fabric, one after another, chosen by a
//! random generator with a seed.

use anyhow::Result;
use srd_lab::express::{Overlay, Variation};
use srd_lab::fabric::Fabric;
use srd_lab::id::{HostId, LinkId};
use srd_lab::random::Random;
use std::time::Duration;

/// A kind of failure or change that the soak causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    DaemonKilled,
    SpineDead,
    LinkSlow,
    Loss,
    PeerRemoved,
    SettingChanged,
    ExpressOff,
}

impl Kind {
    pub(super) const ALL: [Kind; 7] = [
        Kind::DaemonKilled,
        Kind::SpineDead,
        Kind::LinkSlow,
        Kind::Loss,
        Kind::PeerRemoved,
        Kind::SettingChanged,
        Kind::ExpressOff,
    ];

    /// Returns the name of the figure that counts troubles of this kind.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::DaemonKilled => "daemons killed",
            Kind::SpineDead => "spines died",
            Kind::LinkSlow => "links slowed",
            Kind::Loss => "times of loss",
            Kind::PeerRemoved => "peers removed",
            Kind::SettingChanged => "settings reloaded",
            Kind::ExpressOff => "Express switched off",
        }
    }
}

/// A failure or change that is undone later.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trouble {
    pub(super) kind: Kind,
    pub(super) host: HostId,
    peer: HostId,
    link: LinkId,
    amount: u16,
    /// Time from the start of the trouble until it is undone.
    pub(super) lasts: Duration,
}

impl Trouble {
    /// Draws the next trouble. `deck` holds the kinds that are still to come in the current round;
    /// each round has every kind once, in random order. The daemon of the first host is never
    /// killed.
    pub(super) fn any(
        random: &mut Random,
        deck: &mut Vec<Kind>,
        hosts: &[HostId],
        spines: u16,
    ) -> Trouble {
        if deck.is_empty() {
            deck.extend(Kind::ALL);
        }
        let kind = deck.swap_remove(random.below(deck.len()));
        let from = usize::from(kind == Kind::DaemonKilled);
        let host = hosts[from + random.below(hosts.len() - from)];
        let others: Vec<HostId> = hosts.iter().copied().filter(|peer| *peer != host).collect();
        let peer = others[random.below(others.len())];
        let spine = u16::try_from(random.below(spines.into())).unwrap_or(0);
        let ms = 300 + u64::try_from(random.below(2200)).unwrap_or(0);
        Trouble {
            kind,
            host,
            peer,
            link: LinkId { leaf: host.leaf, spine },
            amount: 5 + u16::try_from(random.below(25)).unwrap_or(0),
            lasts: Duration::from_millis(ms),
        }
    }

    /// Causes the failure or change.
    pub(super) fn begin(&self, fabric: &Fabric, overlay: &mut Overlay<'_>) -> Result<()> {
        let Trouble { host, peer, link, amount, .. } = *self;
        match self.kind {
            Kind::DaemonKilled => overlay.kill(host),
            Kind::SpineDead => fabric.fail_spine(link.spine),
            Kind::LinkSlow => fabric.slow_link(link, amount.into()),
            Kind::Loss => fabric.loss(link.spine, amount),
            Kind::PeerRemoved => {
                overlay.reload(host, &Variation { without: Some(peer), expert: "" })
            }
            Kind::SettingChanged => {
                let expert = "udp_ordering = \"bypass\"\norder_wait_ms = 50\nqueue_delay_ms = 2\n";
                overlay.reload(host, &Variation { without: None, expert })
            }
            Kind::ExpressOff => overlay.set_in(host, &["all", "express", "off"]),
        }
    }

    /// Undoes the failure or change.
    pub(super) fn end(&self, fabric: &Fabric, overlay: &mut Overlay<'_>) -> Result<()> {
        let Trouble { host, link, .. } = *self;
        match self.kind {
            Kind::DaemonKilled => overlay.start(host),
            Kind::SpineDead | Kind::Loss => fabric.heal_spine(link.spine),
            Kind::LinkSlow => fabric.heal_link(link),
            Kind::PeerRemoved | Kind::SettingChanged => overlay.reload(host, &Variation::default()),
            Kind::ExpressOff => overlay.set_in(host, &["all", "express", "on"]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_happens_in_every_round_and_the_first_host_is_never_killed() {
        let hosts: Vec<HostId> = (0..3).map(|host| HostId { leaf: 0, host }).collect();
        let (mut random, mut deck) = (Random::new(1), Vec::new());
        for _ in 0..100 {
            let mut round: Vec<Kind> = Vec::new();
            for _ in Kind::ALL {
                let trouble = Trouble::any(&mut random, &mut deck, &hosts, 4);
                assert_ne!(trouble.host, trouble.peer);
                assert!(trouble.kind != Kind::DaemonKilled || trouble.host != hosts[0]);
                round.push(trouble.kind);
            }
            round.sort_unstable();
            assert_eq!(round, Kind::ALL);
        }
    }
}
