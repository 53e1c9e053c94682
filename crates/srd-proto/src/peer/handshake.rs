//! Opening a session with a peer: hello, answer, and the moment a new session takes over.
//!
//! The initiator repeats one and the same hello until it is answered. The responder answers a
//! repeated hello with the same answer, where that one came from, and keeps the session pending,
//! beside the one that may be in use and beside its own opening, until a packet under it
//! authenticates.
//!
//! Bound: an opening of ours takes [`COOKIES_MAX`] cookies and works on [`ANSWERS_MAX`] answers;
//! one of the peer's is answered at [`ANSWERS_AT_ONCE`] addresses at a time.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, SocketAddr};

use super::roam::{Roam, same_ip};
use super::{Peer, PeerKeys};
use crate::config::Config;
use crate::crypto::{SessionKeys, Space};
use crate::error::DropReason;
use crate::event::{Diagnosis, DownReason};
use crate::ids::Epoch;
use crate::node::is_newer_context;
use crate::security::{Opening, Request, Stamp};
use crate::shared::Shared;
use crate::time::{Duration, Instant};
use crate::transmit::PacketMeta;
use crate::wire::greeting::Greeting;
use crate::wire::handshake::{COOKIE_BYTES, Hello, MAC_BYTES, Token, token_of};
use crate::wire::{HEADER_BYTES, Header, Kind, expand};

/// First wait for an answer, doubling.
const RETRY_FIRST: Duration = Duration::from_millis(5);
/// How long we leave it to a peer that is opening a session.
const HOLD: Duration = Duration::from_millis(20);
/// How long after such a wait another may begin.
const HOLD_PAUSE: Duration = Duration::from_secs(1);
/// The longest wait.
const RETRY_MAX: Duration = Duration::from_secs(1);
/// Cookies that one opening is sent again for.
const COOKIES_MAX: u8 = 8;
/// Answers to one opening that are worked on: the dearer half of a handshake each.
const ANSWERS_MAX: u8 = 8;
/// Addresses that one answer waits to be sent to.
const ANSWERS_AT_ONCE: usize = 4;
/// How often ours was sent in vain before one of the peer's that comes from where ours does not go
/// is answered although ours would win.
const YIELDS_AFTER: u8 = 3;
/// Openings of the peer's that are known again before they are read.
const FORMER_MAX: usize = 8;
/// An answer is repeated unchecked at most so often.
const REPEAT_PAUSE: Duration = Duration::from_millis(1);

/// What protection a peer has.
#[derive(Default)]
pub(crate) struct Protected {
    /// The session in use.
    pub session: Option<Box<SessionKeys>>,
    /// A session that the peer has opened and not yet used.
    pending: Option<Box<Pending>>,
    /// Our own opening, not yet answered. It stays while one of the peer's is pending: that may be
    /// a recorded one.
    opening: Option<Box<OurOpening>>,
    /// The last opening that we answered, and the answer.
    answered: Option<Box<Answered>>,
    /// The peer is opening a session, or ours cannot be made: ours can wait.
    hold_until: Instant,
    /// A Reset claims that the peer does not know our session any more: open another.
    pub reopen: bool,
    /// Where the peer may have moved to.
    pub roam: Option<Box<Roam>>,
    /// The token of the peer's challenge, to be returned.
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
    /// How often its time to be sent has come.
    rounds: u8,
    /// Cookies that are still taken, and answers that are still worked on.
    cookies_left: u8,
    answers_left: u8,
}

/// An opening of the peer's that we have answered.
struct Answered {
    /// Its first bytes: a repeated one gets the same answer.
    id: [u8; 32],
    /// Those before it: they are recorded ones, which need not be read to know it.
    former: [Token; FORMER_MAX],
    stamp: Stamp,
    answer: Vec<u8>,
    /// The context that it named, and the peer's port.
    context: u32,
    port: u16,
    /// Where the answer is to be sent now.
    to: Vec<SocketAddr>,
    /// Where it was first sent, and whether it was sent elsewhere, too.
    first_to: SocketAddr,
    several: bool,
    /// When it was first sent.
    made_at: Instant,
    /// When one that comes from the peer's own address is next repeated without further checks.
    again_at: Instant,
}

impl Answered {
    /// The answer is to go to `to` as well.
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
    /// Whether a session must be opened before anything else can be sent.
    pub(crate) fn must_open(&self) -> bool {
        self.session.is_none() || self.reopen
    }

