//! Log messages on standard error, and the form of their lines.
//!
//! ```text
//!   2026-11-22T20:24:48.125Z b answers (192.0.2.2:7471)        srd up, srd control up and others
//!   2026-11-22T20:31:02.750Z warning: b does not answer        srd up
//!   <4>b does not answer                                       srd up, to the journal
//!   srd: warning: peers are left as they are                   every other command
//! ```
//!
//! Lines are for people: a sentence, and its details in parentheses. With `-vv` and more, each line
//! begins with the module that wrote it. The journal adds the time itself, and needs the severity.

use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::registry::LookupSpan;

/// First part of each line of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Head {
    /// Name of the program (`srd: `), for a command whose end the user waits for.
    Program,
    /// Time in UTC, for a daemon.
    Time,
    /// Severity in the form that systemd's journal reads, such as `<4>`.
    Journal,
}

/// Form of the lines of the log.
#[derive(Clone, Copy, Debug)]
struct Lines {
    head: Head,
    /// Whether each line contains the module that wrote it.
    place: bool,
}

/// Crates whose main events a daemon logs without `-v`.
const DAEMONS: [&str; 3] = ["srd_daemon", "srd_nfs", "srd_control"];

/// Returns the filter of messages that applies if the environment variable `RUST_LOG` does not set
/// one. Even without `-v`, a daemon logs its main events.
fn default_filter(verbose: u8, daemon: bool) -> String {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let (targets, of_targets) = match (verbose, daemon) {
        (0, true) => {
            ([&DAEMONS[..], &srd_guest::LOG_TARGETS, &[srd_net::xdp::LOG_TARGET]].concat(), "info")
        }
        (1, true) => (DAEMONS.to_vec(), "debug"),
        _ => (Vec::new(), level),
    };
    let mut filter = level.to_owned();
    for target in targets {
        let _ = write!(filter, ",{target}={of_targets}");
    }
    filter
}

/// Returns the filter that the value of `RUST_LOG` sets; without a value, or with an empty one, the
/// default filter. A value that is not a filter is an error.
fn filter(set: Option<&OsStr>, default: &str) -> Result<EnvFilter, String> {
    let Some(text) = set.filter(|text| !text.is_empty()) else {
        return Ok(EnvFilter::new(default));
    };
    let text = text.to_str().ok_or("it is not UTF-8")?;
    text.parse().map_err(|error: ParseError| error.to_string())
}

/// Starts the log.
pub(crate) fn to_stderr(verbose: u8, daemon: bool) {
    let default = default_filter(verbose, daemon);
    let (filter, ignored) = match filter(std::env::var_os("RUST_LOG").as_deref(), &default) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(&default), Some(error)),
    };
    let head = match daemon {
        false => Head::Program,
        true if is_journal() => Head::Journal,
        true => Head::Time,
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // Otherwise an error of the stream would be printed to the stream by a macro that panics.
        .log_internal_errors(false)
        .event_format(Lines { head, place: verbose >= 2 })
        .init();
    if let Some(error) = ignored {
        tracing::warn!("the environment variable RUST_LOG is ignored: {error}");
    }
}

/// Whether standard error is the stream that systemd names in `JOURNAL_STREAM`.
fn is_journal() -> bool {
    let Ok(named) = std::env::var("JOURNAL_STREAM") else { return false };
    let ours = std::io::stderr().as_fd().try_clone_to_owned().map(File::from);
    let facts = ours.and_then(|file| file.metadata());
    facts.is_ok_and(|facts| named == format!("{}:{}", facts.dev(), facts.ino()))
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut line: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = *event.metadata().level();
        match self.head {
            Head::Program => line.write_str("srd: ")?,
            Head::Time => {
                let mut time = String::new();
                SystemTime.format_time(&mut Writer::new(&mut time))?;
                write!(line, "{} ", to_millis(&time))?;
            }
            Head::Journal => write!(line, "<{}>", severity(level))?,
        }
        if self.head != Head::Journal && level <= Level::WARN {
            line.write_str(if level == Level::WARN { "warning: " } else { "error: " })?;
        }
        if self.place {
            write!(line, "{}: ", event.metadata().target())?;
        }
        let mut words = EventText::default();
        event.record(&mut words);
        line.write_str(&one_line(words.message.trim_end()))?;
        if !words.rest.is_empty() {
            let gap = if words.message.is_empty() { "" } else { " " };
            write!(line, "{gap}({})", one_line(&words.rest))?;
        }
        writeln!(line)
    }
}

