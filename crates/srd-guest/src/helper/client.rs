//! The card's connection to the helper.
//!
//! A request blocks its thread until the answer arrives. So the packet thread sends no requests.
//! They are sent by the thread of [`crate::maker`], by the threads of connections and of flow logs,
//! and at the start of the card. [`Helper::tell`] sends a request that needs no answer, and does
//! not wait for space in the socket either.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::net::{Shutdown, shutdown};
use srd_net::Tun;
use srd_vpc_file::VpcFile;

use super::wire::{self, Receiver};
use super::{
    Answer, DESCRIPTORS_MAX, MADE_AT_ONCE, Meet, Message, NAMED_MAX, PACKET_BYTES_MAX, Request,
    STILL_CLOSING, Upkeep,
};
use crate::control::protocol::NamespaceName;
use crate::failure::Missing;
use crate::machine::namespace::{Device, Namespace};
use crate::machine::place::{InstanceNetwork, NetworkRequest, Places};

/// Longest wait for an answer. The longest request, ending programs, takes ten seconds at most.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(60);
/// Longest wait for an answer that only adds data to the status, which is shown without these data
/// after this time.
const LOOK_WAIT_MAX: Duration = Duration::from_secs(2);
/// Maximum number of requests for a further connection, while the helper refuses it because it
/// closes descriptors; with the pauses, they take about two seconds.
pub(super) const ANOTHER_TRIES_MAX: u32 = 100;
/// Pause after such a refusal.
const ANOTHER_PAUSE: Duration = Duration::from_millis(20);

const GONE: &str = "the helper of this card has ended: end the card, and start it again";

/// The connection to the helper.
#[derive(Clone, Debug)]
pub(crate) struct Helper(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    socket: Arc<OwnedFd>,
    waiting: Arc<Mutex<PendingRequests>>,
    child: Mutex<Option<Child>>,
    /// The thread that receives answers. It ends when the helper closes the connection.
    hears: Mutex<Option<JoinHandle<()>>>,
    /// A lock that marks this process as the card of the helper; `None` in tests.
    adds: Option<File>,
}

/// Requests that wait for answers.
#[derive(Debug, Default)]
struct PendingRequests {
    next: u64,
    all: BTreeMap<u64, PendingRequest>,
    has_ended: bool,
    /// Whether the card is ending, so that the end of the helper is no error.
    is_over: bool,
}

#[derive(Debug)]
struct PendingRequest {
    descriptors: Vec<OwnedFd>,
    back: SyncSender<(Answer, Vec<OwnedFd>)>,
}

/// The connection of the card that has started the helper, which all workers share. Dropping it
/// ends the helper, and waits until the helper has restored everything.
#[derive(Debug)]
pub(crate) struct Ending {
    helper: Helper,
    /// Whether another card has taken over the objects of the helper, so that its end is not waited
    /// for.
    is_passed_on: AtomicBool,
}

impl Answer {
    pub(super) fn ok(self) -> Result<Self> {
        match self {
            Self::Failed { what, is_missing: true } => Err(Missing(what).into()),
            Self::Failed { what, .. } => bail!(what),
            answer => Ok(answer),
        }
    }
}

/// Returns the description of a card whose helper has ended.
fn warning() -> String {
    format!("{GONE}: packets pass, nothing can be made or removed, and nothing is given back")
}

fn lock(waiting: &Mutex<PendingRequests>) -> MutexGuard<'_, PendingRequests> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Receives answers and delivers them to the threads that wait for them, until the helper ends.
fn hear(socket: &OwnedFd, waiting: &Mutex<PendingRequests>) {
    let mut receiver = Receiver::new();
    while let Ok(Some(received)) = receiver.next::<Answer>(socket) {
        let Message { id, body } = match received.message {
            Ok(message) => message,
            Err(what) => {
                tracing::error!("the helper: {what}");
                continue;
            }
        };
        let mut waiting = lock(waiting);
        let Some(asked) = waiting.all.get_mut(&id) else {
            // No thread waits for this answer any more: its descriptors are closed, and a failure
            // is logged.
            if let Some(Answer::Failed { what, .. }) = body {
                tracing::warn!("{what}");
            }
            continue;
        };
        asked.descriptors.extend(received.descriptors);
        if asked.descriptors.len() > DESCRIPTORS_MAX {
            waiting.all.remove(&id);
        } else if let Some(answer) = body
            && let Some(asked) = waiting.all.remove(&id)
        {
            let _ = asked.back.try_send((answer, asked.descriptors));
        }
    }
    let mut waiting = lock(waiting);
    if !waiting.is_over {
        tracing::error!("{}", warning());
    }
    waiting.has_ended = true;
    // Dropping the entries wakes all waiting threads.
    waiting.all.clear();
}

