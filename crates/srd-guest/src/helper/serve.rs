//! The helper's loop: requests come from the card and from an heir; what makes or removes something
//! is done on a thread, in the order of the requests, and the rest at once.

use std::fs::File;
use std::io::{self, stdin};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Jobs, SyncSender, sync_channel};
use std::thread;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, poll};
use srd_trust::privileges;

use super::files::{Files, Reloaded};
use super::holds::Holds;
use super::wire::{self, Received, Receiver};
use super::{Answer, JOBS_MAX, Message, Request, Spec};
use crate::failure::Missing;
use crate::locks;
use crate::{kernel_counts, place};

/// An answer with its descriptors.
pub(super) type Said = (Answer, Vec<OwnedFd>);

/// Answers the card at the other end of standard input until it ends, then gives everything back.
///
/// # Errors
/// Privileges or the settings of the helper are wrong.
pub fn serve() -> Result<()> {
    privileges::keep_helper_only().context("cannot give up privileges")?;
    let card = stdin().as_fd().try_clone_to_owned()?;
    let begun = begin(&card);
    let answer = begun.as_ref().map_or_else(failed, |_| Answer::Done);
    wire::send(&card, &Message { id: 0, body: Some(answer) }, &[], true)?;
    let Ok((spec, _lock)) = begun else { return Ok(()) };
    let done = Helping::new(spec, Path::new(locks::DIRECTORY), card).and_then(Helping::run);
    locks::forget_keeper(Path::new(locks::DIRECTORY));
    done
}

/// What comes before the first request: what helpers of cards that were killed give back, this one
/// would set in vain.
fn begin(card: &OwnedFd) -> Result<(Spec, File)> {
    let said = Receiver::new().next::<Spec>(card)?.context("the card has ended")?;
    let spec = said.message.map_err(anyhow::Error::msg)?.body.context("no settings")?;
    let directory = Path::new(locks::DIRECTORY);
    let lock = locks::keep(directory)?;
    if !spec.takes_over {
        locks::wait_for_keepers(directory);
    }
    Ok((spec, lock))
}

pub(super) fn failed(error: &anyhow::Error) -> Answer {
    let is_missing = error.chain().any(|cause| cause.is::<Missing>()) || error.is::<Missing>();
    Answer::Failed { what: format!("{error:#}"), is_missing }
}

/// A request on its way to the thread.
struct Job {
    id: u64,
    request: Request,
    descriptors: Vec<OwnedFd>,
    back: Arc<OwnedFd>,
}

/// What the loop works on.
pub(super) struct Helping {
    spec: Arc<Spec>,
    files: Files,
    card: Option<Arc<OwnedFd>>,
    heir: Option<Arc<OwnedFd>>,
    jobs: SyncSender<Job>,
    thread: thread::JoinHandle<Holds>,
    /// Another helper has the duty: what this one goes on with are files of flow logs.
    is_forgotten: bool,
}

impl Helping {
    pub(super) fn new(spec: Spec, locks: &Path, card: OwnedFd) -> Result<Self> {
        let (jobs, queue) = sync_channel(JOBS_MAX);
        let spec = Arc::new(spec);
        let holds = Holds::new(Arc::clone(&spec), locks);
        let work = move || work(holds, &queue);
        let thread = thread::Builder::new().name("srd-card-work".into()).spawn(work)?;
        let files = Files::new(&spec);
        let (card, heir) = (Some(Arc::new(card)), None);
        Ok(Self { spec, files, card, heir, jobs, thread, is_forgotten: false })
    }

    /// Obeys until nobody is there any more.
    pub(super) fn run(mut self) -> Result<()> {
        let mut receiver = Receiver::new();
        while let Some(from) = self.wait()? {
            match receiver.next::<Request>(&*from) {
                Ok(Some(received)) => self.obey(&from, received),
                // Closed, or broken: that is the same.
                Ok(None) | Err(_) => self.close(&from),
            }
        }
        let Self { jobs, thread, is_forgotten, .. } = self;
        drop(jobs);
        let holds = thread.join();
        let holds = holds.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        if is_forgotten {
            holds.forget();
        } else {
            holds.give_back();
        }
        Ok(())
    }

