//! Address changes of a peer. Its address changes only after a proof that the peer receives at the
//! new address.
//!
//! An authentic packet that is newer than any earlier packet, and comes from another IP address,
//! causes a **challenge** to that address: a sealed packet with a random token. Until the peer has
//! returned the token, all other packets are sent to the old address. So a packet that was
//! recorded, or overtaken by its own copy from another address, causes one small packet and no
//! change.
//!
//! The address that the application named, the **home** of the peer, is kept when the peer moves to
//! another one. If the peer does not answer, it may be at its home again without having sent a
//! packet: after a restart it has no state of its peers. Therefore a part of the openings and of
//! the tail probes is sent to its home.
//!
//! Bound: one challenge at a time per peer. It is sent again at most every [`PAUSE`], and only
//! after another authentic packet from the new address, which is longer than the challenge.

use alloc::boxed::Box;
use core::net::{IpAddr, SocketAddr};

use bytes::Bytes;

use crate::crypto::Space;
use crate::ids::Entropy;
use crate::peer::Peer;
use crate::shared::Shared;
use crate::time::{Duration, Instant};
use crate::transmit::{PacketMeta, TransmitBuf};
use crate::wire::Kind;
use crate::wire::handshake::Token;

/// Minimum time between two challenges of a peer.
const PAUSE: Duration = Duration::from_millis(10);
/// Time for which an unanswered challenge prevents a challenge to another address of this peer.
const PATIENCE: Duration = Duration::from_millis(250);

/// An address to which the peer may have moved, and our challenge to it.
#[derive(Debug)]
pub(crate) struct Roam {
    pub(crate) to: SocketAddr,
    token: Token,
    /// Whether the challenge is to be sent now.
    pub(crate) due: bool,
    /// Time of the first challenge to this address.
    since: Instant,
    /// Time of the last challenge to this address.
    sent_at: Instant,
}

/// The address that the application named. It is kept here after the peer has moved to another
/// address.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) address: SocketAddr,
    /// Counter by which openings and tail probes take turns between the two addresses.
    turn: u8,
}

/// Highest received PSN plus one, and highest received control number plus one.
pub(crate) type Newest = (u64, u64);

impl Peer {
    /// Returns the highest received PSN and control number, each plus one.
    pub(crate) fn newest(&self) -> Newest {
        (self.rx.as_ref().map_or(0, |rx| rx.received.highest()), self.control_seen)
    }

    /// Processes the source address of a packet that is newer than all packets before it: a new
    /// address is challenged.
    pub(crate) fn came_from(&mut self, now: Instant, meta: &PacketMeta, shared: &mut Shared) {
        let ip = meta.source.ip();
        if self.is_at(ip) {
            self.protected.roam = None;
        } else if self.roams() {
            self.challenge(now, with_port(meta.source, self.address.port()), shared);
        }
    }

    /// Sends a challenge to an address, as a request for a proof that the peer receives there.
    pub(in crate::peer) fn challenge(&mut self, now: Instant, to: SocketAddr, shared: &mut Shared) {
        // H12: A peer that moves
        match self.protected.roam.as_deref_mut() {
            Some(roam) if roam.to == to => {
                if now.since(roam.sent_at) >= PAUSE {
                    (roam.due, roam.sent_at) = (true, now);
                }
            }
            Some(roam) if now.since(roam.since) < PATIENCE => {}
            _ => {
                let token = shared.security.token();
                let roam = Roam { to, token, due: true, since: now, sent_at: now };
                self.protected.roam = Some(Box::new(roam));
            }
        }
    }

    /// Processes the answer to a challenge: if it contains the token of our challenge, the address
    /// of the peer changes to the challenged address.
    pub(crate) fn on_challenge_reply(&mut self, token: Token) {
        if let Some(roam) = self.protected.roam.take_if(|roam| roam.token == token) {
            self.move_to(roam.to);
        }
    }

    /// Changes the peer's address, and remembers the address that the application named.
    pub(in crate::peer) fn move_to(&mut self, to: SocketAddr) {
        let before = core::mem::replace(&mut self.address, to);
        if self.configured && before.port() != 0 && self.home.is_none() {
            self.home = Some(Box::new(Home { address: before, turn: 0 }));
        }
        self.home.take_if(|home| home.address == to);
    }

