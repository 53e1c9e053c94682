//! User data: scripts that run as root in the namespaces of instances.
//!
//! The output of a script, standard output and standard error, is a file in the card's directory.
//! It has at most [`OUTPUT_BYTES_MAX`] bytes; the remainder is dropped, and the script continues. A
//! script may run as long as its instance.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use anyhow::{Context, Result};

use super::directory::Directory;
use super::program;

/// Largest number of scripts that run at a time.
const SCRIPTS_MAX: usize = 256;
/// Largest size of the output of a script.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
/// The environment of a script. Variables of the server, such as its own keys, are not in it.
const ENVIRONMENT: [(&str, &str); 3] = [
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/root"),
    ("LANG", "C.UTF-8"),
];

/// The scripts that run.
#[derive(Clone, Debug, Default)]
pub(super) struct Scripts {
    running: Arc<AtomicUsize>,
}

/// One of the [`SCRIPTS_MAX`] scripts; the number falls when this value is dropped.
struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Work that a thread does, such as to wait for a script.
type Work = Box<dyn FnOnce() + Send>;

impl Scripts {
    /// Starts a script in the namespace of an instance. If it cannot be started, its output has the
    /// reason.
    pub(super) fn start(&self, directory: &Directory, instance: &str, script: &[u8]) -> Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let output = options.open(directory.output(instance)).context("its output")?;
        let mut log = output.try_clone().context("its output")?;
        let path = directory.script(instance);
        let started = program::write(&path, script).context("the script's file").and_then(|()| {
            self.run(command(instance, &path, script), output, |work| {
                let thread = thread::Builder::new().name("srd-user-data".into()).spawn(work);
                thread.map(|_| ())
            })
        });
        if let Err(error) = &started {
            let _ = writeln!(log, "(the user data is not run: {error:#})");
        }
        started
    }

    fn slot(&self) -> Result<Slot> {
        let add = |count| (count < SCRIPTS_MAX).then_some(count + 1);
        let taken = self.running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        taken.ok().with_context(|| format!("{SCRIPTS_MAX} scripts run already"))?;
        Ok(Slot(Arc::clone(&self.running)))
    }

    /// Runs a program, whose output a thread copies. `begin` starts the thread.
    fn run(
        &self,
        mut command: Command,
        output: File,
        begin: impl FnOnce(Work) -> io::Result<()>,
    ) -> Result<()> {
        let slot = self.slot()?;
        let (reader, writer) = io::pipe().context("a pipe")?;
        command.env_clear().envs(ENVIRONMENT);
        command.current_dir("/").process_group(0).stdin(Stdio::null());
        command.stdout(writer.try_clone().context("a pipe")?).stderr(writer);
        // The thread exists before the program, so each program has a thread that waits for its
        // end. If the program does not start, the channel is closed and the thread ends.
        let (started, next) = channel();
        let work = move || {
            if let Ok(child) = next.recv() {
                follow(child, reader, output);
            }
            drop(slot);
        };
        begin(Box::new(work)).context("a thread")?;
        let child = program::start(&mut command);
        let child = child.context("`ip` cannot be run: apt-get install iproute2")?;
        // This process closes its copies of the pipe's end, so that the thread sees the end.
        drop(command);
        // The thread waits for the child, so the channel is open.
        let _ = started.send(child);
        Ok(())
    }
}

/// Returns the command that runs a script in the namespace of an instance. Many distributions mount
/// /run such that the kernel refuses to execute a file there. So the command names the interpreter.
fn command(instance: &str, path: &Path, script: &[u8]) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &format!("srd-i-{instance}")]);
    command.args(interpreter(script)).arg(path);
    command
}

/// Returns the interpreter of a script and its argument, if any, as the kernel reads them from the
/// first line. Without an interpreter it is `/bin/sh`.
fn interpreter(script: &[u8]) -> Vec<&OsStr> {
    let is_blank = |byte: &u8| [b' ', b'\t'].contains(byte);
    let line = script.strip_prefix(b"#!").unwrap_or_default();
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.trim_ascii_start();
    let (name, rest) = line.split_at(line.iter().position(is_blank).unwrap_or(line.len()));
    let words = [name, rest.trim_ascii()].into_iter().filter(|word| !word.is_empty());
    let words: Vec<_> = words.map(OsStr::from_bytes).collect();
    if words.is_empty() { vec![OsStr::new("/bin/sh")] } else { words }
}

