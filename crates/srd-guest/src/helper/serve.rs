//! The helper's loop. Requests come from the card, and from processes that take its node over. A
//! thread executes the requests that create or remove objects, in their order. All
//! other requests are executed at once.

use std::fs::File;
use std::io::{self, stdin};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Jobs, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use srd_daemon::handover::wire::parts_of;
use srd_trust::privileges;

use super::files::{Files, Reloaded};
use super::holds::Holds;
use super::upkeep::{self, Notices};
use super::wire::{self, Received, Receiver};
use super::{Answer, CARDS_MAX, JOBS_MAX, Message, Request, Spec};
use crate::control::protocol::NamespaceName;
use crate::failure::Missing;
use crate::machine::{edge, locks};
use crate::{interfaces::kernel_counts, machine::place};

/// Time between two checks of those settings of the machine of whose changes the kernel does not
/// notify the helper.
const TEND_EVERY: Duration = Duration::from_secs(1);

/// Largest number of characters of a reason, so that every reason fits into an answer.
const REASON_CHARS_MAX: usize = 4096;

/// An answer with its descriptors.
pub(super) type Reply = (Answer, Vec<OwnedFd>);

/// Executes requests of the card at the other end of standard input until the card ends, then
/// removes or restores all objects.
///
/// # Errors
/// An error if the helper lacks a privilege, or its settings are wrong.
pub fn serve() -> Result<()> {
    privileges::keep_helper_only().context("cannot give up privileges")?;
    let card = stdin().as_fd().try_clone_to_owned()?;
    let begun = begin(&card);
    let answer = begun.as_ref().map_or_else(failed, |_| Answer::Done);
    wire::send(&card, &Message { id: 0, body: Some(answer) }, &[], wire::WITHOUT_LIMIT)?;
    let Ok((spec, _lock)) = begun else { return Ok(()) };
    let done = Helping::new(spec, Path::new(locks::DIRECTORY), card).and_then(Helping::run);
    locks::forget_keeper(Path::new(locks::DIRECTORY));
    // The card waits until its connection is closed.
    done.map(drop)
}

/// Prepares the helper before the first request. It waits until the helpers of killed cards have
/// restored all settings; otherwise they would undo settings of this helper.
fn begin(card: &OwnedFd) -> Result<(Spec, File)> {
    let said = Receiver::new().next::<Spec>(card)?.context("the card has ended")?;
    let spec = said.message.map_err(anyhow::Error::msg)?.body.context("no settings")?;
    let publics = said.descriptors.into_iter().next().context("no public addresses")?;
    let [publics] = parts_of(&publics.into())?;
    let spec = Spec { publics: serde_json::from_slice(&publics)?, ..spec };
    let directory = Path::new(locks::DIRECTORY);
    let lock = locks::keep(directory)?;
    locks::wait_for_keepers(directory);
    edge::clean_left();
    Ok((spec, lock))
}

pub(super) fn failed(error: &anyhow::Error) -> Answer {
    let is_missing = error.chain().any(|cause| cause.is::<Missing>()) || error.is::<Missing>();
    let mut what = format!("{error:#}");
    if let Some((end, _)) = what.char_indices().nth(REASON_CHARS_MAX) {
        what.truncate(end);
        what.push_str(" ...");
    }
    Answer::Failed { what, is_missing }
}

/// An event for which the helper's loop waits.
enum Next {
    /// A packet has arrived on this connection.
    From(Arc<OwnedFd>),
    /// Other programs may have changed settings of the machine, which have to be checked.
    Tend,
    /// All connections are closed.
    Over,
}

/// A task of the thread that executes requests.
enum Work {
    Job(Job),
    /// Checks and restores settings of the machine after changes by other programs. `rules`:
    /// whether packet rules may have changed.
    Tend {
        rules: bool,
    },
}

/// A request for the thread, with the connection for its answer.
struct Job {
    id: u64,
    request: Request,
    back: Arc<OwnedFd>,
}

