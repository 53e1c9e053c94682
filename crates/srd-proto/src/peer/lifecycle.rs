//! The life of a context: the first packet of a peer, its restart, giving it up.

use super::Peer;
use crate::config::Config;
use crate::error::DropReason;
use crate::event::{Diagnosis, DownReason, Event, Status};
use crate::ids::{Epoch, Qpn};
use crate::node::is_newer_context;
use crate::send_queue::Place;
use crate::shared::Shared;
use crate::time::{Duration, Instant};
use crate::wire::greeting::Greeting;

/// One thing about one peer is reported once in so long.
const DIAGNOSIS_PERIOD: Duration = Duration::from_secs(30);

impl Peer {
    /// A greeting of the peer. A larger epoch means that the peer restarted; a packet with a
    /// smaller one comes from an earlier run. `named`: the packet names our present context.
    pub(crate) fn on_greeting(
        &mut self,
        now: Instant,
        greeting: &Greeting,
        named: bool,
        shared: &mut Shared,
    ) -> Result<(), DropReason> {
        let epoch = Epoch(greeting.epoch);
        match self.remote_epoch {
            // H4
            Some(known) if epoch < known => {
                self.probe_known_run(now, shared);
                return Err(DropReason::StaleEpoch);
            }
            Some(known) if epoch > known => self.restart(now, shared, DownReason::Restarted),
            // It began anew when it learnt of our present context, so all that we sent under
            // this is known to it; only what it sends starts from zero. (If both sides took
            // this for a restart, they could take turns for ever.)
            Some(_) if self.is_newer_context(greeting.context) && named => self.drop_rx(shared),
            Some(_) if self.is_newer_context(greeting.context) => {
                self.restart(now, shared, DownReason::Restarted);
            }
            Some(_) if self.remote_context != 0 && self.remote_context != greeting.context => {
                return Err(DropReason::StaleEpoch);
            }
            Some(_) | None => {}
        }
        self.remote_epoch = Some(epoch);
        self.set_remote_context(greeting.context, shared);
        Ok(())
    }

    /// A greeting of an earlier run: an old packet, or a peer whose clock was set back. The run
    /// that is known is probed; without an answer it is given up, and the other is
    /// accepted.
    pub(crate) fn probe_known_run(&mut self, now: Instant, shared: &Shared) {
        if !self.has_context() {
            return;
        }
        let tx = self.tx(&shared.node.config, now);
        if !tx.silence.is_on() {
            tx.silence.begin(now);
            tx.probe_due = true;
        }
    }

    /// Whether this greeting is of a context that was removed here: the peer must begin another. A
    /// greeting of an earlier run is refused for as long as its packets may be in the network,
    /// since the run that is known may send again.
    pub(crate) fn has_tombstone_of(
        &self,
        greeting: &Greeting,
        now: Instant,
        config: &Config,
    ) -> bool {
        let epoch = Epoch(greeting.epoch);
        let tombstone = self.tombstone.filter(|_| self.remote_epoch.is_none());
        tombstone.is_some_and(|(removed, context)| {
            let earlier = epoch < removed && now.since(self.received_at_last) < config.peer_timeout;
            earlier || epoch == removed && !is_newer_context(greeting.context, context)
        })
    }

    /// Whether the peer has begun its context anew, under the epoch that we know: it has learnt
    /// of our restart and numbers its packets from zero. What it sent before that may have
    /// arrived first.
    fn is_newer_context(&self, context: u32) -> bool {
        self.remote_context != 0 && is_newer_context(context, self.remote_context)
    }

    /// Whether a packet with these low number bits may be on its way to the peer.
    pub(crate) fn has_outstanding(&self, number: u32) -> bool {
        let Some(tx) = &self.tx else { return false };
        let psn = crate::wire::expand(number, tx.sent.next().0);
        tx.sent.record(psn).is_some()
            || tx.probes.iter().any(|p| p.number == number)
            || self.sent_unreliable(number)
    }

    /// Something authentic came from the peer.
    pub(crate) fn on_authentic(&mut self, now: Instant, named_us: bool, shared: &mut Shared) {
        self.received_at_last = now;
        self.first_sent_at = Instant::FAR_FUTURE;
        self.hints = None;
        self.greeted |= named_us;
        if !self.has_received {
            self.has_received = true;
            shared.events.push_back(Event::PeerUp { peer: self.id });
        }
    }