impl Helper {
    pub(super) fn over(socket: OwnedFd, child: Option<Child>, adds: Option<File>) -> Result<Self> {
        let (socket, waiting) = (Arc::new(socket), Arc::<Mutex<PendingRequests>>::default());
        lock(&waiting).next = 1;
        let (of_socket, of_waiting) = (Arc::clone(&socket), Arc::clone(&waiting));
        let hear = move || hear(&of_socket, &of_waiting);
        let thread = thread::Builder::new().name("srd-card-helper".into()).spawn(hear);
        let (child, hears) = (Mutex::new(child), Mutex::new(Some(thread.context("a thread")?)));
        Ok(Self(Arc::new(Inner { socket, waiting, child, hears, adds })))
    }

    /// Returns a warning if the helper has ended.
    pub(crate) fn warning(&self) -> Option<String> {
        lock(&self.0.waiting).has_ended.then(warning)
    }

    /// Sends a request, and waits for the answer, for at most `wait` in all.
    fn ask_with(&self, request: Request, wait: Duration) -> Result<(Answer, Vec<OwnedFd>)> {
        let (back, answer) = sync_channel(1);
        let id = {
            let mut waiting = lock(&self.0.waiting);
            if waiting.has_ended {
                bail!(GONE);
            }
            let id = waiting.next;
            waiting.next += 1;
            waiting.all.insert(id, PendingRequest { descriptors: Vec::new(), back });
            id
        };
        let message = Message { id, body: Some(request) };
        let begun = Instant::now();
        let sent = wire::send(&self.0.socket, &message, &[], wait);
        let answer = match sent {
            Ok(()) => answer.recv_timeout(wait.saturating_sub(begun.elapsed())),
            Err(error) => {
                lock(&self.0.waiting).all.remove(&id);
                return Err(error).context("the helper cannot be asked");
            }
        };
        match answer {
            Ok((answer, descriptors)) => Ok((answer.ok()?, descriptors)),
            Err(RecvTimeoutError::Disconnected) => bail!(GONE),
            Err(RecvTimeoutError::Timeout) => {
                lock(&self.0.waiting).all.remove(&id);
                bail!("the helper of this card does not answer")
            }
        }
    }

    fn ask(&self, request: Request) -> Result<(Answer, Vec<OwnedFd>)> {
        self.ask_with(request, ANSWER_WAIT_MAX)
    }

    fn do_it(&self, request: Request) -> Result<()> {
        self.ask(request).map(drop)
    }

    /// Sends a request without waiting for an answer or for space in the socket. Failures are
    /// logged.
    fn tell(&self, request: Request) {
        let message = Message { id: 0, body: Some(request) };
        if let Err(error) = wire::send(&self.0.socket, &message, &[], Duration::ZERO) {
            tracing::warn!("what is to be removed stays until the card ends: {error}");
        }
    }

    /// Creates the networks of instances. Instances that are left out are missing from the result.
    /// If one creation fails, the networks created so far are removed.
    pub(crate) fn make(&self, wanted: &[NetworkRequest]) -> Result<Places> {
        let mut places = Places::new();
        let mut rest = wanted.iter().peekable();
        while rest.peek().is_some() {
            let (mut some, mut bytes) = (Vec::new(), 0);
            while let Some(next) = rest.peek() {
                bytes += serde_json::to_vec(next)?.len();
                if some.len() >= MADE_AT_ONCE || (bytes > PACKET_BYTES_MAX / 2 && !some.is_empty())
                {
                    break;
                }
                some.extend(rest.next().cloned());
            }
            self.make_some(some, &mut places)?;
        }
        Ok(places)
    }

    fn make_some(&self, wanted: Vec<NetworkRequest>, places: &mut Places) -> Result<()> {
        let (answer, descriptors) = self.ask(Request::Make(wanted))?;
        let Answer::Made { places: made, udp_segmentation } = answer else { return odd() };
        let mut descriptors = descriptors.into_iter();
        for of in made {
            let name = NamespaceName::of_instance(&of.instance).context("a namespace")?;
            let namespace = Some(Namespace::new(name, of.is_found, self.clone()));
            let pod = of.pod;
            let mut place = InstanceNetwork { namespace, pod, ..InstanceNetwork::default() };
            for count in of.queues {
                place.devices.push(queues(&mut descriptors, count, udp_segmentation)?);
            }
            places.insert(of.instance, place);
        }
        Ok(())
    }

