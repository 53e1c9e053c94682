//! Receive side scaling: selection of the queue for a flow's packets.
//!
//! Source: the ENA Linux driver, and the hash calculator of Amazon's ENA utilities. The tests
//! compare with results of this calculator.

use core::fmt;
use core::net::IpAddr;

use crate::meta::key::FlowKey;

/// Length of a hash key in bytes.
pub const KEY_BYTES: usize = 40;
/// Number of entries of the indirection table, which maps hashes to queues.
pub const TABLE_ENTRIES: usize = 128;

/// Key of adapters whose key cannot be changed: the 32-bit words of Microsoft's verification key,
/// from the last to the first.
pub const FIXED_KEY: [u8; KEY_BYTES] = [
    0xbe, 0xac, 0x01, 0xfa, 0x6a, 0x42, 0xb7, 0x3b, 0x80, 0x30, 0xf2, 0x0c, 0x77, 0xcb, 0x2d, 0xa3,
    0xae, 0x7b, 0x30, 0xb4, 0xd0, 0xca, 0x2b, 0xcb, 0x43, 0xa3, 0x8f, 0xb0, 0x41, 0x67, 0x25, 0x3d,
    0x25, 0x5b, 0x0e, 0xc2, 0x6d, 0x5a, 0x56, 0xda,
];

/// Method by which an adapter hashes a flow, with its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hash {
    /// The standard method: the key in order, with the initial value zero (DPDK, FreeBSD).
    Standard([u8; KEY_BYTES]),
    /// The method of ENA adapters for Linux and Windows: the key's bytes from the last to the
    /// first, with all bits of the initial value set.
    Reversed([u8; KEY_BYTES]),
    /// The method of adapters with a fixed key: both directions of a flow have one hash.
    Symmetric,
}

impl Hash {
    /// Hash of a flow's packets: of the addresses and, if the flow has ports, of the ports (D1).
    pub fn of(&self, flow: &FlowKey) -> u32 {
        match self {
            Self::Standard(key) => toeplitz(key, 0, flow),
            Self::Reversed(key) => {
                let mut key = *key;
                key.reverse();
                toeplitz(&key, u32::MAX, flow)
            }
            Self::Symmetric => {
                let mut sorted = *flow;
                if sorted.destination < sorted.source {
                    core::mem::swap(&mut sorted.source, &mut sorted.destination);
                }
                if sorted.ports.1 < sorted.ports.0 {
                    sorted.ports = (sorted.ports.1, sorted.ports.0);
                }
                let low = toeplitz(&FIXED_KEY, u32::MAX, &sorted) & 0xffff;
                low << 16 | low
            }
        }
    }
}

/// The default method is [`Hash::Symmetric`], that of adapters with a fixed key (D1).
impl Default for Hash {
    fn default() -> Self {
        Self::Symmetric
    }
}

/// Toeplitz hash: for each set bit of the input, the 32 bits of the key that begin at the position
/// of this bit are combined with the hash by XOR.
struct Toeplitz<'a> {
    key: &'a [u8; KEY_BYTES],
    /// The 32 bits of the key at the current position of the input, and the bits shifted in after
    /// them.
    window: u64,
    next: usize,
    hash: u32,
}

impl Toeplitz<'_> {
    #[allow(clippy::cast_possible_truncation)] // the truncation is the meaning
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.window = self.window << 8 | u64::from(self.key[self.next % KEY_BYTES]);
            self.next += 1;
            for bit in 0..8 {
                if byte & (0x80 >> bit) != 0 {
                    self.hash ^= (self.window >> (8 - bit)) as u32;
                }
            }
        }
    }
}

fn toeplitz(key: &[u8; KEY_BYTES], initial: u32, flow: &FlowKey) -> u32 {
    let window = u64::from(u32::from_be_bytes([key[0], key[1], key[2], key[3]]));
    let mut hash = Toeplitz { key, window, next: 4, hash: initial };
    for address in [flow.source, flow.destination] {
        match address {
            IpAddr::V4(address) => hash.add(&address.octets()),
            IpAddr::V6(address) => hash.add(&address.octets()),
        }
    }
    if flow.ports != (0, 0) {
        hash.add(&flow.ports.0.to_be_bytes());
        hash.add(&flow.ports.1.to_be_bytes());
    }
    hash.hash
}

