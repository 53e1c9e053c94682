//! Ceilings below that of the instance: of one flow, and of all traffic through a gateway.
//!
//! Source: Amazon EC2 User Guide, *Amazon EC2 instance network bandwidth* and *ENA Express*.

use srd_proto::time::{Duration, Instant};

use crate::limits::bandwidth::bits_in;
use crate::limits::bucket::{Bucket, TooLong};
use crate::store::stored;

/// Number of units of [`FlowMeter::level`] in a bit. A second has the same number of nanoseconds.
const NANO: u64 = 1_000_000_000;
/// Bits per second in one gigabit per second.
const GBPS: u64 = 1_000_000_000;
/// Number of vCPUs below which an instance may send only [`GATEWAY_SMALL_BPS`] through gateways.
const GATEWAY_VCPUS: u32 = 32;
/// Smallest cap of traffic through gateways, bits per second.
const GATEWAY_SMALL_BPS: u64 = 5 * GBPS;

/// Route of a flow, which decides its ceiling.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum FlowKind {
    /// Outside of the instance's cluster placement group: 5 Gb/s.
    Exterior,
    /// Between instances of one cluster placement group: 10 Gb/s.
    ClusterPlacementGroup,
    /// Between interfaces that both have ENA Express for the flow, without a gateway or a
    /// middlebox: 25 Gb/s. Both may be on one host, where SRD carries no packet.
    Express,
}

impl FlowKind {
    /// Ceiling of one flow in one direction, in bits per second, never above the peak of the
    /// instance (L4). `scale` divides the ceiling as [`crate::profile::Profile::scaled`] divides
    /// the profile; 1 outside of a lab.
    pub fn ceiling_bps(self, peak_bps: u64, scale: u32) -> u64 {
        let ceiling = match self {
            Self::Exterior => 5 * GBPS,
            Self::ClusterPlacementGroup => 10 * GBPS,
            Self::Express => 25 * GBPS,
        };
        (ceiling / u64::from(scale.max(1))).min(peak_bps)
    }
}

/// Cap of all traffic through an internet or local gateway, in bits per second (L6). `scale` is
/// defined as in [`FlowKind::ceiling_bps`].
pub fn gateway_bps(vcpus: u32, peak_bps: u64, scale: u32) -> u64 {
    let small = GATEWAY_SMALL_BPS / u64::from(scale.max(1));
    let cap = if vcpus < GATEWAY_VCPUS { small } else { small.max(peak_bps / 2) };
    cap.min(peak_bps)
}

/// Rate and depth of the token bucket of a flow; all flows of one kind use the same values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ceiling {
    rate_bps: u64,
    depth_bits: u64,
}

impl Ceiling {
    /// Creates a ceiling from a rate (see [`FlowKind::ceiling_bps`]) and the largest burst above
    /// it, as the time that the burst takes at that rate.
    pub fn new(rate_bps: u64, tolerance: Duration) -> Self {
        Self { rate_bps, depth_bits: bits_in(rate_bps, tolerance) }
    }
}

/// Bandwidth meter of one direction of a flow, 16 bytes. The caller keeps it with the flow. When
/// the flow's kind changes, the caller may use the meter with another ceiling.
#[derive(Clone, Copy, Debug)]
pub struct FlowMeter {
    /// Level of the bucket, in billionths of a bit.
    level: i64,
    at: Instant,
}

impl FlowMeter {
    /// Creates a meter that has not been used.
    pub fn new(now: Instant) -> Self {
        // More than any bucket holds; the first packet reduces it to the depth of its bucket.
        Self { level: i64::MAX, at: now }
    }

    /// Takes the bits of a packet, and returns how long the packet waits for them (L4). If the
    /// packet would wait longer than `wait_max`, nothing is taken. The packet may have arrived up
    /// to `late` before `now`.
    #[inline]
    pub(super) fn take(
        &mut self,
        ceiling: &Ceiling,
        (now, late): (Instant, Duration),
        bits: u64,
        wait_max: Duration,
    ) -> Result<Duration, TooLong> {
        if self.takes_at_once(ceiling, (now, late), bits) {
            return Ok(Duration::ZERO);
        }
        self.take_by_bucket(ceiling, (now, late), bits, wait_max)
    }

    /// Takes the bits of a packet if the flow has them and all sums fit in 64 bits. The result is
    /// that of a bucket.
    #[inline]
    fn takes_at_once(
        &mut self,
        &Ceiling { rate_bps, depth_bits }: &Ceiling,
        (now, late): (Instant, Duration),
        bits: u64,
    ) -> bool {
        let rate = rate_bps.max(1);
        let product = |a: u64, b: u64| a.checked_mul(b).and_then(|all| i64::try_from(all).ok());
        let full = product(depth_bits, NANO);
        let most = full.zip(product(late.as_nanos(), rate)).and_then(|(a, b)| a.checked_add(b));
        let earned = product(now.since(self.at).as_nanos(), rate);
        let (Some(most), Some(cost), Some(earned)) = (most, product(bits, NANO), earned) else {
            return false;
        };
        let level = self.level.min(most).saturating_add(earned).min(most);
        if level < cost {
            return false;
        }
        self.level = level - cost;
        self.at = self.at.max(now);
        true
    }

