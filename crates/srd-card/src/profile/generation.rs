//! Abilities of each version of the Nitro system.
//!
//! Source: re:Invent 2024, NET402, for bandwidth and packet rates of versions 1 to 5; EC2 User
//! Guide for encryption (3 and later) and ENA Express (4 and later).

use crate::track::timeouts::Timeouts;

/// A version of the Nitro system.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Generation {
    /// Version 1, for example of family c4.
    V1,
    /// Version 2, for example of family c5.
    V2,
    /// Version 3, for example of family c5n.
    V3,
    /// Version 4, for example of family c6in.
    V4,
    /// Version 5, for example of family c7gn.
    V5,
    /// Version 6, for example of family c8i.
    V6,
}

/// Versions of the families that NET402 names. For c8g, the version follows from the talk: it sets
/// n-tuple rules on a c8g.8xlarge, and versions from 5 on have these rules.
const NAMED: [(&str, Generation); 6] = [
    ("c4", Generation::V1),
    ("c5", Generation::V2),
    ("c5n", Generation::V3),
    ("c6in", Generation::V4),
    ("c7gn", Generation::V5),
    ("c8g", Generation::V5),
];

impl Generation {
    /// Returns the version of a family: the version that the source names, or the earliest one
    /// with the abilities of the family's types. Returns `None` for types on Xen that the source
    /// does not name (P4). `facts` are whether the card encrypts traffic, whether the type has ENA
    /// Express, and the default idle times of its connections.
    pub(super) fn of(family: &str, xen: bool, facts: (bool, bool, Timeouts)) -> Option<Self> {
        if let Some((_, version)) = NAMED.iter().find(|(name, _)| *name == family) {
            return Some(*version);
        }
        match facts {
            _ if xen => None,
            (_, _, Timeouts::DEFAULT_V6) => Some(Self::V6),
            (_, true, _) => Some(Self::V4),
            (true, ..) => Some(Self::V3),
            _ => Some(Self::V2),
        }
    }

    /// Largest bandwidth of a card, in Gb/s; `None` for version 6, whose bandwidth is unpublished.
    pub fn card_gbps(self) -> Option<u32> {
        match self {
            Self::V1 => Some(10),
            Self::V2 => Some(25),
            Self::V3 => Some(100),
            Self::V4 | Self::V5 => Some(200),
            Self::V6 => None,
        }
    }

    /// Packets per second of a card, as a multiple of version 1; `None` for version 6, whose packet
    /// rate is unpublished.
    pub fn packet_rate(self) -> Option<u32> {
        match self {
            Self::V1 => Some(1),
            Self::V2 => Some(2),
            Self::V3 => Some(6),
            Self::V4 => Some(12),
            Self::V5 => Some(18),
            Self::V6 => None,
        }
    }

    /// Whether the card encrypts traffic between instances.
    pub fn encrypts(self) -> bool {
        self >= Self::V3
    }

    /// Whether larger types have ENA Express.
    pub fn has_express(self) -> bool {
        self >= Self::V4
    }

    /// Whether users may set n-tuple rules.
    pub fn has_steering(self) -> bool {
        self >= Self::V5
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::catalogue::InstanceType;

    #[test]
    fn versions_differ_as_the_talk_says() {
        use Generation::*;
        let versions = [V1, V2, V3, V4, V5];
        assert_eq!(versions.map(Generation::card_gbps), [10, 25, 100, 200, 200].map(Some));
        assert_eq!(versions.map(Generation::packet_rate), [1, 2, 6, 12, 18].map(Some));
        assert_eq!(versions.map(Generation::encrypts), [false, false, true, true, true]);
        assert_eq!(versions.map(Generation::has_express), [false, false, false, true, true]);
    }

    /// No type has an ability that its version lacks.
    #[test]
    fn versions_contradict_no_type() {
        for kind in InstanceType::all() {
            let Some(version) = kind.generation() else { continue };
            assert!(version.encrypts() || !kind.encryption_in_transit, "{}", kind.name);
            assert!(version.has_express() || !kind.ena_srd, "{}", kind.name);
        }
        let of = |name| InstanceType::find(name).unwrap().generation();
        assert_eq!(of("c4.large"), Some(Generation::V1));
        assert_eq!(of("c7gn.large"), Some(Generation::V5));
        assert_eq!(of("c8i.large"), Some(Generation::V6));
        assert_eq!(of("m3.large"), None);
    }
}
