//! **Decides** the next packet. Writes no bytes and changes nothing.

use super::{DATAGRAM_HEADER_BYTES, Peer, Tx};
use crate::config::Config;
use crate::shared::Shared;
use crate::time::Instant;

/// The packet to be sent next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Plan {
    /// No packet may be sent now.
    Nothing,
    /// The opening of a session.
    Hello,
    /// The answer to the peer's opening.
    HelloReply,
    /// A Close, which ends the context.
    Close,
    /// A challenge to an address to which the peer may have moved.
    Challenge,
    /// The answer to the peer's challenge.
    ChallengeReply,
    /// An acknowledgement.
    Ack,
    /// A probe of the path for which one is due.
    PathProbe,
    /// A probe of a packet size (path MTU).
    MtuProbe,
    /// A tail probe.
    TailProbe,
    /// A batch of unreliable datagrams that wait.
    Unreliable,
    /// Data, beginning with the datagram in this slot of the send queue.
    Data(u32),
}

/// Reason why no data may be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Blocked {
    /// The queue is empty.
    Empty,
    /// The PSN window, the congestion window or the credit limit allows no more data.
    Window,
    /// The pacer, or the pause after repeated losses, delays data until this time.
    Until(Instant),
}

impl Peer {
    /// Decides which packet to send next.
    pub(crate) fn plan(&self, now: Instant, shared: &Shared) -> Plan {
        let config = &shared.node.config;
        if self.close_left > 0 {
            return Plan::Close;
        }
        if config.protection.is_on() {
            if self.protected.answer_due() {
                return Plan::HelloReply;
            }
            let due = self.protected.hello_at() <= now || self.control_paths.has_left();
            if self.wants_session() && due {
                return Plan::Hello;
            }
            if self.protected.session.is_none() {
                return Plan::Nothing;
            }
            if self.protected.echo.is_some() {
                return Plan::ChallengeReply;
            }
            if self.protected.roam.as_ref().is_some_and(|roam| roam.due) {
                return Plan::Challenge;
            }
        }
        let ack_due = self.rx.as_ref().is_some_and(|rx| rx.ack_is_due(now));
        if ack_due && !(shared.link_open() && self.ack_rides(now, config)) {
            return Plan::Ack;
        }
        let Some(tx) = &self.tx else { return Plan::Nothing };
        if tx.probe_due {
            return Plan::TailProbe;
        }
        if tx.paths.probe_due() <= now && self.remote_context != 0 {
            return Plan::PathProbe;
        }
        if self.mtu_probe_at() <= now {
            return Plan::MtuProbe;
        }
        if !tx.unreliable.is_empty() {
            return Plan::Unreliable;
        }
        if !shared.link_open() {
            return Plan::Nothing;
        }
        tx.plan_data(now, config).map_or(Plan::Nothing, Plan::Data)
    }

    /// Whether only egress pacing delays the next datagram.
    pub(crate) fn is_held_by_link(&self, now: Instant, shared: &Shared) -> bool {
        let session = !shared.node.config.protection.is_on() || self.protected.session.is_some();
        let tx = self.tx.as_ref().filter(|_| session && !shared.link_open());
        tx.is_some_and(|tx| tx.plan_data(now, &shared.node.config).is_ok())
    }
}

impl Peer {
    /// Whether the next datagram may leave now and will carry the acknowledgement that is due.
    fn ack_rides(&self, now: Instant, config: &Config) -> bool {
        let Some(tx) = &self.tx else { return false };
        let next = tx.plan_data(now, config);
        next.is_ok_and(|slot| self.carries_ack(tx.queue.held(slot).payload.len(), config))
    }

    /// Whether a session has to be opened, because there is something to send, or because the peer
    /// has lost the present session.
    pub(crate) fn wants_session(&self) -> bool {
        let reachable = self.address.port() != 0;
        // A session that the peer has lost is still used for sending, so the queue may be empty.
        let goes_on = self.protected.reopens();
        reachable
            && self.protected.must_open()
            && self.tx.as_ref().is_some_and(|tx| goes_on || tx.has_work())
    }
}

impl Tx {
    /// Whether a datagram waits or is in flight.
    pub(crate) fn has_work(&self) -> bool {
        self.queue.len() > 0 || !self.unreliable.is_empty()
    }

    /// Returns the next datagram, or the reason why no data may be sent.
    pub(crate) fn plan_data(&self, now: Instant, config: &Config) -> Result<u32, Blocked> {
        let slot = self.queue.peek().ok_or(Blocked::Empty)?;
        let bytes = (self.queue.held(slot).payload.len() + DATAGRAM_HEADER_BYTES) as u64;
        if self.is_exhausted(config) {
            return Err(Blocked::Window);
        }
        let in_flight = self.sent.in_flight_bytes();
        if in_flight > 0 && in_flight + bytes > self.window.bytes() {
            return Err(Blocked::Window);
        }
        // R4: Sender below its limit
        if self.credit_limited && self.settled_bytes + in_flight + bytes > self.credit_limit {
            return Err(Blocked::Window);
        }
        let again_at = self.queue.held(slot).first_psn().map_or(Instant::ZERO, |_| self.again_at);
        let departure = self.pacer.next_departure().max(again_at);
        if departure > now {
            return Err(Blocked::Until(departure));
        }
        Ok(slot)
    }
}
