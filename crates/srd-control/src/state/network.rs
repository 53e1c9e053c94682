//! VPCs, subnets, network ACLs, route tables, DHCP options, prefix lists and flow logs.

use ipnet::{Ipv4Net, Ipv6Net};

use super::{Tag, object, part};

object! {
    /// A virtual private cloud.
    Vpc("vpc", "vpc", vpc_id) {
        /// Identifier, `vpc-...`.
        vpc_id: String,
        /// Account that owns it.
        owner_id: String,
        /// `available`.
        state: String,
        /// Primary IPv4 block.
        cidr_block: Ipv4Net,
        /// All IPv4 blocks; the first is the primary block.
        cidr_block_association_set: Vec<CidrAssociation>,
        /// IPv6 blocks.
        ipv6_cidr_block_association_set: Vec<Ipv6CidrAssociation>,
        /// Set of DHCP options, or `default` for none.
        dhcp_options_id: String,
        /// `default` or `dedicated`.
        instance_tenancy: String,
        /// Whether it is the default VPC of the region.
        is_default: bool,
        /// Attribute `enableDnsSupport`.
        enable_dns_support: bool,
        /// Attribute `enableDnsHostnames`.
        enable_dns_hostnames: bool,
        /// Attribute `enableNetworkAddressUsageMetrics`.
        enable_network_address_usage_metrics: bool,
        /// Whether ClassicLink is enabled.
        #[serde(default)]
        classic_link: bool,
        /// Whether ClassicLink resolves names.
        #[serde(default)]
        classic_link_dns: bool,
        /// Tags.
        tags: Vec<Tag>,
    }
}

part! {
    /// Association of an IPv4 block with a VPC.
    CidrAssociation {
        /// Identifier, `vpc-cidr-assoc-...`.
        association_id: String,
        /// The block.
        cidr_block: Ipv4Net,
        /// State.
        cidr_block_state: BlockState,
    }
}

part! {
    /// Association of an IPv6 block with a VPC or a subnet.
    Ipv6CidrAssociation {
        /// Identifier, `vpc-cidr-assoc-...` or `subnet-cidr-assoc-...`.
        association_id: String,
        /// The block.
        ipv6_cidr_block: Ipv6Net,
        /// State.
        ipv6_cidr_block_state: BlockState,
        /// Zone group that announces the block; VPCs only.
        network_border_group: Option<String>,
        /// Pool of the block; VPCs only.
        ipv6_pool: Option<String>,
    }
}

part! {
    /// State of a block.
    BlockState {
        /// `associated` or `disassociated`.
        state: String,
    }
}

object! {
    /// A subnet.
    Subnet("subnet", "subnet", subnet_id) {
        /// Identifier, `subnet-...`.
        subnet_id: String,
        /// Name of the resource.
        subnet_arn: String,
        /// Account that owns it.
        owner_id: String,
        /// Its VPC.
        vpc_id: String,
        /// `available`.
        state: String,
        /// IPv4 block; absent in an IPv6-only subnet.
        cidr_block: Option<Ipv4Net>,
        /// IPv6 blocks.
        ipv6_cidr_block_association_set: Vec<Ipv6CidrAssociation>,
        /// Zone, for example `us-east-1a`.
        availability_zone: String,
        /// Identifier of the zone, for example `use1-az1`.
        availability_zone_id: String,
        /// Whether it is the default subnet of its zone.
        default_for_az: bool,
        /// Whether new interfaces of instances get a public IPv4 address.
        map_public_ip_on_launch: bool,
        /// Whether new interfaces get an IPv6 address.
        assign_ipv6_address_on_creation: bool,
        /// Whether the resolver synthesizes IPv6 addresses for IPv4-only names.
        enable_dns64: bool,
        /// Whether it has IPv6 addresses only.
        ipv6_native: bool,
        /// Index of the device that is a local network interface.
        enable_lni_at_device_index: Option<i64>,
        /// Pool of customer-owned addresses.
        customer_owned_ipv4_pool: Option<String>,
        /// Whether new interfaces get a customer-owned address.
        map_customer_owned_ip_on_launch: bool,
        /// Kind of names of new instances.
        private_dns_name_options_on_launch: DnsNameOptions,
        /// Tags.
        tags: Vec<Tag>,
    }
}

part! {
    /// Kind of DNS names of instances.
    DnsNameOptions {
        /// `ip-name` or `resource-name`.
        hostname_type: String,
        /// Whether names of the resource have A records.
        enable_resource_name_dns_a_record: bool,
        /// Whether names of the resource have AAAA records.
        #[serde(rename = "EnableResourceNameDnsAAAARecord")]
        enable_resource_name_dns_aaaa_record: bool,
    }
}

