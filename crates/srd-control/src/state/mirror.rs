//! Traffic mirroring: filters, their rules, targets and sessions.

use super::{Tag, object, part};

object! {
    /// A filter. Its rules are the rows of another table, [`MirrorFilterRule`].
    MirrorFilter("tmf", "traffic-mirror-filter", traffic_mirror_filter_id) {
        /// Identifier, `tmf-...`.
        traffic_mirror_filter_id: String,
        /// Services of the network whose packets are copied, `amazon-dns`.
        network_services: Vec<String>,
        /// Description.
        description: Option<String>,
        /// Tags.
        tags: Vec<Tag>,
    }
}

object! {
    /// A rule of a filter.
    MirrorFilterRule("tmfr", "traffic-mirror-filter-rule", traffic_mirror_filter_rule_id) {
        /// Identifier, `tmfr-...`.
        traffic_mirror_filter_rule_id: String,
        /// Its filter.
        traffic_mirror_filter_id: String,
        /// `ingress` or `egress`.
        traffic_direction: String,
        /// Number, by which the rules are ordered.
        rule_number: i64,
        /// `accept` or `reject`.
        rule_action: String,
        /// Number of the protocol; absent for all.
        protocol: Option<i64>,
        /// Ports of destinations.
        destination_port_range: Option<MirrorPorts>,
        /// Ports of sources.
        source_port_range: Option<MirrorPorts>,
        /// Destinations.
        destination_cidr_block: ipnet::IpNet,
        /// Sources.
        source_cidr_block: ipnet::IpNet,
        /// Description.
        description: Option<String>,
        /// Tags.
        tags: Vec<Tag>,
    }
}

part! {
    /// Range of ports.
    MirrorPorts {
        /// First port.
        from_port: i64,
        /// Last port.
        to_port: i64,
    }
}

object! {
    /// A target of copies. Exactly one of the kinds of target is given.
    MirrorTarget("tmt", "traffic-mirror-target", traffic_mirror_target_id) {
        /// Identifier, `tmt-...`.
        traffic_mirror_target_id: String,
        /// `network-interface`, `network-load-balancer` or `gateway-load-balancer-endpoint`.
        r#type: String,
        /// Interface.
        network_interface_id: Option<String>,
        /// Network Load Balancer.
        network_load_balancer_arn: Option<String>,
        /// Gateway Load Balancer endpoint.
        gateway_load_balancer_endpoint_id: Option<String>,
        /// Description.
        description: Option<String>,
        /// Account that owns it.
        owner_id: String,
        /// Tags.
        tags: Vec<Tag>,
    }
}

object! {
    /// A session: packets of an interface are copied to a target.
    MirrorSession("tms", "traffic-mirror-session", traffic_mirror_session_id) {
        /// Identifier, `tms-...`.
        traffic_mirror_session_id: String,
        /// The target.
        traffic_mirror_target_id: String,
        /// The filter.
        traffic_mirror_filter_id: String,
        /// Interface whose packets are copied.
        network_interface_id: String,
        /// Account that owns it.
        owner_id: String,
        /// Number of bytes that are copied; absent for whole packets.
        packet_length: Option<i64>,
        /// Order among the sessions of the interface, 1 to 32766.
        session_number: i64,
        /// Identifier in the VXLAN header.
        virtual_network_id: i64,
        /// Description.
        description: Option<String>,
        /// Tags.
        tags: Vec<Tag>,
    }
}
