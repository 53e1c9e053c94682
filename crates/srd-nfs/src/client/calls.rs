//! The calls of one client that have no reply, and the connections they wait on.
//!
//! Only a table: no socket, no thread, no clock. Calls stay until their reply comes, so that those
//! of a connection that is lost can be sent again, in their order.
//!
//! Bounds: calls and their bytes by [`Limits`], callbacks by [`CALLBACKS_MAX`], connections by the
//! caller; a queue holds numbers of calls in the table. Replies to callbacks that wait to be sent
//! count as callbacks.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use crate::limits::{CALLBACKS_MAX, Limits};
use crate::record::Record;

/// A connection to the server, by the order in which they were made.
pub(super) type ConnectionId = u64;

struct Call {
    record: Arc<Record>,
    on: ConnectionId,
    was_sent: bool,
}

#[derive(Clone)]
enum Item {
    Call(u64),
    CallbackReply(Arc<Record>),
}

#[derive(Default)]
struct Connection {
    is_up: bool,
    queue: VecDeque<Item>,
    /// Calls without a reply, those in the queue included.
    unanswered: usize,
}

/// Result of accepting a record from the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taken {
    /// The record waits on this connection.
    On(ConnectionId),
    /// The record cannot be accepted until a reply comes.
    Full,
    /// A repetition of a call that waits already, and will be answered.
    Again,
    /// The record replies to an unknown callback.
    Unknown,
}

/// Result of accepting a record from the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Received {
    /// The record is for the client.
    Forward,
    /// The record is dropped.
    Drop,
}

/// The table.
#[derive(Default)]
pub(super) struct Calls {
    limits: Limits,
    calls: BTreeMap<u64, Call>,
    /// Transaction numbers, chosen by the client: hashed under a secret.
    by_xid: HashMap<u32, u64>,
    next_call: u64,
    bytes: usize,
    connections: BTreeMap<ConnectionId, Connection>,
    next_connection: ConnectionId,
    /// The connection that had the last call.
    last: ConnectionId,
    callbacks: BTreeMap<u32, ConnectionId>,
    again: u64,
    /// The fewest calls without a reply since the last look.
    outstanding_min: usize,
    /// Bytes of calls and replies since the last look.
    moved_bytes: u64,
}

