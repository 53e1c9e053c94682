//! The control plane of this host: a directory of the whole VPC on a separate thread, and the
//! card's channels to it.
//!
//! ```text
//!  card --> question --> thread: directory --> answer --> card
//!  file --> world -----> thread: directory --> delta ---> card
//! ```
//!
//! The card has the tables of its own interfaces, and queries the directory about other interfaces
//! ([`srd_vpc::compile`]). The thread handles queries and changes in the order in which they are
//! sent, and returns its results in this order. So no answer from before a change is applied after
//! that change (V16).
//!
//! Bounds: at most [`WAITING_MAX`] queries are under way. More queries are refused and counted, and
//! the packets that wait for them are dropped (V15). Answers that the card has dropped are reported
//! before the next query, and wait for space among [`ORDERS_MAX`] orders. Their number is limited
//! by the answers that the card has received.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use srd_vpc::compile::{Answer, Delta, Directory, Edit, Question, Rules};
use srd_vpc::object::World;

use crate::control::orders::Orders;

/// Maximum number of queries under way to the directory and back.
pub(crate) const WAITING_MAX: usize = 4096;

/// Maximum number of orders that wait for the thread: queries, reports of dropped answers between
/// them, and one change.
const ORDERS_MAX: usize = WAITING_MAX + 256;

/// Error message after the end of the directory's thread.
pub(crate) const ENDED: &str = "the directory has ended: start this card again";

/// An order to the directory's thread.
pub(crate) enum Order {
    Answer(Question),
    /// The card has dropped these answers, or has not accepted them.
    Forget(Vec<Question>),
    Change(Box<World>),
}

/// A result of the directory's thread.
pub(crate) enum OrderResult {
    Answer(Question, Option<Answer>),
    Change(Box<Option<Delta>>),
}

/// Counters of queries to the directory.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counts {
    pub(crate) asked: u64,
    pub(crate) answered: u64,
    /// Queries without an answer, because this host already holds the maximum number of answers.
    pub(crate) refused: u64,
    /// Queries that were not sent, because too many were under way.
    pub(crate) not_asked: u64,
}

/// The directory's thread, and the state of the queries to it.
#[derive(Debug)]
pub(crate) struct Plane {
    orders: Option<SyncSender<Order>>,
    /// Queries whose answers the card has dropped, and that still have to be reported to the
    /// thread.
    forgotten: Vec<Question>,
    said: Receiver<OrderResult>,
    thread: Option<JoinHandle<()>>,
    waiting: usize,
    pub(crate) counts: Counts,
}

impl Plane {
    /// Starts the directory's thread, and returns the tables of this host. The thread wakes the
    /// card's loop through `wake` after each result.
    pub(crate) fn start(world: World, host: &str, wake: Orders) -> Result<(Self, Rules)> {
        let mut directory = Directory::new(world);
        let rules = directory.tables(host);
        let host = host.to_owned();
        let plane = Self::with(move |order| work(&mut directory, &host, order), wake)?;
        Ok((plane, rules))
    }

    /// Starts a thread that runs `work` for each order, and returns the results in that order.
    fn with(
        mut work: impl FnMut(Order) -> Option<OrderResult> + Send + 'static,
        wake: Orders,
    ) -> Result<Self> {
        let (orders, queue) = sync_channel(ORDERS_MAX);
        // The channel has space for the answers to all queries under way. So the thread never waits
        // for the card, which may wait for the thread.
        let (back, said) = sync_channel(WAITING_MAX + 1);
        let run = move || {
            for order in queue {
                let Some(said) = work(order) else { continue };
                if back.send(said).is_err() {
                    return;
                }
                wake.wake();
            }
        };
        let thread = thread::Builder::new().name("srd-card-asked".into()).spawn(run)?;
        let (orders, thread, forgotten) = (Some(orders), Some(thread), Vec::new());
        Ok(Self { orders, forgotten, said, thread, waiting: 0, counts: Counts::default() })
    }

