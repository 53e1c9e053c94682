//! Operations of the ranks of a parallel program, with their dependencies.
//!
//! A send is done when its sender has the last acknowledgement. A receive is done when it has begun
//! and every byte has arrived. A calculation is done when its duration is over. The network does
//! not wait for receives: a message that arrives before its receive has begun is stored, as MPI
//! libraries store eager messages. Calculations on one processor are executed one after the other.

use std::collections::BTreeMap;

use super::{FlowPlan, Start, WorkloadError};

/// Action of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Sends a flow of the workload.
    Send {
        /// Number of the flow.
        flow: u32,
    },
    /// Waits for the arrival of a flow of the workload.
    Receive {
        /// Number of the flow.
        flow: u32,
    },
    /// Occupies a processor of the rank.
    Calculate {
        /// Duration of the work in picoseconds.
        ps: u64,
        /// Number of the processor within the rank.
        cpu: u32,
    },
}

/// An operation of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Rank that executes the operation.
    pub rank: u32,
    /// Action of the operation.
    pub what: Action,
}

/// A dependency: an operation that waits for another operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Wait {
    /// Index of the operation that waits.
    pub later: u32,
    /// Index of the operation for which `later` waits.
    pub earlier: u32,
}

/// The operations of all ranks, and their dependencies.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Schedule {
    /// Number of ranks.
    pub ranks: u32,
    /// Operations of all ranks.
    pub operations: Vec<Operation>,
    /// Dependencies in which an operation begins after another operation is done.
    pub after_end: Vec<Wait>,
    /// Dependencies in which an operation begins after another operation has begun.
    pub after_begin: Vec<Wait>,
}

/// Lower bounds of the time that messages take.
pub trait LeastCost {
    /// Returns two times in picoseconds since the beginning of a flow: the earliest at which every
    /// byte can have arrived, and the earliest at which its sender can have the last
    /// acknowledgement.
    fn flow_ps(&self, flow: u32) -> (u64, u64);
}

/// A list of operations for each operation. All lists share one allocation.
pub struct Lists {
    first: Vec<u32>,
    items: Vec<u32>,
}

impl Lists {
    /// Creates, for each operation, the list of operations that wait for it, in the order of
    /// `waits`.
    pub fn of(operations: usize, waits: &[Wait]) -> Self {
        let mut first = vec![0_u32; operations + 1];
        for wait in waits {
            first[wait.earlier as usize + 1] += 1;
        }
        for n in 0..operations {
            first[n + 1] += first[n];
        }
        let mut next = first.clone();
        let mut items = vec![0; waits.len()];
        for wait in waits {
            let place = &mut next[wait.earlier as usize];
            items[*place as usize] = wait.later;
            *place += 1;
        }
        Self { first, items }
    }

    /// Returns the operations that wait for an operation.
    pub fn behind(&self, operation: u32) -> &[u32] {
        let at = operation as usize;
        &self.items[self.first[at] as usize..self.first[at + 1] as usize]
    }
}

/// Returns the send operation and the receive operation of each flow.
fn ends(schedule: &Schedule, flows: usize) -> Vec<(Option<u32>, Option<u32>)> {
    let mut ends = vec![(None, None); flows];
    for (number, operation) in (0_u32..).zip(&schedule.operations) {
        match operation.what {
            Action::Send { flow } => ends[flow as usize].0 = Some(number),
            Action::Receive { flow } => ends[flow as usize].1 = Some(number),
            Action::Calculate { .. } => {}
        }
    }
    ends
}

