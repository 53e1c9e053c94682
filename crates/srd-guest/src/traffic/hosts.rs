//! Traffic to and from each other host, and whether the host answers.
//!
//! The transport probes a quiet host. A host is *silent* when it has not answered for
//! [`SILENT_AFTER`], whether or not instances send packets to it.
//!
//! Bound: one entry for each host in the settings. Received frames are moved to those that wait for
//! the card ([`crate::traffic::received`]) in each turn.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::vpc::Envelope;
use srd_card::{Arrivals, Arrived, PeerSlot, Trailer};
use srd_daemon::run::Hosts;
use srd_net::keys::PublicKey;
use srd_net::page::{Reader, Writer};
use srd_proto::time::{Duration, Instant};
use srd_proto::{Diagnosis, Event};

use crate::control::protocol::PeerHost;
use crate::figures::pages::figures::Figures;
use crate::traffic::received::Received;

/// Time without an answer after which a host is silent: longer than its card needs to start again.
pub(crate) const SILENT_AFTER: Duration = Duration::from_secs(5);

/// Minimum time between two log lines about the same obstacle to a session with a host.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// Counters of packets of instances to and from another host, and the state of the session with it.
/// Times are nanoseconds of the machine's clock, so that they remain valid in a process that takes
/// over.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contact {
    sent_frames: u64,
    sent_bytes: u64,
    sent_by_srd_frames: u64,
    received_frames: u64,
    received_bytes: u64,
    received_by_srd_frames: u64,
    heard_ns: Option<u64>,
    /// Time since which the transport has no session with the host; `None` while it has a session.
    down_ns: Option<u64>,
    is_up: bool,
    /// Start of the session; `None` if there is no session, or if an earlier process has begun it.
    #[serde(skip)]
    up_ns: Option<u64>,
    /// Start and end of the previous session; `None` before the first session has ended.
    #[serde(skip)]
    ended_ns: Option<(u64, u64)>,
    /// Whether the silence of the host was logged, and its end was not logged yet.
    is_told: bool,
    /// The obstacle to a session with the host; `None` if no obstacle is known, or a session has
    /// begun since.
    #[serde(skip)]
    problem: Option<Diagnosis>,
    /// Number of the obstacle that was logged last ([`number_of`]), and time of that log line.
    #[serde(skip)]
    said: Option<(u8, u64)>,
}

/// Returns the number of an obstacle in the pages of figures; zero if there is no obstacle, or an
/// administrator can do nothing about it.
fn number_of(problem: Option<Diagnosis>) -> u8 {
    match problem {
        Some(Diagnosis::UnknownKey(_)) => 1,
        Some(Diagnosis::OtherKeyForUs) => 2,
        Some(Diagnosis::AnswerUnauthentic) => 3,
        Some(Diagnosis::OtherVersion) => 4,
        Some(Diagnosis::OtherProtection) => 5,
        _ => 0,
    }
}

/// Returns the obstacle to a session with a host as text, with a remedy; `None` if an administrator
/// can do nothing about it.
fn in_words(problem: Diagnosis, name: &str, at: SocketAddr) -> Option<String> {
    let text = match problem {
        Diagnosis::UnknownKey(key) => format!(
            "handshake from {name} ({at}) refused: its key {} is not the one in the file: correct \
             public_key of its [[peer]], if `srd pubkey` prints that key there",
            PublicKey(key)
        ),
        Diagnosis::OtherKeyForUs => format!(
            "handshake from {name} ({at}) refused: it is for another key than that of this host: \
             correct public_key of this host's [[peer]] in the file there"
        ),
        Diagnosis::AnswerUnauthentic => {
            format!("answers from {name} ({at}) do not authenticate: look at the keys of both")
        }
        Diagnosis::OtherVersion => format!(
            "packets from {name} ({at}) have another version of the protocol: install the same \
             release on both"
        ),
        Diagnosis::OtherProtection => format!(
            "packets from {name} ({at}) refused: one host is plain and the other encrypted: \
             `protection` must agree"
        ),
        _ => return None,
    };
    Some(text)
}

/// The words are the number of the obstacle, and the key of an unknown host.
impl Figures for Option<Diagnosis> {
    const WORDS: usize = 5;

