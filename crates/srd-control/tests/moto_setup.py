"""A plugin of pytest for moto's own tests, run against `srd control up --trial --any-credentials`.

Moto accepts preparations that EC2 refuses: a subnet with an IPv6 block that its VPC does not have, a
route to an internet gateway that is not attached, identifiers of objects that do not exist. This
plugin makes such preparations valid before the request is sent, so that the test reaches the
behaviour that it is about:

* It makes missing objects, and attaches gateways.
* If a test invents the name of an object, or uses a name of another region, the plugin sends the
  name of an object that exists, and puts the invented name back into the answers.
* A VPC that it makes for an invented name has a default security group, which the test does not
  know. The plugin leaves this group out of descriptions of the groups of this VPC.

Moto's tests leave some of themselves out if they run against moto's own server: those with several
accounts, because all requests to this server belong to one account, and those that other tests of
the same server would disturb. Neither reason holds here. The plugin sends a request with the access
key of the account that the test has set, and each test begins with a reset. So these tests run.

Use: `python -m pytest -p moto_setup`, with this folder in PYTHONPATH. If MOTO_PREPARED names a file,
the plugin writes the names of the tests there whose requests it has changed.
"""

import ipaddress
import json
import os
import random
import re

import boto3
import botocore.client
import botocore.credentials
import pytest
from moto import settings

_send = botocore.client.BaseClient._make_api_call
# Reason for which tests with several accounts are left out.
_ONE_ACCOUNT = "Cannot set account ID in server mode"
# Tests that are left out because other tests would disturb them.
_ALONE = {
    "test_creating_a_vpc_in_empty_region_does_not_make_this_vpc_the_default",
    "test_create_default_vpc",
    "test_filter_ip_permission__cidr",
    "test_filter_egress__ip_permission__cidr",
    "test_new_subnet_associates_with_default_network_acl",
    "test_delete_default_network_acl_default_entry",
}
# Invented names of the current test, and the real names for them.
_aliases = {}
_current = [None]
_changed = set()


def _test():
    """The name of the current test. A new test begins without aliases."""
    name = os.environ.get("PYTEST_CURRENT_TEST", "").rsplit(" ", 1)[0]
    if _current[0] != name:
        _current[0] = name
        _aliases.clear()
    return name


def pytest_collection_modifyitems(items):
    """Keeps the tests with several accounts."""
    for item in items:
        marks = [mark for mark in item.own_markers if mark.kwargs.get("reason") != _ONE_ACCOUNT]
        item.own_markers = marks


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Runs the tests that other tests would disturb. They read the variable when they begin."""
    settings.TEST_SERVER_MODE = item.name not in _ALONE
    try:
        return (yield)
    finally:
        settings.TEST_SERVER_MODE = True


def _call(client, name, parameters):
    """Sends a request, with an access key of the account that the test has set, if it has set one."""
    account = os.environ.get("MOTO_ACCOUNT_ID")
    signer = client._request_signer
    own = signer._credentials
    if account:
        signer._credentials = botocore.credentials.Credentials(account, "x")
    try:
        return _send(client, name, parameters)
    finally:
        signer._credentials = own


def pytest_runtest_setup(item):
    """Gives each test random numbers of its own, the same ones in each run."""
    random.seed(item.nodeid)


def pytest_sessionfinish():
    if os.environ.get("MOTO_PREPARED"):
        with open(os.environ["MOTO_PREPARED"], "w") as file:
            json.dump(sorted(_changed), file)


def _replaced(value, names):
    """A tree of values in which names are replaced."""
    if isinstance(value, dict):
        return {key: _replaced(part, names) for key, part in value.items()}
    if isinstance(value, list):
        return [_replaced(part, names) for part in value]
    return names.get(value, value) if isinstance(value, str) else value


def _attach(client, vpc, gateway=None):
    """Attaches an internet gateway to the VPC, unless it has one."""
    filters = [{"Name": "attachment.vpc-id", "Values": [vpc]}]
    if _call(client, "DescribeInternetGateways", {"Filters": filters})["InternetGateways"]:
        return
    if gateway is None:
        gateway = _call(client, "CreateInternetGateway", {})["InternetGateway"]["InternetGatewayId"]
    _call(client, "AttachInternetGateway", {"InternetGatewayId": gateway, "VpcId": vpc})
    _changed.add(_test())


def _is_invented(name, prefix):
    return name not in _aliases and not re.fullmatch(prefix + "-0[0-9a-f]{16}", name)


def _zone(client, name):
    """Gives a zone of another region, or the name of a region, a zone of the client's region."""
    found = re.fullmatch(r"[a-z]{2}(?:-[a-z]+)+-[0-9]([a-z]?)", name)
    is_id = re.fullmatch(r"[a-z]+[0-9]-az[0-9]", name)
    if not found and not is_id:
        return
    zones = _call(client, "DescribeAvailabilityZones", {})["AvailabilityZones"]
    names = [zone["ZoneId" if is_id else "ZoneName"] for zone in zones]
    if name not in names:
        wanted = client.meta.region_name + (found.group(1) or "a") if found else None
        _aliases[name] = wanted if wanted in names else names[0]


