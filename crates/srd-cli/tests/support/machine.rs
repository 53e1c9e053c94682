//! A machine with a card: a network namespace, a directory for its files, and the instances of a
//! cloud.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

use super::cloud_text::{self, Instance};
pub(crate) use super::pair::PATIENCE;
use super::pair::{Pauses, ip, must, own_suffix, ready};

pub(crate) const SRD: &str = env!("CARGO_BIN_EXE_srd");
/// Time for which a test waits before it concludes that an event does not occur. A test waits
/// [`PATIENCE`] for an event that must occur.
pub(crate) const SILENCE: Duration = Duration::from_millis(700);
/// Duration for the command `sleep`, in seconds: longer than any test.
pub(crate) const LONG_S: &str = "600";

pub(crate) const WEB: [u8; 4] = [10, 0, 1, 10];
pub(crate) const WEB_PUBLIC: [u8; 4] = [198, 51, 100, 10];
pub(crate) const NAT_PUBLIC: [u8; 4] = [198, 51, 100, 5];
/// The machine's address in the internet.
pub(crate) const OUTSIDE: [u8; 4] = [203, 0, 113, 1];

/// A machine on which a card can run.
pub(crate) struct Machine {
    pub(crate) namespace: String,
    pub(crate) directory: tempfile::TempDir,
    /// Prefix of the names of the machine's instances, which no other test uses.
    pub(crate) prefix: String,
    /// Whether dropping the machine removes its network namespace.
    pub(crate) owned: bool,
}

impl Machine {
    pub(crate) fn new(tag: &str) -> Self {
        let namespace = format!("srdcard{tag}{}", own_suffix());
        must(&format!("netns add {namespace}"));
        must(&format!("-n {namespace} link set lo up"));
        let mut machine = Self::at(tag, &namespace);
        machine.owned = true;
        machine
    }

