//! The seam between the driver and whatever moves packets.
//!
//! [`PacketIo`] has three implementations: [`crate::UdpIo`] (kernel sockets),
//! [`crate::xdp::XdpIo`] (past the kernel's stack) and [`crate::MemoryIo`] (their twin in memory,
//! for tests). The driver is the same over all.

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

/// The bytes of a batch, where they are.
pub trait Segments {
    /// Each segment in order: contiguous bytes, then a payload by reference (may be empty).
    fn parts(&self) -> impl Iterator<Item = (&[u8], &[u8])>;
}

impl Segments for TransmitBuf {
    fn parts(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.segments().map(|(head, payload)| (head, payload.as_ref()))
    }
}

/// Segments that are contiguous already.
impl Segments for Vec<Vec<u8>> {
    fn parts(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.iter().map(|segment| (segment.as_slice(), [].as_slice()))
    }
}

/// Way of waiting for packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PollMode {
    /// Sleep in the kernel: least CPU time.
    #[default]
    Block,
    /// Poll without sleeping: least latency, one core always busy.
    Spin,
    /// Spin for this time after the last packet, then sleep.
    Adaptive(Duration),
}

impl PollMode {
    /// [`PollMode::Adaptive`] as settings have it: for longer than a round trip within a
    /// rack takes through two overlays. Not tuned.
    pub const ADAPTIVE: Self = Self::Adaptive(Duration::from_micros(200));
    /// The modes by the names that settings have for them, the default first.
    pub const NAMED: [(Self, &str); 3] =
        [(Self::Block, "block"), (Self::ADAPTIVE, "adaptive"), (Self::Spin, "spin")];

    /// Whether a thread looks again at once that moved the last packet so long ago.
    pub fn spins(self, idle: Duration) -> bool {
        match self {
            Self::Block => false,
            Self::Spin => true,
            Self::Adaptive(spin) => idle < spin,
        }
    }
}

/// A name that no mode has.
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
    /// Until when. [`Instant::ZERO`]: not at all; [`Instant::FAR_FUTURE`]: for ever.
    pub until: Instant,
    /// Whether to return also when a send that found the socket full may succeed.
    pub writable: bool,
}

impl Wait {
    /// Takes what is there.
    pub const NOT: Self = Self { until: Instant::ZERO, writable: false };

    /// Waits until `until` at the latest.
    pub const fn until(until: Instant) -> Self {
        Self { until, writable: false }
    }
}

/// Result of a send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOutcome {
    /// Every batch was handed over (or refused for good and counted).
    All,
    /// The socket was full after this many batches. Offer the rest again later.
    Blocked {
        /// Batches that went.
        batches: usize,
    },
}

/// Reason why the network did not deliver a packet, as ICMP reports it. Such reports can be
/// forged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Undelivered {
    /// Its destination cannot be reached.
    Unreachable(srd_proto::Unreachable),
    /// The packet was too big for a link on the way.
    TooBig {
        /// Bytes, IP header included, of the largest packet that the link passes; zero if the
        /// message did not contain it.
        mtu: u32,
    },
}

