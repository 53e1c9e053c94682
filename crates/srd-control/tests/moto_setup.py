"""A plugin of pytest for moto's own tests, run against `srd control up --trial --any-credentials`.

Moto accepts preparations that EC2 refuses: a subnet with an IPv6 block that its VPC does not have, a
route to an internet gateway that is not attached, identifiers of objects that do not exist. This
plugin makes such preparations valid before the request is sent, so that the test reaches the
behaviour that it is about:

* It makes missing objects, and attaches gateways.
* If a test invents the name of an object, or uses a name of another region, the plugin sends the
  name of an object that exists, and puts the invented name back into the answers.

Use: `python -m pytest -p moto_setup`, with this folder in PYTHONPATH. If MOTO_PREPARED names a file,
the plugin writes the names of the tests there whose requests it has changed.
"""

import ipaddress
import json
import os
import re

import botocore.client

_call = botocore.client.BaseClient._make_api_call
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
    here = client.meta.region_name
    zones = [zone["ZoneName"] for zone in _call(client, "DescribeAvailabilityZones", {})["AvailabilityZones"]]
    if found and name not in zones:
        wanted = here + (found.group(1) or "a")
        _aliases[name] = wanted if wanted in zones else zones[0]


def _zones(client, value):
    """Looks for zones of other regions in the parameters of a request."""
    if isinstance(value, dict):
        for key, part in value.items():
            if key == "AvailabilityZone" and isinstance(part, str):
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


def _invent(client, name, parameters):
    """Gives invented names the names of objects that exist."""
    _zones(client, parameters)
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
        service = parameters.get("ServiceName", "")
        here = client.meta.region_name
        parts = service.split(".")
        if service.startswith("com.amazonaws.") and parts[2] not in (here, "vpce"):
            _aliases[service] = ".".join(["com.amazonaws", here, *parts[3:]])
        elif service.startswith("com.tester."):
            _aliases[service] = f"com.amazonaws.{here}.ec2"
    block = parameters.get("DestinationCidrBlock", "")
    if name == "CreateTransitGatewayRoute" and "/" not in block:
        _aliases[block] = "0.0.0.0/0" if block == "0.0.0.0" else f"{block}/32"


def _retag(parameters, wrong, right):
    """Corrects the type of the resource in tags."""
    for specification in parameters.get("TagSpecifications", []):
        if specification.get("ResourceType") == wrong:
            specification["ResourceType"] = right
            _changed.add(_test())


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
    if name == "CreateVpcEndpoint" and parameters.get("RouteTableIds"):
        filters = [{"Name": "service-name", "Values": [parameters["ServiceName"]]}]
        used = _call(client, "DescribeVpcEndpoints", {"Filters": filters})["VpcEndpoints"]
        used = {table for endpoint in used for table in endpoint["RouteTableIds"]}
        for at, table in enumerate(parameters["RouteTableIds"]):
            if table in used:
                made = _call(client, "CreateRouteTable", {"VpcId": parameters["VpcId"]})
                parameters["RouteTableIds"][at] = made["RouteTable"]["RouteTableId"]
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
    if name == "CreateManagedPrefixList" and parameters.get("AddressFamily") == "?":
        parameters["AddressFamily"] = "IPv4"
        _changed.add(_test())
    gateway = parameters.get("GatewayId", "")
    if name in ("CreateRoute", "ReplaceRoute", "AssociateRouteTable") and gateway.startswith("igw-"):
        tables = _call(client, "DescribeRouteTables", {"RouteTableIds": [parameters["RouteTableId"]]})
        _attach(client, tables["RouteTables"][0]["VpcId"], gateway)
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
    _prepare_around(client, name, parameters)


def _prepared_call(client, name, parameters):
    if client.meta.service_model.service_name != "ec2":
        return _call(client, name, parameters)
    _test()
    if not parameters.get("DryRun"):
        for step in (_invent, _prepare):
            try:
                step(client, name, parameters)
            except Exception:  # The test's own request fails then, with the error that it shows.
                pass
            if step is _invent:
                real = _replaced(parameters, _aliases)
                if real != parameters:
                    _changed.add(_test())
                parameters = real
    answer = _call(client, name, parameters)
    return _replaced(answer, {real: invented for invented, real in _aliases.items()})


botocore.client.BaseClient._make_api_call = _prepared_call
