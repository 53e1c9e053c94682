//! The daemon's side of the network process `srd network`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::plan::Spec;
use super::{Answer, LINE_BYTES_MAX, Request};
use crate::handover::owner::{Owner, Pipes};
use crate::waiting::WaitingThread;

/// Longest wait for an answer: the process may have to wait until another one releases the routing
/// table.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(30);
/// Largest number of messages that another daemon may have left unread.
const ANSWERS_LEFT_MAX: usize = 10_000;
const GONE: &str = "the network process has ended";

/// Handle of the child process `srd network`.
#[derive(Debug)]
pub struct Network {
    owner: Owner,
    to: Option<Arc<File>>,
    from: From,
    answer_wait: Duration,
    /// Number of requests whose answer did not come in time, and is still to come.
    late: usize,
    /// Whether the child has ended; set by the thread that reads the child's output.
    has_ended: Arc<AtomicBool>,
}

/// Source of the child's answers.
#[derive(Debug)]
enum From {
    /// The child's output, read directly: the daemon must not start threads before it drops its
    /// privileges.
    Pipe(BufReader<File>),
    /// A thread that reads the child's output, logs its notes, and passes on its answers.
    Thread(Receiver<Answer>),
}

/// A thread that waits for the output of a network process, which it then reads.
pub(crate) type Listener = WaitingThread<Output>;

/// The output of a network process, and the place of its answers.
pub(crate) struct Output {
    pipe: BufReader<File>,
    answers: SyncSender<Answer>,
    has_ended: Arc<AtomicBool>,
}

