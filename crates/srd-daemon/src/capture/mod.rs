//! Packets for Wireshark: inner ones as the applications see them, outer ones as the network
//! does, in one pcapng stream.
//!
//! ```text
//!  each worker                                  a thread of the control server    srd capture
//!  Taps::inner, Taps::outer -> [queue] --------> TapReader -> pcapng blocks ----> file
//!                              full: dropped,
//!                              counted
//! ```
//!
//! A worker never waits: its queue holds at most [`QUEUE_PACKETS_MAX`] packets and
//! [`QUEUE_BYTES_MAX`] bytes, and what does not fit is counted. At most [`TAPS_MAX`] captures
//! run at once. Without any, a packet costs one look at an empty list.
//!
//! | module | what |
//! |---|---|
//! | [`mod@tap`] | the workers' side: filter, copy, count |
//! | `headers` | IP and UDP headers for outer packets, which sockets do not show |
//! | `pcapng` | the interfaces of such a file |
//! | `stream` | from the queue into that format |
//! | [`mod@copy`] | the file format, followed block by block into a file |

pub mod copy;
mod headers;
mod pcapng;
mod stream;
pub mod tap;

use serde::{Deserialize, Serialize};

pub use headers::Outer;
pub use stream::stream;
pub use tap::{Captures, Direction, Tap, TapReader, Taps};

/// Captures that may run at once.
pub const TAPS_MAX: usize = 4;
/// Packets of one capture and one worker that may wait to be written.
pub const QUEUE_PACKETS_MAX: usize = 4096;
/// Bytes of one capture and one worker that may wait to be written.
pub const QUEUE_BYTES_MAX: usize = 16 << 20;
/// Most bytes of one packet that are kept.
pub const SNAPLEN_MAX: u32 = 65_535 + 40;

/// Which packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layers {
    /// Inner and outer ones.
    #[default]
    Both,
    /// As the applications see them.
    Inner,
    /// As the network sees them.
    Outer,
}

/// What to capture, and for how long.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// Inner, outer, or both.
    pub layers: Layers,
    /// Only packets of this peer, by name or by the beginning of its key.
    pub peer: Option<String>,
    /// Keep at most so many bytes of each packet.
    pub snaplen: u32,
    /// End after so many packets.
    pub count: Option<u64>,
    /// End after so many milliseconds.
    pub time_ms: Option<u64>,
}

impl Default for Filter {
    fn default() -> Self {
        Self { layers: Layers::Both, peer: None, snaplen: SNAPLEN_MAX, count: None, time_ms: None }
    }
}
