//! Limits of instances, and the path of packets that have passed them.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use srd_proto::time::Instant;
use srd_vpc::compile::Flow as OfFlow;
use srd_vpc::judge::Exit;

use crate::limits::{FlowKind, Limit, LimitDecision, Offer, Outcome};
use crate::meta::Meta;
use crate::meta::key::{Direction, FlowKey};
use crate::meta::layout::Layout;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::rewrite::{checksum, fragment, mss, segment, too_big};
use crate::track::{Key, TrackId, is_error};
use crate::vpc::asking::PendingPacket;
use crate::vpc::card::{Card, Instance, Port};
use crate::vpc::drops::Cause;
use crate::vpc::envelope::Envelope;
use crate::vpc::frames::parcel::{Going, Parcel};
use crate::vpc::frames::read::Read;
use crate::vpc::frames::translate;
use crate::vpc::port::{Environment, FrameRoute, PortId};
use crate::vpc::records::trace::{Event, Followed, Next};
use crate::vpc::tables::flow::{Sender, To, Via};
use crate::vpc::tables::nat::{QuotedEnd, readdress};

/// A packet of a guest that has passed the limits.
pub(in crate::vpc) struct Out<'a> {
    pub(in crate::vpc) port: PortId,
    /// Number of the packet's target.
    pub(in crate::vpc) slot: u32,
    pub(in crate::vpc) followed: Followed,
    /// Headers of the packet; `None` for a packet that has waited, whose headers are not kept.
    pub(in crate::vpc) read: Option<&'a Read>,
    /// Interface of this host that probably receives the packet, and the key of the flow there;
    /// `None` if they were not looked up.
    pub(in crate::vpc) there: Option<(PortId, &'a Key)>,
}

/// Largest packet of a cloud that SRD carries, in bytes.
const EXPRESS_MTU: u16 = 8900;

impl Card {
    /// Checks a packet against the limits of its instance, and charges them. `flow`: the kind of
    /// the packet's flow if it has a ceiling, and its entry if there is one. // L4
    #[inline]
    pub(in crate::vpc) fn ask(
        &mut self,
        now: Instant,
        number: u32,
        offer: &Offer,
        flow: Option<(Option<TrackId>, FlowKind)>,
    ) -> LimitDecision {
        let late = self.late;
        let instance = &mut self.instances[number as usize];
        instance.limits.set_late(late);
        let Some((id, kind)) = flow else { return instance.limits.ask(now, offer, None) };
        let ceiling = instance.ceiling(kind);
        let Instance { flows, limits, without_entry, .. } = instance;
        let found = id.and_then(|id| flows.value(id)).map(|found| &mut found.0.meter);
        limits.ask(now, offer, Some((found.unwrap_or(without_entry), &ceiling)))
    }

    /// Keeps a packet that has to wait, until [`Card::run`] continues with it; or drops and counts
    /// it. `asked` is the result of [`Card::ask`].
    #[cold]
    pub(in crate::vpc) fn keep(
        &mut self,
        now: Instant,
        number: u32,
        asked: LimitDecision,
        offer: Offer,
        parcel: Parcel,
    ) {
        let followed = parcel.followed;
        let outcome = self.instances[number as usize].limits.keep(asked, offer, parcel);
        self.note(now, followed, || match outcome {
            Outcome::Dropped(limit, _) => Event::OverLimit(limit),
            Outcome::Taken(limit) => Event::Waits(limit),
            _ => Event::Waits(None),
        });
        if self.busy.back() != Some(&number) {
            self.busy.push_back(number);
        }
    }

