//! Devices that another program of this machine, or of an instance, has deleted: the card goes on
//! without them, says so, and makes them again.
//!
//! A device is made again after [`PAUSE_MIN`]; the pause doubles up to [`PAUSE_MAX`] when that
//! fails, and when the device is deleted again soon, so that a guest which deletes its device in a
//! loop costs little. The work is done on another thread ([`crate::maker`]).
//!
//! Bound: one loss for each device; [`DEVICES_AT_ONCE`] are made again at the same time.

use std::collections::BTreeMap;
use std::io;

use anyhow::Result;
use srd_card::vpc::PortId;
use srd_net::Tun;
use srd_proto::time::{Duration, Instant};

use crate::devices::close;
use crate::edge::{self, Device as EdgeDevice};
use crate::maker::{Again, DEVICES_AT_ONCE};
use crate::port::Port;
use crate::state::{Running, Service};
use crate::world::Vpc;

const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Which device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Which {
    /// That of the internet's side.
    Edge,
    /// That of an interface.
    Of(PortId),
}

/// Where a device is on its way back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// It is made again at this time.
    Waits(Instant),
    /// It is being made.
    Making,
    /// It is there again, since this time: a loss soon after is the same trouble.
    Back(Instant),
}

/// A device that was lost.
struct Loss {
    /// What is made for another loss is not for this one.
    number: u64,
    stage: Stage,
    pause: Duration,
    /// Why it could not be made again, as the log has it.
    failed: Option<String>,
    /// The device as it was, without its queues.
    port: Option<Port>,
}

/// The devices that were lost.
#[derive(Default)]
pub(crate) struct Gone {
    losses: BTreeMap<Which, Loss>,
    number: u64,
}

impl Gone {
    /// A device is lost. Returns the pause before it is made again.
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

    /// Devices that are to be made now, with the numbers of their losses.
    fn due(&mut self, now: Instant) -> Vec<(Which, u64)> {
        let making = self.losses.values().filter(|loss| loss.stage == Stage::Making).count();
        let due = self.losses.iter_mut();
        let due = due.filter(|(_, loss)| matches!(loss.stage, Stage::Waits(at) if at <= now));
        let begin = |(which, loss): (&Which, &mut Loss)| {
            loss.stage = Stage::Making;
            (*which, loss.number)
        };
        due.take(DEVICES_AT_ONCE.saturating_sub(making)).map(begin).collect()
    }

    /// It could not be made. Returns what is new to say.
    fn fail(&mut self, now: Instant, which: Which, why: String) -> Option<String> {
        let loss = self.losses.get_mut(&which)?;
        loss.pause = loss.pause.times(2).min(PAUSE_MAX);
        loss.stage = Stage::Waits(now + loss.pause);
        let is_new = loss.failed.as_ref() != Some(&why);
        loss.failed = Some(why.clone());
        is_new.then_some(why)
    }

    /// It is there again. Returns the device as it was.
    fn found(&mut self, now: Instant, which: Which) -> Option<Port> {
        let loss = self.losses.get_mut(&which)?;
        (loss.stage, loss.failed) = (Stage::Back(now), None);
        loss.port.take()
    }

    /// The device that a loss with this number is of.
    fn which(&self, number: u64) -> Option<Which> {
        let mut losses = self.losses.iter();
        losses.find(|(_, loss)| loss.number == number).map(|(which, _)| *which)
    }

    /// An interface is gone.
    pub(crate) fn forget(&mut self, port: PortId) {
        self.losses.remove(&Which::Of(port));
    }

    /// Why a device is not there, for people; none if it is.
    pub(crate) fn why(&self, which: Which) -> Option<String> {
        let loss = self.losses.get(&which)?;
        if matches!(loss.stage, Stage::Back(_)) {
            return None;
        }
        let failed = loss.failed.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        Some(format!("deleted, and being made again{failed}"))
    }
}

impl Service {
    /// The device of the internet's side is gone.
    pub(crate) fn lose_edge(&mut self, now: Instant, error: &io::Error) {
        if let Some(edge) = &mut self.gateways.edge {
            edge.lose();
            let pause = self.gone.lose(now, Which::Edge, None);
            tracing::warn!(
                "{} was deleted ({error}): no packet passes between instances and the internet's \
                 side until it is made again, in {} s",
                edge::DEVICE,
                pause.as_nanos() / 1_000_000_000
            );
        }
    }

    /// The device of an interface is gone.
    pub(crate) fn lose_device(&mut self, now: Instant, port: PortId, error: &io::Error) {
        let mut device = self.devices.remove(&port);
        self.held.remove(&port);
        // The queues are closed: they would be ready for ever.
        if let Some(kernel) = device.as_mut().and_then(Port::kernel_mut) {
            close(kernel.set_queues(Vec::new(), 0));
        }
        let Some((name, running)) = self.guests.of_port(port) else { return };
        let (_, _, of) = running.at(port);
        let pause = self.gone.lose(now, Which::Of(port), device);
        tracing::warn!(
            "the device {} of the instance `{name}` was deleted ({error}): it is made again in \
             {} s",
            of.name,
            pause.as_nanos() / 1_000_000_000
        );
    }

    /// Makes devices again whose time has come.
    pub(crate) fn make_again(&mut self, now: Instant) {
        for (which, number) in self.gone.due(now) {
            let asked = match which {
                Which::Edge => self.maker.make_edge(number, Vpc::publics(&self.world)),
                Which::Of(port) => match self.again(port, number) {
                    Some(again) => self.maker.make_device(again),
                    None => {
                        self.gone.forget(port);
                        continue;
                    }
                },
            };
            if let Err(error) = asked {
                self.say_failed(now, which, &error);
            }
        }
    }