object! {
    /// Addresses of a subnet that are reserved for prefixes or for explicit use.
    SubnetCidrReservation("scr", "subnet-cidr-reservation", subnet_cidr_reservation_id) {
        /// Identifier, `scr-...`.
        subnet_cidr_reservation_id: String,
        /// Its subnet.
        subnet_id: String,
        /// The block.
        cidr: String,
        /// `prefix` or `explicit`.
        reservation_type: String,
        /// Account that owns it.
        owner_id: String,
        /// Description.
        description: Option<String>,
        /// Tags.
        tags: Vec<Tag>,
    }
}

object! {
    /// A network ACL.
    NetworkAcl("acl", "network-acl", network_acl_id) {
        /// Identifier, `acl-...`.
        network_acl_id: String,
        /// Account that owns it.
        owner_id: String,
        /// Its VPC.
        vpc_id: String,
        /// Whether it is the default ACL of its VPC.
        is_default: bool,
        /// Entries, ordered by direction and number.
        entries: Vec<NetworkAclEntry>,
        /// Subnets that use it.
        associations: Vec<NetworkAclAssociation>,
        /// Tags.
        tags: Vec<Tag>,
    }
}

part! {
    /// An entry of a network ACL.
    NetworkAclEntry {
        /// Number, 1 to 32766; 32767 is the final rule.
        rule_number: i64,
        /// Whether it applies to packets that leave the subnet.
        egress: bool,
        /// Number of the protocol, or `-1`.
        protocol: String,
        /// `allow` or `deny`.
        rule_action: String,
        /// IPv4 block.
        cidr_block: Option<Ipv4Net>,
        /// IPv6 block.
        ipv6_cidr_block: Option<Ipv6Net>,
        /// Ports, for TCP and UDP.
        port_range: Option<PortRange>,
        /// Type and code, for ICMP.
        icmp_type_code: Option<IcmpTypeCode>,
    }
}

part! {
    /// Range of ports.
    PortRange {
        /// First port.
        from: i64,
        /// Last port.
        to: i64,
    }
}

part! {
    /// Type and code of ICMP; -1 stands for all.
    IcmpTypeCode {
        /// Type.
        r#type: i64,
        /// Code.
        code: i64,
    }
}

part! {
    /// A subnet that uses a network ACL.
    NetworkAclAssociation {
        /// Identifier, `aclassoc-...`.
        network_acl_association_id: String,
        /// The ACL.
        network_acl_id: String,
        /// The subnet.
        subnet_id: String,
    }
}

object! {
    /// A route table.
    RouteTable("rtb", "route-table", route_table_id) {
        /// Identifier, `rtb-...`.
        route_table_id: String,
        /// Account that owns it.
        owner_id: String,
        /// Its VPC.
        vpc_id: String,
        /// Routes.
        routes: Vec<Route>,
        /// Subnets and gateways that use it, and `main`.
        associations: Vec<RouteTableAssociation>,
        /// Gateways of VPNs that propagate routes.
        propagating_vgws: Vec<PropagatingVgw>,
        /// Tags.
        tags: Vec<Tag>,
    }
}

part! {
    /// A gateway of a VPN that propagates routes.
    PropagatingVgw {
        /// Identifier, `vgw-...`.
        gateway_id: String,
    }
}

part! {
    /// A route. Exactly one of the destinations and one of the targets is given.
    #[derive(Default)]
    Route {
        /// Destination: IPv4 block.
        destination_cidr_block: Option<Ipv4Net>,
        /// Destination: IPv6 block.
        destination_ipv6_cidr_block: Option<Ipv6Net>,
        /// Destination: prefix list.
        destination_prefix_list_id: Option<String>,
        /// Target: `local`, an internet gateway, a gateway of a VPN or a gateway endpoint.
        gateway_id: Option<String>,
        /// Target: egress-only internet gateway.
        egress_only_internet_gateway_id: Option<String>,
        /// Target: instance.
        instance_id: Option<String>,
        /// Account that owns the instance.
        instance_owner_id: Option<String>,
        /// Target: NAT gateway.
        nat_gateway_id: Option<String>,
        /// Target: transit gateway.
        transit_gateway_id: Option<String>,
        /// Target: interface.
        network_interface_id: Option<String>,
        /// Target: peering connection.
        vpc_peering_connection_id: Option<String>,
        /// Target: carrier gateway.
        carrier_gateway_id: Option<String>,
        /// `CreateRouteTable`, `CreateRoute` or `EnableVgwRoutePropagation`.
        origin: String,
        /// `active` or `blackhole`.
        state: String,
    }
}

part! {
    /// Use of a route table by a subnet, a gateway or, as main table, by the VPC.
    RouteTableAssociation {
        /// Identifier, `rtbassoc-...`.
        route_table_association_id: String,
        /// The table.
        route_table_id: String,
        /// Whether it is the main table of the VPC.
        main: bool,
        /// The subnet.
        subnet_id: Option<String>,
        /// The gateway.
        gateway_id: Option<String>,
        /// State.
        association_state: BlockState,
    }
}

object! {
    /// A set of DHCP options.
    DhcpOptions("dopt", "dhcp-options", dhcp_options_id) {
        /// Identifier, `dopt-...`.
        dhcp_options_id: String,
        /// Account that owns it.
        owner_id: String,
        /// The options.
        dhcp_configurations: Vec<DhcpConfiguration>,
        /// Tags.
        tags: Vec<Tag>,
    }
}

