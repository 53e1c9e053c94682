//! Profile of an instance type: the figures that EC2 publishes, and estimates of the other figures.
//!
//! To change a published limit of a type, change its row in `data/instance-types.csv` (its columns
//! are described in `data/README.md`); packets per second and tracked connections are in
//! [`figures`].
//!
//! | module | contents |
//! |---|---|
//! | [`catalogue`] | all instance types, by name |
//! | [`generation`] | abilities of each version of the Nitro system |
//! | [`figures`] | packets per second and tracked connections, sourced or estimated |
//! | [`queues`] | number of queue pairs of an ENI |
//! | [`suggest`] | names similar to a misspelt one |
//!
//! The rules are those of `docs/spec/card.md`, section 4.

pub mod catalogue;
pub mod figures;
pub mod generation;
pub mod queues;
pub mod suggest;

use srd_proto::time::Duration;

pub use catalogue::{InstanceType, UnknownType};
pub use figures::{Figure, Origin};
pub use generation::Generation;

use crate::limits::ceiling::{Ceiling, FlowKind, gateway_bps};
use crate::limits::{Rates, stages};

/// Default of T, the time for which full bandwidth credits sustain the peak rate. EC2 documents 5
/// to 60 minutes; the talk NET402 (re:Invent 2024) shows a c7i.large whose credits are used up
/// after 304 s.
pub const BURST_DEFAULT: Duration = Duration::from_secs(300);

/// Largest factor by which the queues of a slower lab are longer in time: a super-packet of 64 KB
/// takes 10 ms at a hundredth of 5 Gb/s.
const LONGER_MAX: u32 = 20;

/// Limits of one instance: those of its type, with the user's changes.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Type of the instance.
    pub instance: InstanceType,
    /// Packets per second, both directions together.
    pub packets_per_second: Figure,
    /// Number of connections that may be tracked.
    pub tracking_allowance: Figure,
    /// T: the time for which full bandwidth credits sustain the peak rate.
    pub burst: Duration,
    /// Largest burst above a rate, as the time that it takes at that rate. The value is chosen by
    /// this project, because EC2 publishes none.
    pub tolerance: Duration,
    /// Longest time that a frame waits before one limit. The value is chosen by this project,
    /// because EC2 publishes none.
    pub queue_delay_max: Duration,
    /// Largest number of frames that wait before one limit. The value is chosen by this project,
    /// because EC2 publishes none.
    pub queue_packets_max: u32,
    /// Divisor of all rates; 1 outside of a lab.
    scale: u32,
}

impl Profile {
    /// Returns the profile of a type, with estimates of unpublished figures (P2).
    pub fn of(instance: InstanceType) -> Self {
        Self {
            packets_per_second: figures::packets_per_second(&instance),
            tracking_allowance: figures::tracking_allowance(&instance),
            instance,
            burst: BURST_DEFAULT,
            tolerance: Duration::from_millis(1),
            queue_delay_max: Duration::from_millis(5),
            queue_packets_max: 4096,
            scale: 1,
        }
    }

    /// Replaces the limit of packets per second by the user's figure (P2).
    #[must_use]
    pub fn with_packets_per_second(mut self, value: u64) -> Self {
        self.packets_per_second = Figure { value, origin: Origin::User };
        self
    }

    /// Replaces the tracking allowance by the user's figure (P2).
    #[must_use]
    pub fn with_tracking_allowance(mut self, value: u32) -> Self {
        self.tracking_allowance = Figure { value: value.into(), origin: Origin::User };
        self
    }

    /// Replaces T, the time for which full bandwidth credits sustain the peak rate, by the user's
    /// value (P2).
    #[must_use]
    pub fn with_burst(mut self, burst: Duration) -> Self {
        self.burst = burst;
        self
    }

