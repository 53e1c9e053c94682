//! The side of the card that runs in a hand-over: it hands its whole state to another process, and
//! ends. If the hand-over fails, it continues as before.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Result, bail};

use super::state::{DeviceState, Edge, Instance, Interface, Log, State};
use super::{GO, READY};
use srd_daemon::handover::wire::{DESCRIPTORS_MAX, LineConnection, file_of};
use srd_net::{Tun, clock};

use crate::control::orders::CardState;
use crate::interfaces::kernel::Kernel;
use crate::interfaces::port::Port;
use crate::machine::edge;
use crate::machine::namespace::Namespace;
use crate::state::{Running, Service};
use crate::traffic::gateways::Gateways;
use crate::traffic::transport::Transport;

/// Longest time for which the card waits until the other process has read the state. No packet
/// moves meanwhile.
pub(crate) const READY_WAIT_MAX: Duration = Duration::from_secs(10);
/// Longest time for one write to the other process. If the process reads more slowly, the hand-over
/// fails.
const WRITE_WAIT_MAX: Duration = Duration::from_secs(10);

impl Service {
    /// Hands everything over to the process at the other end of `stream`. If the hand-over fails,
    /// this card continues as before.
    pub(crate) fn hand_over(&mut self, stream: &UnixStream) -> Result<()> {
        let heir = self.helper.heir()?;
        let (file, descriptors) = self.export(Some(heir))?;
        let mut all = vec![file.as_fd()];
        all.extend(descriptors.iter().map(|descriptor| descriptor.as_fd()));
        if all.len() > DESCRIPTORS_MAX {
            bail!("more than {DESCRIPTORS_MAX} descriptors cannot be handed over");
        }
        let stream = stream.try_clone()?;
        stream.set_read_timeout(Some(READY_WAIT_MAX))?;
        stream.set_write_timeout(Some(WRITE_WAIT_MAX))?;
        self.settle(&mut LineConnection::new(stream), &all)?;
        self.let_go();
        Ok(())
    }

    /// Returns the file with the state, and the descriptors in the order that [`State`] defines.
    /// They are valid until the next packet moves. `heir`: the first descriptor, if there is one.
    pub(super) fn export(&mut self, heir: Option<OwnedFd>) -> Result<CardState> {
        if let Some(name) = self.vpc.added_names().next() {
            bail!(
                "`srd run` holds the instance `{name}` by its connection to the card that runs, \
                 which cannot be handed over: end that program first"
            );
        }
        if self.gateways.edge.as_ref().is_some_and(|edge| edge.tun().is_none()) {
            bail!("the device {} was deleted and is being made again: try again", edge::DEVICE);
        }
        self.take_read(clock::now());
        self.settle_questions();
        self.write_logs();
        // Packets that wait for an interrupt are given to their instances now.
        for kernel in self.devices.values_mut().filter_map(Port::kernel_mut) {
            kernel.interrupt_all();
        }
        let (state, descriptors) = self.state(heir)?;
        let state = serde_json::to_vec(&state)?;
        let file = file_of(&[&state, &self.card.export(), &self.gateways.nat.export()])?;
        Ok((file, descriptors))
    }

    fn settle(&mut self, line: &mut LineConnection, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        line.say(
            &serde_json::json!({ "answer": "state", "descriptors": descriptors.len() }).to_string(),
        )?;
        line.hand(descriptors)?;
        if line.next_line()? != READY {
            bail!("the other card does not say that it is ready");
        }
        // The port of the metrics must be free when the other card listens there.
        let had_metrics = self.metrics.take().is_some();
        if let Err(error) = line.say(GO) {
            if had_metrics {
                self.begin_metrics()?;
            }
            return Err(error);
        }
        self.is_handed_over = true;
        self.stopper.is_ending.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn state(&mut self, heir: Option<OwnedFd>) -> Result<(State, Vec<Arc<OwnedFd>>)> {
        let mut descriptors: Vec<_> = heir.into_iter().map(Arc::new).collect();
        let transport = self.gateways.transport.as_mut();
        let to_hosts = transport.map(Transport::sockets).transpose()?.unwrap_or_default();
        let Gateways { edge, transport, lost, .. } = &self.gateways;
        let edge_tun = edge.as_ref().and_then(edge::Edge::tun);
        descriptors.extend(edge_tun.map(Tun::fd));
        let transport_sockets = to_hosts.len();
        descriptors.extend(to_hosts.into_iter().map(Arc::new));
        let mut instances = Vec::new();
        for (name, running) in &self.guests.by_name {
            instances.push(self.instance_state(name, running, &mut descriptors)?);
        }
        let lost = lost.iter().map(|(why, packets)| (why.clone().into_owned(), *packets));
        let logs = self.logs.plan.logs.iter().map(|(id, active)| Log {
            id: id.0,
            written: active.counts.written.load(Ordering::Relaxed),
            dropped: active.counts.dropped.load(Ordering::Relaxed),
        });
        let state = State {
            host: self.options.host.clone(),
            began_ns: self.began.as_nanos(),
            edge: edge.as_ref().zip(edge_tun).map(|(edge, tun)| Edge {
                udp_segmentation: tun.udp_segmentation(),
                routed: edge.routed().collect(),
            }),
            transport: transport_sockets,
            hosts: transport.as_ref().map(Transport::contacts).unwrap_or_default(),
            lost: lost.collect(),
            logs: logs.collect(),
            instances,
            tokens: self.services.token_key(),
        };
        Ok((state, descriptors))
    }

    fn instance_state(
        &self,
        name: &str,
        running: &Running,
        descriptors: &mut Vec<Arc<OwnedFd>>,
    ) -> Result<Instance> {
        let mut interfaces = Vec::new();
        for (port, eni, device) in &running.interfaces {
            let kernel = self.devices.get(port).and_then(Port::kernel);
            let state = kernel.filter(|kernel| !kernel.queues().is_empty()).map(device_state);
            if state.is_some() {
                descriptors.extend(kernel.iter().flat_map(|of| of.queues()).map(Tun::fd));
            }
            interfaces.push(Interface {
                eni: eni.0,
                device: device.name.clone(),
                addresses: device.addresses.clone(),
                is_primary: device.is_primary,
                device_state: state,
            });
        }
        Ok(Instance {
            name: name.to_owned(),
            id: running.id.0,
            instance_type: running.profile.instance.name.to_owned(),
            namespace: running.namespace.as_ref().map(|namespace| namespace.name().clone()),
            interfaces,
        })
    }

    /// After a hand-over, releases the objects that now belong to the other process, without
    /// removing or restoring them.
    pub(crate) fn let_go(&mut self) {
        self.helper.is_passed_on = true;
        for running in std::mem::take(&mut self.guests.by_name).into_values() {
            running.namespace.into_iter().for_each(Namespace::leave);
        }
        for device in std::mem::take(&mut self.devices).into_values() {
            device.leave();
        }
        // Removals that wait are carried out.
        self.maker.end();
        // Aggregation windows of flow logs that have not ended continue in the other process, which
        // writes them to new files.
        self.end_writing();
    }
}

fn device_state(kernel: &Kernel) -> DeviceState {
    let adapter = &kernel.adapter;
    DeviceState {
        udp_segmentation: kernel.queues().iter().all(Tun::udp_segmentation),
        settings: adapter.settings.clone(),
        counts: adapter.counts().collect(),
        rules: adapter.rules(),
    }
}
