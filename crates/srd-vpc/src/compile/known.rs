//! Stored answers about interfaces of other hosts.
//!
//! Tables that query a directory store the answers that packets of the host's guests have needed. A
//! stored answer also serves later packets. The answer that no interface has an address is stored,
//! too. Bounds: [`KNOWN_MAX`] answers, and [`SHARE_MAX`] for each asker. [`Rules::sweep`] drops the
//! answers that no packet has needed since the last sweep. Other answers are kept until the table
//! is full. In a full table, an answer for an asker with fewer answers replaces an answer of the
//! asker with the most answers ([`Rules::make_room`]). So any number of askers that query all
//! addresses leave another asker as many answers as each of them has.

use super::tree::tree_bytes;
use super::*;
use core::net::IpAddr;
use core::sync::atomic::{AtomicU32, Ordering};
use ipnet::IpNet;

/// Largest number of answers that a host stores. They need about 10 MB of memory.
pub const KNOWN_MAX: usize = 65_536;
/// Largest number of stored answers that one interface, or one other host, has requested. With this
/// limit a guest that tries all addresses of its cloud does not use up the entries of other guests.
pub const SHARE_MAX: u32 = 16_384;
/// Largest number of answers that the directory counts for a host beyond its stored answers:
/// answers in transit, and answers that the host has dropped without having reported it yet.
pub(super) const ON_THE_WAY_MAX: usize = 8192;

/// A query that the tables send to the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Question {
    /// The interface that has an address in a cloud, and its location.
    Address(VpcId, IpAddr),
    /// The location and the addresses of an interface.
    Interface(EniId),
}

/// An answer of the directory, together with its question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Location of the interface that has an address; `None` if no interface has it.
    Address(VpcId, IpAddr, Option<Location>),
    /// Location and addresses of an interface; `None` if it does not exist, or the host may not
    /// reach it.
    Interface(EniId, Option<Remote>),
}

impl Answer {
    /// Returns the question of this answer.
    pub fn question(&self) -> Question {
        match self {
            Self::Address(vpc, address, _) => Question::Address(*vpc, *address),
            Self::Interface(eni, _) => Question::Interface(*eni),
        }
    }

    /// Returns the approximate number of bytes that the answer occupies outside of the table.
    fn bytes(&self) -> usize {
        match self {
            Self::Interface(_, Some(of)) => of.own.bytes(),
            _ => 0,
        }
    }

    fn vpc(&self) -> Option<VpcId> {
        match self {
            Self::Address(vpc, ..) => Some(*vpc),
            Self::Interface(_, of) => of.as_ref().and_then(|of| of.vpc),
        }
    }
}

/// Sender of the packet that caused a query.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asker {
    /// An interface of this host.
    Interface(EniId),
    /// Another host, by its name.
    Host(Arc<str>),
}

/// Reason why an answer was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotLearned {
    /// The table already holds [`KNOWN_MAX`] answers.
    Full,
    /// The table already holds [`SHARE_MAX`] answers of this asker.
    ShareFull,
    /// The answer is about a cloud that the host does not reach.
    OutOfReach,
    /// The host has no open query for this answer, or the query has timed out.
    NotAsked,
}

/// Stored answers of a host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct AnswerCache {
    answers: BTreeMap<Question, CachedAnswer>,
    /// For each asker, the questions whose answers are stored.
    shares: BTreeMap<Asker, BTreeSet<Question>>,
    /// Number of sweeps ([`Rules::sweep`]) so far.
    round: u32,
    /// Approximate bytes of the answers themselves and of the sets in `shares`.
    within_bytes: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct CachedAnswer {
    answer: Answer,
    asker: Asker,
    used: Mark,
}

/// The number of sweeps ([`Rules::sweep`]) that had run when an answer was last used. Evaluation of
/// packets has only shared access to the tables, so the mark is atomic.
#[derive(Debug)]
struct Mark(AtomicU32);

impl Mark {
    fn at(round: u32) -> Self {
        Self(AtomicU32::new(round))
    }
}

impl Clone for Mark {
    fn clone(&self) -> Self {
        Self::at(self.0.load(Ordering::Relaxed))
    }
}

/// Marks do not count in comparisons: two tables that differ only in their marks are equal.
impl PartialEq for Mark {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Mark {}

impl AnswerCache {
    pub(super) fn len(&self) -> usize {
        self.answers.len()
    }

    /// Returns the approximate size of the answers in bytes. The size is updated with each change,
    /// so this call is cheap.
    pub(super) fn bytes(&self) -> usize {
        tree_bytes::<Question, CachedAnswer>(self.answers.len())
            + tree_bytes::<Asker, BTreeSet<Question>>(self.shares.len())
            + self.within_bytes
    }

    /// Returns the answer to a question, and marks the answer as used.
    pub(super) fn ask(&self, question: Question) -> Option<&Answer> {
        let held = self.answers.get(&question)?;
        held.used.0.store(self.round, Ordering::Relaxed);
        Some(&held.answer)
    }

    fn learn(&mut self, asker: Asker, answer: Answer) -> Result<(), NotLearned> {
        let question = answer.question();
        self.forget(question);
        if self.answers.len() >= KNOWN_MAX {
            return Err(NotLearned::Full);
        }
        let share = self.shares.entry(asker.clone()).or_default();
        if share.len() >= SHARE_MAX as usize {
            return Err(NotLearned::ShareFull);
        }
        share.insert(question);
        self.within_bytes += answer.bytes() + share_bytes(share.len());
        self.within_bytes -= share_bytes(share.len() - 1);
        self.answers.insert(question, CachedAnswer { answer, asker, used: Mark::at(self.round) });
        Ok(())
    }

