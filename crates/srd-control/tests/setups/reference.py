"""The verdict on a connection, computed from the answers of Describe actions.

It follows the documentation of Amazon VPC: the rules of security groups, network ACLs, route
tables, peering connections and internet gateways. It shares no code with the model of the card.
"""

import ipaddress
from dataclasses import dataclass, replace

NUMBERS = {"icmp": 1, "tcp": 6, "udp": 17, "icmpv6": 58}
NAMES = {str(number): name for name, number in NUMBERS.items()}


class Dropped(Exception):
    """A packet is dropped; the text is the reason."""


@dataclass(frozen=True)
class Packet:
    """The fields that rules compare. `ports`: source and destination; type and code of ICMP."""

    source: object
    destination: object
    protocol: str
    ports: tuple

    def answer(self):
        """The answer of the receiver."""
        if self.protocol in ("icmp", "icmpv6"):
            ports = ({8: 0, 128: 129}[self.ports[0]], self.ports[1])
        else:
            ports = self.ports[::-1]
        return replace(self, source=self.destination, destination=self.source, ports=ports)

    def port_unreachable(self):
        """The ICMP error of a receiver that has no socket for a datagram."""
        protocol, ports = ("icmp", (3, 3)) if self.source.version == 4 else ("icmpv6", (1, 4))
        return Packet(self.destination, self.source, protocol, ports)


@dataclass(frozen=True)
class Arrival:
    """The interface at which a packet arrives, and the packet with the addresses that it has."""

    interface: str
    packet: Packet


@dataclass(frozen=True)
class Verdict:
    """The verdict on a connection.

    `answered`: the first packet and its answer arrive. `error`: an ICMP error of the receiver
    arrives. `tracked`: whether the two interfaces track the flow.
    """

    arrival: Arrival | None
    answered: bool
    error: bool
    reason: str
    tracked: tuple = (True, True)


def block(text):
    return ipaddress.ip_network(text, strict=False)


def contains(text, address):
    of = block(text)
    return of.version == address.version and address in of


