//! Opening a session with a peer: hello, answer, and the moment a new session takes over.
//!
//! The initiator repeats one and the same hello until it is answered. The responder answers a
//! repeated hello with the same answer, and keeps the session pending, beside the one that may
//! be in use, until a packet under it authenticates.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;

use super::lifecycle::CONTEXT_GENERATION;
use super::{Peer, PeerKeys, Shared};
use crate::crypto::{SessionKeys, Space};
use crate::error::DropReason;
use crate::event::DownReason;
use crate::ids::Epoch;
use crate::security::{Opening, Request};
use crate::time::{Duration, Instant};
use crate::wire::greeting::Greeting;
use crate::wire::handshake::COOKIE_BYTES;
use crate::wire::{HEADER_BYTES, Header, Kind, expand};

/// First wait for an answer, doubling.
const RETRY_FIRST: Duration = Duration::from_millis(5);
/// How long we leave it to a peer that is opening a session.
const HOLD: Duration = Duration::from_millis(20);
/// The longest wait.
const RETRY_MAX: Duration = Duration::from_secs(1);

/// What protection a peer has.
#[derive(Default)]
pub(crate) struct Protected {
    /// The session in use.
    pub session: Option<Box<SessionKeys>>,
    /// A session that the peer has opened and not yet used.
    pending: Option<Box<Pending>>,
    /// Our own opening, not yet answered.
    opening: Option<Box<OurOpening>>,
    /// The last opening we answered, by its first bytes, and the answer.
    answered: Option<Box<([u8; 32], Vec<u8>)>>,
    /// The peer is opening a session: ours can wait.
    hold_until: Instant,
    /// Whom the answer goes to: the context that the opening named.
    pub reply_context: u32,
    /// Where it called from: the answer goes there, and all else once it has proved itself.
    pub reply_address: Option<SocketAddr>,
    /// The answer is to be sent now.
    pub answer_due: bool,
    /// The peer does not know our session any more, it says: open another.
    pub reopen: bool,
}

struct Pending {
    keys: Box<SessionKeys>,
    context: u32,
    remote: Greeting,
}

struct OurOpening {
    state: Opening,
    message: Vec<u8>,
    cookie: [u8; COOKIE_BYTES],
    retry_at: Instant,
    interval: Duration,
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

    /// When the hello is to be sent, again or for the first time.
    pub(crate) fn hello_at(&self) -> Instant {
        self.opening.as_ref().map_or(self.hold_until, |o| o.retry_at.max(self.hold_until))
    }

    /// The answer to send.
    pub(crate) fn answer(&self) -> &[u8] {
        self.answered.as_ref().map_or(&[], |a| &a.1)
    }
}

impl Peer {
    /// How we present ourselves in a handshake, under the given context number.
    fn greeting(&self, context: u32, shared: &Shared<'_>) -> Greeting {
        Greeting {
            context,
            epoch: shared.epoch.0 + self.epoch_bump,
            port: shared.config.local_port,
            features: 0,
        }
    }

    fn known_keys(&self) -> PeerKeys {
        self.keys.as_deref().copied().unwrap_or_default()
    }

    /// The hello to send now, made at first; `None` if we cannot open (no key of the peer's).
    pub(crate) fn hello(
        &mut self,
        now: Instant,
        shared: &mut Shared<'_>,
    ) -> Option<([u8; COOKIE_BYTES], Vec<u8>)> {
        if self.protected.opening.is_none() {
            let greeting = self.greeting(self.local_context, shared);
            let PeerKeys { public_key, preshared_key } = self.known_keys();
            let (state, message) =
                shared.security.open(public_key.as_ref(), &preshared_key, &greeting, now)?;
            let cookie = [0; COOKIE_BYTES];
            let interval = RETRY_FIRST.max(shared.config.rtt_initial.times(4));
            let opening = OurOpening { state, message, cookie, retry_at: now, interval };
            self.protected.opening = Some(Box::new(opening));
        }
        let opening = self.protected.opening.as_mut()?;
        opening.retry_at = now + opening.interval;
        opening.interval = opening.interval.times(2).min(RETRY_MAX);
        Some((opening.cookie, opening.message.clone()))
    }

