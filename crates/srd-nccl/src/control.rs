//! Control messages: they open and close connections.
//!
//! A connector sends CONNECT with the number of its end. The listener's endpoint creates the other
//! end and answers with that end's number, even before NCCL calls `accept`. Data that arrives
//! before `accept` is queued as unexpected messages. An end that is closed sends CLOSED. Messages
//! of one peer are delivered in order, so all data of a sender arrives before its CLOSED.

use std::sync::Arc;

use srd_efa::layer::{Message, Peek, Peer, Receive, Refused, Selector, Until};

use crate::Fault;
use crate::flow::{End, Flow, Link, Purpose};
use crate::port::Submitter;
use crate::wire::{self, Control};

/// Largest number of queued outgoing control messages. At this bound, no more messages of peers are
/// accepted. This limits the memory that a peer can occupy if it sends requests and accepts no
/// answers.
pub const OUTGOING_MAX: usize = 4096;
/// Largest number of connections of one listener that wait for `accept`. NCCL opens one.
pub const BACKLOG_MAX: usize = 128;
/// Number of messages that are discarded when an end is closed: the most that its sender can have
/// in progress.
const DISCARDS_MAX: u16 = End::Sender.requests_max();

impl Submitter<'_> {
    /// Processes the control messages that have arrived, and posts receives for more.
    pub fn control(&mut self) {
        self.send_waiting();
        while self.sink.outgoing.len() < OUTGOING_MAX
            && let Some((control, peer)) = self.sink.arrived.pop_front()
        {
            self.on(control, peer);
        }
        // A message that has arrived occupies the slot of its receive until it is processed.
        while self.sink.vacant > self.sink.arrived.len() && self.post_control().is_ok() {
            self.sink.vacant -= 1;
        }
        if self.sink.vacant > 0 || !self.sink.outgoing.is_empty() {
            self.sink.status.control.store(true, std::sync::atomic::Ordering::Release);
        }
    }

    /// Sends a control message, now or as soon as an operation is free.
    pub fn send_control(&mut self, peer: Peer, control: Control, purpose: Purpose) {
        self.sink.outgoing.push_back((peer, control, purpose));
        self.send_waiting();
        if !self.sink.outgoing.is_empty() {
            self.sink.status.control.store(true, std::sync::atomic::Ordering::Release);
        }
    }

    fn send_waiting(&mut self) {
        while let Some(&(to, control, purpose)) = self.sink.outgoing.front() {
            let (tag, data) = control.encode();
            let message = Message {
                to,
                tag: Some(tag),
                iov: &[],
                data: Some(data),
                context: purpose.context(),
                until: Until::Transmitted,
                signaled: true,
            };
            if self.rdm.send(&mut self.world, message) == Err(Refused::Again) {
                return;
            }
            self.sink.outgoing.pop_front();
        }
    }

    fn post_control(&mut self) -> Result<(), Refused> {
        let receive = Receive {
            tagged: true,
            want: Selector { tag: 0, ignore: u32::MAX.into(), source: None },
            iov: &[],
            context: Purpose::Port.context(),
            multi: None,
            signaled: true,
        };
        self.rdm.recv(&mut self.world, receive)
    }

    fn on(&mut self, control: Control, peer: Peer) {
        match control {
            Control::Connect { listener, sender } => self.on_connect(listener, sender, peer),
            Control::Accepted { sender, receiver } => {
                if let Some(flow) = self.opening(sender, peer) {
                    flow.set_link(Link::Open(receiver));
                } else {
                    // NCCL has closed this end before the answer arrived.
                    let closed = Control::Closed { to: receiver, from: sender };
                    self.send_control(peer, closed, Purpose::Port);
                }
            }
            Control::Refused { sender } => {
                if let Some(flow) = self.opening(sender, peer) {
                    let text = "the listener is closed, or too many connections wait for it";
                    flow.set_link(Link::Failed(Fault::remote(text)));
                }
            }
            Control::Closed { to, from } => self.on_closed(to, from, peer),
            Control::Probe => {}
        }
    }

    /// Returns the flow with this number, if it waits for an answer from this peer.
    fn opening(&self, number: u32, peer: Peer) -> Option<Arc<Flow>> {
        let flow = self.sink.flows.get(&number)?;
        let waits = flow.link() == Link::Opening && self.is_with(flow, peer);
        waits.then(|| Arc::clone(flow))
    }

    /// Whether the other end of a flow is at this peer. The check is necessary because any peer can
    /// guess flow numbers.
    fn is_with(&self, flow: &Flow, peer: Peer) -> bool {
        self.rdm.address_of(peer).is_some_and(|(address, _)| address == flow.peer())
    }

    fn on_connect(&mut self, listener: u32, sender: u32, peer: Peer) {
        let answer = match self.receiving_end(listener, sender, peer) {
            Some(receiver) => Control::Accepted { sender, receiver },
            None => Control::Refused { sender },
        };
        self.send_control(peer, answer, Purpose::Port);
    }

    /// Creates the receiving end of a connection. Returns `None` if the connection must be refused.
    fn receiving_end(&mut self, listener: u32, sender: u32, peer: Peer) -> Option<u32> {
        let backlog = self.sink.listeners.get(&listener)?;
        if backlog.0.len() >= BACKLOG_MAX {
            return None;
        }
        // A reference from our side, so that the peer keeps its number as long as the endpoint
        // exists.
        let (address, incarnation) = self.rdm.address_of(peer)?;
        let peer = self.rdm.add_peer(&mut self.world, address, incarnation).ok()?;
        let number = self.sink.number()?;
        let flow = Flow::new(number, End::Receiver, Link::Open(sender), (peer, address));
        let flow = Arc::new(flow);
        self.sink.flows.insert(number, Arc::clone(&flow));
        self.sink.listeners.get_mut(&listener)?.0.push_back((flow, peer));
        Some(number)
    }

    /// Processes CLOSED: the end `from` of the peer, which was connected to our end `to`, is
    /// closed.
    fn on_closed(&mut self, to: u32, from: u32, peer: Peer) {
        let Some(flow) = self.sink.flows.get(&to).map(Arc::clone) else {
            // Our end was closed before: messages that have arrived for it since then are
            // discarded.
            self.discard(to, peer);
            return;
        };
        if flow.link() != Link::Open(from) || !self.is_with(&flow, peer) {
            return;
        }
        if flow.end() == End::Sender {
            let text = "the peer has closed the connection";
            flow.set_link(Link::Failed(Fault::remote(text)));
            return;
        }
        flow.set_link(Link::Closed);
        self.cancel(&flow);
    }

    /// Notifies the other end of a connection that this end is closed. A receiving end discards
    /// messages that still arrive.
    pub fn close_end(&mut self, flow: &Flow, peer: Peer) {
        if let Link::Open(to) = flow.link() {
            self.send_control(peer, Control::Closed { to, from: flow.id() }, Purpose::Port);
        }
        self.cancel(flow);
        if flow.end() == End::Receiver {
            self.discard(flow.id(), peer);
        }
    }

    /// Cancels the operations of a flow that have not ended: at a receiving end, the receives that
    /// have no message yet; at a sending end, the messages that the peer has not begun to read.
    pub fn cancel(&mut self, flow: &Flow) {
        for context in flow.unfinished_parts() {
            match flow.end() {
                End::Receiver => _ = self.rdm.cancel(context),
                End::Sender => self.rdm.cancel_send(context),
            }
        }
    }

    /// Discards the messages that have arrived for a closed receiving end.
    pub fn discard(&mut self, receiver: u32, peer: Peer) {
        let tag = wire::tag(receiver, 0);
        let want = Selector { tag, ignore: u32::MAX.into(), source: Some(peer.0) };
        for _ in 0..DISCARDS_MAX {
            if self.rdm.peek(true, want, Peek::Discard, Purpose::Discard.context()).is_err() {
                return;
            }
        }
    }
}
