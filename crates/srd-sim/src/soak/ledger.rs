//! Records of the datagrams that the applications of all hosts sent and received, and of the events
//! that they got: the oracle of the soak. The ledger shares no code with the code under test, and
//! reports a violation when it happens.

use std::collections::BTreeMap;

use srd_proto::{Qpn, Status};

use crate::engine::hash::mix;

/// Number of a datagram, unique in the world. The header's immediate contains it.
pub type Id = u64;

const PATTERN_BYTES: usize = 1 << 17;
static PATTERN: [u8; PATTERN_BYTES] = pattern();

#[allow(clippy::cast_possible_truncation)] // one byte of each word is wanted
const fn pattern() -> [u8; PATTERN_BYTES] {
    let mut bytes = [0; PATTERN_BYTES];
    let mut n = 0;
    while n < PATTERN_BYTES {
        bytes[n] = mix(n as u64 ^ 0x50a6) as u8;
        n += 1;
    }
    bytes
}

/// Returns the content of a datagram.
pub fn content(id: Id, bytes: usize) -> &'static [u8] {
    #[allow(clippy::cast_possible_truncation)] // reduced to the free space
    let start = mix(id) as usize % (PATTERN_BYTES - bytes);
    &PATTERN[start..start + bytes]
}

/// A datagram as its sender described it to the endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SentDatagram {
    /// Host that sends the datagram.
    pub src: u32,
    /// Host that should receive the datagram.
    pub dst: u32,
    /// Queue pair from which the datagram is sent.
    pub src_qpn: Qpn,
    /// Queue pair to which the datagram is sent.
    pub dst_qpn: Qpn,
    /// Length of the payload in bytes.
    pub bytes: usize,
    /// Whether the destination queue pair does not exist.
    pub nobody: bool,
}

/// A datagram as it arrived at a host.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// Host that received the datagram.
    pub host: u32,
    /// Number of the receiving host's run; a restart begins a new run.
    pub epoch: u64,
    /// Source host, as the receiving endpoint reported it; `None` if the endpoint reported no valid
    /// address.
    pub from: Option<u32>,
    /// Source queue pair, as the receiving endpoint reported it.
    pub src_qpn: Qpn,
    /// Destination queue pair, as the receiving endpoint reported it.
    pub dst_qpn: Qpn,
    /// Content of the datagram.
    pub payload: &'a [u8],
}

/// State of a datagram at its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Open,
    Ended(Status),
    /// The sender restarted, so there will be no completion.
    Orphaned,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    sent: SentDatagram,
    fate: Fate,
    /// Whether packets of the datagram that identify no run of the receiver may have been sent; see
    /// [`Ledger::new`].
    unbound: bool,
    /// Number of the receiver's run to which the datagram was delivered; `None` if it was not
    /// delivered.
    delivered_in: Option<u64>,
}

/// Records of all datagrams of a world, and the first violation.
#[derive(Debug)]
pub struct Ledger {
    entries: BTreeMap<Id, Entry>,
    next: Id,
    open: u64,
    wrong: Option<String>,
    plain: bool,
    /// Number of completions, by status number.
    pub statuses: BTreeMap<u8, u64>,
    /// Number of datagrams that were delivered.
    pub delivered: u64,
    /// Number of datagrams that reached two runs of a receiver; see [`Ledger::new`].
    pub again_after_restart: u64,
}

impl Ledger {
    /// Creates an empty ledger. `plain` means that packets are not encrypted.
    ///
    /// In the encrypted modes a datagram is delivered at most once. In plain mode the first packets
    /// to a peer identify no context of the peer (rule H3), and therefore no run of the peer. This
    /// concerns datagrams that were sent before the peer had replied. Such a packet, or a copy of
    /// it, may stay in the network for any time. If it reaches another run of the receiver, that
    /// run accepts it as a first contact and delivers it. The earlier run may have delivered it
    /// already, and its sender may have the completion. The new run has no data that contradict
    /// this.
    ///
    /// So exactly one exception is accepted: a datagram that was sent without contact may reach
    /// each run of its receiver once. All other datagrams identify the run of their receiver.
    pub fn new(plain: bool) -> Self {
        Self {
            entries: BTreeMap::new(),
            next: 1,
            open: 0,
            wrong: None,
            plain,
            statuses: BTreeMap::new(),
            delivered: 0,
            again_after_restart: 0,
        }
    }

    /// Records a violation, if it is the first.
    pub fn complain(&mut self, what: impl FnOnce() -> String) {
        if self.wrong.is_none() {
            self.wrong = Some(what());
        }
    }

    /// Returns the description of the first violation; `None` if there was no violation.
    pub fn wrong(&self) -> Option<&str> {
        self.wrong.as_deref()
    }

    /// Returns the number of datagrams that have no completion yet and whose senders have not
    /// restarted.
    pub fn open(&self) -> u64 {
        self.open
    }

