//! Messages between ranks: a send and the receive that takes it become one flow.
//!
//! A receive takes the first send from its rank with its tag that no earlier receive took. A
//! message of a rank to itself is a copy in memory: it needs no flow, and its receive may end once
//! its send has begun.

use std::collections::{HashMap, VecDeque};

use super::pattern::FLOWS_MAX;
use super::schedule::{Action, Operation, Schedule, Wait};
use super::{FlowPlan, Start, Workload};

/// Largest number of operations of a schedule, and of waits.
pub(super) const OPERATIONS_MAX: usize = 60_000_000;
/// Largest number of bytes of a message: a terabyte.
pub(super) const BYTES_MAX: u64 = 1 << 40;
/// Largest number of nanoseconds of a calculation: a day.
pub(super) const CALC_NS_MAX: u64 = 86_400_000_000_000;

/// One end of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// Operation of this end.
    pub(super) operation: u32,
    /// Bytes that are sent, or the size of the receive.
    pub(super) bytes: u64,
    /// Position in the file, for errors.
    pub(super) place: usize,
}

/// A sender, a receiver and a tag.
pub(super) type Channel = (u32, u32, u64);

/// Reason for which a message is not valid.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mismatch {
    /// The message does not fit into its receive.
    TooLarge {
        /// The send.
        send: End,
        /// The receive.
        receive: End,
    },
    /// There would be more than [`FLOWS_MAX`] flows.
    TooMany,
}

/// A send without a receive, or a receive without a send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alone {
    /// Position in the file.
    pub(super) place: usize,
    /// Sender, receiver and tag.
    pub(super) channel: Channel,
    /// Whether this is a send.
    pub(super) is_send: bool,
}

/// Bytes that the search for circles takes for each operation and each wait, with its own.
const OPERATION_BYTES: usize = size_of::<Operation>() + 32;
const WAIT_BYTES: usize = size_of::<Wait>() + 8;
/// Bytes of a channel with space for its first ends, and of an end in it.
const CHANNEL_BYTES: usize = 200;
const END_BYTES: usize = 2 * size_of::<End>();

/// Operations of ranks, and ends of messages that wait for their other end.
#[derive(Default)]
pub(super) struct Messages {
    pub(super) schedule: Schedule,
    hosts: Vec<u32>,
    flows: Vec<FlowPlan>,
    sends: HashMap<Channel, VecDeque<End>>,
    receives: HashMap<Channel, VecDeque<End>>,
    /// Bytes of the ends in `sends` and `receives`.
    ends_bytes: usize,
    /// Largest number of bytes of memory in total; if absent, the bounds of the parts are enough.
    memory_bytes_max: Option<usize>,
    /// Bytes that the reader holds in addition.
    pub(super) others_bytes: usize,
}

impl Messages {
    /// Creates a schedule for ranks on these hosts.
    pub(super) fn new(hosts: Vec<u32>) -> Self {
        let ranks = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
        Self { schedule: Schedule { ranks, ..Schedule::default() }, hosts, ..Self::default() }
    }

    /// Creates a schedule for ranks on these hosts that takes at most `memory_bytes_max`.
    pub(super) fn within(hosts: Vec<u32>, memory_bytes_max: usize) -> Self {
        Self { memory_bytes_max: Some(memory_bytes_max), ..Self::new(hosts) }
    }

    /// Whether the permitted memory is used up.
    pub(super) fn is_full(&self) -> bool {
        let Some(most) = self.memory_bytes_max else { return false };
        let Schedule { operations, after_end, after_begin, .. } = &self.schedule;
        let waits = after_end.capacity() + after_begin.capacity();
        let bytes = operations.capacity() * OPERATION_BYTES
            + waits * WAIT_BYTES
            + self.flows.capacity() * size_of::<FlowPlan>()
            + self.ends_bytes
            + self.others_bytes;
        bytes > most
    }

