//! The sink of an endpoint's completions: its queues and counters.
//!
//! A full queue accepts no completion; while it is full, operations that end stay in the Messaging
//! Layer. So no completion is lost, and an application that does not read its queue gets
//! `-FI_EAGAIN` when it posts more operations.

use std::io;
use std::sync::Arc;

use srd_efa::layer::{Kind, Layer, OperationCompletion, Outcome, Peer};
use srd_host::Sink;
use srd_net::Notice;

use crate::abi::bits::{
    FI_ATOMIC, FI_MSG, FI_MULTI_RECV, FI_READ, FI_RECV, FI_REMOTE_CQ_DATA, FI_REMOTE_READ,
    FI_REMOTE_WRITE, FI_RMA, FI_SEND, FI_TAGGED, FI_WRITE,
};
use crate::abi::errno::FI_EIO;
use crate::abi::fid::FI_ADDR_NOTAVAIL;
use crate::core::{Level, log};
use crate::objects::vector::AddressVector;
use crate::requests::address::Address;
use crate::results::completion::{Completion, CompletionQueue, Failure};
use crate::results::counter::Counter;
use crate::results::ledger::{Entry, Ledger, OpKind};

/// Objects that an endpoint is bound to, and its open operations.
#[derive(Debug, Default)]
pub struct EndpointSink {
    /// Operations that have not ended.
    pub ledger: Ledger,
    /// Objects to which the endpoint is bound.
    pub bindings: Bindings,
    /// The layer's peers. The index is the number of the peer in the address vector.
    pub peers: Vec<Option<Peer>>,
    /// Numbers in the address vector of the peers to which this endpoint has sent. The index is the
    /// layer's number of the peer.
    pub numbers: Vec<u64>,
}

/// Objects that an endpoint is bound to.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    /// Address vector of the endpoint.
    pub vector: Option<Arc<AddressVector>>,
    /// Completion queue of transmit operations.
    pub transmit: Option<Arc<CompletionQueue>>,
    /// Completion queue of receive operations.
    pub receive: Option<Arc<CompletionQueue>>,
    /// Counters of the endpoint, each with the flags of the operations that it counts.
    pub counters: Vec<(Arc<Counter>, u64)>,
    /// Whether completions of receives contain the sender's number (`FI_SOURCE`).
    pub sources: bool,
}

/// Returns the flag by which counters select this kind of operation, and the flags of its
/// completion.
fn flags_of(done: &OperationCompletion) -> (u64, u64) {
    let message = if done.tagged { FI_TAGGED } else { FI_MSG };
    match done.kind {
        Kind::Send => (FI_SEND, FI_SEND | message),
        Kind::Receive => (FI_RECV, FI_RECV | message),
        Kind::Read => (FI_READ, FI_READ | FI_RMA),
        Kind::Write => (FI_WRITE, FI_WRITE | FI_RMA),
        Kind::Atomic => (FI_WRITE, FI_WRITE | FI_ATOMIC),
        Kind::FetchAtomic => (FI_READ, FI_READ | FI_ATOMIC),
        Kind::RemoteWrite => (FI_REMOTE_WRITE, FI_REMOTE_WRITE | FI_RMA),
        Kind::RemoteRead => (FI_REMOTE_READ, FI_REMOTE_READ | FI_RMA),
    }
}

impl EndpointSink {
    /// Returns the number of a peer in the address vector, if the vector contains the peer.
    fn number_of(&self, peer: Peer, layer: &dyn Layer) -> Option<u64> {
        let known = self.numbers.get(peer.0 as usize).copied();
        if let Some(number) = known.filter(|number| *number != FI_ADDR_NOTAVAIL) {
            return Some(number);
        }
        let (place, incarnation) = layer.address_of(peer)?;
        let address = Address { ip: place.ip(), port: place.port(), incarnation };
        self.bindings.vector.as_ref()?.number_of(address)
    }

    fn count(&self, kind: u64, failed: bool) {
        for (counter, kinds) in &self.bindings.counters {
            if kinds & kind != 0 {
                // The change fails only in a forked child, and no operation ends there.
                let _ = counter.change(|count| {
                    let number = if failed { &mut count.failed } else { &mut count.completed };
                    *number = number.wrapping_add(1);
                });
            }
        }
    }