    /// Removes namespaces that earlier cards have left, except the namespaces of these instances.
    pub(crate) fn sweep(&self, instances: BTreeSet<NamespaceName>) -> Result<()> {
        self.do_it(Request::Sweep(instances))
    }

    /// Removes a namespace if no program runs in it. `ends_programs`: whether its programs are
    /// ended before.
    pub(crate) fn remove(&self, namespace: NamespaceName, ends_programs: bool) {
        self.tell(Request::Remove { namespace, ends_programs });
    }

    /// Creates a deleted device again.
    pub(crate) fn make_device(
        &self,
        namespace: NamespaceName,
        (number, several): (usize, bool),
        device: Device,
        queues: u16,
        ring: u32,
    ) -> Result<Vec<Tun>> {
        self.queues(Request::Device { namespace, number, several, device, queues, ring })
    }

    /// Opens more queues of a device.
    pub(crate) fn open_more(
        &self,
        namespace: NamespaceName,
        device: String,
        more: u16,
    ) -> Result<Vec<Tun>> {
        self.queues(Request::Queues { namespace, device, more })
    }

    fn queues(&self, request: Request) -> Result<Vec<Tun>> {
        let (answer, descriptors) = self.ask(request)?;
        let Answer::Queues { count, udp_segmentation } = answer else { return odd() };
        queues(&mut descriptors.into_iter(), count, udp_segmentation)
    }

    /// Sets the number of packets that wait in a queue of a device (`txqueuelen`).
    pub(crate) fn set_ring(
        &self,
        namespace: NamespaceName,
        device: String,
        entries: u32,
    ) -> Result<()> {
        self.do_it(Request::Ring { namespace, device, entries })
    }

    /// Returns changes by other programs, including changes of these namespaces and devices.
    pub(crate) fn look(&self, of: Vec<(NamespaceName, Vec<Device>)>) -> Result<Upkeep> {
        let mut all = Upkeep::default();
        for some in in_requests(of)? {
            let Answer::Upkeep(upkeep) = self.ask_with(Request::Look(some), LOOK_WAIT_MAX)?.0
            else {
                return odd();
            };
            all.rules_restored = upkeep.rules_restored;
            let is_new = |text: &String| !all.warnings.contains(text);
            let new: Vec<String> = upkeep.warnings.into_iter().filter(is_new).collect();
            all.warnings.extend(new);
        }
        Ok(all)
    }

    /// Restores these namespaces and devices, and the forwarding of packets, after changes by other
    /// programs.
    pub(crate) fn restore(&self, of: Vec<(NamespaceName, Vec<Device>)>) -> Result<()> {
        in_requests(of)?.into_iter().try_for_each(|some| self.do_it(Request::Restore(some)))
    }

    /// Returns the numbers of packets that the kernel has dropped at devices, by namespace and
    /// device; `None` for a device that does not exist.
    pub(crate) fn drops(
        &self,
        of: Vec<(NamespaceName, Vec<String>)>,
    ) -> Result<Vec<Vec<Option<u64>>>> {
        match self.ask_with(Request::Drops(of), LOOK_WAIT_MAX)?.0 {
            Answer::Drops(drops) => Ok(drops),
            _ => odd(),
        }
    }

    /// Creates the device of the internet's side, and routes these addresses into it.
    pub(crate) fn edge(&self, publics: &BTreeSet<Ipv4Addr>) -> Result<Tun> {
        let (first, rest) = split(publics);
        let (answer, descriptors) = self.ask(Request::Edge(first))?;
        let Answer::Queues { count: 1, udp_segmentation } = answer else { return odd() };
        let mut tun = queues(&mut descriptors.into_iter(), 1, udp_segmentation)?;
        self.route(&rest, &BTreeSet::new())?;
        tun.pop().context("the device")
    }

