//! MPI on this machine: the installed implementations, whether libfabric offers SRD to them, and
//! the launch of jobs over kernel TCP or over SRD.
//!
//! | module | contents |
//! |---|---|
//! | [`installed`] | Open MPI, MPICH, Intel MPI: version, compiler, the libfabric each uses |
//! | [`provider`] | search for `libsrd-fi.so` |
//! | [`offers`] | a libfabric's offers (entries of `fi_getinfo`), queried in a separate process |
//! | [`key`] | the key of a job |
//! | [`launch`] | the arguments and variables that start a job |
//! | [`ranks`] | the measuring program that each rank runs, and its output |
//!
//! Limits: every program that this crate runs has a time limit, and its output is cut to a limit.

pub mod installed;
pub mod key;
pub mod launch;
pub mod offers;
pub mod provider;
pub mod ranks;

pub use self::installed::{Kind, Mpi};
pub use launch::{Launch, Transport};
pub use offers::{Offer, Offers};

use anyhow::{Context, Result};
use srd_lab::running::Running;
use std::io::{ErrorKind, Read};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Default time limit of a program that is run for its output.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// Largest number of bytes of a program's standard output that are kept, and of its standard error.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Time that a program gets to end after SIGTERM, before it is killed.
const LEAVE_MAX: Duration = Duration::from_secs(2);
/// Time for which the output streams of a program are still read after its end, because its child
/// processes may hold them open.
const LINGER_MAX: Duration = Duration::from_secs(5);
/// Interval at which the end of an output stream is polled.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Output of a program that has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Whether the program's exit status is success.
    pub succeeded: bool,
    /// Text of standard output.
    pub out: String,
    /// Text of standard error.
    pub err: String,
}

/// Runs a program with empty standard input and returns its output. If the program exceeds the time
/// limit [`ANSWER_MAX`], it is ended and an error is returned.
pub(crate) fn ask(command: &mut Command) -> Result<Answer> {
    command.stdin(Stdio::null());
    ask_for(command, ANSWER_MAX)
}

/// Runs a program and returns its output, within the time limit `at_most`. The standard input is
/// the input that `command` sets.
///
/// # Errors
/// A text for the user, if the program cannot be started or does not end in time.
pub fn ask_for(command: &mut Command, at_most: Duration) -> Result<Answer> {
    let what = command.get_program().to_string_lossy().into_owned();
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| what.clone())?;
    let out = Reading::start(child.stdout.take());
    let err = Reading::start(child.stderr.take());
    let status = Running::new(child, LEAVE_MAX).wait(at_most).with_context(|| what.clone());
    let (out, err) = (out.finish(), err.finish());
    match status {
        Ok(status) => Ok(Answer { succeeded: status.success(), out, err }),
        Err(error) if err.trim().is_empty() => Err(error),
        Err(error) => Err(error.context(err.trim().to_owned())),
    }
}

/// Bytes that a thread has read from an output stream so far. The stream may never end, because a
/// child process of the program may hold it open.
struct Reading {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
}

impl Reading {
    fn start(stream: Option<impl Read + Send + 'static>) -> Reading {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&bytes);
        let thread = stream.map(|stream| thread::spawn(move || keep(stream, &kept)));
        Reading { bytes, thread }
    }

    fn finish(self) -> String {
        let deadline = Instant::now() + LINGER_MAX;
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            if Instant::now() > deadline {
                break;
            }
            thread::sleep(LOOK_EVERY);
        }
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Reads a stream to its end into `kept`; bytes beyond [`ANSWER_BYTES_MAX`] are dropped.
fn keep(mut stream: impl Read, kept: &Mutex<Vec<u8>>) {
    let mut part = [0; 4096];
    loop {
        match stream.read(&mut part) {
            Ok(0) => return,
            Ok(count) => {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                let room = ANSWER_BYTES_MAX - kept.len();
                kept.extend(&part[..count.min(room)]);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // The bytes that were read before the error are kept.
            Err(_) => return,
        }
    }
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
        let error = ask_for(&mut slow, Duration::from_millis(50)).expect_err("too slow");
        assert!(format!("{error:#}").contains("sh: still running"), "{error:#}");
    }

    #[test]
    fn of_a_long_answer_the_beginning_is_kept() {
        let answer = ask(&mut shell("yes | head -c 8388608")).unwrap();
        assert!(answer.succeeded);
        assert_eq!(answer.out.len(), ANSWER_BYTES_MAX);
    }

    #[test]
    fn a_stream_that_stays_open_is_not_waited_for() {
        let begin = Instant::now();
        let answer = ask(&mut shell("echo out; sleep 60 & echo $! >&2")).unwrap();
        assert_eq!(answer.out, "out\n");
        assert!(begin.elapsed() < Duration::from_secs(30));
        // The shell of this test has ended and left this process running.
        let left = answer.err.trim().to_owned();
        assert!(Command::new("kill").arg(left).status().unwrap().success());
    }
}