    /// Notes the number that the peer has for our context, also in the endpoint's index.
    pub(crate) fn set_remote_context(&mut self, context: u32, shared: &mut Shared) {
        if context == self.remote_context {
            return;
        }
        let slot = self.id.index();
        shared.contexts.remove(&(self.remote_context, slot));
        self.remote_context = context;
        if context != 0 {
            shared.contexts.insert((context, slot));
        }
    }

    /// Reports what speaks against a session with this peer, each thing once in a while.
    pub(crate) fn diagnose(&mut self, now: Instant, what: Diagnosis, shared: &mut Shared) {
        if self.has_received || shared.events.len() >= shared.node.config.events_max as usize {
            return;
        }
        // S30
        if now >= self.guard.diagnosed_until {
            self.guard.diagnosed_until = now + DIAGNOSIS_PERIOD;
            self.guard.diagnosed = 0;
        }
        if self.guard.diagnosed & what.bit() == 0 {
            self.guard.diagnosed |= what.bit();
            shared.events.push_back(Event::Diagnosis { peer: self.id, what });
        }
    }

    /// The peer has lost its memory of us: what was in flight is undecided and fails; what was
    /// never sent goes to the new run.
    pub(crate) fn restart(&mut self, now: Instant, shared: &mut Shared, reason: DownReason) {
        self.drop_rx(shared);
        let had_received = self.has_received;
        self.renumber(shared);
        self.send_anew(now, shared, had_received.then_some(reason));
    }

    /// This endpoint begins another run, under this context number: the session ends, and what was
    /// in flight with it.
    pub(crate) fn begin_run(&mut self, now: Instant, context: u32, seed: u64, shared: &mut Shared) {
        self.restart(now, shared, DownReason::Restarted);
        (self.local_context, self.seed) = (context, seed);
        (self.epoch_bump, self.openings) = (0, 0);
        self.control_number = 0;
        self.control_window = None;
    }

    /// The peer has removed our context, and has sent a Reset: another one begins. The peer's own
    /// context goes on: if it were taken to be over, it would have to begin another in turn, which
    /// would make us begin another, for ever.
    pub(crate) fn begin_anew(&mut self, now: Instant, shared: &mut Shared) {
        let had_received = self.has_received;
        self.renumber_ours(shared);
        self.send_anew(now, shared, had_received.then_some(DownReason::Restarted));
    }

    /// Our context begins anew: what was sent is undecided and fails, what was not goes to the new
    /// one. `down`: the reason that is reported to the application.
    fn send_anew(&mut self, now: Instant, shared: &mut Shared, down: Option<DownReason>) {
        let refused = self.tx.as_ref().is_some_and(|tx| tx.queue.has_refused());
        let waiting = self.take_unsent(shared);
        if let Some(reason) = down {
            shared.events.push_back(Event::PeerDown { peer: self.id, reason });
        }
        if waiting.is_empty() {
            if refused {
                shared.events.push_back(Event::Writable { peer: self.id });
            }
            return;
        }
        let tx = self.tx(&shared.node.config, now);
        if refused {
            tx.queue.refuse();
        }
        for (id, datagram) in waiting {
            tx.queued_bytes += (datagram.payload.len() + super::DATAGRAM_HEADER_BYTES) as u64;
            // The queue held them before, so it holds them now.
            let _ = tx.queue.push(id, datagram, u32::MAX, u32::MAX);
        }
        tx.arm(&shared.node.config);
        self.notify_writable(shared);
    }

    /// Reports that there is room again, if a send was refused.
    pub(crate) fn notify_writable(&mut self, shared: &mut Shared) {
        let datagrams_max = shared.node.config.send_queue_datagrams_max;
        if self.tx.as_deref_mut().is_some_and(|tx| tx.queue.take_writable(datagrams_max)) {
            shared.events.push_back(Event::Writable { peer: self.id });
        }
    }