    /// Routes the addresses in `add` to the internet's side, all or none, and removes the routes of
    /// the addresses in `remove`.
    pub(crate) fn route(
        &self,
        add: &BTreeSet<Ipv4Addr>,
        remove: &BTreeSet<Ipv4Addr>,
    ) -> Result<()> {
        let mut added = BTreeSet::new();
        let all = |of: &BTreeSet<Ipv4Addr>| of.iter().copied().collect::<Vec<_>>();
        for some in all(add).chunks(NAMED_MAX) {
            let add: BTreeSet<Ipv4Addr> = some.iter().copied().collect();
            let request = Request::Route { add: add.clone(), remove: BTreeSet::new() };
            if let Err(error) = self.do_it(request) {
                if let Err(further) = self.unroute(&all(&added)) {
                    tracing::warn!("routes of public addresses stay: {further:#}");
                }
                return Err(error);
            }
            added.extend(add);
        }
        self.unroute(&all(remove))
    }

    fn unroute(&self, remove: &[Ipv4Addr]) -> Result<()> {
        for some in remove.chunks(NAMED_MAX) {
            let remove = some.iter().copied().collect();
            self.do_it(Request::Route { add: BTreeSet::new(), remove })?;
        }
        Ok(())
    }

    /// Sets the resolvers of namespaces, or removes them (`None`).
    pub(crate) fn set_resolvers(&self, all: &[(NamespaceName, Option<Ipv4Addr>)]) -> Result<()> {
        /// Number of namespaces that fit into one packet.
        const ONCE: usize = 1000;
        all.chunks(ONCE).try_for_each(|some| self.do_it(Request::Resolvers(some.to_vec())))
    }

    /// Ends the programs in these namespaces.
    pub(crate) fn end_programs(&self, all: BTreeSet<NamespaceName>) -> Result<()> {
        self.do_it(Request::End(all))
    }

    /// Opens the socket of a vhost-user device to its front end.
    pub(crate) fn vhost(&self, path: &Path, meets: Meet) -> Result<OwnedFd> {
        let (_, descriptors) = self.ask(Request::Vhost { path: path.to_owned(), meets })?;
        descriptors.into_iter().next().context("the helper opened nothing")
    }

    /// Removes the socket of a vhost-user device.
    pub(crate) fn vhost_gone(&self, path: PathBuf) {
        self.tell(Request::VhostGone(path));
    }

    /// Opens a new file of a flow log. Also returns its name.
    pub(crate) fn log(
        &self,
        directory: &str,
        stem: String,
        ending: &str,
    ) -> io::Result<(File, String)> {
        let (directory, ending) = (directory.to_owned(), ending.to_owned());
        let asked = self.ask(Request::Log { directory, stem, ending });
        let (answer, descriptors) =
            asked.map_err(|error| io::Error::other(format!("{error:#}")))?;
        match (answer, descriptors.into_iter().next()) {
            (Answer::Log(name), Some(file)) => Ok((File::from(file), name)),
            _ => Err(io::Error::other("the helper opened nothing")),
        }
    }

    /// Completes a file of a flow log if `is_whole`; otherwise removes it.
    pub(crate) fn log_ended(
        &self,
        directory: &str,
        name: String,
        is_whole: bool,
    ) -> io::Result<()> {
        let directory = directory.to_owned();
        let done = self.do_it(Request::LogEnded { directory, name, is_whole });
        done.map_err(|error| io::Error::other(format!("{error:#}")))
    }

    /// Reads the file of a cloud.
    pub(crate) fn vpc(&self, path: &Path) -> Result<VpcFile> {
        let (_, descriptors) = self.ask(Request::Vpc(path.to_owned()))?;
        opened(descriptors, path)
    }

    /// Reads the configuration again. Returns its cloud (`None` if the configuration names no file
    /// of a cloud), and the keys of changed settings that are not applied.
    pub(crate) fn reload(&self) -> Result<(Option<VpcFile>, Vec<String>)> {
        let (answer, descriptors) = self.ask(Request::Reload)?;
        reloaded(answer, descriptors)
    }

    /// Returns a further connection to this helper, for a process that takes the node over. If the
    /// helper still closes descriptors of an earlier process, the request is repeated,
    /// [`ANOTHER_TRIES_MAX`] times at most.
    pub(crate) fn another(&self) -> Result<OwnedFd> {
        for _ in 1..ANOTHER_TRIES_MAX {
            match self.another_once() {
                Err(error) if error.to_string() == STILL_CLOSING => thread::sleep(ANOTHER_PAUSE),
                asked => return asked,
            }
        }
        self.another_once()
    }

