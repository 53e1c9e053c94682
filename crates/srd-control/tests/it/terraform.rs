//! The requests of Terraform's provider for AWS on virtual private clouds, one by one, in the order
//! of its resources. The test checks states for which the provider waits, filters with which the
//! provider finds default objects, and the error code of each kind of object that does not exist.
//! The provider itself does not run here.

use std::collections::BTreeSet;

use crate::support::{Client, NOW, all, first, request};

/// The actions of the resources `aws_vpc`, `aws_subnet`, `aws_security_group` and its rules,
/// `aws_network_acl`, `aws_route_table`, `aws_network_interface`, `aws_flow_log` and
/// `aws_internet_gateway`, and of the data sources that they need.
const ACTIONS: &str = "
CreateVpc DescribeVpcs DescribeVpcAttribute ModifyVpcAttribute ModifyVpcTenancy
AssociateVpcCidrBlock DisassociateVpcCidrBlock DeleteVpc
CreateSubnet DescribeSubnets ModifySubnetAttribute AssociateSubnetCidrBlock
DisassociateSubnetCidrBlock DeleteSubnet
CreateSecurityGroup DescribeSecurityGroups DescribeSecurityGroupRules
AuthorizeSecurityGroupIngress AuthorizeSecurityGroupEgress RevokeSecurityGroupIngress
RevokeSecurityGroupEgress ModifySecurityGroupRules DeleteSecurityGroup
CreateNetworkAcl DescribeNetworkAcls CreateNetworkAclEntry ReplaceNetworkAclEntry
DeleteNetworkAclEntry ReplaceNetworkAclAssociation DeleteNetworkAcl
CreateRouteTable DescribeRouteTables CreateRoute ReplaceRoute DeleteRoute AssociateRouteTable
DisassociateRouteTable ReplaceRouteTableAssociation EnableVgwRoutePropagation
DisableVgwRoutePropagation DeleteRouteTable
CreateNetworkInterface DescribeNetworkInterfaces DescribeNetworkInterfaceAttribute
ModifyNetworkInterfaceAttribute AssignPrivateIpAddresses UnassignPrivateIpAddresses
AssignIpv6Addresses UnassignIpv6Addresses AttachNetworkInterface DetachNetworkInterface
DeleteNetworkInterface
CreateFlowLogs DescribeFlowLogs DeleteFlowLogs
CreateInternetGateway AttachInternetGateway DescribeInternetGateways DetachInternetGateway
DeleteInternetGateway
CreateTags DescribeTags DeleteTags
DescribeAccountAttributes DescribeAvailabilityZones DescribeRegions DescribePrefixLists
DescribeManagedPrefixLists";

/// The provider: a client that remembers the actions whose requests succeeded.
struct Provider {
    client: Client,
    sent: BTreeSet<String>,
}

/// Returns the parameters of filters with one value each.
fn filters(list: &[(&str, &str)]) -> String {
    let one = |(at, (name, value)): (usize, &(&str, &str))| {
        let at = at + 1;
        format!("&Filter.{at}.Name={name}&Filter.{at}.Value.1={value}")
    };
    list.iter().enumerate().map(one).collect()
}

impl Provider {
    /// Sends a request that succeeds, and returns the XML.
    fn ok(&mut self, action: &str, parameters: &str) -> String {
        self.sent.insert(action.to_owned());
        self.client.ok(&format!("Action={action}&{parameters}"))
    }

    /// Sends a request that succeeds, and returns the first element with this name.
    fn take(&mut self, action: &str, parameters: &str, element: &str) -> String {
        first(&self.ok(action, parameters), element)
    }

    /// Sends a request that is refused with this code.
    fn refused(&mut self, code: &str, action: &str, parameters: &str) {
        let form = format!("Action={action}&{parameters}");
        assert_eq!(self.client.code(&form), code, "{form}");
    }

    /// Deletes an object, and reads it until the code of its kind reports that it does not exist. A
    /// second deletion has the same code.
    fn delete(&mut self, action: &str, describe: &str, id: (&str, &str), code: &str) {
        let (parameter, id) = id;
        let parameters = format!("{parameter}={id}");
        self.ok(action, &parameters);
        self.refused(code, describe, &format!("{parameter}.1={id}"));
        self.refused(code, action, &parameters);
    }

