//! Calls of the application: they post and cancel receives, and peek at, claim and discard
//! unexpected messages.

use crate::layer::completion::{Kind, OperationCompletion, Outcome};
use crate::layer::request::{Peek, Receive, Selector};
use crate::layer::world::{Peer, Refused, World};
use crate::rdm::iovec::IoVec;
use crate::rdm::receive::inbound::{MessageInfo, Multi, Posted, UnexpectedMessage};
use crate::rdm::receive::matching::{Matcher, MessageKey};
use crate::rdm::state::Rdm;

impl Rdm {
    pub(crate) fn matcher(&mut self, tagged: bool) -> &mut Matcher<Posted, UnexpectedMessage> {
        if tagged { &mut self.tagged } else { &mut self.plain }
    }

    fn posted(&self, receive: &Receive<'_>) -> Result<Posted, Refused> {
        let iov = IoVec::of(receive.iov).ok_or(Refused::Invalid)?;
        if receive.multi.is_some() && iov.as_slice().len() != 1 {
            return Err(Refused::Invalid);
        }
        Ok(Posted { iov, context: receive.context, signaled: receive.signaled, multi: None })
    }

    /// Posts a receive for one message or for many.
    ///
    /// # Errors
    /// `Again` if a table is full; `NoSuchPeer` if the source is no peer; `Invalid` if there are
    /// too many pieces, or if a piece exceeds the address space.
    pub fn recv(&mut self, world: &mut World<'_>, receive: Receive<'_>) -> Result<(), Refused> {
        let mut posted = self.posted(&receive)?;
        let (tagged, want) = (receive.tagged, receive.want);
        if let Some(source) = want.source {
            self.entry(Peer(source)).ok_or(Refused::NoSuchPeer)?;
        }
        let receives_max = self.config.receives_max as usize;
        if self.is_full() || self.matcher(tagged).len().0 >= receives_max {
            return Err(Refused::Again);
        }
        if let Some(min) = receive.multi {
            let size = posted.iov.length();
            let multi = Multi { size, used: 0, min, landing: 0, closed: false };
            posted.multi = self.multis.insert(multi, u32::MAX);
        }
        while let Some(key) = self.matcher(tagged).message_for(&want) {
            let Some(kept) = self.matcher(tagged).take(key) else { break };
            let landing = self.land(&kept.info, &posted, None);
            self.deliver(kept, landing, world.memory);
            let more = posted.multi.and_then(|multi| self.multis.get(multi));
            if more.is_none_or(|multi| multi.closed) {
                return Ok(());
            }
        }
        self.deferred = posted.multi.is_none();
        // Space was checked above, and nothing has used it since.
        self.matcher(tagged).post(want, posted).map(|_| ()).map_err(|_| Refused::Again)
    }

    /// Posts a receive for the message that was claimed with this context. The receive completes as
    /// any other receive.
    ///
    /// # Errors
    /// `Again` if a table is full; `Invalid` if no message was claimed with this context, if there
    /// are too many pieces, or if a piece exceeds the address space.
    pub fn recv_claimed(
        &mut self,
        world: &mut World<'_>,
        receive: Receive<'_>,
    ) -> Result<(), Refused> {
        let posted = self.posted(&receive)?;
        let kept = self.claimed(receive.context, receive.tagged)?;
        let landing = self.land(&kept.info, &posted, None);
        self.deliver(kept, landing, world.memory);
        Ok(())
    }

    /// Discards the message that was claimed with this context (`FI_CLAIM | FI_DISCARD`).
    ///
    /// # Errors
    /// `Again` if a table is full; `Invalid` if no message was claimed with this context.
    pub fn discard_claimed(&mut self, context: u64, tagged: bool) -> Result<(), Refused> {
        let kept = self.claimed(context, tagged)?;
        let done = found(&kept.info, context, tagged);
        self.throw_away(kept);
        self.done.push_back(done);
        Ok(())
    }

    fn claimed(&mut self, context: u64, tagged: bool) -> Result<UnexpectedMessage, Refused> {
        if self.is_full() {
            return Err(Refused::Again);
        }
        let key = self.claims.remove(&(context, tagged)).ok_or(Refused::Invalid)?;
        // The message was removed if its sender was lost before all bytes had arrived.
        self.matcher(tagged).take(key).ok_or(Refused::Invalid)
    }

    /// Searches for an unexpected message. The message, or [`Outcome::NoMessage`], is reported as
    /// the end of a receive.
    ///
    /// # Errors
    /// `Again` if a table is full; `Invalid` if a message is claimed with this context already.
    pub fn peek(
        &mut self,
        tagged: bool,
        want: Selector,
        what: Peek,
        context: u64,
    ) -> Result<(), Refused> {
        if self.is_full() {
            return Err(Refused::Again);
        }
        if what == Peek::Claim && self.claims.contains_key(&(context, tagged)) {
            return Err(Refused::Invalid);
        }
        let key = self.matcher(tagged).message_for(&want);
        let seen = key.and_then(|key| {
            let (_, kept) = self.matcher(tagged).message(key)?;
            Some((key, found(&kept.info, context, tagged)))
        });
        let Some((key, done)) = seen else {
            let missed = empty(Outcome::NoMessage, context, tagged);
            self.done.push_back(OperationCompletion { tag: want.tag, ..missed });
            return Ok(());
        };
        self.look(tagged, key, what, context);
        self.done.push_back(done);
        Ok(())
    }

    fn look(&mut self, tagged: bool, key: MessageKey, what: Peek, context: u64) {
        match what {
            Peek::Look => {}
            Peek::Claim => {
                if self.matcher(tagged).claim(key) {
                    self.claims.insert((context, tagged), key);
                }
            }
            Peek::Discard => {
                if let Some(kept) = self.matcher(tagged).take(key) {
                    self.throw_away(kept);
                }
            }
        }
    }

    /// Cancels a receive. Returns false if no receive with this context is posted.
    pub fn cancel(&mut self, context: u64) -> bool {
        for tagged in [true, false] {
            let matcher = self.matcher(tagged);
            let Some(key) = matcher.find(|posted| posted.context == context) else { continue };
            let Some(posted) = matcher.withdraw(key) else { continue };
            let mut released = posted.multi.is_some();
            if let Some(key) = posted.multi
                && let Some(multi) = self.multis.get_mut(key)
            {
                multi.closed = true;
                released = multi.landing == 0;
                if released {
                    self.multis.remove(key);
                }
            }
            self.done.push_back(OperationCompletion {
                released,
                ..empty(Outcome::Cancelled, context, tagged)
            });
            return true;
        }
        false
    }
}

fn found(info: &MessageInfo, context: u64, tagged: bool) -> OperationCompletion {
    OperationCompletion {
        peer: Some(Peer(info.source)),
        length: info.length,
        tag: info.tag.unwrap_or(0),
        data: info.data,
        ..empty(Outcome::Ok, context, tagged)
    }
}

/// Returns the completion of a receive without a message.
fn empty(outcome: Outcome, context: u64, tagged: bool) -> OperationCompletion {
    OperationCompletion {
        kind: Kind::Receive,
        outcome,
        context,
        tagged,
        signaled: true,
        peer: None,
        length: 0,
        offset: 0,
        tag: 0,
        data: None,
        released: false,
    }
}
