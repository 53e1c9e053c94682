//! What a host has been told of interfaces of other hosts.
//!
//! A table that asks holds the answers that packets of its guests have needed. An answer says so
//! much that the next packet needs no question: also that nobody has an address is an answer.
//! Bounds: [`KNOWN_MAX`] answers, and [`SHARE_MAX`] for each of those that ask. A table never
//! forgets what is in use ([`Rules::sweep`] takes what no packet has needed since the sweep
//! before), but for one that is full: one that has fewer answers than another may take one of those
//! ([`Rules::make_room`]). So those that ask for everything, however many they are, leave another
//! one as much as each of them has.

use super::tree::tree_bytes;
use super::*;
use core::net::IpAddr;
use core::sync::atomic::{AtomicU32, Ordering};
use ipnet::IpNet;

/// The most answers of a host: about 10 MB.
pub const KNOWN_MAX: usize = 65_536;
/// The most answers that one interface, or one other host, has asked for: a guest that tries all
/// addresses of its cloud takes no other guest's place.
pub const SHARE_MAX: u32 = 16_384;
/// Answers that are on the way to a host, or that it has not said yet that it did not learn.
pub(super) const ON_THE_WAY_MAX: usize = 8192;

/// What tables ask.
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
    /// Where the interface is that has an address; none if there is none.
    Address(VpcId, IpAddr, Option<Place>),
    /// What is to be known of an interface; none if there is none, or none that the host may reach.
    Interface(EniId, Option<Remote>),
}

impl Answer {
    /// What it answers.
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

/// Whose packet has asked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asker {
    /// One that an interface of this host sends.
    Interface(EniId),
    /// One that another host sends.
    Host(Arc<str>),
}

/// Why an answer was not learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotLearned {
    /// [`KNOWN_MAX`] answers are there.
    Full,
    /// [`SHARE_MAX`] answers are there that the same one has asked for.
    ShareFull,
    /// It is about a cloud that the host does not reach.
    OutOfReach,
    /// Nobody has asked, or has waited so long.
    NotAsked,
}

/// The answers of a host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Known {
    answers: BTreeMap<Question, Held>,
    /// What each has asked for, of those that have answers.
    shares: BTreeMap<Asker, BTreeSet<Question>>,
    /// The number of sweeps.
    round: u32,
    /// About how many bytes the answers themselves and the sets of `shares` take.
    within_bytes: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
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

impl Known {
    pub(super) fn len(&self) -> usize {
        self.answers.len()
    }

    /// About how many bytes the answers take. It is kept, and not counted here.
    pub(super) fn bytes(&self) -> usize {
        tree_bytes::<Question, Held>(self.answers.len())
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
        self.answers.insert(question, Held { answer, asker, used: Mark::at(self.round) });
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

    fn those(&self, wanted: impl Fn(&Held) -> bool) -> Vec<Question> {
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

    /// Forgets one of the answers of the one that has most, if the table is full and this one has
    /// fewer: which, and whose verdicts rest on it. Whatever answers need not tell the host of
    /// changes of it.
    pub fn make_room(&mut self, asker: &Asker) -> Option<(Question, Concern)> {
        let Known { answers, shares, .. } = &self.known;
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

    /// The answers that are known, and who has asked.
    pub fn known(&self) -> impl Iterator<Item = (&Asker, &Answer)> {
        self.known.answers.values().map(|held| (&held.asker, &held.answer))
    }

    /// Forgets an answer, and says whose verdicts rest on it.
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

    /// Forgets what no packet has needed since the last sweep, and says what that was. The caller
    /// forgets all verdicts now: what is in use is then asked for before the next sweep.
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

    fn place(eni: u64) -> Place {
        let (eni, subnet, express) = (EniId(eni), SubnetId(0), ExpressSpec::default());
        Place { eni, subnet, host: None, express, zone: "a".into(), cluster: None }
    }

    /// The bytes that are kept, counted anew.
    fn counted(known: &Known) -> usize {
        let shares = known.shares.values().map(|share| share_bytes(share.len())).sum::<usize>();
        shares + known.answers.values().map(|held| held.answer.bytes()).sum::<usize>()
    }

    proptest! {
        #[test]
        fn bytes_of_answers_are_those_that_a_count_finds(
            steps in prop::collection::vec((any::<bool>(), 0..20_u64, 0..3_u64, 0..4_u8), 0..200),
        ) {
            let mut known = Known::default();
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
