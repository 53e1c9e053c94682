//! Converts the application's calls into work requests.

use alloc::collections::BTreeSet;

use bytes::BytesMut;

use crate::direct::state::{Direct, QKEY, Request, Service};
use crate::error::PostError;
use crate::layer::completion::Kind;
use crate::layer::request::{Iov, Message, Receive, Rma, Shared, Until};
use crate::layer::world::{Peer, Refused, World};
use crate::memory::Sge;
use crate::slots::Key;
use crate::wr::{RDMA_BYTES_MAX, SGES_MAX};
use crate::wr::{RecvWr, Remote, SendOp, SendWr, Source};

/// Upper byte of the number (`wr_id`) of a work request of this layer.
const TAG: u8 = 4;
/// Number of the work requests that are probes, which no request of the application has.
const PROBE: u64 = 0;

impl Direct {
    /// Sends a message. The operation completes when the message is in the receiver's memory, for
    /// every value of [`Until`].
    ///
    /// # Errors
    /// `TooLong` beyond [`Direct::message_bytes_max`]; `Again` if a table is full; `Invalid` if the
    /// message has a tag, more than two pieces, or data of more than 32 bits.
    pub fn send(&mut self, world: &mut World<'_>, message: Message<'_>) -> Result<(), Refused> {
        let Message { to, tag, iov, data, context, until, signaled } = message;
        let imm = immediate(data)?;
        if tag.is_some() || iov.len() > SGES_MAX {
            return Err(Refused::Invalid);
        }
        let length = length_of(iov)?;
        if length > self.message_bytes_max() {
            return Err(Refused::TooLong);
        }
        let request = Request { kind: Kind::Send, context, signaled, peer: Some(to), length };
        if until == Until::Injected {
            let mut copy = BytesMut::new();
            for piece in iov {
                let bytes = usize::try_from(piece.length).map_err(|_| Refused::TooLong)?;
                world.memory.append(0, piece.addr, bytes, &mut copy);
            }
            let source = Source::Inline(&copy);
            return self.post(world, request, SendOp::Send { source, imm });
        }
        let sges = self.sges(iov)?;
        let source = Source::Gather(&sges[..iov.len()]);
        self.post(world, request, SendOp::Send { source, imm })
    }

    /// Posts a receive for the next message.
    ///
    /// # Errors
    /// `Again` if a table is full; `Invalid` if the receive has a tag, a sender, more than two
    /// pieces, or a buffer for many messages.
    pub fn recv(&mut self, receive: &Receive<'_>) -> Result<(), Refused> {
        let Receive { tagged, want, iov, context, multi, signaled } = *receive;
        if tagged || want.source.is_some() || multi.is_some() || iov.len() > SGES_MAX {
            return Err(Refused::Invalid);
        }
        let sges = self.sges(iov)?;
        let length = length_of(iov)?;
        let request = Request { kind: Kind::Receive, context, signaled, peer: None, length };
        let key = self.open_request(request)?;
        let wr = RecvWr { wr_id: key.to_user(TAG), sges: &sges[..iov.len()] };
        let posted = self.device.post_recv(self.qpn(), &wr);
        self.unless_posted(key, posted)
    }

    /// Reads or writes a peer's memory: one local and one remote piece. A write completes when all
    /// of its bytes are in the peer's memory.
    ///
    /// # Errors
    /// `TooLong` beyond [`RDMA_BYTES_MAX`]; `Again` if a table is full; `Invalid` for several
    /// pieces, pieces of different lengths, data of more than 32 bits, data with a read,
    /// [`Until::Injected`], or a service without reads and writes.
    pub fn rma(&mut self, world: &mut World<'_>, rma: Rma<'_>) -> Result<(), Refused> {
        let Rma { to, read, local, remote, data, context, until, signaled } = rma;
        let imm = immediate(data)?;
        let &[remote] = remote else { return Err(Refused::Invalid) };
        let local = match *local {
            [] => Iov { addr: 0, length: 0 },
            [piece] => piece,
            _ => return Err(Refused::Invalid),
        };
        let fits = self.config.service == Service::Direct
            && local.length == remote.length
            && until != Until::Injected
            && !(read && imm.is_some());
        if !fits {
            return Err(Refused::Invalid);
        }
        let length = local.length;
        if length > u64::from(RDMA_BYTES_MAX) {
            return Err(Refused::TooLong);
        }
        let kind = if read { Kind::Read } else { Kind::Write };
        let request = Request { kind, context, signaled, peer: Some(to), length };
        let [local, _] = self.sges(&[local])?;
        let remote = Remote { addr: remote.addr, rkey: remote.rkey };
        let op = if read {
            SendOp::RdmaRead { local, remote }
        } else {
            SendOp::RdmaWrite { local, remote, imm }
        };
        self.post(world, request, op)
    }