    /// Returns a machine that uses an existing network namespace.
    pub(crate) fn at(tag: &str, namespace: &str) -> Self {
        let prefix = format!("t{tag}{}-", own_suffix());
        let directory = tempfile::tempdir().unwrap();
        Self { namespace: namespace.to_owned(), directory, prefix, owned: false }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file of a cloud, and returns its path. In `text`, `'` stands for `"`, and an
    /// initial `P` in the name of an instance stands for the prefix of the machine.
    pub(crate) fn cloud(&self, name: &str, text: &str) -> String {
        let text = text.replace('\'', "\"").replace(".P", &format!(".{}", self.prefix));
        let path = self.path(name);
        fs::write(&path, text.replace("\"P", &format!("\"{}", self.prefix))).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Writes a cloud with the hosts alpha and beta and the instances `Pa` and `Pb`, one on each
    /// host. `ingress` lists the rules of their security group.
    pub(crate) fn two_hosts(&self, ingress: &str) -> String {
        self.two_hosts_with("two.toml", ingress, ["", ""])
    }

    /// Writes a cloud with the hosts alpha and beta to the file `name`. `lines` are added to the
    /// interfaces of the two instances.
    pub(crate) fn two_hosts_with(&self, name: &str, ingress: &str, lines: [&str; 2]) -> String {
        let instance = |(name, interface, host, last, lines)| {
            let kind = "c7i.24xlarge";
            Instance { name, interface, kind, host, last, lines }
        };
        let instances = [("Pa", "a", "alpha", 10, lines[0]), ("Pb", "b", "beta", 11, lines[1])];
        self.cloud(name, &cloud_text::cloud("main", ingress, &instances.map(instance)))
    }

    /// Writes the example of the documentation to the file `name`, with the prefix of the machine
    /// in the names of the instances. `change` may change the text before.
    pub(crate) fn example(&self, name: &str, change: impl Fn(String) -> String) -> String {
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/vpc/web-app.toml");
        let mut text = fs::read_to_string(example).unwrap();
        for instance in ["web", "app"] {
            let own = format!("{}{instance}", self.prefix);
            text = text.replace(&format!("[instance.{instance}]"), &format!("[instance.{own}]"));
            text = text
                .replace(&format!("instance = \"{instance}\""), &format!("instance = \"{own}\""));
        }
        let path = self.path(name);
        fs::write(&path, change(text)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub(crate) fn instance(&self, name: &str) -> String {
        format!("srd-i-{}{name}", self.prefix)
    }

    pub(crate) fn socket(&self) -> String {
        self.path("card.sock").to_str().unwrap().to_owned()
    }

    /// Returns the command `srd` with these arguments, in the network namespace of the machine. It
    /// does not use `ip netns exec`, which would hide the namespaces that the card creates.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let program = words.iter().position(|word| *word == "--").unwrap_or(words.len());
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace)).arg(SRD);
        command.args(&words[..program]).args(["--socket", &self.socket()]);
        if words.starts_with(&["card", "up"])
            && !["-c", "--workers"].iter().any(|word| words.contains(word))
        {
            command.args(workers().iter().flat_map(|number| ["--workers", number.as_str()]));
        }
        // Each machine stores its epochs in a separate directory.
        command.env("STATE_DIRECTORY", self.path("state"));
        command.args(&words[program..]);
        command
    }

    pub(crate) fn srd(&self, words: &[&str]) -> Output {
        self.command(words).stdin(Stdio::null()).output().unwrap()
    }

    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let output = self.srd(&[words, &["--json", "-"]].concat());
        assert!(output.status.success(), "{output:#?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Starts a card, and waits until it answers commands.
    pub(crate) fn up(&self, words: &[&str]) -> Running {
        self.up_by(self.command(&[&["card", "up"], words].concat()))
    }

    /// Starts a card with a command that becomes the card, and waits until it answers. The log of
    /// the card is the file `up.log`.
    pub(crate) fn up_by(&self, mut command: Command) -> Running {
        let path = self.path("up.log");
        // A helper process of a killed card may still write to the old log. Removing the file makes
        // the new log separate.
        let _ = fs::remove_file(&path);
        let log = File::create(&path).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let mut running = Running(command.spawn().unwrap());
        let began = Instant::now();
        let mut pauses = Pauses::new(Duration::from_millis(50));
        while !self.srd(&["card", "status"]).status.success() {
            let has_ended = running.0.try_wait().unwrap().is_some();
            let log = fs::read_to_string(self.path("up.log")).unwrap();
            let socket = fs::exists(self.socket());
            assert!(!has_ended && began.elapsed() < PATIENCE, "socket {socket:?}: {log}");
            pauses.pause();
        }
        running
    }

    /// Starts a card that takes over from `old`, and waits until the new card serves and `old` has
    /// ended.
    pub(crate) fn take_over(&self, old: &mut Running, words: &[&str]) -> Running {
        let path = self.path("next.log");
        // A card that was taken over earlier may still write to the old log. Removing the file
        // makes the new log separate.
        let _ = fs::remove_file(&path);
        let log = File::create(&path).unwrap();
        let mut command = self.command(&[&["card", "up", "--take-over"], words].concat());
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let next = Running(command.spawn().unwrap());
        let said = || fs::read_to_string(&path).unwrap();
        let began = Instant::now();
        while old.0.try_wait().unwrap().is_none() || !said().contains("took the card over") {
            assert!(began.elapsed() < PATIENCE, "{}", said());
            thread::sleep(Duration::from_millis(10));
        }
        next
    }

    /// Returns the counter `name` of an instance; `instance` is its name without the prefix.
    pub(crate) fn counter(&self, instance: &str, name: &str) -> u64 {
        let name_of = format!("{}{instance}", self.prefix);
        self.json(&["card", "stats", &name_of])[name].as_u64().unwrap()
    }

    /// Returns the number of packets that the card has dropped for `cause` at the first interface
    /// of the instance `name`, which includes the prefix.
    pub(crate) fn drops(&self, name: &str, cause: &str) -> u64 {
        let status = self.json(&["card", "status", name]);
        status["instances"][0]["interfaces"][0]["drops"][cause].as_u64().unwrap_or(0)
    }

    /// Returns the network state that a card changes on its machine: addresses, routes, rules,
    /// nftables, and IPv4 forwarding.
    pub(crate) fn facts(&self) -> Vec<String> {
        let own = |words: &str| must(&format!("-n {} {words}", self.namespace));
        let inside = |program: &[&str]| {
            let mut command = Command::new("nsenter");
            command.arg(format!("--net=/run/netns/{}", self.namespace)).args(program);
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        vec![
            own("addr"),
            own("route"),
            own("-6 route"),
            own("rule"),
            inside(&["nft", "list", "ruleset"]),
            inside(&["cat", "/proc/sys/net/ipv4/ip_forward"]),
        ]
    }

    pub(crate) fn instances_left(&self) -> Vec<String> {
        let all = must("netns list");
        let ours = all.lines().filter(|line| line.starts_with(&self.instance("")));
        ours.map(str::to_owned).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for line in self.instances_left() {
            let name = line.split(' ').next().unwrap_or_default();
            // Programs in the namespace of an instance, which may outlive the card, are killed.
            let inside = ip(&format!("netns pids {name}")).stdout;
            let inside = String::from_utf8_lossy(&inside);
            for pid in inside.lines().filter_map(|pid| Pid::from_raw(pid.trim().parse().ok()?)) {
                let _ = kill_process(pid, Signal::KILL);
            }
            ip(&format!("netns del {name}"));
        }
        if self.owned {
            ip(&format!("netns del {}", self.namespace));
        }
    }
}

/// Returns the number of workers of cards that have no number of their own, if the environment of
/// the tests contains it. So all tests of cards can be run with several workers.
pub(crate) fn workers() -> Option<String> {
    std::env::var("SRD_TEST_WORKERS").ok()
}

/// A program that is killed when the value is dropped.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn end(&mut self, signal: Signal) -> i32 {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        self.0.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the program `sleep` in a network namespace.
pub(crate) fn sleeper(namespace: &str) -> Running {
    let mut command = Command::new("ip");
    let sleeper = command.args(["netns", "exec", namespace, "sleep", LONG_S]).spawn().unwrap();
    let sleeper = Running(sleeper);
    let name = format!("/proc/{}/comm", sleeper.0.id());
    // The process is `ip` at first, which enters the namespace and then executes `sleep`.
    wait_until("a program in the namespace", || {
        std::fs::read_to_string(&name).is_ok_and(|name| name == "sleep\n")
    });
    sleeper
}

/// Runs `work` in a network namespace, on a new thread.
pub(crate) fn within<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> T {
    let file = File::open(format!("/run/netns/{namespace}")).unwrap();
    thread::scope(|scope| {
        let inside = scope.spawn(move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        });
        inside.join().unwrap()
    })
}

/// Returns a TCP listener in a network namespace.
pub(crate) fn listen(namespace: &str, port: u16) -> TcpListener {
    within(namespace, || TcpListener::bind(("0.0.0.0", port)).unwrap())
}

/// Opens a TCP connection, for which it waits up to [`PATIENCE`].
pub(crate) fn connect(namespace: &str, address: [u8; 4], port: u16) -> std::io::Result<TcpStream> {
    connect_in(PATIENCE, namespace, address, port)
}

/// Tries to open a TCP connection to an address that should not answer. It waits for [`SILENCE`].
pub(crate) fn connect_in_vain(
    namespace: &str,
    address: [u8; 4],
    port: u16,
) -> std::io::Result<TcpStream> {
    connect_in(SILENCE, namespace, address, port)
}

fn connect_in(
    time: Duration,
    namespace: &str,
    address: [u8; 4],
    port: u16,
) -> std::io::Result<TcpStream> {
    let to = SocketAddr::from((address, port));
    within(namespace, || TcpStream::connect_timeout(&to, time))
}

/// Sends a line, and returns whether it arrives at the other end within [`PATIENCE`].
pub(crate) fn passes(from: &mut TcpStream, to: &mut TcpStream) -> bool {
    arrives_in(PATIENCE, from, to)
}

/// Sends a line, and returns whether it does not arrive at the other end within [`SILENCE`].
pub(crate) fn is_held_up(from: &mut TcpStream, to: &mut TcpStream) -> bool {
    !arrives_in(SILENCE, from, to)
}

fn arrives_in(time: Duration, from: &mut TcpStream, to: &mut TcpStream) -> bool {
    to.set_read_timeout(Some(time)).unwrap();
    from.write_all(b"line").unwrap();
    let mut line = [0; 4];
    to.read_exact(&mut line).is_ok()
}

/// Waits until `is_so` returns true; panics after [`PATIENCE`].
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    let mut pauses = Pauses::new(Duration::from_millis(20));
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}: it does not come");
        pauses.pause();
    }
}

