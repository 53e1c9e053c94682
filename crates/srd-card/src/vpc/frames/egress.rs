//! Packets that guests send: their headers are read, their verdict is found in the flow table or
//! given by the rules, and they are offered to the limits.

use alloc::vec::Vec;
use core::net::IpAddr;

use srd_proto::time::Instant;
use srd_vpc::compile::{self, EgressVerdict, Next, Question};
use srd_vpc::express::{self, Plainly};
use srd_vpc::judge::{Exit, Reach, Service, Tracking};

use crate::limits::{LimitDecision, Offer};
use crate::meta::FRAME_BYTES_MAX;
use crate::meta::key::Direction;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::observe::Path;
use crate::rewrite::segment;
use crate::track::{FlowEntry, Key, PacketKind, TrackId, is_error};
use crate::vpc::asking::PendingPacket;
use crate::vpc::card::Card;
use crate::vpc::drops::Cause;
use crate::vpc::frames::onward::Out;
use crate::vpc::frames::parcel::{Going, Parcel};
use crate::vpc::frames::read::{Read, bytes_of};
use crate::vpc::frames::with_first::after_refused;
use crate::vpc::port::{Environment, PortId};
use crate::vpc::tables::flow::{FlowLookup, Side, Target, To, Verdict};

impl Card {
    /// Takes a frame that a guest sends: an offload header and its packet.
    pub fn from_guest(
        &mut self,
        now: Instant,
        port: PortId,
        frame: Vec<u8>,
        around: &mut impl Environment,
    ) {
        let Some(there) = self.port(port) else {
            return self.drop_of(None, Cause::NotHere, 1);
        };
        let index = there.index;
        // G5 of express.md
        if frame.len() > FRAME_BYTES_MAX
            && let Some(halves) = segment::halves(&frame)
        {
            return halves.into_iter().for_each(|half| {
                self.from_guest(now, port, half, around);
            });
        }
        let Some(read) = Read::frame(&frame) else {
            return self.drop_of(Some(port), Cause::Malformed, 1);
        };
        let key = read.key(&frame[OFFLOAD_BYTES..], Direction::Egress, index);
        self.send(now, port, frame, (&read, &key, None), around);
        self.run(now, around);
    }

    /// Evaluates a frame of a guest, whose headers have been read, by the rules, and offers it to
    /// the limits. `key` is the flow at the sending interface; `there` is the flow at the interface
    /// of this host that probably receives the frame, if it is known.
    pub(in crate::vpc) fn send(
        &mut self,
        now: Instant,
        port: PortId,
        frame: Vec<u8>,
        (read, key, there): (&Read, &Key, Option<(PortId, &Key)>),
        around: &mut impl Environment,
    ) {
        let own = &self.ports[port.0 as usize];
        let (instance, index) = (own.instance, own.index);
        let packets = read.layout.packets();
        let bytes = &frame[OFFLOAD_BYTES..];
        let of_first;
        let (read, key, there) = if read.packet.fragment {
            of_first = self.with_first(now, port, None, read, bytes);
            (&of_first.0, &of_first.1, None)
        } else {
            (read, key, there)
        };
        let seen = PacketKind::of(&read.packet, bytes);
        let followed = self.follow(now, port, read, bytes, Direction::Egress, key);
        let judged = self.ports[port.0 as usize].counts.judged;
        let target = self.target(now, port, read, bytes, key, seen);
        if read.packet.fragment {
            // Later fragments of a datagram that waits for an answer wait behind it.
            let passes = matches!(target, Ok(_) | Err(Cause::Unanswered));
            self.note_first(now, port, None, (read, bytes), passes);
        }
        let (slot, id) = match target {
            Ok(found) => found,
            Err(Cause::Unanswered) => {
                let eni = self.ports[port.0 as usize].eni;
                let (sender, for_nat, by_srd) = (None, false, false);
                let waiting = PendingPacket { frame, port, eni, sender, for_nat, followed, by_srd };
                return self.wait(now, waiting, packets);
            }
            Err(cause) => {
                self.log_refusal(now, port, read, bytes, Direction::Egress, cause);
                let cause = read.cause(cause);
                self.note_judged(now, followed, port, key, judged, Err(cause));
                if cause == Cause::Tracking {
                    let instance = &mut self.instances[instance as usize];
                    let packets = u32::try_from(packets).unwrap_or(u32::MAX);
                    instance.limits.count_refused_connection(index, packets);
                }
                return self.drop_of(Some(port), cause, packets);
            }
        };
        self.note_judged(now, followed, port, key, judged, Ok(Some(slot)));
        let Some(target) = self.ends.targets.get(slot) else { return };
        let offer = Offer {
            direction: Direction::Egress,
            bytes: bytes_of(&read.layout),
            packets: u32::try_from(packets).unwrap_or(u32::MAX),
            eni: index,
            gateway: matches!(target.to, To::Edge { .. }),
            link_local: matches!(target.to, To::Service(_)),
            fragment: read.packet.fragment,
        };
        let kind = target.kind;
        let flow = (!offer.link_local).then_some((id, kind));
        let asked = self.ask(now, instance, &offer, flow);
        if asked == LimitDecision::Through {
            let out = Out { port, slot, followed, read: Some(read), there };
            return self.gone_out(now, &offer, out, frame, around);
        }
        let (epoch, going) = (self.epochs.now(), Going::Out(slot));
        let parcel = Parcel { frame, port, epoch, going, followed };
        self.keep(now, instance, asked, offer, parcel);
    }

