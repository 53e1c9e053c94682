//! Random regions whose instances run on hosts, with objects that refer to several VPCs.

use super::generate::Maker;
use crate::machines::RUNNING;
use crate::state::endpoint::DnsOptions;
use crate::state::{
    IdGenerator, MirrorFilter, MirrorFilterRule, MirrorSession, MirrorTarget, Region, VpcEndpoint,
};

/// Hosts of the instances.
pub(crate) const HOSTS: [&str; 3] = ["a", "b", "c"];

/// A source of random numbers.
pub(crate) struct Dice(IdGenerator);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(IdGenerator::new(seed))
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.0.next_u64() % u64::try_from(end).unwrap()).unwrap()
    }

    pub(crate) fn pick(&mut self, all: &[String]) -> String {
        all[self.below(all.len())].clone()
    }

    pub(crate) fn host(&mut self) -> String {
        HOSTS[self.below(HOSTS.len())].to_owned()
    }
}

/// Returns a region whose changes are committed.
pub(crate) fn placed(seed: u64) -> Region {
    let (mut region, mut dice) = (Maker::new(seed).make().region, Dice::new(!seed));
    for id in region.instances.ids_where(|of| of.state.code == RUNNING) {
        region.instances.get_mut(&id).unwrap().host = Some(dice.host());
    }
    let attached = region.interfaces.ids_where(|of| of.attachment.is_some());
    if dice.below(2) == 0 {
        let instance = region.instances.iter().next().unwrap().instance_id.clone();
        let moved = region.interfaces.get_mut(&dice.pick(&attached)).unwrap();
        let attachment = moved.attachment.as_mut().unwrap();
        if attachment.instance_id.as_ref() != Some(&instance) {
            (attachment.instance_id, attachment.device_index) = (Some(instance), 1);
        }
    }
    let [source, target] = [dice.pick(&attached), dice.pick(&attached)];
    if source != target {
        mirror(&mut region, source, target);
    }
    endpoint(&mut region);
    region.commit();
    region
}

fn mirror(region: &mut Region, source: String, target: String) {
    region.mirror_filters.insert(MirrorFilter {
        traffic_mirror_filter_id: "tmf-1".into(),
        network_services: vec![],
        description: None,
        tags: vec![],
    });
    region.mirror_filter_rules.insert(MirrorFilterRule {
        traffic_mirror_filter_rule_id: "tmfr-1".into(),
        traffic_mirror_filter_id: "tmf-1".into(),
        traffic_direction: "ingress".into(),
        rule_number: 1,
        rule_action: "accept".into(),
        protocol: None,
        destination_port_range: None,
        source_port_range: None,
        destination_cidr_block: "0.0.0.0/0".parse().unwrap(),
        source_cidr_block: "0.0.0.0/0".parse().unwrap(),
        description: None,
        tags: vec![],
    });
    region.mirror_targets.insert(MirrorTarget {
        traffic_mirror_target_id: "tmt-1".into(),
        r#type: "network-interface".into(),
        network_interface_id: Some(target),
        network_load_balancer_arn: None,
        gateway_load_balancer_endpoint_id: None,
        description: None,
        owner_id: String::new(),
        tags: vec![],
    });
    region.mirror_sessions.insert(MirrorSession {
        traffic_mirror_session_id: "tms-1".into(),
        traffic_mirror_target_id: "tmt-1".into(),
        traffic_mirror_filter_id: "tmf-1".into(),
        network_interface_id: source,
        owner_id: String::new(),
        packet_length: None,
        session_number: 1,
        virtual_network_id: 7,
        description: None,
        tags: vec![],
    });
}

fn endpoint(region: &mut Region) {
    let vpc_id = region.vpcs.iter().next().unwrap().vpc_id.clone();
    let service_name = region.prefix_lists.iter().next().unwrap().prefix_list_name.clone();
    region.endpoints.insert(VpcEndpoint {
        vpc_endpoint_id: "vpce-1".into(),
        vpc_endpoint_type: "Gateway".into(),
        vpc_id,
        owner_id: String::new(),
        service_name,
        service_region: String::new(),
        state: "available".into(),
        policy_document: None,
        route_table_ids: vec![],
        subnet_ids: vec![],
        groups: vec![],
        ip_address_type: "ipv4".into(),
        dns_options: DnsOptions {
            dns_record_ip_type: "ipv4".into(),
            private_dns_only_for_inbound_resolver_endpoint: None,
        },
        private_dns_enabled: false,
        requester_managed: false,
        network_interface_ids: vec![],
        dns_entries: vec![],
        creation_timestamp: String::new(),
        tags: vec![],
    });
}
