//! Central directory: finds the hosts that a change concerns, and answers the queries of hosts.
//!
//! A directory has the whole world; each host has only the part that it needs. For each host, the
//! directory keeps the objects that the host's tables depend on and the answers that the host
//! holds. So for an [`Edit`] the directory finds the affected hosts without a search through all
//! hosts. Bound: one entry for each host that has requested its tables, with one record for each
//! object that these tables need, and at most [`HELD_MAX`] questions.

use super::build::cloud;
use super::index::{Index, host_of, memberships};
use super::known::ON_THE_WAY_MAX;
use super::needs::Needs;
use super::policy::AclRules;
use super::*;
use crate::object::{Acl, Eni, Peering, World};
use ipnet::IpNet;

/// Largest number of questions whose answers one host may hold: stored answers, and answers that
/// are in transit.
pub const HELD_MAX: usize = KNOWN_MAX + ON_THE_WAY_MAX;

/// All objects, and the answers that each host holds.
#[derive(Debug, Clone, Default)]
pub struct Directory {
    world: World,
    index: Index,
    hosts: BTreeMap<Arc<str>, Host>,
    /// Hosts that hold the answer to each question.
    holders: BTreeMap<Question, BTreeSet<Arc<str>>>,
    /// Hosts whose rules name each group.
    naming: BTreeMap<GroupId, BTreeSet<Arc<str>>>,
}

#[derive(Debug, Clone, Default)]
struct Host {
    needs: Needs,
    held: BTreeSet<Question>,
}

/// Attributes of an interface that hosts depend on, recorded before and after a change.
#[derive(PartialEq)]
struct InterfaceSnapshot {
    host: Option<Arc<str>>,
    groups: Vec<GroupId>,
    remote: Remote,
}

impl Directory {
    /// Returns a directory of a world. No host has tables or answers from this directory yet.
    pub fn new(world: World) -> Self {
        let index = Index::new(&world);
        Self { world, index, ..Self::default() }
    }

    /// Returns the current world.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Returns the tables of a host, and registers the host: from then on [`Directory::apply`]
    /// returns deltas for it.
    pub fn tables(&mut self, host: &str) -> Rules {
        self.leave(host);
        let rules = Rules::build(&self.world, &self.index, host, &BTreeSet::new());
        self.enter(&Arc::from(host), &rules, BTreeSet::new());
        rules
    }

    /// Removes a host that has ended or has lost its tables: the host receives no more changes.
    pub fn leave(&mut self, host: &str) {
        let Some(gone) = self.hosts.remove(host) else { return };
        for id in &gone.needs.named {
            take(&mut self.naming, id, host);
        }
        for question in &gone.held {
            take(&mut self.holders, question, host);
        }
    }

    /// Answers a query of a host's tables. When the answer is no longer valid, a delta withdraws
    /// it. An object that the host cannot reach is reported as absent. Returns `None` if the host
    /// has no tables of this directory, or if it holds [`HELD_MAX`] answers and has not reported
    /// any of them as dropped.
    pub fn answer(&mut self, host: &str, question: Question) -> Option<Answer> {
        let (world, index) = (&self.world, &self.index);
        let name = self.hosts.get_key_value(host)?.0.clone();
        let of = self.hosts.get_mut(host)?;
        if of.held.len() >= HELD_MAX && !of.held.contains(&question) {
            return None;
        }
        let reaches = |vpc: VpcId| of.needs.reached.contains(&vpc);
        let answer = match question {
            Question::Address(vpc, address) => {
                let id = index.at(vpc, address).filter(|_| reaches(vpc));
                let eni = id.and_then(|id| Some((id, world.enis.get(&id)?)));
                let place = eni.map(|(id, eni)| index.place(world, id, eni));
                Answer::Address(vpc, address, place)
            }
            Question::Interface(id) => {
                let remote = world.enis.get(&id).map(|eni| index.remote(world, id, eni));
                Answer::Interface(id, remote.filter(|of| of.vpc.is_some_and(reaches)))
            }
        };
        of.held.insert(question);
        self.holders.entry(question).or_default().insert(name);
        Some(answer)
    }

    /// Removes the records of answers that a host has dropped, or has never stored.
    pub fn forgotten(&mut self, host: &str, questions: &[Question]) {
        let Some(of) = self.hosts.get_mut(host) else { return };
        for question in questions.iter().filter(|question| of.held.remove(question)) {
            take(&mut self.holders, question, host);
        }
    }

