//! Frames of interfaces, read together with what their first fragments have said.
//!
//! A first fragment is remembered when the rules have judged it, and only for later ones of the
//! same sender: a sender that writes another one's addresses changes nothing for that. Those that
//! pass have places that no refused one takes.

use srd_proto::time::Instant;
use srd_vpc::judge::Reason;

use super::card::Card;
use super::drops::Cause;
use super::flow::Sender;
use super::fragments::{Datagram, First};
use super::port::PortId;
use super::read::Read;
use crate::meta::key::Direction;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::track::Key;

impl Card {
    /// A fragment that an interface sends, or gets from a sender: a later one is what its first one
    /// is.
    #[cold]
    #[inline(never)]
    pub(super) fn with_first(
        &self,
        now: Instant,
        port: PortId,
        from: Option<&Sender>,
        read: &Read,
        bytes: &[u8],
    ) -> (Read, Key) {
        let there = &self.ports[port.0 as usize];
        let mut read = *read;
        if !read.packet.first
            && let Some(datagram) = Datagram::of(&read.packet, bytes)
            // Where both ends are here, the sender's side knows it, too.
            && let Some((first, passed)) = there.firsts.get(now, from, datagram)
        {
            (read.first, read.follows_refused) = (Some(first), !passed);
        }
        let direction = if from.is_some() { Direction::Ingress } else { Direction::Egress };
        let key = read.key(bytes, direction, there.index);
        (read, key)
    }

    /// The rules have let a first fragment pass, or refused it.
    #[cold]
    #[inline(never)]
    pub(super) fn note_first(
        &mut self,
        now: Instant,
        port: PortId,
        from: Option<&Sender>,
        (read, bytes): (&Read, &[u8]),
        passes: bool,
    ) {
        if !read.packet.first {
            return;
        }
        if let Some(datagram) = Datagram::of(&read.packet, bytes) {
            let inner = read.for_rules(bytes).inner;
            let first = First { inner, ports: Key::ports_of(&read.packet, bytes) };
            let firsts = &mut self.ports[port.0 as usize].firsts;
            firsts.put(now, from, datagram, first, passes);
        }
    }

    /// Reads a frame of an interface once more; a later fragment is what its first one is.
    pub(super) fn known_read(
        &self,
        now: Instant,
        port: PortId,
        from: Option<&Sender>,
        frame: &[u8],
    ) -> Option<Read> {
        let mut read = Read::frame(frame)?;
        if !read.packet.first
            && let Some(datagram) = Datagram::of(&read.packet, &frame[OFFLOAD_BYTES..])
            && let Some((first, passed)) =
                self.ports[port.0 as usize].firsts.get(now, from, datagram)
        {
            (read.first, read.follows_refused) = (Some(first), !passed);
        }
        Some(read)
    }
}

/// Returns the cause of the refusal of a later fragment whose first one was refused. The rules may
/// admit it by now, or a connection between the same ports may have begun since: the datagram is
/// lost nevertheless, and its fragments belong to no flow.
pub(super) fn after_refused<T>(asked: Result<T, Cause>) -> Cause {
    match asked {
        Ok(_) | Err(Cause::Unanswered) => Cause::FirstFragment,
        Err(cause) => cause,
    }
}

impl Read {
    /// The cause of a refusal. Rules cannot admit by its ports, or type, what does not show them.
    pub(super) fn cause(&self, cause: Cause) -> Cause {
        let asked = matches!(
            cause,
            Cause::Rule(Reason::GroupsIn | Reason::GroupsOut | Reason::AclIn | Reason::AclOut)
        );
        if asked && self.is_headless() { Cause::FirstFragment } else { cause }
    }
}
