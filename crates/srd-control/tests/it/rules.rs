//! Rules of EC2 that a mock of its API does not apply.

use crate::support::{Client, all, first};

#[test]
fn objects_in_use_are_not_deleted() {
    let mut client = Client::new();
    let (vpc, subnet) = client.network();
    let form = format!("Action=CreateSecurityGroup&GroupName=g&GroupDescription=d&VpcId={vpc}");
    let group = client.take(&form, "groupId");
    let form = format!("Action=CreateNetworkInterface&SubnetId={subnet}&SecurityGroupId.1={group}");
    let interface = client.take(&form, "networkInterfaceId");
    let delete_group = format!("Action=DeleteSecurityGroup&GroupId={group}");
    let delete_subnet = format!("Action=DeleteSubnet&SubnetId={subnet}");
    let delete_vpc = format!("Action=DeleteVpc&VpcId={vpc}");
    for form in [&delete_group, &delete_subnet, &delete_vpc] {
        assert_eq!(client.code(form), "DependencyViolation", "{form}");
    }
    client.ok(&format!("Action=DeleteNetworkInterface&NetworkInterfaceId={interface}"));
    assert_eq!(client.code(&delete_vpc), "DependencyViolation");
    for form in [&delete_group, &delete_subnet, &delete_vpc] {
        client.ok(form);
    }
    assert_eq!(client.code(&delete_vpc), "InvalidVpcID.NotFound");
    let groups =
        format!("Action=DescribeSecurityGroups&Filter.1.Name=vpc-id&Filter.1.Value.1={vpc}");
    assert!(!client.ok(&groups).contains("groupId"));
}

#[test]
fn network_acls_have_final_rules_and_bounds() {
    let mut client = Client::new();
    let (vpc, _) = client.network();
    let acl = client.ok(&format!("Action=CreateNetworkAcl&VpcId={vpc}"));
    assert_eq!(all(&acl, "ruleNumber"), ["32767", "32767"]);
    assert_eq!(all(&acl, "ruleAction"), ["deny", "deny"]);
    let id = first(&acl, "networkAclId");
    let entry = |number: &str, block: &str| {
        format!(
            "Action=CreateNetworkAclEntry&NetworkAclId={id}&RuleNumber={number}&Protocol=6\
             &RuleAction=allow&Egress=false&CidrBlock={block}&PortRange.From=80&PortRange.To=80"
        )
    };
    for form in [entry("40000", "0.0.0.0/0"), entry("0", "0.0.0.0/0"), entry("1", "bogus")] {
        assert_eq!(client.code(&form), "InvalidParameterValue", "{form}");
    }
    client.ok(&entry("100", "10.0.0.0/8"));
    assert_eq!(client.code(&entry("100", "10.0.0.0/8")), "NetworkAclEntryAlreadyExists");
}

#[test]
fn terraform_revokes_the_default_rules_of_a_new_group() {
    let mut client = Client::new();
    let (vpc, _) = client.network();
    let form = format!("Action=CreateSecurityGroup&GroupName=g&GroupDescription=d&VpcId={vpc}");
    let group = client.take(&form, "groupId");
    let revoke =
        format!("Action=RevokeSecurityGroupEgress&GroupId={group}&IpPermissions.1.IpProtocol=-1");
    let v4 = format!("{revoke}&IpPermissions.1.IpRanges.1.CidrIp=0.0.0.0/0");
    let v6 = format!("{revoke}&IpPermissions.1.Ipv6Ranges.1.CidrIpv6=::/0");
    client.ok(&v4);
    assert_eq!(client.code(&v6), "InvalidPermission.NotFound");
    assert_eq!(client.code(&v4), "InvalidPermission.NotFound");
    client
        .ok(&format!("Action=AssociateVpcCidrBlock&VpcId={vpc}&AmazonProvidedIpv6CidrBlock=true"));
    let form = format!("Action=CreateSecurityGroup&GroupName=h&GroupDescription=d&VpcId={vpc}");
    let new = client.take(&form, "groupId");
    client.ok(&v6.replace(&group, &new));
}

