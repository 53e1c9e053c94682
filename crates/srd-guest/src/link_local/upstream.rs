//! Names that are none of the cloud's: the machine's own resolver is asked.
//!
//! Bounds: so many questions are under way, those of one interface a part of them, and each for a
//! few seconds. An answer counts only from the resolver that was asked, to a number that nobody
//! outside knows, and if it repeats the question.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use smoltcp::socket::udp::UdpMetadata;
use srd_card::vpc::PortId;
use srd_net::clock;
use srd_proto::rng::Rng;
use srd_proto::time::{Duration, Instant};

/// Questions under way, and those of one interface.
const ASKED_MAX: usize = 512;
const ASKED_OF_ONE_MAX: usize = 64;
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 4096;
/// Bytes of a message before its question.
const HEADER_BYTES: usize = 12;
const PORT: u16 = 53;
const FILE: &str = "/etc/resolv.conf";

/// A question under way.
#[derive(Debug)]
struct Asked {
    port: PortId,
    back: UdpMetadata,
    id: [u8; 2],
    question: Vec<u8>,
    until: Instant,
}

/// The machine's resolver.
#[derive(Debug)]
pub(super) struct Upstream {
    socket: UdpSocket,
    fd: Arc<OwnedFd>,
    asked: BTreeMap<[u8; 2], Asked>,
    answers: BTreeMap<PortId, Vec<(UdpMetadata, Vec<u8>)>>,
    rng: Rng,
}

impl Upstream {
    /// The first resolver of the machine; `None`, with a line in the log, if it has none.
    pub(super) fn of_machine() -> Option<Self> {
        let text = std::fs::read_to_string(FILE).unwrap_or_default();
        let Some(server) = first_server(&text) else {
            tracing::info!("{FILE} names no resolver: instances resolve names of their cloud only");
            return None;
        };
        Self::of(SocketAddr::new(server, PORT))
            .inspect_err(|error| tracing::warn!("the resolver {server}: {error}"))
            .ok()
    }

    fn of(server: SocketAddr) -> std::io::Result<Self> {
        let any: IpAddr =
            if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { [0; 16].into() };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(server)?;
        socket.set_nonblocking(true)?;
        let fd = Arc::new(socket.as_fd().try_clone_to_owned()?);
        let seed = clock::seed()?;
        let rng = Rng::new(u64::from_le_bytes(std::array::from_fn(|at| seed[at])));
        Ok(Self { socket, fd, asked: BTreeMap::new(), answers: BTreeMap::new(), rng })
    }

    pub(super) fn fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }

    /// Asks. `false` if too much is under way, or the resolver cannot be reached.
    pub(super) fn ask(
        &mut self,
        now: Instant,
        port: PortId,
        back: UdpMetadata,
        query: &[u8],
    ) -> bool {
        self.asked.retain(|_, asked| asked.until > now);
        let of_one = self.asked.values().filter(|asked| asked.port == port).count();
        if self.asked.len() >= ASKED_MAX || of_one >= ASKED_OF_ONE_MAX {
            return false;
        }
        let (Some(id), Some(question)) = (query.first_chunk(), question(query)) else {
            return false;
        };
        let own = loop {
            let own = self.rng.next_u64().to_le_bytes();
            let own = [own[0], own[1]];
            if !self.asked.contains_key(&own) {
                break own;
            }
        };
        let mut sent = query.to_vec();
        sent[..2].copy_from_slice(&own);
        let until = now + PATIENCE;
        let asked = Asked { port, back, id: *id, question: question.to_vec(), until };
        let is_sent = self.socket.send(&sent).is_ok();
        if is_sent {
            self.asked.insert(own, asked);
        }
        is_sent
    }

    /// Takes what the resolver says: the interfaces that have an answer now.
    pub(super) fn receive(&mut self, now: Instant) -> Vec<PortId> {
        let mut bytes = [0; ANSWER_BYTES_MAX];
        // An error that an earlier question has brought back ends the turn, not the socket.
        while let Ok(length) = self.socket.recv(&mut bytes) {
            let answer = &bytes[..length];
            let Some(own) = answer.first_chunk::<2>() else { continue };
            let is_its = |asked: &Asked| {
                asked.until > now
                    && question(answer).is_some_and(|q| q.eq_ignore_ascii_case(&asked.question))
            };
            if !self.asked.get(own).is_some_and(is_its) {
                continue;
            }
            let Some(asked) = self.asked.remove(own) else { continue };
            let mut answer = answer.to_vec();
            answer[..2].copy_from_slice(&asked.id);
            self.answers.entry(asked.port).or_default().push((asked.back, answer));
        }
        self.answers.keys().copied().collect()
    }

    /// The answers for an interface.
    pub(super) fn answers(&mut self, port: PortId) -> Vec<(UdpMetadata, Vec<u8>)> {
        self.answers.remove(&port).unwrap_or_default()
    }

    pub(super) fn forget(&mut self, port: PortId) {
        self.asked.retain(|_, asked| asked.port != port);
        self.answers.remove(&port);
    }
}