class Region:
    """The answers of the Describe actions of a region."""

    def __init__(self, ec2):
        def all_of(name, key, **parameters):
            return ec2.get_paginator(name).paginate(**parameters).build_full_result()[key]

        self.vpcs = {v["VpcId"]: v for v in all_of("describe_vpcs", "Vpcs")}
        self.subnets = {s["SubnetId"]: s for s in all_of("describe_subnets", "Subnets")}
        self.tables = all_of("describe_route_tables", "RouteTables")
        self.acls = all_of("describe_network_acls", "NetworkAcls")
        groups = all_of("describe_security_groups", "SecurityGroups")
        self.groups = {g["GroupId"]: g for g in groups}
        interfaces = all_of("describe_network_interfaces", "NetworkInterfaces")
        self.interfaces = {i["NetworkInterfaceId"]: i for i in interfaces}
        self.addresses = ec2.describe_addresses()["Addresses"]
        self.gateways = all_of("describe_internet_gateways", "InternetGateways")
        peerings = all_of("describe_vpc_peering_connections", "VpcPeeringConnections")
        self.peerings = {p["VpcPeeringConnectionId"]: p for p in peerings}
        lists = all_of("describe_managed_prefix_lists", "PrefixLists")
        self.lists = {}
        for one in (one["PrefixListId"] for one in lists):
            entries = all_of("get_managed_prefix_list_entries", "Entries", PrefixListId=one)
            self.lists[one] = [entry["Cidr"] for entry in entries]
        self.index()

    def index(self):
        """Builds the look-ups by subnet and by address."""
        self.acl_of = {
            a["SubnetId"]: acl for acl in self.acls for a in acl["Associations"]
        }
        self.table_of, main = {}, {}
        for table in self.tables:
            for association in table["Associations"]:
                if association["Main"]:
                    main[table["VpcId"]] = table
                elif "SubnetId" in association:
                    self.table_of[association["SubnetId"]] = table
        for subnet in self.subnets.values():
            self.table_of.setdefault(subnet["SubnetId"], main[subnet["VpcId"]])
        self.at = {}
        for id, interface in self.interfaces.items():
            for address in self.addresses_of(interface):
                self.at[interface["VpcId"], address] = id

    @staticmethod
    def addresses_of(interface):
        texts = [a["PrivateIpAddress"] for a in interface["PrivateIpAddresses"]]
        texts += [a["Ipv6Address"] for a in interface["Ipv6Addresses"]]
        return [ipaddress.ip_address(text) for text in texts]

    def has(self, vpc, address):
        """Whether an address is in the blocks of a VPC."""
        vpc = self.vpcs[vpc]
        blocks = [
            a["CidrBlock"]
            for a in vpc["CidrBlockAssociationSet"]
            if a["CidrBlockState"]["State"] == "associated"
        ]
        blocks += [
            a["Ipv6CidrBlock"]
            for a in vpc.get("Ipv6CidrBlockAssociationSet", [])
            if a["Ipv6CidrBlockState"]["State"] == "associated"
        ]
        return any(contains(one, address) for one in blocks)

    def public(self, interface, private):
        """The public address of a private address of an interface."""
        for one in self.interfaces[interface]["PrivateIpAddresses"]:
            if one["PrivateIpAddress"] == str(private) and "Association" in one:
                return ipaddress.ip_address(one["Association"]["PublicIp"])
        return None

    def owner_of_public(self, public):
        """The interface and the private address of a public address."""
        for id, interface in self.interfaces.items():
            for one in interface["PrivateIpAddresses"]:
                if one.get("Association", {}).get("PublicIp") == str(public):
                    return id, ipaddress.ip_address(one["PrivateIpAddress"])
        return None

    def attached(self, vpc):
        """The internet gateway of a VPC."""
        for gateway in self.gateways:
            if any(a["VpcId"] == vpc for a in gateway["Attachments"]):
                return gateway["InternetGatewayId"]
        return None

    def peer(self, id, vpc):
        """The other VPC of an active peering connection of a VPC."""
        peering = self.peerings.get(id)
        if peering is None or peering["Status"]["Code"] != "active":
            return None
        ends = [peering[side]["VpcId"] for side in ("RequesterVpcInfo", "AccepterVpcInfo")]
        return {ends[0]: ends[1], ends[1]: ends[0]}.get(vpc)

    # Security groups

    def allows(self, interface, is_egress, packet):
        """Whether the groups of an interface allow a packet."""
        return any(
            is_traffic(rule, packet) and self.is_other(rule, interface, is_egress, packet)
            for rule in self.rules(interface, is_egress)
        )

    def rules(self, interface, is_egress):
        key = "IpPermissionsEgress" if is_egress else "IpPermissions"
        for group in self.interfaces[interface]["Groups"]:
            yield from self.groups[group["GroupId"]][key]

    def is_other(self, rule, interface, is_egress, packet):
        """Whether the other end of a packet is one of a rule."""
        other = packet.destination if is_egress else packet.source
        blocks = [r["CidrIp"] for r in rule["IpRanges"]]
        blocks += [r["CidrIpv6"] for r in rule["Ipv6Ranges"]]
        for one in rule["PrefixListIds"]:
            blocks += self.lists[one["PrefixListId"]]
        if any(contains(one, other) for one in blocks):
            return True
        vpc = self.interfaces[interface]["VpcId"]
        return any(self.is_member(p["GroupId"], vpc, other) for p in rule["UserIdGroupPairs"])

    def is_member(self, group, vpc, address):
        """Whether an address belongs to a member of a group that a VPC can name."""
        if group not in self.groups:
            return False
        of = self.groups[group]["VpcId"]
        if of != vpc and not any(self.peer(one, vpc) == of for one in self.peerings):
            return False
        return any(
            group in [g["GroupId"] for g in interface["Groups"]]
            and address in self.addresses_of(interface)
            for interface in self.interfaces.values()
        )

    def tracks(self, interface, is_egress, packet):
        """Whether an interface tracks the flow that this packet opens."""
        if packet.protocol in ("icmp", "icmpv6"):
            return True
        key, everywhere = (
            ("IpRanges", "0.0.0.0/0") if packet.source.version == 4 else ("Ipv6Ranges", "::/0")
        )

        def is_open(rule):
            return any(r.get("CidrIp", r.get("CidrIpv6")) == everywhere for r in rule[key])

        there = any(
            is_open(rule) and is_traffic(rule, packet) for rule in self.rules(interface, is_egress)
        )
        back = any(
            is_open(rule) and is_all_of(rule, packet.protocol)
            for rule in self.rules(interface, not is_egress)
        )
        return not (there and back)

    # Network ACLs and routes

    def check_acl(self, subnet, is_egress, packet):
        other = packet.destination if is_egress else packet.source
        entries = [e for e in self.acl_of[subnet]["Entries"] if e["Egress"] == is_egress]
        for entry in sorted(entries, key=lambda entry: entry["RuleNumber"]):
            cidr = entry.get("CidrBlock") or entry.get("Ipv6CidrBlock")
            if contains(cidr, other) and is_entry(entry, packet):
                if entry["RuleAction"] == "allow":
                    return
                break
        direction = "out of" if is_egress else "into"
        raise Dropped(f"the ACL denies it {direction} {subnet}")

    def route(self, subnet, destination):
        """The route of a subnet to an address: the longest prefix; before lists, single blocks."""
        found = []
        for route in self.table_of[subnet]["Routes"]:
            one = route.get("DestinationCidrBlock") or route.get("DestinationIpv6CidrBlock")
            blocks = [one] if one else self.lists[route["DestinationPrefixListId"]]
            for cidr in blocks:
                if contains(cidr, destination):
                    found.append(((block(cidr).prefixlen, bool(one)), route))
        if not found:
            raise Dropped("no route")
        route = max(found, key=lambda rank_and_route: rank_and_route[0])[1]
        if route["State"] == "blackhole":
            raise Dropped("the route is a blackhole")
        return route

    # The path of a packet

    def send(self, sender, packet, groups=(True, True)):
        """Follows a packet that an interface sends. `groups`: at which ends groups are compared."""
        interface = self.interfaces[sender]
        vpc, subnet = interface["VpcId"], interface["SubnetId"]
        if groups[0] and not self.allows(sender, True, packet):
            raise Dropped(f"no rule of {sender} allows it to leave")
        near = self.at.get((vpc, packet.destination))
        if near and self.interfaces[near]["SubnetId"] == subnet:
            return self.arrive(near, packet, groups)
        self.check_acl(subnet, True, packet)
        route = self.route(subnet, packet.destination)
        gateway = route.get("GatewayId", "")
        if gateway == "local":
            return self.deliver(vpc, subnet, packet, groups)
        if "VpcPeeringConnectionId" in route:
            other = self.peer(route["VpcPeeringConnectionId"], vpc)
            if other is None:
                raise Dropped("the peering connection is not active")
            return self.deliver(other, subnet, packet, groups)
        if gateway.startswith("igw-"):
            return self.through_internet(sender, packet, gateway, groups)
        if "NetworkInterfaceId" in route:
            # The source and destination check of all interfaces is on.
            target = route["NetworkInterfaceId"]
            if packet.destination not in self.addresses_of(self.interfaces[target]):
                raise Dropped("the interface of the route accepts its own addresses only")
            return self.enter(subnet, target, packet, groups)
        raise Dropped("the target of the route leads to no instance")

    def deliver(self, vpc, subnet, packet, groups):
        to = self.at.get((vpc, packet.destination))
        if to is None:
            raise Dropped(f"no interface of {vpc} has the address")
        return self.enter(subnet, to, packet, groups)

    def enter(self, subnet, to, packet, groups):
        if self.interfaces[to]["SubnetId"] != subnet:
            self.check_acl(self.interfaces[to]["SubnetId"], False, packet)
        return self.arrive(to, packet, groups)

    def arrive(self, to, packet, groups):
        if groups[1] and not self.allows(to, False, packet):
            raise Dropped(f"no rule of {to} allows it to arrive")
        return Arrival(to, packet)

    def through_internet(self, sender, packet, gateway, groups):
        vpc = self.interfaces[sender]["VpcId"]
        if self.attached(vpc) != gateway:
            raise Dropped("the internet gateway is not attached")
        if packet.source.version == 6:
            # docs/card.md: IPv6 through gateways is not supported.
            raise Dropped("IPv6 does not pass internet gateways")
        public = self.public(sender, packet.source)
        if public is None:
            raise Dropped("the sender has no public address")
        packet = replace(packet, source=public)
        found = self.owner_of_public(packet.destination)
        if found is None:
            raise Dropped("no instance has the public address")
        to, private = found
        if self.attached(self.interfaces[to]["VpcId"]) is None:
            raise Dropped("the VPC of the receiver has no internet gateway")
        packet = replace(packet, destination=private)
        self.check_acl(self.interfaces[to]["SubnetId"], False, packet)
        return self.arrive(to, packet, groups)

    # Connections

    def connection(self, sender, packet):
        """The verdict on a new connection."""
        try:
            arrival = self.send(sender, packet)
        except Dropped as reason:
            return Verdict(None, False, False, f"request: {reason}")
        tracked = (
            self.tracks(sender, True, packet),
            self.tracks(arrival.interface, False, arrival.packet),
        )
        answered, reason = self.returns(sender, packet, arrival, arrival.packet.answer())
        error = False
        if packet.protocol == "udp":
            # An ICMP error passes the groups if the flow that it quotes is tracked.
            groups = (not tracked[1], not tracked[0])
            unreachable = arrival.packet.port_unreachable()
            error, why = self.returns(sender, packet, arrival, unreachable, groups)
            reason = reason or why
        return Verdict(arrival, answered, error, reason, tracked)

    def returns(self, sender, packet, arrival, back, groups=(False, False)):
        """Whether an answer arrives from the address to which the client has sent."""
        try:
            returned = self.send(arrival.interface, back, groups)
        except Dropped as reason:
            return False, f"answer: {reason}"
        ends = (returned.interface, returned.packet.source, returned.packet.destination)
        if ends != (sender, packet.destination, packet.source):
            return False, "answer: it comes from another address"
        return True, ""

    def continues(self, sender, packet, before):
        """The verdict on a flow that had the verdict `before`. The sender sends first.

        Returns None if a public address has moved, so that another instance gets the packets.
        """
        groups = (not before.tracked[0], not before.tracked[1])
        try:
            arrival = self.send(sender, packet, groups)
        except Dropped as reason:
            return Verdict(None, False, False, f"request: {reason}")
        if arrival != before.arrival:
            return None
        tracked = (
            before.tracked[0] or self.tracks(sender, True, packet),
            before.tracked[1] or self.tracks(arrival.interface, False, arrival.packet),
        )
        answered, reason = self.returns(sender, packet, arrival, arrival.packet.answer())
        return Verdict(arrival, answered, False, reason, tracked)


