//! Random regions, as requests could have made them.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

use crate::state::interface::*;
use crate::state::network::*;
use crate::state::*;

/// A region that is being made, with a source of random numbers.
pub(crate) struct Maker {
    pub(crate) region: Region,
    dice: IdGenerator,
}

const VPCS: u8 = 3;
const SUBNETS: u8 = 2;

impl Maker {
    pub(crate) fn new(seed: u64) -> Self {
        let ids = IdGenerator::new(seed.wrapping_add(1));
        let region = Region::empty("123456789012", "eu-central-1", ids);
        Self { region, dice: IdGenerator::new(seed) }
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.dice.next_u64() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        let at = usize::try_from(self.below(all.len() as u64)).unwrap();
        all[at].clone()
    }

    fn id<T: Object>(&mut self) -> String {
        self.region.ids.id(T::PREFIX)
    }

    /// Makes a region with everything that a file expresses.
    pub(crate) fn make(mut self) -> Self {
        let lists: Vec<String> = (0..2).map(|_| self.prefix_list()).collect();
        let options = self.dhcp_options();
        for n in 0..VPCS {
            self.vpc(n, &options);
        }
        self.peer();
        let groups: Vec<String> =
            self.region.groups.iter().map(|group| group.group_id.clone()).collect();
        for group in &groups {
            for _ in 0..self.below(5) {
                self.rule(group, &groups, &lists);
            }
        }
        self.routes(&lists);
        for n in 0..VPCS {
            self.machines(n);
        }
        self.nat_and_addresses();
        self.flow_logs();
        self
    }

    fn prefix_list(&mut self) -> String {
        let prefix_list_id = self.id::<PrefixList>();
        let entry = |cidr: String| PrefixListEntry { cidr, description: None };
        let old = vec![entry("0.0.0.0/0".into())];
        let new: Vec<_> = (0..self.below(3))
            .map(|_| entry(format!("10.{}.{}.0/24", self.below(3), self.below(2))))
            .collect();
        self.region.prefix_lists.insert(PrefixList {
            prefix_list_id: prefix_list_id.clone(),
            prefix_list_arn: String::new(),
            prefix_list_name: "list".into(),
            owner_id: "123456789012".into(),
            address_family: "IPv4".into(),
            state: "create-complete".into(),
            max_entries: Some(10),
            version: Some(2),
            versions: vec![old, new],
            tags: vec![],
        });
        prefix_list_id
    }

    fn dhcp_options(&mut self) -> String {
        let id = self.id::<DhcpOptions>();
        let value = |value: &str| AttributeValue { value: value.into() };
        let option = |key: &str, values| DhcpConfiguration { key: key.into(), values };
        self.region.dhcp_options.insert(DhcpOptions {
            dhcp_options_id: id.clone(),
            owner_id: String::new(),
            dhcp_configurations: vec![
                option("domain-name", vec![value("corp.example")]),
                option("domain-name-servers", vec![value("AmazonProvidedDNS")]),
                option("ntp-servers", vec![value("10.0.0.9"), value("no address")]),
            ],
            tags: vec![],
        });
        id
    }

