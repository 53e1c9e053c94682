//! VPCs, subnets, network ACLs, route tables, DHCP options, prefix lists and flow logs.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::{Tag, object, part};

object! {
    /// A virtual private cloud.
    Vpc("vpc", "vpc", vpc_id) {
        /// Identifier of the VPC, `vpc-...`.
        vpc_id: String,
        /// Account that owns the VPC.
        owner_id: String,
        /// State of the VPC: `available`.
        state: String,
        /// Primary IPv4 block of the VPC.
        cidr_block: Ipv4Net,
        /// All IPv4 blocks of the VPC; the first is the primary block.
        cidr_block_association_set: Vec<CidrAssociation>,
        /// IPv6 blocks of the VPC.
        ipv6_cidr_block_association_set: Vec<Ipv6CidrAssociation>,
        /// Identifier of the set of DHCP options, or `default` for none.
        dhcp_options_id: String,
        /// Tenancy of the VPC's instances: `default` or `dedicated`.
        instance_tenancy: String,
        /// Whether the VPC is the default VPC of its region.
        is_default: bool,
        /// Attribute `enableDnsSupport` of the VPC.
        enable_dns_support: bool,
        /// Attribute `enableDnsHostnames` of the VPC.
        enable_dns_hostnames: bool,
        /// Attribute `enableNetworkAddressUsageMetrics` of the VPC.
        enable_network_address_usage_metrics: bool,
        /// Whether ClassicLink is enabled in the VPC.
        #[serde(default)]
        classic_link: bool,
        /// Whether ClassicLink resolves names in the VPC.
        #[serde(default)]
        classic_link_dns: bool,
        /// Tags of the VPC.
        tags: Vec<Tag>,
    }
}

part! {
    /// Association of an IPv4 block with a VPC.
    CidrAssociation {
        /// Identifier of the association, `vpc-cidr-assoc-...`.
        association_id: String,
        /// The IPv4 block.
        cidr_block: Ipv4Net,
        /// State of the block's association with the VPC.
        cidr_block_state: BlockState,
    }
}

part! {
    /// Association of an IPv6 block with a VPC or a subnet.
    Ipv6CidrAssociation {
        /// Identifier of the association, `vpc-cidr-assoc-...` or `subnet-cidr-assoc-...`.
        association_id: String,
        /// The IPv6 block.
        ipv6_cidr_block: Ipv6Net,
        /// State of the block's association with the VPC or subnet.
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
        /// Name of the state: `associated` or `disassociated`.
        state: String,
    }
}

object! {
    /// A subnet.
    Subnet("subnet", "subnet", subnet_id) {
        /// Identifier of the subnet, `subnet-...`.
        subnet_id: String,
        /// Amazon resource name (ARN) of the subnet.
        subnet_arn: String,
        /// Account that owns the subnet.
        owner_id: String,
        /// Identifier of the VPC that contains the subnet.
        vpc_id: String,
        /// State of the subnet: `available`.
        state: String,
        /// IPv4 block of the subnet; absent in an IPv6-only subnet.
        cidr_block: Option<Ipv4Net>,
        /// IPv6 blocks of the subnet.
        ipv6_cidr_block_association_set: Vec<Ipv6CidrAssociation>,
        /// Availability zone of the subnet, for example `us-east-1a`.
        availability_zone: String,
        /// Identifier of the availability zone, for example `use1-az1`.
        availability_zone_id: String,
        /// Whether the subnet is the default subnet of its zone.
        default_for_az: bool,
        /// Whether new interfaces of instances get a public IPv4 address.
        map_public_ip_on_launch: bool,
        /// Whether new interfaces get an IPv6 address.
        assign_ipv6_address_on_creation: bool,
        /// Whether the resolver synthesizes IPv6 addresses for IPv4-only names.
        enable_dns64: bool,
        /// Whether the subnet has IPv6 addresses only.
        ipv6_native: bool,
        /// Index of the device that is a local network interface.
        enable_lni_at_device_index: Option<i64>,
        /// Pool of customer-owned addresses.
        customer_owned_ipv4_pool: Option<String>,
        /// Whether new interfaces get a customer-owned address.
        map_customer_owned_ip_on_launch: bool,
        /// Kind of names of new instances.
        private_dns_name_options_on_launch: DnsNameOptions,
        /// Tags of the subnet.
        tags: Vec<Tag>,
    }
}

