//! Measurements of the kernel's own TCP and MPTCP over the fabric: the baseline for SRD.
//!
//! Both ends of every connection are sockets of *this* process, created in the network namespaces
//! of their hosts. Therefore one clock measures both ends, without a synchronisation error. One
//! thread serves all senders, and another thread all receivers, with epoll; on two cores, more
//! threads would measure the scheduler.
//!
//! | item | measurement |
//! |---|---|
//! | [`Barrier`] | many flows start at the same moment, in rounds: completion times |
//! | [`barrier_incast`] | many flows to one host start at the same moment, in rounds |
//! | [`ClosedLoop`] | one message after another on every connection: completion times |
//! | [`single_flow`] | one long flow: delivered bytes per interval |
//! | [`LongFlows`] | many long flows at the same time: delivered bytes of each per interval |
//! | [`failover`] | one long flow whose spine fails silently and heals: the longest silence |

mod barrier;
mod closed;
mod connection;
mod failover;
mod incast;
mod long;
pub(crate) mod poll;
mod single;

pub use barrier::{Barrier, BarrierResult, Round};
pub use connection::{FLOWS_MAX, Flows};
pub(crate) use connection::{connect_to, receive, send};

pub use closed::{ClosedLoop, ClosedLoopResult};
pub use failover::{Failover, FailoverResult, failover, silence_ms};
pub(crate) use failover::{HealOnDrop, sleep_until};
pub use incast::{Incast, IncastResult, IncastSummary, barrier_incast};
pub use long::{LongFlows, Timelines};
pub use single::{Flow, INTERVALS_MAX, Interval, Throughput, single_flow};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use srd_lab::fabric::Fabric;
use srd_lab::id::Family;
use std::fmt;
use std::str::FromStr;

/// A TCP congestion control algorithm of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Congestion {
    /// CUBIC, Linux's default: loss-based, and the strongest baseline in incast.
    #[default]
    Cubic,
    /// BBR, which is based on a model of the path.
    Bbr,
    /// Reno: loss-based, the classic textbook algorithm.
    Reno,
}

impl Congestion {
    /// All congestion control algorithms.
    pub const ALL: [Congestion; 3] = [Congestion::Cubic, Congestion::Bbr, Congestion::Reno];

    /// Returns the kernel's name for the algorithm.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Congestion::Cubic => "cubic",
            Congestion::Bbr => "bbr",
            Congestion::Reno => "reno",
        }
    }
}

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Congestion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Congestion::ALL.into_iter().find(|cc| cc.name() == text);
        found.ok_or_else(|| format!("`{text}` is not a congestion control: cubic, bbr or reno"))
    }
}

/// Configures the number of MPTCP subflows on all hosts; restores the earlier number when dropped.
pub(crate) struct Subflows<'a> {
    fabric: &'a Fabric,
    before: u16,
    during: u16,
}

impl<'a> Subflows<'a> {
    /// Sets the number of extra MPTCP subflows on all hosts. Zero leaves the hosts unchanged: a
    /// plain TCP socket does not use MPTCP endpoints.
    pub(crate) fn set(fabric: &'a Fabric, subflows: u16, family: Family) -> Result<Subflows<'a>> {
        if subflows > 0 && family == Family::V6 {
            bail!("mptcp_subflows = {subflows}: must be 0 over IPv6, subflows have IPv4 addresses");
        }
        let before = fabric.mptcp_subflows()?;
        let during = if subflows == 0 { before } else { subflows };
        fabric.mptcp(during)?;
        Ok(Subflows { fabric, before, during })
    }
}

impl Drop for Subflows<'_> {
    fn drop(&mut self) {
        let result =
            if self.before == self.during { Ok(()) } else { self.fabric.mptcp(self.before) };
        if let Err(error) = result {
            tracing::warn!("MPTCP subflows are left as they are: {error:#}");
        }
    }
}
