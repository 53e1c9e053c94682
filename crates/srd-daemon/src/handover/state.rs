//! The state of a daemon that is handed over, and its comparison with the configuration of the
//! daemon that takes over.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use srd_enrol::Capacity;

use super::instances::InstancesHandOver;
use super::owner::Pipes;
use crate::config::{Cloud, Config, Enrol, Mode, PeerSettings};
use crate::hooks::Hooks;
use crate::netconf::Spec;
use crate::routing;

/// The state of a daemon in a hand-over. Its descriptors come in this order: the pipes to and from
/// `srd network`, those to and from `srd hooks`, those of the instances, the socket of the metrics,
/// then the sockets and the queues of each worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct State {
    pub(crate) spec: Spec,
    pub(crate) mode: Mode,
    /// The addresses at which packets of peers are received.
    pub(crate) listens: Vec<SocketAddr>,
    pub(crate) paths: u16,
    pub(crate) mtu: u16,
    /// UDP payload bytes of a packet on the routes to all peers.
    pub(crate) packet_bytes: u16,
    /// Whether UDP packets pass the interface without segmentation.
    pub(crate) udp_segmentation: bool,
    /// Commands at the start and the end.
    pub(crate) hooks: Hooks,
    /// Whether there is a process `srd network`.
    pub(crate) has_network: bool,
    /// Whether there is a process `srd hooks`.
    pub(crate) has_hooks: bool,
    /// Settings of the instances; `None` if the daemon has no instances.
    pub(crate) cloud: Option<CloudState>,
    /// Settings of `[enrol]`; `None` if the daemon has not enrolled at a controller.
    pub(crate) enrol: Option<EnrolState>,
    /// Number of the descriptors of the instances.
    pub(crate) instances: usize,
    /// The address of the server of the metrics.
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) workers: Vec<WorkerState>,
    pub(crate) peers: Vec<PeerState>,
}

/// Numbers of the descriptors of one worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkerState {
    pub(crate) sockets: usize,
    pub(crate) queues: usize,
}

/// A peer in a hand-over.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PeerState {
    pub(crate) name: String,
    pub(crate) identity: String,
    /// The address at which the peer answers at present.
    pub(crate) address: Option<SocketAddr>,
}

/// Settings of the instances of a node that no take-over changes, because the helper of the
/// instances has got them at its start.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CloudState {
    /// The configuration, which the helper reads again at a reload.
    file: PathBuf,
    host: String,
    /// Whether the controller of the host sends the content of the VPC's file.
    is_of_controller: bool,
    pods: bool,
    internet: bool,
    internet_private: bool,
    vhost_user: BTreeMap<String, PathBuf>,
    vhost_user_client: BTreeSet<String>,
}

impl CloudState {
    /// Returns the settings of a configuration, with absolute paths; `None` if it has no instances.
    pub(crate) fn of(config: &Config) -> Option<Self> {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let Cloud { host, is_of_controller, pods, internet, internet_private, .. } =
            config.cloud.as_ref()?;
        let Cloud { vhost_user, vhost_user_client, .. } = config.cloud.as_ref()?;
        let sockets = vhost_user.iter().map(|(name, path)| (name.clone(), absolute(path)));
        Some(Self {
            file: absolute(&config.file),
            host: host.clone(),
            is_of_controller: *is_of_controller,
            pods: *pods,
            internet: *internet,
            internet_private: *internet_private,
            vhost_user: sockets.collect(),
            vhost_user_client: vhost_user_client.clone(),
        })
    }

    /// Returns the keys of settings that differ.
    fn differs(&self, new: &Self) -> impl Iterator<Item = &'static str> {
        let all = [
            ("the path of the file", self.file == new.file),
            ("host", self.host == new.host),
            ("[enrol.instances]", self.is_of_controller == new.is_of_controller),
            ("pods", self.pods == new.pods),
            ("internet", self.internet == new.internet),
            ("internet_private", self.internet_private == new.internet_private),
            ("vhost_user", self.vhost_user == new.vhost_user),
            ("vhost_user_client", self.vhost_user_client == new.vhost_user_client),
        ];
        all.into_iter().filter(|(_, is_same)| !is_same).map(|(key, _)| key)
    }
}

/// Settings of `[enrol]` of a daemon that has enrolled.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EnrolState {
    controller: String,
    directory: PathBuf,
    endpoints: Vec<SocketAddr>,
    capacity: Option<Capacity>,
}

impl EnrolState {
    /// Returns the settings of a configuration; `None` if it has no table `[enrol]`.
    pub(crate) fn of(config: &Config) -> Option<Self> {
        let Enrol { controller, directory, endpoints, capacity, .. } = config.enrol.as_ref()?;
        Some(Self {
            controller: controller.to_string(),
            directory: directory.file(""),
            endpoints: endpoints.clone(),
            capacity: capacity.clone(),
        })
    }

