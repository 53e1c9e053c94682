//! The loop that every use of the core shares: transmit, events, receive, timers.
//!
//! The engine owns the core and the back end, and does one round for each call. The caller chooses
//! the thread and processes deliveries and events. The caller is the driver thread
//! ([`crate::Endpoint`]) or the application itself ([`crate::LocalEndpoint`]).

use std::io;

use srd_proto::time::{Duration, Instant};
use srd_proto::transmit::{PacketRef, Transmit, TransmitBuf};
use srd_proto::{Datagram, DatagramId, Delivery, Event, PeerId, Qpn, SendError, Status};

use crate::back_ends::io::{BATCH_BYTES_MAX, Notice, PacketIo, Undelivered, Wait};
use crate::clock;
use crate::copies::{Copies, Finding};

/// Largest number of batches that are sent before the engine receives again.
const ROUND_BATCHES_MAX: usize = 8;
/// Largest number of repetitions of sending and handing out events in one round. Without this
/// limit, an application that answers every event with a send would delay arrivals.
const ROUND_TURNS_MAX: usize = 4;
/// Lateness of a timer from which on packets are received before the timer runs. If a timer is this
/// late, the thread was not running for a while, and the acknowledgements that the timer waits for
/// may already be in the socket.
const STALL: Duration = Duration::from_millis(5);
/// Largest number of receive calls before a timer runs that is delayed by more than [`STALL`].
/// Emptying a full receive buffer takes fewer calls.
const STALL_RECEIVES_MAX: usize = 1024;
/// Longest time for which an endpoint that ends tries to send a Close packet to each peer.
const CLOSES_TIME_MAX: Duration = Duration::from_millis(50);
/// Time until a full socket is tried again, for a caller that does not wait until the socket is
/// writable.
const BLOCKED_RETRY: Duration = Duration::from_micros(200);

/// Callbacks of an application. They run on the thread that drives the endpoint, and can send
/// immediately through `context`.
pub trait Application {
    /// Returns the status for a new datagram: `Status::Ok` accepts the datagram, another status
    /// refuses it ([`srd_proto::Endpoint::handle_packet_with`]). The default accepts each datagram.
    fn admit(&mut self, now: Instant, delivery: &Delivery<'_>) -> Status {
        let _ = (now, delivery);
        Status::Ok
    }

    /// Called when a datagram has arrived. The payload is valid until this call returns.
    fn delivered(&mut self, context: &mut Context<'_>, delivery: Delivery<'_>);

    /// Called for every event of the core except the arrival of a datagram.
    fn event(&mut self, context: &mut Context<'_>, event: Event) {
        let _ = (context, event);
    }

    /// Called for a condition of the back end that the user should be informed of. The default logs
    /// it.
    fn notice(&mut self, notice: Notice) {
        tracing::warn!("{notice}");
    }
}

/// Access to the endpoint for an [`Application`] during a callback.
#[derive(Debug)]
pub struct Context<'a> {
    core: &'a mut srd_proto::Endpoint,
    now: Instant,
}

impl Context<'_> {
    /// Returns the current time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Queues a datagram, which is sent after the callback has returned.
    ///
    /// # Errors
    /// As [`srd_proto::Endpoint::send`].
    pub fn send(&mut self, to: PeerId, datagram: Datagram) -> Result<DatagramId, SendError> {
        self.core.send(self.now, to, datagram)
    }

    /// Adds `n` receive buffers to the queue pair `qpn`, if the queue pair counts its buffers.
    pub fn post_receives(&mut self, qpn: Qpn, n: u32) {
        self.core.post_receives(qpn, n);
    }

    /// Returns the protocol core of the endpoint.
    pub fn core(&mut self) -> &mut srd_proto::Endpoint {
        self.core
    }
}

/// Reason why transmitting stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// There is no packet that may be sent now.
    Idle,
    /// There are more packets to send, but arrivals must be received first.
    More,
    /// The send buffer of a socket is full.
    Blocked,
}

/// The core, its back end, and the batch that is passed from the core to the back end.
#[derive(Debug)]
pub(crate) struct Engine<I> {
    core: srd_proto::Endpoint,
    io: I,
    /// A batch that could not be sent because its socket was full.
    waiting: Option<(Transmit, TransmitBuf)>,
    /// The buffer of the next batch; `None` while the batch in `waiting` uses it.
    spare: Option<TransmitBuf>,
    /// Time when the clock was last read.
    last_look: Instant,
    /// Reason why transmitting last stopped.
    flow: Flow,
    /// State of the check whether this process may exist twice, as a cloned virtual machine does.
    copies: Copies,
}

