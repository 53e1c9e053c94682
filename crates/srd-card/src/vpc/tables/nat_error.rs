//! Reasons for which a NAT gateway does not translate a packet.

/// Reason for which a packet was not translated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NatError {
    /// The packet is neither TCP nor UDP nor an ICMP echo or error of IPv4.
    Protocol,
    /// The packet is a fragment of TCP or ICMP, or a later fragment of UDP whose first fragment is
    /// unknown.
    Fragment,
    /// All ports that were tried are assigned to other connections to the packet's destination, or
    /// the table or the interface's part of it is full: `ErrorPortAllocation` of a NAT gateway.
    NoPort,
    /// The packet is a segment of TCP that opens no connection, and belongs to none. The interface
    /// gets a [reset](crate::vpc::tables::nat::reset).
    NoConnection,
    /// The packet is an ICMP error that quotes no packet of a connection, or is damaged.
    ErrorAboutNothing,
}

impl NatError {
    /// Name of the reason, for users.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Protocol => "nat of a protocol that it does not carry",
            Self::Fragment => "nat of a fragment",
            Self::NoPort => "nat without port",
            Self::NoConnection => "nat of a segment of no connection",
            Self::ErrorAboutNothing => "nat of an icmp error about no connection",
        }
    }
}
