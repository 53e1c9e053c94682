//! `srd capture`: writes packets of the daemon to a file or a pipe.

use super::{Target, explain};
use crate::failure::usage;
use crate::output::tell;
use crate::{output, units};
use anyhow::{Context, Result};
use clap::Args;
use srd_daemon::capture::copy::{Copied, copy};
use srd_daemon::capture::{Filter, Layers, SNAPLEN_MAX};
use srd_daemon::control::Request;
use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Maximum time from Ctrl-C to its effect while no packets arrive.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum time for the daemon to end the capture after Ctrl-C.
const END_WAIT_MAX: Duration = Duration::from_secs(10);

/// `srd capture`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CaptureArgs {
    /// Write to this file, which only its owner may read; `-` is standard output. Default: standard
    /// output, unless it is a terminal.
    #[arg(long, short, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Capture only inner packets, as applications see them. Default: inner and outer packets.
    #[arg(long, conflicts_with = "outer")]
    inner: bool,
    /// Capture only outer packets, as the network sees them.
    #[arg(long)]
    outer: bool,
    /// Capture only packets of this peer: its name, or the beginning of its public key. Default: of
    /// all peers.
    #[arg(add = clap_complete::ArgValueCandidates::new(super::complete::peer_names))]
    #[arg(long, value_name = "PEER")]
    peer: Option<String>,
    /// End after this number of packets. Default: at Ctrl-C.
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after this time, in seconds or with a unit, for example 10 or 500ms. Default: at Ctrl-C.
    #[arg(long, short, value_name = "TIME", value_parser = units::parse_time)]
    seconds: Option<Duration>,
    /// Keep at most this number of bytes of each packet.
    #[arg(long, value_name = "BYTES", default_value_t = SNAPLEN_MAX,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(SNAPLEN_MAX)))]
    snaplen: u32,
    #[command(flatten)]
    target: Target,
}

/// Runs `srd capture`.
pub(super) fn run(args: &CaptureArgs) -> Result<()> {
    let layers = match (args.inner, args.outer) {
        (true, _) => Layers::Inner,
        (_, true) => Layers::Outer,
        _ => Layers::Both,
    };
    let filter = Filter {
        layers,
        peer: args.peer.clone(),
        snaplen: args.snaplen,
        count: args.count,
        time_ms: args.seconds.map(|t| u64::try_from(t.as_millis()).unwrap_or(u64::MAX)),
    };
    let request = Request::Capture(filter);
    let copied = match &args.write {
        Some(file) if file.as_os_str() != "-" => to_file(file, &args.target, &request)?,
        None if io::stdout().is_terminal() => {
            return usage("a capture is nothing to look at in a terminal: name a file with -w");
        }
        _ => to_stdout(&args.target, &request)?,
    };
    let Copied { packets, dropped } = copied;
    tell!("{packets} packets captured, {dropped} dropped because the reader was too slow");
    Ok(())
}

/// Captures to standard output. Only errors of the output itself name it.
fn to_stdout(target: &Target, request: &Request) -> Result<Copied> {
    let failed = Cell::new(false);
    let open = || Ok(Noted { to: io::stdout().lock(), failed: &failed });
    let copied = follow(target, request, open);
    if failed.get() { copied.context("standard output") } else { copied }
}

/// Captures to a file. The file contains private data, so only its owner may read it.
fn to_file(file: &Path, target: &Target, request: &Request) -> Result<Copied> {
    output::check_writable(file)?;
    let cannot = || format!("cannot write {}", file.display());
    let (opened, failed) = (Cell::new(false), Cell::new(false));
    let open = || {
        let to = output::create_private(file).with_context(cannot)?;
        opened.set(true);
        Ok(Noted { to, failed: &failed })
    };
    let copied = follow(target, request, open).inspect_err(|_| {
        let is_empty = || file.symlink_metadata().is_ok_and(|of| of.is_file() && of.len() == 0);
        if opened.get() && is_empty() {
            // An empty capture file is useless, so it is removed.
            let _ = std::fs::remove_file(file);
        }
    });
    if failed.get() { copied.with_context(cannot) } else { copied }
}

/// An output that notes whether it failed, so that its errors differ from errors of the connection
/// to the daemon.
struct Noted<'a, W> {
    to: W,
    failed: &'a Cell<bool>,
}

impl<W> Noted<'_, W> {
    fn note<T>(&self, outcome: io::Result<T>) -> io::Result<T> {
        outcome.inspect_err(|error| self.failed.set(error.kind() != io::ErrorKind::Interrupted))
    }
}

impl<W: Write> Write for Noted<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes);
        self.note(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.to.flush();
        self.note(flushed)
    }
}

/// Copies a capture to the output until its end or a signal. The output is opened only after the
/// daemon has accepted the request.
fn follow<W: Write>(
    target: &Target,
    request: &Request,
    open: impl FnOnce() -> Result<W>,
) -> Result<Copied> {
    let mut stream = target.connect()?.capture(request, PAUSE).map_err(explain)?;
    let stopper = stream.stopper().context("the connection to the daemon")?;
    let is_enough = crate::signals::stop_flag()?;
    let mut to = open()?;
    let stopped_at = Cell::new(None::<Instant>);
    let stop = || {
        if !is_enough.load(Ordering::Relaxed) {
            return false;
        }
        let at = stopped_at.get().unwrap_or_else(Instant::now);
        if stopped_at.replace(Some(at)).is_none() {
            stopper.stop();
        }
        at.elapsed() > END_WAIT_MAX
    };
    Ok(copy(&mut stream, &mut to, stop)?)
}
