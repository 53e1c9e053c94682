//! Decides when a worker writes its pages.
//!
//! Totals are written whenever the worker goes to sleep, so that they are exact while no packet is
//! processed. While the worker does not sleep, they are written every [`TOTALS_EVERY`]: this takes
//! some sixty stores, a small cost compared to a system call. The rows of peers are checked every
//! [`ROWS_EVERY`] while packets are processed, a part of them in each round of the worker's loop.
//! All rows are checked once a second, because delays and paths change even without traffic.

use std::sync::Arc;

use srd_net::PacketIo;
use srd_proto::{Duration, Instant};

use super::hosts::Hosts;
use super::{Port, Worker};
use crate::pages::page::Page;
use crate::pages::totals::{Totals, Transport, Work};
use crate::plane::PeerNumber;

/// Interval at which a worker that does not sleep writes its totals.
const TOTALS_EVERY: Duration = Duration::from_millis(10);
/// Interval at which the rows of peers are checked while packets are processed.
const ROWS_EVERY: Duration = Duration::from_millis(100);
/// Largest number of rows that are checked in one round of the worker's loop.
pub(super) const ROWS_PER_TURN_MAX: usize = 32;
/// Interval at which the rates of flows, and the rows of peers without traffic, are updated.
const TICK: Duration = Duration::from_secs(1);

/// Records which pages of the worker have to be written, and when.
#[derive(Debug)]
pub(crate) struct Publisher {
    page: Arc<Page<Totals>>,
    /// Number of packets that the transport had sent and received at the last check.
    moved_pkts: u64,
    /// Whether the totals have changed since the page was written.
    totals_stale: bool,
    /// Whether rows may have changed since they were written.
    rows_stale: bool,
    totals_at: Instant,
    rows_at: Instant,
    ticked_at: Instant,
    /// The row at which an unfinished check of the rows continues; `None` if no check is running.
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

    /// Records that the totals and rows may have changed since they were written.
    pub(super) fn moved(&mut self) {
        (self.totals_stale, self.rows_stale) = (true, true);
    }

    /// Counts an order that the worker has begun to carry out.
    pub(super) fn took_order(&mut self) {
        self.orders += 1;
        self.moved();
    }

    /// Returns the latest time of the next write.
    pub(super) fn due(&self) -> Instant {
        let mut due = self.ticked_at + TICK;
        if self.rows_stale {
            due = due.min(self.rows_at);
        }
        due
    }
}

impl<I: PacketIo, P: Port, H: Hosts> Worker<I, P, H> {
    /// Writes the pages that are due. Returns whether a check of the rows is unfinished.
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

    /// Writes the totals before the worker sleeps, because it cannot write them while it sleeps.
    pub(super) fn publish_before_sleep(&mut self) {
        if self.publisher.totals_stale {
            self.publish_totals();
        }
    }

    /// Checks some rows, starting at `from`. Returns the row at which the next call continues.
    fn sweep(&mut self, now: Instant, from: PeerNumber) -> Option<PeerNumber> {
        let endpoint = &self.endpoint;
        let refusal = |address| endpoint.refusal(address);
        let range = (from, ROWS_PER_TURN_MAX);
        self.card.peers.sweep(now, range, endpoint.core(), &self.card.express, refusal)
    }

    /// Updates rates of flows and the addresses for captures. Called once a second, or later if the
    /// worker is busy.
    fn tick(&mut self, now: Instant) {
        let elapsed = now.since(self.publisher.ticked_at);
        self.publisher.ticked_at = now;
        self.card.express.take_rates(elapsed);
        self.publisher.moved();
        self.name_addresses();
    }

    /// Passes the known addresses of peers to captures of outer packets.
    pub(super) fn name_addresses(&mut self) {
        if self.card.port.is_watched() {
            let names = self.card.peers.by_address(self.endpoint.core());
            self.endpoint.io().taps().set_names(names);
        }
    }

    /// Writes the page with the totals.
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
