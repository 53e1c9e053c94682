//! What the core reports to the application: arrivals at once, everything else as events.

use core::fmt;

use bytes::Bytes;

use crate::ids::{DatagramId, PeerId, Qpn};

/// Which of a context's queues a datagram waits in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Class {
    /// Shares the context by deficit round robin over queue pairs.
    #[default]
    Bulk,
    /// Goes before bulk, up to a quarter of the bytes while bulk waits.
    LowLatency,
}

/// A datagram to send: at most one packet.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// The local queue pair it is sent from. Fairness inside a context is between these.
    pub src_qpn: Qpn,
    /// The remote queue pair it is for.
    pub dst_qpn: Qpn,
    /// Eight bytes that travel in the header, opaque to SRD: message and segment numbers of
    /// the layer above.
    pub imm: u64,
    /// The payload, at most [`crate::Endpoint::payload_bytes_max`] bytes. Let go of before the
    /// completion is told, but for batches that were written and not yet sent.
    pub payload: Bytes,
    /// Its queue.
    pub class: Class,
    /// Handed back in the completion.
    pub user: u64,
}

/// How a datagram ended. Numbers and meanings are those of EFA's completions
/// (`EFA_IO_COMP_STATUS_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Status {
    /// The peer acknowledged it.
    Ok = 0,
    /// Its queue pair or peer was destroyed before it completed.
    Flushed = 1,
    /// The fabric turned out to pass no packet of this size; see [`Event::PathMtu`].
    LocalBadLength = 6,
    /// The layer above the peer's transport refused it: no such key, or out of its bounds.
    RemoteBadAddress = 7,
    /// The peer restarted while it was in flight, and it may or may not have been delivered; or
    /// the layer above the peer's transport had given up what it belongs to.
    RemoteAbort = 8,
    /// The peer has no such queue pair.
    BadDestQpn = 9,
    /// The peer's queue pair had no receive buffer, as often as the sender would retry.
    RemoteRnr = 10,
    /// The layer above the peer's transport refused it: its receive buffer is too small.
    RemoteBadLength = 11,
    /// The peer answered before and has gone silent.
    UnrespRemote = 13,
    /// The layer above the peer's transport refused it: it does not know us.
    UnknownPeer = 14,
    /// The peer never answered.
    UnreachRemote = 15,
}

impl Status {
    /// The status that a verdict on the wire stands for.
    pub(crate) fn of_verdict(number: u8) -> Self {
        let verdicts = [
            Self::RemoteBadAddress,
            Self::RemoteAbort,
            Self::RemoteRnr,
            Self::RemoteBadLength,
            Self::UnknownPeer,
        ];
        verdicts.into_iter().find(|v| *v as u8 == number).unwrap_or(Self::BadDestQpn)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "the peer acknowledged it",
            Self::Flushed => "its queue pair or its peer was removed",
            Self::LocalBadLength => "the network passes no packet of its size",
            Self::RemoteBadAddress => "the peer refuses its key, or its bounds",
            Self::RemoteAbort => "the peer restarted, or gave it up",
            Self::BadDestQpn => "the peer has no such queue pair",
            Self::RemoteRnr => "the peer's queue pair had no receive buffer",
            Self::RemoteBadLength => "the peer's receive buffer is too small",
            Self::UnrespRemote => "the peer stopped answering",
            Self::UnknownPeer => "the peer does not know this endpoint",
            Self::UnreachRemote => "the peer never answered",
        })
    }
}

/// Why a peer went down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DownReason {
    /// It never answered. A peer that holds another key than was configured, or does not know ours,
    /// does not answer either. An [`Event::Diagnosis`] reports what is known of the reason.
    Unreachable,
    /// It stopped answering.
    Unresponsive,
    /// It came back with a later epoch: a new process, or a new machine under its address. Or this
    /// endpoint has begun another run ([`crate::Endpoint::reseed`]).
    Restarted,
    /// It sent a Close: its endpoint has ended, or has removed us.
    Closed,
}

impl fmt::Display for DownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "it never answered",
            Self::Unresponsive => "it stopped answering",
            Self::Restarted => "it restarted",
            Self::Closed => "it closed",
        })
    }
}