    /// Continues with packets that have passed the limits of their instances. Bound: each packet
    /// passes the limits of at most two instances.
    pub(in crate::vpc) fn run(&mut self, now: Instant, around: &mut impl Environment) {
        while let Some(number) = self.busy.pop_front() {
            while let Some((offer, parcel, held)) =
                self.instances[number as usize].limits.pop_held(now)
            {
                if parcel.followed.is_some() {
                    // The first limit was recorded when the wait began.
                    for limit in held.limits().skip(1) {
                        self.note(now, parcel.followed, || Event::Waits(Some(limit)));
                    }
                }
                self.onward(now, &offer, parcel, around);
            }
            while let Some((limit, parcel)) = self.instances[number as usize].limits.pop_late() {
                self.note(now, parcel.followed, || Event::OverLimit(limit));
            }
            self.arm(number);
        }
    }

    /// Continues with a packet that waited and has passed the limits. If a change of rules
    /// meanwhile may concern the packet, the rules evaluate it again. // V4
    fn onward(
        &mut self,
        now: Instant,
        offer: &Offer,
        mut parcel: Parcel,
        around: &mut impl Environment,
    ) {
        if parcel.epoch != self.epochs.now()
            && (self.is_concerned(&parcel, |card, port, key| card.since(port, key).groups)
                || matches!(parcel.going, Going::In(Sender { via: Via::Nat, .. })))
            && let Err(cause) = self.judge_again(now, &mut parcel)
        {
            if cause == Cause::Unanswered {
                let eni = self.ports[parcel.port.0 as usize].eni;
                let Parcel { frame, port, going, followed, .. } = parcel;
                let sender = match going {
                    Going::Out(_) => None,
                    Going::In(sender) => Some(sender),
                };
                // When the location is known, the packet passes the limits once more. It has been
                // counted as received over SRD already.
                let (for_nat, by_srd) = (false, false);
                let waiting = PendingPacket { frame, port, eni, sender, for_nat, followed, by_srd };
                return self.wait(now, waiting, offer.packets.into());
            }
            self.log_late_refusal(now, &parcel, cause);
            self.note(now, parcel.followed, || Event::Dropped(cause));
            return self.drop_of(Some(parcel.port), cause, offer.packets.into());
        }
        let Parcel { frame, port, going, followed, .. } = parcel;
        match going {
            Going::In(_) => self.gone_in(now, offer, port, followed, frame, around),
            Going::Out(slot) => {
                let out = Out { port, slot, followed, read: None, there: None };
                self.gone_out(now, offer, out, frame, around);
            }
        }
    }

    /// Delivers a packet to its guest after the packet has passed the limits. The packet is also
    /// counted, logged and mirrored.
    pub(in crate::vpc) fn gone_in(
        &mut self,
        now: Instant,
        offer: &Offer,
        port: PortId,
        followed: Followed,
        frame: Vec<u8>,
        around: &mut impl Environment,
    ) {
        let counts = &mut self.ports[port.0 as usize].counts;
        counts.rx_packets += u64::from(offer.packets);
        counts.rx_bytes += u64::from(offer.bytes);
        self.log_passed(now, port, &frame, offer, None);
        self.mirror(now, port, &frame, Direction::Ingress, around);
        self.note(now, followed, || Event::Gone(Next::Guest));
        around.to_guest(port, frame);
    }

