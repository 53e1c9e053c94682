//! The limits with which arrivals are compared: the limits of an EC2 instance type, or a rate.
//!
//! The buckets and queues are those of the project's card (`srd_card::limits`). In this model, they
//! get packets that have already passed, and return the decision that the card would have made.

use std::fmt;

use srd_card::Direction;
pub use srd_card::limits::FlowKind;
use srd_card::limits::{Ceiling, Limit, Limits, Offer, Outcome, Rates, Settings as Buckets};
use srd_card::profile::{InstanceType, Profile};
pub use srd_proto::time::Duration;
use srd_proto::time::Instant;

use crate::analysis::meters::Meters;
use crate::output::units;
use crate::sources::arrival::{Arrival, PacketDirection};

/// Size of the largest super-packet (64 KiB), in bits.
const SUPER_PACKET_BITS: u64 = 65_536 * 8;
/// Smallest number of super-packets of the largest size that may pass at once, whatever the rate.
/// The tolerance is at least the time that they take.
const SUPER_PACKETS: u64 = 4;
/// Least tolerance of a model of a given rate. [`QUEUE_TIMES`] is its longest wait as a multiple of
/// the tolerance. Both are the same for instance types.
const TOLERANCE_LEAST: Duration = Duration::from_millis(1);
const QUEUE_TIMES: u64 = 5;
/// Largest number of arrivals that wait in the model at a time.
const QUEUE_PACKETS_MAX: u32 = 4096;
/// Number of kinds of limits. The number of a limit is smaller.
pub(crate) const LIMITS: usize = Limit::Gateway as usize + 1;

/// The limits of an instance, or of a given rate.
#[derive(Clone, Debug)]
pub struct Model {
    /// Display name of the model.
    pub name: String,
    buckets: Buckets,
    flow_bps: Option<u64>,
    /// Whether fragments and packets to link-local services also have limits, as on an EC2
    /// interface.
    eni: bool,
}

impl Model {
    /// Returns the limits of an instance type. `kind` is the kind of destination to which its flows
    /// go. All rates are divided by `scale`.
    pub fn of_type(profile: &Profile, kind: FlowKind, scale: u32) -> Self {
        let profile = profile.clone().scaled(scale);
        let scaled = if scale > 1 { format!(" at 1/{scale}") } else { String::new() };
        Self {
            name: format!("{}{scaled}", profile.instance.name),
            buckets: profile.limits(),
            // If the ceiling of one flow equals the bandwidth of the instance, it is left out,
            // because reports would contain it in place of the bandwidth.
            flow_bps: Some(profile.flow_bps(kind)).filter(|bps| *bps < profile.peak_bps()),
            eni: true,
        }
    }

    /// Returns the profile of the instance type with this name.
    ///
    /// # Errors
    /// An error with similar names, if no type has this name.
    pub fn find(name: &str) -> Result<Profile, srd_card::profile::UnknownType> {
        InstanceType::find(name).map(Profile::of)
    }

    /// Returns a model whose bandwidth limit in each direction is `rate_bps`, in bits per second.
    /// If `packets_per_second` is given, it limits the packets of both directions together.
    pub fn of_rate(rate_bps: u64, packets_per_second: Option<u64>) -> Self {
        let rate_bps = rate_bps.max(1);
        let largest_ns = u128::from(SUPER_PACKETS * SUPER_PACKET_BITS) * 1_000_000_000;
        let largest_ns = u64::try_from(largest_ns / u128::from(rate_bps)).unwrap_or(u64::MAX);
        let tolerance = TOLERANCE_LEAST.max(Duration::from_nanos(largest_ns));
        let (burst, peak_bps) = (Duration::ZERO, rate_bps);
        let rates = Rates { baseline_bps: rate_bps, peak_bps, burst, tolerance };
        Self {
            name: units::rate(rate_bps),
            buckets: Buckets {
                rates_in: rates,
                rates_out: rates,
                gateway_bps: rate_bps,
                packets_per_second: packets_per_second.unwrap_or(u64::MAX),
                tolerance,
                queue_delay_max: tolerance.times(QUEUE_TIMES),
                queue_packets_max: QUEUE_PACKETS_MAX,
                scale: 1,
            },
            flow_bps: None,
            eni: false,
        }
    }

