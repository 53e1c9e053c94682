//! Flows of numbered datagrams that are sent at a constant rate, and statistics of their arrival.
//!
//! A delay is counted from the moment at which the datagram was *due* to be sent, so it includes
//! delays of the sender. Both sockets of a flow belong to this process, and so have the same clock.

use crate::experiment::Stage;
use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::net::sockopt;
use srd_lab::id::{Family, HostId};
use srd_lab::priority;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Real-time priority of the threads that send and receive.
const PRIORITY: u8 = 20;
/// Time to wait for the last datagrams after sending has ended.
const DRAIN: Duration = Duration::from_millis(500);
/// Size of a receiver's socket buffer in bytes, so large that only the network loses datagrams.
const BUFFER_BYTES: usize = 8 << 20;
/// Time between the creation of the threads and the first datagram.
const START: Duration = Duration::from_millis(50);

/// Parameters of one flow.
#[derive(Clone, Copy, Debug)]
pub(in crate::experiment) struct Paced {
    pub(in crate::experiment) from: HostId,
    pub(in crate::experiment) to: HostId,
    /// UDP port of the receiver, and also of the sender.
    pub(in crate::experiment) port: u16,
    /// Bytes of payload of each datagram; at least four, for the number.
    pub(in crate::experiment) bytes: usize,
    /// Time between two datagrams.
    pub(in crate::experiment) period: Duration,
}

/// The datagrams of a flow that arrived, in the order of their arrival: the number of each, and its
/// time in seconds since the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::experiment) struct Arrivals(Vec<(u32, f64)>);

/// Statistics of the datagrams that were due to be sent within given intervals of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::experiment) struct Account {
    /// Number of datagrams that were due to be sent.
    pub(in crate::experiment) sent: usize,
    /// Number of datagrams that never arrived.
    pub(in crate::experiment) lost: usize,
    /// Number of datagrams that arrived more than once.
    pub(in crate::experiment) twice: usize,
    /// Number of datagrams that arrived after one with a higher number.
    pub(in crate::experiment) inversions: usize,
    /// For each datagram that arrived, the delay in milliseconds from its due time to its arrival.
    pub(in crate::experiment) delay_ms: Vec<f64>,
}

/// Runs flows, and at the same time calls `meanwhile` with the start time of the flows. The flows
/// end when `meanwhile` returns.
pub(in crate::experiment) fn run<T>(
    stage: &Stage<'_>,
    flows: &[Paced],
    meanwhile: impl FnOnce(Instant) -> Result<T>,
) -> Result<(Vec<Arrivals>, T)> {
    let sockets =
        flows.iter().map(|flow| Sockets::open(stage, flow)).collect::<Result<Vec<_>>>()?;
    let (no_more, over) = (&AtomicBool::new(false), &AtomicBool::new(false));
    let start = Instant::now() + START;
    thread::scope(|scope| {
        let receivers: Vec<_> =
            sockets.iter().map(|sockets| scope.spawn(|| sockets.receive(start, over))).collect();
        let senders: Vec<_> = sockets
            .iter()
            .zip(flows)
            .map(|(sockets, flow)| scope.spawn(|| sockets.send(flow, start, no_more)))
            .collect();
        // Dropping these stops the threads, even if `meanwhile` panics. Otherwise the scope would
        // wait for the threads for ever.
        let (stop_senders, stop_receivers) = (StopOnDrop(no_more), StopOnDrop(over));
        let done = meanwhile(start);
        drop(stop_senders);
        for sender in senders {
            let sent = sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            sent.context("sender")?;
        }
        thread::sleep(DRAIN);
        drop(stop_receivers);
        let received = receivers.into_iter().map(|receiver| {
            let seen = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            seen.context("receiver")
        });
        Ok((received.collect::<Result<_>>()?, done?))
    })
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The two sockets of a flow.
struct Sockets {
    source: UdpSocket,
    receiver: UdpSocket,
    target: SocketAddr,
    bytes: usize,
}

impl Sockets {
    fn open(stage: &Stage<'_>, flow: &Paced) -> Result<Sockets> {
        let source = stage.fabric.udp_socket(flow.from, Family::V4, flow.port)?;
        let receiver = stage.fabric.udp_socket(flow.to, Family::V4, flow.port)?;
        sockopt::set_socket_recv_buffer_size_force(&receiver, BUFFER_BYTES)
            .context("SO_RCVBUFFORCE")?;
        receiver.set_read_timeout(Some(DRAIN / 5))?;
        let target = SocketAddr::new(stage.address(flow.to)?, flow.port);
        Ok(Sockets { source, receiver, target, bytes: flow.bytes })
    }

    fn send(&self, flow: &Paced, start: Instant, over: &AtomicBool) -> Result<()> {
        let _fifo = priority::fifo(PRIORITY)?;
        let mut datagram = vec![0u8; flow.bytes];
        for number in 0u32.. {
            let due = start + flow.period * number;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if over.load(Ordering::Acquire) {
                break;
            }
            datagram[..4].copy_from_slice(&number.to_be_bytes());
            match self.source.send_to(&datagram, self.target) {
                Ok(_) => {}
                // The queue of the host's own interface is full. The datagram is counted as lost,
                // as if the network had lost it.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::NOBUFS) => {}
                Err(error) => return Err(error).context("send"),
            }
        }
        Ok(())
    }

    fn receive(&self, start: Instant, over: &AtomicBool) -> Result<Arrivals> {
        let _fifo = priority::fifo(PRIORITY)?;
        let mut buffer = vec![0u8; self.bytes + 1];
        let mut arrived = Vec::new();
        while !over.load(Ordering::Acquire) {
            match self.receiver.recv(&mut buffer) {
                Ok(bytes) if bytes == self.bytes => {
                    let at_s = start.elapsed().as_secs_f64();
                    let [a, b, c, d, ..] = buffer[..] else { continue };
                    arrived.push((u32::from_be_bytes([a, b, c, d]), at_s));
                }
                // A datagram of another size was sent by another program.
                Ok(_) => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error).context("receive"),
            }
        }
        Ok(Arrivals(arrived))
    }
}

