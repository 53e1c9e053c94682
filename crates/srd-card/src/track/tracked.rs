//! Selection of the connections that are tracked.
//!
//! Source: EC2 User Guide, *Security group connection tracking*.

use crate::meta::packet::protocol;

/// Properties of the rules of security groups that decide whether a connection is tracked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Permission {
    /// Whether the rule that admits the connection is for all addresses of its family (0.0.0.0/0
    /// or ::/0).
    pub everyone: bool,
    /// Whether the other direction has a rule for all addresses of the family and all ports (0 to
    /// 65535).
    pub answers_everyone: bool,
    /// Whether the connection is always tracked because of a middlebox on its path: an egress-only
    /// internet gateway, Global Accelerator, a NAT gateway, a Network Firewall endpoint, a Network
    /// Load Balancer, PrivateLink, a Lambda interface, a DynamoDB gateway endpoint.
    pub automatic: bool,
}

/// Whether a connection of protocol `number` is tracked (T4). An untracked connection takes no
/// entry of the allowance.
pub fn is_tracked(number: u8, permission: Permission) -> bool {
    let ports = matches!(number, protocol::TCP | protocol::UDP);
    !ports || permission.automatic || !(permission.everyone && permission.answers_everyone)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the EC2 User Guide: TCP to port 22 from one address is tracked, TCP to port
    /// 80 from all addresses is not tracked, and ICMP is always tracked.
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
