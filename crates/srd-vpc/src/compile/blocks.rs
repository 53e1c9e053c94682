//! A table by blocks of addresses: one ordered map for each prefix length that occurs, so that a
//! look-up costs as many searches as there are lengths, at most 33 or 129.

use super::tree::tree_bytes;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use ipnet::IpNet;

/// Values by blocks of addresses of both families.
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
    /// Puts a value at a block, unless `keep` returns true for the value that is there already.
    pub(super) fn put(&mut self, block: IpNet, value: V, keep: impl Fn(&V, &V) -> bool) {
        let length = block.prefix_len();
        match block.network() {
            IpAddr::V4(at) => merge(self.v4.entry(length).or_default(), at.into(), value, keep),
            IpAddr::V6(at) => merge(self.v6.entry(length).or_default(), at.into(), value, keep),
        }
    }

    /// Takes a block out.
    pub(super) fn remove(&mut self, block: IpNet) {
        let length = block.prefix_len();
        match block.network() {
            IpAddr::V4(at) => take(&mut self.v4, length, at.into()),
            IpAddr::V6(at) => take(&mut self.v6, length, at.into()),
        }
    }

    /// The value of exactly this block.
    pub(super) fn of(&self, block: IpNet) -> Option<&V> {
        let length = block.prefix_len();
        match block.network() {
            IpAddr::V4(at) => self.v4.get(&length)?.get(&at.into()),
            IpAddr::V6(at) => self.v6.get(&length)?.get(&at.into()),
        }
    }

    /// The values whose blocks contain an address, the longest prefix first.
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

    /// All values.
    pub(super) fn all(&self) -> impl Iterator<Item = &V> {
        let v4 = self.v4.values().flat_map(BTreeMap::values);
        v4.chain(self.v6.values().flat_map(BTreeMap::values))
    }

    /// The addresses whose values differ in another table; `None` if longer blocks differ.
    pub(super) fn differing(&self, other: &Self) -> Option<Vec<IpAddr>>
    where
        V: PartialEq,
    {
        let v4 = differing_singles(&self.v4, &other.v4, 32)?.into_iter();
        let v6 = differing_singles(&self.v6, &other.v6, 128)?.into_iter();
        let v4 = v4.map(|at| IpAddr::V4(at.into()));
        Some(v4.chain(v6.map(|at| IpAddr::V6(at.into()))).collect())
    }

    /// Number of blocks in the table.
    pub(super) fn len(&self) -> usize {
        let v4: usize = self.v4.values().map(BTreeMap::len).sum();
        v4 + self.v6.values().map(BTreeMap::len).sum::<usize>()
    }

    /// About how many bytes the entries take.
    pub(super) fn bytes(&self) -> usize {
        let v4 = self.v4.values().map(|map| tree_bytes::<u32, V>(map.len()));
        let v6 = self.v6.values().map(|map| tree_bytes::<u128, V>(map.len()));
        let lengths = tree_bytes::<u8, BTreeMap<u32, V>>(self.v4.len())
            + tree_bytes::<u8, BTreeMap<u128, V>>(self.v6.len());
        lengths + v4.sum::<usize>() + v6.sum::<usize>()
    }
}

impl<V: Default> Blocks<V> {
    /// The value of exactly this block; a default value is inserted if the block is absent.
    pub(super) fn entry(&mut self, block: IpNet) -> &mut V {
        let length = block.prefix_len();
        match block.network() {
            IpAddr::V4(at) => self.v4.entry(length).or_default().entry(at.into()).or_default(),
            IpAddr::V6(at) => self.v6.entry(length).or_default().entry(at.into()).or_default(),
        }
    }
}

impl<V> Blocks<V> {
    /// The blocks without their values.
    pub(super) fn set(&self) -> Blocks<()> {
        let v4 = self.v4.iter().map(|(length, map)| (*length, bare(map))).collect();
        let v6 = self.v6.iter().map(|(length, map)| (*length, bare(map))).collect();
        Blocks { v4, v6 }
    }
}

impl Blocks<()> {
    /// The blocks of a set.
    pub(super) fn nets(&self) -> impl Iterator<Item = IpNet> + '_ {
        let v4 = self.v4.iter().flat_map(|(length, map)| {
            map.keys().filter_map(|at| IpNet::new(Ipv4Addr::from(*at).into(), *length).ok())
        });
        let v6 = self.v6.iter().flat_map(|(length, map)| {
            map.keys().filter_map(|at| IpNet::new(Ipv6Addr::from(*at).into(), *length).ok())
        });
        v4.chain(v6)
    }

    /// Puts a block into a set.
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

/// The block of one address.
pub(super) fn single(address: IpAddr) -> IpNet {
    IpNet::from(address)
}

/// The blocks of an interface: its addresses and its delegated prefixes.
pub(super) fn of_eni(eni: &crate::object::Eni) -> impl Iterator<Item = IpNet> + '_ {
    let v4 = eni.ipv4.iter().map(|a: &Ipv4Addr| single((*a).into()));
    let v6 = eni.ipv6.iter().map(|a: &Ipv6Addr| single((*a).into()));
    let prefixes4 = eni.ipv4_prefixes.iter().map(|block| IpNet::V4(*block));
    let prefixes6 = eni.ipv6_prefixes.iter().map(|block| IpNet::V6(*block));
    v4.chain(v6).chain(prefixes4).chain(prefixes6)
}

/// The keys of the length of single addresses whose values differ; `None` if others differ.
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

/// The keys whose values differ, or that only one of two tables has: one walk along both.
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