    /// Returns the keys of settings that differ, and that no take-over changes: those of the
    /// identity of the host and of the place of its instances.
    fn differs(&self, new: &Self) -> impl Iterator<Item = &'static str> {
        let zone = |of: &Self| of.capacity.as_ref().map(|capacity| capacity.zone.clone());
        let both = self.capacity.is_some() && new.capacity.is_some();
        let all = [
            ("directory", self.directory == new.directory),
            ("zone", !both || zone(self) == zone(new)),
        ];
        all.into_iter().filter(|(_, is_same)| !is_same).map(|(key, _)| key)
    }

    /// Returns the keys of settings that differ, and that a take-over changes.
    fn changes(&self, new: &Self) -> impl Iterator<Item = &'static str> {
        let vcpus = |of: &Self| of.capacity.as_ref().map(|capacity| capacity.vcpus);
        let types = |of: &Self| of.capacity.as_ref().map(|capacity| capacity.types.clone());
        let all = [
            ("controller", self.controller == new.controller),
            ("endpoint", self.endpoints == new.endpoints),
            ("vcpus", vcpus(self) == vcpus(new)),
            ("types", types(self) == types(new)),
        ];
        all.into_iter().filter(|(_, is_same)| !is_same).map(|(key, _)| key)
    }
}

/// A state with its descriptors.
#[derive(Debug)]
pub struct Estate {
    pub(crate) state: State,
    pub(crate) descriptors: Vec<Arc<OwnedFd>>,
}

/// Parts of a daemon that another process continues, and that do not belong to its workers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Belongings {
    pub(crate) network: Pipes,
    pub(crate) hooks: Pipes,
    pub(crate) metrics: Option<(SocketAddr, Arc<OwnedFd>)>,
    /// The functions of the card of the instances, if the node has instances.
    pub(crate) instances: Option<InstancesHandOver>,
    /// UDP payload bytes of a packet on the routes to all peers. A process that takes over cannot
    /// read them from routes that lead into the interface.
    pub(crate) packet_bytes: u16,
}

/// Returns the text by which two processes recognise a peer: its key, or its address if there is no
/// encryption.
pub(crate) fn identity(peer: &PeerSettings) -> String {
    let key = peer.public_key.map(|key| key.to_string());
    key.or_else(|| peer.endpoint.map(|at| at.to_string())).unwrap_or_default()
}

