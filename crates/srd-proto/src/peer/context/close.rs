//! The end of a context by a Close packet. It carries an acknowledgement of all received packets,
//! so that the peer can complete the datagrams that were delivered, and it ends the context there
//! at once.
//!
//! With protection on, a Close is sealed and has a number like any control packet. So a forged
//! Close does not authenticate, and a replayed Close belongs to a session that does not exist any
//! more. In plain mode a Close carries the greeting. It is accepted only from the peer's IP
//! address, and only with the context numbers of both sides and the peer's epoch. So a forger needs
//! 64 bits more than for a Reset.

use bytes::Bytes;

use crate::crypto::Space;
use crate::event::{DownReason, Status};
use crate::ids::Entropy;
use crate::peer::Peer;
use crate::shared::Shared;
use crate::time::Instant;
use crate::transmit::TransmitBuf;
use crate::wire::ack::AckView;
use crate::wire::greeting::Greeting;
use crate::wire::{FLAG_GREETING, Kind};

/// Number of copies of a Close. They are sent on different paths, because a Close is never
/// retransmitted.
pub(crate) const CLOSES: u8 = 3;
/// Difference between the entropies (path numbers) of two consecutive copies of a Close.
/// Consecutive acknowledgements differ by the same number.
const CLOSE_STRIDE: u16 = 37;

impl Peer {
    /// Whether the peer has a context with us that a Close can end.
    pub(crate) fn may_close(&self, shared: &Shared) -> bool {
        let reachable = self.address.port() != 0 && self.remote_context != 0;
        reachable && (!shared.security.is_on() || self.protected.session.is_some())
    }

    /// Ends all datagrams to this peer. The next packets to the peer are Closes.
    pub(crate) fn begin_close(&mut self, shared: &mut Shared) {
        self.fail_all(Status::Flushed, None, shared);
        // H15: Close
        if self.may_close(shared) {
            self.close_left = CLOSES;
        } else {
            self.forget(shared);
        }
    }

    /// Writes one copy of the Close. After the last copy, the context is removed.
    pub(crate) fn write_close(
        &mut self,
        now: Instant,
        shared: &mut Shared,
        buf: &mut TransmitBuf,
    ) -> Option<Entropy> {
        self.close_left = self.close_left.saturating_sub(1);
        let number = self.next_control_number();
        let start = buf.head_start();
        let greeting = if shared.security.is_on() { 0 } else { FLAG_GREETING };
        let header = self.header(now, Kind::Close, number, greeting);
        self.begin(shared, buf, header);
        if let Some(rx) = self.rx.as_mut() {
            rx.write(shared, &mut buf.bytes);
        }
        let step = u16::from(CLOSES - 1 - self.close_left) * CLOSE_STRIDE;
        let entropy = Entropy((self.control_entropy(now).0 + step) % shared.node.config.paths);
        let done = self.finish(buf, start, Space::Control, number, Bytes::new());
        if self.close_left == 0 || done.is_none() {
            self.close_left = 0;
            self.forget(shared);
        }
        done.map(|()| entropy)
    }

    /// Processes a Close: the peer has ended the context with us.
    pub(crate) fn on_close(
        &mut self,
        now: Instant,
        ack: Option<&AckView<'_>>,
        shared: &mut Shared,
    ) {
        if let Some(ack) = ack {
            self.on_ack(now, ack, None, shared);
        }
        self.close_left = 0;
        self.end(Status::RemoteAbort, DownReason::Closed, shared);
    }

    /// Whether a plain Close with this greeting ends the context of this peer.
    pub(crate) fn is_closed_by(&self, greeting: &Greeting) -> bool {
        let known = self.remote_epoch.is_some_and(|epoch| epoch.0 == greeting.epoch);
        known && self.remote_context == greeting.context
    }
}
