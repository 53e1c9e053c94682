//! State of the loop that moves packets and applies requests.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use anyhow::{Context, Result};
use srd_card::device::steering::Steering;
use srd_card::profile::Profile;
use srd_card::vpc::{Card, PortId};
use srd_daemon::config::Metrics;
use srd_net::PollMode;
use srd_proto::time::Instant;
use srd_vpc::id::{EniId, InstanceId, NatGatewayId};
use srd_vpc::object::World;

use crate::cloud::file::{check_of_controller, open};
use crate::cloud::pending::Changes;
use crate::cloud::plane::Plane;
use crate::cloud::world::Vpc;
use crate::control::orders::Command;
use crate::control::protocol::NamespaceName;
use crate::failure::WrongSettings;
use crate::figures::logs::FlowLogs;
use crate::figures::pages::publisher::Publisher;
use crate::helper::Ending;
use crate::interfaces::gone::LostDevices;
use crate::interfaces::port::Port;
use crate::interfaces::processors::Processors;
use crate::link_local::Services;
use crate::machine::maker::Maker;
use crate::machine::namespace::{Device, Namespace};
use crate::machine::resolv_conf::Resolvers;
use crate::traffic::gateways::Gateways;
use crate::traffic::hosts::Contact;
use crate::traffic::late::Late;
use crate::traffic::outside::Shares;
use crate::traffic::received::Received;
use crate::traffic::transport::TransportOptions;
use crate::traffic::turns::Turns;

/// Settings of a card.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The file that these settings come from, which can be read again; `None` if they come from
    /// the command line.
    pub(crate) config: Option<PathBuf>,
    /// The VPC's file; without it, EC2's default VPC.
    pub(crate) file: Option<PathBuf>,
    /// Whether the controller of the host sends the content of the VPC's file. Such a file names no
    /// directories of flow logs, and no public addresses outside of
    /// [`PUBLIC_POOL`](srd_vpc::object::PUBLIC_POOL).
    pub(crate) is_of_controller: bool,
    /// Whether such a file may use pods of this host.
    pub(crate) pods: bool,
    /// The name of this host in the VPC's file. Instances for which the file names no host run on
    /// this host. A further worker has its own name here, which its instances have as their host.
    pub(crate) host: String,
    /// The number by which all rates of instance types are divided.
    pub(crate) scale: u32,
    /// Time that a full stock of credits lasts at the peak rate, in seconds.
    pub(crate) credits_s: u32,
    /// Whether the network of this machine plays the role of the internet.
    pub(crate) internet: bool,
    /// Whether the network that plays the role of the internet carries private addresses; the real
    /// internet does not.
    pub(crate) internet_private: bool,
    /// Options of the transport to other hosts; `None` if the settings contain none.
    pub(crate) transport: Option<TransportOptions>,
    /// Path of the control socket.
    pub(crate) socket: PathBuf,
    /// Path of the control socket in the file of these settings, if the file contains one.
    pub(crate) socket_named: Option<PathBuf>,
    /// Instances whose interfaces are vhost-user sockets, with the path of the primary interface's
    /// socket. For each other interface, the name of its device is appended to this path, as in
    /// `PATH.ens6`.
    pub(crate) vhost_user: BTreeMap<String, PathBuf>,
    /// Names of instances in `vhost_user` whose front ends listen at the sockets, so that the card
    /// connects to them.
    pub(crate) vhost_user_client: BTreeSet<String>,
    /// Method of waiting for packets.
    pub(crate) poll: PollMode,
    /// Options of figures over HTTP, if they are served.
    pub(crate) metrics: Option<Metrics>,
    /// Whether programs in an instance's namespace are ended with the instance. Otherwise they keep
    /// the namespace.
    pub(crate) end_programs: bool,
    /// Number of threads that give packets to instances; 0: the thread that moves packets does.
    pub(crate) processors: u8,
    /// Number of workers: threads that move packets.
    pub(crate) workers: u8,
}

impl Options {
    /// Reads the VPC that these settings name.
    pub(crate) fn vpc(&self) -> Result<Vpc> {
        if let (Some(path), true) = (&self.file, self.is_of_controller) {
            let file = open(path, false).map_err(WrongSettings::of)?.file;
            check_of_controller(&file, (&self.host, self.pods)).map_err(WrongSettings::of)?;
            return Ok(Vpc::of(file, &self.host, self.internet_private));
        }
        Vpc::read(self.file.as_deref(), &self.host, self.internet_private)
    }

    /// Starts the threads that give packets to instances, if there are any.
    pub(crate) fn processors(&self) -> Result<Option<Arc<Processors>>> {
        let start = || Processors::start(self.processors).context("threads for packets");
        (self.processors > 0).then(start).transpose().map(|started| started.map(Arc::new))
    }

