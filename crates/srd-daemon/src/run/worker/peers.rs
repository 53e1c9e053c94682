//! The worker's context with each peer, and the row with figures that the worker writes for each.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use srd_card::{Express, PeerSlot, Traffic};
use srd_proto::{DownReason, Duration, Endpoint, Event, Instant, PeerId};

use crate::pages::figure::Sum;
use crate::pages::peer::{Link, PeerFigures, PeerPage};
use crate::plane::PeerNumber;
use crate::run::evidence::Evidence;

/// Greatest age of the row of a peer without traffic; an older row is written again.
const IDLE_ROW_AGE_MAX: Duration = Duration::from_secs(1);

/// The identifiers of a peer: that of its context in the transport, and its slot in the card.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hooked {
    pub(super) id: PeerId,
    pub(super) slot: PeerSlot,
}

/// One peer, as this worker sees it.
#[derive(Debug)]
pub(super) struct Entry {
    /// The peer's identifiers; `None` while the worker has no context with the peer.
    pub(super) hooked: Option<Hooked>,
    page: Arc<PeerPage>,
    /// Name of the peer as a host of the clouds; `None` if it is no such host.
    cloud_host: Option<Arc<str>>,
    /// The contexts with the peer that are up: one for each shard of the peer's node that
    /// communicates with our shard.
    up: Vec<PeerId>,
    /// The figures of the peer, which are the contents of its row.
    figures: PeerFigures,
    /// Traffic of the present context, and below it the traffic of earlier contexts with the peer.
    traffic: Traffic,
    traffic_before: Traffic,
    /// Retransmissions of the present context and of all earlier contexts together.
    retrans: Rising,
    written_at: Instant,
}

/// A counter that continues to grow when its source starts again from zero.
#[derive(Clone, Copy, Debug, Default)]
struct Rising {
    base: u64,
    last: u64,
}

impl Rising {
    fn see(&mut self, count: u64) -> u64 {
        if count < self.last {
            self.base += self.last;
        }
        self.last = count;
        self.base + count
    }

    /// Prepares for a source that starts again from zero: its next values are added to the present
    /// value.
    fn restart(&mut self) {
        self.base += std::mem::take(&mut self.last);
    }
}

/// Every peer of a worker.
#[derive(Debug)]
pub(super) struct Peers {
    /// Number of this worker, which is the index of its row in the page of each peer.
    worker: usize,
    entries: BTreeMap<PeerNumber, Entry>,
    by_id: BTreeMap<PeerId, PeerNumber>,
    by_slot: Vec<Option<PeerNumber>>,
    /// Number of times that a row was written.
    pub(super) rows: u64,
}

impl Peers {
    pub(super) fn new(worker: usize) -> Self {
        let (entries, by_id) = (BTreeMap::new(), BTreeMap::new());
        Self { worker, entries, by_id, by_slot: Vec::new(), rows: 0 }
    }

    /// Returns the peer to which a context of the transport belongs. A peer has several contexts
    /// with our shard if its node has more shards than ours.
    pub(super) fn number_of(&self, core: &Endpoint, id: PeerId) -> Option<PeerNumber> {
        self.by_id.get(&core.node_of(id)).copied()
    }

    /// Returns the peer in a slot of the card.
    pub(super) fn at(&self, slot: PeerSlot) -> Option<PeerNumber> {
        self.by_slot.get(slot.0 as usize).copied().flatten()
    }

    pub(super) fn hooked(&self, number: PeerNumber) -> Option<Hooked> {
        self.entries.get(&number)?.hooked
    }