/// What speaks against a session with a peer. Only the first cannot be forged by a host that
/// writes from the peer's address: the others are for people, not for programs to act on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Diagnosis {
    /// From the peer's address an opening came that was made with this key, which is not the key of
    /// any peer here: the peer's key is configured wrongly here, or another node has its address.
    /// The holder of the key made the opening, though perhaps at another time.
    UnknownKey([u8; 32]),
    /// From the peer's address an opening came that was made for another key than ours (with a job
    /// key: under another job key): our key is configured wrongly there, or it is noise.
    OtherKeyForUs,
    /// Answers to our openings came and did not authenticate: the two sides have different
    /// preshared keys (with a job key: different job keys), or they were forged.
    AnswerUnauthentic,
    /// From the peer's address a packet of another version of the protocol came.
    OtherVersion,
    /// From the peer's address a plain packet came and we demand protection, or the reverse.
    OtherProtection,
    /// Nothing came from the peer's address while we tried to reach it: its host or endpoint is
    /// down, or the network does not pass the packets.
    NothingReceived,
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownKey(_) => "it uses a key that is not configured here",
            Self::OtherKeyForUs => "it calls with a key for us that is not ours",
            Self::AnswerUnauthentic => {
                "its answer does not authenticate: preshared or job keys differ"
            }
            Self::OtherVersion => "it speaks another version of the protocol",
            Self::OtherProtection => "one side is plain and the other demands protection",
            Self::NothingReceived => "nothing comes back from it",
        })
    }
}

impl Diagnosis {
    /// One bit for each.
    pub(crate) const fn bit(self) -> u8 {
        match self {
            Self::UnknownKey(_) => 1,
            Self::OtherKeyForUs => 2,
            Self::AnswerUnauthentic => 4,
            Self::OtherVersion => 8,
            Self::OtherProtection => 16,
            Self::NothingReceived => 32,
        }
    }
}

/// Why the network did not deliver a packet (ICMP destination unreachable).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreachable {
    /// The peer's host answers, and nothing listens at the port.
    Port,
    /// The peer's host does not answer its neighbours.
    Host,
    /// There is no route to the peer's network.
    Network,
    /// A firewall refuses packets to the peer.
    Prohibited,
}

impl core::fmt::Display for Unreachable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Port => "its host says that nothing listens at the port",
            Self::Host => "the network says that its host does not answer",
            Self::Network => "the network says that there is no route to it",
            Self::Prohibited => "a firewall says that it refuses packets to it",
        })
    }
}

/// Something that happened, other than an arrival.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A datagram ended.
    Completed {
        /// The peer it was for.
        peer: PeerId,
        /// Which one.
        id: DatagramId,
        /// The number given with it.
        user: u64,
        /// How it ended.
        status: Status,
    },
    /// A context exists: the peer has answered or, at a receiver, has sent a packet.
    PeerUp {
        /// The peer.
        peer: PeerId,
    },
    /// Everything outstanding to this peer has been completed with an error. The peer stays
    /// usable: the next send starts afresh.
    PeerDown {
        /// The peer.
        peer: PeerId,
        /// Why.
        reason: DownReason,
    },
    /// Evidence of why there is no session with a peer: each at most once in 30 seconds, and none
    /// while there is one. `NothingReceived` comes just before the `PeerDown` that it explains.
    Diagnosis {
        /// The peer.
        peer: PeerId,
        /// What was seen.
        what: Diagnosis,
    },
    /// A send to this peer was refused with `QueueFull`, and there is room again.
    Writable {
        /// The peer.
        peer: PeerId,
    },
    /// The fabric passes less than the configured packet size to this peer.
    PathMtu {
        /// The peer.
        peer: PeerId,
        /// UDP payload bytes that work.
        works_bytes: u16,
        /// UDP payload bytes that were configured.
        configured_bytes: u16,
    },
}

/// A datagram that arrived. Delivery is at once, in whatever order packets arrive; the
/// payload borrows the packet that carried it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivery<'a> {
    /// The peer that sent it.
    pub peer: PeerId,
    /// The remote queue pair it came from.
    pub src_qpn: Qpn,
    /// The local queue pair it is for.
    pub dst_qpn: Qpn,
    /// The header's eight opaque bytes.
    pub imm: u64,
    /// Whether it came by the reliable service: acknowledged, repeated if lost, delivered once.
    pub reliable: bool,
    /// Whether the network marked the packet: congestion experienced (CE). Of the reliable service
    /// the transport has dealt with it.
    pub ce: bool,
    /// The payload.
    pub payload: &'a [u8],
}
