//! Devices that another program of this machine, or of an instance, has deleted: the card continues
//! without them, reports the loss, and makes them again.
//!
//! A device is made again after [`PAUSE_MIN`]. The pause doubles up to [`PAUSE_MAX`] when that
//! fails, and when the device is deleted again soon, so that a guest that deletes its device in a
//! loop costs little. The work is in [`crate::interfaces::remake`] and, on another thread, in
//! [`crate::machine::maker`].
//!
//! Bound: one loss for each device; [`DEVICES_AT_ONCE`] are made again at the same time.

use std::collections::BTreeMap;
use std::sync::Arc;

use srd_card::vpc::PortId;
use srd_proto::time::{Duration, Instant};

use crate::interfaces::port::Port;
use crate::machine::maker::DEVICES_AT_ONCE;

const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// A device that may be deleted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Which {
    /// The device of the internet's side.
    Edge,
    /// The device of an interface.
    Of(PortId),
}

/// Progress of the repair of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The device is created again at this time.
    Waits(Instant),
    /// The helper is creating the device.
    Making,
    /// The device exists again since this time. Another loss soon after this time doubles the
    /// pause.
    Back(Instant),
}

/// A device that was deleted, and the progress of its repair.
struct Loss {
    /// The number of the loss. A device that was created for an earlier loss is discarded.
    number: u64,
    stage: Stage,
    pause: Duration,
    /// Error of the last attempt to create the device, as the log shows it; `None` if no attempt
    /// has failed.
    failed: Option<Arc<str>>,
    /// The state of the device before the loss, without its queues; `None` for the internet's side.
    port: Option<Port>,
}

/// The devices that were deleted, including devices that exist again.
#[derive(Default)]
pub(crate) struct LostDevices {
    losses: BTreeMap<Which, Loss>,
    number: u64,
}

impl LostDevices {
    /// Records that a device was deleted. Returns the pause before it is created again.
    pub(crate) fn lose(&mut self, now: Instant, which: Which, port: Option<Port>) -> Duration {
        self.number += 1;
        let before = self.losses.remove(&which);
        let again = before.filter(|loss| match loss.stage {
            Stage::Back(since) => now.since(since) < PAUSE_MAX,
            Stage::Waits(_) | Stage::Making => true,
        });
        let pause = again.map_or(PAUSE_MIN, |loss| loss.pause.times(2).min(PAUSE_MAX));
        let (number, stage) = (self.number, Stage::Waits(now + pause));
        self.losses.insert(which, Loss { number, stage, pause, failed: None, port });
        pause
    }

    /// Returns the devices whose pause has ended and that are created again now, with the numbers
    /// of their losses.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<(Which, u64)> {
        let making = self.losses.values().filter(|loss| loss.stage == Stage::Making).count();
        let due = self.losses.iter_mut();
        let due = due.filter(|(_, loss)| matches!(loss.stage, Stage::Waits(at) if at <= now));
        let begin = |(which, loss): (&Which, &mut Loss)| {
            loss.stage = Stage::Making;
            (*which, loss.number)
        };
        due.take(DEVICES_AT_ONCE.saturating_sub(making)).map(begin).collect()
    }

    /// Records that the device could not be created. Returns the error if it differs from the error
    /// of the previous attempt.
    pub(crate) fn fail(&mut self, now: Instant, which: Which, why: String) -> Option<String> {
        let loss = self.losses.get_mut(&which)?;
        loss.pause = loss.pause.times(2).min(PAUSE_MAX);
        loss.stage = Stage::Waits(now + loss.pause);
        let is_new = loss.failed.as_deref() != Some(&*why);
        loss.failed = Some(why.as_str().into());
        is_new.then_some(why)
    }

    /// Records that the device exists again. Returns its state before the loss.
    pub(crate) fn found(&mut self, now: Instant, which: Which) -> Option<Port> {
        let loss = self.losses.get_mut(&which)?;
        (loss.stage, loss.failed) = (Stage::Back(now), None);
        loss.port.take()
    }

    /// Keeps the state of a device that exists again but cannot be used, until it is made again
    /// after [`LostDevices::fail`].
    pub(crate) fn keep(&mut self, which: Which, port: Port) {
        if let Some(loss) = self.losses.get_mut(&which) {
            loss.port = Some(port);
        }
    }

    /// Returns the device whose loss has this number.
    pub(crate) fn which(&self, number: u64) -> Option<Which> {
        let mut losses = self.losses.iter();
        losses.find(|(_, loss)| loss.number == number).map(|(which, _)| *which)
    }

    /// Returns the state of an interface's deleted device before the loss.
    pub(crate) fn lost(&self, port: PortId) -> Option<&Port> {
        self.losses.get(&Which::Of(port))?.port.as_ref()
    }

    /// Removes the record of an interface that does not exist any more.
    pub(crate) fn forget(&mut self, port: PortId) {
        self.losses.remove(&Which::Of(port));
    }

    /// Returns `None` if the device exists. If it is missing, returns the error of the last attempt
    /// to create it, if an attempt has failed.
    pub(crate) fn loss(&self, which: Which) -> Option<Option<&Arc<str>>> {
        let loss = self.losses.get(&which).filter(|loss| !matches!(loss.stage, Stage::Back(_)))?;
        Some(loss.failed.as_ref())
    }
}

