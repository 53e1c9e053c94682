//! Security groups, interfaces, elastic addresses, gateways and instances.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

use super::{Tag, object, part};

/// Group of the IPv6 addresses of all interfaces of a region.
pub const RANGES_V6: &str = "ipv6";

/// Group of the public addresses of a region.
pub const PUBLIC: &str = "public";

/// Returns the first and the last address of a block as numbers.
pub fn numbers_v4(block: Ipv4Net) -> (u128, u128) {
    (u32::from(block.network()).into(), u32::from(block.broadcast()).into())
}

/// Returns the range of a public address.
fn public(address: Ipv4Addr) -> (&'static str, u128, u128) {
    let number = u32::from(address).into();
    (PUBLIC, number, number)
}

/// Returns the first and the last address of a block as numbers.
pub fn numbers_v6(block: Ipv6Net) -> (u128, u128) {
    (block.network().into(), block.broadcast().into())
}

object! {
    /// A security group. Its rules are the rows of another table, [`SecurityGroupRule`].
    SecurityGroup("sg", "security-group", group_id) {
        /// Identifier of the security group, `sg-...`.
        group_id: String,
        /// Amazon resource name (ARN) of the security group.
        security_group_arn: String,
        /// Account that owns the security group.
        owner_id: String,
        /// Identifier of the VPC that contains the security group.
        vpc_id: String,
        /// Name of the group.
        group_name: String,
        /// Description of the group.
        description: String,
        /// Tags of the security group.
        tags: Vec<Tag>,
    }
}

object! {
    /// A rule of a security group. Exactly one source or destination is given.
    SecurityGroupRule("sgr", "security-group-rule", security_group_rule_id) {
        /// Identifier of the rule, `sgr-...`.
        security_group_rule_id: String,
        /// Amazon resource name (ARN) of the rule.
        security_group_rule_arn: String,
        /// Identifier of the security group to which the rule belongs.
        group_id: String,
        /// Account that owns the security group of the rule.
        group_owner_id: String,
        /// Whether the rule applies to packets that leave the interface.
        is_egress: bool,
        /// Protocol: `tcp`, `udp`, `icmp`, `icmpv6`, another protocol's number, or `-1` for all.
        ip_protocol: String,
        /// First port or ICMP type; -1 stands for all.
        from_port: i64,
        /// Last port or ICMP code; -1 stands for all.
        to_port: i64,
        /// Source or destination: an IPv4 block.
        cidr_ipv4: Option<Ipv4Net>,
        /// Source or destination: an IPv6 block.
        cidr_ipv6: Option<Ipv6Net>,
        /// Source or destination: a prefix list, by its identifier.
        prefix_list_id: Option<String>,
        /// Source or destination: the interfaces of a security group.
        referenced_group_info: Option<ReferencedGroup>,
        /// Description of the rule.
        description: Option<String>,
        /// Tags of the rule.
        tags: Vec<Tag>,
    }

    fn links(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.group_id.as_str())
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
        /// Identifier of the group.
        group_id: String,
        /// Account that owns the group.
        user_id: Option<String>,
        /// VPC of the group, if it is a peered VPC.
        vpc_id: Option<String>,
        /// Peering connection to the VPC of the group.
        vpc_peering_connection_id: Option<String>,
        /// State of the peering connection to the VPC of the group.
        peering_status: Option<String>,
    }
}

object! {
    /// A network interface (ENI).
    NetworkInterface("eni", "network-interface", network_interface_id) {
        /// Identifier of the interface, `eni-...`.
        network_interface_id: String,
        /// Account that owns the interface.
        owner_id: String,
        /// Identifier of the VPC that contains the interface.
        vpc_id: String,
        /// Identifier of the subnet that contains the interface.
        subnet_id: String,
        /// Availability zone of the interface's subnet.
        availability_zone: String,
        /// Description of the interface.
        description: String,
        /// Type of the interface: `interface`, `nat_gateway` and similar.
        interface_type: String,
        /// MAC address of the interface.
        mac_address: String,
        /// Primary IPv4 address of the interface; absent in an IPv6-only subnet.
        private_ip_address: Option<Ipv4Addr>,
        /// DNS name of the primary IPv4 address.
        private_dns_name: Option<String>,
        /// All IPv4 addresses of the interface; the first is the primary address.
        private_ip_addresses: Vec<PrivateIpAddress>,
        /// IPv6 addresses of the interface.
        ipv6_addresses: Vec<Ipv6Address>,
        /// IPv4 prefixes of the interface.
        ipv4_prefixes: Vec<Ipv4Prefix>,
        /// IPv6 prefixes of the interface.
        ipv6_prefixes: Vec<Ipv6Prefix>,
        /// Security groups of the interface.
        groups: Vec<GroupIdentifier>,
        /// Whether packets of foreign addresses are dropped.
        source_dest_check: bool,
        /// State of the interface: `available` or `in-use`.
        status: String,
        /// Service that made the interface.
        requester_id: Option<String>,
        /// Whether a service manages the interface.
        requester_managed: bool,
        /// Attachment to an instance or a gateway.
        attachment: Option<Attachment>,
        /// Public address that was given at the launch of the instance, without an elastic address.
        auto_public_ip: Option<Ipv4Addr>,
        /// Settings of ENA Express that the next attachment of the interface gets. The settings of
        /// the current attachment are in `attachment`.
        ena_srd_specification: Option<EnaSrdSpecification>,
        /// Timeouts of connection tracking.
        connection_tracking_configuration: Option<ConnectionTracking>,
        /// Tags of the interface.
        tags: Vec<Tag>,
    }