    /// Sends a packet that has passed the limits to its target; counts, logs and mirrors it.
    pub(in crate::vpc) fn gone_out(
        &mut self,
        now: Instant,
        offer: &Offer,
        Out { port, slot, followed, read, there: known }: Out<'_>,
        frame: Vec<u8>,
        around: &mut impl Environment,
    ) {
        let Some(target) = self.ends.targets.get(slot) else { return };
        let path = target.path;
        let counts = &mut self.ports[port.0 as usize].counts;
        counts.tx_packets += u64::from(offer.packets);
        counts.tx_bytes += u64::from(offer.bytes);
        if !offer.link_local {
            self.log_passed(now, port, &frame, offer, Some(path));
            self.mirror(now, port, &frame, Direction::Egress, around);
        }
        let Some(target) = self.ends.targets.get(slot) else { return };
        if let (To::Host { host, eni, ride }, Some(read), false) =
            (&target.to, read, followed.is_some())
            && !read.layout.is_syn()
        {
            // The most frequent case of packets for other hosts.
            let rides = rides_srd(ride.is_ok(), &read.layout);
            if rides || read.layout.packet_bytes() <= self.host_bytes_max {
                let there = &mut self.ports[port.0 as usize];
                there.counts.count_express(ride.is_ok(), rides, read.layout.packets());
                let envelope = Envelope::Between { from: there.eni, to: *eni };
                let instance = there.instance;
                return around
                    .to_host(FrameRoute { host, instance, envelope, express: rides }, frame);
            }
        }
        let to = target.to.clone();
        let next = followed.is_some().then(|| Next::of(&to));
        let stays = matches!(to, To::Port(_) | To::Service(_));
        if stays && let Some(next) = next.clone() {
            // Recorded before the events at the receiver on this host.
            self.note(now, followed, || Event::Gone(next));
        }
        if let (To::Port(other), Some(read)) = (&to, read) {
            let eni = Some(self.ports[port.0 as usize].eni);
            let sender = Sender { host: None, eni, via: Via::Direct };
            let key = match known {
                Some((port, key)) if port == *other => *key,
                _ => self.key_at(*other, read, &frame),
            };
            return self.arrive_read(now, &sender, *other, frame, (read, &key), around);
        }
        let left = self.leave(now, port, to, frame, around);
        if let Err(cause) = left {
            self.drop_of(Some(port), cause, offer.packets.into());
        }
        if !stays && let Some(next) = next {
            let end = left.map_or_else(Event::Dropped, |()| Event::Gone(next));
            self.note(now, followed, || end);
        }
    }

    /// Whether a packet may be concerned by a change after the rules evaluated it. `last` returns
    /// the number of the last change that concerns a flow of an interface.
    #[cold]
    fn is_concerned(&self, parcel: &Parcel, last: fn(&Self, &Port, &Key) -> u64) -> bool {
        let Some(read) = Read::frame(&parcel.frame) else { return true };
        let bytes = &parcel.frame[OFFLOAD_BYTES..];
        let since = |port: PortId, direction| {
            let port = &self.ports[port.0 as usize];
            last(self, port, &read.key(bytes, direction, port.index))
        };
        let (own, other) = match &parcel.going {
            Going::Out(_) => (Direction::Egress, None),
            Going::In(sender) => {
                let here = sender.eni.filter(|_| sender.host.is_none());
                (Direction::Ingress, here.and_then(|eni| self.port_of(eni)))
            }
        };
        let other = other.map_or(0, |port| since(port, Direction::Egress));
        parcel.epoch < since(parcel.port, own).max(other)
    }

    fn judge_again(&mut self, now: Instant, parcel: &mut Parcel) -> Result<(), Cause> {
        let from = match &parcel.going {
            Going::Out(_) => None,
            Going::In(sender) => Some(sender),
        };
        let read = self.known_read(now, parcel.port, from, &parcel.frame);
        let read = read.ok_or(Cause::Malformed)?;
        let bytes = &parcel.frame[OFFLOAD_BYTES..];
        let direction = if from.is_some() { Direction::Ingress } else { Direction::Egress };
        let flow = self.flow_of(now, parcel.port, &read, bytes, direction);
        let is_changed = self.is_concerned(parcel, Self::changed);
        match &mut parcel.going {
            Going::Out(slot) => {
                let (target, _) = self.ask_sent(parcel.port, &read, bytes, flow)?;
                *slot = self.ends.targets.number_of(&target);
            }
            // The address that the packet had before its translation is no longer known.
            Going::In(Sender { eni: None, .. } | Sender { via: Via::NatBack, .. })
                if is_changed =>
            {
                return Err(Cause::Changed);
            }
            Going::In(Sender { host: None, via: Via::Nat, .. }) if is_changed => {
                return Err(Cause::Changed);
            }
            Going::In(Sender { eni: None, host, .. }) => {
                let host = host.as_ref().unwrap_or(&self.host);
                return if self.is_edge(host) { Ok(()) } else { Err(Cause::NotItsHost) };
            }
            Going::In(Sender { via: Via::NatBack, .. }) => {}
            Going::In(sender @ Sender { via: Via::Nat, .. }) => {
                self.ask_received(sender, parcel.port, &read, bytes, flow)?;
            }
            Going::In(sender) => {
                self.ask_received(sender, parcel.port, &read, bytes, flow)?;
                let here = sender.eni.filter(|_| sender.host.is_none());
                if let Some(from) = here.and_then(|eni| self.port_of(eni)) {
                    let flow = self.flow_of(now, from, &read, bytes, Direction::Egress);
                    self.ask_sent(from, &read, bytes, flow)?;
                }
            }
        }
        Ok(())
    }

