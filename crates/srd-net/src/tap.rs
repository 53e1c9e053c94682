//! A passive tap of the packets that an interface sends and receives: a packet socket with a
//! ring, and the statistics of its driver. For programs that watch; the transport itself uses
//! neither.

use std::io;
use std::os::fd::AsFd;

use crate::sys::ethtool::Ethtool;
use crate::sys::interface;
use crate::sys::os::{self, Interest};
use crate::sys::packet::PacketRing;

/// A packet that an interface has sent or received.
#[derive(Clone, Copy, Debug)]
pub struct TappedPacket<'a> {
    /// Nanoseconds since 1970 when the kernel had it in hand.
    pub time_ns: u64,
    /// Whether this machine sent it.
    pub outgoing: bool,
    /// The protocol behind the link header, as an EtherType.
    pub protocol: u16,
    /// Bytes from the network header on, those included that were not kept.
    pub length: u32,
    /// Payload bytes of each segment that the packet is to be cut into, or was put together from;
    /// `None` if it is one packet.
    pub segment_bytes: Option<u16>,
    /// The first bytes from the network header on.
    pub bytes: &'a [u8],
}

/// A look at an interface. The kernel copies the first bytes of every packet into a ring of fixed
/// size, and counts those that found no room.
#[derive(Debug)]
pub struct Tap {
    ring: PacketRing,
    lost: u64,
}

impl Tap {
    /// Begins to capture packets of the interface. `kept_bytes`: the most bytes of a packet that
    /// are copied, link header included; `ring_bytes`: memory for those that wait to be read.
    ///
    /// # Errors
    /// An error of the operating system, for instance that `CAP_NET_RAW` is missing.
    pub fn open(interface: &str, kept_bytes: u32, ring_bytes: u32) -> io::Result<Self> {
        let index = interface::index_of(interface)?;
        Ok(Self { ring: PacketRing::open(index, kept_bytes, ring_bytes)?, lost: 0 })
    }

    /// Shows the packets of at most `blocks_max` blocks of the ring (256 KiB each). False: no
    /// packet was left before that.
    pub fn look(&mut self, blocks_max: usize, mut see: impl FnMut(TappedPacket<'_>)) -> bool {
        for _ in 0..blocks_max {
            let more = self.ring.next_block(|frame| {
                let [_, gso, _, _, low, high, ..] = frame.offload;
                let segment_bytes = u16::from_le_bytes([low, high]);
                see(TappedPacket {
                    time_ns: frame.time_ns,
                    outgoing: frame.kind == libc::PACKET_OUTGOING,
                    protocol: frame.protocol,
                    length: frame.length,
                    segment_bytes: (gso != 0 && segment_bytes > 0).then_some(segment_bytes),
                    bytes: frame.bytes,
                });
            });
            if !more {
                return false;
            }
        }
        true
    }

    /// Packets since the beginning that found no room in the ring and were not shown.
    ///
    /// # Errors
    /// An error of the operating system, for instance that the interface is gone.
    pub fn lost(&mut self) -> io::Result<u64> {
        self.ring.error()?;
        let (_, lost) = self.ring.statistics()?;
        self.lost += lost;
        Ok(self.lost)
    }

    /// Waits until one of `taps` has packets, or `timeout_ns` has passed; without any, for this
    /// time.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn wait<'a>(taps: impl IntoIterator<Item = &'a Self>, timeout_ns: u64) -> io::Result<()> {
        let readable = taps.into_iter().map(|tap| Interest::readable(tap.ring.as_fd()));
        let mut interests: Vec<Interest<'_>> = readable.collect();
        os::wait(&mut interests, Some(timeout_ns)).map(|_| ())
    }
}

/// The statistics of an interface's driver, which `ethtool -S` shows.
#[derive(Debug)]
pub struct DriverStatistics {
    ethtool: Ethtool,
    interface: String,
    names: Vec<String>,
}

impl DriverStatistics {
    /// Queries their names.
    ///
    /// # Errors
    /// An error of the operating system. Some drivers have no statistics.
    pub fn open(interface: &str) -> io::Result<Self> {
        let ethtool = Ethtool::new()?;
        let names = ethtool.names(interface)?;
        Ok(Self { ethtool, interface: interface.to_owned(), names })
    }

    /// Their names, in the driver's order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Their values, in the same order.
    ///
    /// # Errors
    /// An error of the operating system, or the driver has other statistics than at the beginning.
    pub fn values(&self) -> io::Result<Vec<u64>> {
        self.ethtool.values(&self.interface, self.names.len())
    }
}

/// The time now as packets have it: nanoseconds since 1970.
pub fn now_ns() -> u64 {
    os::realtime_ns()
}