    fn take_by_bucket(
        &mut self,
        &Ceiling { rate_bps, depth_bits }: &Ceiling,
        (now, late): (Instant, Duration),
        bits: u64,
        wait_max: Duration,
    ) -> Result<Duration, TooLong> {
        let mut bucket = Bucket::resume(rate_bps, depth_bits, self.level.into(), self.at, late);
        let wait = bucket.take(now, bits, wait_max)?;
        let (level, at) = bucket.level();
        // If the level does not fit in 64 bits, the flow owes more than 9 Gbit, which is longer
        // than any queue.
        self.level = i64::try_from(level).map_err(|_| TooLong)?;
        self.at = at;
        Ok(wait)
    }
}

stored!(FlowMeter { level, at });

#[cfg(test)]
mod tests {
    use super::*;
    use srd_proto::rng::Rng;

    #[test]
    fn flows_have_five_ten_or_twenty_five_but_no_more_than_the_instance() {
        let kinds = [FlowKind::Exterior, FlowKind::ClusterPlacementGroup, FlowKind::Express];
        let of = |peak: u64| kinds.map(|kind| kind.ceiling_bps(peak, 1));
        assert_eq!(of(100 * GBPS), [5 * GBPS, 10 * GBPS, 25 * GBPS]);
        assert_eq!(of(12_500_000_000), [5 * GBPS, 10 * GBPS, 12_500_000_000]);
        assert_eq!(of(GBPS), [GBPS; 3]);
        assert_eq!(FlowKind::Exterior.ceiling_bps(GBPS, 100), GBPS / 20);
    }

    #[test]
    fn a_meter_is_small_and_follows_its_ceiling() {
        assert_eq!(size_of::<FlowMeter>(), 16);
        let in_time = |now| (now, Duration::ZERO);
        let (wait_max, at) = (Duration::from_millis(5), in_time(Instant::ZERO));
        let slow = Ceiling::new(GBPS, Duration::from_millis(1));
        let fast = Ceiling::new(5 * GBPS, Duration::from_millis(1));
        let mut meter = FlowMeter::new(at.0);
        assert_eq!(meter.take(&slow, at, 1_000_000, wait_max), Ok(Duration::ZERO));
        assert_eq!(meter.take(&slow, at, 1_000_000, wait_max), Ok(Duration::from_millis(1)));
        let later = in_time(at.0 + Duration::from_millis(1));
        let wait = meter.take(&fast, later, 5_000_000, wait_max);
        assert_eq!(wait, Ok(Duration::from_micros(200)), "idle time counts at the new rate");
        assert_eq!(meter.take(&fast, later, 24_000_001, wait_max), Err(TooLong));
        assert_eq!(meter.take(&fast, later, 24_000_000, wait_max), Ok(wait_max));
        assert_eq!(FlowMeter::new(at.0).take(&slow, at, u64::MAX, wait_max), Err(TooLong));
    }

    /// Packets that pass at once take the short way, with the result of the bucket.
    #[test]
    fn a_meter_without_a_bucket_has_the_level_of_its_bucket() {
        let mut rng = Rng::new(3);
        let mut below = |n: u64| rng.next_u64() % n;
        let ms = Duration::from_millis;
        let ceilings = [
            Ceiling::new(5 * GBPS, ms(1)),
            Ceiling::new(25 * GBPS, ms(100)),
            Ceiling::new(0, ms(1)),
            Ceiling::new(u64::MAX, ms(9000)),
            Ceiling::new(3, Duration::from_secs(5)),
        ];
        let mut at_once = [0; 2];
        for round in 0..2000_u64 {
            let mut now = Instant::from_nanos(below(1 << 40));
            let mut meters = [FlowMeter::new(now); 2];
            for _ in 0..50 {
                let ceiling = &ceilings[usize::try_from(below(5)).unwrap()];
                let late = if below(2) == 0 { Duration::ZERO } else { ms(below(100)) };
                let bits = match below(if round % 10 == 0 { 3 } else { 2 }) {
                    0 => below(12_000),
                    1 => below(1 << 24),
                    _ => u64::MAX >> below(64),
                };
                now = match below(50) {
                    0 => Instant::from_nanos(now.as_nanos().saturating_sub(below(1 << 30))),
                    1 => now + Duration::from_nanos(below(1 << 45)),
                    _ => now + Duration::from_nanos(below(1 << 20)),
                };
                let [meter, model] = &mut meters;
                let mut copy = *meter;
                at_once[usize::from(copy.takes_at_once(ceiling, (now, late), bits))] += 1;
                let taken = meter.take(ceiling, (now, late), bits, ms(5));
                assert_eq!(taken, model.take_by_bucket(ceiling, (now, late), bits, ms(5)));
                assert_eq!((meter.level, meter.at), (model.level, model.at));
            }
        }
        assert!(at_once.iter().all(|count| *count > 10_000), "{at_once:?}");
    }

    #[test]
    fn gateways_carry_half_of_large_instances_and_five_of_others() {
        assert_eq!(gateway_bps(16, 100 * GBPS, 1), 5 * GBPS);
        assert_eq!(gateway_bps(31, 100 * GBPS, 1), 5 * GBPS);
        assert_eq!(gateway_bps(32, 100 * GBPS, 1), 50 * GBPS);
        assert_eq!(gateway_bps(64, 8 * GBPS, 1), 5 * GBPS);
        assert_eq!(gateway_bps(2, 500_000_000, 1), 500_000_000);
        assert_eq!(gateway_bps(2, GBPS, 100), GBPS / 20);
    }
}
