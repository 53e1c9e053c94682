//! State of the loop.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use anyhow::Result;
use srd_card::device::steering::Steering;
use srd_card::profile::Profile;
use srd_card::vpc::{Card, PortId};
use srd_net::PollMode;
use srd_proto::time::Instant;
use srd_vpc::id::{EniId, InstanceId, NatGatewayId};
use srd_vpc::object::World;

use crate::cloud::pending::Changes;
use crate::cloud::plane::Plane;
use crate::cloud::world::Vpc;
use crate::control::orders::{Command, Stopper};
use crate::figures::logs::FlowLogs;
use crate::figures::pages::publisher::Publisher;
use crate::helper::Ending;
use crate::interfaces::gone::LostDevices;
use crate::interfaces::port::Port;
use crate::link_local::Services;
use crate::machine::maker::Maker;
use crate::machine::namespace::{Device, Namespace};
use crate::machine::resolv_conf::Resolvers;
use crate::traffic::gateways::Gateways;
use crate::traffic::late::Late;
use crate::traffic::outside::Shares;
use crate::traffic::transport::{Received, TransportOptions};
use crate::traffic::turns::Turns;

/// Settings of a service.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file of these settings, which can be read again.
    pub config: Option<PathBuf>,
    /// The VPC's file; without it, EC2's default VPC.
    pub file: Option<PathBuf>,
    /// The name of this host in the file. Instances without a host are here.
    pub host: String,
    /// The divisor of all rates.
    pub scale: u32,
    /// Time that a full stock of credits lasts at the peak rate, in seconds.
    pub credits_s: u32,
    /// Whether the network of this machine plays the role of the internet.
    pub internet: bool,
    /// Whether that internet carries private addresses; the real one does not.
    pub internet_private: bool,
    /// The transport to other hosts, if there are any.
    pub transport: Option<TransportOptions>,
    /// The socket for requests.
    pub socket: PathBuf,
    /// Instances whose interfaces are sockets of vhost-user, by name. The primary interface is at
    /// this path; the path of another one ends with its device's name.
    pub vhost_user: BTreeMap<String, PathBuf>,
    /// The subset of `vhost_user` whose front ends listen, so that the card connects.
    pub vhost_user_client: BTreeSet<String>,
    /// Method of waiting for packets.
    pub poll: PollMode,
    /// Options of figures over HTTP, if they are served.
    pub metrics: Option<Metrics>,
    /// Whether programs in an instance's namespace are ended with the instance. Otherwise they keep
    /// the namespace.
    pub end_programs: bool,
}

impl Options {
    /// Returns the cloud of these settings.
    pub(crate) fn vpc(&self) -> Result<Vpc> {
        Vpc::read(self.file.as_deref(), &self.host, self.internet_private)
    }

    /// Whether the front ends of an instance listen, and its devices connect.
    pub(crate) fn joins(&self, name: &str) -> bool {
        self.vhost_user_client.contains(name) && self.vhost_user.contains_key(name)
    }
}

/// Options of figures over HTTP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metrics {
    /// The address and port.
    pub listen: SocketAddr,
    /// Whether other machines may send requests.
    pub allow_remote: bool,
    /// Host names that requests may contain, in addition to addresses and the machine's own names.
    pub host_names: Vec<String>,
}

/// Reason for the end of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The service was stopped.
    Stopped,
    /// Another process continues with all objects of the service.
    HandedOver,
}

/// A service. It owns namespaces, devices and rules, and gives them back when it is dropped.
pub struct Service {
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
    /// Interfaces with packets that wait for an interrupt.
    pub(crate) held: BTreeSet<PortId>,
    /// Devices that were deleted.
    pub(crate) gone: LostDevices,
    /// The delay of the loop.
    pub(crate) late: Late,
    /// The shares of the sources outside of this host in a turn.
    pub(crate) shares: Shares,
    /// Interfaces at sockets of vhost-user.
    pub(crate) sockets: Vec<PortId>,
    /// The order in which packets are read.
    pub(crate) turns: Turns,
    pub(crate) gateways: Gateways,
    /// Memory for packets from other hosts.
    pub(crate) received: Received,
    pub(crate) logs: FlowLogs,
    pub(crate) services: Services,
    pub(crate) resolvers: Resolvers,
    pub(crate) commands: Receiver<Command>,
    pub(crate) wake: Arc<OwnedFd>,
    pub(crate) stopper: Stopper,
    pub(crate) metrics: Option<srd_http::Server>,
    /// Whether another process continues with all objects of this one.
    pub(crate) is_handed_over: bool,
    pub(crate) expire_at: Instant,
    /// Time of the last read of a frame.
    pub(crate) moved_at: Instant,
    pub(crate) began: Instant,
    /// Destination of the figures.
    pub(crate) publisher: Publisher,
    /// The helper. This field is dropped last.
    pub(crate) helper: Ending,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("options", &self.options).finish_non_exhaustive()
    }
}

/// The instances by name, and the public addresses of NAT gateways.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    pub(crate) by_name: BTreeMap<String, Running>,
    /// Instances that were left out because of programs in their namespaces. Each change of the
    /// rules tries them again.
    pub(crate) left_out: BTreeSet<String>,
    pub(crate) nat_publics: BTreeMap<NatGatewayId, Ipv4Addr>,
}

impl Guests {
    /// The instance with an interface, and its name.
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
    /// `None` if its interfaces are sockets.
    pub(crate) namespace: Option<Namespace>,
    pub(crate) profile: Profile,
    pub(crate) interfaces: Vec<(PortId, EniId, Device)>,
    /// The rules that steer packets to queues of the instance's interfaces.
    pub(crate) steering: Arc<Steering>,
}