/// Error: the adapter does not have this queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoQueue {
    /// Queue that was requested.
    pub queue: u16,
    /// Number of queues that the adapter has.
    pub queues: u16,
}

impl fmt::Display for NoQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queue, queues } = self;
        write!(f, "there is no queue {queue}; the queues are 0 to {}", queues.saturating_sub(1))
    }
}

impl core::error::Error for NoQueue {}

/// Builds an indirection table in which each queue has entries in proportion to its weight, as
/// `ethtool -X weight` does. The index of a weight is the number of its queue. Returns `None` if no
/// weight is more than zero.
pub fn weighted(weights: &[u32]) -> Option<[u16; TABLE_ENTRIES]> {
    let sum: u64 = weights.iter().copied().map(u64::from).sum();
    let mut table = [0; TABLE_ENTRIES];
    let (mut next, mut partial) = ((0..).zip(weights), 0);
    let mut queue = 0;
    for (place, entry) in (0..).zip(&mut table) {
        while place >= (TABLE_ENTRIES as u64 * partial).checked_div(sum)? {
            let (of, weight) = next.next()?;
            (queue, partial) = (of, partial + u64::from(*weight));
        }
        *entry = queue;
    }
    Some(table)
}

/// The hash method of an adapter, and its indirection table from hash to queue.
#[derive(Clone, Debug)]
pub struct Rss {
    hash: Hash,
    queues: u16,
    table: [u16; TABLE_ENTRIES],
}

impl Rss {
    /// Creates a table that spreads flows evenly over `queues` queues (D2). Zero counts as one
    /// queue.
    pub fn new(hash: Hash, queues: u16) -> Self {
        let queues = queues.max(1);
        let mut table = [0; TABLE_ENTRIES];
        for (entry, queue) in table.iter_mut().zip((0..queues).cycle()) {
            *entry = queue;
        }
        Self { hash, queues, table }
    }

    /// Replaces the indirection table.
    ///
    /// # Errors
    /// [`NoQueue`] if an entry names a queue that does not exist; the table is unchanged.
    pub fn set_table(&mut self, table: [u16; TABLE_ENTRIES]) -> Result<(), NoQueue> {
        if let Some(&queue) = table.iter().find(|queue| **queue >= self.queues) {
            return Err(NoQueue { queue, queues: self.queues });
        }
        self.table = table;
        Ok(())
    }

    /// Returns the entry of the table that a flow uses (D2).
    pub fn entry(&self, flow: &FlowKey) -> usize {
        self.hash.of(flow) as usize % TABLE_ENTRIES
    }

    /// Returns the queue of a flow.
    pub fn queue(&self, flow: &FlowKey) -> u16 {
        self.table[self.entry(flow)]
    }

    /// Returns the indirection table: the queue of each entry.
    pub fn table(&self) -> &[u16; TABLE_ENTRIES] {
        &self.table
    }