impl<I: PacketIo> Engine<I> {
    pub(crate) fn new(mut core: srd_proto::Endpoint, io: I) -> Self {
        core.mix_in(clock::fresh);
        let spare = Some(TransmitBuf::new(io.batch_segments_max(), BATCH_BYTES_MAX));
        let last_look = io.clock().now();
        Self { core, io, waiting: None, spare, last_look, flow: Flow::Idle, copies: Copies::new() }
    }

    pub(crate) fn core(&mut self) -> &mut srd_proto::Endpoint {
        &mut self.core
    }

    pub(crate) fn core_ref(&self) -> &srd_proto::Endpoint {
        &self.core
    }

    pub(crate) fn io(&mut self) -> &mut I {
        &mut self.io
    }

    pub(crate) fn io_ref(&self) -> &I {
        &self.io
    }

    /// Returns the state of the check whether this process may exist twice, as a cloned virtual
    /// machine does.
    pub(crate) fn copies(&mut self) -> &mut Copies {
        &mut self.copies
    }

    pub(crate) fn now(&self) -> Instant {
        self.io.clock().now()
    }

    /// Returns the time when this endpoint last read the clock. This is precise enough to queue a
    /// datagram: its packet gets the time of its departure.
    pub(crate) fn last_look(&self) -> Instant {
        self.last_look
    }

    /// Returns the time when the next round is due, if no packet arrives before;
    /// [`Instant::ZERO`]: immediately.
    pub(crate) fn due(&self) -> Instant {
        match self.flow {
            Flow::More => Instant::ZERO,
            Flow::Idle => self.core.poll_timeout().unwrap_or(Instant::FAR_FUTURE),
            Flow::Blocked => {
                let timer = self.core.poll_timeout().unwrap_or(Instant::FAR_FUTURE);
                timer.min(self.last_look + BLOCKED_RETRY)
            }
        }
    }

    /// Reads the clock.
    pub(crate) fn look(&mut self) -> Instant {
        self.last_look = self.now();
        self.last_look
    }

    /// Does one round: runs timers that are due, sends, hands out events, and receives. If there is
    /// nothing to do, waits until `until`. Returns the number of packets that arrived.
    pub(crate) fn round(
        &mut self,
        until: Instant,
        app: &mut impl Application,
    ) -> io::Result<usize> {
        self.send_and_notify(app)?;
        self.receive(until, app)
    }

    /// Receives packets. If no packet can be sent immediately, waits until a packet arrives, the
    /// next timer is due, or `until` is reached. Returns the number of packets that arrived.
    pub(crate) fn receive(
        &mut self,
        until: Instant,
        app: &mut impl Application,
    ) -> io::Result<usize> {
        let flow = self.flow;
        let wait = match flow {
            Flow::More => Wait::NOT,
            Flow::Idle | Flow::Blocked => {
                let timer = self.core.poll_timeout().unwrap_or(Instant::FAR_FUTURE);
                Wait { until: until.min(timer), writable: flow == Flow::Blocked }
            }
        };
        self.receive_with(wait, app)
    }

    fn receive_with(&mut self, wait: Wait, app: &mut impl Application) -> io::Result<usize> {
        let (core, last_look) = (&mut self.core, &mut self.last_look);
        self.io.receive(wait, |now, meta, bytes| {
            *last_look = now;
            let packet = PacketRef::Whole(bytes);
            let admit = |delivery: &Delivery<'_>| app.admit(now, delivery);
            if let Some(delivery) = core.handle_packet_with(now, meta, packet, admit) {
                app.delivered(&mut Context { core, now }, delivery);
            }
        })
    }

