//! Programs in C that use libfabric, and processes of `node.c` that tests send commands to.

#![allow(dead_code, reason = "each test uses a part")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::{Provider, has_headers, is_here};

/// Longest wait of a test for any result: longer than the answer timeout of peers.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const PATIENCE_MS: u64 = 60_000;

/// A program, its provider, and the directory that both are in.
pub(crate) struct Program {
    _directory: TempDir,
    binary: PathBuf,
    provider: Provider,
}

impl Program {
    /// Compiles a program of this directory; `None` if the machine lacks a compiler or headers,
    /// which is printed.
    pub(crate) fn compile(name: &str) -> Option<Self> {
        if !is_here("cc", "gcc") || !has_headers() {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let binary = directory.path().join(name);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{name}.c"));
        let mut compile = Command::new("cc");
        compile.args(["-O1", "-Wall", "-Wextra", "-Wno-sign-compare", "-o"]).arg(&binary);
        let output = compile.arg(source).arg("-lfabric").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(Self { _directory: directory, binary, provider: Provider::new() })
    }

    /// Returns the command of the program with libfabric's and the provider's settings. The timeout
    /// of peers is longer than a process of a busy machine may be delayed.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command.env("FI_PROVIDER_PATH", self.provider.library().parent().unwrap());
        command.env("FI_PROVIDER", "srd").env("FI_SRD_ANSWER_TIMEOUT_MS", "30000");
        command.env("FI_SRD_PEER_TIMEOUT_MS", "30000");
        command
    }

    /// Starts a process that executes commands.
    pub(crate) fn start(&self, settings: &[(&str, &str)]) -> Node {
        Node::of(self.command().envs(settings.iter().copied()))
    }

    /// Starts a process that executes commands, in a network namespace.
    pub(crate) fn start_in(&self, namespace: &str, settings: &[(&str, &str)]) -> Node {
        let inner = self.command();
        let mut outer = Command::new("ip");
        outer.args(["netns", "exec", namespace]).arg(inner.get_program());
        outer.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Node::of(outer.envs(settings.iter().copied()))
    }
}

/// A process of `node.c`. Dropping this value kills the process.
pub(crate) struct Node {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// Completion of an operation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum End {
    /// The operation succeeded; with its context and its length in bytes.
    Ok(u64, u64),
    /// The operation failed; with its context, libfabric's error number, the provider's error
    /// number, and a text.
    Failed(u64, i32, i32, String),
}

impl End {
    fn of(line: &str) -> Option<Self> {
        let (what, rest) = line.split_once(' ')?;
        let mut words = rest.splitn(4, ' ');
        let context = words.next()?.parse().ok()?;
        match what {
            "ok" => Some(Self::Ok(context, words.next()?.parse().ok()?)),
            "failed" => {
                let error = words.next()?.parse().ok()?;
                let ours = words.next()?.parse().ok()?;
                Some(Self::Failed(context, error, ours, words.next()?.to_string()))
            }
            _ => None,
        }
    }

    /// Returns libfabric's error number and the provider's; zeros for success.
    pub(crate) fn errors(&self) -> (i32, i32) {
        match self {
            Self::Ok(..) => (0, 0),
            Self::Failed(_, error, ours, _) => (*error, *ours),
        }
    }

    /// Returns the text for the user; empty for success.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Ok(..) => "",
            Self::Failed(.., text) => text,
        }
    }
}

impl Node {
    fn of(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the process has ended");
        line.trim_end().to_string()
    }

    /// Sends a command without waiting for the answer.
    pub(crate) fn tell(&mut self, command: &str) {
        writeln!(self.input, "{command}").unwrap();
    }

    /// Sends a command and returns the answer, without its first word, which must be `word`.
    pub(crate) fn ask(&mut self, command: &str, word: &str) -> String {
        self.tell(command);
        let line = self.line();
        let answer = line.strip_prefix(word);
        answer.unwrap_or_else(|| panic!("{command}: {line}, not {word}")).trim().to_string()
    }

    /// Opens an endpoint and returns its name.
    pub(crate) fn open(&mut self, address: &str, port: u16) -> String {
        self.ask(&format!("open {address} {port}"), "open ")
    }

    /// Inserts a peer's address and returns its number.
    pub(crate) fn insert(&mut self, name: &str) -> u64 {
        self.ask(&format!("insert {name}"), "number ").parse().unwrap()
    }

    /// Inserts a socket address, for any run, and returns its number.
    pub(crate) fn insert_place(&mut self, address: &str, port: u16) -> u64 {
        let name = self.ask(&format!("name {address} {port}"), "name ");
        self.insert(&name)
    }

    /// Posts operations and returns the number that was accepted.
    pub(crate) fn post(&mut self, command: &str) -> u64 {
        self.ask(command, "posted ").parse().unwrap()
    }

    /// Returns the completions of `count` operations, or of the operations that end within `ms`
    /// milliseconds.
    pub(crate) fn ends(&mut self, count: usize, ms: u64) -> Vec<End> {
        self.tell(&format!("wait {count} {ms}"));
        let mut ends = Vec::new();
        loop {
            let line = self.line();
            match End::of(&line) {
                Some(end) => ends.push(end),
                None if line.starts_with("waited ") => return ends,
                None => panic!("{line}"),
            }
        }
    }

    /// Waits for one operation and returns its completion.
    pub(crate) fn end(&mut self) -> End {
        self.ends(1, PATIENCE_MS).pop().expect("an operation ends in time")
    }

    /// Returns the completions of `count` operations, and asserts that no further completion
    /// follows.
    pub(crate) fn all_ends(&mut self, count: usize) -> Vec<End> {
        let ends = self.ends(count, PATIENCE_MS);
        assert_eq!((ends.len(), self.ends(1, 100)), (count, Vec::new()));
        ends
    }

    /// Returns the resident memory of the process in kilobytes.
    pub(crate) fn memory_kb(&mut self) -> u64 {
        self.ask("memory", "memory ").parse().unwrap()
    }

    /// Closes all objects and returns the time that closing the endpoint took.
    pub(crate) fn close(mut self) -> Duration {
        let answer = self.ask("close", "closed 0 ");
        let start = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
        Duration::from_millis(answer.parse().unwrap())
    }

    /// Stops the process: it answers nothing, not even packets of the transport.
    pub(crate) fn stop(&self) {
        self.signal("STOP");
        let start = Instant::now();
        while !self.stands_still() {
            assert!(start.elapsed() < PATIENCE, "it does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether each thread of the process is stopped.
    fn stands_still(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let mut stats = threads.map(|thread| thread.unwrap().path().join("stat"));
        // The state follows the name, which is in parentheses.
        stats.all(|stat| {
            let stat = std::fs::read_to_string(stat).unwrap();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        })
    }

    /// Continues the stopped process.
    pub(crate) fn go_on(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    /// Kills the process with a signal that it cannot catch.
    pub(crate) fn kill(mut self) {
        self.end_now();
    }

    fn end_now(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.end_now();
    }
}