    fn put(&self, to: &mut Writer<'_>) {
        u64::from(number_of(*self)).put(to);
        let key = if let Some(Diagnosis::UnknownKey(key)) = self { *key } else { [0; 32] };
        let (words, _) = key.as_chunks::<8>();
        words.iter().for_each(|bytes| u64::from_be_bytes(*bytes).put(to));
    }

    fn take(from: &mut Reader<'_>) -> Self {
        let number = u64::take(from);
        let words: [u64; 4] = Figures::take(from);
        let mut key = [0; 32];
        for (bytes, word) in key.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        Some(match number {
            1 => Diagnosis::UnknownKey(key),
            2 => Diagnosis::OtherKeyForUs,
            3 => Diagnosis::AnswerUnauthentic,
            4 => Diagnosis::OtherVersion,
            5 => Diagnosis::OtherProtection,
            _ => return None,
        })
    }
}

/// The words are the fields that a [`PeerHost`] needs. Fields about the log are not published.
impl Figures for Contact {
    const WORDS: usize = 9 + <Option<Diagnosis> as Figures>::WORDS;

    fn put(&self, to: &mut Writer<'_>) {
        let Self { sent_frames, sent_bytes, sent_by_srd_frames, .. } = *self;
        let Self { received_frames, received_bytes, received_by_srd_frames, .. } = *self;
        [sent_frames, sent_bytes, sent_by_srd_frames].put(to);
        [received_frames, received_bytes, received_by_srd_frames].put(to);
        [self.heard_ns, self.down_ns].put(to);
        self.is_up.put(to);
        self.problem.put(to);
    }

    fn take(from: &mut Reader<'_>) -> Self {
        let [sent_frames, sent_bytes, sent_by_srd_frames] = Figures::take(from);
        let [received_frames, received_bytes, received_by_srd_frames] = Figures::take(from);
        let [heard_ns, down_ns] = Figures::take(from);
        let (is_up, is_told) = (bool::take(from), false);
        let (problem, said) = (Figures::take(from), None);
        Self {
            sent_frames,
            sent_bytes,
            sent_by_srd_frames,
            received_frames,
            received_bytes,
            received_by_srd_frames,
            heard_ns,
            down_ns,
            is_up,
            up_ns: None,
            ended_ns: None,
            is_told,
            problem,
            said,
        }
    }
}

impl Contact {
    pub(crate) fn sent(&mut self, bytes: usize, by_srd: bool) {
        self.sent_frames += 1;
        self.sent_bytes += bytes as u64;
        self.sent_by_srd_frames += u64::from(by_srd);
    }

    pub(crate) fn received(&mut self, now: Instant, bytes: usize, by_srd: bool) {
        self.received_frames += 1;
        self.received_bytes += bytes as u64;
        self.received_by_srd_frames += u64::from(by_srd);
        self.heard_ns = Some(now.as_nanos());
    }

    /// Records that a session with the host has begun.
    pub(crate) fn is_up(&mut self, now: Instant) {
        self.end_session(now);
        (self.is_up, self.down_ns, self.problem) = (true, None, None);
        self.up_ns = Some(now.as_nanos());
        self.heard_ns = self.up_ns;
    }

    /// Records that the session with the host has ended, or could not begin.
    pub(crate) fn is_down(&mut self, now: Instant) {
        self.end_session(now);
        self.down_ns.get_or_insert(now.as_nanos());
    }

    /// Records an obstacle to a session with the host. Any program can forge most obstacles, so
    /// they appear only in the status and, at a limited rate, in the log.
    pub(crate) fn saw(&mut self, now: Instant, problem: Diagnosis, name: &str, at: SocketAddr) {
        let Some(text) = in_words(problem, name, at).filter(|_| !self.is_up) else { return };
        self.problem = Some(problem);
        let (number, ns) = (number_of(self.problem), now.as_nanos());
        let early =
            |(said, at): (u8, u64)| said == number && ns.saturating_sub(at) < SAY_EVERY.as_nanos();
        if !self.said.is_some_and(early) {
            self.said = Some((number, ns));
            tracing::warn!("{text}");
        }
    }

