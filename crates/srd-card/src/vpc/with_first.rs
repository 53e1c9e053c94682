//! Frames of interfaces, read together with what their first fragments have said.
//!
//! A first fragment is remembered when the rules have judged it, and only for later ones of the same
//! sender: a sender that writes another one's addresses changes nothing for that. Those that pass
//! have places that no refused one takes.

use core::net::{IpAddr, Ipv6Addr};

use srd_proto::time::Instant;
use srd_vpc::judge::Reason;

use super::card::Card;
use super::drops::Cause;
use super::flow::Sender;
use super::fragments::{Datagram, First, Fragments};
use super::port::PortId;
use super::read::Read;
use crate::meta::key::Direction;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::store::stored;
use crate::track::Key;

/// First fragments of an interface: of what it sends, and of what it receives.
#[derive(Debug, Default)]
pub(super) struct Firsts {
    sent: Fragments<First, (), Of>,
    /// Each interface that sends to it owns places.
    received: Fragments<First, Sender, Of>,
    /// Each address of the internet owns places; of IPv6, each network of 64 bits.
    from_outside: Fragments<First, IpAddr, Of>,
    /// Those that the rules have refused: they take no place of those that pass.
    refused: Fragments<First, Option<Sender>, Of>,
}

/// A datagram, and the other end that has sent it; none if the interface has.
type Of = (Option<Sender>, Datagram);

stored!(Firsts { sent, received, from_outside, refused });

/// The owner of an address of the internet.
fn owner(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

impl Firsts {
    /// `from`: the other end, of a packet that the interface receives.
    fn get(&self, now: Instant, from: Option<&Sender>, datagram: Datagram) -> Option<First> {
        let key = (from.cloned(), datagram);
        let passed = match from.map(|from| from.eni) {
            None => self.sent.get(now, &key),
            Some(Some(_)) => self.received.get(now, &key),
            Some(None) => self.from_outside.get(now, &key),
        };
        passed.or_else(|| self.refused.get(now, &key))
    }

    fn put(
        &mut self,
        now: Instant,
        from: Option<&Sender>,
        datagram: Datagram,
        first: First,
        passes: bool,
    ) {
        let key = (from.cloned(), datagram);
        // An earlier one with the same identification is over.
        self.refused.forget(&key);
        self.sent.forget(&key);
        self.received.forget(&key);
        self.from_outside.forget(&key);
        match from {
            from if !passes => self.refused.put(now, from.cloned(), key, first),
            None => self.sent.put(now, (), key, first),
            Some(sender) if sender.eni.is_some() => {
                self.received.put(now, sender.clone(), key, first);
            }
            Some(_) => self.from_outside.put(now, owner(datagram.source), key, first),
        }
    }
}

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
        {
            // Where both ends are here, the sender's side knows it, too.
            read.first = there.firsts.get(now, from, datagram).or(read.first);
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
        {
            read.first = self.ports[port.0 as usize].firsts.get(now, from, datagram);
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
