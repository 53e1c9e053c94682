//! Options and errors of binding an endpoint.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use srd_proto::{Config, ConfigError, Duration, Ecn};

use crate::io::PollMode;

/// Default time to spin for a packet before sleeping. Waking a sleeping thread costs 10 us and
/// more, and most answers come sooner.
const SPIN: Duration = Duration::from_micros(50);

/// Options of binding an endpoint. [`BindOptions::default`] suits a client: every address, a free
/// run of ports, plain packets.
#[derive(Clone, Debug)]
pub struct BindOptions {
    /// The local address. With the unspecified address (0.0.0.0 for IPv4, :: for both families)
    /// the route determines the source address of packets; on a host with several addresses bind
    /// the one that peers use.
    pub address: IpAddr,
    /// The port that peers send to, and the first of the source ports. Zero: found.
    pub base_port: u16,
    /// Whether a path may leave from any free port when the one behind a given base port is taken:
    /// for hosts where many endpoints choose their ports without each other.
    pub paths_anywhere: bool,
    /// The core's configuration. Its `local_port` is set by binding, and what the next two
    /// options find out.
    pub config: Config,
    /// Whether `config.packet_bytes_max` is replaced by what the local interface passes.
    pub packet_bytes_from_interface: bool,
    /// Whether an unknown `config.link_rate_bps` (zero) is replaced by the interface's speed,
    /// where it is known.
    pub link_rate_from_interface: bool,
    /// Way of waiting for packets. By default: spin for 50 us after the last one, then sleep.
    pub poll: PollMode,
    /// Requested receive buffer, in bytes (see [`UdpOptions::receive_buffer_bytes`]).
    pub receive_buffer_bytes: u32,
    /// Requested send buffer for each path, in bytes.
    pub send_buffer_bytes: u32,
    /// Whether to use segmentation offload where the kernel has it.
    pub segmentation: bool,
    /// Datagrams that may wait for `recv`. Beyond it peers have to try again (RNR).
    pub receive_queue_datagrams: u32,
    /// Time for which an endpoint that is dropped waits for acknowledgements of its last
    /// datagrams.
    pub linger: Duration,
}

impl Default for BindOptions {
    fn default() -> Self {
        Self {
            address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            base_port: 0,
            paths_anywhere: false,
            config: Config::sockets(),
            packet_bytes_from_interface: true,
            link_rate_from_interface: true,
            poll: PollMode::Adaptive(SPIN),
            receive_buffer_bytes: 32 << 20,
            send_buffer_bytes: 4 << 20,
            segmentation: true,
            receive_queue_datagrams: 8192,
            linger: Duration::from_secs(1),
        }
    }
}

/// Options of the UDP sockets.
#[derive(Clone, Debug)]
pub struct UdpOptions {
    /// The address to bind, with the base port. `::` carries IPv4 and IPv6. Port zero: a free run
    /// of ports is found.
    pub address: SocketAddr,
    /// Further local addresses, with the same ports: paths take turns over all of them.
    pub further: Vec<IpAddr>,
    /// Paths: source ports from the base port on. 1 to 256.
    pub paths: u16,
    /// Whether a path leaves from any free port when the one behind the base port is taken.
    pub paths_anywhere: bool,
    /// The ECN field of most packets (the others pay for a control message).
    pub ecn: Ecn,
    /// The DSCP of every packet, 0 to 63: what is above the ECN field.
    pub dscp: u8,
    /// Way of waiting.
    pub poll: PollMode,
    /// Requested receive buffer, in bytes. Without privilege the system caps it at
    /// `net.core.rmem_max`.
    pub receive_buffer_bytes: u32,
    /// Requested send buffer for each path, in bytes.
    pub send_buffer_bytes: u32,
    /// Whether to use segmentation offload where the kernel has it.
    pub segmentation: bool,
    /// A mark on every packet that leaves (`SO_MARK`). Takes `CAP_NET_ADMIN`.
    pub mark: Option<u32>,
}

impl UdpOptions {
    /// The defaults at `address`.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            further: Vec::new(),
            paths: 64,
            paths_anywhere: false,
            ecn: Ecn::Ect,
            dscp: 0,
            poll: PollMode::Block,
            receive_buffer_bytes: 16 << 20,
            send_buffer_bytes: 4 << 20,
            segmentation: true,
            mark: None,
        }
    }
}

impl BindOptions {
    /// The defaults at a local address and port.
    pub fn at(address: SocketAddr) -> Self {
        Self { address: address.ip(), base_port: address.port(), ..Self::default() }
    }
}

/// Reason why an endpoint could not be bound.
#[derive(Debug)]
#[non_exhaustive]
pub enum BindError {
    /// The operating system refused.
    Io(io::Error),
    /// A knob is out of range.
    Config(ConfigError),
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(e) => write!(f, "{e}"),
            Self::Config(e) => write!(f, "{e}"),
        }
    }
}

impl std::error::Error for BindError {}

impl From<BindError> for io::Error {
    fn from(e: BindError) -> Self {
        match e {
            BindError::Io(e) => e,
            BindError::Config(e) => Self::new(io::ErrorKind::InvalidInput, e.to_string()),
        }
    }
}