    /// Adds an operation; `None` if there are [`OPERATIONS_MAX`], or memory is used up.
    pub(super) fn operation(&mut self, rank: u32, what: Action) -> Option<u32> {
        let is_full = self.is_full();
        let operations = &mut self.schedule.operations;
        let number = u32::try_from(operations.len()).ok()?;
        if operations.len() >= OPERATIONS_MAX || is_full {
            return None;
        }
        operations.push(Operation { rank, what });
        Some(number)
    }

    /// Lets `later` begin once `earlier` is done. Returns false if there are [`OPERATIONS_MAX`]
    /// waits, or memory is used up.
    pub(super) fn wait(&mut self, later: u32, earlier: u32) -> bool {
        let waits = &mut self.schedule.after_end;
        waits.push(Wait { later, earlier });
        waits.len() <= OPERATIONS_MAX && !self.is_full()
    }

    /// Adds a flow from one rank to another, with its send and its receive; `None` if a bound is
    /// reached.
    pub(super) fn message(&mut self, from: u32, to: u32, bytes: u64) -> Option<(u32, u32)> {
        let flow = self.flow(from, to, bytes)?;
        let send = self.operation(from, Action::Send { flow })?;
        Some((send, self.operation(to, Action::Receive { flow })?))
    }

    fn flow(&mut self, from: u32, to: u32, bytes: u64) -> Option<u32> {
        let flow = u32::try_from(self.flows.len()).ok()?;
        if u64::from(flow) >= FLOWS_MAX {
            return None;
        }
        let host = |rank: u32| self.hosts[rank as usize];
        let mut plan = FlowPlan::at(0, host(from), host(to), bytes.max(1));
        plan.start = Start::Scheduled;
        self.flows.push(plan);
        Some(flow)
    }

    /// Finds the other end of a message, or stores this end.
    pub(super) fn pair(
        &mut self,
        is_send: bool,
        channel: Channel,
        end: End,
    ) -> Result<(), Mismatch> {
        let (own, others) = if is_send {
            (&mut self.sends, &mut self.receives)
        } else {
            (&mut self.receives, &mut self.sends)
        };
        let Some(other) = others.get_mut(&channel).and_then(VecDeque::pop_front) else {
            let ends = own.entry(channel).or_default();
            self.ends_bytes += END_BYTES + if ends.capacity() == 0 { CHANNEL_BYTES } else { 0 };
            ends.push_back(end);
            return Ok(());
        };
        let (send, receive) = if is_send { (end, other) } else { (other, end) };
        if send.bytes > receive.bytes {
            return Err(Mismatch::TooLarge { send, receive });
        }
        let (sender, receiver, _) = channel;
        if sender == receiver {
            let wait = Wait { later: receive.operation, earlier: send.operation };
            self.schedule.after_begin.push(wait);
            return Ok(());
        }
        let flow = self.flow(sender, receiver, send.bytes).ok_or(Mismatch::TooMany)?;
        let operations = &mut self.schedule.operations;
        operations[send.operation as usize].what = Action::Send { flow };
        operations[receive.operation as usize].what = Action::Receive { flow };
        Ok(())
    }

    /// Returns the workload, if every end of a message has its other end.
    pub(super) fn finish(self) -> Result<Workload, Alone> {
        for (ends, is_send) in [(&self.sends, true), (&self.receives, false)] {
            // The first of them in the file, in any order of the table.
            let left =
                ends.iter().filter_map(|(channel, ends)| Some((ends.front()?.place, *channel)));
            if let Some((place, channel)) = left.min() {
                return Err(Alone { place, channel, is_send });
            }
        }
        let (flows, schedule) = (self.flows, Some(self.schedule));
        Ok(Workload { flows, schedule, ..Workload::default() })
    }
}

/// Finds an operation that waits for itself through others, so that no run can end.
pub(super) fn circle(workload: &Workload) -> Option<u32> {
    workload.schedule.as_ref()?.least_ps(workload.flows.len(), &NoCost).err()
}

struct NoCost;

impl super::schedule::LeastCost for NoCost {
    fn flow_ps(&self, _: u32) -> (u64, u64) {
        (0, 0)
    }
}
