//! Warnings about hosts for the operator.
//!
//! Bounds: of each kind, [`REMEMBERED_MAX`] warnings are remembered. Beyond this number, warnings
//! are reported again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::parts::Waited;
use crate::plane::{Report, printable};

/// Largest number of remembered warnings.
const REMEMBERED_MAX: usize = 4096;
/// Shortest time between two reports that a host is late.
const LATE_PAUSE: Duration = Duration::from_secs(10);

/// Warnings, and those that were reported already.
pub(super) struct Warnings {
    report: Report,
    /// Texts that are reported once.
    reported: BTreeSet<String>,
    /// Hosts that have refused their newest part, each with the reported reason.
    refused: BTreeMap<String, String>,
    /// Hosts that were late, each with the time of the report.
    late: BTreeMap<String, Instant>,
}

impl Warnings {
    pub(super) fn new(mut report: Report) -> Self {
        let report = Box::new(move |text: &str| report(&printable(text)));
        let (reported, refused, late) = <_>::default();
        Self { report, reported, refused, late }
    }

    pub(super) fn report(&mut self, warning: &str) {
        (self.report)(warning);
    }

    /// Reports a warning, unless it was reported before.
    pub(super) fn report_once(&mut self, warning: String) {
        if self.reported.len() >= REMEMBERED_MAX {
            self.reported.clear();
        }
        if !self.reported.contains(&warning) {
            self.report(&warning);
            self.reported.insert(warning);
        }
    }

    /// Reports the hosts that have refused a change, and those that are late, after a wait for
    /// these hosts. A host that has used a change after a refusal is reported at its next refusal.
    pub(super) fn report_wait(&mut self, wanted: &[(String, u64)], waited: &Waited, now: Instant) {
        if !self.refused.is_empty() {
            let is_open = |host: &String| {
                waited.pending.contains(host) || waited.refused.iter().any(|(of, _)| of == host)
            };
            for (host, _) in wanted.iter().filter(|(host, _)| !is_open(host)) {
                self.refused.remove(host);
            }
        }
        for (host, why) in &waited.refused {
            if self.refused.len() >= REMEMBERED_MAX {
                self.refused.clear();
            }
            if self.refused.insert(host.clone(), why.clone()).as_ref() != Some(why) {
                self.report(&refused(host, why));
            }
        }
        self.report_late(&waited.late, now);
    }

    /// Reports hosts that have not answered in time.
    pub(super) fn report_late(&mut self, hosts: &[String], now: Instant) {
        for host in hosts {
            let is_recent = |at: &Instant| now.saturating_duration_since(*at) < LATE_PAUSE;
            if self.late.get(host).is_some_and(is_recent) {
                continue;
            }
            if self.late.len() >= REMEMBERED_MAX {
                self.late.clear();
            }
            self.late.insert(host.clone(), now);
            let what = "does not use a change yet: it gets the change as soon as it answers";
            self.report(&format!("the host {host} {what}"));
        }
    }
}

/// The warning that a host has refused a change.
pub(super) fn refused(host: &str, why: &str) -> String {
    format!("the host {host} has refused a change: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    fn warnings() -> (Warnings, Arc<Mutex<Vec<String>>>) {
        let reports = Arc::<Mutex<Vec<String>>>::default();
        let report = {
            let reports = Arc::clone(&reports);
            move |text: &str| reports.lock().unwrap().push(text.to_owned())
        };
        (Warnings::new(Box::new(report)), reports)
    }

    /// A host was reported as late once in each run of the controller.
    #[test]
    fn regression_a_host_is_reported_each_time_that_it_is_late() {
        let (mut warnings, reports) = warnings();
        let begin = Instant::now();
        let late = Waited { late: vec!["a".to_owned()], ..Waited::default() };
        for seconds in [0, 9, 10, 25] {
            warnings.report_wait(&[], &late, begin + Duration::from_secs(seconds));
        }
        assert_eq!(reports.lock().unwrap().len(), 3, "not twice within ten seconds");
    }

    #[test]
    fn a_refusal_is_reported_once_until_the_host_uses_a_change() {
        let (mut warnings, reports) = warnings();
        let wanted = [("a".to_owned(), 1)];
        let refused = |why: &str| Waited {
            refused: vec![("a".to_owned(), why.to_owned())],
            ..Waited::default()
        };
        let pending = Waited { pending: vec!["a".to_owned()], ..Waited::default() };
        let waits = [refused("x"), refused("x"), pending, refused("x"), refused("y")];
        let used = [Waited::default(), refused("y")];
        for waited in waits.iter().chain(&used) {
            warnings.report_wait(&wanted, waited, Instant::now());
        }
        let reports: Vec<String> = reports.lock().unwrap().clone();
        let reasons: Vec<&str> = reports.iter().filter_map(|of| of.rsplit(' ').next()).collect();
        assert_eq!(reasons, ["x", "y", "y"]);
    }
}