    /// Returns the number of the target of a packet that a guest sends, and the entry of its flow
    /// if there is one. Updates state and time of the flow.
    fn target(
        &mut self,
        now: Instant,
        port: PortId,
        read: &Read,
        bytes: &[u8],
        key: &Key,
        seen: PacketKind,
    ) -> Result<(u32, Option<TrackId>), Cause> {
        if read.follows_refused {
            self.ports[port.0 as usize].counts.judged += read.layout.packets();
            let flow = self.flow_of(now, port, read, bytes, Direction::Egress);
            return Err(after_refused(self.ask_sent(port, read, bytes, flow)));
        }
        let there = &self.ports[port.0 as usize];
        let since = self.since(there, key);
        let flows = &mut self.instances[there.instance as usize].flows;
        let mut known = FlowLookup::NOTHING;
        if let Some(FlowEntry { id, value, tracked, local_first }) =
            flows.known_flow(now, key, seen)
        {
            let out = value.sent();
            if since.holds(out.epoch, tracked) && read.is_cacheable() {
                flows.moved(id, true, seen);
                match out.verdict {
                    Verdict::Refuse(reason) => return Err(Cause::Rule(reason)),
                    Verdict::Go(slot) => return Ok((slot, Some(id))),
                    Verdict::Take => {}
                }
            }
            known = FlowLookup { id: Some(id), tracked, first_way: local_first };
        }
        self.judge_sent(now, port, read, bytes, key, seen, known)
    }

    /// Applies the rules to a packet that a guest sends, and stores the verdict with the packet's
    /// flow. This is the slow path, for packets without a valid verdict.
    #[cold]
    #[inline(never)]
    #[allow(clippy::too_many_arguments)] // one packet and its state
    fn judge_sent(
        &mut self,
        now: Instant,
        port: PortId,
        read: &Read,
        bytes: &[u8],
        key: &Key,
        seen: PacketKind,
        mut known: FlowLookup,
    ) -> Result<(u32, Option<TrackId>), Cause> {
        let number = self.ports[port.0 as usize].instance;
        self.ports[port.0 as usize].counts.judged += read.layout.packets();
        // An ICMP error belongs to the connection that it quotes, and to no other one.
        // T7: ICMP errors
        let is_error = is_error(&read.packet, bytes);
        if is_error {
            known = FlowLookup::NOTHING;
        }
        if known.id.is_none() {
            known.tracked = self.is_related(now, port, read, bytes, Direction::Egress);
        }
        let related = known.id.is_none() && known.tracked;
        let judged = self.ask_sent(port, read, bytes, known.flow());
        // A packet that waits for an answer is evaluated again, and counts then.
        if let (Some(id), Ok(_) | Err(Cause::Rule(_))) = (known.id, &judged) {
            self.instances[number as usize].flows.moved(id, true, seen);
        }
        let (target, tracking) = match judged {
            Ok(judged) => judged,
            Err(cause) => {
                if let (Some(id), Cause::Rule(reason)) = (known.id, cause) {
                    self.keep_out(number, id, Verdict::Refuse(reason));
                }
                return Err(cause);
            }
        };
        let slot = self.ends.targets.number_of(&target);
        if related || is_error {
            return Ok((slot, None));
        }
        let id = self.admitted_flow(now, number, (read, key, seen), known, tracking, true)?;
        if let Some(id) = id {
            self.keep_out(number, id, Verdict::Go(slot));
        }
        Ok((slot, id))
    }

