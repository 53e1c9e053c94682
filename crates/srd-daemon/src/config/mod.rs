//! The file `srd.toml`: reads and checks it. A [`Config`] is always valid, so code that uses one
//! does not check it again.
//!
//! ```text
//!   text --file--> Document, each value with its position --check--> Config
//!                                                         \--------> ConfigError: file, line,
//!                                                                    column, problem, remedy
//! ```
//!
//! Properties of a checked configuration: all keys have been read; no two peers have the same key
//! (without encryption: the same address); no prefix lies behind two peers; every path has a valid
//! port.
//!
//! | module | contents |
//! |---|---|
//! | `file` | the structure of the file, with the position of each value |
//! | `check` | converts the parsed file to a [`Config`] |
//! | `address` | addresses that an interface or a peer can have |
//! | [`cloud`] | instances of virtual private clouds on this host |
//! | `card` | files of the form `card.toml`, which earlier versions had for instances |
//! | `key_files` | files with keys |
//! | `metrics` | address and host names of the metrics server |
//! | `peers` | checks of peers |
//! | `routes` | the routing table, and checks for routing loops |
//! | [`diff`] | the difference between two configurations |
//! | [`edit`] | adds or removes one peer, by command |
//! | [`endpoint`] | the endpoint of a peer: an address, or a name |
//! | [`enrol`] | the controller at which this host enrols, and the peers that it sends |
//! | `several`, `number` | values with one address, or one for each network card; whole numbers |
//! | `back_end`, `workers` | the packet back end, and the number of its threads |
//! | [`wireguard`] | converts a configuration file of WireGuard |
//!
//! Bounds: a file has at most [`FILE_BYTES_MAX`] bytes and [`PEERS_MAX`] peers, and each peer at
//! most [`ALLOWED_MAX`] prefixes.

mod address;
mod back_end;
mod card;
mod check;
pub mod cloud;
pub mod diff;
pub mod edit;
pub mod endpoint;
pub mod enrol;
pub mod file;
mod key_files;
mod metrics;
mod number;
mod peers;
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

pub use cloud::Cloud;
pub use diff::{Difference, PeerChange, ReloadReport};
pub use edit::PeerForm;
pub use endpoint::HostPort;
pub use enrol::Enrol;
pub(crate) use several::in_words;
pub use srd_config::ConfigError;

/// Number of paths to each peer if the file does not set it.
const PATHS_DEFAULT: i64 = 64;

/// Largest number of bytes of a configuration file.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// Largest number of peers.
pub const PEERS_MAX: usize = 1024;
/// Largest number of peers in [`Mode::Cloud`].
pub const HOSTS_MAX: usize = 4096;
/// Name of the interface of `srd up --try`, a trial that leaves no traces on the machine.
pub const TRY_INTERFACE: &str = "srdtry0";
/// Largest number of additional host names of the metrics server.
pub const HOST_NAMES_MAX: usize = 16;
/// Largest number of prefixes behind one peer.
pub const ALLOWED_MAX: usize = 256;

/// Word that means all peers in commands. No peer may have this name.
pub const ALL_PEERS: &str = "all";

/// A checked configuration.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// The file that the configuration was read from; an empty path if no file contains it
    /// ([`Config::has_file`]).
    pub file: PathBuf,
    /// Settings of the interface and of the transport that carries its packets.
    pub interface: Interface,
    /// Settings of the control socket.
    pub control: Control,
    /// Settings of the server for metrics and the web page; `None`: the server is off.
    pub metrics: Option<Metrics>,
    /// The peers, in the order of the file; those of the controller follow.
    pub peers: Vec<PeerSettings>,
    /// The controller at which this host enrols; `None`: the file contains the address and all
    /// peers.
    pub enrol: Option<Enrol>,
    /// The instances of virtual private clouds on this host; `None`: there are no instances. Always
    /// present in [`Mode::Cloud`].
    pub cloud: Option<Cloud>,
}