    fn vpc(&mut self) -> String {
        let tags = "&TagSpecification.1.ResourceType=vpc&TagSpecification.1.Tag.1.Key=Name\
                    &TagSpecification.1.Tag.1.Value=main";
        let form = format!("CidrBlock=10.0.0.0/16&InstanceTenancy=default{tags}");
        let vpc = self.take("CreateVpc", &form, "vpcId");
        let shown = self.ok("DescribeVpcs", &format!("VpcId.1={vpc}"));
        // The elements of the VPC and of its block have this name.
        assert_eq!(all(&shown, "state"), ["associated", "available"]);
        for attribute in ["EnableDnsHostnames", "EnableDnsSupport"] {
            self.ok("ModifyVpcAttribute", &format!("VpcId={vpc}&{attribute}.Value=true"));
        }
        let metrics = "EnableNetworkAddressUsageMetrics";
        for (attribute, value) in
            [("EnableDnsHostnames", "true"), ("EnableDnsSupport", "true"), (metrics, "false")]
        {
            let (head, tail) = attribute.split_at(1);
            let name = head.to_ascii_lowercase() + tail;
            let form = format!("VpcId={vpc}&Attribute={name}");
            assert_eq!(self.take("DescribeVpcAttribute", &form, "value"), value, "{name}");
        }
        self.defaults(&vpc);
        self.ok("ModifyVpcTenancy", &format!("VpcId={vpc}&InstanceTenancy=default"));
        vpc
    }

    /// Finds the objects that each VPC has.
    fn defaults(&mut self, vpc: &str) {
        let form = filters(&[("default", "true"), ("vpc-id", vpc)]);
        assert_eq!(all(&self.ok("DescribeNetworkAcls", &form), "default"), ["true"]);
        let form = filters(&[("association.main", "true"), ("vpc-id", vpc)]);
        let table = self.ok("DescribeRouteTables", &form);
        assert_eq!(all(&table, "main"), ["true"]);
        assert_eq!(all(&table, "gatewayId"), ["local"]);
        let form = filters(&[("group-name", "default"), ("vpc-id", vpc)]);
        assert_eq!(all(&self.ok("DescribeSecurityGroups", &form), "groupName"), ["default"]);
    }

    /// Adds a block of each version, and removes the IPv4 block.
    fn blocks(&mut self, vpc: &str) {
        let form = format!("VpcId={vpc}&CidrBlock=10.1.0.0/16");
        let id = self.take("AssociateVpcCidrBlock", &form, "associationId");
        let find = filters(&[("cidr-block-association.association-id", &id)]);
        assert!(self.ok("DescribeVpcs", &find).contains("10.1.0.0/16"));
        let form = format!("AssociationId={id}");
        self.ok("DisassociateVpcCidrBlock", &form);
        assert!(all(&self.ok("DescribeVpcs", &find), "vpcId").is_empty());
        let code = "InvalidVpcCidrBlockAssociationID.NotFound";
        self.refused(code, "DisassociateVpcCidrBlock", &form);
        let form = format!("VpcId={vpc}&AmazonProvidedIpv6CidrBlock=true");
        let id = self.take("AssociateVpcCidrBlock", &form, "associationId");
        let find = filters(&[("ipv6-cidr-block-association.association-id", &id)]);
        let state = first(&self.ok("DescribeVpcs", &find), "ipv6CidrBlockState");
        assert!(state.contains("<state>associated</state>"), "{state}");
    }

