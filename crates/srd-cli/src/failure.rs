//! Exit codes of the commands, and the errors that determine them.
//!
//! All errors are `anyhow` errors. Usage errors and missing prerequisites have types of their own,
//! which are searched for in the whole chain of causes, because scripts must distinguish them from
//! an ordinary failure.

use anyhow::Error;
use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;

/// Exit code: the run failed.
pub(crate) const RUN: u8 = 1;
/// Exit code: the usage or the configuration is wrong; `clap` uses the same code.
pub(crate) const USAGE: u8 = 2;
/// Exit code: a privilege or a program is missing.
const MISSING: u8 = 3;

/// Error: a request of the user cannot be fulfilled. The text describes what to change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Usage(pub(crate) String);

/// Error: a privilege or a program is missing on this machine. The text describes the remedy.
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
                || e.is::<srd_daemon::handover::Differs>()
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

/// Converts the error of listening at an address, which an option has named.
pub(crate) fn cannot_listen(at: SocketAddr, option: &str, error: &std::io::Error) -> Error {
    let what = format!("cannot listen at {at}: {error}");
    match error.kind() {
        ErrorKind::PermissionDenied if at.port() < 1024 => Missing(format!(
            "{what}: ports below 1024 take root (CAP_NET_BIND_SERVICE): run it with sudo, or name \
             a port from 1024 on by {option}"
        ))
        .into(),
        // An obstacle on this machine, as for `srd up`.
        ErrorKind::AddrInUse => anyhow::anyhow!(
            "{what}: another program uses this port (`ss -ltnp` lists them): name another one by \
             {option}"
        ),
        ErrorKind::AddrNotAvailable => Usage(format!(
            "{what}: name an address of this machine (`ip address` lists them) by {option}"
        ))
        .into(),
        _ => anyhow::anyhow!(what),
    }
}

/// Converts the error of opening an interface to capture its packets. `noun` and `verb` name what
/// the command does with the packets, such as "watching" and "watch".
pub(crate) fn of_interface(error: &std::io::Error, [noun, verb]: [&str; 2]) -> Error {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            Missing(format!("{error}: {noun} takes CAP_NET_RAW: run it as root")).into()
        }
        ErrorKind::NotFound => Usage(format!("{error}; `ip link` lists them")).into(),
        _ => anyhow::anyhow!("cannot {verb} {error}"),
    }
}

/// Returns a usage error if an interface is named twice, because its two results would have the
/// same name.
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

    /// The error was only that of the operating system.
    #[test]
    fn regression_an_address_at_which_a_server_cannot_listen_has_a_remedy() {
        let error = |at: &str, kind: ErrorKind| {
            let error = cannot_listen(at.parse().unwrap(), "--hosts", &kind.into());
            (exit_code(&error), error.to_string())
        };
        let (code, text) = error("127.0.0.1:443", ErrorKind::PermissionDenied);
        assert!(code == MISSING && text.contains("a port from 1024 on by --hosts"), "{text}");
        let (code, text) = error("127.0.0.1:4599", ErrorKind::AddrInUse);
        assert!(code == RUN && text.contains("name another one by --hosts"), "{text}");
        let (code, text) = error("192.0.2.1:4599", ErrorKind::AddrNotAvailable);
        assert!(code == USAGE && text.contains("`ip address` lists them"), "{text}");
    }

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
