//! Carrier gateways, customer gateways, virtual private gateways and VPN connections.

use super::{Tag, object, part};

object! {
    /// A carrier gateway.
    CarrierGateway("cagw", "carrier-gateway", carrier_gateway_id) {
        /// Identifier, `cagw-...`.
        carrier_gateway_id: String,
        /// Its VPC.
        vpc_id: String,
        /// `available`.
        state: String,
        /// Account that owns it.
        owner_id: String,
        /// Tags.
        tags: Vec<Tag>,
    }
}

object! {
    /// A customer gateway: the far end of VPN connections.
    CustomerGateway("cgw", "customer-gateway", customer_gateway_id) {
        /// Identifier, `cgw-...`.
        customer_gateway_id: String,
        /// `available` or `deleted`.
        state: String,
        /// `ipsec.1`.
        r#type: String,
        /// Address.
        ip_address: Option<String>,
        /// Number of the autonomous system.
        bgp_asn: Option<String>,
        /// Number of the autonomous system, if it exceeds 31 bits.
        bgp_asn_extended: Option<String>,
        /// Name of the device.
        device_name: Option<String>,
        /// Certificate.
        certificate_arn: Option<String>,
        /// Tags.
        tags: Vec<Tag>,
    }
}

object! {
    /// A virtual private gateway.
    VpnGateway("vgw", "vpn-gateway", vpn_gateway_id) {
        /// Identifier, `vgw-...`.
        vpn_gateway_id: String,
        /// `available` or `deleted`.
        state: String,
        /// `ipsec.1`.
        r#type: String,
        /// Zone, if the request named one.
        availability_zone: Option<String>,
        /// Number of the autonomous system.
        amazon_side_asn: i64,
        /// The last attachment to a VPC.
        vpc_attachments: Vec<VpnAttachment>,
        /// Tags.
        tags: Vec<Tag>,
    }
}

impl VpnGateway {
    /// The VPC to which the gateway is attached.
    pub fn vpc(&self) -> Option<&str> {
        let attached = self.vpc_attachments.iter().find(|of| of.state == "attached");
        attached.map(|of| of.vpc_id.as_str())
    }
}

part! {
    /// Attachment of a virtual private gateway.
    VpnAttachment {
        /// `attached` or `detached`.
        state: String,
        /// The VPC.
        vpc_id: String,
    }
}

object! {
    /// A VPN connection.
    VpnConnection("vpn", "vpn-connection", vpn_connection_id) {
        /// Identifier, `vpn-...`.
        vpn_connection_id: String,
        /// `available` or `deleted`.
        state: String,
        /// `ipsec.1`.
        r#type: String,
        /// `VPN`.
        category: String,
        /// Far end.
        customer_gateway_id: String,
        /// Near end: virtual private gateway.
        vpn_gateway_id: Option<String>,
        /// Near end: transit gateway.
        transit_gateway_id: Option<String>,
        /// `associated` or `not-associated`.
        gateway_association_state: String,
        /// Options.
        options: VpnOptions,
        /// Static routes.
        routes: Vec<VpnRoute>,
        /// Tags.
        tags: Vec<Tag>,
    }
}

part! {
    /// Options of a VPN connection.
    VpnOptions {
        /// Whether packets use the provider's backbone.
        enable_acceleration: bool,
        /// Whether routes are static.
        static_routes_only: bool,
        /// Block of the far end.
        local_ipv4_network_cidr: String,
        /// Block of the near end.
        remote_ipv4_network_cidr: String,
        /// `ipv4` or `ipv6`.
        tunnel_inside_ip_version: String,
        /// `PublicIpv4`, `PrivateIpv4` or `Ipv6`.
        outside_ip_address_type: String,
    }
}

part! {
    /// A static route of a VPN connection.
    VpnRoute {
        /// Destination.
        destination_cidr_block: ipnet::Ipv4Net,
        /// `Static`.
        source: String,
        /// `available`.
        state: String,
    }
}
