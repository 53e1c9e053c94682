//! Server with at most [`CONNECTIONS_MAX`] connections, each with its own thread. If all slots are
//! in use, a new connection replaces the oldest connection whose request is incomplete, so idle
//! connections do not block other clients. If all requests are complete, the address with the most
//! slots loses its oldest connection to an address with few slots, so clients that do not read
//! their response do not block other addresses.

use std::fmt;
use std::io;
use std::net::{IpAddr, Shutdown as SocketShutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::Shutdown;

use super::http::{self, Request, Response, Status};
use super::{host, names};
use crate::places::{Places, source};

/// Largest number of connections. A further connection replaces another connection, or is closed
/// immediately.
pub const CONNECTIONS_MAX: usize = 16;
/// Pause after the system refused a connection because it lacked memory or file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listening socket before its server starts. A process can create it before it drops its
/// privileges, and start the server afterwards.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    /// Host names that a request may contain, in addition to addresses and `localhost`.
    names: Vec<String>,
}

impl Listener {
    /// Listens at `at`. `allow_remote`: whether other machines may send requests. If so, requests
    /// may contain the names of this machine as their host.
    ///
    /// # Errors
    /// An error of the operating system, with an explanation for the user, if the socket cannot
    /// listen at `at`.
    pub fn bind(at: SocketAddr, allow_remote: bool) -> io::Result<Self> {
        let because = |e: io::Error| {
            let remedy = match e.kind() {
                io::ErrorKind::AddrInUse => format!(
                    ": another program listens there (`ss -ltnp 'sport = :{}'` shows it); end \
                     that, or choose another port",
                    at.port()
                ),
                io::ErrorKind::AddrNotAvailable => {
                    String::from(": choose an address that this machine has")
                }
                io::ErrorKind::PermissionDenied => {
                    String::from(": ports below 1024 are for root; choose another port")
                }
                _ => String::new(),
            };
            io::Error::new(e.kind(), format!("cannot serve metrics at {at}: {e}{remedy}"))
        };
        let listener = TcpListener::bind(at).map_err(because)?;
        Ok(Self::over(listener, allow_remote))
    }

    /// Continues to listen at the socket of another process. `allow_remote`: as in
    /// [`Listener::bind`].
    pub fn adopt(socket: OwnedFd, allow_remote: bool) -> Self {
        Self::over(socket.into(), allow_remote)
    }

    fn over(listener: TcpListener, allow_remote: bool) -> Self {
        let names = if allow_remote { names::of_this_machine() } else { Vec::new() };
        Self { listener, names }
    }

    /// Returns a descriptor of the socket, for another process that continues to listen.
    ///
    /// # Errors
    /// An error of the operating system, if there is no free descriptor.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.listener.try_clone().map(OwnedFd::from)
    }

    /// Also accepts these host names, each in the form that [`host_name`](crate::host_name)
    /// returns.
    #[must_use]
    pub fn also_named(mut self, names: &[String]) -> Self {
        self.names.extend_from_slice(names);
        self
    }

    /// Returns the address of the listening socket.
    ///
    /// # Errors
    /// An error of the operating system, if the address cannot be read.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Function that returns the response to a request. Several threads may call it at the same time.
pub type Answer = dyn Fn(&Request) -> Response + Send + Sync;

/// State shared by all connections.
struct Shared {
    answer: Box<Answer>,
    names: Vec<String>,
    places: Mutex<Places>,
    /// Function that returns the source by which connections from an address are counted.
    source: fn(IpAddr) -> IpAddr,
    is_ending: AtomicBool,
}

impl Shared {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A server that runs until it is dropped.
pub struct Server {
    listener: Arc<TcpListener>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Server").field(&self.listener).finish()
    }
}

impl Server {
    /// Starts to serve a listener.
    ///
    /// # Errors
    /// An error of the operating system, if the thread cannot be started.
    pub fn start(listener: Listener, answer: Box<Answer>) -> io::Result<Self> {
        Self::with(listener, answer, source)
    }