    /// What is to be made for an interface; none if it has no namespace.
    fn again(&self, port: PortId, loss: u64) -> Option<Again> {
        let (_, running) = self.guests.of_port(port)?;
        let (number, several, device) = running.at(port);
        let inside = running.namespace.as_ref()?.inside().clone();
        let lost = self.gone.losses.get(&Which::Of(port))?.port.as_ref()?;
        let settings = &lost.kernel()?.adapter.settings;
        let (queues, ring) = (settings.queues, settings.tx_ring);
        let (place, device) = ((number, several), device.clone());
        Some(Again { loss, inside, place, device, queues, ring })
    }

    /// The device of the internet's side was made again, or not.
    pub(crate) fn made_edge(&mut self, now: Instant, number: u64, made: Result<EdgeDevice>) {
        if self.gone.which(number) != Some(Which::Edge) {
            return;
        }
        let found = made.and_then(|device| {
            let Some(edge) = &mut self.gateways.edge else { return Ok(()) };
            edge.find(device);
            edge.route(&Vpc::publics(&self.world))
        });
        match found {
            Ok(()) => {
                self.gone.found(now, Which::Edge);
                tracing::info!("{} is there again", edge::DEVICE);
            }
            Err(error) => {
                if let Some(edge) = &mut self.gateways.edge {
                    edge.lose();
                }
                self.say_failed(now, Which::Edge, &error);
            }
        }
    }

    /// A device of an instance was made again, or not.
    pub(crate) fn made_device(&mut self, now: Instant, number: u64, made: Result<Vec<Tun>>) {
        // The interface may be gone meanwhile, and its place another's.
        let Some(which @ Which::Of(port)) = self.gone.which(number) else { return };
        let found = made.and_then(|queues| {
            let Some(mut device) = self.gone.found(now, which) else { return Ok(()) };
            if let Some(kernel) = device.kernel_mut() {
                let count = queues.len();
                close(kernel.set_queues(queues, count));
            }
            self.watch(port, device)
        });
        match found {
            Ok(()) => {
                if let Some((name, running)) = self.guests.of_port(port) {
                    let (_, _, device) = running.at(port);
                    tracing::info!(
                        "the device {} of the instance `{name}` is there again",
                        device.name
                    );
                }
            }
            Err(error) => self.say_failed(now, which, &error),
        }
    }

    fn say_failed(&mut self, now: Instant, which: Which, error: &anyhow::Error) {
        let Some(why) = self.gone.fail(now, which, format!("{error:#}")) else { return };
        let what = match which {
            Which::Edge => String::from(edge::DEVICE),
            Which::Of(port) => match self.guests.of_port(port) {
                Some((name, _)) => format!("a device of the instance `{name}`"),
                None => return,
            },
        };
        tracing::warn!("{what} cannot be made again, which is tried further: {why}");
    }
}

impl Running {
    /// The number of an interface among those of the instance, whether there are others, and its
    /// device.
    fn at(&self, port: PortId) -> (usize, bool, &crate::namespace::Device) {
        let number = self.interfaces.iter().position(|(of, ..)| *of == port).unwrap_or_default();
        (number, self.interfaces.len() > 1, &self.interfaces[number].2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(s: u64) -> Instant {
        Instant::from_nanos(s * 1_000_000_000)
    }

    #[test]
    fn a_device_that_is_deleted_again_and_again_is_made_ever_more_rarely() {
        let mut gone = Gone::default();
        let mut now = at(100);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let pause = gone.lose(now, Which::Edge, None);
            pauses.push(pause.as_nanos() / 1_000_000_000);
            assert!(gone.due(now).is_empty() && gone.why(Which::Edge).is_some());
            now += pause;
            let due = gone.due(now);
            assert_eq!(due.len(), 1);
            assert!(gone.due(now).is_empty(), "it is being made");
            assert_eq!(gone.which(due[0].1), Some(Which::Edge));
            gone.found(now, Which::Edge);
            assert_eq!(gone.why(Which::Edge), None);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        // One that has stood for a while is made at once.
        let later = now + PAUSE_MAX;
        assert_eq!(gone.lose(later, Which::Edge, None), PAUSE_MIN);
    }

    #[test]
    fn a_device_that_cannot_be_made_is_tried_again_and_said_once() {
        let mut gone = Gone::default();
        let pause = gone.lose(at(0), Which::Edge, None);
        let mut now = at(0) + pause;
        let mut said = 0;
        for _ in 0..8 {
            assert_eq!(gone.due(now).len(), 1);
            said += usize::from(gone.fail(now, Which::Edge, String::from("in use")).is_some());
            assert!(gone.why(Which::Edge).unwrap().contains("in use"));
            assert!(gone.due(now).is_empty());
            now += PAUSE_MAX;
        }
        assert_eq!(said, 1);
    }

    #[test]
    fn so_many_devices_are_made_at_once_and_none_for_another_loss() {
        let mut gone = Gone::default();
        for n in 0..DEVICES_AT_ONCE + 5 {
            gone.lose(at(0), Which::Of(PortId(u32::try_from(n).unwrap())), None);
        }
        let due = gone.due(at(1));
        assert_eq!((due.len(), gone.due(at(1)).len()), (DEVICES_AT_ONCE, 0));
        let (which, number) = due[0];
        gone.found(at(1), which);
        assert_eq!(gone.due(at(1)).len(), 1, "a place is free");
        // Lost once more: what was made for the first loss is too late.
        gone.lose(at(2), which, None);
        assert_eq!(gone.which(number), None);
        let Which::Of(port) = which else { panic!() };
        gone.forget(port);
        assert_eq!(gone.why(which), None);
    }
}
