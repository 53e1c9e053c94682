//! The part of the cloud that this host needs, as its controller has sent it.
//!
//! ```text
//!   sections --> tables --complete--> file cloud.toml --> card --> acknowledgement
//! ```
//!
//! A part that the card refuses is acknowledged with the reason, and applied again later. The file
//! then has the former content, with which the card starts again.
//!
//! Bounds: those of [`srd_enrol::cloud`]. The pause before a refused part is applied again grows
//! from [`PAUSE_MIN`] to [`PAUSE_MAX`].

use std::time::{Duration, Instant};

use srd_enrol::message::ERROR_CHARACTERS_MAX;
use srd_enrol::{CloudTables, CloudUpdate, FromHost};

use super::state::StateDirectory;
use crate::plane::PlaneHandle;

/// Pause after the first refusal of a part.
const PAUSE_MIN: Duration = Duration::from_secs(2);
/// Longest pause after a refusal of a part.
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// The part of the cloud of this host.
#[derive(Debug, Default)]
pub(super) struct CloudPart {
    tables: CloudTables,
    generation: u64,
    /// Whether the tables are complete, and the card does not use them.
    is_pending: bool,
    /// The text that the card uses; `None`: it uses the text of an earlier process.
    in_force: Option<String>,
    /// The pause after the last refusal of these tables; zero: the card has not refused them.
    pause: Duration,
    /// The end of this pause.
    again_at: Option<Instant>,
}

impl CloudPart {
    /// Takes a section. Returns whether the update is complete.
    ///
    /// # Errors
    /// If the section is not accepted. The next session begins with a snapshot.
    pub(super) fn take(&mut self, section: CloudUpdate) -> Result<bool, String> {
        let CloudUpdate { generation, is_last, .. } = section;
        self.is_pending = false;
        self.end_pause();
        self.tables.take(section)?;
        self.generation = generation;
        self.is_pending = is_last;
        Ok(is_last)
    }

    /// Removes everything.
    pub(super) fn clear(&mut self) {
        self.tables = CloudTables::default();
        self.is_pending = true;
        self.end_pause();
    }

    /// Whether the tables are complete, the card does not use them, and the pause after a refusal
    /// is over.
    pub(super) fn is_pending(&self) -> bool {
        self.is_due(Instant::now())
    }

    fn is_due(&self, now: Instant) -> bool {
        self.is_pending && self.again_at.is_none_or(|at| at <= now)
    }

    /// Begins the pause after a refusal.
    fn begin_pause(&mut self, now: Instant) {
        self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        self.again_at = Some(now + self.pause);
    }

    fn end_pause(&mut self) {
        (self.pause, self.again_at) = (Duration::ZERO, None);
    }

    /// Makes the card use the tables. Returns the acknowledgement.
    pub(super) fn apply(&mut self, state: &StateDirectory, plane: &PlaneHandle) -> FromHost {
        let text = self.tables.text();
        let applied = match self.in_force.as_ref() == Some(&text) {
            true => Ok(()),
            false => state.try_cloud(&text, |file| plane.apply_cloud(file)),
        };
        let generation = self.generation;
        match applied {
            Ok(()) => {
                tracing::info!("generation {generation} of the cloud is in force");
                (self.in_force, self.is_pending) = (Some(text), false);
                self.end_pause();
                FromHost::CloudApplied { generation, error: None }
            }
            Err(why) => {
                tracing::error!("generation {generation} of the cloud is not in force: {why}");
                self.begin_pause(Instant::now());
                let error = Some(why.chars().take(ERROR_CHARACTERS_MAX).collect());
                FromHost::CloudApplied { generation, error }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_part_is_applied_again_after_a_pause_that_grows_to_its_bound() {
        let mut part = CloudPart::default();
        part.clear();
        let mut now = Instant::now();
        assert!(part.is_due(now));
        for seconds in [2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            part.begin_pause(now);
            let pause = Duration::from_secs(seconds);
            assert!(!part.is_due(now + pause - Duration::from_millis(1)), "{seconds}");
            now += pause;
            assert!(part.is_due(now), "{seconds}");
        }
        part.begin_pause(now);
        part.clear();
        assert!(part.is_due(now), "other tables do not wait");
    }
}
