//! The control socket: a bounded number of threads, one for each connection, and a time limit for
//! each wait.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use srd_trust::socket::{self, Bound};
use srd_trust::{peer, place};

use crate::control::orders::{Command, Orders};
use crate::failure::WrongSettings;
use crate::handover::asker;
use crate::machine::locks::DIRECTORY_MODE;
use srd_card::device::ring::{RingSize, Side};
use srd_daemon::control::ServeInstances;
use srd_net::clock;

use crate::control::protocol::{Answer, Attach, BEGUN, DeviceChange, LINE_BYTES_MAX, Request};
use crate::control::trace::TraceFormatter;
use crate::control::views;
use crate::figures::pages::WRITTEN_WITHIN;

/// Maximum number of connections: each instance that `srd run` adds has a connection.
const CONNECTIONS_MAX: usize = 256;
/// Longest wait for an answer of the card's loop. A loop that takes longer counts as ended.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(30);
/// Longest time for one write. The connection of a slower reader is closed.
const WRITE_WAIT_MAX: Duration = Duration::from_secs(10);

/// Pause after a failure to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A slot for one connection. The slot is free again when this value is dropped, even if no thread
/// could be started for the connection.
struct ConnectionSlot {
    open: Arc<AtomicUsize>,
}

impl ConnectionSlot {
    /// Takes a slot; `None` if [`CONNECTIONS_MAX`] are taken.
    fn take(open: &Arc<AtomicUsize>) -> Option<Self> {
        let slot = Self { open: Arc::clone(open) };
        let before = open.fetch_add(1, Ordering::Relaxed);
        (before < CONNECTIONS_MAX).then_some(slot)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The control socket before it accepts connections. It is created while this process has
/// privileges. The helper removes its file.
#[derive(Debug)]
pub(crate) struct Server {
    path: PathBuf,
    listener: UnixListener,
    /// The user, in addition to root, that is permitted to connect: the user that created the
    /// socket.
    user: u32,
}

/// Removes the socket of a dead card. A file that is no socket, or a socket in use, is an error.
fn remove_stale(path: &Path) -> Result<()> {
    let shown = path.display();
    match socket::remove_dead(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let what = format!("{shown} is there and no socket: name another place with --socket");
            Err(WrongSettings(what).into())
        }
        Err(error) if error.kind() == ErrorKind::AddrInUse => bail!(
            "a card serves {shown} already: `srd card status` shows it, --socket names another"
        ),
        Err(error) => {
            Err(error).with_context(|| format!("cannot remove {shown}, or tell whose it is"))
        }
    }
}

/// Creates the directory of a socket if it is missing. Returns an error if another user could
/// replace the socket there.
pub(crate) fn make_directory_of(path: &Path) -> Result<()> {
    let path = std::path::absolute(path)?;
    let Some(directory) = path.parent() else { return Ok(()) };
    place::make_directory(directory, DIRECTORY_MODE).with_context(|| {
        let shown = directory.display();
        format!("no socket of a card can be in {shown}: name a place that root alone may change")
    })
}

/// Removes the temporary sockets beside `path` of cards that were killed during a take-over.
fn remove_left_beside(path: &Path) {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return };
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let beside = entry.file_name();
        let rest = beside.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
        let number = rest.and_then(|rest| rest.strip_prefix(b"."));
        let Some(number) = number.and_then(|number| str::from_utf8(number).ok()) else { continue };
        // The socket of a running process stays: the process listens at it, or will do so soon.
        if number.parse::<u32>().is_ok() && !Path::new("/proc").join(number).exists() {
            let _ = remove_stale(&entry.path());
        }
    }
}

