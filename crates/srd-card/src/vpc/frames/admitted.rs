//! Entries in the flow table for packets that the rules admit, in both directions.

use srd_proto::time::Instant;
use srd_vpc::judge::Tracking;

use crate::track::{Key, PacketKind, TrackId};
use crate::vpc::card::Card;
use crate::vpc::drops::Cause;
use crate::vpc::frames::read::Read;
use crate::vpc::tables::flow::{Flow, FlowLookup};

impl Card {
    /// Returns the entry of the flow of a packet that the rules admit. A new flow gets an entry if
    /// it is tracked, or if its verdict can be stored; otherwise the result is `None`. `by_guest`:
    /// whether the guest of the instance sends the packet.
    ///
    /// An error means that the instance has as many tracked connections as its type allows.
    pub(super) fn admitted_flow(
        &mut self,
        now: Instant,
        instance: u32,
        (read, key, seen): (&Read, &Key, PacketKind),
        known: FlowLookup,
        tracking: Option<Tracking>,
        by_guest: bool,
    ) -> Result<Option<TrackId>, Cause> {
        let flows = &mut self.instances[instance as usize].flows;
        // T4: Untracked connections
        let tracked = tracking.is_some_and(|tracking| tracking != Tracking::Untracked);
        if let Some(id) = known.id {
            if tracked && known.first_way && !known.tracked {
                flows.track(now, id).map_err(|_| Cause::Tracking)?;
                // The verdict of the other direction was given while the flow was not tracked.
                // // V5
                flows.value(id).into_iter().for_each(|(flow, ..)| flow.forget());
            }
            return Ok(Some(id));
        }
        let id = if tracked {
            let new = flows.insert(now, key, by_guest, seen, Flow::new(now));
            Some(new.map_err(|_| Cause::Tracking)?)
        } else if read.is_cacheable() {
            flows.remember(now, key, by_guest, seen, Flow::new(now))
        } else {
            None
        };
        self.make_room(now, instance);
        Ok(id)
    }
}
