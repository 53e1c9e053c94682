//! Packets that wait for the location of an interface, and the bounds of this wait (V15).
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use crate::lane;
use std::sync::Arc;

use crate::lane::{HOST, TCP, open, packet, ports, v4};
use srd_card::limits::Limit;
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::profile::{InstanceType, Profile};
use srd_card::track::{State, Timeouts};
use srd_card::vpc::asking::{PACKETS_MAX, QUESTIONS_MAX, WAIT};
use srd_card::vpc::trace::{Event, Filter, Next};
use srd_card::vpc::{Card, Cause, Envelope, Environment, FrameRoute, Guest, PortId};
use srd_proto::Secret;
use srd_proto::time::{Duration, Instant};
use srd_vpc::compile::{Asker, Directory, Edit, KNOWN_MAX, NotLearned, Question, SHARE_MAX};
use srd_vpc::id::*;
use srd_vpc::judge::Service;
use srd_vpc::object::{GroupRule, Traffic, World};

/// Frames that left the card: the number of frames for guests, and the destinations of frames for
/// other hosts.
#[derive(Default)]
struct Out {
    guests: usize,
    hosts: Vec<Arc<str>>,
}

impl Environment for Out {
    fn to_guest(&mut self, _: PortId, _: Vec<u8>) {
        self.guests += 1;
    }
    fn to_host(&mut self, way: FrameRoute<'_>, _: Vec<u8>) {
        self.hosts.push(Arc::clone(way.host));
    }
    fn to_service(&mut self, _: PortId, _: Service, _: Vec<u8>) {}
}

/// A host with one interface, and many interfaces on another host. The addresses of the other
/// host's interfaces have last bytes of 100 and above.
struct Lab {
    directory: Directory,
    card: Card,
    port: PortId,
    out: Out,
    now: Instant,
}

const ELSEWHERE: u8 = 100;

fn world() -> World {
    world_with(open())
}

/// Creates a world with these security group rules for the interface of this host.
fn world_with(rules: Vec<GroupRule>) -> World {
    let mut world = lane::world(&[], [rules, open(), open()]);
    let (one, instance) = (world.enis[&EniId(0)].clone(), world.instances[&InstanceId(0)].clone());
    for n in ELSEWHERE..=255 {
        let id = u64::from(n);
        let mut eni = one.clone();
        (eni.ipv4, eni.ipv6) = (vec![v4(n)], vec![]);
        eni.attachment.as_mut().unwrap().instance = InstanceId(id);
        world.enis.insert(EniId(id), eni);
        let mut instance = instance.clone();
        instance.host = Some("there".into());
        world.instances.insert(InstanceId(id), instance);
    }
    world
}

impl Lab {
    fn new() -> Self {
        Self::of(world())
    }

    fn of(world: World) -> Self {
        let mut directory = Directory::new(world);
        let mut card = Card::new(HOST, Arc::new(directory.tables(HOST)), Secret::known(1));
        let profile = Profile::of(InstanceType::find("c7i.large").unwrap());
        let guest = Guest { eni: EniId(0), timeouts: Timeouts::DEFAULT };
        let port = card.add_instance(Instant::ZERO, &profile, &[guest])[0];
        Self { directory, card, port, out: Out::default(), now: Instant::ZERO }
    }

    fn send(&mut self, to: u8) {
        let frame = framed(&packet((0, to - 10), TCP, 0, &ports(5000, 80)));
        self.card.from_guest(self.now, self.port, frame, &mut self.out);
    }

    fn receive(&mut self, host: &str, from: u8) {
        let frame = framed(&packet((from - 10, 0), TCP, 0, &ports(80, 5000)));
        let envelope = Envelope::Between { from: EniId(from.into()), to: EniId(0) };
        self.card.from_host(self.now, &Arc::from(host), envelope, frame, &mut self.out);
    }

    fn questions(&mut self) -> Vec<Question> {
        std::iter::from_fn(|| self.card.poll_question()).collect()
    }

    fn answer(&mut self, question: Question) -> Result<(), NotLearned> {
        let answer = self.directory.answer(HOST, question).unwrap();
        self.card.learn(self.now, answer, &mut self.out)
    }

    fn drops(&self, cause: Cause) -> u64 {
        self.card.drops(self.port).of(cause)
    }
}

