//! Names of objects, and their identifiers.
//!
//! An identifier depends only on the kind and the name of its object, so it stays the same when
//! other parts of a file change.

use std::collections::BTreeMap;

/// Largest number of names of similar length that are compared with an unknown name.
const COMPARED_MAX: usize = 1000;

/// Kinds of objects for which a file has tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // each is the object with this name
pub enum Kind {
    Vpc,
    Subnet,
    RouteTable,
    Acl,
    Group,
    PrefixList,
    Interface,
    Instance,
    Placement,
    InternetGateway,
    EgressOnlyGateway,
    NatGateway,
    ElasticAddress,
    Peering,
    Endpoint,
    FlowLog,
    MirrorFilter,
    MirrorTarget,
    MirrorSession,
    DhcpOptions,
}

impl Kind {
    /// Returns the word for the kind in the file's tables and in messages, for example
    /// `route_table`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Vpc => "vpc",
            Self::Subnet => "subnet",
            Self::RouteTable => "route_table",
            Self::Acl => "acl",
            Self::Group => "group",
            Self::PrefixList => "prefix_list",
            Self::Interface => "interface",
            Self::Instance => "instance",
            Self::Placement => "placement",
            Self::InternetGateway => "internet_gateway",
            Self::EgressOnlyGateway => "egress_only_gateway",
            Self::NatGateway => "nat_gateway",
            Self::ElasticAddress => "elastic_address",
            Self::Peering => "peering",
            Self::Endpoint => "endpoint",
            Self::FlowLog => "flow_log",
            Self::MirrorFilter => "mirror_filter",
            Self::MirrorTarget => "mirror_target",
            Self::MirrorSession => "mirror_session",
            Self::DhcpOptions => "dhcp_options",
        }
    }
}

/// The names of a file's objects, and the numbers of their identifiers.
#[derive(Debug, Clone, Default)]
pub struct Names {
    numbers: BTreeMap<(Kind, String), u64>,
    taken: BTreeMap<(Kind, u64), String>,
}

impl Names {
    /// Returns the number in the identifier of the object with this name.
    pub fn number(&self, kind: Kind, name: &str) -> Option<u64> {
        self.numbers.get(&(kind, name.to_owned())).copied()
    }

    /// Returns the name of the object whose identifier has this number.
    pub fn name(&self, kind: Kind, number: u64) -> Option<&str> {
        self.taken.get(&(kind, number)).map(String::as_str)
    }

    /// Adds the name and number of an object that no file contains, such as an instance of
    /// `srd run`. If the name or the number is already in use, nothing changes.
    pub fn give(&mut self, kind: Kind, name: &str, number: u64) {
        if self.number(kind, name).is_none() && self.name(kind, number).is_none() {
            self.numbers.insert((kind, name.to_owned()), number);
            self.taken.insert((kind, number), name.to_owned());
        }
    }

    /// Adds the name of an object, and returns the number of its identifier, which is unique among
    /// objects of the same kind.
    pub(crate) fn add(&mut self, kind: Kind, name: &str) -> u64 {
        let mut number = hash(kind, name);
        while self.taken.contains_key(&(kind, number)) {
            number = number.wrapping_add(1);
        }
        self.numbers.insert((kind, name.to_owned()), number);
        self.taken.insert((kind, number), name.to_owned());
        number
    }

    /// Returns the name of this kind that is most similar to an unknown name; `None` if no name is
    /// similar.
    pub(crate) fn similar(&self, kind: Kind, wrong: &str) -> Option<&str> {
        let length = wrong.chars().count();
        let most = |name: &str| name.len().max(3) / 3; // names have one byte for each character
        let names = self.numbers.keys().filter(|(of, _)| *of == kind).map(|(_, name)| name);
        let names = names.filter(|name| name.len().abs_diff(length) <= most(name));
        let close = names.take(COMPARED_MAX).map(|name| (distance(name, wrong), name));
        let best = close.filter(|(edits, name)| *edits <= most(name)).min();
        best.map(|(_, name)| name.as_str())
    }
}

/// Returns a hash of a kind and a text. Numbers of group rules are hashes of the rules' contents.
pub(crate) fn hash(kind: Kind, name: &str) -> u64 {
    // FNV-1a with 64 bits.
    let bytes = kind.word().bytes().chain([b'.']).chain(name.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Returns the number of insertions, deletions and replacements that change one word into the
/// other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
