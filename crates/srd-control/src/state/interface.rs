//! Security groups, interfaces, elastic addresses, gateways and instances.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

use super::{Tag, object, part};

object! {
    /// A security group. Its rules are the rows of another table, [`SecurityGroupRule`].
    SecurityGroup("sg", "security-group", group_id) {
        /// Identifier, `sg-...`.
        group_id: String,
        /// Name of the resource.
        security_group_arn: String,
        /// Account that owns it.
        owner_id: String,
        /// Its VPC.
        vpc_id: String,
        /// Name.
        group_name: String,
        /// Description.
        description: String,
        /// Tags.
        tags: Vec<Tag>,
    }
}

object! {
    /// A rule of a security group. Exactly one source or destination is given.
    SecurityGroupRule("sgr", "security-group-rule", security_group_rule_id) {
        /// Identifier, `sgr-...`.
        security_group_rule_id: String,
        /// Name of the resource.
        security_group_rule_arn: String,
        /// Its group.
        group_id: String,
        /// Account that owns the group.
        group_owner_id: String,
        /// Whether it applies to packets that leave the interface.
        is_egress: bool,
        /// `tcp`, `udp`, `icmp`, `icmpv6`, another protocol's number, or `-1`.
        ip_protocol: String,
        /// First port, type of ICMP, or -1.
        from_port: i64,
        /// Last port, code of ICMP, or -1.
        to_port: i64,
        /// IPv4 block.
        cidr_ipv4: Option<Ipv4Net>,
        /// IPv6 block.
        cidr_ipv6: Option<Ipv6Net>,
        /// Prefix list.
        prefix_list_id: Option<String>,
        /// Security group.
        referenced_group_info: Option<ReferencedGroup>,
        /// Description.
        description: Option<String>,
        /// Tags.
        tags: Vec<Tag>,
    }
}

impl SecurityGroupRule {
    /// A rule for all protocols of this direction, without an identifier, a group, and a source or
    /// destination.
    pub fn any(is_egress: bool) -> Self {
        Self {
            security_group_rule_id: String::new(),
            security_group_rule_arn: String::new(),
            group_id: String::new(),
            group_owner_id: String::new(),
            is_egress,
            ip_protocol: "-1".to_owned(),
            from_port: -1,
            to_port: -1,
            cidr_ipv4: None,
            cidr_ipv6: None,
            prefix_list_id: None,
            referenced_group_info: None,
            description: None,
            tags: Vec::new(),
        }
    }
}

part! {
    /// Security group that a rule names as its source or destination.
    ReferencedGroup {
        /// The group.
        group_id: String,
        /// Account that owns it.
        user_id: Option<String>,
        /// VPC of the group, if it is a peer.
        vpc_id: Option<String>,
        /// Peering connection to that VPC.
        vpc_peering_connection_id: Option<String>,
        /// State of that connection.
        peering_status: Option<String>,
    }
}

object! {
    /// A network interface (ENI).
    NetworkInterface("eni", "network-interface", network_interface_id) {
        /// Identifier, `eni-...`.
        network_interface_id: String,
        /// Account that owns it.
        owner_id: String,
        /// Its VPC.
        vpc_id: String,
        /// Its subnet.
        subnet_id: String,
        /// Zone of the subnet.
        availability_zone: String,
        /// Description.
        description: String,
        /// `interface`, `nat_gateway` and similar.
        interface_type: String,
        /// MAC address.
        mac_address: String,
        /// Primary IPv4 address; absent in an IPv6-only subnet.
        private_ip_address: Option<Ipv4Addr>,
        /// Name of the primary address.
        private_dns_name: Option<String>,
        /// All IPv4 addresses; the first is the primary address.
        private_ip_addresses: Vec<PrivateIpAddress>,
        /// IPv6 addresses.
        ipv6_addresses: Vec<Ipv6Address>,
        /// IPv4 prefixes.
        ipv4_prefixes: Vec<Ipv4Prefix>,
        /// IPv6 prefixes.
        ipv6_prefixes: Vec<Ipv6Prefix>,
        /// Security groups.
        groups: Vec<GroupIdentifier>,
        /// Whether packets of foreign addresses are dropped.
        source_dest_check: bool,
        /// `available` or `in-use`.
        status: String,
        /// Service that made the interface.
        requester_id: Option<String>,
        /// Whether a service manages the interface.
        requester_managed: bool,
        /// Attachment to an instance or a gateway.
        attachment: Option<Attachment>,
        /// Public address that was given at the launch of the instance, without an elastic address.
        auto_public_ip: Option<Ipv4Addr>,
        /// ENA Express: the settings that the next attachment gets. Those of the current
        /// attachment are the attachment's.
        ena_srd_specification: Option<EnaSrdSpecification>,
        /// Timeouts of connection tracking.
        connection_tracking_configuration: Option<ConnectionTracking>,
        /// Tags.
        tags: Vec<Tag>,
    }
}

