//! Frames of interfaces, read together with what their first fragments have said.

use srd_proto::time::Instant;
use srd_vpc::judge::Reason;

use super::card::Card;
use super::drops::Cause;
use super::fragments::{Datagram, First};
use super::port::PortId;
use super::read::Read;
use crate::meta::key::Direction;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::track::Key;

impl Card {
    /// A fragment that an interface sends or gets: a first one is remembered, and a later one is
    /// what its first one is.
    #[cold]
    #[inline(never)]
    pub(super) fn with_first(
        &mut self,
        now: Instant,
        port: PortId,
        direction: Direction,
        read: &Read,
        bytes: &[u8],
    ) -> (Read, Key) {
        let there = &mut self.ports[port.0 as usize];
        let known = &mut there.fragments[direction as usize];
        let mut read = *read;
        if let Some(datagram) = Datagram::of(&read.packet, bytes) {
            if read.packet.first {
                let inner = read.for_rules(bytes).inner;
                let ports = Key::ports_of(&read.packet, bytes);
                known.put(now, datagram, First { inner, ports });
            } else {
                // Where both ends are here, the sender's side knows it, too.
                read.first = known.get(now, &datagram).or(read.first);
            }
        }
        let key = read.key(bytes, direction, there.index);
        (read, key)
    }

    /// Reads a frame of an interface once more; a later fragment is what its first one is.
    pub(super) fn known_read(
        &self,
        now: Instant,
        port: PortId,
        direction: Direction,
        frame: &[u8],
    ) -> Option<Read> {
        let mut read = Read::frame(frame)?;
        if !read.packet.first
            && let Some(datagram) = Datagram::of(&read.packet, &frame[OFFLOAD_BYTES..])
        {
            let there = &self.ports[port.0 as usize];
            read.first = there.fragments[direction as usize].get(now, &datagram);
        }
        Some(read)
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
