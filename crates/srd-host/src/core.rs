//! One round of work: receive, send, and tell what came to an end.

use std::io;

use srd_efa::Memory;
use srd_efa::layer::{Done, World};
use srd_efa::rdm::Rdm;
use srd_net::{Application, Context, LocalEndpoint, Notice};
use srd_proto::{Delivery, Duration, Event, Instant, Status};

use crate::memory::UserMemory;

/// How long a message waits for others to join it while the application does not look for news:
/// some system calls' time.
const HOLD: Duration = Duration::from_micros(50);
/// Turns of handing over and sending in one round: what is told of one turn may allow another.
const ROUND_TURNS_MAX: usize = 8;

/// What turns the application's operations into datagrams, and back.
pub trait Layer: std::fmt::Debug + Send + 'static {
    /// Judges a datagram.
    fn judge(&mut self, now: Instant, delivery: &Delivery<'_>, memory: &mut dyn Memory) -> Status;

    /// Takes note of something that happened in the transport.
    fn event(&mut self, now: Instant, event: &Event);

    /// Sends on what waits. Returns whether the transport took anything.
    fn pump(&mut self, world: &mut World<'_>) -> bool;

    /// The oldest end of something.
    fn poll(&mut self) -> Option<Done>;

    /// Whether nothing is under way that a peer waits for.
    fn is_quiet(&self) -> bool;

    /// Whether there is anything for [`Layer::pump`] that no event of the transport will tell of.
    fn has_work(&self) -> bool;

    /// Lets messages leave that wait for others to join them.
    fn release_held(&mut self) {}

    /// Whether the last call made nothing that should leave now. Says so once.
    fn take_lazy(&mut self) -> bool {
        false
    }

    /// Whether messages wait for others to join them.
    fn is_holding(&self) -> bool {
        false
    }
}

impl Layer for Rdm {
    fn judge(&mut self, now: Instant, delivery: &Delivery<'_>, memory: &mut dyn Memory) -> Status {
        self.judge(now, delivery, memory)
    }

    fn event(&mut self, now: Instant, event: &Event) {
        self.event(now, event);
    }

    fn pump(&mut self, world: &mut World<'_>) -> bool {
        self.pump(world)
    }

    fn poll(&mut self) -> Option<Done> {
        self.poll()
    }

    fn is_quiet(&self) -> bool {
        self.is_quiet()
    }

    fn has_work(&self) -> bool {
        self.has_work()
    }

    fn release_held(&mut self) {
        self.release_held();
    }

    fn take_lazy(&mut self) -> bool {
        self.take_lazy()
    }

    fn is_holding(&self) -> bool {
        self.is_holding()
    }
}

/// Where the ends of operations go.
pub trait Sink: Send + 'static {
    /// What the operations are asked of.
    type Layer: Layer;

    /// Whether one more can be taken. What cannot is kept, and holds up what comes behind it.
    fn has_room(&mut self) -> bool;

    /// Something came to an end.
    fn done(&mut self, done: Done, layer: &Self::Layer);

    /// Something that a person should know.
    fn notice(&mut self, notice: Notice);

    /// The sockets are lost, and nothing will come to an end any more.
    fn broken(&mut self, error: &io::Error);
}

/// What the lock is around.
#[derive(Debug)]
pub(crate) struct Core<S: Sink> {
    pub(crate) local: LocalEndpoint,
    pub(crate) layer: S::Layer,
    pub(crate) memory: UserMemory,
    pub(crate) sink: S,
    pub(crate) broken: bool,
    /// The last round ended with more to hand over: another is due at once.
    pub(crate) more: bool,
    /// When messages leave that wait for others to join them.
    pub(crate) held_until: Instant,
}

/// What the transport calls during a round.
struct Upcalls<'a, S: Sink> {
    layer: &'a mut S::Layer,
    memory: &'a mut UserMemory,
    sink: &'a mut S,
    /// Whether an event was told: it may have made more to hand over.
    told: bool,
}

impl<S: Sink> Application for Upcalls<'_, S> {
    fn judge(&mut self, now: Instant, delivery: &Delivery<'_>) -> Status {
        self.layer.judge(now, delivery, self.memory)
    }

    /// Whoever judged a datagram good has taken it.
    fn delivered(&mut self, _: &mut Context<'_>, _: Delivery<'_>) {}

    fn event(&mut self, context: &mut Context<'_>, event: Event) {
        self.told = true;
        self.layer.event(context.now(), &event);
    }

    fn notice(&mut self, notice: Notice) {
        self.sink.notice(notice);
    }
}

impl<S: Sink> Core<S> {
    /// When the next round is due.
    pub(crate) fn due(&self) -> Instant {
        match (self.broken, self.more) {
            (true, _) => Instant::FAR_FUTURE,
            (false, true) => Instant::ZERO,
            (false, false) => self.local.due().min(self.held_until),
        }
    }

    /// Does what there is to do now. Returns how many packets arrived.
    pub(crate) fn round(&mut self) -> usize {
        if self.broken {
            return 0;
        }
        self.layer.release_held();
        self.held_until = Instant::FAR_FUTURE;
        let worked = self.receive().and_then(|packets| {
            if packets > 0 || self.is_due() {
                self.send()?;
            }
            Ok(packets)
        });
        let packets = worked.unwrap_or_else(|error| {
            self.lose(&error);
            0
        });
        self.tell();
        packets
    }

    /// Sends what a call has led to, as far as it may.
    pub(crate) fn flush(&mut self) {
        if self.broken {
            return;
        }
        if self.layer.take_lazy() && !self.more {
            self.hold();
        } else if let Err(error) = self.send() {
            self.lose(&error);
        }
        if !self.layer.is_holding() {
            self.held_until = Instant::FAR_FUTURE;
        }
        self.tell();
    }

    /// Whether there may be something to send although nothing has arrived.
    fn is_due(&self) -> bool {
        self.more || self.layer.has_work() || self.local.due() <= self.local.now()
    }

    /// Bounds the wait of messages for others to join.
    fn hold(&mut self) {
        if self.layer.is_holding() && self.held_until == Instant::FAR_FUTURE {
            self.held_until = self.local.now() + HOLD;
        }
    }

    /// Nothing works any more, and the sink is told why, once.
    pub(crate) fn fail(&mut self, error: &io::Error) {
        if !self.broken {
            self.lose(error);
        }
    }

    /// The sockets are lost.
    fn lose(&mut self, error: &io::Error) {
        self.broken = true;
        self.sink.broken(error);
    }

    fn receive(&mut self) -> io::Result<usize> {
        let Self { local, layer, memory, sink, .. } = self;
        local.receive(Instant::ZERO, &mut Upcalls { layer, memory, sink, told: false })
    }

    fn send(&mut self) -> io::Result<()> {
        let Self { local, layer, memory, sink, .. } = self;
        self.more = true;
        for _ in 0..ROUND_TURNS_MAX {
            local.tell(&mut Upcalls { layer, memory, sink, told: false });
            let handed_over = {
                let (endpoint, now) = local.core_mut();
                layer.pump(&mut World { now, endpoint, memory })
            };
            let mut calls = Upcalls { layer, memory, sink, told: false };
            local.transmit(&mut calls)?;
            if !(calls.told || handed_over) {
                self.more = false;
                break;
            }
        }
        Ok(())
    }

    fn tell(&mut self) {
        while self.sink.has_room() {
            let Some(done) = self.layer.poll() else { break };
            self.sink.done(done, &self.layer);
        }
    }
}
