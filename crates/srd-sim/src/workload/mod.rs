//! Workloads: flows and background load, with the times or events at which they start.

pub mod chakra;
pub mod cm;
pub mod goal;
mod messages;
pub mod pattern;
pub mod schedule;
pub mod sizes;

use std::collections::BTreeSet;

use crate::engine::node::{ENDLESS, FlowId, FlowSpec, HostId};

/// Time or event at which a flow starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// The flow starts at this time, in picoseconds.
    At(u64),
    /// The flow starts when the trigger is activated.
    On(TriggerId),
    /// The flow starts when its send operation in the schedule begins.
    Scheduled,
}

/// An index into [`Workload::triggers`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct TriggerId(pub u32);

/// Effect of the activations of a trigger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TriggerKind {
    /// The first activation starts every flow that waits on it.
    OneShot,
    /// Each activation starts the next flow that waits on it.
    MultiShot,
    /// The activation with this number, counted from 1, starts every flow that waits on the
    /// trigger.
    Barrier(u32),
}

/// A flow, with its start and its triggers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowPlan {
    /// Host that sends the flow.
    pub src: HostId,
    /// Host that receives the flow.
    pub dst: HostId,
    /// Application bytes, or [`ENDLESS`].
    pub bytes: u64,
    /// Time or event at which the flow starts.
    pub start: Start,
    /// Trigger that is activated when the sender has the last acknowledgement; `None` for no
    /// trigger.
    pub sent_trigger: Option<TriggerId>,
    /// Trigger that is activated when the receiver has every byte; `None` for no trigger.
    pub received_trigger: Option<TriggerId>,
    /// Number of the flow for users: the `id` in a connection matrix; 0 if the flow has no such
    /// number.
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

    /// Returns the description of the flow for its sender.
    pub fn spec(&self, id: FlowId) -> FlowSpec {
        FlowSpec { id, src: self.src, dst: self.dst, bytes: self.bytes }
    }
}

/// Destination UDP port of background load: the discard port.
pub const BACKGROUND_PORT: u16 = 9;

/// Smallest packet of background load, in bytes on the wire: the smallest Ethernet frame.
pub const BACKGROUND_BYTES_MIN: u16 = 64;

/// Background load: a flow of fixed rate on a single path, without acknowledgements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackgroundPlan {
    /// Host that sends the load.
    pub src: HostId,
    /// Host that receives the load.
    pub dst: HostId,
    /// Rate on the wire, in bits per second.
    pub rate_bps: u64,
    /// Bytes of each packet on the wire; [`BACKGROUND_BYTES_MIN`] or more.
    pub packet_bytes: u16,
    /// Time at which the load begins, in picoseconds.
    pub start_ps: u64,
    /// Time at which the load ends, in picoseconds; `u64::MAX` if it does not end.
    pub stop_ps: u64,
    /// UDP source port, which selects the path.
    pub src_port: u16,
}

/// A workload: flows, triggers, background load and a schedule of operations.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Workload {
    /// The flows. The index of a flow is its number.
    pub flows: Vec<FlowPlan>,
    /// The triggers. The index of a trigger is its number.
    pub triggers: Vec<TriggerKind>,
    /// The flows of background load.
    pub background: Vec<BackgroundPlan>,
    /// The schedule: operations of ranks, which send flows of the workload, wait for the arrival of
    /// flows, or occupy a processor. `None` if there is no schedule.
    pub schedule: Option<schedule::Schedule>,
}

/// Reason why a workload does not fit a network. The text suggests a solution.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkloadError(pub String);

impl std::fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WorkloadError {}

impl Workload {
    /// Checks that every host and trigger exists, that no host sends to itself, that every flow has
    /// bytes, and that background load is in range.
    ///
    /// # Errors
    /// A description of the first flow that is not valid.
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
            if load.rate_bps == 0 || load.packet_bytes < BACKGROUND_BYTES_MIN {
                return fail(format!(
                    "background flow {n} needs a rate, and packets of {BACKGROUND_BYTES_MIN} bytes \
                     or more"
                ));
            }
            if load.stop_ps <= load.start_ps {
                return fail(format!("background flow {n} ends before it begins"));
            }
        }
        Ok(())
    }

    /// Whether at least one flow is endless.
    pub fn is_endless(&self) -> bool {
        self.flows.iter().any(|f| f.bytes == ENDLESS)
    }
}

/// Returns the peers of each host: the hosts to which it sends, or from which it receives.
pub fn peers(workload: &Workload, hosts: u32) -> Vec<Vec<HostId>> {
    let mut peers = vec![BTreeSet::new(); hosts as usize];
    for flow in &workload.flows {
        peers[flow.src.index()].insert(flow.dst);
        peers[flow.dst.index()].insert(flow.src);
    }
    peers.into_iter().map(|of_one| of_one.into_iter().collect()).collect()
}