/// Copies the output of a script until the script and the programs that it has started end.
fn follow(mut child: Child, mut reader: PipeReader, mut output: File) {
    let mut first = (&mut reader).take(OUTPUT_BYTES_MAX);
    let _ = io::copy(&mut first, &mut output);
    let dropped = io::copy(&mut reader, &mut io::sink()).unwrap_or(0);
    let ended = child.wait();
    if dropped > 0 {
        let _ = writeln!(output, "\n({dropped} more bytes are dropped)");
    }
    if let Ok(status) = ended {
        let _ = writeln!(output, "({status})");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Seek;

    /// Runs a program on this thread, and returns its output.
    fn output(scripts: &Scripts, command: Command) -> String {
        let mut file = tempfile::tempfile().unwrap();
        let mut thread = None;
        let begin = |work| {
            thread = Some(thread::spawn(work));
            Ok(())
        };
        scripts.run(command, file.try_clone().unwrap(), begin).unwrap();
        thread.unwrap().join().unwrap();
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn a_script_gets_three_variables_and_none_of_the_server() {
        assert!(std::env::vars_os().count() > ENVIRONMENT.len(), "the test has an environment");
        let text = output(&Scripts::default(), Command::new("env"));
        let (mut lines, mut wanted): (Vec<_>, Vec<_>) = (
            text.lines().map(str::to_owned).collect(),
            ENVIRONMENT.iter().map(|(name, value)| format!("{name}={value}")).collect(),
        );
        assert_eq!(lines.pop().unwrap(), "(exit status: 0)");
        lines.sort();
        wanted.sort();
        assert_eq!(lines, wanted);
    }

    /// Regression: the kernel was to execute the file, which it refuses if /run is mounted with the
    /// option `noexec`, as on Debian and Ubuntu.
    #[test]
    fn regression_a_script_is_read_by_its_interpreter() {
        let (path, file) = (Path::new("/run/x/user-data/web"), "/run/x/user-data/web");
        let words = |script: &str| -> Vec<String> {
            let command = command("web", path, script.as_bytes());
            command.get_args().map(|word| word.to_str().unwrap().to_owned()).collect()
        };
        let netns = ["netns", "exec", "srd-i-web"];
        for (script, interpreter) in [
            ("#!/bin/sh\necho a b\n", &["/bin/sh"][..]),
            ("#! \t/bin/bash \t-e -x \n#!/bin/sh\n", &["/bin/bash", "-e -x"]),
            ("#!/usr/bin/env python3", &["/usr/bin/env", "python3"]),
            ("#!\n", &["/bin/sh"]),
            ("true\n", &["/bin/sh"]),
            ("", &["/bin/sh"]),
        ] {
            assert_eq!(words(script), [&netns[..], interpreter, &[file]].concat(), "{script:?}");
        }
    }

    #[test]
    fn a_thread_or_a_program_that_does_not_start_frees_its_slot_and_leaves_no_program() {
        let scripts = Scripts::default();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ran");
        let mut command = Command::new("touch");
        command.arg(&path);
        let error = || Err(io::Error::other("no more threads"));
        scripts.run(command, tempfile::tempfile().unwrap(), |_| error()).unwrap_err();
        assert!(!path.exists());
        assert_eq!(scripts.running.load(Ordering::Relaxed), 0);

        let mut thread = None;
        let begin = |work| {
            thread = Some(thread::spawn(work));
            Ok(())
        };
        let missing = Command::new(directory.path().join("missing"));
        scripts.run(missing, tempfile::tempfile().unwrap(), begin).unwrap_err();
        thread.unwrap().join().unwrap();
        assert_eq!(scripts.running.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_number_of_scripts_has_a_limit() {
        let scripts = Scripts::default();
        let mut slots: Vec<_> = (0..SCRIPTS_MAX).map(|_| scripts.slot().unwrap()).collect();
        assert!(scripts.slot().is_err());
        slots.pop();
        assert!(scripts.slot().is_ok());
        drop(slots);
        assert_eq!(scripts.running.load(Ordering::Relaxed), 0);
    }
}
