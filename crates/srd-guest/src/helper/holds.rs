//! Objects that the helper has created or changed, and that it removes or restores when the card
//! ends, however that happens.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use srd_net::Tun;
use srd_trust::file_identity::{Identity, identity, remove};
use srd_trust::place;

use super::inspect;
use super::serve::{Reply, done};
use super::upkeep::{Guard, Shared};
use super::{Answer, MadePlace, Meet, Request, Spec};
use crate::control::protocol::NamespaceName;
use crate::machine::edge;
use crate::machine::namespace::{self, Device, Inside, Owned};
use crate::machine::place::{CreatedNetwork, NetworkRequest, make_all};
use crate::machine::programs;
use crate::machine::resolv_conf::{DIRECTORY, ResolvConf};
use crate::traffic::turns::INSTANCES_MAX;

/// All objects that a helper has to remove or restore at the end.
#[derive(Debug)]
pub(super) struct Holds {
    spec: Arc<Spec>,
    /// The directory of locks.
    locks: PathBuf,
    namespaces: BTreeMap<NamespaceName, Owned>,
    /// Namespaces that were not removed because programs still use them. They are checked once more
    /// at the end.
    left: BTreeSet<NamespaceName>,
    /// Names of the instances with which the card starts, until their namespaces are made.
    at_start: BTreeSet<NamespaceName>,
    resolvers: BTreeMap<NamespaceName, ResolvConf>,
    /// Value of `net.ipv4.ip_forward` before the internet's side was set up; `None` if it was not
    /// set up.
    forward: Option<String>,
    /// The right to the internet's side; `None` if it was not set up.
    right: Option<edge::Right>,
    guard: Guard,
    shared: Shared,
    /// Listening vhost-user sockets, with the identities of their files.
    sockets: BTreeMap<PathBuf, Identity>,
    /// Identity of the file of the node's control socket; `None` until the node listens.
    listens: Option<Identity>,
}

impl Holds {
    pub(super) fn new(spec: Arc<Spec>, locks: &Path, shared: Shared) -> Self {
        Self {
            locks: locks.to_owned(),
            namespaces: BTreeMap::new(),
            left: BTreeSet::new(),
            at_start: BTreeSet::new(),
            resolvers: BTreeMap::new(),
            forward: None,
            right: None,
            guard: Guard::new(shared.clone()),
            shared,
            sockets: BTreeMap::new(),
            listens: None,
            spec,
        }
    }

    pub(super) fn obey(&mut self, request: Request) -> Result<Reply> {
        match request {
            Request::Make(wanted) => self.make(&wanted),
            Request::Sweep(instances) => {
                namespace::sweep(&instances);
                self.at_start = instances;
                Ok(done())
            }
            Request::Remove { namespace, ends_programs } => {
                self.remove(&namespace, ends_programs).map(|()| done())
            }
            Request::Device { namespace, number, several, device, queues, ring } => {
                let inside = self.inside(&namespace)?;
                said(inside.add((number, several), &device, queues, ring)?)
            }
            Request::Queues { namespace, device, more } => {
                said(self.inside(&namespace)?.open_more(&device, more)?)
            }
            Request::Edge(publics) => {
                if self.right.is_none() {
                    self.right = Some(edge::Right::take(&self.locks)?);
                }
                let tun = edge::make(&publics)?;
                if self.forward.is_none() {
                    self.forward = Some(edge::forward(self.spec.internet_private)?);
                    self.guard.keep_rules();
                }
                said(vec![tun])
            }
            Request::Route { add, remove } => edge::route(&add, &remove).map(|()| done()),
            Request::Resolvers(all) => {
                all.into_iter().for_each(|(namespace, of)| self.set_resolver(namespace, of));
                Ok(done())
            }
            Request::End(all) => {
                let paths: Vec<PathBuf> = all
                    .iter()
                    .filter(|name| self.namespaces.get(name).is_some_and(|of| !of.is_pod()))
                    .map(namespace::path_of)
                    .collect();
                programs::end(paths.iter().map(PathBuf::as_path));
                Ok(done())
            }
            Request::Vhost { path, meets } => self.vhost(path, meets),
            Request::VhostGone(path) => {
                if let Some(was) = self.sockets.remove(&path) {
                    remove_quietly(&path, was);
                }
                Ok(done())
            }
            Request::Listens => {
                self.listens = identity(&self.spec.socket);
                Ok(done())
            }
            Request::Restore(of) => {
                self.restore(&of);
                Ok(done())
            }
            _ => bail!("this is no request for here"),
        }
    }

