//! The process that keeps a card running, and removes the objects of the card after the end of its
//! server.
//!
//! The keeper ends when its standard input ends. It then ends the card in order, ends programs that
//! are left in namespaces of the card, and removes the card's directory.

use std::io::{Read, copy, sink, stdin};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use rustix::process::Signal;
use srd_trust::process::Process;

use super::directory::Directory;
use crate::failure;
use crate::output::tell;

/// Longest time for the card to end in order. It ends programs within ten seconds.
const CARD_END_MAX: Duration = Duration::from_secs(20);
/// Longest time for a keeper to end.
pub(super) const KEEPER_END_MAX: Duration = Duration::from_secs(30);
/// Pause before the card or its keeper starts again, which doubles with each failure.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Longest pause before the card or its keeper starts again.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Time after which a running card or keeper counts as successful. If it ends later than this, its
/// end is the first failure of a new series, so the pause begins again at [`PAUSE_MIN`].
const LIFE_MIN: Duration = Duration::from_secs(60);
/// Pause between two checks of the end of a process.
const CHECK_PAUSE: Duration = Duration::from_millis(10);

/// Arguments of `srd control-keeper`.
#[derive(Args, Clone, Debug)]
pub(crate) struct KeeperArgs {
    /// The directory of the card.
    directory: PathBuf,
}

/// A keeper that this process has started. It ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Keeper {
    program: PathBuf,
    directory: PathBuf,
    /// `None` after [`Keeper::end`].
    input: Mutex<Option<ChildStdin>>,
    started: Mutex<Started>,
}

/// The last start of a keeper.
#[derive(Debug)]
struct Started {
    process: Child,
    at: Instant,
    /// Shortest time from this start to the next one.
    pause: Duration,
    /// Whether there was a keeper before.
    is_again: bool,
}

/// Starts the process of a keeper. Returns its standard input, and the process.
fn spawn(program: &Path, directory: &Path) -> Result<(Option<ChildStdin>, Child)> {
    let mut command = Command::new(program);
    // In a separate process group, the keeper does not receive the signals of the terminal.
    command.arg("control-keeper").arg(directory).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let process = super::program::start(&mut command);
    let mut process = process.context("the keeper of the card cannot be started")?;
    Ok((process.stdin.take(), process))
}

impl Keeper {
    /// Starts the keeper of a directory that contains a VPC's file.
    pub(super) fn start(directory: &Path) -> Result<Self> {
        Self::of(std::env::current_exe().context("where is this program")?, directory)
    }

    fn of(program: PathBuf, directory: &Path) -> Result<Self> {
        let (input, process) = spawn(&program, directory)?;
        let (at, pause) = (Instant::now(), PAUSE_MIN);
        let started = Mutex::new(Started { process, at, pause, is_again: false });
        let directory = directory.to_owned();
        Ok(Self { program, directory, input: Mutex::new(input), started })
    }

    /// Returns whether the keeper runs. If a signal has ended it, such as that of the kernel when
    /// memory is short, it starts again; it counts as running in the pause before its start. The
    /// card of the former keeper ends meanwhile, with the programs of its instances. Nothing is
    /// started after [`Keeper::end`], or if the keeper has exited, which it does if its card does
    /// not start.
    pub(super) fn keeps_running(&self) -> bool {
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        let signal = match started.process.try_wait() {
            Ok(None) => return true,
            Ok(Some(status)) if input.is_some() => status.signal(),
            _ => None,
        };
        let Some(signal) = signal else { return false };
        let age = started.at.elapsed();
        if age < started.pause {
            return true;
        }
        tell!("srd: signal {signal} has ended the keeper of the card, which starts again");
        match spawn(&self.program, &self.directory) {
            Ok((new, process)) => {
                let longer = (started.pause * 2).min(PAUSE_MAX);
                let pause = if age > LIFE_MIN { PAUSE_MIN } else { longer };
                *input = new;
                *started = Started { process, at: Instant::now(), pause, is_again: true };
                true
            }
            Err(error) => {
                tell!("srd: {error:#}");
                false
            }
        }
    }

    /// Whether the card of a killed keeper may still answer. It ends, and cannot do everything any
    /// more.
    pub(super) fn may_have_former_card(&self) -> bool {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = started.is_again && started.at.elapsed() < CARD_END_MAX;
        is_new || !matches!(started.process.try_wait(), Ok(None))
    }

    /// Whether the keeper has ended, and does not start again.
    pub(super) fn is_over(&self) -> bool {
        let input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        match started.process.try_wait() {
            Ok(None) => false,
            Ok(Some(status)) => input.is_none() || status.signal().is_none(),
            Err(_) => true,
        }
    }

