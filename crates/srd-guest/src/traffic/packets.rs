//! Reading of packets: from instances, the internet's side and other hosts into the card.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use srd_card::offload::OFFLOAD_BYTES;
use srd_card::packet::Packet;
use srd_card::tenants::Turn;
use srd_card::vpc::nat::NatConnection;
use srd_card::vpc::{Card, Envelope, Environment, PortId};
use srd_net::{PollMode, clock};
use srd_proto::time::Instant;
use srd_vpc::id::NatGatewayId;
use srd_vpc::judge::Exit;

use crate::interfaces::port::Port;
use crate::state::Service;
use crate::traffic::gateways::{Gateways, Outside};
use crate::traffic::outside::Source;
use crate::traffic::received::Received;
use crate::traffic::turns::{OUTSIDE, TURNS_TIME};

/// Maximum number of frames that are read from an interface before the card processes them
/// together. The first frame waits until the last is read.
const TOGETHER: usize = 16;
/// Maximum number of frames of other hosts in one read, for the last reads before the card hands
/// over to another process.
const TOGETHER_LAST: u32 = 1024;
/// Maximum number of the last reads before the card hands over to another process.
const LAST_READS_MAX: u32 = 64;

impl Service {
    /// Runs `work` with the card and the destinations of its packets, then sends the packets for
    /// other hosts.
    pub(crate) fn with_card(
        &mut self,
        now: Instant,
        work: impl FnOnce(&mut Card, &mut Outside<'_>),
    ) {
        self.in_turn(now, work);
        self.gateways.flush();
    }

    /// Runs `work` with the card as part of a turn: packets for other hosts are not sent yet, so
    /// that they leave together with later packets.
    fn in_turn(&mut self, now: Instant, work: impl FnOnce(&mut Card, &mut Outside<'_>)) {
        let Self { card, devices, held, gateways, services, guests, .. } = self;
        let publics = &guests.nat_publics;
        let joining = Vec::new();
        let mut around = Outside { devices, held, joining, gateways, services, publics, now };
        work(card, &mut around);
        around.finish();
        self.reset(now);
        for frame in std::mem::take(&mut self.gateways.returning) {
            self.arrive(now, frame);
        }
    }

    /// Resets TCP segments without a connection that interfaces sent through NAT gateways.
    fn reset(&mut self, now: Instant) {
        for (eni, frame) in std::mem::take(&mut self.gateways.resets) {
            if let Some(beside) = &mut self.gateways.beside
                && let Some(worker) = beside.redirect.beside.other_with(eni)
            {
                beside.exchange.send_reset(worker, eni, frame);
                continue;
            }
            self.in_turn(now, |card, around| {
                if let Some(port) = card.port_of(eni) {
                    around.to_guest(port, frame);
                }
            });
        }
    }

    /// Gives packets to guests whose interrupt is due.
    pub(crate) fn interrupt(&mut self, now: Instant) {
        let Self { devices, held, .. } = self;
        held.retain(|port| {
            let Some(kernel) = devices.get_mut(port).and_then(Port::kernel_mut) else {
                return false;
            };
            kernel.interrupt(now);
            kernel.adapter.poll_timeout().is_some()
        });
    }

    /// Reads frames, each instance for its share of the time, until there are no more or other work
    /// is due.
    pub(crate) fn take_turns(&mut self, now: Instant) {
        let until = now + TURNS_TIME;
        let mut began = now;
        self.card.set_late(self.late.look(now));
        let sleeps = self.poll() != PollMode::Spin;
        for port in 0..self.sockets.len() {
            if let Some(device) = self.devices.get_mut(&self.sockets[port]) {
                device.wake(sleeps);
            }
        }
        self.turns.look(&self.sockets);
        self.turns.wake_outside();
        while let Some(turn) = self.turns.next() {
            let (frames, is_dry) = if turn.tenant == OUTSIDE {
                let read = self.read_outside(began, turn.frames);
                (read, read < turn.frames)
            } else {
                self.read_guest(began, &turn)
            };
            let ended = clock::now();
            if frames > 0 {
                self.moved_at = ended;
            }
            self.turns.end(turn, frames, is_dry, ended.since(began));
            self.gateways.flush_if_due(began, ended);
            began = ended;
            self.card.set_late(self.late.look(ended));
            if ended >= until {
                break;
            }
            if !self.held.is_empty() {
                self.interrupt(ended);
            }
            // An instance that has frames again does not wait for the end of the round.
            self.turns.look(&[]);
        }
        self.gateways.flush();
    }

    /// Reads at most `most` frames from outside of this worker. Returns the number of frames.
    fn read_outside(&mut self, now: Instant, most: u32) -> u32 {
        let [mut shares, mut of_hosts] = std::mem::take(&mut self.shares);
        let read = shares.read(most, [Source::Edge, Source::Hosts], |source, most| match source {
            Source::Edge => self.read_edge(now, most),
            _ if self.gateways.beside.is_none() => self.read_hosts(now, most),
            _ => {
                of_hosts.read(most, [Source::Hosts, Source::Workers], |source, most| match source {
                    Source::Workers => self.read_beside(now, most),
                    _ => self.read_hosts(now, most),
                })
            }
        });
        self.shares = [shares, of_hosts];
        read
    }

    /// Reads frames that an instance sends, from its devices in turn. Returns the number of frames,
    /// and whether there are no more.
    fn read_guest(&mut self, now: Instant, turn: &Turn) -> (u32, bool) {
        let most = usize::try_from(turn.frames).unwrap_or(TOGETHER);
        let (mut read, mut frames) = (0, Vec::with_capacity(TOGETHER));
        while read < most
            && let Some(port) = self.turns.ready(turn.tenant)
        {
            let wanted = TOGETHER.min(most - read);
            self.read_some(now, port, wanted, &mut frames);
            let count = frames.len();
            // This check follows the last frame of a turn: later frames have not waited for this
            // turn's end.
            let is_last = read + count == most;
            let is_dry = count < wanted
                || (is_last && self.devices.get(&port).is_none_or(|device| !device.has_frames()));
            self.turns.turned(turn.tenant, !is_dry);
            read += count;
            if count > 0 {
                self.in_turn(now, |card, around| {
                    card.from_guest_all(now, port, &mut frames, around);
                });
                if self.turns.is_over(turn) {
                    self.card.count_over_share(port, u32::try_from(count).unwrap_or(u32::MAX));
                }
            }
        }
        (u32::try_from(read).unwrap_or(u32::MAX), self.turns.ready(turn.tenant).is_none())
    }

    /// Reads frames of an interface until `frames` has `most` of them.
    fn read_some(&mut self, now: Instant, port: PortId, most: usize, frames: &mut Vec<Vec<u8>>) {
        while let Some(device) = self.devices.get_mut(&port)
            && frames.len() < most
        {
            match device.read() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => self.lose_device(now, port, &error),
            }
        }
    }

    /// Runs the network's own services (names, metadata, time), and delivers their packets to
    /// instances.
    pub(crate) fn serve(&mut self, now: Instant) {
        for port in self.services.due(now) {
            let eni = self.card.eni_of(port);
            let facts = eni.and_then(|eni| self.services.facts(&self.world, eni));
            let Some(facts) = facts else {
                self.services.forget(port);
                continue;
            };
            let (frames, refused) = self.services.serve(now, port, &facts);
            (0..refused).for_each(|_| self.gateways.lose("connection to a service"));
            for frame in frames {
                self.with_card(now, |card, around| card.from_service(port, frame, around));
            }
        }
        self.gateways.lose_all("answer to no question", self.services.take_wrong_answers());
    }

    /// Makes this host the exit of all internet gateways, if it has the internet's side, which
    /// belongs to the first worker. Otherwise, packets to public addresses of the cloud return.
    /// Updates the public addresses of NAT gateways.
    pub(crate) fn set_edges(&mut self) {
        let world = &self.world;
        let mut edges: BTreeMap<Exit, Arc<str>> = BTreeMap::new();
        let name = self.gateways.edge_name();
        let has_internet = match self.gateways.are_first() {
            true => self.gateways.edge.is_some(),
            false => self.options.internet,
        };
        if has_internet {
            let internet = world.internet_gateways.keys().map(|id| Exit::InternetGateway(*id));
            let outwards = world.egress_only_gateways.keys().map(|id| Exit::EgressOnlyGateway(*id));
            edges.extend(internet.chain(outwards).map(|exit| (exit, name.clone())));
        }
        self.card.set_edges(edges);
        let publics = world.addresses.values().map(|address| address.public);
        let publics = if has_internet { BTreeSet::new() } else { publics.collect() };
        self.card.set_publics(publics, name);
        let publics = world.nat_gateways.iter().filter_map(|(id, gateway)| {
            Some((*id, world.addresses.get(&gateway.address?)?.public))
        });
        let publics: BTreeMap<NatGatewayId, Ipv4Addr> = publics.collect();
        if publics != self.guests.nat_publics {
            self.gateways.nat.keep(&publics);
            self.guests.nat_publics = publics;
        }
    }

    /// Reads at most `most` frames from the internet. Returns the number of frames.
    fn read_edge(&mut self, now: Instant, most: u32) -> u32 {
        for read in 0..most {
            let Some(edge) = &mut self.gateways.edge else { return read };
            let Some(tun) = edge.tun_mut() else { return read };
            let frame = match tun.read() {
                Ok(Some(frame)) => frame,
                Ok(None) => return read,
                Err(error) => {
                    self.lose_edge(now, &error);
                    return read;
                }
            };
            let packet = frame.get(OFFLOAD_BYTES..).and_then(Packet::read);
            if !packet.is_some_and(|packet| edge.has(packet.destination)) {
                // Neighbour and router discovery of the kernel itself.
                continue;
            }
            if let (Some(own), Some(packet)) = (&mut edge.own, &packet) {
                own.arrives(now, packet, &frame[OFFLOAD_BYTES..]);
            }
            self.arrive(now, frame);
        }
        most
    }

    /// Takes a frame from the internet.
    fn arrive(&mut self, now: Instant, mut frame: Vec<u8>) {
        let packet = frame.get(OFFLOAD_BYTES..).and_then(Packet::read);
        let to = packet.map(|packet| packet.destination);
        let by_nat = self.gateways.nat.arrive(now, &mut frame);
        let envelope = match by_nat {
            Some(NatConnection { nat, eni: to, port }) => Envelope::FromNat { nat, to, port },
            None if self.is_of_nat(to) => {
                return self.gateways.lose("no connection of a nat gateway");
            }
            None => Envelope::Arriving,
        };
        if let Some(beside) = &mut self.gateways.beside
            && let Some(other) = beside.other_for_arriving(&envelope, to)
        {
            // W3: Frames at another worker
            return beside.send_arriving(other, envelope, frame);
        }
        let name = self.gateways.name.clone();
        self.in_turn(now, |card, around| card.from_host(now, &name, envelope, frame, around));
    }

    /// Gives the card frames of other hosts, in a turn of at most `most` frames. If many frames
    /// wait, they are a portion that may be larger. Returns the number of frames.
    fn read_hosts(&mut self, now: Instant, most: u32) -> u32 {
        let most = usize::try_from(most).unwrap_or(TOGETHER);
        let passed_on = self.receive(now, most);
        let given = self.give_waiting(now, most);
        u32::try_from(given + passed_on).unwrap_or(u32::MAX)
    }

    /// Gives the card the frames of other hosts that wait, in a portion of at least `most` frames.
    /// Returns their number.
    fn give_waiting(&mut self, now: Instant, most: usize) -> usize {
        let mut received = std::mem::take(&mut self.received);
        self.waiting.take_portion(most, &mut received);
        let given = received.frames.len();
        if given > 0 {
            let Received { frames, hosts, .. } = &mut received;
            // All frames in one turn, so that packets of a flow are joined.
            self.in_turn(now, |card, around| {
                for (host, count, by_srd) in hosts.drain(..) {
                    card.set_by_srd(by_srd);
                    card.from_host_all(now, &host, frames.drain(..count), around);
                }
                card.set_by_srd(false);
            });
        }
        // The memory is used again.
        self.received = received;
        given
    }

    /// Reads frames of other hosts until `most` frames wait, and passes those for other workers on.
    /// Returns the number of frames that were passed on.
    fn receive(&mut self, now: Instant, most: usize) -> usize {
        let Gateways { transport: Some(transport), beside, .. } = &mut self.gateways else {
            return 0;
        };
        let received = transport.receive(most.saturating_sub(self.waiting.frames.len()));
        let unknown = std::mem::take(&mut received.unknown);
        let read = received.frames.len();
        if let Some(beside) = beside {
            beside.redirect(now, received);
        }
        let passed_on = read - received.frames.len();
        self.waiting.append(received);
        self.gateways.lose_all("of an unknown kind", unknown);
        passed_on
    }

    /// Reads at most `most` frames of the other workers of this host. Returns the number of frames.
    fn read_beside(&mut self, now: Instant, most: u32) -> u32 {
        let taken = self.gateways.beside.as_mut().and_then(|beside| beside.exchange.take());
        let Some(mut taken) = taken else { return 0 };
        let most = usize::try_from(most).unwrap_or(TOGETHER);
        let (mut left, mut used) = (most, 0);
        let Received { frames, hosts, .. } = &mut taken.received;
        let resets = &mut taken.resets;
        self.in_turn(now, |card, around| {
            for (host, count, by_srd) in hosts.iter_mut() {
                let some = (*count).min(left);
                card.set_by_srd(*by_srd);
                let some_frames = frames.drain(..some);
                if some_frames.as_slice().iter().any(|(of, _)| is_for_edge(of)) {
                    for (envelope, frame) in some_frames {
                        match is_for_edge(&envelope) {
                            true => around.leave_for_worker(envelope, frame),
                            false => card.from_host(now, host, envelope, frame, around),
                        }
                    }
                } else {
                    card.from_host_all(now, host, some_frames, around);
                }
                (*count, left) = (*count - some, left - some);
                if *count > 0 {
                    break;
                }
                used += 1;
            }
            card.set_by_srd(false);
            let some = resets.len().min(left);
            left -= some;
            for (eni, frame) in resets.drain(..some) {
                if let Some(port) = card.port_of(eni) {
                    around.to_guest(port, frame);
                }
            }
        });
        hosts.drain(..used);
        if let Some(beside) = &mut self.gateways.beside {
            beside.exchange.give_back(taken);
        }
        u32::try_from(most - left).unwrap_or(u32::MAX)
    }

    /// Before a hand-over, reads the packets of other hosts that wait in the sockets, and those of
    /// other workers, and sends the packets for other hosts that wait in this process. The number
    /// of reads is limited, so that packets that arrive meanwhile cannot prolong the hand-over.
    pub(crate) fn take_read(&mut self, now: Instant) {
        for _ in 0..LAST_READS_MAX {
            let read = self.read_hosts(now, TOGETHER_LAST) + self.read_beside(now, TOGETHER_LAST);
            if read == 0 {
                break;
            }
        }
        self.give_waiting(now, usize::MAX);
        self.gateways.flush();
    }

    /// Adapts the card to a change of the MTU between hosts, and to hosts that have come or gone.
    pub(crate) fn follow_hosts(&mut self) {
        let Some(transport) = &mut self.gateways.transport else { return };
        if transport.take_mtu_change() {
            self.card.set_host_bytes_max(transport.bytes_max());
        }
        if transport.take_relisted() {
            self.publisher.names_have_changed();
        }
    }

    /// Updates the list of the interfaces of the other workers.
    pub(crate) fn see_workers(&mut self) {
        if let (Some(beside), Some(workers)) = (&mut self.gateways.beside, self.vpc.workers()) {
            let own = beside.redirect.beside.worker();
            beside.redirect.beside = workers.view(own, &self.world);
        }
    }

    fn is_of_nat(&self, address: Option<IpAddr>) -> bool {
        let mut publics = self.guests.nat_publics.values();
        matches!(address, Some(IpAddr::V4(address)) if publics.any(|public| *public == address))
    }
}

/// Whether a frame leaves through a gateway of this host.
fn is_for_edge(envelope: &Envelope) -> bool {
    matches!(envelope, Envelope::Leaving { .. } | Envelope::ByNat { .. })
}