    fn subnet(&mut self, vpc: &str) -> String {
        let form = format!("VpcId={vpc}&CidrBlock=10.0.1.0/24&AvailabilityZone=us-east-1a");
        let subnet = self.take("CreateSubnet", &form, "subnetId");
        let of = format!("SubnetId.1={subnet}");
        assert_eq!(self.take("DescribeSubnets", &of, "state"), "available");
        let wide = self.take("DescribeVpcs", &format!("VpcId.1={vpc}"), "ipv6CidrBlock");
        let block = wide.replace("/56", "/64");
        let form = format!("SubnetId={subnet}&Ipv6CidrBlock={block}");
        let id = self.take("AssociateSubnetCidrBlock", &form, "associationId");
        let find = filters(&[("ipv6-cidr-block-association.association-id", &id)]);
        assert_eq!(self.take("DescribeSubnets", &find, "ipv6CidrBlock"), block);
        for (attribute, element) in [
            ("AssignIpv6AddressOnCreation", "assignIpv6AddressOnCreation"),
            ("MapPublicIpOnLaunch", "mapPublicIpOnLaunch"),
            ("EnableDns64", "enableDns64"),
            ("EnableResourceNameDnsARecordOnLaunch", "enableResourceNameDnsARecord"),
            ("EnableResourceNameDnsAAAARecordOnLaunch", "enableResourceNameDnsAAAARecord"),
        ] {
            let form = format!("SubnetId={subnet}&{attribute}.Value=true");
            self.ok("ModifySubnetAttribute", &form);
            assert_eq!(self.take("DescribeSubnets", &of, element), "true", "{attribute}");
        }
        let form = format!("SubnetId={subnet}&PrivateDnsHostnameTypeOnLaunch=resource-name");
        self.ok("ModifySubnetAttribute", &form);
        assert_eq!(self.take("DescribeSubnets", &of, "hostnameType"), "resource-name");
        subnet
    }

    fn gateway(&mut self, vpc: &str) -> String {
        let gateway = self.take("CreateInternetGateway", "", "internetGatewayId");
        let form = format!("InternetGatewayId={gateway}&VpcId={vpc}");
        self.ok("AttachInternetGateway", &form);
        let of = format!("InternetGatewayId.1={gateway}");
        assert_eq!(self.take("DescribeInternetGateways", &of, "state"), "available");
        self.refused("Resource.AlreadyAssociated", "AttachInternetGateway", &form);
        gateway
    }

    fn group(&mut self, vpc: &str) -> String {
        let form = format!("GroupName=web&GroupDescription=web&VpcId={vpc}");
        let group = self.take("CreateSecurityGroup", &form, "groupId");
        assert_eq!(
            self.take("DescribeSecurityGroups", &format!("GroupId.1={group}"), "vpcId"),
            vpc
        );
        // The provider sends ports also for protocols without ports.
        let rule = |protocol: &str, ports: (u16, u16), block: &str| {
            format!(
                "GroupId={group}&IpPermissions.1.IpProtocol={protocol}&IpPermissions.1.FromPort={}\
                 &IpPermissions.1.ToPort={}&IpPermissions.1.{block}",
                ports.0, ports.1
            )
        };
        let v4 = rule("-1", (0, 0), "IpRanges.1.CidrIp=0.0.0.0/0");
        let v6 = rule("-1", (0, 0), "Ipv6Ranges.1.CidrIpv6=::/0");
        self.ok("RevokeSecurityGroupEgress", &v4);
        self.refused("InvalidPermission.NotFound", "RevokeSecurityGroupEgress", &v6);
        self.ok("AuthorizeSecurityGroupEgress", &v4);
        self.refused("InvalidPermission.Duplicate", "AuthorizeSecurityGroupEgress", &v4);
        let web = rule("tcp", (443, 443), "IpRanges.1.CidrIp=10.0.0.0/8");
        let id = self.take("AuthorizeSecurityGroupIngress", &web, "securityGroupRuleId");
        self.rule(&group, &id);
        self.ok("AuthorizeSecurityGroupIngress", &web);
        self.ok("RevokeSecurityGroupIngress", &web);
        self.refused("InvalidPermission.NotFound", "RevokeSecurityGroupIngress", &web);
        group
    }