    /// Makes the keeper end, and does not wait for its end.
    pub(super) fn end(&self) {
        drop(self.input.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Whether the process of the keeper has ended.
    fn has_ended(&self) -> bool {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        !matches!(started.process.try_wait(), Ok(None))
    }

    /// Waits for the end, at most until this time.
    pub(super) fn wait(&self, until: Instant) {
        while !self.has_ended() && Instant::now() < until {
            thread::sleep(CHECK_PAUSE);
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end();
        self.wait(Instant::now() + KEEPER_END_MAX);
    }
}

/// Events of a keeper.
enum Event {
    /// The server has ended.
    End,
    /// The card has ended.
    Card(ExitStatus),
}

/// Runs the keeper.
pub(crate) fn run(args: &KeeperArgs) -> Result<u8> {
    let directory = Directory::enter(&args.directory)?;
    let (events, next) = channel();
    let end = events.clone();
    let wait = move || {
        let _ = copy(&mut stdin(), &mut sink());
        let _ = end.send(Event::End);
    };
    thread::Builder::new().name("srd-input".into()).spawn(wait).context("a thread")?;
    let ended = keep(&directory, &events, &next);
    end_programs(&directory);
    directory.remove();
    ended
}

/// Runs cards until the server ends. If the first card does not start, returns its exit code.
fn keep(directory: &Directory, events: &Sender<Event>, next: &Receiver<Event>) -> Result<u8> {
    let mut pause = PAUSE_MIN;
    let mut has_run = false;
    loop {
        let began = Instant::now();
        let mut card = Card::start(directory, events)?;
        let status = match next.recv() {
            Ok(Event::Card(status)) => status,
            Ok(Event::End) | Err(_) => {
                card.end(next);
                return Ok(0);
            }
        };
        has_run |= card.is_ready.load(Ordering::Relaxed);
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        if let (false, Some(code)) = (has_run, code.filter(|code| *code > failure::RUN)) {
            return Ok(code);
        }
        if began.elapsed() > LIFE_MIN {
            pause = PAUSE_MIN;
        }
        let wait = pause.as_millis();
        tell!("srd: the card has ended ({status}) and starts again in {wait} ms");
        match next.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => pause = (pause * 2).min(PAUSE_MAX),
            _ => return Ok(0),
        }
    }
}

/// A card that runs.
struct Card {
    input: Option<ChildStdin>,
    process: Option<Process>,
    /// Whether the card has printed that it is ready.
    is_ready: Arc<AtomicBool>,
}

impl Card {
    fn start(directory: &Directory, events: &Sender<Event>) -> Result<Self> {
        let program = std::env::current_exe().context("where is this program")?;
        let mut command = Command::new(program);
        command.args(["card", "up", "--end-with-input", "--end-programs", "--socket"]);
        command.arg(directory.socket()).arg("--").arg(directory.vpc());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // If the server is a service, it does not become ready when the card does.
        command.env_remove("NOTIFY_SOCKET");
        let mut card = command.spawn().context("the card cannot be started")?;
        let (input, output) = (card.stdin.take(), card.stdout.take());
        let process = Process::open(card.id()).ok();
        let ended = events.clone();
        let is_ready = Arc::new(AtomicBool::new(false));
        let ready = Arc::clone(&is_ready);
        let wait = move || {
            if let Some(mut output) = output {
                let has_begun = output.read_exact(&mut [0]).is_ok();
                ready.store(has_begun, Ordering::Relaxed);
                let _ = copy(&mut output, &mut sink());
            }
            if let Ok(status) = card.wait() {
                let _ = ended.send(Event::Card(status));
            }
        };
        thread::Builder::new().name("srd-card".into()).spawn(wait).context("a thread")?;
        Ok(Self { input, process, is_ready })
    }

    /// Ends the card in order; if it does not end, kills it.
    fn end(&mut self, next: &Receiver<Event>) {
        drop(self.input.take());
        let until = Instant::now() + CARD_END_MAX;
        loop {
            match next.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Event::Card(_)) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(Event::End) => {}
                Err(RecvTimeoutError::Timeout) => break,
            }
        }
        tell!("srd: the card does not end, and is killed");
        if let Some(process) = &self.process {
            let _ = process.send(Signal::KILL);
        }
        let _ = next.recv_timeout(CARD_END_MAX);
    }
}

