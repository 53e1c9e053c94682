//! A record of the packets that guests sent and received, kept independently of the code under
//! test.
//!
//! The ledger checks every packet of a flow: it must be delivered at most once, with unchanged
//! addresses, ports and bytes. It must not be delivered after a later packet of its flow, unless a
//! disturbance occurred between its sending and its delivery. A disturbance (a restart, a dead
//! link, a change of a setting, a removed peer) begins a new *era*.

use std::collections::BTreeMap;

use srd_proto::time::Instant;

use super::frames::{self, Cell, FlowHeader, Read, Transport};

/// Record of one flow.
#[derive(Debug)]
struct Book {
    header: FlowHeader,
    /// The era in which each packet was sent, in the order of their numbers.
    given: Vec<u32>,
    /// A bitmap of the packets that were delivered.
    delivered: Vec<u64>,
    newest: Option<u32>,
    /// Whether order is not guaranteed, so it is not checked: for UDP packets that are delivered on
    /// arrival, and for flows without an entry in the flow table.
    unordered: bool,
}

/// Counters over all flows.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Sums {
    pub flows: u64,
    pub given: u64,
    pub delivered: u64,
    /// Number of packets whose order was checked: delivered in the era in which they were sent, in
    /// a flow with guaranteed order.
    pub judged: u64,
    /// Number of these packets that belong to tunnels.
    pub judged_of_tunnels: u64,
    /// Number of packets that were delivered after a later packet of their flow.
    pub overtaken: u64,
    pub answers: u64,
    /// Digest of all deliveries and their times, to compare two runs.
    pub digest: u64,
}

/// Records of all flows that have not been closed, and the first error.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    books: BTreeMap<u32, Book>,
    next: u32,
    pub era: u32,
    pub sums: Sums,
    wrong: Option<String>,
}

impl Ledger {
    /// Opens a flow. Returns the given header with the number of the flow.
    pub(super) fn open(&mut self, header: FlowHeader, unordered: bool) -> FlowHeader {
        self.next = self.next.wrapping_add(1);
        let header = FlowHeader { id: self.next, ..header };
        self.sums.flows += 1;
        let book =
            Book { header, given: Vec::new(), delivered: Vec::new(), newest: None, unordered };
        self.books.insert(self.next, book);
        header
    }

    /// Records `cells` packets of a flow that a guest is about to send. Returns the number of the
    /// first of these packets.
    pub(super) fn give(&mut self, id: u32, cells: u32) -> u32 {
        let era = self.era;
        let Some(book) = self.books.get_mut(&id) else { return 0 };
        let first = u32::try_from(book.given.len()).expect("flows are short");
        book.given.resize(book.given.len() + cells as usize, era);
        self.sums.given += u64::from(cells);
        first
    }

    /// Marks a flow whose packets may take different paths through the code under test, so that
    /// their order is not checked.
    pub(super) fn unordered(&mut self, id: u32) {
        if let Some(book) = self.books.get_mut(&id) {
            book.unordered = true;
        }
    }

