//! The helper: a separate process for work that needs privileges. The process that reads guests'
//! packets runs without privileges.
//!
//! ```text
//!   card of a node (no capability, not root)       srd card-helper (root, few capabilities)
//!     Helper::ask    --- Request, JSON ------>       namespaces, devices, routes, sockets, files
//!                    <-- Answer, JSON, fds ---
//!     ends, however  --- end of file -------->       removes all that it has made, and ends
//! ```
//!
//! The start settings of the helper (`Spec`) list the objects that it may touch in addition to
//! namespaces of instances: sockets, directories of flow logs, the configuration. Requests can name
//! nothing else, and are checked before any work begins: `check`. Namespaces have names of
//! instances, or belong to pods that root has announced: [`crate::machine::pods`].
//!
//! If another process takes a node over, the helper continues: the node that runs requests a second
//! connection (`Request::Another`) for that process. Both connections have the same rights, because
//! both processes are of the same program and the same user, or of root. When all connections are
//! closed, the helper removes all namespaces, devices and routes that it has made.
//!
//! | module | contents |
//! |---|---|
//! | `wire` | packets with descriptors |
//! | `check` | checks of requests |
//! | `publics` | public addresses that may be routed |
//! | `client` | the card's side |
//! | `start` | the card's side before it has threads |
//! | `serve` | the helper's loop |
//! | `holds` | objects that the helper has made, and removes at its end |
//! | `files` | files that the helper opens for the card |
//! | `inspect` | namespaces and devices after changes by other programs |
//! | `upkeep` | repairs of changes by other programs |
//!
//! A program that has taken control of the card may send anything. No request carries descriptors,
//! except that of a process of root which takes over. A connection on which others arrive is
//! closed, and another thread closes the descriptors, because closing them may block
//! ([`srd_trust::closing`]). The card gets no descriptor of a file that it may not open itself,
//! except a new file of a flow log: it gets a copy of the file of a cloud.
//!
//! Bounds: a packet has `PACKET_BYTES_MAX` bytes and `DESCRIPTORS_ONCE` descriptors;
//! `JOBS_MAX` requests wait.

mod check;
mod client;
mod files;
mod holds;
#[cfg(test)]
mod hostile_tests;
mod inspect;
mod publics;
mod serve;
mod start;
#[cfg(test)]
mod tests;
mod upkeep;
mod wire;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::cloud::world::Vpc;
use crate::control::protocol::NamespaceName;
use crate::machine::namespace::Device;
use crate::machine::place::NetworkRequest;
use crate::machine::pods::PodInterface;
use crate::state::Options;

pub(crate) use client::{Ending, Helper};
pub use serve::serve;
pub(crate) use start::Starting;
pub(crate) use upkeep::Upkeep;

/// Maximum size of one request or answer in bytes.
pub(crate) const PACKET_BYTES_MAX: usize = 128 * 1024;
/// Maximum number of descriptors in one packet. Linux allows 253.
const DESCRIPTORS_ONCE: usize = 200;
/// Maximum number of descriptors in one answer.
const DESCRIPTORS_MAX: usize = 65_536;
/// Maximum number of requests that wait for the helper's thread, which handles them in order.
const JOBS_MAX: usize = 1024;
/// Maximum number of connections of cards: the card that runs, and processes that take over.
const CARDS_MAX: usize = 4;
/// Text of the refusal of [`Request::Another`] while descriptors from a card are being closed. The
/// card recognizes the refusal by this text, and repeats the request.
const STILL_CLOSING: &str = "descriptors that a card has sent are still being closed: try again";
/// Maximum number of instances for which one request creates networks.
pub(crate) const MADE_AT_ONCE: usize = 16;
/// Maximum number of addresses, namespaces and devices in one request.
pub(crate) const NAMED_MAX: usize = 2048;

/// Objects that a helper may touch in addition to namespaces of instances.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spec {
    /// The control socket of the node, whose file the helper removes at the end.
    pub(crate) socket: PathBuf,
    /// Paths of the vhost-user sockets of primary interfaces. For another interface, the name of
    /// its device is appended to the path.
    pub(crate) vhost_user: BTreeSet<PathBuf>,
    /// Directories in which files of flow logs may be opened.
    pub(crate) logs: BTreeSet<String>,
    /// Whether the controller of the host sends the content of the VPC's file, which then permits
    /// no directory.
    pub(crate) is_of_controller: bool,
    /// The configuration file, which can be read again; `None` if there is no such file.
    pub(crate) config: Option<PathBuf>,
    /// Public addresses in the file of the cloud at the start. They come in an anonymous file,
    /// because a packet has no space for all of them.
    #[serde(skip)]
    pub(crate) publics: BTreeSet<Ipv4Addr>,
    /// Whether the network of this machine plays the role of the internet.
    pub(crate) internet: bool,
    /// Whether the internet's side carries private addresses.
    pub(crate) internet_private: bool,
}

/// Returns the objects that the helper of a card with these options may touch.
pub(crate) fn spec(options: &Options, vpc: &Vpc) -> Spec {
    let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    Spec {
        socket: absolute(&options.socket),
        vhost_user: options.vhost_user.values().cloned().collect(),
        logs: if options.is_of_controller { BTreeSet::new() } else { vpc.log_directories() },
        is_of_controller: options.is_of_controller,
        config: options.config.clone(),
        publics: Vpc::publics(&vpc.world()),
        internet: options.internet,
        internet_private: options.internet_private,
    }
}

