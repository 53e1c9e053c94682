//! Handshake with a peer: opening, answer, and the change to the new session.
//!
//! The initiator repeats the same Hello until it is answered. The responder answers a repeated
//! Hello with the same answer, to the source of the Hello. It keeps the new session pending, beside
//! the one in use and beside its own opening, until a packet under the new session authenticates.
//!
//! Bounds: an opening of ours accepts [`COOKIES_MAX`] cookies and processes [`ANSWERS_MAX`]
//! answers. Our answer to an opening of the peer waits for at most [`ANSWERS_AT_ONCE`] addresses at
//! a time.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, SocketAddr};

use super::roam::{Roam, same_ip, with_port, without_link};
use crate::config::Config;
use crate::crypto::{SessionKeys, Space};
use crate::error::DropReason;
use crate::event::{Diagnosis, DownReason};
use crate::ids::Epoch;
use crate::node::is_newer_context;
use crate::peer::{Peer, PeerKeys};
use crate::security::{Opening, Request, Stamp};
use crate::shared::Shared;
use crate::time::{Duration, Instant};
use crate::transmit::PacketMeta;
use crate::wire::greeting::Greeting;
use crate::wire::handshake::{COOKIE_BYTES, Hello, MAC_BYTES, Token, token_of};
use crate::wire::{HEADER_BYTES, Header, Kind, expand};

/// First pause before an unanswered opening is sent again. The pause doubles each time.
const RETRY_FIRST: Duration = Duration::from_millis(5);
/// Time for which our own opening waits while the peer is opening a session.
const HOLD: Duration = Duration::from_millis(20);
/// Minimum time between two waits of our own opening in favour of an opening of the peer: from the
/// end of one wait to the beginning of the next.
const HOLD_PAUSE: Duration = Duration::from_secs(1);
/// Maximum pause before an unanswered opening is sent again.
const RETRY_MAX: Duration = Duration::from_secs(1);
/// Number of cookies that one opening accepts. The opening is sent again with each cookie.
const COOKIES_MAX: u8 = 8;
/// Maximum number of answers to one opening that are processed, because each of them costs the
/// expensive half of a handshake.
const ANSWERS_MAX: u8 = 8;
/// Maximum number of addresses to which one answer waits to be sent at a time.
const ANSWERS_AT_ONCE: usize = 4;
/// Number of unanswered transmissions of our opening after which it gives way to an opening of the
/// peer from another address. Otherwise, if both sides open at once, the opening whose first 32
/// bytes are larger wins (S25).
const YIELDS_AFTER: u8 = 3;
/// Number of earlier openings of the peer that are recognised by their tokens, before they are
/// read.
const FORMER_MAX: usize = 8;
/// Minimum time between two repetitions of an answer to an opening that was recognised without
/// being read.
const REPEAT_PAUSE: Duration = Duration::from_millis(1);

/// State of the sessions and handshakes with a peer, if protection is on.
#[derive(Default)]
pub(crate) struct Protected {
    /// The session in use.
    pub session: Option<Box<SessionKeys>>,
    /// Session that the peer has opened and in which it has sent no packet yet.
    pending: Option<Box<Pending>>,
    /// Our own unanswered opening. It stays while a session of the peer is pending, because the
    /// peer's opening may be a replay.
    opening: Option<Box<OurOpening>>,
    /// The last opening that we answered, and its answer.
    answered: Option<Box<Answered>>,
    /// Time until which our own opening waits, because the peer is opening a session, or because
    /// our last attempt to create an opening failed.
    hold_until: Instant,
    /// Whether another session is to be opened, because a Reset reports that the peer has lost the
    /// present session.
    pub reopen: bool,
    /// Address to which the peer may have moved, and the challenge to that address.
    pub roam: Option<Box<Roam>>,
    /// Token of the peer's challenge, which is to be returned to the peer.
    pub echo: Option<Token>,
}

struct Pending {
    keys: Box<SessionKeys>,
    context: u32,
    remote: Greeting,
}

struct OurOpening {
    state: Opening,
    message: Vec<u8>,
    retry_at: Instant,
    interval: Duration,
    /// Number of times that the opening was sent because its pause had ended.
    rounds: u8,
    /// Number of further cookies that this opening accepts.
    cookies_left: u8,
    /// Number of further answers to this opening that are processed.
    answers_left: u8,
}

