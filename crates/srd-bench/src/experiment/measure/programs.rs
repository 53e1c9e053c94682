//! Programs that experiments run: checks whether they are installed, starts them, and reads their
//! output.

use crate::experiment::{Options, Stage, Variant};
use anyhow::{Context, Result, bail};
use srd_lab::command::find_program;
use srd_lab::id::HostId;
use srd_lab::running::Running;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait until a server accepts connections. JVMs need a long time on a busy machine.
const READY_MAX: Duration = Duration::from_secs(60);
/// Time between a request to end and SIGKILL.
const LEAVE_MAX: Duration = Duration::from_secs(20);
/// Largest number of characters of a program's output in an error message.
const COMPLAINT_CHARS: usize = 600;

/// A program and the Debian package that contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// File name of the program.
    pub name: &'static str,
    /// Name of the Debian package.
    pub package: &'static str,
}

/// Program that gives daemons a real-time priority.
pub(crate) const CHRT: Program = Program { name: "chrt", package: "util-linux" };
/// Program that makes the TCP sockets of another program use Multipath TCP.
pub(crate) const MPTCPIZE: Program = Program { name: "mptcpize", package: "mptcpize" };
/// Program that measures throughput.
pub(crate) const IPERF3: Program = Program { name: "iperf3", package: "iperf3" };

/// Error: programs that are not installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingPrograms(pub Vec<Program>);

impl fmt::Display for MissingPrograms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |of: fn(&Program) -> &'static str, between: &str| {
            let mut all: Vec<_> = self.0.iter().map(of).collect();
            all.dedup();
            all.join(between)
        };
        let (names, packages) = (list(|p| p.name, ", "), list(|p| p.package, " "));
        write!(f, "not installed: {names}; as root: apt-get install {packages}")
    }
}

impl std::error::Error for MissingPrograms {}

/// Returns an error if one of the programs is not installed.
pub(crate) fn require(programs: &[Program]) -> Result<(), MissingPrograms> {
    let missing: Vec<_> =
        programs.iter().copied().filter(|program| find_program(program.name).is_none()).collect();
    if missing.is_empty() { Ok(()) } else { Err(MissingPrograms(missing)) }
}

/// Returns the programs that the selected transports need in every experiment.
pub(crate) fn of_variants(options: &Options) -> Vec<Program> {
    let daemons = options.compares(Variant::Express);
    let is_real_time = options.realtime_priority.is_some();
    let chrt = (daemons && is_real_time).then_some(CHRT);
    chrt.into_iter().collect()
}

/// Returns a command that runs a program, through `mptcpize` if the variant is Multipath TCP.
pub(crate) fn command(stage: &Stage<'_>, program: Program) -> Result<Command> {
    let path = |program: Program| {
        find_program(program.name).with_context(|| MissingPrograms(vec![program]).to_string())
    };
    if stage.variant != Variant::Mptcp {
        return Ok(Command::new(path(program)?));
    }
    let mut command = Command::new(path(MPTCPIZE)?);
    command.arg("run").arg(path(program)?);
    Ok(command)
}

/// Starts a program in a host. Its output is written into files in the stage's directory, which are
/// named for the host and `name`.
pub(crate) fn start(
    stage: &Stage<'_>,
    host: HostId,
    name: &str,
    command: &mut Command,
) -> Result<Running> {
    let file = |extension: &str| -> Result<File> {
        let path = output(stage, host, name, extension);
        File::create(&path).with_context(|| path.display().to_string())
    };
    command.stdin(Stdio::null()).stdout(file("out")?).stderr(file("err")?);
    Ok(Running::new(stage.fabric.spawn(host, command)?, LEAVE_MAX))
}

/// Runs a program in a host until it ends. Returns its standard output.
pub(crate) fn run_to_end(
    stage: &Stage<'_>,
    host: HostId,
    name: &str,
    command: &mut Command,
    at_most: Duration,
) -> Result<String> {
    let running = start(stage, host, name, command)?;
    let status = running.wait(at_most).with_context(|| format!("{name} in {host}"))?;
    if !status.success() {
        bail!("{name} in {host} ended with {status}: {}", complaint(stage, host, name));
    }
    printed(stage, host, name)
}

