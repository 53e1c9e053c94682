//! SRD over real UDP sockets.
pub mod clock;
mod driver;
mod endpoint;
mod engine;
pub mod io;
pub mod link;
mod local;
mod memory;
mod options;
pub mod raw;
mod sync;
mod sys;
mod udp;
mod wake;

pub use clock::Clock;
pub use driver::{News, Report};
pub use endpoint::{Closed, ConnectError, Endpoint, FlushError, Peer, Received, SendError};
pub use engine::{Application, Context};
pub use io::{IoStats, Notice, PacketIo, PollMode, Segments, Sent, Wait};
pub use link::{Link, detect_link_rate};
pub use local::LocalEndpoint;
pub use memory::{MemoryIo, MemoryNet, MemoryOptions};
pub use options::{BindError, BindOptions};
pub use udp::{UdpIo, UdpOptions};
pub use wake::IoWaker;
