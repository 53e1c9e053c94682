//! The helper: a separate process for work that needs privileges. The process that reads guests'
//! packets runs without privileges.
//!
//! ```text
//!   srd card up (no capability, not root)          srd card-helper (root, few capabilities)
//!     Helper::ask    --- Request, JSON ------>       namespaces, devices, routes, sockets, files
//!                    <-- Answer, JSON, fds ---
//!     ends, however  --- end of file -------->       gives everything back, and ends
//! ```
//!
//! The start settings of the helper (`Spec`) list the objects that it may touch in addition to
//! namespaces of instances: sockets, directories of flow logs, the configuration. Requests can name
//! nothing else, and are checked before any work begins: `check`. Namespaces have names of
//! instances, devices have names like `ens5`.
//!
//! Another card that takes over starts its own helper, and the card that runs hands it an *heir's*
//! end of its helper. A helper that has an heir gives nothing back until both ends are closed. The
//! heir requests all objects of the helper (`Request::Hand`), and then makes it forget them
//! (`Request::Forget`). So at each moment of a take-over exactly one helper gives the objects back,
//! whichever process ends.
//!
//! | module | contents |
//! |---|---|
//! | `wire` | packets with descriptors |
//! | `check` | checks of requests |
//! | `client` | the card's side |
//! | `serve` | the helper's loop |
//! | `holds` | objects that the helper has made, and gives back |
//! | `files` | files that the helper opens for the card |
//! | `inspect` | namespaces and devices after changes by other programs |
//! | `upkeep` | repairs of changes by other programs |
//!
//! Bounds: a packet has `PACKET_BYTES_MAX` bytes and `DESCRIPTORS_ONCE` descriptors;
//! `JOBS_MAX` requests wait.

mod check;
mod client;
mod files;
mod holds;
mod inspect;
mod serve;
#[cfg(test)]
mod tests;
mod upkeep;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cloud::world::Vpc;
use crate::control::protocol::NamespaceName;
use crate::machine::namespace::Device;
use crate::machine::place::NetworkRequest;
use crate::state::Options;

pub(crate) use client::{Ending, Helper, Starting};
pub use serve::serve;
pub(crate) use upkeep::Upkeep;

/// Maximum size of one request or answer in bytes.
pub(crate) const PACKET_BYTES_MAX: usize = 128 * 1024;
/// Descriptors in one packet: Linux allows 253.
const DESCRIPTORS_ONCE: usize = 200;
/// Maximum number of descriptors in one answer.
const DESCRIPTORS_MAX: usize = 65_536;
/// Maximum number of requests that wait; they are done in order.
const JOBS_MAX: usize = 1024;
/// Maximum number of instances that one request makes.
pub(crate) const MADE_AT_ONCE: usize = 16;
/// Maximum number of addresses, namespaces and devices in one request.
pub(crate) const NAMED_MAX: usize = 2048;

/// Objects that a helper may touch in addition to namespaces of instances.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spec {
    /// Socket at which the card takes requests.
    pub(crate) socket: PathBuf,
    /// Socket at which the card listens until it has taken over; otherwise equal to `socket`.
    pub(crate) listens: PathBuf,
    /// Sockets of vhost-user. If an interface is not the primary one, the name of its device
    /// follows the path.
    pub(crate) vhost_user: BTreeSet<PathBuf>,
    /// Directories of flow logs.
    pub(crate) logs: BTreeSet<String>,
    /// The configuration file, which can be read again.
    pub(crate) config: Option<PathBuf>,
    /// Whether this card has an internet's side.
    pub(crate) internet: bool,
    /// Whether the internet's side carries private addresses.
    pub(crate) internet_private: bool,
    /// Whether another card runs, whose objects are taken over later.
    pub(crate) takes_over: bool,
}

/// Returns the objects that the helper of a card with these options may touch. `listens`: the
/// socket at which the card listens at first.
pub(crate) fn spec(options: &Options, vpc: &Vpc, listens: &Path, takes_over: bool) -> Spec {
    Spec {
        socket: options.socket.clone(),
        listens: listens.to_owned(),
        vhost_user: options.vhost_user.values().cloned().collect(),
        logs: vpc.log_directories(),
        config: options.config.clone(),
        internet: options.internet,
        internet_private: options.internet_private,
        takes_over,
    }
}

