//! SRD over real UDP sockets.
pub mod clock;
mod engine;
pub mod io;
pub mod link;
mod local;
mod memory;
mod options;
pub mod raw;
mod sys;
mod udp;
mod wake;

pub use clock::Clock;
pub use engine::{Application, Context};
pub use io::{IoStats, Notice, PacketIo, PollMode, Segments, Sent, Wait};
pub use link::{Link, detect_link_rate};
pub use local::LocalEndpoint;
pub use memory::{MemoryIo, MemoryNet, MemoryOptions};
pub use options::{BindError, BindOptions};
pub use udp::{UdpIo, UdpOptions};
pub use wake::IoWaker;
