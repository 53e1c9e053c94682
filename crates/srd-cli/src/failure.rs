//! Exit codes of errors.
//!
//! All errors are `anyhow` errors. Two kinds have types of their own, which are found anywhere in
//! the chain, because scripts must distinguish them from an ordinary failure.

use anyhow::Error;
use std::fmt;
use std::io::ErrorKind;

/// The run failed.
pub(crate) const RUN: u8 = 1;
/// The usage or the configuration is wrong; `clap` exits with the same code.
pub(crate) const USAGE: u8 = 2;
/// A privilege or a program is missing.
const MISSING: u8 = 3;

/// A request of the user that cannot be fulfilled. The text describes what to change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Usage(pub(crate) String);

/// A privilege or a program that this machine lacks. The text describes the remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Missing(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}
impl std::error::Error for Missing {}

/// Returns a usage error with this text.
pub(crate) fn usage<T>(text: impl Into<String>) -> anyhow::Result<T> {
    Err(Usage(text.into()).into())
}

/// The exit code of an error.
pub(crate) fn exit_code(error: &Error) -> u8 {
    let any = |is: fn(&(dyn std::error::Error + 'static)) -> bool| error.chain().any(is);
    let is_missing = |e: &(dyn std::error::Error + 'static)| {
        e.is::<Missing>()
            || e.is::<srd_guest::Missing>()
            || e.is::<srd_daemon::run::NotPermitted>()
            || e.is::<srd_bench::experiment::MissingPrograms>()
            || e.is::<srd_bench::experiment::NotFetched>()
    };
    if error.is::<Missing>() || error.is::<srd_guest::Missing>() || any(is_missing) {
        MISSING
    } else if error.is::<Usage>()
        || any(|e| {
            e.is::<Usage>()
                || e.is::<srd_daemon::config::ConfigError>()
                || e.is::<srd_lab::ConfigError>()
                || e.is::<srd_lab::id::ParseIdError>()
                || e.is::<srd_proto::ConfigError>()
                || e.is::<srd_guest::WrongSettings>()
                || e.is::<srd_sim::scenario::ScenarioError>()
        })
    {
        USAGE
    } else {
        RUN
    }
}

/// Converts an error of opening an interface for packets. The words name what the command does with
/// the packets, as a noun and as a verb.
pub(crate) fn of_interface(error: &std::io::Error, [noun, verb]: [&str; 2]) -> Error {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            Missing(format!("{error}: {noun} takes CAP_NET_RAW: run it as root")).into()
        }
        ErrorKind::NotFound => Usage(format!("{error}; `ip link` lists them")).into(),
        _ => anyhow::anyhow!("cannot {verb} {error}"),
    }
}

/// Refuses an interface that is named twice, because both results would have the same name.
pub(crate) fn named_once(interfaces: &[String]) -> anyhow::Result<()> {
    for (at, name) in interfaces.iter().enumerate() {
        if interfaces[..at].contains(name) {
            return usage(format!("{name}: named twice"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context, anyhow};

    #[test]
    fn an_interface_is_named_once() {
        let names =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert!(named_once(&names(&["eth0", "eth1"])).is_ok());
        let error = named_once(&names(&["eth0", "eth1", "eth0"])).expect_err("twice");
        assert!(exit_code(&error) == USAGE && error.to_string().contains("eth0"), "{error}");
    }

    #[test]
    fn kinds_are_found_below_and_above_context() {
        let wrapped = |e: Error| Err::<(), _>(e).context("outer").expect_err("an error");
        assert_eq!(exit_code(&anyhow!("plain")), RUN);
        assert_eq!(exit_code(&wrapped(Usage("u".into()).into())), USAGE);
        assert_eq!(exit_code(&wrapped(Missing("m".into()).into())), MISSING);
        let programs = srd_bench::experiment::MissingPrograms(Vec::new());
        assert_eq!(exit_code(&wrapped(programs.into())), MISSING);
        let nothing = std::path::Path::new("/no/such/cache");
        let fetched = srd_bench::experiment::check_fetched("dask", nothing).expect_err("not there");
        assert_eq!(exit_code(&wrapped(fetched)), MISSING);
        assert_eq!(exit_code(&anyhow!("below").context(Missing("m".into()))), MISSING);
    }
}
