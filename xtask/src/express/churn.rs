//! Events of the soak: faults, changes of settings, and their repair.

use std::fmt;

use srd_proto::time::Duration;

use super::NODES;
use super::node::NodeSettings;
use super::wire::PATHS;
use super::world::World;

/// A kind of event: a fault, or a change of settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub(super) enum Churn {
    Restart,
    DeadLink,
    DeadDirection,
    DeadPaths,
    Loss,
    PeerExpress,
    NodeExpress,
    PeerRemoved,
    AddressMoved,
    AddressForbidden,
    UdpOrder,
    QueueTarget,
    Tunnels,
}

impl Churn {
    pub(super) const ALL: [Churn; 13] = [
        Churn::Restart,
        Churn::DeadLink,
        Churn::DeadDirection,
        Churn::DeadPaths,
        Churn::Loss,
        Churn::PeerExpress,
        Churn::NodeExpress,
        Churn::PeerRemoved,
        Churn::AddressMoved,
        Churn::AddressForbidden,
        Churn::UdpOrder,
        Churn::QueueTarget,
        Churn::Tunnels,
    ];
}

impl fmt::Display for Churn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Churn::Restart => "restarts",
            Churn::DeadLink => "dead links",
            Churn::DeadDirection => "dead directions",
            Churn::DeadPaths => "dead paths",
            Churn::Loss => "times of loss",
            Churn::PeerExpress => "switches of a peer",
            Churn::NodeExpress => "switches of a node",
            Churn::PeerRemoved => "peers removed or added",
            Churn::AddressMoved => "addresses moved",
            Churn::AddressForbidden => "addresses forbidden or allowed",
            Churn::UdpOrder => "changes of order",
            Churn::QueueTarget => "changes of queue delay",
            Churn::Tunnels => "switches of tunnels",
        })
    }
}

impl World {
    fn any_node(&mut self) -> usize {
        self.rng.below(u32::try_from(NODES).expect("few nodes")) as usize
    }

    fn any_pair(&mut self) -> (usize, usize) {
        let from = self.any_node();
        let step = 1 + self.rng.below(u32::try_from(NODES - 1).expect("few nodes")) as usize;
        (from, (from + step) % NODES)
    }

    fn coin(&mut self) -> bool {
        self.rng.below(2) == 0
    }

    /// Executes an event with random nodes and values. Its effect lasts until another event of the
    /// kind changes it, or until everything is healed.
    pub(super) fn churn(&mut self, what: Churn) {
        let (one, other) = self.any_pair();
        match what {
            // The first node is never restarted.
            Churn::Restart => return self.restart(one.max(1)),
            Churn::DeadLink => {
                let both = [(one, other), (other, one)];
                if self.wire.dead.is_empty() {
                    self.wire.dead.extend(both);
                } else {
                    self.wire.dead.clear();
                }
            }
            Churn::DeadDirection => {
                self.wire.dead.insert((one, other));
            }
            Churn::DeadPaths => {
                self.wire.dead_paths.clear();
                for _ in 0..self.rng.below(4) {
                    let path = self.rng.below(u32::try_from(PATHS).expect("few paths"));
                    self.wire.dead_paths.insert(path as usize);
                }
            }
            Churn::Loss => {
                self.wire.loss_permille = self.rng.below(40);
                self.wire.repeat_permille = self.rng.below(20);
            }
            Churn::PeerExpress => {
                let (express, udp) = (self.coin(), self.coin());
                let peer = &mut self.wanted[one].peers[other];
                (peer.express, peer.udp) = (express, udp);
            }
            Churn::NodeExpress => {
                let (express, udp) = (self.coin(), self.coin());
                let wanted = &mut self.wanted[one];
                (wanted.express, wanted.express_udp) = (express, udp);
            }
            Churn::PeerRemoved => {
                let peer = &mut self.wanted[one].peers[other];
                peer.present = !peer.present;
            }
            Churn::AddressMoved => {
                for wanted in &mut self.wanted {
                    wanted.peers.iter_mut().for_each(|peer| peer.owns_moving = false);
                    wanted.peers[one].owns_moving = true;
                }
            }
            Churn::AddressForbidden => {
                let peer = &mut self.wanted[one].peers[other];
                peer.allowed = !peer.allowed;
            }
            Churn::UdpOrder => {
                let wanted = &mut self.wanted[one];
                wanted.udp_bypass = !wanted.udp_bypass;
                let ms = 10 + u64::from(self.rng.below(190));
                wanted.order_wait = Duration::from_millis(ms);
            }
            Churn::QueueTarget => {
                let ms = 1 + u64::from(self.rng.below(20));
                self.wanted[one].queue_target = Duration::from_millis(ms);
            }
            Churn::Tunnels => {
                let wanted = &mut self.wanted[one];
                wanted.express_tunnels = !wanted.express_tunnels;
            }
        }
        self.apply();
    }

    /// Removes all faults of the wire, and restores the settings of all nodes. Some nodes deliver
    /// UDP packets without order, which must not affect other packets.
    pub(super) fn heal(&mut self) {
        self.wire.heal();
        let owner = self.any_node();
        self.wanted = vec![NodeSettings::all(owner); NODES];
        for node in 0..NODES {
            self.wanted[node].udp_bypass = self.coin();
        }
        self.apply();
    }
}
