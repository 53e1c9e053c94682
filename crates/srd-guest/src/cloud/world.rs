//! The VPC of a service, and instances that are added to it while it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use srd_card::profile::{InstanceType, UnknownType};
use srd_vpc::id::*;
use srd_vpc::object::*;
use srd_vpc_file::{Kind, TypePlaces, VpcFile};

use crate::cloud::workers::Workers;
use crate::control::protocol::{Attach, is_name};
use crate::failure::WrongSettings;

/// The VPC without a file: EC2's default VPC, whose subnet gives instances public addresses.
const DEFAULT_VPC: &str = r#"
[vpc.default]
cidr = ["172.31.0.0/16"]
[internet_gateway.default]
vpc = "default"
[route_table.default]
vpc = "default"
routes = ["0.0.0.0/0 to internet_gateway default"]
[acl.default]
vpc = "default"
ingress = ["100 allow all from 0.0.0.0/0"]
egress = ["100 allow all to 0.0.0.0/0"]
[subnet.default]
vpc = "default"
cidr = "172.31.0.0/20"
route_table = "default"
acl = "default"
[group.default]
vpc = "default"
ingress = ["all from group default"]
egress = ["all to 0.0.0.0/0"]
"#;
/// Number of addresses at the start of a subnet that EC2 reserves. The last address of a subnet is
/// reserved as well.
const RESERVED_FIRST: u32 = 4;
/// First of the public addresses for added instances. They are in a block for documentation (RFC
/// 5737).
const PUBLIC_FIRST: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 128);
const PUBLIC_COUNT: u32 = 120;
/// Largest number of security groups of an interface: the limit of EC2.
const GROUPS_MAX: usize = 16;

/// The VPC of a card: the objects of its file, and instances that were added while the card runs.
#[derive(Clone, Debug)]
pub(crate) struct Vpc {
    file: Arc<VpcFile>,
    /// Added objects, by the name of their instance.
    added: BTreeMap<String, Added>,
    /// The name of this host.
    host: String,
    /// Whether the network that plays the role of the internet carries private addresses.
    internet_private: bool,
    /// The workers among which the instances of this host are divided; `None` if there is only one.
    workers: Option<Workers>,
}

#[derive(Clone, Debug)]
struct Added {
    instance: (InstanceId, Instance),
    eni: (EniId, Eni),
    address: Option<(AllocationId, ElasticAddress)>,
}

impl Added {
    /// Returns an address of this instance that an object in `world` already uses.
    fn clash(&self, world: &World) -> Option<Ipv4Addr> {
        let own = &self.eni.1;
        let is_taken = is_taken(world, own.subnet);
        let publics = Vpc::publics(world);
        let public = self.address.as_ref().map(|(_, address)| address.public);
        let private = own.ipv4.iter().copied().find(is_taken);
        private.or(public.filter(|public| publics.contains(public)))
    }
}

impl Vpc {
    /// The VPC without a file, for tests.
    #[cfg(test)]
    pub(crate) fn of_none() -> Self {
        let file = Arc::new(Self::file_of(None).expect("it is a constant"));
        let host = String::from("here");
        Self { file, added: BTreeMap::new(), host, internet_private: false, workers: None }
    }

    /// Reads the VPC of a file, or the default VPC, for a host. `internet_private`: whether the
    /// internet carries private addresses.
    pub(crate) fn read(file: Option<&Path>, host: &str, internet_private: bool) -> Result<Self> {
        Ok(Self::of(Self::file_of(file)?, host, internet_private))
    }

    /// Returns the VPC of a file that was read before, for a host. `internet_private`: whether the
    /// internet carries private addresses.
    pub(crate) fn of(file: VpcFile, host: &str, internet_private: bool) -> Self {
        let (file, host) = (Arc::new(file), host.to_owned());
        Self { file, added: BTreeMap::new(), host, internet_private, workers: None }
    }

    /// Returns the VPC with the instances of this host divided among workers.
    pub(crate) fn among(self, workers: Workers) -> Self {
        Self { workers: Some(workers), ..self }
    }

    /// Returns the workers among which the instances of this host are divided; `None` if there is
    /// only one.
    pub(crate) fn workers(&self) -> Option<&Workers> {
        self.workers.as_ref()
    }

