//! Operations of ranks (send, receive, calculate): their starts, their ends, and the operations
//! that wait for them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::{World, agenda};
use crate::engine::event::Kind;
use crate::engine::node::Node;
use crate::workload::schedule::{Action, Lists, Schedule};

/// Value in [`Progress::open`] of an operation that has begun.
const BEGUN: u32 = u32::MAX;
/// Operation in [`Progress::flows`] of a flow that is not in the schedule.
const NONE: u32 = u32::MAX;

/// Progress of a schedule of operations.
pub struct Progress {
    schedule: Schedule,
    behind_end: Lists,
    behind_begin: Lists,
    // By operation: number of operations for which it still waits; `BEGUN` once it has begun.
    open: Vec<u32>,
    // By flow: the operation that sends it, the operation that receives it, and whether every byte
    // has arrived. Both operations are `NONE` if the flow is not in the schedule.
    flows: Vec<(u32, u32, bool)>,
    // The busy processors, by rank and processor number, each with the calculations that wait for
    // it.
    busy: BTreeMap<(u32, u32), VecDeque<u32>>,
    calculations: BinaryHeap<Reverse<(u64, u32)>>,
    left: usize,
    is_begun: bool,
    // By rank: time in picoseconds of the end of its last operation so far.
    done_ps: Vec<u64>,
    // Flows to be started now, and times in picoseconds for new entries of the agenda.
    to_start: VecDeque<u32>,
    to_wake: Vec<u64>,
}

impl Progress {
    pub(super) fn new(schedule: Schedule, flows: usize) -> Self {
        let count = schedule.operations.len();
        let mut open = vec![0_u32; count];
        for wait in schedule.after_end.iter().chain(&schedule.after_begin) {
            open[wait.later as usize] += 1;
        }
        let mut ends = vec![(NONE, NONE, false); flows];
        for (number, operation) in (0_u32..).zip(&schedule.operations) {
            match operation.what {
                Action::Send { flow } => ends[flow as usize].0 = number,
                Action::Receive { flow } => ends[flow as usize].1 = number,
                Action::Calculate { .. } => {}
            }
        }
        Self {
            behind_end: Lists::of(count, &schedule.after_end),
            behind_begin: Lists::of(count, &schedule.after_begin),
            open,
            flows: ends,
            busy: BTreeMap::new(),
            calculations: BinaryHeap::new(),
            left: count,
            is_begun: false,
            done_ps: vec![0; schedule.ranks as usize],
            to_start: VecDeque::new(),
            to_wake: Vec::new(),
            schedule,
        }
    }

    /// Returns the schedule of which this value records the progress.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Whether every operation is done.
    pub fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Returns the number of operations that are not done.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Returns, for each rank, the time in picoseconds at which its last operation so far ended; 0
    /// if no operation has ended.
    pub fn done_ps(&self) -> &[u64] {
        &self.done_ps
    }

    /// Begins all operations that do not wait for another operation.
    fn begin(&mut self, now_ps: u64) {
        let free = (0_u32..).zip(&self.open).filter(|(_, open)| **open == 0);
        let free: Vec<u32> = free.map(|(operation, _)| operation).collect();
        self.go_on(free, Vec::new(), now_ps);
    }

    /// Begins and ends the given operations, and all operations that can begin or end because of
    /// them.
    fn go_on(&mut self, begins: Vec<u32>, ends: Vec<u32>, now_ps: u64) {
        let (mut begins, mut ends) = (VecDeque::from(begins), VecDeque::from(ends));
        loop {
            let behind = if let Some(operation) = begins.pop_front() {
                self.begin_one(operation, now_ps, &mut ends);
                self.behind_begin.behind(operation)
            } else if let Some(operation) = ends.pop_front() {
                self.end_one(operation, now_ps);
                self.behind_end.behind(operation)
            } else {
                return;
            };
            for &later in behind {
                let open = &mut self.open[later as usize];
                *open -= 1;
                if *open == 0 {
                    begins.push_back(later);
                }
            }
        }
    }

