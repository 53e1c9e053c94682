//! Part (e) of the demonstration: a virtual private cloud on this machine.

use super::Say;
use crate::experiment::MissingPrograms;
use crate::talk::tour::{Tour, tour};
use anyhow::{Context, Result};
use std::io::Write as _;

/// Measures the cloud. If a program is missing, prints a message and returns `None`.
pub(super) fn measure(say: Say<'_>) -> Result<Option<Tour>> {
    say("(e) a VPC on this machine: srd card, two instances")?;
    let program = std::env::current_exe().context("where is this program")?;
    match tour(program) {
        Ok(tour) => {
            let (with, without) = tour.credits_mbps;
            say(&format!(
                "    curl to an allowed port: {}; to a closed one: exit code {}; a network ACL \
                 changed in {:.1} ms;\n    with credits {with:.0} Mb/s, without {without:.1}",
                tour.allowed, tour.closed, tour.acknowledged_ms
            ))?;
            Ok(Some(tour))
        }
        Err(error) if error.is::<MissingPrograms>() => {
            let _ = writeln!(std::io::stderr(), "srd: part (e) is left out: {error:#}");
            Ok(None)
        }
        Err(error) => Err(error.context("part (e), a VPC on this machine")),
    }
}
