//! `srd nfs-proxy` during outages while calls are in flight: the server's half is killed, every
//! path fails and returns, one path of two fails. Each call must be executed once and answered
//! once.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use crate::ready::ready;
use srd_lab::config::FabricConfig;
use srd_lab::fabric::Fabric;
use srd_lab::guard::FabricGuard;
use srd_lab::id::HostId;
use srd_nfs::record::{self, Record};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const CLIENT: HostId = HostId { leaf: 0, host: 0 };
const SERVER: HostId = HostId { leaf: 1, host: 0 };
/// Number of calls that are kept in flight.
const DEPTH: u32 = 16;
const CALL_BYTES: usize = 9 << 10;
const RECORD_BYTES_MAX: usize = 1 << 20;
/// Maximum time of any step, long enough for any machine. The tests print the actual times.
const WAIT: Duration = Duration::from_secs(60);

/// Returns a call whose bytes identify it.
fn call(xid: u32) -> Record {
    let data = xid.to_be_bytes().into_iter().cycle().take(CALL_BYTES);
    let message = [xid.to_be_bytes(), [0; 4]].concat().into_iter().chain(data);
    Record::of(&message.collect::<Vec<_>>()).unwrap()
}

/// Replacement of an NFS server. Like a real server, it executes a call once, and answers a
/// repeated call with the stored answer.
#[derive(Default)]
struct Server {
    executed: Mutex<BTreeSet<u32>>,
    came_again: Mutex<u32>,
    /// Time that the execution of a call takes.
    takes: Duration,
}

impl Server {
    fn start(listener: TcpListener, takes: Duration) -> Arc<Self> {
        let server = Arc::new(Self { takes, ..Self::default() });
        let serving = Arc::clone(&server);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let serving = Arc::clone(&serving);
                thread::spawn(move || serving.answer(&stream));
            }
        });
        server
    }

    fn answer(&self, mut stream: &TcpStream) {
        let mut from = BufReader::new(stream);
        while let Ok(Some(came)) = record::read(&mut from, RECORD_BYTES_MAX) {
            let number = came.xid();
            assert_eq!(came.message(), call(number).message(), "a call is whole");
            if !self.executed.lock().unwrap().insert(number) {
                *self.came_again.lock().unwrap() += 1;
            }
            thread::sleep(self.takes);
            let mut reply = came.message()[..64].to_vec();
            reply[7] = 1;
            if stream.write_all(Record::of(&reply).unwrap().bytes()).is_err() {
                return;
            }
        }
    }
}

/// Load of a test: calls that continue until they are stopped, with the time of each answer.
struct Load {
    replies: Arc<Mutex<BTreeMap<u32, Instant>>>,
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<u32>,
}

impl Load {
    fn start(stream: TcpStream) -> Self {
        let (replies, stop) = (Arc::<Mutex<BTreeMap<_, _>>>::default(), Arc::default());
        let (noted, ends) = (Arc::clone(&replies), Arc::<AtomicBool>::clone(&stop));
        let thread = thread::spawn(move || {
            stream.set_read_timeout(Some(WAIT)).unwrap();
            let mut from = BufReader::new(&stream);
            let (mut sent, mut answered) = (0, 0);
            while answered < sent || !ends.load(Ordering::SeqCst) {
                while sent < answered + DEPTH && !ends.load(Ordering::SeqCst) {
                    (&stream).write_all(call(sent).bytes()).unwrap();
                    sent += 1;
                }
                let reply = record::read(&mut from, RECORD_BYTES_MAX).unwrap().expect("a reply");
                let before = noted.lock().unwrap().insert(reply.xid(), Instant::now());
                assert_eq!(before, None, "{} is answered twice", reply.xid());
                answered += 1;
            }
            sent
        });
        Self { replies, stop, thread }
    }