    fn keep_out(&mut self, instance: u32, id: TrackId, verdict: Verdict) {
        let epoch = self.epochs.kept();
        if let Some((flow, ..)) = self.instances[instance as usize].flows.value(id) {
            flow.set_out(Side { epoch, verdict });
        }
    }

    /// Whether a packet is an ICMP error about a connection that is tracked.
    pub(in crate::vpc) fn is_related(
        &mut self,
        now: Instant,
        port: PortId,
        read: &Read,
        bytes: &[u8],
        direction: Direction,
    ) -> bool {
        let port = &self.ports[port.0 as usize];
        let Some(key) = Key::of_error(&read.packet, bytes, direction, port.index) else {
            return false;
        };
        let flows = &mut self.instances[port.instance as usize].flows;
        let quoted = flows.related(now, &key);
        quoted.and_then(|id| flows.value(id)).is_some_and(|(_, tracked, _)| tracked)
    }

    /// Evaluates a packet that a guest sends by the rules, without any change of state (V1, V2).
    pub(in crate::vpc) fn ask_sent(
        &self,
        port: PortId,
        read: &Read,
        bytes: &[u8],
        flow: compile::Flow,
    ) -> Result<(Target, Option<Tracking>), Cause> {
        let port = &self.ports[port.0 as usize];
        let packet = read.for_rules(bytes);
        let sent = self.rules.send(port.eni, &packet, flow).map_err(Cause::Rule)?;
        let EgressVerdict { next, packet: written, nat, tracking } = sent;
        let target = match next {
            Next::Ask(_) => return Err(Cause::Unanswered),
            Next::Nat(nat) => {
                let kind = Target::kind(false, Reach::Peering);
                Target { to: To::BackByNat(nat), kind, path: Path::Cloud }
            }
            Next::Served(service) => self.to_service(service),
            Next::Left(exit) => {
                let edge = self.edge_of(exit, written.destination).ok_or(Cause::NoEdge)?.clone();
                let changed = nat.is_none() && written.source != packet.source;
                let public = match written.source {
                    IpAddr::V4(public) if changed => Some(public),
                    _ => None,
                };
                let path = match exit {
                    _ if nat.is_some() => Path::Cloud,
                    Exit::Endpoint(_) => Path::Endpoint,
                    Exit::InternetGateway(_) | Exit::EgressOnlyGateway(_) => Path::Internet,
                };
                let to = To::Edge { exit, edge, public, nat };
                Target { to, kind: Target::kind(false, Reach::Outside), path }
            }
            Next::To { place, reach, direct, .. } => {
                let own = self.rules.port(port.eni).map(|place| place.express).unwrap_or_default();
                // V21: Conditions of ENA Express
                let host = place.host.as_ref().ok_or(Cause::NotPlaced)?;
                let ride = match direct {
                    _ if nat.is_some() => Err(Plainly::Gateway),
                    _ if self.beside.contains(host) => Err(Plainly::OneHost),
                    false => Err(Plainly::Middlebox),
                    true => express::between(own, place.express, &packet.inner),
                };
                let here = self.port_of(place.eni).filter(|_| *host == self.host);
                let to = match (here, nat, written.source) {
                    (None, ..) if *host == self.host => return Err(Cause::NotHere),
                    (_, Some(nat), IpAddr::V4(private)) => {
                        let host = (*host != self.host).then(|| host.clone());
                        To::ByNat { nat, private, host, eni: place.eni }
                    }
                    (Some(port), ..) => To::Port(port),
                    (None, ..) => To::Host { host: host.clone(), eni: place.eni, ride },
                };
                let path = if reach == Reach::Peering { Path::Peering } else { Path::Cloud };
                Target { to, kind: Target::kind(ride.is_ok(), reach), path }
            }
        };
        Ok((target, tracking))
    }

    /// Returns the question that has to be answered before the rules can evaluate a packet that a
    /// guest sends; `None` if there is no such question.
    pub(in crate::vpc) fn question_of(
        &self,
        now: Instant,
        port: PortId,
        frame: &[u8],
    ) -> Option<Question> {
        let packet = self.known_read(now, port, None, frame)?;
        let packet = packet.for_rules(&frame[OFFLOAD_BYTES..]);
        // Security groups have admitted the packet already, so it is evaluated as established.
        let sent = self.rules.send(self.port(port)?.eni, &packet, compile::Flow::Established);
        match sent.ok()?.next {
            Next::Ask(question) => Some(question),
            _ => None,
        }
    }

    fn to_service(&self, service: Service) -> Target {
        let kind = Target::kind(false, Reach::Zone);
        Target { to: To::Service(service), kind, path: Path::Cloud }
    }
}
