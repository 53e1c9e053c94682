//! The table `[enrol]`: the controller at which this host enrols. The controller assigns the
//! overlay address, and sends the peers.
//!
//! The address, the private key and the peers are in the state directory, so a configuration can be
//! read without the controller. A peer that this host cannot use is left out with a warning: it
//! must not cut off the other peers.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use rustix::process::geteuid;
use srd_card::profile::{InstanceType, suggest};
use srd_config::{ConfigError, Source};
use srd_enrol::message::{VCPUS_MAX, check_name};
use srd_enrol::{Capacity, Peer};
use srd_trust::privileges;
use srd_vpc::regions;
use toml::Spanned;

use super::cloud::Cloud;
use super::endpoint::{Endpoint, HostPort};
use super::file::{Document, EnrolTable, InstancesTable, InterfaceTable, PeerTable};
use super::key_files::{Keys, beside};
use super::number::whole;
use super::peers::peers;
use super::several::{Several, texts};
use super::{Config, Interface, PeerSettings};
use crate::control_plane::enrol::processors;
use crate::control_plane::state::{CLOUD, Enrolment, PRIVATE_KEY, StateDirectory};

/// Directory with the state directories of all interfaces, if systemd names no other.
const STATE: &str = "/var/lib/srd";
/// Overlay address of a host that has not enrolled. No interface gets it.
const UNKNOWN_ADDRESS: &str = "169.254.71.71/32";

type Result<T> = std::result::Result<T, ConfigError>;

/// The controller at which this host enrols.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Enrol {
    /// Address or name of the controller, with the port for hosts.
    pub controller: HostPort,
    /// File with an enrolment token; needed until this host has enrolled.
    pub token_file: Option<PathBuf>,
    /// Name under which this host enrols.
    pub name: String,
    /// Addresses at which peers reach this host. Empty: the addresses at which it listens, or the
    /// address from which it reaches the controller.
    pub endpoints: Vec<SocketAddr>,
    /// State directory.
    pub directory: StateDirectory,
    /// Instances that this host accepts from the controller; `None`: it accepts no instances.
    pub capacity: Option<Capacity>,
}

/// The controller, and the peers that it has sent.
#[derive(Debug)]
pub(super) struct Enrolled {
    pub(super) enrol: Enrol,
    pub(super) peers: Vec<Peer>,
    /// Name of this host: the one under which it has enrolled.
    name: String,
}

impl Enrolled {
    /// Returns the VPC's file whose content the controller sends, the name of this host in it, and
    /// whether this host accepts pods; `None`: this host accepts no instances.
    pub(super) fn instances(&self) -> Option<(PathBuf, &str, bool)> {
        let capacity = self.enrol.capacity.as_ref()?;
        Some((self.enrol.directory.file(CLOUD), &self.name, capacity.pods))
    }
}

/// Checks `[enrol]`, and adds the overlay address and the private key of this host to
/// `[interface]`. `None`: there is no such table. With [`Keys::Left`], the host need not have
/// enrolled yet.
pub(super) fn complete(
    source: &Source<'_>,
    document: &mut Document,
    keys: Keys,
) -> Result<Option<Enrolled>> {
    let Some(spanned) = &document.enrol else { return Ok(None) };
    let span = spanned.span();
    let Some(interface) = &mut document.interface else {
        let remedy = "add [interface] with listen = \"0.0.0.0:7471\"";
        return Err(source.error(Some(span), "a host that enrols has an interface", remedy));
    };
    let interface = interface.get_mut();
    for (key, at) in [
        ("address", interface.address.first().map(Spanned::span)),
        ("private_key_file", interface.private_key_file.as_ref().map(Spanned::span)),
        ("protection", interface.protection.as_ref().map(Spanned::span)),
        ("mode", interface.mode.as_ref().filter(|m| m.get_ref() != "overlay").map(Spanned::span)),
    ] {
        if at.is_some() {
            let what = format!("`{key}` of a host that enrols is not set in the file");
            let remedy = format!("take `{key}` out, or take [enrol] out");
            return Err(source.error(at, what, remedy));
        }
    }
    let enrol = enrol(source, spanned, interface)?;
    let enrolment = enrol.directory.enrolment().map_err(|why| {
        let remedy = state_remedy(geteuid().is_root() || privileges::is_own_account().is_some());
        source.error(Some(span.clone()), format!("the state of this host: {why}"), remedy)
    })?;
    if let (Some(of), Some(name)) = (&enrolment, &spanned.as_ref().name) {
        check_enrolled_name(source, (of, name), &enrol.directory)?;
    }
    let (address, peers, name) = match enrolment {
        Some(of) => (of.address.to_string(), of.peers, of.name),
        None if keys == Keys::Left => (UNKNOWN_ADDRESS.to_owned(), Vec::new(), enrol.name.clone()),
        None => {
            let what = format!("this host has not enrolled at {} yet", enrol.controller);
            return Err(source.error(Some(span), what, "start it by `srd up`, which enrols it"));
        }
    };
    let key = enrol.directory.file(PRIVATE_KEY).display().to_string();
    interface.address = vec![Spanned::new(span.clone(), address)];
    interface.private_key_file = Some(Spanned::new(span, key));
    Ok(Some(Enrolled { enrol, peers, name }))
}

