//! Datagrams of one socket, for programs with another protocol than SRD. Each system call sends or
//! receives several datagrams. Datagrams may leave by further sockets, whose source ports
//! distinguish flows.
//!
//! Datagrams of one length to one destination are sent as one message, which the kernel cuts
//! (`UDP_SEGMENT`). One call sends several messages. Received messages are read several at a time;
//! the kernel may have joined each from several datagrams (`UDP_GRO`). The kernel's default for
//! packets that are too large for their path stays: this module does not change it.
//!
//! Bounds: [`RUNS_MAX`] messages wait, each of at most [`BATCH_BYTES_MAX`] bytes.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use srd_proto::ids::Entropy;
use srd_proto::transmit::{Ecn, Transmit};

use crate::back_ends::io::{BATCH_BYTES_MAX, Segments};
use crate::interfaces::link;
use crate::sys::errno;
use crate::sys::udp::recv::Receiver;
use crate::sys::udp::send::Sender;
use crate::sys::udp::socket::Socket;

/// Largest number of messages that wait to be sent.
const RUNS_MAX: usize = 32;

/// A socket, the messages that wait to be sent by it, and the messages that were read from it.
#[derive(Debug)]
pub struct Datagrams {
    socket: Socket,
    /// Sockets that send datagrams. If the list is empty, `socket` sends them.
    senders: Vec<Socket>,
    sender: Sender,
    receiver: Receiver,
    /// Whether the kernel cuts messages into datagrams (`UDP_SEGMENT`).
    cuts: bool,
    segments_max: usize,
    runs: Vec<(Transmit, Run)>,
    /// Buffers of messages that were sent, to be used again.
    spare: Vec<Vec<u8>>,
    lost: u64,
    /// Whether the kernel joins arriving datagrams (`UDP_GRO`). Joining is switched on when one
    /// call has read several messages; for single datagrams it is not worth its cost.
    joins: bool,
    /// Number of messages that the last system call read. `next` is the index of the next of these
    /// messages, and `current` holds the datagrams that were not handed over yet.
    messages: usize,
    next: usize,
    current: Message,
}

/// A message that was read from the socket, and the range of its bytes that the caller has not
/// taken yet.
#[derive(Debug)]
struct Message {
    index: usize,
    from: SocketAddr,
    /// Length of each datagram of the message, in bytes; the last datagram may be shorter.
    each: usize,
    /// Offset of the next datagram in the message; `end` is the end of the last datagram.
    at: usize,
    end: usize,
}

/// Datagrams of the same length that are sent as one message; the last datagram may be shorter.
#[derive(Debug)]
struct Run {
    bytes: Vec<u8>,
    each: usize,
}

impl Segments for Run {
    fn parts(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.bytes.chunks(self.each).map(|datagram| (datagram, [].as_slice()))
    }
}

impl Datagrams {
    /// Takes over a bound socket, and requests kernel buffers of `buffer_bytes` in each direction.
    /// With `CAP_NET_ADMIN` the buffers may exceed the system's limit; otherwise the limit applies.
    ///
    /// # Errors
    /// An error of the operating system, if an option of the socket cannot be set.
    pub fn new(socket: UdpSocket, buffer_bytes: u32) -> io::Result<Self> {
        let is_v6 = socket.local_addr()?.is_ipv6();
        let socket = Socket::from_fd(socket.into(), is_v6);
        socket.buffers(buffer_bytes, buffer_bytes)?;
        Ok(Self {
            cuts: socket.knows_segmentation(),
            socket,
            senders: Vec::new(),
            sender: Sender::default(),
            receiver: Receiver::new(),
            segments_max: link::segments_max(),
            runs: Vec::new(),
            spare: Vec::new(),
            lost: 0,
            joins: false,
            messages: 0,
            next: 0,
            current: Message { index: 0, from: ([0; 4], 0).into(), each: 0, at: 0, end: 0 },
        })
    }

    /// Sets the bound sockets that send datagrams from now on. Datagrams that arrive at these
    /// sockets are dropped.
    ///
    /// # Errors
    /// An error of the operating system, if an option of a socket cannot be set.
    pub fn send_by(&mut self, sockets: Vec<UdpSocket>, buffer_bytes: u32) -> io::Result<()> {
        self.flush();
        self.senders.clear();
        for socket in sockets {
            let is_v6 = socket.local_addr()?.is_ipv6();
            let socket = Socket::from_fd(socket.into(), is_v6);
            socket.drop_all()?;
            socket.buffers(buffer_bytes, 0)?;
            self.senders.push(socket);
        }
        Ok(())
    }

