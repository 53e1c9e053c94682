//! Formats between two plugins: the handle that NCCL transfers from listener to connector, and
//! control messages.
//!
//! The handle, with numbers in network byte order:
//!
//! ```text
//!  0      8        10      12       16        24          28      32            48     64      72
//!  "SRDNCCL" version family  port  zero  run (u64)  listener  zero  IP address  zero   pending
//! ```
//!
//! NCCL passes the same 128 bytes to the connector again until the connection is open. So the
//! connector stores the number of the connection in `pending`.
//!
//! A control message has no bytes. Its tag is below 2^32, and so below the tags of connections, and
//! identifies the type of the message. Its data are two numbers of connections or listeners.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::abi::HANDLE_BYTES;
use crate::{Fault, Outcome};

const MAGIC: &[u8; 8] = b"SRDNCCL\x01";
const PENDING: std::ops::Range<usize> = 64..72;

/// Address of a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// Address of the listener's endpoint.
    pub address: SocketAddr,
    /// Incarnation of the listener's endpoint.
    pub incarnation: u64,
    /// Number of the listener at its endpoint.
    pub listener: u32,
}

impl Target {
    /// Returns the bytes of the handle.
    #[must_use]
    pub fn encode(&self) -> [u8; HANDLE_BYTES] {
        let mut bytes = [0; HANDLE_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[10..12].copy_from_slice(&self.address.port().to_be_bytes());
        bytes[16..24].copy_from_slice(&self.incarnation.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.listener.to_be_bytes());
        match self.address.ip() {
            IpAddr::V4(ip) => {
                bytes[8] = 4;
                bytes[32..36].copy_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                bytes[8] = 6;
                bytes[32..48].copy_from_slice(&ip.octets());
            }
        }
        bytes
    }

    /// Parses the bytes of a handle.
    ///
    /// # Errors
    /// A [`Fault`], if the bytes are no handle of this plugin.
    pub fn decode(bytes: &[u8; HANDLE_BYTES]) -> Outcome<Self> {
        let wrong = || {
            Fault::usage(
                "the handle to connect to is not this plugin's: load the same release of \
                 libnccl-net-srd.so in every process of the job",
            )
        };
        if bytes[..8] != *MAGIC {
            return Err(wrong());
        }
        let ip = match bytes[8] {
            4 => IpAddr::V4(Ipv4Addr::from(part::<4>(bytes, 32))),
            6 => IpAddr::V6(Ipv6Addr::from(part::<16>(bytes, 32))),
            _ => return Err(wrong()),
        };
        let target = Self {
            address: SocketAddr::new(ip, u16::from_be_bytes(part(bytes, 10))),
            incarnation: u64::from_be_bytes(part(bytes, 16)),
            listener: u32::from_be_bytes(part(bytes, 24)),
        };
        if ip.is_unspecified() || target.address.port() == 0 || target.incarnation == 0 {
            return Err(wrong());
        }
        Ok(target)
    }
}

/// Returns `pending` of a handle; zero if no connection was started.
#[must_use]
pub fn pending(bytes: &[u8; HANDLE_BYTES]) -> u64 {
    u64::from_ne_bytes(part(bytes, PENDING.start))
}

/// Sets `pending` of a handle to the number of the started connection.
pub fn set_pending(bytes: &mut [u8; HANDLE_BYTES], note: u64) {
    bytes[PENDING].copy_from_slice(&note.to_ne_bytes());
}

fn part<const N: usize>(bytes: &[u8; HANDLE_BYTES], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[at + i])
}

/// A control message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// A sender requests a connection to a listener.
    Connect {
        /// Number of the listener.
        listener: u32,
        /// Number of the sender's end.
        sender: u32,
    },
    /// The listener's endpoint accepts the connection.
    Accepted {
        /// Number of the sender's end.
        sender: u32,
        /// Number of the receiver's end, which the sender puts into the tags of its messages.
        receiver: u32,
    },
    /// The listener's endpoint refuses the connection: there is no such listener, or too many
    /// connections wait for it.
    Refused {
        /// Number of the sender's end.
        sender: u32,
    },
    /// One end of a connection is closed.
    Closed {
        /// Number of the end that is notified.
        to: u32,
        /// Number of the closed end.
        from: u32,
    },
    /// A message without content; its acknowledgement shows that the peer is alive.
    Probe,
}

