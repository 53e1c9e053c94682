//! Map from blocks of addresses to values, with one ordered map for each prefix length that occurs.
//! A look-up costs one search for each of these lengths: at most 33 (IPv4) or 129 (IPv6).

use super::tree::tree_bytes;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use ipnet::IpNet;

/// Values by blocks of IPv4 and IPv6 addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Blocks<V> {
    v4: BTreeMap<u8, BTreeMap<u32, V>>,
    v6: BTreeMap<u8, BTreeMap<u128, V>>,
}

impl<V> Default for Blocks<V> {
    fn default() -> Self {
        Self { v4: BTreeMap::new(), v6: BTreeMap::new() }
    }
}

impl<V> Blocks<V> {
    /// Stores a value for a block, unless the block has a value already and `keep(old, new)`
    /// returns true.
    pub(super) fn put(&mut self, block: IpNet, value: V, keep: impl Fn(&V, &V) -> bool) {
        let length = block.prefix_len();
        match block.network() {
            IpAddr::V4(at) => merge(self.v4.entry(length).or_default(), at.into(), value, keep),
            IpAddr::V6(at) => merge(self.v6.entry(length).or_default(), at.into(), value, keep),
        }
    }

    /// Removes a block and its value.
    pub(super) fn remove(&mut self, block: IpNet) {
        let length = block.prefix_len();
        match block.network() {
            IpAddr::V4(at) => take(&mut self.v4, length, at.into()),
            IpAddr::V6(at) => take(&mut self.v6, length, at.into()),
        }
    }

    /// Returns the value of exactly this block.
    pub(super) fn of(&self, block: IpNet) -> Option<&V> {
        let length = block.prefix_len();
        match block.network() {
            IpAddr::V4(at) => self.v4.get(&length)?.get(&at.into()),
            IpAddr::V6(at) => self.v6.get(&length)?.get(&at.into()),
        }
    }

    /// Returns the values of all blocks that contain the address, longest prefix first.
    pub(super) fn at(&self, address: IpAddr) -> impl Iterator<Item = &V> {
        let (v4, v6) = match address {
            IpAddr::V4(address) => (Some(address), None),
            IpAddr::V6(address) => (None, Some(address)),
        };
        let v4 = v4.into_iter().flat_map(|address| {
            let all = self.v4.iter().rev();
            all.filter_map(move |(length, map)| map.get(&(u32::from(address) & mask4(*length))))
        });
        let v6 = v6.into_iter().flat_map(|address| {
            let all = self.v6.iter().rev();
            all.filter_map(move |(length, map)| map.get(&(u128::from(address) & mask6(*length))))
        });
        v4.chain(v6)
    }

    /// Returns all values.
    pub(super) fn all(&self) -> impl Iterator<Item = &V> {
        let v4 = self.v4.values().flat_map(BTreeMap::values);
        v4.chain(self.v6.values().flat_map(BTreeMap::values))
    }

    /// Returns the addresses whose values differ between the two tables; `None` if a block of more
    /// than one address differs.
    pub(super) fn differing(&self, other: &Self) -> Option<Vec<IpAddr>>
    where
        V: PartialEq,
    {
        let v4 = differing_singles(&self.v4, &other.v4, 32)?.into_iter();
        let v6 = differing_singles(&self.v6, &other.v6, 128)?.into_iter();
        let v4 = v4.map(|at| IpAddr::V4(at.into()));
        Some(v4.chain(v6.map(|at| IpAddr::V6(at.into()))).collect())
    }

    /// Returns the number of blocks in the table.
    pub(super) fn len(&self) -> usize {
        let v4: usize = self.v4.values().map(BTreeMap::len).sum();
        v4 + self.v6.values().map(BTreeMap::len).sum::<usize>()
    }

    /// Returns the approximate size of the entries in bytes.
    pub(super) fn bytes(&self) -> usize {
        let v4 = self.v4.values().map(|map| tree_bytes::<u32, V>(map.len()));
        let v6 = self.v6.values().map(|map| tree_bytes::<u128, V>(map.len()));
        let lengths = tree_bytes::<u8, BTreeMap<u32, V>>(self.v4.len())
            + tree_bytes::<u8, BTreeMap<u128, V>>(self.v6.len());
        lengths + v4.sum::<usize>() + v6.sum::<usize>()
    }
}

impl<V: Default> Blocks<V> {
    /// Returns the value of exactly this block. If the block is absent, a default value is
    /// inserted.
    pub(super) fn entry(&mut self, block: IpNet) -> &mut V {
        let length = block.prefix_len();
        match block.network() {
            IpAddr::V4(at) => self.v4.entry(length).or_default().entry(at.into()).or_default(),
            IpAddr::V6(at) => self.v6.entry(length).or_default().entry(at.into()).or_default(),
        }
    }
}