    /// Changes the world. Returns a delta for each host that the change concerns; other hosts need
    /// no update.
    pub fn apply(&mut self, edits: &[Edit]) -> BTreeMap<Arc<str>, Delta> {
        let mut marks = Marks::default();
        for edit in edits {
            if !edit.changes(&self.world) {
                continue;
            }
            self.mark(edit, &mut marks);
            let moved = self.moved_by(edit);
            let before: Vec<_> = moved.iter().map(|id| self.take_out(*id, &mut marks)).collect();
            edit.apply(&mut self.world);
            for (id, before) in moved.into_iter().zip(before) {
                let after = self.put_in(id, &mut marks);
                self.mark_interface(id, before, after, &mut marks);
            }
            self.mark(edit, &mut marks);
        }
        self.deltas(marks)
    }

    /// Returns the interfaces whose index entries may change because of an edit.
    fn moved_by(&self, edit: &Edit) -> Vec<EniId> {
        match edit {
            Edit::Interface(id, _) => alloc::vec![*id],
            Edit::Instance(id, _) => self.index.of_instance(*id).collect(),
            Edit::Subnet(id, to) => {
                let place = |s: &crate::object::Subnet| (s.vpc, s.zone.clone());
                let same = self.world.subnets.get(id).map(place) == to.as_ref().map(place);
                if same { Vec::new() } else { self.index.of_subnet(*id).collect() }
            }
            Edit::Placement(id, _) => {
                let instances = self.world.instances.iter();
                let placed = instances.filter(|(_, of)| of.placement == Some(*id));
                placed.flat_map(|(instance, _)| self.index.of_instance(*instance)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn take_out(&mut self, id: EniId, marks: &mut Marks) -> Option<InterfaceSnapshot> {
        let seen = self.seen(id, marks);
        if let Some(eni) = self.world.enis.get(&id) {
            self.index.take(&self.world, id, eni);
        }
        seen
    }

    fn put_in(&mut self, id: EniId, marks: &mut Marks) -> Option<InterfaceSnapshot> {
        let eni = self.world.enis.get(&id)?;
        for (group, block) in memberships(eni) {
            let index = &self.index;
            let was = || index.is_member(group, block);
            marks.members.entry(group).or_default().entry(block).or_insert_with(was);
        }
        self.index.add(&self.world, id, eni);
        self.seen(id, marks)
    }

    /// Returns the attributes of an interface that hosts depend on. Marks the current memberships
    /// of its groups.
    fn seen(&self, id: EniId, marks: &mut Marks) -> Option<InterfaceSnapshot> {
        let eni: &Eni = self.world.enis.get(&id)?;
        for (group, block) in memberships(eni) {
            let was = || self.index.is_member(group, block);
            marks.members.entry(group).or_default().entry(block).or_insert_with(was);
        }
        Some(InterfaceSnapshot {
            host: host_of(&self.world, eni).map(Arc::from),
            groups: eni.groups.clone(),
            remote: self.index.remote(&self.world, id, eni),
        })
    }

    fn mark_interface(
        &self,
        id: EniId,
        before: Option<InterfaceSnapshot>,
        after: Option<InterfaceSnapshot>,
        marks: &mut Marks,
    ) {
        if before == after {
            return;
        }
        let both = || before.iter().chain(&after);
        for host in both().filter_map(|seen| seen.host.as_ref()) {
            marks.whole.extend(self.hosts.contains_key(host).then(|| host.clone()));
        }
        let remote =
            |seen: &Option<InterfaceSnapshot>| seen.as_ref().map(|seen| seen.remote.clone());
        let (was, is) = (remote(&before), remote(&after));
        if was == is {
            return;
        }
        marks.withdrawn.extend(self.held_by(Question::Interface(id)));
        for of in [&was, &is].into_iter().flatten() {
            let Some(vpc) = of.vpc else { continue };
            for block in of.own.nets() {
                let held = self.held_within(vpc, block);
                marks.withdrawn.extend(held.flat_map(|question| self.held_by(question)));
            }
        }
        self.mark_those(marks, |needs| needs.targets.contains(&Target::Eni(id)));
        let associated = self.world.addresses.values().filter_map(|address| address.association);
        for (_, private) in associated.filter(|(of, _)| *of == id) {
            for of in [&was, &is].into_iter().flatten() {
                self.mark_elastic(of.vpc, private, marks);
            }
        }
    }

    /// Marks the hosts whose packets may leave with the public address that belongs to this private
    /// address.
    fn mark_elastic(&self, vpc: Option<VpcId>, private: Ipv4Addr, marks: &mut Marks) {
        let Some(vpc) = vpc else { return };
        for eni in self.index.all_at(vpc, private.into()) {
            let host = self.world.enis.get(&eni).and_then(|eni| host_of(&self.world, eni));
            let host = host.and_then(|host| self.hosts.get_key_value(host));
            marks.whole.extend(host.map(|(name, _)| name.clone()));
        }
        let of_nat = self.world.nat_gateways.values().any(|nat| nat.private == private);
        self.mark_those(marks, |needs| {
            needs.own.contains(&vpc) && (of_nat || needs.forwards.contains(&vpc))
        });
    }

    fn mark_those(&self, marks: &mut Marks, concerned: impl Fn(&Needs) -> bool) {
        let hosts = self.hosts.iter().filter(|(_, of)| concerned(&of.needs));
        marks.whole.extend(hosts.map(|(name, _)| name.clone()));
    }

    /// Returns the questions about addresses of a block whose answers are held by hosts.
    fn held_within(&self, vpc: VpcId, block: IpNet) -> impl Iterator<Item = Question> + '_ {
        let (first, last) = (block.network(), block.broadcast());
        let range = Question::Address(vpc, first)..=Question::Address(vpc, last);
        self.holders.range(range).map(|(question, _)| *question)
    }

    fn held_by(&self, question: Question) -> impl Iterator<Item = (Question, Arc<str>)> + '_ {
        let hosts = self.holders.get(&question).into_iter().flatten();
        hosts.map(move |host| (question, host.clone()))
    }

    /// Marks the hosts that the current state of the edited object concerns. The caller marks
    /// before and after it applies the edit.
    fn mark(&self, edit: &Edit, marks: &mut Marks) {
        let world = &self.world;
        let vpc_of = |id: &SubnetId| world.subnets.get(id).map(|subnet| subnet.vpc);
        match edit {
            Edit::Interface(..) | Edit::Instance(..) | Edit::Placement(..) => {}
            Edit::Vpc(id, _) => {
                let before = || world.vpcs.get(id).map(cloud);
                marks.clouds.entry(*id).or_insert_with(before);
                self.mark_those(marks, |needs| needs.own.contains(id));
            }
            Edit::Subnet(id, _) => {
                let here = self.index.of_subnet(*id).filter_map(|eni| world.enis.get(&eni));
                let hosts = here.filter_map(|eni| host_of(world, eni));
                let hosts = hosts.filter_map(|host| self.hosts.get_key_value(host));
                marks.whole.extend(hosts.map(|(name, _)| name.clone()));
                let nats = world.nat_gateways.iter().filter(|(_, nat)| nat.subnet == *id);
                let nats: Vec<Target> = nats.map(|(nat, _)| Target::NatGateway(*nat)).collect();
                let vpc = vpc_of(id).filter(|_| !nats.is_empty());
                self.mark_those(marks, |needs| {
                    needs.subnets.contains(id)
                        || nats.iter().any(|nat| needs.targets.contains(nat))
                        || vpc.is_some_and(|vpc| needs.reached.contains(&vpc))
                });
            }
            Edit::RouteTable(id, _) => self.mark_those(marks, |needs| needs.tables.contains(id)),
            Edit::Acl(id, _) => {
                let before = || world.acls.get(id).cloned();
                marks.acls.entry(*id).or_insert_with(before);
            }
            Edit::Group(id, to) => {
                let same = world.groups.get(id).map(|group| group.vpc)
                    == to.as_ref().map(|group| group.vpc);
                self.mark_those(marks, |needs| {
                    needs.groups.contains(id) || !same && needs.mentioned.contains(id)
                });
            }
            Edit::PrefixList(id, _) => self.mark_those(marks, |needs| needs.lists.contains(id)),
            Edit::InternetGateway(id, _) => {
                let vpc = world.internet_gateways.get(id).and_then(|gateway| gateway.vpc);
                self.mark_gateway(Target::InternetGateway(*id), vpc, marks);
            }
            Edit::EgressOnlyGateway(id, _) => {
                self.mark_gateway(Target::EgressOnlyGateway(*id), None, marks);
            }
            Edit::Endpoint(id, _) => self.mark_gateway(Target::Endpoint(*id), None, marks),
            Edit::NatGateway(id, _) => {
                let vpc = world.nat_gateways.get(id).and_then(|nat| vpc_of(&nat.subnet));
                self.mark_those(marks, |needs| {
                    needs.targets.contains(&Target::NatGateway(*id))
                        || vpc.is_some_and(|vpc| needs.reached.contains(&vpc))
                });
            }
            Edit::Address(id, _) => self.mark_address(*id, marks),
            Edit::Peering(id, _) => {
                let ends = |p: &Peering| [p.requester, p.accepter];
                let ends = world.peerings.get(id).map(ends).into_iter().flatten();
                let ends: BTreeSet<VpcId> = ends.collect();
                self.mark_those(marks, |needs| {
                    needs.targets.contains(&Target::Peering(*id)) || !ends.is_disjoint(&needs.own)
                });
            }
        }
    }

    fn mark_gateway(&self, target: Target, vpc: Option<VpcId>, marks: &mut Marks) {
        self.mark_those(marks, |needs| {
            needs.targets.contains(&target) || vpc.is_some_and(|vpc| needs.own.contains(&vpc))
        });
    }

    fn mark_address(&self, id: AllocationId, marks: &mut Marks) {
        let world = &self.world;
        let vpc_of = |id: &SubnetId| world.subnets.get(id).map(|subnet| subnet.vpc);
        for nat in world.nat_gateways.values().filter(|nat| nat.address == Some(id)) {
            let vpc = vpc_of(&nat.subnet);
            self.mark_those(marks, |needs| vpc.is_some_and(|vpc| needs.own.contains(&vpc)));
        }
        let association = world.addresses.get(&id).and_then(|address| address.association);
        let Some((eni, private)) = association else { return };
        let Some(eni) = world.enis.get(&eni) else { return };
        if let Some((name, _)) = host_of(world, eni).and_then(|h| self.hosts.get_key_value(h)) {
            marks.whole.insert(name.clone());
        }
        self.mark_elastic(vpc_of(&eni.subnet), private, marks);
    }

    fn deltas(&mut self, mut marks: Marks) -> BTreeMap<Arc<str>, Delta> {
        let mut deltas: BTreeMap<Arc<str>, Delta> = BTreeMap::new();
        for host in core::mem::take(&mut marks.whole) {
            let Some(of) = self.hosts.get(&host) else { continue };
            let (has, reached) = (of.needs.named.clone(), of.needs.reached.clone());
            let rules = Rules::build(&self.world, &self.index, &host, &has);
            self.enter(&host, &rules, has);
            let of = &self.hosts[&host];
            if of.needs.reached != reached {
                // An object that the host could not reach was reported as absent. If that changes,
                // the answer changes.
                marks.withdrawn.extend(of.held.iter().map(|question| (*question, host.clone())));
            }
            deltas.entry(host).or_default().whole = Some(rules);
        }
        for (id, before) in marks.acls {
            if self.world.acls.get(&id) == before.as_ref() {
                continue;
            }
            let acl = self.world.acls.get(&id).map(AclRules::new);
            for (host, _) in self.hosts.iter().filter(|(_, of)| of.needs.acls.contains(&id)) {
                deltas.entry(host.clone()).or_default().acls.insert(id, acl.clone());
            }
        }
        for (id, before) in marks.clouds {
            let blocks = self.world.vpcs.get(&id).map(cloud);
            if blocks == before {
                continue;
            }
            for host in self.hosts.keys() {
                deltas.entry(host.clone()).or_default().clouds.insert(id, blocks.clone());
            }
        }
        for (id, blocks) in marks.members {
            let now = |block| self.index.is_member(id, block);
            let changed = blocks.into_iter().filter(|(block, was)| now(*block) != *was);
            let changed: BTreeMap<IpNet, bool> = changed.map(|(at, was)| (at, !was)).collect();
            if changed.is_empty() {
                continue;
            }
            for host in self.naming.get(&id).into_iter().flatten() {
                deltas.entry(host.clone()).or_default().members.insert(id, changed.clone());
            }
        }
        for (question, host) in marks.withdrawn {
            take(&mut self.holders, &question, &host);
            if let Some(of) = self.hosts.get_mut(&host) {
                of.held.remove(&question);
            }
            deltas.entry(host).or_default().withdrawn.push(question);
        }
        deltas
    }

    /// Stores the objects that the tables of a host depend on.
    fn enter(&mut self, host: &Arc<str>, rules: &Rules, before: BTreeSet<GroupId>) {
        let needs = Needs::of(&self.world, rules);
        for id in before.difference(&needs.named) {
            take(&mut self.naming, id, host);
        }
        for id in needs.named.difference(&before) {
            self.naming.entry(*id).or_default().insert(host.clone());
        }
        self.hosts.entry(host.clone()).or_default().needs = needs;
    }
}

/// The hosts and answers that a series of changes concerns.
#[derive(Debug, Default)]
struct Marks {
    /// Hosts whose tables are compiled again.
    whole: BTreeSet<Arc<str>>,
    /// Access control lists that were edited, with their state before the edits; `None`: the list
    /// did not exist.
    acls: BTreeMap<AclId, Option<Acl>>,
    /// Clouds that were edited, with their address blocks before the edits.
    clouds: BTreeMap<VpcId, Option<Blocks<()>>>,
    /// Address blocks of interfaces that edits add to groups or remove, and whether each block was
    /// in the group before the edits.
    members: BTreeMap<GroupId, BTreeMap<IpNet, bool>>,
    withdrawn: BTreeSet<(Question, Arc<str>)>,
}

fn take<K: Ord>(all: &mut BTreeMap<K, BTreeSet<Arc<str>>>, key: &K, host: &str) {
    let Some(hosts) = all.get_mut(key) else { return };
    hosts.remove(host);
    if hosts.is_empty() {
        all.remove(key);
    }
}
