//! Answers about interfaces of other hosts.
//!
//! A table that queries a directory holds the answers that packets of its guests have needed. An
//! answer suffices for the next packet as well; the answer that no interface has an address is
//! kept, too. Bounds: [`KNOWN_MAX`] answers, and [`SHARE_MAX`] for each asker. An answer in use
//! is kept ([`Rules::sweep`] drops the answers that no packet has needed since the sweep before)
//! unless the table is full. Then an asker with fewer answers takes the place of an answer of the
//! asker with the most ([`Rules::make_room`]). So askers that query everything, however many they
//! are, leave another asker as many answers as each of them has.

use super::tree::tree_bytes;
use super::*;
use core::net::IpAddr;
use core::sync::atomic::{AtomicU32, Ordering};
use ipnet::IpNet;

/// The most answers of a host: about 10 MB.
pub const KNOWN_MAX: usize = 65_536;
/// The most answers that one interface, or one other host, has requested: a guest that tries all
/// addresses of its cloud takes no other guest's entries.
pub const SHARE_MAX: u32 = 16_384;
/// Largest number of answers that are on the way to a host, or whose receipt it has not reported
/// yet.
pub(super) const ON_THE_WAY_MAX: usize = 8192;

/// A query of tables to the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Question {
    /// Which interface of a cloud has an address, and where is it?
    Address(VpcId, IpAddr),
    /// Where is an interface, and which addresses does it have?
    Interface(EniId),
}

/// An answer, with its question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Location of the interface that has an address; `None` if no interface has it.
    Address(VpcId, IpAddr, Option<Location>),
    /// Location and addresses of an interface; `None` if it does not exist, or the host may not
    /// reach it.
    Interface(EniId, Option<Remote>),
}

impl Answer {
    /// The question of this answer.
    pub fn question(&self) -> Question {
        match self {
            Self::Address(vpc, address, _) => Question::Address(*vpc, *address),
            Self::Interface(eni, _) => Question::Interface(*eni),
        }
    }

    /// About how many bytes it has outside of the table.
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
    /// A packet that an interface of this host sends.
    Interface(EniId),
    /// A packet that another host sends.
    Host(Arc<str>),
}

/// Reason why an answer was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotLearned {
    /// [`KNOWN_MAX`] answers are there.
    Full,
    /// The table holds [`SHARE_MAX`] answers of this asker.
    ShareFull,
    /// The answer is about a cloud that the host does not reach.
    OutOfReach,
    /// No query is open, or it has timed out.
    NotAsked,
}

/// The answers of a host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct AnswerCache {
    answers: BTreeMap<Question, CachedAnswer>,
    /// Questions of each asker that has answers.
    shares: BTreeMap<Asker, BTreeSet<Question>>,
    /// The number of sweeps.
    round: u32,
    /// About how many bytes the answers themselves and the sets of `shares` take.
    within_bytes: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct CachedAnswer {
    answer: Answer,
    asker: Asker,
    used: Mark,
}

/// The round in which an answer was used last. Judging reads the tables only, so the mark is
/// atomic.
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

/// Tables that differ only in what was used are the same tables.
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

    /// About how many bytes the answers take. It is kept, and not counted here.
    pub(super) fn bytes(&self) -> usize {
        tree_bytes::<Question, CachedAnswer>(self.answers.len())
            + tree_bytes::<Asker, BTreeSet<Question>>(self.shares.len())
            + self.within_bytes
    }

    /// The answer to a question, which is in use now.
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
    /// Learns an answer. Verdicts that were given before stay right: nothing was known then.
    pub fn learn(&mut self, asker: Asker, answer: Answer) -> Result<(), NotLearned> {
        if !answer.vpc().is_none_or(|vpc| self.mapping.contains_key(&vpc)) {
            return Err(NotLearned::OutOfReach);
        }
        self.known.learn(asker, answer)
    }

    /// Drops one answer of the asker that has the most, if the table is full and this asker has
    /// fewer. Returns the question of the dropped answer, and the verdicts that depend on it. The
    /// directory need not send the host changes of it any more.
    pub fn make_room(&mut self, asker: &Asker) -> Option<(Question, Concern)> {
        let AnswerCache { answers, shares, .. } = &self.known;
        if answers.len() < KNOWN_MAX {
            return None;
        }
        let own = shares.get(asker).map_or(0, BTreeSet::len);
        let most = shares.values().max_by_key(|share| share.len())?;
        // Two that have as many take nothing from each other.
        let question = *most.last().filter(|_| most.len() > own + 1)?;
        Some((question, self.withdraw(question)))
    }

    /// Whether the answer to a question is known.
    pub fn knows(&self, question: Question) -> bool {
        self.known.answers.contains_key(&question)
    }

    /// The stored answers, with their askers.
    pub fn known(&self) -> impl Iterator<Item = (&Asker, &Answer)> {
        self.known.answers.values().map(|held| (&held.asker, &held.answer))
    }

    /// Drops an answer, and returns the verdicts that depend on it.
    pub fn withdraw(&mut self, question: Question) -> Concern {
        let concern = match self.known.answers.get(&question).map(|held| &held.answer) {
            None => Concern::These(Concerned::default()),
            Some(Answer::Address(_, address, _)) => of_addresses([*address]),
            // Nothing that it sent was taken.
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
    /// questions. The caller drops all cached verdicts now: an answer in use is then looked up
    /// again before the next sweep.
    pub fn sweep(&mut self) -> Vec<Question> {
        let round = self.known.round;
        let idle = self.known.those(|held| held.used.0.load(Ordering::Relaxed) != round);
        idle.iter().for_each(|question| self.known.forget(*question));
        self.known.round = round.wrapping_add(1);
        idle
    }
}

/// About how many bytes the questions of one asker take.
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

    /// The bytes that are kept, counted anew.
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