    fn with(
        listener: Listener,
        answer: Box<Answer>,
        source: fn(IpAddr) -> IpAddr,
    ) -> io::Result<Self> {
        let Listener { listener, names } = listener;
        let shared = Arc::new(Shared {
            answer,
            names,
            places: Mutex::default(),
            source,
            is_ending: AtomicBool::new(false),
        });
        let listener = Arc::new(listener);
        let (at, with) = (Arc::clone(&listener), Arc::clone(&shared));
        let name = "srd-metrics".to_owned();
        let thread = thread::Builder::new().name(name).spawn(move || accept(&at, &with))?;
        Ok(Self { listener, shared, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::Relaxed);
        // The shutdown wakes the thread, because its `accept` fails from now on.
        let _ = rustix::net::shutdown(&self.listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    loop {
        let accepted = listener.accept();
        if shared.is_ending.load(Ordering::Relaxed) {
            return;
        }
        match accepted {
            Ok((stream, from)) => take(stream, from.ip(), shared),
            Err(e) => {
                tracing::warn!("metrics: {e}");
                thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
}

fn take(stream: TcpStream, from: IpAddr, shared: &Arc<Shared>) {
    let Some(place) = ConnectionSlot::take(&stream, from, shared) else { return };
    let spawned = thread::Builder::new()
        .name("srd-metrics-client".to_owned())
        .spawn(move || serve(&stream, &place));
    if let Err(e) = spawned {
        tracing::warn!("no thread for a client of the metrics: {e}");
    }
}

/// Slot of a connection. It is freed when this value is dropped.
struct ConnectionSlot {
    number: u64,
    shared: Arc<Shared>,
}

impl ConnectionSlot {
    /// Takes a slot; `None` if there is no free slot and no connection can be replaced, or the
    /// system has no free descriptor.
    fn take(stream: &TcpStream, from: IpAddr, shared: &Arc<Shared>) -> Option<Self> {
        let socket = stream.try_clone().ok()?;
        let mut places = shared.places();
        let from = (shared.source)(from);
        places.share(from, CONNECTIONS_MAX);
        let (number, _) = places.take(socket, from, CONNECTIONS_MAX, true)?;
        drop(places);
        Some(Self { number, shared: Arc::clone(shared) })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.shared.places().give_back(self.number);
    }
}

fn serve(stream: &TcpStream, place: &ConnectionSlot) {
    let read = http::read(stream);
    place.shared.places().keep(place.number);
    let (response, is_head) = match read {
        Ok(request) => (answer(&request, &place.shared), request.is_head),
        Err(Some(response)) => (response, false),
        Err(None) => return,
    };
    if let Err(e) = http::write(stream, &response, is_head) {
        tracing::debug!("a client of the metrics left early: {e}");
    }
    let _ = stream.shutdown(SocketShutdown::Write);
}

fn answer(request: &Request, shared: &Shared) -> Response {
    if !host::is_ours(&request.host, &shared.names) {
        let text = "ask under an address of this machine, or as localhost; other names are given \
                    in its configuration";
        return Response::text(Status::Misdirected, text);
    }
    (shared.answer)(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::sync::mpsc::channel;
    use std::time::Instant;

    const ASKED: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    /// Time limit of each step of the tests.
    const PATIENCE: Duration = Duration::from_secs(60);
    /// Largest number of attempts. An attempt is repeated if it took as long as a client may take
    /// for its request.
    const ROUNDS: usize = 10;

    fn server(answer: Box<Answer>) -> (Server, SocketAddr) {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), false).unwrap();
        let address = listener.address().unwrap();
        (Server::start(listener, answer).unwrap(), address)
    }

    fn connect(address: SocketAddr, request: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request).unwrap();
        stream
    }

    fn text(mut stream: &TcpStream) -> String {
        let mut text = Vec::new();
        // A connection that is closed with unread data is reset.
        let _ = stream.read_to_end(&mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_port_that_another_program_has_is_named_with_a_remedy() {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), false).unwrap();
        let at = listener.address().unwrap();
        let error = Listener::bind(at, false).err().unwrap().to_string();
        assert!(error.contains("another program listens there (`ss -ltnp 'sport = :"), "{error}");
        assert!(error.ends_with("choose another port"), "{error}");
    }

    /// Regression: idle connections occupied all slots for five seconds, and then reconnected.
    /// Other clients got no response.
    #[test]
    fn regression_connections_that_ask_for_nothing_keep_nobody_out() {
        let answer = |_: &Request| Response::text(Status::Ok, "figures");
        let (_server, stalled, said, oldest) = (0..ROUNDS)
            .find_map(|_| {
                let (server, address) = server(Box::new(answer));
                let stall = || connect(address, b"GET / HTTP/1.1\r\n");
                let began = Instant::now();
                let stalled: Vec<TcpStream> = (0..CONNECTIONS_MAX).map(|_| stall()).collect();
                let said = text(&connect(address, ASKED));
                let oldest = text(&stalled[0]);
                let is_in_time = began.elapsed() < http::HEAD_WAIT_MAX;
                is_in_time.then_some((server, stalled, said, oldest))
            })
            .expect("an answer before the time of the others is over");
        assert!(said.starts_with("HTTP/1.1 200"), "{said}");
        assert_eq!(oldest, "", "the oldest gave its place up");
        assert!(text(&stalled[1]).starts_with("HTTP/1.1 408"), "the others have their time");
    }

    /// Connects from the loopback address `from`, and sends a request.
    fn connect_from(from: [u8; 4], address: SocketAddr, request: &[u8]) -> TcpStream {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::from((from, 0))).unwrap();
        connect(&socket, &address).unwrap();
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request).unwrap();
        stream
    }

    #[test]
    fn readers_that_take_no_answer_leave_places_to_other_addresses() {
        // More bytes than the socket buffers of both ends hold.
        let body = "x".repeat(8 << 20);
        let answer = move |request: &Request| {
            let body = if request.path == "/much" { body.clone() } else { "figures".to_owned() };
            Response::ok("text/plain", body)
        };
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), false).unwrap();
        let address = listener.address().unwrap();
        // Each address is a separate source here, like an address of another machine.
        let server = Server::with(listener, Box::new(answer), |address| address).unwrap();
        let much = b"GET /much HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let began = Instant::now();
        let idle: Vec<TcpStream> =
            (0..CONNECTIONS_MAX).map(|_| connect_from([127, 0, 0, 2], address, much)).collect();
        while server.shared.places().kept() < CONNECTIONS_MAX {
            assert!(began.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(1));
        }
        let said = text(&connect_from([127, 0, 0, 2], address, ASKED));
        let hold = began.elapsed() < http::RESPONSE_TAKEN_MAX;
        assert!(said.is_empty() || !hold, "an address that has its share gets no more: {said}");
        for _ in 0..CONNECTIONS_MAX {
            let said = text(&connect_from([127, 0, 0, 1], address, ASKED));
            assert!(said.starts_with("HTTP/1.1 200"), "{said}");
        }
        drop(idle);
    }