/// Ends programs in the namespaces of the instances of the VPC's file, and removes the namespaces.
/// A card does so at its end; this is for a card that was killed.
fn end_programs(directory: &Directory) {
    let mut text = String::new();
    let file = std::fs::File::open(directory.vpc());
    if file.and_then(|mut file| file.read_to_string(&mut text)).is_err() {
        return;
    }
    let Ok(file) = srd_vpc_file::parse(&text, &directory.vpc()) else { return };
    for instance in file.world.instances.values() {
        let name = format!("srd-i-{}", instance.name);
        let namespace = Path::new("/run/netns").join(&name);
        if !namespace.exists() {
            continue;
        }
        let ip = |words: &[&str]| Command::new("ip").args(words).stderr(Stdio::null()).output();
        if let Ok(pids) = ip(&["netns", "pids", &name]) {
            let pids = String::from_utf8_lossy(&pids.stdout).into_owned();
            for pid in pids.lines().filter_map(|pid| pid.trim().parse().ok()) {
                kill_inside(&namespace, pid);
            }
        }
        let _ = ip(&["netns", "del", &name]);
    }
}

/// Kills a process if it is in a network namespace: since it was listed, a process outside may have
/// got its number. Returns whether it was killed.
fn kill_inside(namespace: &Path, pid: u32) -> bool {
    let Ok(process) = Process::open(pid) else { return false };
    // The process has ended if the number is that of another process from here on.
    let own = Path::new("/proc").join(pid.to_string()).join("ns/net");
    let of = |path: &Path| path.metadata().map(|facts| (facts.dev(), facts.ino())).ok();
    let wanted = of(namespace);
    let is_inside = wanted.is_some() && of(&own) == wanted;
    is_inside && process.send(Signal::KILL).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A keeper whose program is this script.
    fn keeper(directory: &Path, script: &str) -> Keeper {
        let program = directory.join("keeper");
        crate::node::program::write(&program, script.as_bytes()).unwrap();
        Keeper::of(program, directory).unwrap()
    }

    /// A keeper that runs until its input ends.
    fn waiting(directory: &Path) -> Keeper {
        keeper(directory, "#!/bin/sh\nexec cat\n")
    }

    fn kill(keeper: &Keeper) {
        let mut started = keeper.started.lock().unwrap();
        started.process.kill().unwrap();
        started.process.wait().unwrap();
    }

    /// If two threads found a killed keeper, one of them started it again. The other one reported
    /// that it had ended, and the card was given up.
    #[test]
    fn regression_a_killed_keeper_runs_for_all_threads_that_ask() {
        let directory = tempfile::tempdir().unwrap();
        let keeper = waiting(directory.path());
        for _ in 0..10 {
            kill(&keeper);
            keeper.started.lock().unwrap().pause = Duration::ZERO;
            thread::scope(|scope| {
                let ask = || keeper.keeps_running();
                let all: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
                assert!(all.into_iter().all(|of| of.join().unwrap()));
            });
            assert!(!keeper.has_ended());
        }
    }

    /// A keeper that was killed at once each time was started without a pause. While it did not
    /// run, the end of the server did not wait for it.
    #[test]
    fn regression_a_killed_keeper_pauses_and_is_not_over() {
        let directory = tempfile::tempdir().unwrap();
        let keeper = waiting(directory.path());
        keeper.started.lock().unwrap().pause = Duration::from_secs(3600);
        kill(&keeper);
        assert!(keeper.keeps_running() && keeper.has_ended() && !keeper.is_over());
        assert!(keeper.may_have_former_card());
        keeper.started.lock().unwrap().pause = Duration::ZERO;
        assert!(keeper.keeps_running() && !keeper.has_ended() && !keeper.is_over());
        assert!(keeper.may_have_former_card());
        keeper.started.lock().unwrap().is_again = false;
        assert!(!keeper.may_have_former_card());
        kill(&keeper);
        keeper.end();
        assert!(!keeper.keeps_running() && keeper.is_over());
    }

    #[test]
    fn a_keeper_that_exits_does_not_start_again() {
        let directory = tempfile::tempdir().unwrap();
        let keeper = keeper(directory.path(), "#!/bin/sh\nexit 2\n");
        keeper.wait(Instant::now() + KEEPER_END_MAX);
        assert!(!keeper.keeps_running() && keeper.is_over());
    }

    /// A process outside that had got the number of one inside was killed.
    #[test]
    fn regression_only_a_process_in_the_namespace_is_killed() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id();
        assert!(!kill_inside(Path::new("/proc/self/ns/uts"), pid), "another namespace");
        assert!(!kill_inside(Path::new("/proc/self/ns/none"), pid));
        assert!(child.try_wait().unwrap().is_none());
        assert!(kill_inside(Path::new("/proc/self/ns/net"), pid));
        assert!(!child.wait().unwrap().success());
        assert!(!kill_inside(Path::new("/proc/self/ns/net"), pid), "it has ended");
    }
}
