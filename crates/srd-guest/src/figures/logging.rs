//! Flow logs and mirrors of this host's interfaces, by the rules in force.

use std::collections::BTreeMap;
use std::time::SystemTime;

use srd_net::clock;
use srd_proto::time::Instant;

use crate::figures::logs::{END_WAIT_MAX, Plan};
use crate::state::Service;

impl Service {
    /// Sets the flow logs and mirrors of this host's interfaces by the VPC in force.
    pub(crate) fn plan_logs(&mut self, now: Instant) {
        let running = self.guests.by_name.values();
        let enis = running.flat_map(|running| running.interfaces.iter().map(|(_, eni, _)| *eni));
        let plan = Plan::new(&self.world, &enis.collect(), &self.logs.plan);
        self.card.set_mirrors(&self.world);
        self.card.set_flow_logs(now, &plan.lengths());
        // Aggregation windows that were counted before belong to the previous plan.
        self.write_logs();
        self.publisher.names_have_changed();
        if let Err(error) = self.logs.set_plan(plan) {
            tracing::warn!("a flow log is not written: {error:#}");
        }
        self.write_logs();
    }

    /// Sends completed aggregation windows of flow logs to the threads that write files.
    pub(crate) fn write_logs(&mut self) {
        self.logs.send_plans();
        while let Some(window) = self.card.take_window() {
            self.logs.offer(window);
        }
    }

    /// Ends all aggregation windows of flow logs, and waits for at most [`END_WAIT_MAX`] until they
    /// are written.
    pub(crate) fn end_logs(&mut self) {
        self.card.set_flow_logs(clock::now(), &BTreeMap::new());
        self.write_logs();
        self.end_writing();
    }

    /// Waits for at most [`END_WAIT_MAX`] until all aggregation windows that were sent are written.
    pub(crate) fn end_writing(&mut self) {
        if self.logs.end() > 0 {
            let wait_s = END_WAIT_MAX.as_secs();
            tracing::warn!("flow logs are not written within {wait_s} s: some are lost");
        }
    }
}

/// Returns the Unix time in nanoseconds at which the clock of packets was zero.
///
/// The value is computed for each aggregation window, because the wall clock may be set, and the
/// clock of packets stops while the machine sleeps.
pub(crate) fn unix_ns_at_zero() -> u64 {
    let now = clock::now();
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX).saturating_sub(now.as_nanos())
}
