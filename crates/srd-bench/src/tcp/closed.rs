//! Message after message on every connection: the next begins when the last is complete.
//!
//! A message is complete when its sender has read the receiver's answer to the last byte, as in
//! [`super::Barrier`].

use super::connection::{self, Connection, Connections, Request};
use super::poll::{CHUNK_BYTES, Poll};
use super::{Congestion, FLOWS_MAX, Subflows};
use anyhow::{Context, Result};
use rustix::event::epoll::EventFlags;
use srd_lab::config::check;
use srd_lab::fabric::Fabric;
use srd_lab::id::{HostId, Network};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedLoop {
    /// Senders and receivers.
    pub pairs: Vec<(HostId, HostId)>,
    /// Connections of each pair.
    pub flows_per_pair: usize,
    /// Bytes of a message.
    pub bytes: u64,
    /// For how long messages begin. Those that have begun may take as long again to complete.
    pub seconds: u64,
    /// The kernel's congestion control.
    pub congestion: Congestion,
    /// Extra MPTCP subflows per connection; zero for plain TCP.
    pub mptcp_subflows: u16,
    /// Over which addresses.
    pub network: Network,
    /// Source port of the first connection; the kernel draws them if there is none.
    pub first_port: Option<u16>,
}

/// What happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClosedLoopResult {
    /// Completion time of each message.
    pub fct_us: Vec<u64>,
    /// Messages that did not complete; each counts in `fct_us` with the time it had waited.
    pub unfinished: usize,
}

impl ClosedLoop {
    /// Runs for the time asked for.
    pub fn run(&self, fabric: &Fabric) -> Result<ClosedLoopResult> {
        let flows = self.pairs.len() * self.flows_per_pair;
        check("pairs * flows_per_pair", flows as u64, 1..=FLOWS_MAX)?;
        check("bytes", self.bytes, 1..=1 << 32)?;
        check("seconds", self.seconds, 1..=3600)?;
        let request = Request {
            pairs: &self.pairs,
            flows_per_pair: self.flows_per_pair,
            network: self.network,
            congestion: self.congestion,
            mptcp: self.mptcp_subflows > 0,
            first_port: self.first_port,
        };
        let _subflows = Subflows::set(fabric, self.mptcp_subflows, self.network.family())?;
        let connections = Connections::establish(fabric, &request)?;
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

/// Answers one byte for every `bytes` received.
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