    /// Sets the ceiling of one flow, in bits per second.
    #[must_use]
    pub fn with_flow_rate(mut self, flow_bps: u64) -> Self {
        self.flow_bps = Some(flow_bps.max(1));
        self
    }

    /// Sets the tolerance: the amount above a rate that may pass at once, expressed as the time in
    /// which this amount passes at the rate.
    #[must_use]
    pub fn with_tolerance(mut self, tolerance: Duration) -> Self {
        self.buckets.tolerance = tolerance;
        self.buckets.rates_in.tolerance = tolerance;
        self.buckets.rates_out.tolerance = tolerance;
        self
    }

    /// Sets the longest time that a packet waits before a limit; a packet that would wait longer is
    /// dropped.
    #[must_use]
    pub fn with_queue_delay(mut self, longest: Duration) -> Self {
        self.buckets.queue_delay_max = longest;
        self
    }

    /// Returns the tolerance: the amount above a rate that may pass at once, expressed as the time
    /// in which this amount passes at the rate.
    pub fn tolerance(&self) -> Duration {
        self.buckets.tolerance
    }

    /// Returns the bandwidth of a direction while it has burst credits, in bits per second.
    pub fn peak_bps(&self, way: PacketDirection) -> u64 {
        self.rates(way).peak_bps
    }

    /// Returns the bandwidth of a direction without burst credits, in bits per second.
    pub fn baseline_bps(&self, way: PacketDirection) -> u64 {
        self.rates(way).baseline_bps
    }

    /// Returns the limit of packets per second for both directions together; `None` if there is no
    /// limit.
    pub fn packets_per_second(&self) -> Option<u64> {
        Some(self.buckets.packets_per_second).filter(|rate| *rate < u64::MAX)
    }

    /// Returns the ceiling of one flow in bits per second; `None` if there is no ceiling.
    pub fn flow_bps(&self) -> Option<u64> {
        self.flow_bps
    }

    fn rates(&self, way: PacketDirection) -> &Rates {
        match way {
            PacketDirection::In => &self.buckets.rates_in,
            PacketDirection::Out => &self.buckets.rates_out,
        }
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Decision of the model about a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// The packet passes at once.
    Passed,
    /// The packet waits before this limit.
    Queued(Limit),
    /// The packet is dropped by this limit.
    Dropped(Limit),
}

/// Properties of an arrival that waits in the model.
#[derive(Clone, Copy, Debug)]
struct QueuedPacket {
    way: PacketDirection,
    packets: u32,
}

/// State of the model for one interface: levels of buckets, and waiting packets.
pub(crate) struct Meter {
    limits: Limits<QueuedPacket>,
    ceiling: Option<Ceiling>,
    meters: Meters,
    model: Model,
}

impl Meter {
    pub(crate) fn new(model: &Model, now: Instant) -> Self {
        let ceiling = model.flow_bps.map(|bps| Ceiling::new(bps, model.buckets.tolerance));
        let limits = Limits::new(&model.buckets, 1, now);
        Self { limits, ceiling, meters: Meters::default(), model: model.clone() }
    }

