//! The life of a context: its first packet, a restart of the peer, and its end.

use crate::config::Config;
use crate::error::DropReason;
use crate::event::{Diagnosis, DownReason, Event, Status};
use crate::ids::{Epoch, Qpn};
use crate::node::is_newer_context;
use crate::peer::Peer;
use crate::send::send_queue::DatagramState;
use crate::shared::Shared;
use crate::time::{Duration, Instant};
use crate::wire::greeting::Greeting;

/// Period in which one kind of diagnosis of one peer is reported at most once.
const DIAGNOSIS_PERIOD: Duration = Duration::from_secs(30);

impl Peer {
    /// Processes a greeting of the peer. A larger epoch means that the peer restarted; a packet
    /// with a smaller epoch comes from an earlier run. `named`: the packet also names our present
    /// context.
    pub(crate) fn on_greeting(
        &mut self,
        now: Instant,
        greeting: &Greeting,
        named: bool,
        shared: &mut Shared,
    ) -> Result<(), DropReason> {
        let epoch = Epoch(greeting.epoch);
        match self.remote_epoch {
            // H4: Larger epoch at each start
            Some(known) if epoch < known => {
                self.probe_known_run(now, shared);
                return Err(DropReason::StaleEpoch);
            }
            Some(known) if epoch > known => self.restart(now, shared, DownReason::Restarted),
            // When the peer began anew, it had received our present context number. So it has
            // received what we sent under this number, and only its own PSNs start from zero. (If
            // both sides treated this as a restart, they could restart each other for ever.)
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

    /// Processes a greeting of an earlier run of the peer: either an old packet, or a packet of a
    /// peer whose clock was set back. Probes the known run. If the known run does not answer, it is
    /// given up, and then a greeting of the earlier run is accepted.
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

    /// Whether a greeting belongs to a context that was removed here, so that the peer must begin
    /// another context. A greeting of an earlier run is refused as well, as long as its packets may
    /// be in the network.
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

    /// Whether `context` is a newer context of the same run of the peer: the peer has begun anew,
    /// and numbers its packets from zero. Packets of the former context may still arrive.
    fn is_newer_context(&self, context: u32) -> bool {
        self.remote_context != 0 && is_newer_context(context, self.remote_context)
    }

    /// Whether a packet that was sent to the peer, and has a number with these low 32 bits, may be
    /// in flight.
    pub(crate) fn has_outstanding(&self, number: u32) -> bool {
        let Some(tx) = &self.tx else { return false };
        let psn = crate::wire::expand(number, tx.sent.next().0);
        tx.sent.record(psn).is_some()
            || tx.probes.iter().any(|p| p.number == number)
            || self.sent_unreliable(number)
    }

    /// Records an authentic packet of the peer.
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

    /// Sets the context number that the peer has assigned, in this peer and in the endpoint's
    /// index.
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

    /// Reports evidence for the reason why there is no session with this peer, each kind at most
    /// once in [`DIAGNOSIS_PERIOD`].
    pub(crate) fn diagnose(&mut self, now: Instant, what: Diagnosis, shared: &mut Shared) {
        if self.has_received || shared.events.len() >= shared.node.config.events_max as usize {
            return;
        }
        // S30: Reports of failed handshakes
        if now >= self.guard.diagnosed_until {
            self.guard.diagnosed_until = now + DIAGNOSIS_PERIOD;
            self.guard.diagnosed = 0;
        }
        if self.guard.diagnosed & what.bit() == 0 {
            self.guard.diagnosed |= what.bit();
            shared.events.push_back(Event::Diagnosis { peer: self.id, what });
        }
    }

    /// Begins another context, because the peer has lost the present context. Sent datagrams fail,
    /// because it is unknown whether they were delivered; unsent datagrams move to the new context.
    pub(crate) fn restart(&mut self, now: Instant, shared: &mut Shared, reason: DownReason) {
        self.drop_rx(shared);
        let had_received = self.has_received;
        self.renumber(shared);
        self.send_anew(now, shared, had_received.then_some(reason));
    }

    /// Ends the session with the peer, because this endpoint begins another run
    /// ([`crate::Endpoint::reseed`]), and begins a context with the number `context`. Datagrams in
    /// flight fail.
    pub(crate) fn begin_run(&mut self, now: Instant, context: u32, seed: u64, shared: &mut Shared) {
        self.restart(now, shared, DownReason::Restarted);
        (self.local_context, self.seed) = (context, seed);
        (self.epoch_bump, self.openings) = (0, 0);
        self.control_number = 0;
        self.control_window = None;
    }

    /// Begins another context of ours, because the peer sent a Reset for it. The peer's own context
    /// continues. If it ended as well, the peer would have to begin another context, which would
    /// make us begin another context, for ever.
    pub(crate) fn begin_anew(&mut self, now: Instant, shared: &mut Shared) {
        let had_received = self.has_received;
        self.renumber_ours(shared);
        self.send_anew(now, shared, had_received.then_some(DownReason::Restarted));
    }

    /// Begins our context anew: sent datagrams fail, because it is unknown whether they were
    /// delivered; unsent datagrams move to the new context. `down` is the reason that is reported
    /// to the application; `None`: no report.
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
            tx.queued_bytes += (datagram.payload.len() + crate::peer::DATAGRAM_HEADER_BYTES) as u64;
            // The old queue had space for these datagrams, so the new one has space as well.
            let _ = tx.queue.push(id, datagram, u32::MAX, u32::MAX);
        }
        tx.arm(&shared.node.config);
        self.notify_writable(shared);
    }

