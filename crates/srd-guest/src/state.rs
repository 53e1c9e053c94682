//! What the loop works on.

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

use crate::gateways::Gateways;
use crate::gone::Gone;
use crate::helper::Ending;
use crate::late::Late;
use crate::link_local::Services;
use crate::logs::FlowLogs;
use crate::maker::Maker;
use crate::namespace::{Device, Namespace};
use crate::orders::{Command, Stopper};
use crate::outside::Shares;
use crate::pages::publisher::Publisher;
use crate::pending::Changes;
use crate::plane::Plane;
use crate::port::Port;
use crate::resolv_conf::Resolvers;
use crate::transport::{Received, TransportOptions};
use crate::turns::Turns;
use crate::world::Vpc;

/// What a service shall do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file that these settings are in, which is read again.
    pub config: Option<PathBuf>,
    /// The VPC's file; EC2's default VPC if there is none.
    pub file: Option<PathBuf>,
    /// The name of this host in the file. Instances that name none are here.
    pub host: String,
    /// By what all rates are divided.
    pub scale: u32,
    /// How long a full stock of credits lasts at the peak rate, in seconds.
    pub credits_s: u32,
    /// Whether the network of this machine stands for the internet.
    pub internet: bool,
    /// Whether that internet carries private addresses, as the real one does not.
    pub internet_private: bool,
    /// How other hosts are reached, if there are any.
    pub transport: Option<TransportOptions>,
    /// Where requests are listened for.
    pub socket: PathBuf,
    /// Instances whose interfaces are sockets of vhost-user, by name: the primary one is at this
    /// path, each other one at the path with its device's name behind it.
    pub vhost_user: BTreeMap<String, PathBuf>,
    /// Those of them whose front ends listen there, and the card connects.
    pub vhost_user_client: BTreeSet<String>,
    /// How to wait for packets.
    pub poll: PollMode,
    /// Where figures are served over HTTP, if anywhere.
    pub metrics: Option<Metrics>,
    /// Whether programs that run in the namespace of an instance end with it. Else they keep it.
    pub end_programs: bool,
}

impl Options {
    /// The cloud of these settings.
    pub(crate) fn vpc(&self) -> Result<Vpc> {
        Vpc::read(self.file.as_deref(), &self.host, self.internet_private)
    }

    /// Whether the front ends of an instance listen, and its devices connect.
    pub(crate) fn joins(&self, name: &str) -> bool {
        self.vhost_user_client.contains(name) && self.vhost_user.contains_key(name)
    }
}

/// Where figures are served over HTTP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metrics {
    /// The address and port.
    pub listen: SocketAddr,
    /// Whether others than this machine may ask.
    pub allow_remote: bool,
    /// Names under which they may be asked for, beside addresses and the machine's own names.
    pub host_names: Vec<String>,
}

/// How a service ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// It was stopped.
    Stopped,
    /// Another process goes on with what it had.
    HandedOver,
}

/// A service. It holds namespaces, devices and rules, and gives them back when it is dropped.
pub struct Service {
    pub(crate) options: Options,
    pub(crate) vpc: Vpc,
    pub(crate) world: World,
    pub(crate) card: Card,
    /// The directory, which knows where interfaces of other hosts are.
    pub(crate) plane: Plane,
    pub(crate) guests: Guests,
    pub(crate) changes: Changes,
    pub(crate) maker: Maker,
    pub(crate) devices: BTreeMap<PortId, Port>,
    /// Interfaces with packets that wait for an interrupt.
    pub(crate) held: BTreeSet<PortId>,
    /// Devices that were deleted.
    pub(crate) gone: Gone,
    /// By how much the loop is late.
    pub(crate) late: Late,
    /// The shares of the sources outside of this host in a turn.
    pub(crate) shares: Shares,
    /// Interfaces at sockets of vhost-user.
    pub(crate) sockets: Vec<PortId>,
    /// Whose packets are read next.
    pub(crate) turns: Turns,
    pub(crate) gateways: Gateways,
    /// Memory for what is read from other hosts.
    pub(crate) received: Received,
    pub(crate) logs: FlowLogs,
    pub(crate) services: Services,
    pub(crate) resolvers: Resolvers,
    pub(crate) commands: Receiver<Command>,
    pub(crate) wake: Arc<OwnedFd>,
    pub(crate) stopper: Stopper,
    pub(crate) metrics: Option<srd_http::Server>,
    /// Another process goes on with all that this one has.
    pub(crate) is_handed_over: bool,
    pub(crate) expire_at: Instant,
    /// When a frame was last read.
    pub(crate) moved_at: Instant,
    pub(crate) began: Instant,
    /// Where figures are written.
    pub(crate) publisher: Publisher,
    /// Dropped last.
    pub(crate) helper: Ending,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("options", &self.options).finish_non_exhaustive()
    }
}

/// The instances by name, and what packets through NAT gateways need.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    pub(crate) by_name: BTreeMap<String, Running>,
    /// Instances in whose namespaces programs were found that are in the way: each change of the
    /// rules tries them once more.
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

/// An instance that runs.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) id: InstanceId,
    /// None, if its interfaces are sockets.
    pub(crate) namespace: Option<Namespace>,
    pub(crate) profile: Profile,
    pub(crate) interfaces: Vec<(PortId, EniId, Device)>,
    /// The rules that steer packets to queues of its interfaces.
    pub(crate) steering: Arc<Steering>,
}