    /// Reads a file, which is not empty, or returns the default VPC.
    pub(crate) fn file_of(file: Option<&Path>) -> Result<VpcFile> {
        Ok(match file {
            Some(path) => srd_vpc_file::read(path)?.for_card(path)?,
            None => srd_vpc_file::parse(DEFAULT_VPC, Path::new("the default VPC"))?,
        })
    }

    /// Returns the VPC with `file` in place of the present file. Added instances stay.
    pub(crate) fn replaced(&self, file: impl Into<Arc<VpcFile>>) -> Result<Self> {
        let mut vpc = Self { file: file.into(), added: BTreeMap::new(), ..self.clone() };
        for (name, added) in &self.added {
            if vpc.file.names.number(Kind::Instance, name).is_some() {
                bail!("the file names an instance `{name}`, and one that was added has this name");
            }
            let own = &added.eni.1;
            let Some(subnet) = vpc.file.world.subnets.get(&own.subnet) else {
                bail!("the file lacks the subnet of `{name}`, which was added: end it first");
            };
            if let Some(address) = own.ipv4.iter().find(|address| !subnet.ipv4.contains(*address)) {
                bail!("`{name}`, which was added, has {address} outside its subnet: end it first");
            }
            if own.groups.iter().any(|group| !is_of(&vpc.file.world, *group, subnet)) {
                bail!("the file lacks a group of `{name}`, which was added: end it first");
            }
            if let Some(address) = added.clash(&vpc.file.world) {
                bail!(
                    "`{name}`, which was added, has {address}, and so has the file: end it first"
                );
            }
        }
        vpc.added = self.added.clone();
        Ok(vpc)
    }

    /// Whether this file describes the same objects, under the same names, as the present file.
    pub(crate) fn is_same_file(&self, file: &VpcFile) -> bool {
        *self.file == *file
    }

    /// Returns the name of this host.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Returns the file.
    pub(crate) fn file(&self) -> Arc<VpcFile> {
        Arc::clone(&self.file)
    }