/// Returns the standard output of a program that has ended.
pub(crate) fn printed(stage: &Stage<'_>, host: HostId, name: &str) -> Result<String> {
    let path = output(stage, host, name, "out");
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// Waits until a server in a host listens on a TCP port, without making a connection. Returns an
/// error if the server ends.
pub(crate) fn wait_for_listener(
    stage: &Stage<'_>,
    host: HostId,
    port: u16,
    server: &mut Running,
    name: &str,
) -> Result<()> {
    let deadline = Instant::now() + READY_MAX;
    loop {
        if let Some(status) = server.ended()? {
            bail!("{name} in {host} ended with {status}: {}", complaint(stage, host, name));
        }
        if is_listening(stage, host, port)? {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!(
                "{name} in {host} does not listen on port {port}: {}",
                complaint(stage, host, name)
            );
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a program in a host listens on a TCP port.
pub(crate) fn is_listening(stage: &Stage<'_>, host: HostId, port: u16) -> Result<bool> {
    let tables = stage.fabric.within(host, || {
        ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("/proc/thread-self/net/{table}")))
    })?;
    Ok(tables.into_iter().flatten().any(|table| listens(&table, port)))
}

/// Whether the text of `/proc/net/tcp` contains a socket that listens on a port (state 0A).
pub(crate) fn listens(table: &str, port: u16) -> bool {
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().and_then(|local| local.rsplit(':').next());
        let state = fields.nth(1);
        local == Some(&format!("{port:04X}")) && state == Some("0A")
    })
}

/// Returns what a program has written to standard error so far.
pub(crate) fn logged(stage: &Stage<'_>, host: HostId, name: &str) -> Result<String> {
    let path = output(stage, host, name, "err");
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// Returns the end of a program's standard error and output, for an error message.
pub(crate) fn complaint(stage: &Stage<'_>, host: HostId, name: &str) -> String {
    let read = |extension| tail(&output(stage, host, name, extension)).unwrap_or_default();
    let all = read("err") + &read("out");
    let all: Vec<char> = all.trim().chars().collect();
    all[all.len().saturating_sub(COMPLAINT_CHARS)..].iter().collect()
}

/// Reads the end of a file, which may contain the output of many hours.
fn tail(file: &Path) -> io::Result<String> {
    let mut file = File::open(file)?;
    // A character has at most four bytes.
    let bytes_max = COMPLAINT_CHARS as u64 * 4;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(bytes_max)))?;
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn output(stage: &Stage<'_>, host: HostId, name: &str, extension: &str) -> PathBuf {
    stage.directory.join(format!("{host}-{name}.{extension}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_listener_is_found_by_port_and_state() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
            0: 00000000:1451 00000000:0000 0A 00000000:00000000\n\
            1: 0100007F:1452 0100007F:9000 01 00000000:00000000\n";
        assert!(listens(table, 0x1451));
        assert!(!listens(table, 0x1452), "connected, not listening");
        assert!(!listens("", 0x1451));
    }

    /// Regression: an error message read the whole output of a program, even if it was very long.
    #[test]
    fn regression_only_the_end_of_what_a_program_printed_is_read() {
        let path = std::env::temp_dir().join(format!("srd-tail-{}", std::process::id()));
        let mut file = File::create(&path).unwrap();
        file.set_len(1 << 34).unwrap();
        file.seek(SeekFrom::End(0)).unwrap();
        file.write_all(b"the end").unwrap();
        let end = tail(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(end.ends_with("the end") && end.len() <= COMPLAINT_CHARS * 4, "{}", end.len());
    }

    #[test]
    fn what_is_missing_comes_with_its_package() {
        let nothing = Program { name: "no-such-program", package: "no-such-package" };
        let error = require(&[CHRT, nothing]).expect_err("missing").to_string();
        assert_eq!(
            error,
            "not installed: no-such-program; as root: apt-get install no-such-package"
        );
        assert_eq!(require(&[]), Ok(()));
    }
}
