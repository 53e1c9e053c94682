//! VPC endpoints and endpoint services.

use std::path::Path;

use srd_control::http::HttpRequest;
use srd_control::project::project;

use crate::support::{Client, all, first, request};

/// Name of a service in the region of the tests.
fn service(name: &str) -> String {
    format!("com.amazonaws.us-east-1.{name}")
}

/// Makes a gateway endpoint for a service with a table, and returns it.
fn gateway(client: &mut Client, vpc: &str, table: &str) -> String {
    let form = format!(
        "Action=CreateVpcEndpoint&VpcId={vpc}&ServiceName={}&RouteTableId.1={table}",
        service("s3")
    );
    client.take(&form, "vpcEndpointId")
}

#[test]
fn a_gateway_endpoint_is_a_route_to_the_prefix_list_of_its_service() {
    let mut client = Client::new();
    let (vpc, subnet) = client.network();
    let table = client.take(&format!("Action=CreateRouteTable&VpcId={vpc}"), "routeTableId");
    let endpoint = gateway(&mut client, &vpc, &table);
    let shown = client.ok(&format!("Action=DescribeRouteTables&RouteTableId.1={table}"));
    let list = first(&shown, "destinationPrefixListId");
    assert!(all(&shown, "gatewayId").contains(&endpoint));
    // A table has one route to a service, and the route belongs to the endpoint.
    let again = format!(
        "Action=CreateVpcEndpoint&VpcId={vpc}&ServiceName={}&RouteTableId.1={table}",
        service("s3")
    );
    assert_eq!(client.code(&again), "RouteAlreadyExists");
    let delete = format!("Action=DeleteRoute&RouteTableId={table}&DestinationPrefixListId={list}");
    assert_eq!(client.code(&delete), "InvalidParameterValue");
    assert_eq!(client.code(&format!("Action=DeleteVpc&VpcId={vpc}")), "DependencyViolation");
    // The card gets the endpoint and its route.
    client.ok(&format!("Action=CreateNetworkInterface&SubnetId={subnet}"));
    let text = project(client.state(), None).text;
    assert!(text.contains(&format!("[endpoint.\"{endpoint}\"]")), "{text}");
    assert!(text.contains(&format!("list {list} to endpoint {endpoint}")), "{text}");
    assert!(srd_vpc_file::parse(&text, Path::new("test")).is_ok());
    client.ok(&format!("Action=DeleteVpcEndpoints&VpcEndpointId.1={endpoint}"));
    let shown = client.ok(&format!("Action=DescribeRouteTables&RouteTableId.1={table}"));
    assert!(all(&shown, "destinationPrefixListId").is_empty());
    assert!(!project(client.state(), None).text.contains("[endpoint."));
    let shown = client.ok(&format!("Action=DescribeVpcEndpoints&VpcEndpointId.1={endpoint}"));
    assert_eq!(first(&shown, "state"), "deleted");
    let gone = client.ok(&format!("Action=DeleteVpcEndpoints&VpcEndpointId.1={endpoint}"));
    assert_eq!(first(&gone, "code"), "InvalidVpcEndpointId.NotFound");
}

#[test]
fn an_interface_endpoint_has_an_interface_in_each_zone() {
    let mut client = Client::new();
    let (vpc, one) = client.network();
    let form = format!("Action=CreateSubnet&VpcId={vpc}&CidrBlock=10.0.2.0/24");
    let other = client.take(&form, "subnetId");
    let create = format!(
        "Action=CreateVpcEndpoint&VpcId={vpc}&VpcEndpointType=Interface&ServiceName={}\
         &SubnetId.1={one}&SubnetId.2={other}",
        service("ec2")
    );
    let made = client.ok(&create);
    let endpoint = first(&made, "vpcEndpointId");
    assert_eq!(all(&made, "groupName"), ["default"]);
    assert_eq!(first(&made, "privateDnsEnabled"), "false");
    let filter = "Filter.1.Name=interface-type&Filter.1.Value.1=vpc_endpoint";
    let own = format!("Action=DescribeNetworkInterfaces&{filter}");
    assert_eq!(all(&client.ok(&own), "requesterManaged"), ["true", "true"]);
    let interface = first(&client.ok(&own), "networkInterfaceId");
    let delete = format!("Action=DeleteNetworkInterface&NetworkInterfaceId={interface}");
    assert_eq!(client.code(&delete), "InvalidNetworkInterface.InUse");
    // A second subnet of a zone is refused, and a private name needs DNS in the VPC.
    let zone =
        first(&client.ok(&format!("Action=DescribeSubnets&SubnetId.1={one}")), "availabilityZone");
    let form =
        format!("Action=CreateSubnet&VpcId={vpc}&CidrBlock=10.0.3.0/24&AvailabilityZone={zone}");
    let third = client.take(&form, "subnetId");
    let modify = format!("Action=ModifyVpcEndpoint&VpcEndpointId={endpoint}");
    assert_eq!(
        client.code(&format!("{modify}&AddSubnetId.1={third}")),
        "DuplicateSubnetsInSameZone"
    );
    assert_eq!(client.code(&format!("{modify}&PrivateDnsEnabled=true")), "InvalidParameter");
    client.ok(&format!("Action=ModifyVpcAttribute&VpcId={vpc}&EnableDnsHostnames.Value=true"));
    client.ok(&format!("{modify}&PrivateDnsEnabled=true&RemoveSubnetId.1={other}"));
    let shown = client.ok(&format!("Action=DescribeVpcEndpoints&VpcEndpointId.1={endpoint}"));
    assert!(all(&shown, "dnsName").contains(&"ec2.us-east-1.amazonaws.com".to_owned()));
    assert_eq!(all(&client.ok(&own), "requesterManaged").len(), 1);
    client.ok(&format!("Action=DeleteVpcEndpoints&VpcEndpointId.1={endpoint}"));
    assert!(all(&client.ok(&own), "requesterManaged").is_empty());
}