/// Reads a value until it is unchanged for [`SILENCE`], and returns it; panics after [`PATIENCE`].
#[track_caller]
pub(crate) fn settled<T: PartialEq>(read: impl Fn() -> T) -> T {
    let began = Instant::now();
    let mut before = read();
    loop {
        thread::sleep(SILENCE);
        let now = read();
        if now == before {
            return now;
        }
        assert!(began.elapsed() < PATIENCE, "the figures do not stand still");
        before = now;
    }
}

/// Guard that sets a flag when it is dropped, so that the threads of a failing test end, too.
pub(crate) struct Ending<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the time in nanoseconds for which each thread of a card has run, of those with such
/// names, in the order of the names.
pub(crate) fn threads_ran(card: &Running, is_meant: impl Fn(&str) -> bool) -> Vec<u64> {
    let tasks = format!("/proc/{}/task", card.0.id());
    let mut all: Vec<(String, u64)> = Vec::new();
    for task in fs::read_dir(tasks).unwrap() {
        let of = |name: &str| fs::read_to_string(task.as_ref().unwrap().path().join(name));
        let (Ok(name), Ok(times)) = (of("comm"), of("schedstat")) else { continue };
        if is_meant(name.trim()) {
            all.push((name, times.split(' ').next().unwrap().parse().unwrap()));
        }
    }
    all.sort();
    all.into_iter().map(|(_, time)| time).collect()
}

pub(crate) fn ready_with_nsenter() -> bool {
    let has = |program: &str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        found.unwrap().status.success()
    };
    let all = ["nsenter", "nft"].into_iter().all(has);
    assert!(all || std::env::var_os("CI").is_none(), "nsenter and nft belong to CI");
    if !all {
        println!("skipped: no nsenter or no nft (apt-get install util-linux nftables)");
    }
    all && ready()
}
