//! Identifiers in EC2's form: a prefix that names the kind of object, and seventeen hexadecimal
//! digits.

use core::fmt;
use core::str::FromStr;

/// Reason why a text is not an identifier of the requested kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdError {
    /// The text does not begin with the given prefix.
    Prefix(&'static str),
    /// The prefix is not followed by seventeen lower-case hexadecimal digits, of which the first is
    /// 0.
    Digits(&'static str),
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IdError::Prefix(prefix) => write!(f, "an identifier of this kind begins with {prefix}"),
            IdError::Digits(prefix) => {
                write!(f, "{prefix} is followed by 0 and sixteen lower-case hexadecimal digits")
            }
        }
    }
}

impl core::error::Error for IdError {}

fn parse(text: &str, prefix: &'static str) -> Result<u64, IdError> {
    let digits = text.strip_prefix(prefix).ok_or(IdError::Prefix(prefix))?;
    let lower = digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if digits.len() != 17 || !lower || !digits.starts_with('0') {
        return Err(IdError::Digits(prefix));
    }
    u64::from_str_radix(&digits[1..], 16).map_err(|_| IdError::Digits(prefix))
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident $prefix:literal,)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// The letters that begin an identifier of this kind, and the hyphen after them.
            pub const PREFIX: &'static str = $prefix;
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}0{:016x}", $prefix, self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                parse(text, $prefix).map($name)
            }
        }
    )*};
}

ids! {
    /// Identifier of a virtual private cloud.
    VpcId "vpc-",
    /// Identifier of a subnet.
    SubnetId "subnet-",
    /// Identifier of an elastic network interface.
    EniId "eni-",
    /// Identifier of the attachment of an interface to an instance.
    AttachmentId "eni-attach-",
    /// Identifier of an instance.
    InstanceId "i-",
    /// Identifier of a placement group.
    PlacementId "pg-",
    /// Identifier of a security group.
    GroupId "sg-",
    /// Identifier of a rule of a security group.
    GroupRuleId "sgr-",
    /// Identifier of a network access control list.
    AclId "acl-",
    /// Identifier of a route table.
    RouteTableId "rtb-",
    /// Identifier of an internet gateway.
    InternetGatewayId "igw-",
    /// Identifier of an egress-only internet gateway.
    EgressOnlyGatewayId "eigw-",
    /// Identifier of a NAT gateway.
    NatGatewayId "nat-",
    /// Identifier of an elastic address.
    AllocationId "eipalloc-",
    /// Identifier of a peering connection between two VPCs.
    PeeringId "pcx-",
    /// Identifier of a managed prefix list.
    PrefixListId "pl-",
    /// Identifier of a gateway endpoint.
    EndpointId "vpce-",
    /// Identifier of a set of DHCP options.
    DhcpOptionsId "dopt-",
    /// Identifier of a flow log.
    FlowLogId "fl-",
    /// Identifier of a traffic mirror session.
    MirrorSessionId "tms-",
    /// Identifier of a traffic mirror filter.
    MirrorFilterId "tmf-",
    /// Identifier of a traffic mirror target.
    MirrorTargetId "tmt-",
}

impl EniId {
    /// Returns the hardware (MAC) address of the interface: locally administered, with the last
    /// five bytes of the identifier. The instance and the control plane derive it from the
    /// identifier alone, so both have the same address.
    pub fn mac(self) -> [u8; 6] {
        let [.., a, b, c, d, e] = self.0.to_be_bytes();
        [0x02, a, b, c, d, e]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn an_identifier_is_read_as_it_is_printed() {
        let id = VpcId(0x1a2b);
        assert_eq!(id.to_string(), "vpc-00000000000001a2b");
        assert_eq!("vpc-00000000000001a2b".parse(), Ok(id));
    }

    #[test]
    fn what_is_not_an_identifier_is_refused_with_the_reason() {
        assert_eq!("sg-00000000000001a2b".parse::<VpcId>(), Err(IdError::Prefix("vpc-")));
        for text in [
            "vpc-",
            "vpc-1",
            "vpc-0000000000000001A",
            "vpc-10000000000000001",
            "vpc-0000000000000000é",
        ] {
            assert_eq!(text.parse::<VpcId>(), Err(IdError::Digits("vpc-")), "{text}");
        }
    }
}
