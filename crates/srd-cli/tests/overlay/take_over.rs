//! `srd up --take-over`: another process takes over a running daemon, and no connection through the
//! tunnel ends. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::fs::{self, File, Permissions};
use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Child, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::support::pair::{PATIENCE, Pair, Settings, must, ready};
use crate::support::successor::{Relayed, Successor, VERSION, line, request};
use rustix::process::{Pid, Signal, Uid, kill_process};
use rustix::thread::set_thread_res_uid;

/// Longest time for which a take-over may delay packets. A busy machine may delay them for longer,
/// so one of several take-overs has to keep this limit.
const SILENCE_MAX: Duration = Duration::from_millis(1500);
/// Maximum number of take-overs, one of which has to keep [`SILENCE_MAX`].
const TAKE_OVERS_MAX: usize = 12;

/// Traffic through the tunnel from the first machine to the second and back: a connection, and
/// datagrams.
struct Traffic {
    ends: Arc<AtomicBool>,
    /// Longest round trip on the connection since the last look, in milliseconds.
    longest_ms: Arc<AtomicU64>,
    /// Numbers of answers on the connection, and of datagrams that came back.
    answers: Arc<[AtomicU64; 2]>,
    threads: Vec<JoinHandle<()>>,
}

impl Traffic {
    fn start(pair: &Pair, [here, there]: [&str; 2]) -> Self {
        let listener = pair.within(1, || TcpListener::bind((there, 9000)).unwrap());
        let mut client = pair.within(0, || TcpStream::connect((there, 9000)).unwrap());
        let (mut server, _) = listener.accept().unwrap();
        let echo = pair.within(1, || UdpSocket::bind((there, 9001)).unwrap());
        let ping = pair.within(0, || UdpSocket::bind((here, 0)).unwrap());
        ping.connect((there, 9001)).unwrap();
        let (ends, longest_ms) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let answers = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let mut threads = Vec::new();
        threads.push(thread::spawn(move || {
            let mut bytes = [0; 8];
            while server.read_exact(&mut bytes).is_ok() {
                server.write_all(&bytes).unwrap();
            }
        }));
        let (over, longest, count) = (ends.clone(), longest_ms.clone(), answers.clone());
        threads.push(thread::spawn(move || {
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            while !over.load(Ordering::Relaxed) {
                let (number, began) = (count[0].fetch_add(1, Ordering::Relaxed), Instant::now());
                client.write_all(&number.to_ne_bytes()).expect("the connection has ended");
                let mut answer = [0; 8];
                client.read_exact(&mut answer).expect("the connection has ended");
                assert_eq!(u64::from_ne_bytes(answer), number);
                let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap();
                longest.fetch_max(took_ms, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(5));
            }
        }));
        let over = ends.clone();
        echo.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        threads.push(thread::spawn(move || {
            let mut bytes = [0; 8];
            while !over.load(Ordering::Relaxed) {
                if let Ok((_, from)) = echo.recv_from(&mut bytes) {
                    let _ = echo.send_to(&bytes, from);
                }
            }
        }));
        let (over, count) = (ends.clone(), answers.clone());
        ping.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        threads.push(thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let _ = ping.send(b"datagram");
                if ping.recv(&mut [0; 8]).is_ok() {
                    count[1].fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(10));
                }
            }
        }));
        Self { ends, longest_ms, answers, threads }
    }

    /// Waits until both kinds of packets have passed again.
    fn passes(&self, pair: &Pair) {
        let before = [0, 1].map(|at| self.answers[at].load(Ordering::Relaxed));
        let is_beyond = |at: usize| self.answers[at].load(Ordering::Relaxed) > before[at] + 5;
        pair.wait("packets both ways", |_| self.is_whole() && is_beyond(0) && is_beyond(1));
    }

    /// Whether no thread of the traffic has failed.
    fn is_whole(&self) -> bool {
        assert!(!self.threads.iter().any(JoinHandle::is_finished), "the connection has ended");
        true
    }

    /// Returns the longest round trip on the connection since the last call.
    fn silence(&self) -> Duration {
        Duration::from_millis(self.longest_ms.swap(0, Ordering::Relaxed))
    }

    fn end(self) {
        self.ends.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// Starts the daemons of both machines, and waits until they use SRD.
fn met(tag: &str, settings: &Settings<'_>) -> Pair {
    let mut pair = Pair::new(tag);
    for end in [0, 1] {
        pair.configure(end, settings);
        pair.start(end);
    }
    pair.wait_for_express();
    pair
}

/// Runs `srd up --take-over` until it ends.
fn refused(pair: &Pair, end: usize) -> String {
    let Output { status, stderr, .. } = take_over_command(pair, end).output().unwrap();
    assert!(!status.success());
    String::from_utf8(stderr).unwrap()
}

fn take_over_command(pair: &Pair, end: usize) -> std::process::Command {
    let mut command = pair.command(end);
    command.args(["up", "--take-over", "-c"]).arg(pair.path(format!("{end}.toml")));
    command
}

/// Makes another process take over from the daemon of a machine, and waits until the process has
/// done so and the daemon has ended.
fn take_over(pair: &mut Pair, end: usize) {
    let log = pair.path(format!("{end}.next.log"));
    let mut command = take_over_command(pair, end);
    let next = command.stderr(File::create(&log).unwrap()).spawn().unwrap();
    let mut old = pair.daemons[end].replace(next).unwrap();
    let said = || fs::read_to_string(&log).unwrap();
    let began = Instant::now();
    let status = loop {
        let has_failed = pair.daemons[end].as_mut().unwrap().try_wait().unwrap().is_some();
        assert!(!has_failed && began.elapsed() < PATIENCE, "{}", said());
        match old.try_wait().unwrap() {
            Some(status) if said().contains("took over") => break status,
            _ => thread::sleep(Duration::from_millis(10)),
        }
    };
    assert_eq!(status.code(), Some(0), "the daemon before");
}

/// Ends a daemon in order.
fn end(daemon: &mut Child) {
    kill_process(Pid::from_child(daemon), Signal::TERM).unwrap();
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
}

/// Returns everything that a daemon changes on the network of its machine, and the processes there.
fn facts(pair: &Pair, end: usize) -> Vec<String> {
    // At the first call, the other end of the wire may not be up yet, and IPv6 has no address yet.
    let of = |words: &str| {
        let text = must(&format!("-n {} {words}", pair.names[end])).replace("linkdown ", "");
        text.lines().filter(|line| !line.contains("fe80")).collect::<Vec<_>>().join("\n")
    };
    let processes = must(&format!("netns pids {}", pair.names[end]));
    let all = ["-4 -o addr", "rule", "-6 rule", "route show table all"];
    all.map(of).into_iter().chain([processes]).collect()
}

/// Waits until the network of a machine is as it was, and no process is left there.
fn given_back(pair: &Pair, end: usize, before: &[String]) {
    let began = Instant::now();
    while facts(pair, end) != before && began.elapsed() < PATIENCE / 2 {
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(facts(pair, end), before);
}

#[test]
fn a_connection_lives_while_its_daemon_is_taken_over_three_times_and_nothing_is_left() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("to");
    let before = facts(&pair, 0);
    let note = pair.path("hooks".into());
    let hooks = format!(
        "pre_up = [\"echo pre_up >> {note}\"]\npre_down = [\"echo pre_down >> {note}\"]\n\
         post_down = [\"echo post_down >> {note}\"]",
        note = note.display()
    );
    pair.configure(0, &Settings { interface: &hooks, ..Settings::OVERLAY });
    pair.configure(1, &Settings::OVERLAY);
    (0..2).for_each(|end| pair.start(end));
    pair.wait_for_express();
    let traffic = Traffic::start(&pair, ["10.77.0.1", "10.77.0.2"]);
    traffic.passes(&pair);
    let mut silences = Vec::new();
    let is_short = |all: &[Duration]| all.iter().any(|silence| *silence < SILENCE_MAX);
    while silences.len() < 3 || (!is_short(&silences) && silences.len() < TAKE_OVERS_MAX) {
        traffic.silence();
        take_over(&mut pair, 0);
        traffic.passes(&pair);
        pair.wait_for_express();
        silences.push(traffic.silence());
    }
    println!("longest round trips of the connection: {silences:?}");
    assert!(is_short(&silences), "{silences:?}");
    // The other machine is taken over as well, and then both.
    take_over(&mut pair, 1);
    traffic.passes(&pair);
    // A route that another program removes is restored by the first network process.
    must(&format!("-n {} route del 10.77.0.2 table 7471", pair.names[0]));
    pair.wait("the route", |pair| {
        must(&format!("-n {} route show table 7471", pair.names[0])).contains("10.77.0.2")
    });
    assert!(!note.exists() || !fs::read_to_string(&note).unwrap().contains("down"));
    traffic.end();
    end(pair.daemons[0].as_mut().unwrap());
    assert_eq!(fs::read_to_string(&note).unwrap(), "pre_up\npre_down\npost_down\n");
    given_back(&pair, 0, &before);
    assert!(!pair.path("0.sock".into()).exists());
    let config = pair.path("0.toml".into());
    let down = pair.command(0).arg("down").arg("-c").arg(config).output().unwrap();
    assert_eq!(String::from_utf8(down.stdout).unwrap(), "srd0: nothing was left\n");
}

#[test]
fn a_daemon_that_took_over_and_is_killed_leaves_nothing() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("tk");
    let before = facts(&pair, 0);
    pair.configure(0, &Settings::OVERLAY);
    pair.start(0);
    pair.wait("the daemon", |pair| pair.ask(0, &["status"]).is_some());
    take_over(&mut pair, 0);
    let daemon = pair.daemons[0].as_mut().unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    given_back(&pair, 0, &before);
}