/// Returns the remedy for a state that cannot be read. `is_daemons_user`: whether daemons run as
/// the user of this process.
fn state_remedy(is_daemons_user: bool) -> &'static str {
    if is_daemons_user {
        "if a start by another user has made the state directory, give it to the user of the \
         daemon by `chown -R`"
    } else {
        "run the command as root, by `sudo`: the state belongs to the user of the daemon"
    }
}

/// Checks that the name in the file is the one under which this host has enrolled: no start changes
/// it.
fn check_enrolled_name(
    source: &Source<'_>,
    (enrolment, name): (&Enrolment, &Spanned<String>),
    directory: &StateDirectory,
) -> Result<()> {
    let own = &enrolment.name;
    if enrolment.is_removed || own == name.as_ref() {
        return Ok(());
    }
    let what = format!("this host has enrolled as `{own}`, and keeps this name");
    let remedy = format!(
        "write name = \"{own}\"; for another name, run `srd control hosts remove {own}` at the \
         controller, remove {}, and enrol this host with a new token",
        directory.file("").display()
    );
    Err(source.error(Some(name.span()), what, remedy))
}

fn enrol(
    source: &Source<'_>,
    spanned: &Spanned<EnrolTable>,
    interface: &InterfaceTable,
) -> Result<Enrol> {
    let table = spanned.as_ref();
    let name = match &table.name {
        Some(name) => name.as_ref().clone(),
        None => host_name(),
    };
    check_name(&name).map_err(|refusal| {
        let span = table.name.as_ref().map_or(spanned.span(), Spanned::span);
        let remedy = "write name = with the name of this host in [enrol]";
        source.error(Some(span), format!("`{name}`: {refusal}"), remedy)
    })?;
    let directory = match &table.directory {
        Some(directory) => beside(source.path, directory.as_ref()),
        None => {
            // The unit of a node has a state directory of root. The process that follows the
            // controller is not root then.
            let of_unit = std::env::var_os("STATE_DIRECTORY").filter(|_| table.instances.is_none());
            let above = of_unit.map_or(STATE.into(), PathBuf::from);
            above.join(interface.name.as_ref().map_or("srd0", |name| name.as_ref()))
        }
    };
    let directory = std::path::absolute(&directory).unwrap_or(directory);
    Ok(Enrol {
        controller: controller(source, spanned)?,
        token_file: table.token_file.as_ref().map(|file| beside(source.path, file.as_ref())),
        name,
        endpoints: endpoints(source, table)?,
        directory: StateDirectory::new(directory),
        capacity: table.instances.as_ref().map(|of| capacity(source, of)).transpose()?,
    })
}

/// Reads the table `[enrol.instances]`.
fn capacity(source: &Source<'_>, spanned: &Spanned<InstancesTable>) -> Result<Capacity> {
    let table = spanned.as_ref();
    let Some(zone) = &table.zone else {
        let remedy = "write zone = \"us-east-1a\", with the availability zone of this host";
        return Err(source.error(Some(spanned.span()), "`zone` is missing", remedy));
    };
    check_zone(zone.as_ref())
        .map_err(|(what, remedy)| source.error(Some(zone.span()), what, remedy))?;
    let bounds = 1..=i64::from(VCPUS_MAX);
    let vcpus = whole(source, table.vcpus.as_ref(), "vcpus", &bounds)?;
    let capacity = Capacity {
        zone: zone.as_ref().clone(),
        vcpus: vcpus.and_then(|n| u32::try_from(n).ok()).unwrap_or_else(processors),
        types: table.types.iter().map(|name| name.as_ref().clone()).collect(),
        pods: table.pods,
    };
    capacity.check().map_err(|refusal| {
        let remedy = "write zone = \"us-east-1a\", vcpus = 16 and types = [\"c7i.large\"]";
        source.error(Some(spanned.span()), refusal.to_string(), remedy)
    })?;
    for name in &capacity.types {
        // The catalogue may be older than the type.
        if let Err(unknown) = InstanceType::find(name) {
            tracing::warn!("`{name}` in `types` of [enrol.instances]: {unknown}");
        }
    }
    Ok(capacity)
}

