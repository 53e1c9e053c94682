//! What needs privileges, in a process of its own: the one that reads guests' packets has none.
//!
//! ```text
//!   srd card up (no capability, not root)          srd card-helper (root, few capabilities)
//!     Helper::ask    --- Request, JSON ------>       namespaces, devices, routes, sockets, files
//!                    <-- Answer, JSON, fds ---
//!     ends, however  --- end of file -------->       gives everything back, and ends
//! ```
//!
//! The helper is told at its start what it may touch beside namespaces of instances (`Spec`):
//! sockets, directories of flow logs, the configuration. Requests name nothing else, and are looked
//! at before anything is done: `check`. Namespaces have names of instances, devices names as
//! `ens5`.
//!
//! Another card that takes over starts a helper of its own, and the card that runs hands it an
//! *heir's* end of its helper. A helper that has an heir gives nothing back until both ends are
//! closed; an heir asks for all that it holds (`Request::Hand`), and then has it forget
//! (`Request::Forget`). So at each moment of a take-over one of both gives back what there is,
//! whichever process dies.
//!
//! | module | what |
//! |---|---|
//! | `wire` | packets with descriptors |
//! | `check` | what a request may say |
//! | `client` | the card's side |
//! | `serve` | the helper's loop |
//! | `holds` | what it has made, and gives back |
//! | `files` | files that it opens for the card |
//! | `inspect` | namespaces and devices as other programs have left them |
//! | `upkeep` | what other programs have changed, and is put back |
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

use crate::namespace::Device;
use crate::place::Wanted;
use crate::protocol::NamespaceName;
use crate::state::Options;
use crate::world::Vpc;

pub(crate) use client::{Ending, Helper, Starting};
pub use serve::serve;
pub(crate) use upkeep::Upkeep;

/// Bytes of one request or answer.
pub(crate) const PACKET_BYTES_MAX: usize = 128 * 1024;
/// Descriptors of one packet: Linux takes 253.
const DESCRIPTORS_ONCE: usize = 200;
/// Descriptors of one answer.
const DESCRIPTORS_MAX: usize = 65_536;
/// Requests that wait to be done in their order.
const JOBS_MAX: usize = 1024;
/// Instances that one request makes.
pub(crate) const MADE_AT_ONCE: usize = 16;
/// Addresses, namespaces and devices that one request names.
pub(crate) const NAMED_MAX: usize = 2048;

/// What a helper may touch beside namespaces of instances.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spec {
    /// Where the card shall be asked.
    pub(crate) socket: PathBuf,
    /// Where it listens until it has taken over; the same otherwise.
    pub(crate) listens: PathBuf,
    /// Sockets of vhost-user. An interface that is not the primary one has the name of its device
    /// behind the path.
    pub(crate) vhost_user: BTreeSet<PathBuf>,
    /// Directories of flow logs.
    pub(crate) logs: BTreeSet<String>,
    /// The configuration, which is read again.
    pub(crate) config: Option<PathBuf>,
    /// Whether there is an internet's side.
    pub(crate) internet: bool,
    /// Whether that carries private addresses.
    pub(crate) internet_private: bool,
    /// Whether another card runs, whose duties come later.
    pub(crate) takes_over: bool,
}

/// What the helper of a card with these options may touch. `listens`: where the card listens at
/// first.
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