    /// Whether the front ends of an instance listen at its vhost-user sockets, so that the card
    /// connects to them.
    pub(crate) fn joins(&self, name: &str) -> bool {
        self.vhost_user_client.contains(name) && self.vhost_user.contains_key(name)
    }
}

/// The parts of the state of another card that this process uses when that card does not go on any
/// more.
#[derive(Debug)]
pub(crate) struct TakenOver {
    /// Counters and session states of the other hosts, by name.
    pub(crate) hosts: BTreeMap<String, Contact>,
    /// The namespaces of instances, by the names of the instances.
    pub(crate) namespaces: BTreeMap<String, NamespaceName>,
}

/// A running card of one worker. It owns namespaces, devices and packet rules, and removes them
/// when it is dropped.
pub(crate) struct Service {
    pub(crate) options: Options,
    pub(crate) vpc: Vpc,
    pub(crate) world: World,
    pub(crate) card: Card,
    /// The directory, which contains the locations of other hosts' interfaces.
    pub(crate) plane: Plane,
    pub(crate) guests: Guests,
    pub(crate) changes: Changes,
    pub(crate) maker: Maker,
    pub(crate) devices: BTreeMap<PortId, Port>,
    /// Threads that give packets to instances, if the options have any.
    pub(crate) processors: Option<Arc<Processors>>,
    /// Interfaces with packets that wait for an interrupt.
    pub(crate) held: BTreeSet<PortId>,
    /// Devices that were deleted.
    pub(crate) gone: LostDevices,
    /// The delay with which the loop reads packets.
    pub(crate) late: Late,
    /// The order in which one turn of the loop reads packets of the internet's side and of other
    /// hosts, and of other hosts and other workers.
    pub(crate) shares: [Shares; 2],
    /// Interfaces that are vhost-user sockets.
    pub(crate) sockets: Vec<PortId>,
    /// The order in which the loop reads packets of the instances.
    pub(crate) turns: Turns,
    pub(crate) gateways: Gateways,
    /// Frames of other hosts that were received, and that later turns give to the card.
    pub(crate) waiting: Received,
    /// Memory for the frames of other hosts in one turn; without frames.
    pub(crate) received: Received,
    pub(crate) logs: FlowLogs,
    pub(crate) services: Services,
    pub(crate) resolvers: Resolvers,
    pub(crate) commands: Receiver<Command>,
    pub(crate) wake: Arc<OwnedFd>,
    /// The state of the card of a node from which this process takes over, until that card does not
    /// go on any more.
    pub(crate) taken: Option<TakenOver>,
    /// Whether another process continues with all objects of this process.
    pub(crate) is_handed_over: bool,
    pub(crate) expire_at: Instant,
    /// Time of the last read of a frame.
    pub(crate) moved_at: Instant,
    /// Time at which the card began to move packets, on the clock of packets and as Unix time in
    /// nanoseconds. The second value stays the same if the wall clock is set.
    pub(crate) began: Instant,
    pub(crate) began_unix_ns: u64,
    /// Publishes figures for the threads that read them.
    pub(crate) publisher: Publisher,
    /// The connection to the helper, the process with privileges, which all workers share. This
    /// field is dropped last.
    pub(crate) helper: Arc<Ending>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("options", &self.options).finish_non_exhaustive()
    }
}

/// The instances on this host by name, and the public addresses of NAT gateways.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    pub(crate) by_name: BTreeMap<String, Running>,
    /// Instances that could not be started because of programs in their namespaces. Each change of
    /// the rules tries to start them again.
    pub(crate) left_out: BTreeSet<String>,
    pub(crate) nat_publics: BTreeMap<NatGatewayId, Ipv4Addr>,
}

impl Guests {
    /// Returns the instance that has this interface, and its name.
    pub(crate) fn of_port(&self, port: PortId) -> Option<(&str, &Running)> {
        let has = |running: &Running| running.interfaces.iter().any(|(of, ..)| *of == port);
        let mut all = self.by_name.iter();
        all.find(|(_, running)| has(running)).map(|(name, running)| (name.as_str(), running))
    }
}

/// A running instance.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) id: InstanceId,
    /// The namespace of the instance; `None` if its interfaces are vhost-user sockets.
    pub(crate) namespace: Option<Namespace>,
    pub(crate) profile: Profile,
    pub(crate) interfaces: Vec<(PortId, EniId, Device)>,
    /// The rules that steer packets to queues of the instance's interfaces.
    pub(crate) steering: Arc<Steering>,
}
