//! The unanswered calls of one client, and the connections on which they wait.
//!
//! The module is only a table, without sockets, threads or clock. A call stays until its reply
//! arrives. So the calls of a lost connection can be sent again in their order.
//!
//! Limits: [`Limits`] for calls and their bytes, [`CALLBACKS_MAX`] for callbacks; the caller limits
//! connections. Each connection has a queue of records to send. A queue contains a call only by its
//! number in the table, and a reply to a callback by reference. This reply counts as a callback
//! until it is sent.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use crate::limits::{CALLBACKS_MAX, Limits};
use crate::record::Record;

/// Number of a connection to the server, in the order of creation.
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
    /// Calls without a reply, including the calls in the queue.
    unanswered: usize,
}

/// Result of accepting a record from the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taken {
    /// The record waits on this connection.
    On(ConnectionId),
    /// The record cannot be accepted until a reply arrives.
    Full,
    /// The record repeats a call that already waits and will be answered.
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

/// The table of one client's unanswered calls.
#[derive(Default)]
pub(super) struct Calls {
    limits: Limits,
    calls: BTreeMap<u64, Call>,
    /// Number in the table for each transaction number. The client chooses transaction numbers, so
    /// they are hashed with a secret key.
    by_xid: HashMap<u32, u64>,
    next_call: u64,
    bytes: usize,
    connections: BTreeMap<ConnectionId, Connection>,
    next_connection: ConnectionId,
    /// The connection that got the last call.
    last: ConnectionId,
    callbacks: BTreeMap<u32, ConnectionId>,
    again: u64,
    /// Smallest number of unanswered calls since the last call of [`Calls::is_busy`].
    outstanding_min: usize,
    /// Bytes of calls and replies since the last call of [`Calls::is_busy`].
    moved_bytes: u64,
}

impl Calls {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Adds a connection, which is not up yet, and returns its number.
    pub(super) fn add_connection(&mut self) -> ConnectionId {
        let id = self.next_connection;
        self.next_connection += 1;
        self.connections.insert(id, Connection::default());
        id
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Returns the number of unanswered calls.
    pub(super) fn outstanding(&self) -> usize {
        self.calls.len()
    }

    /// Returns the number of calls that were sent again.
    pub(super) fn again(&self) -> u64 {
        self.again
    }

    /// Accepts a call and queues it on the connection with the fewest unanswered calls.
    pub(super) fn call(&mut self, record: &Arc<Record>) -> Taken {
        if self.by_xid.contains_key(&record.xid()) {
            return Taken::Again;
        }
        let length = record.bytes().len();
        let is_full = self.calls.len() >= self.limits.outstanding_calls_max
            || self.bytes + length > self.limits.outstanding_bytes_max;
        // A single call is always accepted, even if it exceeds the limit.
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

    /// Returns the connection with the fewest unanswered calls, and the next in turn among equals.
    /// If any connection is up, only connections that are up count. So a slow or shared path gets
    /// only as many calls as it can answer; with strict turns all calls would wait for the slow
    /// path.
    fn least_busy(&mut self) -> ConnectionId {
        let after = self.connections.range(self.last + 1..);
        let around = after.chain(self.connections.range(..=self.last));
        let order = |(_, one): &(_, &Connection)| (!one.is_up, one.unanswered);
        let (id, _) = around.min_by_key(order).expect("a client has a connection");
        self.last = *id;
        *id
    }

    /// Accepts the client's reply to a callback.
    pub(super) fn callback_reply(&mut self, record: &Arc<Record>) -> Taken {
        let Some(on) = self.callbacks.remove(&record.xid()) else { return Taken::Unknown };
        let Some(connection) = self.connections.get_mut(&on) else { return Taken::Unknown };
        connection.queue.push_back(Item::CallbackReply(Arc::clone(record)));
        Taken::On(on)
    }

    /// Accepts the server's reply to a call.
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

    /// Accepts a call of the server; its reply is sent on the same connection.
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

    /// Returns the next record to send on a connection.
    pub(super) fn next(&mut self, on: ConnectionId) -> Option<Arc<Record>> {
        let queue = &mut self.connections.get_mut(&on)?.queue;
        loop {
            match queue.pop_front()? {
                Item::CallbackReply(record) => return Some(record),
                Item::Call(number) => {
                    // A missing call is answered already: it was sent before its connection was
                    // lost.
                    let Some(call) = self.calls.get_mut(&number) else { continue };
                    self.again += u64::from(call.was_sent);
                    call.was_sent = true;
                    return Some(Arc::clone(&call.record));
                }
            }
        }
    }

    /// Marks a connection as up. Its calls become ready to be sent, including the calls that were
    /// sent before.
    pub(super) fn up(&mut self, id: ConnectionId) {
        let mine = self.calls.iter().filter(|(_, call)| call.on == id);
        let queue = mine.map(|(number, _)| Item::Call(*number)).collect();
        let connection = self.connections.get_mut(&id).expect("it is in the table until removed");
        connection.queue = queue;
        connection.is_up = true;
    }

    /// Marks a connection as lost. If another connection is up, that connection gets the calls, the
    /// lost connection is removed, and the number of the new owner is returned. Otherwise the lost
    /// connection keeps its calls until it is connected again.
    pub(super) fn down(&mut self, id: ConnectionId) -> Option<ConnectionId> {
        self.callbacks.retain(|_, on| *on != id);
        self.connections.get_mut(&id)?.is_up = false;
        let (&heir, _) = self.connections.iter().find(|(_, connection)| connection.is_up)?;
        self.replace(id, heir);
        Some(heir)
    }

    /// Removes a connection that will never be up. Its calls move to another connection, which may
    /// be down. The only connection stays.
    pub(super) fn remove(&mut self, id: ConnectionId) {
        let others = self.connections.iter().filter(|(other, _)| **other != id);
        if let Some((&heir, _)) = others.min_by_key(|(_, connection)| !connection.is_up) {
            self.replace(id, heir);
        }
    }

    /// Removes a connection, and moves its calls to `heir`.
    fn replace(&mut self, id: ConnectionId, heir: ConnectionId) {
        self.connections.remove(&id);
        let mut items = Vec::new();
        for (number, call) in self.calls.iter_mut().filter(|(_, call)| call.on == id) {
            call.on = heir;
            items.push(Item::Call(*number));
        }
        let connection = self.connections.get_mut(&heir).expect("the caller found it");
        connection.unanswered += items.len();
        connection.queue.extend(items);
    }

    /// Whether one more connection may help. This is the case if all connections are up and, on
    /// average over the connections, each had at least `calls_min` unanswered calls at every moment
    /// since the last call of this function, and moved at least `bytes_min` bytes in this time.
    /// Starts a new period of observation.
    pub(super) fn is_busy(&mut self, calls_min: usize, bytes_min: u64) -> bool {
        let count = self.connections.len();
        let is_busy = self.connections.values().all(|connection| connection.is_up)
            && self.outstanding_min >= calls_min * count
            && self.moved_bytes >= bytes_min * count as u64;
        (self.outstanding_min, self.moved_bytes) = (self.calls.len(), 0);
        is_busy
    }
}