/// A request to the helper.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
enum Request {
    /// Make the places of instances, each with its devices and resolver. All or none.
    Make(Vec<NetworkRequest>),
    /// Remove namespaces that earlier cards have left, except these.
    Sweep(BTreeSet<NamespaceName>),
    /// Remove a namespace if no program runs in it. With `ends_programs`, end its programs before.
    Remove { namespace: NamespaceName, ends_programs: bool },
    /// Make a deleted device again.
    Device {
        namespace: NamespaceName,
        /// Index of the device among those of the instance.
        number: usize,
        /// Whether the instance has several devices.
        several: bool,
        device: Device,
        queues: u16,
        ring: u32,
    },
    /// Open more queues of a device, which has this name now.
    Queues { namespace: NamespaceName, device: String, more: u16 },
    /// Set the size of a device's rings, in entries.
    Ring { namespace: NamespaceName, device: String, entries: u32 },
    /// Report changes by other programs, including those of these namespaces and devices.
    Look(Vec<(NamespaceName, Vec<Device>)>),
    /// Restore these namespaces and devices, and the forwarding of packets, after changes by other
    /// programs.
    Restore(Vec<(NamespaceName, Vec<Device>)>),
    /// Read the kernel's drops at devices.
    Drops(Vec<(NamespaceName, Vec<String>)>),
    /// Make the device of the internet's side, with routes of these addresses.
    Edge(BTreeSet<Ipv4Addr>),
    /// Route addresses to the internet's side, all or none, and remove other routes.
    Route { add: BTreeSet<Ipv4Addr>, remove: BTreeSet<Ipv4Addr> },
    /// Give namespaces these resolvers, or remove theirs.
    Resolvers(Vec<(NamespaceName, Option<Ipv4Addr>)>),
    /// End the programs in these namespaces.
    End(BTreeSet<NamespaceName>),
    /// Open the socket of a vhost-user device to its front end.
    Vhost { path: PathBuf, meets: Meet },
    /// Remove the socket of a vhost-user device.
    VhostGone(PathBuf),
    /// Open a new file of a flow log.
    Log { directory: String, stem: String, ending: String },
    /// Complete a file of a flow log, or remove it.
    LogEnded { directory: String, name: String, is_whole: bool },
    /// Open the file of a cloud.
    Vpc(PathBuf),
    /// Read the configuration again, and open the file of its cloud.
    Reload,
    /// Make an end of this helper for another card.
    Heir,
    /// Take over all objects of the helper whose end comes with this request.
    TakeOn,
    /// Hand everything over. Only an heir may send this.
    Hand,
    /// Forget everything, because another helper has it. Only an heir may send this.
    Forget,
}

/// Method by which a vhost-user device connects to its front end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Meet {
    /// The device listens.
    Listens,
    /// The device listens in place of another process, which ends.
    Replaces,
    /// The device connects.
    Joins,
}

/// An answer of the helper.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
enum Answer {
    /// The request was done. Descriptors come in the order of the requested objects.
    Done,
    /// The request failed, for this reason.
    Failed {
        what: String,
        /// Whether a program or a privilege is missing.
        is_missing: bool,
    },
    /// The places, by the names of instances: the queues of each device. An instance is missing if
    /// programs of an earlier card use its namespace.
    Made { places: Vec<MadePlace>, udp_segmentation: bool },
    /// Queues of a device.
    Queues { count: u16, udp_segmentation: bool },
    /// Changes by other programs.
    Upkeep(Upkeep),
    /// Drops of each device; `None` if there is no device of its name.
    Drops(Vec<Vec<Option<u64>>>),
    /// The name of a file that was opened.
    Log(String),
    /// The path of the cloud's file, which comes with this answer, if the cloud is in a file; and
    /// the settings that differ but are not applied.
    Reloaded { vpc: Option<PathBuf>, others: Vec<String> },
    /// The namespaces that are held now.
    Taken(BTreeSet<NamespaceName>),
}

/// A place that was made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MadePlace {
    instance: String,
    /// Whether an earlier card has left the namespace, with programs inside.
    is_found: bool,
    /// Queues of each device.
    queues: Vec<u16>,
}

/// A packet in either direction.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Message<T> {
    /// The number of the request. Number zero requests no answer.
    id: u64,
    /// `None` if more descriptors follow.
    body: Option<T>,
}

/// All objects of a helper, for another helper. The locks of the namespaces come with this, in the
/// order of the namespaces.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Inventory {
    namespaces: Vec<NamespaceName>,
    /// Namespaces that programs still use: they are checked once more at the end.
    left: BTreeSet<NamespaceName>,
    resolvers: BTreeMap<NamespaceName, Ipv4Addr>,
    /// Whether this machine forwarded packets before, as the kernel writes it.
    forward: Option<String>,
    /// Files of sockets of vhost-user: device and inode.
    sockets: Vec<(PathBuf, (u64, u64, u64))>,
}