impl Server {
    /// Listens at a path beside `path`, which another card uses. When that card has ended, the
    /// helper moves the file to `path`.
    pub(crate) fn listen_beside(path: &Path) -> Result<Self> {
        remove_left_beside(path);
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}", std::process::id()));
        Self::listen(Path::new(&name))
    }

    /// Returns the path of the socket.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file of the socket, because the card will not use the socket.
    pub(crate) fn give_up(self) {
        let _ = std::fs::remove_file(&self.path);
    }

    pub(crate) fn listen(path: &Path) -> Result<Self> {
        make_directory_of(path)?;
        remove_stale(path)?;
        remove_left_beside(path);
        let options = socket::Options { mode: 0o600, group: None, replace: false };
        let Bound { listener, .. } = socket::listen(path, options)
            .with_context(|| format!("cannot make the socket {}", path.display()))?;
        let user = rustix::process::geteuid().as_raw();
        Ok(Self { path: path.to_owned(), listener, user })
    }

    /// Accepts connections on a new thread, and serves each on a thread of its own.
    pub(crate) fn serve(self, orders: Orders) -> Result<()> {
        let Self { listener, user, .. } = self;
        let connections = Connections::new(orders, user);
        let accept = move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else {
                    // Usually there is no free file descriptor, until another connection ends.
                    thread::sleep(ACCEPT_PAUSE);
                    continue;
                };
                let Some(slot) = ConnectionSlot::take(&connections.open) else { continue };
                let connections = connections.clone();
                let serve = move || connections.serve_in(stream, slot);
                let _ = thread::Builder::new().name("srd-card-ask".into()).spawn(serve);
            }
        };
        thread::Builder::new().name("srd-card-socket".into()).spawn(accept)?;
        Ok(())
    }
}

/// Serves connections, of which there is a limited number.
#[derive(Clone)]
struct Connections {
    orders: Orders,
    open: Arc<AtomicUsize>,
    /// The user, in addition to root, that is permitted to send requests.
    user: u32,
}

impl Connections {
    fn new(orders: Orders, user: u32) -> Self {
        Self { orders, open: Arc::default(), user }
    }

    fn serve_in(&self, stream: UnixStream, _slot: ConnectionSlot) {
        if let Err(error) = serve(stream, &self.orders, self.user) {
            tracing::debug!("a connection ended: {error:#}");
        }
    }
}

/// Returns the function that serves requests about instances at the socket of a node. Root and the
/// user `owner`, which has started the node, may send requests. The user to which the node has
/// changed may not.
pub(crate) fn of_node(orders: Orders, owner: u32) -> ServeInstances {
    let connections = Connections::new(orders, owner);
    Arc::new(move |stream| {
        if let Some(slot) = ConnectionSlot::take(&connections.open) {
            connections.serve_in(stream, slot);
        }
    })
}

/// Instances and traces that a connection has begun, and that end with it.
struct Begun<'a> {
    orders: &'a Orders,
    instances: Vec<String>,
    traces: BTreeMap<u64, TraceFormatter>,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        for name in self.instances.drain(..) {
            self.orders.give(Command::Detach(name));
        }
        for id in self.traces.keys() {
            self.orders.give(Command::EndTrace(*id));
        }
    }
}

fn serve(mut stream: UnixStream, orders: &Orders, user: u32) -> Result<()> {
    stream.set_write_timeout(Some(WRITE_WAIT_MAX))?;
    // The mode of the file keeps other users out, but the mode can change.
    if let Err(error) = peer::check_one(&stream, user) {
        tracing::warn!("a request is refused: {error}");
        return say(&mut stream, &Answer::Failed { what: asker::REFUSED.into() });
    }
    let mut stream = BufReader::new(stream);
    let mut begun = Begun { orders, instances: Vec::new(), traces: BTreeMap::new() };
    loop {
        let mut line = String::new();
        let bytes = (&mut stream).take(LINE_BYTES_MAX as u64).read_line(&mut line)?;
        if bytes == 0 {
            return Ok(());
        }
        if !line.ends_with('\n') {
            bail!("a request of more than {LINE_BYTES_MAX} bytes, or one that was cut off");
        }
        let answer = match serde_json::from_str::<Request>(&line) {
            Ok(Request::Instances) => {
                stream.get_mut().write_all(BEGUN.as_bytes())?;
                continue;
            }
            Ok(Request::Traced { id }) => begun.traced(id)?,
            Ok(Request::TakeOver { version }) => match hand_over(stream.get_ref(), orders, version)
            {
                Ok(()) => return Ok(()),
                Err(error) => Answer::Failed { what: format!("{error:#}") },
            },
            Ok(Request::Attach(attach)) => begun.attached(attach)?,
            Ok(request) => ask(orders, request)?,
            Err(error) => Answer::Failed { what: format!("this is no request: {error}") },
        };
        if let Answer::Tracing { id } = &answer {
            begun.traces.insert(*id, TraceFormatter::default());
        }
        say(stream.get_mut(), &answer)?;
    }
}