part! {
    /// An IPv4 address of an interface.
    PrivateIpAddress {
        /// The address.
        private_ip_address: Ipv4Addr,
        /// Whether it is the primary address.
        primary: bool,
        /// Name of the address.
        private_dns_name: Option<String>,
    }
}

part! {
    /// An IPv6 address of an interface.
    Ipv6Address {
        /// The address.
        ipv6_address: Ipv6Addr,
        /// Whether it is the primary IPv6 address. Answers contain it for this address only.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_primary_ipv6: bool,
    }
}

part! {
    /// An IPv4 prefix of an interface.
    Ipv4Prefix {
        /// The prefix.
        ipv4_prefix: Ipv4Net,
    }
}

part! {
    /// An IPv6 prefix of an interface.
    Ipv6Prefix {
        /// The prefix.
        ipv6_prefix: Ipv6Net,
    }
}

part! {
    /// A security group of an interface.
    GroupIdentifier {
        /// The group.
        group_id: String,
        /// Its name.
        group_name: String,
    }
}

part! {
    /// Attachment of an interface.
    Attachment {
        /// Identifier, `eni-attach-...`.
        attachment_id: String,
        /// The instance; absent for interfaces of gateways.
        instance_id: Option<String>,
        /// Account that owns the instance.
        instance_owner_id: String,
        /// Number of the device in the instance.
        device_index: i64,
        /// Network card of the instance.
        network_card_index: i64,
        /// `attached`.
        status: String,
        /// Time of the attachment.
        attach_time: String,
        /// Whether the interface is deleted with its instance.
        delete_on_termination: bool,
        /// ENA Express.
        ena_srd_specification: Option<EnaSrdSpecification>,
    }
}

part! {
    /// Settings of ENA Express.
    #[derive(Default)]
    EnaSrdSpecification {
        /// Whether TCP uses SRD.
        ena_srd_enabled: bool,
        /// Settings of UDP.
        ena_srd_udp_specification: EnaSrdUdpSpecification,
    }
}

part! {
    /// Settings of ENA Express for UDP.
    #[derive(Default)]
    EnaSrdUdpSpecification {
        /// Whether UDP uses SRD.
        ena_srd_udp_enabled: bool,
    }
}

part! {
    /// Timeouts of connection tracking in seconds.
    #[derive(Default)]
    ConnectionTracking {
        /// Idle established TCP connections, 60 to 432000.
        tcp_established_timeout: Option<i64>,
        /// UDP flows with several packets in both directions, 60 to 180.
        udp_stream_timeout: Option<i64>,
        /// Other UDP flows, 30 to 60.
        udp_timeout: Option<i64>,
    }
}

object! {
    /// An elastic address.
    Address("eipalloc", "elastic-ip", allocation_id) {
        /// Identifier, `eipalloc-...`.
        allocation_id: String,
        /// The public address.
        public_ip: Ipv4Addr,
        /// `vpc`.
        domain: String,
        /// Pool of the address.
        public_ipv4_pool: String,
        /// Zone group that announces the address.
        network_border_group: String,
        /// Identifier of the association, `eipassoc-...`.
        association_id: Option<String>,
        /// Interface that has the address.
        network_interface_id: Option<String>,
        /// Account that owns the interface.
        network_interface_owner_id: Option<String>,
        /// Private address to which it is mapped.
        private_ip_address: Option<Ipv4Addr>,
        /// Instance that has the interface.
        instance_id: Option<String>,
        /// Name of the address in the reverse zone.
        ptr_record: Option<String>,
        /// Tags.
        tags: Vec<Tag>,
    }
}

