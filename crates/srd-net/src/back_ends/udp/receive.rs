//! Receiving: there is one receiving socket for each local address, and each call reads all of
//! them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll;
use srd_proto::time::Instant;
use srd_proto::transmit::PacketMeta;

use super::{ERRORS_LOOKS, UdpIo, is_later};
use crate::sys::errno;
use crate::sys::udp::recv::Receiver;
use crate::sys::udp::refused;

/// Largest number of reads in a row that return messages without a packet, such as the empty
/// datagrams of a stranger, before the caller continues with other work.
const EMPTY_READS_MAX: u32 = 64;

/// The receiving side of one local address.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) receiver: Receiver,
    /// Whether the kernel coalesces arriving datagrams. This is worth its cost for streams, but
    /// costs 0.15 us for each single packet, so it is switched on when a stream arrives.
    coalescing: bool,
    /// Number of messages that the last call to the kernel returned. `next` is the index of the
    /// next message to process.
    messages: usize,
    next: usize,
}

impl Input {
    pub(super) fn new() -> Self {
        Self { receiver: Receiver::new(), coalescing: false, messages: 0, next: 0 }
    }

    /// Whether messages that were read from the socket wait to be processed.
    pub(super) fn is_waiting(&self) -> bool {
        self.next < self.messages
    }
}

impl UdpIo {
    /// Returns a descriptor that is readable while packets wait, for callers with their own event
    /// loop.
    ///
    /// # Errors
    /// An error of the operating system, if it has no free descriptor.
    pub(crate) fn arrivals(&self) -> io::Result<OwnedFd> {
        if let [only] = self.receivers[..] {
            return self.sockets[only].as_fd().try_clone_to_owned();
        }
        let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for at in &self.receivers {
            let data = epoll::EventData::new_u64(*at as u64);
            epoll::add(&all, self.sockets[*at].as_fd(), data, epoll::EventFlags::IN)?;
        }
        Ok(all)
    }

    /// Schedules reads of this path's error queue, after another back end has sent a packet of the
    /// path: ICMP errors about the packet arrive at this path's socket.
    pub(crate) fn expect_errors(&mut self, path: usize) {
        self.sent_on[path] = ERRORS_LOOKS;
    }

    /// Receives packets that have arrived. Returns `None` if nothing had arrived. If only messages
    /// without a packet were read, reads again, because packets may wait behind them.
    pub(super) fn receive_now(
        &mut self,
        each: &mut impl FnMut(Instant, PacketMeta, &mut [u8]),
    ) -> io::Result<Option<usize>> {
        for _ in 1..EMPTY_READS_MAX {
            let packets = self.receive_once(each)?;
            if packets != Some(0) {
                return Ok(packets);
            }
        }
        self.receive_once(each)
    }

    /// Makes one call to the kernel for each local address. Returns the number of packets; `None`
    /// if nothing had arrived. Packets are handed over in the order in which they arrived at this
    /// machine: a sender considers a packet lost if it arrives long after packets that were sent
    /// later.
    fn receive_once(
        &mut self,
        each: &mut impl FnMut(Instant, PacketMeta, &mut [u8]),
    ) -> io::Result<Option<usize>> {
        let mut failed = None;
        let mut messages = 0;
        for local in 0..self.inputs.len() {
            if !self.inputs[local].is_waiting() {
                let asked = self.ask(local).unwrap_or_else(|error| {
                    failed = Some(error);
                    0
                });
                let input = &mut self.inputs[local];
                (input.next, input.messages) = (0, asked);
            }
            messages += self.inputs[local].messages - self.inputs[local].next;
        }
        if messages == 0 {
            // An error at one address does not lose the packets of other addresses.
            return failed.map_or(Ok(None), Err);
        }
        let now = self.clock.now();
        let mut packets = 0;
        while let Some(local) = self.first_ear() {
            packets += self.hand_over(local, now, each);
            // Packets of this address that are still in the kernel may have arrived before packets
            // of other addresses.
            let input = &self.inputs[local];
            if !input.is_waiting() && input.receiver.is_full() {
                break;
            }
        }
        self.stats.received_packets += packets as u64;
        Ok(Some(packets))
    }

    /// Returns the index of the local address at which the next message arrived first; `None` if no
    /// message waits.
    fn first_ear(&mut self) -> Option<usize> {
        if let [input] = &self.inputs[..] {
            return input.is_waiting().then_some(0);
        }
        let waiting = self.inputs.iter_mut().enumerate().filter(|(_, input)| input.is_waiting());
        let stamped =
            waiting.map(|(at, input)| (input.receiver.arrival(input.next).beside.stamp_ns, at));
        stamped.min().map(|(_, at)| at)
    }