fn framed(packet: &[u8]) -> Vec<u8> {
    [&[0; OFFLOAD_BYTES][..], packet].concat()
}

#[test]
fn a_packet_waits_for_one_answer_and_goes() {
    let mut lab = Lab::new();
    lab.send(ELSEWHERE);
    lab.send(ELSEWHERE);
    assert!(lab.out.hosts.is_empty());
    let questions = lab.questions();
    assert_eq!(questions, [Question::Address(VpcId(1), v4(ELSEWHERE).into())]);
    assert_eq!(lab.answer(questions[0]), Ok(()));
    assert_eq!(lab.out.hosts, [Arc::from("there"), Arc::from("there")]);
    lab.send(ELSEWHERE);
    assert_eq!((lab.questions(), lab.out.hosts.len()), (vec![], 3));
    assert_eq!(lab.answer(questions[0]), Err(NotLearned::NotAsked));
}

#[test]
fn a_sender_is_asked_for_and_believed_of_its_own_host_only() {
    let mut lab = Lab::new();
    lab.receive("there", ELSEWHERE);
    lab.receive("elsewhere", ELSEWHERE);
    assert_eq!(lab.out.guests, 0);
    let questions = lab.questions();
    assert_eq!(questions, [Question::Interface(EniId(ELSEWHERE.into()))]);
    lab.answer(questions[0]).unwrap();
    assert_eq!((lab.out.guests, lab.drops(Cause::NotItsHost)), (1, 1));
}

/// A host that may not send for an interface must not change a connection of this interface:
/// neither its state, for example by a RST, nor its time.
#[test]
fn regression_a_refused_host_moves_no_connection() {
    const RST: u8 = 4;
    const ACK: u8 = 16;
    let mut lab = Lab::of(world_with(open().split_off(1)));
    let segment = |lab: &mut Lab, host: &str, flags: u8| {
        let mut header = ports(80, 5000);
        header[13] = flags;
        let frame = framed(&packet((ELSEWHERE - 10, 0), TCP, 0, &header));
        let envelope = Envelope::Between { from: EniId(ELSEWHERE.into()), to: EniId(0) };
        lab.card.from_host(lab.now, &Arc::from(host), envelope, frame, &mut lab.out);
    };
    lab.send(ELSEWHERE);
    while let Some(question) = lab.questions().pop() {
        lab.answer(question).unwrap();
    }
    segment(&mut lab, "there", 2 | ACK);
    while let Some(question) = lab.questions().pop() {
        lab.answer(question).unwrap();
    }
    segment(&mut lab, "there", ACK);
    let flows = |lab: &Lab| {
        let mut flows = Vec::new();
        lab.card.list_flows(lab.port, 0, u32::MAX, &mut flows);
        flows
    };
    let before = flows(&lab);
    assert!(before[0].connection.is_some(), "{before:?}");
    segment(&mut lab, "elsewhere", RST);
    assert_eq!(lab.drops(Cause::NotItsHost), 1);
    assert_eq!(flows(&lab), before);
    // The host on which the interface is may end the connection.
    segment(&mut lab, "there", RST);
    assert_ne!(flows(&lab), before);
}

/// A reply that waits for the location of its receiver is evaluated twice. TCP of which each end
/// has sent one packet is not established.
#[test]
fn regression_a_packet_that_waits_counts_once_for_its_connection() {
    let ingress = lane::rule(0, false, Traffic::All, "10.0.0.0/8");
    let mut lab = Lab::of(world_with(vec![ingress, open().swap_remove(1)]));
    let segment = |ends: (u8, u8), from_to: (u16, u16)| {
        let mut header = ports(from_to.0, from_to.1);
        header[13] = 16; // ACK without SYN
        framed(&packet(ends, TCP, 0, &header))
    };
    let envelope = Envelope::Between { from: EniId(ELSEWHERE.into()), to: EniId(0) };
    let request = segment((ELSEWHERE - 10, 0), (80, 5000));
    lab.card.from_host(lab.now, &Arc::from("there"), envelope, request, &mut lab.out);
    let questions = lab.questions();
    lab.answer(questions[0]).unwrap();
    assert_eq!(lab.out.guests, 1);
    let reply = segment((0, ELSEWHERE - 10), (5000, 80));
    lab.card.from_guest(lab.now, lab.port, reply, &mut lab.out);
    let questions = lab.questions();
    assert_eq!(questions, [Question::Address(VpcId(1), v4(ELSEWHERE).into())]);
    lab.answer(questions[0]).unwrap();
    assert_eq!(lab.out.hosts.len(), 1);
    let mut flows = Vec::new();
    lab.card.list_flows(lab.port, 0, u32::MAX, &mut flows);
    let states: Vec<_> = flows.iter().map(|flow| flow.connection).collect();
    assert_eq!(states, [Some(State::Opening)]);
}