    /// Whether a successful operation gets an entry in the queue.
    fn is_reported(&self, done: &OperationCompletion) -> bool {
        match done.kind {
            // Remote writes without immediate data are only counted: applications do not expect
            // them in a queue.
            Kind::RemoteWrite => done.data.is_some(),
            Kind::RemoteRead => false,
            _ => done.signaled,
        }
    }

    /// Returns the entry of an operation. The ledger removes the entry unless further completions
    /// of the operation follow.
    fn entry(&mut self, done: &OperationCompletion) -> Entry {
        let Some(entry) = self.ledger.find(done.context) else { return Entry::default() };
        let stays = match entry.sort {
            OpKind::ManyReceives => !done.released,
            OpKind::Claim if done.outcome == Outcome::Ok => {
                entry.sort = OpKind::Claimed;
                true
            }
            _ => false,
        };
        if stays {
            let Entry { context, buffer, flags, sort, .. } = *entry;
            Entry { context, buffer, flags, sort, copy: None }
        } else {
            self.ledger.close(done.context).unwrap_or_default()
        }
    }
}

impl Sink for EndpointSink {
    type Layer = dyn Layer;

    fn has_room(&mut self) -> bool {
        let Bindings { transmit, receive, .. } = &self.bindings;
        [transmit, receive].into_iter().flatten().all(|queue| queue.queue().has_room())
    }

    fn done(&mut self, done: OperationCompletion, layer: &dyn Layer) {
        let (kind, mut flags) = flags_of(&done);
        let entry = self.entry(&done);
        let failed = done.outcome != Outcome::Ok;
        self.count(kind, failed);
        if !failed && !self.is_reported(&done) {
            return;
        }
        let sent = kind & (FI_SEND | FI_READ | FI_WRITE) != 0;
        let queue = if sent { &self.bindings.transmit } else { &self.bindings.receive };
        let Some(queue) = queue.as_ref() else { return };
        if done.data.is_some() && !sent {
            flags |= FI_REMOTE_CQ_DATA;
        }
        if done.released {
            flags |= FI_MULTI_RECV;
        }
        let source = match done.peer {
            Some(peer) if self.bindings.sources && !sent => self.number_of(peer, layer),
            _ => None,
        };
        let peer = || {
            let (place, incarnation) = layer.address_of(done.peer?)?;
            Some(Address { ip: place.ip(), port: place.port(), incarnation }.to_string())
        };
        let failure =
            if failed { crate::results::failure::of(&done, peer()).map(Box::new) } else { None };
        let offset = usize::try_from(done.offset).unwrap_or(0);
        queue.queue().push_over(Completion {
            context: entry.context,
            flags: flags | entry.flags,
            length: usize::try_from(done.length).unwrap_or(usize::MAX),
            buffer: entry.buffer.wrapping_add(offset),
            data: done.data.unwrap_or(0),
            tag: done.tag,
            source: source.unwrap_or(FI_ADDR_NOTAVAIL),
            failure,
        });
    }

    fn notice(&mut self, notice: Notice) {
        log(Level::Warn, &notice.to_string());
    }

    fn broken(&mut self, error: &io::Error) {
        log(Level::Warn, &format!("the endpoint's sockets were lost: {error}"));
        for number in self.ledger.numbers(|entry| entry.sort != OpKind::Claimed) {
            let Some(entry) = self.ledger.close(number) else { continue };
            let receives =
                matches!(entry.sort, OpKind::Receive | OpKind::ManyReceives | OpKind::Claim);
            let queue = if receives { &self.bindings.receive } else { &self.bindings.transmit };
            let Some(queue) = queue else { continue };
            let failure = Failure {
                error: FI_EIO,
                provider_error: crate::results::failure::SOCKETS_LOST,
                overflow: 0,
                text: format!("the endpoint's sockets were lost: {error}"),
            };
            queue.queue().push_over(Completion {
                context: entry.context,
                failure: Some(Box::new(failure)),
                ..Completion::default()
            });
        }
    }
}