    fn forget(&mut self, question: Question) {
        let Some(held) = self.answers.remove(&question) else { return };
        self.within_bytes -= held.answer.bytes();
        if let Some(share) = self.shares.get_mut(&held.asker) {
            self.within_bytes -= share_bytes(share.len());
            share.remove(&question);
            self.within_bytes += share_bytes(share.len());
            if share.is_empty() {
                self.shares.remove(&held.asker);
            }
        }
    }

    fn those(&self, wanted: impl Fn(&CachedAnswer) -> bool) -> Vec<Question> {
        let all = self.answers.iter().filter(|(_, held)| wanted(held));
        all.map(|(question, _)| *question).collect()
    }
}

impl Rules {
    /// Stores an answer that `asker` needs. Earlier verdicts stay valid: none of them was based on
    /// an answer to this question.
    pub fn learn(&mut self, asker: Asker, answer: Answer) -> Result<(), NotLearned> {
        if !answer.vpc().is_none_or(|vpc| self.mapping.contains_key(&vpc)) {
            return Err(NotLearned::OutOfReach);
        }
        self.known.learn(asker, answer)
    }

    /// Drops one answer of the asker with the most answers, if the table is full and `asker` has
    /// fewer. Returns the question of the dropped answer, and the verdicts that depend on the
    /// answer. The directory need not report changes of the dropped answer to this host any more.
    pub fn make_room(&mut self, asker: &Asker) -> Option<(Question, Concern)> {
        let AnswerCache { answers, shares, .. } = &self.known;
        if answers.len() < KNOWN_MAX {
            return None;
        }
        let own = shares.get(asker).map_or(0, BTreeSet::len);
        let most = shares.values().max_by_key(|share| share.len())?;
        // Askers with an equal number of answers do not displace each other's answers.
        let question = *most.last().filter(|_| most.len() > own + 1)?;
        Some((question, self.withdraw(question)))
    }

    /// Whether the answer to a question is stored.
    pub fn knows(&self, question: Question) -> bool {
        self.known.answers.contains_key(&question)
    }

    /// Returns the stored answers, with their askers.
    pub fn known(&self) -> impl Iterator<Item = (&Asker, &Answer)> {
        self.known.answers.values().map(|held| (&held.asker, &held.answer))
    }

    /// Drops an answer. Returns the verdicts that depend on the answer.
    pub fn withdraw(&mut self, question: Question) -> Concern {
        let concern = match self.known.answers.get(&question).map(|held| &held.answer) {
            None => Concern::These(Concerned::default()),
            Some(Answer::Address(_, address, _)) => of_addresses([*address]),
            // No packet of this interface was accepted, so no verdict depends on the answer.
            Some(Answer::Interface(_, None)) => Concern::These(Concerned::default()),
            Some(Answer::Interface(_, Some(of))) => {
                let single = |net: &IpNet| net.prefix_len() == net.max_prefix_len();
                if of.source_dest_check && of.own.nets().all(|net| single(&net)) {
                    of_addresses(of.own.nets().map(|net| net.addr()))
                } else {
                    Concern::Everything
                }
            }
        };
        self.known.forget(question);
        concern
    }

    /// Drops the answers that no packet has needed since the last sweep, and returns their
    /// questions. The caller has to drop all cached verdicts now, so that each answer in use is
    /// looked up again, and thereby marked, before the next sweep.
    pub fn sweep(&mut self) -> Vec<Question> {
        let round = self.known.round;
        let idle = self.known.those(|held| held.used.0.load(Ordering::Relaxed) != round);
        idle.iter().for_each(|question| self.known.forget(*question));
        self.known.round = round.wrapping_add(1);
        idle
    }
}

/// Returns the approximate number of bytes that the questions of one asker occupy.
fn share_bytes(questions: usize) -> usize {
    tree_bytes::<Question, ()>(questions)
}

fn of_addresses(addresses: impl IntoIterator<Item = IpAddr>) -> Concern {
    let addresses = addresses.into_iter().collect();
    Concern::These(Concerned { addresses, ..Concerned::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ExpressSpec;
    use proptest::prelude::*;

    fn place(eni: u64) -> Location {
        let (eni, subnet, express) = (EniId(eni), SubnetId(0), ExpressSpec::default());
        Location { eni, subnet, host: None, express, zone: "a".into(), cluster: None }
    }

    /// Returns the value of `within_bytes`, computed from the answers.
    fn counted(known: &AnswerCache) -> usize {
        let shares = known.shares.values().map(|share| share_bytes(share.len())).sum::<usize>();
        shares + known.answers.values().map(|held| held.answer.bytes()).sum::<usize>()
    }

    proptest! {
        #[test]
        fn bytes_of_answers_are_those_that_a_count_finds(
            steps in prop::collection::vec((any::<bool>(), 0..20_u64, 0..3_u64, 0..4_u8), 0..200),
        ) {
            let mut known = AnswerCache::default();
            for (is_learned, eni, asker, blocks) in steps {
                let question = Question::Interface(EniId(eni));
                if is_learned {
                    let mut own = Blocks::default();
                    for n in 0..blocks {
                        own.entry(IpNet::from(IpAddr::from([10, 0, n, 1])));
                    }
                    let (vpc, source_dest_check, place) = (None, true, place(eni));
                    let remote = Remote { vpc, source_dest_check, own, place };
                    let answer = Answer::Interface(EniId(eni), Some(remote));
                    prop_assert!(known.learn(Asker::Interface(EniId(asker)), answer).is_ok());
                } else {
                    known.forget(question);
                }
                prop_assert_eq!(known.within_bytes, counted(&known));
            }
            known.those(|_| true).into_iter().for_each(|question| known.forget(question));
            prop_assert_eq!(known.bytes(), 0);
        }
    }
}
