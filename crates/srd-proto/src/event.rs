//! Reports of the core to the application. Deliveries are returned at once; all other reports are
//! events.

use core::fmt;

use bytes::Bytes;

use crate::ids::{DatagramId, PeerId, Qpn};

/// Class of a datagram, which selects the queue of the context in which it waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Class {
    /// The default class. The queue pairs of a context share it by deficit round robin.
    #[default]
    Bulk,
    /// Datagrams that are sent before bulk datagrams. While bulk datagrams wait, this class gets at
    /// most a quarter of the bytes.
    LowLatency,
}

/// A datagram to be sent: at most one packet.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// The local queue pair that sends the datagram. Queue pairs share the context fairly.
    pub src_qpn: Qpn,
    /// The remote queue pair that receives the datagram.
    pub dst_qpn: Qpn,
    /// Eight bytes of the header that are opaque to SRD: message and segment numbers of the layer
    /// above SRD.
    pub imm: u64,
    /// The payload, at most [`crate::Endpoint::payload_bytes_max`] bytes. The core releases the
    /// payload before it reports the completion. Exception: a batch that was written and has not
    /// been sent yet still refers to it.
    pub payload: Bytes,
    /// Class of the queue in which the datagram waits.
    pub class: Class,
    /// A value of the caller, which the completion returns unchanged.
    pub user: u64,
}

/// Result of a datagram. Numbers and meanings are as in EFA's completions (`EFA_IO_COMP_STATUS_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Status {
    /// The peer acknowledged the datagram.
    Ok = 0,
    /// The queue pair or the peer was removed here before the datagram completed.
    Flushed = 1,
    /// The fabric passes no packet of this size; see [`Event::PathMtu`].
    LocalBadLength = 6,
    /// The layer above at the peer refused the datagram: the memory key does not exist, or the
    /// access is out of bounds.
    RemoteBadAddress = 7,
    /// The peer restarted while the datagram was in flight, and it is unknown whether it was
    /// delivered. Or the layer above at the peer had given up the operation of the datagram.
    RemoteAbort = 8,
    /// The peer has no such queue pair.
    BadDestQpn = 9,
    /// The peer's queue pair had no receive buffer, in as many attempts as the sender would make.
    RemoteRnr = 10,
    /// The layer above at the peer refused the datagram: its receive buffer is too small.
    RemoteBadLength = 11,
    /// The peer answered before and has become silent.
    UnrespRemote = 13,
    /// The layer above at the peer refused the datagram: it has no entry for this sender.
    UnknownPeer = 14,
    /// The peer never answered.
    UnreachRemote = 15,
}

impl Status {
    /// Status that belongs to the number of a verdict on the wire. An unknown number counts as
    /// `BadDestQpn`.
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

/// Reason for declaring a peer down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DownReason {
    /// The peer never answered. Perhaps the peer has another key than the configured key, or it
    /// does not accept our key. An [`Event::Diagnosis`] reports evidence for the cause.
    Unreachable,
    /// The peer stopped answering.
    Unresponsive,
    /// The peer presented a larger epoch: it is a new process, or a new machine at this address. Or
    /// this endpoint has begun another run ([`crate::Endpoint::reseed`]).
    Restarted,
    /// The peer sent a Close: the peer's endpoint has ended, or has removed this endpoint.
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

/// Evidence for the reason why there is no session with a peer. A host that can send from the
/// peer's address can forge each kind except [`Diagnosis::UnknownKey`]. The evidence is for users;
/// programs should act on `UnknownKey` at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Diagnosis {
    /// An opening came from the peer's address and was made with this key, which belongs to no peer
    /// of this endpoint. Either the peer's key is configured wrongly here, or another node has its
    /// address. The owner of the key made the opening, possibly at another time.
    UnknownKey([u8; 32]),
    /// An opening came from the peer's address and was made for a key that is not ours (with a job
    /// key: under another job key). Either our key is configured wrongly there, or the packet is
    /// noise.
    OtherKeyForUs,
    /// Answers to our openings arrived and did not authenticate. Either the two sides have
    /// different pre-shared keys (with a job key: different job keys), or the answers were forged.
    AnswerUnauthentic,
    /// A packet of another version of the protocol came from the peer's address.
    OtherVersion,
    /// A plain packet came from the peer's address while protection is on here, or the reverse.
    OtherProtection,
    /// No packet came from the peer's address during our attempts to reach it: its host or endpoint
    /// is down, or the network does not pass the packets.
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
    /// A bit mask in which each kind of diagnosis has one bit.
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

/// Reason why the network did not deliver a packet (ICMP destination unreachable).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreachable {
    /// The peer's host answers, and no socket is open at the port.
    Port,
    /// The peer's host does not answer its neighbours.
    Host,
    /// There is no route to the peer's network.
    Network,
    /// A firewall rejects packets to the peer.
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

/// An event other than a delivery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A datagram ended: the peer acknowledged the datagram, or the datagram failed.
    Completed {
        /// Peer to which the datagram was sent.
        peer: PeerId,
        /// Identifier that the send of the datagram returned.
        id: DatagramId,
        /// The value `user` of the datagram.
        user: u64,
        /// Result of the datagram.
        status: Status,
    },
    /// A context with the peer exists: the peer has answered us, or a packet of the peer has
    /// created the context.
    PeerUp {
        /// The peer to which the context exists.
        peer: PeerId,
    },
    /// A peer was declared down: all its outstanding datagrams have been completed with an error.
    /// The peer stays usable: the next send begins a new context.
    PeerDown {
        /// The peer that was declared down.
        peer: PeerId,
        /// Reason for declaring the peer down.
        reason: DownReason,
    },
    /// Evidence for the reason why there is no session with a peer. Each kind of evidence is
    /// reported at most once in 30 seconds, and only while there is no session. `NothingReceived`
    /// comes directly before the `PeerDown` that it explains.
    Diagnosis {
        /// The peer to which there is no session.
        peer: PeerId,
        /// The evidence for the reason.
        what: Diagnosis,
    },
    /// There is space again in the send queue to this peer, after a send was refused with
    /// `QueueFull`.
    Writable {
        /// The peer whose send queue has space again.
        peer: PeerId,
    },
    /// The fabric passes only packets smaller than the configured size to this peer.
    PathMtu {
        /// The peer to which the fabric passes only smaller packets.
        peer: PeerId,
        /// Largest UDP payload, in bytes, that the fabric passes to this peer.
        works_bytes: u16,
        /// Largest UDP payload, in bytes, that was configured.
        configured_bytes: u16,
    },
}

/// A received datagram. Datagrams are delivered at once, in the order in which packets arrive; the
/// payload borrows the packet that carried it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivery<'a> {
    /// Sender of the datagram.
    pub peer: PeerId,
    /// The remote queue pair that sent the datagram.
    pub src_qpn: Qpn,
    /// The local queue pair to which the datagram was sent.
    pub dst_qpn: Qpn,
    /// Eight bytes of the header that are opaque to SRD: the `imm` of the sender's [`Datagram`].
    pub imm: u64,
    /// Whether the datagram was sent by the reliable service: acknowledged, retransmitted if lost,
    /// and delivered once. Otherwise it was sent by the unreliable service.
    pub reliable: bool,
    /// Whether the network marked the packet as congestion experienced (CE). The transport has
    /// already processed the mark of a reliable datagram.
    pub ce: bool,
    /// The content of the datagram.
    pub payload: &'a [u8],
}