    /// The subnet, the instance and the security groups of the interface.
    fn links(&self) -> impl Iterator<Item = &str> {
        let instance = self.attachment.as_ref().and_then(|of| of.instance_id.as_deref());
        let groups = self.groups.iter().map(|group| group.group_id.as_str());
        std::iter::once(self.subnet_id.as_str()).chain(instance).chain(groups)
    }

    /// The IPv4 addresses and prefixes, in the group of the subnet, those of IPv6 in one group of
    /// the region, and the public address.
    fn ranges(&self) -> impl Iterator<Item = (&str, u128, u128)> {
        let subnet = self.subnet_id.as_str();
        let v4 = self.private_ip_addresses.iter();
        let v4 = v4.map(|of| Ipv4Net::from(of.private_ip_address));
        let v4 = v4.chain(self.ipv4_prefixes.iter().map(|of| of.ipv4_prefix)).map(numbers_v4);
        let v6 = self.ipv6_addresses.iter().map(|of| Ipv6Net::from(of.ipv6_address));
        let v6 = v6.chain(self.ipv6_prefixes.iter().map(|of| of.ipv6_prefix)).map(numbers_v6);
        v4.map(move |(first, last)| (subnet, first, last))
            .chain(v6.map(|(first, last)| (RANGES_V6, first, last)))
            .chain(self.auto_public_ip.map(public))
    }
}

part! {
    /// An IPv4 address of an interface.
    PrivateIpAddress {
        /// The IPv4 address.
        private_ip_address: Ipv4Addr,
        /// Whether the address is the primary address of its interface.
        primary: bool,
        /// DNS name of the address.
        private_dns_name: Option<String>,
    }
}

part! {
    /// An IPv6 address of an interface.
    Ipv6Address {
        /// The IPv6 address.
        ipv6_address: Ipv6Addr,
        /// Whether the address is the primary IPv6 address of its interface. Answers
        /// contain it for this address only.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_primary_ipv6: bool,
    }
}

part! {
    /// An IPv4 prefix of an interface.
    Ipv4Prefix {
        /// The IPv4 prefix.
        ipv4_prefix: Ipv4Net,
    }
}

part! {
    /// An IPv6 prefix of an interface.
    Ipv6Prefix {
        /// The IPv6 prefix.
        ipv6_prefix: Ipv6Net,
    }
}

part! {
    /// A security group of an interface.
    GroupIdentifier {
        /// Identifier of the security group.
        group_id: String,
        /// Name of the security group.
        group_name: String,
    }
}

part! {
    /// Attachment of an interface.
    Attachment {
        /// Identifier of the attachment, `eni-attach-...`.
        attachment_id: String,
        /// Instance to which the interface is attached; absent for interfaces of gateways.
        instance_id: Option<String>,
        /// Account that owns the instance.
        instance_owner_id: String,
        /// Number of the device in the instance.
        device_index: i64,
        /// Network card of the instance.
        network_card_index: i64,
        /// State of the attachment: `attached`.
        status: String,
        /// Time of the attachment.
        attach_time: String,
        /// Whether the interface is deleted with its instance.
        delete_on_termination: bool,
        /// Settings of ENA Express of the attachment.
        ena_srd_specification: Option<EnaSrdSpecification>,
        /// Whether the interface has given up the public address of the launch, so that the next
        /// start of the instance gives it another one.
        #[serde(default)]
        public_at_start: bool,
    }
}

impl NetworkInterface {
    /// Gives up the public address of the launch.
    pub(crate) fn release_public_ip(&mut self) {
        if let (Some(_), Some(of)) = (self.auto_public_ip.take(), &mut self.attachment) {
            of.public_at_start = true;
        }
    }
}

part! {
    /// Settings of ENA Express.
    #[derive(Default)]
    EnaSrdSpecification {
        /// Whether TCP uses SRD.
        ena_srd_enabled: bool,
        /// Settings for UDP.
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
        /// Identifier of the elastic address, `eipalloc-...`.
        allocation_id: String,
        /// The public address.
        public_ip: Ipv4Addr,
        /// Kind of network in which the address is used: `vpc`.
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
        /// Private address to which the elastic address is mapped.
        private_ip_address: Option<Ipv4Addr>,
        /// Instance that has the interface.
        instance_id: Option<String>,
        /// Name of the address in the reverse zone.
        ptr_record: Option<String>,
        /// Tags of the elastic address.
        tags: Vec<Tag>,
    }

    fn links(&self) -> impl Iterator<Item = &str> {
        self.network_interface_id.as_deref().into_iter()
    }

    fn ranges(&self) -> impl Iterator<Item = (&str, u128, u128)> {
        std::iter::once(public(self.public_ip))
    }
}