part! {
    /// One DHCP option.
    DhcpConfiguration {
        /// Name, for example `domain-name-servers`.
        key: String,
        /// Values.
        values: Vec<AttributeValue>,
    }
}

part! {
    /// A value of an attribute.
    AttributeValue {
        /// The value.
        value: String,
    }
}

object! {
    /// A managed prefix list.
    PrefixList("pl", "prefix-list", prefix_list_id) {
        /// Identifier, `pl-...`.
        prefix_list_id: String,
        /// Name of the resource.
        prefix_list_arn: String,
        /// Name.
        prefix_list_name: String,
        /// Account that owns it; `AWS` for the lists of the provider.
        owner_id: String,
        /// `IPv4` or `IPv6`.
        address_family: String,
        /// `create-complete`, `modify-complete` and similar.
        state: String,
        /// Largest number of entries; absent in lists of the provider.
        max_entries: Option<i64>,
        /// Current version.
        version: Option<i64>,
        /// Entries of all versions, the first version first.
        versions: Vec<Vec<PrefixListEntry>>,
        /// Tags.
        tags: Vec<Tag>,
    }
}

part! {
    /// An entry of a prefix list.
    PrefixListEntry {
        /// The block.
        cidr: String,
        /// Description.
        description: Option<String>,
    }
}

object! {
    /// A flow log.
    FlowLog("fl", "vpc-flow-log", flow_log_id) {
        /// Identifier, `fl-...`.
        flow_log_id: String,
        /// `ACTIVE`.
        flow_log_status: String,
        /// Time of creation.
        creation_time: String,
        /// VPC, subnet or interface.
        resource_id: String,
        /// `ACCEPT`, `REJECT` or `ALL`.
        traffic_type: Option<String>,
        /// `cloud-watch-logs`, `s3` or `kinesis-data-firehose`.
        log_destination_type: String,
        /// Name of the destination.
        log_destination: Option<String>,
        /// Group of log streams.
        log_group_name: Option<String>,
        /// Role that may write the log.
        deliver_logs_permission_arn: Option<String>,
        /// Role in another account.
        deliver_cross_account_role: Option<String>,
        /// `SUCCESS` or `FAILED`.
        deliver_logs_status: Option<String>,
        /// Cause of `FAILED`.
        deliver_logs_error_message: Option<String>,
        /// Fields of a record.
        log_format: String,
        /// Longest time that one record covers, in seconds.
        max_aggregation_interval: i64,
        /// Format of files, as the request gave it.
        destination_options: Option<serde_json::Value>,
        /// Tags.
        tags: Vec<Tag>,
    }
}

object! {
    /// A connection between two VPCs. Both regions keep a copy.
    PeeringConnection("pcx", "vpc-peering-connection", vpc_peering_connection_id) {
        /// Identifier, `pcx-...`.
        vpc_peering_connection_id: String,
        /// State.
        status: PeeringStatus,
        /// VPC that requested the connection.
        requester_vpc_info: PeeringVpc,
        /// VPC that accepts it.
        accepter_vpc_info: PeeringVpc,
        /// Time at which a pending request expires.
        expiration_time: Option<String>,
        /// Tags.
        tags: Vec<Tag>,
    }
}

part! {
    /// State of a peering connection.
    PeeringStatus {
        /// `pending-acceptance`, `active`, `rejected`, `failed`, `expired` or `deleted`.
        code: String,
        /// Explanation.
        message: String,
    }
}

part! {
    /// One side of a peering connection.
    PeeringVpc {
        /// The VPC.
        vpc_id: String,
        /// Account that owns it.
        owner_id: String,
        /// Its region.
        region: String,
        /// Primary IPv4 block; unknown until the connection is accepted if it is another account's.
        cidr_block: Option<Ipv4Net>,
        /// All IPv4 blocks.
        cidr_block_set: Vec<CidrBlock>,
        /// All IPv6 blocks.
        ipv6_cidr_block_set: Vec<Ipv6CidrBlock>,
        /// Options.
        peering_options: PeeringOptions,
    }
}

part! {
    /// An IPv4 block.
    CidrBlock {
        /// The block.
        cidr_block: Ipv4Net,
    }
}

part! {
    /// An IPv6 block.
    Ipv6CidrBlock {
        /// The block.
        ipv6_cidr_block: Ipv6Net,
    }
}

part! {
    /// Options of a peering connection.
    #[derive(Default)]
    PeeringOptions {
        /// Whether names of the peer resolve to private addresses.
        allow_dns_resolution_from_remote_vpc: bool,
        /// Retired option of ClassicLink; always false.
        allow_egress_from_local_classic_link_to_remote_vpc: bool,
        /// Retired option of ClassicLink; always false.
        allow_egress_from_local_vpc_to_remote_classic_link: bool,
    }
}
