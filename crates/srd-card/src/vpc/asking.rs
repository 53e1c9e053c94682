//! Packets that wait for an answer about the location of an interface.
//!
//! Rules with a [`Directory`](srd_vpc::compile::Directory) do not contain all locations in advance.
//! If a packet needs an unknown location, the card keeps the packet. The caller takes the question
//! ([`Card::poll_question`](super::card::Card::poll_question)), sends it to a control plane, and
//! passes the answer to [`Card::learn`](super::card::Card::learn). Then the rules evaluate the
//! packet as if it had just arrived. While packets wait for an answer, the question is sent only
//! once.
//!
//! Bounds: [`QUESTIONS_MAX`] questions for each interface, and for each other host;
//! [`PACKETS_MAX`] packets for each question; [`WAIT`], after which the packets are dropped, and
//! the next packet causes the question again. (V15)

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use srd_proto::time::{Duration, Instant};
use srd_vpc::compile::{Asker, Question};
use srd_vpc::id::EniId;

use super::port::PortId;
use super::records::trace::Followed;
use super::tables::flow::Sender;

/// Largest number of open questions of one interface, or of one other host.
pub const QUESTIONS_MAX: u32 = 64;
/// Largest number of packets that wait for one answer.
pub const PACKETS_MAX: usize = 16;
/// Longest time that packets wait for an answer.
pub const WAIT: Duration = Duration::from_millis(500);
/// Number of answers that are kept even if they are idle.
pub(super) const KEPT: usize = 4096;
/// Time between two searches for idle answers, while more than [`KEPT`] answers are kept.
pub(super) const SWEEP: Duration = Duration::from_secs(60);

/// A packet that waits for an answer.
pub(super) struct PendingPacket {
    pub(super) frame: Vec<u8>,
    pub(super) port: PortId,
    pub(super) eni: EniId,
    /// Sender of a packet that arrives for the interface; `None` for a packet that the interface's
    /// guest sends.
    pub(super) sender: Option<Sender>,
    /// Whether the packet is for a NAT gateway of this host, which has not translated it yet.
    pub(super) for_nat: bool,
    pub(super) followed: Followed,
    /// Whether the packet was received over SRD.
    pub(super) by_srd: bool,
}

pub(super) struct Open {
    pub(super) asker: Asker,
    pub(super) until: Instant,
    pub(super) packets: Vec<PendingPacket>,
}

/// Open questions, and the packets that wait for their answers.
#[derive(Default)]
pub(super) struct Asking {
    pub(super) open: BTreeMap<Question, Open>,
    /// End times of the questions, in order.
    ends: VecDeque<(Instant, Question)>,
    of: BTreeMap<Asker, u32>,
    /// Questions that the caller has not taken yet.
    pub(super) new: VecDeque<Question>,
    /// Questions whose answers were removed, until the caller takes them.
    pub(super) idle: Vec<Question>,
    pub(super) sweep: Option<Instant>,
}

impl Asking {
    /// Opens a question unless it is open already. Returns whether the question is open; it is not
    /// if the asker has [`QUESTIONS_MAX`] open questions. // V15
    pub(super) fn ask(&mut self, now: Instant, asker: Asker, question: Question) -> bool {
        if self.open.contains_key(&question) {
            return true;
        }
        let count = self.of.entry(asker.clone()).or_default();
        if *count >= QUESTIONS_MAX {
            return false;
        }
        *count += 1;
        let until = now + WAIT;
        self.open.insert(question, Open { asker, until, packets: Vec::new() });
        self.ends.push_back((until, question));
        self.new.push_back(question);
        true
    }

    pub(super) fn close(&mut self, question: Question) -> Option<Open> {
        let open = self.open.remove(&question)?;
        if let Some(count) = self.of.get_mut(&open.asker) {
            *count -= 1;
            if *count == 0 {
                self.of.remove(&open.asker);
            }
        }
        while self.ends.front().is_some_and(|(_, first)| !self.open.contains_key(first)) {
            self.ends.pop_front();
        }
        Some(open)
    }

    /// Removes and returns a question whose waiting time has ended by `now`. The question may have
    /// been answered, and opened again, meanwhile.
    pub(super) fn ended(&mut self, now: Instant) -> Option<Question> {
        self.ends.front().filter(|(at, _)| *at <= now)?;
        self.ends.pop_front().map(|(_, question)| question)
    }

    /// Time of the next timeout of a question, or of the next search for idle answers.
    pub(super) fn next(&self) -> Option<Instant> {
        let ends = self.ends.front().map(|(at, _)| *at);
        ends.into_iter().chain(self.sweep).min()
    }
}