impl Schedule {
    /// Checks that operations, ranks and flows exist. Every flow with the start
    /// [`Start::Scheduled`] must have one send and one receive.
    ///
    /// # Errors
    /// A description of the first error.
    pub fn check(&self, flows: &[FlowPlan]) -> Result<(), WorkloadError> {
        let fail = |text: String| Err(WorkloadError(text));
        let mut seen = vec![(0_u8, 0_u8); flows.len()];
        for (n, operation) in self.operations.iter().enumerate() {
            if operation.rank >= self.ranks {
                return fail(format!("operation {n} is of rank {}", operation.rank));
            }
            let flow = match operation.what {
                Action::Send { flow } | Action::Receive { flow } => flow as usize,
                Action::Calculate { .. } => continue,
            };
            let Some(seen) = seen.get_mut(flow) else {
                return fail(format!("operation {n} is of flow {flow}, which is not there"));
            };
            let is_send = matches!(operation.what, Action::Send { .. });
            let count = if is_send { &mut seen.0 } else { &mut seen.1 };
            *count = count.saturating_add(1);
        }
        for (n, (flow, seen)) in flows.iter().zip(&seen).enumerate() {
            let wanted = if flow.start == Start::Scheduled { (1, 1) } else { (0, 0) };
            if *seen != wanted {
                return fail(format!("flow {n} needs one send and one receive, or none"));
            }
        }
        let last = self.operations.len();
        let known = |wait: &Wait| (wait.later as usize) < last && (wait.earlier as usize) < last;
        if !self.after_end.iter().chain(&self.after_begin).all(known) {
            return fail("an operation waits for one that is not there".to_owned());
        }
        Ok(())
    }

    /// Adds `first` to the numbers of all flows in the schedule.
    pub(super) fn shift_flows(&mut self, first: u32) {
        for operation in &mut self.operations {
            if let Action::Send { flow } | Action::Receive { flow } = &mut operation.what {
                *flow += first;
            }
        }
    }

    /// Returns the earliest time at which the last operation can be done, in picoseconds. It is the
    /// longest chain of waits, or the time of all calculations on the busiest processor, if that is
    /// longer. Messages do not share links in this computation.
    ///
    /// # Errors
    /// If operations wait for each other in a circle: one of them.
    pub fn least_ps(&self, flows: usize, cost: &impl LeastCost) -> Result<u64, u32> {
        let (ends, count) = (ends(self, flows), self.operations.len());
        let (by_end, by_begin) =
            (Lists::of(count, &self.after_end), Lists::of(count, &self.after_begin));
        // By operation: number of waits that are not over. A receive also waits for the arrival of
        // its flow, see `arrival_open`.
        let mut open = vec![0_u32; count];
        for wait in self.after_end.iter().chain(&self.after_begin) {
            open[wait.later as usize] += 1;
        }
        let mut arrival_open = vec![false; count];
        for (send, receive) in &ends {
            if let (Some(_), Some(receive)) = (send, receive) {
                arrival_open[*receive as usize] = true;
            }
        }
        let mut begin = vec![0_u64; count];
        let mut arrival = vec![0_u64; count];
        let mut work: Vec<(u32, Moment)> = Vec::new();
        let ready = (0..).zip(&open).filter(|(_, open)| **open == 0);
        work.extend(ready.map(|(operation, _)| (operation, Moment::Begins)));
        let (mut ended, mut last) = (0, 0);
        while let Some((operation, moment)) = work.pop() {
            let at = operation as usize;
            // The time is final, because the operation waits for no other operation.
            let begins = begin[at];
            let mut release = |behind: &[u32], ps: u64, work: &mut Vec<_>| {
                for &later in behind {
                    let place = later as usize;
                    begin[place] = begin[place].max(ps);
                    open[place] -= 1;
                    if open[place] == 0 {
                        work.push((later, Moment::Begins));
                    }
                }
            };
            match moment {
                Moment::Begins => {
                    release(by_begin.behind(operation), begins, &mut work);
                    if let Action::Send { flow } = self.operations[at].what
                        && let Some(receive) = ends[flow as usize].1
                    {
                        let place = receive as usize;
                        arrival[place] = begins.saturating_add(cost.flow_ps(flow).0);
                        arrival_open[place] = false;
                        if open[place] == 0 {
                            work.push((receive, Moment::Ends));
                        }
                    }
                    if !arrival_open[at] {
                        work.push((operation, Moment::Ends));
                    }
                }
                Moment::Ends => {
                    // A receive ends when it has begun and its flow has arrived. The second of
                    // these events finds it here; a further event is ignored.
                    if std::mem::replace(&mut arrival_open[at], true) {
                        continue;
                    }
                    let ends = match self.operations[at].what {
                        Action::Send { flow } => begins.saturating_add(cost.flow_ps(flow).1),
                        Action::Receive { .. } => begins.max(arrival[at]),
                        Action::Calculate { ps, .. } => begins.saturating_add(ps),
                    };
                    (ended, last) = (ended + 1, last.max(ends));
                    release(by_end.behind(operation), ends, &mut work);
                }
            }
        }
        if ended < count {
            let stuck = open.iter().position(|open| *open > 0).unwrap_or(0);
            return Err(u32::try_from(stuck).unwrap_or(u32::MAX));
        }
        Ok(last.max(self.busiest_ps()))
    }

