//! Matching of messages and receives.
//!
//! ```text
//!  arrival --> receives that name its source --+--> the one posted first
//!          --> receives that name no source ---+       none fits: kept, until one asks
//!
//!  receive --> kept messages of its source, or of all: the one that came first
//! ```
//!
//! Receives with a source are in a chain of this source. So the search for a message does not visit
//! receives for other sources: in an all-to-all exchange among a thousand peers each message costs
//! one step, not a thousand. The caller offers the messages of one source in the order in which
//! they were sent, even if their packets arrived in another order. Bounds: [`Limits`].

use hashbrown::HashMap;

use crate::hash::Keyed;
use crate::layer::request::Selector;
use crate::rdm::receive::list::{Chain, Linked, Links};
use crate::slots::{Key, Slots};

/// Lane of an unexpected message's links in the chain of its source.
const BY_SOURCE: usize = 0;
/// Lane of an unexpected message's links in the chain of all messages.
const ALL: usize = 1;

/// Largest numbers of receives and messages that wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Largest number of receives that are posted and not matched.
    pub receives_max: u32,
    /// Largest number of messages that wait for a receive, including claimed messages.
    pub messages_max: u32,
}

/// The fields of a message that matching compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// Tag; zero for a message without a tag.
    pub tag: u64,
    /// Number of the peer that sent the message.
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

/// Identifies a posted receive. After the receive was removed, the key is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct ReceiveKey(Key);

/// Identifies a stored message. After the message was removed, the key is invalid.
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
    /// Whether a caller has claimed the message (`FI_CLAIM`). A claimed message is in no chain.
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

/// Chains of the receives and the messages of one source.
#[derive(Debug, Default)]
struct Source {
    receives: Chain,
    messages: Chain,
    /// Number of entries in both chains. At zero this record is removed.
    entries: u32,
}

/// The queues of posted receives, each with a record of the caller (`R`), and of messages for which
/// no receive is posted yet (`M`).
#[derive(Debug)]
pub struct Matcher<R, M> {
    limits: Limits,
    receives: Slots<Posted<R>>,
    messages: Slots<Unexpected<M>>,
    /// Receives without a source.
    anyones: Chain,
    all: Chain,
    /// Chains by source. Bound: the number of receives and messages.
    sources: HashMap<u32, Source, Keyed>,
    posted: u64,
}

impl<R, M> Matcher<R, M> {
    /// Makes empty queues. `seed` is the secret key of the table of sources.
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

    /// Returns the number of posted receives and of stored messages.
    pub fn len(&self) -> (usize, usize) {
        (self.receives.len(), self.messages.len())
    }

    /// Whether there is neither a receive nor a message.
    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }

    /// Returns the receive for an arrived message: the first posted receive that matches. The
    /// receive stays posted until it is withdrawn, because it may take several messages
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

    /// Returns the caller's record of a receive.
    pub fn receive_mut(&mut self, key: ReceiveKey) -> Option<&mut R> {
        self.receives.get_mut(key.0).map(|posted| &mut posted.receive)
    }

    /// Returns the first posted receive whose record satisfies a condition. Searches all receives.
    pub fn find(&self, is_it: impl Fn(&R) -> bool) -> Option<ReceiveKey> {
        let found = self.receives.iter().filter(|(_, posted)| is_it(&posted.receive));
        found.min_by_key(|(_, posted)| posted.order).map(|(key, _)| ReceiveKey(key))
    }

    /// Posts a receive. The caller has checked that no stored message matches it
    /// ([`Matcher::message_for`]).
    ///
    /// # Errors
    /// The receive itself, if there are `receives_max` receives.
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

    /// Removes a receive that was matched or cancelled.
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

    /// Whether there is a stored message of this source, or a receive with this source.
    pub fn knows(&self, source: u32) -> bool {
        self.sources.contains_key(&source)
    }

    /// Returns the number of further messages that can be stored.
    pub fn room(&self) -> usize {
        (self.limits.messages_max as usize).saturating_sub(self.messages.len())
    }

    /// Stores a message for which there is no receive ([`Matcher::receive_for`]).
    ///
    /// # Errors
    /// The message itself, if there are `messages_max` messages.
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

    /// Returns the stored message for a receive: the message that arrived first among the matching
    /// messages. It stays stored (`FI_PEEK`) until it is claimed or taken.
    pub fn message_for(&self, want: &Selector) -> Option<MessageKey> {
        let (chain, lane) = match want.source {
            Some(number) => (&self.sources.get(&number)?.messages, BY_SOURCE),
            None => (&self.all, ALL),
        };
        let mut fits =
            chain.iter(&self.messages, lane).filter(|(_, kept)| want.fits(&kept.envelope));
        fits.next().map(|(key, _)| MessageKey(key))
    }

    /// Returns a stored message and its envelope.
    pub fn message(&self, key: MessageKey) -> Option<(&Envelope, &M)> {
        self.messages.get(key.0).map(|kept| (&kept.envelope, &kept.message))
    }

    /// Returns a stored message for changes, because more of its bytes have arrived.
    pub fn message_mut(&mut self, key: MessageKey) -> Option<&mut M> {
        self.messages.get_mut(key.0).map(|kept| &mut kept.message)
    }

    /// Claims a stored message (`FI_PEEK | FI_CLAIM`): from now on no receive matches it, and it
    /// stays until it is taken by its key. Returns false if the message does not exist, or is
    /// claimed already.
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

    /// Whether a stored message is claimed.
    pub fn is_claimed(&self, key: MessageKey) -> bool {
        self.messages.get(key.0).is_some_and(|kept| kept.claimed)
    }

    /// Takes a message: for its receive, for the caller that has claimed it, or to discard it
    /// (`FI_DISCARD`).
    pub fn take(&mut self, key: MessageKey) -> Option<M> {
        if !self.messages.get(key.0)?.claimed {
            self.unchain(key.0);
        }
        self.messages.remove(key.0).map(|kept| kept.message)
    }

    /// Returns the first stored message of a source that is not claimed. If a peer is lost, the
    /// caller takes its messages one by one.
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

    /// Records that an entry of the source with this number was removed; a source without entries
    /// is removed as well.
    fn leave(&mut self, number: u32) {
        if let Some(source) = self.sources.get_mut(&number) {
            source.entries -= 1;
            if source.entries == 0 {
                self.sources.remove(&number);
            }
        }
    }
}