    /// The resource `aws_vpc_security_group_ingress_rule`: a rule with an identifier.
    fn rule(&mut self, group: &str, id: &str) {
        let of = format!("SecurityGroupRuleId.1={id}");
        assert_eq!(self.take("DescribeSecurityGroupRules", &of, "fromPort"), "443");
        let part = "SecurityGroupRule.1";
        let form = format!(
            "GroupId={group}&{part}.SecurityGroupRuleId={id}\
             &{part}.SecurityGroupRule.IpProtocol=tcp&{part}.SecurityGroupRule.FromPort=8443\
             &{part}.SecurityGroupRule.ToPort=8443&{part}.SecurityGroupRule.CidrIpv4=10.0.0.0/8"
        );
        self.ok("ModifySecurityGroupRules", &form);
        assert_eq!(self.take("DescribeSecurityGroupRules", &of, "fromPort"), "8443");
        let form = format!("GroupId={group}&SecurityGroupRuleId.1={id}");
        self.ok("RevokeSecurityGroupIngress", &form);
        let code = "InvalidSecurityGroupRuleId.NotFound";
        self.refused(code, "DescribeSecurityGroupRules", &of);
        self.refused(code, "RevokeSecurityGroupIngress", &form);
    }

    fn acl(&mut self, vpc: &str, subnet: &str) {
        let acl = self.take("CreateNetworkAcl", &format!("VpcId={vpc}"), "networkAclId");
        let entry = format!(
            "NetworkAclId={acl}&RuleNumber=100&Protocol=6&RuleAction=allow&Egress=false\
             &CidrBlock=0.0.0.0/0&PortRange.From=80&PortRange.To="
        );
        self.ok("CreateNetworkAclEntry", &format!("{entry}80"));
        let exists = "NetworkAclEntryAlreadyExists";
        self.refused(exists, "CreateNetworkAclEntry", &format!("{entry}80"));
        self.ok("ReplaceNetworkAclEntry", &format!("{entry}90"));
        let find = filters(&[("entry.rule-number", "100"), ("entry.egress", "false")]);
        let shown = self.ok("DescribeNetworkAcls", &format!("NetworkAclId.1={acl}{find}"));
        assert_eq!(all(&shown, "to"), ["90"]);
        let find = filters(&[("association.subnet-id", subnet)]);
        let before = self.ok("DescribeNetworkAcls", &find);
        let of_subnet = |xml: &str| {
            let item = xml.split("<item>").find(|item| item.contains(subnet)).unwrap();
            first(item, "networkAclAssociationId")
        };
        let (id, old) = (of_subnet(&before), first(&before, "networkAclId"));
        let form = format!("AssociationId={id}&NetworkAclId={acl}");
        let new = self.take("ReplaceNetworkAclAssociation", &form, "newAssociationId");
        let code = "InvalidAssociationID.NotFound";
        self.refused(code, "ReplaceNetworkAclAssociation", &form);
        let find = filters(&[("association.association-id", &new)]);
        assert_eq!(self.take("DescribeNetworkAcls", &find, "networkAclId"), acl);
        let delete = format!("NetworkAclId={acl}");
        self.refused("DependencyViolation", "DeleteNetworkAcl", &delete);
        let form = format!("AssociationId={new}&NetworkAclId={old}");
        self.ok("ReplaceNetworkAclAssociation", &form);
        let entry = format!("NetworkAclId={acl}&RuleNumber=100&Egress=false");
        self.ok("DeleteNetworkAclEntry", &entry);
        self.refused("InvalidNetworkAclEntry.NotFound", "DeleteNetworkAclEntry", &entry);
        let id = ("NetworkAclId", acl.as_str());
        self.delete("DeleteNetworkAcl", "DescribeNetworkAcls", id, "InvalidNetworkAclID.NotFound");
    }

