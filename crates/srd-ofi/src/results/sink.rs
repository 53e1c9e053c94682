//! The sink of an endpoint's completions: its queues and counters.
//!
//! A queue accepts completions also beyond its size, so a full queue delays neither the other queue
//! nor the counters. The Messaging Layer counts the excess towards its limit of operations that
//! have ended. So no completion is lost, and an application that does not read its queue gets
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

/// Largest number of completions beyond the size of a queue: more than the Messaging Layer leaves
/// in progress. The plain verbs limit only the operations of the application, so that with them
/// further completions wait in the layer.
const EXCESS_MAX: usize = 1 << 19;

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
    /// Number of completions beyond the sizes of the queues, when it was last counted.
    pub excess: usize,
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

    /// Returns the queues of the endpoint, each once.
    fn queues(&self) -> impl Iterator<Item = &Arc<CompletionQueue>> {
        let Bindings { transmit, receive, .. } = &self.bindings;
        let is_other = |queue: &&Arc<CompletionQueue>| {
            transmit.as_ref().is_none_or(|transmit| !Arc::ptr_eq(transmit, queue))
        };
        transmit.iter().chain(receive.iter().filter(is_other))
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
    ///
    /// `None` if the loss of the sockets has ended the operation.
    fn entry(&mut self, done: &OperationCompletion) -> Option<Entry> {
        if done.context == 0 {
            return Some(Entry::default());
        }
        let entry = self.ledger.find(done.context)?;
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
            Some(Entry { context, buffer, flags, sort, copy: None })
        } else {
            self.ledger.close(done.context)
        }
    }
}

impl Sink for EndpointSink {
    type Layer = dyn Layer;

    fn has_room(&mut self) -> bool {
        self.excess() < EXCESS_MAX
    }

    fn excess(&mut self) -> usize {
        if self.excess > 0 {
            // The application may have read its queues.
            self.excess = self.queues().map(|queue| queue.queue().excess()).sum();
        }
        self.excess
    }

    fn done(&mut self, done: OperationCompletion, layer: &dyn Layer) {
        let (kind, mut flags) = flags_of(&done);
        let Some(entry) = self.entry(&done) else { return };
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
        let excess = queue.queue().push_over(Completion {
            context: entry.context,
            flags: flags | entry.flags,
            length: usize::try_from(done.length).unwrap_or(usize::MAX),
            buffer: entry.buffer.wrapping_add(offset),
            data: done.data.unwrap_or(0),
            tag: done.tag,
            source: source.unwrap_or(FI_ADDR_NOTAVAIL),
            failure,
        });
        self.excess = self.excess.max(excess);
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
            let _ = queue.queue().push_over(Completion {
                context: entry.context,
                failure: Some(Box::new(failure)),
                ..Completion::default()
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use srd_efa::rdm::{Config, Rdm};

    use super::*;
    use crate::objects::domain::{Kind as SlotKind, Slot, tests::domain};
    use crate::results::completion::Format;
    use crate::results::queue::WaitMode;

    /// Returns a sink whose halves share a queue for two completions, and the queue.
    fn sink() -> (EndpointSink, Arc<CompletionQueue>) {
        let slot = Slot::take(&domain(), SlotKind::CompletionQueue).unwrap();
        let queue = CompletionQueue::new(slot, 2, Format::Tagged, WaitMode::None).unwrap();
        let queue = Arc::new(queue);
        let mut sink = EndpointSink::default();
        sink.bindings.transmit = Some(Arc::clone(&queue));
        sink.bindings.receive = Some(Arc::clone(&queue));
        (sink, queue)
    }

    fn layer() -> Rdm {
        let (config, now) = (srd_proto::Config::sockets(), srd_proto::Instant::ZERO);
        let mut endpoint =
            srd_proto::Endpoint::new(config, srd_proto::Epoch(1), [1; 32], now).unwrap();
        let limits = Config { operations_max: 8, receives_max: 8, report_remote: true, seed: 1 };
        Rdm::new(limits, &mut endpoint, "127.0.0.1:9".parse().unwrap(), 5)
    }

    fn done(kind: Kind, context: u64) -> OperationCompletion {
        OperationCompletion {
            kind,
            outcome: Outcome::Ok,
            context,
            tagged: true,
            signaled: true,
            peer: None,
            length: 5,
            offset: 0,
            tag: 9,
            data: Some(1),
            released: false,
        }
    }

    #[test]
    fn completions_beyond_the_size_of_a_queue_have_a_limit() {
        let ((mut sink, queue), layer) = (sink(), layer());
        let mut count = 0;
        while sink.has_room() {
            sink.done(done(Kind::RemoteWrite, 0), &layer);
            count += 1;
        }
        assert_eq!(count, 2 + EXCESS_MAX);
        assert_eq!(sink.excess(), EXCESS_MAX, "a queue of both halves counts once");
        queue.queue().with(std::collections::VecDeque::clear);
        assert_eq!((sink.has_room(), sink.excess()), (true, 0));
    }

    #[test]
    fn regression_an_operation_that_the_loss_of_the_sockets_ended_is_not_reported_again() {
        let (mut sink, queue) = sink();
        let number = sink.ledger.open(Entry { context: 7, ..Entry::default() });
        sink.broken(&io::Error::other("a test"));
        sink.done(done(Kind::Send, number), &layer());
        let contexts = queue.queue().with(|all| all.iter().map(|c| c.context).collect::<Vec<_>>());
        assert_eq!(contexts, [7]);
    }
}
