//! Transit gateways, their attachments and their route tables.

use super::{Tag, object, part};

object! {
    /// A transit gateway.
    TransitGateway("tgw", "transit-gateway", transit_gateway_id) {
        /// Identifier, `tgw-...`.
        transit_gateway_id: String,
        /// Name of the resource.
        transit_gateway_arn: String,
        /// `available`.
        state: String,
        /// Account that owns it.
        owner_id: String,
        /// Description.
        description: Option<String>,
        /// Time of creation.
        creation_time: String,
        /// Options.
        options: TransitOptions,
        /// Tags.
        tags: Vec<Tag>,
    }
}

part! {
    /// Options of a transit gateway. Switches are `enable` or `disable`.
    TransitOptions {
        /// Number of the autonomous system.
        amazon_side_asn: i64,
        /// Blocks of the gateway.
        transit_gateway_cidr_blocks: Vec<String>,
        /// Whether attachments of other accounts are accepted at once.
        auto_accept_shared_attachments: String,
        /// Whether new attachments use the default table.
        default_route_table_association: String,
        /// Route table with which new attachments are associated by default.
        association_default_route_table_id: Option<String>,
        /// Whether new attachments propagate their routes.
        default_route_table_propagation: String,
        /// Route table to which new attachments propagate their routes by default.
        propagation_default_route_table_id: Option<String>,
        /// Whether several tunnels share packets.
        vpn_ecmp_support: String,
        /// Whether public names resolve to private addresses.
        dns_support: String,
        /// Whether rules may name groups of other VPCs.
        security_group_referencing_support: String,
        /// Whether multicast is used.
        multicast_support: String,
    }
}

object! {
    /// Attachment of a VPC, a VPN connection or a peer to a transit gateway.
    TransitAttachment("tgw-attach", "transit-gateway-attachment", transit_gateway_attachment_id) {
        /// Identifier, `tgw-attach-...`.
        transit_gateway_attachment_id: String,
        /// The gateway of this region.
        transit_gateway_id: String,
        /// Account that owns the gateway.
        transit_gateway_owner_id: String,
        /// `vpc`, `vpn` or `peering`.
        resource_type: String,
        /// The VPC, the VPN connection or the other gateway.
        resource_id: String,
        /// Account that owns the resource.
        resource_owner_id: String,
        /// `available`, `pendingAcceptance`, `rejected` or `deleted`.
        state: String,
        /// Time of creation.
        creation_time: String,
        /// Route table that routes the packets of the attachment.
        association: Option<TransitAssociation>,
        /// Route tables that get the routes of the attachment.
        propagations: Vec<String>,
        /// Subnets of a VPC, one for each zone.
        subnet_ids: Vec<String>,
        /// Interfaces in the subnets, in their order.
        network_interface_ids: Vec<String>,
        /// Options of a VPC.
        vpc_options: Option<TransitVpcOptions>,
        /// Both gateways of a peering.
        peering: Option<TransitPeering>,
        /// Tags.
        tags: Vec<Tag>,
    }
}

part! {
    /// Association of an attachment.
    TransitAssociation {
        /// The table.
        transit_gateway_route_table_id: String,
        /// `associated`.
        state: String,
    }
}

part! {
    /// Options of the attachment of a VPC. Switches are `enable` or `disable`.
    TransitVpcOptions {
        /// Whether public names resolve to private addresses.
        dns_support: String,
        /// Whether rules may name groups of other VPCs.
        security_group_referencing_support: String,
        /// Whether IPv6 is used.
        ipv6_support: String,
        /// Whether both directions of a flow use one zone.
        appliance_mode_support: String,
    }
}

part! {
    /// The gateways of a peering.
    TransitPeering {
        /// Gateway that requested the peering.
        requester_tgw_info: TransitSide,
        /// Gateway that accepts it.
        accepter_tgw_info: TransitSide,
        /// Options of the request.
        options: Option<serde_json::Value>,
        /// Explanation of the state.
        status: TransitStatus,
    }
}

part! {
    /// One gateway of a peering.
    TransitSide {
        /// The gateway.
        transit_gateway_id: String,
        /// Account that owns it.
        owner_id: String,
        /// Its region.
        region: String,
    }
}

part! {
    /// Explanation of the state of a peering.
    TransitStatus {
        /// State.
        code: String,
        /// Text.
        message: Option<String>,
    }
}

object! {
    /// A route table of a transit gateway.
    TransitRouteTable("tgw-rtb", "transit-gateway-route-table", transit_gateway_route_table_id) {
        /// Identifier, `tgw-rtb-...`.
        transit_gateway_route_table_id: String,
        /// The gateway.
        transit_gateway_id: String,
        /// `available` or `deleted`.
        state: String,
        /// Whether new attachments use it.
        default_association_route_table: bool,
        /// Whether new attachments propagate their routes to it.
        default_propagation_route_table: bool,
        /// Time of creation.
        creation_time: String,
        /// Static routes, in the order of their creation.
        routes: Vec<TransitRoute>,
        /// Tags.
        tags: Vec<Tag>,
    }
}

part! {
    /// A static route of a transit gateway.
    TransitRoute {
        /// Destination.
        destination_cidr_block: ipnet::IpNet,
        /// Attachment; absent if the packets are dropped.
        transit_gateway_attachment_id: Option<String>,
    }
}
