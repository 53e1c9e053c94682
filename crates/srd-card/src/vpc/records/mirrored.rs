//! Mirror sessions in the card: selection of the packets that are copied, and sending of the
//! copies.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use srd_proto::time::Instant;
use srd_vpc::compile;
use srd_vpc::id::EniId;
use srd_vpc::judge::mirrors;
use srd_vpc::object::World;

use crate::limits::Offer;
use crate::meta::key::{Direction, FlowKey};
use crate::meta::offload::OFFLOAD_BYTES;
use crate::rewrite::checksum;
use crate::rewrite::segment::Segments;
use crate::vpc::card::Card;
use crate::vpc::drops::Cause;
use crate::vpc::frames::read::Read;
use crate::vpc::port::{Environment, PortId};
use crate::vpc::records::mirror::{self, Mirror};
use crate::vpc::tables::flow::To;

impl Card {
    /// Sets the mirror sessions of the card's interfaces to the mirror sessions of a world.
    pub fn set_mirrors(&mut self, world: &World) {
        let mut of: BTreeMap<EniId, Vec<(u16, Mirror)>> = BTreeMap::new();
        for id in world.mirror_sessions.keys() {
            if let Some((source, number, mirror)) = Mirror::of(world, *id) {
                of.entry(source).or_default().push((number, mirror));
            }
        }
        let targets: BTreeSet<EniId> = world.mirror_targets.values().map(|to| to.eni).collect();
        for port in self.ports.iter_mut().filter(|port| !port.is_gone) {
            let mut sessions = of.remove(&port.eni).unwrap_or_default();
            sessions.sort_by_key(|(number, _)| *number);
            port.is_mirror_target = targets.contains(&port.eni);
            // Copies of copies would never end. // M1
            let is_source = !port.is_mirror_target;
            port.mirrors =
                sessions.into_iter().filter(|_| is_source).map(|(_, mirror)| mirror).collect();
        }
    }

    /// Copies a packet that has passed rules and limits, if a mirror session of its interface
    /// accepts it. // M2
    #[inline]
    pub(in crate::vpc) fn mirror(
        &mut self,
        now: Instant,
        port: PortId,
        frame: &[u8],
        direction: Direction,
        around: &mut impl Environment,
    ) {
        if !self.ports[port.0 as usize].mirrors.is_empty() {
            self.copy(now, port, frame, direction, around);
        }
    }

    #[cold]
    #[inline(never)]
    fn copy(
        &mut self,
        now: Instant,
        port: PortId,
        frame: &[u8],
        direction: Direction,
        around: &mut impl Environment,
    ) {
        let Some(read) = Read::frame(frame) else { return };
        let bytes = &frame[OFFLOAD_BYTES..];
        let egress = direction == Direction::Egress;
        let packet = read.for_rules(bytes);
        let is_dhcp = crate::observe::Observed::of(&read.packet, bytes, egress).is_none();
        let mut sessions = self.ports[port.0 as usize].mirrors.iter();
        let wanted = sessions.find(|mirror| mirrors(&mirror.filter, egress, &packet));
        let Some(mirror) = wanted.filter(|_| !is_dhcp) else { return };
        if !egress && mirror.is_answer(&read.packet, bytes) {
            return;
        }
        // Hash of the ports if the packet has any, otherwise of addresses and protocol. // M3
        let hash = FlowKey::of(&read.packet).hash_under(&self.of_mirrors, 0);
        // A super-packet is many packets on the wire, with complete checksums.
        let mut segments = Segments::new(frame, &read.layout);
        let layout = segments.layout();
        let mut copies = Vec::new();
        for index in 0..segments.count() {
            let mut whole = segments.write(index)[OFFLOAD_BYTES..].to_vec();
            checksum::complete(&mut whole, &layout);
            copies.push(mirror.copy(&whole, egress, hash));
        }
        for copy in copies {
            self.send_copy(now, port, copy, around);
        }
    }

    fn send_copy(
        &mut self,
        now: Instant,
        port: PortId,
        mut frame: Vec<u8>,
        around: &mut impl Environment,
    ) {
        let there = &self.ports[port.0 as usize];
        let (instance, index) = (there.instance, there.index);
        let to = Read::frame(&frame).and_then(|read| {
            // Groups of the source are not applied. // M5
            let flow = compile::Flow::Established;
            match self.ask_sent(port, &read, &frame[OFFLOAD_BYTES..], flow) {
                Ok((target, _)) => Some(target.to),
                Err(cause) => {
                    if cause == Cause::Unanswered {
                        self.only_ask(now, port, &frame);
                    }
                    None
                }
            }
        });
        let to = to.filter(|to| matches!(to, To::Port(_) | To::Host { .. }));
        // Packets to another worker of this host may have any size. // W2
        if let Some(To::Host { host, .. }) = &to
            && !self.beside.contains(host)
        {
            mirror::cut(&mut frame, self.bytes_max_to(host, around));
        }
        let bytes = u32::try_from(frame.len() - OFFLOAD_BYTES).unwrap_or(u32::MAX);
        let offer = Offer {
            direction: Direction::Egress,
            bytes,
            packets: 1,
            eni: index,
            gateway: false,
            link_local: false,
            fragment: false,
        };
        let limits = &mut self.instances[instance as usize].limits;
        let to = to.filter(|_| limits.spare(now, &offer));
        let counts = &mut self.ports[port.0 as usize].counts;
        let Some(to) = to else {
            counts.mirror_dropped += 1;
            return;
        };
        counts.mirrored_packets += 1;
        counts.mirrored_bytes += u64::from(bytes);
        if let Err(cause) = self.leave(now, port, to, frame, around) {
            self.drop_of(Some(port), cause, 1);
        }
    }
}