/// The question of a message that has one: name, type and class.
fn question(message: &[u8]) -> Option<&[u8]> {
    if message.get(4..6)? != [0, 1] {
        return None;
    }
    let mut at = HEADER_BYTES;
    loop {
        let length = usize::from(*message.get(at)?);
        match length {
            0 => break,
            1..64 => at += 1 + length,
            _ => return None,
        }
    }
    message.get(HEADER_BYTES..at + 5)
}

fn first_server(text: &str) -> Option<IpAddr> {
    let servers = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    servers.map(str::trim).find_map(|server| server.parse().ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail loudly
    use super::*;
    use smoltcp::wire::{IpAddress, IpEndpoint};

    const NOW: Instant = Instant::ZERO;
    const QUERY: [u8; 21] =
        [9, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 3, b'a', b'b', b'c', 0, 0, 1, 0, 1];

    fn back() -> UdpMetadata {
        IpEndpoint::new(IpAddress::v4(10, 0, 0, 4), 4444).into()
    }

    #[test]
    fn an_answer_counts_if_it_repeats_the_question() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        let mut upstream = Upstream::of(server.local_addr().unwrap()).unwrap();
        assert!(upstream.ask(NOW, PortId(1), back(), &QUERY));
        let mut bytes = [0; 512];
        let (length, from) = server.recv_from(&mut bytes).unwrap();
        let asked = bytes[..length].to_vec();
        assert_eq!(asked[2..], QUERY[2..]);
        let mut wait = |bytes: &[u8]| {
            server.send_to(bytes, from).unwrap();
            for _ in 0..500 {
                if !upstream.receive(NOW).is_empty() {
                    return upstream.answers(PortId(1));
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            Vec::new()
        };
        let mut other = asked.clone();
        other[13] = b'x';
        server.send_to(&other, from).unwrap();
        let mut number = asked.clone();
        number[0] ^= 1;
        server.send_to(&number, from).unwrap();
        server.send_to(&[1], from).unwrap();
        let answers = wait(&asked);
        assert_eq!(answers.len(), 1, "the first three are no answers");
        assert_eq!(answers[0].1, QUERY);
    }

    #[test]
    fn few_questions_of_one_interface_are_under_way() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut upstream = Upstream::of(server.local_addr().unwrap()).unwrap();
        let mut ask = |now, port| upstream.ask(now, PortId(port), back(), &QUERY);
        assert!((0..ASKED_OF_ONE_MAX).all(|_| ask(NOW, 1)) && !ask(NOW, 1));
        let others = ASKED_MAX / ASKED_OF_ONE_MAX;
        let ports = 2..=u32::try_from(others).unwrap();
        assert!(ports.into_iter().all(|port| (0..ASKED_OF_ONE_MAX).all(|_| ask(NOW, port))));
        assert!(!ask(NOW, 99), "all places are taken");
        assert!(ask(NOW + PATIENCE, 99), "those of old questions are free");
    }

    #[test]
    fn what_is_no_question_is_not_asked() {
        assert_eq!(question(&QUERY), Some(&QUERY[12..]));
        for length in 0..QUERY.len() {
            assert_eq!(question(&QUERY[..length]), None, "{length}");
        }
        let mut pointer = QUERY;
        pointer[12] = 0xc0;
        assert_eq!(question(&pointer), None);
        assert_eq!(first_server("# x\nnameserver  10.0.0.2 \n"), "10.0.0.2".parse().ok());
        assert_eq!(first_server("nameserver nonsense\noptions edns0\n"), None);
    }
}
