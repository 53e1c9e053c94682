//! Names of objects, and their identifiers.
//!
//! An identifier depends only on the kind and the name of its object, so it stays the same when
//! other parts of a file change. If a name has the form of an identifier of its kind, such as
//! `eni-0123456789abcdef0` for an interface, it is the identifier.

use std::collections::BTreeMap;

use srd_vpc::id::*;

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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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
        let mut number = number_in(kind, name).unwrap_or_else(|| hash(kind, name));
        while self.taken.contains_key(&(kind, number)) {
            number = number.wrapping_add(1);
        }
        self.numbers.insert((kind, name.to_owned()), number);
        self.taken.insert((kind, number), name.to_owned());
        number
    }

    /// Returns the names of these kinds.
    pub(crate) fn of_kinds(&self, kinds: &[Kind]) -> Self {
        let numbers = self.numbers.iter().filter(|((kind, _), _)| kinds.contains(kind));
        let taken = self.taken.iter().filter(|((kind, _), _)| kinds.contains(kind));
        Self {
            numbers: numbers.map(|(key, number)| (key.clone(), *number)).collect(),
            taken: taken.map(|(key, name)| (*key, name.clone())).collect(),
        }
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

/// Returns the number in a name that has the form of an identifier of this kind; `None` if the name
/// has another form.
fn number_in(kind: Kind, name: &str) -> Option<u64> {
    macro_rules! number {
        ($id:ty) => {
            name.parse::<$id>().ok().map(|id| id.0)
        };
    }
    match kind {
        Kind::Vpc => number!(VpcId),
        Kind::Subnet => number!(SubnetId),
        Kind::RouteTable => number!(RouteTableId),
        Kind::Acl => number!(AclId),
        Kind::Group => number!(GroupId),
        Kind::PrefixList => number!(PrefixListId),
        Kind::Interface => number!(EniId),
        Kind::Instance => number!(InstanceId),
        Kind::Placement => number!(PlacementId),
        Kind::InternetGateway => number!(InternetGatewayId),
        Kind::EgressOnlyGateway => number!(EgressOnlyGatewayId),
        Kind::NatGateway => number!(NatGatewayId),
        Kind::ElasticAddress => number!(AllocationId),
        Kind::Peering => number!(PeeringId),
        Kind::Endpoint => number!(EndpointId),
        Kind::FlowLog => number!(FlowLogId),
        Kind::MirrorFilter => number!(MirrorFilterId),
        Kind::MirrorTarget => number!(MirrorTargetId),
        Kind::MirrorSession => number!(MirrorSessionId),
        Kind::DhcpOptions => number!(DhcpOptionsId),
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

/// Returns the number of insertions, deletions and replacements that change one word into the other
/// word.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_the_form_of_an_identifier_is_the_identifier() {
        let mut names = Names::default();
        let id = "eni-0123456789abcdef0";
        let number = names.add(Kind::Interface, id);
        assert_eq!(EniId(number).to_string(), id);
        assert_eq!(names.name(Kind::Interface, number), Some(id));
        for other in ["web", "i-0123456789abcdef0", "eni-0123456789ABCDEF0", "eni-1"] {
            assert_eq!(names.add(Kind::Interface, other), hash(Kind::Interface, other), "{other}");
        }
    }

    #[test]
    fn a_number_belongs_to_one_name_only() {
        let mut names = Names::default();
        let taken = hash(Kind::Vpc, "a");
        names.add(Kind::Vpc, "a");
        let number = names.add(Kind::Vpc, &VpcId(taken).to_string());
        assert_eq!(number, taken.wrapping_add(1));
    }
}