/// An opening of the peer that we have answered.
struct Answered {
    /// First bytes of the opening. If an opening with these bytes arrives again, it gets the same
    /// answer.
    id: [u8; 32],
    /// Tokens of earlier openings that we have answered. An opening with one of these tokens is a
    /// replay, and is not read.
    former: [Token; FORMER_MAX],
    stamp: Stamp,
    answer: Vec<u8>,
    /// Context number that the opening named: the peer's.
    context: u32,
    /// Port at which the peer listens.
    port: u16,
    /// Addresses to which the answer is still to be sent.
    to: Vec<SocketAddr>,
    /// Address to which the answer was first sent.
    first_to: SocketAddr,
    /// Whether the answer was sent to other addresses as well.
    several: bool,
    /// Time when the answer was created.
    made_at: Instant,
    /// Time from which the answer is sent again without further checks, if a copy of the opening
    /// arrives from the peer's own IP address.
    again_at: Instant,
}

impl Answered {
    /// Adds `to` to the destinations of the answer.
    fn send_to(&mut self, to: SocketAddr) {
        self.several |= to != self.first_to;
        if !self.to.contains(&to) && self.to.len() < ANSWERS_AT_ONCE {
            self.to.push(to);
        }
    }
}

impl fmt::Debug for Protected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (session, pending) = (self.session.is_some(), self.pending.is_some());
        f.debug_struct("Protected").field("session", &session).field("pending", &pending).finish()
    }
}

impl Protected {
    /// Whether a session must be opened, because there is no session or the peer has lost it.
    pub(crate) fn must_open(&self) -> bool {
        self.session.is_none() || self.reopen
    }

    /// Whether our opening for a new session is in progress, because the peer has lost the present
    /// session.
    pub(crate) fn reopens(&self) -> bool {
        self.reopen && self.opening.is_some()
    }

    /// Time when a Hello is due: the first Hello or a repetition.
    pub(crate) fn hello_at(&self) -> Instant {
        self.opening.as_ref().map_or(self.hold_until, |o| o.retry_at.max(self.hold_until))
    }

    /// Whether an answer is due.
    pub(crate) fn answer_due(&self) -> bool {
        self.answered.as_ref().is_some_and(|a| !a.to.is_empty())
    }

    /// Takes the next answer: its destination, the peer's context number, the token and the
    /// message. `keep`: the answer will be sent to this destination once more.
    pub(crate) fn take_answer(&mut self, keep: bool) -> Option<(SocketAddr, u32, Token, &[u8])> {
        let answered = self.answered.as_deref_mut()?;
        let to = if keep { *answered.to.last()? } else { answered.to.pop()? };
        Some((to, answered.context, token_of(&answered.id), &answered.answer))
    }

    /// Delays our own opening in favour of the peer's opening. Our opening is not delayed again
    /// soon after, because the peer's opening may be a replay.
    fn hold(&mut self, now: Instant) {
        // S25: Simultaneous opening
        if self.hold_until == Instant::ZERO || now >= self.hold_until + HOLD_PAUSE {
            self.hold_until = now + HOLD;
        }
    }
}

impl Peer {
    /// Our greeting in a handshake, with the context number `context`.
    fn greeting(&self, context: u32, shared: &Shared) -> Greeting {
        Greeting {
            context,
            epoch: shared.epoch.0.saturating_add(self.epoch_bump),
            port: shared.node.config.local_port,
            features: 0,
        }
    }

    fn known_keys(&self) -> PeerKeys {
        self.keys.as_deref().copied().unwrap_or_default()
    }

