//! Sources of an interface's packets: programs at tc, or a packet socket.
//!
//! Programs cost packets less, and need more rights and a newer kernel. Both show the same packets
//! with the same figures; `docs/watch.md` has the differences.

use std::fmt;
use std::io;

use serde::Serialize;
use srd_net::tap::{Tap, TappedPacket, now_ns};
use srd_net::tcx::{Backlog, Keep, Probe, ProbeError};
use srd_proto::time::Instant;

use crate::arrival::PacketDirection;
use crate::read::{HEADERS_BYTES, Raw};

/// Bytes of a link header that are kept before the others.
const LINK_BYTES_MAX: u32 = 32;
/// Blocks of a packet socket's ring that are read before others have their turn.
const BLOCKS_MAX: usize = 16;
/// Default memory for packets that wait to be read: of a packet socket, and of programs, whose
/// records are smaller. A ring that fits into a CPU's cache costs less: 2026-11-25 in
/// `docs/perf-notes.md`.
const RING_BYTES: u32 = 32 << 20;
const RECORDS_BYTES: u32 = 8 << 20;
/// Records of programs that are read before others have their turn.
const RECORDS_MAX: usize = 1 << 16;

/// Choice of the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Choice {
    /// Programs where they work, else a packet socket.
    #[default]
    Auto,
    /// Programs, or none.
    Ebpf,
    /// A packet socket.
    Packet,
}

/// Kind of a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Programs at tc.
    Ebpf,
    /// A packet socket.
    Packet,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ebpf => "eBPF at tc",
            Self::Packet => "a packet socket",
        })
    }
}

/// The source of an interface, and the reason for it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Opened {
    /// The interface.
    pub interface: String,
    /// The source.
    pub source: Kind,
    /// Reason for this source.
    pub reason: String,
}

impl fmt::Display for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: packets by {} ({})", self.interface, self.source, self.reason)
    }
}

/// A source of one interface's packets.
#[derive(Debug)]
pub(crate) enum Source {
    Ebpf(Box<Probe>),
    Packet(Tap),
}

/// Extent to which a source was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Far {
    /// All that arrived before the look is here.
    All,
    /// All that arrived is here, but what the kernel has yet to hand over.
    Handed,
    /// There is more.
    Some,
}

impl Source {
    /// The source of an interface, and since when it sees packets. `saved`: they may be saved.
    pub(crate) fn open(
        interface: &str,
        choice: Choice,
        ring_bytes: Option<u32>,
        saved: bool,
    ) -> io::Result<(Self, Opened, Instant)> {
        let named =
            |kind, error: &dyn fmt::Display| io::Error::new(kind, format!("{interface}: {error}"));
        let packet = |reason: String| {
            let now = Instant::from_nanos(now_ns());
            let tap = Tap::open(
                interface,
                LINK_BYTES_MAX + HEADERS_BYTES,
                ring_bytes.unwrap_or(RING_BYTES),
            );
            let tap = tap.map_err(|error| named(error.kind(), &error))?;
            Ok((Self::Packet(tap), opened(interface, Kind::Packet, reason), now))
        };
        if choice == Choice::Packet {
            return packet("--source packet".to_owned());
        }
        let keep = if saved { Keep::More } else { Keep::Headers };
        match Probe::open(interface, keep, ring_bytes.unwrap_or(RECORDS_BYTES)) {
            Ok(probe) => {
                let forced = choice == Choice::Ebpf;
                let reason =
                    if forced { "--source ebpf" } else { "this kernel and process can do it" };
                let opened = opened(interface, Kind::Ebpf, reason.to_owned());
                let began = Instant::from_nanos(probe.began_ns());
                Ok((Self::Ebpf(Box::new(probe)), opened, began))
            }
            Err(error @ ProbeError::Interface(_)) => Err(named(error.kind(), &error)),
            Err(error) if choice == Choice::Ebpf => Err(named(error.kind(), &error)),
            Err(error) => packet(format!("no eBPF: {error}")),
        }
    }

    /// The socket to wait for, if it is one.
    pub(crate) fn tap(&self) -> Option<&Tap> {
        match self {
            Self::Packet(tap) => Some(tap),
            Self::Ebpf(_) => None,
        }
    }

    /// Shows the packets that are there, and not too many.
    pub(crate) fn look(&mut self, mut see: impl FnMut(&Raw<'_>)) -> Far {
        let show = |seen: TappedPacket<'_>| see(&raw(seen));
        match self {
            Self::Packet(tap) => match tap.look(BLOCKS_MAX, show) {
                true => Far::Some,
                false => Far::Handed,
            },
            Self::Ebpf(probe) => match probe.look(RECORDS_MAX, show) {
                Backlog::Nothing => Far::All,
                // What is being recorded now is there at the next look.
                Backlog::Unfinished => Far::Handed,
                Backlog::More => Far::Some,
            },
        }
    }

    /// Packets since the beginning that found no room.
    pub(crate) fn lost(&mut self) -> io::Result<u64> {
        match self {
            Self::Packet(tap) => tap.lost(),
            Self::Ebpf(probe) => probe.lost(),
        }
    }
}

fn opened(interface: &str, source: Kind, reason: String) -> Opened {
    Opened { interface: interface.to_owned(), source, reason }
}

fn raw(seen: TappedPacket<'_>) -> Raw<'_> {
    Raw {
        time: Instant::from_nanos(seen.time_ns),
        way: if seen.outgoing { PacketDirection::Out } else { PacketDirection::In },
        ethertype: Some(seen.protocol),
        length: seen.length,
        segment_bytes: seen.segment_bytes,
        mtu_bytes: None,
        bytes: seen.bytes,
    }
}
