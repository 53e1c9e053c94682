//! The card that runs in a hand-over.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use srd_daemon::handover::instances::{HeldInstances, InstancesHandOver};
use srd_daemon::handover::wire::file_of;
use srd_net::{Tun, clock};

use super::state::{DeviceState, Edge, Instance, Interface, Log, State};
use crate::control::orders::{CardState, Command, Orders};
use crate::interfaces::kernel::Kernel;
use crate::interfaces::port::Port;
use crate::machine::edge;
use crate::machine::namespace::Namespace;
use crate::state::{Running, Service};
use crate::traffic::gateways::Gateways;
use crate::traffic::transport::Transport;

/// Longest wait until the loop has stopped. A change of the rules that is under way ends before.
pub(crate) const HOLD_WAIT_MAX: Duration = Duration::from_secs(8);
/// Longest wait until files of flow logs are complete.
pub(crate) const LEAVE_WAIT_MAX: Duration = Duration::from_secs(12);

/// Returns the functions by which the control thread of a node hands the card over.
pub(crate) fn hand_over(orders: Orders) -> InstancesHandOver {
    let of_helper = orders.clone();
    let descriptors = move || of_helper.helper()?.shared();
    InstancesHandOver { descriptors: Arc::new(descriptors), hold: Arc::new(move || hold(&orders)) }
}

/// Stops the loops of all workers, and returns their state: the state of the first worker with its
/// descriptors, then, for each further worker, the file with its state as a descriptor, and its
/// descriptors.
fn hold(orders: &Orders) -> Result<HeldInstances> {
    // If a worker cannot be stopped, the channels are dropped, and the others continue.
    let held: Vec<_> = orders.all().map(hold_one).collect::<Result<_>>()?;
    let (mut files, mut descriptors, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for (number, ((file, own), end)) in held.into_iter().enumerate() {
        match number {
            0 => files.push(file),
            _ => descriptors.push(Arc::new(OwnedFd::from(file))),
        }
        descriptors.extend(own);
        ends.push(end);
    }
    let leave = move || {
        let left = ends.into_iter().filter_map(|end| {
            let (left, has_left) = channel();
            end.send(left).is_ok().then_some(has_left)
        });
        // All workers complete their files at the same time.
        for has_left in left.collect::<Vec<Receiver<()>>>() {
            if has_left.recv_timeout(LEAVE_WAIT_MAX).is_err() {
                tracing::warn!("files of flow logs are not complete");
            }
        }
    };
    let state = files.pop().context("there is no worker")?;
    Ok(HeldInstances { state, descriptors, leave: Box::new(leave) })
}

/// Stops the loop of one worker. The loop continues when the returned channel is dropped.
fn hold_one(orders: &Orders) -> Result<(CardState, Sender<Sender<()>>)> {
    let (back, answer) = channel();
    let (end, ended) = channel::<Sender<()>>();
    if !orders.give_within(Command::Hold(back, ended), HOLD_WAIT_MAX) {
        bail!("the instances take no request");
    }
    // If this wait ends too early, `end` is dropped, and the loop continues.
    let held = answer.recv_timeout(HOLD_WAIT_MAX).context("the instances do not answer")?;
    Ok((held.map_err(anyhow::Error::msg)?, end))
}

impl Service {
    /// Stops until the control thread lets this card continue, or end. No packet moves meanwhile.
    pub(crate) fn hold(
        &mut self,
        back: &Sender<Result<CardState, String>>,
        end: &Receiver<Sender<()>>,
    ) {
        let held = self.export().map_err(|error| format!("{error:#}"));
        let has_stopped = held.is_ok();
        if back.send(held).is_err() || !has_stopped {
            return;
        }
        let Ok(left) = end.recv() else { return };
        self.is_handed_over = true;
        self.let_go();
        let _ = left.send(());
    }

    /// Returns the file with the state, and the descriptors in the order that [`State`] defines.
    /// They are valid until the next packet moves.
    fn export(&mut self) -> Result<CardState> {
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
        let (state, descriptors) = self.state();
        let state = serde_json::to_vec(&state)?;
        let file = file_of(&[&state, &self.card.export(), &self.gateways.nat.export()])?;
        Ok((file, descriptors))
    }

    fn state(&self) -> (State, Vec<Arc<OwnedFd>>) {
        let Gateways { edge, transport, lost, .. } = &self.gateways;
        let edge_tun = edge.as_ref().and_then(edge::Edge::tun);
        let mut descriptors: Vec<_> = edge_tun.map(Tun::fd).into_iter().collect();
        let mut instances = Vec::new();
        for (name, running) in &self.guests.by_name {
            instances.push(self.instance_state(name, running, &mut descriptors));
        }
        let lost = lost.iter().map(|(why, packets)| (why.clone().into_owned(), *packets));
        let logs = self.logs.plan.logs.iter().map(|(id, active)| Log {
            id: id.0,
            written: active.counts.written.load(Ordering::Relaxed),
            dropped: active.counts.dropped.load(Ordering::Relaxed),
        });
        let state = State {
            began_ns: self.began.as_nanos(),
            edge: edge.as_ref().zip(edge_tun).map(|(edge, tun)| Edge {
                udp_segmentation: tun.udp_segmentation(),
                routed: edge.routed().collect(),
            }),
            hosts: transport.as_ref().map(Transport::contacts).unwrap_or_default(),
            lost: lost.collect(),
            logs: logs.collect(),
            instances,
            tokens: self.services.token_key(),
        };
        (state, descriptors)
    }

    fn instance_state(
        &self,
        name: &str,
        running: &Running,
        descriptors: &mut Vec<Arc<OwnedFd>>,
    ) -> Instance {
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
        Instance {
            name: name.to_owned(),
            id: running.id.0,
            instance_type: running.profile.instance.name.to_owned(),
            namespace: running.namespace.as_ref().map(|namespace| namespace.name().clone()),
            interfaces,
        }
    }

    /// After a hand-over, releases the objects that now belong to the other process, without
    /// removing or restoring them.
    fn let_go(&mut self) {
        self.helper.pass_on();
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
