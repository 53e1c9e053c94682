//! Finds the peer of a received packet, and processes the packet there.

use super::Endpoint;
use crate::error::DropReason;
use crate::event::{Delivery, Status};
use crate::ids::{PeerId, Qpn};
use crate::node::shard_of_context;
use crate::peer::{Accepted, DataPacket, Peer, ReplyRoute, read_unreliable, with_port};
use crate::queue_pairs::QueuePairs;
use crate::time::Instant;
use crate::transmit::{Ecn, PacketMeta, PacketRef};
use crate::wire::ack::AckView;
use crate::wire::data::Data;
use crate::wire::greeting::Greeting;
use crate::wire::handshake::{Reset, decode_token};
use crate::wire::probe::Probe;
use crate::wire::{FLAG_ACK, FLAG_GREETING, HEADER_BYTES, Header, Kind, RTT_UNKNOWN, WireError};

/// Arguments of a call with a packet: its metadata, and the function that accepts or refuses its
/// datagram.
struct Call<'m, J> {
    now: Instant,
    meta: &'m PacketMeta,
    admit: J,
}

impl Endpoint {
    /// Processes a received packet. If it contains a new datagram, returns this datagram, which
    /// borrows the packet.
    pub fn handle_packet<'a>(
        &mut self,
        now: Instant,
        meta: PacketMeta,
        packet: PacketRef<'a>,
    ) -> Option<Delivery<'a>> {
        self.handle_packet_with(now, meta, packet, |_| Status::Ok)
    }

    /// Processes a received packet like [`Endpoint::handle_packet`], with a layer above that may
    /// refuse a datagram. `admit` is called for a datagram that is new and that its queue pair
    /// accepts. If it returns a status other than `Ok`, the datagram is not delivered, and the
    /// status is returned to the sender as the verdict that ends the datagram (after retries, if it
    /// is `RemoteRnr`). A refused unreliable datagram is dropped. An `admit` that refuses must
    /// change nothing, because it may be called again with the same datagram.
    pub fn handle_packet_with<'a>(
        &mut self,
        now: Instant,
        meta: PacketMeta,
        packet: PacketRef<'a>,
        admit: impl FnMut(&Delivery<'a>) -> Status,
    ) -> Option<Delivery<'a>> {
        let now = self.at(now);
        if self.closed {
            self.shared.stats.drop(DropReason::UnknownContext);
            return None;
        }
        let mut call = Call { now, meta: &meta, admit };
        let (size, taken) = match packet {
            PacketRef::Whole(bytes) => (bytes.len(), self.take_whole(&mut call, bytes)),
            PacketRef::Split(head, payload) => {
                (head.len() + payload.len(), self.take_plain(&mut call, head, payload))
            }
        };
        #[cfg(debug_assertions)]
        self.audit();
        match taken {
            Ok(delivery) => {
                self.shared.stats.rx_pkts += 1;
                self.shared.stats.rx_bytes += size as u64;
                delivery
            }
            Err(reason) => {
                // E1. A packet that cannot be used is counted and dropped.
                self.shared.stats.drop(reason);
                self.diagnose_drop(now, meta.source.ip(), reason);
                None
            }
        }
    }

    /// Processes a packet in one piece: a handshake packet, a sealed packet, or a plain packet.
    fn take_whole<'a, J: FnMut(&Delivery<'a>) -> Status>(
        &mut self,
        call: &mut Call<'_, J>,
        bytes: &'a mut [u8],
    ) -> Result<Option<Delivery<'a>>, DropReason> {
        let (now, meta) = (call.now, call.meta);
        let (header, _) = Header::decode(bytes)?;
        match header.kind {
            Kind::Hello | Kind::HelloReply | Kind::Retry => {
                let (_, body) = Header::decode(bytes)?;
                return self.on_handshake(now, meta, &header, body).map(|()| None);
            }
            _ if !self.shared.security.is_on() || header.kind == Kind::Reset => {
                return self.take_plain(call, bytes, &[]);
            }
            _ => {}
        }
        // S24: No mix of plain and protected
        if header.flags & FLAG_GREETING != 0 || header.dst_context == 0 {
            return Err(DropReason::WrongProtection);
        }
        let id = self.find_named(now, meta, &header, None)?;
        if !self.peers.look(id).is_some_and(Peer::has_keys) {
            self.queue_reset(now, meta, &header, None);
            return Err(DropReason::UnknownContext);
        }
        let (head, sealed) =
            bytes.split_first_chunk_mut::<HEADER_BYTES>().ok_or(DropReason::Malformed)?;
        let shared = &mut self.shared;
        let peer = self.peers.peer(id).ok_or(DropReason::UnknownContext)?;
        let (before, newest) = (peer.address, peer.newest());
        let (body, begins) = peer.unseal(now, meta, &header, head, sealed, shared)?;
        let fresh = header.kind != Kind::Data;
        if fresh || begins {
            peer.on_authentic(now, true, shared);
        }
        if begins {
            self.list(id);
        }
        let taken = self.dispatch(call, id, &header, body, &[]);
        let shared = &mut self.shared;
        if let Some(peer) = self.peers.peer(id) {
            let (data, control) = peer.newest();
            if !fresh && taken.is_ok() {
                peer.on_authentic(now, true, shared);
            }
            // The first packet of a session has already updated the peer's address.
            if !begins && peer.has_keys() && (data > newest.0 || control > newest.1) {
                peer.came_from(now, meta, shared);
            }
        }
        self.follow(id, before);
        taken
    }

    /// Processes a plain packet, in one piece or two.
    fn take_plain<'a, J: FnMut(&Delivery<'a>) -> Status>(
        &mut self,
        call: &mut Call<'_, J>,
        head: &'a [u8],
        payload: &'a [u8],
    ) -> Result<Option<Delivery<'a>>, DropReason> {
        let (now, meta) = (call.now, call.meta);
        let (header, body) = Header::decode(head)?;
        if header.kind == Kind::Reset {
            return self.on_reset(now, meta, &Reset::decode(body)?).map(|()| None);
        }
        // S24: No mix of plain and protected
        if self.shared.security.is_on() {
            return Err(DropReason::WrongProtection);
        }
        let (greeting, body) = if header.flags & FLAG_GREETING != 0 {
            let (g, rest) = Greeting::decode(body)?;
            (Some(g), rest)
        } else {
            (None, body)
        };
        if header.kind == Kind::Close {
            return self.on_plain_close(now, meta, &header, greeting.as_ref(), body).map(|()| None);
        }
        let id = self.find_peer(now, meta, &header, greeting.as_ref())?;
        self.dispatch(call, id, &header, body, payload)
    }

    /// Processes an authentic packet of a known peer.
    fn dispatch<'a, J: FnMut(&Delivery<'a>) -> Status>(
        &mut self,
        call: &mut Call<'_, J>,
        id: PeerId,
        header: &Header,
        body: &'a [u8],
        payload: &'a [u8],
    ) -> Result<Option<Delivery<'a>>, DropReason> {
        let (now, meta) = (call.now, call.meta);
        let delivery = match header.kind {
            Kind::Data => self.on_data(call, id, header, body, payload)?,
            Kind::Unreliable => Some(self.on_unreliable(call, id, body, payload)?),
            Kind::Ack => {
                // A5. Nothing in this branch makes an acknowledgement due.
                let ack = AckView::decode(body)?;
                let shared = &mut self.shared;
                if let Some(peer) = self.peers.peer(id) {
                    peer.on_ack(now, &ack, Some(header.number), shared);
                }
                None
            }
            Kind::Probe => {
                let probe = Probe::decode(body)?;
                let shared = &mut self.shared;
                if let Some(peer) = self.peers.peer(id) {
                    peer.on_probe(meta, header, &probe, shared);
                }
                self.count_arrival(now, id, header);
                None
            }
            Kind::Close => {
                self.on_close(now, id, body)?;
                None
            }
            Kind::Challenge | Kind::ChallengeReply => {
                self.on_token(id, header.kind, decode_token(body)?)?;
                None
            }
            Kind::Hello | Kind::HelloReply | Kind::Retry | Kind::Reset => {
                return Err(DropReason::WrongProtection);
            }
        };
        self.peers.make_ready(id);
        Ok(delivery)
    }

    /// Finds the peer whose context a packet names.
    pub(super) fn find_named(
        &mut self,
        now: Instant,
        meta: &PacketMeta,
        header: &Header,
        greeting: Option<&Greeting>,
    ) -> Result<PeerId, DropReason> {
        let (is_on, ip) = (self.shared.security.is_on(), meta.source.ip());
        let may_come_from = |peer: &Peer| is_on || peer.address.ip() == ip || peer.is_at(ip);
        match self.peers.at(self.shared.numbers.index(header.dst_context)) {
            // H6. In plain mode a number is no proof: after a restart, packets for another peer's
            // context may arrive under a number that the new run has assigned since.
            Some(peer) if peer.is_named(header.dst_context) && may_come_from(peer) => Ok(peer.id),
            _ => {
                self.queue_reset(now, meta, header, greeting);
                Err(DropReason::UnknownContext)
            }
        }
    }

    /// Finds the peer of a packet, and adds a peer if the packet introduces it.
    fn find_peer(
        &mut self,
        now: Instant,
        meta: &PacketMeta,
        header: &Header,
        greeting: Option<&Greeting>,
    ) -> Result<PeerId, DropReason> {
        let named = header.dst_context != 0;
        let id = if named {
            self.find_named(now, meta, header, greeting)?
        } else {
            let greeting = greeting.ok_or(DropReason::Malformed)?;
            let address = with_port(meta.source, greeting.port);
            let partner = shard_of_context(greeting.context);
            // H1. One context for each node, whatever the number of queue pairs.
            match self.at_source(address, partner) {
                Some(id) => id,
                None => self.introduce(now, address, partner).ok_or(DropReason::PeersFull)?,
            }
        };
        if let (Some(greeting), Some(peer)) = (greeting, self.peers.peer(id))
            && peer.has_tombstone_of(greeting, now, &self.shared.node.config)
        {
            let reset = Reset { context: greeting.context, number: header.number };
            let to = with_port(meta.source, greeting.port);
            self.replies.push_reset(now, ReplyRoute { to, local: meta.local }, &reset);
            return Err(DropReason::StaleEpoch);
        }
        let shared = &mut self.shared;
        if let Some(peer) = self.peers.peer(id) {
            if let Some(greeting) = greeting {
                let greeted = peer.on_greeting(now, greeting, named, shared);
                if let Err(reason) = greeted {
                    self.peers.make_ready(id); // it may have a probe to send
                    return Err(reason);
                }
            }
            peer.on_authentic(now, named, shared);
        }
        Ok(id)
    }

    fn on_data<'a, J: FnMut(&Delivery<'a>) -> Status>(
        &mut self,
        call: &mut Call<'_, J>,
        id: PeerId,
        header: &Header,
        body: &'a [u8],
        payload: &'a [u8],
    ) -> Result<Option<Delivery<'a>>, DropReason> {
        let Call { now, meta, admit } = call;
        let (data, mut rest) = Data::decode(body)?;
        let mut beside = None;
        if header.flags & FLAG_ACK != 0 {
            let (ack, after) = AckView::decode_first(rest)?;
            (beside, rest) = (Some(ack), after);
        }
        let payload = if rest.is_empty() { payload } else { rest };
        let packet = DataPacket { header, data, payload_bytes: payload.len() };
        let delivery = Delivery {
            peer: id,
            src_qpn: Qpn(data.src_qpn),
            dst_qpn: Qpn(data.dst_qpn),
            // D11: Opaque bits arrive unchanged
            imm: data.imm,
            reliable: true,
            ce: meta.ecn == Ecn::Ce,
            payload,
        };
        let shared = &mut self.shared;
        let queue_pairs = &mut self.queue_pairs;
        let Some(peer) = self.peers.peer(id) else { return Ok(None) };
        let verdict = || take_buffer(queue_pairs, &delivery, admit);
        let accepted = peer.on_data(*now, meta, &packet, shared, verdict);
        // A11. The acknowledgement within a duplicate was applied before.
        if let (Ok(_), Some(ack)) = (&accepted, beside) {
            peer.on_ack(*now, &ack, None, shared);
        }
        self.count_arrival(*now, id, header);
        match accepted {
            Ok(Accepted::Noted) => Ok(None),
            // D1. In any order: no datagram waits for another.
            Ok(Accepted::Deliver) => {
                self.shared.stats.recv_wrs += 1;
                self.shared.stats.recv_bytes += payload.len() as u64;
                Ok(Some(delivery))
            }
            Err(reason) => {
                self.peers.make_ready(id);
                Err(reason)
            }
        }
    }

    /// Updates the state about a sender for the division of credit, after data or a probe of this
    /// peer.
    fn count_arrival(&mut self, now: Instant, id: PeerId, header: &Header) {
        let share = &mut self.shared.share;
        share.on_arrival(now, id, rtt_code(header), &mut self.peers);
        share.sync(now);
    }

    /// Delivers an unreliable datagram if its queue pair and the layer above accept it.
    fn on_unreliable<'a, J: FnMut(&Delivery<'a>) -> Status>(
        &mut self,
        call: &mut Call<'_, J>,
        peer: PeerId,
        body: &'a [u8],
        payload: &'a [u8],
    ) -> Result<Delivery<'a>, DropReason> {
        let (fields, payload) = read_unreliable(body, payload)?;
        let (src_qpn, dst_qpn) = (Qpn(fields.src_qpn), Qpn(fields.dst_qpn));
        let ce = call.meta.ecn == Ecn::Ce;
        let delivery =
            Delivery { peer, src_qpn, dst_qpn, imm: fields.imm, reliable: false, ce, payload };
        // D15: Unreliable datagrams
        if take_buffer(&mut self.queue_pairs, &delivery, &mut call.admit) != Status::Ok {
            return Err(DropReason::NoReceiver);
        }
        self.shared.stats.unreliable_rx_pkts += 1;
        Ok(delivery)
    }

    /// Queues a Reset, within the limits of answers to strangers, because a packet names a context
    /// that does not exist here.
    fn queue_reset(
        &mut self,
        now: Instant,
        meta: &PacketMeta,
        header: &Header,
        greeting: Option<&Greeting>,
    ) {
        // Data comes from the port of its path. The Reset is sent to the port of the greeting if
        // there is one, otherwise to the source port, at which the peer receives as well.
        let port = greeting.map_or(meta.source.port(), |g| g.port);
        let reset = Reset { context: header.dst_context, number: header.number };
        let to = with_port(meta.source, port);
        self.replies.push_reset(now, ReplyRoute { to, local: meta.local }, &reset);
    }
}

/// Uses a receive buffer for a datagram. Returns the status with which the queue pair or the layer
/// above refuses the datagram; a datagram that the layer above refuses uses no buffer.
fn take_buffer<'a>(
    queue_pairs: &mut QueuePairs,
    delivery: &Delivery<'a>,
    admit: &mut impl FnMut(&Delivery<'a>) -> Status,
) -> Status {
    let status = queue_pairs.take_buffer(delivery.dst_qpn);
    if status != Status::Ok {
        return status;
    }
    let verdict = admit(delivery);
    if verdict != Status::Ok {
        queue_pairs.post(delivery.dst_qpn, 1);
    }
    verdict
}

/// Round-trip code of a packet that names our context: the sender has received packets of ours and
/// may have measured the round trip. For any other packet, [`RTT_UNKNOWN`].
fn rtt_code(header: &Header) -> u8 {
    if header.dst_context == 0 { RTT_UNKNOWN } else { header.rtt_code }
}

impl From<WireError> for DropReason {
    fn from(e: WireError) -> Self {
        match e {
            WireError::Malformed => Self::Malformed,
            WireError::Version => Self::Version,
        }
    }
}
