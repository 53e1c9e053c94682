//! The objects that a new account has in a region, and those that come with each VPC.

use ipnet::{Ipv4Net, Ipv6Net};

use crate::actions::support::arn;
use crate::regions;
use crate::state::interface::{GatewayAttachment, ReferencedGroup};
use crate::state::network::{
    AttributeValue, BlockState, CidrAssociation, DhcpConfiguration, DnsNameOptions,
    NetworkAclEntry, PrefixListEntry, Route, RouteTableAssociation,
};
use crate::state::{
    DhcpOptions, InternetGateway, NetworkAcl, PrefixList, Region, RouteTable, SecurityGroup,
    SecurityGroupRule, Subnet, Vpc,
};

/// Number of the final rule of network ACLs.
pub(crate) const FINAL_RULE: i64 = 32_767;

/// Prefix lists of the provider for services of a region, each with a block that stands for the
/// service. The blocks of VPC Lattice are those of AWS, which are link-local and unique local; the
/// others are blocks for documentation.
const PROVIDER_LISTS_OF_REGION: [(&str, &str); 4] = [
    ("s3", "198.51.100.0/24"),
    ("dynamodb", "203.0.113.0/24"),
    ("vpc-lattice", "169.254.171.0/24"),
    ("ipv6.vpc-lattice", "fd00:ec2:80::/64"),
];
/// Prefix lists of the provider for services of all regions.
const PROVIDER_LISTS_OF_ALL: [(&str, &str); 2] =
    [("cloudfront.origin-facing", "192.0.2.0/25"), ("groundstation", "192.0.2.128/25")];

/// All IPv4 addresses.
pub(crate) fn any_v4() -> Ipv4Net {
    Ipv4Net::default()
}

/// Adds the objects that a new account has.
pub(crate) fn populate(region: &mut Region) {
    let dhcp_options_id = region.ids.id("dopt");
    let domain = match region.name.as_str() {
        "us-east-1" => "ec2.internal".to_owned(),
        name => format!("{name}.compute.internal"),
    };
    let option = |key: &str, value: String| DhcpConfiguration {
        key: key.to_owned(),
        values: vec![AttributeValue { value }],
    };
    region.dhcp_options.insert(DhcpOptions {
        dhcp_options_id,
        owner_id: region.account.clone(),
        dhcp_configurations: vec![
            option("domain-name", domain),
            option("domain-name-servers", "AmazonProvidedDNS".to_owned()),
        ],
        tags: Vec::new(),
    });
    let own = format!("com.amazonaws.{}", region.name);
    for (service, block) in PROVIDER_LISTS_OF_REGION {
        provider_list(region, format!("{own}.{service}"), block);
    }
    for (service, block) in PROVIDER_LISTS_OF_ALL {
        provider_list(region, format!("com.amazonaws.global.{service}"), block);
    }
    default_vpc(region);
}

/// Adds a prefix list of a service of the provider.
fn provider_list(region: &mut Region, prefix_list_name: String, block: &str) {
    let prefix_list_id = region.ids.id("pl");
    let address_family = if block.contains(':') { "IPv6" } else { "IPv4" };
    region.prefix_lists.insert(PrefixList {
        prefix_list_arn: format!(
            "arn:{}:ec2:{}:aws:prefix-list/{prefix_list_id}",
            regions::partition(&region.name),
            region.name
        ),
        prefix_list_id,
        prefix_list_name,
        owner_id: "AWS".to_owned(),
        address_family: address_family.to_owned(),
        state: "create-complete".to_owned(),
        max_entries: None,
        version: None,
        versions: vec![vec![PrefixListEntry { cidr: block.to_owned(), description: None }]],
        tags: Vec::new(),
    });
}

/// Adds the default VPC: a subnet for each zone, an internet gateway, and a route to it.
pub(crate) fn default_vpc(region: &mut Region) -> String {
    let block = Ipv4Net::new_assert([172, 31, 0, 0].into(), 16);
    let vpc_id = vpc(region, block, "default", true);
    let gateway = region.ids.id("igw");
    region.internet_gateways.insert(InternetGateway {
        internet_gateway_id: gateway.clone(),
        owner_id: region.account.clone(),
        attachments: vec![GatewayAttachment {
            state: "available".to_owned(),
            vpc_id: vpc_id.clone(),
        }],
        tags: Vec::new(),
    });
    let main = region.route_tables.ids_where(|table| table.vpc_id == vpc_id);
    for table in main {
        if let Some(table) = region.route_tables.get_mut(&table) {
            table.routes.push(Route {
                destination_cidr_block: Some(any_v4()),
                gateway_id: Some(gateway.clone()),
                origin: "CreateRoute".to_owned(),
                state: "active".to_owned(),
                ..Route::default()
            });
        }
    }
    let blocks = block.subnets(20).into_iter().flatten();
    for ((zone, _), block) in regions::zones(&region.name).into_iter().zip(blocks) {
        default_subnet(region, &vpc_id, &zone, block);
    }
    vpc_id
}

