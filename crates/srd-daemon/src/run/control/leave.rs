//! Hands the daemon over to another process.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use super::Control;
use crate::handover::decision::Decision;
use crate::handover::give;
use crate::handover::instances::HeldInstances;
use crate::handover::state::{
    Belongings, CloudState, EnrolState, Estate, PeerState, State, WorkerState, identity,
};
use crate::handover::wire::LineConnection;
use crate::routing;

/// A hand-over after which this process does not continue. The workers stop, and the other process
/// waits, as long as this exists.
#[derive(Debug)]
pub(super) struct Handed {
    process: u32,
    instances: Option<HeldInstances>,
    line: LineConnection,
    _holds: Vec<SyncSender<()>>,
}

impl Handed {
    /// Returns the id of the process that goes on.
    pub(super) fn process(&self) -> u32 {
        self.process
    }

    /// Returns a further descriptor of the connection to the other process.
    pub(super) fn connection(&self) -> io::Result<UnixStream> {
        self.line.stream().try_clone()
    }

    /// Ends the card of the instances, which moves no packets any more.
    pub(super) fn leave(&mut self) {
        if let Some(held) = self.instances.take() {
            (held.leave)();
        }
    }
}

impl Control {
    /// Returns the state and the descriptors for a hand-over.
    ///
    /// # Errors
    /// The reason why the daemon cannot be handed over, as a text for people.
    pub(super) fn describe(&self) -> Result<Estate, String> {
        let all = self.crew.descriptors().map_err(|error| format!("{error:#}"))?;
        let Belongings { network, hooks, metrics, instances, packet_bytes } =
            self.belongings.clone();
        let instances = instances.map(|of| (of.descriptors)()).transpose();
        let instances = instances.map_err(|error| format!("{error:#}"))?.unwrap_or_default();
        let opened = network.descriptors().and_then(|of| Ok((of, hooks.descriptors()?)));
        let (network, hooks) = opened.map_err(|error| error.to_string())?;
        let interface = &self.config.interface;
        let counts = |of: &crate::run::orders::WorkerDescriptors| WorkerState {
            sockets: of.sockets.len(),
            queues: of.queues.len(),
        };
        let peer = |peer: &super::Peer| PeerState {
            name: peer.settings.name.clone(),
            identity: identity(&peer.settings),
            address: peer.figures().known_addresses().next().filter(|_| peer.is_up()),
        };
        let state = State {
            spec: routing::spec(interface),
            mode: interface.mode,
            listens: interface.listens().collect(),
            paths: interface.paths,
            mtu: self.mtu,
            packet_bytes,
            udp_segmentation: all.iter().all(|worker| worker.udp_segmentation),
            hooks: interface.hooks.clone(),
            has_network: network.is_some(),
            has_hooks: hooks.is_some(),
            cloud: CloudState::of(&self.config),
            enrol: EnrolState::of(&self.config),
            instances: instances.len(),
            metrics: metrics.as_ref().map(|(at, _)| *at),
            workers: all.iter().map(counts).collect(),
            peers: self.peers.iter().map(peer).collect(),
        };
        let mut descriptors: Vec<_> = network.into_iter().chain(hooks).flatten().collect();
        descriptors.extend(instances.into_iter().map(Arc::new));
        descriptors.extend(metrics.map(|(_, listener)| listener));
        for worker in all {
            descriptors.extend(worker.sockets.into_iter().map(Arc::new));
            descriptors.extend(worker.queues);
        }
        Ok(Estate { state, descriptors })
    }

    /// Stops the workers, and lets the process with this id go on. If this fails, the workers
    /// continue.
    pub(super) fn hand_over(
        &mut self,
        mut line: LineConnection,
        (decision, process): (Decision, u32),
    ) -> Result<(), String> {
        let holds = self.crew.hold().map_err(|error| format!("{error:#}"))?;
        let instances = self.belongings.instances.as_ref().map(|of| (of.hold)()).transpose();
        let instances = instances.map_err(|error| format!("{error:#}"))?;
        let settled = give::settle(&mut line, decision, instances.as_ref());
        settled.map_err(|error| format!("{error:#}"))?;
        self.handed = Some(Handed { process, instances, line, _holds: holds });
        Ok(())
    }
}