#[test]
fn overlapping_vpcs_are_not_peered() {
    let mut client = Client::new();
    let (vpc, _) = client.network();
    let same = client.take("Action=CreateVpc&CidrBlock=10.0.0.0/16", "vpcId");
    let other = client.take("Action=CreateVpc&CidrBlock=10.1.0.0/16", "vpcId");
    let peer =
        |with: &str| format!("Action=CreateVpcPeeringConnection&VpcId={vpc}&PeerVpcId={with}");
    assert!(client.ok(&peer(&same)).contains("<code>failed</code>"));
    let id = client.take(&peer(&other), "vpcPeeringConnectionId");
    let tables = format!("Action=DescribeRouteTables&Filter.1.Name=vpc-id&Filter.1.Value.1={vpc}");
    let table = client.take(&tables, "routeTableId");
    let route = format!(
        "Action=CreateRoute&RouteTableId={table}&DestinationCidrBlock=10.1.0.0/16\
         &VpcPeeringConnectionId={id}"
    );
    client.ok(&route);
    assert!(client.ok(&tables).contains("<state>blackhole</state>"));
    client.ok(&format!("Action=AcceptVpcPeeringConnection&VpcPeeringConnectionId={id}"));
    assert!(!client.ok(&tables).contains("<state>blackhole</state>"));
    client.ok(&format!("Action=DeleteVpcPeeringConnection&VpcPeeringConnectionId={id}"));
    assert!(client.ok(&tables).contains("<state>blackhole</state>"));
}

#[test]
fn a_connection_between_regions_is_accepted_in_the_region_of_the_peer() {
    let mut client = Client::new();
    let (vpc, _) = client.network();
    client.region = "eu-west-1";
    let peer = client.take("Action=CreateVpc&CidrBlock=10.9.0.0/16", "vpcId");
    client.region = "us-east-1";
    let create = format!(
        "Action=CreateVpcPeeringConnection&VpcId={vpc}&PeerVpcId={peer}&PeerRegion=eu-west-1"
    );
    let id = client.take(&create, "vpcPeeringConnectionId");
    let accept = format!("Action=AcceptVpcPeeringConnection&VpcPeeringConnectionId={id}");
    assert_eq!(client.code(&accept), "OperationNotPermitted");
    client.region = "eu-west-1";
    client.ok(&accept);
    client.region = "us-east-1";
    assert!(client.ok("Action=DescribeVpcPeeringConnections").contains("<code>active</code>"));
    assert_eq!(client.code(&format!("Action=DeleteVpc&VpcId={vpc}")), "DependencyViolation");
}

#[test]
fn route_tables_refuse_what_routes_cannot_do() {
    let mut client = Client::new();
    let (vpc, _) = client.network();
    let table = client.take(&format!("Action=CreateRouteTable&VpcId={vpc}"), "routeTableId");
    let gateway = client.take("Action=CreateInternetGateway", "internetGatewayId");
    let route = |block: &str| {
        format!(
            "Action=CreateRoute&RouteTableId={table}&GatewayId={gateway}\
             &DestinationCidrBlock={block}"
        )
    };
    assert_eq!(client.code(&route("0.0.0.0/0")), "InvalidParameterValue");
    client.ok(&format!("Action=AttachInternetGateway&InternetGatewayId={gateway}&VpcId={vpc}"));
    client.ok(&route("0.0.0.0/0"));
    assert_eq!(client.code(&route("10.0.1.0/24")), "InvalidParameterValue");
    // The card would refuse these destinations, and with them all changes of the region.
    for block in ["169.254.168.0/22", "169.254.169.254/32"] {
        assert_eq!(client.code(&route(block)), "InvalidParameterValue", "{block}");
    }
    let v6 = route("fd00:ec2::/48").replace("CidrBlock", "Ipv6CidrBlock");
    assert_eq!(client.code(&v6), "InvalidParameterValue");
    client.ok(&route("169.254.0.0/16"));
    let local = format!("Action=DeleteRoute&RouteTableId={table}&DestinationCidrBlock=10.0.0.0/16");
    assert_eq!(client.code(&local), "InvalidParameterValue");
    client.ok(&format!("Action=DetachInternetGateway&InternetGatewayId={gateway}&VpcId={vpc}"));
    assert!(client.ok("Action=DescribeRouteTables").contains("<state>blackhole</state>"));
}