    /// Runs due timers, sends packets as far as possible, and hands out all events.
    pub(crate) fn send_and_notify(&mut self, app: &mut impl Application) -> io::Result<Flow> {
        let before = self.last_look;
        let mut now = self.look();
        if let Some(finding) = self.copies.look(now) {
            self.begin_run(now, finding, app)?;
        }
        if let Some(due) = self.core.poll_timeout().filter(|due| *due <= now) {
            if now.since(due.max(before)) >= STALL {
                self.receive_all(app)?;
                now = self.look();
            }
            self.core.handle_timeout(now);
        }
        while let Some((to, why)) = self.io.take_undelivered(now) {
            if let Undelivered::Unreachable(kind) = why {
                self.core.handle_unreachable(now, to, kind);
            }
        }
        let mut flow = self.transmit(now)?;
        for turn in 1..=ROUND_TURNS_MAX {
            if !self.hand_out_events(app) {
                break;
            }
            let now = self.look();
            flow = self.transmit(now)?;
            if turn == ROUND_TURNS_MAX {
                // There may be more events; receive first, but without waiting.
                flow = Flow::More;
            }
        }
        while let Some(notice) = self.io.take_notice() {
            app.notice(notice);
        }
        self.flow = flow;
        Ok(flow)
    }

    /// Starts another run, because this process may exist twice: no packet may be encrypted with
    /// the current keys from now on. In the child of a fork, no run follows: the sockets are those
    /// of the parent, too.
    #[cold]
    fn begin_run(
        &mut self,
        now: Instant,
        finding: Finding,
        app: &mut impl Application,
    ) -> io::Result<()> {
        let Finding::Copied(why) = finding else {
            let text = "the endpoint belongs to the process that forked this one: open another \
                        after fork";
            return Err(io::Error::other(text));
        };
        let seed = clock::seed()?;
        self.core.reseed(now, clock::epoch(), seed);
        self.forget_waiting();
        app.notice(Notice::Copied(why));
        Ok(())
    }

    /// Changes the static private key, which ends all sessions. Returns false if the
    /// endpoint has no static key.
    #[cold]
    pub(crate) fn rekey(&mut self, private: [u8; 32]) -> bool {
        let now = self.look();
        let is_changed = self.core.rekey(now, clock::epoch(), private);
        if is_changed {
            self.forget_waiting();
        }
        is_changed
    }

    /// Drops the batch that waits for its socket: its packets are of sessions that have ended.
    fn forget_waiting(&mut self) {
        if let Some((_, mut buf)) = self.waiting.take() {
            buf.clear();
            self.spare = Some(buf);
        }
    }

    /// Receives all packets that have arrived.
    #[cold]
    fn receive_all(&mut self, app: &mut impl Application) -> io::Result<()> {
        for _ in 0..STALL_RECEIVES_MAX {
            if self.receive_with(Wait::NOT, app)? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Sends the Close packets of a core that was closed. If a socket is full, tries again for at
    /// most [`CLOSES_TIME_MAX`].
    pub(crate) fn send_closes(&mut self, app: &mut impl Application) -> io::Result<()> {
        let deadline = self.now() + CLOSES_TIME_MAX;
        while self.send_and_notify(app)? != Flow::Idle && self.last_look < deadline {
            if self.flow == Flow::Blocked {
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        }
        Ok(())
    }

    /// Passes every waiting event of the core to the application. Returns whether there was one.
    pub(crate) fn hand_out_events(&mut self, app: &mut impl Application) -> bool {
        let mut any = false;
        let now = self.last_look;
        while let Some(event) = self.core.poll_event() {
            any = true;
            app.event(&mut Context { core: &mut self.core, now }, event);
        }
        any
    }

    /// Sends each batch as soon as it is built: the first batch must not wait until the core has
    /// built the second.
    fn transmit(&mut self, now: Instant) -> io::Result<Flow> {
        let mut now = now;
        for _ in 0..ROUND_BATCHES_MAX {
            let Some(batch) = self.waiting.take().or_else(|| self.build(now)) else {
                return Ok(Flow::Idle);
            };
            let sent = self.io.send(std::slice::from_ref(&batch));
            if !matches!(sent, Ok(crate::back_ends::io::SendOutcome::All)) {
                let (transmit, mut buf) = batch;
                buf.own_payloads();
                self.waiting = Some((transmit, buf));
                return sent.map(|_| Flow::Blocked);
            }
            let (_, mut buf) = batch;
            // Releases the payloads now, not when the buffer is used again.
            buf.clear();
            self.spare = Some(buf);
            // Packets carry the time of their departure, so the clock is read for each batch.
            now = self.look();
        }
        Ok(Flow::More)
    }

    fn build(&mut self, now: Instant) -> Option<(Transmit, TransmitBuf)> {
        let mut buf = self.spare.take()?;
        match self.core.poll_transmit(now, &mut buf) {
            Some(transmit) => Some((transmit, buf)),
            None => {
                self.spare = Some(buf);
                None
            }
        }
    }
}
