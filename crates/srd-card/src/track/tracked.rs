//! Which connections are tracked at all.
//!
//! Source: EC2 User Guide, *Security group connection tracking*.

use crate::meta::packet::protocol;

/// What the security groups say of one packet's connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Permission {
    /// A rule that admits it is for all addresses of its family (0.0.0.0/0 or ::/0).
    pub everyone: bool,
    /// The other direction has a rule for all addresses of the family and all ports (0 to 65535).
    pub answers_everyone: bool,
    /// It is tracked in any case, because of a middlebox on its way: an egress-only internet
    /// gateway, Global Accelerator, a NAT gateway, a Network Firewall endpoint, a Network Load
    /// Balancer, PrivateLink, a Lambda interface, a DynamoDB gateway endpoint.
    pub automatic: bool,
}

/// Whether a connection of this protocol is tracked (T4). One that is not takes no entry.
pub fn is_tracked(number: u8, permission: Permission) -> bool {
    let ports = matches!(number, protocol::TCP | protocol::UDP);
    !ports || permission.automatic || !(permission.everyone && permission.answers_everyone)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TCP 22 from one address is tracked, TCP 80 from everywhere is not, ICMP always is.
    #[test]
    fn the_users_guides_example() {
        let open = Permission { everyone: true, answers_everyone: true, automatic: false };
        let one = Permission { everyone: false, ..open };
        assert!(is_tracked(protocol::TCP, one));
        assert!(!is_tracked(protocol::TCP, open));
        assert!(!is_tracked(protocol::UDP, open));
        for number in [protocol::ICMP, protocol::ICMP_V6, 47, 50] {
            assert!(is_tracked(number, open), "{number}");
        }
        assert!(is_tracked(protocol::TCP, Permission { answers_everyone: false, ..open }));
        assert!(is_tracked(protocol::TCP, Permission { automatic: true, ..open }));
    }
}
