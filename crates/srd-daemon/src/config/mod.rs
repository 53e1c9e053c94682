//! The file `srd.toml`, read and checked: code that holds a [`Config`] does not need to check
//! again.
//!
//! ```text
//!   text --file--> Document, each value with its position --check--> Config
//!                                                         \--------> ConfigError: file, line,
//!                                                                    column, problem, remedy
//! ```
//!
//! Properties of a checked configuration: keys are read; every peer differs from every other (by
//! key, or by address without encryption); no inner address lies behind two peers; the ports of all
//! paths exist.
//!
//! | module | contents |
//! |---|---|
//! | `file` | the form of the file, with the position of each value |
//! | `check` | from that form to a [`Config`] |
//! | `address` | addresses that an interface or a peer can have |
//! | `metrics` | address and host names of the metrics server |
//! | `routes` | the routing table, and checks for routing loops |
//! | [`diff`] | the difference between two configurations |
//! | [`edit`] | adds or removes one peer, by command |
//! | [`endpoint`] | the endpoint of a peer: an address, or a name |
//! | `several` | one address, or one for each network card |
//! | `back_end`, `workers` | the packet back end, and the number of its threads |
//! | [`wireguard`] | a configuration from a file of WireGuard's |
//!
//! Bounds: a file has at most [`FILE_BYTES_MAX`], [`PEERS_MAX`] peers, and [`ALLOWED_MAX`]
//! prefixes behind each.

mod address;
mod back_end;
mod check;
pub mod diff;
pub mod edit;
pub mod endpoint;
pub mod file;
mod metrics;
mod number;
mod routes;
mod several;
#[cfg(test)]
mod tests;
pub mod wireguard;
mod workers;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use srd_net::PollMode;
use srd_net::xdp::IoChoice;

use crate::hooks::{self, Hooks};
use crate::keys::{PublicKey, SecretKey};

pub use diff::{Difference, PeerChange, ReloadReport};
pub use edit::PeerForm;
pub use endpoint::HostPort;
pub(crate) use several::in_words;
pub use srd_config::ConfigError;

/// Number of paths if the file sets none.
const PATHS_DEFAULT: i64 = 64;

/// Largest number of bytes of a configuration file.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// Largest number of peers.
pub const PEERS_MAX: usize = 1024;
/// The interface of `srd up --try`, which leaves nothing behind.
pub const TRY_INTERFACE: &str = "srdtry0";
/// Largest number of host names of the metrics server.
pub const HOST_NAMES_MAX: usize = 16;
/// Largest number of prefixes behind one peer.
pub const ALLOWED_MAX: usize = 256;

/// Word that means all peers in commands. No peer may have this name.
pub const ALL_PEERS: &str = "all";

/// A checked configuration.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// The file that the configuration was read from.
    pub file: PathBuf,
    /// The interface and the transport under it.
    pub interface: Interface,
    /// The control socket.
    pub control: Control,
    /// Metrics and web page; absent: off.
    pub metrics: Option<Metrics>,
    /// The peers, in the order of the file.
    pub peers: Vec<PeerSettings>,
}

/// The TUN device and the transport under it.
#[derive(Clone, PartialEq, Debug)]
pub struct Interface {
    /// Name of the interface.
    pub name: String,
    /// Relation of inner addresses to outer ones.
    pub mode: Mode,
    /// Addresses of the interface: at least one in [`Mode::Overlay`], none in
    /// [`Mode::Transparent`].
    pub address: Vec<IpNet>,
    /// Protection of packets: encryption, or none.
    pub protection: Protection,
    /// Address that packets are received at. Its port is the first of the paths' ports.
    pub listen: SocketAddr,
    /// Further addresses to receive at, with the same port: one for each network card.
    pub listen_further: Vec<IpAddr>,
    /// Largest inner packet; absent: what the outer MTU allows.
    pub mtu: Option<u16>,
    /// Paths per peer.
    pub paths: u16,
    /// Threads that move packets, each with paths of its own.
    pub workers: u8,
    /// Back end that sends and receives packets.
    pub io: IoChoice,
    /// Way in which its threads wait for packets.
    pub poll: PollMode,
    /// Speed of our own link in bits per second. Absent: the kernel reports it. Zero: unknown.
    pub link_rate_bps: Option<u64>,
    /// Whether packets use SRD.
    pub express: bool,
    /// Whether UDP packets use SRD, too.
    pub express_udp: bool,
    /// Whether tunnels without ports use SRD, too: GRE, ESP, IP in IP.
    pub express_tunnels: bool,
    /// Order of UDP flows: kept or bypassed.
    pub udp_ordering: UdpOrdering,
    /// Longest wait for a hole in one flow.
    pub order_wait: Duration,
    /// Target delay of the queue management of each peer.
    pub queue_delay: Duration,
    /// The DSCP of the daemon's own packets.
    pub dscp: u8,
    /// Routing table of the interface.
    pub table: Table,
    /// Whether the prefixes behind peers stay unreachable after the daemon's end.
    pub kill_switch: bool,
    /// Commands at the start and the end.
    pub hooks: Hooks,
}

