//! Data that an instance can request about itself and its cloud.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use srd_vpc::id::{EniId, InstanceId, VpcId};
use srd_vpc::object::{Eni, World};

use super::name_of;

/// The domain of private names: that of Regions that do not have a domain of their own.
pub(crate) const DOMAIN: &str = "ec2.internal";

/// Data that the resolver and the metadata service return to one interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ServiceData {
    /// The instance of the interface.
    pub(crate) instance: InstanceId,
    /// The address of the cloud's resolver.
    pub(crate) resolver: Ipv4Addr,
    /// Whether the resolver answers.
    pub(crate) dns_support: bool,
    /// Metadata: paths below `/latest/meta-data/`, and their values.
    pub(crate) metadata: BTreeMap<String, String>,
    /// Private names of the cloud, and their addresses.
    pub(crate) names: Arc<Names>,
}

/// Private names of a cloud without their domain, and their addresses.
pub(super) type Names = BTreeMap<String, Vec<IpAddr>>;

/// Cache of the data of interfaces and of the names of clouds, until the world changes. Clouds are
/// large, and queries are frequent.
#[derive(Debug, Default)]
pub(super) struct LookupCache {
    facts: BTreeMap<EniId, Arc<ServiceData>>,
    names: BTreeMap<VpcId, Arc<Names>>,
}

impl LookupCache {
    /// Returns the data of an interface; `None` if the interface is attached to no instance.
    pub(super) fn of(&mut self, world: &World, id: EniId) -> Option<Arc<ServiceData>> {
        if let Some(facts) = self.facts.get(&id) {
            return Some(Arc::clone(facts));
        }
        let vpc = world.subnets.get(&world.enis.get(&id)?.subnet)?.vpc;
        let all = self.names.entry(vpc).or_insert_with(|| Arc::new(names(world, vpc)));
        let facts = Arc::new(ServiceData::of(world, id, Arc::clone(all))?);
        self.facts.insert(id, Arc::clone(&facts));
        Some(facts)
    }
}

impl ServiceData {
    fn of(world: &World, id: EniId, names: Arc<Names>) -> Option<Self> {
        let eni = world.enis.get(&id)?;
        let vpc = world.subnets.get(&eni.subnet)?.vpc;
        let vpc = world.vpcs.get(&vpc)?;
        let base = vpc.ipv4.first()?.network();
        let resolver = Ipv4Addr::from(u32::from(base).wrapping_add(2));
        let instance = eni.attachment.as_ref()?.instance;
        let metadata = metadata(world, instance)?;
        Some(Self { instance, resolver, dns_support: vpc.dns_support, metadata, names })
    }
}

fn names(world: &World, vpc: VpcId) -> Names {
    let mut names = Names::new();
    for eni in world.enis.values() {
        if world.subnets.get(&eni.subnet).map(|subnet| subnet.vpc) != Some(vpc) {
            continue;
        }
        for address in &eni.ipv4 {
            names.entry(name_of(*address)).or_default().push((*address).into());
        }
        // A resource name belongs to the primary interface.
        let primary = eni.attachment.as_ref().filter(|at| at.device_index == 0);
        if let Some(at) = primary {
            let of_instance = names.entry(at.instance.to_string()).or_default();
            of_instance.extend(eni.ipv4.first().map(|address| IpAddr::V4(*address)));
            of_instance.extend(eni.ipv6.first().map(|address| IpAddr::V6(*address)));
        }
    }
    names
}

fn metadata(world: &World, id: InstanceId) -> Option<BTreeMap<String, String>> {
    let instance = world.instances.get(&id)?;
    let mut own: Vec<(u8, EniId, &Eni)> = Vec::new();
    for (eni_id, eni) in &world.enis {
        let at = eni.attachment.as_ref().filter(|at| at.instance == id);
        own.extend(at.map(|at| (at.device_index, *eni_id, eni)));
    }
    own.sort_by_key(|(index, ..)| *index);
    let mut all = BTreeMap::new();
    let mut say = |path: String, value: String| {
        if !value.is_empty() {
            all.insert(path, value);
        }
    };
    say("instance-id".into(), id.to_string());
    say("instance-type".into(), instance.instance_type.clone());
    say("placement/availability-zone".into(), instance.zone.clone());
    if let Some(group) = instance.placement.and_then(|at| world.placements.get(&at)) {
        say("placement/group-name".into(), group.name.clone());
    }
    for (index, eni_id, eni) in &own {
        let lines = |list: Vec<String>| list.join("\n");
        let addresses = |list: &[Ipv4Addr]| lines(list.iter().map(Ipv4Addr::to_string).collect());
        let groups = eni.groups.iter();
        let names = groups.clone().filter_map(|id| world.groups.get(id)).map(|g| g.name.clone());
        let publics = world
            .addresses
            .values()
            .filter(|at| at.association.map(|(eni, _)| eni) == Some(*eni_id));
        let publics: Vec<String> = publics.map(|address| address.public.to_string()).collect();
        let mac: Vec<String> = eni.mac.iter().map(|byte| format!("{byte:02x}")).collect();
        let mac = mac.join(":");
        let first = eni.ipv4.first().map(Ipv4Addr::to_string).unwrap_or_default();
        let host = eni.ipv4.first().map(|a| format!("{}.{DOMAIN}", name_of(*a)));
        let host = host.unwrap_or_default();
        let subnet = world.subnets.get(&eni.subnet)?;
        let vpc = world.vpcs.get(&subnet.vpc)?;
        if *index == 0 {
            say("local-ipv4".into(), first);
            say("local-hostname".into(), host.clone());
            say("hostname".into(), host.clone());
            say("mac".into(), mac.clone());
            say("public-ipv4".into(), publics.first().cloned().unwrap_or_default());
            say("security-groups".into(), lines(names.clone().collect()));
        }
        let mut of_mac = |name: &str, value: String| {
            say(format!("network/interfaces/macs/{mac}/{name}"), value);
        };
        of_mac("device-number", index.to_string());
        of_mac("interface-id", eni_id.to_string());
        of_mac("mac", mac.clone());
        of_mac("local-hostname", host);
        of_mac("local-ipv4s", addresses(&eni.ipv4));
        of_mac("ipv6s", lines(eni.ipv6.iter().map(ToString::to_string).collect()));
        of_mac("public-ipv4s", lines(publics));
        of_mac("security-groups", lines(names.collect()));
        of_mac("security-group-ids", lines(groups.map(ToString::to_string).collect()));
        of_mac("subnet-id", eni.subnet.to_string());
        of_mac("subnet-ipv4-cidr-block", subnet.ipv4.to_string());
        of_mac("vpc-id", subnet.vpc.to_string());
        let blocks: Vec<String> = vpc.ipv4.iter().map(ToString::to_string).collect();
        of_mac("vpc-ipv4-cidr-block", blocks.first().cloned().unwrap_or_default());
        of_mac("vpc-ipv4-cidr-blocks", lines(blocks));
    }
    Some(all)
}