    /// Returns the total time of the calculations on the busiest processor, in picoseconds.
    fn busiest_ps(&self) -> u64 {
        let mut busy: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for operation in &self.operations {
            if let Action::Calculate { ps, cpu } = operation.what {
                let sum = busy.entry((operation.rank, cpu)).or_default();
                *sum = sum.saturating_add(ps);
            }
        }
        busy.into_values().max().unwrap_or(0)
    }
}

#[derive(Clone, Copy)]
enum Moment {
    Begins,
    Ends,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cost of messages: a flow arrives after 10 ps, and its sender has the acknowledgement after
    /// 15 ps.
    struct Ten;

    impl LeastCost for Ten {
        fn flow_ps(&self, _: u32) -> (u64, u64) {
            (10, 15)
        }
    }

    fn flows(count: usize) -> Vec<FlowPlan> {
        let one = FlowPlan { start: Start::Scheduled, ..FlowPlan::at(0, 0, 1, 1) };
        vec![one; count]
    }

    fn calculate(rank: u32, ps: u64) -> Operation {
        Operation { rank, what: Action::Calculate { ps, cpu: 0 } }
    }

    /// Returns a schedule in which rank 0 calculates and then sends, and rank 1 receives and then
    /// calculates.
    fn one_message() -> Schedule {
        Schedule {
            ranks: 2,
            operations: vec![
                calculate(0, 5),
                Operation { rank: 0, what: Action::Send { flow: 0 } },
                Operation { rank: 1, what: Action::Receive { flow: 0 } },
                calculate(1, 7),
            ],
            after_end: vec![Wait { later: 1, earlier: 0 }, Wait { later: 3, earlier: 2 }],
            after_begin: Vec::new(),
        }
    }

    #[test]
    fn the_longest_chain_leads_through_messages() {
        let mut schedule = one_message();
        schedule.check(&flows(1)).unwrap();
        assert_eq!(schedule.least_ps(1, &Ten), Ok(22));
        // The receive begins late, so the message waits for it.
        schedule.operations.push(calculate(1, 30));
        schedule.after_end.push(Wait { later: 2, earlier: 4 });
        assert_eq!(schedule.least_ps(1, &Ten), Ok(37));
        // An operation that waits for a start does not wait for the end.
        schedule.operations.push(calculate(0, 50));
        schedule.after_begin.push(Wait { later: 5, earlier: 1 });
        assert_eq!(schedule.least_ps(1, &Ten), Ok(55));
    }

    #[test]
    fn a_processor_does_one_thing_at_a_time() {
        let operations = vec![calculate(0, 5), calculate(0, 6), calculate(1, 7)];
        let schedule = Schedule { ranks: 2, operations, ..Schedule::default() };
        assert_eq!(schedule.least_ps(0, &Ten), Ok(11));
    }

    #[test]
    fn circles_are_found_even_through_messages() {
        let mut schedule = one_message();
        schedule.operations[3] = Operation { rank: 1, what: Action::Send { flow: 1 } };
        schedule.operations.push(Operation { rank: 0, what: Action::Receive { flow: 1 } });
        assert_eq!(schedule.least_ps(2, &Ten), Ok(30));
        schedule.after_end.push(Wait { later: 0, earlier: 4 });
        assert!(schedule.least_ps(2, &Ten).is_err());
        let own = vec![Wait { later: 0, earlier: 0 }];
        let schedule = Schedule { after_begin: own, ..one_message() };
        assert_eq!(schedule.least_ps(1, &Ten), Err(0));
    }

    #[test]
    fn what_is_not_there_is_refused() {
        assert!(one_message().check(&flows(2)).unwrap_err().0.contains("flow 1 needs"));
        assert!(one_message().check(&flows(0)).unwrap_err().0.contains("not there"));
        let schedule = Schedule { ranks: 1, ..one_message() };
        assert!(schedule.check(&flows(1)).unwrap_err().0.contains("rank 1"));
        let after_end = vec![Wait { later: 0, earlier: 9 }];
        let schedule = Schedule { after_end, ..one_message() };
        assert!(schedule.check(&flows(1)).unwrap_err().0.contains("waits for one"));
    }
}