    /// Divides all rates by `scale`, for a slower lab. Counts stay the same. Queues become longer
    /// in time, because packets do not become smaller (P3).
    #[must_use]
    pub fn scaled(mut self, scale: u32) -> Self {
        self.scale = scale.max(1);
        let longer = u64::from(self.scale.min(LONGER_MAX));
        let times = |time: Duration| Duration::from_nanos(time.as_nanos() * longer);
        self.tolerance = times(self.tolerance);
        self.queue_delay_max = times(self.queue_delay_max);
        self
    }

    /// Bandwidth that is available without limit in time, of each direction, in bits per second,
    /// divided by `scale`.
    pub fn baseline_bps(&self) -> u64 {
        self.instance.baseline_bps / u64::from(self.scale)
    }

    /// Bandwidth while credits are left, of each direction, in bits per second, divided by `scale`.
    pub fn peak_bps(&self) -> u64 {
        self.instance.peak_bps / u64::from(self.scale)
    }

    /// Ceiling of one flow in bits per second, divided by `scale`.
    pub fn flow_bps(&self, kind: FlowKind) -> u64 {
        kind.ceiling_bps(self.peak_bps(), self.scale)
    }

    /// Ceiling of flows of a kind, with its burst, for [`crate::limits::Limits::offer`].
    pub fn ceiling(&self, kind: FlowKind) -> Ceiling {
        Ceiling::new(self.flow_bps(kind), self.tolerance)
    }

    /// Settings of limits that admit no packet.
    pub(crate) fn of_nothing() -> stages::Settings {
        let rates = Rates {
            baseline_bps: 0,
            peak_bps: 0,
            burst: Duration::ZERO,
            tolerance: Duration::ZERO,
        };
        stages::Settings {
            rates_in: rates,
            rates_out: rates,
            gateway_bps: 0,
            packets_per_second: 0,
            tolerance: Duration::ZERO,
            queue_delay_max: Duration::ZERO,
            queue_packets_max: 0,
            scale: 1,
        }
    }

    /// Settings with which [`crate::limits::Limits`] apply this profile.
    pub fn limits(&self) -> stages::Settings {
        let rates = Rates {
            baseline_bps: self.baseline_bps(),
            peak_bps: self.peak_bps(),
            burst: self.burst,
            tolerance: self.tolerance,
        };
        stages::Settings {
            rates_in: rates,
            rates_out: rates,
            gateway_bps: gateway_bps(self.instance.vcpus, self.peak_bps(), self.scale),
            packets_per_second: self.packets_per_second.value / u64::from(self.scale),
            tolerance: self.tolerance,
            queue_delay_max: self.queue_delay_max,
            queue_packets_max: self.queue_packets_max,
            scale: self.scale,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> Profile {
        Profile::of(InstanceType::find(name).unwrap())
    }

    #[test]
    fn a_lab_is_slower_by_the_scale_in_every_rate() {
        let (full, lab) = (of("c7i.large").limits(), of("c7i.large").scaled(100).limits());
        assert_eq!(lab.rates_out.peak_bps, 125_000_000);
        assert_eq!(lab.rates_in.baseline_bps, 7_810_000);
        assert_eq!(lab.packets_per_second, 10_000);
        assert_eq!(lab.gateway_bps * 100, full.gateway_bps);
        assert_eq!(lab.rates_out.burst, full.rates_out.burst);
        assert_eq!(of("c7i.large").scaled(100).flow_bps(FlowKind::Exterior), 50_000_000);
        assert_eq!(of("c7i.large").scaled(0).peak_bps(), 12_500_000_000);
    }

    #[test]
    fn a_users_figures_are_marked() {
        let profile = of("c5.large").with_packets_per_second(7).with_tracking_allowance(9);
        let user = |value| Figure { value, origin: Origin::User };
        assert_eq!(profile.packets_per_second, user(7));
        assert_eq!(profile.tracking_allowance, user(9));
        assert_eq!(profile.limits().packets_per_second, 7);
    }
}
