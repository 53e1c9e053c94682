//! Queries the offers of a libfabric, the entries of `fi_getinfo`, with a provider in its search
//! path.
//!
//! Loading a foreign library runs its code, which may crash or hang. So the command `srd mpi-check
//! --probe` does nothing else ([`probe`]), and [`of`] runs this command with a time limit.

use super::ask;
use crate::libfabric;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;

/// The oldest libfabric that the provider supports.
pub const OLDEST: (u32, u32) = (1, 17);
/// The provider's name.
pub const PROVIDER: &str = "srd";
/// Largest number of lines of libfabric's log that are shown.
const LOG_LINES: usize = 4;

/// A way to communicate, as one entry of `fi_getinfo` describes it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Offer {
    /// Name of the provider: `srd`, or `srd;ofi_rxm` if another provider is layered on it.
    pub provider: String,
    /// Name of the fabric.
    pub fabric: String,
    /// Name of the domain, which is an interface.
    pub domain: String,
    /// Whether endpoints are reliable and connectionless (`FI_EP_RDM`), as MPIs require.
    pub is_rdm: bool,
}

/// All offers of a libfabric, and its version.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Offers {
    /// The first number of libfabric's version.
    pub major: u32,
    /// The second number of libfabric's version.
    pub minor: u32,
    /// The offers, each an entry of `fi_getinfo`.
    pub offered: Vec<Offer>,
    /// Reason why there is no offer; `None` if there are offers.
    pub error: Option<String>,
}

impl Offers {
    /// Whether this libfabric is at least as new as the oldest libfabric that the provider
    /// supports.
    #[must_use]
    pub fn is_new_enough(&self) -> bool {
        (self.major, self.minor) >= OLDEST
    }

    /// Returns the offers of the provider `srd` without other providers above it, with the
    /// endpoints that MPIs require.
    pub fn srd(&self) -> impl Iterator<Item = &Offer> {
        self.offered.iter().filter(|offer| offer.provider == PROVIDER && offer.is_rdm)
    }
}

/// Queries the offers of a libfabric in this process, which should have no other purpose.
///
/// # Errors
/// A text for the user, if the libfabric cannot be loaded.
pub fn probe(libfabric: &Path) -> Result<Offers, String> {
    libfabric::ask(libfabric)
}

/// Returns the offers of a libfabric, and the last lines of its log. A process of the program `srd`
/// queries them, with the environment variables `settings`. If the directory `providers` is given,
/// libfabric searches it and offers only SRD; if it is `None`, libfabric searches its default
/// directories.
///
/// # Errors
/// A text with the last lines of the log, if the libfabric cannot be loaded, crashes or hangs.
pub fn of(
    srd: &Path,
    libfabric: &Path,
    providers: Option<&Path>,
    settings: &[(String, String)],
) -> Result<(Offers, Vec<String>)> {
    let mut command = Command::new(srd);
    command.arg("mpi-check").arg("--probe").arg(libfabric);
    command.env("FI_LOG_LEVEL", "warn").env("RUST_LOG", "off").envs(settings.iter().cloned());
    match providers {
        Some(directory) => command.env("FI_PROVIDER_PATH", directory).env("FI_PROVIDER", PROVIDER),
        None => command.env_remove("FI_PROVIDER_PATH").env_remove("FI_PROVIDER"),
    };
    let answer = ask(&mut command)?;
    let log = last_lines(&answer.err);
    if !answer.succeeded {
        bail!("{}", if log.is_empty() { "it crashed".to_owned() } else { log.join("; ") });
    }
    let text = &answer.out;
    let offers = serde_json::from_str(text).with_context(|| format!("the probe says {text:?}"))?;
    Ok((offers, log))
}

fn last_lines(log: &str) -> Vec<String> {
    let lines: Vec<&str> = log.lines().map(said).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].iter().map(ToString::to_string).collect()
}

/// Returns the text of a line of libfabric's log, without the prefix
/// `libfabric:PID:TIME::srd:core:srd():0<warn>`.
fn said(line: &str) -> &str {
    let text = line.strip_prefix("libfabric:").and_then(|rest| rest.split_once("> "));
    text.map_or(line, |(_, text)| text).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(provider: &str, is_rdm: bool) -> Offer {
        Offer { provider: provider.into(), fabric: "f".into(), domain: "eth0".into(), is_rdm }
    }

    fn offers(major: u32, minor: u32) -> Offers {
        let offered = vec![offer("srd;ofi_rxm", true), offer("srd", false), offer("srd", true)];
        Offers { major, minor, offered, error: None }
    }

    #[test]
    fn only_reliable_endpoints_of_srd_itself_count() {
        assert_eq!(offers(2, 0).srd().count(), 1);
        assert_eq!(offers(2, 0).srd().next(), Some(&offer("srd", true)));
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        for (major, minor, enough) in [(1, 16, false), (1, 17, true), (1, 9, false), (2, 0, true)] {
            assert_eq!(offers(major, minor).is_new_enough(), enough, "{major}.{minor}");
        }
    }

    #[test]
    fn a_probe_that_fails_says_why_by_the_end_of_its_log() {
        assert_eq!(last_lines("a\n\nb\nc\nd\ne\n"), ["b", "c", "d", "e"]);
        let line = "libfabric:1:2::srd:core:srd():0<warn> FI_SRD_MTU=7: too small";
        assert_eq!(last_lines(line), ["FI_SRD_MTU=7: too small"]);
        let error = of(Path::new("/bin/false"), Path::new("x"), None, &[]).unwrap_err();
        assert_eq!(error.to_string(), "it crashed");
        assert!(of(Path::new("/bin/true"), Path::new("x"), None, &[]).is_err(), "it says nothing");
    }
}