    /// Returns the instances of this host in a world, those of all its workers.
    pub(crate) fn instances_here<'a>(
        &self,
        world: &'a World,
    ) -> impl Iterator<Item = (&'a InstanceId, &'a Instance)> + use<'a> {
        let mut names: BTreeSet<String> = BTreeSet::from([self.host.clone()]);
        let workers = self.workers.iter().flat_map(Workers::names);
        names.extend(workers.map(|name| name.to_string()));
        let is_here = move |host: &String| names.contains(host);
        let all = world.instances.iter();
        all.filter(move |(_, instance)| instance.host.as_ref().is_some_and(&is_here))
    }

    /// Returns the positions of the instance types in the file.
    pub(crate) fn types(&self) -> &TypePlaces {
        &self.file.types
    }

    /// Returns the directories of the file's flow logs.
    pub(crate) fn log_directories(&self) -> BTreeSet<String> {
        self.file.world.flow_logs.values().map(|log| log.directory.clone()).collect()
    }

    /// Returns the names of added instances.
    pub(crate) fn added_names(&self) -> impl Iterator<Item = &str> {
        self.added.keys().map(String::as_str)
    }

    /// Returns all objects, including those of added instances. An instance of this host has its
    /// worker as its host.
    pub(crate) fn world(&self) -> World {
        let mut world = self.undivided();
        if let Some(workers) = &self.workers {
            workers.divide(&mut world);
        }
        world
    }

    /// Returns all objects, including those of added instances. An instance for which the file
    /// names no host is on this host.
    pub(crate) fn undivided(&self) -> World {
        let mut world = self.file.world.clone();
        world.internet_private = self.internet_private;
        for added in self.added.values() {
            world.instances.insert(added.instance.0, added.instance.1.clone());
            world.enis.insert(added.eni.0, added.eni.1.clone());
            world.addresses.extend(added.address.clone());
        }
        for instance in world.instances.values_mut() {
            instance.host.get_or_insert_with(|| self.host.clone());
        }
        world
    }

    /// Returns all objects with their names, as if they had been read from a file.
    pub(crate) fn as_file(&self) -> VpcFile {
        let mut names = self.file.names.clone();
        for (name, added) in &self.added {
            names.give(Kind::Instance, name, added.instance.0.0);
            names.give(Kind::Interface, name, added.eni.0.0);
        }
        VpcFile { world: self.undivided(), names, types: self.file.types.clone() }
    }

    /// Checks that an instance is on this host.
    pub(crate) fn instance_here(&self, name: &str) -> Result<()> {
        let world = self.undivided();
        let mut all = self.instances_here(&world);
        let found = all.find(|(_, instance)| instance.name == name);
        found.map(|_| ()).ok_or_else(|| {
            let what = format!("there is no instance `{name}` on this host ({})", self.host);
            WrongSettings(what).into()
        })
    }

    pub(crate) fn eni_name(&self, id: EniId) -> String {
        let name = self.file.names.name(Kind::Interface, id.0);
        name.map_or_else(|| id.to_string(), str::to_owned)
    }

    /// Returns the public addresses of instances and gateways.
    pub(crate) fn publics(world: &World) -> BTreeSet<Ipv4Addr> {
        world.addresses.values().map(|address| address.public).collect()
    }

    /// Adds an instance with one interface, and returns its name. If the request gives no name, a
    /// free name is chosen. `is_taken` returns whether a namespace with the name exists already.
    pub(crate) fn attach(
        &mut self,
        attach: &Attach,
        is_taken: impl Fn(&str) -> bool,
    ) -> Result<String> {
        let world = self.world();
        let kind = &attach.instance_type;
        InstanceType::find(kind).map_err(|unknown| {
            anyhow::anyhow!("there is no instance type `{kind}`: {}", type_remedy(&unknown))
        })?;
        let names: BTreeSet<&str> = world.instances.values().map(|i| i.name.as_str()).collect();
        let name = match &attach.name {
            Some(name) if names.contains(name.as_str()) => {
                bail!("an instance `{name}` is there already: give another --name")
            }
            Some(name) => name.clone(),
            None => {
                let mut numbers = (1..).map(|n: u32| format!("run{n}"));
                let is_free = |name: &String| !names.contains(name.as_str()) && !is_taken(name);
                numbers.find(is_free).unwrap_or_default()
            }
        };
        if !is_name(&name) {
            bail!("`{name}` is no name: use up to 40 letters, digits and hyphens");
        }
        let peer = match &attach.peer_of {
            Some(peer) => Some(eni_of(&world, peer)?),
            None => None,
        };
        let subnet = self.subnet(&world, attach, peer)?;
        let groups = self.groups(&world, attach, peer, subnet)?;
        let number = srd_vpc_number(&name);
        let (id, eni) = (InstanceId(number), EniId(number));
        if world.instances.contains_key(&id) || world.enis.contains_key(&eni) {
            bail!("`{name}` has the identifier of another instance: give another --name");
        }
        let address = free_address(&world, subnet)?;
        let zone = world.subnets[&subnet].zone.clone();
        let host = Some(self.host.clone());
        let instance_type = attach.instance_type.clone();
        let (placement, pod) = (None, None);
        let instance = Instance { name: name.clone(), instance_type, zone, placement, host, pod };
        let attachment = Attachment {
            id: AttachmentId(number),
            instance: id,
            device_index: 0,
            express: ExpressSpec::default(),
        };
        let interface = Eni {
            name: name.clone(),
            subnet,
            mac: eni.mac(),
            ipv4: vec![address],
            ipv6: Vec::new(),
            ipv4_prefixes: Vec::new(),
            ipv6_prefixes: Vec::new(),
            groups,
            source_dest_check: true,
            attachment: Some(attachment),
            tracking: TrackingSpec::default(),
        };
        let public = free_public(&world).map(|public| {
            let association = Some((eni, address));
            let address = ElasticAddress { name: name.clone(), public, association };
            (AllocationId(number), address)
        });
        let added = Added { instance: (id, instance), eni: (eni, interface), address: public };
        self.added.insert(name.clone(), added);
        Ok(name)
    }

    pub(crate) fn detach(&mut self, name: &str) {
        self.added.remove(name);
    }

    fn subnet(&self, world: &World, attach: &Attach, peer: Option<&Eni>) -> Result<SubnetId> {
        if let Some(name) = &attach.subnet {
            let number = self.file.names.number(Kind::Subnet, name);
            return Ok(SubnetId(number.with_context(|| format!("there is no subnet `{name}`"))?));
        }
        if let Some(peer) = peer {
            return Ok(peer.subnet);
        }
        let mut all = world.subnets.keys();
        match (all.next(), all.next()) {
            (Some(only), None) => Ok(*only),
            (None, _) => bail!("the VPC has no subnet"),
            _ => bail!("the VPC has several subnets: give one with --subnet"),
        }
    }

    fn groups(
        &self,
        world: &World,
        attach: &Attach,
        peer: Option<&Eni>,
        subnet: SubnetId,
    ) -> Result<Vec<GroupId>> {
        let subnet = world.subnets.get(&subnet).context("there is no such subnet")?;
        let find = |name: &String| {
            let number = self.file.names.number(Kind::Group, name);
            number.map(GroupId).with_context(|| format!("there is no group `{name}`"))
        };
        let groups: Vec<GroupId> = match (attach.groups.as_slice(), peer) {
            ([], Some(peer)) => peer.groups.clone(),
            ([], None) => {
                let vpc = world.vpcs.get(&subnet.vpc);
                return Ok(vpc.map(|vpc| vec![vpc.default_group]).unwrap_or_default());
            }
            (names, _) => names.iter().map(find).collect::<Result<_>>()?,
        };
        if groups.len() > GROUPS_MAX {
            bail!("an interface has at most {GROUPS_MAX} groups");
        }
        if let Some(other) = groups.iter().find(|group| !is_of(world, **group, subnet)) {
            let name = world.groups.get(other).map_or("", |group| group.name.as_str());
            bail!("group `{name}` is of another cloud than the subnet: give others with --group");
        }
        Ok(groups)
    }
}

