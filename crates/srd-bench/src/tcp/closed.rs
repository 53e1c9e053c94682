//! A closed loop: on every connection one message after another is sent; each message begins when
//! the previous message is complete.
//!
//! A message is complete when its sender has read the one-byte answer that the receiver sends after
//! the last byte of the message, as in [`super::Barrier`].

use super::connection::{self, Connection, Connections, Flows};
use super::poll::{CHUNK_BYTES, Poll};
use anyhow::{Context, Result};
use rustix::event::epoll::EventFlags;
use srd_lab::config::check;
use srd_lab::fabric::Fabric;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Parameters of a measurement in a closed loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedLoop {
    /// Hosts, number and addresses of the connections.
    pub flows: Flows,
    /// Number of bytes of each message.
    pub bytes: u64,
    /// Time in seconds in which messages begin. The last messages then have the same time to
    /// complete.
    pub seconds: u64,
}

/// Completion times of the messages of all connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClosedLoopResult {
    /// Completion time of each message, in microseconds.
    pub fct_us: Vec<u64>,
    /// Number of messages that did not complete; `fct_us` includes the time that each of them
    /// waited.
    pub unfinished: usize,
    /// Number of messages that completed in the time in which messages begin.
    pub in_time: usize,
}

impl ClosedLoop {
    /// Establishes the connections and sends messages for the configured time.
    pub fn run(&self, fabric: &Fabric) -> Result<ClosedLoopResult> {
        check("bytes", self.bytes, 1..=1 << 32)?;
        check("seconds", self.seconds, 1..=3600)?;
        let _subflows = self.flows.prepare(fabric)?;
        let connections = Connections::establish(fabric, &self.flows)?;
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let receiver = scope.spawn(|| answer_all(&connections.all, self.bytes, &over));
            let sent = self.send_all(&connections.all);
            over.store(true, Ordering::Release);
            let received = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            received.context("receiver")?;
            sent.context("sender")
        })
    }

    fn send_all(&self, connections: &[Connection]) -> Result<ClosedLoopResult> {
        let both = EventFlags::IN | EventFlags::OUT;
        let mut poll = Poll::watch(connections.iter().map(|c| &c.sender), both)?;
        let chunk = vec![0u8; CHUNK_BYTES];
        let start = Instant::now();
        let end = start + Duration::from_secs(self.seconds);
        let drained = end + Duration::from_secs(self.seconds);
        let mut begun = vec![Some(start); connections.len()];
        let mut left = vec![self.bytes; connections.len()];
        let mut result = ClosedLoopResult::default();
        for (connection, left) in connections.iter().zip(&mut left) {
            connection::push(&connection.sender, &chunk, left)?;
        }
        while begun.iter().any(Option::is_some) && Instant::now() < drained {
            for flow in poll.wait()? {
                let socket = &connections[flow].sender;
                connection::push(socket, &chunk, &mut left[flow])?;
                let mut answer = [0];
                if connection::receive(socket, &mut answer)?.is_none() {
                    continue;
                }
                let now = Instant::now();
                let since = begun[flow].context("an answer to nothing")?;
                result.fct_us.push(us(now - since));
                begun[flow] = (now < end).then_some(now);
                if begun[flow].is_some() {
                    result.in_time += 1;
                    left[flow] = self.bytes;
                    connection::push(socket, &chunk, &mut left[flow])?;
                }
            }
        }
        for since in begun.into_iter().flatten() {
            result.unfinished += 1;
            result.fct_us.push(us(since.elapsed()));
        }
        Ok(result)
    }
}

fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Answers with one byte after every `bytes` received bytes of a connection, until `over` is set.
fn answer_all(connections: &[Connection], bytes: u64, over: &AtomicBool) -> Result<()> {
    let mut poll = Poll::watch(connections.iter().map(|c| &c.receiver), EventFlags::IN)?;
    let mut buffer = vec![0u8; CHUNK_BYTES];
    let mut left = vec![bytes; connections.len()];
    while !over.load(Ordering::Acquire) {
        for flow in poll.wait()? {
            let socket = &connections[flow].receiver;
            while let Some(count) = connection::receive(socket, &mut buffer)? {
                left[flow] -= count as u64;
                if left[flow] == 0 {
                    left[flow] = bytes;
                    connection::send(socket, &[1])?.context("no room for one byte")?;
                    connection::stay_one_way(socket)?;
                }
            }
        }
    }
    Ok(())
}