impl Arrivals {
    /// Returns the statistics of the datagrams that were due in the given times, in seconds since
    /// the start.
    pub(in crate::experiment) fn account(
        &self,
        period: Duration,
        times_s: &[Range<f64>],
    ) -> Account {
        let period_s = period.as_secs_f64();
        let counts = |number: u32| {
            let due_s = f64::from(number) * period_s;
            times_s.iter().any(|time| time.contains(&due_s))
        };
        let mut account = Account { sent: sent(period_s, times_s), ..Account::default() };
        let (mut seen, mut highest) = (std::collections::BTreeSet::new(), None);
        for (number, at_s) in &self.0 {
            let is_behind = highest.is_some_and(|highest| *number < highest);
            highest = highest.max(Some(*number));
            if !counts(*number) {
                continue;
            }
            if !seen.insert(*number) {
                account.twice += 1;
                continue;
            }
            account.inversions += usize::from(is_behind);
            account.delay_ms.push((at_s - f64::from(*number) * period_s) * 1e3);
        }
        account.lost = account.sent.saturating_sub(seen.len());
        account
    }
}

/// Returns the number of datagrams that were due in the given times: one for each period that
/// begins in them.
fn sent(period_s: f64, times_s: &[Range<f64>]) -> usize {
    let before = |time_s: f64| first_due(period_s, time_s) as usize;
    times_s.iter().map(|time| before(time.end).saturating_sub(before(time.start))).sum()
}

/// Returns the number of the first datagram that is due at `time_s` or later.
fn first_due(period_s: f64, time_s: f64) -> u32 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
    let about = (time_s / period_s) as u32;
    // The quotient is rounded, so the number next to it may be the first.
    let mut numbers = about.saturating_sub(1)..u32::MAX;
    numbers.find(|number| f64::from(*number) * period_s >= time_s).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(1);

    fn account(arrived: &[(u32, f64)], times_s: &[Range<f64>]) -> Account {
        Arrivals(arrived.to_vec()).account(PERIOD, times_s)
    }

    #[test]
    fn delays_are_those_since_a_datagram_was_due() {
        let seen = account(&[(0, 0.5), (1, 1.25), (2, 2.5)], &[0.0..3.0]);
        assert_eq!((seen.sent, seen.lost, seen.inversions), (3, 0, 0));
        assert_eq!(seen.delay_ms, [500.0, 250.0, 500.0]);
    }

    #[test]
    fn what_overtakes_makes_inversions_of_all_that_it_overtook() {
        let seen = account(&[(0, 0.1), (3, 3.1), (1, 3.2), (2, 3.3), (4, 4.1)], &[0.0..5.0]);
        assert_eq!((seen.sent, seen.lost, seen.inversions), (5, 0, 2));
    }

    #[test]
    fn missing_ones_are_lost_and_copies_count_once() {
        let seen = account(&[(0, 0.1), (2, 2.1), (2, 2.2)], &[0.0..4.0]);
        assert_eq!((seen.sent, seen.lost, seen.twice, seen.inversions), (4, 2, 1, 0));
        assert_eq!(seen.delay_ms.len(), 2);
    }

    #[test]
    fn only_datagrams_due_in_the_times_count_but_all_are_looked_at() {
        // Datagram 5 was due outside of the times, and 4 arrives after it.
        let seen = account(&[(0, 0.1), (5, 5.1), (4, 5.2)], &[1.0..2.0, 3.5..5.0]);
        assert_eq!((seen.sent, seen.lost, seen.inversions), (2, 1, 1));
    }

    /// In an earlier version, a datagram counted as sent, and so as lost, if the quotient of time
    /// and period was rounded up.
    #[test]
    fn regression_as_many_are_sent_as_can_arrive() {
        let period = Duration::from_millis(10);
        for count in 1..300_u32 {
            let arrived: Vec<_> = (0..count).map(|n| (n, f64::from(n) / 100.0)).collect();
            let times_s = [0.0..f64::from(count) / 100.0];
            let seen = Arrivals(arrived).account(period, &times_s);
            assert_eq!(seen.sent, seen.delay_ms.len(), "{times_s:?}");
            assert_eq!(seen.lost, 0, "{times_s:?}");
        }
    }
}