    fn another_once(&self) -> Result<OwnedFd> {
        let (_, descriptors) = self.ask_with(Request::Another, LOOK_WAIT_MAX)?;
        descriptors.into_iter().next().context("the helper opened nothing")
    }

    /// Returns a further connection to this helper, and the lock that marks its card, for
    /// [`Starting::adopt`] in a process that takes the node over.
    pub(crate) fn shared(&self) -> Result<Vec<OwnedFd>> {
        let adds = self.0.adds.as_ref().context("the helper has no lock")?;
        Ok(vec![self.another()?, adds.try_clone()?.into()])
    }

    /// Makes the helper continue for this process, which has taken the node over: the helper writes
    /// messages to the standard error of this process, and reads its configuration.
    pub(crate) fn renew(&self) {
        self.tell(Request::Renew);
    }

    /// Makes the helper record the file of the control socket, which it removes at the end.
    pub(crate) fn listens(&self) -> Result<()> {
        self.do_it(Request::Listens)
    }
}

/// Reads the file of the cloud, and returns it with the keys of changed settings that are not
/// applied.
pub(super) fn reloaded(
    answer: Answer,
    descriptors: Vec<OwnedFd>,
) -> Result<(Option<VpcFile>, Vec<String>)> {
    let Answer::Reloaded { vpc, others } = answer else { return odd() };
    let Some(path) = vpc else { return Ok((None, others)) };
    Ok((Some(opened(descriptors, &path)?), others))
}

/// Reads the copy of the file of a cloud.
pub(super) fn opened(descriptors: Vec<OwnedFd>, path: &Path) -> Result<VpcFile> {
    let file = descriptors.into_iter().next().context("the helper opened nothing")?;
    Ok(srd_vpc_file::read_from(File::from(file), path)?)
}

/// Splits a list into parts that each fit into one request; returns at least one part.
fn in_requests<T: serde::Serialize>(all: Vec<T>) -> Result<Vec<Vec<T>>> {
    let (mut parts, mut bytes) = (vec![Vec::new()], 0);
    for one in all {
        let more = serde_json::to_vec(&one)?.len();
        if bytes + more > PACKET_BYTES_MAX / 2 && bytes > 0 {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += more;
        parts.last_mut().into_iter().next().context("a request")?.push(one);
    }
    Ok(parts)
}

fn odd<T>() -> Result<T> {
    bail!("the helper answers something else")
}

/// Returns the addresses that fit into one request, and the remaining addresses.
fn split(all: &BTreeSet<Ipv4Addr>) -> (BTreeSet<Ipv4Addr>, BTreeSet<Ipv4Addr>) {
    (all.iter().take(NAMED_MAX).copied().collect(), all.iter().skip(NAMED_MAX).copied().collect())
}

/// Creates the queues of a device from the next `count` descriptors.
fn queues(
    descriptors: &mut impl Iterator<Item = OwnedFd>,
    count: u16,
    udp_segmentation: bool,
) -> Result<Vec<Tun>> {
    let queue = |_| {
        Ok(Tun::adopt(descriptors.next().context("a descriptor is missing")?, udp_segmentation))
    };
    (0..count).map(queue).collect()
}

impl Ending {
    pub(crate) fn new(helper: Helper) -> Self {
        Self { helper, is_passed_on: AtomicBool::new(false) }
    }

    /// Returns the connection, for other threads.
    pub(crate) fn connection(&self) -> Helper {
        self.helper.clone()
    }

    /// Leaves the objects of the helper to another card, so that the end of the helper is not
    /// waited for.
    pub(crate) fn pass_on(&self) {
        self.is_passed_on.store(true, Ordering::Relaxed);
    }
}

impl std::ops::Deref for Ending {
    type Target = Helper;

    fn deref(&self) -> &Helper {
        &self.helper
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let Inner { socket, child, hears, waiting, .. } = &*self.helper.0;
        lock(waiting).is_over = true;
        if self.is_passed_on.load(Ordering::Relaxed) {
            let _ = shutdown(&**socket, Shutdown::Both);
            return;
        }
        // Threads still hold the socket: `shutdown` closes it for the helper anyway. The helper
        // closes its end when it has given everything back, or at once if it serves another
        // process.
        let _ = shutdown(&**socket, Shutdown::Write);
        let hears = hears.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _ = hears.map(JoinHandle::join);
        let child = child.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut child) = child {
            let _ = child.wait();
        }
    }
}
