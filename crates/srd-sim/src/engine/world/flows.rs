//! Flows of a world: their starts, deliveries and completions, and the triggers between them.

use super::schedule::Progress;
use super::{World, agenda};
use crate::engine::event::Kind;
use crate::engine::node::{ENDLESS, FlowId, Node};
use crate::workload::{FlowPlan, Start, TriggerId, TriggerKind, Workload};

/// State of a flow in a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowState {
    /// Hosts, bytes and start of the flow, as the workload defines them.
    pub plan: FlowPlan,
    /// Time of the flow's start in picoseconds; `None` if the flow has not started.
    pub started_ps: Option<u64>,
    /// Time in picoseconds at which the sender got the last acknowledgement; `None` before that.
    pub finished_ps: Option<u64>,
    /// Time in picoseconds at which the receiver got the last byte; `None` before that.
    pub received_ps: Option<u64>,
    /// Application bytes that reached the receiver. Bytes that are delivered twice count twice.
    pub delivered_bytes: u64,
    /// Number of pieces of the flow that the transport gave up.
    pub failed: u64,
    /// Number of pieces of the flow whose content differed from the sent bytes.
    pub damaged: u64,
}

/// All flows, and the triggers between them.
pub(super) struct Flows {
    states: Vec<FlowState>,
    // Flows that start at a fixed time, latest first, so that the next flow is at the end of the
    // list.
    starts: Vec<(u64, u32)>,
    triggers: Vec<Trigger>,
    unfinished: u32,
    endless: bool,
    progress: Option<Progress>,
}

struct Trigger {
    kind: TriggerKind,
    activations: u32,
    waiting: Vec<u32>,
    fired: usize,
}

impl Flows {
    pub(super) fn new(mut workload: Workload) -> Self {
        let flows = workload.flows.len();
        let progress = workload.schedule.take().map(|schedule| Progress::new(schedule, flows));
        let endless = workload.is_endless();
        let trigger =
            |&kind: &TriggerKind| Trigger { kind, activations: 0, waiting: Vec::new(), fired: 0 };
        let mut triggers: Vec<_> = workload.triggers.iter().map(trigger).collect();
        let mut starts = Vec::new();
        for (number, flow) in (0_u32..).zip(&workload.flows) {
            match flow.start {
                Start::At(at_ps) => starts.push((at_ps, number)),
                Start::On(id) => triggers[id.0 as usize].waiting.push(number),
                Start::Scheduled => {}
            }
        }
        starts.sort_unstable_by(|a, b| b.cmp(a));
        let state = |plan: FlowPlan| FlowState {
            plan,
            started_ps: None,
            finished_ps: None,
            received_ps: None,
            delivered_bytes: 0,
            failed: 0,
            damaged: 0,
        };
        let states: Vec<_> = workload.flows.into_iter().map(state).collect();
        let finite = states.iter().filter(|s| s.plan.bytes != ENDLESS).count();
        let unfinished = u32::try_from(finite).expect("checked with the workload");
        Self { states, starts, triggers, unfinished, endless, progress }
    }

    pub(super) fn states(&self) -> &[FlowState] {
        &self.states
    }

    /// Returns the progress of the workload's schedule of operations, if it has a schedule.
    pub(super) fn progress(&self) -> Option<&Progress> {
        self.progress.as_ref()
    }

    pub(super) fn progress_mut(&mut self) -> Option<&mut Progress> {
        self.progress.as_mut()
    }

    /// Whether every flow and every operation is done. Never true if there is an endless flow.
    #[inline]
    pub(super) fn all_done(&self) -> bool {
        self.unfinished == 0
            && !self.endless
            && self.progress.as_ref().is_none_or(Progress::is_done)
    }

    /// Activates a trigger and returns the flows that it starts.
    fn activate(&mut self, id: TriggerId) -> Vec<u32> {
        let trigger = &mut self.triggers[id.0 as usize];
        trigger.activations += 1;
        let fires = match trigger.kind {
            TriggerKind::OneShot => trigger.activations == 1,
            TriggerKind::Barrier(count) => trigger.activations == count,
            TriggerKind::MultiShot => {
                let next = trigger.waiting.get(trigger.fired).copied();
                trigger.fired += 1;
                return next.into_iter().collect();
            }
        };
        if fires { trigger.waiting.clone() } else { Vec::new() }
    }
}

impl<N: Node> World<N> {
    pub(super) fn schedule_starts(&mut self) {
        if let Some(&(at_ps, _)) = self.flows.starts.last() {
            self.schedule(at_ps, Kind::Agenda, agenda::STARTS);
        }
    }

    pub(super) fn start_due_flows(&mut self) {
        while let Some(&(at_ps, number)) = self.flows.starts.last() {
            if at_ps > self.now_ps {
                break;
            }
            self.flows.starts.pop();
            self.start_flow(number);
        }
        self.schedule_starts();
    }

    pub(super) fn start_flow(&mut self, number: u32) {
        let state = &mut self.flows.states[number as usize];
        state.started_ps = Some(self.now_ps);
        let spec = state.plan.spec(FlowId(number));
        let now = self.now();
        self.nodes[spec.src.index()].start_flow(now, &spec, &mut self.out);
        self.serve(spec.src.0);
    }

    #[cold]
    fn show_outcomes(&mut self) {
        let Some(observer) = &mut self.observer else { return };
        let now_ps = self.now_ps;
        self.out.delivered.iter().for_each(|piece| observer.delivered(now_ps, piece));
        self.out.failed.iter().for_each(|piece| observer.failed(now_ps, piece));
        self.out.completed.iter().for_each(|&flow| observer.completed(now_ps, flow));
    }

    /// Records the reports of a node, and starts the flows that these reports trigger.
    pub(super) fn take_outcomes(&mut self) {
        let now_ps = self.now_ps;
        if self.observer.is_some() {
            self.show_outcomes();
        }
        let mut triggered = Vec::new();
        for delivered in self.out.delivered.drain(..) {
            let state = &mut self.flows.states[delivered.flow.index()];
            state.delivered_bytes += u64::from(delivered.bytes);
            state.damaged += u64::from(!delivered.intact);
            if state.received_ps.is_none() && state.delivered_bytes >= state.plan.bytes {
                state.received_ps = Some(now_ps);
                triggered.extend(state.plan.received_trigger);
                if let Some(progress) = &mut self.flows.progress {
                    progress.received(delivered.flow.0, now_ps);
                }
            }
        }
        for failed in self.out.failed.drain(..) {
            self.flows.states[failed.flow.index()].failed += 1;
        }
        for flow in self.out.completed.drain(..) {
            let state = &mut self.flows.states[flow.index()];
            if state.finished_ps.is_none() && state.plan.bytes != ENDLESS {
                state.finished_ps = Some(now_ps);
                self.flows.unfinished -= 1;
                triggered.extend(state.plan.sent_trigger);
                if let Some(progress) = &mut self.flows.progress {
                    progress.sent(flow.0, now_ps);
                }
            }
        }
        for id in triggered {
            for number in self.flows.activate(id) {
                self.start_flow(number);
            }
        }
        self.follow_operations();
    }
}