impl Output {
    /// Logs notes, and passes answers on, until the process ends.
    fn pass_on(mut self) {
        while let Some(answer) = read(&mut self.pipe) {
            match answer {
                Answer::Note(note) => tracing::warn!("{note}"),
                answer => {
                    if self.answers.send(answer).is_err() {
                        return;
                    }
                }
            }
        }
        self.has_ended.store(true, Ordering::Relaxed);
    }
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
        let to = child.stdin.take().context("the child has no input")?;
        let from = child.stdout.take().context("the child has no output")?;
        Ok(Self::over(Owner::Parent(child), to.into(), from.into()))
    }

    /// A handle of the network process of another daemon, with the descriptors of
    /// its pipes. It changes nothing before [`Network::begin`].
    pub fn adopt([to, from]: [OwnedFd; 2]) -> Self {
        Self::over(Owner::Other, to, from)
    }

    fn over(owner: Owner, to: OwnedFd, from: OwnedFd) -> Self {
        let from = From::Pipe(BufReader::new(from.into()));
        Self {
            owner,
            to: Some(Arc::new(to.into())),
            from,
            answer_wait: ANSWER_WAIT_MAX,
            late: 0,
            has_ended: Arc::default(),
        }
    }

    /// Returns the pipes to and from the process, for another daemon. Call it before
    /// [`Network::listen_by`].
    ///
    /// # Errors
    /// An error of the operating system, if there is no free descriptor.
    pub(crate) fn pipes(&self) -> io::Result<Pipes> {
        match (&self.to, &self.from) {
            (Some(to), From::Pipe(from)) => Pipes::of(to, from.get_ref()),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Takes the process over from another daemon, which has ended: from now on this process has to
    /// end it. Routes stay until the next [`Request::Apply`].
    ///
    /// # Errors
    /// If the process has ended.
    pub fn begin(&mut self) -> Result<()> {
        self.owner = Owner::Heir;
        let number = srd_net::Clock::new().now().as_nanos();
        // Ends a line that the other daemon may not have completed.
        self.write_text("\n")?;
        self.write(&Request::Begin(number))?;
        let From::Pipe(pipe) = &mut self.from else { bail!("it is listened to already") };
        // The other daemon may have left answers, at most one for each of its requests.
        for _ in 0..ANSWERS_LEFT_MAX {
            match read(pipe) {
                Some(Answer::Begun(of)) if of == number => return Ok(()),
                Some(Answer::Note(note)) => tracing::warn!("{note}"),
                Some(_) => {}
                None => bail!(GONE),
            }
        }
        bail!("the network process does not answer")
    }

    /// Sends a request to the child, and waits for its answer.
    ///
    /// # Errors
    /// The reason of the child's refusal, that the child has ended, or that it has not answered in
    /// time. The child may still carry out a request that it has not answered.
    pub fn ask(&mut self, request: &Request) -> Result<()> {
        // If the child has ended, the write fails, but the child's output may still contain the
        // reason.
        let written = self.write(request);
        loop {
            match self.next_answer(written.is_ok())? {
                Answer::Note(note) => tracing::warn!("{note}"),
                Answer::Begun(_) => {}
                // An answer to an earlier request.
                Answer::Done | Answer::Failed(_) if self.late > 0 => self.late -= 1,
                Answer::Done => return written,
                Answer::Failed(why) => bail!(why),
            }
        }
    }

    /// Waits for the next message. With `is_sent`, an answer that does not come in time is counted
    /// as late.
    fn next_answer(&mut self, is_sent: bool) -> Result<Answer> {
        match &mut self.from {
            From::Pipe(pipe) => read(pipe).context(GONE),
            From::Thread(answers) => match answers.recv_timeout(self.answer_wait) {
                Ok(answer) => Ok(answer),
                Err(RecvTimeoutError::Disconnected) => bail!(GONE),
                Err(RecvTimeoutError::Timeout) => {
                    self.late += usize::from(is_sent);
                    let wait_s = self.answer_wait.as_secs_f64();
                    bail!("the network process has not answered for {wait_s} s")
                }
            },
        }
    }

    fn write(&mut self, request: &Request) -> Result<()> {
        let mut text = serde_json::to_string(request).context("the request as JSON")?;
        text.push('\n');
        self.write_text(&text)
    }

    fn write_text(&mut self, text: &str) -> Result<()> {
        let mut to: &File = self.to.as_deref().context(GONE)?;
        to.write_all(text.as_bytes()).context(GONE)
    }

    /// Returns a flag that becomes true when the child ends. The flag works only after
    /// [`Network::listen_by`].
    pub(crate) fn has_ended(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.has_ended)
    }

    /// Starts a thread for [`Network::listen_by`]. Call it after privileges were dropped, because a
    /// thread keeps the privileges with which it was started.
    ///
    /// # Errors
    /// The operating system's error.
    pub(crate) fn listener() -> io::Result<Listener> {
        WaitingThread::start("srd-network", Output::pass_on)
    }

    /// Lets the thread log the child's notes, and pass on its answers.
    pub(crate) fn listen_by(mut self, listener: Listener) -> Self {
        let (answers, receiver) = mpsc::sync_channel(1);
        match std::mem::replace(&mut self.from, From::Thread(receiver)) {
            From::Pipe(pipe) => {
                let has_ended = Arc::clone(&self.has_ended);
                listener.begin(Output { pipe, answers, has_ended });
            }
            // It is listened to already.
            from @ From::Thread(_) => self.from = from,
        }
        self
    }
}

/// Reads the next message; `None` at the end of the pipe. Skips lines that are no messages, such as
/// the second half of a line of which another daemon has read the first half.
fn read(pipe: &mut BufReader<File>) -> Option<Answer> {
    loop {
        let mut line = Vec::new();
        let most = LINE_BYTES_MAX as u64 + 1;
        if pipe.by_ref().take(most).read_until(b'\n', &mut line).ok()? == 0 {
            return None;
        }
        match serde_json::from_slice(&line) {
            Ok(answer) => return Some(answer),
            Err(error) => tracing::warn!("a line of the network process is skipped: {error}"),
        }
    }
}