impl<V> Blocks<V> {
    /// Returns the set of the blocks, without their values.
    pub(super) fn set(&self) -> Blocks<()> {
        let v4 = self.v4.iter().map(|(length, map)| (*length, bare(map))).collect();
        let v6 = self.v6.iter().map(|(length, map)| (*length, bare(map))).collect();
        Blocks { v4, v6 }
    }
}

impl Blocks<()> {
    /// Returns the blocks of a set.
    pub(super) fn nets(&self) -> impl Iterator<Item = IpNet> + '_ {
        let v4 = self.v4.iter().flat_map(|(length, map)| {
            map.keys().filter_map(|at| IpNet::new(Ipv4Addr::from(*at).into(), *length).ok())
        });
        let v6 = self.v6.iter().flat_map(|(length, map)| {
            map.keys().filter_map(|at| IpNet::new(Ipv6Addr::from(*at).into(), *length).ok())
        });
        v4.chain(v6)
    }

    /// Adds a block to a set.
    pub(super) fn add(&mut self, block: IpNet) {
        self.put(block, (), |(), ()| true);
    }

    /// Whether a block of the set contains an address.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.at(address).next().is_some()
    }
}

fn merge<K: Ord, V>(map: &mut BTreeMap<K, V>, at: K, value: V, keep: impl Fn(&V, &V) -> bool) {
    if !map.get(&at).is_some_and(|there| keep(there, &value)) {
        map.insert(at, value);
    }
}

fn bare<K: Ord + Copy, V>(map: &BTreeMap<K, V>) -> BTreeMap<K, ()> {
    map.keys().map(|at| (*at, ())).collect()
}

fn take<K: Ord, V>(lengths: &mut BTreeMap<u8, BTreeMap<K, V>>, length: u8, at: K) {
    let Some(map) = lengths.get_mut(&length) else { return };
    map.remove(&at);
    if map.is_empty() {
        lengths.remove(&length);
    }
}

fn mask4(length: u8) -> u32 {
    u32::MAX.checked_shl(u32::from(32 - length)).unwrap_or(0)
}

fn mask6(length: u8) -> u128 {
    u128::MAX.checked_shl(u32::from(128 - length)).unwrap_or(0)
}

/// Returns the block that contains only this address.
pub(super) fn single(address: IpAddr) -> IpNet {
    IpNet::from(address)
}

/// Returns the blocks of an interface: its addresses and its delegated prefixes.
pub(super) fn of_eni(eni: &crate::object::Eni) -> impl Iterator<Item = IpNet> + '_ {
    let v4 = eni.ipv4.iter().map(|a: &Ipv4Addr| single((*a).into()));
    let v6 = eni.ipv6.iter().map(|a: &Ipv6Addr| single((*a).into()));
    let prefixes4 = eni.ipv4_prefixes.iter().map(|block| IpNet::V4(*block));
    let prefixes6 = eni.ipv6_prefixes.iter().map(|block| IpNet::V6(*block));
    v4.chain(v6).chain(prefixes4).chain(prefixes6)
}

/// Returns the single addresses whose values differ; `None` if blocks of more than one address
/// differ.
fn differing_singles<K: Ord + Copy, V: PartialEq>(
    old: &BTreeMap<u8, BTreeMap<K, V>>,
    new: &BTreeMap<u8, BTreeMap<K, V>>,
    single: u8,
) -> Option<Vec<K>> {
    let others = |lengths: &BTreeMap<u8, BTreeMap<K, V>>| {
        lengths.keys().filter(|length| **length != single).count()
    };
    let mut of_old = old.iter().filter(|(length, _)| **length != single);
    if others(old) != others(new) || !of_old.all(|(length, map)| new.get(length) == Some(map)) {
        return None;
    }
    let none = BTreeMap::new();
    Some(differing(old.get(&single).unwrap_or(&none), new.get(&single).unwrap_or(&none)))
}

/// Returns the keys that only one of the two tables has, or whose values differ. The search reads
/// each table once.
pub(super) fn differing<K: Ord + Copy, V: PartialEq>(
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
) -> Vec<K> {
    let mut found = Vec::new();
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    loop {
        let first = match (old.peek(), new.peek()) {
            (Some((a, _)), Some((b, _))) => **a.min(b),
            (Some((a, _)), None) | (None, Some((a, _))) => **a,
            (None, None) => return found,
        };
        let before = old.next_if(|(key, _)| **key == first).map(|(_, value)| value);
        let after = new.next_if(|(key, _)| **key == first).map(|(_, value)| value);
        if before != after {
            found.push(first);
        }
    }
}