    /// Returns the number of receive queues.
    pub fn queues(&self) -> u16 {
        self.queues
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::string::ToString;

    const KEY: [u8; KEY_BYTES] = [
        0x77, 0xd1, 0xc9, 0x34, 0xa4, 0xc9, 0xbd, 0x87, 0x6e, 0x35, 0xdd, 0x17, 0xb2, 0xe3, 0x23,
        0x9e, 0x39, 0x6d, 0x8a, 0x93, 0x2a, 0x95, 0xb4, 0x72, 0x3a, 0xb3, 0x7f, 0x56, 0x8e, 0xde,
        0xb6, 0x01, 0x97, 0xaf, 0x3b, 0x2f, 0x3a, 0x70, 0xe7, 0x04,
    ];

    fn flow(from: &str, to: &str, ports: (u16, u16)) -> FlowKey {
        let (source, destination) = (from.parse().unwrap(), to.parse().unwrap());
        FlowKey { source, destination, protocol: 6, ports }
    }

    #[test]
    fn hashes_are_those_of_amazons_calculator() {
        let one = flow("1.2.3.4", "1.2.3.5", (7000, 7000));
        let two = flow("10.0.0.1", "10.0.0.2", (40000, 80));
        for (hash, flow, value, entry) in [
            (Hash::Standard(KEY), one, 0xa982_8bd4, 84),
            (Hash::Reversed(KEY), one, 0x5b5e_b8e5, 101),
            (Hash::Symmetric, one, 0x5070_5070, 112),
            (Hash::Symmetric, two, 0xe5ca_e5ca, 74),
            (Hash::Symmetric, two.reversed(), 0xe5ca_e5ca, 74),
        ] {
            assert_eq!(hash.of(&flow), value, "{hash:?}");
            assert_eq!(Rss::new(hash, 8).entry(&flow), entry);
        }
    }

    /// Compares with Microsoft's verification suite for RSS: IPv4 and IPv6, with ports and without.
    #[test]
    fn hashes_are_those_of_the_verification_suite() {
        let mut words: [[u8; 4]; 10] = [[0; 4]; 10];
        for (word, bytes) in words.iter_mut().zip(FIXED_KEY.chunks(4).rev()) {
            word.copy_from_slice(bytes);
        }
        let mut key = [0; KEY_BYTES];
        key.copy_from_slice(words.as_flattened());
        let hash = Hash::Standard(key);
        let v4 = |ports| flow("66.9.149.187", "161.142.100.80", ports);
        assert_eq!(hash.of(&v4((2794, 1766))), 0x51cc_c178);
        assert_eq!(hash.of(&v4((0, 0))), 0x323e_8fc2);
        let v6 = |ports| flow("3ffe:2501:200:1fff::7", "3ffe:2501:200:3::1", ports);
        assert_eq!(hash.of(&v6((2794, 1766))), 0x4020_7d3d);
        assert_eq!(hash.of(&v6((0, 0))), 0x2cc1_8cd5);
    }

    #[test]
    fn both_directions_of_a_flow_have_one_queue() {
        let rss = Rss::new(Hash::default(), 8);
        let mut queues = BTreeMap::new();
        for port in 1..2000 {
            let flow = flow("10.0.0.1", "10.0.0.2", (port, 80));
            assert_eq!(rss.queue(&flow), rss.queue(&flow.reversed()));
            *queues.entry(rss.queue(&flow)).or_insert(0) += 1;
        }
        assert!(queues.len() == 8 && queues.values().all(|n| *n > 150), "{queues:?}");
        assert_eq!(Rss::new(Hash::default(), 1).queue(&flow("10.0.0.1", "10.0.0.2", (1, 2))), 0);
    }

    #[test]
    fn entries_follow_weights() {
        let table = weighted(&[3, 0, 1]).unwrap();
        let of = |queue| table.iter().filter(|entry| **entry == queue).count();
        assert_eq!([0, 1, 2].map(of), [96, 0, 32]);
        assert_eq!(weighted(&[1; 128]).unwrap()[127], 127);
        assert_eq!(weighted(&[1, u32::MAX]).unwrap()[0], 1, "too light for an entry");
        assert!(weighted(&[]).is_none() && weighted(&[0, 0]).is_none());
    }

    #[test]
    fn a_table_names_queues_that_are_there() {
        let mut rss = Rss::new(Hash::default(), 4);
        let error = rss.set_table([4; TABLE_ENTRIES]).unwrap_err();
        assert_eq!(error.to_string(), "there is no queue 4; the queues are 0 to 3");
        rss.set_table([3; TABLE_ENTRIES]).unwrap();
        assert_eq!(rss.queue(&flow("10.0.0.1", "10.0.0.2", (1, 2))), 3);
    }
}