    /// Reads messages that have arrived at a local address, with one call to the kernel. Returns
    /// their number.
    fn ask(&mut self, local: usize) -> io::Result<usize> {
        let socket = self.receivers[local];
        self.stats.receive_calls += 1;
        let mut received = self.inputs[local].receiver.receive(&self.sockets[socket]);
        let of_earlier = |e: &io::Error| refused::may_be_of_an_earlier_packet(errno(e));
        if received.as_ref().is_err_and(of_earlier) {
            self.drain_errors(socket);
            received = self.inputs[local].receiver.receive(&self.sockets[socket]);
        }
        let input = &mut self.inputs[local];
        let messages = match received {
            Ok(n) => n,
            // Another error of an earlier packet waits for the next call.
            Err(e) if is_later(&e) || of_earlier(&e) => 0,
            Err(e) => return Err(e),
        };
        self.stats.received_messages += messages as u64;
        if messages > 1 && !input.coalescing {
            // Optional: this option is absent before Linux 5.0.
            let _ = self.sockets[socket].receive_coalesced();
            input.coalescing = true;
        }
        Ok(messages)
    }

    /// Passes the packets of the next message that was read at a local address to `each`. Returns
    /// the number of packets.
    fn hand_over(
        &mut self,
        local: usize,
        now: Instant,
        each: &mut impl FnMut(Instant, PacketMeta, &mut [u8]),
    ) -> usize {
        let input = &mut self.inputs[local];
        let arrival = input.receiver.arrival(input.next);
        input.next += 1;
        let Some(source) = arrival.source.filter(|_| !arrival.bytes.is_empty()) else { return 0 };
        let place = u8::try_from(local).unwrap_or(0);
        let received_at = self.clock.arrival(arrival.beside.stamp_ns, now);
        let meta = PacketMeta { source, local: place, ecn: arrival.beside.ecn, received_at };
        self.stats.received_bytes += arrival.bytes.len() as u64;
        let segment = match arrival.beside.segment_bytes {
            0 => arrival.bytes.len(),
            n => n,
        };
        let mut packets = 0;
        for packet in arrival.bytes.chunks_mut(segment) {
            packets += 1;
            each(now, meta, packet);
        }
        packets
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;
    use crate::UdpOptions;
    use crate::back_ends::io::{PacketIo as _, Wait};

    fn is_readable(fd: &OwnedFd, wait_s: i64) -> bool {
        let wait = Timespec { tv_sec: wait_s, tv_nsec: 0 };
        poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&wait)).unwrap() == 1
    }

    #[test]
    fn a_packet_at_any_local_address_makes_the_descriptor_readable() {
        for addresses in [&["127.0.0.1"][..], &["127.0.0.1", "127.0.0.2"]] {
            let mut options = UdpOptions::new(([127, 0, 0, 1], 0).into());
            options.paths = 2;
            options.further = addresses[1..].iter().map(|ip| ip.parse().unwrap()).collect();
            for address in addresses {
                let mut io = UdpIo::open(&options).unwrap();
                let fd = io.arrivals().unwrap();
                assert!(!is_readable(&fd, 0));
                let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
                stranger.send_to(b"x", (*address, io.local_address().port())).unwrap();
                assert!(is_readable(&fd, 60), "{address}");
                let mut packets = 0;
                io.receive_now(&mut |_, _, _| packets += 1).unwrap();
                assert_eq!(packets, 1, "{address}");
            }
        }
    }

    /// Regression: a read that returned only empty datagrams looked as if nothing had arrived, so
    /// that timers ran before the packets behind them were processed.
    #[test]
    fn regression_empty_datagrams_do_not_hide_the_packets_behind_them() {
        let mut io = UdpIo::open(&UdpOptions::new(([127, 0, 0, 1], 0).into())).unwrap();
        let to = io.local_address();
        let until = io.clock().now() + srd_proto::time::Duration::from_millis(1);
        // Nothing comes, so the next call offers one slot.
        assert_eq!(io.receive(Wait::until(until), |_, _, _| ()).unwrap(), 0);
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        for payload in [&b""[..], b"x"] {
            stranger.send_to(payload, to).unwrap();
        }
        assert_eq!(io.receive(Wait::NOT, |_, _, _| ()).unwrap(), 1);
    }

    #[test]
    fn empty_datagrams_are_read_in_a_limited_number_of_calls() {
        let mut options = UdpOptions::new(([127, 0, 0, 1], 0).into());
        options.receive_buffer_bytes = 8 << 20;
        let mut io = UdpIo::open(&options).unwrap();
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        let until = io.clock().now() + srd_proto::time::Duration::from_millis(1);
        assert_eq!(io.receive(Wait::until(until), |_, _, _| ()).unwrap(), 0);
        for _ in 0..6000 {
            stranger.send_to(b"", io.local_address()).unwrap();
        }
        let before = io.stats();
        assert_eq!(io.receive(Wait::NOT, |_, _, _| ()).unwrap(), 0);
        let calls = io.stats().receive_calls - before.receive_calls;
        let read = io.stats().received_messages - before.received_messages;
        if read < 3800 {
            println!("skipped: the receive buffer holds only {read} empty datagrams");
            return;
        }
        assert_eq!(calls, u64::from(EMPTY_READS_MAX), "{read} messages");
    }
}