part! {
    /// Kind of DNS names of instances.
    DnsNameOptions {
        /// Kind of the host name: `ip-name` or `resource-name`.
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
        /// Identifier of the reservation, `scr-...`.
        subnet_cidr_reservation_id: String,
        /// Identifier of the subnet whose addresses are reserved.
        subnet_id: String,
        /// Block of the reserved addresses.
        cidr: String,
        /// Use of the reserved addresses: `prefix` or `explicit`.
        reservation_type: String,
        /// Account that owns the reservation.
        owner_id: String,
        /// Description of the reservation.
        description: Option<String>,
        /// Tags of the reservation.
        tags: Vec<Tag>,
    }
}

object! {
    /// A network ACL.
    NetworkAcl("acl", "network-acl", network_acl_id) {
        /// Identifier of the network ACL, `acl-...`.
        network_acl_id: String,
        /// Account that owns the network ACL.
        owner_id: String,
        /// Identifier of the VPC that contains the network ACL.
        vpc_id: String,
        /// Whether the network ACL is the default of its VPC.
        is_default: bool,
        /// Entries of the network ACL, ordered by direction and number.
        entries: Vec<NetworkAclEntry>,
        /// Subnets that use the network ACL.
        associations: Vec<NetworkAclAssociation>,
        /// Tags of the network ACL.
        tags: Vec<Tag>,
    }
}

part! {
    /// An entry of a network ACL.
    NetworkAclEntry {
        /// Number of the entry, 1 to 32766; 32767 is the final rule.
        rule_number: i64,
        /// Whether the entry applies to packets that leave the subnet.
        egress: bool,
        /// Number of the protocol, or `-1` for all.
        protocol: String,
        /// Decision about packets to which the entry applies: `allow` or `deny`.
        rule_action: String,
        /// IPv4 block to which the entry applies.
        cidr_block: Option<Ipv4Net>,
        /// IPv6 block to which the entry applies.
        ipv6_cidr_block: Option<Ipv6Net>,
        /// Ports to which the entry applies, for TCP and UDP.
        port_range: Option<PortRange>,
        /// Type and code to which the entry applies, for ICMP.
        icmp_type_code: Option<IcmpTypeCode>,
    }
}

part! {
    /// Range of ports.
    PortRange {
        /// First port of the range.
        from: i64,
        /// Last port of the range.
        to: i64,
    }
}

part! {
    /// Type and code of ICMP; -1 stands for all.
    IcmpTypeCode {
        /// ICMP type; -1 stands for all.
        r#type: i64,
        /// ICMP code; -1 stands for all.
        code: i64,
    }
}

part! {
    /// A subnet that uses a network ACL.
    NetworkAclAssociation {
        /// Identifier of the association, `aclassoc-...`.
        network_acl_association_id: String,
        /// Identifier of the network ACL.
        network_acl_id: String,
        /// Identifier of the subnet.
        subnet_id: String,
    }
}

object! {
    /// A route table.
    RouteTable("rtb", "route-table", route_table_id) {
        /// Identifier of the route table, `rtb-...`.
        route_table_id: String,
        /// Account that owns the route table.
        owner_id: String,
        /// Identifier of the VPC that contains the route table.
        vpc_id: String,
        /// Routes of the table.
        routes: Vec<Route>,
        /// Uses of the table: by subnets, by gateways, and as main table of the VPC.
        associations: Vec<RouteTableAssociation>,
        /// Gateways of VPNs that propagate routes.
        propagating_vgws: Vec<PropagatingVgw>,
        /// Tags of the route table.
        tags: Vec<Tag>,
    }
}

part! {
    /// A gateway of a VPN that propagates routes.
    PropagatingVgw {
        /// Identifier of the gateway, `vgw-...`.
        gateway_id: String,
    }
}

