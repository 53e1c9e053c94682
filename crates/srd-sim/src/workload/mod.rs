//! Workloads: flows, with the times or events at which they start.

pub mod chakra;
pub mod cm;
pub mod goal;
mod messages;
pub mod pattern;
pub mod schedule;
pub mod sizes;

use std::collections::BTreeSet;

use crate::engine::node::{ENDLESS, FlowId, FlowSpec, HostId};

/// Start of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// At this time, in picoseconds.
    At(u64),
    /// At the activation of a trigger.
    On(TriggerId),
    /// At the start of its send in the schedule.
    Scheduled,
}

/// An index into [`Workload::triggers`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct TriggerId(pub u32);

/// Effect of activations of a trigger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TriggerKind {
    /// The first activation starts every flow that waits on it.
    OneShot,
    /// Each activation starts the next flow that waits on it.
    MultiShot,
    /// The activation of this number starts every flow that waits on it.
    Barrier(u32),
}

/// A flow, with its start and its triggers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowPlan {
    /// The sender.
    pub src: HostId,
    /// The receiver.
    pub dst: HostId,
    /// Application bytes, or [`ENDLESS`].
    pub bytes: u64,
    /// Start of the flow.
    pub start: Start,
    /// Trigger that is activated when the sender has the last acknowledgement.
    pub sent_trigger: Option<TriggerId>,
    /// Trigger that is activated when the receiver has every byte.
    pub received_trigger: Option<TriggerId>,
    /// Number for users: the `id` of a connection-matrix file.
    pub label: u32,
}

impl FlowPlan {
    /// Creates a flow that starts at a time.
    pub fn at(start_ps: u64, src: u32, dst: u32, bytes: u64) -> Self {
        Self {
            src: HostId(src),
            dst: HostId(dst),
            bytes,
            start: Start::At(start_ps),
            sent_trigger: None,
            received_trigger: None,
            label: 0,
        }
    }

    /// Specification for the flow's sender.
    pub fn spec(&self, id: FlowId) -> FlowSpec {
        FlowSpec { id, src: self.src, dst: self.dst, bytes: self.bytes }
    }
}

/// Outer destination port of background load: the discard port.
pub const BACKGROUND_PORT: u16 = 9;

/// A single-path flow of fixed rate without acknowledgements: foreign load on the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackgroundPlan {
    /// The sender.
    pub src: HostId,
    /// The receiver.
    pub dst: HostId,
    /// Wire bits per second.
    pub rate_bps: u64,
    /// Wire bytes of each packet.
    pub packet_bytes: u16,
    /// Time when the flow begins.
    pub start_ps: u64,
    /// Time when the flow ends.
    pub stop_ps: u64,
    /// Outer source port, which selects the path.
    pub src_port: u16,
}

/// Flows, triggers and background load.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Workload {
    /// The flows; a flow's number is its index.
    pub flows: Vec<FlowPlan>,
    /// The triggers; a trigger's number is its index.
    pub triggers: Vec<TriggerKind>,
    /// Background load.
    pub background: Vec<BackgroundPlan>,
    /// The operations of ranks that start flows, if any.
    pub schedule: Option<schedule::Schedule>,
}

/// Reason for which a workload does not fit a network. The text contains a remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkloadError(pub String);

impl std::fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WorkloadError {}

impl Workload {
    /// Checks that every host and trigger exists, that no host sends to itself, and that every flow
    /// has bytes.
    ///
    /// # Errors
    /// Describes the first flow that is not valid.
    pub fn check(&self, hosts: u32) -> Result<(), WorkloadError> {
        let fail = |text: String| Err(WorkloadError(text));
        if self.flows.len() >= u32::MAX as usize {
            return fail("more than 2^32 flows".to_owned());
        }
        let known = |t: TriggerId| (t.0 as usize) < self.triggers.len();
        for (n, flow) in self.flows.iter().enumerate() {
            let (src, dst) = (flow.src.0, flow.dst.0);
            if src >= hosts || dst >= hosts {
                return fail(format!(
                    "flow {n} runs from host {src} to host {dst}, but the network has hosts 0 \
                     to {}",
                    hosts - 1
                ));
            }
            if src == dst {
                return fail(format!("flow {n} runs from host {src} to itself"));
            }
            if flow.bytes == 0 {
                return fail(format!("flow {n} has no bytes"));
            }
            let start = if let Start::On(t) = flow.start { Some(t) } else { None };
            let triggers = [start, flow.sent_trigger, flow.received_trigger];
            if !triggers.into_iter().flatten().all(known) {
                return fail(format!("flow {n} refers to a trigger that does not exist"));
            }
        }
        let is_scheduled = |flow: &FlowPlan| flow.start == Start::Scheduled;
        match &self.schedule {
            Some(schedule) => schedule.check(&self.flows)?,
            None if self.flows.iter().any(is_scheduled) => {
                return fail("a flow is started by a schedule, but there is none".to_owned());
            }
            None => {}
        }
        for (n, load) in self.background.iter().enumerate() {
            let (src, dst) = (load.src.0, load.dst.0);
            if src >= hosts || dst >= hosts || src == dst {
                return fail(format!("background flow {n} cannot run from {src} to {dst}"));
            }
            if load.rate_bps == 0 || load.packet_bytes == 0 {
                return fail(format!("background flow {n} needs a rate and a packet size"));
            }
        }
        Ok(())
    }

    /// Whether at least one flow never ends.
    pub fn is_endless(&self) -> bool {
        self.flows.iter().any(|f| f.bytes == ENDLESS)
    }
}

/// Peers of each host: the other ends of its flows.
pub fn peers(workload: &Workload, hosts: u32) -> Vec<Vec<HostId>> {
    let mut peers = vec![BTreeSet::new(); hosts as usize];
    for flow in &workload.flows {
        peers[flow.src.index()].insert(flow.dst);
        peers[flow.dst.index()].insert(flow.src);
    }
    peers.into_iter().map(|of_one| of_one.into_iter().collect()).collect()
}
