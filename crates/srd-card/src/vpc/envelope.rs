//! What hosts say of a packet to each other: a Geneve header (RFC 8926) with one option.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +---+-----------+---------------+-------------------------------+
//! | 0 | 9 words   |C= 0x40        | 0x0800 or 0x86dd              |
//! +---+-----------+---------------+---------------+---------------+
//! | VNI: low 24 bits of the VPC's identifier      | 0             |
//! +-------------------------------+---------------+-----+---------+
//! | option class 0xff5d           | type 0x81     | 0   | 8 words |
//! +---------------+---------------+---------------+-----+---------+
//! | kind          | 0             | offload header, 10 bytes      |
//! +---------------+---------------+                               +
//! |                                                               |
//! +                                                               +
//! |                                                               |
//! +---------------------------------------------------------------+
//! | from: identifier of the interface that sends                  |
//! |                                                               |
//! +---------------------------------------------------------------+
//! | to: identifier of the interface, or of the gateway            |
//! |                                                               |
//! +-------------------------------+-------------------------------+
//! | port of a NAT gateway, or 0   | 0                             |
//! +-------------------------------+-------------------------------+
//! ```
//!
//! The packet follows from its IP header on. Nothing in the envelope is believed: the receiver
//! looks up whether the host may speak for `from` (V6). The VNI is for people that read captures.

use core::fmt;

use srd_vpc::id::{EgressOnlyGatewayId, EndpointId, EniId, InternetGatewayId, NatGatewayId, VpcId};
use srd_vpc::judge::Exit;

use crate::meta::offload::OFFLOAD_BYTES;

/// Bytes of an envelope, before the packet.
pub const ENVELOPE_BYTES: usize = 44;
/// The UDP port of Geneve.
pub const GENEVE_PORT: u16 = 6081;

/// Version 0 with nine words of options; a critical option is among them.
const FIRST_WORD: [u8; 2] = [9, 0x40];
/// A class for experiments, and our type in it, which receivers must know.
const OPTION: [u8; 4] = [0xff, 0x5d, 0x81, 8];
const ETHERTYPE_V4: u16 = 0x0800;
const ETHERTYPE_V6: u16 = 0x86dd;

/// From where to where a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Envelope {
    /// From an interface to an interface.
    Between {
        /// The sender.
        from: EniId,
        /// The receiver.
        to: EniId,
    },
    /// To the edge of a gateway; an IPv4 source is the public one.
    Leaving {
        /// The sender.
        from: EniId,
        /// The gateway.
        exit: Exit,
    },
    /// To the edge, by a NAT gateway: the source is the private one.
    ByNat {
        /// The sender.
        from: EniId,
        /// The gateway.
        nat: NatGatewayId,
    },
    /// From the internet, to a public address.
    Arriving,
    /// The answer to a packet that went by a NAT gateway; the destination is the private one.
    FromNat {
        /// The gateway.
        nat: NatGatewayId,
        /// The receiver.
        to: EniId,
        /// The port of the gateway that it came to; 0 if its protocol has none.
        port: u16,
    },
    /// From an interface behind a NAT gateway to another interface: the source is the private
    /// address of the gateway.
    Translated {
        /// The sender.
        from: EniId,
        /// The receiver.
        to: EniId,
    },
    /// To a NAT gateway: the answer to a packet that came translated.
    ToNat {
        /// The sender.
        from: EniId,
        /// The gateway.
        nat: NatGatewayId,
    },
}

/// Why bytes are no envelope.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EnvelopeError {
    /// Fewer bytes than an envelope has, or no packet after it.
    TooShort,
    /// Another version of Geneve, or options that this program does not know.
    Header,
    /// A kind that this program does not know.
    Kind(u8),
}

impl fmt::Display for EnvelopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort => write!(f, "fewer than {} bytes", ENVELOPE_BYTES + 1),
            Self::Header => f.write_str("not a Geneve header with the option of this program"),
            Self::Kind(kind) => write!(f, "an envelope of the unknown kind {kind}"),
        }
    }
}

impl core::error::Error for EnvelopeError {}

impl Envelope {
    fn fields(&self) -> (u8, u64, u64) {
        match *self {
            Self::Between { from, to } => (0, from.0, to.0),
            Self::Leaving { from, exit: Exit::InternetGateway(id) } => (1, from.0, id.0),
            Self::Leaving { from, exit: Exit::EgressOnlyGateway(id) } => (2, from.0, id.0),
            Self::Leaving { from, exit: Exit::Endpoint(id) } => (3, from.0, id.0),
            Self::ByNat { from, nat } => (4, from.0, nat.0),
            Self::Arriving => (5, 0, 0),
            Self::FromNat { nat, to, .. } => (6, nat.0, to.0),
            Self::Translated { from, to } => (7, from.0, to.0),
            Self::ToNat { from, nat } => (8, from.0, nat.0),
        }
    }