    /// Returns a number for the next datagram.
    pub fn number(&mut self) -> Id {
        self.next += 1;
        self.next - 1
    }

    /// Records that a datagram was accepted for sending. `in_contact` means that the sender's
    /// endpoint had reported the peer as up, and not as down since then.
    pub fn sent(&mut self, id: Id, sent: SentDatagram, in_contact: bool) {
        self.open += 1;
        let unbound = self.plain && !in_contact;
        self.entries.insert(id, Entry { sent, fate: Fate::Open, unbound, delivered_in: None });
    }

    /// Records that a sender's endpoint reported the end of contact with a peer. Open datagrams to
    /// this peer may go to the next run of the peer.
    pub fn lost_contact(&mut self, src: u32, dst: u32) {
        let (plain, entries) = (self.plain, self.entries.values_mut());
        let concerns = |e: &&mut Entry| (e.sent.src, e.sent.dst, e.fate) == (src, dst, Fate::Open);
        entries.filter(concerns).for_each(|entry| entry.unbound = plain);
    }

    /// Checks a datagram that was delivered, and records the delivery.
    pub fn arrived(&mut self, id: Id, at: &Arrived<'_>) {
        self.delivered += 1;
        let Some(entry) = self.entries.get_mut(&id) else {
            return self.complain(|| format!("host {} got datagram {id}: never sent", at.host));
        };
        let sent = entry.sent;
        let before = entry.delivered_in.replace(at.epoch);
        let (fate, unbound) = (entry.fate, entry.unbound);
        let told = format!("datagram {id} ({} -> {}, {} bytes)", sent.src, sent.dst, sent.bytes);
        let addressed = sent.dst == at.host
            && at.from == Some(sent.src)
            && (sent.src_qpn, sent.dst_qpn) == (at.src_qpn, at.dst_qpn);
        if !addressed {
            return self.complain(|| format!("{told} misdelivered: {:?}", at.without_payload()));
        }
        if sent.nobody {
            return self.complain(|| format!("{told} delivered where nobody listens"));
        }
        if at.payload.len() != sent.bytes || at.payload != content(id, at.payload.len()) {
            return self.complain(|| format!("{told} arrived changed"));
        }
        match before {
            Some(epoch) if epoch == at.epoch => {
                return self.complain(|| format!("{told} delivered twice"));
            }
            Some(epoch) if unbound && epoch < at.epoch => self.again_after_restart += 1,
            Some(_) => {
                return self.complain(|| format!("{told} delivered to two runs of its receiver"));
            }
            None => {}
        }
        if let Fate::Ended(status) = fate
            && !may_be_delivered(status)
        {
            self.complain(|| format!("{told} delivered after it ended as {status:?}"));
        }
    }

    /// Records the completion of a datagram at its sender. Returns the datagram, or `None` if the
    /// completion is a violation.
    pub fn ended(&mut self, id: Id, host: u32, status: Status) -> Option<SentDatagram> {
        *self.statuses.entry(status as u8).or_default() += 1;
        let Some(entry) = self.entries.get_mut(&id) else {
            self.complain(|| format!("a completion of datagram {id}, which was never sent"));
            return None;
        };
        let (sent, fate) = (entry.sent, entry.fate);
        if fate != Fate::Open || sent.src != host {
            self.complain(|| {
                format!("host {host}: datagram {id} ends as {status:?}, but it was {fate:?}")
            });
            return None;
        }
        entry.fate = Fate::Ended(status);
        self.open -= 1;
        let delivered = entry.delivered_in.is_some();
        if status == Status::Ok && !delivered {
            self.complain(|| format!("datagram {id} ended as Ok without having been delivered"));
        }
        if delivered && !may_be_delivered(status) {
            self.complain(|| format!("datagram {id} was delivered, yet it ended as {status:?}"));
        }
        Some(sent)
    }

    /// Returns the datagram with a number.
    pub fn what(&self, id: Id) -> Option<SentDatagram> {
        self.entries.get(&id).map(|e| e.sent)
    }

    /// Records that a host restarted: its open datagrams will have no completion.
    pub fn orphan(&mut self, host: u32) {
        let mine = |e: &&mut Entry| e.sent.src == host && e.fate == Fate::Open;
        for entry in self.entries.values_mut().filter(mine) {
            entry.fate = Fate::Orphaned;
            self.open -= 1;
        }
    }

    /// Returns a digest of all records. Runs with equal records have equal digests.
    pub fn digest(&self) -> u64 {
        let one = |digest: u64, (id, entry): (&Id, &Entry)| {
            let fate = match entry.fate {
                Fate::Open => 100,
                Fate::Orphaned => 101,
                Fate::Ended(status) => status as u64,
            };
            mix(digest ^ mix(*id ^ fate << 48 ^ entry.delivered_in.unwrap_or(0) << 56))
        };
        self.entries.iter().fold(0, one)
    }
}

