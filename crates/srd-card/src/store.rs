//! State of a card as bytes, for the process that takes over from this process: numbers in
//! little-endian order, each table after its length.
//!
//! The process that writes the bytes and the one that reads them use the same version of the
//! format: no field is skipped, and no missing field gets a default. Bound: reading takes memory in
//! proportion to the bytes.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr};

use srd_proto::time::{Duration, Instant};
use srd_vpc::id::{EniId, NatGatewayId};

/// Upper bound of stored counters: a counter is valid if it is smaller.
const COUNTER_END: u64 = 1 << 62;

/// Reason why bytes are not accepted as state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StoredError {
    /// The bytes are not the state of a card.
    NotOurs,
    /// The bytes have another version of the format.
    Version {
        /// Version of the format in the bytes.
        found: u16,
        /// Version of the format that this program reads.
        wanted: u16,
    },
    /// The bytes end before the end of the state.
    Short,
    /// The bytes continue after the end of the state.
    Long,
    /// A part of the state, named in the text, contains an impossible value.
    Wrong(&'static str),
}

impl fmt::Display for StoredError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOurs => f.write_str("this is no state of a card"),
            Self::Version { found, wanted } => write!(
                f,
                "the state is of version {found}, and this program reads version {wanted}: end \
                 the other card first"
            ),
            Self::Short => f.write_str("the state is cut off"),
            Self::Long => f.write_str("bytes follow the state"),
            Self::Wrong(what) => write!(f, "the state is damaged: {what}"),
        }
    }
}

impl core::error::Error for StoredError {}

/// Reader of stored bytes.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    /// Returns the next `count` bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], StoredError> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(StoredError::Short)?;
        self.0 = rest;
        Ok(head)
    }

    /// Reads the number of items that follow. Each item has at least one byte, so a number beyond
    /// the remaining bytes is an error.
    pub(crate) fn count(&mut self) -> Result<usize, StoredError> {
        let count = u32::read(self)? as usize;
        if count > self.0.len() { Err(StoredError::Short) } else { Ok(count) }
    }

    /// Reads a counter. Values from [`COUNTER_END`] on are refused: no real counter reaches them,
    /// and the counter must have space to increase.
    pub(crate) fn counter(&mut self) -> Result<u64, StoredError> {
        let count = u64::read(self)?;
        if count < COUNTER_END { Ok(count) } else { Err(StoredError::Wrong("a counter")) }
    }

    /// Checks that no bytes follow.
    pub(crate) fn end(&self) -> Result<(), StoredError> {
        if self.0.is_empty() { Ok(()) } else { Err(StoredError::Long) }
    }
}

/// A value that can be written as bytes and read from them.
pub(crate) trait Stored: Sized {
    fn write(&self, out: &mut Vec<u8>);
    fn read(from: &mut Reader<'_>) -> Result<Self, StoredError>;
}

/// Writes the number of items that follow, in 32 bits: a stored table has at most millions of
/// items.
pub(crate) fn write_count(count: usize, out: &mut Vec<u8>) {
    u32::try_from(count).unwrap_or(u32::MAX).write(out);
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Stored for $number {
            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn read(from: &mut Reader<'_>) -> Result<Self, StoredError> {
                let bytes = from.bytes(size_of::<Self>())?;
                let bytes = bytes.try_into().map_err(|_| StoredError::Short)?;
                Ok(Self::from_le_bytes(bytes))
            }
        }
    )*};
}
numbers!(u8, u16, u32, u64, i64, i128);

/// Implements `Stored` for a struct. The invocation has to name each member of the struct.
macro_rules! stored {
    ($name:ident { $($member:ident),* $(,)? }) => {
        impl $crate::store::Stored for $name {
            fn write(&self, out: &mut alloc::vec::Vec<u8>) {
                let Self { $($member),* } = self;
                $($crate::store::Stored::write($member, out);)*
            }
            fn read(
                from: &mut $crate::store::Reader<'_>,
            ) -> Result<Self, $crate::store::StoredError> {
                Ok(Self { $($member: $crate::store::Stored::read(from)?),* })
            }
        }
    };
}

/// Implements `Stored` for a struct of counters. Reading refuses counters that are close to
/// overflow.
macro_rules! stored_counters {
    ($name:ident { $($member:ident),* $(,)? }) => {
        impl $crate::store::Stored for $name {
            fn write(&self, out: &mut alloc::vec::Vec<u8>) {
                let Self { $($member),* } = self;
                $($crate::store::Stored::write($member, out);)*
            }
            fn read(
                from: &mut $crate::store::Reader<'_>,
            ) -> Result<Self, $crate::store::StoredError> {
                Ok(Self { $($member: from.counter()?),* })
            }
        }
    };
}