/// Checks that a zone exists: no instance is ever placed in another one. An error has its
/// description and the remedy.
fn check_zone(zone: &str) -> std::result::Result<(), (String, String)> {
    let all: Vec<String> = regions::zone_names().collect();
    if all.iter().any(|name| name == zone) {
        return Ok(());
    }
    let near = suggest::like(zone, all.iter().map(String::as_str));
    let remedy = match (regions::zone_of_id(zone), near.as_slice()) {
        (Some(name), _) => format!("write its name, which is {name}"),
        (None, []) => "write a zone of EC2, such as us-east-1a".to_owned(),
        (None, near) => format!("did you mean {}?", near.join(", ")),
    };
    Err((format!("`{zone}` is not the name of an availability zone"), remedy))
}

fn controller(source: &Source<'_>, spanned: &Spanned<EnrolTable>) -> Result<HostPort> {
    let example = "write controller = \"192.0.2.1:4600\", the address of `srd control up --hosts`";
    let Some(text) = &spanned.as_ref().controller else {
        return Err(source.error(Some(spanned.span()), "`controller` is missing", example));
    };
    let error = |(what, _)| source.error(Some(text.span()), what, example);
    Ok(match Endpoint::parse(text.as_ref()).map_err(error)? {
        Endpoint::Address(at) => HostPort { host: at.ip().to_string(), port: at.port() },
        Endpoint::Name(name) => name,
    })
}

fn endpoints(source: &Source<'_>, table: &EnrolTable) -> Result<Vec<SocketAddr>> {
    let Some(value) = &table.endpoint else { return Ok(Vec::new()) };
    let one = |text: Spanned<String>| {
        let error = |what: String, remedy: String| source.error(Some(text.span()), what, remedy);
        match Endpoint::parse(text.as_ref()) {
            Ok(Endpoint::Address(at)) => Ok(at),
            Ok(Endpoint::Name(name)) => {
                let remedy = "write addresses with a port, at which peers reach this host";
                Err(error(format!("`{name}` is a name"), remedy.to_owned()))
            }
            Err((what, remedy)) => Err(error(what, remedy)),
        }
    };
    texts(source, "endpoint", value)?.into_iter().map(one).collect()
}

/// Returns the name of this machine.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// Adds peers of the controller to other peers. A peer that this host cannot use is left out with a
/// warning.
pub(super) fn add(
    before: &[PeerSettings],
    new: &[Peer],
    node: (&Interface, Option<&Cloud>),
) -> Vec<PeerSettings> {
    let source = Source { path: Path::new("the controller's peers"), text: "" };
    let has_instances = node.1.is_some_and(|cloud| cloud.is_of_controller);
    let table = |peer: &Peer| table(peer, has_instances);
    let tables: Vec<Spanned<PeerTable>> = new.iter().map(table).collect();
    if let Ok(all) = peers(&source, &tables, node, before, Keys::Read) {
        return all;
    }
    let mut all = before.to_vec();
    for (table, peer) in tables.chunks(1).zip(new) {
        match peers(&source, table, node, &all, Keys::Read) {
            Ok(more) => all = more,
            Err(error) => {
                let ConfigError { what, .. } = error;
                tracing::warn!("the peer {} of the controller is left out: {what}", peer.name);
            }
        }
    }
    all
}

/// Returns the table of a peer. `has_instances`: whether the peer is a host of the controller's
/// cloud.
fn table(peer: &Peer, has_instances: bool) -> Spanned<PeerTable> {
    let text = |text: String| Spanned::new(0..0, text);
    let endpoints = peer.endpoints.iter().map(|at| text(at.to_string())).collect();
    let table = PeerTable {
        name: Some(text(peer.name.clone())),
        public_key: Some(text(peer.public_key.clone())),
        preshared_key_file: None,
        endpoint: Some(Spanned::new(0..0, Several::List(endpoints))),
        host: has_instances.then(|| text(peer.name.clone())),
        allowed: vec![text(peer.address.to_string())],
        express: None,
        express_udp: None,
    };
    Spanned::new(0..0, table)
}

