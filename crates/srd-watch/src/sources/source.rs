//! Sources of an interface's packets: eBPF programs at tc, or a packet socket.
//!
//! eBPF programs cost less time per packet, but need more privileges and a newer kernel. The two
//! sources deliver the same packets with the same figures; `docs/watch.md` has the differences.

use std::fmt;
use std::io;

use serde::Serialize;
use srd_net::tap::{Tap, TappedPacket, now_ns};
use srd_net::tcx::{Backlog, Keep, Probe, ProbeError};
use srd_proto::time::Instant;

use crate::sources::read::{HEADERS_BYTES, Raw};

/// Bytes of the link header that a packet socket keeps in addition to the bytes from the IP header
/// on.
const LINK_BYTES_MAX: u32 = 32;
/// Largest number of blocks of a packet socket's ring that are read before the next interface is
/// read.
const BLOCKS_MAX: usize = 16;
/// Default size in bytes of a packet socket's ring of unread packets. [`RECORDS_BYTES`] is that of
/// the eBPF programs' ring, whose records are smaller. A ring that fits into a CPU's cache costs
/// less time: 2026-11-25 in `docs/perf-notes.md`.
const RING_BYTES: u32 = 32 << 20;
const RECORDS_BYTES: u32 = 8 << 20;
/// Largest number of records of eBPF programs that are read before the next interface is read.
const RECORDS_MAX: usize = 1 << 16;

/// Choice of the source of an interface's packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Choice {
    /// eBPF programs if they can be loaded, otherwise a packet socket.
    #[default]
    Auto,
    /// eBPF programs; an error if they cannot be loaded.
    Ebpf,
    /// A packet socket.
    Packet,
}

/// Kind of a source of packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// eBPF programs, attached at tc.
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

/// The source that was chosen for an interface, and the reason for the choice.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Opened {
    /// Name of the interface.
    pub interface: String,
    /// Source that was chosen for the interface.
    pub source: Kind,
    /// Reason for the choice of the source, as text for the user.
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

/// Result of reading a source: whether packets remain to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Far {
    /// All packets that arrived before the call were read.
    All,
    /// All packets that the kernel has delivered were read, but the kernel may still hold packets
    /// that arrived before the call.
    Handed,
    /// More packets wait to be read, because the call read as many as the limit permits.
    Some,
}

impl Source {
    /// Opens the source of an interface. Returns the source, its description for the user, and the
    /// time from which it delivers packets. `saved` is set if packets may be saved, so that their
    /// headers are kept in full.
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

    /// Returns the socket on which to wait for packets; `None` if the source is eBPF programs.
    pub(crate) fn tap(&self) -> Option<&Tap> {
        match self {
            Self::Packet(tap) => Some(tap),
            Self::Ebpf(_) => None,
        }
    }

    /// Passes the waiting packets, up to a limit, to `see`.
    pub(crate) fn look(&mut self, mut see: impl FnMut(&Raw<'_>)) -> Far {
        let show = |seen: TappedPacket<'_>| see(&seen.into());
        match self {
            Self::Packet(tap) => match tap.look(BLOCKS_MAX, show) {
                true => Far::Some,
                false => Far::Handed,
            },
            Self::Ebpf(probe) => match probe.look(RECORDS_MAX, show) {
                Backlog::Nothing => Far::All,
                // A record that is being written during this call is read by the next call.
                Backlog::Unfinished => Far::Handed,
                Backlog::More => Far::Some,
            },
        }
    }

    /// Returns the number of packets that were lost since the source was opened, because the ring
    /// of unread packets was full.
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