    /// Whether another session is being opened beside one that the peer has lost.
    pub(crate) fn reopens(&self) -> bool {
        self.reopen && self.opening.is_some()
    }

    /// When the hello is to be sent, again or for the first time.
    pub(crate) fn hello_at(&self) -> Instant {
        self.opening.as_ref().map_or(self.hold_until, |o| o.retry_at.max(self.hold_until))
    }

    /// Whether an answer is to be sent now.
    pub(crate) fn answer_due(&self) -> bool {
        self.answered.as_ref().is_some_and(|a| !a.to.is_empty())
    }

    /// The next answer to send: where to, under which of the peer's contexts, token and answer.
    /// `keep`: it is sent once more.
    pub(crate) fn take_answer(&mut self, keep: bool) -> Option<(SocketAddr, u32, Token, &[u8])> {
        let answered = self.answered.as_deref_mut()?;
        let to = if keep { *answered.to.last()? } else { answered.to.pop()? };
        Some((to, answered.context, token_of(&answered.id), &answered.answer))
    }

    /// Leaves it to the peer to open. Not twice in a row: openings may be recorded ones.
    fn hold(&mut self, now: Instant) {
        // S25
        if self.hold_until == Instant::ZERO || now >= self.hold_until + HOLD_PAUSE {
            self.hold_until = now + HOLD;
        }
    }
}

impl Peer {
    /// How we present ourselves in a handshake, under the given context number.
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

    /// The body of the hello to send now, made at first. `None` if we cannot open: the next try is
    /// a long pause away.
    pub(crate) fn hello(&mut self, now: Instant, shared: &mut Shared) -> Option<Vec<u8>> {
        let PeerKeys { public_key, preshared_key, .. } = self.known_keys();
        if self.protected.opening.is_none() {
            self.openings += 1;
            let greeting = self.greeting(self.local_context, shared);
            let (key, number) = (public_key.as_ref(), self.openings);
            let Some((state, message)) =
                shared.security.open(key, &preshared_key, &greeting, number, now)
            else {
                // S29
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
        // S16. Copies that leave by other ways leave at once.
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

    /// Whether an answer with this token is to our opening.
    pub(crate) fn awaits(&self, token: Token) -> bool {
        self.protected.opening.as_ref().is_some_and(|ours| token_of(&ours.message) == token)
    }

    /// The responder demands this cookie. It is kept for later openings.
    pub(crate) fn on_retry(
        &mut self,
        now: Instant,
        cookie: [u8; COOKIE_BYTES],
    ) -> Result<(), DropReason> {
        let opening = self.protected.opening.as_mut().ok_or(DropReason::Replay)?;
        // S27
        if self.cookie == cookie || opening.cookies_left == 0 {
            return Err(DropReason::Replay);
        }
        opening.cookies_left -= 1;
        opening.retry_at = now;
        self.cookie = cookie;
        Ok(())
    }

    /// The answer to our hello.
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
                // S17
                if opening.answers_left == 0 {
                    // Another opening, which the forger of these answers has not seen.
                    self.protected.hold_until = opening.retry_at;
                    self.protected.opening = None;
                }
                self.diagnose(now, Diagnosis::AnswerUnauthentic, shared);
                Err(reason)
            }
        }
    }

