//! Faults as data: what breaks, when, and for how long.

use serde::{Deserialize, Serialize};

/// One fault. Times are microseconds from the start; without `until_us` it stays. Links are
/// named as in [`crate::topology::name`]. Where two faults of one kind overlap on a link, the
/// later setting holds and the first end ends it; a link is up when every fault that took
/// it down has ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Fault {
    /// Links die silently: whatever is sent over them vanishes, and no switch notices.
    LinkDown {
        /// Which links.
        links: String,
        /// When they die.
        at_us: f64,
        /// When they are repaired.
        until_us: Option<f64>,
    },
    /// Links run at a fraction of their speed.
    LinkSlow {
        /// Which links.
        links: String,
        /// The fraction, above zero.
        fraction: f64,
        /// When it begins.
        at_us: f64,
        /// When it ends.
        until_us: Option<f64>,
    },
    /// Links lose packets at random.
    Loss {
        /// Which links.
        links: String,
        /// The probability per packet.
        probability: f64,
        /// When it begins.
        at_us: f64,
        /// When it ends.
        until_us: Option<f64>,
    },
    /// Links flip bits. The receiving host's checksum drops such packets, unless the world is
    /// told that checksums miss it.
    Corrupt {
        /// Which links.
        links: String,
        /// The probability per packet.
        probability: f64,
        /// When it begins.
        at_us: f64,
        /// When it ends.
        until_us: Option<f64>,
    },
    /// Links deliver packets twice.
    Duplicate {
        /// Which links.
        links: String,
        /// The probability per packet.
        probability: f64,
        /// When it begins.
        at_us: f64,
        /// When it ends.
        until_us: Option<f64>,
    },
    /// A host's machine crashes and is back at once, knowing nothing.
    Restart {
        /// Which host.
        host: u32,
        /// When.
        at_us: f64,
    },
    /// Some hosts are cut off from all others.
    Partition {
        /// Which hosts are on one side.
        hosts: Vec<u32>,
        /// When it begins.
        at_us: f64,
        /// When it ends.
        until_us: Option<f64>,
    },
    /// htsim's `-failed N`: the first links from the core down, in the order of the
    /// aggregation switches, run at a quarter of their speed.
    SlowCoreLinks {
        /// How many links.
        count: u32,
    },
}

impl Fault {
    /// When it begins and when it ends, in microseconds.
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

    /// Which links it concerns, as named.
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

    /// Checks the numbers.
    ///
    /// # Errors
    /// What is wrong, as a text that names the field.
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