impl Calls {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// A connection more, which is not up yet.
    pub(super) fn add_connection(&mut self) -> ConnectionId {
        let id = self.next_connection;
        self.next_connection += 1;
        self.connections.insert(id, Connection::default());
        id
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Calls without a reply.
    pub(super) fn outstanding(&self) -> usize {
        self.calls.len()
    }

    /// Calls that were sent a second time.
    pub(super) fn again(&self) -> u64 {
        self.again
    }

    /// Takes a call, for the connection with the fewest.
    pub(super) fn call(&mut self, record: &Arc<Record>) -> Taken {
        if self.by_xid.contains_key(&record.xid()) {
            return Taken::Again;
        }
        let length = record.bytes().len();
        let is_full = self.calls.len() >= self.limits.outstanding_calls_max
            || self.bytes + length > self.limits.outstanding_bytes_max;
        // A single call always has a place, whatever the limit.
        if is_full && !self.calls.is_empty() {
            return Taken::Full;
        }
        let on = self.least_busy();
        let call = self.next_call;
        self.next_call += 1;
        self.bytes += length;
        self.by_xid.insert(record.xid(), call);
        self.calls.insert(call, Call { record: Arc::clone(record), on, was_sent: false });
        let connection = self.connections.get_mut(&on).expect("chosen from the table");
        connection.queue.push_back(Item::Call(call));
        connection.unanswered += 1;
        self.moved_bytes += length as u64;
        Taken::On(on)
    }

    /// The connection that has the fewest calls without a reply, of those that are up if any is;
    /// among equals the next in turn. A path that is slow, or that two connections share, so gets
    /// as many calls as it answers; in strict turns all would wait for it.
    fn least_busy(&mut self) -> ConnectionId {
        let after = self.connections.range(self.last + 1..);
        let around = after.chain(self.connections.range(..=self.last));
        let order = |(_, one): &(_, &Connection)| (!one.is_up, one.unanswered);
        let (id, _) = around.min_by_key(order).expect("a client has a connection");
        self.last = *id;
        *id
    }

    /// Takes the client's reply to a callback.
    pub(super) fn callback_reply(&mut self, record: &Arc<Record>) -> Taken {
        let Some(on) = self.callbacks.remove(&record.xid()) else { return Taken::Unknown };
        let Some(connection) = self.connections.get_mut(&on) else { return Taken::Unknown };
        connection.queue.push_back(Item::CallbackReply(Arc::clone(record)));
        Taken::On(on)
    }

    /// Takes the server's reply to a call.
    pub(super) fn reply(&mut self, record: &Record) -> Received {
        let Some(number) = self.by_xid.remove(&record.xid()) else { return Received::Drop };
        let call = self.calls.remove(&number).expect("both tables hold the same calls");
        self.bytes -= call.record.bytes().len();
        if let Some(connection) = self.connections.get_mut(&call.on) {
            connection.unanswered -= 1;
        }
        self.outstanding_min = self.outstanding_min.min(self.calls.len());
        self.moved_bytes += record.bytes().len() as u64;
        Received::Forward
    }

    /// Takes a call of the server, whose reply goes back the same way.
    pub(super) fn callback(&mut self, record: &Record, on: ConnectionId) -> Received {
        let queued = self.connections.values().flat_map(|connection| &connection.queue);
        let replies = queued.filter(|item| matches!(item, Item::CallbackReply(_))).count();
        let is_full = self.callbacks.len() + replies >= CALLBACKS_MAX;
        if is_full || self.callbacks.contains_key(&record.xid()) {
            return Received::Drop;
        }
        self.callbacks.insert(record.xid(), on);
        Received::Forward
    }

    /// The next record to send on a connection.
    pub(super) fn next(&mut self, on: ConnectionId) -> Option<Arc<Record>> {
        let queue = &mut self.connections.get_mut(&on)?.queue;
        loop {
            match queue.pop_front()? {
                Item::CallbackReply(record) => return Some(record),
                Item::Call(number) => {
                    // Answered already: it had been sent before its connection was lost.
                    let Some(call) = self.calls.get_mut(&number) else { continue };
                    self.again += u64::from(call.was_sent);
                    call.was_sent = true;
                    return Some(Arc::clone(&call.record));
                }
            }
        }
    }

    /// A connection is up: its calls are sent, those that were sent before once more.
    pub(super) fn up(&mut self, id: ConnectionId) {
        let mine = self.calls.iter().filter(|(_, call)| call.on == id);
        let queue = mine.map(|(number, _)| Item::Call(*number)).collect();
        let connection = self.connections.get_mut(&id).expect("it is in the table until removed");
        connection.queue = queue;
        connection.is_up = true;
    }

    /// A connection is lost. If another is up, that one gets the calls and this one is gone, for
    /// which its number is returned. Otherwise this one keeps them, to be made again.
    pub(super) fn down(&mut self, id: ConnectionId) -> Option<ConnectionId> {
        self.callbacks.retain(|_, on| *on != id);
        self.connections.get_mut(&id)?.is_up = false;
        let (&heir, _) = self.connections.iter().find(|(_, connection)| connection.is_up)?;
        self.connections.remove(&id);
        let mut items = Vec::new();
        for (number, call) in self.calls.iter_mut().filter(|(_, call)| call.on == id) {
            call.on = heir;
            items.push(Item::Call(*number));
        }
        let connection = self.connections.get_mut(&heir).expect("found above");
        connection.unanswered += items.len();
        connection.queue.extend(items);
        Some(heir)
    }

    /// Whether all connections are up, and there were at least `calls_min` calls without a reply
    /// for each of them all the time since the last look, and `bytes_min` moved for each: then one
    /// more may help. Begins to look anew.
    pub(super) fn is_busy(&mut self, calls_min: usize, bytes_min: u64) -> bool {
        let count = self.connections.len();
        let is_busy = self.connections.values().all(|connection| connection.is_up)
            && self.outstanding_min >= calls_min * count
            && self.moved_bytes >= bytes_min * count as u64;
        (self.outstanding_min, self.moved_bytes) = (self.calls.len(), 0);
        is_busy
    }
}
