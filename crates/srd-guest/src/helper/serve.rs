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
use rustix::net::{Shutdown, shutdown};
use rustix::process::geteuid;
use srd_daemon::handover::wire::parts_of;
use srd_trust::closing::Closing;
use srd_trust::privileges;

use super::files::{Files, Reloaded};
use super::holds::Holds;
use super::upkeep::{self, Notices};
use super::wire::{self, Received, Receiver};
use super::{Answer, CARDS_MAX, JOBS_MAX, Message, Request, STILL_CLOSING, Spec};
use crate::control::protocol::NamespaceName;
use crate::failure::Missing;
use crate::machine::{edge, locks};
use crate::traffic::turns::raise_descriptors;
use crate::{interfaces::kernel_counts, machine::place};

/// Time between two checks of those settings of the machine of whose changes the kernel does not
/// notify the helper.
const TEND_EVERY: Duration = Duration::from_secs(1);

/// Longest wait for space for an answer. The card has a thread that does nothing but read answers.
const ANSWER_TAKEN_MAX: Duration = Duration::from_secs(30);
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
    // The kernel itself closes descriptors for which there is no space, while this process receives
    // them. All connections together may bring more than the usual limit.
    raise_descriptors();
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
    // The card sends nothing more before the answer.
    wire::name_users(card)?;
    let spec = Spec { publics: serde_json::from_slice(&publics)?, ..spec };
    let directory = Path::new(locks::DIRECTORY);
    let lock = locks::keep(directory)?;
    locks::wait_for_keepers(directory);
    edge::clean_left(directory);
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
    /// A packet has arrived on the connection with this index.
    From(usize),
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

/// A connection of the card, or of a process that takes it over.
struct Connection {
    socket: Arc<OwnedFd>,
    /// Standard error of the process at the other end, until the process has taken the card over.
    output: Option<OwnedFd>,
}

impl Connection {
    fn new(socket: OwnedFd) -> Self {
        Self { socket: Arc::new(socket), output: None }
    }
}