    /// Records that the session with the host ends now, if there is one.
    fn end_session(&mut self, now: Instant) {
        if std::mem::take(&mut self.is_up) {
            self.ended_ns = Some((self.up_ns.take().unwrap_or(0), now.as_nanos()));
        }
    }

    /// Whether there was a session with the host at this time: the present session, or the previous
    /// session.
    pub(crate) fn had_session(&self, at: Instant) -> bool {
        let at = at.as_nanos();
        let had_begun = self.is_up && self.up_ns.is_none_or(|up| up <= at);
        had_begun || self.ended_ns.is_some_and(|(up, down)| (up..down).contains(&at))
    }

    // V18: Silent hosts
    fn is_silent(&self, now: Instant) -> bool {
        let since = self.down_ns.map(|down| now.as_nanos().saturating_sub(down));
        !self.is_up && since.is_some_and(|since| since >= SILENT_AFTER.as_nanos())
    }

    /// Logs the beginning and the end of the host's silence, once each.
    pub(crate) fn look(&mut self, now: Instant, name: &str, at: SocketAddr) {
        if !self.is_up && self.down_ns.is_none() {
            // No session has begun yet: the silence starts now.
            self.down_ns = Some(now.as_nanos());
        }
        let is_silent = self.is_silent(now);
        if is_silent == std::mem::replace(&mut self.is_told, is_silent) {
            return;
        }
        if is_silent {
            tracing::warn!(
                "host {name} at {at} is silent: it has not answered for {} seconds. Does its card \
                 run, with this host among its peers and the right keys on both sides? Do packets \
                 of UDP to that address and port pass?",
                SILENT_AFTER.as_nanos() / 1_000_000_000
            );
        } else {
            tracing::warn!("host {name} at {at} answers again");
        }
    }

    /// Returns the state of the host for `srd card status`.
    pub(crate) fn report(&self, now: Instant, name: &str, at: SocketAddr) -> PeerHost {
        let since = |ns: u64| {
            let passed = now.as_nanos().saturating_sub(ns);
            std::time::Duration::from_nanos(passed).as_secs_f64()
        };
        PeerHost {
            name: name.to_owned(),
            address: at,
            up: self.is_up,
            sent_frames: self.sent_frames,
            sent_bytes: self.sent_bytes,
            sent_by_srd_frames: self.sent_by_srd_frames,
            received_frames: self.received_frames,
            received_bytes: self.received_bytes,
            received_by_srd_frames: self.received_by_srd_frames,
            heard_s: self.heard_ns.map(since),
            down_s: self.down_ns.map(since),
            silent: self.is_silent(now),
            problem: self.problem.and_then(|problem| in_words(problem, name, at)),
        }
    }
}

/// Another host: its address, and counters of its traffic.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) name: Arc<str>,
    pub(crate) at: SocketAddr,
    /// Slot of the host in the stage; `None` while the host is being replaced.
    pub(crate) slot: Option<PeerSlot>,
    pub(crate) contact: Contact,
}

/// The other hosts, and the frames that they have sent.
#[derive(Debug, Default)]
pub(crate) struct HostTable {
    /// Hosts, sorted by name.
    pub(crate) hosts: Vec<Host>,
    /// For each slot of the stage, the index of its host in `hosts`.
    by_slot: Vec<Option<usize>>,
    pub(crate) received: Received,
    /// Whether the MTU of the network has changed, or a host has come or gone.
    pub(crate) mtu_changed: bool,
    /// Whether a host has come or gone.
    pub(crate) relisted: bool,
    /// Time of the present arrivals.
    now: Instant,
}

impl HostTable {
    /// Returns the index of a host; `None` if there is no such host.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        self.hosts.binary_search_by(|host| (*host.name).cmp(name)).ok()
    }

    fn of_slot(&mut self, slot: PeerSlot) -> Option<&mut Host> {
        let place = self.by_slot.get(slot.0 as usize).copied().flatten()?;
        self.hosts.get_mut(place)
    }

    /// Notes that a host has come or gone.
    fn relist(&mut self) {
        self.by_slot.clear();
        for (place, host) in self.hosts.iter().enumerate() {
            let Some(PeerSlot(slot)) = host.slot else { continue };
            let slot = slot as usize;
            if self.by_slot.len() <= slot {
                self.by_slot.resize(slot + 1, None);
            }
            self.by_slot[slot] = Some(place);
        }
        (self.mtu_changed, self.relisted) = (true, true);
    }
}