    /// Returns the body of the Hello to be sent now. The first call creates the opening. `None` if
    /// no opening can be created; the next attempt follows after [`RETRY_MAX`].
    pub(crate) fn hello(&mut self, now: Instant, shared: &mut Shared) -> Option<Vec<u8>> {
        let PeerKeys { public_key, preshared_key, .. } = self.known_keys();
        if self.protected.opening.is_none() {
            self.openings += 1;
            let greeting = self.greeting(self.local_context, shared);
            let (key, number) = (public_key.as_ref(), self.openings);
            let Some((state, message)) =
                shared.security.open(key, &preshared_key, &greeting, number, now)
            else {
                // S29: Keys of small order
                self.protected.hold_until = now + RETRY_MAX;
                return None;
            };
            let opening = OurOpening {
                state,
                message,
                retry_at: now,
                interval: RETRY_FIRST.max(shared.node.config.rtt_initial.times(4)),
                rounds: 0,
                cookies_left: COOKIES_MAX,
                answers_left: ANSWERS_MAX,
            };
            self.protected.opening = Some(Box::new(opening));
        }
        let opening = self.protected.opening.as_mut()?;
        // S16. If the pause has not ended, this is another copy of the same burst, on another path.
        if opening.retry_at <= now {
            opening.rounds = opening.rounds.saturating_add(1);
            opening.retry_at = now + opening.interval;
            opening.interval = opening.interval.times(2).min(RETRY_MAX);
        }
        let mut hello = Hello {
            mac: [0; MAC_BYTES],
            context: self.local_context,
            cookie: self.cookie,
            noise: &opening.message,
        };
        let mut body = Vec::new();
        hello.encode_rest(&mut body);
        hello.mac = shared.security.hello_mac(public_key.as_ref(), &body);
        body.clear();
        hello.encode(&mut body);
        Some(body)
    }

    /// Whether an answer with this token belongs to our opening.
    pub(crate) fn awaits(&self, token: Token) -> bool {
        self.protected.opening.as_ref().is_some_and(|ours| token_of(&ours.message) == token)
    }

    /// Processes a Retry: the responder demands this cookie, which is kept for later openings.
    pub(crate) fn on_retry(
        &mut self,
        now: Instant,
        cookie: [u8; COOKIE_BYTES],
    ) -> Result<(), DropReason> {
        let opening = self.protected.opening.as_mut().ok_or(DropReason::Replay)?;
        // S27: MAC of a Hello
        if self.cookie == cookie || opening.cookies_left == 0 {
            return Err(DropReason::Replay);
        }
        opening.cookies_left -= 1;
        opening.retry_at = now;
        self.cookie = cookie;
        Ok(())
    }

    /// Processes the answer to our opening.
    pub(crate) fn on_hello_reply(
        &mut self,
        now: Instant,
        token: Token,
        message: &[u8],
        shared: &mut Shared,
    ) -> Result<(), DropReason> {
        if self.protected.opening.is_some() && !self.awaits(token) {
            return Err(DropReason::Unauthentic);
        }
        let opening = self.protected.opening.as_mut().ok_or(DropReason::Replay)?;
        match shared.security.finish(&mut opening.state, message, now) {
            Ok((remote, secrets)) => {
                let keys = shared.security.keys(secrets, now);
                self.take_over(now, keys, self.local_context, &remote, shared);
                Ok(())
            }
            Err(reason) => {
                opening.answers_left -= 1;
                // S17: Answers that do not authenticate
                if opening.answers_left == 0 {
                    // The next opening is another one: the forger of these answers has not seen it.
                    self.protected.hold_until = opening.retry_at;
                    self.protected.opening = None;
                }
                self.diagnose(now, Diagnosis::AnswerUnauthentic, shared);
                Err(reason)
            }
        }
    }

    /// Processes an opening by this peer: answers it, and keeps the new session pending until it is
    /// used.
    pub(crate) fn on_hello(
        &mut self,
        now: Instant,
        message: &[u8],
        request: Request,
        to: SocketAddr,
        shared: &mut Shared,
    ) -> Result<(), DropReason> {
        // S15: Nothing before the first sealed packet
        let context = shared.numbers.next(self.local_context);
        let (remote, stamp) = (request.greeting, request.stamp());
        let greeting = self.greeting(context, shared);
        let preshared_key = self.known_keys().preshared_key;
        let (answer, secrets) = shared.security.answer(request, &preshared_key, &greeting, now)?;
        let keys = shared.security.keys(secrets, now);
        let mut former = [Token::default(); FORMER_MAX];
        if let Some(before) = &self.protected.answered {
            former[0] = token_of(&before.id);
            former[1..].copy_from_slice(&before.former[..FORMER_MAX - 1]);
        }
        self.protected.pending = Some(Box::new(Pending { keys, context, remote }));
        self.protected.answered = Some(Box::new(Answered {
            id: opening_id(message),
            former,
            stamp,
            answer,
            context: remote.context,
            port: remote.port,
            to: vec![to],
            first_to: to,
            several: false,
            made_at: now,
            again_at: now + REPEAT_PAUSE,
        }));
        self.protected.hold(now);
        Ok(())
    }

