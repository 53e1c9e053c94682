//! Instances of Auto Scaling groups, which follow each change of the state.
//!
//! This is the only place where groups start and end instances. It runs after each request and
//! after a start of the server. Each step of a group is one transaction, so that a start that fails
//! leaves nothing behind. If several instances cannot be started together, they are started one by
//! one, and a subnet in which none can be started is replaced by the next one. If no instance can
//! be started, the failure is recorded, and the group waits before it starts another one. If the
//! cause is that this controller has no host for the instance, only this controller waits: hosts
//! may be connected to another one.

use std::collections::BTreeMap;

use super::{ATTEMPTS_MAX, Control, Failure};
use crate::actions::scaling::plan::{self, Extent, RETRY_S, Step};
use crate::actions::scaling::step;
use crate::error::ApiError;
use crate::fleet::NO_HOST;
use crate::state::{Cloud, ScalingGroup};

/// Largest number of steps of a group after one change.
const STEPS_MAX: usize = 3000;

/// Groups for which this controller had no host: account and region, and identifier.
#[derive(Debug, Default)]
pub(super) struct Pauses(BTreeMap<((String, String), String), Pause>);

/// The time before which no instance of a group is started here.
#[derive(Debug)]
struct Pause {
    until: u64,
    /// The group at the begin of the pause. A change of the group ends the pause.
    group: ScalingGroup,
}

impl Pauses {
    fn begin(&mut self, at: &(String, String), group: &ScalingGroup, now: u64) {
        let pause = Pause { until: now + RETRY_S, group: group.clone() };
        self.0.insert((at.clone(), group.id.clone()), pause);
    }

    /// Whether the pause of a group is not over. A clock that was set back does not make the group
    /// wait longer.
    fn lasts(&self, at: &(String, String), group: &ScalingGroup, now: u64) -> bool {
        let pause = self.0.get(&(at.clone(), group.id.clone()));
        pause.is_some_and(|pause| {
            pause.group == *group && (1..=RETRY_S).contains(&pause.until.saturating_sub(now))
        })
    }

    /// Whether a group has a pause, and it is over.
    fn is_over(&self, at: &(String, String), group: &ScalingGroup, now: u64) -> bool {
        let has = self.0.contains_key(&(at.clone(), group.id.clone()));
        has && !self.lasts(at, group, now)
    }

    fn end(&mut self, at: &(String, String), id: &str) {
        self.0.remove(&(at.clone(), id.to_owned()));
    }

    /// Forgets groups that do not exist.
    fn trim(&mut self, cloud: &Cloud) {
        let exists = |(at, id): &((String, String), String)| {
            cloud.regions.get(at).is_some_and(|region| region.scaling_groups.get(id).is_some())
        };
        self.0.retain(|group, _| exists(group));
    }
}

impl Control {
    /// Starts and ends instances of Auto Scaling groups, until each group has the instances that it
    /// shall have. `now` is the time in seconds since 1970. Nothing happens unless the state has
    /// changed, or the pause after a failed start is over.
    pub fn settle(&mut self, now: u64) {
        let all = self.is_unsettled;
        let mut groups = Vec::new();
        self.pauses.trim(&self.cloud);
        for (at, region) in &self.cloud.regions {
            let is_due = |group: &&ScalingGroup| {
                all || (1..=now).contains(&group.retry_at) || self.pauses.is_over(at, group, now)
            };
            let due = region.scaling_groups.iter().filter(is_due);
            groups.extend(due.map(|of| (at.clone(), of.id.clone())));
        }
        let mut has_failed = false;
        for (at, id) in groups {
            if let Err(why) = self.settle_group(&at, &id, now) {
                has_failed = true;
                self.machines.report(&format!("the Auto Scaling group {id} waits: {why}"));
            }
        }
        self.is_unsettled = has_failed;
    }

    /// Takes the steps of one group.
    ///
    /// # Errors
    /// If the store fails. The next request continues.
    fn settle_group(&mut self, at: &(String, String), id: &str, now: u64) -> Result<(), String> {
        let region = self.cloud.regions.get(at);
        let group = region.and_then(|region| region.scaling_groups.get(id));
        let is_paused = group.is_some_and(|group| self.pauses.lasts(at, group, now));
        if !is_paused {
            self.pauses.end(at, id);
        }
        let (mut extent, mut conflicts) = (Extent::All, 0);
        for _ in 0..STEPS_MAX {
            let Some(region) = self.cloud.regions.get_mut(at) else { return Ok(()) };
            region.now = now;
            let Some(group) = region.scaling_groups.get(id) else { return Ok(()) };
            let Some(step) = plan::next(region, group, extent) else { return Ok(()) };
            if is_paused && matches!(step, Step::Launch(_)) {
                return Ok(());
            }
            match self.take_step(at, id, &step) {
                Ok(()) if extent == Extent::All => {}
                Ok(()) => extent = Extent::One(0),
                Err(Failure::Conflict) if conflicts < ATTEMPTS_MAX => {
                    conflicts += 1;
                    self.pause(conflicts);
                    self.follow()?;
                }
                Err(Failure::Conflict) => return Err("other controllers change it".to_owned()),
                Err(Failure::Api(error)) => match self.narrower(at, id, &step, extent) {
                    Some(narrower) => extent = narrower,
                    None => return self.record_failure(at, id, &error, now),
                },
            }
        }
        Err(format!("it has not settled in {STEPS_MAX} steps"))
    }

    /// Takes a step as one transaction. If it fails, nothing has changed.
    fn take_step(&mut self, at: &(String, String), id: &str, step: &Step) -> Result<(), Failure> {
        let taken = step::take(&mut self.cloud, at, id, step).map_err(Failure::Api);
        let taken = taken.and_then(|()| self.commit());
        if taken.is_err() {
            self.recover();
        }
        taken
    }

    /// Returns the next extent after a failed step; `None` if there is no other one.
    fn narrower(
        &self,
        at: &(String, String),
        id: &str,
        step: &Step,
        extent: Extent,
    ) -> Option<Extent> {
        let Step::Launch(_) = step else { return None };
        let next = match extent {
            Extent::All => Extent::One(0),
            Extent::One(number) => Extent::One(number + 1),
        };
        let region = self.cloud.regions.get(at)?;
        let group = region.scaling_groups.get(id)?;
        plan::next(region, group, next).map(|_| next)
    }

    /// Records that a group cannot start an instance.
    fn record_failure(
        &mut self,
        at: &(String, String),
        id: &str,
        error: &ApiError,
        now: u64,
    ) -> Result<(), String> {
        if let Some(region) = self.cloud.regions.get_mut(at) {
            let is_here = error.code == NO_HOST;
            step::fail(region, id, error, if is_here { 0 } else { RETRY_S });
            if let Some(group) = region.scaling_groups.get(id).filter(|_| is_here) {
                self.pauses.begin(at, group, now);
            }
        }
        self.commit().map_err(|failure| {
            self.recover();
            match failure {
                Failure::Api(error) => error.message,
                Failure::Conflict => "other controllers change it".to_owned(),
            }
        })
    }
}
