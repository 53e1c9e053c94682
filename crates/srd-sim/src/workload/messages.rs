//! Messages between ranks: a send and the receive that matches it become one flow.
//!
//! A receive matches the first send that has its source rank and tag and that no earlier receive
//! matched. A message of a rank to itself is a copy in memory: it needs no flow, and its receive
//! may end when its send has begun.

use std::collections::{HashMap, VecDeque};

use super::pattern::FLOWS_MAX;
use super::schedule::{Action, Operation, Schedule, Wait};
use super::{FlowPlan, Start, Workload};

/// Largest number of operations in a schedule, and of waits between them.
pub(super) const OPERATIONS_MAX: usize = 60_000_000;
/// Largest number of bytes of a message: one tebibyte.
pub(super) const BYTES_MAX: u64 = 1 << 40;
/// Largest number of nanoseconds of a calculation: a day.
pub(super) const CALC_NS_MAX: u64 = 86_400_000_000_000;

/// One end of a message: a send or a receive.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// Index of the operation by which this end takes part in the message.
    pub(super) operation: u32,
    /// Number of bytes that are sent, or the size of the receive buffer.
    pub(super) bytes: u64,
    /// Position in the file, for error messages.
    pub(super) place: usize,
}

/// Channel by which ends of messages are matched: sender, receiver and tag.
pub(super) type Channel = (u32, u32, u64);

/// Reason why a message is not valid.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mismatch {
    /// The message does not fit into its receive.
    TooLarge {
        /// The send, which is too large.
        send: End,
        /// The receive, which is too small.
        receive: End,
    },
    /// There would be more than [`FLOWS_MAX`] flows.
    TooMany,
}

/// A send without a receive, or a receive without a send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alone {
    /// Position in the file, for error messages.
    pub(super) place: usize,
    /// Sender, receiver and tag of the message.
    pub(super) channel: Channel,
    /// Whether the end without a counterpart is a send.
    pub(super) is_send: bool,
}

/// Bytes of memory for each operation, including the memory of the search for circles.
const OPERATION_BYTES: usize = size_of::<Operation>() + 32;
const WAIT_BYTES: usize = size_of::<Wait>() + 8;
/// Bytes of memory for a channel, with space for its first ends.
const CHANNEL_BYTES: usize = 200;
const END_BYTES: usize = 2 * size_of::<End>();

/// Operations of ranks that are being read, and ends of messages whose other end has not been read.
#[derive(Default)]
pub(super) struct Messages {
    pub(super) schedule: Schedule,
    hosts: Vec<u32>,
    flows: Vec<FlowPlan>,
    sends: HashMap<Channel, VecDeque<End>>,
    receives: HashMap<Channel, VecDeque<End>>,
    /// Bytes of memory for the ends in `sends` and `receives`.
    ends_bytes: usize,
    /// Largest number of bytes of memory in total; `None` if the bounds of the single parts are
    /// enough.
    memory_bytes_max: Option<usize>,
    /// Bytes of memory that the reader of the trace file uses for its own tables. They count
    /// towards `memory_bytes_max`, in addition to the schedule, the flows and the ends.
    pub(super) others_bytes: usize,
}

impl Messages {
    /// Creates an empty schedule. Rank `n` is on host `hosts[n]`.
    pub(super) fn new(hosts: Vec<u32>) -> Self {
        let ranks = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
        Self { schedule: Schedule { ranks, ..Schedule::default() }, hosts, ..Self::default() }
    }

    /// Creates an empty schedule that may use at most `memory_bytes_max`. Rank `n` is on host
    /// `hosts[n]`.
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

    /// Adds an operation. Returns its number, or `None` if there are [`OPERATIONS_MAX`] operations,
    /// or if the memory is used up.
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

    /// Adds a wait: `later` begins after `earlier` is done. Returns false if there are more than
    /// [`OPERATIONS_MAX`] waits, or if the memory is used up.
    pub(super) fn wait(&mut self, later: u32, earlier: u32) -> bool {
        let waits = &mut self.schedule.after_end;
        waits.push(Wait { later, earlier });
        waits.len() <= OPERATIONS_MAX && !self.is_full()
    }

    /// Adds a flow from one rank to another. Returns its send operation and its receive operation,
    /// or `None` if a bound is reached.
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

    /// Matches one end of a message with the other end, or stores it until the other end is read.
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

    /// Returns the workload. If an end of a message has no other end, returns this end as the
    /// error.
    pub(super) fn finish(self) -> Result<Workload, Alone> {
        for (ends, is_send) in [(&self.sends, true), (&self.receives, false)] {
            // The end that comes first in the file is reported, whatever the order of the table.
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

/// Returns an operation that, through other operations, waits for itself, so that no run can end.
/// Returns `None` if there is no such operation.
pub(super) fn circle(workload: &Workload) -> Option<u32> {
    workload.schedule.as_ref()?.least_ps(workload.flows.len(), &NoCost).err()
}

struct NoCost;

impl super::schedule::LeastCost for NoCost {
    fn flow_ps(&self, _: u32) -> (u64, u64) {
        (0, 0)
    }
}