#[test]
fn endpoints_need_a_service_a_policy_and_lists_of_their_type() {
    let mut client = Client::new();
    let (vpc, subnet) = client.network();
    let create = |rest: &str| format!("Action=CreateVpcEndpoint&VpcId={vpc}&{rest}");
    let s3 = service("s3");
    for (rest, code) in [
        ("ServiceName=com.example.none".to_owned(), "InvalidServiceName"),
        ("ServiceName=com.amazonaws.eu-west-1.s3".to_owned(), "InvalidServiceName"),
        (format!("ServiceName={}", service("ec2")), "InvalidParameter"),
        (format!("ServiceName={s3}&SubnetId.1={subnet}"), "InvalidParameter"),
        (format!("ServiceName={s3}&PolicyDocument=x"), "InvalidPolicyDocument"),
        (format!("ServiceName={s3}&PrivateDnsEnabled=true"), "InvalidParameter"),
        (format!("ServiceName={s3}&VpcEndpointType=Tunnel"), "UnsupportedOperation"),
        (String::new(), "MissingParameter"),
    ] {
        assert_eq!(client.code(&create(&rest)), code, "{rest}");
    }
    assert!(client.state().endpoints.is_empty());
    let services = client.ok("Action=DescribeVpcEndpointServices&Filter.1.Name=service-type\
                              &Filter.1.Value.1=Gateway");
    assert_eq!(all(&services, "owner"), ["amazon", "amazon"]);
}

/// A request to the service of load balancers.
fn balancer(client: &mut Client, kind: &str, subnet: &str) -> String {
    let form = format!("Action=CreateLoadBalancer&Name=a&Type={kind}&Subnets.member.1={subnet}");
    let mut http: HttpRequest = request(client.region, &form);
    for (_, value) in &mut http.headers {
        *value = value.replace("/ec2/", "/elasticloadbalancing/");
    }
    first(&client.control.handle(&http, client.now).body, "LoadBalancerArn")
}

#[test]
fn endpoints_to_a_service_of_the_account_wait_for_its_acceptance() {
    let mut client = Client::new();
    let (vpc, subnet) = client.network();
    let balancer = balancer(&mut client, "network", &subnet);
    let create = "Action=CreateVpcEndpointServiceConfiguration";
    assert_eq!(client.code(create), "InvalidParameter");
    assert_eq!(
        client.code(&format!("{create}&GatewayLoadBalancerArn.1={balancer}")),
        "InvalidParameter"
    );
    let made = client.ok(&format!("{create}&NetworkLoadBalancerArn.1={balancer}"));
    let (id, name) = (first(&made, "serviceId"), first(&made, "serviceName"));
    let form = format!(
        "Action=CreateVpcEndpoint&VpcId={vpc}&VpcEndpointType=Interface&ServiceName={name}"
    );
    let shown = client.ok(&form);
    assert_eq!(first(&shown, "state"), "pendingAcceptance");
    let endpoint = first(&shown, "vpcEndpointId");
    let delete = format!("Action=DeleteVpcEndpointServiceConfigurations&ServiceId.1={id}");
    assert_eq!(first(&client.ok(&delete), "code"), "ExistingVpcEndpointConnections");
    let answer = |verb: &str| {
        format!("Action={verb}VpcEndpointConnections&ServiceId={id}&VpcEndpointId.1={endpoint}")
    };
    client.ok(&answer("Accept"));
    let connections = client.ok("Action=DescribeVpcEndpointConnections");
    assert_eq!(first(&connections, "vpcEndpointState"), "available");
    assert_eq!(first(&client.ok(&answer("Accept")), "code"), "InvalidState");
    client.ok(&answer("Reject"));
    assert!(all(&client.ok(&delete), "code").is_empty());
    assert!(client.state().endpoint_services.is_empty());
}

