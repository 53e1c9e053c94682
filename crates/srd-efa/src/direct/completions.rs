//! Completions of work requests, in the terms of the Messaging Layer.

use srd_proto::PeerId;

use crate::cq::{Completion, WcOpcode, WcStatus};
use crate::direct::state::{Direct, Service};
use crate::layer::completion::{Kind, OperationCompletion, Outcome};
use crate::layer::world::Peer;

impl Direct {
    /// Takes the oldest operation that has ended.
    pub fn poll(&mut self) -> Option<OperationCompletion> {
        loop {
            let completion = self.device.poll_cq(self.cq)?;
            if let Some(done) = self.done_of(&completion) {
                return Some(done);
            }
        }
    }

    fn done_of(&mut self, completion: &Completion) -> Option<OperationCompletion> {
        let data = completion.imm.map(u64::from);
        let done = OperationCompletion {
            kind: Kind::RemoteWrite,
            outcome: self.outcome_of(completion.status),
            context: 0,
            tagged: false,
            signaled: true,
            peer: completion.peer.and_then(|id| self.number_of(id)),
            length: completion.byte_len.into(),
            offset: 0,
            tag: 0,
            data,
            released: false,
        };
        if completion.opcode == WcOpcode::RecvRdmaWithImm {
            return Some(done);
        }
        let request = self.take_request(completion.wr_id)?;
        let received = request.kind == Kind::Receive;
        let (kind, context) = (request.kind, request.context);
        let failed = done.outcome != Outcome::Ok;
        Some(OperationCompletion {
            kind,
            context,
            signaled: request.signaled || failed,
            peer: request.peer.or(done.peer),
            length: if received { done.length } else { request.length },
            ..done
        })
    }

    fn number_of(&self, id: PeerId) -> Option<Peer> {
        let peer = Peer(id.index());
        self.entry(peer).filter(|entry| entry.id == id).map(|_| peer)
    }

    /// Returns the outcome of an operation. With [`Service::Datagrams`], a datagram for which the
    /// peer has no receive is lost, and its sender is not informed.
    fn outcome_of(&self, status: WcStatus) -> Outcome {
        let lossy = self.config.service == Service::Datagrams;
        match status {
            WcStatus::Ok => Outcome::Ok,
            WcStatus::RemoteRnr | WcStatus::RemoteBadLength if lossy => Outcome::Ok,
            WcStatus::Flushed => Outcome::Removed,
            WcStatus::RemoteBadAddress => Outcome::BadKey,
            WcStatus::RemoteAbort => Outcome::Restarted,
            WcStatus::UnrespRemote => Outcome::Unresponsive,
            WcStatus::UnreachRemote => Outcome::Unreachable,
            WcStatus::LocalBadLength | WcStatus::RemoteBadLength => Outcome::TooLong,
            _ => Outcome::Protocol,
        }
    }
}
