//! Interfaces and their addresses.

use std::path::Path;

use srd_control::project::project;
use srd_vpc::id::EniId;

use crate::support::{Client, all, first};

/// A regression: the hardware address of an interface in the API was not that in the metadata of
/// its instance.
#[test]
fn regression_an_interface_has_one_hardware_address_in_the_api_and_in_its_instance() {
    let mut client = Client::new();
    let (_, subnet) = client.network();
    client.ok(&format!(
        "Action=RunInstances&ImageId=ami-12c6146b&MinCount=1&MaxCount=1&InstanceType=c7i.large\
         &SubnetId={subnet}"
    ));
    let shown = client.ok("Action=DescribeNetworkInterfaces");
    let id: EniId = first(&shown, "networkInterfaceId").parse().unwrap();
    let projection = project(client.state(), None);
    let file = srd_vpc_file::parse(&projection.text, Path::new("vpc.toml")).unwrap();
    let of_instance = file.world.enis[&id].mac.map(|byte| format!("{byte:02x}")).join(":");
    assert_eq!(all(&shown, "macAddress"), [of_instance]);
}

/// A regression: two regions could have the same public address.
#[test]
fn regression_a_public_address_belongs_to_one_region() {
    let mut client = Client::new();
    let elastic = client.take("Action=AllocateAddress", "publicIp");
    client.ok(
        "Action=RunInstances&ImageId=ami-12c6146b&MinCount=1&MaxCount=1&InstanceType=c7i.large",
    );
    let shown = client.ok("Action=DescribeNetworkInterfaces");
    let of_instance = first(&shown, "publicIp");
    client.region = "eu-west-1";
    for ip in [&elastic, &of_instance] {
        let form = format!("Action=AllocateAddress&Address={ip}");
        assert_eq!(client.code(&form), "InvalidAddress.InUse", "{ip}");
    }
    client.region = "us-east-1";
    client.ok(&format!("Action=ReleaseAddress&PublicIp={elastic}"));
    client.region = "eu-west-1";
    client.ok(&format!("Action=AllocateAddress&Address={elastic}"));
}

#[test]
fn ena_express_and_connection_tracking_are_stored_and_shown() {
    let mut client = Client::new();
    let (_, subnet) = client.network();
    let tag = "TagSpecification.1.ResourceType=network-interface&TagSpecification.1.Tag.1.Key=a";
    let form = format!("Action=CreateNetworkInterface&SubnetId={subnet}&{tag}");
    let id = client.take(&form, "networkInterfaceId");
    let tagged = "Action=DescribeNetworkInterfaces&Filter.1.Name=tag-key&Filter.1.Value.1=a";
    assert_eq!(client.take(tagged, "networkInterfaceId"), id);
    let modify = format!("Action=ModifyNetworkInterfaceAttribute&NetworkInterfaceId={id}");
    client.ok(&format!("{modify}&ConnectionTrackingSpecification.TcpEstablishedTimeout=600"));
    client.ok(&format!("{modify}&ConnectionTrackingSpecification.UdpTimeout=30"));
    let wrong = format!("{modify}&ConnectionTrackingSpecification.UdpTimeout=61");
    assert_eq!(client.code(&wrong), "InvalidParameterValue");
    let udp = "EnaSrdSpecification.EnaSrdUdpSpecification.EnaSrdUdpEnabled=true";
    assert_eq!(client.code(&format!("{modify}&{udp}")), "InvalidParameterCombination");
    client.ok(&format!("{modify}&EnaSrdSpecification.EnaSrdEnabled=true&{udp}"));
    let run = format!(
        "Action=RunInstances&ImageId=ami-12c6146b&MinCount=1&MaxCount=1&InstanceType=c7i.large\
         &NetworkInterface.1.DeviceIndex=0&NetworkInterface.1.NetworkInterfaceId={id}"
    );
    client.ok(&run);
    let shown = client.ok(&format!("Action=DescribeNetworkInterfaces&NetworkInterfaceId.1={id}"));
    assert!(shown.contains("<tcpEstablishedTimeout>600</tcpEstablishedTimeout>"));
    assert!(shown.contains("<udpTimeout>30</udpTimeout>"));
    assert!(shown.contains("<enaSrdEnabled>true</enaSrdEnabled>"), "{shown}");
    assert!(shown.contains("<enaSrdUdpEnabled>true</enaSrdUdpEnabled>"));
}

