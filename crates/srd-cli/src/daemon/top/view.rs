//! State of the live view: the last two snapshots, and the selected peer.

use srd_daemon::snapshot::{PathSnapshot, PeerSnapshot, Snapshot};

/// Data that is drawn.
#[derive(Debug)]
pub(super) struct View {
    pub(super) now: Snapshot,
    before: Option<Snapshot>,
    /// The selected peer with its paths. `peer_before` is the same from the snapshot before.
    pub(super) peer: Option<PeerSnapshot>,
    peer_before: Option<PeerSnapshot>,
    /// Row of the selected peer.
    pub(super) row: usize,
    /// Reason why the last request failed; `None` if it succeeded.
    pub(super) complaint: Option<String>,
}

impl View {
    pub(super) fn new(now: Snapshot) -> Self {
        Self { now, before: None, peer: None, peer_before: None, row: 0, complaint: None }
    }

    /// Stores a new snapshot.
    pub(super) fn take(&mut self, now: Snapshot, peer: Option<PeerSnapshot>) {
        let before = std::mem::replace(&mut self.now, now);
        self.before = Some(before);
        self.peer_before = std::mem::replace(&mut self.peer, peer);
        self.row = self.row.min(self.now.peers.len().saturating_sub(1));
        self.complaint = None;
    }

    /// Records a failed request; the last snapshot stays.
    pub(super) fn complain(&mut self, why: String) {
        self.complaint = Some(why);
    }

    pub(super) fn chosen_name(&self) -> Option<String> {
        self.now.peers.get(self.row).map(|peer| peer.name.clone())
    }

    pub(super) fn choose_next(&mut self) {
        self.row = (self.row + 1).min(self.now.peers.len().saturating_sub(1));
    }

    pub(super) fn choose_previous(&mut self) {
        self.row = self.row.saturating_sub(1);
    }

    /// Returns the growth of a counter per second between the last two snapshots; 0 if there is
    /// only one snapshot, or if the daemon restarted between them.
    pub(super) fn per_second(&self, of: impl Fn(&Snapshot) -> u64) -> f64 {
        let Some(before) = &self.before else { return 0.0 };
        let passed_s = self.now.uptime_s - before.uptime_s;
        if passed_s <= 0.0 {
            return 0.0;
        }
        of(&self.now).saturating_sub(of(before)) as f64 / passed_s
    }

    /// Returns the number of packets that were sent on each path of the selected peer since the
    /// previous snapshot. If another peer was selected in the previous snapshot, the numbers count
    /// from the start of the daemon.
    pub(super) fn path_packets(&self) -> Vec<(&PathSnapshot, u64)> {
        let Some(peer) = &self.peer else { return Vec::new() };
        let before = self.peer_before.as_ref().filter(|before| before.name == peer.name);
        let grown = |path: &PathSnapshot| {
            let old = before.and_then(|b| b.path_reports.iter().find(|p| p.path == path.path));
            path.sent_pkts.saturating_sub(old.map_or(0, |old| old.sent_pkts))
        };
        peer.path_reports.iter().map(|path| (path, grown(path))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(names: &[&str], uptime_s: f64) -> Snapshot {
        let peer = |name: &&str| PeerSnapshot { name: (*name).into(), ..PeerSnapshot::default() };
        let peers = names.iter().map(peer).collect();
        Snapshot { peers, uptime_s, ..Snapshot::default() }
    }

    #[test]
    fn the_choice_stays_within_the_peers_whatever_becomes_of_them() {
        let mut view = View::new(snapshot(&["a", "b"], 1.0));
        view.choose_previous();
        assert_eq!(view.chosen_name().unwrap(), "a");
        view.choose_next();
        view.choose_next();
        assert_eq!(view.chosen_name().unwrap(), "b");
        view.take(snapshot(&["a"], 2.0), None);
        assert_eq!(view.chosen_name().unwrap(), "a");
        view.take(snapshot(&[], 3.0), None);
        assert_eq!(view.chosen_name(), None);
    }

    #[test]
    fn growth_is_per_second_and_a_restart_is_no_growth() {
        let mut view = View::new(snapshot(&[], 10.0));
        let mut next = snapshot(&[], 12.0);
        next.counters.tx_pkts = 300;
        view.take(next, None);
        assert!((view.per_second(|s| s.counters.tx_pkts) - 150.0).abs() < 1e-9);
        view.take(snapshot(&[], 1.0), None);
        assert!(view.per_second(|s| s.counters.tx_pkts).abs() < 1e-9);
    }

    #[test]
    fn packets_of_paths_are_those_since_the_last_look_at_the_same_peer() {
        let peer = |name: &str, sent_pkts| {
            let path = PathSnapshot { sent_pkts, ..PathSnapshot::default() };
            let path_reports = vec![path];
            Some(PeerSnapshot { name: name.into(), path_reports, ..PeerSnapshot::default() })
        };
        let mut view = View::new(Snapshot::default());
        let packets = |view: &View| view.path_packets()[0].1;
        view.take(Snapshot::default(), peer("a", 100));
        assert_eq!(packets(&view), 100);
        view.take(Snapshot::default(), peer("a", 130));
        assert_eq!(packets(&view), 30);
        view.take(Snapshot::default(), peer("b", 7));
        assert_eq!(packets(&view), 7);
    }
}