/// Returns a text as one line, so that an entry of several lines stays one line. The line of a
/// configuration file that an error shows is left out: the error also contains its position.
/// Clients of the control socket choose some of the words. So control characters, which could move
/// a terminal's cursor, are escaped.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    let parts = text.split('\n').filter(|part| !part.trim().is_empty() && !is_excerpt(part));
    for part in parts {
        if !line.is_empty() {
            line.push_str("; ");
        }
        for character in part.trim_start_matches(' ').chars() {
            match character {
                control if control.is_control() => line.extend(control.escape_default()),
                other => line.push(other),
            }
        }
    }
    line
}

/// Whether a line of an error shows a line of a configuration file, or marks a part of it:
/// `  12 | listen = 5`, `     |          ^`.
fn is_excerpt(line: &str) -> bool {
    let before = line.strip_prefix("  ").and_then(|line| line.split_once('|'));
    before
        .is_some_and(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit() || byte == b' '))
}

/// Shortens a time with microseconds or nanoseconds to milliseconds, as in
/// `2026-11-22T20:24:48.125Z`.
fn to_millis(time: &str) -> String {
    match time.split_once('.') {
        Some((seconds, rest)) => format!("{seconds}.{}Z", rest.get(..3).unwrap_or("000")),
        None => time.to_owned(),
    }
}