    /// Checks a frame that was delivered to the guest of `node`. Returns the number of its packets.
    pub(super) fn got(&mut self, now: Instant, node: usize, frame: &[u8]) -> u64 {
        let (header, cells) = match frames::read(frame) {
            Ok(Read::Cells(header, cells)) => (header, cells),
            Ok(Read::Answer) => {
                self.sums.answers += 1;
                return 0;
            }
            Err(why) => {
                self.blame(now, &format!("node {node} got a frame that is wrong: {why}"));
                return 0;
            }
        };
        if header.to != frames::MOVING && header.to != frames::inner(node) {
            self.blame(now, &format!("node {node} got a frame for {}", header.to));
        }
        for cell in &cells {
            if let Err(why) = self.judge(&header, *cell) {
                self.blame(now, &format!("node {node}: {why}"));
            }
            let what = u64::from(cell.flow) << 32 | u64::from(cell.number);
            let seen = self.sums.digest ^ what ^ now.as_nanos().rotate_left(17);
            self.sums.digest = seen.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
        cells.len() as u64
    }

    fn judge(&mut self, header: &FlowHeader, cell: Cell) -> Result<(), String> {
        let Cell { flow, number } = cell;
        let what = || format!("packet {number} of flow {flow}");
        let Some(book) = self.books.get_mut(&flow) else {
            return Err(format!("{} arrives after its flow was closed", what()));
        };
        if book.header != *header {
            return Err(format!("{}: {:?} became {header:?}", what(), book.header));
        }
        let Some(&era) = book.given.get(number as usize) else {
            return Err(format!("{} was never given", what()));
        };
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        if book.delivered.len() <= word {
            book.delivered.resize(word + 1, 0);
        }
        if book.delivered[word] & bit != 0 {
            return Err(format!("{} is delivered twice", what()));
        }
        book.delivered[word] |= bit;
        self.sums.delivered += 1;
        let late = book.newest.filter(|newest| *newest > number);
        book.newest = book.newest.max(Some(number));
        let judged = era == self.era && !book.unordered;
        self.sums.judged += u64::from(judged);
        let tunnel = header.transport == Transport::Gre;
        self.sums.judged_of_tunnels += u64::from(judged && tunnel);
        self.sums.overtaken += u64::from(late.is_some());
        match late {
            Some(newest) if judged => {
                Err(format!("{} is delivered after {newest}, though nothing has changed", what()))
            }
            _ => Ok(()),
        }
    }

    /// Removes the records of all flows. The caller ensures that none of their packets is in
    /// flight.
    pub(super) fn close_all(&mut self) {
        self.books = BTreeMap::new();
    }

    /// Records an error, unless an earlier error was recorded.
    pub(super) fn blame(&mut self, now: Instant, why: &str) {
        if self.wrong.is_none() {
            let s = now.as_nanos() as f64 / 1e9;
            self.wrong = Some(format!("{why} (at {s:.6} s, era {})", self.era));
        }
    }

    /// Returns the first error as an `Err`, if an error was recorded.
    pub(super) fn wrong(&self) -> Result<(), String> {
        self.wrong.clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> (Ledger, FlowHeader) {
        let mut ledger = Ledger::default();
        let (from, to, transport) = (frames::inner(0), frames::inner(1), Transport::Tcp);
        let header = FlowHeader { id: 0, from, to, transport, ports: (1, 2) };
        let header = ledger.open(header, false);
        assert_eq!(ledger.give(header.id, 3), 0);
        (ledger, header)
    }

    fn get(ledger: &mut Ledger, header: &FlowHeader, numbers: &[u32]) -> Result<(), String> {
        for number in numbers {
            ledger.got(Instant::ZERO, 1, &frames::frame(header, *number, 1, 100));
        }
        ledger.wrong()
    }

    #[test]
    fn in_turn_and_once_is_right() {
        let (mut ledger, header) = ledger();
        assert_eq!(get(&mut ledger, &header, &[0, 2]), Ok(()));
        assert_eq!((ledger.sums.delivered, ledger.sums.judged), (2, 2));
    }

    #[test]
    fn twice_late_unknown_and_altered_are_wrong() {
        let blamed = |numbers: &[u32], change: fn(&mut FlowHeader)| {
            let (mut ledger, mut header) = ledger();
            change(&mut header);
            get(&mut ledger, &header, numbers).unwrap_err()
        };
        assert!(blamed(&[1, 1], |_| ()).contains("twice"));
        assert!(blamed(&[1, 0], |_| ()).contains("after 1"));
        assert!(blamed(&[3], |_| ()).contains("never given"));
        assert!(blamed(&[0], |h| h.ports = (9, 9)).contains("became"));
        assert!(blamed(&[0], |h| h.id = 99).contains("closed"));
    }

    /// Regression: a frame that was delivered to the guest of another node passed, if its content
    /// was right.
    #[test]
    fn regression_a_frame_for_another_guest_is_wrong() {
        for (node, to, is_right) in
            [(1, frames::inner(1), true), (2, frames::inner(1), false), (2, frames::MOVING, true)]
        {
            let (mut ledger, header) = ledger();
            let header = ledger.open(FlowHeader { to, ..header }, false);
            ledger.give(header.id, 1);
            ledger.got(Instant::ZERO, node, &frames::frame(&header, 0, 1, 100));
            assert_eq!(ledger.wrong().is_ok(), is_right, "{node} {to}: {:?}", ledger.wrong());
        }
    }

    #[test]
    fn a_new_era_excuses_what_is_late() {
        let (mut ledger, header) = ledger();
        assert_eq!(get(&mut ledger, &header, &[1]), Ok(()));
        ledger.era += 1;
        assert_eq!(get(&mut ledger, &header, &[0]), Ok(()));
        assert_eq!(ledger.sums.overtaken, 1);
    }
}
