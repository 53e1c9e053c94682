//! Tests of queries to a resolver that takes the place of the machine's resolver.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::time::Duration as WallDuration;

use smoltcp::wire::{IpAddress, IpEndpoint};

use super::super::question::{Message, read};
use super::*;

const NOW: Instant = Instant::ZERO;
const QUERY: [u8; 21] = [9, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 3, b'a', b'b', b'c', 0, 0, 1, 0, 1];
const BACK: [u8; 2] = [9, 9];
/// Longest time for a step of a test.
const LONG: WallDuration = WallDuration::from_secs(60);

fn question() -> Question {
    let Message::Question(question) = read(&QUERY) else { panic!() };
    question
}

fn asker(instance: u64, port: u32) -> Asker {
    let back = IpEndpoint::new(IpAddress::v4(10, 0, 0, 4), 4444);
    Asker {
        instance: InstanceId(instance),
        port: PortId(port),
        back: QuerySource::Datagram(back.into()),
    }
}

/// A resolver, and the table of queries to it.
struct Setting {
    server: UdpSocket,
    upstream: Upstream,
    _directory: tempfile::TempDir,
}

impl Setting {
    fn new() -> Self {
        Self::with(UdpSocket::bind("127.0.0.1:0").unwrap())
    }

    /// Creates a resolver that also listens on TCP, and the table of queries to it.
    fn with_tcp() -> (Self, TcpListener) {
        // A port that is free for one protocol may be in use for the other.
        let both = |_| {
            let by_tcp = TcpListener::bind("127.0.0.1:0").unwrap();
            let server = UdpSocket::bind(by_tcp.local_addr().unwrap()).ok()?;
            Some((Self::with(server), by_tcp))
        };
        (0..100).find_map(both).expect("a port that is free for both")
    }

    fn with(server: UdpSocket) -> Self {
        crate::traffic::turns::raise_descriptors();
        server.set_read_timeout(Some(LONG)).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("resolv.conf");
        std::fs::write(&file, "nameserver 127.0.0.1\n").unwrap();
        let nameserver = Nameserver::new(&file, server.local_addr().unwrap().port());
        let upstream = Upstream::new(nameserver, Secret::known(7)).unwrap();
        Self { server, upstream, _directory: directory }
    }

    fn ask(&mut self, by: Asker) -> bool {
        self.upstream.ask(NOW, by, &question())
    }

    /// Receives a query at the resolver.
    fn heard(&self) -> (Vec<u8>, SocketAddr) {
        let mut bytes = [0; 512];
        let (length, from) = self.server.recv_from(&mut bytes).unwrap();
        (bytes[..length].to_vec(), from)
    }

    /// Waits until answers for an interface have arrived, and returns them.
    fn answers(&mut self, port: u32) -> Vec<(QuerySource, Vec<u8>)> {
        let began = std::time::Instant::now();
        while began.elapsed() < LONG {
            if self.upstream.receive(NOW).contains(&PortId(port)) {
                return self.upstream.answers(PortId(port));
            }
            std::thread::sleep(WallDuration::from_millis(1));
        }
        Vec::new()
    }
}

fn answer_to(query: &[u8]) -> Vec<u8> {
    let mut answer = query.to_vec();
    answer[2..4].copy_from_slice(&[0x81, 0x80]);
    answer
}

#[test]
fn an_answer_counts_if_it_repeats_the_question() {
    let mut setting = Setting::new();
    assert!(setting.ask(asker(1, 1)));
    let (asked, from) = setting.heard();
    assert!(asked[2..].eq_ignore_ascii_case(&QUERY[2..]));
    let whole = answer_to(&asked);
    let mut name = whole.clone();
    name[13] = b'x';
    let mut number = whole.clone();
    number[0] ^= 1;
    for wrong in [&name[..], &number, &asked, &[1]] {
        setting.server.send_to(wrong, from).unwrap();
    }
    setting.server.send_to(&whole, from).unwrap();
    let answers = setting.answers(1);
    assert_eq!(answers.len(), 1, "the first four are no answers");
    assert_eq!(setting.upstream.take_wrong(), 4);
    assert_eq!(answers[0].1, answer_to(&QUERY));
    assert_eq!(answers[0].1[..2], BACK);
}

