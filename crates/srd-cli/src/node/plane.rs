//! Applying new versions of the VPC file to the card of a region.
//!
//! Each change of the region gives a new text of the VPC file. The texts are numbered and applied
//! one at a time. A newer text replaces one that waits. The card reads the VPC file when it starts,
//! so a card that starts again uses the newest text.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use srd_control::plane::{Applied, DataPlane, PlaneStatus, printable};
use srd_guest::Client;
use srd_guest::client::Refused;
use srd_guest::protocol::{Answer, Request};

use super::directory::Directory;
use super::keeper::Keeper;
use super::script::Scripts;
use crate::output::tell;

/// Longest time that a request waits for its change.
const APPLY_WAIT_MAX: Duration = Duration::from_secs(2);
/// Pause between two attempts to reach a card that starts.
const CONNECT_PAUSE: Duration = Duration::from_millis(2);
/// Pause before a change is sent again that the card of a killed keeper has refused.
const FORMER_PAUSE: Duration = Duration::from_millis(200);
/// Time after which a card that does not answer is reported.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Pause between two checks whether the keeper runs.
const KEEPER_CHECK_PAUSE: Duration = Duration::from_secs(5);
/// Largest number of scripts that wait for their instances.
const SCRIPTS_MAX: usize = 1024;

/// A file without instances. Without a file, the card would have EC2's default VPC.
const NOTHING: &str = "[vpc.none]\ncidr = [\"192.168.0.0/28\"]\n";

/// Number in the name of the next directory.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The card of a region.
#[derive(Debug)]
pub(super) struct CardPlane {
    shared: Arc<Shared>,
    keeper: Arc<Keeper>,
    flow_logs: PathBuf,
}

#[derive(Debug)]
struct Shared {
    directory: Directory,
    keeper: Arc<Keeper>,
    scripts: Scripts,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the newest text of the VPC file.
    newest: u64,
    /// The newest text of the VPC file, until the thread that applies it takes it.
    text: Option<String>,
    /// Number of the text of the VPC file that the card applied or refused last, and the reason if
    /// it was refused.
    decided: u64,
    refused: Option<String>,
    /// Scripts of instances, each with the number of the text of the VPC file that contains its
    /// instance.
    scripts: Vec<(u64, String, Vec<u8>)>,
    /// Cause of the end.
    failed: Option<String>,
    ends: bool,
}

