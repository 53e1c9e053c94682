//! Matching of messages and receives.
//!
//! ```text
//!  arrival --> receives that name its source --+--> the one posted first
//!          --> receives that name no source ---+       none fits: kept, until one asks
//!
//!  receive --> kept messages of its source, or of all: the one that came first
//! ```
//!
//! Receives that name a source stand in a chain of that source, so a message passes over those for
//! other peers without looking at them: an all-to-all among a thousand costs each message one
//! step, not a thousand. The caller offers messages of one source in the order in which they
//! were sent, whatever order their packets came in. Bounds: [`Limits`].

use hashbrown::HashMap;

use crate::hash::Keyed;
use crate::layer::request::Selector;
use crate::rdm::receive::list::{Chain, Linked, Links};
use crate::slots::{Key, Slots};

/// Messages' chain of their source, and that of all messages.
const BY_SOURCE: usize = 0;
const ALL: usize = 1;

/// Largest number of receives and messages that may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Receives posted and not matched.
    pub receives_max: u32,
    /// Messages kept until a receive takes them, claimed ones included.
    pub messages_max: u32,
}

/// The fields of a message that matching compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// Tag; zero for a message without a tag.
    pub tag: u64,
    /// The peer that sent it.
    pub source: u32,
}

impl Selector {
    /// Whether a message matches this selector.
    pub const fn fits(&self, envelope: &Envelope) -> bool {
        let source_fits = match self.source {
            Some(source) => source == envelope.source,
            None => true,
        };
        source_fits && (self.tag ^ envelope.tag) & !self.ignore == 0
    }
}

/// A posted receive. One that is kept for longer than the receive names nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct ReceiveKey(Key);

/// A kept message. One that is kept for longer than the message names nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct MessageKey(Key);

#[derive(Debug)]
struct Posted<R> {
    want: Selector,
    /// Sequence number of the receive, in the order of posting.
    order: u64,
    links: Links,
    receive: R,
}

impl<R> Linked for Posted<R> {
    fn links(&mut self, _lane: usize) -> &mut Links {
        &mut self.links
    }

    fn look(&self, _lane: usize) -> &Links {
        &self.links
    }
}

#[derive(Debug)]
struct Unexpected<M> {
    envelope: Envelope,
    /// Whether a caller has claimed the message (`FI_CLAIM`). Then it is in no chain.
    claimed: bool,
    links: [Links; 2],
    message: M,
}

impl<M> Linked for Unexpected<M> {
    fn links(&mut self, lane: usize) -> &mut Links {
        &mut self.links[lane]
    }

    fn look(&self, lane: usize) -> &Links {
        &self.links[lane]
    }
}

/// One source's chains.
#[derive(Debug, Default)]
struct Source {
    receives: Chain,
    messages: Chain,
    /// Number of entries in both chains; at zero, this record is removed.
    entries: u32,
}

/// The queues of posted receives, each with the caller's record (`R`), and of messages that match
/// no posted receive yet (`M`).
#[derive(Debug)]
pub struct Matcher<R, M> {
    limits: Limits,
    receives: Slots<Posted<R>>,
    messages: Slots<Unexpected<M>>,
    /// Receives that name no source.
    anyones: Chain,
    all: Chain,
    /// Bound: as many as there are receives and messages.
    sources: HashMap<u32, Source, Keyed>,
    posted: u64,
}

impl<R, M> Matcher<R, M> {
    /// Empty queues. `seed` keys the table of sources.
    pub fn new(limits: Limits, seed: u64) -> Self {
        Self {
            limits,
            receives: Slots::default(),
            messages: Slots::default(),
            anyones: Chain::default(),
            all: Chain::default(),
            sources: HashMap::with_hasher(Keyed::new(seed)),
            posted: 0,
        }
    }

    /// Receives posted, and messages kept.
    pub fn len(&self) -> (usize, usize) {
        (self.receives.len(), self.messages.len())
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }

    /// The receive for a message that has arrived: the first posted one that matches. It stays
    /// posted until it is withdrawn, because a receive may take several messages
    /// (`FI_MULTI_RECV`).
    pub fn receive_for(&self, envelope: &Envelope) -> Option<ReceiveKey> {
        let first = |chain: &Chain| {
            let mut fits = chain.iter(&self.receives, 0).filter(|(_, p)| p.want.fits(envelope));
            fits.next().map(|(key, posted)| (posted.order, key))
        };
        let theirs = self.sources.get(&envelope.source).and_then(|source| first(&source.receives));
        let (_, key) = theirs.into_iter().chain(first(&self.anyones)).min()?;
        Some(ReceiveKey(key))
    }

    /// The caller's record of a receive.
    pub fn receive_mut(&mut self, key: ReceiveKey) -> Option<&mut R> {
        self.receives.get_mut(key.0).map(|posted| &mut posted.receive)
    }

    /// The first posted receive whose record satisfies a condition. Looks at all receives.
    pub fn find(&self, is_it: impl Fn(&R) -> bool) -> Option<ReceiveKey> {
        let found = self.receives.iter().filter(|(_, posted)| is_it(&posted.receive));
        found.min_by_key(|(_, posted)| posted.order).map(|(key, _)| ReceiveKey(key))
    }