    /// Whether a packet belongs to a connection that an interface tracks. The state of the
    /// connection does not change.
    pub(in crate::vpc) fn flow_of(
        &mut self,
        now: Instant,
        port: PortId,
        read: &Read,
        bytes: &[u8],
        direction: Direction,
    ) -> OfFlow {
        let there = &self.ports[port.0 as usize];
        let key = read.key(bytes, direction, there.index);
        let flows = &mut self.instances[there.instance as usize].flows;
        let known = flows.related(now, &key).filter(|_| !is_error(&read.packet, bytes));
        let known = known.and_then(|id| flows.value(id));
        let tracked = known.is_some_and(|(_, tracked, _)| tracked)
            || self.is_related(now, port, read, bytes, direction);
        if tracked { OfFlow::Established } else { OfFlow::New }
    }

    /// Sends a packet of a guest to its next destination.
    ///
    /// # Errors
    /// The cause, if the packet is too large for its path, or if a NAT gateway does not accept it.
    /// The caller has to count the packet as dropped.
    pub(in crate::vpc) fn leave(
        &mut self,
        now: Instant,
        port: PortId,
        to: To,
        frame: Vec<u8>,
        around: &mut impl Environment,
    ) -> Result<(), Cause> {
        let there = &self.ports[port.0 as usize];
        let (from, instance) = (there.eni, there.instance);
        match to {
            To::Port(other) => {
                let sender = Sender { host: None, eni: Some(from), via: Via::Direct };
                self.arrive(now, sender, other, frame, around);
            }
            To::Host { host, eni, ride } => {
                let to = (&host, Envelope::Between { from, to: eni }, ride.is_ok());
                return self.send_to_host(now, port, to, frame, around);
            }
            To::ByNat { nat, private, host, eni } => {
                let (nat, to) = ((nat, private), (host, eni));
                return self.leave_by_nat(now, port, nat, to, frame, around);
            }
            To::BackByNat(nat) => return self.leave_to_nat(now, port, nat, frame, around),
            To::Service(service) => around.to_service(port, service, frame),
            To::Edge { exit, edge, nat: Some(nat), .. } => {
                return self.leave_by_edge(now, port, (nat, exit), &edge, frame, around);
            }
            To::Edge { exit, edge, public, nat: None } => {
                let envelope = Envelope::Leaving { from, exit };
                for mut frame in self.fitting(now, port, carried_bytes(exit), frame, around)? {
                    if let Some((public, read)) = public.zip(Read::frame(&frame)) {
                        let bytes = &mut frame[OFFLOAD_BYTES..];
                        translate::write(bytes, &read.layout, translate::SOURCE_AT, public);
                        if let IpAddr::V4(private) = read.packet.source {
                            readdress(&read, bytes, QuotedEnd::Destination, (private, public));
                        }
                    }
                    let way = FrameRoute { host: &edge, instance, envelope, express: false };
                    around.to_host(way, frame);
                }
            }
        }
        Ok(())
    }

