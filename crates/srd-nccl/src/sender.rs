//! The sending end of a connection.

use std::sync::Arc;

use srd_efa::layer::{Iov, Message, Peer, Refused, Until};

use crate::flow::{End, Flow, Link, Purpose, Request, Sizes};
use crate::port::Port;
use crate::wire::{self, Control, Target};
use crate::{Fault, Outcome};

/// The longest message that is copied, so that its request ends at once instead of with an
/// acknowledgement. With [`crate::port::OPERATIONS_MAX`] the bound of all copies.
const COPIED_BYTES_MAX: u64 = 1024;

/// See the module.
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
    /// Location of its bytes.
    pub piece: Iov,
    /// NCCL's tag.
    pub tag: i32,
}

impl Sender {
    /// Requests a connection from a listener.
    ///
    /// # Errors
    /// The endpoint is over, or cannot reach such an address.
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

    /// The listener that it was opened for.
    #[must_use]
    pub fn target(&self) -> Target {
        self.target
    }

    /// Whether the connection stands.
    ///
    /// # Errors
    /// It never will.
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

    /// Sends a message; `None` if there is no room for it now.
    ///
    /// # Errors
    /// The connection is over.
    ///
    /// # Safety
    /// The message's bytes may be read, and no thread writes them, until the request has ended or
    /// the sender was closed.
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
            // NCCL tries again: let there be progress meanwhile.
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
        // SAFETY: as our caller promises.
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

    /// The result of a request; `None` if it is not complete.
    ///
    /// # Errors
    /// The request has failed.
    pub fn test(&self, request: Request) -> Outcome<Option<Sizes>> {
        self.port.test(&self.flow, self.peer, request)
    }

    /// Closes it; afterwards none of its buffers is touched.
    pub fn close(&self) {
        let _ = self.port.call(|submitter| submitter.close_end(&self.flow, self.peer));
        self.port.drain(&self.flow);
    }
}
