//! A card's questions about the locations of interfaces, their answers, and the packets that wait
//! for the answers. (V15)

use alloc::sync::Arc;
use alloc::vec::Vec;

use srd_proto::time::Instant;
use srd_vpc::compile::{Answer, Asker, Delta, NotLearned, Question, Rules};

use super::Card;
use crate::vpc::asking::{KEPT, PACKETS_MAX, PendingPacket, SWEEP};
use crate::vpc::drops::Cause;
use crate::vpc::frames::read::Read;
use crate::vpc::port::{Environment, PortId};
use crate::vpc::records::trace::{Event, Followed};

impl Card {
    /// Returns the next question about the location of an interface, if there is one. The caller
    /// passes the answer to [`Card::learn`].
    pub fn poll_question(&mut self) -> Option<Question> {
        self.asking.new.pop_front()
    }

    /// Number of packets that wait for answers.
    pub fn unanswered(&self) -> usize {
        self.asking.open.values().map(|open| open.packets.len()).sum()
    }

    /// Returns the questions whose answers the card has removed, because no packet has needed them
    /// for a while, or because another interface needed their space. The source of the answers may
    /// stop sending updates for them.
    pub fn take_forgotten(&mut self) -> Vec<Question> {
        core::mem::take(&mut self.asking.idle)
    }

    /// Whether the card has the answer to a question.
    pub fn knows(&self, question: Question) -> bool {
        self.rules.knows(question)
    }

    /// Returns the rules by which packets are evaluated.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Takes an answer, and evaluates the packets that have waited for it.
    ///
    /// # Errors
    /// [`NotLearned`] if the card has not kept the answer. The source of the answers need not send
    /// updates for it, unless [`Card::knows`] returns `true` because of an earlier answer.
    pub fn learn(
        &mut self,
        now: Instant,
        answer: Answer,
        around: &mut impl Environment,
    ) -> Result<(), NotLearned> {
        let open = self.asking.close(answer.question()).ok_or(NotLearned::NotAsked)?;
        let rules = Arc::make_mut(&mut self.rules);
        let room = rules.make_room(&open.asker);
        let learned = rules.learn(open.asker, answer);
        if let Some((question, concern)) = room {
            self.asking.idle.push(question);
            self.forget(&concern); // V16
        }
        if self.rules.answers() > KEPT && self.asking.sweep.is_none() {
            self.asking.sweep = Some(now + SWEEP);
        }
        let of_caller = self.by_srd;
        for packet in open.packets {
            let PendingPacket { frame, port, eni, sender, for_nat, followed, by_srd } = packet;
            if self.eni_of(port) != Some(eni) {
                self.drop_pending(now, &frame, followed, None, Cause::NotHere);
                continue;
            }
            self.traces.resume(followed);
            self.by_srd = by_srd;
            match (learned, sender) {
                (Ok(()), None) => self.from_guest(now, port, frame, around),
                (Ok(()), Some(sender)) if for_nat => {
                    self.arrive_for_nat(now, sender, frame, around);
                }
                (Ok(()), Some(sender)) => self.arrive(now, sender, port, frame, around),
                (Err(_), _) => {
                    self.drop_pending(now, &frame, followed, Some(port), Cause::AnswersFull);
                }
            }
            self.traces.resume(Followed::NO);
        }
        self.by_srd = of_caller;
        self.run(now, around);
        learned
    }

    /// Ends a question without an answer, and drops the packets that have waited for it. The next
    /// packet opens the question again.
    pub fn refuse(&mut self, now: Instant, question: Question) {
        let open = self.asking.close(question);
        self.drop_waiting(now, open.into_iter().flat_map(|open| open.packets));
    }

    fn drop_waiting(&mut self, now: Instant, packets: impl Iterator<Item = PendingPacket>) {
        for waiting in packets {
            // The slot of the packet's interface may belong to another interface by now.
            let port = Some(waiting.port).filter(|port| self.eni_of(*port) == Some(waiting.eni));
            self.drop_pending(now, &waiting.frame, waiting.followed, port, Cause::Unanswered);
        }
    }

    /// Drops a frame that has waited for an answer or for a limit: records the drop in its trace,
    /// and counts its packets at the interface `port`; without an interface, at the card.
    pub(super) fn drop_pending(
        &mut self,
        now: Instant,
        frame: &[u8],
        followed: Followed,
        port: Option<PortId>,
        cause: Cause,
    ) {
        self.note(now, followed, || Event::Dropped(cause));
        let packets = Read::frame(frame).map_or(1, |read| read.layout.packets());
        self.drop_of(port, cause, packets);
    }

    /// Applies a change to the current rules, with the same guarantees as [`Card::set_rules`]
    /// (V4).
    pub fn follow_delta(&mut self, delta: Delta) {
        let concern = Arc::make_mut(&mut self.rules).apply(delta);
        let rules = self.rules.clone();
        self.set_rules_that_concern(rules, &concern);
    }

    /// Makes a packet wait for an answer, or drops it if too many packets wait.
    #[cold]
    pub(in crate::vpc) fn wait(&mut self, now: Instant, packet: PendingPacket, packets: u64) {
        let question = match &packet.sender {
            None => self.question_of(now, packet.port, &packet.frame),
            Some(sender) => sender.eni.map(Question::Interface),
        };
        let host = packet.sender.as_ref().and_then(|sender| sender.host.clone());
        let asker = host.map_or(Asker::Interface(packet.eni), Asker::Host);
        let (port, followed) = (packet.port, packet.followed);
        let asked = question.filter(|question| self.asking.ask(now, asker, *question));
        let open = asked.and_then(|question| self.asking.open.get_mut(&question));
        match open.filter(|open| open.packets.len() < PACKETS_MAX) {
            Some(open) => {
                open.packets.push(packet);
                self.note(now, followed, || Event::Asks);
            }
            None => {
                self.note(now, followed, || Event::Dropped(Cause::Unanswered));
                self.drop_of(Some(port), Cause::Unanswered, packets);
            }
        }
    }

    /// Opens the question about the target of a guest's packet. The packet does not wait for the
    /// answer.
    #[cold]
    pub(in crate::vpc) fn only_ask(&mut self, now: Instant, port: PortId, frame: &[u8]) {
        let Some(eni) = self.eni_of(port) else { return };
        if let Some(question) = self.question_of(now, port, frame) {
            self.asking.ask(now, Asker::Interface(eni), question);
        }
    }

    /// Drops packets that have waited too long, and removes idle answers.
    pub(in crate::vpc) fn poll_asking(&mut self, now: Instant) {
        while let Some(question) = self.asking.ended(now) {
            let is_over = self.asking.open.get(&question).is_some_and(|open| open.until <= now);
            let open = is_over.then(|| self.asking.close(question)).flatten();
            self.drop_waiting(now, open.into_iter().flat_map(|open| open.packets));
        }
        if self.asking.sweep.is_some_and(|at| at <= now) {
            let idle = Arc::make_mut(&mut self.rules).sweep(); // V16
            self.asking.idle.extend(idle);
            self.asking.sweep = (self.rules.answers() > KEPT).then_some(now + SWEEP);
            // All flows are evaluated again. This marks the answers that are in use, before the
            // next search for idle ones.
            self.forget_verdicts();
        }
    }
}
