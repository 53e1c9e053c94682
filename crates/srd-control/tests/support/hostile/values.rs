//! Parameters of an action, with random values of the kinds that the service model names.

use srd_control::wire::model::{Kind, Member, model};

use super::chance::Chance;

/// Largest depth of structures in the parameters.
const DEPTH_MAX: usize = 5;

/// Members that contain identifiers, by the end of their names, and the prefix of identifiers.
const IDS: [(&str, &str); 38] = [
    ("PeerVpcId", "vpc-"),
    ("VpcId", "vpc-"),
    ("SubnetId", "subnet-"),
    ("SubnetIds", "subnet-"),
    ("Subnets", "subnet-"),
    ("SecurityGroupRuleId", "sgr-"),
    ("GroupId", "sg-"),
    ("Groups", "sg-"),
    ("TransitGatewayRouteTableId", "tgw-rtb-"),
    ("RouteTableId", "rtb-"),
    ("TransitGatewayAttachmentId", "tgw-attach-"),
    ("TransitGatewayId", "tgw-"),
    ("NetworkInterfaceId", "eni-"),
    ("InstanceId", "i-"),
    ("AssociationId", "assoc"),
    ("PrefixListId", "pl-"),
    ("VpcPeeringConnectionId", "pcx-"),
    ("ServiceId", "vpce-svc-"),
    ("AllocationId", "eipalloc-"),
    ("TrafficMirrorFilterRuleId", "tmfr-"),
    ("TrafficMirrorFilterId", "tmf-"),
    ("TrafficMirrorTargetId", "tmt-"),
    ("TrafficMirrorSessionId", "tms-"),
    ("VolumeId", "vol-"),
    ("SnapshotId", "snap-"),
    ("ImageId", "ami-"),
    ("VpnGatewayId", "vgw-"),
    ("VpnConnectionId", "vpn-"),
    ("CustomerGatewayId", "cgw-"),
    ("CarrierGatewayId", "cagw-"),
    ("EgressOnlyInternetGatewayId", "eigw-"),
    ("InternetGatewayId", "igw-"),
    ("NatGatewayId", "nat-"),
    ("NetworkAclId", "acl-"),
    ("VpcEndpointId", "vpce-"),
    ("AttachmentId", "eni-attach-"),
    ("DhcpOptionsId", "dopt-"),
    ("GatewayId", "igw-"),
];

const BLOCKS: [&str; 16] = [
    "10.0.0.0/16",
    "10.0.1.0/24",
    "10.0.2.0/24",
    "10.0.3.0/28",
    "10.1.0.0/16",
    "172.31.0.0/16",
    "0.0.0.0/0",
    "192.0.2.7/32",
    "100.64.0.0/10",
    "169.254.169.0/24",
    "fd00:ec2::/48",
    "fd00::/56",
    "::/0",
    "10.0.0.1/16",
    "10.0.0.0/33",
    "300.0.0.0/8",
];
const ADDRESSES: [&str; 12] = [
    "10.0.1.4",
    "10.0.1.5",
    "10.0.1.255",
    "10.0.1.0",
    "10.0.2.9",
    "198.18.0.1",
    "203.0.113.1",
    "0.0.0.0",
    "255.255.255.255",
    "fd00::1",
    "::",
    "1.2.3",
];
const WORDS: [&str; 24] = [
    "default",
    "tcp",
    "udp",
    "-1",
    "58",
    "all",
    "us-east-1a",
    "us-east-1z",
    "eu-west-1",
    "web",
    "",
    " ",
    "*",
    "?\\*",
    "true",
    "available",
    "999999999999",
    "111111111111",
    "com.amazonaws.us-east-1.s3",
    "c7i.large",
    "\u{0}\u{1}\r\n\t",
    "<a>&amp;\"'</a>",
    "\u{1f600}\u{fffe}\u{202e}",
    "../../etc/passwd",
];
const NUMBERS: [&str; 18] = [
    "0",
    "1",
    "2",
    "5",
    "22",
    "80",
    "100",
    "443",
    "1000",
    "65535",
    "65536",
    "-1",
    "2147483647",
    "-2147483648",
    "9223372036854775807",
    "-9223372036854775808",
    "99999999999999999999",
    "1e9",
];