part! {
    /// A route. Exactly one of the destinations and one of the targets is given.
    #[derive(Default)]
    Route {
        /// Destination: an IPv4 block.
        destination_cidr_block: Option<Ipv4Net>,
        /// Destination: an IPv6 block.
        destination_ipv6_cidr_block: Option<Ipv6Net>,
        /// Destination: a prefix list.
        destination_prefix_list_id: Option<String>,
        /// Target: `local`, an internet gateway, a gateway of a VPN or a gateway endpoint.
        gateway_id: Option<String>,
        /// Target: an egress-only internet gateway.
        egress_only_internet_gateway_id: Option<String>,
        /// Target: an instance.
        instance_id: Option<String>,
        /// Account that owns the instance.
        instance_owner_id: Option<String>,
        /// Target: a NAT gateway.
        nat_gateway_id: Option<String>,
        /// Target: a transit gateway.
        transit_gateway_id: Option<String>,
        /// Target: a network interface.
        network_interface_id: Option<String>,
        /// Target: a peering connection.
        vpc_peering_connection_id: Option<String>,
        /// Target: a carrier gateway.
        carrier_gateway_id: Option<String>,
        /// Action that made the route: `CreateRouteTable`, `CreateRoute` or
        /// `EnableVgwRoutePropagation`.
        origin: String,
        /// State of the route: `active` or `blackhole`.
        state: String,
    }
}

part! {
    /// Use of a route table by a subnet, a gateway or, as main table, by the VPC.
    RouteTableAssociation {
        /// Identifier of the association, `rtbassoc-...`.
        route_table_association_id: String,
        /// Identifier of the route table.
        route_table_id: String,
        /// Whether the table is the main table of the VPC.
        main: bool,
        /// Identifier of the subnet that uses the table.
        subnet_id: Option<String>,
        /// Identifier of the gateway that uses the table.
        gateway_id: Option<String>,
        /// State of the association.
        association_state: BlockState,
    }
}

object! {
    /// A set of DHCP options.
    DhcpOptions("dopt", "dhcp-options", dhcp_options_id) {
        /// Identifier of the set of options, `dopt-...`.
        dhcp_options_id: String,
        /// Account that owns the set of options.
        owner_id: String,
        /// Options of the set.
        dhcp_configurations: Vec<DhcpConfiguration>,
        /// Tags of the set of options.
        tags: Vec<Tag>,
    }
}

part! {
    /// One DHCP option.
    DhcpConfiguration {
        /// Name of the option, for example `domain-name-servers`.
        key: String,
        /// Values of the option.
        values: Vec<AttributeValue>,
    }
}

part! {
    /// A value of an attribute.
    AttributeValue {
        /// The value as text.
        value: String,
    }
}

object! {
    /// A managed prefix list.
    PrefixList("pl", "prefix-list", prefix_list_id) {
        /// Identifier of the prefix list, `pl-...`.
        prefix_list_id: String,
        /// Amazon resource name (ARN) of the prefix list.
        prefix_list_arn: String,
        /// Name of the prefix list.
        prefix_list_name: String,
        /// Account that owns the prefix list; `AWS` for the lists of the provider.
        owner_id: String,
        /// Family of the addresses: `IPv4` or `IPv6`.
        address_family: String,
        /// State of the prefix list: `create-complete`, `modify-complete` and similar.
        state: String,
        /// Largest number of entries; absent in lists of the provider.
        max_entries: Option<i64>,
        /// Number of the current version of the list.
        version: Option<i64>,
        /// Entries of all versions, the first version first.
        versions: Vec<Vec<PrefixListEntry>>,
        /// Tags of the prefix list.
        tags: Vec<Tag>,
    }
}

part! {
    /// An entry of a prefix list.
    PrefixListEntry {
        /// Address block of the entry.
        cidr: String,
        /// Description of the entry.
        description: Option<String>,
    }
}