/// State of the helper's loop.
pub(super) struct Helping {
    spec: Arc<Spec>,
    files: Files,
    /// Connections of the card, and of processes that take it over: at most [`CARDS_MAX`].
    cards: Vec<Connection>,
    /// Descriptors that other processes have sent, and connections in whose queues more of them may
    /// wait. Closing them may block.
    closing: Closing,
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
        wire::name_users(&card)?;
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
        let (cards, last, tended) = (vec![Connection::new(card)], None, Instant::now());
        let closing = Closing::default();
        Ok(Self { spec, files, cards, closing, last, jobs, notices, tended, upkeep, thread })
    }

    /// Executes requests until all connections are closed by their other ends, then gives
    /// everything back. Returns this end of the last connection, whose other end waits until it is
    /// closed.
    pub(super) fn run(mut self) -> Result<Option<Arc<OwnedFd>>> {
        let mut receiver = Receiver::new();
        loop {
            let at = match self.wait() {
                Ok(Next::From(at)) => at,
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
            match receiver.next::<Request>(&*self.cards[at].socket) {
                Ok(Some(received)) => self.obey(at, received),
                // A closed and a broken connection are handled alike.
                Ok(None) | Err(_) => self.close(at),
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
        let fds = all.iter().map(|of| PollFd::new(&*of.socket, PollFlags::IN));
        let notices = notices.map(|notices| PollFd::new(notices, PollFlags::IN));
        let mut fds: Vec<PollFd<'_>> = fds.chain(notices).collect();
        match poll(&mut fds, pause.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = fds.iter().position(|fd| !fd.revents().is_empty());
        Ok(match ready {
            Some(at) if at < all.len() => Next::From(at),
            Some(_) => Next::Tend,
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

    /// Closes a connection, in whose queue descriptors of its other end may wait.
    fn close(&mut self, at: usize) {
        let Connection { socket, output } = self.cards.remove(at);
        self.close_later(output);
        match self.cards.is_empty() {
            true => self.last = Some(socket),
            // A request of this connection that is still being executed has the socket as well.
            false => self.close_later(Arc::into_inner(socket)),
        }
    }

    fn close_later(&mut self, descriptors: impl IntoIterator<Item = OwnedFd>) {
        self.closing.add(descriptors);
        // This starts the thread that closes them.
        self.closing.is_done();
    }

    fn obey(&mut self, at: usize, received: Received<Request>) {
        let Received { message, mut descriptors, user } = received;
        if !descriptors.is_empty() {
            let is_output = matches!(&message, Ok(Message { body: Some(Request::Output), .. }));
            let may = user.is_some_and(|of| of == 0 || of == geteuid().as_raw());
            let output = descriptors.pop();
            if !is_output || !may || !descriptors.is_empty() || !self.closing.is_done() {
                tracing::error!(
                    "a card has sent descriptors, which no request of a card has: its connection \
                     is closed. A guest may have taken control of the card"
                );
                self.close_later(descriptors.into_iter().chain(output));
                // The thread that closes the connection may have to close those first.
                let _ = shutdown(&*self.cards[at].socket, Shutdown::Both);
                return self.close(at);
            }
            let former = std::mem::replace(&mut self.cards[at].output, output);
            self.close_later(former);
        }
        let from = Arc::clone(&self.cards[at].socket);
        let (id, request) = match message {
            Ok(Message { id, body: Some(request) }) => (id, request),
            Ok(Message { id, body: None }) => return say(&from, id, refused("no request")),
            Err(what) => return say(&from, 0, refused(what)),
        };
        if let Err(error) = request.check(&self.spec, self.files.publics()) {
            return say(&from, id, Err(error));
        }
        match self.at_once(at, request) {
            Ok(said) => say(&from, id, said),
            Err(request) => {
                let job = Job { id, request, back: from };
                // If the queue is full, the helper waits, and so does the thread of the card that
                // has sent the request.
                let _ = self.jobs.send(Work::Job(job));
            }
        }
    }

    /// Executes a request that needs no other thread. Returns any other request as an error.
    fn at_once(&mut self, at: usize, request: Request) -> Result<Result<Reply>, Request> {
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
            Request::Output if self.cards[at].output.is_none() => refused("no descriptor"),
            Request::Output => Ok(done()),
            Request::Renew => self.renew(at).map(|()| done()),
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

    /// Continues for the process at the other end of a connection, which has taken the node over.
    fn renew(&mut self, at: usize) -> Result<()> {
        if let Some(output) = self.cards[at].output.take() {
            let replaced = self.files.add_output(output.as_fd());
            let replaced = replaced.and_then(|()| Ok(srd_net::raw::replace_stderr(&output)?));
            if let Err(error) = replaced {
                tracing::warn!("messages stay in the log of the process before: {error:#}");
            }
            self.close_later([output]);
        }
        match self.spec.config {
            Some(_) => self.files.renew(&self.spec),
            None => Ok(()),
        }
    }

    /// Creates a further connection, for a process that takes the node over.
    fn another(&mut self) -> Result<Reply> {
        if self.cards.len() >= CARDS_MAX {
            bail!("{CARDS_MAX} processes have this helper already");
        }
        // Otherwise the number of descriptors that wait to be closed would have no bound.
        if !self.closing.is_done() {
            bail!(STILL_CLOSING);
        }
        let (end, other) = wire::pair()?;
        wire::name_users(&end)?;
        self.cards.push(Connection::new(end));
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
    say_within(to, id, said, ANSWER_TAKEN_MAX);
}

/// Sends an answer. A connection without space for it until the end of this time is closed:
/// otherwise a card that reads nothing would keep the helper from its other work.
pub(super) fn say_within(to: &OwnedFd, id: u64, said: Result<Reply>, wait: Duration) {
    let (answer, descriptors) = said.unwrap_or_else(|error| (failed(&error), Vec::new()));
    let all: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    let message = Message { id, body: Some(answer) };
    let sent = match wire::send(to, &message, &all, wait) {
        // Without an answer, the card would wait until its limit.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            let answer = failed(&anyhow::Error::new(error).context("the answer is too long"));
            let message = Message { id, body: Some(answer) };
            wire::send(to, &message, &[], wait)
        }
        sent => sent,
    };
    match sent {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            tracing::error!("a card does not read answers: its connection is closed");
            let _ = shutdown(to, Shutdown::Both);
        }
        // Usually the card has ended.
        Err(error) => tracing::debug!("an answer to {}: {error}", to.as_raw_fd()),
    }
}

/// Body of the thread that executes one task after the other. Returns the objects at the end.
fn work(mut holds: Holds, queue: &Jobs<Work>) -> Holds {
    // Connections that the loop has closed meanwhile.
    let mut closing = Closing::default();
    for work in queue {
        match work {
            Work::Job(Job { id, request, back }) => {
                say(&back, id, holds.obey(request));
                closing.add(Arc::into_inner(back));
                closing.is_done();
            }
            Work::Tend { rules } => holds.tend(rules),
        }
    }
    holds
}