/// State of the helper's loop.
pub(super) struct Helping {
    spec: Arc<Spec>,
    files: Files,
    /// Connections of the card, and of processes that take it over: at most [`CARDS_MAX`].
    cards: Vec<Arc<OwnedFd>>,
    /// The last connection, after its other end has closed it.
    last: Option<Arc<OwnedFd>>,
    jobs: SyncSender<Work>,
    /// The kernel's notices of changes of packet rules; `None` if there is no internet's side, or
    /// the kernel offers no notices.
    notices: Option<Notices>,
    /// Time of the last check for changes by other programs.
    tended: Instant,
    upkeep: upkeep::Shared,
    thread: thread::JoinHandle<Holds>,
}

impl Helping {
    pub(super) fn new(spec: Spec, locks: &Path, card: OwnedFd) -> Result<Self> {
        let (jobs, queue) = sync_channel(JOBS_MAX);
        let spec = Arc::new(spec);
        let upkeep = upkeep::Shared::default();
        let holds = Holds::new(Arc::clone(&spec), locks, upkeep.clone());
        let work = move || work(holds, &queue);
        let thread = thread::Builder::new().name("srd-card-work".into()).spawn(work)?;
        let files = Files::new(&spec)?;
        let notices = spec.internet.then(Notices::open).transpose();
        let notices = notices.unwrap_or_else(|error| {
            let every = TEND_EVERY.as_secs();
            tracing::warn!(
                "no notices of packet rules: {error}; they are looked at each {every} s"
            );
            None
        });
        let (cards, last, tended) = (vec![Arc::new(card)], None, Instant::now());
        Ok(Self { spec, files, cards, last, jobs, notices, tended, upkeep, thread })
    }

    /// Executes requests until all connections are closed by their other ends, then gives
    /// everything back. Returns this end of the last connection, whose other end waits until it is
    /// closed.
    pub(super) fn run(mut self) -> Result<Option<Arc<OwnedFd>>> {
        let mut receiver = Receiver::new();
        loop {
            let from = match self.wait() {
                Ok(Next::From(from)) => from,
                Ok(Next::Tend) => {
                    self.tend();
                    continue;
                }
                Ok(Next::Over) => break,
                Err(error) => {
                    tracing::error!("the helper cannot wait for requests, and ends: {error}");
                    break;
                }
            };
            match receiver.next::<Request>(&*from) {
                Ok(Some(received)) => self.obey(&from, received),
                // A closed and a broken connection are handled alike.
                Ok(None) | Err(_) => self.close(&from),
            }
        }
        let Self { jobs, thread, last, .. } = self;
        drop(jobs);
        let holds = thread.join();
        holds.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).give_back();
        Ok(last)
    }

    /// Waits for a packet on a connection, for a notice of a change, or until the next check is
    /// due.
    fn wait(&self) -> io::Result<Next> {
        let all = &self.cards;
        if all.is_empty() {
            return Ok(Next::Over);
        }
        let is_tended = self.spec.internet;
        let since = self.tended.elapsed();
        let notices = self.notices.iter().filter(|_| is_tended && since >= upkeep::PAUSE);
        let until = if since < upkeep::PAUSE { upkeep::PAUSE } else { TEND_EVERY };
        let pause = is_tended.then(|| until.saturating_sub(since));
        let pause = pause.and_then(|pause| Timespec::try_from(pause).ok());
        let fds = all.iter().map(|fd| PollFd::new(&**fd, PollFlags::IN));
        let notices = notices.map(|notices| PollFd::new(notices, PollFlags::IN));
        let mut fds: Vec<PollFd<'_>> = fds.chain(notices).collect();
        match poll(&mut fds, pause.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = fds.iter().position(|fd| !fd.revents().is_empty());
        Ok(match ready.map(|at| all.get(at)) {
            Some(Some(from)) => Next::From(Arc::clone(from)),
            Some(None) => Next::Tend,
            // The wait may have ended before the next check is due. In this case it starts again.
            None if is_tended && self.tended.elapsed() >= TEND_EVERY => Next::Tend,
            None => return self.wait(),
        })
    }

    /// Makes the thread check and restore settings that other programs may have changed. If the
    /// queue is full, this check is omitted.
    fn tend(&mut self) {
        self.tended = Instant::now();
        let rules = self.notices.as_ref().is_none_or(Notices::drain);
        let _ = self.jobs.try_send(Work::Tend { rules });
    }

    fn close(&mut self, from: &Arc<OwnedFd>) {
        self.cards.retain(|card| !Arc::ptr_eq(card, from));
        if self.cards.is_empty() {
            self.last = Some(Arc::clone(from));
        }
    }

    fn obey(&mut self, from: &Arc<OwnedFd>, received: Received<Request>) {
        let Received { message, .. } = received;
        let (id, request) = match message {
            Ok(Message { id, body: Some(request) }) => (id, request),
            Ok(Message { id, body: None }) => return say(from, id, refused("no request")),
            Err(what) => return say(from, 0, refused(what)),
        };
        if let Err(error) = request.check(&self.spec, self.files.publics()) {
            return say(from, id, Err(error));
        }
        match self.at_once(request) {
            Ok(said) => say(from, id, said),
            Err(request) => {
                let job = Job { id, request, back: Arc::clone(from) };
                // If the queue is full, the helper waits, and so does the thread of the card that
                // has sent the request.
                let _ = self.jobs.send(Work::Job(job));
            }
        }
    }

    /// Executes a request that needs no other thread. Returns any other request as an error.
    fn at_once(&mut self, request: Request) -> Result<Result<Reply>, Request> {
        Ok(match request {
            Request::Ring { namespace, device, entries } if self.has(&namespace) => {
                place::set_tx_ring(&namespace, &device, entries).map(|()| done())
            }
            Request::Ring { namespace, .. } => {
                refused(format!("this card has no namespace {namespace}"))
            }
            Request::Look(of) => Ok((Answer::Upkeep(self.upkeep.look(&of)), Vec::new())),
            Request::Drops(of) => Ok((Answer::Drops(self.drops(of)), Vec::new())),
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
            Request::Another => self.another(),
            Request::Renew => self.files.renew(&self.spec).map(|()| done()),
            request => return Err(request),
        })
    }

    /// Whether a namespace belongs to this card, and not to another card of the machine.
    fn has(&self, namespace: &NamespaceName) -> bool {
        self.upkeep.identity(namespace).is_some()
    }

    /// Returns the numbers of packets that the kernel has dropped at devices of this card; `None`
    /// for other devices.
    fn drops(&self, of: Vec<(NamespaceName, Vec<String>)>) -> Vec<Vec<Option<u64>>> {
        let none: Vec<_> = of.iter().map(|(_, devices)| vec![None; devices.len()]).collect();
        let (places, own): (Vec<usize>, Vec<_>) =
            of.into_iter().enumerate().filter(|(_, (name, _))| self.has(name)).unzip();
        let mut all = none;
        places.into_iter().zip(kernel_counts::read(&own)).for_each(|(at, of)| all[at] = of);
        all
    }

    /// Creates a further connection, for a process that takes the node over.
    fn another(&mut self) -> Result<Reply> {
        if self.cards.len() >= CARDS_MAX {
            bail!("{CARDS_MAX} processes have this helper already");
        }
        let (end, other) = wire::pair()?;
        self.cards.push(Arc::new(end));
        Ok((Answer::Done, vec![other]))
    }
}