impl Arrivals for HostTable {
    fn arrived(&mut self, how: Arrived, trailer: Trailer, frame: &[u8]) {
        let Arrived { from, packets, by_srd } = how;
        let place = self.by_slot.get(from.0 as usize).copied().flatten();
        let Some(host) = place.and_then(|place| self.hosts.get_mut(place)) else { return };
        let Ok(envelope) = Envelope::of(trailer) else {
            self.received.unknown += packets;
            return;
        };
        host.contact.received(self.now, frame.len().saturating_sub(OFFLOAD_BYTES), by_srd);
        self.received.push(&host.name, by_srd, (envelope, frame.to_vec()));
    }
}

impl Hosts for HostTable {
    const MAY_EXIST: bool = true;

    fn at(&mut self, now: Instant) {
        self.now = now;
    }

    fn add(&mut self, slot: PeerSlot, name: &Arc<str>, address: Option<SocketAddr>) {
        let at = address.unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into());
        let slot = Some(slot);
        match self.hosts.binary_search_by(|host| host.name.cmp(name)) {
            Ok(place) => {
                let host = &mut self.hosts[place];
                (host.at, host.slot) = (at, slot);
            }
            Err(place) => {
                let contact = Contact::default();
                self.hosts.insert(place, Host { name: Arc::clone(name), at, slot, contact });
            }
        }
        self.relist();
    }

    fn remove(&mut self, now: Instant, slot: PeerSlot) {
        if let Some(host) = self.of_slot(slot) {
            host.slot = None;
            host.contact.is_down(now);
            self.relist();
        }
    }

    fn forget(&mut self, name: &str) {
        if let Some(place) = self.place(name) {
            self.hosts.remove(place);
            self.relist();
        }
    }

    fn event(&mut self, now: Instant, slot: PeerSlot, event: &Event) {
        // After the end of a session, the size of packets is the configured one.
        self.mtu_changed |= matches!(event, Event::PathMtu { .. } | Event::PeerDown { .. });
        let Some(Host { name, at, contact, .. }) = self.of_slot(slot) else { return };
        match event {
            Event::PeerUp { .. } => contact.is_up(now),
            Event::PeerDown { .. } => contact.is_down(now),
            Event::Diagnosis { what, .. } => contact.saw(now, *what, name, *at),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_net::page::Page;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn is_silent(contact: &Contact, now: Instant) -> bool {
        contact.report(now, "beta", ([192, 0, 2, 2], 7535).into()).silent
    }

    #[test]
    fn a_host_is_silent_when_no_session_has_begun_for_a_while() {
        let address = ([192, 0, 2, 2], 7535).into();
        let mut contact = Contact::default();
        contact.look(at(10), "beta", address);
        assert!(!is_silent(&contact, at(14)));
        assert!(is_silent(&contact, at(15)));
        contact.is_up(at(20));
        assert!(!is_silent(&contact, at(100)), "it has nothing to send");
        contact.is_down(at(101));
        contact.is_down(at(105));
        assert!(is_silent(&contact, at(106)), "since it was lost first");
    }

    #[test]
    fn regression_a_session_that_has_ended_or_was_renewed_was_there_before() {
        let mut contact = Contact::default();
        assert!(!contact.had_session(at(5)));
        contact.is_up(at(10));
        contact.is_down(at(20));
        assert!(!contact.had_session(at(9)) && contact.had_session(at(15)));
        assert!(!contact.had_session(at(21)));
        contact.is_up(at(30));
        assert!(contact.had_session(at(15)) && !contact.had_session(at(25)));
        assert!(contact.had_session(at(31)));
        // Renewed without an end in between.
        contact.is_up(at(40));
        assert!(contact.had_session(at(35)) && contact.had_session(at(41)));
    }

    #[test]
    fn what_speaks_against_a_session_is_said_until_there_is_one() {
        let address = ([192, 0, 2, 2], 7535).into();
        let mut contact = Contact::default();
        let shown = |contact: &Contact| {
            let page = Page::new(Contact::WORDS);
            page.write(|to| contact.put(to));
            page.read(Contact::take).report(at(9), "beta", address).problem
        };
        contact.saw(at(1), Diagnosis::NothingReceived, "beta", address);
        assert_eq!(shown(&contact), None);
        let key = std::array::from_fn(|n| u8::try_from(n).unwrap());
        contact.saw(at(2), Diagnosis::UnknownKey(key), "beta", address);
        assert_eq!(contact.said, Some((1, at(2).as_nanos())));
        let text = shown(&contact).unwrap();
        let wanted = format!("its key {} is not the one in the file", PublicKey(key));
        assert!(text.starts_with("handshake from beta (192.0.2.2:7535) refused"), "{text}");
        assert!(text.contains(&wanted), "{text}");
        // Repeated obstacles cause few log lines.
        contact.saw(at(61), Diagnosis::UnknownKey([1; 32]), "beta", address);
        assert_eq!(contact.said, Some((1, at(2).as_nanos())));
        contact.saw(at(62), Diagnosis::UnknownKey([1; 32]), "beta", address);
        assert_eq!(contact.said, Some((1, at(62).as_nanos())));
        contact.saw(at(63), Diagnosis::OtherKeyForUs, "beta", address);
        assert_eq!(contact.said, Some((2, at(63).as_nanos())));
        assert!(shown(&contact).unwrap().contains("another key than that of this host"));
        contact.is_up(at(64));
        assert_eq!(shown(&contact), None);
    }

    #[test]
    fn frames_and_bytes_are_counted_both_ways() {
        let mut contact = Contact::default();
        contact.sent(100, true);
        contact.sent(50, false);
        contact.received(at(3), 70, true);
        // The form in which a reader of its page gets the numbers.
        let page = Page::new(Contact::WORDS);
        page.write(|to| contact.put(to));
        let contact = page.read(Contact::take);
        let report = contact.report(at(5), "beta", ([192, 0, 2, 2], 7535).into());
        let sent = (report.sent_frames, report.sent_bytes, report.sent_by_srd_frames);
        let received =
            (report.received_frames, report.received_bytes, report.received_by_srd_frames);
        assert_eq!((sent, received), ((2, 150, 1), (1, 70, 1)));
        assert!(report.heard_s.is_some_and(|since| (since - 2.0).abs() < 1e-6));
    }

    fn table(names: &[(&str, u32)]) -> HostTable {
        let mut table = HostTable::default();
        for (name, slot) in names {
            let at = Some(([192, 0, 2, 1], 7471).into());
            table.add(PeerSlot(*slot), &Arc::from(*name), at);
        }
        table
    }

    fn slots(table: &HostTable) -> Vec<(&str, Option<u32>)> {
        table.hosts.iter().map(|host| (&*host.name, host.slot.map(|slot| slot.0))).collect()
    }

    #[test]
    fn hosts_come_and_go_and_a_host_that_returns_keeps_its_counters() {
        let mut table = table(&[("c", 0), ("a", 3), ("b", 1)]);
        assert_eq!(slots(&table), [("a", Some(3)), ("b", Some(1)), ("c", Some(0))]);
        assert!(table.of_slot(PeerSlot(3)).is_some_and(|host| &*host.name == "a"));
        table.hosts[1].contact.sent(100, true);
        let before = table.hosts[1].contact.clone();
        table.relisted = false;
        table.remove(Instant::ZERO, PeerSlot(1));
        assert!(table.of_slot(PeerSlot(1)).is_none() && table.relisted);
        table.add(PeerSlot(2), &Arc::from("b"), None);
        assert_eq!(slots(&table)[1], ("b", Some(2)));
        let host = &table.hosts[1];
        let sent = |contact: &Contact| contact.report(Instant::ZERO, "b", host.at).sent_bytes;
        assert_eq!((sent(&host.contact), sent(&before)), (100, 100));
        table.forget("a");
        assert_eq!(slots(&table), [("b", Some(2)), ("c", Some(0))]);
        assert!(table.of_slot(PeerSlot(0)).is_some_and(|host| &*host.name == "c"));
    }
}