    fn table(&mut self, vpc: &str, subnet: &str, gateway: &str) {
        let form = format!("VpcId={vpc}&ClientToken=terraform-1");
        let table = self.take("CreateRouteTable", &form, "routeTableId");
        assert_eq!(self.take("CreateRouteTable", &form, "routeTableId"), table);
        let of = format!("RouteTableId={table}");
        let shown = |provider: &mut Self| {
            provider.ok("DescribeRouteTables", &format!("RouteTableId.1={table}"))
        };
        let route = format!("{of}&DestinationCidrBlock=0.0.0.0/0");
        let to_gateway = format!("{route}&GatewayId={gateway}");
        self.ok("CreateRoute", &to_gateway);
        self.refused("RouteAlreadyExists", "CreateRoute", &to_gateway);
        assert!(all(&shown(self), "gatewayId").contains(&gateway.to_owned()));
        self.ok("ReplaceRoute", &to_gateway);
        let form = format!("{of}&SubnetId={subnet}");
        let id = self.take("AssociateRouteTable", &form, "associationId");
        let find = filters(&[("association.route-table-association-id", &id)]);
        let association = self.ok("DescribeRouteTables", &find);
        assert_eq!(all(&association, "subnetId"), [subnet]);
        assert!(association.contains("<state>associated</state>"));
        self.refused("DependencyViolation", "DeleteRouteTable", &of);
        let other = self.take("CreateRouteTable", &format!("VpcId={vpc}"), "routeTableId");
        let form = format!("AssociationId={id}&RouteTableId={other}");
        let id = self.take("ReplaceRouteTableAssociation", &form, "newAssociationId");
        let code = "InvalidAssociationID.NotFound";
        self.refused(code, "ReplaceRouteTableAssociation", &form);
        let form = format!("AssociationId={id}");
        self.ok("DisassociateRouteTable", &form);
        self.refused(code, "DisassociateRouteTable", &form);
        self.ok("DeleteRoute", &route);
        self.refused("InvalidRoute.NotFound", "DeleteRoute", &route);
        self.propagation(vpc, &table);
        for id in [table, other] {
            let id = ("RouteTableId", id.as_str());
            let code = "InvalidRouteTableID.NotFound";
            self.delete("DeleteRouteTable", "DescribeRouteTables", id, code);
        }
    }

    fn propagation(&mut self, vpc: &str, table: &str) {
        let form = format!("GatewayId=vgw-0123456789abcdef0&RouteTableId={table}");
        self.refused("InvalidVpnGatewayID.NotFound", "EnableVgwRoutePropagation", &form);
        let gateway = self.take("CreateVpnGateway", "Type=ipsec.1", "vpnGatewayId");
        let form = format!("GatewayId={gateway}&RouteTableId={table}");
        self.refused("Gateway.NotAttached", "EnableVgwRoutePropagation", &form);
        let attachment = format!("VpnGatewayId={gateway}&VpcId={vpc}");
        self.ok("AttachVpnGateway", &attachment);
        self.ok("EnableVgwRoutePropagation", &form);
        let shown = self.ok("DescribeRouteTables", &format!("RouteTableId.1={table}"));
        assert!(first(&shown, "propagatingVgwSet").contains(&gateway), "{shown}");
        self.ok("DisableVgwRoutePropagation", &form);
        self.ok("DetachVpnGateway", &attachment);
        self.ok("DeleteVpnGateway", &format!("VpnGatewayId={gateway}"));
    }

    fn interface(&mut self, subnet: &str, group: &str) {
        let form = format!(
            "SubnetId={subnet}&Description=terraform&SecurityGroupId.1={group}\
             &PrivateIpAddresses.1.PrivateIpAddress=10.0.1.50&PrivateIpAddresses.1.Primary=true\
             &ClientToken=terraform-2"
        );
        let interface = self.take("CreateNetworkInterface", &form, "networkInterfaceId");
        let of = format!("NetworkInterfaceId={interface}");
        let shown = format!("NetworkInterfaceId.1={interface}");
        assert_eq!(self.take("DescribeNetworkInterfaces", &shown, "status"), "available");
        self.ok("ModifyNetworkInterfaceAttribute", &format!("{of}&SourceDestCheck.Value=false"));
        let form = format!("{of}&Attribute=sourceDestCheck");
        let check = first(&self.ok("DescribeNetworkInterfaceAttribute", &form), "sourceDestCheck");
        assert_eq!(check, "<value>false</value>");
        self.ok("AssignPrivateIpAddresses", &format!("{of}&PrivateIpAddress.1=10.0.1.51"));
        self.ok("UnassignPrivateIpAddresses", &format!("{of}&PrivateIpAddress.1=10.0.1.51"));
        let form = format!("{of}&Ipv6AddressCount=1");
        let assigned = first(&self.ok("AssignIpv6Addresses", &form), "assignedIpv6Addresses");
        let address = first(&assigned, "item");
        assert!(self.ok("DescribeNetworkInterfaces", &shown).contains(&address));
        self.ok("UnassignIpv6Addresses", &format!("{of}&Ipv6Addresses.1={address}"));
        self.attachment(subnet, &interface);
        let code = "InvalidNetworkInterfaceID.NotFound";
        let id = ("NetworkInterfaceId", interface.as_str());
        self.delete("DeleteNetworkInterface", "DescribeNetworkInterfaces", id, code);
        self.refused(
            code,
            "DescribeNetworkInterfaceAttribute",
            &format!("{of}&Attribute=groupSet"),
        );
    }

