"""Random changes of a cloud while its instances run."""


def change(cloud):
    """Makes a few changes, each by one or two calls of the API."""
    for _ in range(cloud.dice.randint(2, 6)):
        cloud.dice.choice(CHANGES)(cloud)


def group_rule(cloud):
    direction = cloud.dice.choice(["ingress", "egress"])
    cloud.group_rule(cloud.dice.choice(cloud.groups), direction)


def revoke(cloud):
    """Revokes a rule by its identifier."""
    group = cloud.dice.choice(cloud.groups)["id"]
    of_group = [{"Name": "group-id", "Values": [group]}]
    rules = cloud.ec2.describe_security_group_rules(Filters=of_group)["SecurityGroupRules"]
    if rules:
        rule = cloud.dice.choice(rules)
        direction = "egress" if rule["IsEgress"] else "ingress"
        of = {"GroupId": group, "SecurityGroupRuleIds": [rule["SecurityGroupRuleId"]]}
        cloud.call(f"revoke_security_group_{direction}", **of)


def interface_groups(cloud):
    one = cloud.dice.choice(cloud.instances)
    of = {"NetworkInterfaceId": one["interface"]}
    cloud.call(
        "modify_network_interface_attribute", **of, Groups=cloud.some_groups(one["subnet"]["vpc"])
    )


def entries(cloud, acl):
    described = cloud.ec2.describe_network_acls(NetworkAclIds=[acl["id"]])["NetworkAcls"][0]
    return [entry for entry in described["Entries"] if entry["RuleNumber"] < 32767]


def acl_entry(cloud):
    acl = cloud.dice.choice(cloud.acls)
    egress = cloud.chance(0.5)
    number = cloud.dice.randint(1, 90)
    cloud.acl_entry(acl, egress, number, cloud.dice.choice(["allow", "deny"]))


def replace_acl_entry(cloud):
    acl = cloud.dice.choice(cloud.acls)
    found = entries(cloud, acl)
    if found:
        entry = cloud.dice.choice(found)
        action = cloud.dice.choice(["allow", "allow", "deny"])
        place = (acl, entry["Egress"], entry["RuleNumber"], action)
        cloud.acl_entry(*place, name="replace_network_acl_entry")


def delete_acl_entry(cloud):
    acl = cloud.dice.choice(cloud.acls)
    found = entries(cloud, acl)
    if found:
        entry = cloud.dice.choice(found)
        of = {"Egress": entry["Egress"], "RuleNumber": entry["RuleNumber"]}
        cloud.call("delete_network_acl_entry", NetworkAclId=acl["id"], **of)


def acl_of_subnet(cloud):
    subnet = cloud.dice.choice(cloud.subnets)
    acls = [acl for acl in cloud.acls if acl["vpc"] is subnet["vpc"]]
    cloud.associate_acl(subnet, cloud.dice.choice(acls))


def table_of_subnet(cloud):
    subnet = cloud.dice.choice(cloud.subnets)
    tables = [table["id"] for table in cloud.tables if table["vpc"] is subnet["vpc"]]
    new = cloud.dice.choice(tables)
    of_subnet = [{"Name": "association.subnet-id", "Values": [subnet["id"]]}]
    for table in cloud.ec2.describe_route_tables(Filters=of_subnet)["RouteTables"]:
        for association in table["Associations"]:
            if association.get("SubnetId") == subnet["id"]:
                old = association["RouteTableAssociationId"]
                of = {"AssociationId": old, "RouteTableId": new}
                cloud.call("replace_route_table_association", **of)
                return
    cloud.call("associate_route_table", RouteTableId=new, SubnetId=subnet["id"])


def routes(cloud):
    cloud.routes(cloud.dice.choice(cloud.tables))


def delete_route(cloud):
    table = cloud.dice.choice(cloud.tables)
    described = cloud.ec2.describe_route_tables(RouteTableIds=[table["id"]])["RouteTables"][0]
    keys = ("DestinationCidrBlock", "DestinationIpv6CidrBlock", "DestinationPrefixListId")
    found = [
        {key: route[key]}
        for route in described["Routes"]
        for key in keys
        if route.get(key) and route["Origin"] == "CreateRoute"
    ]
    if found:
        route = cloud.dice.choice(found)
        cloud.call("delete_route", RouteTableId=table["id"], **route)


def prefix_list(cloud):
    one = cloud.dice.choice(cloud.lists)
    described = cloud.ec2.describe_managed_prefix_lists(PrefixListIds=[one["id"]])
    version = described["PrefixLists"][0]["Version"]
    found = cloud.ec2.get_managed_prefix_list_entries(PrefixListId=one["id"])["Entries"]
    found = [entry["Cidr"] for entry in found]
    of = {"PrefixListId": one["id"], "CurrentVersion": version}
    new = cloud.some_block(one["version"])
    if new in found or len(found) == 5:
        out = new if new in found else cloud.dice.choice(found)
        if len(found) > 1:
            cloud.call("modify_managed_prefix_list", **of, RemoveEntries=[{"Cidr": out}])
    else:
        cloud.call("modify_managed_prefix_list", **of, AddEntries=[{"Cidr": new}])


def peering(cloud):
    if not cloud.peerings:
        return
    one = cloud.dice.choice(cloud.peerings)
    if not one["active"]:
        cloud.accept(one["id"])
        one["active"] = True
    elif cloud.chance(0.3):
        cloud.call("delete_vpc_peering_connection", VpcPeeringConnectionId=one["id"])
        cloud.peerings.remove(one)


def address(cloud):
    """Associates an address with another instance, or with none."""
    if not cloud.allocations:
        return
    allocation = cloud.dice.choice(cloud.allocations)
    described = cloud.ec2.describe_addresses(AllocationIds=[allocation])["Addresses"][0]
    if "AssociationId" in described and cloud.chance(0.5):
        cloud.call("disassociate_address", AssociationId=described["AssociationId"])
        return
    taken = cloud.ec2.describe_addresses()["Addresses"]
    taken = [one.get("NetworkInterfaceId") for one in taken]
    free = [
        one["interface"]
        for one in cloud.instances
        if one["subnet"]["vpc"]["gateway"] and one["interface"] not in taken
    ]
    if free:
        cloud.associate_address(allocation, cloud.dice.choice(free))


CHANGES = [
    group_rule, group_rule, revoke, revoke, interface_groups, acl_entry, replace_acl_entry,
    delete_acl_entry, acl_of_subnet, table_of_subnet, routes, delete_route, prefix_list, peering,
    address,
]
