//! The core of a host: the transport with its sockets, and the Messaging Layer above it. One round
//! of work receives packets, sends packets, and reports operations that have ended.

use std::io;

use srd_efa::layer::{Layer, OperationCompletion, World};
use srd_net::{Application, Context, LocalEndpoint, NearIo, Notice};
use srd_proto::{Delivery, Duration, Event, Instant, Status};

use crate::memory::UserMemory;

/// Longest time for which a message waits to share its datagram while the application does not
/// poll: the time of several system calls.
const COALESCE_MAX: Duration = Duration::from_micros(50);
/// Largest number of times that one round handles events and sends. An event that was handled may
/// allow further sends.
const ROUND_TURNS_MAX: usize = 8;

/// Receiver of the completions and notices of a [`crate::Host`].
pub trait Sink: Send + 'static {
    /// Layer that executes the operations.
    type Layer: Layer + ?Sized;

    /// Whether the sink accepts one more completion. If not, completions wait in the host.
    fn has_room(&mut self) -> bool;

    /// Returns the number of completions that the sink has accepted beyond the space that the
    /// application gave it. While there are any, the layer accepts fewer operations.
    fn excess(&mut self) -> usize {
        0
    }

    /// Called when an operation has ended.
    fn done(&mut self, done: OperationCompletion, layer: &Self::Layer);

    /// Called for a condition that the user should be informed of.
    fn notice(&mut self, notice: Notice);

    /// Called when the sockets are lost: no operation will end from now on.
    fn broken(&mut self, error: &io::Error);
}

/// State of a [`crate::Host`] that is protected by the lock of the host.
#[derive(Debug)]
pub(crate) struct Core<S: Sink> {
    pub(crate) local: LocalEndpoint<NearIo>,
    pub(crate) layer: Box<S::Layer>,
    pub(crate) memory: UserMemory,
    pub(crate) sink: S,
    pub(crate) broken: bool,
    /// Whether the last round ended at its limit while more could be sent, so that another round is
    /// due immediately.
    pub(crate) more: bool,
    /// Whether the last round had packets, and has put off everything that is not due. Another
    /// round is due immediately, unless a call sends before.
    pub(crate) put_off: bool,
    /// Time when messages that wait to share a datagram are sent; [`Instant::FAR_FUTURE`] if no
    /// such time is set.
    pub(crate) coalesce_until: Instant,
    /// Excess of the sink ([`Sink::excess`]) that the layer was last notified of.
    pub(crate) excess: usize,
    /// Time when the layer may probe peers for which operations wait.
    pub(crate) probe_at: Instant,
    /// Interval between two times when the layer may probe peers.
    pub(crate) probe_every: Duration,
}

/// Callbacks of the transport during a round.
struct Upcalls<'a, S: Sink> {
    layer: &'a mut S::Layer,
    memory: &'a mut UserMemory,
    sink: &'a mut S,
    /// Whether the transport has reported an event. After an event, the layer may be able to send
    /// more.
    had_events: bool,
}

