//! One round of work: receive, send, and report what came to an end.

use std::io;

use srd_efa::layer::{Layer, OperationCompletion, World};
use srd_net::{Application, Context, LocalEndpoint, NearIo, Notice};
use srd_proto::{Delivery, Duration, Event, Instant, Status};

use crate::memory::UserMemory;

/// Longest wait of a message for others to share its datagram while the application does not
/// poll: the time of some system calls.
const COALESCE_MAX: Duration = Duration::from_micros(50);
/// Turns of handing over and sending in one round: an event of one turn may allow another.
const ROUND_TURNS_MAX: usize = 8;

/// Receiver of completions.
pub trait Sink: Send + 'static {
    /// The layer that executes the operations.
    type Layer: Layer + ?Sized;

    /// Whether one more can be taken. What cannot is kept, and holds up what comes behind it.
    fn has_room(&mut self) -> bool;

    /// Something came to an end.
    fn done(&mut self, done: OperationCompletion, layer: &Self::Layer);

    /// A condition that the user should be informed of.
    fn notice(&mut self, notice: Notice);

    /// The sockets are lost, and nothing will come to an end any more.
    fn broken(&mut self, error: &io::Error);
}

/// The state behind the lock.
#[derive(Debug)]
pub(crate) struct Core<S: Sink> {
    pub(crate) local: LocalEndpoint<NearIo>,
    pub(crate) layer: Box<S::Layer>,
    pub(crate) memory: UserMemory,
    pub(crate) sink: S,
    pub(crate) broken: bool,
    /// The last round ended with more to hand over: another is due at once.
    pub(crate) more: bool,
    /// Time when messages leave that wait for others to join them.
    pub(crate) coalesce_until: Instant,
}

/// Callbacks of the transport during a round.
struct Upcalls<'a, S: Sink> {
    layer: &'a mut S::Layer,
    memory: &'a mut UserMemory,
    sink: &'a mut S,
    /// Whether there was an event: it may have made more to hand over.
    had_events: bool,
}

impl<S: Sink> Application for Upcalls<'_, S> {
    fn admit(&mut self, now: Instant, delivery: &Delivery<'_>) -> Status {
        self.layer.admit(now, delivery, self.memory)
    }

    /// The layer has taken what it judged good.
    fn delivered(&mut self, _: &mut Context<'_>, _: Delivery<'_>) {}

    fn event(&mut self, context: &mut Context<'_>, event: Event) {
        self.had_events = true;
        self.layer.event(context.now(), &event);
    }

    fn notice(&mut self, notice: Notice) {
        self.sink.notice(notice);
    }
}

impl<S: Sink> Core<S> {
    /// Time when the next round is due.
    pub(crate) fn due(&self) -> Instant {
        match (self.broken, self.more) {
            (true, _) => Instant::FAR_FUTURE,
            (false, true) => Instant::ZERO,
            (false, false) => self.local.due().min(self.coalesce_until),
        }
    }

    /// Does what there is to do now. Returns how many packets arrived.
    pub(crate) fn round(&mut self) -> usize {
        if self.broken {
            return 0;
        }
        self.layer.flush_coalesced();
        self.coalesce_until = Instant::FAR_FUTURE;
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
        self.report();
        packets
    }

    /// Sends what a call has led to, as far as it may.
    pub(crate) fn flush(&mut self) {
        if self.broken {
            return;
        }
        if self.layer.take_deferred() && !self.more {
            self.coalesce();
        } else if let Err(error) = self.send() {
            self.lose(&error);
        }
        if !self.layer.is_coalescing() {
            self.coalesce_until = Instant::FAR_FUTURE;
        }
        self.report();
    }

    /// Whether there may be something to send although nothing has arrived.
    fn is_due(&self) -> bool {
        self.more || self.layer.has_work() || self.local.due() <= self.local.now()
    }

    /// Bounds the wait of messages for others to join.
    fn coalesce(&mut self) {
        if self.layer.is_coalescing() && self.coalesce_until == Instant::FAR_FUTURE {
            self.coalesce_until = self.local.now() + COALESCE_MAX;
        }
    }

    /// Ends the endpoint after a lost socket; the sink is notified of the reason, once.
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

    /// The transport, and what it calls.
    fn parts(&mut self) -> (&mut LocalEndpoint<NearIo>, Upcalls<'_, S>) {
        let Self { local, layer, memory, sink, .. } = self;
        (local, Upcalls { layer: &mut **layer, memory, sink, had_events: false })
    }

    fn receive(&mut self) -> io::Result<usize> {
        let (local, mut upcalls) = self.parts();
        local.receive(Instant::ZERO, &mut upcalls)
    }

    fn send(&mut self) -> io::Result<()> {
        self.more = true;
        for _ in 0..ROUND_TURNS_MAX {
            let (local, mut upcalls) = self.parts();
            local.hand_out_events(&mut upcalls);
            let Upcalls { layer, memory, .. } = upcalls;
            let (endpoint, now) = local.core_mut();
            let handed_over = layer.pump(&mut World { now, endpoint, memory });
            let (local, mut upcalls) = self.parts();
            local.transmit(&mut upcalls)?;
            if !(upcalls.had_events || handed_over) {
                self.more = false;
                break;
            }
        }
        Ok(())
    }

    fn report(&mut self) {
        while self.sink.has_room() {
            let Some(done) = self.layer.poll() else { break };
            self.sink.done(done, &self.layer);
        }
    }
}
