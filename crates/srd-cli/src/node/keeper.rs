//! The process that keeps a card running, and removes the objects of the card after the end of its
//! server.
//!
//! The keeper ends when its standard input ends. It then ends the card in order, ends programs that
//! are left in namespaces of the card, and removes the card's directory.

use std::io::{Read, copy, sink, stdin};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
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
/// Pause before the card starts again, which doubles with each failure.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Longest pause before the card starts again.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Time after which a running card counts as successful. If the card ends later than this, its end
/// is the first failure of a new series, so the pause begins again at [`PAUSE_MIN`].
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
    input: Mutex<Option<ChildStdin>>,
    process: Mutex<Child>,
}

impl Keeper {
    /// Starts the keeper of a directory that contains a VPC's file.
    pub(super) fn start(directory: &Path) -> Result<Self> {
        let program = std::env::current_exe().context("where is this program")?;
        let mut command = Command::new(program);
        // In a separate process group, the keeper does not receive the signals of the terminal.
        command.arg("control-keeper").arg(directory).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let process = super::program::start(&mut command);
        let mut process = process.context("the keeper of the card cannot be started")?;
        let input = Mutex::new(process.stdin.take());
        Ok(Self { input, process: Mutex::new(process) })
    }

    /// Makes the keeper end, and does not wait for its end.
    pub(super) fn end(&self) {
        drop(self.input.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Whether the keeper has ended.
    pub(super) fn has_ended(&self) -> bool {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        !matches!(process.try_wait(), Ok(None))
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
