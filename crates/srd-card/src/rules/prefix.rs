//! Mapping of inner addresses to peers: longest-prefix match over the addresses that each peer may
//! use. The mapping decides to which peer a packet is sent, and whether a peer may send from an
//! address.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

/// A range of IP addresses: an address, and the number of leading bits that all addresses of the
/// range share with it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// Creates a prefix. Returns `None` if the length exceeds the bits of the address, or if bits
    /// beyond the length are set.
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = Self { address, length };
        (length <= bits && prefix.masked(address) == Some(key(address))).then_some(prefix)
    }

    /// Returns the address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Number of leading bits that all addresses of the prefix have in common.
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Whether the prefix contains an address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.masked(address) == Some(key(self.address))
    }

    /// Returns the leading bits of an address of the same family, as a key.
    fn masked(&self, address: IpAddr) -> Option<u128> {
        (address.is_ipv4() == self.address.is_ipv4()).then(|| key(address) & mask(self.length))
    }
}

/// Bits of an address, left-aligned.
fn key(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => u128::from(u32::from(a)) << 96,
        IpAddr::V6(a) => u128::from(a),
    }
}

fn mask(length: u8) -> u128 {
    if length == 0 { 0 } else { u128::MAX << (128 - u32::from(length.min(128))) }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Error: the text is not a valid prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrefixError;

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not ADDRESS/LENGTH with the bits beyond LENGTH zero, such as 10.1.0.0/16")
    }
}

impl core::error::Error for PrefixError {}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| PrefixError)?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Ok(bits), str::parse).map_err(|_| PrefixError)?;
        Self::new(address, length).ok_or(PrefixError)
    }
}

/// A table from prefixes to values. A search needs one lookup for each length in use, longest
/// first. The card searches once for each flow, not for each packet.
#[derive(Clone, Debug, Default)]
pub struct Routes<T> {
    v4: BTreeMap<(u8, u128), T>,
    v6: BTreeMap<(u8, u128), T>,
    lengths: [Vec<u8>; 2],
}

impl<T: Copy + PartialEq> Routes<T> {
    /// Sets the value of a prefix; returns the previous value.
    pub fn insert(&mut self, prefix: Prefix, value: T) -> Option<T> {
        let family = usize::from(!prefix.address.is_ipv4());
        let lengths = &mut self.lengths[family];
        if let Err(at) = lengths.binary_search_by(|l| prefix.length.cmp(l)) {
            lengths.insert(at, prefix.length);
        }
        self.table(prefix.address).insert((prefix.length, key(prefix.address)), value)
    }

    /// Removes every prefix with this value.
    pub fn remove(&mut self, value: T) {
        self.v4.retain(|_, v| *v != value);
        self.v6.retain(|_, v| *v != value);
    }

    /// Returns the value of the longest prefix that contains `address`.
    pub fn find(&self, address: IpAddr) -> Option<T> {
        let (table, lengths) = match address {
            IpAddr::V4(_) => (&self.v4, &self.lengths[0]),
            IpAddr::V6(_) => (&self.v6, &self.lengths[1]),
        };
        let bits = key(address);
        lengths.iter().find_map(|&l| table.get(&(l, bits & mask(l))).copied())
    }

    fn table(&mut self, like: IpAddr) -> &mut BTreeMap<(u8, u128), T> {
        if like.is_ipv4() { &mut self.v4 } else { &mut self.v6 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_wins_in_both_families() {
        let mut routes = Routes::default();
        for (prefix, value) in
            [("0.0.0.0/0", 0), ("10.0.0.0/8", 1), ("10.1.2.3", 2), ("fd00::/8", 3)]
        {
            assert_eq!(routes.insert(prefix.parse().unwrap(), value), None);
        }
        let find = |a: &str| routes.find(a.parse().unwrap());
        assert_eq!(find("192.0.2.1"), Some(0));
        assert_eq!(find("10.9.9.9"), Some(1));
        assert_eq!(find("10.1.2.3"), Some(2));
        assert_eq!(find("fd12::1"), Some(3));
        assert_eq!(find("2001:db8::1"), None);
        routes.remove(2);
        assert_eq!(routes.find("10.1.2.3".parse().unwrap()), Some(1));
    }

    #[test]
    fn text_that_is_no_prefix_is_refused() {
        for bad in ["10.0.0.1/8", "10.0.0.0/33", "fd00::/129", "x", "10.0.0.0/", ""] {
            assert_eq!(bad.parse::<Prefix>(), Err(PrefixError), "{bad}");
        }
        assert_eq!("10.0.0.0/8".parse::<Prefix>().unwrap().to_string(), "10.0.0.0/8");
    }

    use std::string::ToString;
}