fn say(stream: &mut UnixStream, answer: &Answer) -> Result<()> {
    let mut text = serde_json::to_string(answer)?;
    text.push('\n');
    Ok(stream.write_all(text.as_bytes())?)
}

impl Begun<'_> {
    /// Adds an instance.
    fn attached(&mut self, attach: Attach) -> Result<Answer> {
        let (back, made) = channel();
        let name = match hand(self.orders, Command::Attach(attach, back), &made)? {
            Ok(name) => name,
            Err(what) => return Ok(Answer::Failed { what }),
        };
        self.instances.push(name.clone());
        // An instance that cannot be shown ends with the connection, like any other.
        Ok(match views::made(self.orders, &name) {
            Ok(instance) => Answer::Attached(instance),
            Err(error) => Answer::Failed { what: format!("{error:#}") },
        })
    }

    /// Returns the new records of a trace as text.
    fn traced(&mut self, id: u64) -> Result<Answer> {
        let Some(words) = self.traces.get_mut(&id) else {
            return Ok(Answer::Failed { what: format!("this connection has no trace {id}") });
        };
        let (back, noted) = channel();
        Ok(match hand(self.orders, Command::Traced(id, back), &noted)? {
            Some(noted) => words.say(noted),
            None => Answer::Failed { what: format!("the trace {id} has ended") },
        })
    }
}

fn ask(orders: &Orders, request: Request) -> Result<Answer> {
    let failed = |what: String| Ok(Answer::Failed { what });
    if let Request::Device { instance, .. } = &request
        && let Some(what) = views::why_unknown(orders, instance)?
    {
        return failed(what);
    }
    // Until the rules are in force, or refused.
    let _passage = match matches!(request, Request::Apply { .. }).then(|| orders.gate.enter()) {
        Some(Err(what)) => return failed(what),
        passage => passage,
    };
    let (back, answer) = channel();
    let command = match request {
        Request::Status => return views::status(orders).map(Answer::Status),
        Request::Logs => {
            orders.refresh(WRITTEN_WITHIN)?;
            return Ok(Answer::Logs { logs: views::logs(orders) });
        }
        Request::Flows { instance, most } => {
            return match views::flows(orders, &instance, most.into()) {
                Ok(flows) => Ok(Answer::Flows { flows }),
                Err(error) => failed(format!("{error:#}")),
            };
        }
        Request::Device { instance, device, change } if change.tx_ring.is_some() => {
            return set_rings(orders, (&instance, device.as_deref()), change);
        }
        // The file is read here and not in the packet thread, because reading may take a while.
        Request::Apply { file } => {
            let began = clock::now();
            match orders.helper().and_then(|helper| helper.vpc(&file)) {
                Ok(file) => Command::Apply(Box::new(file), began, back),
                Err(error) => return failed(format!("{error:#}")),
            }
        }
        request => Command::Ask(request, back),
    };
    hand(orders, command, &answer)
}

