//! Transit gateways: attachments, tables, routes and peerings.

use crate::support::{Client, all, first};

/// Makes a transit gateway, and returns it with its default table.
fn gateway(client: &mut Client) -> (String, String) {
    let made = client.ok("Action=CreateTransitGateway&Description=d");
    (first(&made, "transitGatewayId"), first(&made, "associationDefaultRouteTableId"))
}

/// Attaches a VPC with a subnet.
fn attach(client: &mut Client, gateway: &str, vpc: &str, subnet: &str) -> String {
    let form = format!(
        "Action=CreateTransitGatewayVpcAttachment&TransitGatewayId={gateway}&VpcId={vpc}\
         &SubnetIds.1={subnet}"
    );
    client.take(&form, "transitGatewayAttachmentId")
}

#[test]
fn an_attachment_uses_the_default_table_and_holds_its_vpc() {
    let mut client = Client::new();
    let (vpc, subnet) = client.network();
    let (gateway, table) = gateway(&mut client);
    let attachment = attach(&mut client, &gateway, &vpc, &subnet);
    let get = |what: &str| {
        format!("Action=GetTransitGatewayRouteTable{what}&TransitGatewayRouteTableId={table}")
    };
    for what in ["Associations", "Propagations"] {
        assert_eq!(all(&client.ok(&get(what)), "resourceId"), [vpc.as_str()], "{what}");
    }
    let again = format!(
        "Action=CreateTransitGatewayVpcAttachment&TransitGatewayId={gateway}&VpcId={vpc}\
         &SubnetIds.1={subnet}"
    );
    assert_eq!(client.code(&again), "DuplicateTransitGatewayAttachment");
    assert_eq!(
        client.code(&format!("Action=DeleteSubnet&SubnetId={subnet}")),
        "DependencyViolation"
    );
    assert_eq!(
        client.code(&format!("Action=DeleteTransitGateway&TransitGatewayId={gateway}")),
        "IncorrectState"
    );
    // A route of the VPC leads to the gateway, as long as it is attached.
    let main = format!("Action=DescribeRouteTables&Filter.1.Name=vpc-id&Filter.1.Value.1={vpc}");
    let main_table = first(&client.ok(&main), "routeTableId");
    client.ok(&format!(
        "Action=CreateRoute&RouteTableId={main_table}&DestinationCidrBlock=10.9.0.0/16\
         &TransitGatewayId={gateway}"
    ));
    let delete =
        format!("Action=DeleteTransitGatewayVpcAttachment&TransitGatewayAttachmentId={attachment}");
    client.ok(&delete);
    assert_eq!(client.code(&delete), "InvalidTransitGatewayAttachmentID.NotFound");
    for what in ["Associations", "Propagations"] {
        assert!(all(&client.ok(&get(what)), "resourceId").is_empty());
    }
    client.ok(&format!("Action=DeleteTransitGateway&TransitGatewayId={gateway}"));
    assert!(all(&client.ok(&main), "state").contains(&"blackhole".to_owned()));
    client.ok(&format!("Action=DeleteSubnet&SubnetId={subnet}"));
}

#[test]
fn a_static_route_takes_precedence_over_a_propagated_route() {
    let mut client = Client::new();
    let (vpc, subnet) = client.network();
    let (gateway, table) = gateway(&mut client);
    let attachment = attach(&mut client, &gateway, &vpc, &subnet);
    let search = |name: &str, value: &str| {
        format!(
            "Action=SearchTransitGatewayRoutes&TransitGatewayRouteTableId={table}\
             &Filter.1.Name={name}&Filter.1.Value.1={value}"
        )
    };
    assert_eq!(
        all(&client.ok(&search("type", "propagated")), "destinationCidrBlock"),
        ["10.0.0.0/16"]
    );
    let route = |verb: &str, rest: &str| {
        format!(
            "Action={verb}TransitGatewayRoute&TransitGatewayRouteTableId={table}\
             &DestinationCidrBlock=10.0.0.0/16{rest}"
        )
    };
    assert_eq!(client.code(&route("Create", "")), "MissingParameter");
    assert_eq!(client.code(&route("Replace", "&Blackhole=true")), "InvalidRoute.NotFound");
    client.ok(&route("Create", "&Blackhole=true"));
    assert_eq!(client.code(&route("Create", "&Blackhole=true")), "RouteAlreadyExists");
    assert!(all(&client.ok(&search("type", "propagated")), "type").is_empty());
    assert_eq!(first(&client.ok(&search("state", "blackhole")), "type"), "static");
    client.ok(&route("Replace", &format!("&TransitGatewayAttachmentId={attachment}")));
    assert_eq!(first(&client.ok(&search("state", "active")), "type"), "static");
    let wide = |block: &str| {
        format!(
            "Action=CreateTransitGatewayRoute&TransitGatewayRouteTableId={table}\
             &DestinationCidrBlock={block}&Blackhole=true"
        )
    };
    client.ok(&wide("10.0.0.0/8"));
    for (kind, block, expected) in [
        ("exact-match", "10.0.0.0/8", vec!["10.0.0.0/8"]),
        ("subnet-of-match", "10.0.0.0/12", vec!["10.0.0.0/16"]),
        ("supernet-of-match", "10.0.1.0/24", vec!["10.0.0.0/16", "10.0.0.0/8"]),
        ("longest-prefix-match", "10.0.1.1/32", vec!["10.0.0.0/16"]),
        ("longest-prefix-match", "10.1.1.1/32", vec!["10.0.0.0/8"]),
    ] {
        let found = client.ok(&search(&format!("route-search.{kind}"), block));
        assert_eq!(all(&found, "destinationCidrBlock"), expected, "{kind} {block}");
    }
    assert_eq!(client.code(&search("route-search.other", "10.0.0.0/8")), "InvalidParameterValue");
    client.ok(&route("Delete", ""));
    assert_eq!(client.code(&route("Delete", "")), "InvalidRoute.NotFound");
    assert_eq!(all(&client.ok(&search("type", "propagated")), "state"), ["active"]);
}

