//! What was sent to other hosts, and what has come from them.
//!
//! Cards say nothing to each other but packets of instances, so that a host whose card has ended
//! looks like one that has nothing to say, until packets for it stay without any packet back. A
//! host is *silent* when packets went to it for [`SILENT_AFTER`], and nothing came meanwhile.
//! Traffic that nothing answers, as copies of a mirror session, looks the same; the words that a
//! person gets say so.
//!
//! Bound: one entry for each host that the settings name.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use srd_proto::time::{Duration, Instant};

use crate::protocol::PeerHost;

/// A host is silent when packets without any answer went to it for so long: longer than the first
/// retransmissions of TCP (1 and 3 seconds) need, so that one lost packet is none.
pub(crate) const SILENT_AFTER: Duration = Duration::from_secs(5);

/// Packets of instances to and from another host. Times are nanoseconds of the machine's clock,
/// which is the next process's, too.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contact {
    sent_packets: u64,
    sent_bytes: u64,
    received_packets: u64,
    received_bytes: u64,
    heard_ns: Option<u64>,
    /// What went out since something came.
    unanswered: Option<Unanswered>,
    /// Whether a person was told that it is silent.
    is_told: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Unanswered {
    first_ns: u64,
    last_ns: u64,
    packets: u64,
}

/// What has become of a host.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Silent,
    HeardAgain,
}

impl Contact {
    pub(crate) fn sent(&mut self, now: Instant, bytes: usize) {
        let now = now.as_nanos();
        self.sent_packets += 1;
        self.sent_bytes += bytes as u64;
        let since = Unanswered { first_ns: now, last_ns: now, packets: 0 };
        let unanswered = self.unanswered.get_or_insert(since);
        unanswered.last_ns = now;
        unanswered.packets += 1;
    }

    pub(crate) fn received(&mut self, now: Instant, packets: usize, bytes: usize) {
        self.received_packets += packets as u64;
        self.received_bytes += bytes as u64;
        self.heard_ns = Some(now.as_nanos());
        self.unanswered = None;
    }

    // V18
    pub(crate) fn is_silent(&self) -> bool {
        self.unanswered.is_some_and(|since| {
            since.last_ns.saturating_sub(since.first_ns) >= SILENT_AFTER.as_nanos()
        })
    }

    /// What is new to a person, once.
    pub(crate) fn look(&mut self) -> Option<Change> {
        let is_silent = self.is_silent();
        if is_silent == std::mem::replace(&mut self.is_told, is_silent) {
            return None;
        }
        Some(if is_silent { Change::Silent } else { Change::HeardAgain })
    }

    /// As it is told about.
    pub(crate) fn report(&self, now: Instant, name: &str, address: IpAddr) -> PeerHost {
        let since = |ns: u64| {
            let passed = now.as_nanos().saturating_sub(ns);
            std::time::Duration::from_nanos(passed).as_secs_f64()
        };
        PeerHost {
            name: name.to_owned(),
            address,
            sent_packets: self.sent_packets,
            sent_bytes: self.sent_bytes,
            received_packets: self.received_packets,
            received_bytes: self.received_bytes,
            heard_s: self.heard_ns.map(since),
            unanswered_packets: self.unanswered.map_or(0, |since| since.packets),
            unanswered_s: self.unanswered.map(|of| since(of.first_ns)),
            silent: self.is_silent(),
        }
    }
}

/// Tells a person what has become of a host.
pub(crate) fn tell(name: &str, address: IpAddr, contact: &Contact, change: &Change) {
    let packets = contact.unanswered.map_or(0, |since| since.packets);
    match change {
        Change::Silent => tracing::warn!(
            "host {name} at {address} is silent: {packets} packets went to it in more than \
             {SILENT_AFTER} and none has come back. {REMEDY}"
        ),
        Change::HeardAgain => tracing::warn!("host {name} at {address} is heard again"),
    }
}

/// What a person does about a silent host.
pub const REMEDY: &str = "Look whether its card runs (`srd card status` there: packets from \
    here that it takes for `a stranger's` mean that its --peer has another address for this host), \
    and whether packets get there (`ping`, and `srd status` of an overlay). Only if all that goes \
    there is one-way, as copies of a mirror session are, nothing is wrong";

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn sends(contact: &mut Contact, ms: impl Iterator<Item = u64>) {
        ms.for_each(|ms| contact.sent(at(ms), 100));
    }

    #[test]
    fn a_host_is_silent_when_packets_went_to_it_for_long_without_one_back() {
        let mut contact = Contact::default();
        sends(&mut contact, (0..5).map(|n| n * 1000));
        assert!(!contact.is_silent() && contact.look().is_none());
        sends(&mut contact, [5000].into_iter());
        assert_eq!(contact.look(), Some(Change::Silent));
        assert_eq!(contact.look(), None, "a person is told once");
        let report = contact.report(at(7000), "beta", IpAddr::from([10, 0, 0, 1]));
        assert!(report.silent && report.heard_s.is_none());
        assert_eq!((report.unanswered_packets, report.unanswered_s), (6, Some(7.0)));
        contact.received(at(8000), 1, 50);
        assert_eq!(contact.look(), Some(Change::HeardAgain));
        let report = contact.report(at(9500), "beta", IpAddr::from([10, 0, 0, 1]));
        assert_eq!((report.sent_packets, report.sent_bytes), (6, 600));
        assert_eq!((report.received_packets, report.received_bytes), (1, 50));
        assert_eq!((report.heard_s, report.unanswered_packets), (Some(1.5), 0));
    }

    #[test]
    fn a_host_that_answers_now_and_then_or_is_sent_nothing_is_not_silent() {
        let mut contact = Contact::default();
        for round in 0..10 {
            sends(&mut contact, (0..4).map(|n| round * 5000 + n * 1000));
            contact.received(at(round * 5000 + 4000), 1, 100);
            assert!(!contact.is_silent());
        }
        // The last packet to it had no answer, and none follows.
        contact.sent(at(60_000), 100);
        assert!(!contact.is_silent() && contact.look().is_none());
    }
}
