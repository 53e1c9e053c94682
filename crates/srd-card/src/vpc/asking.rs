//! Packets that wait until it is known where an interface is.
//!
//! Tables that ask ([`Directory`](srd_vpc::compile::Directory)) do not know it beforehand: the card
//! keeps the packet, what is around it takes the question
//! ([`Card::poll_question`](super::card::Card::poll_question)) and brings the answer
//! ([`Card::learn`](super::card::Card::learn)). Then the packet is judged as if it had just come.
//! Each question is
//! asked once while packets wait for it. Bounds: [`QUESTIONS_MAX`] for each interface, and for each
//! other host, that asks; [`PACKETS_MAX`] packets for each question; [`WAIT`], after which they are
//! dropped, and the next packet asks again. (V15)

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use srd_proto::time::{Duration, Instant};
use srd_vpc::compile::{Asker, Question};
use srd_vpc::id::EniId;

use super::flow::Sender;
use super::port::PortId;
use super::trace::Followed;

/// Questions of one interface, or of one other host, that have no answer yet.
pub const QUESTIONS_MAX: u32 = 64;
/// Packets that wait for one answer.
pub const PACKETS_MAX: usize = 16;
/// How long packets wait for an answer.
pub const WAIT: Duration = Duration::from_millis(500);
/// Answers that are kept however idle they are.
pub(super) const KEPT: usize = 4096;
/// From one look for idle answers to the next, if there are more.
pub(super) const SWEEP: Duration = Duration::from_secs(60);

/// A packet that waits.
pub(super) struct Waiting {
    pub(super) frame: Vec<u8>,
    pub(super) port: PortId,
    pub(super) eni: EniId,
    /// The host that has sent it; none: the guest of the port.
    pub(super) sender: Option<Sender>,
    pub(super) followed: Followed,
    /// Whether it came by SRD.
    pub(super) by_srd: bool,
}

pub(super) struct Open {
    pub(super) asker: Asker,
    pub(super) until: Instant,
    pub(super) packets: Vec<Waiting>,
}

/// Questions and the packets that wait for their answers.
#[derive(Default)]
pub(super) struct Asking {
    pub(super) open: BTreeMap<Question, Open>,
    /// In the order in which they end.
    ends: VecDeque<(Instant, Question)>,
    of: BTreeMap<Asker, u32>,
    /// Not taken yet.
    pub(super) new: VecDeque<Question>,
    /// Answers that were found idle.
    pub(super) idle: Vec<Question>,
    pub(super) sweep: Option<Instant>,
}

impl Asking {
    /// Asks, unless that is done already; whether it is. // V15
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

    /// A question that was to end by now. An answer may have come, and it may be asked again.
    pub(super) fn ended(&mut self, now: Instant) -> Option<Question> {
        self.ends.front().filter(|(at, _)| *at <= now)?;
        self.ends.pop_front().map(|(_, question)| question)
    }

    /// When packets have waited long enough, or answers are looked through.
    pub(super) fn next(&self) -> Option<Instant> {
        let ends = self.ends.front().map(|(at, _)| *at);
        ends.into_iter().chain(self.sweep).min()
    }
}
