//! Objects that the helper has created or changed, and that it removes or restores when the card
//! ends, however that happens.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::process::{Uid, geteuid};
use srd_daemon::handover::wire::{file_of, parts_of};
use srd_net::Tun;
use srd_trust::file_identity::{Identity, identity, remove};
use srd_trust::place;

use super::inspect;
use super::serve::{Reply, done};
use super::upkeep::{Guard, Shared};
use super::wire::{self, Receiver};
use super::{Answer, Inventory, MadePlace, Meet, Message, Request, SocketPaths, Spec};
use crate::control::protocol::NamespaceName;
use crate::machine::locks::Lock;
use crate::machine::namespace::{self, Device, Inside, Owned};
use crate::machine::place::{CreatedNetwork, NetworkRequest, make_all};
use crate::machine::programs;
use crate::machine::resolv_conf::{DIRECTORY, ResolvConf};
use crate::traffic::turns::INSTANCES_MAX;
use crate::{machine::earlier, machine::edge};

/// Longest wait for an answer of another helper.
const HAND_WAIT_MAX: Duration = Duration::from_secs(10);

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
    resolvers: BTreeMap<NamespaceName, ResolvConf>,
    /// Value of `net.ipv4.ip_forward` before the internet's side was set up; `None` if it was not
    /// set up.
    forward: Option<String>,
    guard: Guard,
    shared: Shared,
    /// Listening vhost-user sockets, with the identities of their files.
    sockets: BTreeMap<PathBuf, Identity>,
    /// Identity of the file of the card's control socket.
    listens: Option<Identity>,
}

impl Holds {
    pub(super) fn new(spec: Arc<Spec>, locks: &Path, shared: Shared) -> Self {
        Self {
            locks: locks.to_owned(),
            namespaces: BTreeMap::new(),
            left: BTreeSet::new(),
            resolvers: BTreeMap::new(),
            forward: None,
            guard: Guard::new(shared.clone()),
            shared,
            sockets: BTreeMap::new(),
            listens: spec.socket.as_ref().and_then(|socket| identity(&socket.listens)),
            spec,
        }
    }

    pub(super) fn obey(&mut self, request: Request, descriptors: Vec<OwnedFd>) -> Result<Reply> {
        match request {
            Request::Make(wanted) => self.make(&wanted),
            Request::Sweep(instances) => {
                namespace::sweep(&instances);
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
            Request::TakeOn => {
                let other = descriptors.into_iter().next().context("no other helper")?;
                self.take_on(&other)?;
                earlier::clean_after_end();
                Ok((Answer::Taken(self.namespaces.keys().cloned().collect()), Vec::new()))
            }
            Request::Hand => self.hand(),
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
        let mut made = make_all(wanted, &self.locks)?;
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

    /// Takes over all objects of another helper, and then makes that helper forget them.
    fn take_on(&mut self, other: &OwnedFd) -> Result<()> {
        set_socket_timeout(other, Timeout::Recv, Some(HAND_WAIT_MAX))?;
        // The card may have made this pair of sockets itself, and may describe files of its choice,
        // which this helper would remove at its end.
        check_user(socket_peercred(other)?.uid)?;
        let (answer, descriptors) = ask(other, Request::Hand)?;
        let Answer::Done = answer else { bail!("the helper before answers something else") };
        let mut descriptors = descriptors.into_iter();
        let file = descriptors.next().context("the helper before hands nothing over")?;
        let [held] = parts_of(&file.into())?;
        let held: Inventory =
            serde_json::from_slice(&held).context("what the helper before has")?;
        for name in held.namespaces {
            let lock = descriptors.next().context("a lock is missing")?;
            let lock = Lock::adopt(&self.locks, name.as_str(), lock.into())?;
            let owned = Owned::adopt(name.clone(), lock);
            self.shared.add(&owned);
            self.namespaces.insert(name, owned);
        }
        self.left.extend(held.left);
        for (name, resolver) in held.resolvers {
            let file = ResolvConf::of(Path::new(DIRECTORY), name.as_str(), resolver);
            self.resolvers.insert(name, file);
        }
        self.sockets.extend(held.sockets);
        if held.forward.is_some() {
            self.forward = held.forward;
        }
        ask(other, Request::Forget).context("the helper before")?;
        if let Some(before) = &self.forward {
            edge::set_rules(self.spec.internet_private, before)?;
            self.guard.keep_rules();
        }
        if let Some(SocketPaths { path, listens }) = &self.spec.socket
            && listens != path
        {
            let failed = || format!("the socket {}", path.display());
            fs::rename(listens, path).with_context(failed)?;
        }
        Ok(())
    }

    /// Returns a description of all objects, with the locks of the namespaces, for another helper.
    /// Until this helper receives the request to forget, it still has to remove and restore the
    /// objects.
    fn hand(&self) -> Result<Reply> {
        let resolvers = self.resolvers.iter().map(|(name, of)| (name.clone(), of.resolver()));
        let held = Inventory {
            namespaces: self.namespaces.keys().cloned().collect(),
            left: self.left.clone(),
            resolvers: resolvers.collect(),
            forward: self.forward.clone(),
            sockets: self.sockets.iter().map(|(path, of)| (path.clone(), *of)).collect(),
        };
        let mut descriptors = vec![file_of(&[&serde_json::to_vec(&held)?])?.into()];
        for owned in self.namespaces.values() {
            descriptors.push(owned.lock()?);
        }
        Ok((Answer::Done, descriptors))
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

    /// Drops the objects without removing or restoring them, because another helper has taken them
    /// over.
    pub(super) fn forget(self) {}

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
        self.sockets.iter().for_each(|(path, was)| remove_quietly(path, *was));
        if let (Some(SocketPaths { path, listens }), Some(was)) = (&self.spec.socket, self.listens)
        {
            remove_quietly(listens, was);
            remove_quietly(path, was);
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

/// Checks that the user at the other end is that of a helper, and not that of a card.
fn check_user(user: Uid) -> Result<()> {
    if user != geteuid() {
        bail!("the other end is no helper, but a process of user {user}");
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

/// Sends a request to another helper, and waits for the answer with all its descriptors.
fn ask(other: &OwnedFd, request: Request) -> Result<Reply> {
    wire::send(other, &Message { id: 1, body: Some(request) }, &[], HAND_WAIT_MAX)?;
    let (mut receiver, mut descriptors) = (Receiver::new(), Vec::new());
    loop {
        let received = receiver.next::<Answer>(other)?.context("the helper before has ended")?;
        descriptors.extend(received.descriptors);
        match received.message.map_err(anyhow::Error::msg)?.body {
            None => {}
            Some(Answer::Failed { what, .. }) => bail!(what),
            Some(answer) => return Ok((answer, descriptors)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_gets_as_many_networks_as_instances_and_no_more() {
        check_count(INSTANCES_MAX).unwrap();
        assert!(check_count(INSTANCES_MAX + 1).is_err());
    }

    #[test]
    fn regression_a_helper_takes_on_objects_of_a_helper_only() {
        check_user(geteuid()).unwrap();
        let other = Uid::from_raw(geteuid().as_raw() + 1);
        assert!(check_user(other).unwrap_err().to_string().contains("is no helper"));
    }
}
