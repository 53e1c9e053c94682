//! Meters (token buckets), one for each flow, that apply the ceiling of one flow, in bounded
//! memory.
//!
//! Meters are in two generations, and a meter that is used moves to the young generation. When the
//! young generation is full, it becomes the old generation, and the former old generation is
//! dropped. So at least the meters of the last [`METERS_KEPT`] flows are kept. If a flow sends
//! again after its meter was dropped, it gets a new meter with full tolerance, and the model is
//! then less strict than the card.

use std::collections::HashMap;

use srd_card::FlowKey;
use srd_card::limits::FlowMeter;
use srd_proto::time::Instant;

/// Largest number of flows in one generation of meters.
pub const METERS_KEPT: usize = 1 << 15;

/// Meters by outer flow, the flow that the network sees. The two directions of a connection are
/// separate flows.
#[derive(Debug, Default)]
pub struct Meters {
    young: HashMap<FlowKey, FlowMeter>,
    old: HashMap<FlowKey, FlowMeter>,
    forgotten: u64,
}

impl Meters {
    /// Returns the meter of a flow, and creates it if it is missing.
    pub fn of(&mut self, flow: &FlowKey, now: Instant) -> &mut FlowMeter {
        if self.young.len() >= METERS_KEPT && !self.young.contains_key(flow) {
            self.forgotten += self.old.len() as u64;
            self.old.clear();
            std::mem::swap(&mut self.young, &mut self.old);
        }
        let old = &mut self.old;
        self.young
            .entry(*flow)
            .or_insert_with(|| old.remove(flow).unwrap_or_else(|| FlowMeter::new(now)))
    }

    /// Returns the number of meters that were dropped to limit memory.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(n: u32) -> FlowKey {
        let (source, destination) = (n.to_be_bytes().into(), [10, 0, 0, 2].into());
        FlowKey { source, destination, protocol: 17, ports: (1, 2) }
    }

    #[test]
    fn a_million_flows_need_no_more_room_than_two_generations() {
        let mut meters = Meters::default();
        for n in 0..1_000_000 {
            meters.of(&flow(n), Instant::ZERO);
            // This flow is used all the time, so it keeps its meter.
            meters.of(&flow(u32::MAX), Instant::ZERO);
            assert!(meters.len() <= 2 * METERS_KEPT);
        }
        assert!(meters.young.contains_key(&flow(u32::MAX)));
        let all = 1_000_001 - meters.len() as u64;
        assert_eq!(meters.forgotten(), all, "each is there or counted");
    }
}