object! {
    /// An internet gateway.
    InternetGateway("igw", "internet-gateway", internet_gateway_id) {
        /// Identifier, `igw-...`.
        internet_gateway_id: String,
        /// Account that owns it.
        owner_id: String,
        /// VPC to which it is attached, at most one.
        attachments: Vec<GatewayAttachment>,
        /// Tags.
        tags: Vec<Tag>,
    }
}

part! {
    /// Attachment of a gateway to a VPC.
    GatewayAttachment {
        /// `available` (internet gateways) or `attached` (egress-only gateways).
        state: String,
        /// The VPC.
        vpc_id: String,
    }
}

object! {
    /// An egress-only internet gateway, for IPv6.
    EgressOnlyGateway("eigw", "egress-only-internet-gateway", egress_only_internet_gateway_id) {
        /// Identifier, `eigw-...`.
        egress_only_internet_gateway_id: String,
        /// VPC to which it is attached.
        attachments: Vec<GatewayAttachment>,
        /// Tags.
        tags: Vec<Tag>,
    }
}

object! {
    /// A NAT gateway.
    NatGateway("nat", "natgateway", nat_gateway_id) {
        /// Identifier, `nat-...`.
        nat_gateway_id: String,
        /// Its VPC.
        vpc_id: String,
        /// Its subnet.
        subnet_id: String,
        /// `available` or `deleted`.
        state: String,
        /// `public` or `private`.
        connectivity_type: String,
        /// Addresses; the first is the primary address.
        nat_gateway_addresses: Vec<NatGatewayAddress>,
        /// Time of creation.
        create_time: String,
        /// Time of deletion.
        delete_time: Option<String>,
        /// Tags.
        tags: Vec<Tag>,
    }
}

part! {
    /// An address of a NAT gateway.
    NatGatewayAddress {
        /// Elastic address.
        allocation_id: Option<String>,
        /// Association of the elastic address.
        association_id: Option<String>,
        /// Interface of the gateway.
        network_interface_id: String,
        /// Private address.
        private_ip: Ipv4Addr,
        /// Public address.
        public_ip: Option<Ipv4Addr>,
        /// Whether it is the primary address.
        is_primary: bool,
        /// `succeeded`.
        status: String,
    }
}

object! {
    /// An instance. Its interfaces are rows of the table of interfaces.
    Instance("i", "instance", instance_id) {
        /// Identifier, `i-...`.
        instance_id: String,
        /// Identifier of the launch, `r-...`.
        reservation_id: String,
        /// Account that owns it.
        owner_id: String,
        /// Image.
        image_id: String,
        /// Type.
        instance_type: String,
        /// State.
        state: InstanceState,
        /// Cause of the last change of the state.
        state_transition_reason: String,
        /// Position in the launch.
        ami_launch_index: i64,
        /// Time of the launch.
        launch_time: String,
        /// Zone.
        availability_zone: String,
        /// `default` or `dedicated`.
        tenancy: String,
        /// VPC of the primary interface; absent after termination.
        vpc_id: Option<String>,
        /// Subnet of the primary interface; absent after termination.
        subnet_id: Option<String>,
        /// Name of the key pair.
        key_name: Option<String>,
        /// Data for the first start, in base64.
        user_data: Option<String>,
        /// Token of the request.
        client_token: Option<String>,
        /// Attribute `disableApiTermination`.
        disable_api_termination: bool,
        /// Tags.
        tags: Vec<Tag>,
    }
}

part! {
    /// State of an instance.
    InstanceState {
        /// Number: 0 pending, 16 running, 32 shutting-down, 48 terminated, 64 stopping, 80 stopped.
        code: i64,
        /// Name.
        name: String,
    }
}