/// Adds a VPC with its default security group, its default network ACL and its main route table.
pub(crate) fn vpc(region: &mut Region, block: Ipv4Net, tenancy: &str, is_default: bool) -> String {
    let vpc_id = region.ids.id("vpc");
    let amazon = |options: &DhcpOptions| {
        options
            .dhcp_configurations
            .iter()
            .any(|option| option.values.iter().any(|value| value.value == "AmazonProvidedDNS"))
    };
    let options = region.dhcp_options.find(amazon);
    let dhcp_options_id = options.map_or("default".to_owned(), |o| o.dhcp_options_id.clone());
    let association = CidrAssociation {
        association_id: region.ids.id("vpc-cidr-assoc"),
        cidr_block: block,
        cidr_block_state: BlockState { state: "associated".to_owned() },
    };
    region.vpcs.insert(Vpc {
        vpc_id: vpc_id.clone(),
        owner_id: region.account.clone(),
        state: "available".to_owned(),
        cidr_block: block,
        cidr_block_association_set: vec![association],
        ipv6_cidr_block_association_set: Vec::new(),
        dhcp_options_id,
        instance_tenancy: tenancy.to_owned(),
        is_default,
        enable_dns_support: true,
        enable_dns_hostnames: is_default,
        enable_network_address_usage_metrics: false,
        classic_link: false,
        classic_link_dns: false,
        tags: Vec::new(),
    });
    default_group(region, &vpc_id);
    let network_acl_id = region.ids.id("acl");
    region.acls.insert(NetworkAcl {
        network_acl_id,
        owner_id: region.account.clone(),
        vpc_id: vpc_id.clone(),
        is_default: true,
        entries: default_entries(true),
        associations: Vec::new(),
        tags: Vec::new(),
    });
    let table = route_table(region, &vpc_id);
    let association = RouteTableAssociation {
        route_table_association_id: region.ids.id("rtbassoc"),
        route_table_id: table.clone(),
        main: true,
        subnet_id: None,
        gateway_id: None,
        association_state: BlockState { state: "associated".to_owned() },
    };
    if let Some(table) = region.route_tables.get_mut(&table) {
        table.associations.push(association);
    }
    vpc_id
}

fn default_group(region: &mut Region, vpc_id: &str) {
    let group_id = region.ids.id("sg");
    region.groups.insert(SecurityGroup {
        security_group_arn: arn(region, "security-group", &group_id),
        group_id: group_id.clone(),
        owner_id: region.account.clone(),
        vpc_id: vpc_id.to_owned(),
        group_name: "default".to_owned(),
        description: "default VPC security group".to_owned(),
        tags: Vec::new(),
    });
    let mut ingress = any_rule(region, &group_id, false);
    ingress.referenced_group_info = Some(ReferencedGroup {
        group_id: group_id.clone(),
        user_id: Some(region.account.clone()),
        vpc_id: None,
        vpc_peering_connection_id: None,
        peering_status: None,
    });
    region.group_rules.insert(ingress);
    default_egress(region, &group_id);
}

/// Adds the rules of a new security group that allow all packets out: one for IPv4, and one for
/// IPv6 if the VPC has IPv6 blocks.
pub(crate) fn default_egress(region: &mut Region, group_id: &str) {
    let mut egress = any_rule(region, group_id, true);
    egress.cidr_ipv4 = Some(any_v4());
    region.group_rules.insert(egress);
    let vpc = region.groups.get(group_id).and_then(|group| region.vpcs.get(&group.vpc_id));
    if vpc.is_some_and(|vpc| !vpc.ipv6_cidr_block_association_set.is_empty()) {
        let mut egress = any_rule(region, group_id, true);
        egress.cidr_ipv6 = Some(Ipv6Net::default());
        region.group_rules.insert(egress);
    }
}

/// A rule for all protocols, without a source or destination yet.
fn any_rule(region: &mut Region, group_id: &str, is_egress: bool) -> SecurityGroupRule {
    let id = region.ids.id("sgr");
    SecurityGroupRule {
        security_group_rule_arn: arn(region, "security-group-rule", &id),
        security_group_rule_id: id,
        group_id: group_id.to_owned(),
        group_owner_id: region.account.clone(),
        ..SecurityGroupRule::any(is_egress)
    }
}