/// What the helper is asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
enum Request {
    /// Make the places of instances, each with its devices and resolver. All or none.
    Make(Vec<Wanted>),
    /// Remove namespaces that earlier cards have left, but for these.
    Sweep(BTreeSet<NamespaceName>),
    /// Remove a namespace, if no program runs in it; end those that do before that.
    Remove { namespace: NamespaceName, ends_programs: bool },
    /// Make a device again that was deleted.
    Device {
        namespace: NamespaceName,
        /// Its place among those of the instance.
        number: usize,
        /// Whether there are others.
        several: bool,
        device: Device,
        queues: u16,
        ring: u32,
    },
    /// Open more queues of a device with this name now.
    Queues { namespace: NamespaceName, device: String, more: u16 },
    /// Give the rings of a device so many entries.
    Ring { namespace: NamespaceName, device: String, entries: u32 },
    /// Report what other programs have changed, also of these namespaces and devices.
    Look(Vec<(NamespaceName, Vec<Device>)>),
    /// Put back what other programs have changed of these namespaces and devices, and of the
    /// forwarding of packets.
    Restore(Vec<(NamespaceName, Vec<Device>)>),
    /// Read what the kernel has dropped at devices.
    Drops(Vec<(NamespaceName, Vec<String>)>),
    /// Make the device of the internet's side, with routes of these addresses.
    Edge(BTreeSet<Ipv4Addr>),
    /// Route these addresses to the internet's side, all or none, and others not any more.
    Route { add: BTreeSet<Ipv4Addr>, remove: BTreeSet<Ipv4Addr> },
    /// Give namespaces these resolvers, or none.
    Resolvers(Vec<(NamespaceName, Option<Ipv4Addr>)>),
    /// End the programs in these namespaces.
    End(BTreeSet<NamespaceName>),
    /// Meet a front end of vhost-user.
    Vhost { path: PathBuf, meets: Meet },
    /// Remove the socket of one.
    VhostGone(PathBuf),
    /// Open a new file of a flow log.
    Log { directory: String, stem: String, ending: String },
    /// A file is complete, or is to be removed.
    LogEnded { directory: String, name: String, is_whole: bool },
    /// Open the file of a cloud.
    Vpc(PathBuf),
    /// Read the configuration again, and open the file of its cloud.
    Reload,
    /// Make an end of this helper for another card.
    Heir,
    /// Take all that the helper has whose end comes with this.
    TakeOn,
    /// Of an heir: hand everything over.
    Hand,
    /// Of an heir: another helper has the duty.
    Forget,
}

/// How a device of vhost-user meets its front end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Meet {
    /// It listens.
    Listens,
    /// It listens in the place of another process, which ends.
    Replaces,
    /// It connects.
    Joins,
}

/// What the helper answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
enum Answer {
    /// It was done. Descriptors come in the order of what was asked for.
    Done,
    /// It was not; why.
    Failed {
        what: String,
        /// A program is missing, or a privilege.
        is_missing: bool,
    },
    /// The places, by the names of instances: the queues of each device. Those whose namespaces
    /// have programs in the way are missing.
    Made { places: Vec<MadePlace>, udp_segmentation: bool },
    /// Queues of a device.
    Queues { count: u16, udp_segmentation: bool },
    /// Changes by other programs.
    Upkeep(Upkeep),
    /// Drops of each device, if there is one of its name.
    Drops(Vec<Vec<Option<u64>>>),
    /// The name of a file that was opened.
    Log(String),
    /// Whether the file that comes with this is one of a cloud, and its path; which settings differ
    /// that are not changed.
    Reloaded { vpc: Option<PathBuf>, others: Vec<String> },
    /// The namespaces that are held now.
    Taken(BTreeSet<NamespaceName>),
}

/// A place that was made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MadePlace {
    instance: String,
    /// Whether an earlier card has left it, with programs inside.
    is_found: bool,
    /// Queues of each device.
    queues: Vec<u16>,
}

/// A packet, either way.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Message<T> {
    /// The number of the request. Nobody waits for an answer to number zero.
    id: u64,
    /// None: more descriptors follow.
    body: Option<T>,
}

/// All that a helper holds, for another one; the locks of the namespaces come with it, in their
/// order.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Held {
    namespaces: Vec<NamespaceName>,
    /// Namespaces that programs keep: they are looked at once more.
    left: BTreeSet<NamespaceName>,
    resolvers: BTreeMap<NamespaceName, Ipv4Addr>,
    /// Whether this machine forwarded packets before, as the kernel writes it.
    forward: Option<String>,
    /// Files of sockets of vhost-user: device and inode.
    sockets: Vec<(PathBuf, (u64, u64, u64))>,
}