    /// Decides about an arrival: whether it passes, waits or is dropped.
    pub(crate) fn offer(&mut self, arrival: &Arrival) -> Fate {
        let destination = arrival.flow.outer.destination;
        let offer = Offer {
            direction: match arrival.way {
                PacketDirection::In => Direction::Ingress,
                PacketDirection::Out => Direction::Egress,
            },
            bytes: arrival.bytes,
            packets: arrival.packets,
            eni: 0,
            gateway: false,
            link_local: self.model.eni && is_service(destination),
            fragment: self.model.eni && arrival.fragment,
        };
        let waiting = QueuedPacket { way: arrival.way, packets: arrival.packets };
        let flow = self
            .ceiling
            .as_ref()
            .map(|ceiling| (self.meters.of(&arrival.flow.outer, arrival.time), ceiling));
        match self.limits.offer(arrival.time, offer, flow, waiting) {
            Outcome::Passed(_) | Outcome::Undrained(_) | Outcome::Taken(None) => Fate::Passed,
            Outcome::Taken(Some(limit)) => Fate::Queued(limit),
            Outcome::Dropped(limit, _) => Fate::Dropped(limit),
        }
    }

    /// Forwards the waiting packets whose wait ends by `now`. A packet that has waited before one
    /// limit may then be dropped by another limit. Returns the next such drop: the limit, the
    /// direction, and the number of packets.
    pub(crate) fn late(&mut self, now: Instant) -> Option<(Limit, PacketDirection, u64)> {
        loop {
            if let Some((limit, waiting)) = self.limits.pop_late() {
                return Some((limit, waiting.way, waiting.packets.into()));
            }
            // Time advances to one end of a wait at a time, so that no drop is missed.
            let next = self.limits.poll_timeout().filter(|next| *next <= now)?;
            while self.limits.pop(next).is_some() {}
        }
    }

    /// Returns the current bandwidth of a direction in bits per second: the peak while there are
    /// burst credits, otherwise the baseline.
    pub(crate) fn limit_bps(&mut self, now: Instant, way: PacketDirection) -> u64 {
        let (peak, baseline) = (self.model.peak_bps(way), self.model.baseline_bps(way));
        if peak == baseline {
            return peak;
        }
        let direction = match way {
            PacketDirection::In => Direction::Ingress,
            PacketDirection::Out => Direction::Egress,
        };
        if self.limits.credits_bits(now, direction) > 0 { peak } else { baseline }
    }

    /// Returns the number of flow meters that were dropped to limit memory.
    pub(crate) fn forgotten(&self) -> u64 {
        self.meters.forgotten()
    }
}

/// Whether an address belongs to a service that EC2 instances reach at a link-local address.
fn is_service(address: std::net::IpAddr) -> bool {
    match address {
        std::net::IpAddr::V4(address) => address.is_link_local(),
        std::net::IpAddr::V6(address) => address.segments()[..2] == [0xfd00, 0x0ec2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_has_the_figures_of_its_profile_and_a_rate_its_own() {
        let large = Model::of_type(&Model::find("c7i.large").unwrap(), FlowKind::Exterior, 100);
        assert_eq!(
            (large.peak_bps(PacketDirection::In), large.baseline_bps(PacketDirection::Out)),
            (125_000_000, 7_810_000)
        );
        assert_eq!(
            (large.packets_per_second(), large.flow_bps()),
            (Some(10_000), Some(50_000_000))
        );
        let whole = Model::of_type(&Model::find("c7i.large").unwrap(), FlowKind::Express, 1);
        assert_eq!(whole.flow_bps(), None, "one flow may have all of the instance");
        let rate = Model::of_rate(10_000_000_000, None);
        assert_eq!((rate.packets_per_second(), rate.flow_bps()), (None, None));
        assert_eq!(rate.tolerance(), Duration::from_millis(1));
        let slow = Model::of_rate(125_000_000, None);
        assert_eq!(slow.tolerance(), Duration::from_nanos(16_777_216), "four super-packets");
        assert!(Model::find("c7i.lrage").is_err());
    }

    #[test]
    fn services_are_at_link_local_addresses() {
        let is = |text: &str| is_service(text.parse().unwrap());
        assert!(is("169.254.169.253") && is("fd00:ec2::253") && !is("10.0.0.2") && !is("fd00::1"));
    }
}