/// Implements `Stored` for an enum. The invocation has to list each value; the position in the list
/// is the number that is stored for the value.
macro_rules! stored_values {
    ($name:ident: $([$($value:tt)+]),* $(,)?) => {
        impl $name {
            /// All values of the type. The index of a value is the number that is stored for it.
            pub(crate) const ALL: &'static [Self] = &[$($($value)+),*];
        }

        impl $crate::store::Stored for $name {
            fn write(&self, out: &mut alloc::vec::Vec<u8>) {
                match self {
                    $($($value)+)|* => {}
                }
                let number = Self::ALL.iter().position(|value| value == self);
                out.push(u8::try_from(number.unwrap_or(usize::MAX)).unwrap_or(u8::MAX));
            }
            fn read(
                from: &mut $crate::store::Reader<'_>,
            ) -> Result<Self, $crate::store::StoredError> {
                let number = usize::from(u8::read(from)?);
                let wrong = $crate::store::StoredError::Wrong(stringify!($name));
                Self::ALL.get(number).copied().ok_or(wrong)
            }
        }
    };
}

/// Implements `Stored` for a type that is stored as a value of another type.
macro_rules! stored_as {
    ($($name:ty: $read:expr, $write:expr;)*) => {$(
        impl Stored for $name {
            fn write(&self, out: &mut Vec<u8>) {
                #[allow(clippy::redundant_closure_call)]
                ($write)(self).write(out);
            }
            fn read(from: &mut Reader<'_>) -> Result<Self, StoredError> {
                #[allow(clippy::redundant_closure_call)]
                Ok(($read)(Stored::read(from)?))
            }
        }
    )*};
}
stored_as! {
    Instant: Instant::from_nanos, |at: &Instant| at.as_nanos();
    Duration: Duration::from_nanos, |time: &Duration| time.as_nanos();
    EniId: EniId, |id: &EniId| id.0;
    NatGatewayId: NatGatewayId, |id: &NatGatewayId| id.0;
    Ipv4Addr: Ipv4Addr::from_bits, |address: &Ipv4Addr| address.to_bits();
}

impl Stored for bool {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, StoredError> {
        match u8::read(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(StoredError::Wrong("neither yes nor no")),
        }
    }
}

impl Stored for IpAddr {
    fn write(&self, out: &mut Vec<u8>) {
        self.is_ipv6().write(out);
        match self {
            Self::V4(address) => out.extend_from_slice(&address.octets()),
            Self::V6(address) => out.extend_from_slice(&address.octets()),
        }
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, StoredError> {
        let short = |_| StoredError::Short;
        if bool::read(from)? {
            let octets: [u8; 16] = from.bytes(16)?.try_into().map_err(short)?;
            return Ok(octets.into());
        }
        let octets: [u8; 4] = from.bytes(4)?.try_into().map_err(short)?;
        Ok(octets.into())
    }
}

impl Stored for Arc<str> {
    fn write(&self, out: &mut Vec<u8>) {
        write_count(self.len(), out);
        out.extend_from_slice(self.as_bytes());
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, StoredError> {
        let count = from.count()?;
        let text = core::str::from_utf8(from.bytes(count)?);
        text.map(Self::from).map_err(|_| StoredError::Wrong("a name that is no text"))
    }
}

impl<T: Stored> Stored for Option<T> {
    fn write(&self, out: &mut Vec<u8>) {
        self.is_some().write(out);
        self.iter().for_each(|value| value.write(out));
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, StoredError> {
        if bool::read(from)? { T::read(from).map(Some) } else { Ok(None) }
    }
}

impl<T: Stored> Stored for Vec<T> {
    fn write(&self, out: &mut Vec<u8>) {
        write_count(self.len(), out);
        self.iter().for_each(|value| value.write(out));
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, StoredError> {
        let count = from.count()?;
        (0..count).map(|_| T::read(from)).collect()
    }
}

impl Stored for () {
    fn write(&self, _: &mut Vec<u8>) {}
    fn read(_: &mut Reader<'_>) -> Result<Self, StoredError> {
        Ok(())
    }
}

impl<A: Stored, B: Stored> Stored for (A, B) {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, StoredError> {
        Ok((A::read(from)?, B::read(from)?))
    }
}

impl<T: Stored> Stored for [T; 2] {
    fn write(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|value| value.write(out));
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, StoredError> {
        Ok([T::read(from)?, T::read(from)?])
    }
}

pub(crate) use {stored, stored_counters, stored_values};