    fn vpc(&mut self, n: u8, options: &str) {
        let vpc_id = self.id::<Vpc>();
        let cidr_block = Ipv4Net::new_assert(Ipv4Addr::new(10, n, 0, 0), 16);
        let ipv6 = (n == 0).then(|| Ipv6CidrAssociation {
            association_id: "vpc-cidr-assoc-1".into(),
            ipv6_cidr_block: "2001:db8:0:a00::/56".parse().unwrap(),
            ipv6_cidr_block_state: associated(),
            network_border_group: None,
            ipv6_pool: None,
        });
        self.region.vpcs.insert(Vpc {
            vpc_id: vpc_id.clone(),
            owner_id: String::new(),
            state: "available".into(),
            cidr_block,
            cidr_block_association_set: vec![CidrAssociation {
                association_id: "vpc-cidr-assoc-0".into(),
                cidr_block,
                cidr_block_state: associated(),
            }],
            ipv6_cidr_block_association_set: ipv6.into_iter().collect(),
            dhcp_options_id: if n == 0 { options.into() } else { "default".into() },
            instance_tenancy: "default".into(),
            is_default: n == VPCS - 1,
            enable_dns_support: true,
            enable_dns_hostnames: n == 0,
            enable_network_address_usage_metrics: false,
            classic_link: false,
            classic_link_dns: false,
            tags: vec![],
        });
        for name in ["default", "web", "app"] {
            let group_id = self.id::<SecurityGroup>();
            self.region.groups.insert(SecurityGroup {
                group_id,
                security_group_arn: String::new(),
                owner_id: String::new(),
                vpc_id: vpc_id.clone(),
                group_name: name.into(),
                description: format!("the \"{name}\" group"),
                tags: vec![],
            });
        }
        if n == 0 || self.one_in(2) {
            let id = self.id::<InternetGateway>();
            let at = GatewayAttachment { state: "available".into(), vpc_id: vpc_id.clone() };
            self.region.internet_gateways.insert(InternetGateway {
                internet_gateway_id: id,
                owner_id: String::new(),
                attachments: vec![at],
                tags: vec![],
            });
        }
        let subnets: Vec<String> = (0..SUBNETS).map(|k| self.subnet(&vpc_id, n, k)).collect();
        self.acls(&vpc_id, &subnets);
        let route_table_id = self.id::<RouteTable>();
        let main = RouteTableAssociation {
            route_table_association_id: "rtbassoc-1".into(),
            route_table_id: route_table_id.clone(),
            main: true,
            subnet_id: None,
            gateway_id: None,
            association_state: associated(),
        };
        let local = Route {
            destination_cidr_block: Some(cidr_block),
            gateway_id: Some("local".into()),
            origin: "CreateRouteTable".into(),
            state: "active".into(),
            ..Route::default()
        };
        self.region.route_tables.insert(RouteTable {
            route_table_id,
            owner_id: String::new(),
            vpc_id,
            routes: vec![local],
            associations: vec![main],
            propagating_vgws: vec![],
            tags: vec![],
        });
    }

    fn subnet(&mut self, vpc_id: &str, n: u8, k: u8) -> String {
        let subnet_id = self.id::<Subnet>();
        let block = format!("2001:db8:0:a0{k}::/64").parse::<Ipv6Net>().unwrap();
        let ipv6 = (n == 0).then(|| Ipv6CidrAssociation {
            association_id: "subnet-cidr-assoc-1".into(),
            ipv6_cidr_block: block,
            ipv6_cidr_block_state: associated(),
            network_border_group: None,
            ipv6_pool: None,
        });
        self.region.subnets.insert(Subnet {
            subnet_id: subnet_id.clone(),
            subnet_arn: String::new(),
            owner_id: String::new(),
            vpc_id: vpc_id.into(),
            state: "available".into(),
            cidr_block: Some(Ipv4Net::new_assert(Ipv4Addr::new(10, n, k, 0), 24)),
            ipv6_cidr_block_association_set: ipv6.into_iter().collect(),
            availability_zone: "eu-central-1a".into(),
            availability_zone_id: "euc1-az1".into(),
            default_for_az: false,
            map_public_ip_on_launch: false,
            assign_ipv6_address_on_creation: false,
            enable_dns64: false,
            ipv6_native: false,
            enable_lni_at_device_index: None,
            customer_owned_ipv4_pool: None,
            map_customer_owned_ip_on_launch: false,
            private_dns_name_options_on_launch: DnsNameOptions {
                hostname_type: "ip-name".into(),
                enable_resource_name_dns_a_record: false,
                enable_resource_name_dns_aaaa_record: false,
            },
            tags: vec![],
        });
        subnet_id
    }

    fn acls(&mut self, vpc_id: &str, subnets: &[String]) {
        for (place, subnet_id) in subnets.iter().enumerate() {
            let network_acl_id = self.id::<NetworkAcl>();
            let mut entries = Vec::new();
            for egress in [false, true] {
                for number in 1..self.below(4) {
                    let port_range = Some(self.ports());
                    entries.push(NetworkAclEntry {
                        rule_number: i64::try_from(number).unwrap(),
                        egress,
                        protocol: self.pick(&["6", "17"]).into(),
                        rule_action: self.pick(&["allow", "deny"]).into(),
                        cidr_block: Some(self.block()),
                        ipv6_cidr_block: None,
                        port_range,
                        icmp_type_code: None,
                    });
                }
                for (rule_number, rule_action) in [(100, "allow"), (32_767, "deny")] {
                    entries.push(NetworkAclEntry {
                        rule_number,
                        egress,
                        protocol: "-1".into(),
                        rule_action: rule_action.into(),
                        cidr_block: Some(Ipv4Net::default()),
                        ipv6_cidr_block: None,
                        port_range: None,
                        icmp_type_code: None,
                    });
                }
            }
            let association = NetworkAclAssociation {
                network_acl_association_id: "aclassoc-1".into(),
                network_acl_id: network_acl_id.clone(),
                subnet_id: subnet_id.clone(),
            };
            self.region.acls.insert(NetworkAcl {
                network_acl_id,
                owner_id: String::new(),
                vpc_id: vpc_id.into(),
                is_default: place == 0,
                entries,
                associations: vec![association],
                tags: vec![],
            });
        }
    }

