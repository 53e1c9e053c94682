//! VPC endpoints and the services behind them.

use super::interface::GroupIdentifier;
use super::{Tag, object, part};

object! {
    /// A VPC endpoint.
    VpcEndpoint("vpce", "vpc-endpoint", vpc_endpoint_id) {
        /// Identifier, `vpce-...`.
        vpc_endpoint_id: String,
        /// `Gateway`, `Interface` or `GatewayLoadBalancer`.
        vpc_endpoint_type: String,
        /// Its VPC.
        vpc_id: String,
        /// Account that owns it.
        owner_id: String,
        /// Name of the service.
        service_name: String,
        /// Region of the service.
        service_region: String,
        /// `available`, `pendingAcceptance`, `rejected` or `deleted`.
        state: String,
        /// Policy, as JSON; absent for Gateway Load Balancer endpoints.
        policy_document: Option<String>,
        /// Route tables that lead to a gateway endpoint.
        route_table_ids: Vec<String>,
        /// Subnets with an interface of the endpoint.
        subnet_ids: Vec<String>,
        /// Security groups of the interfaces.
        groups: Vec<GroupIdentifier>,
        /// `ipv4`, `dualstack` or `ipv6`.
        ip_address_type: String,
        /// Kinds of DNS records.
        dns_options: DnsOptions,
        /// Whether the public names of the service lead to the endpoint.
        private_dns_enabled: bool,
        /// Whether a service manages the endpoint.
        requester_managed: bool,
        /// Interfaces, in the order of the subnets.
        network_interface_ids: Vec<String>,
        /// Names of the endpoint.
        dns_entries: Vec<DnsEntry>,
        /// Time of creation.
        creation_timestamp: String,
        /// Tags.
        tags: Vec<Tag>,
    }
}

part! {
    /// Kinds of DNS records of an endpoint.
    DnsOptions {
        /// `ipv4`, `dualstack`, `ipv6` or `service-defined`.
        dns_record_ip_type: String,
        /// Whether the private name is for traffic from outside of the VPC only.
        private_dns_only_for_inbound_resolver_endpoint: Option<bool>,
    }
}

part! {
    /// A name of an endpoint.
    DnsEntry {
        /// The name.
        dns_name: String,
        /// Zone of the name.
        hosted_zone_id: String,
    }
}

object! {
    /// A service that owners of other VPCs reach through endpoints.
    EndpointService("vpce-svc", "vpc-endpoint-service", service_id) {
        /// Identifier, `vpce-svc-...`.
        service_id: String,
        /// Name, which contains the region and the identifier.
        service_name: String,
        /// `Interface` or `GatewayLoadBalancer`.
        service_type: Vec<ServiceType>,
        /// Account that owns it.
        owner_id: String,
        /// `Available`.
        service_state: String,
        /// Zones of the load balancers.
        availability_zones: Vec<String>,
        /// Whether each endpoint has to be accepted.
        acceptance_required: bool,
        /// Whether the service manages the endpoints.
        manages_vpc_endpoints: bool,
        /// Network Load Balancers; absent without one.
        network_load_balancer_arns: Option<Vec<String>>,
        /// Gateway Load Balancers; absent without one.
        gateway_load_balancer_arns: Option<Vec<String>>,
        /// Address families, `ipv4` and `ipv6`.
        supported_ip_address_types: Vec<String>,
        /// Names of which the names of endpoints are made.
        base_endpoint_dns_names: Vec<String>,
        /// Private name.
        private_dns_name: Option<String>,
        /// Record that proves the ownership of the private name; empty without such a name.
        private_dns_name_configuration: PrivateDnsProof,
        /// Further regions whose endpoints may use the service.
        supported_regions: Vec<SupportedRegion>,
        /// Principals that may create endpoints.
        allowed_principals: Vec<AllowedPrincipal>,
        /// Tags.
        tags: Vec<Tag>,
    }
}

part! {
    /// Type of a service.
    ServiceType {
        /// `Interface` or `GatewayLoadBalancer`.
        service_type: String,
    }
}

part! {
    /// DNS record that proves the ownership of a name.
    #[derive(Default)]
    PrivateDnsProof {
        /// `pendingVerification`, `verified` or `failed`.
        state: Option<String>,
        /// Type of the record, `TXT`.
        r#type: Option<String>,
        /// Value of the record.
        value: Option<String>,
        /// Name of the record.
        name: Option<String>,
    }
}

part! {
    /// A further region of a service.
    SupportedRegion {
        /// The region.
        region: String,
        /// `Available`.
        service_state: String,
    }
}

part! {
    /// A principal that may create endpoints to a service.
    AllowedPrincipal {
        /// Name of the principal, or `*`.
        principal: String,
        /// `All`, `Account`, `Role`, `User` or `Service`; absent if the name has no such form.
        principal_type: Option<String>,
        /// Identifier, `vpce-svc-perm-...`.
        service_permission_id: String,
    }
}