    /// Reports that the send queue has space again, if a send was refused before.
    pub(crate) fn notify_writable(&mut self, shared: &mut Shared) {
        let datagrams_max = shared.node.config.send_queue_datagrams_max;
        if self.tx.as_deref_mut().is_some_and(|tx| tx.queue.take_writable(datagrams_max)) {
            shared.events.push_back(Event::Writable { peer: self.id });
        }
    }

    /// Fails all sent datagrams and returns the unsent datagrams. Removes the sending half of the
    /// context.
    fn take_unsent(
        &mut self,
        shared: &mut Shared,
    ) -> alloc::vec::Vec<(crate::ids::DatagramId, crate::event::Datagram)> {
        self.hibernated = None;
        let Some(mut tx) = self.tx.take() else { return alloc::vec::Vec::new() };
        let mut unsent = alloc::vec::Vec::new();
        for slot in tx.queue.slots(None) {
            let held = tx.queue.held(slot);
            // H5. Datagrams that were never sent move to the new context, and so do those that were
            // certainly not delivered (D14). Those that have ended (H11) do not.
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

    /// Gives up a peer that was silent for too long while it owed an answer: all datagrams to it
    /// fail, and the next send begins a new context.
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

    /// Ends the context: all its datagrams end with `status`, and no state of the context is kept.
    pub(crate) fn end(&mut self, status: Status, reason: DownReason, shared: &mut Shared) {
        self.fail_all(status, None, shared);
        shared.events.push_back(Event::PeerDown { peer: self.id, reason });
        if self.tx.take().is_some_and(|tx| tx.queue.has_refused()) {
            shared.events.push_back(Event::Writable { peer: self.id });
        }
        self.hibernated = None;
        self.drop_rx(shared);
        // H4: Larger epoch at each start
        self.epoch_bump += 1;
        self.renumber(shared);
    }

    /// Removes the receiving half, and withdraws the credit that was granted to the peer.
    pub(crate) fn drop_rx(&mut self, shared: &mut Shared) {
        if let Some(mut rx) = self.rx.take() {
            shared.share.forget(&mut rx.share);
        }
    }

    /// Removes all state of the context. The application gets no event, because nothing is
    /// outstanding.
    pub(crate) fn forget(&mut self, shared: &mut Shared) {
        self.tx = None;
        self.hibernated = None;
        self.drop_rx(shared);
        self.epoch_bump += 1;
        self.renumber(shared);
    }

    /// Gives the context another number and another PSN space. So packets which are still in the
    /// network cannot be applied to it.
    fn renumber(&mut self, shared: &mut Shared) {
        self.renumber_ours(shared);
        if let Some(epoch) = self.remote_epoch {
            self.tombstone = Some((epoch, self.remote_context));
        }
        self.set_remote_context(0, shared);
        self.remote_epoch = None;
        self.control_seen = 0;
        self.protected = crate::peer::Protected::default();
    }

    /// Assigns another context number of our own. The peer has not received it yet.
    fn renumber_ours(&mut self, shared: &Shared) {
        // H2: No packet opens a plain context
        self.local_context = shared.numbers.next(self.local_context);
        self.greeted = false;
        self.has_received = false;
    }

    /// Ends all datagrams, or only the datagrams of the queue pair `of`, with a status. A sent
    /// datagram of a closed queue pair remains in the transport without another completion, so that
    /// its PSN is settled and the windows of both ends stay complete.
    pub(crate) fn fail_all(&mut self, status: Status, of: Option<Qpn>, shared: &mut Shared) {
        let Some(tx) = self.tx.as_deref_mut() else { return };
        for slot in tx.queue.slots(of) {
            let bytes = tx.queue.held(slot).payload.len() + crate::peer::DATAGRAM_HEADER_BYTES;
            let sent = tx.queue.held(slot).place != DatagramState::Queued;
            // H11. Only datagrams of a queue pair remain in the transport; the caller drops those
            // of a peer next.
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
