//! Sender and receiver of a packet between hosts: the meaning of a frame's [`Trailer`].
//!
//! The trailer is not trusted: the receiver checks whether the host may send for the interface
//! (V6).

use core::fmt;

use srd_vpc::id::{EgressOnlyGatewayId, EndpointId, EniId, InternetGatewayId, NatGatewayId};
use srd_vpc::judge::Exit;

use crate::wire::cloud::{TRAILER_BYTES, Trailer};

/// Sender and receiver of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Envelope {
    /// From one interface to another.
    Between {
        /// Interface that sends the packet.
        from: EniId,
        /// Interface that receives the packet.
        to: EniId,
    },
    /// From an interface out of the cloud, to the edge of a gateway. An IPv4 source address is
    /// already the public address.
    Leaving {
        /// Interface that sends the packet.
        from: EniId,
        /// Gateway through which the packet leaves.
        exit: Exit,
    },
    /// From an interface out of the cloud, to the edge that translates for a NAT gateway. The
    /// source address is still the private address.
    ByNat {
        /// Interface that sends the packet.
        from: EniId,
        /// NAT gateway through which the packet leaves.
        nat: NatGatewayId,
    },
    /// From the internet, to a public address.
    Arriving,
    /// From the edge to an interface: the answer to a packet that left through a NAT gateway. The
    /// destination address is already the private address.
    FromNat {
        /// NAT gateway to which the answer came.
        nat: NatGatewayId,
        /// Interface that receives the packet.
        to: EniId,
        /// Port of the gateway to which the packet came; 0 for a protocol without ports.
        port: u16,
    },
    /// From an interface behind a NAT gateway to another interface. The source address is the
    /// private address of the gateway.
    Translated {
        /// Interface that sends the packet.
        from: EniId,
        /// Interface that receives the packet.
        to: EniId,
    },
    /// From an interface to a NAT gateway: the answer to a packet that the gateway translated.
    ToNat {
        /// Interface that sends the packet.
        from: EniId,
        /// NAT gateway to which the answer is sent.
        nat: NatGatewayId,
    },
}

/// Error: the trailer is of an unknown kind (V9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownKind(pub u8);

impl fmt::Display for UnknownKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an envelope of the unknown kind {}", self.0)
    }
}

impl core::error::Error for UnknownKind {}

impl Envelope {
    fn fields(&self) -> (u8, u16, u64, u64) {
        match *self {
            Self::Between { from, to } => (0, 0, from.0, to.0),
            Self::Leaving { from, exit: Exit::InternetGateway(id) } => (1, 0, from.0, id.0),
            Self::Leaving { from, exit: Exit::EgressOnlyGateway(id) } => (2, 0, from.0, id.0),
            Self::Leaving { from, exit: Exit::Endpoint(id) } => (3, 0, from.0, id.0),
            Self::ByNat { from, nat } => (4, 0, from.0, nat.0),
            Self::Arriving => (5, 0, 0, 0),
            Self::FromNat { nat, to, port } => (6, port, nat.0, to.0),
            Self::Translated { from, to } => (7, 0, from.0, to.0),
            Self::ToNat { from, nat } => (8, 0, from.0, nat.0),
        }
    }

    /// Identifier of the interface or the NAT gateway that sends the packet; 0 for a packet from
    /// the internet.
    pub fn sender(&self) -> u64 {
        self.fields().2
    }

    /// Returns the trailer that is sent after the frame.
    pub fn trailer(&self) -> Trailer {
        let (kind, port, from, to) = self.fields();
        let mut out = [0; TRAILER_BYTES];
        out[0] = kind;
        out[2..4].copy_from_slice(&port.to_be_bytes());
        out[4..12].copy_from_slice(&from.to_be_bytes());
        out[12..].copy_from_slice(&to.to_be_bytes());
        Trailer(out)
    }

    /// Reads a trailer (V9).
    ///
    /// # Errors
    /// [`UnknownKind`] if the kind is unknown.
    pub fn of(trailer: Trailer) -> Result<Self, UnknownKind> {
        let Trailer([kind, _, p0, p1, from @ .., t0, t1, t2, t3, t4, t5, t6, t7]) = trailer;
        let (from, to) = (u64::from_be_bytes(from), [t0, t1, t2, t3, t4, t5, t6, t7]);
        let to = u64::from_be_bytes(to);
        let leaving = |exit| Self::Leaving { from: EniId(from), exit };
        Ok(match kind {
            0 => Self::Between { from: EniId(from), to: EniId(to) },
            1 => leaving(Exit::InternetGateway(InternetGatewayId(to))),
            2 => leaving(Exit::EgressOnlyGateway(EgressOnlyGatewayId(to))),
            3 => leaving(Exit::Endpoint(EndpointId(to))),
            4 => Self::ByNat { from: EniId(from), nat: NatGatewayId(to) },
            5 => Self::Arriving,
            6 => {
                let port = u16::from_be_bytes([p0, p1]);
                Self::FromNat { nat: NatGatewayId(from), to: EniId(to), port }
            }
            7 => Self::Translated { from: EniId(from), to: EniId(to) },
            8 => Self::ToNat { from: EniId(from), nat: NatGatewayId(to) },
            kind => return Err(UnknownKind(kind)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Envelope; 9] = [
        Envelope::Between { from: EniId(1), to: EniId(u64::MAX) },
        Envelope::Leaving { from: EniId(2), exit: Exit::InternetGateway(InternetGatewayId(3)) },
        Envelope::Leaving { from: EniId(2), exit: Exit::EgressOnlyGateway(EgressOnlyGatewayId(4)) },
        Envelope::Leaving { from: EniId(2), exit: Exit::Endpoint(EndpointId(5)) },
        Envelope::ByNat { from: EniId(6), nat: NatGatewayId(7) },
        Envelope::Arriving,
        Envelope::FromNat { nat: NatGatewayId(8), to: EniId(9), port: 40_000 },
        Envelope::Translated { from: EniId(10), to: EniId(11) },
        Envelope::ToNat { from: EniId(12), nat: NatGatewayId(13) },
    ];

    #[test]
    fn every_envelope_is_read_as_it_was_written() {
        for envelope in ALL {
            assert_eq!(Envelope::of(envelope.trailer()), Ok(envelope));
        }
    }

    #[test]
    fn a_trailer_of_another_kind_is_refused() {
        for kind in 9..=u8::MAX {
            let mut trailer = Envelope::Arriving.trailer();
            trailer.0[0] = kind;
            assert_eq!(Envelope::of(trailer), Err(UnknownKind(kind)));
        }
    }
}
