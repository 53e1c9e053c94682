//! Abilities of each version of the Nitro system.
//!
//! Source: the talk NET402 of re:Invent 2024, for bandwidth and packet rates of versions 1 to 5;
//! EC2 User Guide for encryption (3 and later) and ENA Express (4 and later).

use core::fmt;

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

/// Versions of the families that the talk NET402 names. For c8g, the version follows from the talk:
/// it sets n-tuple rules on a c8g.8xlarge, and versions from 5 on have these rules.
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
    /// does not name (P4). `facts` are whether the cards of the family encrypt traffic, whether a
    /// type of the family has ENA Express, and the default idle times of the type's connections.
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

    /// Whether the entries of a Tx ring are large by default, for long headers. A ring with large
    /// entries has half as many by default.
    pub fn has_large_tx_entries(self) -> bool {
        self >= Self::V4
    }

    /// Whether users may set n-tuple rules.
    pub fn has_steering(self) -> bool {
        self >= Self::V5
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = *self as u8 + 1;
        write!(f, "Nitro v{number}: ")?;
        match (self.card_gbps(), self.packet_rate()) {
            (Some(gbps), Some(1)) => write!(f, "{gbps} Gb/s a card")?,
            (Some(gbps), Some(times)) => {
                write!(f, "{gbps} Gb/s and {times} times the packets/s of v1 a card")?;
            }
            _ => f.write_str("bandwidth and packets/s of a card are not published")?,
        }
        let encryption = if self.encrypts() { "encryption" } else { "no encryption" };
        write!(f, ", {encryption} between instances")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::catalogue::{Hypervisor, InstanceType};
    use std::format;
    use std::string::ToString as _;

    /// Table of NET402: version, a family with it, Gb/s of a card, packet rate as a multiple of the
    /// previous version, and whether the card encrypts traffic between instances.
    const TALK: [(Generation, &str, u32, f64, bool); 5] = [
        (Generation::V1, "c4", 10, 1.0, false),
        (Generation::V2, "c5", 25, 2.0, false),
        (Generation::V3, "c5n", 100, 3.0, true),
        (Generation::V4, "c6in", 200, 2.0, true),
        (Generation::V5, "c7gn", 200, 1.5, true),
    ];

    #[test]
    fn versions_differ_as_the_talk_says() {
        let mut rate = 1.0;
        for (version, family, gbps, times, encrypts) in TALK {
            rate *= times;
            let mut types = InstanceType::all().filter(|kind| kind.family() == family);
            assert!(types.all(|kind| kind.generation() == Some(version)), "{family}");
            assert_eq!(version.card_gbps(), Some(gbps), "{family}");
            assert_eq!(version.packet_rate().map(f64::from), Some(rate), "{family}");
            assert_eq!(version.encrypts(), encrypts, "{family}");
        }
    }

    #[test]
    fn a_version_is_shown_with_the_figures_of_its_card() {
        for (version, text) in [
            (Generation::V1, "Nitro v1: 10 Gb/s a card, no encryption between instances"),
            (
                Generation::V4,
                "Nitro v4: 200 Gb/s and 12 times the packets/s of v1 a card, encryption between \
                 instances",
            ),
            (
                Generation::V6,
                "Nitro v6: bandwidth and packets/s of a card are not published, encryption \
                 between instances",
            ),
        ] {
            assert_eq!(version.to_string(), text);
        }
    }

    /// The data of EC2 for the families of the talk agree with the talk: the largest type has the
    /// bandwidth of its cards, and its cards encrypt from version 3 on. ENA Express begins with
    /// version 4.
    #[test]
    fn types_have_the_cards_of_their_version() {
        for (version, family, ..) in TALK {
            let all = || InstanceType::all().filter(|kind| kind.family() == family);
            let of_card = |kind: &InstanceType| kind.peak_bps / u64::from(kind.network_cards);
            let largest = all().map(|kind| of_card(&kind)).max();
            let gbps = version.card_gbps().map(u64::from);
            assert_eq!(largest, gbps.map(|gbps| gbps * 1_000_000_000), "{family}");
            assert!(all().all(|kind| kind.encryption_in_transit == version.encrypts()), "{family}");
            assert_eq!(all().any(|kind| kind.ena_srd), version.has_express(), "{family}");
        }
    }

    /// No type has an ability that its version lacks.
    #[test]
    fn versions_contradict_no_type() {
        for kind in InstanceType::all() {
            let Some(version) = kind.generation() else { continue };
            assert!(version.encrypts() || !kind.encryption_in_transit, "{}", kind.name);
            assert!(version.has_express() || !kind.ena_srd, "{}", kind.name);
        }
        let of = |name: &str| InstanceType::find(name).unwrap().generation();
        assert_eq!(of("c4.large"), Some(Generation::V1));
        assert_eq!(of("c7gn.large"), Some(Generation::V5));
        assert_eq!(of("c8i.large"), Some(Generation::V6));
        // In an earlier version, types that are too small for ENA Express were of version 3.
        for family in ["c7i", "m6i", "c6gn"] {
            assert_eq!(of(&format!("{family}.large")), Some(Generation::V4), "{family}");
        }
        let sizes = InstanceType::all().filter(|kind| kind.hypervisor != Hypervisor::Xen);
        for kind in sizes.filter(|kind| kind.name.ends_with(".large")) {
            let of_family = |other: &InstanceType| other.family() == kind.family();
            let mut family = InstanceType::all().filter(of_family);
            assert!(family.all(|other| other.generation() == kind.generation()), "{}", kind.name);
        }
        assert_eq!(of("m3.large"), None);
    }
}