impl CardPlane {
    /// Starts the card of a region, without instances.
    pub(super) fn open(account: &str, region: &str) -> Result<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = Directory::create(account, region, number)?;
        directory.write_vpc(NOTHING)?;
        let flow_logs = directory.flow_logs();
        let keeper = Arc::new(Keeper::start(directory.path())?);
        let shared = Arc::new(Shared {
            directory,
            keeper: Arc::clone(&keeper),
            scripts: Scripts::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let own = Arc::clone(&shared);
        let work = move || own.work();
        thread::Builder::new().name("srd-apply".into()).spawn(work).context("a thread")?;
        Ok(Self { shared, keeper, flow_logs })
    }

    pub(super) fn keeper(&self) -> Arc<Keeper> {
        Arc::clone(&self.keeper)
    }
}

impl DataPlane for CardPlane {
    fn apply(&self, text: &str) -> Result<Applied, String> {
        let until = Instant::now() + APPLY_WAIT_MAX;
        let mut state = self.shared.lock();
        state.newest += 1;
        let number = state.newest;
        state.text = Some(text.to_owned());
        self.shared.changed.notify_all();
        loop {
            if let Some(why) = &state.failed {
                return Err(why.clone());
            }
            if state.decided >= number {
                return match &state.refused {
                    Some(why) => Err(why.clone()),
                    None => Ok(Applied::InForce),
                };
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Applied::Pending);
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn run(&self, instance: &str, script: Vec<u8>) -> Result<(), String> {
        let mut state = self.shared.lock();
        if state.scripts.len() == SCRIPTS_MAX {
            return Err(format!("{SCRIPTS_MAX} scripts wait already"));
        }
        let number = state.newest;
        state.scripts.push((number, instance.to_owned(), script));
        self.shared.changed.notify_all();
        Ok(())
    }

    fn status(&self) -> PlaneStatus {
        let state = self.shared.lock();
        match &state.failed {
            Some(why) => PlaneStatus::Failed(why.clone()),
            None if !self.keeper.keeps_running() => {
                PlaneStatus::Failed("its keeper has ended".into())
            }
            None if state.newest == 0 => PlaneStatus::Idle,
            None if state.decided < state.newest => PlaneStatus::Pending,
            None => PlaneStatus::InForce,
        }
    }

    fn end(&self) {
        self.shared.lock().ends = true;
        self.shared.changed.notify_all();
        self.keeper.end();
    }

    fn wait(&self, until: Instant) {
        self.keeper.wait(until);
    }

    fn flow_logs(&self) -> Option<&Path> {
        Some(&self.flow_logs)
    }
}

impl Drop for CardPlane {
    fn drop(&mut self) {
        self.end();
    }
}

/// Prints a text that may contain texts of clients.
fn print(text: &str) {
    tell!("srd: {}", printable(text));
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies texts of the VPC file and starts scripts, until the plane ends.
    fn work(&self) {
        let mut client = None;
        let mut in_force = NOTHING.to_owned();
        loop {
            let mut state = self.lock();
            let (number, text) = loop {
                if state.ends {
                    return;
                }
                if let Some(text) = state.text.take() {
                    break (state.newest, text);
                }
                let decided = state.decided;
                let ready: Vec<_> = state.scripts.extract_if(.., |s| s.0 <= decided).collect();
                if ready.is_empty() {
                    let waited = self.changed.wait_timeout(state, KEEPER_CHECK_PAUSE);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                    // The card of a new keeper reads the file that is in force.
                    self.keeper.keeps_running();
                    continue;
                }
                drop(state);
                ready.into_iter().for_each(|(_, instance, script)| self.begin(&instance, &script));
                state = self.lock();
            };
            drop(state);
            let applied = self.apply_to(&mut client, &text);
            let mut state = self.lock();
            match applied {
                Ok(true) => {
                    in_force = text;
                    (state.decided, state.refused) = (number, None);
                }
                // A newer text is there, or the plane ends.
                Ok(false) => {}
                Err(error) if error.is::<Refused>() => {
                    let _ = self.directory.write_vpc(&in_force);
                    print(&format!("the card refuses a change: {error:#}"));
                    (state.decided, state.refused) = (number, Some(format!("{error:#}")));
                }
                Err(error) => {
                    print(&format!("{error:#}"));
                    state.failed = Some(format!("{error:#}"));
                    self.changed.notify_all();
                    return;
                }
            }
            self.changed.notify_all();
        }
    }

    /// Applies a text of the VPC file, and returns whether it is in force. If the card does not
    /// answer, tries again until a newer text is there, or the keeper (the process that restarts
    /// the card) exits. The refusal of a card that ends is no answer.
    fn apply_to(&self, client: &mut Option<Client>, text: &str) -> Result<bool> {
        self.directory.write_vpc(text)?;
        let request = Request::Apply { file: self.directory.vpc(), removes_all: true };
        let began = Instant::now();
        let mut is_reported = false;
        loop {
            let connected =
                client.take().map_or_else(|| Client::connect(&self.directory.socket()), Ok);
            let asked = connected.and_then(|mut client| {
                let answer = client.ask(&request)?;
                Ok((client, answer))
            });
            let error = match asked {
                Ok((connected, Answer::Applied { .. })) => {
                    *client = Some(connected);
                    return Ok(true);
                }
                Ok(_) => anyhow::anyhow!("the card answers something else"),
                Err(error) if error.is::<Refused>() && !self.keeper.may_have_former_card() => {
                    return Err(error);
                }
                Err(error) => error,
            };
            let pause = if error.is::<Refused>() { FORMER_PAUSE } else { CONNECT_PAUSE };
            if !self.keeper.keeps_running() {
                return Err(error.context("the card could not be started: see the messages before"));
            }
            let state = self.lock();
            if state.ends || state.text.is_some() {
                return Ok(false);
            }
            drop(state);
            if began.elapsed() > SILENCE_MAX && !is_reported {
                is_reported = true;
                print(&format!("warning: the card does not answer: {error:#}"));
            }
            thread::sleep(pause);
        }
    }

    fn begin(&self, instance: &str, script: &[u8]) {
        if let Err(error) = self.scripts.start(&self.directory, instance, script) {
            print(&format!("warning: user data of {instance}: {error:#}"));
        }
    }
}