/// Returns the reason why a device is missing, as text.
pub(crate) fn in_words(failed: Option<&str>) -> String {
    let failed = failed.map_or_else(String::new, |why| format!(": {why}"));
    format!("deleted, and being made again{failed}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(s: u64) -> Instant {
        Instant::from_nanos(s * 1_000_000_000)
    }

    #[test]
    fn a_device_that_is_deleted_again_and_again_is_made_ever_more_rarely() {
        let mut gone = LostDevices::default();
        let mut now = at(100);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let pause = gone.lose(now, Which::Edge, None);
            pauses.push(pause.as_nanos() / 1_000_000_000);
            assert!(gone.due(now).is_empty() && gone.loss(Which::Edge) == Some(None));
            now += pause;
            let due = gone.due(now);
            assert_eq!(due.len(), 1);
            assert!(gone.due(now).is_empty(), "it is being made");
            assert_eq!(gone.which(due[0].1), Some(Which::Edge));
            gone.found(now, Which::Edge);
            assert_eq!(gone.loss(Which::Edge), None);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        // A device that has existed for a while is made again soon.
        let later = now + PAUSE_MAX;
        assert_eq!(gone.lose(later, Which::Edge, None), PAUSE_MIN);
    }

    #[test]
    fn a_device_that_cannot_be_made_is_tried_again_and_said_once() {
        let mut gone = LostDevices::default();
        let pause = gone.lose(at(0), Which::Edge, None);
        let mut now = at(0) + pause;
        let mut said = 0;
        for _ in 0..8 {
            assert_eq!(gone.due(now).len(), 1);
            said += usize::from(gone.fail(now, Which::Edge, String::from("in use")).is_some());
            let failed = gone.loss(Which::Edge).unwrap().map(AsRef::as_ref);
            assert_eq!(in_words(failed), "deleted, and being made again: in use");
            assert!(gone.due(now).is_empty());
            now += PAUSE_MAX;
        }
        assert_eq!(said, 1);
    }

    #[test]
    fn so_many_devices_are_made_at_once_and_none_for_another_loss() {
        let mut gone = LostDevices::default();
        for n in 0..DEVICES_AT_ONCE + 5 {
            gone.lose(at(0), Which::Of(PortId(u32::try_from(n).unwrap())), None);
        }
        let due = gone.due(at(1));
        assert_eq!((due.len(), gone.due(at(1)).len()), (DEVICES_AT_ONCE, 0));
        let (which, number) = due[0];
        gone.found(at(1), which);
        assert_eq!(gone.due(at(1)).len(), 1, "a place is free");
        // The device is deleted once more: the device that was created for the first loss is too
        // late.
        gone.lose(at(2), which, None);
        assert_eq!(gone.which(number), None);
        let Which::Of(port) = which else { panic!() };
        gone.forget(port);
        assert_eq!(gone.loss(which), None);
    }
}