/// In transparent mode, the connection uses the real addresses of the machines.
#[test]
fn a_connection_without_an_overlay_lives_and_its_packets_stay_in_the_tunnel() {
    if !ready() {
        return;
    }
    let mut pair = met("tt", &Settings::TRANSPARENT);
    let is_steered = |pair: &Pair| {
        must(&format!("-n {} route get 198.18.0.2", pair.names[0])).contains("dev srd0")
    };
    pair.wait("steering", is_steered);
    let traffic = Traffic::start(&pair, ["198.18.0.1", "198.18.0.2"]);
    traffic.passes(&pair);
    take_over(&mut pair, 0);
    assert!(is_steered(&pair));
    traffic.passes(&pair);
    pair.wait_for_express();
    pair.transfer_by_srd("198.18.0.2");
    traffic.is_whole();
    traffic.end();
}

/// A process that is to take over fails at each step, or may not take over. The daemon continues as
/// before.
#[test]
fn a_daemon_whose_successor_fails_goes_on_as_before() {
    if !ready() {
        return;
    }
    let mut pair = met("tf", &Settings::OVERLAY);
    let traffic = Traffic::start(&pair, ["10.77.0.1", "10.77.0.2"]);
    traffic.passes(&pair);
    let socket = pair.path("0.sock".into());
    let said = Successor::requests(&socket, 999).line();
    assert!(said.contains("reads form 999: restart the daemon"), "{said}");
    let begun = || {
        let mut successor = Successor::requests(&socket, VERSION);
        assert!(successor.line().starts_with("{\"ok\":"));
        successor
    };
    // The process reads the state, and ends.
    drop(begun());
    traffic.passes(&pair);
    // The process is ready, and ends.
    let mut dies = begun();
    dies.say("ready");
    assert_eq!(dies.line(), "go 0");
    drop(dies);
    traffic.passes(&pair);
    // The process sends nothing more, and does not end. The daemon continues without a wait for its
    // end, because the process moves no packets.
    let mut silent = begun();
    silent.say("ready");
    assert_eq!(silent.line(), "go 0");
    let said = silent.line();
    assert!(said.contains("continues as before") && said.contains("sends nothing"), "{said}");
    traffic.passes(&pair);
    drop(silent);
    // A process that is ready too late ends when it reads the decision.
    let (mut relayed, mut late) = Relayed::start(take_over_command(&pair, 0), &socket, || {});
    relayed.until_go();
    traffic.passes(&pair);
    assert!(!late.wait().unwrap().success());
    drop(relayed);
    traffic.passes(&pair);

    // A user that may use the control socket may not take the daemon over.
    fs::set_permissions(socket.parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
    let said = thread::scope(|scope| {
        let other = scope.spawn(|| {
            let user = Uid::from_raw(54_321);
            // The change of the user affects only this thread.
            set_thread_res_uid(user, user, user).unwrap();
            let mut stream = UnixStream::connect(&socket).unwrap();
            stream.write_all(format!("{}\n", request(VERSION)).as_bytes()).unwrap();
            line(&mut BufReader::new(stream))
        });
        other.join().unwrap()
    });
    assert!(said.contains("not-permitted"), "{said}");

    // A change that a take-over cannot make is refused, and has no effect.
    let path = pair.path("0.toml".into());
    let text = fs::read_to_string(&path).unwrap();
    let with = |from: &str, to: &str| {
        assert!(text.contains(from), "{text}");
        fs::write(&path, text.replace(from, to)).unwrap();
        refused(&pair, 0)
    };
    let said = with("198.18.0.1:7471", "198.18.0.1:7600");
    assert!(said.contains("other values of listen than the daemon that runs"), "{said}");
    let said = with("paths = 4", "paths = 8");
    assert!(said.contains("other values of paths"), "{said}");
    let said = with("10.77.0.1/24", "10.77.0.9/24");
    assert!(said.contains("other values of address"), "{said}");
    let said = with("[[peer]]", "[[peer]]\nunknown = 1");
    assert!(said.contains("unknown"), "{said}");
    let peer = text.find("[[peer]]").unwrap();
    fs::write(&path, &text[..peer]).unwrap();
    let said = refused(&pair, 0);
    assert!(said.contains("has the peer other, which is not in"), "{said}");
    fs::write(&path, &text).unwrap();
    traffic.passes(&pair);
    pair.wait_for_express();
    let pid = pair.daemons[0].as_ref().unwrap().id();
    take_over(&mut pair, 0);
    assert_ne!(pair.daemons[0].as_ref().unwrap().id(), pid);
    traffic.passes(&pair);
    traffic.end();
    end(pair.daemons[0].as_mut().unwrap());
    let said = refused(&pair, 0);
    let start = format!("start one: srd up -c {}", path.display());
    assert!(said.contains("no daemon serves") && said.contains(&start), "{said}");
}

/// A reload was confirmed after the process that took over had read its configuration, and had no
/// effect in that process.
#[test]
fn regression_a_reload_that_was_confirmed_is_in_force_after_a_take_over() {
    if !ready() {
        return;
    }
    let mut pair = met("tr", &Settings::OVERLAY);
    let socket = pair.path("0.sock".into());
    let file = pair.path("0.toml".into());
    let (mut relayed, next) = Relayed::start(take_over_command(&pair, 0), &socket, || {
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("[interface]\n", "[interface]\nexpress = false\n")).unwrap();
        assert!(pair.ask(0, &["reload"]).is_some());
        // The workers update the figures of a status several times a second.
        let is_off = |status: &serde_json::Value| status["peers"][0]["express"] == "off";
        pair.wait("the status", |pair| pair.ask(0, &["status"]).as_ref().is_some_and(is_off));
    });
    relayed.until_go();
    relayed.until_end();
    let mut old = pair.daemons[0].replace(next).unwrap();
    assert_eq!(old.wait().unwrap().code(), Some(0));
    pair.wait("the status", |pair| pair.ask(0, &["status"]).is_some());
    assert_eq!(pair.ask(0, &["status"]).unwrap()["peers"][0]["express"], "off");
    end(pair.daemons[0].as_mut().unwrap());
}