/// Returns the name of a status.
pub fn status_name(number: u8) -> String {
    let known = [
        Status::Ok,
        Status::Flushed,
        Status::RemoteAbort,
        Status::BadDestQpn,
        Status::RemoteRnr,
        Status::UnrespRemote,
        Status::UnreachRemote,
    ];
    let status = known.iter().find(|s| **s as u8 == number);
    status.map_or_else(|| format!("status {number}"), |s| format!("{s:?}"))
}

/// Whether a datagram that ended with this status may have been delivered.
fn may_be_delivered(status: Status) -> bool {
    matches!(
        status,
        Status::Ok
            | Status::RemoteAbort
            | Status::UnrespRemote
            | Status::UnreachRemote
            | Status::Flushed
    )
}

impl Arrived<'_> {
    fn without_payload(&self) -> (u32, Option<u32>, Qpn, Qpn, usize) {
        (self.host, self.from, self.src_qpn, self.dst_qpn, self.payload.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: SentDatagram =
        SentDatagram { src: 1, dst: 2, src_qpn: Qpn(9), dst_qpn: Qpn(3), bytes: 5, nobody: false };

    fn arrive(ledger: &mut Ledger, id: Id, epoch: u64) {
        let (src_qpn, dst_qpn) = (SENT.src_qpn, SENT.dst_qpn);
        let payload = content(id, 5);
        let at = Arrived { host: 2, epoch, from: Some(1), src_qpn, dst_qpn, payload };
        ledger.arrived(id, &at);
    }

    fn ledger(plain: bool, in_contact: bool) -> (Ledger, Id) {
        let mut ledger = Ledger::new(plain);
        let id = ledger.number();
        ledger.sent(id, SENT, in_contact);
        (ledger, id)
    }

    #[test]
    fn a_good_life_is_no_complaint() {
        let (mut ledger, id) = ledger(false, false);
        arrive(&mut ledger, id, 1);
        assert_eq!(ledger.open(), 1);
        assert_eq!(ledger.ended(id, 1, Status::Ok), Some(SENT));
        assert_eq!((ledger.open(), ledger.wrong()), (0, None));
    }

    #[test]
    fn every_wrong_is_seen() {
        type Deed = fn(&mut Ledger, Id);
        let deeds: [(&str, Deed); 9] = [
            ("twice", |l, id| {
                arrive(l, id, 1);
                arrive(l, id, 1);
            }),
            ("two runs", |l, id| {
                arrive(l, id, 1);
                arrive(l, id, 2);
            }),
            ("never sent", |l, id| arrive(l, id + 1, 1)),
            ("without having been delivered", |l, id| {
                l.ended(id, 1, Status::Ok);
            }),
            ("yet it ended", |l, id| {
                arrive(l, id, 1);
                l.ended(id, 1, Status::RemoteRnr);
            }),
            ("delivered after", |l, id| {
                l.ended(id, 1, Status::BadDestQpn);
                arrive(l, id, 1);
            }),
            ("but it was", |l, id| {
                l.ended(id, 1, Status::Flushed);
                l.ended(id, 1, Status::Flushed);
            }),
            ("but it was Orphaned", |l, id| {
                l.orphan(1);
                l.ended(id, 1, Status::Flushed);
            }),
            ("arrived changed", |l, id| {
                let (src_qpn, dst_qpn) = (SENT.src_qpn, SENT.dst_qpn);
                let payload = &[0; 5];
                let at = Arrived { host: 2, epoch: 1, from: Some(1), src_qpn, dst_qpn, payload };
                l.arrived(id, &at);
            }),
        ];
        for (words, deed) in deeds {
            let (mut ledger, id) = ledger(false, false);
            deed(&mut ledger, id);
            assert!(ledger.wrong().is_some_and(|w| w.contains(words)), "{:?}", ledger.wrong());
        }
    }

    #[test]
    fn what_named_no_run_may_reach_each_run_once_and_nothing_else_may() {
        let (mut early, id) = ledger(true, false);
        arrive(&mut early, id, 1);
        early.ended(id, 1, Status::Ok);
        arrive(&mut early, id, 2);
        assert_eq!((early.wrong(), early.again_after_restart), (None, 1));
        arrive(&mut early, id, 2);
        assert!(early.wrong().is_some_and(|w| w.contains("twice")));

        let (mut late, id) = ledger(true, true);
        arrive(&mut late, id, 1);
        arrive(&mut late, id, 2);
        assert!(late.wrong().is_some_and(|w| w.contains("two runs")));

        let (mut back, id) = ledger(true, false);
        arrive(&mut back, id, 2);
        arrive(&mut back, id, 1);
        assert!(back.wrong().is_some(), "a run does not come back");

        let (mut again, id) = ledger(true, true);
        again.lost_contact(1, 2);
        arrive(&mut again, id, 2);
        arrive(&mut again, id, 3);
        assert_eq!((again.wrong(), again.again_after_restart), (None, 1));
    }
}