impl Config {
    /// Returns a copy of this configuration in which the peers `new` of the controller replace the
    /// peers `old`. All other peers stay, and so do settings that a command has changed.
    pub fn with_roster(&self, old: &[Peer], new: &[Peer]) -> Self {
        let of_controller: BTreeMap<(&str, &str), IpAddr> = old
            .iter()
            .chain(new)
            .map(|of| ((of.public_key.as_str(), of.name.as_str()), of.address))
            .collect();
        // A host does not prove to the controller that the key is its own, so the key of a peer of
        // the file is not sufficient.
        let is_replaced = |peer: &&PeerSettings| {
            let key = peer.public_key.map(|key| key.to_string()).unwrap_or_default();
            let address = of_controller.get(&(key.as_str(), peer.name.as_str()));
            address.is_some_and(|address| peer.allowed == [IpNet::from(*address)])
        };
        let (before, others): (Vec<&PeerSettings>, Vec<&PeerSettings>) =
            self.peers.iter().partition(is_replaced);
        let others: Vec<PeerSettings> = others.into_iter().cloned().collect();
        let mut peers = add(&others, new, (&self.interface, self.cloud.as_ref()));
        let switches =
            before.iter().map(|peer| (peer.public_key, (peer.express, peer.express_udp)));
        let switches: BTreeMap<_, _> = switches.collect();
        for peer in &mut peers {
            if let Some(switch) = switches.get(&peer.public_key) {
                (peer.express, peer.express_udp) = *switch;
            }
        }
        Self { peers, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::SecretKey;
    use std::os::unix::fs::OpenOptionsExt;

    fn peer(name: &str, last: u8) -> Peer {
        Peer {
            name: name.to_owned(),
            public_key: SecretKey::draw_private().unwrap().public().to_string(),
            endpoints: vec![([192, 0, 2, last], 7471).into()],
            address: [10, 77, 0, last].into(),
        }
    }

    /// A host that has enrolled, with these peers.
    fn enrolled(directory: &Path, peers: Vec<Peer>) {
        let state = StateDirectory::new(directory.to_owned());
        let enrolment = Enrolment {
            controller: srd_enrol::Identity::draw().unwrap().fingerprint(),
            next_controller: None,
            name: "a".to_owned(),
            address: "10.77.0.1/16".parse().unwrap(),
            endpoints: Vec::new(),
            generation: 1,
            peers,
            is_removed: false,
        };
        state.store(&enrolment).unwrap();
        let mut options = std::fs::OpenOptions::new();
        let key = options.write(true).create(true).truncate(true).mode(0o600);
        let mut key = key.open(directory.join(PRIVATE_KEY)).unwrap();
        let private = SecretKey::draw_private().unwrap().expose();
        std::io::Write::write_all(&mut key, private.as_bytes()).unwrap();
    }

    fn text(directory: &Path, interface: &str, enrol: &str) -> String {
        format!(
            "[interface]\nlisten = \"0.0.0.0:7471\"\n{interface}\n[enrol]\ndirectory = \"{}\"\n\
             {enrol}\n",
            directory.display()
        )
    }

    const ZONE: &str = "[enrol.instances]\nzone = \"us-east-1a\"\n";
    const CONTROLLER: &str = "controller = \"192.0.2.100:4600\"";

    #[test]
    fn the_address_the_key_and_the_peers_come_from_the_state_directory() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let text = text(at, "", CONTROLLER);
        let error = Config::parse(&text, Path::new("a.toml")).unwrap_err();
        assert!(error.what.contains("has not enrolled at 192.0.2.100:4600"), "{error}");
        enrolled(at, vec![peer("b", 2), peer("c", 3)]);
        let config = Config::parse(&text, Path::new("a.toml")).unwrap();
        assert_eq!(config.interface.address, ["10.77.0.1/16".parse().unwrap()]);
        let names: Vec<&str> = config.peers.iter().map(|peer| peer.name.as_str()).collect();
        assert_eq!(names, ["b", "c"]);
        assert_eq!(config.peers[0].allowed, ["10.77.0.2/32".parse().unwrap()]);
    }

    #[test]
    fn other_peers_of_the_controller_replace_its_earlier_ones_only() {
        let directory = tempfile::tempdir().unwrap();
        let (own, old) = (peer("own", 9), vec![peer("b", 2), peer("c", 3)]);
        enrolled(directory.path(), old.clone());
        let own_table = format!(
            "[[peer]]\nname = \"own\"\npublic_key = \"{}\"\nendpoint = \"192.0.2.9:7471\"\n\
             allowed = [\"10.78.0.0/16\"]\n",
            own.public_key
        );
        let text = text(directory.path(), "", CONTROLLER) + &own_table;
        let config = Config::parse(&text, Path::new("a.toml")).unwrap();
        // One peer has another key, one is new, and one has a name that is taken here.
        let new = vec![peer("b", 2), peer("d", 4), peer("own", 5)];
        let config = config.with_roster(&old, &new);
        let names: Vec<&str> = config.peers.iter().map(|peer| peer.name.as_str()).collect();
        assert_eq!(names, ["own", "b", "d"]);
        assert_eq!(config.peers[1].public_key.unwrap().to_string(), new[0].public_key);
        assert_eq!(config.with_roster(&new, &[]).peers.len(), 1);
        // A reload may have applied the new peers already. Settings by command stay.
        let mut config = config.with_roster(&new, &new);
        config.peers[2].express = false;
        let config = config.with_roster(&old, &new);
        assert_eq!(config.peers.len(), 3);
        assert!(config.peers[1].express && !config.peers[2].express);
    }

    /// A host sends its public key to the controller without a proof. A host that sent the key of a
    /// peer of the file replaced that peer, and with its removal the peer was gone.
    #[test]
    fn regression_a_host_with_the_key_of_a_peer_of_the_file_does_not_replace_it() {
        let directory = tempfile::tempdir().unwrap();
        enrolled(directory.path(), Vec::new());
        let evil = peer("evil", 6);
        let own_table = format!(
            "[[peer]]\nname = \"own\"\npublic_key = \"{}\"\nendpoint = \"192.0.2.9:7471\"\n\
             allowed = [\"10.78.0.0/16\"]\n",
            evil.public_key
        );
        let text = text(directory.path(), "", CONTROLLER) + &own_table;
        let config = Config::parse(&text, Path::new("a.toml")).unwrap();
        let with = config.with_roster(&[], std::slice::from_ref(&evil));
        for config in [&with, &with.with_roster(&[evil], &[])] {
            let names: Vec<&str> = config.peers.iter().map(|peer| peer.name.as_str()).collect();
            assert_eq!(names, ["own"]);
        }
    }

    #[test]
    fn a_host_that_accepts_instances_has_a_cloud_whose_hosts_are_its_peers() {
        let directory = tempfile::tempdir().unwrap();
        let b = peer("b", 2);
        enrolled(directory.path(), vec![b.clone()]);
        let instances = "[enrol.instances]\nzone = \"us-east-1a\"\nvcpus = 64\npods = true\n\
                         [cloud]\ninternet = true\n";
        let text = text(directory.path(), "", CONTROLLER) + instances;
        let config = Config::parse(&text, Path::new("a.toml")).unwrap();
        let cloud = config.cloud.as_ref().unwrap();
        assert_eq!(cloud.vpc.as_deref(), Some(directory.path().join("cloud.toml").as_path()));
        assert!(cloud.is_of_controller && cloud.internet && cloud.end_programs && cloud.pods);
        assert_eq!((cloud.host.as_str(), config.interface.workers), ("a", 1));
        assert_eq!(config.peers[0].cloud_host.as_deref(), Some("b"));
        // A peer of the controller cannot take the name of this host.
        let new = [b.clone(), peer("a", 3), peer("c", 4)];
        let with = config.with_roster(&[b], &new);
        let hosts: Vec<_> = with.peers.iter().filter_map(|p| p.cloud_host.as_deref()).collect();
        assert_eq!(hosts, ["b", "c"]);
        let capacity = config.enrol.unwrap().capacity.unwrap();
        assert!(capacity.vcpus == 64 && capacity.pods);
    }

    /// Another name in the file had no effect, and no start, reload or take-over reported it.
    #[test]
    fn regression_another_name_than_the_enrolled_one_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let with = |name: &str| {
            let text = text(at, "", &format!("{CONTROLLER}\nname = \"{name}\""));
            Config::parse(&text, Path::new("a.toml"))
        };
        enrolled(at, Vec::new());
        with("a").unwrap();
        let error = with("b").unwrap_err();
        assert!(error.what.contains("has enrolled as `a`"), "{error}");
        assert!(error.remedy.contains("srd control hosts remove a"), "{error}");
        assert_eq!(error.place.unwrap().text, "name = \"b\"");
        // A host that was removed enrols under the new name.
        let state = StateDirectory::new(at.to_owned());
        let enrolment = state.enrolment().unwrap().unwrap();
        state.store(&Enrolment { is_removed: true, ..enrolment }).unwrap();
        with("b").unwrap();
    }