impl Interface {
    /// Whether an address is in one of the interface's own subnets. Routes of such a subnet lead
    /// into the interface, so no endpoint of a peer can be there.
    pub(crate) fn is_inside(&self, ip: std::net::IpAddr) -> bool {
        routes::leads_to_itself(ip, &self.address).is_some()
    }
}

/// Routing table that holds the routes of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Table {
    /// The table that belongs to the interface's name.
    #[default]
    Usual,
    /// The table with this number.
    Number(u32),
    /// No table: the administrator makes routes and rules.
    Off,
}

/// Relation of inner addresses to outer ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The interface has addresses of its own.
    #[default]
    Overlay,
    /// The interface takes packets between the machines' real addresses.
    Transparent,
}

/// Order of UDP flows; TCP packets are always delivered in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UdpOrdering {
    /// In order, as TCP.
    #[default]
    Ordered,
    /// Packets are delivered as they arrive.
    Bypass,
}

/// Protection of packets.
#[derive(Clone, PartialEq, Debug)]
pub enum Protection {
    /// Packets are authenticated and encrypted under static keys. Holds our private key.
    Encrypted(SecretKey),
    /// No protection.
    Plain,
}

impl Protection {
    /// Our private key; `None` without encryption.
    pub fn private_key(&self) -> Option<&SecretKey> {
        match self {
            Self::Encrypted(key) => Some(key),
            Self::Plain => None,
        }
    }
}

/// The control socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Control {
    /// Path of the socket.
    pub socket: PathBuf,
    /// The group that may use the socket besides root.
    pub group: Option<Group>,
}

/// A group of this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Name of the group.
    pub name: String,
    /// Number of the group.
    pub id: u32,
}

/// Metrics and web page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metrics {
    /// Address of the server.
    pub listen: SocketAddr,
    /// Whether other machines may connect. Without it `listen` is a loopback address.
    pub allow_remote: bool,
    /// Host names that requests may use, besides addresses and the machine's own names.
    pub host_names: Vec<String>,
}

/// One peer.
#[derive(Clone, PartialEq, Debug)]
pub struct PeerSettings {
    /// Name of the peer; if the file sets none, the beginning of its key, or its address.
    pub name: String,
    /// Public key of the peer; always present with encryption.
    pub public_key: Option<PublicKey>,
    /// The additional key that both ends share.
    pub preshared_key: Option<SecretKey>,
    /// Address of the peer; always present without encryption. If the peer has a name, the address
    /// that is tried at present, and absent in a configuration that was just read.
    pub endpoint: Option<SocketAddr>,
    /// The name that the peer's addresses are resolved from, instead of a fixed address.
    pub host: Option<HostPort>,
    /// Further addresses of the peer, one for each of its network cards. Empty without `endpoint`.
    pub endpoints_further: Vec<SocketAddr>,
    /// Inner addresses behind the peer. At least one.
    pub allowed: Vec<IpNet>,
    /// Whether packets to the peer use SRD.
    pub express: bool,
    /// Whether UDP packets use SRD, too.
    pub express_udp: bool,
}

/// Path of the control socket of an interface, if the file sets none.
pub fn socket_default(interface: &str) -> PathBuf {
    Path::new("/run/srd").join(format!("{interface}.sock"))
}

impl Config {
    /// Reads and checks a file, and the key files that it names.
    ///
    /// # Errors
    /// The first error in the file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let (text, facts) = file::read(path)?;
        let config = Self::parse(&text, path)?;
        if !config.interface.hooks.is_empty() {
            let source = srd_config::Source { path, text: &text };
            hooks::check_owner(path, &facts)
                .map_err(|(what, remedy)| source.error(None, what, remedy))?;
        }
        Ok(config)
    }

    /// Checks the text of a file. Paths of key files are relative to the file's directory.
    ///
    /// # Errors
    /// The first error in the text.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let source = srd_config::Source { path, text };
        check::check(&source, file::parse(&source)?, check::Keys::Read)
    }

    /// Reads and checks a file, but not the key files that it names. The result is enough to remove
    /// the remains of a daemon, even if a key file is missing. Its keys are random.
    ///
    /// # Errors
    /// The first error in the file.
    pub fn load_without_keys(path: &Path) -> Result<Self, ConfigError> {
        let (text, _) = file::read(path)?;
        let source = srd_config::Source { path, text: &text };
        check::check(&source, file::parse(&source)?, check::Keys::Left)
    }
}