pub(super) fn done() -> Reply {
    (Answer::Done, Vec::new())
}

fn refused(what: impl Into<String>) -> Result<Reply> {
    Err(anyhow::Error::msg(what.into()))
}

pub(super) fn say(to: &OwnedFd, id: u64, said: Result<Reply>) {
    let (answer, descriptors) = said.unwrap_or_else(|error| (failed(&error), Vec::new()));
    let all: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    let message = Message { id, body: Some(answer) };
    let sent = match wire::send(to, &message, &all, wire::WITHOUT_LIMIT) {
        // Without an answer, the card would wait until its limit.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            let answer = failed(&anyhow::Error::new(error).context("the answer is too long"));
            let message = Message { id, body: Some(answer) };
            wire::send(to, &message, &[], wire::WITHOUT_LIMIT)
        }
        sent => sent,
    };
    if let Err(error) = sent {
        // Usually the thread that has sent the request does not wait any more.
        tracing::debug!("an answer to {}: {error}", to.as_raw_fd());
    }
}

/// Body of the thread that executes one task after the other. Returns the objects at the end.
fn work(mut holds: Holds, queue: &Jobs<Work>) -> Holds {
    for work in queue {
        match work {
            Work::Job(Job { id, request, back }) => say(&back, id, holds.obey(request)),
            Work::Tend { rules } => holds.tend(rules),
        }
    }
    holds
}
