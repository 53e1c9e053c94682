//! The names of the fabric's parts: hosts, links and address families.
//!
//! A host is written `h<leaf>.<host>`, a link `l<leaf>-s<spine>`; both can be parsed again, also
//! from JSON.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A host: the `host`-th machine under leaf `leaf`, both counted from zero. Written `h0.1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostId {
    /// The leaf (rack) to which the host is connected.
    pub leaf: u16,
    /// Number of the host under its leaf.
    pub host: u16,
}

/// The cable between a leaf and a spine, both counted from zero. Written `l0-s2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LinkId {
    /// Number of the leaf.
    pub leaf: u16,
    /// Number of the spine.
    pub spine: u16,
}

/// Internet Protocol version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    #[default]
    V4,
    /// IPv6.
    V6,
}

/// Network of a host's addresses that a measurement uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// The fabric itself, over IPv4.
    #[default]
    V4,
    /// The fabric itself, over IPv6.
    V6,
    /// The addresses behind `srd up`, over IPv4: see [`crate::express`].
    Overlay,
}

impl Network {
    /// Returns the IP version of the network's addresses.
    #[must_use]
    pub fn family(self) -> Family {
        if self == Network::V6 { Family::V6 } else { Family::V4 }
    }

    /// Returns the unspecified address, which stands for all addresses of a host.
    #[must_use]
    pub fn unspecified(self) -> IpAddr {
        match self.family() {
            Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
        }
    }
}

impl From<Family> for Network {
    fn from(family: Family) -> Network {
        match family {
            Family::V4 => Network::V4,
            Family::V6 => Network::V6,
        }
    }
}

/// Error: a string that is no name of a host or link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseIdError {
    text: String,
    expected: &'static str,
}

impl fmt::Display for ParseIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not {}", self.text, self.expected)
    }
}

impl std::error::Error for ParseIdError {}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "h{}.{}", self.leaf, self.host)
    }
}

impl FromStr for HostId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let numbers = text.strip_prefix('h').unwrap_or(text).split_once('.');
        let parsed = numbers
            .and_then(|(leaf, host)| Some(HostId { leaf: decimal(leaf)?, host: decimal(host)? }));
        parsed.ok_or(ParseIdError {
            text: text.into(),
            expected: "a host: write `h<leaf>.<host>`, for example `h0.1`",
        })
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "l{}-s{}", self.leaf, self.spine)
    }
}

impl FromStr for LinkId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let parsed = text.split_once('-').and_then(|(leaf, spine)| {
            Some(LinkId {
                leaf: decimal(leaf.strip_prefix('l')?)?,
                spine: decimal(spine.strip_prefix('s')?)?,
            })
        });
        parsed.ok_or(ParseIdError {
            text: text.into(),
            expected: "a link: write `l<leaf>-s<spine>`, for example `l0-s2`",
        })
    }
}

/// Parses digits without sign or leading zero: `+1` and `01` would give one host two names.
fn decimal(digits: &str) -> Option<u16> {
    let canonical =
        digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    if canonical { digits.parse().ok() } else { None }
}

macro_rules! through_string {
    ($id:ty) => {
        impl TryFrom<String> for $id {
            type Error = ParseIdError;
            fn try_from(text: String) -> Result<Self, ParseIdError> {
                text.parse()
            }
        }
        impl From<$id> for String {
            fn from(id: $id) -> String {
                id.to_string()
            }
        }
    };
}
through_string!(HostId);
through_string!(LinkId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_survive_their_text() {
        let host = HostId { leaf: 1, host: 12 };
        assert_eq!(host.to_string().parse(), Ok(host));
        assert_eq!("0.3".parse(), Ok(HostId { leaf: 0, host: 3 }));
        let link = LinkId { leaf: 3, spine: 0 };
        assert_eq!(link.to_string().parse(), Ok(link));
    }

    #[test]
    fn an_id_has_only_one_spelling() {
        for bad in ["", "h", "h1", "h1.", "h+1.0", "h01.0", "h1.70000", "h1.2.3", "l1.2"] {
            assert!(bad.parse::<HostId>().is_err(), "{bad}");
        }
        for bad in ["", "l0", "l0-", "0-1", "l0-s01", "s0-l0", "l0-s0-s1"] {
            assert!(bad.parse::<LinkId>().is_err(), "{bad}");
        }
    }
}