/// A signal that a daemon got while another process took over had no effect: the daemon ended, and
/// the other process continued.
#[test]
fn regression_a_signal_to_end_that_comes_during_a_hand_over_ends_the_other_process() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("ts");
    let before = facts(&pair, 0);
    pair.configure(0, &Settings::OVERLAY);
    pair.start(0);
    pair.wait("the daemon", |pair| pair.ask(0, &["status"]).is_some());
    let socket = pair.path("0.sock".into());
    let (mut relayed, mut next) = Relayed::start(take_over_command(&pair, 0), &socket, || {});
    relayed.until_go();
    let mut old = pair.daemons[0].take().unwrap();
    kill_process(Pid::from_child(&old), Signal::TERM).unwrap();
    pair.wait("the signal", |_| !has_pending_signals(&old));
    relayed.until_end();
    assert_eq!(old.wait().unwrap().code(), Some(0));
    assert_eq!(next.wait().unwrap().code(), Some(0));
    given_back(&pair, 0, &before);
    assert!(!socket.exists());
}

/// Whether a process has signals that none of its threads has processed yet.
fn has_pending_signals(process: &Child) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap();
    u64::from_str_radix(pending.trim(), 16).unwrap() != 0
}

/// systemd would end all processes of a unit whose main process ends. So the daemon starts the
/// process that takes over, and reports it to systemd as the main process.
#[test]
fn a_daemon_of_a_unit_starts_its_successor_and_names_it_to_systemd() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("tu");
    let before = facts(&pair, 0);
    let path = pair.path("notify".into());
    let systemd = UnixDatagram::bind(&path).unwrap();
    systemd.set_read_timeout(Some(PATIENCE)).unwrap();
    let told = || {
        let mut bytes = [0; 256];
        let length = systemd.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    for end in [0, 1] {
        pair.configure(end, &Settings::OVERLAY);
    }
    pair.start(1);
    let config = pair.path("0.toml".into());
    let mut up = pair.command(0);
    up.args(["up", "-c"]).arg(config).env("NOTIFY_SOCKET", &path);
    let mut daemon = up.spawn().unwrap();
    assert!(told().starts_with("READY=1\nSTATUS=srd0 is up"));
    pair.wait_for_express();
    let traffic = Traffic::start(&pair, ["10.77.0.1", "10.77.0.2"]);
    let mut process = daemon.id();
    for _ in 0..2 {
        traffic.passes(&pair);
        let asks = take_over_command(&pair, 0).stdout(std::process::Stdio::piped()).spawn();
        let named = told();
        let next: u32 = named.strip_prefix("MAINPID=").unwrap().parse().unwrap();
        assert_ne!(next, process);
        assert_eq!(told(), "BARRIER=1");
        let Output { status, stdout, .. } = asks.unwrap().wait_with_output().unwrap();
        let said = String::from_utf8(stdout).unwrap();
        assert!(status.success() && said.starts_with(&format!("process {next} of the unit")));
        assert!(told().starts_with("READY=1\nSTATUS=srd0 is up"));
        process = next;
    }
    traffic.passes(&pair);
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
    traffic.end();
    // If the process that the daemon starts fails, the daemon continues.
    let file = pair.path("0.toml".into());
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("paths = 4", "paths = 8")).unwrap();
    let said = refused(&pair, 0);
    assert!(said.contains("the log of the unit has the reason"), "{said}");
    assert!(pair.ask(0, &["status"]).is_some());
    let number = i32::try_from(process).unwrap();
    kill_process(Pid::from_raw(number).unwrap(), Signal::TERM).unwrap();
    given_back(&pair, 0, &before);
}
