//! The interface between the driver and a back end that sends and receives packets.
//!
//! [`PacketIo`] has three implementations: [`crate::UdpIo`] (kernel sockets),
//! [`crate::back_ends::xdp::XdpIo`] (AF_XDP, which bypasses the kernel's network stack) and
//! [`crate::MemoryIo`] (a network in memory, for tests). The driver is the same for all three.

use std::io;
use std::net::SocketAddr;

use srd_proto::ids::Entropy;
use srd_proto::time::{Duration, Instant};
use srd_proto::transmit::{PacketMeta, Transmit, TransmitBuf};

use crate::clock::Clock;
use crate::copies::Copied;

/// Largest number of UDP payload bytes in a batch: IP and UDP headers and a link-layer header must
/// fit into the 65,536 bytes that devices segment.
pub(crate) const BATCH_BYTES_MAX: usize = 65_400;

/// The segments of a batch, read without copying.
pub trait Segments {
    /// Returns the segments in order. A segment is given in two parts: contiguous bytes, and a
    /// payload by reference, which may be empty.
    fn parts(&self) -> impl Iterator<Item = (&[u8], &[u8])>;
}

impl Segments for TransmitBuf {
    fn parts(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.segments().map(|(head, payload)| (head, payload.as_ref()))
    }
}

/// Segments of contiguous bytes, without payloads by reference.
impl Segments for Vec<Vec<u8>> {
    fn parts(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.iter().map(|segment| (segment.as_slice(), [].as_slice()))
    }
}

/// Whether a thread sleeps or polls while it waits for packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PollMode {
    /// Sleeps in the kernel: lowest use of CPU time.
    #[default]
    Block,
    /// Polls without sleeping: lowest latency, but one core is always busy.
    Spin,
    /// Polls for this time after the last packet, then sleeps.
    Adaptive(Duration),
}

impl PollMode {
    /// [`PollMode::Adaptive`] with the default time: longer than a round trip within a rack through
    /// two overlays. The time was not tuned by measurements.
    pub const ADAPTIVE: Self = Self::Adaptive(Duration::from_micros(200));
    /// Modes and their names in settings. The first is the default.
    pub const NAMED: [(Self, &str); 3] =
        [(Self::Block, "block"), (Self::ADAPTIVE, "adaptive"), (Self::Spin, "spin")];

    /// Whether a thread that has moved no packet for the time `idle` polls again without sleeping.
    pub fn spins(self, idle: Duration) -> bool {
        match self {
            Self::Block => false,
            Self::Spin => true,
            Self::Adaptive(spin) => idle < spin,
        }
    }
}

/// Error: no polling mode has this name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownPollMode(String);

impl std::fmt::Display for UnknownPollMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "poll = \"{}\": \"block\", \"adaptive\" and \"spin\" are known", self.0)
    }
}

impl std::error::Error for UnknownPollMode {}

impl std::str::FromStr for PollMode {
    type Err = UnknownPollMode;

    fn from_str(text: &str) -> Result<Self, UnknownPollMode> {
        let named = Self::NAMED.into_iter().find(|(_, name)| *name == text);
        named.map(|(mode, _)| mode).ok_or_else(|| UnknownPollMode(text.to_owned()))
    }
}

/// Conditions that end the wait of a call to [`PacketIo::receive`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// Time at which the wait ends. [`Instant::ZERO`]: no wait; [`Instant::FAR_FUTURE`]: no time
    /// limit.
    pub until: Instant,
    /// Whether the wait also ends when a socket that was full is writable again.
    pub writable: bool,
}

impl Wait {
    /// No wait: the call takes only packets that have arrived already.
    pub const NOT: Self = Self { until: Instant::ZERO, writable: false };

    /// Returns a wait that ends at `until` at the latest.
    pub const fn until(until: Instant) -> Self {
        Self { until, writable: false }
    }
}

/// Result of [`PacketIo::send`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOutcome {
    /// Every batch was accepted for sending, or refused permanently and counted.
    All,
    /// The socket became full. The caller passes the remaining batches again later.
    Blocked {
        /// Number of batches that were accepted before the socket was full.
        batches: usize,
    },
}

