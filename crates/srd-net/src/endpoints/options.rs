//! Options and errors of binding an endpoint.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use srd_proto::{Config, ConfigError, Duration, Ecn};

use crate::back_ends::io::PollMode;

/// Default time of polling for a packet before a sleep. Waking a sleeping thread costs 10 us or
/// more, and most answers arrive earlier.
const SPIN: Duration = Duration::from_micros(50);

/// Options of binding an endpoint. [`BindOptions::default`] suits a client: every local address,
/// any free run of consecutive ports, packets without encryption.
#[derive(Clone, Debug)]
pub struct BindOptions {
    /// The local address. With the unspecified address (0.0.0.0 for IPv4, :: for both families) the
    /// route determines the source address of packets; on a host with several addresses, bind the
    /// address that peers use.
    pub address: IpAddr,
    /// The port that peers send to, and the first source port. Zero: binding chooses a free port.
    pub base_port: u16,
    /// Whether a path may use any free source port if its consecutive port is taken. Useful on
    /// hosts where many endpoints choose their ports independently.
    pub paths_anywhere: bool,
    /// Configuration of the protocol core. Binding sets its `local_port`, and also its
    /// `packet_bytes_max` and `link_rate_bps` if `packet_bytes_from_interface` and
    /// `link_rate_from_interface` are set.
    pub config: Config,
    /// Whether `config.packet_bytes_max` is replaced by the largest size that the local interface
    /// passes.
    pub packet_bytes_from_interface: bool,
    /// Whether a `config.link_rate_bps` of zero (unknown) is replaced by the speed of the
    /// interface, if the speed is known.
    pub link_rate_from_interface: bool,
    /// Whether the thread sleeps or polls while it waits for packets. By default it polls for 50 us
    /// after the last packet, and then sleeps.
    pub poll: PollMode,
    /// Requested size of the receive buffer, in bytes (see [`UdpOptions::receive_buffer_bytes`]).
    pub receive_buffer_bytes: u32,
    /// Requested size of the send buffer of each path, in bytes.
    pub send_buffer_bytes: u32,
    /// Whether to use segmentation offload if the kernel supports it.
    pub segmentation: bool,
    /// Largest number of datagrams that wait for `recv`. Beyond it peers have to try again (RNR).
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

/// Options of the UDP sockets of an endpoint.
#[derive(Clone, Debug)]
pub struct UdpOptions {
    /// The address to bind, with the base port. `::` serves IPv4 and IPv6. Port zero: binding
    /// chooses a free run of consecutive ports.
    pub address: SocketAddr,
    /// Further local addresses, with the same ports. Paths are distributed in turn over all local
    /// addresses.
    pub further: Vec<IpAddr>,
    /// Number of paths, which use consecutive source ports from the base port on. 1 to 256.
    pub paths: u16,
    /// Whether a path uses any free source port if its own port (the base port plus the path's
    /// number) is taken. If false, binding fails in this case.
    pub paths_anywhere: bool,
    /// The ECN field of most packets. A packet with another ECN field costs an additional control
    /// message.
    pub ecn: Ecn,
    /// The DSCP of every packet, 0 to 63: the six bits above the ECN field.
    pub dscp: u8,
    /// Whether the thread sleeps or polls while it waits for packets.
    pub poll: PollMode,
    /// Requested size of the receive buffer, in bytes. Without privilege the system limits the size
    /// to `net.core.rmem_max`.
    pub receive_buffer_bytes: u32,
    /// Requested size of the send buffer of each path, in bytes.
    pub send_buffer_bytes: u32,
    /// Whether to use segmentation offload if the kernel supports it.
    pub segmentation: bool,
    /// Mark of every packet that is sent (`SO_MARK`), which requires `CAP_NET_ADMIN`; `None`: no
    /// mark.
    pub mark: Option<u32>,
}

impl UdpOptions {
    /// Returns the default options at `address`.
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
    /// Returns the default options at a local address and port.
    pub fn at(address: SocketAddr) -> Self {
        Self { address: address.ip(), base_port: address.port(), ..Self::default() }
    }
}

/// Reason why an endpoint could not be bound.
#[derive(Debug)]
#[non_exhaustive]
pub enum BindError {
    /// The operating system refused a call.
    Io(io::Error),
    /// A setting is out of range.
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
