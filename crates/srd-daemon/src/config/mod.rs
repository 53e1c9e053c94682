//! The file `srd.toml`, read and checked: code that holds a [`Config`] need not check again.
//!
//! ```text
//!   text --file--> Document, each value with its place --check--> Config
//!                                                      \--------> ConfigError: file, line,
//!                                                                 column, what, remedy
//! ```
//!
//! What a checked configuration promises: keys are read, every peer can be told from every
//! other (by key, or by address without encryption), no inner address lies behind two peers,
//! and the ports of all paths exist.
//!
//! | module | what |
//! |---|---|
//! | `file` | the form of the file, with the place of each value |
//! | `check` | from that form to a [`Config`] |
//! | `address` | addresses that can be |
//! | `metrics` | where metrics are served, and under which names |
//! | `routes` | what routing needs of it |
//! | [`diff`] | what changes between two |
//! | [`edit`] | one peer more or less, by command |
//! | [`endpoint`] | where a peer is: an address, or a name |
//! | `several` | one address, or one for each network card |
//! | `back_end`, `workers` | what moves packets, on how many threads |
//! | [`wireguard`] | the same from a file of WireGuard's |
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

/// Paths unless the file says.
const PATHS_DEFAULT: i64 = 64;

/// Most bytes of a configuration file.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// Most peers.
pub const PEERS_MAX: usize = 1024;
/// The interface of `srd up --try`, of which nothing stays.
pub const TRY_INTERFACE: &str = "srdtry0";
/// Most names of metrics.
pub const HOST_NAMES_MAX: usize = 16;
/// Most prefixes behind one peer.
pub const ALLOWED_MAX: usize = 256;

/// What commands call all peers together, so that none may have this name.
pub const ALL_PEERS: &str = "all";

/// A checked configuration.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// The file it was read from.
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
    /// Its name.
    pub name: String,
    /// How inner addresses relate to outer ones.
    pub mode: Mode,
    /// Its addresses: at least one in [`Mode::Overlay`], none in [`Mode::Transparent`].
    pub address: Vec<IpNet>,
    /// How packets are protected.
    pub protection: Protection,
    /// Where packets are received. Its port is the first of the paths' ports.
    pub listen: SocketAddr,
    /// Further addresses to receive at, with the same port: one for each network card.
    pub listen_further: Vec<IpAddr>,
    /// Largest inner packet; absent: what the outer MTU allows.
    pub mtu: Option<u16>,
    /// Paths per peer.
    pub paths: u16,
    /// Threads that move packets, each with paths of its own.
    pub workers: u8,
    /// What moves packets.
    pub io: IoChoice,
    /// How its threads wait for packets.
    pub poll: PollMode,
    /// Speed of our own link in bits per second: absent, the kernel is asked; zero, unknown.
    pub link_rate_bps: Option<u64>,
    /// Whether packets ride SRD.
    pub express: bool,
    /// Whether UDP does, too.
    pub express_udp: bool,
    /// Whether tunnels without ports do, too: GRE, ESP, IP in IP.
    pub express_tunnels: bool,
    /// How order is kept for UDP.
    pub udp_ordering: UdpOrdering,
    /// Longest wait for a hole in one flow.
    pub order_wait: Duration,
    /// Delay in a peer's queue that its management aims at.
    pub queue_delay: Duration,
    /// The DSCP of the daemon's own packets.
    pub dscp: u8,
    /// Where its routes stand.
    pub table: Table,
    /// Whether what lies behind peers stays unreachable after the daemon's end.
    pub kill_switch: bool,
    /// Commands at the start and the end.
    pub hooks: Hooks,
}

impl Interface {
    /// Whether an address is in one of the interface's own subnets: only peers lead there, so no
    /// peer can be there.
    pub(crate) fn is_inside(&self, ip: std::net::IpAddr) -> bool {
        routes::leads_to_itself(ip, &self.address).is_some()
    }
}

/// Where the routes of an interface stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Table {
    /// In the table that belongs to the interface's name.
    #[default]
    Usual,
    /// In this one.
    Number(u32),
    /// Nowhere: the administrator makes routes and rules.
    Off,
}

/// How inner addresses relate to outer ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The interface has addresses of its own.
    #[default]
    Overlay,
    /// Packets between the machines' real addresses are taken.
    Transparent,
}

/// How order is kept for UDP flows; TCP is always handed up in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UdpOrdering {
    /// As TCP.
    #[default]
    Ordered,
    /// Packets are handed up as they arrive.
    Bypass,
}

/// How packets are protected.
#[derive(Clone, PartialEq, Debug)]
pub enum Protection {
    /// Authenticated and encrypted under static keys; this is ours.
    Encrypted(SecretKey),
    /// Not at all.
    Plain,
}

impl Protection {
    /// Our private key, with encryption.
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
    /// Its path.
    pub socket: PathBuf,
    /// The group that may use it besides root.
    pub group: Option<Group>,
}

/// A group of this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: u32,
}

/// Metrics and web page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metrics {
    /// Where they are served.
    pub listen: SocketAddr,
    /// Whether others than this machine may ask. Without it `listen` is a loopback address.
    pub allow_remote: bool,
    /// Names under which they may be asked for, beside addresses and the machine's own names.
    pub host_names: Vec<String>,
}

/// One peer.
#[derive(Clone, PartialEq, Debug)]
pub struct PeerSettings {
    /// Its name; if the file gives none, the beginning of its key, or its address.
    pub name: String,
    /// Its public key; always there with encryption.
    pub public_key: Option<PublicKey>,
    /// The key that both share besides.
    pub preshared_key: Option<SecretKey>,
    /// Where it is; without encryption always there. Of a peer with a name, the address that is
    /// tried now; none in a configuration as it was read.
    pub endpoint: Option<SocketAddr>,
    /// The name that its addresses are found by, in place of a fixed one.
    pub host: Option<HostPort>,
    /// Its further addresses: one for each of its network cards. Empty without `endpoint`.
    pub endpoints_further: Vec<SocketAddr>,
    /// Inner addresses behind it. At least one.
    pub allowed: Vec<IpNet>,
    /// Whether packets to it ride SRD.
    pub express: bool,
    /// Whether UDP does, too.
    pub express_udp: bool,
}

/// Where the control socket of an interface is unless the file says otherwise.
pub fn socket_default(interface: &str) -> PathBuf {
    Path::new("/run/srd").join(format!("{interface}.sock"))
}

impl Config {
    /// Reads and checks a file, and the key files that it names.
    ///
    /// # Errors
    /// The first thing that is wrong.
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

    /// Checks the text of a file. Key files are looked for from the file's directory on.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let source = srd_config::Source { path, text };
        check::check(&source, file::parse(&source)?, check::Keys::Read)
    }

    /// Reads and checks a file, but not the key files that it names: enough to remove what a daemon
    /// has left, also when a key is gone. Its keys are random.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn load_without_keys(path: &Path) -> Result<Self, ConfigError> {
        let (text, _) = file::read(path)?;
        let source = srd_config::Source { path, text: &text };
        check::check(&source, file::parse(&source)?, check::Keys::Left)
    }
}
