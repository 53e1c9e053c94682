//! Packets per second and tracked connections, neither of which EC2 publishes.
//!
//! Two figures have a source, both for c7i.large: 1,000,000 packets per second, and 136,812
//! connections (`conntrack_allowance_available` in the talk NET402 of re:Invent 2024 and in the EC2
//! User Guide). The packet rate follows from the talk, which shows 928 Mb/s for `iperf3 -M 128`;
//! Linux's segments of that size hold 116 bytes beside their timestamps. (The talk divides by 128,
//! which would give 906,000.) All other figures are estimates from these, in proportion to a type's
//! share of a host: the baseline bandwidth for packets, the vCPUs for connections.

use crate::profile::catalogue::InstanceType;

/// Instance type whose figures have a public source.
const SOURCED_TYPE: &str = "c7i.large";
const SOURCED_PACKETS_PER_SECOND: u64 = 1_000_000;
const SOURCED_CONNECTIONS: u64 = 136_812;
/// Baseline bandwidth of [`SOURCED_TYPE`], in bits per second.
const SOURCED_BASELINE_BPS: u64 = 781_000_000;
const SOURCED_VCPUS: u64 = 2;

/// Origin of a figure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Origin {
    /// The figure is from a public source.
    Sourced,
    /// The figure is derived from a sourced figure of another type.
    Estimate,
    /// The user has set the figure.
    User,
}

/// A figure with its origin (P2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Figure {
    /// Value of the figure: packets per second, or a number of connections.
    pub value: u64,
    /// Origin of the figure.
    pub origin: Origin,
}

fn figure(kind: &InstanceType, sourced: u64, share: u64, of: u64) -> Figure {
    if kind.name == SOURCED_TYPE {
        return Figure { value: sourced, origin: Origin::Sourced };
    }
    let value = u128::from(sourced) * u128::from(share) / u128::from(of);
    Figure { value: u64::try_from(value).unwrap_or(u64::MAX).max(1), origin: Origin::Estimate }
}

/// Packets per second, both directions together; estimates are in proportion to the baseline
/// bandwidth (P2).
pub(super) fn packets_per_second(kind: &InstanceType) -> Figure {
    figure(kind, SOURCED_PACKETS_PER_SECOND, kind.baseline_bps, SOURCED_BASELINE_BPS)
}

/// Number of connections that may be tracked; estimates are in proportion to the vCPUs (P2).
pub(super) fn tracking_allowance(kind: &InstanceType) -> Figure {
    figure(kind, SOURCED_CONNECTIONS, u64::from(kind.vcpus), SOURCED_VCPUS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sourced_figures_are_not_estimates() {
        for kind in InstanceType::all() {
            let origin = if kind.name == "c7i.large" { Origin::Sourced } else { Origin::Estimate };
            let figures = [packets_per_second(&kind), tracking_allowance(&kind)];
            assert!(figures.iter().all(|figure| figure.origin == origin && figure.value > 0));
        }
    }

    #[test]
    fn estimates_follow_the_share_of_the_host() {
        let of = |name| InstanceType::find(name).unwrap();
        let (large, twice) = (of("c7i.large"), of("c7i.xlarge"));
        assert_eq!(packets_per_second(&large).value, 1_000_000);
        assert_eq!(packets_per_second(&twice).value, 2_000_000);
        assert_eq!(tracking_allowance(&large).value, 136_812);
        assert_eq!(tracking_allowance(&twice).value, 273_624);
        // The constants are the data of the type.
        assert_eq!(large.baseline_bps, SOURCED_BASELINE_BPS);
        assert_eq!(u64::from(large.vcpus), SOURCED_VCPUS);
    }
}