    /// Records the context of a peer, and the page into which its figures are written. Returns the
    /// former name of the peer as a host of the clouds if no peer has this name any more.
    #[must_use]
    pub(super) fn insert(
        &mut self,
        number: PeerNumber,
        hooked: Hooked,
        page: Arc<PeerPage>,
        cloud_host: Option<Arc<str>>,
    ) -> Option<Arc<str>> {
        let entry = self.entries.entry(number).or_insert_with(|| Entry::new(page));
        entry.hooked = Some(hooked);
        let former = std::mem::replace(&mut entry.cloud_host, cloud_host);
        self.by_id.insert(hooked.id, number);
        let slot = hooked.slot.0 as usize;
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot + 1, None);
        }
        self.by_slot[slot] = Some(number);
        self.unless_shared(former)
    }

    /// Returns this name of a host of the clouds, unless a peer has it. In one reload, a name may
    /// move from one peer to another.
    fn unless_shared(&self, name: Option<Arc<str>>) -> Option<Arc<str>> {
        name.filter(|name| !self.entries.values().any(|e| e.cloud_host.as_ref() == Some(name)))
    }

    /// Ends the record of a peer's context; the peer's counters continue. Call it before the
    /// context is removed from the transport and the card, because it reads their last figures.
    pub(super) fn withdraw(
        &mut self,
        number: PeerNumber,
        core: &Endpoint,
        express: &Express,
    ) -> Option<Hooked> {
        let entry = self.entries.get_mut(&number)?;
        let hooked = entry.hooked?;
        entry.look(core, express);
        entry.begin_anew();
        entry.page.rows[self.worker].publish(&entry.figures);
        self.by_id.remove(&hooked.id);
        if let Some(place) = self.by_slot.get_mut(hooked.slot.0 as usize) {
            *place = None;
        }
        Some(hooked)
    }

    /// Removes a peer. Its context must have been removed before. Returns the name of the peer as a
    /// host of the clouds; `None` if it was no such host, or if another peer has this name.
    pub(super) fn forget(&mut self, number: PeerNumber) -> Option<Arc<str>> {
        let name = self.entries.remove(&number)?.cloud_host;
        self.unless_shared(name)
    }

    /// Processes an event of a context. If the peer's figures have changed, writes its row at once
    /// and returns the peer.
    pub(super) fn on_event(
        &mut self,
        now: Instant,
        core: &Endpoint,
        express: &Express,
        id: PeerId,
        event: &Event,
    ) -> Option<PeerNumber> {
        let number = self.number_of(core, id)?;
        let entry = self.entries.get_mut(&number)?;
        if !entry.on_event(now, id, event) {
            return None;
        }
        entry.look(core, express);
        entry.write(now, self.worker);
        self.rows += 1;
        Some(number)
    }

    /// Reads the figures of a peer and writes its row.
    pub(super) fn write(
        &mut self,
        now: Instant,
        number: PeerNumber,
        core: &Endpoint,
        express: &Express,
    ) {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.look(core, express);
            entry.write(now, self.worker);
            self.rows += 1;
        }
    }

    /// Checks at most `most` peers, starting at `from`, and writes the rows of peers with traffic.
    /// The row of a peer without traffic is written only if it is older than [`IDLE_ROW_AGE_MAX`].
    /// Returns the peer at which the next call continues; `None` after the last peer.
    pub(super) fn sweep(
        &mut self,
        now: Instant,
        (from, most): (PeerNumber, usize),
        core: &Endpoint,
        express: &Express,
        refusal: impl Fn(std::net::SocketAddr) -> Option<i32>,
    ) -> Option<PeerNumber> {
        let mut last = from;
        for (number, entry) in self.entries.range_mut(from..).take(most) {
            last = *number;
            if now.since(entry.written_at) < IDLE_ROW_AGE_MAX && !entry.has_moved(express) {
                continue;
            }
            entry.look(core, express);
            let address = entry.figures.known_addresses().next();
            entry.figures.refusal = address.and_then(&refusal);
            entry.write(now, self.worker);
            self.rows += 1;
        }
        let next = PeerNumber(last.0.saturating_add(1));
        self.entries.range(next..).next().map(|(number, _)| *number)
    }

    /// Returns the peer at each known outer address.
    pub(super) fn by_address(&self, core: &Endpoint) -> BTreeMap<IpAddr, PeerNumber> {
        let mut all = BTreeMap::new();
        for (number, hooked) in self.entries.iter().filter_map(|(n, e)| Some((*n, e.hooked?))) {
            let known = core.addresses_of(hooked.id).into_iter().filter(|a| a.port() != 0);
            all.extend(known.map(|address| (address.ip().to_canonical(), number)));
        }
        all
    }
}

