//! State of an endpoint under its host's lock, and the sink of its completions.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use srd_efa::layer::{Kind, OperationCompletion, Outcome as Ended, Peer};
use srd_efa::rdm::Rdm;
use srd_host::Sink;
use srd_net::Notice;

use crate::flow::{Flow, Link, Purpose};
use crate::wire::Control;
use crate::{Fault, log};

/// Connections of a listener that were not accepted yet.
#[derive(Debug, Default)]
pub struct Backlog(pub VecDeque<(Arc<Flow>, Peer)>);

/// Status that threads read without the host's lock.
#[derive(Debug, Default)]
pub struct PortStatus {
    /// Whether control messages have to be processed.
    pub control: AtomicBool,
    /// Whether the endpoint has lost its sockets or was abandoned.
    pub over: AtomicBool,
    /// Number of receives that are posted for connections.
    pub receives: AtomicUsize,
}

/// State of the connections of one endpoint. Bounds: received control messages by their receives
/// ([`crate::port::CONTROL_RECEIVES`]); queued answers by [`crate::control::OUTGOING_MAX`]; flows
/// and listeners by [`crate::table::OBJECTS_MAX`] and the backlog of each listener; and other
/// control messages by one request, one probe and one CLOSED for each object.
#[derive(Debug)]
pub struct PortSink {
    /// Flows of the endpoint, by the number of the flow.
    pub flows: BTreeMap<u32, Arc<Flow>>,
    /// Listeners of the endpoint, by the number of the listener.
    pub listeners: BTreeMap<u32, Backlog>,
    /// Control messages that have arrived and were not processed yet.
    pub arrived: VecDeque<(Control, Peer)>,
    /// Control messages that wait for a free operation.
    pub outgoing: VecDeque<(Peer, Control, Purpose)>,
    /// Number of receives for control messages that have to be posted.
    pub vacant: usize,
    /// Number of the last flow or listener. No number is used twice.
    pub last_number: u32,
    /// Whether a peer has sent a message that no plugin sends. This is logged only once.
    pub nonsense: bool,
    /// Status that threads read without the host's lock.
    pub status: Arc<PortStatus>,
}

impl PortSink {
    /// Returns a sink without connections and listeners.
    #[must_use]
    pub fn new(status: Arc<PortStatus>, vacant: usize) -> Self {
        Self {
            flows: BTreeMap::new(),
            listeners: BTreeMap::new(),
            arrived: VecDeque::new(),
            outgoing: VecDeque::new(),
            vacant,
            last_number: 0,
            nonsense: false,
            status,
        }
    }

    /// Returns a new number for a flow or listener; `None` when all numbers were used.
    pub fn number(&mut self) -> Option<u32> {
        self.last_number = self.last_number.checked_add(1)?;
        Some(self.last_number)
    }

    /// Lets all connections of the endpoint fail.
    pub fn fail_all(&mut self, fault: &Fault) {
        self.status.over.store(true, Ordering::SeqCst);
        for flow in self.flows.values() {
            flow.set_link(Link::Failed(fault.clone()));
        }
    }

    /// Lets all connections with a peer fail after the first operation that shows that the peer's
    /// endpoint has ended. Otherwise operations of the other connections could fail much later and
    /// with another reason: a message to a removed peer waits as long as a message to a peer that
    /// never answered.
    fn fail_peer(&mut self, peer: Peer, fault: &Fault) {
        for flow in self.flows.values().filter(|flow| flow.remote() == peer) {
            flow.set_link(Link::Failed(fault.clone()));
        }
    }

    /// Processes the completion of a control message's send or receive.
    fn control(&mut self, done: &OperationCompletion) {
        if done.kind != Kind::Receive {
            return;
        }
        self.vacant += 1;
        self.status.control.store(true, Ordering::Release);
        let control = done.data.and_then(|data| Control::decode(done.tag, data));
        match (done.outcome, control, done.peer) {
            (Ended::Ok, Some(control), Some(peer)) => self.arrived.push_back((control, peer)),
            (Ended::Ok, ..) if !std::mem::replace(&mut self.nonsense, true) => {
                log::warn("a peer sent what no plugin of this release sends");
            }
            _ => {}
        }
    }
}

impl Sink for PortSink {
    type Layer = Rdm;

    fn has_room(&mut self) -> bool {
        true
    }

    fn done(&mut self, done: OperationCompletion, rdm: &Rdm) {
        let purpose = Purpose::of(done.context);
        if let (true, Some(peer)) = (is_gone(done.outcome), done.peer)
            && let Some(fault) = fault(&done, rdm)
        {
            self.fail_peer(peer, &fault);
        }
        let id = match purpose {
            Purpose::Port => return self.control(&done),
            Purpose::Discard => return,
            Purpose::Opening(id)
            | Purpose::Probe(id)
            | Purpose::Copied(id)
            | Purpose::Part { flow: id, .. } => id,
        };
        let Some(flow) = self.flows.get(&id) else { return };
        match (purpose, fault(&done, rdm)) {
            (Purpose::Part { slot, part, .. }, failure) => {
                if done.kind == Kind::Receive {
                    self.status.receives.fetch_sub(1, Ordering::Relaxed);
                }
                flow.ended(slot, part, failure.map_or(Ok(done.length), Err));
            }
            (Purpose::Copied(_), None) => {} // the request ended when the message was copied
            (_, None) => flow.on_probe_acked(),
            (_, Some(fault)) => flow.set_link(Link::Failed(fault)),
        }
    }

    fn notice(&mut self, notice: Notice) {
        log::info(&notice.to_string());
    }

    fn broken(&mut self, error: &io::Error) {
        self.fail_all(&Fault::system(format!("the endpoint's sockets were lost: {error}")));
    }
}

/// Whether an operation has failed because its peer has ended, and not for another reason.
fn is_gone(outcome: Ended) -> bool {
    matches!(outcome, Ended::Unreachable | Ended::Unresponsive | Ended::Restarted)
}

/// Returns the fault of an operation; `None` if the operation succeeded.
fn fault(done: &OperationCompletion, rdm: &Rdm) -> Option<Fault> {
    let place = done.peer.and_then(|peer| rdm.address_of(peer));
    let peer = place.map_or_else(|| "the peer".to_string(), |(at, _)| format!("the peer at {at}"));
    Some(Fault::remote(match done.outcome {
        Ended::Ok => return None,
        Ended::Cancelled => "the connection was closed with requests under way".to_string(),
        Ended::Truncated(over) => {
            let text = format!("{peer} sent {over} bytes more than the receive has room for");
            return Some(Fault::usage(text));
        }
        Ended::Unreachable => format!(
            "{peer} does not answer: look for a firewall, and whether both ends have the same key"
        ),
        Ended::Unresponsive => format!("{peer} has fallen silent"),
        Ended::Restarted => format!("{peer} is gone: another process has its address now"),
        Ended::Removed => format!("{peer} was removed with a transfer under way"),
        Ended::BadKey => format!("{peer} has no such memory, or gives no right to it"),
        Ended::Protocol => format!("{peer} answered a transfer with what makes no sense"),
        Ended::NoMessage | Ended::TooLong => format!("{peer} gave a transfer up"),
    }))
}
