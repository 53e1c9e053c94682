//! Counters of packets that a limit queued or dropped, under the names of `ethtool -S`.
//!
//! Source: Amazon EC2 User Guide, *Monitor network performance for ENA settings on your EC2
//! instance*, and the order of the ENA Linux driver.

use crate::store::{stored_counters, stored_values};

/// A limit of an instance, of one of its ENIs, or of a flow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Limit {
    /// Bandwidth of the instance, to the guest.
    BandwidthIn,
    /// Bandwidth of the instance, from the guest.
    BandwidthOut,
    /// Packets per second of the instance, both directions together.
    Packets,
    /// Egress fragments per second of an ENI; has the counter of packets per second.
    Fragments,
    /// Number of tracked connections of the instance.
    Tracking,
    /// Packets per second of an ENI to link-local services.
    LinkLocal,
    /// Bandwidth of one direction of one flow.
    Flow,
    /// Bandwidth of the instance through internet and local gateways, in one direction.
    Gateway,
}

impl Limit {
    /// Name of the counter of packets that this limit queued or dropped.
    pub fn counter(self) -> &'static str {
        match self {
            Self::BandwidthIn => "bw_in_allowance_exceeded",
            Self::BandwidthOut => "bw_out_allowance_exceeded",
            Self::Packets | Self::Fragments => "pps_allowance_exceeded",
            Self::Tracking => "conntrack_allowance_exceeded",
            Self::LinkLocal => "linklocal_allowance_exceeded",
            Self::Flow => "flow_allowance_exceeded",
            Self::Gateway => "gateway_allowance_exceeded",
        }
    }
}

/// Counters of one ENI: packets that were queued or dropped. A packet counts once for each limit
/// that queued or dropped it; a super-packet counts as the packets that it represents (L9).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Allowances {
    /// Packets queued or dropped because of the instance's bandwidth to the guest.
    pub bw_in_allowance_exceeded: u64,
    /// Packets queued or dropped because of the instance's bandwidth from the guest.
    pub bw_out_allowance_exceeded: u64,
    /// Packets that the limit of packets per second queued or dropped, and egress fragments
    /// dropped.
    pub pps_allowance_exceeded: u64,
    /// Packets dropped because the table of connections was full.
    pub conntrack_allowance_exceeded: u64,
    /// Packets to link-local services that were dropped, because the ENI sent too many per second.
    pub linklocal_allowance_exceeded: u64,
    /// Packets queued or dropped because of the ceiling of one flow. ENA has no such counter; this
    /// project added it.
    pub flow_allowance_exceeded: u64,
    /// Packets queued or dropped because of the limit of gateways. ENA has no such counter; this
    /// project added it.
    pub gateway_allowance_exceeded: u64,
}

impl Allowances {
    /// Counts `packets` under the one counter that names the limit (L9).
    pub fn count(&mut self, limit: Limit, packets: u64) {
        let counter = match limit {
            Limit::BandwidthIn => &mut self.bw_in_allowance_exceeded,
            Limit::BandwidthOut => &mut self.bw_out_allowance_exceeded,
            Limit::Packets | Limit::Fragments => &mut self.pps_allowance_exceeded,
            Limit::Tracking => &mut self.conntrack_allowance_exceeded,
            Limit::LinkLocal => &mut self.linklocal_allowance_exceeded,
            Limit::Flow => &mut self.flow_allowance_exceeded,
            Limit::Gateway => &mut self.gateway_allowance_exceeded,
        };
        *counter = counter.saturating_add(packets);
    }

    /// Counters that `ethtool -S` shows, in the driver's order (L10). `conntrack_available` is the
    /// number of connections that may still be tracked: [`crate::track::Table::available`].
    pub fn ethtool(&self, conntrack_available: u64) -> [(&'static str, u64); 6] {
        [
            ("bw_in_allowance_exceeded", self.bw_in_allowance_exceeded),
            ("bw_out_allowance_exceeded", self.bw_out_allowance_exceeded),
            ("pps_allowance_exceeded", self.pps_allowance_exceeded),
            ("conntrack_allowance_exceeded", self.conntrack_allowance_exceeded),
            ("linklocal_allowance_exceeded", self.linklocal_allowance_exceeded),
            ("conntrack_allowance_available", conntrack_available),
        ]
    }

    /// Counters of limits for which ENA has no counter.
    pub fn ours(&self) -> [(&'static str, u64); 2] {
        [
            ("flow_allowance_exceeded", self.flow_allowance_exceeded),
            ("gateway_allowance_exceeded", self.gateway_allowance_exceeded),
        ]
    }
}

stored_counters!(Allowances {
    bw_in_allowance_exceeded,
    bw_out_allowance_exceeded,
    pps_allowance_exceeded,
    conntrack_allowance_exceeded,
    linklocal_allowance_exceeded,
    flow_allowance_exceeded,
    gateway_allowance_exceeded,
});
stored_values!(Limit:
    [Limit::BandwidthIn], [Limit::BandwidthOut], [Limit::Packets], [Limit::Fragments],
    [Limit::Tracking], [Limit::LinkLocal], [Limit::Flow], [Limit::Gateway],
);

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn each_limit_moves_one_counter() {
        use Limit::*;
        let limits = [
            (BandwidthIn, "bw_in_allowance_exceeded"),
            (BandwidthOut, "bw_out_allowance_exceeded"),
            (Packets, "pps_allowance_exceeded"),
            (Fragments, "pps_allowance_exceeded"),
            (Tracking, "conntrack_allowance_exceeded"),
            (LinkLocal, "linklocal_allowance_exceeded"),
            (Flow, "flow_allowance_exceeded"),
            (Gateway, "gateway_allowance_exceeded"),
        ];
        for (limit, name) in limits {
            let mut counters = Allowances::default();
            assert_eq!(limit.counter(), name);
            counters.count(limit, 44);
            let all = counters.ethtool(0).into_iter().chain(counters.ours());
            let moved: Vec<_> = all.filter(|(_, value)| *value != 0).collect();
            assert_eq!(moved, [(name, 44)]);
        }
    }
}
