//! The daemon's side of the control socket: accepts a limited number of connections, and serves
//! each on a thread of its own. If another program removes the file of the socket, the socket is
//! created again.
//!
//! Invariant: the server's own thread only accepts connections. Each client is served by another
//! thread (`connection`), so a slow client does not delay the other clients.

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::Shutdown;

use super::connection::{self, Next};
use super::slots::{
    CONNECTIONS_MAX, CONNECTIONS_RESERVED, Loader, Services, Shared, Slot, Successor,
};
use super::socket::Socket;
use crate::plane::PlaneHandle;

/// Pause after `accept` has failed, for example because memory or descriptors are exhausted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Interval at which the server checks whether another process has taken over.
const LEAVING_PAUSE: Duration = Duration::from_millis(20);

/// Interval at which the server checks that the socket's file still exists.
const LOOK_PAUSE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// A control server that runs until it is dropped.
pub struct Server {
    /// The socket that listens at present.
    socket: Arc<Mutex<Arc<Socket>>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", lock(&self.socket).path().display())
    }
}

impl Server {
    /// Starts to serve the clients of a socket. `services` serve requests about instances and pods.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(
        socket: Socket,
        plane: PlaneHandle,
        loader: Loader,
        services: Services,
    ) -> io::Result<Self> {
        let server = Self::prepare(socket, plane, loader, services)?;
        server.begin();
        Ok(server)
    }

    /// Starts the thread of a server, which accepts connections after [`Server::begin`]. If the
    /// result is dropped before, another process continues to serve the socket.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn prepare(
        socket: Socket,
        plane: PlaneHandle,
        loader: Loader,
        services: Services,
    ) -> io::Result<Self> {
        let (owner, group_captures) = (socket.user, socket.permits_captures());
        let socket = Arc::new(Mutex::new(Arc::new(socket)));
        let shared = Arc::new(Shared {
            plane,
            socket: Arc::clone(&socket),
            loader,
            owner,
            group_captures,
            services,
            connections: AtomicUsize::new(0),
            streams: AtomicUsize::new(0),
            is_ending: AtomicBool::new(false),
            is_leaving: AtomicBool::new(true),
            successor: Mutex::default(),
        });
        let (at, with) = (Arc::clone(&socket), Arc::clone(&shared));
        let name = "srd-control".to_owned();
        let thread = thread::Builder::new().name(name).spawn(move || accept(&at, &with))?;
        Ok(Self { socket, shared, thread: Some(thread) })
    }

    /// Accepts connections from now on, and removes the file of the socket at the end.
    pub(crate) fn begin(&self) {
        lock(&self.socket).begin();
        self.shared.is_leaving.store(false, Ordering::Relaxed);
    }

    /// Answers the client that has requested the process that has taken over, if there is one.
    pub(crate) fn answer_successor(&self) {
        if let Some(Successor { process, client }) = self.shared.successor().take() {
            connection::answer_successor(&client, process);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::Relaxed);
        if !lock(&self.socket).is_ours() {
            // Another process serves the socket, which the shutdown would end there as well. The
            // thread ends when its wait does.
            return;
        }
        // Wakes the server's thread: after the shutdown, `accept` fails.
        let _ = rustix::net::shutdown(&lock(&self.socket).listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // The thread of a client, such as a watch, may keep the socket longer than this process
        // takes to end.
        lock(&self.socket).remove();
    }
}

fn lock(socket: &Mutex<Arc<Socket>>) -> Arc<Socket> {
    Arc::clone(&socket.lock().unwrap_or_else(PoisonError::into_inner))
}

fn accept(place: &Mutex<Arc<Socket>>, shared: &Arc<Shared>) {
    let mut said = None;
    loop {
        let socket = lock(place);
        let mut waits = [PollFd::new(&socket.listener, PollFlags::IN)];
        let waited = poll(&mut waits, Some(&LOOK_PAUSE));
        if shared.is_ending.load(Ordering::Relaxed) {
            return;
        }
        if shared.is_leaving.load(Ordering::Relaxed) {
            thread::sleep(LEAVING_PAUSE);
            continue;
        }
        if waited == Ok(0) {
            make_again(place, &socket, &mut said);
            continue;
        }
        let accepted = socket.listener.accept();
        if shared.is_ending.load(Ordering::Relaxed) {
            return;
        }
        match accepted {
            Ok((stream, _)) => take(stream, shared),
            Err(e) => {
                tracing::warn!("control socket: {e}");
                thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
}

/// Creates the socket again if its file was removed. `said` contains the reason of the last
/// failure, so that equal failures are logged once.
fn make_again(place: &Mutex<Arc<Socket>>, socket: &Socket, said: &mut Option<String>) {
    match socket.again() {
        Ok(None) => {}
        Ok(Some(new)) => {
            tracing::warn!("{} was removed: it is there again", new.path().display());
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
            *said = None;
        }
        Err(error) => {
            let why = error.to_string();
            if said.as_ref() != Some(&why) {
                tracing::warn!(
                    "the control socket was removed, and cannot be made again: {why}; signals \
                     still reach this daemon"
                );
                *said = Some(why);
            }
        }
    }
}

fn take(stream: UnixStream, shared: &Arc<Shared>) {
    let max = match shared.is_of_owner(&stream) {
        true => CONNECTIONS_MAX,
        false => CONNECTIONS_MAX - CONNECTIONS_RESERVED,
    };
    let Some(slot) = Slot::take(shared, |shared| &shared.connections, max) else {
        connection::refuse_busy(&stream);
        return;
    };
    let spawned = thread::Builder::new().name("srd-client".to_owned()).spawn(move || {
        if let Next::Instances(serve) = connection::serve(&stream, &slot) {
            // Connections of clients of instances have a limit of their own.
            drop(slot);
            serve(stream);
        }
    });
    if let Err(e) = spawned {
        tracing::warn!("no thread for a client of the control socket: {e}");
    }
}
