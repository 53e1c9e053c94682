//! MPI on this machine: what is installed, whether libfabric offers SRD to it, and how a job is
//! launched over kernel TCP or over SRD.
//!
//! | module | what |
//! |---|---|
//! | [`installed`] | Open MPI, MPICH, Intel MPI: version, compiler, the libfabric each uses |
//! | [`provider`] | where `libsrd-fi.so` is |
//! | [`offers`] | what a libfabric offers, asked in a process of its own |
//! | [`launch`] | the words and variables that start a job |
//! | [`ranks`] | the program that is measured, and what it prints |
//!
//! Bounds: every program that is asked has a time limit; what it prints is cut to what matters.

pub mod installed;
pub mod launch;
pub mod offers;
pub mod provider;
pub mod ranks;

pub use installed::{Kind, Mpi};
pub use launch::{Launch, Transport};
pub use offers::{Offer, Offers};

use anyhow::{Context, Result, bail};
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a program may take to answer a question.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// Most bytes of an answer that are read, per stream.
const ANSWER_BYTES_MAX: u64 = 4 << 20;
/// How often to look whether a program has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What a program printed.
pub(crate) struct Answer {
    pub(crate) succeeded: bool,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs a program that answers a question. One that takes longer than it may is killed.
pub(crate) fn ask(command: &mut Command) -> Result<Answer> {
    ask_for(command, ANSWER_MAX)
}

fn ask_for(command: &mut Command, at_most: Duration) -> Result<Answer> {
    let what = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| what.clone())?;
    let out = read_aside(child.stdout.take());
    let err = read_aside(child.stderr.take());
    let deadline = Instant::now() + at_most;
    let status = loop {
        if let Some(status) = child.try_wait().with_context(|| what.clone())? {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().with_context(|| what.clone())?;
            child.wait().with_context(|| what.clone())?;
            bail!("{what} did not answer within {} s", at_most.as_secs());
        }
        thread::sleep(LOOK_EVERY);
    };
    Ok(Answer { succeeded: status.success(), out: text(out), err: text(err) })
}

type Reading = Option<thread::JoinHandle<Vec<u8>>>;

fn read_aside(stream: Option<impl Read + Send + 'static>) -> Reading {
    stream.map(|stream| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            // What was read until an error is what there is.
            let _ = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes);
            bytes
        })
    })
}

fn text(reading: Reading) -> String {
    let bytes = reading.and_then(|reading| reading.join().ok()).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn both_streams_and_the_verdict_are_told() {
        let answer = ask(&mut shell("echo out; echo err >&2; exit 3")).unwrap();
        assert_eq!((answer.out.as_str(), answer.err.as_str()), ("out\n", "err\n"));
        assert!(!answer.succeeded);
        assert!(ask(&mut Command::new("/no/such/program")).is_err());
    }

    #[test]
    fn one_that_does_not_answer_is_killed() {
        let mut slow = shell("exec sleep 60");
        let error = ask_for(&mut slow, Duration::from_millis(50)).err().unwrap().to_string();
        assert!(error.contains("did not answer"), "{error}");
    }

    #[test]
    fn an_answer_without_end_is_cut() {
        let mut endless = shell("yes | head -c 8388608");
        let answer = ask_for(&mut endless, Duration::from_secs(5));
        // Cut off, it ends of a broken pipe; what was read is what may be read.
        assert!(answer.is_ok_and(|answer| answer.out.len() as u64 == ANSWER_BYTES_MAX));
    }
}
