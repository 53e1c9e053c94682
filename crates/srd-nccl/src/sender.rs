//! The sending end of a connection.

use std::sync::Arc;

use srd_efa::layer::{Iov, Message, Peer, Refused, Until};

use crate::flow::{End, Flow, Link, Purpose, Request, Sizes};
use crate::port::Port;
use crate::wire::{self, Control, Target};
use crate::{Fault, Outcome};

/// Longest message in bytes that is copied, so that its request ends immediately and not with an
/// acknowledgement. Together with [`crate::port::OPERATIONS_MAX`] it limits the memory of copies.
const COPIED_BYTES_MAX: u64 = 1024;

/// A sending end of a connection.
#[derive(Debug)]
pub struct Sender {
    port: Arc<Port>,
    flow: Arc<Flow>,
    peer: Peer,
    target: Target,
}

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub struct Send {
    /// Memory of the message's bytes.
    pub piece: Iov,
    /// NCCL's tag of the message.
    pub tag: i32,
}

impl Sender {
    /// Requests a connection to a listener.
    ///
    /// # Errors
    /// A [`Fault`], if the endpoint has ended, or cannot reach the listener's
    /// address.
    pub fn open(port: Arc<Port>, target: Target) -> Outcome<Self> {
        let own = port.target().address;
        let unreachable =
            || Fault::usage(format!("the endpoint at {own} cannot reach {}", target.address));
        if own.is_ipv4() != target.address.is_ipv4() {
            return Err(unreachable());
        }
        let opened: Outcome<_> = port.call(|submitter| {
            let added =
                submitter.rdm.add_peer(&mut submitter.world, target.address, target.incarnation);
            let peer = added.map_err(|_| unreachable())?;
            let number = submitter.sink.number();
            let number = number.ok_or_else(|| Fault::internal("all numbers were used"))?;
            let with = (peer, target.address);
            let flow = Flow::new(number, End::Sender, Link::Opening, with);
            let flow = Arc::new(flow);
            submitter.sink.flows.insert(number, Arc::clone(&flow));
            let control = Control::Connect { listener: target.listener, sender: number };
            submitter.send_control(peer, control, Purpose::Opening(number));
            Ok((flow, peer))
        })?;
        let (flow, peer) = opened?;
        Ok(Self { port, flow, peer, target })
    }

    /// Returns the listener for which the sender was opened.
    #[must_use]
    pub fn target(&self) -> Target {
        self.target
    }

    /// Whether the connection is open.
    ///
    /// # Errors
    /// A [`Fault`], if the connection has failed.
    pub fn is_open(&self) -> Outcome<bool> {
        if self.flow.link() == Link::Opening {
            self.port.drive();
            self.port.probe(&self.flow, self.peer);
        }
        match self.flow.link() {
            Link::Opening => Ok(false),
            Link::Failed(fault) => Err(fault),
            Link::Open(_) | Link::Closed => Ok(true),
        }
    }

    /// Sends a message; `None` if no request or operation is free now.
    ///
    /// # Errors
    /// A [`Fault`], if the connection is not open or has failed.
    ///
    /// # Safety
    /// Until the request has ended or the sender was closed, the message's bytes must be readable,
    /// and no thread writes them.
    #[allow(unsafe_code, reason = "NCCL vouches for its memory")]
    pub unsafe fn send(&self, send: &Send) -> Outcome<Option<Request>> {
        let receiver = match self.flow.link() {
            Link::Open(receiver) => receiver,
            Link::Failed(fault) => return Err(fault),
            Link::Opening | Link::Closed => {
                return Err(Fault::argument("isend on a connection that does not stand"));
            }
        };
        let Some(request) = self.flow.begin(1) else {
            // NCCL will repeat the call, so the endpoint makes progress now.
            self.port.drive();
            return Ok(None);
        };
        let whole = Message {
            to: self.peer,
            tag: Some(wire::tag(receiver, send.tag)),
            iov: &[send.piece],
            data: None,
            context: self.flow.part(request, 0).context(),
            until: Until::Transmitted,
            signaled: true,
        };
        let copied = Message {
            context: Purpose::Copied(self.flow.id()).context(),
            until: Until::Injected,
            signaled: false,
            ..whole
        };
        let small = send.piece.length <= COPIED_BYTES_MAX;
        let message = if small { copied } else { whole };
        // SAFETY: the caller fulfils the conditions of `# Safety`.
        let sent = unsafe {
            self.port.submit(|submitter| submitter.rdm.send(&mut submitter.world, message))
        };
        if small && sent == Ok(Ok(())) {
            self.flow.ended(request.slot, 0, Ok(send.piece.length));
        }
        let refused = match sent {
            Ok(Ok(())) => return Ok(Some(request)),
            Ok(Err(Refused::Again)) => None,
            Ok(Err(refused)) => Some(Fault::internal(format!("a message is refused: {refused}"))),
            Err(fault) => Some(fault),
        };
        self.flow.take_back(request);
        match refused {
            Some(fault) => Err(fault),
            None => {
                self.port.drive();
                Ok(None)
            }
        }
    }

    /// Takes the result of a request; `None` if the request is not complete.
    ///
    /// # Errors
    /// A [`Fault`], if the request has failed.
    pub fn test(&self, request: Request) -> Outcome<Option<Sizes>> {
        self.port.test(&self.flow, self.peer, request)
    }

    /// Closes the sender. After that no thread accesses its buffers.
    pub fn close(&self) {
        let _ = self.port.call(|submitter| submitter.close_end(&self.flow, self.peer));
        self.port.drain(&self.flow);
    }
}