    /// Writes the envelope of a frame: an offload header and its packet.
    pub fn encode(&self, vpc: VpcId, frame: &[u8]) -> [u8; ENVELOPE_BYTES] {
        let mut out = [0; ENVELOPE_BYTES];
        let is_v6 = frame.get(OFFLOAD_BYTES).is_some_and(|first| first >> 4 == 6);
        let ethertype = if is_v6 { ETHERTYPE_V6 } else { ETHERTYPE_V4 };
        out[..2].copy_from_slice(&FIRST_WORD);
        out[2..4].copy_from_slice(&ethertype.to_be_bytes());
        out[4..7].copy_from_slice(&vpc.0.to_be_bytes()[5..]);
        out[8..12].copy_from_slice(&OPTION);
        let (kind, from, to) = self.fields();
        out[12] = kind;
        if let Some(offload) = frame.first_chunk::<OFFLOAD_BYTES>() {
            out[14..24].copy_from_slice(offload);
        }
        out[24..32].copy_from_slice(&from.to_be_bytes());
        out[32..40].copy_from_slice(&to.to_be_bytes());
        if let Self::FromNat { port, .. } = self {
            out[40..42].copy_from_slice(&port.to_be_bytes());
        }
        out
    }

    /// Reads an envelope (V9, V10): what it says, and the frame in it as its offload header and its
    /// packet.
    ///
    /// # Errors
    /// [`EnvelopeError`] says what is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<(Self, [u8; OFFLOAD_BYTES], &[u8]), EnvelopeError> {
        let (head, packet) =
            bytes.split_first_chunk::<ENVELOPE_BYTES>().ok_or(EnvelopeError::TooShort)?;
        if packet.is_empty() {
            return Err(EnvelopeError::TooShort);
        }
        if head[..2] != FIRST_WORD || head[8..12] != OPTION {
            return Err(EnvelopeError::Header);
        }
        let mut offload = [0; OFFLOAD_BYTES];
        offload.copy_from_slice(&head[14..24]);
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&head[at..at + 8]);
            u64::from_be_bytes(word)
        };
        let (from, to) = (word(24), word(32));
        let leaving = |exit| Self::Leaving { from: EniId(from), exit };
        let envelope = match head[12] {
            0 => Self::Between { from: EniId(from), to: EniId(to) },
            1 => leaving(Exit::InternetGateway(InternetGatewayId(to))),
            2 => leaving(Exit::EgressOnlyGateway(EgressOnlyGatewayId(to))),
            3 => leaving(Exit::Endpoint(EndpointId(to))),
            4 => Self::ByNat { from: EniId(from), nat: NatGatewayId(to) },
            5 => Self::Arriving,
            6 => {
                let port = u16::from_be_bytes([head[40], head[41]]);
                Self::FromNat { nat: NatGatewayId(from), to: EniId(to), port }
            }
            7 => Self::Translated { from: EniId(from), to: EniId(to) },
            8 => Self::ToNat { from: EniId(from), nat: NatGatewayId(to) },
            kind => return Err(EnvelopeError::Kind(kind)),
        };
        Ok((envelope, offload, packet))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{framed, v4, v6};
    use std::vec::Vec;

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
    fn what_is_written_is_read() {
        for envelope in ALL {
            for packet in [v4(6, (1, 2), b"data"), v6(17, (1, 2), b"data")] {
                let mut frame = framed(&packet);
                frame[0] = 1;
                let head = envelope.encode(VpcId(0x0011_2233_4455_6677), &frame);
                assert_eq!(head[4..7], [0x55, 0x66, 0x77]);
                let bytes: Vec<u8> = [&head[..], &frame[OFFLOAD_BYTES..]].concat();
                let read = Envelope::decode(&bytes).unwrap();
                assert_eq!(read, (envelope, *frame.first_chunk().unwrap(), &packet[..]));
            }
        }
    }

    #[test]
    fn anything_else_is_refused_with_its_reason() {
        let frame = framed(&v4(6, (1, 2), b"data"));
        let head = Envelope::Arriving.encode(VpcId(0), &frame);
        let good = [&head[..], &frame[OFFLOAD_BYTES..]].concat();
        for end in 0..=ENVELOPE_BYTES {
            assert_eq!(Envelope::decode(&good[..end]), Err(EnvelopeError::TooShort));
        }
        let with = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            Envelope::decode(&bytes).map(|read| read.0)
        };
        assert_eq!(with(12, 9), Err(EnvelopeError::Kind(9)));
        for at in [0, 1, 8, 9, 10, 11] {
            assert_eq!(with(at, 0), Err(EnvelopeError::Header), "{at}");
        }
    }
}