/// Returns the severity of a log level as a number of syslog.
fn severity(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// Text of a log event: its message, and its other fields as `name value, name value`.
#[derive(Debug, Default)]
struct EventText {
    message: String,
    rest: String,
}

impl EventText {
    fn add(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        if field.name() == "message" {
            let _ = write!(self.message, "{value}");
            return;
        }
        let gap = if self.rest.is_empty() { "" } else { ", " };
        let _ = write!(self.rest, "{gap}{} {value}", field.name().replace('_', " "));
    }
}

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, format_args!("{value}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::{Arc, Mutex};
    use tracing_subscriber::fmt::MakeWriter;

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Memory {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    fn written(lines: Lines, work: impl FnOnce()) -> String {
        let memory = Memory::default();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(memory.clone())
            .with_ansi(false)
            .event_format(lines)
            .finish();
        tracing::subscriber::with_default(subscriber, work);
        let bytes = memory.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn lines_are_words_with_a_time_and_the_journal_gets_severities() {
        let work = || {
            tracing::info!(mtu = 1410, peers = 2, "srd0 is up");
            tracing::warn!(peer = "b", "{}", "two\nlines");
        };
        let terminal = || tracing::warn!(peer = "c\n<3>d", "a\u{1b}[2Jb\r\u{9b}2J");
        let text = written(Lines { head: Head::Journal, place: false }, terminal);
        assert_eq!(text, "<4>a\\u{1b}[2Jb\\r\\u{9b}2J (peer c; <3>d)\n");
        let text = written(Lines { head: Head::Journal, place: false }, work);
        assert_eq!(text, "<6>srd0 is up (mtu 1410, peers 2)\n<4>two; lines (peer b)\n");
        let text = written(Lines { head: Head::Program, place: false }, work);
        assert!(text.ends_with("\nsrd: warning: two; lines (peer b)\n"), "{text}");
        let text = written(Lines { head: Head::Time, place: true }, work);
        let mut words = text.split(' ');
        let time = words.next().unwrap();
        assert!(time.len() == 24 && time.ends_with('Z') && time.starts_with("20"), "{text}");
        assert_eq!(words.next(), Some("srd::log::tests:"), "{text}");
    }

    /// The error of a reload by SIGHUP was one line with the line of the file, a row of spaces, and
    /// several semicolons.
    #[test]
    fn regression_an_error_in_a_file_is_a_readable_line_of_the_log() {
        let path = std::path::Path::new("/etc/srd/srd0.toml");
        let error = srd_daemon::config::Config::parse("[cloud]\nvpc = 1\n", path).unwrap_err();
        let said = format!("the configuration stays as it was: {error}");
        assert!(said.contains("\n  2 | vpc = 1\n") && said.contains('^'), "{said}");
        let line = one_line(&said);
        let begin = "the configuration stays as it was: /etc/srd/srd0.toml:2:7: invalid type";
        assert!(line.starts_with(begin) && line.contains("; remedy: write"), "{line}");
        assert!(!line.contains('|') && !line.contains('^') && !line.contains("  "), "{line}");
        // Only lines of this form are left out.
        let list = "peers added: b\n  several nodes run: |\nx | y";
        assert_eq!(one_line(list), "peers added: b; several nodes run: |; x | y");
    }

    /// Regression: an empty variable switched warnings off, and -v had no effect. A variable that
    /// is not a filter was ignored without a message.
    #[test]
    fn regression_a_variable_that_sets_no_filter_is_ignored_with_a_message() {
        let set = |text: &str| filter(Some(OsStr::new(text)), "warn").map(|it| it.to_string());
        assert_eq!(filter(None, "info").unwrap().to_string(), "info");
        assert_eq!(set(""), Ok("warn".to_owned()));
        assert_eq!(set("srd_nfs=debug"), Ok("srd_nfs=debug".to_owned()));
        assert!(set("srd_nfs=loud").is_err());
    }

    /// Returns the words of the messages that the default filter of a command passes.
    fn passed(verbose: u8, daemon: bool, work: impl FnOnce()) -> Vec<String> {
        let memory = Memory::default();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(default_filter(verbose, daemon)))
            .with_writer(memory.clone())
            .with_ansi(false)
            .event_format(Lines { head: Head::Journal, place: false })
            .finish();
        tracing::subscriber::with_default(subscriber, work);
        let bytes = memory.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn regression_default_filters_name_the_modules_that_write_the_messages() {
        let work = || {
            tracing::info!(target: "srd_daemon::run", "daemon");
            tracing::info!(target: "srd_nfs::proxy", "nfs");
            tracing::info!(target: crate::hosts::LOG_TARGET, "control");
            tracing::info!(target: srd_guest::LOG_TARGETS[0], "guest 0");
            tracing::info!(target: srd_guest::LOG_TARGETS[1], "guest 1");
            tracing::info!(target: srd_net::xdp::LOG_TARGET, "xdp");
            tracing::info!(target: "srd_guest::service", "other");
            tracing::warn!(target: "srd_guest::service", "warning");
            tracing::debug!(target: "srd_daemon::run", "detail");
        };
        let of_daemon = [
            "<6>daemon",
            "<6>nfs",
            "<6>control",
            "<6>guest 0",
            "<6>guest 1",
            "<6>xdp",
            "<4>warning",
        ];
        assert_eq!(passed(0, true, work), of_daemon);
        assert_eq!(passed(0, false, work), ["<4>warning"]);
        assert_eq!(passed(1, false, work).len(), 8, "all but the detail");
        assert_eq!(passed(1, true, work).len(), 9);
        assert_eq!(passed(2, false, work).len(), 9);
        for target in srd_guest::LOG_TARGETS.iter().chain(&[srd_net::xdp::LOG_TARGET]) {
            assert!(is_module(target), "{target} is no module");
        }
    }

    /// `srd run` printed each refusal twice: its card has the same standard error.
    #[test]
    fn regression_only_a_daemon_logs_what_it_refuses() {
        let work = || srd_daemon::control::log_refused("to add an instance", "no such type");
        assert_eq!(passed(0, true, work), ["<6>refused to add an instance: no such type"]);
        assert!(passed(0, false, work).is_empty());
    }

    /// Whether a file of the sources contains the module with this path.
    fn is_module(path: &str) -> bool {
        let (name, module) = path.split_once("::").unwrap();
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let file = crates.join(name.replace('_', "-")).join("src").join(module.replace("::", "/"));
        file.with_extension("rs").is_file() || file.join("mod.rs").is_file()
    }

    #[test]
    fn times_have_milliseconds() {
        assert_eq!(to_millis("2026-11-22T20:24:48.125999Z"), "2026-11-22T20:24:48.125Z");
        assert_eq!(to_millis("2026-11-22T20:24:48Z"), "2026-11-22T20:24:48Z");
    }
}