    /// A host with such a zone never got an instance, without a message.
    #[test]
    fn regression_a_misspelt_zone_is_an_error_with_the_zone_that_is_meant() {
        let remedy = |zone| check_zone(zone).unwrap_err().1;
        assert!(check_zone("us-east-1a").is_ok() && check_zone("eu-central-1c").is_ok());
        assert!(remedy("us-esat-1a").starts_with("did you mean us-east-1a"));
        assert!(remedy("us-east-1").contains("us-east-1a"));
        assert_eq!(remedy("use1-az1"), "write its name, which is us-east-1a");
        assert_eq!(remedy("rack 7"), "write a zone of EC2, such as us-east-1a");
        let directory = tempfile::tempdir().unwrap();
        enrolled(directory.path(), Vec::new());
        let instances = format!("{CONTROLLER}\n[enrol.instances]\nzone = \"us-esat-1a\"");
        let text = text(directory.path(), "", &instances);
        let error = Config::parse(&text, Path::new("a.toml")).unwrap_err();
        assert!(error.what.contains("`us-esat-1a`"), "{error}");
        assert_eq!(error.place.unwrap().text, "zone = \"us-esat-1a\"");
    }

    /// A user who had forgotten `sudo` was advised to take the state from the daemon.
    #[test]
    fn regression_only_a_user_of_daemons_is_advised_to_change_the_owner_of_the_state() {
        assert!(state_remedy(true).contains("chown -R"));
        assert!(state_remedy(false).contains("as root") && !state_remedy(false).contains("chown"));
    }