#[test]
fn addresses_are_unique_and_those_of_the_subnet_are_kept() {
    let mut client = Client::new();
    let (_, subnet) = client.network();
    let create = format!("Action=CreateNetworkInterface&SubnetId={subnet}");
    let interface = client.ok(&create);
    assert_eq!(first(&interface, "privateIpAddress"), "10.0.1.4");
    let at = |ip: &str| format!("{create}&PrivateIpAddress={ip}");
    for kept in ["10.0.1.0", "10.0.1.3", "10.0.1.255", "10.0.2.4", "fe80::1", "10.0.1.999"] {
        assert_eq!(client.code(&at(kept)), "InvalidParameterValue", "{kept}");
    }
    assert_eq!(client.code(&at("10.0.1.4")), "InvalidIPAddress.InUse");
    let id = first(&interface, "networkInterfaceId");
    let assign = format!("Action=AssignPrivateIpAddresses&NetworkInterfaceId={id}");
    let assigned = client.ok(&format!("{assign}&SecondaryPrivateIpAddressCount=2"));
    assert_eq!(all(&assigned, "privateIpAddress"), ["10.0.1.5", "10.0.1.6"]);
    let too_many = format!("{assign}&SecondaryPrivateIpAddressCount=48");
    assert_eq!(client.code(&too_many), "PrivateIpAddressLimitExceeded");
    let prefix = client.ok(&format!("{assign}&Ipv4PrefixCount=1"));
    assert_eq!(all(&prefix, "ipv4Prefix"), ["10.0.1.16/28"]);
    assert_eq!(client.code(&at("10.0.1.20")), "InvalidIPAddress.InUse");
    let v6 = format!("Action=AssignIpv6Addresses&NetworkInterfaceId={id}&Ipv6AddressCount=1");
    assert_eq!(client.code(&v6), "InvalidParameterValue");
}

#[test]
fn reservations_of_a_subnet_do_not_overlap_and_their_addresses_are_not_given() {
    let mut client = Client::new();
    let (_, subnet) = client.network();
    let reserve = |block: &str| {
        format!(
            "Action=CreateSubnetCidrReservation&SubnetId={subnet}&ReservationType=explicit\
             &Cidr={block}"
        )
    };
    assert_eq!(client.code(&reserve("10.0.2.0/28")), "InvalidParameterValue");
    assert_eq!(client.code(&reserve("2001:db8::/64")), "InvalidParameterValue");
    client.ok(&reserve("10.0.1.0/28"));
    assert_eq!(client.code(&reserve("10.0.1.8/29")), "InvalidParameterValue");
    let create = format!("Action=CreateNetworkInterface&SubnetId={subnet}");
    assert_eq!(client.take(&create, "privateIpAddress"), "10.0.1.16");
    let named = format!("{create}&PrivateIpAddress=10.0.1.4");
    assert_eq!(client.take(&named, "privateIpAddress"), "10.0.1.4");
}