def is_traffic(rule, packet):
    """Whether a packet has the protocol, and the ports or the type, of a group's rule."""
    protocol = rule["IpProtocol"]
    if protocol == "-1":
        return True
    if NAMES.get(protocol, protocol) != packet.protocol:
        return False
    first, last = rule.get("FromPort", -1), rule.get("ToPort", -1)
    if packet.protocol in ("icmp", "icmpv6"):
        return first in (-1, packet.ports[0]) and (first == -1 or last in (-1, packet.ports[1]))
    return first == -1 or first <= packet.ports[1] <= last


def is_all_of(rule, protocol):
    """Whether a group's rule is for all ports of a protocol."""
    of = rule["IpProtocol"]
    ports = (rule.get("FromPort", -1), rule.get("ToPort", -1))
    return of == "-1" or NAMES.get(of, of) == protocol and ports in ((-1, -1), (0, 65535))


def is_entry(entry, packet):
    """Whether a packet has the protocol, and the ports or the type, of an ACL's entry."""
    if entry["Protocol"] == "-1":
        return True
    if NAMES.get(entry["Protocol"]) != packet.protocol:
        return False
    if packet.protocol in ("icmp", "icmpv6"):
        of = entry.get("IcmpTypeCode", {"Type": -1, "Code": -1})
        return of["Type"] in (-1, packet.ports[0]) and of["Code"] in (-1, packet.ports[1])
    ports = entry.get("PortRange")
    return ports is None or ports["From"] <= packet.ports[1] <= ports["To"]