    /// Sends a packet to an interface of another host, in fragments if it does not fit.
    pub(in crate::vpc) fn send_to_host(
        &mut self,
        now: Instant,
        port: PortId,
        (host, envelope, express): (&Arc<str>, Envelope, bool),
        mut frame: Vec<u8>,
        around: &mut impl Environment,
    ) -> Result<(), Cause> {
        let instance = self.ports[port.0 as usize].instance;
        if self.beside.contains(host) {
            around.to_host(FrameRoute { host, instance, envelope, express: false }, frame);
            return Ok(());
        }
        let most = self.bytes_max_to(host, around);
        let mtu = if express { EXPRESS_MTU } else { u16::try_from(most).unwrap_or(u16::MAX) };
        let Some(read) = Read::frame(&frame) else { return Ok(()) };
        mss::clamp(&mut frame[OFFLOAD_BYTES..], &read.layout, mtu);
        let rides = rides_srd(express, &read.layout);
        let way = FrameRoute { host, instance, envelope, express: rides };
        // The transport segments a super-packet, and TCP, that SRD does not carry. // V10
        if rides || segment::largest(&segment::fitted(&read.layout, most)) <= most {
            let counts = &mut self.ports[port.0 as usize].counts;
            counts.count_express(express, rides, read.layout.packets());
            around.to_host(way, frame);
            return Ok(());
        }
        let parts = self.fitting(now, port, most, frame, around)?;
        let packets = read.layout.packets();
        self.ports[port.0 as usize].counts.count_express(express, false, packets);
        parts.into_iter().for_each(|frame| around.to_host(way, frame));
        Ok(())
    }

    /// Returns the frame if its packets have at most `bytes_max` bytes; otherwise its fragments.
    ///
    /// # Errors
    /// [`Cause::TooBig`] if the packet may not be fragmented. The guest gets an ICMP error, within
    /// the rate limit (V7).
    pub(in crate::vpc) fn fitting(
        &mut self,
        now: Instant,
        port: PortId,
        bytes_max: usize,
        frame: Vec<u8>,
        around: &mut impl Environment,
    ) -> Result<Vec<Vec<u8>>, Cause> {
        let Some(read) = Read::frame(&frame) else { return Ok(Vec::new()) };
        if segment::largest(&read.layout) <= bytes_max {
            return Ok(alloc::vec![frame]);
        }
        if let Some(parts) = fragment::parts_of_frame(&frame, &read.layout, bytes_max) {
            let framed = |part: &Vec<u8>| [&[0; OFFLOAD_BYTES][..], part].concat();
            return Ok(parts.iter().map(framed).collect());
        }
        let mut whole = frame[OFFLOAD_BYTES..].to_vec();
        checksum::complete(&mut whole, &read.layout);
        let bytes = &whole[..];
        let key = FlowKey::of(&read.packet);
        let meta = Meta { key, direction: Direction::Egress, layout: read.layout };
        let mtu = u16::try_from(bytes_max).unwrap_or(u16::MAX);
        if let Some(answer) = too_big::answer(bytes, &meta, mtu)
            && self.ports[port.0 as usize].answers.allows(now)
        {
            around.to_guest(port, [&[0; OFFLOAD_BYTES][..], &answer].concat());
        }
        Err(Cause::TooBig)
    }

    /// Returns the counters of the packets that exceeded a limit of an interface's instance.
    pub fn held(&self, port: PortId, limit: Limit) -> crate::limits::stages::LimitCounts {
        let Some(port) = self.port(port) else { return Default::default() };
        self.instances[port.instance as usize].limits.held(limit)
    }
}

/// Whether SRD carries the packets of a frame: both interfaces have ENA Express for them
/// (`express`), and no packet is too large.
#[inline]
fn rides_srd(express: bool, layout: &Layout) -> bool {
    let most = usize::from(EXPRESS_MTU);
    express && (layout.packet_bytes() <= most || segment::largest(layout) <= most)
}

/// Largest packet that a gateway out of the cloud carries, in bytes.
pub(in crate::vpc) fn carried_bytes(exit: Exit) -> usize {
    match exit {
        Exit::InternetGateway(_) | Exit::EgressOnlyGateway(_) => 1500,
        Exit::Endpoint(_) => 8500,
    }
}
