//! `--keep`: replaces systemd. A process holds the listening socket of one half of the proxy and
//! runs this half as its child, which it restarts whenever it fails. Connections that arrive in the
//! meantime wait in the socket.
//!
//! The process prints `ready` when the half serves for the first time.

use super::NfsProxyArgs;
use super::listen::Listen;
use crate::failure::USAGE;
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::env;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Pause before a failed half is restarted. The number of restarts is unlimited.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// Line on standard output with which a half reports that it serves.
pub(super) const READY: &str = "ready";
/// Shell commands that pass standard input to a program as the socket of `LISTEN_FDS`.
const HAND_OVER: &str =
    "export LISTEN_FDS=1 LISTEN_PID=$$; unset LISTEN_FDNAMES; exec \"$@\" 3<&0 </dev/null";

/// Runs and restarts the half until it has ended and needs no restart. Returns its exit code.
pub(super) fn run(args: &NfsProxyArgs) -> Result<u8> {
    let mut signals =
        Signals::new([SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1]).context("signals")?;
    let half = Half { socket: Listen::new(args)?.open()?, is_ready: Arc::default() };
    let mut child = half.start()?;
    let mut is_ending = false;
    loop {
        let arrived: Vec<_> = signals.wait().collect();
        for signal in arrived {
            if signal == SIGCHLD {
                let Some(status) = child.try_wait().context("the half")? else { continue };
                if let Some(code) = half.exit_code(status, is_ending) {
                    return Ok(code);
                }
                tracing::warn!(target: "srd_nfs", "the half ended ({status}): starting it again");
                thread::sleep(RESTART_PAUSE);
                child = half.start()?;
            } else {
                is_ending |= [SIGINT, SIGTERM].contains(&signal);
                let signal = Signal::from_named_raw(signal).expect("one of the above");
                // Sending the signal fails if the child has just ended.
                let _ = kill_process(Pid::from_child(&child), signal);
            }
        }
    }
}

struct Half {
    socket: TcpListener,
    is_ready: Arc<AtomicBool>,
}

impl Half {
    fn start(&self) -> Result<Child> {
        let own = |word: OsString| if word == "--keep" { "--kept".into() } else { word };
        let socket = self.socket.try_clone().context("the socket")?;
        // The program is started by its name, so that a new version runs after an upgrade.
        let mut child = Command::new("sh")
            .args(["-c", HAND_OVER, "sh"])
            .args(env::args_os().map(own))
            .stdin(Stdio::from(OwnedFd::from(socket)))
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start sh")?;
        let output = child.stdout.take().expect("it is piped");
        let is_ready = Arc::clone(&self.is_ready);
        let name = "srd-nfs-ready".to_owned();
        thread::Builder::new()
            .name(name)
            .spawn(move || wait_until_ready(output, &is_ready))
            .context("a thread")?;
        Ok(child)
    }

    /// Returns the exit code of this process, from the exit status of the half; `None` if the half
    /// must be restarted. `is_ending` is set if a signal has requested the end of this process.
    fn exit_code(&self, status: ExitStatus, is_ending: bool) -> Option<u8> {
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        match code {
            _ if is_ending => Some(0),
            // The half has ended in order, or has a usage error that would occur again.
            Some(0 | USAGE) => code,
            // The half never served, and its own error gives the reason.
            _ if !self.is_ready.load(Ordering::SeqCst) => Some(code.unwrap_or(1)),
            _ => None,
        }
    }
}

fn wait_until_ready(output: ChildStdout, is_ready: &AtomicBool) {
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    if lines.any(|line| line == READY) && !is_ready.swap(true, Ordering::SeqCst) {
        // The reader may have closed the output after an earlier `ready`.
        let _ = crate::output::say(READY);
    }
}