#[test]
fn an_elastic_address_needs_a_gateway_and_is_released_when_it_is_free() {
    let mut client = Client::new();
    let (vpc, subnet) = client.network();
    let form = format!("Action=CreateNetworkInterface&SubnetId={subnet}");
    let interface = client.take(&form, "networkInterfaceId");
    for other in ["127.0.0.1", "169.254.169.254", "8.8.8.8", "198.17.255.255", "198.20.0.0"] {
        let form = format!("Action=AllocateAddress&Address={other}");
        assert_eq!(client.code(&form), "InvalidParameterValue", "{other}");
    }
    assert_eq!(client.take("Action=AllocateAddress&Address=198.18.7.7", "publicIp"), "198.18.7.7");
    let again = client.code("Action=AllocateAddress&Address=198.18.7.7");
    assert_eq!(again, "InvalidAddress.InUse");
    let address = client.take("Action=AllocateAddress&Domain=vpc", "allocationId");
    let associate =
        format!("Action=AssociateAddress&AllocationId={address}&NetworkInterfaceId={interface}");
    assert_eq!(client.code(&associate), "Gateway.NotAttached");
    let gateway = client.take("Action=CreateInternetGateway", "internetGatewayId");
    client.ok(&format!("Action=AttachInternetGateway&InternetGatewayId={gateway}&VpcId={vpc}"));
    let association = client.take(&associate, "associationId");
    let release = format!("Action=ReleaseAddress&AllocationId={address}");
    assert_eq!(client.code(&release), "InvalidIPAddress.InUse");
    let detach = format!("Action=DetachInternetGateway&InternetGatewayId={gateway}&VpcId={vpc}");
    assert_eq!(client.code(&detach), "DependencyViolation");
    client.ok(&format!("Action=DisassociateAddress&AssociationId={association}"));
    client.ok(&release);
    client.ok(&detach);
}

#[test]
fn a_nat_gateway_holds_its_address_and_its_subnet() {
    let mut client = Client::new();
    client.ok("Action=DescribeVpcs");
    let subnet = client.state().subnets.iter().next().unwrap().subnet_id.clone();
    let address = client.take("Action=AllocateAddress&Domain=vpc", "allocationId");
    let create = format!("Action=CreateNatGateway&SubnetId={subnet}&AllocationId={address}");
    let id = client.take(&create, "natGatewayId");
    assert_eq!(client.code(&create), "Resource.AlreadyAssociated");
    assert_eq!(
        client.code(&format!("Action=DeleteSubnet&SubnetId={subnet}")),
        "DependencyViolation"
    );
    let shown = client.ok("Action=DescribeNetworkInterfaces");
    assert!(shown.contains("<interfaceType>nat_gateway</interfaceType>"));
    let interface = first(&shown, "networkInterfaceId");
    let delete = format!("Action=DeleteNetworkInterface&NetworkInterfaceId={interface}");
    assert_eq!(client.code(&delete), "InvalidNetworkInterface.InUse");
    client.ok(&format!("Action=DeleteNatGateway&NatGatewayId={id}"));
    client.ok(&format!("Action=ReleaseAddress&AllocationId={address}"));
    client.ok(&format!("Action=DeleteSubnet&SubnetId={subnet}"));
}

/// The service reports this fault in the description of the gateway.
#[test]
fn a_nat_gateway_without_an_internet_gateway_fails_and_holds_nothing() {
    let mut client = Client::new();
    let (vpc, subnet) = client.network();
    let address = client.take("Action=AllocateAddress&Domain=vpc", "allocationId");
    let create = format!("Action=CreateNatGateway&SubnetId={subnet}&AllocationId={address}");
    let id = client.take(&create, "natGatewayId");
    let shown = client.ok(&format!("Action=DescribeNatGateways&NatGatewayId.1={id}"));
    assert_eq!(first(&shown, "state"), "failed");
    assert_eq!(first(&shown, "failureCode"), "Gateway.NotAttached");
    let cause = format!("Network {vpc} has no Internet gateway attached");
    assert_eq!(first(&shown, "failureMessage"), cause);
    client.ok(&format!("Action=ReleaseAddress&AllocationId={address}"));
    client.ok(&format!("Action=DeleteSubnet&SubnetId={subnet}"));
    client.ok(&format!("Action=DeleteNatGateway&NatGatewayId={id}"));
    let shown = client.ok(&format!("Action=DescribeNatGateways&NatGatewayId.1={id}"));
    assert_eq!(first(&shown, "state"), "deleted");
}