    #[test]
    fn a_request_under_a_name_that_was_given_is_answered() {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), false).unwrap();
        let address = listener.address().unwrap();
        let listener = listener.also_named(&["figures.example".to_owned()]);
        let _server =
            Server::start(listener, Box::new(|_| Response::ok("text/plain", "figures".into())));
        for (host, status) in [
            ("figures.example", "200"),
            ("Figures.example:9471", "200"),
            ("figures.example.evil.example", "421"),
            ("other.example", "421"),
        ] {
            let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let said = text(&connect(address, request.as_bytes()));
            assert!(said.starts_with(&format!("HTTP/1.1 {status}")), "{host}: {said}");
        }
    }

    #[test]
    fn connections_that_ask_are_bounded_and_keep_their_places() {
        let (go, gate) = channel::<()>();
        let gate = Mutex::new(gate);
        let answer = move |_: &Request| {
            let _ = gate.lock().unwrap().recv();
            Response::text(Status::Ok, "figures")
        };
        let (server, address) = server(Box::new(answer));
        let asked: Vec<TcpStream> = (0..CONNECTIONS_MAX).map(|_| connect(address, ASKED)).collect();
        let began = Instant::now();
        while server.shared.places().kept() < CONNECTIONS_MAX {
            assert!(began.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(text(&connect(address, ASKED)), "", "one more is closed at once");
        drop(go);
        assert!(asked.iter().all(|stream| text(stream).starts_with("HTTP/1.1 200")));
    }
}