#[test]
fn default_tables_are_kept_and_can_be_changed() {
    let mut client = Client::new();
    let (gateway, table) = gateway(&mut client);
    let delete = |table: &str| {
        format!("Action=DeleteTransitGatewayRouteTable&TransitGatewayRouteTableId={table}")
    };
    assert_eq!(client.code(&delete(&table)), "IncorrectState");
    let form = format!("Action=CreateTransitGatewayRouteTable&TransitGatewayId={gateway}");
    let other = client.take(&form, "transitGatewayRouteTableId");
    let modify =
        |rest: &str| format!("Action=ModifyTransitGateway&TransitGatewayId={gateway}&{rest}");
    client.ok(&modify(&format!(
        "Options.AssociationDefaultRouteTableId={other}\
         &Options.DefaultRouteTablePropagation=disable"
    )));
    client.ok(&delete(&table));
    let shown = client.ok("Action=DescribeTransitGatewayRouteTables&Filter.1.Name=state\
                           &Filter.1.Value.1=available");
    assert_eq!(all(&shown, "defaultAssociationRouteTable"), ["true"]);
    assert_eq!(all(&shown, "defaultPropagationRouteTable"), ["false"]);
    assert_eq!(client.code(&modify("Options.AmazonSideAsn=1")), "InvalidParameterValue");
    assert_eq!(
        client.code(&modify("Options.AddTransitGatewayCidrBlocks.1=10.0.0.0/25")),
        "InvalidParameterValue"
    );
}

#[test]
fn a_peering_is_accepted_in_the_region_of_the_accepter() {
    let mut client = Client::new();
    let (one, _) = gateway(&mut client);
    client.region = "eu-west-1";
    let (other, table) = gateway(&mut client);
    client.region = "us-east-1";
    let form = format!(
        "Action=CreateTransitGatewayPeeringAttachment&TransitGatewayId={one}\
         &PeerTransitGatewayId={other}&PeerAccountId=123456789012&PeerRegion=eu-west-1"
    );
    let id = client.take(&form, "transitGatewayAttachmentId");
    let answer = |verb: &str| {
        format!("Action={verb}TransitGatewayPeeringAttachment&TransitGatewayAttachmentId={id}")
    };
    assert_eq!(client.code(&answer("Accept")), "InvalidParameterValue");
    client.region = "eu-west-1";
    assert_eq!(first(&client.ok(&answer("Accept")), "state"), "available");
    assert_eq!(client.code(&answer("Reject")), "IncorrectState");
    let link = |verb: &str| {
        format!("Action={verb}&TransitGatewayRouteTableId={table}&TransitGatewayAttachmentId={id}")
    };
    client.ok(&link("AssociateTransitGatewayRouteTable"));
    assert_eq!(
        client.code(&link("EnableTransitGatewayRouteTablePropagation")),
        "InvalidParameterCombination"
    );
    client.region = "us-east-1";
    assert_eq!(first(&client.ok(&answer("Delete")), "state"), "deleted");
    client.region = "eu-west-1";
    let shown = client.ok("Action=DescribeTransitGatewayPeeringAttachments");
    assert_eq!(first(&shown, "state"), "deleted");
}

/// Returns the request of a gateway of the region us-east-1 to one of the region eu-west-1.
fn peering(own: &str, peer: &str) -> String {
    format!(
        "Action=CreateTransitGatewayPeeringAttachment&TransitGatewayId={own}\
         &PeerTransitGatewayId={peer}&PeerAccountId=123456789012&PeerRegion=eu-west-1"
    )
}

/// Peering requests filled the table of attachments of the accepting region, which may belong to
/// another account.
#[test]
fn regression_the_peering_requests_that_wait_for_a_gateway_are_bounded() {
    let mut client = Client::new();
    client.region = "eu-west-1";
    let (peer, _) = gateway(&mut client);
    client.region = "us-east-1";
    for n in 1..=11 {
        let (own, _) = gateway(&mut client);
        let form = peering(&own, &peer);
        if n <= 10 {
            client.ok(&form);
            assert_eq!(client.code(&form), "DuplicateTransitGatewayAttachment");
        } else {
            assert_eq!(client.code(&form), "ResourceLimitExceeded");
        }
    }
}

/// Rejected requests stayed in both regions for ever.
#[test]
fn regression_the_rejected_peering_requests_that_are_shown_are_bounded() {
    let mut client = Client::new();
    let (vpc, subnet) = client.network();
    let (own, _) = gateway(&mut client);
    let attachment = attach(&mut client, &own, &vpc, &subnet);
    client.region = "eu-west-1";
    let (peer, _) = gateway(&mut client);
    for _ in 0..=1000 {
        client.region = "us-east-1";
        let id = client.take(&peering(&own, &peer), "transitGatewayAttachmentId");
        client.region = "eu-west-1";
        let reject = "Action=RejectTransitGatewayPeeringAttachment&TransitGatewayAttachmentId";
        assert_eq!(client.take(&format!("{reject}={id}"), "state"), "rejected");
    }
    assert_eq!(client.state().transit_attachments.len(), 1000);
    // An attachment that is older than those that are shown can end, too.
    client.region = "us-east-1";
    assert_eq!(client.state().transit_attachments.len(), 1001);
    let delete = "Action=DeleteTransitGatewayVpcAttachment&TransitGatewayAttachmentId";
    assert_eq!(client.take(&format!("{delete}={attachment}"), "state"), "deleted");
    assert_eq!(client.state().transit_attachments.len(), 1000);
}