    fn begin_one(&mut self, operation: u32, now_ps: u64, ends: &mut VecDeque<u32>) {
        self.open[operation as usize] = BEGUN;
        let one = self.schedule.operations[operation as usize];
        match one.what {
            Action::Send { flow } => self.to_start.push_back(flow),
            Action::Receive { flow } => {
                if self.flows[flow as usize].2 {
                    ends.push_back(operation);
                }
            }
            Action::Calculate { ps: 0, .. } => ends.push_back(operation),
            Action::Calculate { ps, cpu } => match self.busy.get_mut(&(one.rank, cpu)) {
                Some(waiting) => waiting.push_back(operation),
                None => {
                    self.busy.insert((one.rank, cpu), VecDeque::new());
                    self.calculate(operation, now_ps.saturating_add(ps));
                }
            },
        }
    }

    fn calculate(&mut self, operation: u32, until_ps: u64) {
        self.calculations.push(Reverse((until_ps, operation)));
        self.to_wake.push(until_ps);
    }

    fn end_one(&mut self, operation: u32, now_ps: u64) {
        let one = self.schedule.operations[operation as usize];
        self.left -= 1;
        let done = &mut self.done_ps[one.rank as usize];
        *done = now_ps.max(*done);
    }

    /// Ends the send operation of a flow, whose sender has got the last acknowledgement. A flow
    /// outside the schedule has no such operation.
    pub(super) fn sent(&mut self, flow: u32, now_ps: u64) {
        let send = self.flows[flow as usize].0;
        if send == NONE {
            return;
        }
        self.go_on(Vec::new(), vec![send], now_ps);
    }

    /// Records that every byte of a flow has arrived. Ends the receive operation if it has begun.
    pub(super) fn received(&mut self, flow: u32, now_ps: u64) {
        let (_, receive, is_there) = &mut self.flows[flow as usize];
        *is_there = true;
        let receive = *receive;
        if receive != NONE && self.open[receive as usize] == BEGUN {
            self.go_on(Vec::new(), vec![receive], now_ps);
        }
    }

    /// Ends the calculations that are due, and begins the next calculation on each of their
    /// processors.
    fn calculated(&mut self, now_ps: u64) {
        while let Some(&Reverse((at_ps, operation))) = self.calculations.peek() {
            if at_ps > now_ps {
                return;
            }
            self.calculations.pop();
            let one = self.schedule.operations[operation as usize];
            let Action::Calculate { cpu, .. } = one.what else { continue };
            let place = (one.rank, cpu);
            match self.busy.get_mut(&place).and_then(VecDeque::pop_front) {
                Some(next) => {
                    if let Action::Calculate { ps, .. } =
                        self.schedule.operations[next as usize].what
                    {
                        self.calculate(next, now_ps.saturating_add(ps));
                    }
                }
                None => {
                    self.busy.remove(&place);
                }
            }
            self.go_on(Vec::new(), vec![operation], now_ps);
        }
    }
}

impl<N: Node> World<N> {
    /// Schedules the start of the operations, if the workload has a schedule.
    pub(super) fn schedule_operations(&mut self) {
        if self.flows.progress().is_some() {
            self.schedule(0, Kind::Agenda, agenda::OPERATIONS);
        }
    }

    /// Begins the schedule at the first call; at later calls ends the calculations that are due.
    pub(super) fn act_on_operations(&mut self) {
        let now_ps = self.now_ps;
        if let Some(progress) = self.flows.progress_mut() {
            if !std::mem::replace(&mut progress.is_begun, true) {
                progress.begin(now_ps);
            }
            progress.calculated(now_ps);
        }
        self.follow_operations();
    }

    /// Starts the flows of send operations that have begun, and schedules the ends of calculations.
    pub(super) fn follow_operations(&mut self) {
        while let Some(progress) = self.flows.progress_mut() {
            if let Some(at_ps) = progress.to_wake.pop() {
                self.schedule(at_ps, Kind::Agenda, agenda::OPERATIONS);
            } else if let Some(flow) = progress.to_start.pop_front() {
                self.start_flow(flow);
            } else {
                return;
            }
        }
    }

    /// Returns the progress of the workload's schedule, if it has a schedule.
    pub fn progress(&self) -> Option<&Progress> {
        self.flows.progress()
    }
}