    /// Queues a datagram, given in two parts; it is sent at the next [`Datagrams::flush`] or
    /// before, by the socket that belongs to the number of its flow. Datagrams of the same flow
    /// keep their order. An empty datagram is not sent.
    pub fn push(&mut self, to: SocketAddr, flow: u16, head: &[u8], body: &[u8]) {
        let senders = u16::try_from(self.senders.len()).unwrap_or(u16::MAX).max(1);
        let entropy = Entropy(flow % senders);
        let bytes = head.len() + body.len();
        if bytes == 0 {
            return;
        }
        let fits = |of: &Transmit| {
            of.segments < self.segments_max
                && bytes <= of.segment_bytes
                && of.total_bytes == of.segments * of.segment_bytes
                && of.total_bytes + bytes <= BATCH_BYTES_MAX
        };
        // The datagram is added to the last message of its flow to its destination. So it may
        // overtake messages to other destinations and of other flows.
        let is_same = |of: &Transmit| of.destination == to && of.entropy == entropy;
        let last = self.runs.iter_mut().rev().find(|(of, _)| is_same(of));
        if let Some((of, run)) = last.filter(|(of, _)| self.cuts && fits(of)) {
            of.segments += 1;
            of.total_bytes += bytes;
            run.bytes.extend_from_slice(head);
            run.bytes.extend_from_slice(body);
            return;
        }
        if self.runs.len() == RUNS_MAX {
            self.flush();
        }
        let mut run = Run { bytes: self.spare.pop().unwrap_or_default(), each: bytes };
        run.bytes.extend_from_slice(head);
        run.bytes.extend_from_slice(body);
        let of = Transmit {
            destination: to,
            entropy,
            ecn: Ecn::NotEct,
            segment_bytes: bytes,
            segments: 1,
            total_bytes: bytes,
            control: false,
        };
        self.runs.push((of, run));
    }

    /// Sends all waiting messages. Datagrams that the socket does not accept are lost, and counted.
    pub fn flush(&mut self) {
        let mut runs = std::mem::take(&mut self.runs);
        // One call sends the messages of one socket. The sort is stable: they keep their order.
        runs.sort_by_key(|(of, _)| of.entropy);
        let mut done = 0;
        while let Some((first, _)) = runs.get(done) {
            let sender = first.entropy;
            let together = runs[done..].iter().take_while(|(of, _)| of.entropy == sender).count();
            let socket = self.senders.get(usize::from(sender.0)).unwrap_or(&self.socket);
            match self.sender.send_batches(socket, Ecn::NotEct, &runs[done..done + together]) {
                Ok(sent) => done += sent.max(1),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if first.segments > 1 && is_of_cutting(&error) => {
                    self.send_apart(&runs[done]);
                    // EIO: the device cannot fill in checksums, so it refuses every message that
                    // must be cut. Another error, a path MTU below the datagram size, concerns one
                    // destination only.
                    self.cuts &= errno(&error) != libc::EIO;
                    done += 1;
                }
                Err(_) => {
                    self.lost += first.segments as u64;
                    done += 1;
                }
            }
        }
        for (_, mut run) in runs.drain(..) {
            run.bytes.clear();
            self.spare.push(run.bytes);
        }
        self.runs = runs;
    }

