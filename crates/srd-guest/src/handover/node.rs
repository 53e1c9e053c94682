//! The card of a node in the hand-over of the node: `srd_daemon::handover` has the steps.
//!
//! ```text
//!  node that runs                                  node that takes over
//!    control thread: further connection of helper -> reads the VPC's file by the helper
//!    control thread --- Hold ---> loop: stops, exports its state
//!                                                  -> reads the state, adopts devices, waits
//!                 leave, or drop
//!                      |--------> loop: ends, or continues
//!                                                  -> owns namespaces, moves packets
//! ```
//!
//! The loop that has stopped changes nothing, so it can continue at any time until it has to leave.
//! Until the loop of the other process owns the namespaces, its end removes nothing either: the
//! helper, which both processes share, removes an object only at a request, or at the end of both.
//!
//! Bounds: the loop gets the order to stop within [`HOLD_WAIT_MAX`], or continues; it completes
//! files within [`LEAVE_WAIT_MAX`].

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use srd_daemon::handover::instances::{HeldInstances, InstancesHandOver};
use srd_net::clock;
use srd_proto::time::Instant;

use super::state::State;
use super::take::{Handed, namespaces};
use crate::control::orders::{CardState, Command, Orders};
use crate::state::{Service, TakenOver};
use crate::traffic::transport::Transport;

/// Longest wait until the loop has stopped. A change of the rules that is under way ends before.
const HOLD_WAIT_MAX: Duration = Duration::from_secs(8);
/// Longest wait until files of flow logs are complete.
const LEAVE_WAIT_MAX: Duration = Duration::from_secs(12);

/// Returns the functions by which the control thread of a node hands the card over.
pub(crate) fn hand_over(orders: Orders) -> InstancesHandOver {
    let of_helper = orders.clone();
    let descriptors = move || of_helper.helper()?.shared();
    InstancesHandOver { descriptors: Arc::new(descriptors), hold: Arc::new(move || hold(&orders)) }
}

/// Stops the loop, and returns its state.
fn hold(orders: &Orders) -> Result<HeldInstances> {
    let (back, answer) = channel();
    let (end, ended) = channel::<Sender<()>>();
    if !orders.give_within(Command::Hold(back, ended), HOLD_WAIT_MAX) {
        bail!("the instances take no request");
    }
    // If this wait ends too early, `end` is dropped, and the loop continues.
    let held = answer.recv_timeout(HOLD_WAIT_MAX).context("the instances do not answer")?;
    let (state, descriptors) = held.map_err(anyhow::Error::msg)?;
    let leave = move || {
        let (left, has_left) = channel();
        if end.send(left).is_ok() && has_left.recv_timeout(LEAVE_WAIT_MAX).is_err() {
            tracing::warn!("files of flow logs are not complete");
        }
    };
    Ok(HeldInstances { state, descriptors, leave: Box::new(leave) })
}

impl Service {
    /// Stops until the control thread lets this card continue, or end. No packet moves meanwhile.
    pub(crate) fn hold(
        &mut self,
        back: &Sender<Result<CardState, String>>,
        end: &Receiver<Sender<()>>,
    ) {
        let held = self.export(None).map_err(|error| format!("{error:#}"));
        let has_stopped = held.is_ok();
        if back.send(held).is_err() || !has_stopped {
            return;
        }
        let Ok(left) = end.recv() else { return };
        self.is_handed_over = true;
        self.stopper.is_ending.store(true, Ordering::Relaxed);
        self.let_go();
        let _ = left.send(());
    }

    /// Takes the state of the card of the node that runs, which has stopped. That card may go on
    /// until [`Service::begin_taken`], so this process must be able to end without a change.
    pub(crate) fn take_state(&mut self, transport: Transport, all: Vec<OwnedFd>) -> Result<()> {
        let mut handed = Handed::read(all, false)?;
        self.adopt(clock::now(), &mut handed, Some(transport))?;
        let State { hosts, instances, .. } = handed.state;
        self.taken = Some(TakenOver { hosts, namespaces: namespaces(instances) });
        Ok(())
    }

    /// Continues after the card of the other process, which does not go on any more. All objects
    /// belong to this process from now on.
    pub(crate) fn begin_taken(&mut self, now: Instant, taken: TakenOver) {
        self.helper.renew();
        if let Some(transport) = &mut self.gateways.transport {
            transport.adopt_contacts(&taken.hosts);
        }
        self.own_namespaces(taken.namespaces);
        self.begin_objects(now);
    }
}