/// Settings of the TUN device and of the transport that carries its packets.
#[derive(Clone, PartialEq, Debug)]
pub struct Interface {
    /// Name of the interface.
    pub name: String,
    /// Whether the interface has addresses of its own, or the peers' real addresses are used.
    pub mode: Mode,
    /// Addresses of the interface: at least one in [`Mode::Overlay`], none in the other modes.
    pub address: Vec<IpNet>,
    /// Protection of packets: encryption, or none.
    pub protection: Protection,
    /// Address and first UDP port at which packets are received. Each path of each worker has a
    /// port; these ports follow the first port.
    pub listen: SocketAddr,
    /// Further addresses at which packets are received, one for each additional network card; the
    /// ports are the same as with `listen`.
    pub listen_further: Vec<IpAddr>,
    /// MTU of the interface in bytes; `None`: as large as the MTU of the network permits.
    pub mtu: Option<u16>,
    /// Number of paths to each peer.
    pub paths: u16,
    /// Number of threads that process packets; each has its own ports and paths.
    pub workers: u8,
    /// Method of sending and receiving packets: UDP sockets or AF_XDP.
    pub io: IoChoice,
    /// Method by which the worker threads wait for packets.
    pub poll: PollMode,
    /// Rate of our own link in bits per second. `None`: the rate that the kernel reports. Zero: not
    /// known.
    pub link_rate_bps: Option<u64>,
    /// Whether packets are sent over SRD; if false, all are sent plainly.
    pub express: bool,
    /// Whether UDP packets are sent over SRD, in addition to TCP packets.
    pub express_udp: bool,
    /// Whether packets of tunnels without ports (GRE, ESP, IP in IP) are sent over SRD.
    pub express_tunnels: bool,
    /// Whether UDP packets of a flow are delivered in their order of sending, or as they arrive.
    pub udp_ordering: UdpOrdering,
    /// Longest time that later packets of a flow wait for a missing packet.
    pub order_wait: Duration,
    /// Target delay of the queue of inner packets to each peer; packets that wait longer are marked
    /// or dropped.
    pub queue_delay: Duration,
    /// The DSCP of the outer packets.
    pub dscp: u8,
    /// Routing table that holds the routes into the interface.
    pub table: Table,
    /// Whether the prefixes behind peers stay unreachable after the daemon has ended.
    pub kill_switch: bool,
    /// Commands of the operator when the interface comes up and goes down.
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
    /// The table whose number belongs to the interface's name: 7471 for `srd0`.
    #[default]
    Usual,
    /// The table with this number.
    Number(u32),
    /// No table: the administrator creates routes and rules.
    Off,
}

/// Relation between the addresses of inner packets and those of outer packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The interface has addresses of its own: inner packets use them, outer packets the machines'
    /// real addresses.
    #[default]
    Overlay,
    /// The interface has no addresses: inner packets have the machines' real addresses, as outer
    /// packets do.
    Transparent,
    /// There is no interface: the transport carries only packets of instances of clouds.
    Cloud,
}

/// Order of UDP flows; TCP packets are always delivered in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UdpOrdering {
    /// UDP packets of a flow are delivered in their order of sending, as TCP packets are.
    #[default]
    Ordered,
    /// UDP packets are delivered as they arrive.
    Bypass,
}

/// Protection of packets.
#[derive(Clone, PartialEq, Debug)]
pub enum Protection {
    /// Packets are encrypted and authenticated, with static keys as the identities. Contains our
    /// private key.
    Encrypted(SecretKey),
    /// Packets are neither encrypted nor authenticated.
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

/// Settings of the control socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Control {
    /// Path of the socket.
    pub socket: PathBuf,
    /// Whether the file contains the path. Otherwise it is the default of the interface.
    pub is_named: bool,
    /// Whether the command line contains the path. The path then stays at a reload.
    pub is_chosen: bool,
    /// The group whose members may use the socket; `None`: only root and the daemon's user may use
    /// it.
    pub group: Option<Group>,
    /// Whether members of the group may capture packets.
    pub group_captures: bool,
}

impl Control {
    /// Settings of a socket at this path, which only root and the daemon's user may use.
    pub fn at(socket: PathBuf) -> Self {
        let (group, group_captures) = (None, false);
        Self { socket, is_named: true, is_chosen: true, group, group_captures }
    }

    /// Sets the path that the command line contains.
    pub fn choose(&mut self, socket: PathBuf) {
        (self.socket, self.is_chosen) = (socket, true);
    }
}

/// A user group of this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Name of the group.
    pub name: String,
    /// Number of the group.
    pub id: u32,
}

/// Settings of the server for metrics and the web page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metrics {
    /// Address and port at which the server listens.
    pub listen: SocketAddr,
    /// Whether other machines may connect. If false, `listen` is a loopback address.
    pub allow_remote: bool,
    /// Host names that requests may use in addition to addresses and the machine's own names.
    pub host_names: Vec<String>,
}