def _zones(client, value):
    """Looks for zones of other regions in the parameters of a request."""
    if isinstance(value, dict):
        for key, part in value.items():
            if key in ("AvailabilityZone", "AvailabilityZoneId") and isinstance(part, str):
                _zone(client, part)
            else:
                _zones(client, part)
    elif isinstance(value, list):
        for part in value:
            _zones(client, part)


def _vpc_and_subnet(client, block="10.99.0.0/16"):
    vpc = _call(client, "CreateVpc", {"CidrBlock": block})["Vpc"]["VpcId"]
    parameters = {"VpcId": vpc, "CidrBlock": str(next(ipaddress.ip_network(block).subnets(8)))}
    return vpc, _call(client, "CreateSubnet", parameters)["Subnet"]["SubnetId"]


def _invent_attachment(client, parameters):
    """Makes the VPC and the subnets that the attachment of a transit gateway names."""
    vpc = parameters["VpcId"]
    if _is_invented(vpc, "vpc"):
        _aliases[vpc] = _call(client, "CreateVpc", {"CidrBlock": "10.98.0.0/16"})["Vpc"]["VpcId"]
    for number, subnet in enumerate(parameters["SubnetIds"]):
        if _is_invented(subnet, "subnet"):
            own = {"VpcId": _aliases.get(vpc, vpc), "CidrBlock": f"10.98.{number}.0/24"}
            _aliases[subnet] = _call(client, "CreateSubnet", own)["Subnet"]["SubnetId"]


def _subnet_of(client, parameters):
    """The subnet of a request, or of its interface."""
    subnet = parameters.get("SubnetId")
    if subnet is None:
        own = {"NetworkInterfaceIds": [parameters["NetworkInterfaceId"]]}
        subnet = _call(client, "DescribeNetworkInterfaces", own)["NetworkInterfaces"][0]["SubnetId"]
    return _call(client, "DescribeSubnets", {"SubnetIds": [subnet]})["Subnets"][0]


