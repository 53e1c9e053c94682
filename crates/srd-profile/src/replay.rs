//! Sends captured packets, one by one, through the limits and the connection tracking of one
//! instance type, with the code of the project's card. This checks whether a recommended type
//! carries the traffic.

use srd_card::Direction;
use srd_card::limits::{Allowances, Ceiling, FlowKind, Limit, Limits, Offer, Outcome};
use srd_card::packet::Packet;
use srd_card::profile::Profile;
use srd_card::track::key::Key;
use srd_card::track::state::PacketKind;
use srd_card::track::table::{Lookup, Table};
use srd_proto::time::Instant;
use srd_watch::PacketDirection;
use srd_watch::meters::Meters;
use srd_watch::read::Raw;
use srd_watch::steady::Steady;

use crate::analysis::connections::secret;
use crate::analysis::place;

/// Largest number of table entries that are freed before each packet.
const WORK: u32 = 64;

/// A simulated instance. [`Replay::see`] sends each captured packet through the instance's
/// connection tracking and limits.
pub struct Replay {
    limits: Limits<()>,
    table: Table,
    meters: Meters,
    ceiling: Ceiling,
    refused: u64,
    packets: u64,
    clock: Steady,
}

impl std::fmt::Debug for Replay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replay").field("packets", &self.packets).finish_non_exhaustive()
    }
}

impl Replay {
    /// Returns an instance in its state at launch, whose first packet arrives at `now`.
    pub fn new(profile: &Profile, kind: FlowKind, now: Instant) -> Self {
        let kind = match kind {
            FlowKind::Express if !profile.instance.ena_srd => FlowKind::ClusterPlacementGroup,
            kind => kind,
        };
        let allowance = u32::try_from(profile.tracking_allowance.value).unwrap_or(u32::MAX);
        Self {
            limits: Limits::new(&profile.limits(), 1, now),
            table: Table::new(allowance, &[profile.instance.timeouts], secret(), now),
            meters: Meters::default(),
            ceiling: profile.ceiling(kind),
            refused: 0,
            packets: 0,
            clock: Steady::new(now),
        }
    }

    /// Sends a packet through the limits and the connection tracking.
    pub fn see(&mut self, raw: &Raw<'_>) {
        let (Some(arrival), Some((bytes, _))) = (raw.arrival(), raw.ip()) else { return };
        let Some(packet) = Packet::read(bytes) else { return };
        let time = self.clock.packet(arrival.time);
        let now = self.clock.last().max(time);
        let local = arrival.way == PacketDirection::Out;
        let direction = if local { Direction::Egress } else { Direction::Ingress };
        let packets = u64::from(arrival.packets);
        self.packets += packets;
        while self.limits.pop(now).is_some() {}
        while self.limits.pop_late().is_some() {}
        self.table.expire(now, WORK, |_, _| ());
        let (key, seen) = (Key::of(&packet, bytes, direction, 0), PacketKind::of(&packet, bytes));
        let known = self.table.packet(now, &key, local, seen);
        if known == Lookup::New && self.table.insert(now, &key, local, seen, ()).is_err() {
            self.refused += packets;
            return;
        }
        let outer = &arrival.flow.outer;
        let remote = if local { outer.destination } else { outer.source };
        let offer = Offer {
            direction,
            bytes: arrival.bytes,
            packets: arrival.packets,
            eni: 0,
            gateway: place::is_public(remote),
            link_local: local && place::is_link_local_service(remote),
            fragment: local && arrival.fragment,
        };
        let meter = self.meters.of(outer, now);
        match self.limits.offer(now, offer, Some((meter, &self.ceiling)), ()) {
            Outcome::Passed(()) | Outcome::Taken(_) | Outcome::Dropped(..) => {}
            Outcome::Undrained(()) => {}
        }
    }

    /// Returns the counters of exceeded allowances that `ethtool -S` would show.
    pub fn allowances(&self) -> Allowances {
        let mut counters = self.limits.allowances(0);
        counters.count(Limit::Tracking, self.refused);
        counters
    }

    /// Returns the names and values of the counters that are not zero.
    pub fn moved(&self) -> Vec<(&'static str, u64)> {
        let counters = self.allowances();
        let all = counters.ethtool(0).into_iter().chain(counters.ours());
        all.filter(|(_, count)| *count > 0).collect()
    }
}