impl Entry {
    fn new(page: Arc<PeerPage>) -> Self {
        Self {
            hooked: None,
            page,
            cloud_host: None,
            up: Vec::new(),
            figures: PeerFigures::default(),
            traffic: Traffic::default(),
            traffic_before: Traffic::default(),
            retrans: Rising::default(),
            written_at: Instant::ZERO,
        }
    }

    /// Whether figures of the card have changed since the row was written. This check is cheap,
    /// because it does not read the transport.
    fn has_moved(&self, express: &Express) -> bool {
        let report = self.hooked.and_then(|hooked| express.report(hooked.slot));
        report.is_some_and(|report| {
            report.traffic != self.traffic
                || report.reach != self.figures.reach
                || report.queued_bytes as u64 != self.figures.queued_bytes
        })
    }

    /// Reads the figures of the peer from the transport and the card.
    fn look(&mut self, core: &Endpoint, express: &Express) {
        let Some(hooked) = self.hooked else { return };
        let figures = &mut self.figures;
        if let Some(stats) = core.peer_stats(hooked.id) {
            figures.retrans_pkts = self.retrans.see(stats.retrans_pkts);
            figures.stats = stats;
        }
        if let Some(report) = express.report(hooked.slot) {
            figures.reach = report.reach;
            figures.queued_bytes = report.queued_bytes as u64;
            self.traffic = report.traffic;
            figures.traffic = self.traffic_before;
            figures.traffic.add(&report.traffic);
            let from = report.refused_from.map(|address| SocketAddr::new(address, 0));
            figures.refused_from = from.or(figures.refused_from);
        }
        figures.unreachable = core.last_unreachable(hooked.id);
        figures.packet_bytes_max = core.packet_bytes_max_to(hooked.id);
        let mut addresses = core.addresses_of(hooked.id).into_iter();
        figures.addresses = std::array::from_fn(|_| addresses.next());
    }

    fn write(&mut self, now: Instant, worker: usize) {
        self.page.rows[worker].publish(&self.figures);
        self.written_at = now;
    }

    /// Resets the figures for the peer's next context. Counters continue.
    fn begin_anew(&mut self) {
        self.hooked = None;
        self.up.clear();
        self.retrans.restart();
        self.traffic_before.add(&std::mem::take(&mut self.traffic));
        let before = self.figures;
        self.figures = PeerFigures {
            ups: before.ups,
            downs: before.downs,
            traffic: self.traffic_before,
            refused_from: before.refused_from,
            retrans_pkts: before.retrans_pkts,
            ..PeerFigures::default()
        };
    }

    /// Processes an event of one of the peer's contexts. Returns whether the figures have changed.
    fn on_event(&mut self, now: Instant, context: PeerId, event: &Event) -> bool {
        let figures = &mut self.figures;
        match event {
            Event::PeerUp { .. } => {
                if !self.up.contains(&context) {
                    self.up.push(context);
                }
                figures.link = Link::Up;
                figures.ups += 1;
                figures.up_at = now;
                figures.evidence = Evidence::default();
                true
            }
            Event::PeerDown { reason, .. } => {
                self.up.retain(|up| *up != context);
                figures.link = if self.up.is_empty() { Link::Down } else { Link::Up };
                figures.downs += 1;
                if *reason == DownReason::Closed {
                    figures.evidence.closed();
                }
                true
            }
            Event::Diagnosis { what, .. } => {
                let before = figures.evidence;
                figures.evidence.saw(*what);
                figures.evidence != before
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_whose_source_begins_anew_goes_on() {
        let mut counter = Rising::default();
        assert_eq!([5, 9, 2, 4].map(|count| counter.see(count)), [5, 9, 11, 13]);
        counter.restart();
        assert_eq!(counter.see(100), 113, "though the new count is larger than the old");
    }
}