/// Changes a device, including the rings for packets from the instance. The kernel owns these
/// rings: they are set first, and restored if the rest of the change fails. // D10
fn set_rings(
    orders: &Orders,
    (instance, device): (&str, Option<&str>),
    change: DeviceChange,
) -> Result<Answer> {
    let ask = |change: DeviceChange| {
        let (back, answer) = channel();
        let (instance, device) = (instance.to_owned(), device.map(str::to_owned));
        hand(orders, Command::Ask(Request::Device { instance, device, change }, back), &answer)
    };
    let failed = |what: String| Ok(Answer::Failed { what });
    let asked = change.tx_ring.unwrap_or_default();
    let entries = match RingSize::new(Side::Tx, asked) {
        Ok(size) => size.entries(),
        Err(error) => return failed(error.to_string()),
    };
    let before = match ask(DeviceChange::default())? {
        Answer::Device(report) => report,
        other => return Ok(other),
    };
    let set = |entries| {
        let Some(namespace) = &before.namespace else { return Ok(()) };
        let name = before.renamed.as_ref().unwrap_or(&before.device);
        orders.helper()?.set_ring(namespace.clone(), name.clone(), entries)
    };
    if let Err(error) = set(entries) {
        return failed(format!("the ring: {error:#}"));
    }
    let answer = ask(change)?;
    if let Answer::Failed { what } = &answer
        && let Err(error) = set(before.settings.tx_ring)
    {
        return failed(format!("{what}; and the ring stays at {entries}: {error:#}"));
    }
    Ok(answer)
}

/// Hands the whole card over to the process at the other end.
fn hand_over(stream: &UnixStream, orders: &Orders, version: u32) -> Result<()> {
    asker::check(version)?;
    let (back, done) = channel();
    let handed = hand(orders, Command::HandOver(stream.try_clone()?, back), &done)?;
    handed.map_err(anyhow::Error::msg)
}

/// Sends a command to the card's loop, and waits for its answer.
pub(crate) fn hand<T>(orders: &Orders, command: Command, answer: &Receiver<T>) -> Result<T> {
    if !orders.give(command) {
        bail!("the service has ended");
    }
    answer.recv_timeout(ANSWER_WAIT_MAX).context("the service does not answer")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn regression_a_place_that_another_user_may_change_is_refused_and_named() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let open = directory.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        let error = make_directory_of(&open.join("inner/card.sock")).unwrap_err();
        let said = format!("{error:#}");
        assert!(
            said.contains(&format!("others than root may change {}", open.display())),
            "{said}"
        );
        assert!(!open.join("inner").exists());
        make_directory_of(&directory.path().join("own/card.sock")).unwrap();
    }

    /// If a card accepts no connections at the moment, the start of another card fails at once. In
    /// an earlier version, the start waited for the first card, without a limit.
    #[test]
    fn regression_a_full_queue_of_connections_delays_no_start() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("card.sock");
        let lives = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&lives, 0).unwrap();
        let _queued: Vec<_> = std::iter::from_fn(|| socket::connect(&path).ok()).collect();
        let (send, receive) = channel();
        let of_card = path.clone();
        thread::spawn(move || send.send(remove_stale(&of_card)));
        let removed = receive.recv_timeout(Duration::from_secs(60)).expect("it waits");
        assert!(removed.unwrap_err().to_string().contains("serves"));
        assert!(path.exists());
        rustix::net::shutdown(&lives, rustix::net::Shutdown::Both).unwrap();
        remove_stale(&path).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn regression_sockets_of_cards_that_were_killed_while_they_took_over_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        // No process has such a high number.
        let left = ["card.sock.4194305", "card.sock.4194306"];
        let stay =
            ["card.sock.x", "other.sock.4194305", &format!("card.sock.{}", std::process::id())];
        for name in left.iter().chain(&stay) {
            // A socket that is only closed may stay open in a process that another test is just
            // starting.
            let listener = UnixListener::bind(path(name)).unwrap();
            rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).unwrap();
        }
        let lives = UnixListener::bind(path("card.sock.4194307")).unwrap();
        std::fs::write(path("card.sock.4194308"), "a file").unwrap();
        remove_left_beside(&path("card.sock"));
        assert!(left.iter().all(|name| !path(name).exists()));
        assert!(stay.iter().all(|name| path(name).exists()));
        assert!(path("card.sock.4194307").exists() && path("card.sock.4194308").exists());
        drop(lives);
    }
}