    fn inside(&self, namespace: &NamespaceName) -> Result<&Inside> {
        let owned = self.namespaces.get(namespace);
        owned.map(Owned::inside).with_context(|| format!("this card has no namespace {namespace}"))
    }

    fn make(&mut self, wanted: &[NetworkRequest]) -> Result<Reply> {
        check_count(self.namespaces.len() + wanted.len())?;
        for of in wanted {
            let name = NamespaceName::of_instance(&of.name);
            if name.is_some_and(|name| self.namespaces.contains_key(&name)) {
                bail!("the instance `{}` is there already", of.name);
            }
        }
        let limited = |of: &NetworkRequest| NetworkRequest {
            may_find: of.may_find && self.may_find(&of.name),
            ..of.clone()
        };
        let limited: Vec<NetworkRequest> = wanted.iter().map(limited).collect();
        let mut made = make_all(&limited, &self.locks)?;
        let (mut places, mut descriptors, mut udp_segmentation) = (Vec::new(), Vec::new(), true);
        for of in wanted {
            let Some(created) = made.remove(&of.name) else {
                self.left.extend(NamespaceName::of_instance(&of.name));
                continue;
            };
            let CreatedNetwork { namespace: owned, devices, pod } = created;
            let name = owned.name().clone();
            let is_found = owned.is_found();
            self.left.remove(&name);
            self.at_start.remove(&name);
            self.shared.add(&owned);
            self.namespaces.insert(name.clone(), owned);
            if let Some(resolver) = of.resolver {
                self.set_resolver(name, Some(resolver));
            }
            let count = |queues: &Vec<Tun>| u16::try_from(queues.len()).unwrap_or(u16::MAX);
            let queues = devices.iter().map(count).collect();
            places.push(MadePlace { instance: of.name.clone(), is_found, queues, pod });
            for tun in devices.into_iter().flatten() {
                udp_segmentation &= tun.udp_segmentation();
                descriptors.extend(into_descriptor(tun));
            }
        }
        Ok((Answer::Made { places, udp_segmentation }, descriptors))
    }

    /// Whether the instance of this name may take over a namespace with the programs in it: the
    /// card starts with this instance, or a card has left the namespace. The lock of such a
    /// namespace stays, and another program that makes a namespace makes no lock.
    fn may_find(&self, instance: &str) -> bool {
        let is_known = |name: NamespaceName| {
            self.at_start.contains(&name) || self.locks.join(name.as_str()).exists()
        };
        NamespaceName::of_instance(instance).is_some_and(is_known)
    }

    fn remove(&mut self, name: &NamespaceName, ends_programs: bool) -> Result<()> {
        self.resolvers.remove(name).into_iter().for_each(ResolvConf::remove);
        let Some(owned) = self.namespaces.remove(name) else {
            bail!("this card has no namespace {name}");
        };
        self.shared.remove(name);
        if ends_programs && !owned.is_pod() {
            programs::end([namespace::path_of(name).as_path()].into_iter());
        }
        if !owned.delete() {
            self.left.insert(name.clone());
        }
        Ok(())
    }

    /// Sets or removes the resolver of a namespace. If this fails, its programs use this machine's
    /// resolver.
    fn set_resolver(&mut self, namespace: NamespaceName, resolver: Option<Ipv4Addr>) {
        let before = self.resolvers.get(&namespace).map(ResolvConf::resolver);
        if before == resolver || !self.namespaces.contains_key(&namespace) {
            return;
        }
        self.resolvers.remove(&namespace).into_iter().for_each(ResolvConf::remove);
        let Some(resolver) = resolver else { return };
        match ResolvConf::write(Path::new(DIRECTORY), namespace.as_str(), resolver) {
            Ok(file) => self.resolvers.extend(file.map(|file| (namespace, file))),
            Err(error) => tracing::warn!(
                "resolv.conf of {namespace}: {error:#}: its programs use this machine's"
            ),
        }
    }

