"""A random cloud, made by calls of the EC2 API, and random changes of it while it runs."""

import ipaddress

from botocore.exceptions import ClientError

# Ports on which rules and connections depend: neighbours, so that ends of ranges are tested.
PORTS = 5
# Errors of calls that a random cloud may cause: the rule or route exists already, or an object has
# the largest number of rules.
USUAL = {
    "InvalidPermission.Duplicate",
    "InvalidPermission.NotFound",
    "NetworkAclEntryAlreadyExists",
    "RouteAlreadyExists",
    "RulesPerSecurityGroupLimitExceeded",
    "NetworkAclEntryLimitExceeded",
}


class Cloud:
    """The objects of a set-up in the order in which they were made."""

    def __init__(self, ec2, dice):
        self.ec2, self.dice = ec2, dice
        self.calls = []
        self.vpcs, self.subnets, self.tables, self.acls = [], [], [], []
        self.groups, self.lists, self.peerings, self.instances = [], [], [], []
        self.allocations = []
        base = dice.randint(1, 32000)
        self.ports = [base + n for n in range(PORTS)]

    def call(self, name, **parameters):
        """Calls an action. Returns None if it is refused for a usual reason."""
        shown = ", ".join(f"{key}={value!r}" for key, value in parameters.items())
        self.calls.append(f"{name}({shown})")
        try:
            return getattr(self.ec2, name)(**parameters)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            self.calls[-1] += f"  # {code}"
            if code not in USUAL:
                raise
            return None

    def chance(self, probability):
        return self.dice.random() < probability

    # The set-up

    def make(self):
        for n in range(self.dice.choice([1, 2, 2, 3])):
            self.vpc(n)
        self.prefix_lists()
        self.peer()
        for vpc in self.vpcs:
            self.gateways(vpc)
            for _ in range(self.dice.randint(1, 3)):
                self.subnet(vpc)
        for vpc in self.vpcs:
            self.security_groups(vpc)
        for group in self.groups:
            self.group_rules(group)
        for table in self.tables:
            self.routes(table)
        self.run()
        for table in self.tables:
            if self.chance(0.1):
                self.interface_route(table)

    def vpc(self, n):
        own = {"CidrBlock": f"10.{n}.0.0/16", "AmazonProvidedIpv6CidrBlock": self.chance(0.7)}
        id = self.call("create_vpc", **own)["Vpc"]["VpcId"]
        blocks = [own["CidrBlock"]]
        if self.chance(0.3):
            blocks.append(f"10.{100 + n}.0.0/20")
            self.call("associate_vpc_cidr_block", VpcId=id, CidrBlock=blocks[1])
        described = self.ec2.describe_vpcs(VpcIds=[id])["Vpcs"][0]
        ipv6 = [a["Ipv6CidrBlock"] for a in described.get("Ipv6CidrBlockAssociationSet", [])]
        vpc = {"id": id, "n": n, "blocks": blocks, "ipv6": ipv6, "gateway": None, "egress": None}
        self.vpcs.append(vpc)
        of_vpc = [{"Name": "vpc-id", "Values": [id]}]
        table = self.ec2.describe_route_tables(Filters=of_vpc)["RouteTables"][0]
        self.tables.append({"id": table["RouteTableId"], "vpc": vpc})
        acl = self.ec2.describe_network_acls(Filters=of_vpc)["NetworkAcls"][0]
        self.acls.append({"id": acl["NetworkAclId"], "vpc": vpc})
        group = self.ec2.describe_security_groups(Filters=of_vpc)["SecurityGroups"][0]
        self.groups.append({"id": group["GroupId"], "vpc": vpc})

    def prefix_lists(self):
        for version in (4, 4, 6):
            blocks = {self.some_block(version) for _ in range(self.dice.randint(1, 3))}
            made = self.call(
                "create_managed_prefix_list",
                PrefixListName="list",
                AddressFamily=f"IPv{version}",
                MaxEntries=5,
                Entries=[{"Cidr": cidr} for cidr in sorted(blocks)],
            )
            id = made["PrefixList"]["PrefixListId"]
            self.lists.append({"id": id, "version": version})

    def peer(self):
        for at, one in enumerate(self.vpcs):
            for other in self.vpcs[at + 1 :]:
                if self.chance(0.85):
                    ends = {"VpcId": one["id"], "PeerVpcId": other["id"]}
                    made = self.call("create_vpc_peering_connection", **ends)
                    id = made["VpcPeeringConnection"]["VpcPeeringConnectionId"]
                    is_active = self.chance(0.85)
                    self.peerings.append({"id": id, "ends": (one, other), "active": is_active})
                    if is_active:
                        self.accept(id)

    def accept(self, id):
        self.call("accept_vpc_peering_connection", VpcPeeringConnectionId=id)

    def gateways(self, vpc):
        if self.chance(0.7):
            made = self.call("create_internet_gateway")
            id = made["InternetGateway"]["InternetGatewayId"]
            self.call("attach_internet_gateway", InternetGatewayId=id, VpcId=vpc["id"])
            vpc["gateway"] = id
        if self.chance(0.2):
            made = self.call("create_egress_only_internet_gateway", VpcId=vpc["id"])
            gateway = made["EgressOnlyInternetGateway"]
            vpc["egress"] = gateway["EgressOnlyInternetGatewayId"]

    def subnet(self, vpc):
        n = sum(subnet["vpc"] is vpc for subnet in self.subnets)
        within = ipaddress.ip_network(self.dice.choice(vpc["blocks"]))
        cidr = str(ipaddress.ip_network((int(within.network_address) + n * 256, 24)))
        own = {"VpcId": vpc["id"], "CidrBlock": cidr}
        has_ipv6 = bool(vpc["ipv6"]) and self.chance(0.85)
        if has_ipv6:
            start = int(ipaddress.ip_network(vpc["ipv6"][0]).network_address)
            own["Ipv6CidrBlock"] = str(ipaddress.ip_network((start + (n << 64), 64)))
        made = self.call("create_subnet", **own)["Subnet"]
        subnet = {"id": made["SubnetId"], "vpc": vpc, "cidr": cidr, "ipv6": has_ipv6}
        self.subnets.append(subnet)
        if self.chance(0.5):
            made = self.call("create_route_table", VpcId=vpc["id"])["RouteTable"]
            self.tables.append({"id": made["RouteTableId"], "vpc": vpc})
            of = {"RouteTableId": made["RouteTableId"], "SubnetId": subnet["id"]}
            self.call("associate_route_table", **of)
        if self.chance(0.5):
            made = self.call("create_network_acl", VpcId=vpc["id"])["NetworkAcl"]
            acl = {"id": made["NetworkAclId"], "vpc": vpc}
            self.acls.append(acl)
            self.acl_entries(acl)
            self.associate_acl(subnet, acl)

    def associate_acl(self, subnet, acl):
        of_subnet = [{"Name": "association.subnet-id", "Values": [subnet["id"]]}]
        found = self.ec2.describe_network_acls(Filters=of_subnet)["NetworkAcls"][0]
        for association in found["Associations"]:
            if association["SubnetId"] == subnet["id"]:
                old = association["NetworkAclAssociationId"]
        of = {"AssociationId": old, "NetworkAclId": acl["id"]}
        self.call("replace_network_acl_association", **of)

    def acl_entries(self, acl):
        for egress in (False, True):
            for number in self.dice.sample(range(1, 90), self.dice.randint(0, 4)):
                self.acl_entry(acl, egress, number, self.dice.choice(["allow", "deny"]))
            for number, everywhere in ((200, "0.0.0.0/0"), (201, "::/0")):
                if self.chance(0.93):
                    key = "CidrBlock" if number == 200 else "Ipv6CidrBlock"
                    own = {"NetworkAclId": acl["id"], "Egress": egress, "RuleNumber": number}
                    own |= {"RuleAction": "allow", "Protocol": "-1", key: everywhere}
                    self.call("create_network_acl_entry", **own)

    def acl_entry(self, acl, egress, number, action, name="create_network_acl_entry"):
        version = self.dice.choice([4, 4, 6])
        own = {"NetworkAclId": acl["id"], "Egress": egress, "RuleNumber": number}
        own["RuleAction"] = action
        own["CidrBlock" if version == 4 else "Ipv6CidrBlock"] = self.some_block(version)
        protocol = self.dice.choice(["-1", "6", "6", "17", "17", "1" if version == 4 else "58"])
        own["Protocol"] = protocol
        if protocol in ("6", "17"):
            first, last = self.dice.choice(
                [self.some_range(), (0, 65535), (1024, 65535), (32768, 48000), (48001, 60999)]
            )
            own["PortRange"] = {"From": first, "To": last}
        elif protocol != "-1":
            # Echo requests, their answers, or errors about ports without a socket.
            kinds = [-1, 8, 0, 3] if version == 4 else [-1, 128, 129, 1]
            own["IcmpTypeCode"] = {"Type": self.dice.choice(kinds), "Code": -1}
        self.call(name, **own)

    def security_groups(self, vpc):
        for n in range(self.dice.randint(1, 3)):
            own = {"VpcId": vpc["id"], "GroupName": f"group-{n}", "Description": "a group"}
            id = self.call("create_security_group", **own)["GroupId"]
            self.groups.append({"id": id, "vpc": vpc})
            if self.chance(0.3):
                everything = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
                own = {"GroupId": id, "IpPermissions": everything}
                self.call("revoke_security_group_egress", **own)
            elif vpc["ipv6"] and self.chance(0.8):
                everything = [{"IpProtocol": "-1", "Ipv6Ranges": [{"CidrIpv6": "::/0"}]}]
                own = {"GroupId": id, "IpPermissions": everything}
                self.call("authorize_security_group_egress", **own)

    def group_rules(self, group):
        for direction in ("ingress", "ingress", "egress"):
            for _ in range(self.dice.randint(0, 3)):
                self.group_rule(group, direction)
        # Without broad rules, few connections would pass the groups of both ends.
        if self.chance(0.6):
            protocol = self.dice.choice(["-1", "tcp", "udp"])
            rule = {"IpProtocol": protocol, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
            rule["Ipv6Ranges"] = [{"CidrIpv6": "::/0"}]
            if protocol != "-1":
                rule |= {"FromPort": 0, "ToPort": 65535}
            own = {"GroupId": group["id"], "IpPermissions": [rule]}
            self.call("authorize_security_group_ingress", **own)

    def group_rule(self, group, direction, verb="authorize"):
        kind = self.dice.choice(["block", "block", "list", "group", "group"])
        version = self.dice.choice([4, 4, 6])
        echo = ["icmp", "icmpv6"][version == 6]
        protocol = self.dice.choice(["-1", "tcp", "tcp", "udp", "udp", echo])
        rule = {"IpProtocol": protocol}
        if protocol in ("tcp", "udp"):
            first, last = self.dice.choice([self.some_range(), self.some_range(), (0, 65535)])
            rule |= {"FromPort": first, "ToPort": last}
        elif protocol != "-1":
            request = [8, 128][version == 6]
            error = [3, 1][version == 6]
            first, last = self.dice.choice([(-1, -1), (request, -1), (request, 0), (error, -1)])
            rule |= {"FromPort": first, "ToPort": last}
        if kind == "block" and version == 4:
            rule["IpRanges"] = [{"CidrIp": self.some_block(4)}]
        elif kind == "block":
            rule["Ipv6Ranges"] = [{"CidrIpv6": self.some_block(6)}]
        elif kind == "list":
            lists = [one for one in self.lists if one["version"] == version]
            rule["PrefixListIds"] = [{"PrefixListId": self.dice.choice(lists)["id"]}]
        else:
            named = [other for other in self.groups if self.can_name(group, other)]
            rule["UserIdGroupPairs"] = [{"GroupId": self.dice.choice(named)["id"]}]
        self.call(f"{verb}_security_group_{direction}", GroupId=group["id"], IpPermissions=[rule])

    def can_name(self, group, other):
        """Whether a rule of a group can name another group."""
        vpcs = (group["vpc"], other["vpc"])
        if vpcs[0] is vpcs[1]:
            return True
        return any(p["active"] and all(v in p["ends"] for v in vpcs) for p in self.peerings)

    def some_range(self):
        first, last = sorted(self.dice.choices(self.ports, k=2))
        return first, last

    def some_block(self, version):
        """A block that contains addresses of the cloud, or all addresses."""
        if self.chance(0.25):
            return "0.0.0.0/0" if version == 4 else "::/0"
        vpc = self.dice.choice(self.vpcs)
        if version == 6:
            if not vpc["ipv6"]:
                return "2001:db8::/32"
            start = int(ipaddress.ip_network(vpc["ipv6"][0]).network_address)
            n, length = self.dice.randrange(3), self.dice.choice([56, 64, 64, 127])
            return str(ipaddress.ip_network((start + (n << 64), length), strict=False))
        within = self.dice.choice(vpc["blocks"] + ["198.18.0.0/15"] * bool(vpc["gateway"]))
        if within.startswith("198."):
            return within
        start = int(ipaddress.ip_network(within).network_address)
        length = self.dice.choice([16, 24, 24, 25, 29])
        start += 256 * self.dice.randrange(3) + self.dice.randrange(16)
        return str(ipaddress.ip_network((start, length), strict=False))

    def routes(self, table):
        vpc = table["vpc"]
        for peering in self.peerings:
            if vpc in peering["ends"]:
                other = peering["ends"][peering["ends"][0] is vpc]
                self.peer_routes(table, peering, other)
        id = {"RouteTableId": table["id"]}
        if vpc["gateway"] and self.chance(0.8):
            own = {"DestinationCidrBlock": "0.0.0.0/0", "GatewayId": vpc["gateway"]}
            self.call("create_route", **id, **own)
        if vpc["egress"] and self.chance(0.5):
            own = {"DestinationIpv6CidrBlock": "::/0"}
            own["EgressOnlyInternetGatewayId"] = vpc["egress"]
            self.call("create_route", **id, **own)
        elif vpc["gateway"] and vpc["ipv6"] and self.chance(0.3):
            own = {"DestinationIpv6CidrBlock": "::/0", "GatewayId": vpc["gateway"]}
            self.call("create_route", **id, **own)

    def peer_routes(self, table, peering, other):
        own = {"RouteTableId": table["id"], "VpcPeeringConnectionId": peering["id"]}
        for cidr in other["blocks"]:
            if self.chance(0.92):
                if self.chance(0.2):
                    cidr = cidr.rsplit(".", 1)[0] + ".0/24"  # the first subnet only
                self.call("create_route", **own, DestinationCidrBlock=cidr)
        for cidr in other["ipv6"]:
            if self.chance(0.85):
                self.call("create_route", **own, DestinationIpv6CidrBlock=cidr)

    def interface_route(self, table):
        """Sends the packets for a subnet of the VPC to an interface."""
        subnets = [subnet for subnet in self.subnets if subnet["vpc"] is table["vpc"]]
        own = [one for one in self.instances if one["subnet"]["vpc"] is table["vpc"]]
        if own:
            target = self.dice.choice(own)["interface"]
            of = {"RouteTableId": table["id"], "NetworkInterfaceId": target}
            cidr = self.dice.choice(subnets)["cidr"]
            self.call("create_route", **of, DestinationCidrBlock=cidr)

    def run(self):
        for n in range(self.dice.randint(3, 5)):
            subnet = self.dice.choice(self.subnets)
            groups = self.some_groups(subnet["vpc"])
            own = {"SubnetId": subnet["id"], "Groups": groups}
            if subnet["ipv6"]:
                own["Ipv6AddressCount"] = 1
            at = {"DeviceIndex": 0}
            if self.chance(0.5):
                made = self.call("create_network_interface", **own)["NetworkInterface"]
                at["NetworkInterfaceId"] = made["NetworkInterfaceId"]
            else:
                at |= own
                if self.chance(0.3):
                    at["AssociatePublicIpAddress"] = True
            launch = {"ImageId": "ami-12345678", "InstanceType": "c7i.large"}
            launch |= {"MinCount": 1, "MaxCount": 1, "NetworkInterfaces": [at]}
            made = self.call("run_instances", **launch)["Instances"][0]
            interface = made["NetworkInterfaces"][0]["NetworkInterfaceId"]
            one = {"id": made["InstanceId"], "interface": interface, "subnet": subnet, "n": n}
            self.instances.append(one)
            if subnet["vpc"]["gateway"] and self.chance(0.6) and "AssociatePublicIpAddress" not in at:
                made = self.call("allocate_address", Domain="vpc")
                self.allocations.append(made["AllocationId"])
                self.associate_address(made["AllocationId"], interface)

    def associate_address(self, allocation, interface):
        of = {"AllocationId": allocation, "NetworkInterfaceId": interface}
        self.call("associate_address", **of, AllowReassociation=True)

    def some_groups(self, vpc):
        groups = [group["id"] for group in self.groups if group["vpc"] is vpc]
        return self.dice.sample(groups, self.dice.randint(1, min(3, len(groups))))