/// A request to the helper.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
enum Request {
    /// Create the networks of these instances, all or none, each with its devices and resolver.
    Make(Vec<NetworkRequest>),
    /// Remove namespaces that earlier cards have left, except the namespaces of these instances.
    Sweep(BTreeSet<NamespaceName>),
    /// Remove a namespace if no program runs in it. With `ends_programs`, end its programs before.
    Remove { namespace: NamespaceName, ends_programs: bool },
    /// Create a deleted device again.
    Device {
        namespace: NamespaceName,
        /// Index of the device among the devices of the instance.
        number: usize,
        /// Whether the instance has several devices.
        several: bool,
        device: Device,
        queues: u16,
        ring: u32,
    },
    /// Open `more` additional queues of a device. `device`: its present name.
    Queues { namespace: NamespaceName, device: String, more: u16 },
    /// Set the number of packets that wait in a queue of a device (`txqueuelen`).
    Ring { namespace: NamespaceName, device: String, entries: u32 },
    /// Report changes by other programs, including changes of these namespaces and devices.
    Look(Vec<(NamespaceName, Vec<Device>)>),
    /// Restore these namespaces and devices, and the forwarding of packets, after changes by other
    /// programs.
    Restore(Vec<(NamespaceName, Vec<Device>)>),
    /// Return the numbers of packets that the kernel has dropped at these devices.
    Drops(Vec<(NamespaceName, Vec<String>)>),
    /// Create the device of the internet's side, with routes of these addresses.
    Edge(BTreeSet<Ipv4Addr>),
    /// Route the addresses in `add` to the internet's side, all or none, and remove the routes of
    /// the addresses in `remove`.
    Route { add: BTreeSet<Ipv4Addr>, remove: BTreeSet<Ipv4Addr> },
    /// Set the resolvers of namespaces, or remove them (`None`).
    Resolvers(Vec<(NamespaceName, Option<Ipv4Addr>)>),
    /// End the programs in these namespaces.
    End(BTreeSet<NamespaceName>),
    /// Open the socket of a vhost-user device to its front end.
    Vhost { path: PathBuf, meets: Meet },
    /// Remove the socket of a vhost-user device.
    VhostGone(PathBuf),
    /// Open a new file of a flow log.
    Log { directory: String, stem: String, ending: String },
    /// Complete a file of a flow log if `is_whole`; otherwise remove it.
    LogEnded { directory: String, name: String, is_whole: bool },
    /// Copy the file of a cloud.
    Vpc(PathBuf),
    /// Read the configuration again, and copy the file of its cloud.
    Reload,
    /// Return a further connection to this helper, for a process that takes the node over.
    Another,
    /// Keep the descriptor that comes with this request, standard error of a process that takes the
    /// node over, until [`Request::Renew`]. Only root or the user of the helper may send it.
    Output,
    /// Continue for the sender, which has taken the node over from another process: write messages
    /// to its standard error, and read the configuration again. Later reloads report the settings
    /// that differ from it.
    Renew,
    /// Record the present file of the control socket, which the helper removes at the end.
    Listens,
}

/// Method by which a vhost-user device connects to its front end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Meet {
    /// The device listens at the socket.
    Listens,
    /// The device listens at the socket, in place of another process that is ending.
    Replaces,
    /// The device connects to the socket, at which the front end listens.
    Joins,
}

/// An answer of the helper.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
enum Answer {
    /// The request was executed. Requested descriptors come with the answer, in the order of the
    /// request.
    Done,
    /// The request failed, for this reason.
    Failed {
        what: String,
        /// Whether a program or a privilege is missing.
        is_missing: bool,
    },
    /// The networks that were created. An instance is missing if programs of an earlier card use
    /// its namespace. The descriptors of the queues come with the answer.
    Made { places: Vec<MadePlace>, udp_segmentation: bool },
    /// Queues of one device, whose descriptors come with the answer.
    Queues { count: u16, udp_segmentation: bool },
    /// Changes by other programs that the status shows.
    Upkeep(Upkeep),
    /// Numbers of packets that the kernel has dropped at each requested device; `None` if there is
    /// no device with the name.
    Drops(Vec<Vec<Option<u64>>>),
    /// The name of the file of a flow log that was opened. Its descriptor comes with the answer.
    Log(String),
    /// The configuration was read again. `vpc`: the path of the cloud's file, of which a copy comes
    /// with the answer; `None` if the configuration names no file. `others`: keys of changed
    /// settings that are not applied.
    Reloaded { vpc: Option<PathBuf>, others: Vec<String> },
}

/// The network that the helper has created for an instance.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MadePlace {
    instance: String,
    /// Whether an earlier card has left the namespace, with programs inside.
    is_found: bool,
    /// Number of queues of each device.
    queues: Vec<u16>,
    /// The interface in the pod, if the namespace belongs to a pod.
    pod: Option<PodInterface>,
}

/// A packet between the card and the helper, in either direction.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Message<T> {
    /// The number of the request, which its answer repeats. A request with the number zero needs no
    /// answer.
    id: u64,
    /// The request or the answer; `None` if the packet carries only descriptors, and more packets
    /// of the message follow.
    body: Option<T>,
}
