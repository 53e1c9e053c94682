//! A peer that moves: its address follows it only once the new one has been shown to be its own.
//!
//! An authentic packet that is newer than any before, and comes from another IP address, makes us
//! send a **challenge** there: a sealed packet with a random token. Until the peer has returned the
//! token all other packets go to the old address. So a packet that was recorded, or overtaken by
//! its own copy from elsewhere, draws one small packet and moves nothing.
//!
//! The address that the application named, its **home**, is kept when the peer leaves it: while the
//! peer does not answer, it may have gone back there without sending a packet, as a new run of it
//! does that knows no peer. So a part of the openings and of the tail probes goes there.
//!
//! Bound: one challenge at a time per peer, sent again at most every [`PAUSE`], and each time only
//! because a packet came that is longer than the challenge.

use alloc::boxed::Box;
use core::net::{IpAddr, SocketAddr};

use bytes::Bytes;

use super::Peer;
use crate::crypto::Space;
use crate::ids::Entropy;
use crate::shared::Shared;
use crate::time::{Duration, Instant};
use crate::transmit::{PacketMeta, TransmitBuf};
use crate::wire::Kind;
use crate::wire::handshake::Token;

/// The least time between two challenges of a peer.
const PAUSE: Duration = Duration::from_millis(10);
/// How long a challenge that is not answered keeps another address from being tried.
const PATIENCE: Duration = Duration::from_millis(250);

/// An address that the peer may have moved to.
#[derive(Debug)]
pub(crate) struct Roam {
    pub(crate) to: SocketAddr,
    token: Token,
    /// The challenge is to be sent now.
    pub(crate) due: bool,
    /// When this address was first, and last, challenged.
    since: Instant,
    sent_at: Instant,
}

/// Where the application said that a peer is, once the peer has moved away from there.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) address: SocketAddr,
    /// Which of both addresses is next to be tried.
    turn: u8,
}

/// The highest numbers that have arrived: of data, and of control packets.
pub(crate) type Newest = (u64, u64);

impl Peer {
    /// What the newest packets so far were.
    pub(crate) fn newest(&self) -> Newest {
        (self.rx.as_ref().map_or(0, |rx| rx.received.highest()), self.control_seen)
    }

    /// A packet that is newer than any before it came from this address.
    pub(crate) fn came_from(&mut self, now: Instant, meta: &PacketMeta, shared: &mut Shared) {
        let ip = meta.source.ip();
        if self.is_at(ip) {
            self.protected.roam = None;
        } else if self.roams() {
            self.challenge(now, SocketAddr::new(ip, self.address.port()), shared);
        }
    }

    /// Asks for proof that the peer receives at an address.
    pub(super) fn challenge(&mut self, now: Instant, to: SocketAddr, shared: &mut Shared) {
        // H12
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

    /// The peer returns a token: if it is that of our challenge, the peer is where that went.
    pub(crate) fn on_challenge_reply(&mut self, token: Token) {
        if let Some(roam) = self.protected.roam.take_if(|roam| roam.token == token) {
            self.move_to(roam.to);
        }
    }

    /// The peer is at this address from now on.
    pub(super) fn move_to(&mut self, to: SocketAddr) {
        let before = core::mem::replace(&mut self.address, to);
        if self.configured && before.port() != 0 && self.home.is_none() {
            self.home = Some(Box::new(Home { address: before, turn: 0 }));
        }
        self.home.take_if(|home| home.address == to);
    }

    /// Whether the peer is, or was named, at an IP address.
    pub(crate) fn may_be_at(&self, ip: IpAddr) -> bool {
        let home = self.home.as_ref().is_some_and(|home| same_ip(home.address.ip(), ip));
        home || same_ip(self.address.ip(), ip)
    }

    /// Where an opening goes, if the peer is away from home. Of four in a row two go to either
    /// address: every second one leaves by the port that we listen at, and each address is to get
    /// such ones.
    pub(super) fn opening_to(&mut self, begins: bool) -> Option<SocketAddr> {
        // H12a
        let home = self.home.as_deref_mut()?;
        home.turn = home.turn.wrapping_add(u8::from(begins));
        Some(if home.turn & 2 == 0 { self.address } else { home.address })
    }

    /// Where a tail probe goes, if the peer is away from home and one was not answered: by turns to
    /// either address.
    pub(super) fn tail_probe_to(&mut self) -> Option<SocketAddr> {
        // H12a
        let unanswered = self.tx.as_ref().is_some_and(|tx| tx.probe_backoff > 1);
        let home = self.home.as_deref_mut().filter(|_| unanswered)?;
        home.turn = home.turn.wrapping_add(1);
        Some(if home.turn & 1 == 0 { self.address } else { home.address })
    }

    /// After a move: what was in flight went to where the peer no longer is.
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

    pub(super) fn write_challenge(
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

    pub(super) fn write_challenge_reply(
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

    /// A path for a packet that nothing is measured by.
    pub(super) fn control_entropy(&mut self, now: Instant) -> Entropy {
        self.tx.as_deref_mut().map_or(Entropy(0), |tx| {
            let fresh = tx.fresh();
            let path = tx.paths.pick_safe(now, fresh);
            tx.paths.entropy(path)
        })
    }
}

/// Whether two addresses are one, however they are written.
pub(crate) fn same_ip(a: IpAddr, b: IpAddr) -> bool {
    a.to_canonical() == b.to_canonical()
}