def _invent_addresses(client, parameters):
    """Gives addresses outside of the subnet addresses in it, and their names the names of these."""
    given = [parameters.get("PrivateIpAddress"), *parameters.get("PrivateIpAddresses", [])]
    given = [part["PrivateIpAddress"] if isinstance(part, dict) else part for part in given if part]
    if not given:
        return
    subnet = _subnet_of(client, parameters)
    block = ipaddress.ip_network(subnet["CidrBlock"])
    for text in given:
        if text in _aliases or ipaddress.ip_address(text) in block:
            continue
        taken = len([real for real in _aliases.values() if re.fullmatch(r"[0-9.]+", real)])
        real = str(block[block.num_addresses // 2 + taken])
        _aliases[text] = real
        for ending in ("ec2.internal", f"{client.meta.region_name}.compute.internal"):
            name = "ip-{}." + ending
            _aliases[name.format(text.replace(".", "-"))] = name.format(real.replace(".", "-"))


def _invent_groups(client, parameters):
    """Makes groups in the VPC of the subnet that stand for groups of other VPCs."""
    vpc = _subnet_of(client, parameters)["VpcId"]
    for group in parameters.get("Groups", []):
        if not group.startswith("sg-"):
            continue
        found = _call(client, "DescribeSecurityGroups", {"GroupIds": [_aliases.get(group, group)]})
        found = found["SecurityGroups"][0]
        if found["VpcId"] != vpc:
            own = {"GroupName": found["GroupName"], "Description": found["Description"], "VpcId": vpc}
            _aliases[group] = _call(client, "CreateSecurityGroup", own)["GroupId"]


def _invent_balancer(client):
    """Makes an endpoint service with a Gateway Load Balancer, and returns its name."""
    _, subnet = _vpc_and_subnet(client)
    balancers = boto3.client("elbv2", region_name=client.meta.region_name)
    made = balancers.create_load_balancer(Name="moto", Subnets=[subnet], Type="gateway")
    own = {
        "GatewayLoadBalancerArns": [made["LoadBalancers"][0]["LoadBalancerArn"]],
        "AcceptanceRequired": False,
    }
    made = _call(client, "CreateVpcEndpointServiceConfiguration", own)
    return made["ServiceConfiguration"]["ServiceName"]


def _invent_route(client, parameters):
    """Moves the destination of a route out of the VPC, where EC2 accepts few targets."""
    if "InstanceId" in parameters or "NetworkInterfaceId" in parameters:
        return
    block = parameters.get("DestinationCidrBlock")
    if not block or block in _aliases:
        return
    tables = _call(client, "DescribeRouteTables", {"RouteTableIds": [parameters["RouteTableId"]]})
    vpc = _call(client, "DescribeVpcs", {"VpcIds": [tables["RouteTables"][0]["VpcId"]]})["Vpcs"][0]
    network = ipaddress.ip_network(block, strict=False)
    for of in vpc["CidrBlockAssociationSet"]:
        if network.subnet_of(ipaddress.ip_network(of["CidrBlock"])):
            moved = str(network).split(".", 1)
            _aliases[block] = f"11.{moved[1]}"


def _invent_blocks(client, name, parameters):
    """Gives blocks that EC2 refuses or changes blocks that it keeps."""
    block = parameters.get("CidrBlock", "")
    if name == "CreateVpc" and re.fullmatch(r"[0-9.]+/[0-9]+", block):
        canonical = str(ipaddress.ip_network(block, strict=False))
        if canonical != block:
            _aliases[block] = canonical
    block = parameters.get("Ipv6CidrBlock", "")
    if name == "AssociateSubnetCidrBlock" and "/" in block and block not in _aliases:
        network = ipaddress.ip_network(block.split("/")[0] + "/64", strict=False)
        if block.split("/")[1] != "64":
            wide = network.supernet(new_prefix=56)
            taken = len([real for real in _aliases.values() if real.endswith("/64")])
            _aliases[block] = str(list(wide.subnets(new_prefix=64))[taken])
    for key in ("Entries", "AddEntries", "RemoveEntries"):
        for entry in parameters.get(key, []) if name.endswith("ManagedPrefixList") else []:
            if "/" not in entry["Cidr"]:
                _aliases[entry["Cidr"]] = entry["Cidr"] + "/32"
    if name == "CreateManagedPrefixList" and parameters.get("AddressFamily") == "?":
        _aliases["?"] = "IPv4"
    if name.startswith("AuthorizeSecurityGroup"):
        for permission in parameters.get("IpPermissions", []):
            for part in permission.get("IpRanges", []):
                if re.fullmatch(r"[1-9][0-9]*\.0\.0\.0/0", part.get("CidrIp", "")):
                    _aliases[part["CidrIp"]] = part["CidrIp"].replace("/0", "/8")
    block = parameters.get("DestinationCidrBlock", "")
    if name == "CreateTransitGatewayRoute" and "/" not in block:
        _aliases[block] = "0.0.0.0/0" if block == "0.0.0.0" else f"{block}/32"
    if name in ("CreateRoute", "ReplaceRoute"):
        _invent_route(client, parameters)


def _invent_values(name, parameters):
    """Gives policies that are no JSON, and values that do not exist, values that EC2 accepts."""
    policy = parameters.get("PolicyDocument")
    if name in ("CreateVpcEndpoint", "ModifyVpcEndpoint") and policy and policy[0] != "{":
        _aliases[policy] = json.dumps({"Id": policy, "Statement": []})
    if name == "ModifyTransitGatewayVpcAttachment":
        if "disabled" in parameters.get("Options", {}).values():
            _aliases["disabled"] = "disable"


def _invent(client, name, parameters):
    """Gives invented names the names of objects that exist."""
    _zones(client, parameters)
    _invent_blocks(client, name, parameters)
    _invent_values(name, parameters)
    if name in ("CreateNetworkInterface", "AssignPrivateIpAddresses"):
        _invent_addresses(client, parameters)
    if name in ("CreateNetworkInterface", "ModifyNetworkInterfaceAttribute"):
        _invent_groups(client, parameters)
    vpc = parameters.get("VpcId")
    if name == "CreateSecurityGroup" and vpc and _is_invented(vpc, "vpc"):
        _aliases[vpc] = _call(client, "CreateVpc", {"CidrBlock": "10.97.0.0/16"})["Vpc"]["VpcId"]
    if name == "CreateTransitGatewayVpcAttachment":
        _invent_attachment(client, parameters)
    interface = parameters.get("NetworkInterfaceId")
    mirrors = ("CreateTrafficMirrorTarget", "CreateTrafficMirrorSession")
    if name in mirrors and interface and "GatewayLoadBalancerEndpointId" not in parameters:
        if _is_invented(interface, "eni"):
            subnet = _call(client, "DescribeSubnets", {})["Subnets"][0]["SubnetId"]
            made = _call(client, "CreateNetworkInterface", {"SubnetId": subnet})
            _aliases[interface] = made["NetworkInterface"]["NetworkInterfaceId"]
    gateway = parameters.get("VpnGatewayId")
    if name == "CreateVpnConnection" and gateway and "TransitGatewayId" not in parameters:
        if _is_invented(gateway, "vgw"):
            made = _call(client, "CreateVpnGateway", {"Type": "ipsec.1"})
            _aliases[gateway] = made["VpnGateway"]["VpnGatewayId"]
    if name == "CreateVpcEndpoint":
        _invent_endpoint(client, parameters)
    if name in ("CreateRoute", "ReplaceRoute") and "InstanceId" in parameters:
        _invent_instance(client, parameters)
    if name == "ModifyVpcEndpoint" and "AddRouteTableIds" in parameters:
        # Route tables belong to gateway endpoints: one stands for the interface endpoint.
        endpoint = _aliases.get(parameters["VpcEndpointId"], parameters["VpcEndpointId"])
        found = _call(client, "DescribeVpcEndpoints", {"VpcEndpointIds": [endpoint]})["VpcEndpoints"][0]
        if found["VpcEndpointType"] == "Interface":
            own = {"VpcId": found["VpcId"], "ServiceName": f"com.amazonaws.{client.meta.region_name}.s3"}
            made = _call(client, "CreateVpcEndpoint", own)["VpcEndpoint"]["VpcEndpointId"]
            _aliases[parameters["VpcEndpointId"]] = made
    if name == "AllocateAddress" and "Address" in parameters:
        _aliases[parameters["Address"]] = "198.18.7.7"


def _invent_endpoint(client, parameters):
    service = parameters.get("ServiceName", "")
    here = client.meta.region_name
    parts = service.split(".")
    if service.startswith("com.amazonaws.vpce.") and service not in _aliases:
        known = _call(client, "DescribeVpcEndpointServiceConfigurations", {})["ServiceConfigurations"]
        if service not in [of["ServiceName"] for of in known]:
            _aliases[service] = _invent_balancer(client)
    elif service.startswith("com.amazonaws.") and parts[2] not in (here, "vpce"):
        _aliases[service] = ".".join(["com.amazonaws", here, *parts[3:]])
    elif service.startswith("com.tester."):
        _aliases[service] = f"com.amazonaws.{here}.ec2"
    # A table has one route to a service: a further endpoint gets a table of its own.
    real = _aliases.get(service, service)
    filters = [{"Name": "service-name", "Values": [real]}]
    used = _call(client, "DescribeVpcEndpoints", {"Filters": filters})["VpcEndpoints"]
    used = {table for endpoint in used for table in endpoint["RouteTableIds"]}
    for table in parameters.get("RouteTableIds", []):
        if _aliases.get(table, table) in used:
            made = _call(client, "CreateRouteTable", {"VpcId": parameters["VpcId"]})
            _aliases[table] = made["RouteTable"]["RouteTableId"]


def _retag(parameters, wrong, right):
    """Corrects the type of the resource in tags."""
    for specification in parameters.get("TagSpecifications", []):
        if specification.get("ResourceType") == wrong:
            specification["ResourceType"] = right
            _changed.add(_test())


def _invent_instance(client, parameters):
    """Starts an instance in the VPC of a route that stands for an instance of another VPC."""
    instance = parameters["InstanceId"]
    found = _call(client, "DescribeInstances", {"InstanceIds": [instance]})
    vpc = found["Reservations"][0]["Instances"][0]["VpcId"]
    tables = _call(client, "DescribeRouteTables", {"RouteTableIds": [parameters["RouteTableId"]]})
    wanted = tables["RouteTables"][0]["VpcId"]
    if vpc == wanted:
        return
    filters = [{"Name": "vpc-id", "Values": [wanted]}]
    subnet = _call(client, "DescribeSubnets", {"Filters": filters})["Subnets"][0]["SubnetId"]
    own = {"ImageId": "ami-12c6146b", "MinCount": 1, "MaxCount": 1, "SubnetId": subnet}
    _aliases[instance] = _call(client, "RunInstances", own)["Instances"][0]["InstanceId"]


def _prepare_around(client, name, parameters):
    """Prepares requests about objects around VPCs."""
    if name == "CreateCarrierGateway":
        _retag(parameters, "CarrierGateway", "carrier-gateway")
    if name == "CreateTransitGateway":
        _retag(parameters, "transit-gateway-route-table", "transit-gateway")
    if name == "CreateTransitGatewayPeeringAttachment":
        peer = {"TransitGatewayIds": [parameters["PeerTransitGatewayId"]]}
        _call(client, "DescribeTransitGateways", peer)
        if parameters["PeerRegion"] != client.meta.region_name:
            parameters["PeerRegion"] = client.meta.region_name
            _changed.add(_test())
    if name == "CreateTransitGatewayRoute":
        if not parameters.get("Blackhole") and "TransitGatewayAttachmentId" not in parameters:
            vpc, subnet = _vpc_and_subnet(client)
            table = {"TransitGatewayRouteTableIds": [parameters["TransitGatewayRouteTableId"]]}
            table = _call(client, "DescribeTransitGatewayRouteTables", table)
            gateway = table["TransitGatewayRouteTables"][0]["TransitGatewayId"]
            own = {"TransitGatewayId": gateway, "VpcId": vpc, "SubnetIds": [subnet]}
            made = _call(client, "CreateTransitGatewayVpcAttachment", own)
            made = made["TransitGatewayVpcAttachment"]["TransitGatewayAttachmentId"]
            parameters["TransitGatewayAttachmentId"] = made
            _changed.add(_test())
    if name == "AssociateTransitGatewayRouteTable":
        own = {"TransitGatewayAttachmentIds": [parameters["TransitGatewayAttachmentId"]]}
        found = _call(client, "DescribeTransitGatewayAttachments", own)["TransitGatewayAttachments"]
        table = found[0].get("Association", {}).get("TransitGatewayRouteTableId")
        if table:
            own = {"TransitGatewayAttachmentId": parameters["TransitGatewayAttachmentId"]}
            own["TransitGatewayRouteTableId"] = table
            _call(client, "DisassociateTransitGatewayRouteTable", own)
            _changed.add(_test())
    if name == "CreateVpcEndpoint" and "RouteTableIds" in parameters:
        kind = parameters.get("VpcEndpointType", "Gateway").lower()
        if kind == "gatewayloadbalancer":
            del parameters["RouteTableIds"]
            _changed.add(_test())
        elif kind == "interface":
            # Route tables belong to gateway endpoints.
            parameters["VpcEndpointType"] = "Gateway"
            parameters["ServiceName"] = f"com.amazonaws.{client.meta.region_name}.s3"
            parameters.pop("SubnetIds", None)
            _changed.add(_test())
    if name == "CreateSubnetCidrReservation":
        _retag(parameters, "capacity-reservation", "subnet-cidr-reservation")
        tags = parameters.get("TagSpecifications", [])
        if any(not of.get("Tags") for of in tags):
            parameters["TagSpecifications"] = [of for of in tags if of.get("Tags")]
            _changed.add(_test())
    if name == "CreateNatGateway":
        _retag(parameters, "nat-gateway", "natgateway")


def _prepare_route(client, parameters):
    """Attaches the gateway that is the target of a route."""
    tables = _call(client, "DescribeRouteTables", {"RouteTableIds": [parameters["RouteTableId"]]})
    vpc = tables["RouteTables"][0]["VpcId"]
    gateway = parameters.get("GatewayId", "")
    if gateway.startswith("igw-"):
        _attach(client, vpc, gateway)
    if gateway.startswith("vgw-"):
        _call(client, "AttachVpnGateway", {"VpnGatewayId": gateway, "VpcId": vpc})
        _changed.add(_test())
    if "NetworkInterfaceId" in parameters and not any(key.startswith("Destination") for key in parameters):
        parameters["DestinationCidrBlock"] = "192.0.2.0/24"
        _changed.add(_test())
    peering = parameters.get("VpcPeeringConnectionId")
    if peering:
        # Routes to a connection that is not accepted lead nowhere.
        _changed.add(_test())
        _call(client, "AcceptVpcPeeringConnection", {"VpcPeeringConnectionId": peering})
    if "TransitGatewayId" in parameters:
        parameters.setdefault("DestinationCidrBlock", "192.0.2.0/24")
        found = _call(client, "DescribeVpcs", {"VpcIds": [vpc]})["Vpcs"][0]
        block = str(next(ipaddress.ip_network(found["CidrBlock"]).subnets(8)))
        subnet = _call(client, "CreateSubnet", {"VpcId": vpc, "CidrBlock": block})["Subnet"]["SubnetId"]
        own = {"TransitGatewayId": parameters["TransitGatewayId"], "VpcId": vpc, "SubnetIds": [subnet]}
        _changed.add(_test())
        _call(client, "CreateTransitGatewayVpcAttachment", own)


def _peer(client, parameters):
    """Peers the VPCs of groups that a rule names."""
    groups = [parameters["GroupId"]]
    for permission in parameters.get("IpPermissions", []):
        groups += [pair["GroupId"] for pair in permission.get("UserIdGroupPairs", []) if "GroupId" in pair]
    found = _call(client, "DescribeSecurityGroups", {"GroupIds": sorted(set(groups))})["SecurityGroups"]
    vpcs = {group["GroupId"]: group["VpcId"] for group in found}
    own = vpcs[groups[0]]
    for vpc in sorted(set(vpcs.values()) - {own}):
        made = _call(client, "CreateVpcPeeringConnection", {"VpcId": own, "PeerVpcId": vpc})
        made = made["VpcPeeringConnection"]["VpcPeeringConnectionId"]
        _call(client, "AcceptVpcPeeringConnection", {"VpcPeeringConnectionId": made})
        _changed.add(_test())


def _prepare_groups(client, name, parameters):
    """Prepares requests about the rules of groups."""
    if name.startswith("AuthorizeSecurityGroup") and "GroupId" in parameters:
        for permission in parameters.get("IpPermissions", []):
            if 0 <= permission.get("ToPort", -1) < permission.get("FromPort", -1):
                permission["ToPort"] = permission["FromPort"]
                _changed.add(_test())
        _peer(client, parameters)
    if name.startswith("UpdateSecurityGroupRuleDescriptions") and "GroupName" in parameters:
        # A name stands for a group of the default VPC.
        filters = [{"Name": "group-name", "Values": [parameters["GroupName"]]}]
        found = _call(client, "DescribeSecurityGroups", {"Filters": filters})["SecurityGroups"]
        if len(found) == 1:
            del parameters["GroupName"]
            parameters["GroupId"] = found[0]["GroupId"]
            _changed.add(_test())
    if name == "ModifyManagedPrefixList" and "RemoveEntries" in parameters:
        own = {"PrefixListId": parameters["PrefixListId"]}
        known = [of["Cidr"] for of in _call(client, "GetManagedPrefixListEntries", own)["Entries"]]
        kept = [of for of in parameters["RemoveEntries"] if of["Cidr"] in known]
        if kept != parameters["RemoveEntries"]:
            parameters["RemoveEntries"] = kept
            _changed.add(_test())
    if name == "DeleteManagedPrefixList":
        rules = _call(client, "DescribeSecurityGroupRules", {})["SecurityGroupRules"]
        for rule in rules:
            if rule.get("PrefixListId") == parameters["PrefixListId"]:
                way = "Egress" if rule["IsEgress"] else "Ingress"
                own = {"GroupId": rule["GroupId"], "SecurityGroupRuleIds": [rule["SecurityGroupRuleId"]]}
                _call(client, f"RevokeSecurityGroup{way}", own)
                _changed.add(_test())
    if name == "CreateNetworkAclEntry":
        if parameters.get("Protocol") in ("6", "17") and "PortRange" not in parameters:
            parameters["PortRange"] = {"From": 0, "To": 65535}
            _changed.add(_test())
        if "CidrBlock" in parameters and parameters.get("Ipv6CidrBlock") == "asdf":
            del parameters["Ipv6CidrBlock"]
            _changed.add(_test())


def _prepare_ends(client, name, parameters):
    """Detaches and disassociates what EC2 does not delete."""
    if name == "DeleteVpc":
        filters = [{"Name": "attachment.vpc-id", "Values": [parameters["VpcId"]]}]
        found = _call(client, "DescribeInternetGateways", {"Filters": filters})["InternetGateways"]
        for gateway in found:
            own = {"InternetGatewayId": gateway["InternetGatewayId"], "VpcId": parameters["VpcId"]}
            _call(client, "DetachInternetGateway", own)
            _changed.add(_test())
    if name == "ReleaseAddress":
        query = {"AllocationIds": [parameters["AllocationId"]]} if "AllocationId" in parameters else {
            "PublicIps": [parameters["PublicIp"]]
        }
        found = _call(client, "DescribeAddresses", query)["Addresses"][0].get("AssociationId")
        if found:
            _call(client, "DisassociateAddress", {"AssociationId": found})
            _changed.add(_test())


def _prepare(client, name, parameters):
    block = parameters.get("Ipv6CidrBlock")
    if name in ("CreateSubnet", "AssociateSubnetCidrBlock") and block:
        vpc = parameters.get("VpcId")
        if vpc is None:
            subnets = _call(client, "DescribeSubnets", {"SubnetIds": [parameters["SubnetId"]]})
            vpc = subnets["Subnets"][0]["VpcId"]
        wide = ipaddress.ip_network(block, strict=False)
        wide = wide.supernet(new_prefix=min(wide.prefixlen, 56))
        own = {"VpcId": vpc, "Ipv6CidrBlock": str(wide), "Ipv6Pool": "ipv6pool-ec2-test"}
        _call(client, "AssociateVpcCidrBlock", own)
        _changed.add(_test())
    if name == "CreateVpc" and block:
        parameters.setdefault("Ipv6Pool", "ipv6pool-ec2-test")
    if name == "ModifySubnetAttribute" and "AssignIpv6AddressOnCreation" in parameters:
        found = _subnet_of(client, parameters)
        if not found["Ipv6CidrBlockAssociationSet"]:
            own = {"VpcId": found["VpcId"], "AmazonProvidedIpv6CidrBlock": True}
            made = _call(client, "AssociateVpcCidrBlock", own)["Ipv6CidrBlockAssociation"]
            wide = ipaddress.ip_network(made["Ipv6CidrBlock"])
            own = {"SubnetId": found["SubnetId"]}
            own["Ipv6CidrBlock"] = str(next(wide.subnets(new_prefix=64)))
            _call(client, "AssociateSubnetCidrBlock", own)
            _changed.add(_test())
    if name in ("CreateRoute", "ReplaceRoute", "AssociateRouteTable"):
        _prepare_route(client, parameters)
    if name == "CreateNatGateway" and parameters.get("ConnectivityType", "public") == "public":
        subnets = _call(client, "DescribeSubnets", {"SubnetIds": [parameters["SubnetId"]]})
        _attach(client, subnets["Subnets"][0]["VpcId"])
    if name == "AssociateAddress":
        if "NetworkInterfaceId" in parameters:
            query = {"NetworkInterfaceIds": [parameters["NetworkInterfaceId"]]}
        else:
            filters = [{"Name": "attachment.instance-id", "Values": [parameters["InstanceId"]]}]
            query = {"Filters": filters}
        interfaces = _call(client, "DescribeNetworkInterfaces", query)
        _attach(client, interfaces["NetworkInterfaces"][0]["VpcId"])
    _prepare_groups(client, name, parameters)
    _prepare_ends(client, name, parameters)
    _prepare_around(client, name, parameters)


def _without_default_groups(answer):
    """Leaves the default groups of VPCs out that the plugin has made for invented names."""
    made = set(_aliases.values())
    known = lambda group: group["GroupName"] != "default" or group.get("VpcId") not in made
    answer["SecurityGroups"] = [group for group in answer["SecurityGroups"] if known(group)]


def _prepared_call(client, name, parameters):
    if client.meta.service_model.service_name != "ec2":
        return _call(client, name, parameters)
    _test()
    for step in (_invent, _prepare):
        try:
            if step is _invent or not parameters.get("DryRun"):
                step(client, name, parameters)
        except Exception:  # The test's own request fails then, with the error that it shows.
            pass
        if step is _invent:
            real = _replaced(parameters, _aliases)
            if real != parameters:
                _changed.add(_test())
            parameters = real
    answer = _call(client, name, parameters)
    if name == "DescribeSecurityGroups":
        _without_default_groups(answer)
    return _replaced(answer, {real: invented for invented, real in _aliases.items()})


botocore.client.BaseClient._make_api_call = _prepared_call