    /// Whether reads wait for peers. Every other operation ends with the acknowledgement of its
    /// datagrams.
    pub fn awaits_peers(&self) -> bool {
        self.reads > 0
    }

    /// Probes each peer from which data has been read since the last call: the probe is a read of
    /// no bytes, whose request the peer's transport has to acknowledge. If the peer has ended, the
    /// transport notices, and all reads end.
    pub fn probe(&mut self, world: &mut World<'_>) {
        if self.reads == 0 {
            self.awaited.clear();
            return;
        }
        let reads = self.requests.iter().filter(|(_, request)| request.kind == Kind::Read);
        let now: BTreeSet<u32> = reads.filter_map(|(_, read)| Some(read.peer?.0)).collect();
        let before = core::mem::replace(&mut self.awaited, now.clone());
        for peer in now.intersection(&before) {
            let Some(ah) = self.entry(Peer(*peer)).map(|entry| entry.ah) else { continue };
            let local = Sge { addr: 0, length: 0, lkey: self.lkey };
            let wr = SendWr {
                wr_id: PROBE,
                ah,
                remote_qpn: self.qpn(),
                remote_qkey: QKEY,
                op: SendOp::RdmaRead { local, remote: Remote { addr: 0, rkey: 0 } },
                part: false,
            };
            let qpn = self.qpn();
            // If the send queue is full, datagrams in it wait for acknowledgements anyway.
            let _ = self.device.post_send(world.now, world.endpoint, world.memory, qpn, wr);
        }
    }

    /// Registers memory for peers.
    ///
    /// # Errors
    /// `Invalid` if the key is in use or the range exceeds the address space; `Again` if there are
    /// too many registrations.
    pub fn share(&mut self, shared: Shared) -> Result<(), Refused> {
        let mr = shared.register(&mut self.device, self.pd)?;
        self.shares.insert(shared.rkey, mr);
        Ok(())
    }

    /// Deregisters memory: transfers that use this memory fail.
    pub fn unshare(&mut self, rkey: u64) {
        if let Some(mr) = self.shares.remove(&rkey) {
            let _ = self.device.dereg_mr(mr);
        }
    }

    fn post(
        &mut self,
        world: &mut World<'_>,
        request: Request,
        op: SendOp<'_>,
    ) -> Result<(), Refused> {
        let peer = request.peer.and_then(|peer| self.entry(peer)).ok_or(Refused::NoSuchPeer)?;
        let (ah, qpn) = (peer.ah, self.qpn());
        let key = self.open_request(request)?;
        let wr = SendWr {
            wr_id: key.to_user(TAG),
            ah,
            remote_qpn: qpn,
            remote_qkey: QKEY,
            op,
            part: false,
        };
        let posted = self.device.post_send(world.now, world.endpoint, world.memory, qpn, wr);
        self.unless_posted(key, posted)
    }

    /// Stores a record of a request. Returns its key, which becomes a part of the work request's
    /// number.
    fn open_request(&mut self, request: Request) -> Result<Key, Refused> {
        let most = self.config.operations_max + self.config.receives_max;
        let most = most.saturating_sub(self.unread);
        let key = self.requests.insert(request, most).ok_or(Refused::Again)?;
        self.reads += u32::from(request.kind == Kind::Read);
        Ok(key)
    }

    fn unless_posted(&mut self, key: Key, posted: Result<(), PostError>) -> Result<(), Refused> {
        let Err(error) = posted else { return Ok(()) };
        self.close_request(key);
        Err(match error {
            PostError::QueueFull | PostError::CqFull => Refused::Again,
            _ => Refused::Invalid,
        })
    }

    /// Takes the record of a work request that has ended.
    pub(super) fn take_request(&mut self, wr_id: u64) -> Option<Request> {
        self.close_request(Key::of_user(wr_id, TAG)?)
    }

    fn close_request(&mut self, key: Key) -> Option<Request> {
        let request = self.requests.remove(key)?;
        self.reads -= u32::from(request.kind == Kind::Read);
        Some(request)
    }

    fn sges(&self, iov: &[Iov]) -> Result<[Sge; SGES_MAX], Refused> {
        let mut sges = [Sge { addr: 0, length: 0, lkey: self.lkey }; SGES_MAX];
        for (sge, piece) in sges.iter_mut().zip(iov) {
            sge.addr = piece.addr;
            sge.length = u32::try_from(piece.length).map_err(|_| Refused::TooLong)?;
        }
        Ok(sges)
    }
}

/// Converts the data to the 32 bits that the verbs support.
fn immediate(data: Option<u64>) -> Result<Option<u32>, Refused> {
    data.map(u32::try_from).transpose().map_err(|_| Refused::Invalid)
}

fn length_of(iov: &[Iov]) -> Result<u64, Refused> {
    let sum = |sum: u64, piece: &Iov| sum.checked_add(piece.length);
    iov.iter().try_fold(0, sum).ok_or(Refused::Invalid)
}
