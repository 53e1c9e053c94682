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
    // All workers stop at about the same time, because frames from one that goes on to one that
    // has stopped are lost. If a worker cannot be stopped, the channels are dropped, and the others
    // continue.
    let asked: Vec<_> = orders.all().map(ask_to_hold).collect::<Result<_>>()?;
    let held: Vec<_> = asked.into_iter().map(held).collect::<Result<_>>()?;
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

/// Receiver of the state of a worker, and the sender whose end lets the worker continue.
type Holding = (Receiver<Result<CardState, String>>, Sender<Sender<()>>);

/// Requests the loop of one worker to stop. The loop continues when the returned sender is dropped.
fn ask_to_hold(orders: &Orders) -> Result<Holding> {
    let (back, answer) = channel();
    let (end, ended) = channel::<Sender<()>>();
    if !orders.give_within(Command::Hold(back, ended), HOLD_WAIT_MAX) {
        bail!("the instances take no request");
    }
    Ok((answer, end))
}

/// Returns the state of a worker when its loop has stopped.
fn held((answer, end): Holding) -> Result<(CardState, Sender<Sender<()>>)> {
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

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek};
    use std::sync::atomic::AtomicUsize;
    use std::thread;
    use std::time::Instant;

    use super::*;
    use crate::cloud::world::Vpc;

    /// Longest wait of a test. [`hold`] itself waits for a shorter time.
    const LONG: Duration = Duration::from_secs(60);

    type Queue = Receiver<Command>;

    fn workers(count: u8) -> (Orders, Vec<Queue>) {
        let file = Arc::new(Vpc::file_of(None).unwrap());
        let queues = Orders::of_workers(count, file).unwrap();
        let (orders, commands): (Vec<_>, Vec<_>) =
            queues.into_iter().map(|(orders, commands, _wake)| (orders, commands)).unzip();
        (orders[0].clone(), commands)
    }

    /// A file with this text, as the state or a device of a worker.
    fn named(text: &str) -> File {
        file_of(&[text.as_bytes()]).unwrap()
    }

    fn state(worker: usize) -> CardState {
        let device = Arc::new(OwnedFd::from(named(&format!("device of {worker}"))));
        (named(&format!("state of {worker}")), vec![device])
    }

    fn text(file: impl Into<File>) -> String {
        let mut file = file.into();
        file.rewind().unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        // The length of the part comes first.
        String::from_utf8(bytes[8..].to_vec()).unwrap()
    }

    fn asked(queue: &Queue) -> (Sender<Result<CardState, String>>, Receiver<Sender<()>>) {
        match queue.recv_timeout(LONG) {
            Ok(Command::Hold(back, end)) => (back, end),
            _ => panic!("the worker is not asked to stop"),
        }
    }

    /// Each worker stopped only after the state of the one before was written, and packets to
    /// workers that had stopped were lost meanwhile.
    #[test]
    fn regression_all_workers_stop_together_and_the_state_has_their_order() {
        let (orders, queues) = workers(3);
        let asked_count = Arc::new(AtomicUsize::new(0));
        let start = |(number, queue): (usize, Queue)| {
            let asked_count = Arc::clone(&asked_count);
            thread::spawn(move || {
                let (back, end) = asked(&queue);
                // No worker answers before all of them have the request.
                asked_count.fetch_add(1, Ordering::SeqCst);
                let until = Instant::now() + LONG;
                while asked_count.load(Ordering::SeqCst) < 3 {
                    assert!(Instant::now() < until, "the others are not asked");
                    thread::sleep(Duration::from_millis(1));
                }
                back.send(Ok(state(number))).unwrap();
                let left = end.recv_timeout(LONG).expect("the hand-over goes on");
                left.send(()).unwrap();
            })
        };
        let loops: Vec<_> = queues.into_iter().enumerate().map(start).collect();
        let HeldInstances { state, descriptors, leave } = hold(&orders).unwrap();
        assert_eq!(text(state), "state of 0");
        let all = descriptors.iter().map(|of| text(of.try_clone().unwrap()));
        let wanted = ["device of 0", "state of 1", "device of 1", "state of 2", "device of 2"];
        assert_eq!(all.collect::<Vec<_>>(), wanted);
        leave();
        loops.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn workers_continue_if_another_one_cannot_stop() {
        let (orders, queues) = workers(2);
        let loops: Vec<_> = queues
            .into_iter()
            .enumerate()
            .map(|(number, queue)| {
                thread::spawn(move || {
                    let (back, end) = asked(&queue);
                    match number {
                        0 => back.send(Ok(state(0))).unwrap(),
                        _ => back.send(Err(String::from("it cannot"))).unwrap(),
                    }
                    // The other end is dropped: the loop continues.
                    end.recv_timeout(LONG).unwrap_err()
                })
            })
            .collect();
        let error = hold(&orders).unwrap_err().to_string();
        assert!(error.contains("it cannot"), "{error}");
        for thread in loops {
            let ended = thread.join().unwrap();
            assert_eq!(ended, std::sync::mpsc::RecvTimeoutError::Disconnected);
        }
    }
}