/// A regression: each rule of a request was compared with all rules of the region.
#[test]
fn a_request_has_no_more_rules_than_a_group() {
    let mut client = Client::new();
    let group = client.take("Action=CreateSecurityGroup&GroupName=g&GroupDescription=d", "groupId");
    let ranges = |count: usize| {
        let range = |n| format!("&IpPermissions.1.IpRanges.{n}.CidrIp=10.0.0.{n}");
        (1..=count).map(range).collect::<String>()
    };
    for action in ["RevokeSecurityGroupIngress", "AuthorizeSecurityGroupIngress"] {
        let form = format!(
            "Action={action}&GroupId={group}&IpPermissions.1.IpProtocol=-1{}",
            ranges(121).replace("&IpPermissions", "/32&IpPermissions").replacen("/32", "", 1)
                + "/32"
        );
        assert_eq!(client.code(&form), "RulesPerSecurityGroupLimitExceeded", "{action}");
    }
}

/// `+6` and `006` were protocols beside TCP, so a card refused two rules for all TCP ports.
#[test]
fn regression_a_number_of_a_protocol_has_one_form() {
    let mut client = Client::new();
    let group = client.take("Action=CreateSecurityGroup&GroupName=g&GroupDescription=d", "groupId");
    let rule = |protocol: &str, ports: &str| {
        format!(
            "Action=AuthorizeSecurityGroupIngress&GroupId={group}\
             &IpPermissions.1.IpProtocol={protocol}{ports}\
             &IpPermissions.1.IpRanges.1.CidrIp=10.0.0.0/8"
        )
    };
    let ports = "&IpPermissions.1.FromPort=0&IpPermissions.1.ToPort=65535";
    client.ok(&rule("tcp", ports));
    for protocol in ["6", "006", "%2B6"] {
        assert_eq!(client.code(&rule(protocol, "")), "InvalidParameterValue", "{protocol}");
        assert_eq!(
            client.code(&rule(protocol, ports)),
            "InvalidPermission.Duplicate",
            "{protocol}"
        );
    }
    assert_eq!(first(&client.ok(&rule("050", "")), "ipProtocol"), "50");
    let (vpc, _) = client.network();
    let acl = client.take(&format!("Action=CreateNetworkAcl&VpcId={vpc}"), "networkAclId");
    let entry = format!(
        "Action=CreateNetworkAclEntry&NetworkAclId={acl}&RuleNumber=1&Protocol=006\
         &RuleAction=allow&Egress=false&CidrBlock=0.0.0.0/0"
    );
    assert_eq!(client.code(&entry), "MissingParameter");
}