    /// Returns the next result of the thread, if there is one.
    pub(crate) fn try_next(&self) -> Option<OrderResult> {
        self.said.try_recv().ok()
    }

    /// Returns the next result of the thread, and waits for it at most this time.
    pub(crate) fn next_within(&self, time: Duration) -> Result<OrderResult, RecvTimeoutError> {
        self.said.recv_timeout(time)
    }

    /// Waits for the next result of the thread; `None` if the thread has ended.
    pub(crate) fn next(&self) -> Option<OrderResult> {
        self.said.recv().ok()
    }

    /// Whether queries have not been answered yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Sends the thread a changed world. The result is [`OrderResult::Change`], which has to be
    /// taken before the next change. The call waits for space in the queue.
    pub(crate) fn change(&mut self, world: World) -> Result<()> {
        let orders = self.orders.as_ref().context(ENDED)?;
        let forgotten = std::mem::take(&mut self.forgotten);
        if !forgotten.is_empty() {
            orders.send(Order::Forget(forgotten)).ok().context(ENDED)?;
        }
        orders.send(Order::Change(Box::new(world))).ok().context(ENDED)
    }

    /// Sends an order, if the queue has space.
    fn order(&self, order: Order) -> Result<(), Option<Order>> {
        let orders = self.orders.as_ref().ok_or(None)?;
        orders.try_send(order).map_err(|error| match error {
            TrySendError::Full(order) => Some(order),
            TrySendError::Disconnected(_) => None,
        })
    }

    /// Reports dropped answers to the thread, if its queue has space. Returns whether all are
    /// reported. No query may be sent until then.
    fn tell_forgotten(&mut self) -> bool {
        if self.forgotten.is_empty() {
            return true;
        }
        let forgotten = std::mem::take(&mut self.forgotten);
        let told = self.order(Order::Forget(forgotten));
        if let Err(Some(Order::Forget(questions))) = told {
            self.forgotten = questions;
        }
        self.forgotten.is_empty()
    }

    /// Sends a query, unless too many are under way. Returns whether it was sent.
    pub(crate) fn ask(&mut self, question: Question) -> bool {
        let is_asked = self.waiting < WAITING_MAX
            && self.tell_forgotten()
            && self.order(Order::Answer(question)).is_ok();
        self.waiting += usize::from(is_asked);
        self.counts.asked += u64::from(is_asked);
        self.counts.not_asked += u64::from(!is_asked);
        is_asked
    }

    pub(crate) fn forget(&mut self, questions: Vec<Question>) {
        self.forgotten.extend(questions);
        self.tell_forgotten();
    }