/// A condition that the back end detected while sending, and that the user should be informed of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// A packet was larger than the interface passes. Nothing is ever fragmented: such
    /// packets are lost.
    PacketTooLarge {
        /// Destination of the packet.
        destination: SocketAddr,
        /// UDP payload bytes that it had.
        packet_bytes: usize,
        /// UDP payload bytes that fit, as far as this machine can determine.
        works_bytes: Option<u16>,
    },
    /// The kernel or the device refuses segmentation offload; sending continues without it.
    SegmentationOff,
    /// This process may exist twice, as a restored or cloned virtual machine does. Every session
    /// was ended and begins anew, under fresh keys.
    Copied(Copied),
    /// Sending failed for another reason; counted, and reported once per reason.
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
    /// System calls that sent.
    pub send_calls: u64,
    /// Batches handed over.
    pub sent_batches: u64,
    /// Packets handed over.
    pub sent_packets: u64,
    /// UDP payload bytes handed over.
    pub sent_bytes: u64,
    /// Sends that found the socket full.
    pub send_blocked: u64,
    /// Packets larger than the interface passes.
    pub send_too_large: u64,
    /// Batches refused for another reason; the core sees them as lost.
    pub send_failed: u64,
    /// System calls to receive packets.
    pub receive_calls: u64,
    /// Messages received: datagrams, or runs of them that the kernel coalesced.
    pub received_messages: u64,
    /// Packets received.
    pub received_packets: u64,
    /// UDP payload bytes received.
    pub received_bytes: u64,
    /// Times that the thread slept.
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
///   number of batches that were taken; the driver offers the others again. A packet that is refused
///   for good is counted, and the core sees it as a loss.
/// - [`receive`](Self::receive) is the only call that waits, until [`Wait::until`], a packet, or a
///   wake-up by [`waker`](Self::waker) from another thread.
/// - Times of packets are on [`clock`](Self::clock), from the kernel's or the device's receive
///   timestamp if there is one (C2).
///
/// # Example
///
/// A back end around another one, which loses every tenth batch:
///
#[doc = concat!("```ignore\n", include_str!("../tests/it/back_end_example.rs"), "```\n")]
pub trait PacketIo {
    /// Sends batches in order, as far as the socket takes them.
    ///
    /// # Errors
    /// Only what makes the back end unusable. What befalls a packet is counted, and the core
    /// sees it as a loss.
    fn send<S: Segments>(&mut self, batches: &[(Transmit, S)]) -> io::Result<SendOutcome>;

    /// Receives packets that have arrived, waiting as `wait` specifies, and calls `each` for
    /// every packet with the present time, its metadata, and its bytes. Returns their number;
    /// zero when the wait ended by time, by a wake-up or by room to write.
    ///
    /// # Errors
    /// An error that makes the back end unusable.
    fn receive(
        &mut self,
        wait: Wait,
        each: impl FnMut(Instant, PacketMeta, &mut [u8]),
    ) -> io::Result<usize>;

    /// The clock that times are on.
    fn clock(&self) -> &Clock;

    /// The address that peers send to.
    fn local_address(&self) -> SocketAddr;

    /// Number of local addresses: paths take turns over them.
    fn local_addresses(&self) -> u8 {
        1
    }

    /// A local address by its place, with the port that peers send to.
    fn local_address_at(&self, place: u8) -> SocketAddr {
        let _ = place;
        self.local_address()
    }

    /// Source address of packets with this entropy to a destination.
    fn source(&self, entropy: Entropy, destination: SocketAddr) -> SocketAddr {
        let _ = destination;
        let mut source = self.local_address();
        source.set_port(source.port().wrapping_add(entropy.0 % self.paths().max(1)));
        source
    }

    /// Number of paths (source ports).
    fn paths(&self) -> u16;

    /// Largest number of segments in a batch; larger batches are not faster.
    fn batch_segments_max(&self) -> usize;

    /// Compares the configured packet size with this machine's MTU towards a new destination; a
    /// notice follows if the size is too large.
    fn check_destination(&mut self, destination: SocketAddr, packet_bytes_max: u16) {
        let _ = (destination, packet_bytes_max);
    }

    /// Destination of a packet that the network did not deliver, and the reason. The error queues
    /// are read every few milliseconds.
    fn take_undelivered(&mut self, now: Instant) -> Option<(SocketAddr, Undelivered)> {
        let _ = now;
        None
    }

    /// The operating system's error number, if this machine itself refused to send the last
    /// packet to the destination's host.
    fn refusal(&self, destination: SocketAddr) -> Option<i32> {
        let _ = destination;
        None
    }

    /// The next notice for the user.
    fn take_notice(&mut self) -> Option<Notice>;

    /// Counters.
    fn stats(&self) -> IoStats;

    /// A handle that ends a wait from another thread.
    ///
    /// # Errors
    /// An error of the operating system, if it has no descriptor left.
    fn waker(&mut self) -> io::Result<std::sync::Arc<crate::wake::IoWaker>>;
}