/// Regression: each interface could have 64 queries, so that one instance with many interfaces
/// filled the whole table.
#[test]
fn regression_one_instance_with_many_interfaces_takes_no_other_s_place() {
    let mut setting = Setting::new();
    for n in 0..2 * ASKED_MAX {
        let port = u32::try_from(n % 15).unwrap();
        assert!(setting.ask(asker(1, port)), "{n}");
    }
    assert_eq!(setting.upstream.waits.len(), ASKED_MAX);
    let newcomer = asker(2, 99);
    assert!(setting.ask(newcomer));
    for n in 0..ASKED_MAX {
        assert!(setting.ask(asker(1, 0)), "{n}");
    }
    assert_eq!(setting.upstream.of_instances[&InstanceId(2)].len(), 1);
    assert_eq!(setting.upstream.waits.len(), ASKED_MAX);
    // A query that was dropped for another one gets an error.
    let (_, said) = &setting.answers(1)[0];
    assert_eq!(said[..4], [9, 9, 0x81, 0x82]);
}

#[test]
fn places_of_old_questions_are_free() {
    let mut setting = Setting::new();
    assert!((0..ASKED_MAX).all(|_| setting.ask(asker(1, 1))));
    let later = NOW + PATIENCE;
    setting.upstream.make_place(later);
    assert!(setting.upstream.waits.is_empty() && setting.upstream.of_instances.is_empty());
    assert!(setting.upstream.answers(PortId(1)).is_empty());
    // Queries of a removed interface are removed.
    assert!(setting.ask(asker(1, 1)));
    setting.upstream.forget(PortId(1));
    assert!(setting.upstream.waits.is_empty() && setting.upstream.of_instances.is_empty());
}

/// Regression: long answers were lost, because no packet has space for them.
#[test]
fn regression_long_answers_go_on_by_tcp() {
    let (mut setting, by_tcp) = Setting::with_tcp();
    assert!(setting.ask(asker(1, 1)));
    let (asked, from) = setting.heard();
    let long = [answer_to(&asked), vec![0; 1500]].concat();
    setting.server.send_to(&long, from).unwrap();
    let cut = setting.answers(1).remove(0).1;
    assert!(is_truncated(&cut) && cut[12..] == QUERY[12..], "in the guest's letters");

    // If a guest has sent the query by TCP, a truncated answer makes the resolver's client use TCP
    // as well.
    let connection = Asker { back: QuerySource::Connection(5), ..asker(1, 1) };
    assert!(setting.ask(connection));
    let (asked, from) = setting.heard();
    let mut cut = answer_to(&asked);
    cut[2] |= 2;
    setting.server.send_to(&cut, from).unwrap();
    let ask = std::thread::spawn(move || {
        let (mut stream, _) = by_tcp.accept().unwrap();
        let mut query = [0; 2 + QUERY.len()];
        stream.read_exact(&mut query).unwrap();
        let answer = [answer_to(&query[2..]), vec![7; 5000]].concat();
        let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
        stream.write_all(&[&length[..], &answer].concat()).unwrap();
    });
    let (back, answer) = setting.answers(1).remove(0);
    ask.join().unwrap();
    assert_eq!((back, answer.len()), (QuerySource::Connection(5), QUERY.len() + 5000));
    assert_eq!(answer[..QUERY.len()], answer_to(&QUERY));
}

#[test]
fn without_a_server_for_tcp_the_question_fails() {
    let mut setting = Setting::new();
    for is_cut in [true, false] {
        assert!(setting.ask(Asker { back: QuerySource::Connection(5), ..asker(1, 1) }));
        let (asked, from) = setting.heard();
        let mut answer = answer_to(&asked);
        if is_cut {
            answer[2] |= 2;
        } else {
            answer.resize(usize::from(DATAGRAM_BYTES_MAX) + 1, 0);
        }
        setting.server.send_to(&answer, from).unwrap();
        assert_eq!(setting.answers(1)[0].1[3] & 15, 2, "cut {is_cut}");
    }
}

