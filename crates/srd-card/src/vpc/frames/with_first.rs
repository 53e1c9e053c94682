//! Fragments, read together with the data of the first fragment of their datagram.
//!
//! A first fragment is stored when the rules have evaluated it, and applies only to later fragments
//! from the same sender. So a sender that forges the addresses of another sender does not affect
//! the fragments of that sender. Refused first fragments have entries of their own.

use srd_proto::time::Instant;
use srd_vpc::judge::Reason;

use crate::meta::key::Direction;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::track::Key;
use crate::vpc::card::{Card, Port};
use crate::vpc::drops::Cause;
use crate::vpc::frames::read::Read;
use crate::vpc::port::PortId;
use crate::vpc::tables::flow::Sender;
use crate::vpc::tables::fragments::{Datagram, First};

impl Card {
    /// Reads a fragment that an interface sends, or receives from a sender. A later fragment gets
    /// the ports and the flow of its first fragment.
    #[cold]
    #[inline(never)]
    pub(in crate::vpc) fn with_first(
        &self,
        now: Instant,
        port: PortId,
        from: Option<&Sender>,
        read: &Read,
        bytes: &[u8],
    ) -> (Read, Key) {
        let there = &self.ports[port.0 as usize];
        let mut read = *read;
        there.add_first(now, from, &mut read, bytes);
        let direction = if from.is_some() { Direction::Ingress } else { Direction::Egress };
        let key = read.key(bytes, direction, there.index);
        (read, key)
    }

    /// Stores a first fragment that the rules have admitted (`passes`) or refused. Other packets
    /// are ignored.
    #[cold]
    #[inline(never)]
    pub(in crate::vpc) fn note_first(
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

    /// Reads the headers of a frame again, after it waited or was translated. A later fragment gets
    /// the ports of its first fragment, as in [`with_first`](Self::with_first).
    pub(in crate::vpc) fn known_read(
        &self,
        now: Instant,
        port: PortId,
        from: Option<&Sender>,
        frame: &[u8],
    ) -> Option<Read> {
        let mut read = Read::frame(frame)?;
        let there = &self.ports[port.0 as usize];
        there.add_first(now, from, &mut read, &frame[OFFLOAD_BYTES..]);
        Some(read)
    }
}

impl Port {
    /// Adds the data of the first fragment, if it is known, to a later fragment. Without it, a
    /// fragment of an unknown protocol never passes, because the rules cannot evaluate it. // T1
    fn add_first(&self, now: Instant, from: Option<&Sender>, read: &mut Read, bytes: &[u8]) {
        if read.packet.first {
            return;
        }
        let Some(datagram) = Datagram::of(&read.packet, bytes) else { return };
        // If both ends are on this host, the sender's side has the first fragment as well.
        match self.firsts.get(now, from, datagram) {
            Some((first, passed)) => {
                (read.first, read.follows_refused) = (Some(first), !passed);
                read.packet.protocol = read.for_rules(bytes).protocol();
            }
            None => read.follows_refused = read.packet.is_of_unknown_protocol(),
        }
    }
}

/// Returns the cause for dropping a later fragment after its first fragment was refused. `asked` is
/// the verdict of the present rules, which may differ from the verdict about the first fragment.
/// Even if they admit the fragment, it is dropped, because the datagram is lost anyway.
pub(in crate::vpc) fn after_refused<T>(asked: Result<T, Cause>) -> Cause {
    match asked {
        Ok(_) | Err(Cause::Unanswered) => Cause::FirstFragment,
        Err(cause) => cause,
    }
}

impl Read {
    /// Returns the cause under which a refused packet is counted: [`Cause::FirstFragment`] if
    /// security groups or network ACLs refuse a later fragment because its ports, or its ICMP type,
    /// are unknown.
    pub(in crate::vpc) fn cause(&self, cause: Cause) -> Cause {
        let asked = matches!(
            cause,
            Cause::Rule(Reason::GroupsIn | Reason::GroupsOut | Reason::AclIn | Reason::AclOut)
        );
        if asked && self.is_headless() { Cause::FirstFragment } else { cause }
    }
}
