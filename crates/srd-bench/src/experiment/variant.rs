//! Variants of an experiment: the same programs over different transports.

use crate::tcp::Congestion;
use serde::{Serialize, Serializer};
use srd_lab::id::Network;
use std::fmt;
use std::str::FromStr;

/// Extra subflows of a Multipath TCP connection.
const MPTCP_SUBFLOWS: u16 = 4;
/// Linux's default for the minimum retransmission timeout.
const RTO_MIN_DEFAULT_MS: u32 = 200;

/// A transport over which an experiment runs unchanged programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
    /// Kernel TCP with cubic, and kernel UDP, on the fabric's own addresses.
    Plain,
    /// ENA Express: the programs use the overlay addresses of `srd up`; their TCP uses cubic.
    Express,
    /// Kernel TCP with bbr as the congestion control.
    Bbr,
    /// Multipath TCP of five subflows with cubic.
    Mptcp,
    /// Kernel TCP with cubic and a minimum retransmission timeout of 50 ms.
    Rto50,
    /// Kernel TCP with cubic and a minimum retransmission timeout of 5 ms.
    Rto5,
    /// SRD, used by the programs themselves through libfabric.
    Srd,
}

/// The variants of most experiments: kernel TCP and ENA Express.
pub(super) const USUAL: &[Variant] = &[Variant::Plain, Variant::Express];

impl Variant {
    /// All variants, in the order of tables.
    pub const ALL: [Variant; 7] = [
        Variant::Plain,
        Variant::Express,
        Variant::Bbr,
        Variant::Mptcp,
        Variant::Rto50,
        Variant::Rto5,
        Variant::Srd,
    ];

    /// Returns the name of the variant on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Variant::Plain => "plain",
            Variant::Express => "express",
            Variant::Bbr => "bbr",
            Variant::Mptcp => "mptcp",
            Variant::Rto50 => "rto50",
            Variant::Rto5 => "rto5",
            Variant::Srd => "srd",
        }
    }

    /// Returns the label of the variant in tables and charts.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Variant::Plain => "plain (cubic)",
            Variant::Express => "ENA Express",
            Variant::Bbr => "plain (bbr)",
            Variant::Mptcp => "MPTCP, 5 subflows",
            Variant::Rto50 => "plain, RTO 50 ms",
            Variant::Rto5 => "plain, RTO 5 ms",
            Variant::Srd => "SRD (libfabric)",
        }
    }

    /// Returns the label for measurements between real machines, whose TCP settings are unknown.
    #[must_use]
    pub fn label_between_machines(self) -> &'static str {
        if self == Variant::Plain { "plain" } else { self.label() }
    }

    /// Returns the congestion control of the TCP that the programs use.
    #[must_use]
    pub fn congestion(self) -> Congestion {
        if self == Variant::Bbr { Congestion::Bbr } else { Congestion::Cubic }
    }

    /// Returns the number of extra Multipath TCP subflows per connection; zero for plain TCP.
    #[must_use]
    pub fn mptcp_subflows(self) -> u16 {
        if self == Variant::Mptcp { MPTCP_SUBFLOWS } else { 0 }
    }

    /// Returns the minimum retransmission timeout of the hosts' TCP, in ms.
    #[must_use]
    pub fn rto_min_ms(self) -> u32 {
        match self {
            Variant::Rto50 => 50,
            Variant::Rto5 => 5,
            _ => RTO_MIN_DEFAULT_MS,
        }
    }

    /// Whether a failure of this variant fails the experiment. `bbr`, `mptcp`, `rto50` and `rto5`
    /// only serve for comparison, so they may be missing on this machine.
    #[must_use]
    pub fn must_run(self) -> bool {
        matches!(self, Variant::Plain | Variant::Express | Variant::Srd)
    }

    /// Returns the network of the fabric whose addresses the programs use.
    #[must_use]
    pub fn network(self) -> Network {
        if self == Variant::Express { Network::Overlay } else { Network::V4 }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Variant {
    type Err = String;

    fn from_str(text: &str) -> Result<Variant, String> {
        let found = Variant::ALL.into_iter().find(|variant| variant.name() == text);
        let names = || Variant::ALL.map(Variant::name).join(", ");
        found.ok_or_else(|| format!("`{text}` is not a variant: {}", names()))
    }
}

impl Serialize for Variant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Returns the order of the variants in a repetition: every second repetition uses the reverse
/// order, so that neither the order nor a slow drift of the machine favours a variant.
#[must_use]
pub fn order(variants: &[Variant], repetition: u32) -> Vec<Variant> {
    let mut order = variants.to_vec();
    if repetition % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_their_text() {
        for variant in Variant::ALL {
            assert_eq!(variant.to_string().parse(), Ok(variant));
        }
        let error = "tcp".parse::<Variant>().expect_err("no such variant");
        assert!(error.contains("plain, express"), "{error}");
    }

    #[test]
    fn every_second_repetition_runs_backwards() {
        let both = [Variant::Plain, Variant::Express];
        assert_eq!(order(&both, 0), both);
        assert_eq!(order(&both, 1), [Variant::Express, Variant::Plain]);
        assert_eq!(order(&both, 2), both);
    }
}