    /// If `message` is the last opening that we answered, sends its answer to `to` as well. Returns
    /// whether it is.
    pub(crate) fn repeats_answer(&mut self, message: &[u8], to: SocketAddr) -> bool {
        let answered = self.protected.answered.as_deref_mut();
        let Some(same) = answered.filter(|a| a.id == opening_id(message)) else { return false };
        same.send_to(to);
        true
    }

    /// Whether we have answered this opening. `Some(true)`: it is the last opening that we
    /// answered. `Some(false)`: it is an earlier opening. `None`: it is new.
    pub(crate) fn has_answered(&self, message: &[u8]) -> Option<bool> {
        let answered = self.protected.answered.as_ref()?;
        let last = answered.id == opening_id(message);
        (last || answered.former.contains(&token_of(message))).then_some(last)
    }

    /// Sends the answer to the last opening again, to the host `from`, at which the peer is.
    /// The opening was recognised without being read. The answer is repeated at most once per
    /// [`REPEAT_PAUSE`].
    pub(crate) fn repeat_at_once(&mut self, now: Instant, from: SocketAddr) {
        if let Some(answered) = self.protected.answered.as_deref_mut()
            && now >= answered.again_at
        {
            answered.again_at = now + REPEAT_PAUSE;
            answered.send_to(with_port(from, answered.port));
        }
    }

    /// Whether an opening with this stamp is a replay, because we have answered one that is as new
    /// or newer. The newer one may itself be a replay, of a later run that has ended. If no context
    /// resulted from it, the peer cannot be probed, so it counts for `peer_timeout` only.
    pub(crate) fn has_newer_opening(&self, stamp: Stamp, now: Instant, config: &Config) -> bool {
        self.protected.answered.as_ref().is_some_and(|answered| {
            // S16: Repetition of an opening
            let counts = self.has_context() || now.since(answered.made_at) < config.peer_timeout;
            counts && answered.stamp >= stamp
        })
    }

    /// Whether an opening is late: it was created before the peer answered our opening, and the
    /// session in use resulted from that answer. The context numbers show this, because a run gives
    /// each new context with the owner of a key a later number. An opening from another address
    /// does not count as late: the peer may have moved and not have received our packets (S25).
    pub(crate) fn has_newer_session(&self, greeting: &Greeting, from: IpAddr) -> bool {
        self.protected.session.is_some()
            && self.may_be_at(from)
            && self.remote_epoch == Some(Epoch(greeting.epoch))
            && is_newer_context(self.remote_context, greeting.context)
    }

    /// Whether both sides have opened at once, and our opening wins. The opening whose first 32
    /// bytes are larger wins. Exception: our opening was sent [`YIELDS_AFTER`] times, and the other
    /// one comes from a further address of the peer. Then the peer has moved, and our opening gives
    /// way.
    pub(crate) fn opening_wins(&self, theirs: &[u8], from: IpAddr) -> bool {
        let Some(ours) = &self.protected.opening else { return false };
        // S25: Simultaneous opening
        let larger = opening_id(&ours.message) > opening_id(theirs);
        larger && (self.may_be_at(from) || ours.rounds < YIELDS_AFTER)
    }

    /// Whether a context number in a packet names this peer: it is the number of the context in use
    /// or of the pending session.
    pub(crate) fn is_named(&self, context: u32) -> bool {
        self.local_context == context
            || self.protected.pending.as_ref().is_some_and(|p| p.context == context)
    }

    /// The newest context number that was assigned for this peer.
    pub(crate) fn newest_context(&self) -> u32 {
        self.protected.pending.as_ref().map_or(self.local_context, |p| p.context)
    }

    /// Whether there are keys to open sealed packets of this peer. A packet may name the peer
    /// although there are no keys: by chance, a new run of this endpoint may use a number of its
    /// previous run.
    pub(crate) fn has_keys(&self) -> bool {
        self.protected.session.is_some() || self.protected.pending.is_some()
    }