#[test]
fn an_address_that_nobody_has_is_asked_for_once() {
    let mut lab = Lab::new();
    lab.send(99);
    let questions = lab.questions();
    lab.answer(questions[0]).unwrap();
    lab.send(99);
    assert_eq!(lab.questions(), []);
    assert_eq!(lab.drops(Cause::Rule(srd_vpc::judge::Reason::NoInterface)), 2);
    // An interface gets the address later.
    let mut eni = lab.directory.world().enis[&EniId(ELSEWHERE.into())].clone();
    eni.ipv4.push(v4(99));
    let edit = Edit::Interface(EniId(ELSEWHERE.into()), Some(eni));
    let mut deltas = lab.directory.apply(&[edit]);
    lab.card.follow_delta(deltas.remove(HOST).unwrap());
    lab.send(99);
    assert_eq!(lab.questions(), questions);
}

#[test]
fn packets_that_wait_are_bounded_in_number_and_in_time() {
    let mut lab = Lab::new();
    for _ in 0..PACKETS_MAX + 3 {
        lab.send(ELSEWHERE);
    }
    assert_eq!(lab.drops(Cause::Unanswered), 3);
    assert_eq!(lab.card.poll_timeout(), Some(lab.now + WAIT));
    lab.now += WAIT;
    lab.card.poll(lab.now, &mut lab.out);
    assert_eq!(lab.drops(Cause::Unanswered), 3 + PACKETS_MAX as u64);
    assert_eq!(lab.questions().len(), 1);
    // The next packet causes the question again.
    lab.send(ELSEWHERE);
    let questions = lab.questions();
    lab.answer(questions[0]).unwrap();
    assert_eq!(lab.out.hosts.len(), 1);
    // The timeout of the first question has no effect any more.
    lab.now += WAIT;
    lab.card.poll(lab.now, &mut lab.out);
    assert_eq!(lab.drops(Cause::Unanswered), 3 + PACKETS_MAX as u64);
}

#[test]
fn a_guest_that_asks_for_everything_and_a_host_that_does_hinder_nobody_else() {
    let mut lab = Lab::new();
    let most = u8::try_from(QUESTIONS_MAX).unwrap();
    for n in 0..=most {
        lab.send(ELSEWHERE + n);
        lab.receive("there", ELSEWHERE + n);
    }
    assert_eq!(lab.drops(Cause::Unanswered), 2);
    assert_eq!(lab.questions().len(), 2 * QUESTIONS_MAX as usize);
    lab.receive("elsewhere", ELSEWHERE + most + 1);
    assert_eq!(lab.questions().len(), 1, "another host has questions of its own");
}

/// If a question is refused, its packets are dropped at once. In an earlier version, they were kept
/// until the end of their wait.
#[test]
fn regression_packets_do_not_wait_for_an_answer_that_was_refused() {
    let mut lab = Lab::new();
    lab.send(ELSEWHERE);
    lab.send(ELSEWHERE);
    let questions = lab.questions();
    lab.card.refuse(lab.now, questions[0]);
    assert_eq!((lab.card.unanswered(), lab.drops(Cause::Unanswered)), (0, 2));
    lab.card.refuse(lab.now, questions[0]);
    // The next packet causes the question again.
    lab.send(ELSEWHERE);
    assert_eq!(lab.questions(), questions);
    lab.answer(questions[0]).unwrap();
    assert_eq!(lab.out.hosts.len(), 1);
}