    fn vhost(&mut self, path: PathBuf, meets: Meet) -> Result<Reply> {
        let replaces = match meets {
            Meet::Joins => {
                let front = srd_trust::socket::connect(&path)?;
                return Ok((Answer::Done, vec![front.into()]));
            }
            Meet::Listens => false,
            Meet::Replaces => true,
        };
        let failed = || format!("the socket {}", path.display());
        path.parent().map_or(Ok(()), place::check).with_context(failed)?;
        let listener = srd_vhost::listen(&path, replaces).with_context(failed)?;
        self.sockets.extend(identity(&path).map(|of| (path, of)));
        Ok((Answer::Done, vec![listener.into()]))
    }

    /// Checks the settings of the machine that other programs may have changed. If `rules` is true,
    /// restores packet rules that were changed.
    pub(super) fn tend(&mut self, rules: bool) {
        let Some(before) = &self.forward else { return };
        self.guard.look_at_forwarding(before);
        if rules {
            self.guard.tend(&self.spec, before);
        }
    }

    /// Restores these namespaces and the internet's side after changes by other programs. Each
    /// repair and each failure is logged.
    fn restore(&mut self, of: &[(NamespaceName, Vec<Device>)]) {
        if let Some(before) = &self.forward {
            self.guard.restore_forwarding(before);
        }
        for (name, devices) in of {
            let (Some(owned), Some(identity)) =
                (self.namespaces.get(name), self.shared.identity(name))
            else {
                continue;
            };
            match inspect::restore(owned, identity, devices) {
                Ok(None) => {}
                Ok(Some(what)) => tracing::info!("the namespace {name} has again: {what}"),
                Err(error) => tracing::warn!("the namespace {name}: {error:#}"),
            }
        }
    }

    /// Removes or restores all objects.
    pub(super) fn give_back(self) {
        self.resolvers.into_values().for_each(ResolvConf::remove);
        for (name, owned) in self.namespaces {
            if !owned.delete() {
                tracing::debug!("{name} is left to its programs");
            }
        }
        for name in &self.left {
            namespace::delete_left(name, &self.locks);
        }
        if let Some(before) = &self.forward {
            edge::give_back(before);
        }
        if let Some(right) = self.right {
            right.give_back();
        }
        self.sockets.iter().for_each(|(path, was)| remove_quietly(path, *was));
        if let Some(was) = self.listens {
            remove_quietly(&self.spec.socket, was);
        }
    }
}

/// Checks that a card does not get more networks of instances than it can have instances.
fn check_count(networks: usize) -> Result<()> {
    if networks > INSTANCES_MAX {
        bail!("a card has at most {INSTANCES_MAX} instances: start another card for more");
    }
    Ok(())
}

/// Removes a file unless its name belongs to another file by now. At the end of the card, a file
/// that cannot be removed stays, and the next card removes it.
fn remove_quietly(path: &Path, was: Identity) {
    if let Err(error) = remove(path, was) {
        tracing::warn!("{} stays for now: {error}", path.display());
    }
}

/// Returns an answer with queues of a device.
fn said(queues: Vec<Tun>) -> Result<Reply> {
    let count = u16::try_from(queues.len()).unwrap_or(u16::MAX);
    let udp_segmentation = queues.iter().all(Tun::udp_segmentation);
    let descriptors = queues.into_iter().filter_map(into_descriptor).collect();
    Ok((Answer::Queues { count, udp_segmentation }, descriptors))
}

/// Returns the descriptor of a queue that has no other handle. A copy of the descriptor could fail,
/// after the device was created.
fn into_descriptor(tun: Tun) -> Option<OwnedFd> {
    let descriptor = tun.fd();
    drop(tun);
    Arc::into_inner(descriptor)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that contained a removed instance again was refused while its programs ran.
    #[test]
    fn regression_namespaces_of_the_start_and_of_cards_are_found_and_no_others() {
        let locks = tempfile::tempdir().unwrap();
        let spec = crate::helper::tests::Site::new().spec();
        let mut holds = Holds::new(Arc::new(spec), locks.path(), Shared::default());
        holds.at_start.extend(NamespaceName::of_instance("web"));
        std::fs::write(locks.path().join("srd-i-app"), "").unwrap();
        let found = ["web", "app", "db"].map(|name| holds.may_find(name));
        assert_eq!(found, [true, true, false]);
    }

    #[test]
    fn a_card_gets_as_many_networks_as_instances_and_no_more() {
        check_count(INSTANCES_MAX).unwrap();
        assert!(check_count(INSTANCES_MAX + 1).is_err());
    }
}
