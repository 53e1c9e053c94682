//! Queries of the card to the directory, and answers and changes from the directory to the card.

use std::time;

use anyhow::{Context, Result};
use srd_net::clock;
use srd_proto::time::Instant;
use srd_vpc::object::World;

use crate::cloud::plane::{ENDED, OrderResult};
use crate::state::Service;

/// Longest time for which a card that hands over to another process waits for answers of the
/// directory.
const SETTLE_WAIT_MAX: time::Duration = time::Duration::from_millis(100);

impl Service {
    /// Passes answers to the card, and the card's queries to the directory.
    pub(crate) fn ask(&mut self, now: Instant) {
        while let Some(said) = self.plane.try_next() {
            self.learn(now, said);
        }
        while let Some(question) = self.card.poll_question() {
            // V15: Queries for locations
            if !self.plane.ask(question) {
                self.card.refuse(now, question);
            }
        }
        self.plane.forget(self.card.take_forgotten());
    }

    fn learn(&mut self, now: Instant, said: OrderResult) {
        let OrderResult::Answer(question, answer) = said else { return };
        let Some(answer) = self.plane.answered(answer) else {
            self.card.refuse(now, question);
            return;
        };
        let mut is_learned = true;
        self.with_card(now, |card, around| {
            is_learned = card.learn(now, answer, around).is_ok() || card.knows(question);
        });
        if !is_learned {
            self.plane.forget(vec![question]);
        }
    }

    /// Puts the rules of another world in force. When this function returns, no packet is admitted
    /// by the rules of the previous world (V4).
    pub(crate) fn follow(&mut self, now: Instant, world: &World) -> Result<()> {
        self.plane.change(world.clone())?;
        loop {
            match self.plane.next().context(ENDED)? {
                OrderResult::Change(delta) => {
                    if let Some(delta) = *delta {
                        self.card.follow_delta(delta);
                    }
                    return Ok(());
                }
                // Answers from before the change are applied before it. // V16
                said => self.learn(now, said),
            }
        }
    }

    /// Waits until the directory has answered open queries, for at most [`SETTLE_WAIT_MAX`].
    /// Packets that wait for an answer cannot be handed over to another process.
    pub(crate) fn settle_questions(&mut self) {
        let until = time::Instant::now() + SETTLE_WAIT_MAX;
        loop {
            self.ask(clock::now());
            let left = until.saturating_duration_since(time::Instant::now());
            if !self.plane.is_waiting() || left.is_zero() {
                return;
            }
            let Ok(said) = self.plane.next_within(left) else { return };
            self.learn(clock::now(), said);
        }
    }
}