/// A trace follows a packet that waits for a location until its end, as one packet. In an earlier
/// version, it recorded the packet as dropped, or without an end, and followed it as another packet
/// when it continued.
#[test]
fn regression_a_trace_follows_a_packet_that_waits_up_to_its_end() {
    let mut lab = Lab::new();
    let id = lab.card.begin_trace(Filter::default(), u32::MAX, 0).unwrap();
    let ends = |lab: &mut Lab| -> Vec<(u32, Instant, Event)> {
        let records = lab.card.take_trace(id, usize::MAX, usize::MAX).unwrap().records;
        records.into_iter().map(|record| (record.packet, record.at, record.event)).collect()
    };
    lab.send(ELSEWHERE);
    lab.receive("there", ELSEWHERE + 1);
    let held = ends(&mut lab);
    let [
        (1, _, Event::Arrived(_)),
        (1, _, Event::Asks),
        (2, _, Event::Arrived(_)),
        (2, _, Event::Asks),
    ] = &held[..]
    else {
        panic!("{held:?}")
    };
    let questions = lab.questions();
    lab.now += Duration::from_millis(5);
    questions.iter().for_each(|question| lab.answer(*question).unwrap());
    let went = ends(&mut lab);
    let [
        (1, _, Event::Judged { verdict: Ok(_), .. }),
        (1, gone_at, Event::Gone(Next::Host { .. })),
        (2, _, Event::Judged { verdict: Ok(_), .. }),
        (2, _, Event::Gone(Next::Guest)),
    ] = &went[..]
    else {
        panic!("{went:?}")
    };
    assert_eq!(*gone_at, lab.now);
    // Another packet waits until its timeout.
    lab.send(ELSEWHERE + 2);
    lab.now += WAIT;
    lab.card.poll(lab.now, &mut lab.out);
    let lost = ends(&mut lab);
    let [(3, ..), (3, _, Event::Asks), (3, at, Event::Dropped(Cause::Unanswered))] = &lost[..]
    else {
        panic!("{lost:?}")
    };
    assert_eq!(*at, lab.now);
    // The next packet is dropped without a wait.
    lab.now += WAIT;
    (0..=PACKETS_MAX).for_each(|_| lab.send(ELSEWHERE + 3));
    let all = ends(&mut lab);
    assert!(matches!(all.last(), Some((_, _, Event::Dropped(Cause::Unanswered)))), "{all:?}");
    let asks = all.iter().filter(|(.., event)| *event == Event::Asks).count();
    assert_eq!(asks, PACKETS_MAX);
}

/// An interface with few answers gets space for a new answer, even if other interfaces have used up
/// all space. In an earlier version, it could not reach new addresses. // V16
#[test]
fn regression_a_full_table_makes_room_for_one_that_has_less() {
    let mut lab = Lab::new();
    let mut rules = lab.directory.tables(HOST);
    let address = |n: u32| std::net::IpAddr::from(std::net::Ipv4Addr::from(0x0a01_0000 + n));
    let shares = u32::try_from(KNOWN_MAX).unwrap() / SHARE_MAX;
    for n in 0..SHARE_MAX * shares {
        let answer = lab.directory.answer(HOST, Question::Address(VpcId(1), address(n)));
        let asker = Asker::Interface(EniId((1000 + n / SHARE_MAX).into()));
        rules.learn(asker, answer.unwrap()).unwrap();
    }
    lab.card.set_rules(Arc::new(rules));
    lab.send(ELSEWHERE);
    let question = lab.questions()[0];
    assert_eq!(lab.answer(question), Ok(()));
    assert_eq!(lab.out.hosts.len(), 1);
    let forgotten = lab.card.take_forgotten();
    assert!(forgotten.len() == 1 && !lab.card.knows(forgotten[0]), "the directory hears it");
}

#[test]
fn an_instance_that_was_removed_gets_no_packet_that_waited() {
    let mut lab = Lab::new();
    lab.receive("there", ELSEWHERE);
    lab.send(ELSEWHERE);
    let questions = lab.questions();
    lab.card.remove_instance(lab.now, lab.port);
    for question in questions {
        lab.answer(question).unwrap();
    }
    assert_eq!((lab.out.guests, lab.out.hosts.len()), (0, 0));
    assert_eq!(lab.card.drops_of_none().of(Cause::NotHere), 2, "both are counted");
}

