//! Packets that wait until it is known where an interface is.
//!
//! Tables that ask ([`Directory`](srd_vpc::compile::Directory)) do not know it beforehand: the card
//! keeps the packet, what is around it takes the question ([`Card::poll_question`]) and brings the
//! answer ([`Card::learn`]). Then the packet is judged as if it had just come. Each question is
//! asked once while packets wait for it. Bounds: [`QUESTIONS_MAX`] for each interface, and for each
//! other host, that asks; [`PACKETS_MAX`] packets for each question; [`WAIT`], after which they are
//! dropped, and the next packet asks again. (V15)

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use srd_proto::time::{Duration, Instant};
use srd_vpc::compile::{Answer, Asker, Concern, Delta, NotLearned, Question};
use srd_vpc::id::EniId;

use super::card::Card;
use super::drops::Cause;
use super::flow::Sender;
use super::port::{Around, PortId};
use super::read::Read;

/// Questions of one interface, or of one other host, that have no answer yet.
pub const QUESTIONS_MAX: u32 = 64;
/// Packets that wait for one answer.
pub const PACKETS_MAX: usize = 16;
/// How long packets wait for an answer.
pub const WAIT: Duration = Duration::from_millis(500);
/// Answers that are kept however idle they are.
const KEPT: usize = 4096;
/// From one look for idle answers to the next, if there are more.
const SWEEP: Duration = Duration::from_secs(60);

/// A packet that waits.
pub(super) struct Waiting {
    pub(super) frame: Vec<u8>,
    pub(super) port: PortId,
    pub(super) eni: EniId,
    /// The host that has sent it; none: the guest of the port.
    pub(super) sender: Option<Sender>,
}

struct Open {
    asker: Asker,
    until: Instant,
    packets: Vec<Waiting>,
}

/// Questions and the packets that wait for their answers.
#[derive(Default)]
pub(super) struct Asking {
    open: BTreeMap<Question, Open>,
    /// In the order in which they end.
    ends: VecDeque<(Instant, Question)>,
    of: BTreeMap<Asker, u32>,
    /// Not taken yet.
    new: VecDeque<Question>,
    /// Answers that were found idle.
    idle: Vec<Question>,
    sweep: Option<Instant>,
}

impl Asking {
    /// Asks, unless that is done already; whether it is. // V15
    fn ask(&mut self, now: Instant, asker: Asker, question: Question) -> bool {
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

    fn close(&mut self, question: Question) -> Option<Open> {
        let open = self.open.remove(&question)?;
        if let Some(count) = self.of.get_mut(&open.asker) {
            *count -= 1;
            if *count == 0 {
                self.of.remove(&open.asker);
            }
        }
        while self.ends.pop_front_if(|(_, question)| !self.open.contains_key(question)).is_some() {}
        Some(open)
    }

    /// When packets have waited long enough, or answers are looked through.
    pub(super) fn next(&self) -> Option<Instant> {
        let ends = self.ends.front().map(|(at, _)| *at);
        ends.into_iter().chain(self.sweep).min()
    }
}

impl Card {
    /// The next question that tables ask; its answer comes by [`Card::learn`].
    pub fn poll_question(&mut self) -> Option<Question> {
        self.asking.new.pop_front()
    }

    /// Packets that wait for answers.
    pub fn unanswered(&self) -> usize {
        self.asking.open.values().map(|open| open.packets.len()).sum()
    }

    /// Answers that the card has forgotten, since no packet has needed them for a while: whatever
    /// answers need not tell it of changes any more.
    pub fn take_forgotten(&mut self) -> Vec<Question> {
        core::mem::take(&mut self.asking.idle)
    }

    /// Takes an answer, and judges the packets that have waited for it.
    ///
    /// # Errors
    /// The card has not kept it: whatever answers need not tell it of changes.
    pub fn learn(
        &mut self,
        now: Instant,
        answer: Answer,
        around: &mut impl Around,
    ) -> Result<(), NotLearned> {
        let open = self.asking.close(answer.question()).ok_or(NotLearned::NotAsked)?;
        let learned = Arc::make_mut(&mut self.rules).learn(open.asker, answer);
        if self.rules.answers() > KEPT && self.asking.sweep.is_none() {
            self.asking.sweep = Some(now + SWEEP);
        }
        for Waiting { frame, port, eni, sender } in open.packets {
            if self.eni_of(port) != Some(eni) {
                continue;
            }
            match (learned, sender) {
                (Ok(()), None) => self.from_guest(now, port, frame, around),
                (Ok(()), Some(sender)) => self.arrive(now, sender, port, frame, around),
                (Err(_), _) => {
                    let packets = Read::frame(&frame).map_or(1, |read| read.layout.packets());
                    self.drop_of(Some(port), Cause::AnswersFull, packets);
                }
            }
        }
        self.run(now, around);
        learned
    }

    /// Follows a change of the rules as [`Card::set_rules`] does (V4), without other tables.
    pub fn follow_delta(&mut self, delta: Delta) {
        let concern = Arc::make_mut(&mut self.rules).apply(delta);
        let rules = self.rules.clone();
        self.set_rules_that_concern(rules, &concern);
    }

    /// A packet waits for an answer, or is dropped if too many do.
    #[cold]
    pub(super) fn wait(&mut self, now: Instant, packet: Waiting, packets: u64) {
        let question = match &packet.sender {
            None => self.question_of(packet.port, &packet.frame),
            Some(sender) => sender.eni.map(Question::Interface),
        };
        let host = packet.sender.as_ref().and_then(|sender| sender.host.clone());
        let asker = host.map_or(Asker::Interface(packet.eni), Asker::Host);
        let port = packet.port;
        let asked = question.filter(|question| self.asking.ask(now, asker, *question));
        let open = asked.and_then(|question| self.asking.open.get_mut(&question));
        match open.filter(|open| open.packets.len() < PACKETS_MAX) {
            Some(open) => open.packets.push(packet),
            None => self.drop_of(Some(port), Cause::Unanswered, packets),
        }
    }

    /// Asks where a packet of a guest goes, which does not wait for the answer.
    #[cold]
    pub(super) fn only_ask(&mut self, now: Instant, port: PortId, frame: &[u8]) {
        let Some(eni) = self.eni_of(port) else { return };
        if let Some(question) = self.question_of(port, frame) {
            self.asking.ask(now, Asker::Interface(eni), question);
        }
    }

    /// Drops packets that have waited too long, and forgets answers that are idle.
    pub(super) fn poll_asking(&mut self, now: Instant) {
        while let Some((_, question)) = self.asking.ends.pop_front_if(|(at, _)| *at <= now) {
            // An answer may have come, and the question may have been asked again.
            let is_over = self.asking.open.get(&question).is_some_and(|open| open.until <= now);
            let open = is_over.then(|| self.asking.close(question)).flatten();
            for waiting in open.into_iter().flat_map(|open| open.packets) {
                let packets = Read::frame(&waiting.frame).map_or(1, |read| read.layout.packets());
                let port = Some(waiting.port).filter(|port| self.port(*port).is_some());
                self.drop_of(port, Cause::Unanswered, packets);
            }
        }
        if self.asking.sweep.is_some_and(|at| at <= now) {
            let idle = Arc::make_mut(&mut self.rules).sweep(); // V16
            self.asking.idle.extend(idle);
            self.asking.sweep = (self.rules.answers() > KEPT).then_some(now + SWEEP);
            // What is in use is asked for again before the next look.
            self.set_rules_that_concern(self.rules.clone(), &Concern::Everything);
        }
    }
}