    /// Posts a receive. The caller has found no kept message for it ([`Matcher::message_for`]).
    ///
    /// # Errors
    /// The receive itself, when there are `receives_max`.
    pub fn post(&mut self, want: Selector, receive: R) -> Result<ReceiveKey, R> {
        if self.receives.len() >= self.limits.receives_max as usize {
            return Err(receive);
        }
        let posted = Posted { want, order: self.posted, links: Links::default(), receive };
        self.posted += 1;
        let key = self.receives.insert(posted, u32::MAX).expect("below its bound");
        let chain = match want.source {
            Some(number) => {
                let source = self.sources.entry(number).or_default();
                source.entries += 1;
                &mut source.receives
            }
            None => &mut self.anyones,
        };
        chain.push(&mut self.receives, 0, key);
        Ok(ReceiveKey(key))
    }

    /// Takes a receive out: it was matched, or cancelled.
    pub fn withdraw(&mut self, key: ReceiveKey) -> Option<R> {
        let want = self.receives.get(key.0)?.want;
        match want.source {
            Some(number) => {
                if let Some(source) = self.sources.get_mut(&number) {
                    source.receives.remove(&mut self.receives, 0, key.0);
                }
                self.leave(number);
            }
            None => self.anyones.remove(&mut self.receives, 0, key.0),
        }
        self.receives.remove(key.0).map(|posted| posted.receive)
    }

    /// Whether a message of this source is kept, or a receive waits for one.
    pub fn knows(&self, source: u32) -> bool {
        self.sources.contains_key(&source)
    }

    /// Messages that may yet be kept.
    pub fn room(&self) -> usize {
        (self.limits.messages_max as usize).saturating_sub(self.messages.len())
    }

    /// Keeps a message for which there is no receive ([`Matcher::receive_for`]).
    ///
    /// # Errors
    /// The message itself, when there are `messages_max`.
    pub fn keep(&mut self, envelope: Envelope, message: M) -> Result<MessageKey, M> {
        if self.messages.len() >= self.limits.messages_max as usize {
            return Err(message);
        }
        let kept = Unexpected { envelope, claimed: false, links: [Links::default(); 2], message };
        let key = self.messages.insert(kept, u32::MAX).expect("below its bound");
        let source = self.sources.entry(envelope.source).or_default();
        source.entries += 1;
        source.messages.push(&mut self.messages, BY_SOURCE, key);
        self.all.push(&mut self.messages, ALL, key);
        Ok(MessageKey(key))
    }

    /// The kept message for a receive: of those that fit, the one that came first. It stays
    /// (`FI_PEEK`) until it is claimed or taken.
    pub fn message_for(&self, want: &Selector) -> Option<MessageKey> {
        let (chain, lane) = match want.source {
            Some(number) => (&self.sources.get(&number)?.messages, BY_SOURCE),
            None => (&self.all, ALL),
        };
        let mut fits =
            chain.iter(&self.messages, lane).filter(|(_, kept)| want.fits(&kept.envelope));
        fits.next().map(|(key, _)| MessageKey(key))
    }

    /// A kept message and what it is.
    pub fn message(&self, key: MessageKey) -> Option<(&Envelope, &M)> {
        self.messages.get(key.0).map(|kept| (&kept.envelope, &kept.message))
    }

    /// A kept message, to be changed: more of it has come.
    pub fn message_mut(&mut self, key: MessageKey) -> Option<&mut M> {
        self.messages.get_mut(key.0).map(|kept| &mut kept.message)
    }

    /// Claims a kept message (`FI_PEEK | FI_CLAIM`): no receive finds it any more, and it waits
    /// until it is taken under its key. False if the message does not exist, or has been claimed.
    pub fn claim(&mut self, key: MessageKey) -> bool {
        match self.messages.get_mut(key.0) {
            Some(kept) if !kept.claimed => {
                kept.claimed = true;
                self.unchain(key.0);
                true
            }
            _ => false,
        }
    }

    /// Whether a kept message has been claimed.
    pub fn is_claimed(&self, key: MessageKey) -> bool {
        self.messages.get(key.0).is_some_and(|kept| kept.claimed)
    }

    /// Takes a message out: for its receive, for its claimer, or to throw it away
    /// (`FI_DISCARD`).
    pub fn take(&mut self, key: MessageKey) -> Option<M> {
        if !self.messages.get(key.0)?.claimed {
            self.unchain(key.0);
        }
        self.messages.remove(key.0).map(|kept| kept.message)
    }

    /// The first kept message of a source that is not claimed: when the peer is lost, the caller
    /// takes them one by one.
    pub fn first_from(&self, source: u32) -> Option<MessageKey> {
        self.message_for(&Selector { tag: 0, ignore: u64::MAX, source: Some(source) })
    }

    fn unchain(&mut self, key: Key) {
        let Some(number) = self.messages.get(key).map(|kept| kept.envelope.source) else { return };
        if let Some(source) = self.sources.get_mut(&number) {
            source.messages.remove(&mut self.messages, BY_SOURCE, key);
        }
        self.all.remove(&mut self.messages, ALL, key);
        self.leave(number);
    }

    /// One entry of a source is gone.
    fn leave(&mut self, number: u32) {
        if let Some(source) = self.sources.get_mut(&number) {
            source.entries -= 1;
            if source.entries == 0 {
                self.sources.remove(&number);
            }
        }
    }
}