object! {
    /// An internet gateway.
    InternetGateway("igw", "internet-gateway", internet_gateway_id) {
        /// Identifier of the gateway, `igw-...`.
        internet_gateway_id: String,
        /// Account that owns the gateway.
        owner_id: String,
        /// VPC to which the gateway is attached, at most one.
        attachments: Vec<GatewayAttachment>,
        /// Tags of the gateway.
        tags: Vec<Tag>,
    }
}

part! {
    /// Attachment of a gateway to a VPC.
    GatewayAttachment {
        /// State of the attachment: `available` (internet gateways) or `attached` (egress-only
        /// gateways).
        state: String,
        /// Identifier of the VPC to which the gateway is attached.
        vpc_id: String,
    }
}

object! {
    /// An egress-only internet gateway, for IPv6.
    EgressOnlyGateway("eigw", "egress-only-internet-gateway", egress_only_internet_gateway_id) {
        /// Identifier of the gateway, `eigw-...`.
        egress_only_internet_gateway_id: String,
        /// VPC to which the gateway is attached.
        attachments: Vec<GatewayAttachment>,
        /// Tags of the gateway.
        tags: Vec<Tag>,
    }
}

object! {
    /// A NAT gateway.
    NatGateway("nat", "natgateway", nat_gateway_id) {
        /// Identifier of the gateway, `nat-...`.
        nat_gateway_id: String,
        /// Identifier of the VPC that contains the gateway.
        vpc_id: String,
        /// Identifier of the subnet that contains the gateway.
        subnet_id: String,
        /// State of the gateway: `available`, `failed` or `deleted`.
        state: String,
        /// Code of the cause, if the state is `failed`.
        failure_code: Option<String>,
        /// Cause, if the state is `failed`.
        failure_message: Option<String>,
        /// Kind of the gateway: `public` or `private`.
        connectivity_type: String,
        /// Addresses of the gateway; the first is the primary address.
        nat_gateway_addresses: Vec<NatGatewayAddress>,
        /// Time when the gateway was created.
        create_time: String,
        /// Time when the gateway was deleted.
        delete_time: Option<String>,
        /// Tags of the gateway.
        tags: Vec<Tag>,
    }
}

part! {
    /// An address of a NAT gateway.
    NatGatewayAddress {
        /// Identifier of the elastic address.
        allocation_id: Option<String>,
        /// Identifier of the association of the elastic address with the gateway.
        association_id: Option<String>,
        /// Interface of the gateway.
        network_interface_id: String,
        /// Private IPv4 address of the gateway.
        private_ip: Ipv4Addr,
        /// Public IPv4 address to which the private address is mapped.
        public_ip: Option<Ipv4Addr>,
        /// Whether the address is the primary address of its gateway.
        is_primary: bool,
        /// State of the address: `succeeded`.
        status: String,
    }
}

object! {
    /// An instance. Its interfaces are rows of the table of interfaces.
    Instance("i", "instance", instance_id) {
        /// Identifier of the instance, `i-...`.
        instance_id: String,
        /// Identifier of the launch, `r-...`.
        reservation_id: String,
        /// Account that owns the instance.
        owner_id: String,
        /// Identifier of the image from which the instance was launched.
        image_id: String,
        /// Type of the instance, such as `c7i.large`.
        instance_type: String,
        /// State of the instance.
        state: InstanceState,
        /// Cause of the last change of the state.
        state_transition_reason: String,
        /// Number of the instance among the instances of its launch, from 0.
        ami_launch_index: i64,
        /// Time of the launch.
        launch_time: String,
        /// Availability zone of the instance.
        availability_zone: String,
        /// Tenancy of the instance: `default` or `dedicated`.
        tenancy: String,
        /// VPC of the primary interface; absent after termination.
        vpc_id: Option<String>,
        /// Subnet of the primary interface; absent after termination.
        subnet_id: Option<String>,
        /// Name of the key pair with which the instance was launched.
        key_name: Option<String>,
        /// User data of the instance: data for its first start, in base64.
        user_data: Option<String>,
        /// Client token of the request that launched the instance.
        client_token: Option<String>,
        /// Attribute `disableApiTermination` of the instance.
        disable_api_termination: bool,
        /// Name of the host on which the instance runs, or has run last; absent: it runs on the
        /// machine of the controller.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<String>,
        /// Tags of the instance.
        tags: Vec<Tag>,
    }
}

part! {
    /// State of an instance.
    InstanceState {
        /// Number of the state: 0 pending, 16 running, 32 shutting-down, 48 terminated, 64
        /// stopping, 80 stopped.
        code: i64,
        /// Name of the state, such as `running`.
        name: String,
    }
}