/// Reason why the network did not deliver a packet, as an ICMP message reports it. An attacker can
/// forge ICMP messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Undelivered {
    /// The destination cannot be reached.
    Unreachable(srd_proto::Unreachable),
    /// The packet was too big for a link on the way.
    TooBig {
        /// Bytes, including the IP header, of the largest packet that the link passes; zero if the
        /// ICMP message did not contain this number.
        mtu: u32,
    },
}

/// A condition that the back end detected while sending, and that the user should be informed of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// A packet was larger than the MTU of the interface. Packets are never fragmented, so packets
    /// of this size are lost.
    PacketTooLarge {
        /// Destination of the packet.
        destination: SocketAddr,
        /// UDP payload bytes of the packet.
        packet_bytes: usize,
        /// Largest number of UDP payload bytes that fit; `None` if this machine cannot determine
        /// it.
        works_bytes: Option<u16>,
    },
    /// The kernel or the device refuses segmentation offload; sending continues without it.
    SegmentationOff,
    /// This process may exist twice, as a restored or cloned virtual machine does. Every session
    /// was ended and starts again with fresh keys.
    Copied(Copied),
    /// A send failed for a reason for which there is no other notice. Every failure is counted;
    /// each reason is reported once.
    SendFailed {
        /// Destination of the packet.
        destination: SocketAddr,
        /// The operating system's error number.
        errno: i32,
    },
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PacketTooLarge { destination, packet_bytes, works_bytes } => {
                write!(f, "packets of {packet_bytes} bytes do not fit the way to {destination}")?;
                match works_bytes {
                    Some(works) => write!(f, "; {works} bytes do (packet_bytes_max)"),
                    None => write!(f, "; smaller ones may (packet_bytes_max)"),
                }
            }
            Self::SegmentationOff => {
                f.write_str("UDP segmentation offload was refused; sending packet by packet")
            }
            Self::Copied(why) => write!(
                f,
                "this machine's state may exist twice ({why}): every session begins anew, under \
                 fresh keys"
            ),
            Self::SendFailed { destination, errno } => {
                let error = io::Error::from_raw_os_error(*errno);
                write!(f, "sending to {destination} failed: {error}")
            }
        }
    }
}

/// Counters of a back end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IoStats {
    /// System calls that sent packets.
    pub send_calls: u64,
    /// Batches that the kernel or the device has accepted for sending.
    pub sent_batches: u64,
    /// Packets that the kernel or the device has accepted for sending.
    pub sent_packets: u64,
    /// UDP payload bytes that the kernel or the device has accepted for sending.
    pub sent_bytes: u64,
    /// Calls to send that found the socket full.
    pub send_blocked: u64,
    /// Packets that were larger than the MTU of the interface.
    pub send_too_large: u64,
    /// Batches that could not be sent, for a reason other than the MTU. The core treats their
    /// packets as lost.
    pub send_failed: u64,
    /// System calls that read packets.
    pub receive_calls: u64,
    /// Messages received: datagrams, or runs of them that the kernel coalesced.
    pub received_messages: u64,
    /// Packets received.
    pub received_packets: u64,
    /// UDP payload bytes received.
    pub received_bytes: u64,
    /// Number of times that the thread slept while it waited for packets.
    pub sleeps: u64,
    /// Packets that ICMP errors reported as not delivered.
    pub undelivered: u64,
}