/// Such a rule counted once, so a card refused the rules of a group, and with them all changes of
/// the region.
#[test]
fn regression_a_rule_with_a_prefix_list_counts_as_many_times_as_the_list_may_have_entries() {
    let mut client = Client::new();
    let group = client.take("Action=CreateSecurityGroup&GroupName=g&GroupDescription=d", "groupId");
    let list = |client: &mut Client, family: &str, max: u32| {
        let form = "Action=CreateManagedPrefixList&PrefixListName=l";
        let form = format!("{form}&AddressFamily={family}&MaxEntries={max}");
        client.take(&form, "prefixListId")
    };
    let rule = |list: &str, port: u32| {
        format!(
            "Action=AuthorizeSecurityGroupIngress&GroupId={group}&IpPermissions.1.IpProtocol=tcp\
             &IpPermissions.1.FromPort={port}&IpPermissions.1.ToPort={port}\
             &IpPermissions.1.PrefixListIds.1.PrefixListId={list}"
        )
    };
    let [v4, v6, large] = [("IPv4", 30), ("IPv6", 60), ("IPv4", 61)]
        .map(|(family, max)| list(&mut client, family, max));
    assert_eq!(client.code(&rule(&large, 1)), "RulesPerSecurityGroupLimitExceeded");
    client.ok(&rule(&v4, 1));
    client.ok(&rule(&v6, 1));
    client.ok(&rule(&v4, 2));
    assert_eq!(client.code(&rule(&v4, 3)), "RulesPerSecurityGroupLimitExceeded");
    // A list does not outgrow its groups.
    let grow =
        |max: u32| format!("Action=ModifyManagedPrefixList&PrefixListId={v4}&MaxEntries={max}");
    assert_eq!(client.code(&grow(31)), "RulesPerSecurityGroupLimitExceeded");
    client.ok(&grow(29));
    assert_eq!(client.code(&rule(&v4, 3)), "RulesPerSecurityGroupLimitExceeded");
    client.ok(&grow(20));
    client.ok(&rule(&v4, 3));
}

/// A regression: a peering request that had expired prevented a new request for the same VPCs.
#[test]
fn an_expired_peering_request_gives_way_to_a_new_one() {
    let mut client = Client::new();
    let (a, _) = client.network();
    let b = client.take("Action=CreateVpc&CidrBlock=10.1.0.0/16", "vpcId");
    let create = format!("Action=CreateVpcPeeringConnection&VpcId={a}&PeerVpcId={b}");
    let id = client.take(&create, "vpcPeeringConnectionId");
    assert_eq!(client.take(&create, "vpcPeeringConnectionId"), id);
    client.now += 8 * 24 * 3600;
    assert_ne!(client.take(&create, "vpcPeeringConnectionId"), id);
}

/// Such a block was added, and no packet passed the connection any more.
#[test]
fn regression_vpcs_of_a_peering_connection_get_no_addresses_in_common() {
    let mut client = Client::new();
    let (a, _) = client.network();
    let [b, c] = ["10.1.0.0/16", "10.2.0.0/16"]
        .map(|block| client.take(&format!("Action=CreateVpc&CidrBlock={block}"), "vpcId"));
    let add = |vpc: &str, block: &str| {
        format!("Action=AssociateVpcCidrBlock&VpcId={vpc}&CidrBlock={block}")
    };
    let peer = |client: &mut Client, vpc: &str| {
        let create = format!("Action=CreateVpcPeeringConnection&VpcId={a}&PeerVpcId={vpc}");
        client.take(&create, "vpcPeeringConnectionId")
    };
    let accept =
        |id: &str| format!("Action=AcceptVpcPeeringConnection&VpcPeeringConnectionId={id}");
    let active = peer(&mut client, &b);
    assert!(client.ok(&accept(&active)).contains("<code>active</code>"));
    assert_eq!(client.code(&add(&a, "10.1.64.0/20")), "InvalidVpc.Conflict");
    assert_eq!(client.code(&add(&b, "10.0.64.0/20")), "InvalidVpc.Conflict");
    client.ok(&add(&a, "10.3.0.0/16"));
    let v6 = |vpc: &str| {
        let form = "Action=AssociateVpcCidrBlock&Ipv6CidrBlock=fd00:1::/56&Ipv6Pool=pool";
        format!("{form}&VpcId={vpc}")
    };
    client.ok(&v6(&a));
    assert_eq!(client.code(&v6(&b)), "InvalidVpc.Conflict");
    // A block of the requester that is newer than its request.
    let pending = peer(&mut client, &c);
    client.ok(&add(&a, "10.2.64.0/20"));
    assert!(client.ok(&accept(&pending)).contains("<code>failed</code>"));
}