    /// Whether this is the present IP address of the peer, or the IP address that the application
    /// named.
    pub(crate) fn may_be_at(&self, ip: IpAddr) -> bool {
        let home = self.home.as_ref().is_some_and(|home| same_ip(home.address.ip(), ip));
        home || same_ip(self.address.ip(), ip)
    }

    /// Destination of an opening, if the peer has left the address that the application named. Two
    /// of four openings in a row are sent to each of the two addresses. So each address also gets
    /// openings from the port at which we listen, which are every second opening.
    pub(in crate::peer) fn opening_to(&mut self, begins: bool) -> Option<SocketAddr> {
        // H12a: A peer that moves back
        let home = self.home.as_deref_mut()?;
        home.turn = home.turn.wrapping_add(u8::from(begins));
        Some(if home.turn & 2 == 0 { self.address } else { home.address })
    }

    /// Destination of a tail probe, if the peer has left the address that the application named and
    /// a tail probe was not answered. The two addresses take turns.
    pub(in crate::peer) fn tail_probe_to(&mut self) -> Option<SocketAddr> {
        // H12a: A peer that moves back
        let unanswered = self.tx.as_ref().is_some_and(|tx| tx.probe_backoff > 1);
        let home = self.home.as_deref_mut().filter(|_| unanswered)?;
        home.turn = home.turn.wrapping_add(1);
        Some(if home.turn & 1 == 0 { self.address } else { home.address })
    }

    /// Sends a tail probe after the peer's address has changed: packets in flight were sent to the
    /// former address.
    pub(crate) fn on_moved(&mut self, shared: &mut Shared) {
        shared.stats.address_moves += 1;
        if let Some(tx) = self.tx.as_deref_mut()
            && tx.has_work()
        {
            tx.probe_due = true;
            tx.probe_backoff = 0;
            tx.rto_backoff = 0;
            tx.arm(&shared.node.config);
        }
    }

    pub(in crate::peer) fn write_challenge(
        &mut self,
        now: Instant,
        shared: &mut Shared,
        buf: &mut TransmitBuf,
    ) -> Option<Entropy> {
        let roam = self.protected.roam.as_deref_mut()?;
        roam.due = false;
        let token = roam.token;
        shared.stats.challenge_pkts += 1;
        self.write_token(now, shared, buf, Kind::Challenge, token)
    }

    pub(in crate::peer) fn write_challenge_reply(
        &mut self,
        now: Instant,
        shared: &mut Shared,
        buf: &mut TransmitBuf,
    ) -> Option<Entropy> {
        let token = self.protected.echo.take()?;
        self.write_token(now, shared, buf, Kind::ChallengeReply, token)
    }

    fn write_token(
        &mut self,
        now: Instant,
        shared: &mut Shared,
        buf: &mut TransmitBuf,
        kind: Kind,
        token: Token,
    ) -> Option<Entropy> {
        let number = self.next_control_number();
        let start = buf.head_start();
        let header = self.header(now, kind, number, 0);
        self.begin(shared, buf, header);
        buf.bytes.extend_from_slice(&token);
        self.finish(buf, start, Space::Control, number, Bytes::new())?;
        Some(self.control_entropy(now))
    }

    /// Entropy for a control packet that is not used for measurement.
    pub(in crate::peer) fn control_entropy(&mut self, now: Instant) -> Entropy {
        self.tx.as_deref_mut().map_or(Entropy(0), |tx| {
            let fresh = tx.fresh();
            let path = tx.paths.pick_safe(now, fresh);
            tx.paths.entropy(path)
        })
    }
}

/// Whether two addresses are equal, if an IPv4-mapped IPv6 address counts as the IPv4 address.
pub(crate) fn same_ip(a: IpAddr, b: IpAddr) -> bool {
    a.to_canonical() == b.to_canonical()
}

/// Returns an address with another port. The scope identifier of a link-local address stays: it
/// names the link.
pub(crate) fn with_port(mut at: SocketAddr, port: u16) -> SocketAddr {
    at.set_port(port);
    at
}

/// Returns a link-local address without its scope identifier, if it has one. An application that
/// has bound its endpoint to one link may name peers in this way.
pub(crate) fn without_link(at: SocketAddr) -> Option<SocketAddr> {
    match at {
        SocketAddr::V6(mut v6) if v6.scope_id() != 0 => {
            v6.set_scope_id(0);
            Some(v6.into())
        }
        _ => None,
    }
}