/// A query that the resolver received, and its source.
type ReceivedQuery = (Vec<u8>, SocketAddr);

/// An attacker that does not see the query lacks only the resolver's port, the id and the cases of
/// letters. Earlier, one port for all queries left 16 bits.
#[test]
fn regression_a_forger_has_to_guess_port_number_and_letters() {
    let mut setting = Setting::new();
    for n in 0..32 {
        assert!(setting.ask(asker(1, n)));
    }
    let heard: Vec<_> = (0..32).map(|_| setting.heard()).collect();
    let distinct = |of: &dyn Fn(&ReceivedQuery) -> Vec<u8>| {
        heard.iter().map(of).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!(distinct(&|(_, from)| from.port().to_be_bytes().to_vec()), 32, "ports");
    assert!(distinct(&|(query, _)| query[..2].to_vec()) > 30, "numbers");
    assert!(distinct(&|(query, _)| query[13..16].to_vec()) > 4, "of eight ways to write abc");
    // Attack: the id and the letters of one query, sent to the port of another.
    for (at, (query, _)) in heard.iter().enumerate() {
        let (_, other) = &heard[(at + 1) % heard.len()];
        let differs = query[..2] != heard[(at + 1) % heard.len()].0[..2];
        if differs {
            setting.server.send_to(&answer_to(query), other).unwrap();
        }
    }
    // A message from another source does not reach the socket at all.
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.send_to(&answer_to(&heard[0].0), heard[0].1).unwrap();
    let began = std::time::Instant::now();
    let mut wrong = 0;
    while wrong < 30 && began.elapsed() < LONG {
        assert!(setting.upstream.receive(NOW).is_empty(), "nothing of it is an answer");
        wrong += setting.upstream.take_wrong();
    }
    assert!(wrong >= 30, "{wrong} were read");
    assert_eq!(setting.upstream.waits.len(), 32);
    let (query, from) = &heard[3];
    setting.server.send_to(&answer_to(query), from).unwrap();
    assert_eq!(setting.answers(3).len(), 1);
}

/// If a resolver changes all letters to lower case, the query is repeated by TCP, where no other
/// host can answer.
#[test]
fn an_answer_in_other_letters_is_asked_for_by_tcp() {
    let (mut setting, by_tcp) = Setting::with_tcp();
    let (asked, from) = loop {
        assert!(setting.ask(asker(1, 1)));
        let (asked, from) = setting.heard();
        if asked[13..16] != *b"abc" {
            break (asked, from);
        }
    };
    let mut small = answer_to(&asked);
    small[13..16].make_ascii_lowercase();
    setting.server.send_to(&small, from).unwrap();
    let ask = std::thread::spawn(move || {
        let (mut stream, _) = by_tcp.accept().unwrap();
        let mut query = [0; 2 + QUERY.len()];
        stream.read_exact(&mut query).unwrap();
        let answer = answer_to(&query[2..]);
        let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
        stream.write_all(&[&length[..], &answer].concat()).unwrap();
    });
    let answers = setting.answers(1);
    ask.join().unwrap();
    assert_eq!(answers[0].1, answer_to(&QUERY));
}

/// Each query has a socket, which is closed with the query.
#[test]
fn questions_have_so_many_sockets_and_give_them_back() {
    let mut setting = Setting::new();
    for _ in 0..ASKED_MAX + 8 {
        assert!(setting.ask(asker(1, 1)));
    }
    assert_eq!(setting.upstream.waits.len(), ASKED_MAX);
    assert!(setting.upstream.ask(NOW + PATIENCE, asker(1, 1), &question()));
    assert_eq!(setting.upstream.waits.len(), 1, "nobody waits for the others any more");
}

#[test]
fn an_interface_that_takes_no_answers_keeps_so_many() {
    let mut setting = Setting::new();
    let asked = GuestQuery { by: asker(1, 1), question: question() };
    (0..ANSWERS_MAX + 5).for_each(|_| setting.upstream.fail(&asked));
    assert_eq!(setting.upstream.answers(PortId(1)).len(), ANSWERS_MAX);
}
