//! The last steps of a take-over: the daemon that runs decides that this process goes on, and this
//! process continues with everything that the daemon had.
//!
//! Invariant: everything that may fail happens before [`Taken::done`]. After it, no other process
//! goes on, so a failure is logged and does not end this process.

use std::time::Duration;

use anyhow::{Context as _, Result};
use srd_proto::Instant;

use super::control::Control;
use crate::config::{Config, Mode};
use crate::control_plane::state::Enrolment;
use crate::handover::take::Taken;
use crate::hooks;
use crate::netconf::Network;
use crate::routing::PreparedRouting;

/// Parts of the daemon that runs, which this process takes over.
pub(super) struct Heritage {
    pub(super) taken: Taken,
    /// The network process of that daemon, if it has one.
    pub(super) network: Option<Network>,
    pub(super) mode: Mode,
    /// The configuration, if the host has enrolled at a controller.
    pub(super) enrolled: Option<Config>,
    /// Time since which no packet has moved.
    pub(super) began: Instant,
}

/// Result of a take-over.
pub(super) struct Completed {
    /// Time for which no packet moved.
    pub(super) silence: Duration,
    /// Whether the daemon before was requested to stop, so that this process has to stop.
    pub(super) has_to_stop: bool,
    /// The enrolment that the daemon before has stored last, if this process uses its peers.
    pub(super) newer: Option<Enrolment>,
}

/// Waits until the daemon that runs does not go on any more, and continues in its place. All
/// threads and servers of this process have to be there already.
///
/// # Errors
/// If the daemon that runs goes on. This process has to end.
pub(super) fn complete(
    heritage: Heritage,
    control: &mut Control,
    hooks: &mut hooks::Running,
) -> Result<Completed> {
    let Heritage { mut taken, network, mode, enrolled, began } = heritage;
    let routing = network.is_some().then(|| PreparedRouting::new(mode)).transpose()?;
    let before = enrolled.as_ref().map(|of| read_again(of, control)).transpose()?;
    let changes = enrolled.as_ref().map(|of| taken.state.changes(of)).unwrap_or_default();
    taken.done()?;
    control.begin();
    let silence = Duration::from_nanos(srd_net::clock::now().since(began).as_nanos());
    let has_to_stop = taken.end();
    hooks.begin();
    if let (Some(mut network), Some(routing)) = (network, routing) {
        if let Err(error) = network.begin() {
            tracing::error!("routes are as before for now: {error:#}");
        }
        control.keep_routes(routing.begin(network));
    }
    let both = enrolled.as_ref().zip(before);
    let newer = both.and_then(|(of, before)| follow_again(of, &before, control));
    tracing::info!(
        "took over from another process; no packet moved for {} ms",
        silence.as_millis()
    );
    if !changes.is_empty() {
        tracing::info!("settings of [enrol] taken over: {}", changes.join(", "));
    }
    Ok(Completed { silence, has_to_stop, newer })
}

/// Applies the present configuration of a host that has enrolled, and returns the enrolment that it
/// contains. An error leaves the daemon that runs as it is.
fn read_again(of: &Config, control: &mut Control) -> Result<Enrolment> {
    let before = enrolment(of)?;
    let fresh = of.load_again()?;
    if enrolment(of)? != before {
        anyhow::bail!("the controller changes the peers of this host at the moment: try again");
    }
    if fresh.interface.protection != of.interface.protection {
        anyhow::bail!("the key of this host changes at the moment: try again");
    }
    control.refresh(&fresh)?;
    Ok(before)
}

/// Uses the peers of the controller that the daemon before has stored until its end. Returns the
/// enrolment with these peers; `None` after an error, because the controller sends the peers again.
fn follow_again(of: &Config, before: &Enrolment, control: &mut Control) -> Option<Enrolment> {
    let followed = enrolment(of).and_then(|newer| {
        control.follow(&before.peers, &newer.peers)?;
        Ok(newer)
    });
    followed
        .inspect_err(|error| {
            tracing::error!("peers of the controller are as before for now: {error:#}");
        })
        .ok()
}

/// Returns the enrolment of a host in its state directory.
fn enrolment(of: &Config) -> Result<Enrolment> {
    let read = of.enrol.as_ref().map(|enrol| enrol.directory.enrolment()).transpose();
    read.map_err(anyhow::Error::msg)?.flatten().context("this host has not enrolled")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Instant;

    use super::super::crew::{Crew, End};
    use super::super::orders::{Batch, Order};
    use super::super::tests::{IS_GONE, net, outer, worker};
    use super::super::waker::Waker;
    use super::super::worker::hosts::NoHosts;
    use crate::plane::oneshot;

    /// Starts a worker that takes over, whose interface ends it at the first read, and ends it.
    /// Returns why it has ended. `begins`: whether it may move packets before.
    fn ended(begins: bool) -> Option<End> {
        let waker = Waker::default();
        let (mut worker, ends, guest, _) = worker(0, net().node(outer(1, 0), 8), &waker, NoHosts);
        guest.does.store(IS_GONE, Ordering::Relaxed);
        worker.take_over();
        let orders = ends.orders.clone();
        let mut crew = Crew::default();
        crew.start(worker, ends, waker).unwrap();
        // The peers do not make it begin.
        let (done, answer) = oneshot();
        assert!(orders.send(Order::Apply(Batch { changes: Vec::new(), done })));
        answer.recv().unwrap();
        if begins {
            crew.begin();
            let start = Instant::now();
            while !crew.has_ended() {
                assert!(start.elapsed().as_secs() < 60, "it does not begin");
                std::thread::yield_now();
            }
        } else {
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        crew.end()
    }

    /// Both processes of a hand-over read from the same queues, if the daemon that runs went on.
    #[test]
    fn regression_a_worker_that_takes_over_reads_nothing_before_the_decision() {
        assert!(ended(false).is_none());
        assert!(matches!(ended(true), Some(End::Failed(_))));
    }
}