    /// Sends each datagram of a message separately, if the kernel cannot cut the message.
    fn send_apart(&mut self, batch: &(Transmit, Run)) {
        let socket = self.senders.get(usize::from(batch.0.entropy.0)).unwrap_or(&self.socket);
        let mut done = 0;
        while done < batch.0.segments {
            match self.sender.send_segments(socket, Ecn::NotEct, batch, done) {
                Ok(sent) => done += sent.max(1),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.lost += 1;
                    done += 1;
                }
            }
        }
    }

    /// Returns the number of datagrams that the socket has not accepted since the last call of this
    /// function.
    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// Whether datagrams wait to be sent.
    pub fn has_unsent(&self) -> bool {
        !self.runs.is_empty()
    }

    /// Whether datagrams that were read from the socket wait to be taken.
    pub fn is_waiting(&self) -> bool {
        self.current.at < self.current.end || self.next < self.messages
    }

    /// Passes the datagrams of one received message to `read`, at most `most` of them, with their
    /// sender. Returns the number of datagrams; 0 if no message has arrived.
    pub fn receive_some(&mut self, most: usize, mut read: impl FnMut(SocketAddr, &[u8])) -> usize {
        if most == 0 || !self.has_message() {
            return 0;
        }
        let Message { index, from, each, at, end } = self.current;
        let until = each.saturating_mul(most).saturating_add(at).min(end);
        self.current.at = until;
        let bytes = &self.receiver.bytes(index)[at..until];
        bytes.chunks(each).for_each(|datagram| read(from, datagram));
        (until - at).div_ceil(each)
    }

    /// Whether there is a datagram, either read before or read by this call.
    fn has_message(&mut self) -> bool {
        while self.current.at >= self.current.end {
            if self.next == self.messages {
                (self.next, self.messages) = (0, 0);
                let Ok(messages) = self.receiver.receive(&self.socket) else { return false };
                self.messages = messages;
                if self.messages > 1 && !self.joins {
                    // Linux before 5.0 has no `UDP_GRO`; without it each message is one
                    // datagram.
                    let _ = self.socket.receive_coalesced();
                    self.joins = true;
                }
                if self.messages == 0 {
                    return false;
                }
            }
            let index = self.next;
            self.next += 1;
            let arrival = self.receiver.arrival(index);
            let Some(from) = arrival.source else { continue };
            let end = arrival.bytes.len();
            let each = match arrival.beside.segment_bytes {
                0 => end,
                each => each,
            };
            self.current = Message { index, from, each, at: 0, end };
        }
        true
    }
}

