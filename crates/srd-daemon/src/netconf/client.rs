//! The daemon's side of the network process `srd network`.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::plan::Spec;
use super::{Answer, LINE_BYTES_MAX, Request};

/// Longest wait for an answer: the process may have to wait until another one releases the routing
/// table.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(30);

/// Handle of the child process `srd network`.
#[derive(Debug)]
pub struct Network {
    child: Child,
    to: Option<ChildStdin>,
    from: From,
    /// Whether the child has ended; set by the thread that reads the child's output.
    has_ended: Arc<AtomicBool>,
}

/// Source of the child's answers.
#[derive(Debug)]
enum From {
    /// The child's output, read directly: the daemon must not start threads before it drops its
    /// privileges.
    Pipe(BufReader<ChildStdout>),
    /// A thread that reads the child's output, logs its notes, and passes on its answers.
    Thread(Receiver<Answer>),
}

impl Network {
    /// Starts the child: this program with the argument `network`. The child inherits only standard
    /// error and the two pipes to this process.
    ///
    /// # Errors
    /// If the child could not be started.
    pub fn start(spec: &Spec) -> Result<Self> {
        let program = std::env::current_exe().context("where is this program")?;
        let spec = serde_json::to_string(spec).context("the specification as JSON")?;
        srd_net::raw::keep_descriptors_from_children()
            .context("cannot keep descriptors from the network process")?;
        let mut child = Command::new(program)
            .args(["network", &spec])
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the process that sets up the network")?;
        let to = child.stdin.take();
        let from = child.stdout.take().context("the child has no output")?;
        Ok(Self { child, to, from: From::Pipe(BufReader::new(from)), has_ended: Arc::default() })
    }

    /// Sends a request to the child, and waits for its answer.
    ///
    /// # Errors
    /// The reason of the child's refusal, or that the child has ended.
    pub fn ask(&mut self, request: &Request) -> Result<()> {
        const GONE: &str = "the network process has ended";
        let mut text = serde_json::to_string(request).context("the request as JSON")?;
        text.push('\n');
        let to = self.to.as_mut().context(GONE)?;
        // If the child has ended, the write fails, but the child's output may still contain the
        // reason.
        let written = to.write_all(text.as_bytes());
        loop {
            let answer = match &mut self.from {
                From::Pipe(pipe) => read(pipe),
                From::Thread(answers) => answers.recv_timeout(ANSWER_WAIT_MAX).ok(),
            };
            match answer {
                Some(Answer::Done) => return written.context(GONE),
                Some(Answer::Failed(why)) => bail!(why),
                Some(Answer::Note(note)) => tracing::warn!("{note}"),
                None => bail!(GONE),
            }
        }
    }

    /// Returns a flag that becomes true when the child ends. The flag works only after
    /// [`Network::listen`].
    pub fn has_ended(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.has_ended)
    }

    /// Starts the thread that logs the child's notes. Call it after privileges were dropped,
    /// because a thread keeps the privileges with which it was started.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn listen(mut self) -> Result<Self> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let From::Pipe(mut pipe) = std::mem::replace(&mut self.from, From::Thread(receiver)) else {
            bail!("it is listened to already");
        };
        let has_ended = Arc::clone(&self.has_ended);
        let listen = move || {
            while let Some(answer) = read(&mut pipe) {
                match answer {
                    Answer::Note(note) => tracing::warn!("{note}"),
                    answer => {
                        if sender.send(answer).is_err() {
                            return;
                        }
                    }
                }
            }
            has_ended.store(true, Ordering::Relaxed);
        };
        thread::Builder::new().name("srd-network".into()).spawn(listen)?;
        Ok(self)
    }
}

fn read(pipe: &mut BufReader<ChildStdout>) -> Option<Answer> {
    let mut line = Vec::new();
    pipe.take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line).ok()?;
    serde_json::from_slice(&line).ok()
}

impl Drop for Network {
    /// Closes the pipe to the child, which then deletes the interface and removes routes and rules.
    /// Waits until the child has ended.
    fn drop(&mut self) {
        self.to = None;
        let _ = self.child.wait();
    }
}
