//! A passive capture of the packets that an interface sends and receives, by a packet socket with a
//! ring, and the statistics of the interface's driver. For monitoring programs; the transport
//! itself uses neither.

use std::io;
use std::os::fd::AsFd;

use crate::sys::ethtool::Ethtool;
use crate::sys::interface;
use crate::sys::os::{self, Interest};
use crate::sys::shared::packet::PacketRing;

/// A packet that an interface has sent or received.
#[derive(Clone, Copy, Debug)]
pub struct TappedPacket<'a> {
    /// Time when the kernel handled the packet, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Whether this machine sent the packet.
    pub outgoing: bool,
    /// Protocol after the link header, as an EtherType.
    pub protocol: u16,
    /// Length of the packet from the network header on, in bytes, including bytes that were not
    /// copied.
    pub length: u32,
    /// Payload bytes of each segment, if the packet will be cut into segments or was joined from
    /// segments; `None` if it is a single packet.
    pub segment_bytes: Option<u16>,
    /// The copied bytes of the packet, from the network header on.
    pub bytes: &'a [u8],
}

/// A capture on an interface. The kernel copies the first bytes of every packet into a ring of
/// fixed size. If the ring is full, the packet is only counted.
#[derive(Debug)]
pub struct Tap {
    ring: PacketRing,
    lost: u64,
}

impl Tap {
    /// Starts to capture packets of the interface. `kept_bytes`: largest number of bytes that are
    /// copied from a packet, including the link header; `ring_bytes`: size of the memory for
    /// packets that wait to be read.
    ///
    /// # Errors
    /// An error of the operating system, for example if `CAP_NET_RAW` is missing.
    pub fn open(interface: &str, kept_bytes: u32, ring_bytes: u32) -> io::Result<Self> {
        let index = interface::index_of(interface)?;
        Ok(Self { ring: PacketRing::open(index, kept_bytes, ring_bytes)?, lost: 0 })
    }

    /// Calls `see` with the packets of at most `blocks_max` blocks of the ring (256 KiB each).
    /// Returns false if the ring was empty before this limit.
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

    /// Returns the number of packets since the start that were not shown because the ring was full.
    ///
    /// # Errors
    /// An error of the operating system, for example if the interface was removed.
    pub fn lost(&mut self) -> io::Result<u64> {
        self.ring.error()?;
        let (_, lost) = self.ring.statistics()?;
        self.lost += lost;
        Ok(self.lost)
    }

    /// Waits until one of `taps` has packets, or `timeout_ns` has passed. If `taps` is empty, waits
    /// for the whole time.
    ///
    /// # Errors
    /// An error of the operating system, if the wait fails.
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
    /// Queries the names of the statistics.
    ///
    /// # Errors
    /// An error of the operating system, for example if the driver has no statistics.
    pub fn open(interface: &str) -> io::Result<Self> {
        let ethtool = Ethtool::new()?;
        let names = ethtool.names(interface)?;
        Ok(Self { ethtool, interface: interface.to_owned(), names })
    }

    /// Returns the names, in the driver's order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the values, in the order of the names.
    ///
    /// # Errors
    /// An error of the operating system, or an error if the driver's statistics have changed since
    /// the names were queried.
    pub fn values(&self) -> io::Result<Vec<u64>> {
        self.ethtool.values(&self.interface, self.names.len())
    }
}

/// Returns the current time on the clock of captured packets: nanoseconds since 1970.
pub fn now_ns() -> u64 {
    os::realtime_ns()
}