    #[test]
    fn errors_of_the_table_have_a_position_and_a_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        enrolled(at, Vec::new());
        for (interface, enrol, says) in [
            ("address = [\"10.0.0.1/8\"]", CONTROLLER, "`address` of a host that enrols"),
            ("protection = \"plain\"", CONTROLLER, "`protection` of a host that enrols"),
            ("mode = \"transparent\"", CONTROLLER, "`mode` of a host that enrols"),
            ("private_key_file = \"k\"", CONTROLLER, "`private_key_file` of a host that enrols"),
            ("", "", "`controller` is missing"),
            ("", "controller = \"x\"", "x"),
            ("", &format!("{CONTROLLER}\nname = \"a b\""), "a name of a host has"),
            ("", &format!("{CONTROLLER}\nendpoint = \"b.example:1\""), "is a name"),
            ("", &format!("{CONTROLLER}\nendpoint = []"), "empty list"),
            ("", &format!("{CONTROLLER}\n[enrol.instances]"), "`zone` is missing"),
            ("", &format!("{CONTROLLER}\n[enrol.instances]\nzone = \"\""), "availability zone"),
            ("", &format!("{CONTROLLER}\n{ZONE}vcpus = 0"), "`vcpus`"),
            ("", &format!("{CONTROLLER}\n{ZONE}[cloud]\nvpc = \"x\""), "`vpc` of a host whose"),
            ("", &format!("{CONTROLLER}\n{ZONE}[cloud]\nhost = \"x\""), "`host` of a host whose"),
        ] {
            let text = text(at, interface, enrol);
            let error = Config::parse(&text, Path::new("a.toml")).unwrap_err();
            assert!(error.what.contains(says) && error.place.is_some(), "{error}");
        }
        let alone = "[enrol]\ncontroller = \"192.0.2.1:1\"\n";
        let error = Config::parse(alone, Path::new("a.toml")).unwrap_err();
        assert!(error.remedy.contains("[interface]"), "{error}");
        let text = text(at, "", &format!("{CONTROLLER}\nendpoint = \"192.0.2.1:7471\""));
        let config = Config::parse(&text, Path::new("a.toml")).unwrap();
        let enrol = config.enrol.unwrap();
        assert_eq!(enrol.endpoints, ["192.0.2.1:7471".parse().unwrap()]);
    }
}