/// Packets that wait for the limits of an instance are counted as dropped, and have an end in a
/// trace, if the instance is removed. In an earlier version they disappeared.
#[test]
fn regression_packets_that_wait_for_limits_are_counted_if_their_instance_is_removed() {
    const SENT: usize = 8;
    let mut lab = Lab::new();
    let profile = Profile::of(InstanceType::find("c7i.large").unwrap());
    let slow = profile.with_packets_per_second(1000);
    lab.card.remove_instance(lab.now, lab.port);
    let guest = Guest { eni: EniId(0), timeouts: Timeouts::DEFAULT };
    lab.port = lab.card.add_instance(lab.now, &slow, &[guest])[0];
    let id = lab.card.begin_trace(Filter::default(), u32::MAX, 0).unwrap();
    lab.send(ELSEWHERE);
    for question in lab.questions() {
        lab.answer(question).unwrap();
    }
    (1..SENT).for_each(|_| lab.send(ELSEWHERE));
    let waiting = lab.card.held(lab.port, Limit::Packets).queued;
    let sent = lab.out.hosts.len();
    assert!(waiting > 0 && sent > 0, "{waiting} packets wait, {sent} are sent");
    lab.now += Duration::from_micros(1);
    lab.card.remove_instance(lab.now, lab.port);
    assert_eq!(lab.card.drops_of_none().of(Cause::NotHere), waiting);
    let records = lab.card.take_trace(id, usize::MAX, usize::MAX).unwrap().records;
    let is_dropped = |event: &Event| *event == Event::Dropped(Cause::NotHere);
    let ends = records.iter().filter(|record| is_dropped(&record.event) && record.at == lab.now);
    assert_eq!(ends.count() as u64, waiting);
    lab.card.poll(lab.now + Duration::from_secs(1), &mut lab.out);
    assert_eq!(lab.out.hosts.len(), sent, "no packet continues");
}

/// An answer does not change whether the frames that follow were received over SRD. In an earlier
/// version, it did, and frames after it did not count as `ena_srd_rx_pkts`. // V22
#[test]
fn regression_frames_after_an_answer_count_as_received_over_srd() {
    let mut lab = Lab::new();
    let received = |lab: &Lab| lab.card.counts(lab.port).express_rx_packets;
    lab.card.set_by_srd(true);
    lab.receive("there", ELSEWHERE);
    let questions = lab.questions();
    assert_eq!((questions.len(), received(&lab)), (1, 0));
    lab.answer(questions[0]).unwrap();
    assert_eq!(received(&lab), 1, "the packet that waited");
    lab.receive("there", ELSEWHERE);
    assert_eq!(received(&lab), 2);
    lab.card.set_by_srd(false);
    lab.receive("there", ELSEWHERE);
    assert_eq!((received(&lab), lab.out.guests), (2, 3));
}

#[test]
fn idle_answers_are_forgotten_and_the_control_plane_hears_it() {
    let mut lab = Lab::new();
    let mut all = Vec::new();
    // Other addresses of the cloud, which no interface has.
    for n in 0..5_000u32 {
        let to = std::net::Ipv4Addr::from(0x0a01_0000 + n);
        let mut bytes = packet((0, 1), TCP, 0, &ports(5000, 80));
        bytes[16..20].copy_from_slice(&to.octets());
        lab.now += Duration::from_micros(1);
        lab.card.from_guest(lab.now, lab.port, framed(&bytes), &mut lab.out);
        for question in lab.questions() {
            lab.answer(question).unwrap();
            all.push(question);
        }
    }
    assert_eq!(all.len(), 5_000);
    lab.send(ELSEWHERE);
    let used = lab.questions()[0];
    lab.answer(used).unwrap();
    for _ in 0..2 {
        lab.now = lab.card.poll_timeout().unwrap().max(lab.now);
        lab.card.poll(lab.now, &mut lab.out);
        lab.send(ELSEWHERE);
    }
    let forgotten = lab.card.take_forgotten();
    assert_eq!(forgotten.len(), 5_000);
    assert!(!forgotten.contains(&used) && lab.questions().is_empty());
    lab.directory.forgotten(HOST, &forgotten);
    let instance = InstanceId(ELSEWHERE.into());
    let mut moved = lab.directory.world().instances[&instance].clone();
    moved.host = Some("elsewhere".into());
    let deltas = lab.directory.apply(&[Edit::Instance(instance, Some(moved))]);
    assert_eq!(deltas[HOST].withdrawn(), [used]);
}