/// Makes parameters from the service model.
pub(crate) struct Values<'a> {
    pub(crate) chance: &'a mut Chance,
    /// Identifiers of objects that exist.
    pub(crate) ids: &'a [String],
    /// Names and values of the parameters.
    pub(crate) form: Vec<(String, String)>,
}

impl Values<'_> {
    /// Adds the parameters of a structure.
    pub(crate) fn structure(&mut self, shape: &str, path: &str, depth: usize) {
        let Some(shape) = model().shape(shape) else { return };
        let eagerness = if depth == 0 { 25 } else { 40 };
        for (name, member) in &shape.members {
            // Most requests are not tried only.
            let percent = match name.as_str() {
                _ if shape.required.contains(name) => 97,
                "DryRun" => 3,
                "ClientToken" => 10,
                "NextToken" => 5,
                _ => eagerness,
            };
            if self.chance.percent(percent) {
                let name_sent = member.request_name(name);
                let path = match path {
                    "" => name_sent,
                    path => format!("{path}.{name_sent}"),
                };
                self.member(name, member, path, depth);
            }
        }
    }

    fn member(&mut self, name: &str, member: &Member, path: String, depth: usize) {
        let Some(shape) = model().shape(&member.shape) else { return };
        match shape.kind {
            Kind::Structure if depth < DEPTH_MAX => {
                self.structure(&member.shape, &path, depth + 1);
            }
            Kind::Structure => {}
            Kind::List => {
                let Some(element) = &shape.member else { return };
                let count = *self.chance.pick(&[0, 1, 1, 1, 1, 2, 2, 3, 7]);
                for number in 1..=count {
                    self.member(name, element, format!("{path}.{number}"), depth + 1);
                }
            }
            _ => {
                let value = match shape.kind {
                    Kind::Boolean => self.chance.pick(&["true", "false", "TRUE", "1"]).to_string(),
                    Kind::Integer | Kind::Long | Kind::Double | Kind::Float => self.count(name),
                    Kind::Timestamp => "2027-01-15T08:00:00Z".to_owned(),
                    Kind::Blob => "IyEvYmluL3NoCg==".to_owned(),
                    _ if !shape.values.is_empty() && self.chance.percent(95) => {
                        self.chance.pick(&shape.values).clone()
                    }
                    _ => self.text(name),
                };
                self.form.push((path, value));
            }
        }
    }

    fn count(&mut self, name: &str) -> String {
        if ["MinCount", "MaxCount"].contains(&name) && self.chance.percent(80) {
            return "1".to_owned();
        }
        self.chance.pick(&NUMBERS).to_string()
    }

    fn text(&mut self, name: &str) -> String {
        if self.chance.percent(4) {
            return self.chance.pick(&WORDS).to_string();
        }
        if let Some((_, prefix)) = IDS.iter().find(|(end, _)| name.ends_with(end)) {
            return self.id(prefix);
        }
        if name == "ResourceIds" || name == "Resources" || name == "ResourceId" {
            return self.id("");
        }
        if name.contains("Cidr") || name == "DestinationCidrBlock" {
            return self.chance.pick(&BLOCKS).to_string();
        }
        if name.contains("Ip") && name.contains("Address") || name.ends_with("Ip") {
            return self.chance.pick(&ADDRESSES).to_string();
        }
        if name.contains("Zone") {
            return self.chance.pick(&["us-east-1a", "us-east-1b", "use1-az1"]).to_string();
        }
        match name {
            "IpProtocol" | "Protocol" => self.chance.pick(&["tcp", "udp", "-1", "6", "icmp"]),
            "UserData" => &"IyEvYmluL3NoCg==",
            "PeerOwnerId" => self.chance.pick(&["111111111111", "222222222222"]),
            "ClientToken" => self.chance.pick(&["a", "b", "c"]),
            _ => self.chance.pick(&WORDS),
        }
        .to_string()
    }

    /// An identifier with this prefix, most often of an object that exists.
    fn id(&mut self, prefix: &str) -> String {
        let fitting: Vec<&String> = self.ids.iter().filter(|id| id.contains(prefix)).collect();
        match self.chance.below(20) {
            0 if !self.ids.is_empty() => self.chance.pick(self.ids).clone(),
            1 => format!("{prefix}0123456789abcdef0"),
            _ if !fitting.is_empty() => (*self.chance.pick(&fitting)).clone(),
            _ => format!("{prefix}0{:016x}", self.chance.number()),
        }
    }
}