    fn ports(&mut self) -> PortRange {
        let from = i64::try_from(self.below(6)).unwrap();
        PortRange { from, to: from + i64::try_from(self.below(3)).unwrap() }
    }

    fn block(&mut self) -> Ipv4Net {
        let (a, b) = (self.below(3), self.below(2));
        let length = self.pick(&[0_u8, 8, 16, 24]);
        format!("10.{a}.{b}.0/{length}").parse::<Ipv4Net>().unwrap().trunc()
    }

    fn rule(&mut self, group: &str, groups: &[String], lists: &[String]) {
        let PortRange { from, to } = self.ports();
        let (protocol, from_port, to_port) = self.pick(&[
            ("-1", -1, -1),
            ("tcp", from, to),
            ("udp", from, to),
            ("tcp", 0, 65_535),
            ("tcp", -1, -1),
            ("icmp", 8, -1),
            ("50", -1, -1),
        ]);
        let mut rule = SecurityGroupRule {
            security_group_rule_id: self.id::<SecurityGroupRule>(),
            group_id: group.into(),
            ip_protocol: protocol.into(),
            from_port,
            to_port,
            ..SecurityGroupRule::any(self.one_in(2))
        };
        match self.below(4) {
            0 => rule.prefix_list_id = Some(self.pick(lists)),
            1 => {
                rule.referenced_group_info = Some(ReferencedGroup {
                    group_id: self.pick(groups),
                    user_id: None,
                    vpc_id: None,
                    vpc_peering_connection_id: None,
                    peering_status: None,
                });
            }
            _ => rule.cidr_ipv4 = Some(self.block()),
        }
        self.region.group_rules.insert(rule);
    }

    fn peer(&mut self) {
        let vpcs: Vec<Vpc> = self.region.vpcs.iter().cloned().collect();
        let side = |vpc: &Vpc| PeeringVpc {
            vpc_id: vpc.vpc_id.clone(),
            owner_id: String::new(),
            region: "eu-central-1".into(),
            cidr_block: None,
            cidr_block_set: vec![],
            ipv6_cidr_block_set: vec![],
            peering_options: PeeringOptions::default(),
        };
        for (one, other) in [(0, 1), (1, 2)] {
            let code = self.pick(&["active", "active", "pending-acceptance", "deleted"]);
            let vpc_peering_connection_id = self.id::<PeeringConnection>();
            self.region.peerings.insert(PeeringConnection {
                vpc_peering_connection_id,
                status: PeeringStatus { code: code.into(), message: String::new() },
                requester_vpc_info: side(&vpcs[one]),
                accepter_vpc_info: side(&vpcs[other]),
                expiration_time: None,
                tags: vec![],
            });
        }
    }

