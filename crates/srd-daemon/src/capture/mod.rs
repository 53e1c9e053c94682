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
//! A worker never waits for a capture: its queue holds at most [`QUEUE_PACKETS_MAX`] packets and
//! [`QUEUE_BYTES_MAX`] bytes, and packets beyond that are dropped and counted. At most [`TAPS_MAX`]
//! captures run at once. Without a capture, a packet costs one check of an empty list.
//!
//! | module | contents |
//! |---|---|
//! | [`mod@tap`] | the workers' side: filters, copies, counts |
//! | `headers` | IP and UDP headers for outer packets, which sockets do not return |
//! | `pcapng` | the blocks of a pcapng file |
//! | `stream` | from the workers' queues to a pcapng stream |
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
/// Largest number of packets that may wait in one worker's queue for one capture.
pub const QUEUE_PACKETS_MAX: usize = 4096;
/// Largest number of bytes that may wait in one worker's queue for one capture.
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

/// Selects the packets of a capture, and sets the end of the capture.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// Whether inner packets, outer packets or both are captured.
    pub layers: Layers,
    /// Selects packets of one peer, by its name or the beginning of its key; `None`: packets of all
    /// peers.
    pub peer: Option<String>,
    /// Largest number of bytes that are stored of each packet.
    pub snaplen: u32,
    /// Number of packets after which the capture ends; `None`: no limit.
    pub count: Option<u64>,
    /// Milliseconds after which the capture ends; `None`: no limit.
    pub time_ms: Option<u64>,
}

impl Default for Filter {
    fn default() -> Self {
        Self { layers: Layers::Both, peer: None, snaplen: SNAPLEN_MAX, count: None, time_ms: None }
    }
}
