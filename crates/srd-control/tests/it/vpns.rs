//! Virtual private gateways, customer gateways, VPN connections and ClassicLink.

use crate::support::{Client, all, first};

/// Makes a customer gateway, and returns it.
fn far_end(client: &mut Client) -> String {
    let form = "Action=CreateCustomerGateway&Type=ipsec.1&IpAddress=198.51.100.7&BgpAsn=65000";
    client.take(form, "customerGatewayId")
}

#[test]
fn static_routes_of_a_connection_are_propagated_to_tables() {
    let mut client = Client::new();
    let (vpc, _) = client.network();
    let far = far_end(&mut client);
    assert_eq!(far_end(&mut client), far, "a repetition returns the gateway that exists");
    let near = client.take("Action=CreateVpnGateway&Type=ipsec.1", "vpnGatewayId");
    let form = format!(
        "Action=CreateVpnConnection&Type=ipsec.1&CustomerGatewayId={far}&VpnGatewayId={near}\
         &Options.StaticRoutesOnly=true"
    );
    let connection = client.take(&form, "vpnConnectionId");
    assert_eq!(client.take(&form, "vpnConnectionId"), connection);
    let tables = format!("Action=DescribeRouteTables&Filter.1.Name=vpc-id&Filter.1.Value.1={vpc}");
    let table = first(&client.ok(&tables), "routeTableId");
    let enable = format!("Action=EnableVgwRoutePropagation&GatewayId={near}&RouteTableId={table}");
    assert_eq!(client.code(&enable), "Gateway.NotAttached");
    client.ok(&format!("Action=AttachVpnGateway&VpnGatewayId={near}&VpcId={vpc}"));
    client.ok(&enable);
    let route = |verb: &str| {
        format!(
            "Action={verb}VpnConnectionRoute&VpnConnectionId={connection}\
             &DestinationCidrBlock=192.168.0.0/16"
        )
    };
    client.ok(&route("Create"));
    let shown = client.ok(&tables);
    assert!(all(&shown, "origin").contains(&"EnableVgwRoutePropagation".to_owned()));
    assert!(all(&shown, "gatewayId").contains(&near));
    client.ok(&route("Delete"));
    assert_eq!(client.code(&route("Delete")), "InvalidRoute.NotFound");
    assert!(
        !all(&client.ok(&tables), "destinationCidrBlock").contains(&"192.168.0.0/16".to_owned())
    );
    client.ok(&route("Create"));
    assert_eq!(client.code(&format!("Action=DeleteVpc&VpcId={vpc}")), "DependencyViolation");
    client.ok(&format!("Action=DetachVpnGateway&VpnGatewayId={near}&VpcId={vpc}"));
    assert!(!all(&client.ok(&tables), "origin").contains(&"EnableVgwRoutePropagation".to_owned()));
    // Objects in use are kept.
    let delete_near = format!("Action=DeleteVpnGateway&VpnGatewayId={near}");
    let delete_far = format!("Action=DeleteCustomerGateway&CustomerGatewayId={far}");
    assert_eq!(client.code(&delete_near), "IncorrectState");
    assert_eq!(client.code(&delete_far), "IncorrectState");
    client.ok(&format!("Action=DeleteVpnConnection&VpnConnectionId={connection}"));
    client.ok(&delete_near);
    client.ok(&delete_far);
    assert_eq!(client.code(&delete_far), "InvalidCustomerGatewayID.NotFound");
}

#[test]
fn a_connection_has_one_near_end() {
    let mut client = Client::new();
    let far = far_end(&mut client);
    let gateway = client.take("Action=CreateTransitGateway", "transitGatewayId");
    let near = client.take("Action=CreateVpnGateway&Type=ipsec.1", "vpnGatewayId");
    let create = |rest: &str| {
        format!("Action=CreateVpnConnection&Type=ipsec.1&CustomerGatewayId={far}{rest}")
    };
    let both = create(&format!("&VpnGatewayId={near}&TransitGatewayId={gateway}"));
    assert_eq!(client.code(&both), "InvalidParameterValue");
    assert_eq!(client.code(&create("&TransitGatewayId=tgw-1")), "InvalidTransitGatewayID.NotFound");
    let connection =
        client.take(&create(&format!("&TransitGatewayId={gateway}")), "vpnConnectionId");
    let attachments = client.ok("Action=DescribeTransitGatewayAttachments");
    assert_eq!(first(&attachments, "resourceId"), connection);
    client.ok(&format!("Action=DeleteVpnConnection&VpnConnectionId={connection}"));
    let attachments = client.ok("Action=DescribeTransitGatewayAttachments");
    assert_eq!(first(&attachments, "state"), "deleted");
    for (form, code) in [
        ("Action=CreateCustomerGateway&Type=ipsec.1&IpAddress=x", "InvalidParameterValue"),
        ("Action=CreateCustomerGateway&Type=ipsec.1", "MissingParameter"),
        (
            "Action=CreateCustomerGateway&Type=ipsec.1&IpAddress=192.0.2.1&BgpAsn=0",
            "InvalidParameterValue",
        ),
        ("Action=CreateVpnGateway&Type=ipsec.1&AmazonSideAsn=7", "InvalidParameterValue"),
        (
            "Action=CreateVpnGateway&Type=ipsec.1&AvailabilityZone=eu-west-1a",
            "InvalidParameterValue",
        ),
    ] {
        assert_eq!(client.code(form), code, "{form}");
    }
}

#[test]
fn classic_link_excludes_routes_within_the_block_of_the_classic_network() {
    let mut client = Client::new();
    let create = |block: &str| format!("Action=CreateVpc&CidrBlock={block}");
    let good = client.take(&create("10.1.0.0/16"), "vpcId");
    let bad = client.take(&create("10.90.0.0/16"), "vpcId");
    let enable = |vpc: &str| format!("Action=EnableVpcClassicLink&VpcId={vpc}");
    assert_eq!(client.take(&enable(&good), "return"), "true");
    assert_eq!(client.code(&enable(&bad)), "InvalidParameterCombination");
    let shown = client.ok("Action=DescribeVpcClassicLink&Filter.1.Name=is-classic-link-enabled\
                           &Filter.1.Value.1=true");
    assert_eq!(all(&shown, "vpcId"), [good.as_str()]);
    client.ok(&format!("Action=EnableVpcClassicLinkDnsSupport&VpcId={good}"));
    let shown = client.ok(&format!("Action=DescribeVpcClassicLinkDnsSupport&VpcIds.1={good}"));
    assert_eq!(first(&shown, "classicLinkDnsSupported"), "true");
    client.ok(&format!("Action=DisableVpcClassicLink&VpcId={good}"));
}