impl Control {
    /// Returns tag and data of the message.
    #[must_use]
    pub fn encode(&self) -> (u64, u64) {
        let two = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        match *self {
            Self::Connect { listener, sender } => (1, two(listener, sender)),
            Self::Accepted { sender, receiver } => (2, two(sender, receiver)),
            Self::Refused { sender } => (3, two(sender, 0)),
            Self::Closed { to, from } => (4, two(to, from)),
            Self::Probe => (5, 0),
        }
    }

    /// Parses tag and data; `None` if no plugin sends such a message.
    #[must_use]
    pub fn decode(tag: u64, data: u64) -> Option<Self> {
        let (high, low) = halves(data);
        Some(match tag {
            1 => Self::Connect { listener: high, sender: low },
            2 => Self::Accepted { sender: high, receiver: low },
            3 => Self::Refused { sender: high },
            4 => Self::Closed { to: high, from: low },
            5 => Self::Probe,
            _ => return None,
        })
    }
}

/// Returns the high and the low half of a number.
#[must_use]
#[allow(clippy::cast_possible_truncation)] // truncation selects the halves
pub fn halves(of: u64) -> (u32, u32) {
    ((of >> 32) as u32, of as u32)
}

/// Returns the tag of a message on a connection: the number of the receiver's end, and NCCL's tag.
#[must_use]
pub fn tag(receiver: u32, tag: i32) -> u64 {
    u64::from(receiver) << 32 | u64::from(tag.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(address: &str) -> Target {
        let address = address.parse().unwrap();
        Target { address, incarnation: 0x0102_0304_0506_0708, listener: 9 }
    }

    #[test]
    fn a_handle_says_where_a_listener_is() {
        for address in ["10.1.2.3:4567", "[2001:db8::7]:65535"] {
            let bytes = target(address).encode();
            assert_eq!(Target::decode(&bytes), Ok(target(address)));
        }
    }

    #[test]
    fn what_is_no_handle_of_ours_is_refused() {
        let good = target("10.1.2.3:4567").encode();
        assert!(Target::decode(&[0; HANDLE_BYTES]).is_err());
        for (at, byte) in [(0, b'X'), (7, 2), (8, 5), (10, 0)] {
            let mut bytes = good;
            bytes[at] = byte;
            if at == 10 {
                bytes[11] = 0;
            }
            assert!(Target::decode(&bytes).is_err(), "{at}");
        }
    }

    #[test]
    fn the_note_of_a_connector_leaves_the_rest_alone() {
        let mut bytes = target("10.1.2.3:4567").encode();
        assert_eq!(pending(&bytes), 0);
        set_pending(&mut bytes, 77);
        assert_eq!(pending(&bytes), 77);
        assert_eq!(Target::decode(&bytes), Ok(target("10.1.2.3:4567")));
        set_pending(&mut bytes, 0);
        assert_eq!(bytes, target("10.1.2.3:4567").encode());
    }

    #[test]
    fn control_messages_come_back_as_they_were_and_no_connection_has_their_tags() {
        for control in [
            Control::Connect { listener: 1, sender: u32::MAX },
            Control::Accepted { sender: 3, receiver: 4 },
            Control::Refused { sender: 5 },
            Control::Closed { to: 6, from: 7 },
            Control::Probe,
        ] {
            let (tag, data) = control.encode();
            assert_eq!(Control::decode(tag, data), Some(control));
            assert!(tag < super::tag(1, 0));
        }
        assert_eq!((Control::decode(0, 0), Control::decode(6, 0)), (None, None));
        assert_eq!(tag(1, -1), 0x1_ffff_ffff);
    }
}