    fn attachment(&mut self, subnet: &str, interface: &str) {
        let form = format!(
            "ImageId=ami-12345678&InstanceType=c7i.large&MinCount=1&MaxCount=1&SubnetId={subnet}"
        );
        let instance = self.take("RunInstances", &form, "instanceId");
        let of = format!("NetworkInterfaceId={interface}");
        let form = format!("{of}&InstanceId={instance}&DeviceIndex=1");
        let attachment = self.take("AttachNetworkInterface", &form, "attachmentId");
        let find = filters(&[("attachment.attachment-id", &attachment)]);
        let shown = self.ok("DescribeNetworkInterfaces", &find);
        assert!(shown.contains("<status>attached</status>"), "{shown}");
        self.refused("InvalidNetworkInterface.InUse", "DeleteNetworkInterface", &of);
        let form = format!("AttachmentId={attachment}&Force=true");
        self.ok("DetachNetworkInterface", &form);
        assert!(all(&self.ok("DescribeNetworkInterfaces", &find), "networkInterfaceId").is_empty());
        self.refused("InvalidAttachmentID.NotFound", "DetachNetworkInterface", &form);
        let shown = format!("NetworkInterfaceId.1={interface}");
        assert_eq!(self.take("DescribeNetworkInterfaces", &shown, "status"), "available");
        self.ok("TerminateInstances", &format!("InstanceId.1={instance}"));
    }

    fn flow_log(&mut self, vpc: &str) {
        let form = format!(
            "ResourceId.1={vpc}&ResourceType=VPC&TrafficType=ALL&LogGroupName=flows\
             &DeliverLogsPermissionArn=arn:aws:iam::123456789012:role/flows&ClientToken=terraform-3"
        );
        let answer = self.ok("CreateFlowLogs", &form);
        let id = first(&first(&answer, "flowLogIdSet"), "item");
        let of = format!("FlowLogId.1={id}");
        assert_eq!(self.take("DescribeFlowLogs", &of, "flowLogStatus"), "ACTIVE");
        self.ok("DeleteFlowLogs", &of);
        assert!(all(&self.ok("DescribeFlowLogs", &of), "flowLogId").is_empty());
        self.refused("InvalidFlowLogId.NotFound", "DeleteFlowLogs", &of);
    }

    fn tags(&mut self, vpc: &str) {
        let form = format!("ResourceId.1={vpc}&Tag.1.Key=stage&Tag.1.Value=test");
        self.ok("CreateTags", &form);
        let find = filters(&[("resource-id", vpc), ("key", "stage")]);
        assert_eq!(all(&self.ok("DescribeTags", &find), "value"), ["test"]);
        self.ok("DeleteTags", &form);
        assert!(all(&self.ok("DescribeTags", &find), "value").is_empty());
    }

