//! Queries the offers of a libfabric with a provider in its path.
//!
//! Loading a foreign library runs its code, which may crash or hang. So `srd mpi-check --probe`
//! does only this ([`probe`]), and [`of`] runs that command with a time limit.

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

/// One way to communicate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Offer {
    /// The provider: `srd`, or `srd;ofi_rxm` with a layer above.
    pub provider: String,
    /// Name of the fabric.
    pub fabric: String,
    /// Name of the domain, which is an interface.
    pub domain: String,
    /// Whether endpoints are reliable and connectionless (`FI_EP_RDM`), as MPIs require.
    pub is_rdm: bool,
}

/// Everything that a libfabric offers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Offers {
    /// The version of libfabric, first number.
    pub major: u32,
    /// The version of libfabric, second number.
    pub minor: u32,
    /// The offers.
    pub offered: Vec<Offer>,
    /// Reason why there is no offer.
    pub error: Option<String>,
}

impl Offers {
    /// Whether the provider supports this libfabric.
    #[must_use]
    pub fn is_new_enough(&self) -> bool {
        (self.major, self.minor) >= OLDEST
    }

    /// Returns the offers of SRD, without layers above, that MPIs can use.
    pub fn srd(&self) -> impl Iterator<Item = &Offer> {
        self.offered.iter().filter(|offer| offer.provider == PROVIDER && offer.is_rdm)
    }
}

/// Queries a libfabric in this process, which should have no other purpose.
///
/// # Errors
/// A text for the user, if the libfabric cannot be loaded.
pub fn probe(libfabric: &Path) -> Result<Offers, String> {
    libfabric::ask(libfabric)
}

/// Returns the offers of a libfabric with the providers of a directory and with additional
/// environment variables, and its log.
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

/// Returns a line of libfabric's log without its head: `libfabric:PID:TIME::srd:core:srd():0<warn>
/// text`.
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
