"""A plugin of pytest for moto's own tests, run against `srd control up --trial --any-credentials`.

Moto accepts preparations that EC2 refuses: a subnet with an IPv6 block that its VPC does not have, a
route to an internet gateway that is not attached, a public NAT gateway in a VPC without internet
gateway, a prefix list of the family "?". This plugin makes such preparations valid before the request is sent, so that the test
reaches the behaviour that it is about. Use: `python -m pytest -p moto_setup`, with this folder in
PYTHONPATH.
"""

import ipaddress

import botocore.client

_call = botocore.client.BaseClient._make_api_call


def _attach(client, vpc, gateway=None):
    """Attaches an internet gateway to the VPC, unless it has one."""
    filters = [{"Name": "attachment.vpc-id", "Values": [vpc]}]
    if _call(client, "DescribeInternetGateways", {"Filters": filters})["InternetGateways"]:
        return
    if gateway is None:
        gateway = _call(client, "CreateInternetGateway", {})["InternetGateway"]["InternetGatewayId"]
    _call(client, "AttachInternetGateway", {"InternetGatewayId": gateway, "VpcId": vpc})


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
    if name == "CreateVpc" and block:
        parameters.setdefault("Ipv6Pool", "ipv6pool-ec2-test")
    if name == "CreateManagedPrefixList" and parameters.get("AddressFamily") == "?":
        parameters["AddressFamily"] = "IPv4"
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


def _prepared_call(client, name, parameters):
    if client.meta.service_model.service_name == "ec2" and not parameters.get("DryRun"):
        try:
            _prepare(client, name, parameters)
        except Exception:  # The test's own request fails then, with the error that it shows.
            pass
    return _call(client, name, parameters)


botocore.client.BaseClient._make_api_call = _prepared_call