    /// An opening by this peer: answers it, keeps the session pending.
    pub(crate) fn on_hello(
        &mut self,
        now: Instant,
        message: &[u8],
        request: Request,
        to: SocketAddr,
        shared: &mut Shared,
    ) -> Result<(), DropReason> {
        // S15
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

    /// Whether this opening has been answered; if so the answer goes to `to` now.
    pub(crate) fn repeats_answer(&mut self, message: &[u8], to: SocketAddr) -> bool {
        let answered = self.protected.answered.as_deref_mut();
        let Some(same) = answered.filter(|a| a.id == opening_id(message)) else { return false };
        same.send_to(to);
        true
    }

    /// Whether this opening has been answered: as the last, or before that.
    pub(crate) fn has_answered(&self, message: &[u8]) -> Option<bool> {
        let answered = self.protected.answered.as_ref()?;
        let last = answered.id == opening_id(message);
        (last || answered.former.contains(&token_of(message))).then_some(last)
    }

    /// Repeats the answer to an opening that has not been read again, at the peer's own IP address:
    /// often enough for a peer that has not got it.
    pub(crate) fn repeat_at_once(&mut self, now: Instant, ip: IpAddr) {
        if let Some(answered) = self.protected.answered.as_deref_mut()
            && now >= answered.again_at
        {
            answered.again_at = now + REPEAT_PAUSE;
            answered.send_to(SocketAddr::new(ip, answered.port));
        }
    }

    /// Whether an opening was made before one that we have answered: it is a recorded one. Or the
    /// newer one was, of a run that is gone: where no context came of that, nobody could be asked
    /// whether it lives, so it counts for `peer_timeout` only.
    pub(crate) fn has_newer_opening(&self, stamp: Stamp, now: Instant, config: &Config) -> bool {
        self.protected.answered.as_ref().is_some_and(|answered| {
            // S16
            let counts = self.has_context() || now.since(answered.made_at) < config.peer_timeout;
            counts && answered.stamp >= stamp
        })
    }

    /// Whether an opening was made before the peer answered ours with the session in use: the two
    /// have crossed, and it comes late. A run gives each context with the owner of a key a later
    /// number. An opening from elsewhere is of a peer that has moved, and did not get what we have
    /// sent. // S25
    pub(crate) fn has_newer_session(&self, greeting: &Greeting, from: IpAddr) -> bool {
        self.protected.session.is_some()
            && self.may_be_at(from)
            && self.remote_epoch == Some(Epoch(greeting.epoch))
            && is_newer_context(self.remote_context, greeting.context)
    }

    /// Whether both sides have opened at once and ours is to win: the larger message does, unless
    /// the peer has moved, so that ours will not arrive.
    pub(crate) fn opening_wins(&self, theirs: &[u8], from: IpAddr) -> bool {
        let Some(ours) = &self.protected.opening else { return false };
        // S25
        let larger = opening_id(&ours.message) > opening_id(theirs);
        larger && (self.may_be_at(from) || ours.rounds < YIELDS_AFTER)
    }

    /// Whether a packet names this peer: by the context in use, or by the pending one.
    pub(crate) fn is_named(&self, context: u32) -> bool {
        self.local_context == context
            || self.protected.pending.as_ref().is_some_and(|p| p.context == context)
    }

    /// The last number that was given out for this peer.
    pub(crate) fn newest_context(&self) -> u32 {
        self.protected.pending.as_ref().map_or(self.local_context, |p| p.context)
    }

    /// Whether there are keys for packets that name this peer: a run of us that has just begun
    /// may, by chance, have the number of the one before.
    pub(crate) fn has_keys(&self) -> bool {
        self.protected.session.is_some() || self.protected.pending.is_some()
    }

    /// Opens a packet in place, and returns whether it is the first that opens under the pending
    /// session: then that is in use.
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
            // S15
            if let Some(p) = self.protected.pending.take() {
                let Pending { keys, context, remote } = *p;
                self.take_over(now, keys, context, &remote, shared);
                self.settle_at(now, SocketAddr::new(meta.source.ip(), remote.port), shared);
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

    /// The session that the peer opened is in use, by a packet from `from`. If our answer went
    /// there and nowhere else, the peer receives there: it could not have used the session.
    fn settle_at(&mut self, now: Instant, from: SocketAddr, shared: &mut Shared) {
        if !self.roams() {
            return;
        }
        let answered = self.protected.answered.as_ref();
        // H14
        let proven = answered.is_some_and(|a| !a.several && a.first_to == from);
        if proven || self.address.port() == 0 {
            self.move_to(from);
        } else if !same_ip(self.address.ip(), from.ip()) || self.address.port() != from.port() {
            self.challenge(now, from, shared);
        }
    }

    fn note_control(&mut self, space: Space, number: u64) -> Result<(), DropReason> {
        if space == Space::Control {
            // S6
            if !self.control_window.get_or_insert_default().check_and_set(number) {
                return Err(DropReason::Replay);
            }
            self.control_seen = self.control_seen.max(number + 1);
        }
        Ok(())
    }

    /// A new session takes the place of whatever was.
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
        // W5
        self.control_number = 0;
        self.control_seen = 0;
        self.control_window = None;
    }
}

/// Openings are told apart by their first bytes: an ephemeral key, or a salt.
fn opening_id(message: &[u8]) -> [u8; 32] {
    let mut id = [0; 32];
    let n = message.len().min(32);
    id[..n].copy_from_slice(&message[..n]);
    id
}
