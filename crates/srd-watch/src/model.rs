//! The limits that arrivals are compared with: those of an instance type, or a rate.
//!
//! The buckets and queues are the card's own (`srd_card::limits`). Here they get arrivals that
//! have passed already, and return what the card would have done with them.

use std::fmt;

use srd_card::Direction;
pub use srd_card::limits::FlowKind;
use srd_card::limits::{Ceiling, Limit, Limits, Offer, Outcome, Rates, Settings as Buckets};
use srd_card::profile::{InstanceType, Profile};
pub use srd_proto::time::Duration;
use srd_proto::time::Instant;

use crate::arrival::{Arrival, PacketDirection};
use crate::meters::Meters;
use crate::units;

/// The largest packet that a kernel hands over at once.
const SUPER_PACKET_BITS: u64 = 65_536 * 8;
/// Super-packets of that size that may pass at once, at least.
const SUPER_PACKETS: u64 = 4;
/// Least tolerance above a rate, and the longest wait as a multiple of it: as for instance types.
const TOLERANCE_LEAST: Duration = Duration::from_millis(1);
const QUEUE_TIMES: u64 = 5;
/// Frames that wait, at most.
const QUEUE_PACKETS_MAX: u32 = 4096;
/// Limits, as an index.
pub(crate) const LIMITS: usize = Limit::Gateway as usize + 1;

/// Limits with a name.
#[derive(Clone, Debug)]
pub struct Model {
    /// Name of the model, for people.
    pub name: String,
    buckets: Buckets,
    flow_bps: Option<u64>,
    /// Whether fragments and packets to link-local services have limits, too.
    eni: bool,
}

impl Model {
    /// The limits of an instance type. `kind`: where its flows go. `scale` divides all rates.
    pub fn of_type(profile: &Profile, kind: FlowKind, scale: u32) -> Self {
        let profile = profile.clone().scaled(scale);
        let scaled = if scale > 1 { format!(" at 1/{scale}") } else { String::new() };
        Self {
            name: format!("{}{scaled}", profile.instance.name),
            buckets: profile.limits(),
            // A ceiling that is the instance's own would take the blame for it.
            flow_bps: Some(profile.flow_bps(kind)).filter(|bps| *bps < profile.peak_bps()),
            eni: true,
        }
    }

    /// The limits of an instance type by its name.
    ///
    /// # Errors
    /// The name is of no type; the error has names like it.
    pub fn find(name: &str) -> Result<Profile, srd_card::profile::UnknownType> {
        InstanceType::find(name).map(Profile::of)
    }

    /// A rate of either direction, in bits per second, and if given packets per second of both
    /// together.
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

    /// Sets the tolerance: the amount that may pass at once above a rate, in time at that rate.
    #[must_use]
    pub fn with_tolerance(mut self, tolerance: Duration) -> Self {
        self.buckets.tolerance = tolerance;
        self.buckets.rates_in.tolerance = tolerance;
        self.buckets.rates_out.tolerance = tolerance;
        self
    }

    /// Sets the longest wait before a limit.
    #[must_use]
    pub fn with_queue_delay(mut self, longest: Duration) -> Self {
        self.buckets.queue_delay_max = longest;
        self
    }

    /// Amount that may pass at once above a rate, in time at that rate.
    pub fn tolerance(&self) -> Duration {
        self.buckets.tolerance
    }

    /// The bandwidth of a direction while there are credits, in bits per second.
    pub fn peak_bps(&self, way: PacketDirection) -> u64 {
        self.rates(way).peak_bps
    }

    /// The bandwidth of a direction that never ends, in bits per second.
    pub fn baseline_bps(&self, way: PacketDirection) -> u64 {
        self.rates(way).baseline_bps
    }

    /// Packets a second of both directions; `None` if they have no limit.
    pub fn packets_per_second(&self) -> Option<u64> {
        Some(self.buckets.packets_per_second).filter(|rate| *rate < u64::MAX)
    }

    /// The ceiling of one flow in bits per second, if there is one.
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

/// Decision of the model about a packet, with the limit before which it waits or that drops it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// The packet passes at once.
    Passed,
    /// The packet waits before this limit.
    Queued(Limit),
    /// This limit drops it.
    Dropped(Limit),
}

/// A packet as the model remembers it while it waits.
#[derive(Clone, Copy, Debug)]
struct QueuedPacket {
    way: PacketDirection,
    packets: u32,
}

/// The model at work.
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

    /// Decides about an arrival.
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

    /// Lets waiting packets on whose wait ends by `now`. Returns the next of them that another
    /// limit drops: that limit, the direction, and how many packets.
    pub(crate) fn late(&mut self, now: Instant) -> Option<(Limit, PacketDirection, u64)> {
        loop {
            if let Some((limit, waiting)) = self.limits.pop_late() {
                return Some((limit, waiting.way, waiting.packets.into()));
            }
            // One at a time, so that none of them is forgotten.
            let next = self.limits.poll_timeout().filter(|next| *next <= now)?;
            while self.limits.pop(next).is_some() {}
        }
    }

    /// The bandwidth of a direction now: the baseline, when credits are gone.
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

    /// Meters of flows that went, to make room.
    pub(crate) fn forgotten(&self) -> u64 {
        self.meters.forgotten()
    }
}

/// Whether an address is of the services that an instance reaches at link-local addresses.
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