    /// Opens a sealed packet in place. The second value is whether it is the first packet under the
    /// pending session. This session is now in use.
    pub(crate) fn unseal<'a>(
        &mut self,
        now: Instant,
        meta: &PacketMeta,
        header: &Header,
        head: &[u8; HEADER_BYTES],
        sealed: &'a mut [u8],
        shared: &mut Shared,
    ) -> Result<(&'a [u8], bool), DropReason> {
        let pending =
            self.protected.pending.as_ref().is_some_and(|p| p.context == header.dst_context);
        let (space, number) = if header.kind == Kind::Data {
            let highest =
                self.rx.as_ref().filter(|_| !pending).map_or(0, |rx| rx.received.highest());
            (Space::Data, expand(header.number, highest))
        } else {
            let highest = if pending { 0 } else { self.control_seen };
            (Space::Control, expand(header.number, highest))
        };
        let phase = header.key_phase;
        if pending {
            let keys = self.protected.pending.as_mut().map(|p| &mut p.keys);
            let keys = keys.ok_or(DropReason::UnknownContext)?;
            let body = keys
                .open(now, phase, space, number, head, sealed)
                .map_err(|_| DropReason::Unauthentic)?;
            // S15: Nothing before the first sealed packet
            if let Some(p) = self.protected.pending.take() {
                let Pending { keys, context, remote } = *p;
                self.take_over(now, keys, context, &remote, shared);
                self.settle_at(now, with_port(meta.source, remote.port), shared);
            }
            self.note_control(space, number)?;
            return Ok((body, true));
        }
        let keys = self.protected.session.as_mut().ok_or(DropReason::WrongProtection)?;
        let seen = self.control_window.as_ref();
        if space == Space::Control && seen.is_some_and(|seen| !seen.is_fresh(number)) {
            return Err(DropReason::Replay);
        }
        let body = keys
            .open(now, phase, space, number, head, sealed)
            .map_err(|_| DropReason::Unauthentic)?;
        self.note_control(space, number)?;
        Ok((body, false))
    }

    /// Updates the peer's address after the first packet, from `from`, under a session that the
    /// peer opened. If our answer was sent only to `from`, the peer receives there, because it
    /// could not have used the session otherwise. If not, `from` is challenged.
    fn settle_at(&mut self, now: Instant, from: SocketAddr, shared: &mut Shared) {
        if !self.roams() || without_link(from) == Some(self.address) {
            return;
        }
        let answered = self.protected.answered.as_ref();
        // H14: Answers go to the source of an opening
        let proven = answered.is_some_and(|a| !a.several && a.first_to == from);
        if proven || self.address.port() == 0 {
            self.move_to(from);
        } else if !same_ip(self.address.ip(), from.ip()) || self.address.port() != from.port() {
            self.challenge(now, from, shared);
        }
    }

    fn note_control(&mut self, space: Space, number: u64) -> Result<(), DropReason> {
        if space == Space::Control {
            // S6: Replay windows
            if !self.control_window.get_or_insert_default().check_and_set(number) {
                return Err(DropReason::Replay);
            }
            self.control_seen = self.control_seen.max(number + 1);
        }
        Ok(())
    }

    /// Puts a new session into use, in place of the present session, if there is a present session.
    fn take_over(
        &mut self,
        now: Instant,
        keys: Box<SessionKeys>,
        context: u32,
        remote: &Greeting,
        shared: &mut Shared,
    ) {
        let answered = self.protected.answered.take();
        if self.protected.session.is_some() {
            self.restart(now, shared, DownReason::Restarted);
        }
        self.protected = Protected { session: Some(keys), answered, ..Protected::default() };
        self.local_context = context;
        self.set_remote_context(remote.context, shared);
        self.remote_epoch = Some(Epoch(remote.epoch));
        self.greeted = true;
        // W5: Two number spaces
        self.control_number = 0;
        self.control_seen = 0;
        self.control_window = None;
    }
}

/// Returns the first bytes of an opening, which identify the opening. They belong to the ephemeral
/// key, or to the salt.
fn opening_id(message: &[u8]) -> [u8; 32] {
    let mut id = [0; 32];
    let n = message.len().min(32);
    id[..n].copy_from_slice(&message[..n]);
    id
}