    /// The data sources of the provider, and the identity that it reads at its start.
    fn sources(&mut self) {
        let form = "AttributeName.1=default-vpc";
        assert_eq!(self.take("DescribeAccountAttributes", form, "attributeName"), "default-vpc");
        let form = format!("AllAvailabilityZones=true{}", filters(&[("state", "available")]));
        let zones = self.ok("DescribeAvailabilityZones", &form);
        assert!(all(&zones, "zoneName").contains(&"us-east-1a".to_owned()), "{zones}");
        let regions = self.ok("DescribeRegions", "AllRegions=true&RegionName.1=us-east-1");
        assert_eq!(all(&regions, "regionName"), ["us-east-1"]);
        let find = filters(&[("prefix-list-name", "com.amazonaws.us-east-1.s3")]);
        let id = self.take("DescribePrefixLists", &find, "prefixListId");
        assert_eq!(self.take("DescribeManagedPrefixLists", &find, "prefixListId"), id);
        let mut identity = request("us-east-1", "Action=GetCallerIdentity&Version=2011-06-15");
        for (_, value) in &mut identity.headers {
            *value = value.replace("/ec2/", "/sts/");
        }
        let answer = self.client.control.handle(&identity, NOW);
        assert_eq!(first(&answer.body, "Account"), "123456789012");
        assert!(first(&answer.body, "Arn").starts_with("arn:aws:"), "{}", answer.body);
    }

    /// Deletes the objects in the order of their dependences.
    fn destroy(&mut self, vpc: &str, subnet: &str, gateway: &str, group: &str) {
        let of_vpc = format!("VpcId={vpc}");
        self.refused("DependencyViolation", "DeleteVpc", &of_vpc);
        let of = format!("InternetGatewayId={gateway}");
        self.refused("DependencyViolation", "DeleteInternetGateway", &of);
        let form = format!("{of}&{of_vpc}");
        self.ok("DetachInternetGateway", &form);
        self.refused("Gateway.NotAttached", "DetachInternetGateway", &form);
        let code = "InvalidInternetGatewayID.NotFound";
        let id = ("InternetGatewayId", gateway);
        self.delete("DeleteInternetGateway", "DescribeInternetGateways", id, code);
        let find = filters(&[("ipv6-cidr-block-association.state", "associated")]);
        let shown = self.ok("DescribeSubnets", &format!("SubnetId.1={subnet}{find}"));
        let form = format!("AssociationId={}", first(&shown, "associationId"));
        let form_of_assignment =
            format!("SubnetId={subnet}&AssignIpv6AddressOnCreation.Value=false");
        self.ok("ModifySubnetAttribute", &form_of_assignment);
        self.ok("DisassociateSubnetCidrBlock", &form);
        let code = "InvalidSubnetCidrBlockAssociationID.NotFound";
        self.refused(code, "DisassociateSubnetCidrBlock", &form);
        let find = filters(&[("subnet-id", subnet), ("description", "AWS Lambda VPC ENI*")]);
        let lingering = self.ok("DescribeNetworkInterfaces", &find.replace(' ', "%20"));
        assert!(all(&lingering, "networkInterfaceId").is_empty());
        let id = ("SubnetId", subnet);
        self.delete("DeleteSubnet", "DescribeSubnets", id, "InvalidSubnetID.NotFound");
        let id = ("GroupId", group);
        self.delete("DeleteSecurityGroup", "DescribeSecurityGroups", id, "InvalidGroup.NotFound");
        self.delete("DeleteVpc", "DescribeVpcs", ("VpcId", vpc), "InvalidVpcID.NotFound");
        let form = format!("{of_vpc}&Attribute=enableDnsSupport");
        self.refused("InvalidVpcID.NotFound", "DescribeVpcAttribute", &form);
    }
}

#[test]
fn requests_of_terraform_have_the_answers_and_codes_that_its_provider_needs() {
    let mut provider = Provider { client: Client::new(), sent: BTreeSet::new() };
    provider.sources();
    let vpc = provider.vpc();
    let gateway = provider.gateway(&vpc);
    // The VPC has no IPv6 block yet, and so the group has no rule for it.
    let group = provider.group(&vpc);
    provider.blocks(&vpc);
    let subnet = provider.subnet(&vpc);
    provider.acl(&vpc, &subnet);
    provider.table(&vpc, &subnet, &gateway);
    provider.interface(&subnet, &group);
    provider.flow_log(&vpc);
    provider.tags(&vpc);
    provider.destroy(&vpc, &subnet, &gateway, &group);
    let needed: Vec<&str> = ACTIONS.split_whitespace().collect();
    assert_eq!(needed.len(), 68);
    let unused: Vec<&&str> =
        needed.iter().filter(|action| !provider.sent.contains(**action)).collect();
    assert!(unused.is_empty(), "{unused:?}");
}