    /// Waits until one more call is answered.
    fn goes_on(&self, what: &str) {
        let count = || self.replies.lock().unwrap().len();
        let (moment, before) = (Instant::now(), count());
        while count() == before {
            assert!(moment.elapsed() < WAIT, "{what}: no reply");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until several calls per slot ([`DEPTH`]) were answered after `moment`, and prints the
    /// time until the first of these answers.
    fn goes_on_after(&self, moment: Instant, what: &str) {
        let first = loop {
            let replies = self.replies.lock().unwrap();
            let later = replies.values().filter(|at| **at > moment);
            let (count, first) = (later.clone().count(), later.min().copied());
            drop(replies);
            if count > 4 * DEPTH as usize {
                break first.unwrap();
            }
            assert!(moment.elapsed() < WAIT, "{what}: no reply");
            thread::sleep(Duration::from_millis(5));
        };
        println!("{what}: first reply after {} ms", (first - moment).as_millis());
    }

    /// Ends the load. Each call must have been executed once, and answered once.
    fn end(self, server: &Server) {
        self.stop.store(true, Ordering::SeqCst);
        let calls = self.thread.join().unwrap();
        let all: BTreeSet<u32> = (0..calls).collect();
        assert!(self.replies.lock().unwrap().keys().eq(&all), "each is answered");
        assert_eq!(*server.executed.lock().unwrap(), all, "each is executed");
        let again = *server.came_again.lock().unwrap();
        println!("{calls} calls, {again} came to the server twice");
    }

    /// Returns the longest time without an answer since `moment`.
    fn silence_since(&self, moment: Instant) -> Duration {
        let mut at: Vec<_> = self.replies.lock().unwrap().values().copied().collect();
        at.retain(|at| *at > moment);
        at.push(moment);
        at.sort();
        at.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }
}

/// A process of one half of the proxy; it is killed when this value is dropped.
struct Half(Child);

impl Half {
    fn start(fabric: &Fabric, host: HostId, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_srd"));
        command.arg("nfs-proxy").args(arguments).stdin(Stdio::null());
        Self(fabric.spawn(host, &mut command).unwrap())
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        // `kill` sends SIGKILL.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn fabric(prefix: &str) -> FabricGuard {
    let name_prefix = format!("{prefix}{}", std::process::id());
    let shape = FabricConfig { name_prefix, hosts_per_leaf: 1, spines: 2, ..Default::default() };
    Fabric::up_guarded(shape).unwrap()
}

/// Starts the replacement of the NFS server. Each call takes the time `takes`.
fn serve_calls(fabric: &Fabric, takes: Duration) -> Arc<Server> {
    let listener = fabric.within(SERVER, || TcpListener::bind("127.0.0.1:2049").unwrap()).unwrap();
    Server::start(listener, takes)
}

/// Starts the half of the proxy beside the server.
fn serve(fabric: &Fabric) -> Half {
    let listens = ["--serve", "--listen", "0.0.0.0:20050", "--to", "127.0.0.1:2049"];
    Half::start(fabric, SERVER, &[&listens[..], &["--plain", "--trust-network"]].concat())
}

/// Starts the half of the proxy beside the client.
fn ours(fabric: &Fabric) -> Half {
    let family = srd_lab::Family::V4;
    let there = format!("{}:20050", fabric.host_address(SERVER, family).unwrap());
    let anybody = ["--any-user", "--unprivileged-port", "--listen", "127.0.0.1:20049"];
    let arguments = ["--plain", "--trust-network", "--connections", "4", &there];
    Half::start(fabric, CLIENT, &[&anybody[..], &arguments].concat())
}

/// Connects to the client's half of the proxy as soon as it listens.
fn connect(fabric: &Fabric) -> TcpStream {
    let began = Instant::now();
    loop {
        match fabric.within(CLIENT, || TcpStream::connect("127.0.0.1:20049")).unwrap() {
            Ok(stream) => return stream,
            Err(error) => assert!(began.elapsed() < WAIT, "{error}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn calls_are_executed_and_answered_once_whatever_dies_meanwhile() {
    if !ready([]) {
        return;
    }
    let fabric = fabric("nfo");
    let server = serve_calls(&fabric, Duration::ZERO);
    let mut serving = serve(&fabric);
    let _ours = ours(&fabric);
    let load = Load::start(connect(&fabric));
    load.goes_on_after(Instant::now(), "from the start");

    drop(serving);
    thread::sleep(Duration::from_millis(500));
    let returned = Instant::now();
    serving = serve(&fabric);
    load.goes_on_after(returned, "the server's half was killed and is there again");

    (0..2).for_each(|spine| fabric.fail_spine(spine).unwrap());
    thread::sleep(Duration::from_secs(3));
    let returned = Instant::now();
    (0..2).for_each(|spine| fabric.heal_spine(spine).unwrap());
    load.goes_on_after(returned, "no path for 3 s, and both again");

    for spine in [0, 1] {
        let began = Instant::now();
        fabric.fail_spine(spine).unwrap();
        thread::sleep(Duration::from_secs(4));
        load.goes_on("by the other path, or as before");
        println!("spine {spine} dead: silence of {} ms", load.silence_since(began).as_millis());
        fabric.heal_spine(spine).unwrap();
    }

    load.end(&server);
    drop(serving);
    fabric.down().unwrap();
}

/// Regression: if all calls had been acknowledged when the path failed, this end had nothing to
/// retransmit. So it waited for the replies until the kernel's keepalive ended the connection,
/// after 105 s.
#[test]
fn regression_a_connection_whose_path_dies_before_the_replies_is_made_anew() {
    if !ready([]) {
        return;
    }
    let fabric = fabric("nfr");
    let server = serve_calls(&fabric, Duration::from_millis(100));
    let serving = serve(&fabric);
    let _ours = ours(&fabric);
    let load = Load::start(connect(&fabric));
    load.goes_on_after(Instant::now(), "from the start");
    // The connection uses one of the two spines, so each is failed in turn.
    for spine in [0, 1] {
        let began = Instant::now();
        fabric.fail_spine(spine).unwrap();
        // Within this time, the replies that were in flight arrive.
        thread::sleep(Duration::from_secs(1));
        load.goes_on("by the other path, or as before");
        println!("spine {spine} dead: silence of {} ms", load.silence_since(began).as_millis());
        fabric.heal_spine(spine).unwrap();
        thread::sleep(Duration::from_secs(1));
    }
    load.end(&server);
    drop(serving);
    fabric.down().unwrap();
}