/// Returns the primary interface of an instance: the interface with the smallest device index.
fn eni_of<'a>(world: &'a World, name: &str) -> Result<&'a Eni> {
    let instance = world.instances.iter().find(|(_, instance)| instance.name == name);
    let (id, _) = instance.with_context(|| format!("there is no instance `{name}`"))?;
    let enis = world.enis.values().filter_map(|eni| Some((eni, eni.attachment.as_ref()?)));
    let own = enis.filter(|(_, attachment)| attachment.instance == *id);
    let eni = own.min_by_key(|(_, attachment)| attachment.device_index).map(|(eni, _)| eni);
    eni.with_context(|| format!("the instance `{name}` has no interface"))
}

/// Whether the group exists in the cloud of the subnet.
fn is_of(world: &World, group: GroupId, subnet: &Subnet) -> bool {
    world.groups.get(&group).is_some_and(|group| group.vpc == subnet.vpc)
}

/// Returns the number of the identifiers of an added instance: a hash (FNV-1a) of its name.
fn srd_vpc_number(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn free_address(world: &World, subnet: SubnetId) -> Result<Ipv4Addr> {
    let of = world.subnets.get(&subnet).context("there is no such subnet")?;
    let is_taken = is_taken(world, subnet);
    let first = u32::from(of.ipv4.network()) + RESERVED_FIRST;
    let last = u32::from(of.ipv4.broadcast());
    let mut all = (first..last).map(Ipv4Addr::from);
    all.find(|address| !is_taken(address)).context("the subnet has no address left")
}

/// Returns the test whether interfaces of a subnet have an address, alone or in a prefix, or a NAT
/// gateway has it.
fn is_taken(world: &World, subnet: SubnetId) -> impl Fn(&Ipv4Addr) -> bool {
    let enis = || world.enis.values().filter(move |eni| eni.subnet == subnet);
    let mut taken: BTreeSet<Ipv4Addr> = enis().flat_map(|eni| eni.ipv4.iter().copied()).collect();
    taken.extend(world.nat_gateways.values().map(|gateway| gateway.private));
    let prefixes: Vec<_> = enis().flat_map(|eni| eni.ipv4_prefixes.iter().copied()).collect();
    move |of| taken.contains(of) || prefixes.iter().any(|prefix| prefix.contains(of))
}

/// Whether an address belongs to the block of the public addresses of added instances.
pub(crate) fn is_for_added(public: Ipv4Addr) -> bool {
    let first = u32::from(PUBLIC_FIRST);
    (first..first + PUBLIC_COUNT).contains(&u32::from(public))
}

fn free_public(world: &World) -> Option<Ipv4Addr> {
    let taken = Vpc::publics(world);
    let mut all = (0..PUBLIC_COUNT).map(|n| Ipv4Addr::from(u32::from(PUBLIC_FIRST) + n));
    all.find(|address| !taken.contains(address))
}

/// Returns the remedy for a type that does not exist: similar ones.
pub(crate) fn type_remedy(UnknownType { suggestions }: &UnknownType) -> String {
    match suggestions[..] {
        [] => "write a type of EC2, such as c7i.large".to_owned(),
        _ => format!("did you mean {}?", suggestions.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn default_vpc() -> Vpc {
        Vpc::of_none()
    }

    fn attach(name: Option<&str>) -> Attach {
        Attach {
            name: name.map(str::to_owned),
            instance_type: "c7i.large".into(),
            ..Attach::default()
        }
    }

    /// Treats no name as taken.
    fn none(_: &str) -> bool {
        false
    }

    #[test]
    fn instances_of_the_default_vpc_have_addresses_of_their_own() {
        let mut vpc = default_vpc();
        let names = [(); 2].map(|()| vpc.attach(&attach(None), none).unwrap());
        assert_eq!(names, ["run1", "run2"]);
        let world = vpc.world();
        let addresses: BTreeSet<_> = world.enis.values().map(|eni| eni.ipv4[0]).collect();
        let wanted = [[172, 31, 0, 4], [172, 31, 0, 5]].map(Ipv4Addr::from);
        assert_eq!(addresses, wanted.into());
        assert_eq!(Vpc::publics(&world).len(), 2);
        vpc.detach("run1");
        assert_eq!(vpc.world().enis.len(), 1);
        assert_eq!(vpc.attach(&attach(None), |name| name == "run1").unwrap(), "run3");
        assert_eq!(vpc.attach(&attach(None), none).unwrap(), "run1");
    }

    #[test]
    fn regression_the_peer_of_an_instance_has_the_groups_of_its_primary_interface() {
        let mut vpc = default_vpc();
        vpc.attach(&attach(Some("a")), none).unwrap();
        let mut world = vpc.world();
        let primary = eni_of(&world, "a").unwrap().clone();
        // The secondary interface has the smaller identifier.
        let (mut second, id) = (primary.clone(), EniId(0));
        second.attachment.as_mut().unwrap().device_index = 1;
        world.enis.insert(id, second);
        assert_eq!(eni_of(&world, "a").unwrap().attachment, primary.attachment);
    }

    /// If the file were accepted, two interfaces would have one address, and packets for one
    /// interface would reach the other interface.
    #[test]
    fn regression_a_file_that_gives_away_the_address_of_an_added_instance_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vpc.toml");
        let mut vpc = default_vpc();
        vpc.attach(&attach(Some("a")), none).unwrap();
        let with = |more: &str| {
            std::fs::write(&path, format!("{DEFAULT_VPC}{more}")).unwrap();
            vpc.replaced(srd_vpc_file::read(&path).unwrap())
                .map(|_| ())
                .map_err(|error| error.to_string())
        };
        with("").unwrap();
        let instance = "[instance.b]\ntype = \"c7i.large\"\n";
        let interface = |address: &str| {
            format!(
                "{instance}[interface.b]\nsubnet = \"default\"\naddress = [\"{address}\"]\n\
                 groups = [\"default\"]\ninstance = \"b\"\n"
            )
        };
        with(&interface("172.31.0.5")).unwrap();
        assert!(with(&interface("172.31.0.4")).unwrap_err().contains("172.31.0.4"));
        let public = "[elastic_address.b]\npublic = \"198.51.100.128\"\ninterface = \"b\"\n";
        let both = interface("172.31.0.5") + public;
        assert!(with(&both).unwrap_err().contains("198.51.100.128"));
    }

    /// All addresses in a prefix of an interface are in use: an added instance gets none of them,
    /// and clashes with the prefix if the prefix contains its address.
    #[test]
    fn regression_an_added_instance_has_no_address_of_a_prefix() {
        let mut vpc = default_vpc();
        vpc.attach(&attach(Some("a")), none).unwrap();
        let mut world = vpc.world();
        let eni = world.enis.values_mut().next().unwrap();
        let subnet = eni.subnet;
        eni.ipv4_prefixes.push("172.31.0.0/28".parse().unwrap());
        assert_eq!(free_address(&world, subnet).unwrap(), Ipv4Addr::new(172, 31, 0, 16));
        let added = vpc.added.remove("a").unwrap();
        world.enis.values_mut().next().unwrap().ipv4.clear();
        assert_eq!(added.clash(&world), Some(Ipv4Addr::new(172, 31, 0, 4)));
    }

    /// A second cloud whose subnet and group have other names.
    const OTHER: &str = "[vpc.other]\ncidr = [\"10.0.0.0/16\"]\n[subnet.other]\nvpc = \"other\"\n\
        cidr = \"10.0.0.0/24\"\n[group.other]\nvpc = \"other\"\n";

    #[test]
    fn regression_an_added_instance_has_groups_of_its_own_cloud_also_after_a_change_of_the_file() {
        let file = |text: &str| srd_vpc_file::parse(text, Path::new("vpc.toml")).unwrap();
        let mut vpc = default_vpc().replaced(file(&format!("{DEFAULT_VPC}{OTHER}"))).unwrap();
        let own = Attach { subnet: Some("default".into()), ..attach(Some("a")) };
        vpc.attach(&own, none).unwrap();
        let mut said = |attach: &Attach| vpc.attach(attach, none).unwrap_err().to_string();
        let [subnet, peer_of] = ["other", "a"].map(|name| Some(name.to_owned()));
        let group = "default".to_owned();
        let peer = Attach { subnet: subnet.clone(), peer_of, ..attach(None) };
        assert!(said(&peer).contains("group `default` is of another cloud"));
        let named = Attach { subnet: subnet.clone(), groups: vec![group], ..attach(None) };
        assert!(said(&named).contains("group `default` is of another cloud"));
        let many =
            Attach { subnet: subnet.clone(), groups: vec!["other".into(); 17], ..attach(None) };
        assert!(said(&many).contains("at most 16 groups"));
        let own = Attach { subnet, groups: vec!["other".into()], ..attach(Some("b")) };
        vpc.attach(&own, none).unwrap();
        let replaced = |text: String| vpc.replaced(file(&text)).unwrap_err().to_string();
        let moved = DEFAULT_VPC.replace("172.31.0.0/20", "172.31.16.0/20");
        assert!(replaced(moved + OTHER).contains("172.31.0.4 outside its subnet"));
        let renamed = OTHER.replace("[group.other]", "[group.new]");
        assert!(replaced(format!("{DEFAULT_VPC}{renamed}")).contains("lacks a group of `b`"));
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_remedy() {
        let mut vpc = default_vpc();
        vpc.attach(&attach(Some("a")), none).unwrap();
        let mut said = |attach: &Attach| vpc.attach(attach, none).unwrap_err().to_string();
        assert!(said(&attach(Some("a"))).contains("give another --name"));
        assert!(said(&attach(Some("a/b"))).contains("letters, digits and hyphens"));
        let kind = Attach { instance_type: "c7i.lrage".into(), ..attach(None) };
        // Regression: the text did not name the type.
        assert!(said(&kind).contains("no instance type `c7i.lrage`: did you mean c7i.large"));
        let kind = Attach { instance_type: "c9.huge".into(), ..attach(None) };
        assert!(said(&kind).contains("no instance type `c9.huge`: "));
        let of = Attach { peer_of: Some("b".into()), ..attach(None) };
        assert!(said(&of).contains("no instance `b`"));
        let subnet = Attach { subnet: Some("x".into()), ..attach(None) };
        assert!(said(&subnet).contains("no subnet `x`"));
    }
}