/// A regression: peering requests that waited to be accepted could fill the table of the accepting
/// region.
#[test]
fn the_requests_that_wait_for_a_vpc_are_bounded() {
    let mut client = Client::new();
    let (peer, _) = client.network();
    for n in 1..=26 {
        let vpc = client.take(&format!("Action=CreateVpc&CidrBlock=10.{n}.0.0/16"), "vpcId");
        let form = format!("Action=CreateVpcPeeringConnection&VpcId={vpc}&PeerVpcId={peer}");
        if n <= 25 {
            client.ok(&form);
        } else {
            assert_eq!(client.code(&form), "OutstandingVpcPeeringConnectionLimitExceeded");
        }
    }
}

/// Such a rule could be revoked by its identifier only.
#[test]
fn regression_a_rule_that_names_a_group_of_a_former_peer_is_revoked_by_its_permission() {
    let mut client = Client::new();
    let (vpc, _) = client.network();
    let peer = client.take("Action=CreateVpc&CidrBlock=10.1.0.0/16", "vpcId");
    let create = format!("Action=CreateVpcPeeringConnection&VpcId={vpc}&PeerVpcId={peer}");
    let connection = client.take(&create, "vpcPeeringConnectionId");
    client.ok(&format!("Action=AcceptVpcPeeringConnection&VpcPeeringConnectionId={connection}"));
    let [own, other] = [&vpc, &peer].map(|vpc| {
        let form = format!("Action=CreateSecurityGroup&GroupName=x&GroupDescription=x&VpcId={vpc}");
        client.take(&form, "groupId")
    });
    let rule = |action: &str| {
        format!(
            "Action={action}&GroupId={own}&IpPermissions.1.IpProtocol=tcp\
             &IpPermissions.1.FromPort=22&IpPermissions.1.ToPort=22\
             &IpPermissions.1.Groups.1.GroupId={other}&IpPermissions.1.Groups.1.Description=x"
        )
    };
    client.ok(&rule("AuthorizeSecurityGroupIngress"));
    client.ok(&format!("Action=DeleteVpcPeeringConnection&VpcPeeringConnectionId={connection}"));
    let delete = format!("Action=DeleteSecurityGroup&GroupId={other}");
    assert_eq!(client.code(&delete), "DependencyViolation");
    client.ok(&rule("UpdateSecurityGroupRuleDescriptionsIngress"));
    client.ok(&rule("RevokeSecurityGroupIngress"));
    assert_eq!(client.code(&rule("RevokeSecurityGroupIngress")), "InvalidPermission.NotFound");
    assert_eq!(client.code(&rule("AuthorizeSecurityGroupIngress")), "InvalidGroup.NotFound");
    client.ok(&delete);
}

/// A regression: a repeated route was accepted, if its target was the same.
#[test]
fn a_route_to_a_destination_exists_once() {
    let mut client = Client::new();
    let (vpc, _) = client.network();
    let gateway = client.take("Action=CreateInternetGateway", "internetGatewayId");
    client.ok(&format!("Action=AttachInternetGateway&InternetGatewayId={gateway}&VpcId={vpc}"));
    let table = client.take(&format!("Action=CreateRouteTable&VpcId={vpc}"), "routeTableId");
    let form = format!(
        "Action=CreateRoute&RouteTableId={table}&DestinationCidrBlock=0.0.0.0/0&GatewayId={gateway}"
    );
    client.ok(&form);
    assert_eq!(client.code(&form), "RouteAlreadyExists");
}

/// A regression: clients that wait for the end of an egress-only gateway got an error.
#[test]
fn an_unknown_egress_only_gateway_is_no_error_in_a_description() {
    let mut client = Client::new();
    let form = "Action=DescribeEgressOnlyInternetGateways&EgressOnlyInternetGatewayId.1=eigw-0";
    assert!(!client.ok(form).contains("<egressOnlyInternetGatewayId>"));
}