impl State {
    /// Returns the keys of settings that differ in a configuration, and that no take-over changes.
    pub(crate) fn differs(&self, config: &Config) -> Vec<&'static str> {
        let (interface, spec) = (&config.interface, routing::spec(&config.interface));
        let all = [
            ("name", self.spec.interface == spec.interface),
            ("mode", self.mode == interface.mode),
            ("address", self.spec.addresses == spec.addresses),
            ("table", (self.spec.table, self.spec.mark) == (spec.table, spec.mark)),
            ("kill_switch", self.spec.kill_switch == spec.kill_switch),
            ("listen", interface.listens().eq(self.listens.iter().copied())),
            ("paths", self.paths == interface.paths),
            ("workers", self.workers.len() == usize::from(interface.workers)),
            ("mtu", interface.mtu.is_none_or(|mtu| mtu == self.mtu)),
            ("[cloud]", self.cloud.is_some() == config.cloud.is_some()),
            ("[enrol]", self.enrol.is_some() == config.enrol.is_some()),
        ];
        let keys = all.into_iter().filter(|(_, is_same)| !is_same).map(|(key, _)| key);
        let new = CloudState::of(config);
        let of_cloud = self.cloud.as_ref().zip(new.as_ref()).map(|(runs, new)| runs.differs(new));
        let new = EnrolState::of(config);
        let of_enrol = self.enrol.as_ref().zip(new.as_ref()).map(|(runs, new)| runs.differs(new));
        let of_tables = of_cloud.into_iter().flatten().chain(of_enrol.into_iter().flatten());
        keys.chain(of_tables).collect()
    }

    /// Returns the keys of `[enrol]` that differ in a configuration, and that a take-over changes.
    pub(crate) fn changes(&self, config: &Config) -> Vec<&'static str> {
        let new = EnrolState::of(config);
        let changes = self.enrol.as_ref().zip(new.as_ref()).map(|(runs, new)| runs.changes(new));
        changes.into_iter().flatten().collect()
    }

    /// Returns the name of a peer that a configuration does not contain.
    pub(crate) fn missing(&self, config: &Config) -> Option<&str> {
        let has = |of: &&PeerState| config.peers.iter().any(|peer| identity(peer) == of.identity);
        self.peers.iter().find(|peer| !has(peer)).map(|peer| peer.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(interface: &str, peers: &str) -> Config {
        let text = format!(
            "[interface]\naddress = [\"10.77.0.1/24\"]\nlisten = \"192.0.2.1:7471\"\n\
             protection = \"plain\"\n{interface}\n{peers}"
        );
        Config::parse(&text, Path::new("srd0.toml")).unwrap_or_else(|error| panic!("{error}"))
    }

    const PEER: &str = "[[peer]]\nname = \"b\"\nendpoint = \"192.0.2.2:7471\"\n\
                        allowed = [\"10.77.0.2/32\"]\n";

    fn state(config: &Config) -> State {
        let interface = &config.interface;
        let peer = |peer: &PeerSettings| PeerState {
            name: peer.name.clone(),
            identity: identity(peer),
            address: None,
        };
        State {
            spec: routing::spec(interface),
            mode: interface.mode,
            listens: interface.listens().collect(),
            paths: interface.paths,
            mtu: 1400,
            packet_bytes: 1472,
            udp_segmentation: true,
            hooks: Hooks::default(),
            has_network: true,
            has_hooks: false,
            cloud: CloudState::of(config),
            enrol: EnrolState::of(config),
            instances: 0,
            metrics: None,
            workers: vec![WorkerState { sockets: 64, queues: 16 }],
            peers: config.peers.iter().map(peer).collect(),
        }
    }

    #[test]
    fn settings_that_no_take_over_changes_are_found_and_others_may_differ() {
        let runs = state(&config("", PEER));
        let differs = |interface: &str| runs.differs(&config(interface, PEER));
        assert!(differs("").is_empty() && differs("mtu = 1400").is_empty());
        assert!(differs("dscp = 8\nexpress = false\npoll = \"block\"").is_empty());
        for (line, key) in [
            ("name = \"srd1\"", "name"),
            ("mtu = 1300", "mtu"),
            ("workers = 2", "workers"),
            ("kill_switch = true", "kill_switch"),
        ] {
            assert_eq!(differs(line)[0], key);
        }
        assert_eq!(differs("[cloud]"), ["[cloud]"]);
        let text = serde_json::to_string(&runs).unwrap();
        assert!(serde_json::from_str::<State>(&text).is_ok());
        // A build with another form of the state has another version. If it does not, its state is
        // not accepted in part.
        let more = text.replacen('{', "{\"more\":1,", 1);
        assert!(serde_json::from_str::<State>(&more).is_err());
    }

    #[test]
    fn settings_of_instances_that_no_take_over_changes_are_found_and_others_may_differ() {
        let with = |lines: &str| config(&format!("[cloud]\nhost = \"a\"\n{lines}"), PEER);
        let runs = state(&with(""));
        let differs = |lines: &str| runs.differs(&with(lines));
        assert!(differs("").is_empty() && differs("vpc = \"other.toml\"").is_empty());
        assert!(differs("processors = 2\nend_programs = true").is_empty());
        assert_eq!(differs("internet = true"), ["internet"]);
        let socket = "[cloud.vhost_user]\nweb = \"/run/web.sock\"";
        assert_eq!(differs(socket), ["vhost_user"]);
        assert_eq!(runs.differs(&config("", PEER)), ["[cloud]"]);
        let other = Config { file: "other.toml".into(), ..with("") };
        assert_eq!(runs.differs(&other), ["the path of the file"]);
    }

    /// A node with another zone took over, and its instances stayed in the former zone without a
    /// message.
    #[test]
    fn regression_settings_of_enrol_are_refused_or_reported() {
        let enrol = |lines: &str| {
            let mut config = config("", "");
            let text = format!(
                "[interface]\nlisten = \"192.0.2.1:7471\"\n[enrol]\ndirectory = \"/nonexistent\"\n\
                 name = \"a\"\n{lines}"
            );
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), text).unwrap();
            config.enrol = Config::load_without_keys(file.path()).unwrap().enrol;
            config
        };
        let with = |controller: &str, instances: &str| {
            enrol(&format!("controller = \"{controller}\"\n[enrol.instances]\n{instances}"))
        };
        let former = with("192.0.2.9:4600", "zone = \"us-east-1a\"\nvcpus = 8");
        let runs = state(&former);
        assert!(runs.differs(&former).is_empty() && runs.changes(&former).is_empty());
        let other =
            with("192.0.2.8:4600", "zone = \"us-east-1b\"\nvcpus = 9\ntypes = [\"c7i.large\"]");
        assert_eq!(runs.differs(&other), ["zone"]);
        assert_eq!(runs.changes(&other), ["controller", "vcpus", "types"]);
        let elsewhere = enrol("controller = \"192.0.2.9:4600\"\nendpoint = \"192.0.2.7:7471\"");
        assert_eq!(runs.changes(&elsewhere), ["endpoint", "vcpus", "types"]);
        assert_eq!(runs.differs(&config("", "")), ["[enrol]"]);
        assert_eq!(state(&config("", "")).differs(&elsewhere), ["[enrol]"]);
    }

    #[test]
    fn a_peer_that_only_the_daemon_has_is_found_by_its_identity() {
        let runs = state(&config("", PEER));
        assert_eq!(runs.missing(&config("", PEER)), None);
        assert_eq!(runs.missing(&config("", &PEER.replace("\"b\"", "\"c\""))), None);
        assert_eq!(runs.missing(&config("", "")), Some("b"));
        let moved = PEER.replace("192.0.2.2", "192.0.2.3");
        assert_eq!(runs.missing(&config("", &moved)), Some("b"));
    }
}