    /// Counts the result of a query, and returns its answer, if there is one.
    pub(crate) fn answered(&mut self, answer: Option<Answer>) -> Option<Answer> {
        self.waiting -= 1;
        match answer {
            Some(_) => self.counts.answered += 1,
            None => self.counts.refused += 1,
        }
        answer
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(directory: &mut Directory, host: &str, order: Order) -> Option<OrderResult> {
    match order {
        Order::Answer(question) => {
            Some(OrderResult::Answer(question, directory.answer(host, question)))
        }
        Order::Forget(questions) => {
            directory.forgotten(host, &questions);
            None
        }
        Order::Change(world) => {
            let edits = Edit::between(directory.world(), &world);
            // Deltas of other hosts are not needed here: each host has its own directory of the
            // file.
            let mut deltas = directory.apply(&edits);
            Some(OrderResult::Change(Box::new(deltas.remove(host))))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use srd_vpc::id::EniId;

    use super::*;

    fn wake() -> Orders {
        Orders::new().unwrap().0
    }

    fn question(n: usize) -> Question {
        Question::Interface(EniId(n as u64))
    }

    #[test]
    fn a_directory_that_does_not_answer_is_asked_so_much_and_no_more() {
        let (go, gate) = channel::<()>();
        let work = move |order| {
            let Order::Answer(question) = order else { return None };
            let _ = gate.recv();
            Some(OrderResult::Answer(question, None))
        };
        let mut plane = Plane::with(work, wake()).unwrap();
        let asked = (0..WAITING_MAX + 3).filter(|n| plane.ask(question(*n))).count();
        assert_eq!(asked, WAITING_MAX);
        assert_eq!((plane.counts.asked, plane.counts.not_asked), (WAITING_MAX as u64, 3));
        assert!(plane.try_next().is_none() && plane.is_waiting());
        // One answer makes space for one query.
        go.send(()).unwrap();
        let Some(OrderResult::Answer(first, answer)) = plane.next() else { panic!("no answer") };
        assert!(first == question(0) && plane.answered(answer).is_none());
        assert!(plane.ask(question(0)) && !plane.ask(question(1)));
        assert_eq!((plane.counts.refused, plane.counts.not_asked), (1, 4));
        drop(go);
    }

    /// A busy directory: reports of dropped answers wait, and no query is sent before them.
    #[test]
    fn what_is_forgotten_waits_for_a_place_and_comes_before_the_next_question() {
        let (go, gate) = channel::<()>();
        let (seen, orders) = channel();
        let work = move |order| {
            let _ = gate.recv();
            match order {
                Order::Answer(question) => {
                    let _ = seen.send((false, vec![question]));
                    return Some(OrderResult::Answer(question, None));
                }
                Order::Forget(questions) => {
                    let _ = seen.send((true, questions));
                }
                Order::Change(_) => {}
            }
            None
        };
        let mut plane = Plane::with(work, wake()).unwrap();
        // The thread may have taken one of the reports.
        for n in 0..ORDERS_MAX + 9 {
            plane.forget(vec![question(n)]);
        }
        assert!((8..=9).contains(&plane.forgotten.len()), "{}", plane.forgotten.len());
        assert!(!plane.ask(question(1)) && plane.counts.not_asked == 1, "not before those");
        (0..ORDERS_MAX + 9).for_each(|_| go.send(()).unwrap());
        let mut told = 0;
        while told < ORDERS_MAX {
            told += orders.recv().unwrap().1.len();
        }
        while !plane.ask(question(1)) {
            assert!(plane.counts.not_asked < 1_000_000, "there is a place now");
        }
        go.send(()).unwrap();
        let rest: Vec<(bool, Vec<Question>)> = std::iter::from_fn(|| {
            let next = orders.recv().ok()?;
            Some(next)
        })
        .take_while(|(is_forgotten, _)| *is_forgotten)
        .collect();
        told += rest.iter().map(|(_, questions)| questions.len()).sum::<usize>();
        assert_eq!(told, ORDERS_MAX + 9, "all of it came before the question");
        drop(go);
    }

    #[test]
    fn a_directory_that_has_ended_is_not_asked_and_changes_nothing() {
        let mut plane = Plane::with(|_| panic!("a fault that this test wants"), wake()).unwrap();
        let _ = plane.ask(question(0));
        assert!(plane.next().is_none());
        assert!(plane.change(World::default()).is_err());
        let _ = plane.ask(question(1));
        assert_eq!(plane.counts.not_asked, 1);
    }

    #[test]
    fn an_answer_from_before_a_change_comes_before_it_and_one_from_after_it_after() {
        let (mut plane, rules) = Plane::start(World::default(), "here", wake()).unwrap();
        assert_eq!(rules.sizes(), [0; 3]);
        let _ = plane.ask(question(1));
        plane.change(World::default()).unwrap();
        let _ = plane.ask(question(2));
        assert!(
            matches!(plane.next(), Some(OrderResult::Answer(of, Some(_))) if of == question(1))
        );
        assert!(matches!(plane.next(), Some(OrderResult::Change(delta)) if delta.is_none()));
        assert!(
            matches!(plane.next(), Some(OrderResult::Answer(of, Some(_))) if of == question(2))
        );
    }
}