object! {
    /// A flow log.
    FlowLog("fl", "vpc-flow-log", flow_log_id) {
        /// Identifier of the flow log, `fl-...`.
        flow_log_id: String,
        /// State of the flow log: `ACTIVE`.
        flow_log_status: String,
        /// Time when the flow log was created.
        creation_time: String,
        /// VPC, subnet or interface whose packets are logged.
        resource_id: String,
        /// Packets that are logged: `ACCEPT` (accepted), `REJECT` (rejected) or `ALL`.
        traffic_type: Option<String>,
        /// Kind of the destination: `cloud-watch-logs`, `s3` or `kinesis-data-firehose`.
        log_destination_type: String,
        /// Name of the destination to which records are written.
        log_destination: Option<String>,
        /// Log group to which records are written.
        log_group_name: Option<String>,
        /// Role that may write the log.
        deliver_logs_permission_arn: Option<String>,
        /// Role in another account that may write the log.
        deliver_cross_account_role: Option<String>,
        /// Result of the delivery of records: `SUCCESS` or `FAILED`.
        deliver_logs_status: Option<String>,
        /// Cause of the error if `deliver_logs_status` is `FAILED`.
        deliver_logs_error_message: Option<String>,
        /// Fields of a record, as a format string.
        log_format: String,
        /// Longest time that one record covers, in seconds.
        max_aggregation_interval: i64,
        /// Format of the log's files, as the request gave it.
        destination_options: Option<serde_json::Value>,
        /// Tags of the flow log.
        tags: Vec<Tag>,
    }
}

object! {
    /// A connection between two VPCs. The regions of both VPCs keep a copy.
    PeeringConnection("pcx", "vpc-peering-connection", vpc_peering_connection_id) {
        /// Identifier of the peering connection, `pcx-...`.
        vpc_peering_connection_id: String,
        /// State of the connection, with an explanation.
        status: PeeringStatus,
        /// VPC that requested the connection.
        requester_vpc_info: PeeringVpc,
        /// VPC that accepts the connection.
        accepter_vpc_info: PeeringVpc,
        /// Time at which a pending request expires.
        expiration_time: Option<String>,
        /// Tags of the peering connection.
        tags: Vec<Tag>,
    }
}

part! {
    /// State of a peering connection.
    PeeringStatus {
        /// Name of the state: `pending-acceptance`, `active`, `rejected`, `failed`, `expired` or
        /// `deleted`.
        code: String,
        /// Explanation of the state, as a text for people.
        message: String,
    }
}

part! {
    /// One side of a peering connection.
    PeeringVpc {
        /// Identifier of the VPC.
        vpc_id: String,
        /// Account that owns the VPC.
        owner_id: String,
        /// Region of the VPC.
        region: String,
        /// Primary IPv4 block of the VPC; unknown until the connection is accepted if it is another
        /// account's.
        cidr_block: Option<Ipv4Net>,
        /// All IPv4 blocks of the VPC.
        cidr_block_set: Vec<CidrBlock>,
        /// All IPv6 blocks of the VPC.
        ipv6_cidr_block_set: Vec<Ipv6CidrBlock>,
        /// Options of this side of the connection.
        peering_options: PeeringOptions,
    }
}

impl PeeringVpc {
    /// All known blocks of the VPC.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = IpNet> {
        let v4 = self.cidr_block_set.iter().map(|of| IpNet::V4(of.cidr_block));
        v4.chain(self.ipv6_cidr_block_set.iter().map(|of| IpNet::V6(of.ipv6_cidr_block)))
    }
}

part! {
    /// An IPv4 block.
    CidrBlock {
        /// The IPv4 block.
        cidr_block: Ipv4Net,
    }
}

part! {
    /// An IPv6 block.
    Ipv6CidrBlock {
        /// The IPv6 block.
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

impl super::Region {
    /// Gives the state `blackhole` to the routes whose target no longer exists.
    pub fn blackhole_routes(&mut self, is_target: impl Fn(&Route) -> bool) {
        for table in self.route_tables.ids_where(|table| table.routes.iter().any(&is_target)) {
            if let Some(table) = self.route_tables.get_mut(&table) {
                for route in table.routes.iter_mut().filter(|route| is_target(route)) {
                    "blackhole".clone_into(&mut route.state);
                }
            }
        }
    }
}
