//! Names of objects, and the identifiers that they get.
//!
//! An identifier follows from kind and name alone, so that it stays the same when other parts of a
//! file change.

use std::collections::BTreeMap;

/// Largest number of names of about the same length that are compared with an unknown one.
const COMPARED_MAX: usize = 1000;

/// The kinds of objects that a file has tables for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // each is the object of its name
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
    /// As tables and messages call it.
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

/// The names of a file, and their numbers.
#[derive(Debug, Clone, Default)]
pub struct Names {
    numbers: BTreeMap<(Kind, String), u64>,
    taken: BTreeMap<(Kind, u64), String>,
}

impl Names {
    /// The number of an object that the file names.
    pub fn number(&self, kind: Kind, name: &str) -> Option<u64> {
        self.numbers.get(&(kind, name.to_owned())).copied()
    }

    /// The name of an object.
    pub fn name(&self, kind: Kind, number: u64) -> Option<&str> {
        self.taken.get(&(kind, number)).map(String::as_str)
    }

    /// Names an object that is in no file. A name or a number that is taken stays with its object.
    pub fn give(&mut self, kind: Kind, name: &str, number: u64) {
        if self.number(kind, name).is_none() && self.name(kind, number).is_none() {
            self.numbers.insert((kind, name.to_owned()), number);
            self.taken.insert((kind, number), name.to_owned());
        }
    }

    /// Takes a name, and gives it a number that no other of its kind has.
    pub(crate) fn add(&mut self, kind: Kind, name: &str) -> u64 {
        let mut number = hash(kind, name);
        while self.taken.contains_key(&(kind, number)) {
            number = number.wrapping_add(1);
        }
        self.numbers.insert((kind, name.to_owned()), number);
        self.taken.insert((kind, number), name.to_owned());
        number
    }

    /// A name of this kind that looks like the one that is not known.
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

/// Numbers of rules follow from all that a rule is.
pub(crate) fn hash(kind: Kind, name: &str) -> u64 {
    // FNV-1a with 64 bits.
    let bytes = kind.word().bytes().chain([b'.']).chain(name.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Insertions, deletions and replacements that make one word of another.
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
