//! Addresses as text: `srd://192.0.2.1:40001/17d3a5c2e8b90f41`.
//!
//! The last part is the incarnation, which identifies one run of the endpoint at this socket
//! address. An address without an incarnation matches any run.

use std::fmt;
use std::net::SocketAddr;

use crate::{Error, Outcome};

/// Buffer size for the longest address with its closing zero, in bytes.
pub const ADDRESS_BYTES: usize = 96;

/// The address of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// Socket address of the endpoint.
    pub place: SocketAddr,
    /// Incarnation of the endpoint; zero matches any run.
    pub incarnation: u64,
}

impl Address {
    /// Parses an address, with or without the scheme and the incarnation.
    ///
    /// # Errors
    /// An error that describes the fault, if the text is no address.
    pub fn parse(text: &str) -> Outcome<Self> {
        let form = || {
            let shown: String = text.chars().take(ADDRESS_BYTES).collect();
            Error::invalid(format!(
                "{shown:?} is no address: give what srd_address wrote, or IP:PORT"
            ))
        };
        let rest = text.strip_prefix("srd://").unwrap_or(text);
        let (place, incarnation) = match rest.split_once('/') {
            None => (rest, 0),
            Some((place, run)) => (place, incarnation(run).ok_or_else(form)?),
        };
        let place: SocketAddr = place.parse().map_err(|_| form())?;
        if place.port() == 0 || place.ip().is_unspecified() || place.ip().is_multicast() {
            return Err(form());
        }
        Ok(Self { place, incarnation })
    }
}

/// Parses an incarnation: sixteen hexadecimal digits, not all zero.
fn incarnation(text: &str) -> Option<u64> {
    let digits = text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    u64::from_str_radix(text, 16).ok().filter(|number| digits && *number != 0)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "srd://{}", self.place)?;
        if self.incarnation == 0 { Ok(()) } else { write!(f, "/{:016x}", self.incarnation) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_their_text_and_fit_its_room() {
        let longest = "[fe80:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967295]:65535";
        for place in ["192.0.2.1:40001", "[2001:db8::1]:7", longest] {
            for incarnation in [0, 1, u64::MAX] {
                let address = Address { place: place.parse().unwrap(), incarnation };
                let text = address.to_string();
                assert!(text.len() < ADDRESS_BYTES, "{text}");
                assert_eq!(Address::parse(&text), Ok(address));
            }
        }
    }

    #[test]
    fn the_scheme_and_the_run_may_be_left_out() {
        let whoever = Address::parse("192.0.2.1:40001").unwrap();
        assert_eq!(whoever.incarnation, 0);
        let run = Address::parse("192.0.2.1:40001/00000000000000ff").unwrap();
        assert_eq!((run.place, run.incarnation), (whoever.place, 255));
    }

    #[test]
    fn what_is_no_address_is_refused_and_shown() {
        for wrong in [
            "",
            "srd://",
            "localhost:7",
            "192.0.2.1",
            "192.0.2.1:0",
            "0.0.0.0:7",
            "224.0.0.1:7",
            "192.0.2.1:7/",
            "192.0.2.1:7/12",
            "192.0.2.1:7/0000000000000000",
            "192.0.2.1:7/+00000000000000f",
            "192.0.2.1:7/00000000000000ff/",
        ] {
            let error = Address::parse(wrong).unwrap_err().to_string();
            assert!(error.contains(&format!("{wrong:?}")), "{error}");
        }
    }
}