impl Drop for Network {
    /// Closes the pipe to the child, which then deletes the interface and removes routes and rules.
    /// Waits until the child has ended. The process of another daemon goes on.
    fn drop(&mut self) {
        self.to = None;
        match (&mut self.owner, &mut self.from) {
            (Owner::Parent(child), _) => drop(child.wait()),
            (Owner::Heir, From::Pipe(pipe)) => while read(pipe).is_some() {},
            (Owner::Heir, From::Thread(answers)) => while answers.recv().is_ok() {},
            (Owner::Other, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Returns a network process of another daemon, and its ends of the two pipes.
    fn other() -> (Network, BufReader<File>, File) {
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let ((requests, to), (from, answers)) = (pipe(), pipe());
        (Network::adopt([to, from]), BufReader::new(requests.into()), answers.into())
    }

    #[test]
    fn answers_for_the_daemon_before_are_not_taken_for_own_ones() {
        let (mut network, mut requests, mut answers) = other();
        // The daemon before has sent a request and a part of another one, and has read no answer.
        network.write_text("\"Apply\"\n\"App").unwrap();
        let serves = thread::spawn(move || {
            let mut lines = Vec::new();
            let mut line = String::new();
            while requests.read_line(&mut line).unwrap() > 0 {
                let answer = match serde_json::from_str(&line) {
                    Ok(Request::Begin(number)) => Answer::Begun(number),
                    Ok(_) => Answer::Done,
                    Err(_) => Answer::Failed("no request".into()),
                };
                writeln!(answers, "{}", serde_json::to_string(&answer).unwrap()).unwrap();
                lines.push(std::mem::take(&mut line));
            }
            lines
        });
        network.begin().unwrap();
        network.ask(&Request::Apply).unwrap();
        // These pipes are for a further daemon, and do not keep the process.
        let pipes = network.pipes().unwrap();
        assert!(pipes.descriptors().unwrap().is_some());
        // The process ends when its new daemon ends, which waits for it.
        drop(network);
        assert!(pipes.descriptors().unwrap().is_none());
        let lines = serves.join().unwrap();
        assert_eq!((lines.len(), lines[1].as_str()), (4, "\"App\n"));
    }

    #[test]
    fn regression_the_rest_of_a_line_that_the_daemon_before_has_begun_to_read_is_skipped() {
        let (mut network, mut requests, mut answers) = other();
        answers.write_all(b"of a note\"}\n\"Done\"\n").unwrap();
        let serves = thread::spawn(move || {
            let mut line = String::new();
            while requests.read_line(&mut line).unwrap() > 0 {
                if let Ok(Request::Begin(number)) = serde_json::from_str(&line) {
                    let answer = serde_json::to_string(&Answer::Begun(number)).unwrap();
                    writeln!(answers, "{answer}").unwrap();
                }
                line.clear();
            }
        });
        network.begin().unwrap();
        drop(network);
        serves.join().unwrap();
    }

    #[test]
    fn regression_a_late_answer_is_not_taken_for_the_answer_to_the_next_request() {
        let (mut network, mut requests, mut answers) = other();
        network.answer_wait = Duration::from_millis(10);
        let mut network = network.listen_by(Network::listener().unwrap());
        let slow = network.ask(&Request::Apply).unwrap_err().to_string();
        assert!(slow.contains("has not answered for 0.01 s"), "{slow}");
        network.answer_wait = ANSWER_WAIT_MAX;
        let serves = thread::spawn(move || {
            let mut line = String::new();
            for answer in [Answer::Failed("of the first request".into()), Answer::Done] {
                requests.read_line(&mut line).unwrap();
                writeln!(answers, "{}", serde_json::to_string(&answer).unwrap()).unwrap();
            }
            (requests, answers)
        });
        network.ask(&Request::Apply).unwrap();
        drop(serves.join().unwrap());
        let ended = network.ask(&Request::Apply).unwrap_err().to_string();
        assert_eq!(ended, GONE);
    }

    #[test]
    fn the_process_of_another_daemon_goes_on_until_it_is_taken_over() {
        let (network, _requests, _answers) = other();
        // With a wait for the end of the process, this call would not return.
        drop(network);
        let (mut network, requests, answers) = other();
        drop((requests, answers));
        assert!(network.begin().unwrap_err().to_string().contains("has ended"));
    }
}
