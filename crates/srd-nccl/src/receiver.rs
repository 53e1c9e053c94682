//! The receiving end of a connection.

use std::sync::Arc;

use srd_efa::layer::{Iov, Peer, Receive, Selector};

use crate::flow::{Flow, Link, PARTS_MAX, Request, Sizes};
use crate::port::{Port, Submitter};
use crate::{Fault, Outcome, wire};

/// A receiving end of a connection.
#[derive(Debug)]
pub struct Receiver {
    port: Arc<Port>,
    flow: Arc<Flow>,
    peer: Peer,
}

/// Buffer for a message.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// Memory for the bytes of the message.
    pub piece: Iov,
    /// NCCL's tag of the message.
    pub tag: i32,
}

impl Receiver {
    /// Returns the receiver for a flow that the endpoint has created.
    #[must_use]
    pub fn new(port: Arc<Port>, flow: Arc<Flow>, peer: Peer) -> Self {
        Self { port, flow, peer }
    }

    /// Posts receives for a group of messages; `None` if no request is free now.
    ///
    /// # Errors
    /// A [`Fault`], if the connection has failed, or the group is empty or too large.
    ///
    /// # Safety
    /// No thread accesses the buffers until the request has ended or the receiver was closed.
    #[allow(unsafe_code, reason = "NCCL vouches for its memory")]
    pub unsafe fn receive(&self, buffers: &[Buffer]) -> Outcome<Option<Request>> {
        if buffers.is_empty() || buffers.len() > PARTS_MAX {
            return Err(Fault::argument(format!("a group of {} receives", buffers.len())));
        }
        if let Link::Failed(fault) = self.flow.link() {
            return Err(fault);
        }
        if !self.port.reserve_receives(buffers.len()) {
            return Ok(None);
        }
        let Some(request) = self.flow.begin(buffers.len()) else {
            self.port.return_receives(buffers.len());
            return Ok(None);
        };
        // SAFETY: the caller fulfils the conditions of `# Safety`.
        let posted =
            unsafe { self.port.submit(|submitter| self.post(submitter, request, buffers)) };
        if posted.is_err() {
            self.flow.take_back(request);
            self.port.return_receives(buffers.len());
        }
        posted.map(|()| Some(request))
    }

    /// Posts the receives of a group. On a closed connection, each receive takes a message that has
    /// already arrived, or fails.
    fn post(&self, submitter: &mut Submitter<'_>, request: Request, buffers: &[Buffer]) {
        for (part, buffer) in buffers.iter().enumerate() {
            let context = self.flow.part(request, part).context();
            let tag = wire::tag(self.flow.id(), buffer.tag);
            let receive = Receive {
                tagged: true,
                want: Selector { tag, ignore: 0, source: Some(self.peer.0) },
                iov: &[buffer.piece],
                context,
                multi: None,
                signaled: true,
            };
            let part = u16::try_from(part).unwrap_or(u16::MAX);
            if let Err(refused) = submitter.rdm.recv(&mut submitter.world, receive) {
                // The receives were reserved, so the Messaging Layer does not refuse them for lack
                // of slots.
                self.port.return_receives(1);
                let fault = Fault::internal(format!("a receive is refused: {refused}"));
                self.flow.ended(request.slot, part, Err(fault));
            } else if self.flow.link() == Link::Closed {
                submitter.rdm.cancel(context);
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

    /// Closes the receiver. After that no thread accesses its buffers.
    pub fn close(&self) {
        let _ = self.port.call(|submitter| submitter.close_end(&self.flow, self.peer));
        self.port.drain(&self.flow);
    }
}