/// Whether the error is one that the kernel returns for a message that it cannot cut.
fn is_of_cutting(error: &io::Error) -> bool {
    matches!(errno(error), libc::EINVAL | libc::EIO | libc::EMSGSIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Datagrams, Datagrams, SocketAddr) {
        let make = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let (one, two) = (make(), make());
        let to = two.local_addr().unwrap();
        (Datagrams::new(one, 1 << 18).unwrap(), Datagrams::new(two, 1 << 18).unwrap(), to)
    }

    /// Receives datagrams until there are `count` of them: a busy kernel delivers late.
    fn receive_until(from: &mut Datagrams, all: &mut Vec<Vec<u8>>, count: usize) {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while all.len() < count {
            if from.receive_some(7, |_, bytes| all.push(bytes.to_vec())) == 0 {
                assert!(std::time::Instant::now() < until, "{} of {count}", all.len());
                std::thread::yield_now();
            }
        }
    }

    /// Receives this number of datagrams, and checks that no more follow.
    fn received(from: &mut Datagrams, count: usize) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        receive_until(from, &mut all, count);
        assert_eq!(from.receive_some(7, |_, _| ()), 0, "more than {count}");
        all
    }

    /// Datagrams arrive in order: datagrams of equal length, which are joined, datagrams of other
    /// lengths, which are not, and more datagrams than one message can contain.
    #[test]
    fn datagrams_arrive_as_they_were_sent() {
        let (mut one, mut two, to) = pair();
        for round in 0..20_u8 {
            let length = |n: u8| [1400, 1400, 1400, 60, 1400, 0, 9000][usize::from(n % 7)];
            let sent: Vec<Vec<u8>> = (0..200).map(|n| vec![n ^ round; length(n)]).collect();
            let (mut got, mut pushed) = (Vec::new(), 0);
            for datagram in &sent {
                let (head, body) = datagram.split_at(datagram.len().min(40));
                one.push(to, 0, head, body);
                pushed += usize::from(!datagram.is_empty());
                // The buffer of the socket cannot hold all datagrams.
                if one.runs.len() > 4 {
                    one.flush();
                    receive_until(&mut two, &mut got, pushed);
                }
            }
            one.flush();
            receive_until(&mut two, &mut got, pushed);
            assert_eq!((one.take_lost(), two.receive_some(7, |_, _| ())), (0, 0));
            let sent: Vec<_> = sent.into_iter().filter(|datagram| !datagram.is_empty()).collect();
            assert!(got == sent, "{} of {}", got.len(), sent.len());
        }
        assert!(two.joins && !two.is_waiting());
    }

    #[test]
    fn many_small_ones_are_one_message() {
        let (mut one, mut two, to) = pair();
        (0..50_u8).for_each(|n| one.push(to, 0, &[n; 64], &[]));
        assert_eq!(one.runs.len(), 1);
        one.flush();
        assert_eq!(received(&mut two, 50).len(), 50);
        // The number of waiting messages is bounded.
        (0..200_u8).for_each(|n| one.push(to, 0, &vec![n; 100 + usize::from(n)], &[]));
        assert!(one.runs.len() <= RUNS_MAX);
    }

    /// Datagrams to one destination form one message, in their order, even if datagrams to other
    /// destinations are queued between them.
    #[test]
    fn what_is_for_elsewhere_does_not_part_a_message() {
        let (mut one, mut two, to) = pair();
        let (_, mut three, elsewhere) = pair();
        for n in 0..40_u8 {
            one.push(to, 0, &[n; 64], &[]);
            one.push(elsewhere, 0, &[n; 100], &[]);
        }
        assert_eq!(one.runs.len(), 2);
        // A longer datagram, then a shorter datagram, then further ones: the order stays.
        one.push(to, 0, &[40; 200], &[]);
        one.push(elsewhere, 0, &[40; 100], &[]);
        [41, 42, 43].into_iter().for_each(|n| one.push(to, 0, &[n; 64], &[]));
        assert_eq!(one.runs.len(), 4);
        one.flush();
        let firsts = |all: Vec<Vec<u8>>| all.iter().map(|datagram| datagram[0]).collect::<Vec<_>>();
        assert_eq!(firsts(received(&mut two, 44)), (0..44).collect::<Vec<_>>());
        assert_eq!(firsts(received(&mut three, 41)), (0..41).collect::<Vec<_>>());
    }

    /// A datagram that is too large for every path is lost and counted; the other datagrams arrive.
    #[test]
    fn what_cannot_be_sent_is_counted() {
        let (mut one, mut two, to) = pair();
        one.push(to, 0, &[1; 100], &[]);
        one.push(to, 0, &[2; 70_000], &[]);
        one.push("[::1]:9".parse().unwrap(), 0, &[3; 100], &[]);
        one.push(to, 0, &[4; 100], &[]);
        one.flush();
        assert_eq!(one.take_lost(), 2);
        assert_eq!(received(&mut two, 2), [vec![1; 100], vec![4; 100]]);
    }

    /// If the kernel cuts no messages, each datagram is sent as one message.
    #[test]
    fn without_segmentation_datagrams_leave_one_by_one() {
        let (mut one, mut two, to) = pair();
        one.cuts = false;
        (0..50_u8).for_each(|n| one.push(to, 0, &[n; 64], &[]));
        one.flush();
        let each: Vec<Vec<u8>> = (0..50_u8).map(|n| vec![n; 64]).collect();
        assert_eq!(received(&mut two, 50), each);
        // Simulates a kernel that refuses to cut messages only when they are sent.
        one.cuts = true;
        (0..50_u8).for_each(|n| one.push(to, 0, &[n; 64], &[]));
        let run = one.runs.pop().unwrap();
        one.send_apart(&run);
        assert_eq!(received(&mut two, 50), each);
        assert_eq!(one.take_lost(), 0);
    }

    /// Each flow leaves by its socket, in order; if there are more flows than sockets, flows share
    /// sockets. A datagram that arrives at a sending socket is dropped.
    #[test]
    fn flows_leave_by_sockets_of_their_own_in_their_order() {
        let (mut one, mut two, to) = pair();
        let senders = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let ports = senders.each_ref().map(|of| of.local_addr().unwrap());
        one.send_by(senders.into(), 1 << 18).unwrap();
        for n in 0..60_u8 {
            one.push(to, u16::from(n % 4), &[n; 64], &[]);
        }
        assert_eq!(one.runs.len(), 3);
        one.flush();
        let mut all = Vec::new();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while all.len() < 60 {
            let count = two.receive_some(7, |from, bytes| all.push((from, bytes[0])));
            assert!(count > 0 || std::time::Instant::now() < until, "{} of 60", all.len());
        }
        for (sender, port) in ports.iter().enumerate() {
            let of_sender = |n: &u8| usize::from(n % 4) % 3 == sender;
            let got = all.iter().filter(|(from, _)| from == port).map(|(_, n)| *n);
            assert!(got.eq((0..60).filter(of_sender)), "{all:?}");
        }
        assert_eq!(one.take_lost(), 0);
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        stranger.send_to(b"to a sender", ports[0]).unwrap();
        stranger.send_to(b"to the receiver", one.socket.local_address().unwrap()).unwrap();
        assert_eq!(received(&mut one, 1), [b"to the receiver".to_vec()]);
    }
}
