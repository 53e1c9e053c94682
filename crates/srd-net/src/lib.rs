//! SRD over real UDP sockets.
pub mod clock;
pub mod io;
pub mod link;
pub mod raw;
mod sys;
mod udp;
mod wake;

pub use clock::Clock;
pub use io::{IoStats, Notice, PacketIo, PollMode, Segments, Sent, Wait};
pub use link::{Link, detect_link_rate};
pub use udp::{UdpIo, UdpOptions};
pub use wake::IoWaker;