impl<S: Sink> Application for Upcalls<'_, S> {
    fn admit(&mut self, now: Instant, delivery: &Delivery<'_>) -> Status {
        self.layer.admit(now, delivery, self.memory)
    }

    /// No action: the layer has taken the datagram when it admitted it.
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
    /// Returns the time when the next round is due.
    pub(crate) fn due(&self) -> Instant {
        match (self.broken, self.more || self.put_off) {
            (true, _) => Instant::FAR_FUTURE,
            (false, true) => Instant::ZERO,
            (false, false) => self.local.due().min(self.coalesce_until),
        }
    }

    /// Does all work that is due. Returns the number of packets that arrived.
    pub(crate) fn round(&mut self) -> usize {
        if self.broken {
            return 0;
        }
        // A round without an arrival reads the clock, too: the time of the last poll, and the time
        // for which nothing has arrived, depend on it.
        let now = self.local.look();
        if now >= self.probe_at {
            self.probe(now);
        }
        self.layer.flush_coalesced();
        self.coalesce_until = Instant::FAR_FUTURE;
        let worked = self.receive().and_then(|packets| {
            if packets > 0 && self.may_put_off() {
                self.put_off = true;
            } else if packets > 0 || self.is_due(now) {
                self.send()?;
            }
            Ok(packets)
        });
        self.report();
        worked.unwrap_or_else(|error| {
            self.lose(&error);
            0
        })
    }

    /// Sends the datagrams that a call has queued, as many as possible. Returns whether the time
    /// when the next round is due may have changed.
    pub(crate) fn flush(&mut self) -> bool {
        if self.broken {
            return false;
        }
        let deferred = self.layer.take_deferred() && !self.more;
        let at_once = self.layer.take_at_once() && !self.more;
        let sent = if deferred {
            self.coalesce();
            Ok(())
        } else if at_once {
            self.transmit()
        } else {
            self.send()
        };
        let coalescing = self.layer.is_coalescing();
        if !coalescing {
            self.coalesce_until = Instant::FAR_FUTURE;
        }
        self.report();
        if let Err(error) = sent {
            self.lose(&error);
        }
        coalescing || !deferred
    }

    /// Returns the time when a round is due because operations wait for peers.
    pub(crate) fn probe_due(&self) -> Instant {
        if !self.broken && self.layer.awaits_peers() { self.probe_at } else { Instant::FAR_FUTURE }
    }

    /// Lets the layer probe the peers for which operations wait.
    #[cold]
    fn probe(&mut self, now: Instant) {
        self.probe_at = now + self.probe_every;
        let (local, Upcalls { layer, memory, .. }) = self.parts();
        let (endpoint, now) = local.core_at_last_look();
        layer.probe(&mut World { now, endpoint, memory });
    }

    /// Whether there may be packets to send although no packet has arrived.
    fn is_due(&self, now: Instant) -> bool {
        self.more || self.put_off || self.layer.has_work() || self.local.due() <= now
    }

    /// Passes the events of packets that have arrived to the layer. Returns whether everything else
    /// may wait for the application's next call, which probably sends an answer, or for the next
    /// round: no packet and no timer is due.
    fn may_put_off(&mut self) -> bool {
        let (local, mut upcalls) = self.parts();
        local.hand_out_events(&mut upcalls);
        let now = local.last_look();
        !self.put_off
            && !self.more
            && self.layer.is_idle()
            && self.local.due() > now
            && self.local.core().has_nothing_to_send(now)
    }

    /// Limits the time for which messages wait to share a datagram.
    fn coalesce(&mut self) {
        if self.layer.is_coalescing() && self.coalesce_until == Instant::FAR_FUTURE {
            self.coalesce_until = self.local.last_look() + COALESCE_MAX;
        }
    }

    /// Ends the endpoint after the loss of a socket. Notifies the sink of the reason once.
    pub(crate) fn fail(&mut self, error: &io::Error) {
        if !self.broken {
            self.lose(error);
        }
    }

    /// Marks the host as unusable after the loss of the sockets, and notifies the sink. Operations
    /// that have ended before were reported, and nothing is reported afterwards.
    fn lose(&mut self, error: &io::Error) {
        self.broken = true;
        self.sink.broken(error);
    }

    /// Returns the transport and its callbacks.
    fn parts(&mut self) -> (&mut LocalEndpoint<NearIo>, Upcalls<'_, S>) {
        let Self { local, layer, memory, sink, .. } = self;
        (local, Upcalls { layer: &mut **layer, memory, sink, had_events: false })
    }

    fn receive(&mut self) -> io::Result<usize> {
        let (local, mut upcalls) = self.parts();
        local.receive(Instant::ZERO, &mut upcalls)
    }

    /// Sends packets for a call that has passed its message to the transport. Whatever else there
    /// is to do waits for the next round.
    fn transmit(&mut self) -> io::Result<()> {
        self.put_off = false;
        let (local, mut upcalls) = self.parts();
        local.transmit(&mut upcalls)?;
        if upcalls.had_events { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> io::Result<()> {
        self.more = true;
        self.put_off = false;
        for _ in 0..ROUND_TURNS_MAX {
            let (local, mut upcalls) = self.parts();
            local.hand_out_events(&mut upcalls);
            let Upcalls { layer, memory, .. } = upcalls;
            let (endpoint, now) = local.core_at_last_look();
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
        let mut any = self.excess > 0;
        while self.layer.may_have_ended() && self.sink.has_room() {
            let Some(done) = self.layer.poll() else { break };
            self.sink.done(done, &self.layer);
            any = true;
        }
        if any {
            let excess = self.sink.excess();
            if excess != core::mem::replace(&mut self.excess, excess) {
                self.layer.set_unread(excess);
            }
        }
    }
}
