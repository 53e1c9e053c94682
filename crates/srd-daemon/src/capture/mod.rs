//! Packets for Wireshark in one pcapng stream: inner packets as applications see them, outer
//! packets as the network sees them.
//!
//! ```text
//!  each worker                                  a thread of the control server    srd capture
//!  Taps::inner, Taps::outer -> [queue] --------> TapReader -> pcapng blocks ----> file
//!                              full: dropped,
//!                              counted
//! ```
//!
//! A worker never waits: its queue holds at most [`QUEUE_PACKETS_MAX`] packets and
//! [`QUEUE_BYTES_MAX`] bytes, and further packets are dropped and counted. At most [`TAPS_MAX`]
//! captures run at once. Without a capture, a packet costs one check of an empty list.
//!
//! | module | contents |
//! |---|---|
//! | [`mod@tap`] | the workers' side: filters, copies, counts |
//! | `headers` | IP and UDP headers for outer packets, which sockets do not show |
//! | `pcapng` | the interfaces of such a file |
//! | `stream` | from the queue to a pcapng stream |
//! | [`mod@copy`] | copies a pcapng stream into a file, block by block |

pub mod copy;
mod headers;
mod pcapng;
mod stream;
pub mod tap;

use serde::{Deserialize, Serialize};

pub use headers::Outer;
pub use stream::stream;
pub use tap::{Captures, Direction, Tap, TapReader, Taps};

/// Largest number of captures that may run at once.
pub const TAPS_MAX: usize = 4;
/// Largest number of packets of one capture and one worker that may wait to be written.
pub const QUEUE_PACKETS_MAX: usize = 4096;
/// Largest number of bytes of one capture and one worker that may wait to be written.
pub const QUEUE_BYTES_MAX: usize = 16 << 20;
/// Largest number of bytes of one packet that are stored.
pub const SNAPLEN_MAX: u32 = 65_535 + 40;

/// Selects inner packets, outer packets, or both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layers {
    /// Inner and outer packets.
    #[default]
    Both,
    /// Packets as the applications see them.
    Inner,
    /// Packets as the network sees them.
    Outer,
}

/// Packets to capture, and the end of the capture.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// Inner, outer, or both.
    pub layers: Layers,
    /// Only packets of this peer, by name or by the beginning of its key.
    pub peer: Option<String>,
    /// Largest number of bytes that are stored of each packet.
    pub snaplen: u32,
    /// Number of packets after which the capture ends.
    pub count: Option<u64>,
    /// Milliseconds after which the capture ends.
    pub time_ms: Option<u64>,
}

impl Default for Filter {
    fn default() -> Self {
        Self { layers: Layers::Both, peer: None, snaplen: SNAPLEN_MAX, count: None, time_ms: None }
    }
}
