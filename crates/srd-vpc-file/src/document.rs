//! TOML tables of the file.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

/// The value of an optional key, with its position in the file; `None` if the file does not contain
/// the key.
pub(crate) type Maybe<T> = Option<Spanned<T>>;
/// TOML tables of one kind of object, by the object's name, with their positions in the file.
pub(crate) type Named<T> = BTreeMap<Spanned<String>, Spanned<T>>;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Document {
    pub(crate) account: Maybe<String>,
    pub(crate) region: Maybe<String>,
    pub(crate) vpc: Named<VpcTable>,
    pub(crate) dhcp_options: Named<DhcpOptionsTable>,
    pub(crate) subnet: Named<SubnetTable>,
    pub(crate) route_table: Named<RouteTableTable>,
    pub(crate) acl: Named<AclTable>,
    pub(crate) group: Named<GroupTable>,
    pub(crate) prefix_list: Named<PrefixListTable>,
    pub(crate) interface: Named<InterfaceTable>,
    pub(crate) instance: Named<InstanceTable>,
    pub(crate) placement: Named<PlacementTable>,
    pub(crate) internet_gateway: Named<GatewayTable>,
    pub(crate) egress_only_gateway: Named<GatewayTable>,
    pub(crate) nat_gateway: Named<NatGatewayTable>,
    pub(crate) elastic_address: Named<ElasticAddressTable>,
    pub(crate) peering: Named<PeeringTable>,
    pub(crate) endpoint: Named<EndpointTable>,
    pub(crate) flow_log: Named<FlowLogTable>,
    pub(crate) mirror_filter: Named<MirrorFilterTable>,
    pub(crate) mirror_target: Named<MirrorTargetTable>,
    pub(crate) mirror_session: Named<MirrorSessionTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FlowLogTable {
    pub(crate) vpc: Maybe<String>,
    pub(crate) subnet: Maybe<String>,
    pub(crate) interface: Maybe<String>,
    pub(crate) traffic: Maybe<String>,
    pub(crate) interval: Maybe<u16>,
    pub(crate) format: Maybe<String>,
    pub(crate) directory: Spanned<String>,
    pub(crate) files: Maybe<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MirrorFilterTable {
    #[serde(default)]
    pub(crate) ingress: Vec<Spanned<String>>,
    #[serde(default)]
    pub(crate) egress: Vec<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MirrorTargetTable {
    pub(crate) interface: Spanned<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MirrorSessionTable {
    pub(crate) source: Spanned<String>,
    pub(crate) target: Spanned<String>,
    pub(crate) filter: Spanned<String>,
    pub(crate) number: Spanned<u16>,
    pub(crate) vni: Maybe<u32>,
    pub(crate) packet_length: Maybe<u16>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VpcTable {
    pub(crate) cidr: Vec<Spanned<String>>,
    pub(crate) dhcp_options: Maybe<String>,
    pub(crate) dns_support: Option<bool>,
    pub(crate) dns_hostnames: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DhcpOptionsTable {
    pub(crate) domain_name: Maybe<String>,
    #[serde(default)]
    pub(crate) name_servers: Vec<Spanned<String>>,
    #[serde(default)]
    pub(crate) ntp_servers: Vec<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubnetTable {
    pub(crate) vpc: Maybe<String>,
    pub(crate) zone: Option<String>,
    pub(crate) cidr: Spanned<String>,
    pub(crate) ipv6_cidr: Maybe<String>,
    pub(crate) route_table: Maybe<String>,
    pub(crate) acl: Maybe<String>,
    pub(crate) map_public_ip: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteTableTable {
    pub(crate) vpc: Maybe<String>,
    pub(crate) main: Option<bool>,
    #[serde(default)]
    pub(crate) routes: Vec<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AclTable {
    pub(crate) vpc: Maybe<String>,
    #[serde(default)]
    pub(crate) ingress: Vec<Spanned<String>>,
    #[serde(default)]
    pub(crate) egress: Vec<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupTable {
    pub(crate) vpc: Maybe<String>,
    pub(crate) description: Option<String>,
    #[serde(default)]
    pub(crate) ingress: Vec<Spanned<String>>,
    pub(crate) egress: Option<Vec<Spanned<String>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PrefixListTable {
    pub(crate) entries: Vec<Spanned<String>>,
    pub(crate) max_entries: Maybe<u16>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InterfaceTable {
    pub(crate) subnet: Spanned<String>,
    pub(crate) address: Vec<Spanned<String>>,
    #[serde(default)]
    pub(crate) prefixes: Vec<Spanned<String>>,
    #[serde(default)]
    pub(crate) groups: Vec<Spanned<String>>,
    pub(crate) source_dest_check: Option<bool>,
    pub(crate) instance: Maybe<String>,
    pub(crate) device_index: Maybe<u8>,
    pub(crate) express: Option<bool>,
    pub(crate) express_udp: Maybe<bool>,
    pub(crate) tcp_established_timeout: Maybe<u32>,
    pub(crate) udp_stream_timeout: Maybe<u32>,
    pub(crate) udp_timeout: Maybe<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InstanceTable {
    #[serde(rename = "type")]
    pub(crate) instance_type: Spanned<String>,
    pub(crate) zone: Option<String>,
    pub(crate) placement: Maybe<String>,
    pub(crate) host: Maybe<String>,
    pub(crate) pod: Maybe<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlacementTable {
    pub(crate) strategy: Spanned<String>,
    pub(crate) partitions: Maybe<u8>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GatewayTable {
    pub(crate) vpc: Maybe<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NatGatewayTable {
    pub(crate) subnet: Spanned<String>,
    pub(crate) private: Spanned<String>,
    pub(crate) elastic_address: Maybe<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ElasticAddressTable {
    pub(crate) public: Spanned<String>,
    pub(crate) interface: Maybe<String>,
    pub(crate) private: Maybe<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PeeringTable {
    pub(crate) requester: Spanned<String>,
    pub(crate) accepter: Spanned<String>,
    pub(crate) active: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndpointTable {
    pub(crate) vpc: Maybe<String>,
    pub(crate) prefix_list: Spanned<String>,
    pub(crate) always_tracked: Option<bool>,
}