    /// The responder wants this cookie back.
    pub(crate) fn on_retry(&mut self, now: Instant, cookie: [u8; COOKIE_BYTES]) {
        if let Some(opening) = &mut self.protected.opening {
            opening.cookie = cookie;
            opening.retry_at = now;
        }
    }

    /// The answer to our hello.
    pub(crate) fn on_hello_reply(
        &mut self,
        now: Instant,
        message: &[u8],
        shared: &mut Shared<'_>,
    ) -> Result<(), DropReason> {
        let opening = self.protected.opening.as_mut().ok_or(DropReason::Replay)?;
        let (remote, secrets) = shared.security.finish(&mut opening.state, message, now)?;
        let keys = shared.security.keys(secrets, now);
        let context = self.local_context;
        self.take_over(now, keys, context, &remote, shared);
        Ok(())
    }

    /// A stranger's, or this peer's, opening: answer it, keep the session pending.
    pub(crate) fn on_hello(
        &mut self,
        now: Instant,
        message: &[u8],
        request: Request,
        address: SocketAddr,
        shared: &mut Shared<'_>,
    ) -> Result<(), DropReason> {
        let context = self.local_context.wrapping_add(CONTEXT_GENERATION);
        let remote = request.greeting;
        let greeting = self.greeting(context, shared);
        let preshared_key = self.known_keys().preshared_key;
        let (answer, secrets) = shared.security.answer(request, &preshared_key, &greeting, now)?;
        let keys = shared.security.keys(secrets, now);
        self.protected.pending = Some(Box::new(Pending { keys, context, remote }));
        self.protected.answered = Some(Box::new((opening_id(message), answer)));
        self.protected.opening = None;
        self.protected.hold_until = now + HOLD;
        self.protected.reply_context = remote.context;
        self.protected.reply_address = Some(address);
        self.protected.answer_due = true;
        Ok(())
    }

    /// Whether this opening has been answered; if so the answer goes out again.
    pub(crate) fn repeats_answer(&mut self, message: &[u8]) -> bool {
        let same = self.protected.answered.as_ref().is_some_and(|a| a.0 == opening_id(message));
        self.protected.answer_due |= same;
        same
    }

    /// Whether both sides have opened at once and ours is to win: the larger message does.
    pub(crate) fn opening_wins(&self, theirs: &[u8]) -> bool {
        let ours = self.protected.opening.as_ref();
        ours.is_some_and(|ours| opening_id(&ours.message) > opening_id(theirs))
    }

    /// Whether a packet names this peer: by the context in use, or by the pending one.
    pub(crate) fn is_named(&self, context: u32) -> bool {
        self.local_context == context
            || self.protected.pending.as_ref().is_some_and(|p| p.context == context)
    }

    /// Whether there are keys for packets that name this peer: a run of us that has just begun
    /// may, by chance, have the number of the one before.
    pub(crate) fn has_keys(&self) -> bool {
        self.protected.session.is_some() || self.protected.pending.is_some()
    }

    /// Opens a packet in place. The first that opens under the pending session puts it in use.
    pub(crate) fn unseal<'a>(
        &mut self,
        now: Instant,
        header: &Header,
        head: &[u8; HEADER_BYTES],
        sealed: &'a mut [u8],
        shared: &mut Shared<'_>,
    ) -> Result<&'a [u8], DropReason> {
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
            if let Some(p) = self.protected.pending.take() {
                let Pending { keys, context, remote } = *p;
                self.address = self.protected.reply_address.unwrap_or(self.address);
                self.take_over(now, keys, context, &remote, shared);
            }
            self.note_control(space, number)?;
            return Ok(body);
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
        Ok(body)
    }

    fn note_control(&mut self, space: Space, number: u64) -> Result<(), DropReason> {
        if space == Space::Control {
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
        shared: &mut Shared<'_>,
    ) {
        if self.protected.session.is_some() {
            self.restart(now, shared, DownReason::Restarted);
        }
        let answered = self.protected.answered.take();
        let answer_due = self.protected.answer_due;
        let reply_context = self.protected.reply_context;
        let reply_address = self.protected.reply_address;
        self.protected = Protected {
            session: Some(keys),
            answered,
            answer_due,
            reply_context,
            reply_address,
            ..Protected::default()
        };
        self.local_context = context;
        self.remote_context = remote.context;
        self.remote_epoch = Some(Epoch(remote.epoch));
        self.greeted = true;
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