    fn routes(&mut self, lists: &[String]) {
        let tables = self.region.route_tables.ids_where(|_| true);
        let peerings: Vec<PeeringConnection> = self.region.peerings.iter().cloned().collect();
        for id in tables {
            let vpc = self.region.route_tables.get(&id).unwrap().vpc_id.clone();
            let mut routes = Vec::new();
            for peering in &peerings {
                let sides = [&peering.requester_vpc_info, &peering.accepter_vpc_info];
                let Some(far) = sides.iter().find(|side| side.vpc_id != vpc) else { continue };
                if !sides.iter().any(|side| side.vpc_id == vpc) || self.one_in(4) {
                    continue;
                }
                let far = self.region.vpcs.get(&far.vpc_id).unwrap().cidr_block;
                let to = Some(peering.vpc_peering_connection_id.clone());
                let is_active = peering.status.code == "active";
                let state = if is_active { "active" } else { "blackhole" };
                routes.push(Route {
                    destination_cidr_block: Some(far),
                    vpc_peering_connection_id: to,
                    origin: "CreateRoute".into(),
                    state: state.into(),
                    ..Route::default()
                });
            }
            let gateway = self.region.internet_gateways.iter().next().unwrap();
            routes.push(Route {
                destination_cidr_block: Some(Ipv4Net::default()),
                // The gateway may belong to another VPC.
                gateway_id: Some(gateway.internet_gateway_id.clone()),
                origin: "CreateRoute".into(),
                state: "active".into(),
                ..Route::default()
            });
            routes.push(Route {
                destination_prefix_list_id: lists.first().cloned(),
                transit_gateway_id: Some("tgw-1".into()),
                origin: "CreateRoute".into(),
                state: "active".into(),
                ..Route::default()
            });
            if self.one_in(2) {
                routes.pop();
            }
            self.region.route_tables.get_mut(&id).unwrap().routes.extend(routes);
        }
    }

    fn machines(&mut self, n: u8) {
        let vpc_id = self.region.vpcs.iter().nth(n.into()).unwrap().vpc_id.clone();
        let subnets = self.region.subnets.ids_where(|subnet| subnet.vpc_id == vpc_id);
        let groups: Vec<SecurityGroup> =
            self.region.groups.iter().filter(|group| group.vpc_id == vpc_id).cloned().collect();
        if n == VPCS - 1 && self.one_in(2) {
            return;
        }
        for (k, subnet) in (0..SUBNETS).zip(subnets) {
            for host in 0..2 {
                let is_running = self.below(4) > 0;
                let instance = self.instance(&vpc_id, &subnet, is_running);
                let own = vec![self.pick(&groups), self.pick(&groups)];
                let address = Ipv4Addr::new(10, n, k, 10 + host);
                self.interface(&vpc_id, &subnet, (address, own), Some(&instance));
            }
        }
    }

    fn instance(&mut self, vpc_id: &str, subnet: &str, is_running: bool) -> String {
        let instance_id = self.id::<Instance>();
        let (code, name) = if is_running { (16, "running") } else { (80, "stopped") };
        let instance_type = self.pick(&["c7i.large", "t2.micro", "x99.huge", "c7i.24xlarge"]);
        self.region.instances.insert(Instance {
            instance_id: instance_id.clone(),
            reservation_id: "r-1".into(),
            owner_id: String::new(),
            image_id: "ami-1".into(),
            instance_type: instance_type.into(),
            state: InstanceState { code, name: name.into() },
            state_transition_reason: String::new(),
            ami_launch_index: 0,
            launch_time: String::new(),
            availability_zone: "eu-central-1a".into(),
            tenancy: "default".into(),
            vpc_id: Some(vpc_id.into()),
            subnet_id: Some(subnet.into()),
            key_name: None,
            user_data: None,
            client_token: None,
            disable_api_termination: false,
            host: None,
            tags: vec![],
        });
        instance_id
    }