    /// Fails everything that was sent, and returns what was not, leaving no sending half.
    fn take_unsent(
        &mut self,
        shared: &mut Shared,
    ) -> alloc::vec::Vec<(crate::ids::DatagramId, crate::event::Datagram)> {
        self.hibernated = None;
        let Some(mut tx) = self.tx.take() else { return alloc::vec::Vec::new() };
        let mut unsent = alloc::vec::Vec::new();
        for slot in tx.queue.slots(None) {
            let held = tx.queue.held(slot);
            // H5. What was never sent goes to the new context, and so does what was certainly not
            // delivered (D14). What has ended (H11) does not.
            if held.first_psn().is_none() && held.rnr_count == 0 && !held.orphan {
                unsent.push((
                    held.id,
                    crate::event::Datagram {
                        src_qpn: held.src_qpn,
                        dst_qpn: held.dst_qpn,
                        imm: held.imm,
                        payload: held.payload.clone(),
                        class: held.class,
                        user: held.user,
                    },
                ));
            } else if let Some((id, user)) = tx.queue.finish(slot) {
                let status = Status::RemoteAbort;
                shared.events.push_back(Event::Completed { peer: self.id, id, user, status });
            }
        }
        unsent.sort_by_key(|(id, _)| *id);
        unsent
    }

    /// The peer has been silent for too long with something outstanding: everything to it
    /// fails, and the next send starts afresh.
    pub(crate) fn give_up(&mut self, now: Instant, shared: &mut Shared) {
        shared.stats.unresponsive_remote_events += 1;
        if self.has_received {
            self.end(Status::UnrespRemote, DownReason::Unresponsive, shared);
            return;
        }
        if self.guard.diagnosed == 0 || now >= self.guard.diagnosed_until {
            self.fail_all(Status::UnreachRemote, None, shared);
            let what = Diagnosis::NothingReceived;
            shared.events.push_back(Event::Diagnosis { peer: self.id, what });
        }
        self.end(Status::UnreachRemote, DownReason::Unreachable, shared);
    }

    /// The context is over: everything outstanding ends with a status, and nothing is kept.
    pub(crate) fn end(&mut self, status: Status, reason: DownReason, shared: &mut Shared) {
        self.fail_all(status, None, shared);
        shared.events.push_back(Event::PeerDown { peer: self.id, reason });
        if self.tx.take().is_some_and(|tx| tx.queue.has_refused()) {
            shared.events.push_back(Event::Writable { peer: self.id });
        }
        self.hibernated = None;
        self.drop_rx(shared);
        // H4
        self.epoch_bump += 1;
        self.renumber(shared);
    }

    /// The receiving half goes, and with it what it was granted.
    pub(crate) fn drop_rx(&mut self, shared: &mut Shared) {
        if let Some(mut rx) = self.rx.take() {
            shared.share.forget(&mut rx.share);
        }
    }

    /// The context is given up, and nothing is reported, since nothing is outstanding.
    pub(crate) fn forget(&mut self, shared: &mut Shared) {
        self.tx = None;
        self.hibernated = None;
        self.drop_rx(shared);
        self.epoch_bump += 1;
        self.renumber(shared);
    }

    /// The context begins anew: another number and another PSN space, so that nothing still in
    /// the network can be taken for what comes next.
    fn renumber(&mut self, shared: &mut Shared) {
        self.renumber_ours(shared);
        if let Some(epoch) = self.remote_epoch {
            self.tombstone = Some((epoch, self.remote_context));
        }
        self.set_remote_context(0, shared);
        self.remote_epoch = None;
        self.control_seen = 0;
        self.protected = super::Protected::default();
    }

    /// Our own number for the context, which the peer does not know yet.
    fn renumber_ours(&mut self, shared: &Shared) {
        // H2
        self.local_context = shared.numbers.next(self.local_context);
        self.greeted = false;
        self.has_received = false;
    }

    /// Ends every datagram, or those of one queue pair, with a status. What has been sent
    /// travels on, so that the peer's windows stay whole; its completion is not reported again.
    pub(crate) fn fail_all(&mut self, status: Status, of: Option<Qpn>, shared: &mut Shared) {
        let Some(tx) = self.tx.as_deref_mut() else { return };
        for slot in tx.queue.slots(of) {
            let bytes = tx.queue.held(slot).payload.len() + super::DATAGRAM_HEADER_BYTES;
            let sent = tx.queue.held(slot).place != Place::Queued;
            // H11. Only a queue pair's datagrams travel on; those of a whole peer are dropped next.
            let travels = sent && of.is_some();
            let ended = match (sent, travels) {
                (_, true) => tx.queue.orphan(slot),
                (true, false) => tx.queue.abandon(slot),
                (false, false) => tx.queue.finish(slot),
            };
            if let Some((id, user)) = ended {
                if !sent {
                    tx.queued_bytes -= bytes as u64;
                }
                shared.events.push_back(Event::Completed { peer: self.id, id, user, status });
            }
        }
        self.notify_writable(shared);
    }
}
