//! Counters of a host's kernel: retransmitted TCP segments, and timeouts.
//!
//! Each network namespace, and so each host, has separate counters. With `srd up`, they count only
//! the TCP connections of programs: to the kernel, SRD's own packets and their retransmissions are
//! UDP.

use crate::build::fabric::Fabric;
use crate::build::id::HostId;
use anyhow::{Context, Result};
use serde::Serialize;
use std::fs;

/// TCP counters of one or several hosts since the creation of their namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TcpCounters {
    /// Segments sent, without retransmissions.
    pub segments_sent: u64,
    /// Segments that were retransmitted.
    pub segments_again: u64,
    /// Number of times that a retransmission timeout expired.
    pub timeouts: u64,
}

impl TcpCounters {
    /// Returns the difference to an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &TcpCounters) -> TcpCounters {
        TcpCounters {
            segments_sent: self.segments_sent.saturating_sub(earlier.segments_sent),
            segments_again: self.segments_again.saturating_sub(earlier.segments_again),
            timeouts: self.timeouts.saturating_sub(earlier.timeouts),
        }
    }
}

impl Fabric {
    /// Returns the sum of these hosts' counters. Each host should be listed once.
    pub fn tcp_counters(&self, hosts: &[HostId]) -> Result<TcpCounters> {
        let mut sum = TcpCounters::default();
        for host in hosts {
            // Reads the thread's `net` directory: `/proc/net` belongs to the process's main thread,
            // which is in another namespace.
            let read = || ["snmp", "netstat"].map(read_of_thread);
            let [snmp, netstat] = self.within(*host, read)?;
            let counters = parse(&snmp?, &netstat?).with_context(|| format!("TCP of {host}"))?;
            sum.segments_sent += counters.segments_sent;
            sum.segments_again += counters.segments_again;
            sum.timeouts += counters.timeouts;
        }
        Ok(sum)
    }
}

fn read_of_thread(name: &str) -> Result<String> {
    let path = format!("/proc/thread-self/net/{name}");
    fs::read_to_string(&path).context(path)
}

fn parse(snmp: &str, netstat: &str) -> Option<TcpCounters> {
    Some(TcpCounters {
        segments_sent: value(snmp, "Tcp", "OutSegs")?,
        segments_again: value(snmp, "Tcp", "RetransSegs")?,
        timeouts: value(netstat, "TcpExt", "TCPTimeouts")?,
    })
}

/// Returns a value of a group. A line of names is followed by a line of values, and both begin with
/// the group's name.
fn value(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(group)?.strip_prefix(':'));
    let place = lines.next()?.split_whitespace().position(|other| other == name)?;
    lines.next()?.split_whitespace().nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNMP: &str = "Ip: A B\nIp: 1 2\n\
        Tcp: RtoMin MaxConn OutSegs RetransSegs\nTcp: 200 -1 5000 17\nUdp: OutSegs\nUdp: 3\n";
    const NETSTAT: &str = "TcpExt: SyncookiesSent TCPTimeouts\nTcpExt: 0 4\nIpExt: X\nIpExt: 1\n";

    #[test]
    fn names_find_their_values() {
        let counters = parse(SNMP, NETSTAT).unwrap();
        let expected = TcpCounters { segments_sent: 5000, segments_again: 17, timeouts: 4 };
        assert_eq!(counters, expected);
        assert_eq!(value(SNMP, "Tcp", "Nonesuch"), None);
        assert_eq!(value("", "Tcp", "OutSegs"), None);
    }
}