    /// Waits for one that says something; none: all are gone.
    fn wait(&self) -> io::Result<Option<Arc<OwnedFd>>> {
        let all: Vec<&Arc<OwnedFd>> = self.card.iter().chain(&self.heir).collect();
        if all.is_empty() {
            return Ok(None);
        }
        let mut fds: Vec<PollFd<'_>> =
            all.iter().map(|fd| PollFd::new(&***fd, PollFlags::IN)).collect();
        while let Err(error) = poll(&mut fds, None) {
            if error != rustix::io::Errno::INTR {
                return Err(error.into());
            }
        }
        let ready = fds.iter().position(|fd| !fd.revents().is_empty());
        Ok(ready.map(|at| Arc::clone(all[at])))
    }

    fn is_heir(&self, from: &Arc<OwnedFd>) -> bool {
        self.heir.as_ref().is_some_and(|heir| Arc::ptr_eq(heir, from))
    }

    fn close(&mut self, from: &Arc<OwnedFd>) {
        if self.is_heir(from) { self.heir = None } else { self.card = None }
    }

    fn obey(&mut self, from: &Arc<OwnedFd>, received: Received<Request>) {
        let Received { message, descriptors } = received;
        let (id, request) = match message {
            Ok(Message { id, body: Some(request) }) => (id, request),
            Ok(Message { id, body: None }) => return say(from, id, refused("no request")),
            Err(what) => return say(from, 0, refused(what)),
        };
        let checked = match request.is_of_heir() == self.is_heir(from) {
            true => request.check(&self.spec),
            false => Err(anyhow::anyhow!("this end may not ask for that")),
        };
        if let Err(error) = checked {
            return say(from, id, Err(error));
        }
        match self.at_once(request) {
            Ok(said) => say(from, id, said),
            Err(request) => {
                let job = Job { id, request, descriptors, back: Arc::clone(from) };
                // It waits for a place: then so does the card's thread that asks.
                let _ = self.jobs.send(job);
            }
        }
    }

    /// Does what is done at once; gives back what is not.
    fn at_once(&mut self, request: Request) -> Result<Result<Said>, Request> {
        Ok(match request {
            Request::Ring { namespace, device, entries } => {
                place::set_tx_ring(&namespace, &device, entries).map(|()| done())
            }
            Request::Drops(of) => Ok((Answer::Drops(kernel_counts::read(&of)), Vec::new())),
            Request::Log { directory, stem, ending } => {
                let opened = self.files.log(&directory, &stem, &ending);
                opened.map(|(file, name)| (Answer::Log(name), vec![file.into()]))
            }
            Request::LogEnded { directory, name, is_whole } => {
                self.files.log_ended(&directory, &name, is_whole).map(|()| done())
            }
            Request::Vpc(path) => {
                self.files.vpc(&path).map(|file| (Answer::Done, vec![file.into()]))
            }
            Request::Reload => self.files.reload(&self.spec).map(|Reloaded { vpc, others }| {
                let (file, vpc) = vpc.unzip();
                (Answer::Reloaded { vpc, others }, file.into_iter().map(OwnedFd::from).collect())
            }),
            Request::Heir => self.heir(),
            Request::Forget => {
                self.is_forgotten = true;
                Ok(done())
            }
            request => return Err(request),
        })
    }

    /// Makes an end for another card, in the place of one before.
    fn heir(&mut self) -> Result<Said> {
        let (end, other) = wire::pair()?;
        self.heir = Some(Arc::new(end));
        Ok((Answer::Done, vec![other]))
    }
}

pub(super) fn done() -> Said {
    (Answer::Done, Vec::new())
}

fn refused(what: impl Into<String>) -> Result<Said> {
    Err(anyhow::Error::msg(what.into()))
}

fn say(to: &OwnedFd, id: u64, said: Result<Said>) {
    let (answer, descriptors) = said.unwrap_or_else(|error| (failed(&error), Vec::new()));
    let all: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    let message = Message { id, body: Some(answer) };
    if let Err(error) = wire::send(to, &message, &all, true) {
        // Nobody waits for it any more, as a rule.
        tracing::debug!("an answer to {}: {error}", to.as_raw_fd());
    }
}

/// The thread: one request after the other.
fn work(mut holds: Holds, queue: &Jobs<Job>) -> Holds {
    for Job { id, request, descriptors, back } in queue {
        say(&back, id, holds.obey(request, descriptors));
    }
    holds
}