#[test]
fn a_deleted_prefix_list_is_shown_but_not_used() {
    let mut client = Client::new();
    let (vpc, _) = client.network();
    let create = "Action=CreateManagedPrefixList&PrefixListName=a&MaxEntries=1&AddressFamily=IPv4\
                  &Entry.1.Cidr=192.0.2.0/24";
    let made = client.ok(create);
    assert_eq!(first(&made, "state"), "create-complete");
    let list = first(&made, "prefixListId");
    client.ok(&format!("Action=DeleteManagedPrefixList&PrefixListId={list}"));
    let shown = client.ok(&format!("Action=DescribeManagedPrefixLists&PrefixListId.1={list}"));
    assert_eq!(first(&shown, "state"), "delete-complete");
    assert!(!project(client.state(), None).text.contains(&list));
    let tables = format!("Action=DescribeRouteTables&Filter.1.Name=vpc-id&Filter.1.Value.1={vpc}");
    let table = first(&client.ok(&tables), "routeTableId");
    let gateway = client.take("Action=CreateInternetGateway", "internetGatewayId");
    client.ok(&format!("Action=AttachInternetGateway&InternetGatewayId={gateway}&VpcId={vpc}"));
    for form in [
        format!("Action=DeleteManagedPrefixList&PrefixListId={list}"),
        format!("Action=GetManagedPrefixListEntries&PrefixListId={list}"),
        format!(
            "Action=CreateRoute&RouteTableId={table}&DestinationPrefixListId={list}\
             &GatewayId={gateway}"
        ),
    ] {
        assert_eq!(client.code(&form), "InvalidPrefixListID.NotFound", "{form}");
    }
}

/// A regression: an endpoint and a NAT gateway that are shown as deleted were accepted as targets.
#[test]
fn what_is_deleted_is_no_target_of_routes_and_mirrors() {
    let mut client = Client::new();
    let (vpc, subnet) = client.network();
    let balancer = balancer(&mut client, "gateway", &subnet);
    let made = client.ok(&format!(
        "Action=CreateVpcEndpointServiceConfiguration&AcceptanceRequired=false\
         &GatewayLoadBalancerArn.1={balancer}"
    ));
    let endpoint = client.take(
        &format!(
            "Action=CreateVpcEndpoint&VpcId={vpc}&VpcEndpointType=GatewayLoadBalancer\
             &ServiceName={}&SubnetId.1={subnet}",
            first(&made, "serviceName")
        ),
        "vpcEndpointId",
    );
    let nat = format!("Action=CreateNatGateway&ConnectivityType=private&SubnetId={subnet}");
    let nat = client.take(&nat, "natGatewayId");
    let tables = format!("Action=DescribeRouteTables&Filter.1.Name=vpc-id&Filter.1.Value.1={vpc}");
    let table = first(&client.ok(&tables), "routeTableId");
    let route = |number: u8, target: &str| {
        format!(
            "Action=CreateRoute&RouteTableId={table}&DestinationCidrBlock=192.0.2.{number}/32\
             &{target}"
        )
    };
    let mirror =
        format!("Action=CreateTrafficMirrorTarget&GatewayLoadBalancerEndpointId={endpoint}");
    client.ok(&route(1, &format!("VpcEndpointId={endpoint}")));
    client.ok(&route(2, &format!("NatGatewayId={nat}")));
    client.ok(&mirror);
    client.ok(&format!("Action=DeleteVpcEndpoints&VpcEndpointId.1={endpoint}"));
    client.ok(&format!("Action=DeleteNatGateway&NatGatewayId={nat}"));
    let code = client.code(&route(3, &format!("VpcEndpointId={endpoint}")));
    assert_eq!(code, "InvalidVpcEndpointId.NotFound");
    assert_eq!(client.code(&route(4, &format!("NatGatewayId={nat}"))), "NatGatewayNotFound");
    assert_eq!(client.code(&mirror), "InvalidVpcEndpointId.NotFound");
}