/// A back end that sends and receives packets: a set of sockets, an AF_XDP device, or a network in
/// memory. [`crate::LocalEndpoint`] drives an endpoint over it, on one thread.
///
/// # Contract
///
/// - A path is a source port: a batch with entropy `i` leaves from [`source`](Self::source) of `i`
///   (W1 of `docs/spec/srd.md`). Nothing is fragmented (W2).
/// - [`send`](Self::send) never waits. A full socket returns [`SendOutcome::Blocked`] with the
///   number of batches that were taken; the driver offers the other batches again. A packet that is
///   refused permanently is counted, and the core sees it as a loss.
/// - [`receive`](Self::receive) is the only call that waits, until [`Wait::until`], a packet, or a
///   wake-up by [`waker`](Self::waker) from another thread.
/// - Times of packets are on [`clock`](Self::clock), from the kernel's or the device's receive
///   timestamp if there is one (C2).
///
/// # Example
///
/// A back end that passes batches on to another back end, and loses every tenth batch:
///
#[doc = concat!("```ignore\n", include_str!("../../tests/it/back_end_example.rs"), "```\n")]
pub trait PacketIo {
    /// Sends batches in order, as many as the socket accepts.
    ///
    /// # Errors
    /// An error that makes the back end unusable. A failure that concerns one packet is only
    /// counted, and the core sees it as a loss.
    fn send<S: Segments>(&mut self, batches: &[(Transmit, S)]) -> io::Result<SendOutcome>;

    /// Receives packets that have arrived, waiting as `wait` specifies, and calls `each` for every
    /// packet with the current time, its metadata, and its bytes. Returns their number; zero if the
    /// wait ended by time, by a wake-up, or because a socket is writable again.
    ///
    /// # Errors
    /// An error that makes the back end unusable.
    fn receive(
        &mut self,
        wait: Wait,
        each: impl FnMut(Instant, PacketMeta, &mut [u8]),
    ) -> io::Result<usize>;

    /// Returns the clock that all times of this back end use.
    fn clock(&self) -> &Clock;

    /// Returns the address that peers send to.
    fn local_address(&self) -> SocketAddr;

    /// Returns the number of local addresses. Paths are distributed over them in turn.
    fn local_addresses(&self) -> u8 {
        1
    }

    /// Returns the local address with the index `place`, with the port that peers send to.
    fn local_address_at(&self, place: u8) -> SocketAddr {
        let _ = place;
        self.local_address()
    }

    /// Returns the source address of packets with this entropy to a destination.
    fn source(&self, entropy: Entropy, destination: SocketAddr) -> SocketAddr {
        let _ = destination;
        let mut source = self.local_address();
        source.set_port(source.port().wrapping_add(entropy.0 % self.paths().max(1)));
        source
    }

    /// Returns the number of paths (source ports).
    fn paths(&self) -> u16;

    /// Returns the largest number of segments in a batch. Larger batches would not be faster.
    fn batch_segments_max(&self) -> usize;

    /// Compares the configured packet size with this machine's MTU towards a new destination; a
    /// notice follows if the size is too large.
    fn check_destination(&mut self, destination: SocketAddr, packet_bytes_max: u16) {
        let _ = (destination, packet_bytes_max);
    }

    /// Returns the destination of a packet that the network did not deliver, and the reason; `None`
    /// if there is no further report. The sockets' error queues are read every few milliseconds.
    fn take_undelivered(&mut self, now: Instant) -> Option<(SocketAddr, Undelivered)> {
        let _ = now;
        None
    }

    /// Returns the operating system's error number, if this machine itself refused to send the last
    /// packet to the destination's host.
    fn refusal(&self, destination: SocketAddr) -> Option<i32> {
        let _ = destination;
        None
    }

    /// Takes the next notice for the user, if there is one.
    fn take_notice(&mut self) -> Option<Notice>;

    /// Returns the counters of this back end.
    fn stats(&self) -> IoStats;

    /// Returns descriptors of the sockets, for another process that continues with them.
    ///
    /// # Errors
    /// An error of the operating system, if it has no free descriptor, and
    /// [`Unsupported`](io::ErrorKind::Unsupported) for a back end that no other process can
    /// continue.
    fn sockets(&self) -> io::Result<Vec<std::os::fd::OwnedFd>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns a handle with which another thread can end the wait in [`receive`](Self::receive).
    ///
    /// # Errors
    /// An error of the operating system, if it has no free descriptor.
    fn waker(&mut self) -> io::Result<std::sync::Arc<crate::endpoints::wake::IoWaker>>;
}
