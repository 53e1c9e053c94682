//! Why a NAT gateway does not translate a packet.

/// Why a packet was not translated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NatError {
    /// It is neither TCP nor UDP nor an ICMP echo or error of IPv4.
    Protocol,
    /// It is a fragment of TCP or ICMP, or a later one of UDP whose first one is not known.
    Fragment,
    /// All ports that were tried stand for other connections to its destination, or the table or
    /// the interface's part of it is full: `ErrorPortAllocation` of a NAT gateway.
    NoPort,
    /// It is a segment of TCP that opens no connection, and belongs to none: the interface gets
    /// a [reset](super::nat::reset).
    NoConnection,
    /// It is an ICMP error that quotes no packet of a connection, or is damaged.
    ErrorAboutNothing,
}

impl NatError {
    /// The name under which such packets are counted, for people.
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
