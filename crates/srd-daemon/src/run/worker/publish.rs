//! When a worker writes its pages.
//!
//! Totals are written whenever the worker goes to sleep, so that they are right while nothing
//! moves, and every [`TOTALS_EVERY`] while it does not sleep: some sixty stores, which are little
//! beside the system call. Rows of peers are looked at every [`ROWS_EVERY`] while packets move,
//! some at each turn; and once a second all, since delays and paths change without traffic, too.

use std::sync::Arc;

use srd_net::PacketIo;
use srd_proto::{Duration, Instant};

use super::{Port, Worker};
use crate::pages::page::Page;
use crate::pages::totals::{Totals, Transport, Work};
use crate::plane::PeerNumber;

/// Time between two refreshes of the totals by a worker that does not sleep.
const TOTALS_EVERY: Duration = Duration::from_millis(10);
/// Time between two looks at the rows of peers.
const ROWS_EVERY: Duration = Duration::from_millis(100);
/// Rows that are looked at in one turn.
pub(super) const ROWS_PER_TURN_MAX: usize = 32;
/// Time between two looks at rates of flows, and at rows of peers without traffic.
const TICK: Duration = Duration::from_secs(1);

/// What is to be written, and when.
#[derive(Debug)]
pub(crate) struct Publisher {
    page: Arc<Page<Totals>>,
    /// Packets that the transport had moved when this was last looked at.
    moved_pkts: u64,
    /// The totals are not what the page says.
    totals_stale: bool,
    /// Rows may not be what they say.
    rows_stale: bool,
    totals_at: Instant,
    rows_at: Instant,
    ticked_at: Instant,
    /// The next row of a look that has begun.
    sweep: Option<PeerNumber>,
    orders: u64,
}

impl Publisher {
    pub(crate) fn new(page: Arc<Page<Totals>>, now: Instant) -> Self {
        Self {
            page,
            moved_pkts: 0,
            totals_stale: true,
            rows_stale: true,
            totals_at: now,
            rows_at: now,
            ticked_at: now,
            sweep: None,
            orders: 0,
        }
    }

    /// Something moved.
    pub(super) fn moved(&mut self) {
        (self.totals_stale, self.rows_stale) = (true, true);
    }

    /// An order was taken.
    pub(super) fn took_order(&mut self) {
        self.orders += 1;
        self.moved();
    }

    /// When there is something to write.
    pub(super) fn due(&self) -> Instant {
        let mut due = self.ticked_at + TICK;
        if self.rows_stale {
            due = due.min(self.rows_at);
        }
        due
    }
}

impl<I: PacketIo, P: Port> Worker<I, P> {
    /// Writes what is due. Returns whether a look at the rows has begun and not ended.
    pub(super) fn publish(&mut self, now: Instant) -> bool {
        let stats = self.endpoint.core().stats();
        let moved_pkts = stats.tx_pkts + stats.rx_pkts;
        if moved_pkts != self.publisher.moved_pkts {
            self.publisher.moved_pkts = moved_pkts;
            self.publisher.moved();
        }
        if now >= self.publisher.ticked_at + TICK {
            self.tick(now);
        }
        if self.publisher.totals_stale && now >= self.publisher.totals_at {
            self.publisher.totals_at = now + TOTALS_EVERY;
            self.publish_totals();
        }
        let begins = self.publisher.rows_stale && now >= self.publisher.rows_at;
        if begins && self.publisher.sweep.is_none() {
            self.publisher.rows_at = now + ROWS_EVERY;
            self.publisher.rows_stale = false;
            self.publisher.sweep = Some(PeerNumber(0));
        }
        if let Some(from) = self.publisher.sweep {
            self.publisher.sweep = self.sweep(now, from);
        }
        self.publisher.sweep.is_some()
    }

    /// Nothing is left to do, so what the totals say holds until the next packet.
    pub(super) fn publish_before_sleep(&mut self) {
        if self.publisher.totals_stale {
            self.publish_totals();
        }
    }

    /// Looks at some rows from `from` on.
    fn sweep(&mut self, now: Instant, from: PeerNumber) -> Option<PeerNumber> {
        let endpoint = &self.endpoint;
        let refusal = |address| endpoint.refusal(address);
        let range = (from, ROWS_PER_TURN_MAX);
        self.card.peers.sweep(now, range, endpoint.core(), &self.card.express, refusal)
    }

    /// Once a second. It may come late.
    fn tick(&mut self, now: Instant) {
        let elapsed = now.since(self.publisher.ticked_at);
        self.publisher.ticked_at = now;
        self.card.express.take_rates(elapsed);
        self.publisher.moved();
        self.name_addresses();
    }

    /// Tells captures of outer packets which peer is where.
    pub(super) fn name_addresses(&mut self) {
        if self.card.port.is_watched() {
            let names = self.card.peers.by_address(self.endpoint.core());
            self.endpoint.io().taps().set_names(names);
        }
    }

    /// Writes the totals.
    pub(super) fn publish_totals(&mut self) {
        let (express, stats) = (&self.card.express, self.endpoint.core().stats());
        let (sent, received) = express.flow_counts();
        self.publisher.page.publish(&Totals {
            transport: Transport::from(stats),
            card: express.counters(),
            work: Work {
                ups: self.card.ups,
                downs: self.card.downs,
                refused: self.card.port.refused,
                orders: self.publisher.orders,
                rows: self.card.peers.rows,
                reports_lost: self.card.reports.lost,
            },
            mode: express.mode(),
            utilization: express.resource_utilization(),
            flows: (sent + received) as u64,
        });
        self.publisher.totals_stale = false;
    }
}
