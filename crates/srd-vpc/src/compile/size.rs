//! Approximate sizes of tables and deltas in bytes. Each size counts the B-trees of the entries, as
//! if they had been filled in ascending order, without the overhead of the allocator.

use super::blocks::Blocks;
use super::known::Question;
use super::tree::tree_bytes;
use super::*;
use core::mem::size_of;
use ipnet::IpNet;

fn map_bytes<K, V>(map: &BTreeMap<K, V>) -> usize {
    tree_bytes::<K, V>(map.len())
}

fn sets_bytes<K>(map: &BTreeMap<K, Blocks<()>>) -> usize {
    map_bytes(map) + map.values().map(Blocks::bytes).sum::<usize>()
}

impl Rules {
    /// Returns the approximate size of the tables in bytes.
    pub fn bytes(&self) -> usize {
        self.lasting_bytes() + self.answers_bytes()
    }

    /// Returns the approximate size, in bytes, of the directory's stored answers about interfaces
    /// of other hosts. The size is updated with each change, so this call is cheap.
    pub fn answers_bytes(&self) -> usize {
        self.known.bytes()
    }

    /// Returns the approximate size of the tables in bytes without the stored answers. This part
    /// changes only with the rules. The call reads all tables.
    pub fn lasting_bytes(&self) -> usize {
        let mut policies: Vec<&Arc<Policy>> =
            self.ports.values().map(|port| &port.policy).collect();
        policies.sort_by_key(|policy| Arc::as_ptr(policy));
        policies.dedup_by(|a, b| Arc::ptr_eq(a, b));
        let routes = self.subnets.values().filter_map(|subnet| subnet.routes.as_ref());
        let mut routes: Vec<&Arc<Blocks<(u8, Target)>>> = routes.collect();
        routes.sort_by_key(|table| Arc::as_ptr(table));
        routes.dedup_by(|a, b| Arc::ptr_eq(a, b));
        let mapping = self.mapping.values().map(Blocks::bytes).sum::<usize>();
        map_bytes(&self.ports)
            + self.ports.values().map(|port| port.own.bytes()).sum::<usize>()
            + policies.iter().map(|policy| size_of::<Policy>() + policy.bytes()).sum::<usize>()
            + map_bytes(&self.subnets)
            + routes.iter().map(|table| table.bytes()).sum::<usize>()
            + map_bytes(&self.acls)
            + self.acls.values().map(AclRules::bytes).sum::<usize>()
            + sets_bytes(&self.members)
            + map_bytes(&self.mapping)
            + mapping
            + map_bytes(&self.unchecked)
            + tree_bytes::<(VpcId, VpcId), ()>(self.peered.len())
            + sets_bytes(&self.clouds)
            + self.gateways.bytes()
    }
}

impl Gateways {
    fn bytes(&self) -> usize {
        let middleboxes = self.middleboxes.values().map(|of| of.own.bytes()).sum::<usize>();
        map_bytes(&self.internet)
            + tree_bytes::<VpcId, ()>(self.attached.len())
            + map_bytes(&self.egress_only)
            + map_bytes(&self.nat)
            + map_bytes(&self.nats)
            + map_bytes(&self.peerings)
            + map_bytes(&self.endpoints)
            + map_bytes(&self.middleboxes)
            + middleboxes
            + map_bytes(&self.elastic)
            + map_bytes(&self.of_nat)
            + map_bytes(&self.arrivals)
    }
}

impl Delta {
    /// Returns the approximate size of the delta in bytes.
    pub fn bytes(&self) -> usize {
        let acls = self.acls.values().flatten().map(AclRules::bytes).sum::<usize>();
        let clouds = self.clouds.values().flatten().map(Blocks::bytes).sum::<usize>();
        let members = self.members.values().map(map_bytes::<IpNet, bool>).sum::<usize>();
        self.whole.as_ref().map_or(0, |whole| size_of::<Rules>() + whole.bytes())
            + map_bytes(&self.acls)
            + acls
            + map_bytes(&self.clouds)
            + clouds
            + map_bytes(&self.members)
            + members
            + self.withdrawn.len() * size_of::<Question>()
    }
}
