//! Faults of a scenario as data: kind, links or hosts, beginning and end.

use serde::{Deserialize, Serialize};

/// One fault of a scenario. Times are microseconds from the start; a fault without `until_us` stays
/// until the end of the run. Links are named as in [`crate::topology::name`]. If two faults of one
/// kind overlap on a link, the later setting applies until the first of the two faults ends. A link
/// that failed several times is up again when all these faults have ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Fault {
    /// Links fail silently: all packets sent over them are lost, and no switch notices.
    LinkDown {
        /// Names of the links that fail.
        links: String,
        /// Time of the failure, in microseconds.
        at_us: f64,
        /// Time of the repair, in microseconds; `None` if the links stay down.
        until_us: Option<f64>,
    },
    /// Links run at a fraction of their speed.
    LinkSlow {
        /// Names of the links that become slow.
        links: String,
        /// Fraction of the speed that remains, above zero.
        fraction: f64,
        /// Time when the fault begins, in microseconds.
        at_us: f64,
        /// Time when the fault ends, in microseconds; `None` if the fault stays.
        until_us: Option<f64>,
    },
    /// Links lose packets at random.
    Loss {
        /// Names of the links that lose packets.
        links: String,
        /// Probability that a packet is lost.
        probability: f64,
        /// Time when the fault begins, in microseconds.
        at_us: f64,
        /// Time when the fault ends, in microseconds; `None` if the fault stays.
        until_us: Option<f64>,
    },
    /// Links flip bits. The receiving host's checksum detects the error and drops the packet,
    /// unless the world is configured so that checksums miss the error.
    Corrupt {
        /// Names of the links that flip bits.
        links: String,
        /// Probability that a bit of a packet is flipped.
        probability: f64,
        /// Time when the fault begins, in microseconds.
        at_us: f64,
        /// Time when the fault ends, in microseconds; `None` if the fault stays.
        until_us: Option<f64>,
    },
    /// Links deliver packets twice.
    Duplicate {
        /// Names of the links that duplicate packets.
        links: String,
        /// Probability that a packet is duplicated.
        probability: f64,
        /// Time when the fault begins, in microseconds.
        at_us: f64,
        /// Time when the fault ends, in microseconds; `None` if the fault stays.
        until_us: Option<f64>,
    },
    /// A host's machine crashes and restarts at once, without any state.
    Restart {
        /// Number of the host that restarts.
        host: u32,
        /// Time of the restart, in microseconds.
        at_us: f64,
    },
    /// Some hosts are cut off from all other hosts.
    Partition {
        /// Numbers of the hosts on one side; all other hosts are on the other side.
        hosts: Vec<u32>,
        /// Time when the fault begins, in microseconds.
        at_us: f64,
        /// Time when the fault ends, in microseconds; `None` if the fault stays.
        until_us: Option<f64>,
    },
    /// The option `-failed N` of htsim: the first `count` links from core to aggregation switches
    /// run at a quarter of their speed, for the whole run. They are counted in the order of the
    /// aggregation switches.
    SlowCoreLinks {
        /// Number of slow links.
        count: u32,
    },
}

impl Fault {
    /// Returns the times when the fault begins and ends, in microseconds. The end is `None` if the
    /// fault stays.
    pub fn span_us(&self) -> (f64, Option<f64>) {
        match self {
            Self::LinkDown { at_us, until_us, .. }
            | Self::LinkSlow { at_us, until_us, .. }
            | Self::Loss { at_us, until_us, .. }
            | Self::Corrupt { at_us, until_us, .. }
            | Self::Duplicate { at_us, until_us, .. }
            | Self::Partition { at_us, until_us, .. } => (*at_us, *until_us),
            Self::Restart { at_us, .. } => (*at_us, None),
            Self::SlowCoreLinks { .. } => (0.0, None),
        }
    }

    /// Returns the names of the links of the fault, as given in the scenario; `None` if the fault
    /// does not concern links.
    pub fn links(&self) -> Option<&str> {
        match self {
            Self::LinkDown { links, .. }
            | Self::LinkSlow { links, .. }
            | Self::Loss { links, .. }
            | Self::Corrupt { links, .. }
            | Self::Duplicate { links, .. } => Some(links),
            _ => None,
        }
    }

    /// Checks that times, fractions and probabilities are in range.
    ///
    /// # Errors
    /// A description of the value that is out of range, with the name of its field.
    pub fn check(&self) -> Result<(), String> {
        let (at_us, until_us) = self.span_us();
        if !(0.0..=1e12).contains(&at_us) {
            return Err(format!("`at_us` must be between 0 and 1e12, not {at_us}"));
        }
        if let Some(until_us) = until_us
            && !(at_us..=1e12).contains(&until_us)
        {
            return Err(format!("`until_us` ({until_us}) must not be before `at_us` ({at_us})"));
        }
        match self {
            Self::LinkSlow { fraction, .. } if !(1e-6..=1e3).contains(fraction) => {
                Err(format!("`fraction` must be between 0.000001 and 1000, not {fraction}"))
            }
            Self::Loss { probability, .. }
            | Self::Corrupt { probability, .. }
            | Self::Duplicate { probability, .. }
                if !(0.0..=1.0).contains(probability) =>
            {
                Err(format!("`probability` must be between 0 and 1, not {probability}"))
            }
            _ => Ok(()),
        }
    }
}
