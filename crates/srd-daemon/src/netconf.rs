//! Addresses, routes and rules, through a child process that keeps the privilege for them.
//!
//! ```text
//!   srd up (no privileges after set-up)          srd network (CAP_NET_ADMIN)
//!     Network::apply  -- "+ link set ..." ---->  runs `ip link set ...`
//!                     -- "- rule del ..." ---->  remembers it
//!                     <-- "ok" or the error ---
//!     ends, however  -- end of file --------->   runs what it remembers, backwards, and ends
//! ```
//!
//! So the daemon can drop its privileges, routes can still change when peers come and go, and
//! even after `kill -9` nothing is left behind. The child does nothing but `ip` commands of the
//! few kinds in `ALLOWED`.
//!
//! Bound: `UNDO_MAX` commands are remembered.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// What the child runs: the first words of `ip` commands.
const ALLOWED: [&str; 9] = [
    "link set dev ",
    "address add ",
    "address replace ",
    "-4 rule add ",
    "-6 rule add ",
    "-4 rule del ",
    "-6 rule del ",
    "route replace ",
    "route del ",
];
/// Commands that are remembered for the end.
const UNDO_MAX: usize = 65_536;
/// Bytes of one line.
const LINE_BYTES_MAX: usize = 1024;

/// The way to the child.
#[derive(Debug)]
pub struct Network {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Network {
    /// Starts the child: this program, as `srd network`.
    ///
    /// # Errors
    /// It could not be started.
    pub fn start() -> Result<Self> {
        let program = std::env::current_exe().context("where is this program")?;
        let mut child = Command::new(program)
            .arg("network")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the process that sets up the network")?;
        let to = child.stdin.take();
        let from = child.stdout.take().context("the child has no output")?;
        Ok(Self { child, to, from: BufReader::new(from) })
    }

    /// Runs an `ip` command, and remembers `undo` for the end.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn apply(&mut self, command: &str, undo: Option<&str>) -> Result<()> {
        if let Some(undo) = undo {
            self.ask('-', undo)?;
        }
        self.ask('+', command)
    }

    fn ask(&mut self, sign: char, command: &str) -> Result<()> {
        let to = self.to.as_mut().context("the network process has ended")?;
        writeln!(to, "{sign} {command}").context("the network process has ended")?;
        let mut answer = String::new();
        self.from.read_line(&mut answer).context("the network process has ended")?;
        match answer.trim_end() {
            "ok" => Ok(()),
            "" => bail!("the network process has ended"),
            error => bail!("ip {command}: {error}"),
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.to = None;
        let _ = self.child.wait();
    }
}

/// The child's work: commands from standard input until it ends, then what was remembered.
///
/// # Errors
/// Standard input or output failed; what was remembered has been run all the same.
pub fn serve() -> Result<()> {
    // The daemon's end is told by end of file, never by the terminal's signals.
    ignore_signals();
    let mut undo: Vec<String> = Vec::new();
    let ended = answer_until_end(&mut io::stdin().lock(), &mut io::stdout().lock(), &mut undo);
    for command in undo.iter().rev() {
        // What is gone already (with its interface, say) need not be removed.
        let _ = run_ip(command);
    }
    ended.context("lost the daemon")
}

fn ignore_signals() {
    use nix::sys::signal::{SigSet, Signal};
    let mut set = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        set.add(signal);
    }
    // Blocked for good: the end of standard input is what ends this process.
    let _ = set.thread_block();
}

fn answer_until_end(
    from: &mut impl BufRead,
    to: &mut impl Write,
    undo: &mut Vec<String>,
) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let n = io::Read::take(&mut *from, LINE_BYTES_MAX as u64).read_until(b'\n', &mut line)?;
        if n == 0 {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&line);
        let done = match text.trim_end().split_once(' ') {
            Some((sign @ ("+" | "-"), command)) if is_allowed(command) => {
                if sign == "+" {
                    run_ip(command)
                } else if undo.len() < UNDO_MAX {
                    undo.retain(|known| known != command);
                    undo.push(command.to_owned());
                    Ok(())
                } else {
                    Err("too many commands to remember".to_owned())
                }
            }
            _ => Err("not a command of the network process".to_owned()),
        };
        match done {
            Ok(()) => writeln!(to, "ok")?,
            Err(error) => writeln!(to, "{}", error.replace('\n', "; "))?,
        }
        to.flush()?;
    }
}

fn is_allowed(command: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || " .:/-_".contains(c);
    ALLOWED.iter().any(|start| command.starts_with(start)) && command.chars().all(plain)
}

/// Runs `ip` with these words.
fn run_ip(command: &str) -> Result<(), String> {
    let output = Command::new("ip")
        .args(command.split(' '))
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("cannot run ip (package iproute2): {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    let error = error.trim();
    Err(if error.is_empty() { format!("{}", output.status) } else { error.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_network_commands_pass() {
        assert!(is_allowed("link set dev srd0 up"));
        assert!(is_allowed("-4 rule add not fwmark 7471 lookup 7471"));
        for bad in ["netns exec x sh", "link set dev srd0 up; sh", "link delete dev eth0", ""] {
            assert!(!is_allowed(bad), "{bad}");
        }
    }

    #[test]
    fn what_is_refused_is_answered_and_what_is_remembered_is_remembered_once() {
        let mut undo = Vec::new();
        let mut out = Vec::new();
        let input = b"- route del 10.0.0.0/8 dev x\nrubbish\n- route del 10.0.0.0/8 dev x\n";
        answer_until_end(&mut &input[..], &mut out, &mut undo).unwrap();
        let lines: Vec<_> = std::str::from_utf8(&out).unwrap().lines().collect();
        assert_eq!(lines, ["ok", "not a command of the network process", "ok"]);
        assert_eq!(undo, ["route del 10.0.0.0/8 dev x"]);
    }
}
