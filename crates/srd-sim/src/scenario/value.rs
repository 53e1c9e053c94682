//! Values of a scenario that have several notations.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::engine::node::ENDLESS;

/// A number of bytes: `2097152`, `"2MiB"`, `"2MB"`, or `"endless"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bytes(pub u64);

const UNITS: [(&str, u64); 8] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("B", 1),
];

impl std::str::FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text == "endless" {
            return Ok(Self(ENDLESS));
        }
        let split = UNITS.iter().find_map(|(unit, n)| Some((text.strip_suffix(unit)?, *n)));
        let (digits, unit) = split.unwrap_or((text, 1));
        let number = digits.trim().replace('_', "").parse::<u64>().ok();
        number.and_then(|n| n.checked_mul(unit)).map(Self).ok_or_else(|| {
            format!(
                "`{text}` is no number of bytes; write 65536, \"64KiB\", \"2MB\" or \"endless\""
            )
        })
    }
}

struct BytesVisitor;

impl Visitor<'_> for BytesVisitor {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of bytes such as 65536, \"64KiB\" or \"endless\"")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Bytes, E> {
        u64::try_from(value).map(Bytes).map_err(|_| E::custom("bytes must not be negative"))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Bytes, E> {
        Ok(Bytes(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Bytes, E> {
        value.parse().map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BytesVisitor)
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 == ENDLESS {
            serializer.serialize_str("endless")
        } else {
            serializer.serialize_u64(self.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_people_write_them() {
        for (text, bytes) in [
            ("65536", 65_536),
            ("64KiB", 65_536),
            ("64 KiB", 65_536),
            ("2MB", 2_000_000),
            ("2_000B", 2_000),
            ("endless", u64::MAX),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)));
        }
        for text in ["", "-1", "1.5MB", "many", "99999999999TiB", "5Kb"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }
}