    pub(super) fn interface(
        &mut self,
        vpc_id: &str,
        subnet_id: &str,
        (address, groups): (Ipv4Addr, Vec<SecurityGroup>),
        instance: Option<&str>,
    ) -> String {
        let id = self.id::<NetworkInterface>();
        let [.., n, k, host] = address.octets();
        let ipv6 = Ipv6Addr::new(0x2001, 0xdb8, 0, 0xa00 + u16::from(k), 0, 0, 0, host.into());
        let express = EnaSrdSpecification {
            ena_srd_enabled: self.one_in(2),
            ena_srd_udp_specification: EnaSrdUdpSpecification { ena_srd_udp_enabled: true },
        };
        let attachment = instance.map(|instance| Attachment {
            attachment_id: "eni-attach-1".into(),
            instance_id: Some(instance.into()),
            instance_owner_id: String::new(),
            device_index: 0,
            network_card_index: 0,
            status: "attached".into(),
            attach_time: String::new(),
            delete_on_termination: true,
            ena_srd_specification: Some(express),
            public_at_start: false,
        });
        let mut groups: Vec<GroupIdentifier> = groups
            .into_iter()
            .map(|g| GroupIdentifier { group_id: g.group_id, group_name: g.group_name })
            .collect();
        groups.dedup();
        self.region.interfaces.insert(NetworkInterface {
            network_interface_id: id.clone(),
            owner_id: String::new(),
            vpc_id: vpc_id.into(),
            subnet_id: subnet_id.into(),
            availability_zone: "eu-central-1a".into(),
            description: String::new(),
            interface_type: if instance.is_some() { "interface" } else { "nat_gateway" }.into(),
            mac_address: String::new(),
            private_ip_address: Some(address),
            private_dns_name: None,
            private_ip_addresses: vec![PrivateIpAddress {
                private_ip_address: address,
                primary: true,
                private_dns_name: None,
            }],
            ipv6_addresses: (n == 0)
                .then_some(Ipv6Address { ipv6_address: ipv6, is_primary_ipv6: false })
                .into_iter()
                .collect(),
            ipv4_prefixes: vec![],
            ipv6_prefixes: vec![],
            groups,
            source_dest_check: true,
            status: "in-use".into(),
            requester_id: None,
            requester_managed: false,
            attachment,
            auto_public_ip: (host == 11).then(|| Ipv4Addr::new(203, 0, 113, 10 * n + k)),
            ena_srd_specification: None,
            connection_tracking_configuration: Some(ConnectionTracking {
                tcp_established_timeout: Some(600),
                udp_stream_timeout: None,
                udp_timeout: Some(7),
            }),
            tags: vec![],
        });
        id
    }

    fn nat_and_addresses(&mut self) {
        let subnet = self.region.subnets.iter().next().unwrap().clone();
        let private = Ipv4Addr::new(10, 0, 0, 200);
        let eni = self.interface(&subnet.vpc_id, &subnet.subnet_id, (private, vec![]), None);
        let first = self.region.interfaces.iter().next().unwrap().clone();
        for (n, interface, private_ip_address) in [
            (1, Some(first.network_interface_id), first.private_ip_address),
            (2, Some(eni.clone()), Some(private)),
            (3, None, None),
        ] {
            self.region.addresses.insert(Address {
                allocation_id: format!("eipalloc-0000000000000000{n}"),
                public_ip: Ipv4Addr::new(198, 51, 100, n),
                domain: "vpc".into(),
                public_ipv4_pool: "amazon".into(),
                network_border_group: "eu-central-1".into(),
                association_id: None,
                network_interface_id: interface,
                network_interface_owner_id: None,
                private_ip_address,
                instance_id: None,
                ptr_record: None,
                tags: vec![],
            });
        }
        let nat_gateway_id = self.id::<NatGateway>();
        let state = self.pick(&["available", "failed", "deleted"]).to_owned();
        self.region.nat_gateways.insert(NatGateway {
            nat_gateway_id,
            vpc_id: subnet.vpc_id.clone(),
            subnet_id: subnet.subnet_id.clone(),
            state,
            failure_code: None,
            failure_message: None,
            connectivity_type: "public".into(),
            nat_gateway_addresses: vec![NatGatewayAddress {
                allocation_id: Some("eipalloc-00000000000000002".into()),
                association_id: None,
                network_interface_id: eni,
                private_ip: private,
                public_ip: None,
                is_primary: true,
                status: "succeeded".into(),
            }],
            create_time: String::new(),
            delete_time: None,
            tags: vec![],
        });
    }

    fn flow_logs(&mut self) {
        let vpc = self.region.vpcs.iter().next().unwrap().vpc_id.clone();
        for log_format in ["", "${version} ${srcaddr} ${srcaddr}", "${colour}"] {
            let flow_log_id = self.id::<FlowLog>();
            self.region.flow_logs.insert(FlowLog {
                flow_log_id,
                flow_log_status: "ACTIVE".into(),
                creation_time: String::new(),
                resource_id: vpc.clone(),
                traffic_type: Some("REJECT".into()),
                log_destination_type: "s3".into(),
                log_destination: None,
                log_group_name: None,
                deliver_logs_permission_arn: None,
                deliver_cross_account_role: None,
                deliver_logs_status: None,
                deliver_logs_error_message: None,
                log_format: log_format.into(),
                max_aggregation_interval: 60,
                destination_options: None,
                tags: vec![],
            });
        }
    }
}

fn associated() -> BlockState {
    BlockState { state: "associated".into() }
}
