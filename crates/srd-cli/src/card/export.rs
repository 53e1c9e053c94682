//! `srd card export`: figures of the card for OpenTelemetry and CloudWatch.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use srd_guest::Client;
use srd_guest::export::{self, Exporter, Form, NAMESPACE_DEFAULT};
use srd_guest::protocol::{Answer, Request};

use super::SocketArg;
use crate::failure::usage;
use crate::output::{say, tell};
use crate::signals;

/// Longest sleep between two looks at the signals.
const STEP: Duration = Duration::from_millis(200);

/// Form of the lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum FormArg {
    /// All metrics in the JSON form of OTLP, for a collector of OpenTelemetry.
    Opentelemetry,
    /// The counters of each interface in the embedded metric format, under the names that the agent
    /// of CloudWatch gives them.
    Cloudwatch,
}

/// Arguments of `srd card export`.
#[derive(Args, Clone, Debug)]
#[command(after_help = super::with_codes!(
    "  srd card export opentelemetry\n  srd card export cloudwatch --every 60 --count 3"
))]
pub(crate) struct ExportArgs {
    /// The form of the lines.
    #[arg(value_enum)]
    form: FormArg,
    /// Print new lines each time after this number of seconds, until Ctrl-C. Default: once. The
    /// agent of CloudWatch has 60.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    every: Option<u32>,
    /// With --every: end after this number of times. Default: at Ctrl-C.
    #[arg(long, value_name = "N", requires = "every",
        value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// Namespace of the metrics in CloudWatch.
    #[arg(long, value_name = "NAME", default_value = NAMESPACE_DEFAULT)]
    namespace: String,
    #[command(flatten)]
    socket: SocketArg,
}

pub(super) fn run(args: &ExportArgs) -> Result<u8> {
    let mut exporter = Exporter::new(form(args)?);
    let stop = signals::stop_flag()?;
    let every = args.every.map(|seconds| Duration::from_secs(seconds.into()));
    let mut at = Instant::now();
    let mut left = if every.is_some() { args.count } else { Some(1) };
    while left != Some(0) && !stop.load(Ordering::Relaxed) {
        match print(&mut exporter, args) {
            // A card that restarts is there again at the next time.
            Err(error) if every.is_some() && !crate::output::is_broken_pipe(&error) => {
                tell!("srd: warning: no figures this time: {error:#}");
            }
            printed => printed?,
        }
        left = left.map(|left| left - 1);
        if left == Some(0) {
            break;
        }
        at = next(at, every.unwrap_or_default(), Instant::now());
        sleep_until(at, &stop);
    }
    Ok(0)
}

fn form(args: &ExportArgs) -> Result<Form> {
    let namespace = args.namespace.clone();
    if !export::is_namespace(&namespace) {
        return usage(format!(
            "--namespace {namespace}: a namespace has 1 to 255 letters, digits and .-_/#: and does \
             not begin with `:`, `/` or `AWS/`"
        ));
    }
    Ok(match args.form {
        FormArg::Opentelemetry => Form::OpenTelemetry,
        FormArg::Cloudwatch => Form::CloudWatch { namespace },
    })
}

fn print(exporter: &mut Exporter, args: &ExportArgs) -> Result<()> {
    let socket = args.socket.path()?;
    let status = Client::connect(&socket)?.status()?;
    let Answer::Logs { logs } = Client::connect(&socket)?.ask(&Request::Logs)? else {
        bail!("the card answers something else");
    };
    exporter.lines(&status, &logs, SystemTime::now()).into_iter().try_for_each(say)
}

/// Returns the next time to print after `at`. Times that passed during a slow answer are left out.
fn next(at: Instant, every: Duration, now: Instant) -> Instant {
    (at + every).max(now)
}

fn sleep_until(at: Instant, stop: &AtomicBool) {
    loop {
        let left = at.saturating_duration_since(Instant::now());
        if left.is_zero() || stop.load(Ordering::Relaxed) {
            return;
        }
        thread::sleep(left.min(STEP));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: after an answer that took minutes, lines came one after the other without a
    /// pause.
    #[test]
    fn regression_times_that_passed_are_left_out() {
        let (begun, minute) = (Instant::now(), Duration::from_secs(60));
        assert_eq!(next(begun, minute, begun), begun + minute);
        let late = begun + 10 * minute;
        assert_eq!(next(begun, minute, late), late);
        assert_eq!(next(late, minute, late), late + minute);
    }
}
