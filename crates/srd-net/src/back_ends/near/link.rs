//! The link to one endpoint of this machine: the shared memory, and the connection whose end shows
//! that the other process has ended.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use srd_proto::time::Instant;
use srd_proto::transmit::{Ecn, PacketMeta};
use srd_trust::closing::Closing;

use super::meet::{self, Message, SEGMENT_BYTES};
use super::ring::{Beside, Broken, RING_BYTES, Reader, Writer};
use crate::back_ends::io::Segments;
use crate::sys::shared::segment::Segment;

/// Largest number of packets that one call receives from one link.
const TURN_PACKETS_MAX: usize = 64;

/// A connection to another endpoint, in each state since the connection was made.
#[derive(Debug)]
pub(super) enum Link {
    /// The other process has connected, but has not sent its address yet.
    Calling(OwnedFd),
    /// This process has connected, but has not read the other process's answer yet. The other
    /// process may have written packets into the memory already.
    Called(Rings, OwnedFd),
    /// Each process has the address of the other process.
    Met(Rings, OwnedFd),
}

/// The shared memory of a link: one ring for each direction.
#[derive(Debug)]
pub(super) struct Rings {
    pub(super) peer: SocketAddr,
    out: Writer,
    into: Reader,
}

impl Link {
    /// Connects to the endpoint at `to`, and sends it the memory of the link. A connection that
    /// cannot be used is moved to `closing`.
    pub(super) fn call(own: SocketAddr, to: SocketAddr, closing: &mut Closing) -> io::Result<Self> {
        let socket = meet::call(to, closing)?;
        match offer(socket.as_fd(), own, to) {
            Ok(rings) => Ok(Self::Called(rings, socket)),
            Err(error) => {
                meet::hang_up(socket, closing);
                Err(error)
            }
        }
    }

    /// Handles a connection that is readable because a message has arrived or the connection has
    /// ended. `may_be` returns whether a caller may claim the address that it sent. Received
    /// descriptors are moved to `closing`.
    ///
    /// # Errors
    /// An error if the link is unusable from now on; the caller ends it with [`Link::end`].
    pub(super) fn on_readable(
        self,
        own: SocketAddr,
        may_be: impl Fn(SocketAddr) -> bool,
        closing: &mut Closing,
    ) -> Result<Self, Self> {
        match self {
            Self::Calling(socket) => match answer(&socket, own, may_be, closing) {
                Ok(Some(rings)) => Ok(Self::Met(rings, socket)),
                Ok(None) => Ok(Self::Calling(socket)),
                Err(_) => Err(Self::Calling(socket)),
            },
            Self::Called(rings, socket) => match meet::receive(socket.as_fd(), closing) {
                Ok(Some(answer)) => {
                    closing.add(answer.descriptors);
                    Ok(Self::Met(rings, socket))
                }
                Ok(None) => Ok(Self::Called(rings, socket)),
                Err(_) => Err(Self::Called(rings, socket)),
            },
            Self::Met(..) => Ok(self),
        }
    }

    /// Ends the connection, and notifies the other end immediately. `closing` closes the socket on
    /// a separate thread, because unread messages in it may contain descriptors.
    pub(super) fn end(self, closing: &mut Closing) {
        let (Self::Calling(socket) | Self::Called(_, socket) | Self::Met(_, socket)) = self;
        meet::hang_up(socket, closing);
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        match self {
            Self::Calling(socket) | Self::Called(_, socket) | Self::Met(_, socket) => {
                socket.as_fd()
            }
        }
    }

    pub(super) fn rings(&mut self) -> Option<&mut Rings> {
        match self {
            Self::Calling(_) => None,
            Self::Called(rings, _) | Self::Met(rings, ..) => Some(rings),
        }
    }

    pub(super) fn has_met(&self) -> bool {
        matches!(self, Self::Met(..))
    }

    /// Reads the wake-ups of the other end. Returns `false` if the connection has ended.
    pub(super) fn take_wakes(&self, closing: &mut Closing) -> bool {
        meet::take_wakes(self.socket(), closing)
    }

    /// Writes the packets of a batch into the ring, and wakes the other end if it sleeps. Returns
    /// the number of packets that were written, and the number of packets for which the ring had no
    /// free space.
    pub(super) fn send(
        &mut self,
        now: Instant,
        port: u16,
        ecn: Ecn,
        segments: &impl Segments,
    ) -> (u64, u64) {
        let Self::Met(rings, socket) = self else { return (0, 0) };
        let (mut sent, mut full) = (0, 0);
        for (head, payload) in segments.parts() {
            if rings.out.push(Beside { port, ecn, at: now }, [head, payload]) {
                sent += 1;
            } else {
                full += 1;
            }
        }
        if rings.out.publish() {
            meet::wake(socket.as_fd());
        }
        (sent, full)
    }
}

impl Rings {
    /// Passes packets that have arrived to `each`, at most [`TURN_PACKETS_MAX`] of them. Returns
    /// their number.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        bytes: &mut Vec<u8>,
        each: &mut impl FnMut(Instant, PacketMeta, &mut [u8]),
    ) -> Result<usize, Broken> {
        let mut packets = 0;
        while packets < TURN_PACKETS_MAX
            && let Some(beside) = self.into.pop(bytes)?
        {
            let source = SocketAddr::new(self.peer.ip(), beside.port);
            let received_at = beside.at.min(now);
            packets += 1;
            each(now, PacketMeta { source, local: 0, ecn: beside.ecn, received_at }, bytes);
        }
        if packets > 0 {
            self.into.release();
        }
        Ok(packets)
    }

    pub(super) fn sleeps(&self, sleeps: bool) {
        self.into.sleeps(sleeps);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.into.is_empty()
    }

    /// Marks that the other process has ended. Packets that were written before this call are still
    /// read; later packets are ignored.
    pub(super) fn end(&mut self) {
        self.into.end();
    }
}

/// Sends the memory of a new link over a connection to `to`.
fn offer(socket: BorrowedFd<'_>, own: SocketAddr, to: SocketAddr) -> io::Result<Rings> {
    let (segment, memory) = Segment::create(SEGMENT_BYTES)?;
    meet::say(socket, own, &[memory.as_fd()])?;
    // The reader and the writer of this process use separate mappings of the memory.
    let again = Segment::open(memory.as_fd(), SEGMENT_BYTES)?;
    let (out, into) = (Writer::new(segment, 0), Reader::new(again, RING_BYTES));
    Ok(Rings { peer: to, out, into })
}

/// Answers a caller that has sent its address and its memory. Returns `None` if the caller has not
/// sent them yet.
fn answer(
    socket: &OwnedFd,
    own: SocketAddr,
    may_be: impl Fn(SocketAddr) -> bool,
    closing: &mut Closing,
) -> io::Result<Option<Rings>> {
    let Some(Message { from, descriptors }) = meet::receive(socket.as_fd(), closing)? else {
        return Ok(None);
    };
    let opened = match &descriptors[..] {
        [memory] if may_be(from) => {
            let segment = || Segment::open(memory.as_fd(), SEGMENT_BYTES);
            segment().and_then(|out| Ok((out, segment()?)))
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    };
    closing.add(descriptors);
    let (out, into) = opened?;
    meet::say(socket.as_fd(), own, &[])?;
    let (out, into) = (Writer::new(out, RING_BYTES), Reader::new(into, 0));
    Ok(Some(Rings { peer: from, out, into }))
}