/// Entries of a new network ACL: the final rules, and in a default ACL rules that allow all
/// packets.
pub(crate) fn default_entries(allow: bool) -> Vec<NetworkAclEntry> {
    let entry = |egress, rule_number, action: &str| NetworkAclEntry {
        rule_number,
        egress,
        protocol: "-1".to_owned(),
        rule_action: action.to_owned(),
        cidr_block: Some(any_v4()),
        ipv6_cidr_block: None,
        port_range: None,
        icmp_type_code: None,
    };
    let mut entries = Vec::new();
    for egress in [true, false] {
        if allow {
            entries.push(entry(egress, 100, "allow"));
        }
        entries.push(entry(egress, FINAL_RULE, "deny"));
    }
    entries
}

/// Adds a route table with the local routes of its VPC.
pub(crate) fn route_table(region: &mut Region, vpc_id: &str) -> String {
    let route_table_id = region.ids.id("rtb");
    let mut routes = Vec::new();
    if let Some(vpc) = region.vpcs.get(vpc_id) {
        routes.extend(vpc.cidr_block_association_set.iter().map(|of| local_v4(of.cidr_block)));
        let v6 = vpc.ipv6_cidr_block_association_set.iter();
        routes.extend(v6.map(|of| local_v6(of.ipv6_cidr_block)));
    }
    region.route_tables.insert(RouteTable {
        route_table_id: route_table_id.clone(),
        owner_id: region.account.clone(),
        vpc_id: vpc_id.to_owned(),
        routes,
        associations: Vec::new(),
        propagating_vgws: Vec::new(),
        tags: Vec::new(),
    });
    route_table_id
}

/// The local route for an IPv4 block.
pub(crate) fn local_v4(block: Ipv4Net) -> Route {
    Route { destination_cidr_block: Some(block), ..local() }
}

/// The local route for an IPv6 block.
pub(crate) fn local_v6(block: Ipv6Net) -> Route {
    Route { destination_ipv6_cidr_block: Some(block), ..local() }
}

fn local() -> Route {
    Route {
        gateway_id: Some("local".to_owned()),
        origin: "CreateRouteTable".to_owned(),
        state: "active".to_owned(),
        ..Route::default()
    }
}

/// Adds the default subnet of a zone to the default VPC, and returns its identifier.
pub(crate) fn default_subnet(
    region: &mut Region,
    vpc_id: &str,
    zone: &str,
    block: Ipv4Net,
) -> String {
    let id = subnet(region, vpc_id, zone, Some(block));
    if let Some(subnet) = region.subnets.get_mut(&id) {
        subnet.default_for_az = true;
        subnet.map_public_ip_on_launch = true;
    }
    id
}

/// Adds a subnet, which uses the default network ACL of its VPC.
pub(crate) fn subnet(
    region: &mut Region,
    vpc_id: &str,
    zone: &str,
    block: Option<Ipv4Net>,
) -> String {
    let subnet_id = region.ids.id("subnet");
    let zone_id = regions::zones(&region.name).into_iter().find(|(name, _)| name == zone);
    region.subnets.insert(Subnet {
        subnet_arn: arn(region, "subnet", &subnet_id),
        subnet_id: subnet_id.clone(),
        owner_id: region.account.clone(),
        vpc_id: vpc_id.to_owned(),
        state: "available".to_owned(),
        cidr_block: block,
        ipv6_cidr_block_association_set: Vec::new(),
        availability_zone: zone.to_owned(),
        availability_zone_id: zone_id.map(|(_, id)| id).unwrap_or_default(),
        default_for_az: false,
        map_public_ip_on_launch: false,
        assign_ipv6_address_on_creation: false,
        enable_dns64: false,
        ipv6_native: false,
        enable_lni_at_device_index: None,
        customer_owned_ipv4_pool: None,
        map_customer_owned_ip_on_launch: false,
        private_dns_name_options_on_launch: DnsNameOptions {
            hostname_type: "ip-name".to_owned(),
            enable_resource_name_dns_a_record: false,
            enable_resource_name_dns_aaaa_record: false,
        },
        tags: Vec::new(),
    });
    let association_id = region.ids.id("aclassoc");
    let acl = region.acls.find(|acl| acl.vpc_id == vpc_id && acl.is_default);
    let acl = acl.map(|acl| acl.network_acl_id.clone()).unwrap_or_default();
    if let Some(acl) = region.acls.get_mut(&acl) {
        acl.associations.push(crate::state::network::NetworkAclAssociation {
            network_acl_association_id: association_id,
            network_acl_id: acl.network_acl_id.clone(),
            subnet_id: subnet_id.clone(),
        });
    }
    subnet_id
}