/// Settings of one peer.
#[derive(Clone, PartialEq, Debug)]
pub struct PeerSettings {
    /// Name of the peer; if the file sets none, the beginning of its key, or its address.
    pub name: String,
    /// Public key of the peer; always present with encryption.
    pub public_key: Option<PublicKey>,
    /// The preshared key: an additional secret that both ends have; `None`: there is no such key.
    pub preshared_key: Option<SecretKey>,
    /// Address of the peer; always present without encryption. If the peer has a host name, this is
    /// the address that is tried at present, or `None` until the name is resolved.
    pub endpoint: Option<SocketAddr>,
    /// The host name from which the peer's addresses are resolved; `None` if the file contains
    /// fixed addresses.
    pub host: Option<HostPort>,
    /// Further addresses of the peer, one for each additional network card. Empty if `endpoint` is
    /// `None`.
    pub endpoints_further: Vec<SocketAddr>,
    /// Name of the peer in the file that describes the clouds; `None`: the peer is not a host of
    /// the clouds.
    pub cloud_host: Option<String>,
    /// Prefixes of inner addresses behind the peer: packets to them are sent to it. At least one,
    /// unless the peer is a host of the clouds.
    pub allowed: Vec<IpNet>,
    /// Whether packets to the peer are sent over SRD; if false, all are sent plainly.
    pub express: bool,
    /// Whether UDP packets to the peer are sent over SRD, in addition to TCP packets.
    pub express_udp: bool,
}

/// Path of the control socket of an interface if the file does not set it.
pub fn socket_default(interface: &str) -> PathBuf {
    Path::new("/run/srd").join(format!("{interface}.sock"))
}

impl Config {
    /// Returns the configuration of a host with these instances, and without an interface and other
    /// hosts. No file contains it.
    ///
    /// # Panics
    /// Never, because the text that has all other defaults is valid.
    pub fn of_instances(cloud: Cloud, control: Control) -> Self {
        let defaults = Self::parse("[cloud]\n", Path::new("")).expect("a table without keys");
        Self { cloud: Some(cloud), control, ..defaults }
    }

    /// Whether a file contains this configuration.
    pub fn has_file(&self) -> bool {
        !self.file.as_os_str().is_empty()
    }

    /// Reads and checks the file of this configuration again. A control socket that the command
    /// line has chosen stays.
    ///
    /// # Errors
    /// The first error in the file; there is no file.
    pub fn load_again(&self) -> Result<Self, ConfigError> {
        if !self.has_file() {
            return Err(ConfigError {
                file: PathBuf::from("the command line"),
                place: None,
                what: String::from("it contains all settings, and there is no file to read"),
                remedy: String::from(
                    "`srd card apply FILE` applies the file of a VPC; for a reload, start again \
                     with a file of settings: srd card up -c FILE",
                ),
            });
        }
        let mut fresh = Self::load(&self.file)?;
        if self.control.is_chosen {
            fresh.control.choose(self.control.socket.clone());
        }
        Ok(fresh)
    }

    /// Reads and checks a file, and the key files that it names.
    ///
    /// # Errors
    /// The first error in the file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let (text, facts) = file::read(path)?;
        let source = srd_config::Source { path, text: &text };
        let document = file::parse(&source)?;
        let hook = document.first_hook();
        let config = check::check(&source, document, key_files::Keys::Read)?;
        if hook.is_some() {
            hooks::check_owner(path, &facts)
                .map_err(|(what, remedy)| source.error(hook, what, remedy))?;
        }
        Ok(config)
    }

    /// Parses and checks the text of a file, and reads the key files that it names. Their paths are
    /// relative to the directory of `path`.
    ///
    /// # Errors
    /// The first error in the text.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let source = srd_config::Source { path, text };
        check::check(&source, file::parse(&source)?, key_files::Keys::Read)
    }

    /// Reads and checks a file, but not the key files that it names: every key of the result is
    /// random. The result is enough to remove the routes and rules of an earlier daemon, even if a
    /// key file is missing.
    ///
    /// # Errors
    /// The first error in the file.
    pub fn load_without_keys(path: &Path) -> Result<Self, ConfigError> {
        let (text, _) = file::read(path)?;
        let source = srd_config::Source { path, text: &text };
        check::check(&source, file::parse(&source)?, key_files::Keys::Left)
    }
}
