//! Two machines in different networks and a router between them, through which all packets pass.

use crate::cable::{End, plug};

use super::pair::{PATIENCE, Pauses, ip, make_key, must, own_suffix};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socket_with};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SRD: &str = env!("CARGO_BIN_EXE_srd");
/// Name and lines of a file of commands for `ip -batch`.
const ROUTES_AND_RULES: (&str, &str) = ("show", "route show table all\nrule show\n");
/// The UDP port of the echo server.
const ECHO: u16 = 7007;

/// Machine a at 192.0.2.10 and 2001:db8:a::10, machine b at 198.51.100.10 and 2001:db8:b::10,
/// and the router that is the default route of both.
pub(crate) struct Routed {
    pub(crate) a: String,
    pub(crate) b: String,
    pub(crate) router: String,
    pub(crate) directory: tempfile::TempDir,
    public: [String; 2],
    /// Lines that [`Routed::configure`] adds to the table `[expert]`.
    pub(crate) expert: &'static str,
    /// The daemons of a and b; `None` if a daemon does not run.
    pub(crate) daemons: [Option<Child>; 2],
    echo: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl Routed {
    pub(crate) fn new(tag: &str) -> Self {
        let name = |end: &str| format!("srdrt{tag}{end}{}", own_suffix());
        let (a, b, router) = (name("a"), name("b"), name("r"));
        for space in [&a, &b, &router] {
            must(&format!("netns add {space}"));
            // Without duplicate address detection, addresses are usable at once, and networks can
            // be compared.
            let no_wait = "for f in all default; do \
                           echo 0 > /proc/sys/net/ipv6/conf/$f/accept_dad; done";
            must_run(space, &["sh", "-c", no_wait]);
            must(&format!("-n {space} link set lo up"));
        }
        for (end, space, v4, v6) in
            [("a", &a, "192.0.2", "2001:db8:a:"), ("b", &b, "198.51.100", "2001:db8:b:")]
        {
            let [own, gateway] =
                [10, 1].map(|host| [format!("{v4}.{host}/24"), format!("{v6}:{host}/64")]);
            let [own, gateway] = [&own, &gateway].map(|both| both.each_ref().map(String::as_str));
            let port = format!("r{end}");
            let end = |namespace, interface, addresses| End { namespace, interface, addresses };
            plug(&[end(space, "v0", &own), end(&router, &port, &gateway)], "");
            must(&format!("-n {space} route add default via {v4}.1"));
            must(&format!("-n {space} -6 route add default via {v6}:1"));
        }
        let forward = "for f in ipv4/ip_forward ipv6/conf/all/forwarding; do \
                       echo 1 > /proc/sys/net/$f; done";
        must_run(&router, &["sh", "-c", forward]);
        let directory = tempfile::tempdir().unwrap();
        let public = [0, 1].map(|end| make_key(&directory.path().join(format!("{end}.key"))));
        let (name, lines) = ROUTES_AND_RULES;
        std::fs::write(directory.path().join(name), lines).unwrap();
        let daemons = [None, None];
        let mut net = Self { a, b, router, directory, public, expert: "", daemons, echo: None };
        net.wait_until_up("v0");
        net
    }

    /// Waits until the kernel reports an interface of a as up, which happens some time after the
    /// command. Before this, the interface's state and its link-local address may still change.
    pub(crate) fn wait_until_up(&mut self, link: &str) {
        self.wait(&format!("{link} is up"), |net| {
            let text = must(&format!("-n {} -br addr show dev {link}", net.a));
            let addresses = text.split_whitespace().filter(|word| word.contains("::")).count();
            let local = format!("-n {} -6 route show table local type local dev {link}", net.a);
            let is_up = text.split_whitespace().nth(1) == Some("UP") && text.contains(" fe80::");
            // The kernel adds the local route of an IPv6 address later than the address itself.
            is_up && must(&local).lines().count() == addresses
        });
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    pub(crate) fn space(&self, end: usize) -> &str {
        [&self.a, &self.b][end]
    }

    /// Writes the configuration of a machine's daemon. `interface` contains lines for
    /// `[interface]`; `allowed` lists the prefixes behind the other machine. If `allowed` is
    /// `None`, the configuration has no peer.
    pub(crate) fn configure(&self, end: usize, interface: &str, allowed: Option<&str>) {
        let (own, other) = if end == 0 {
            ("192.0.2.10", "198.51.100.10")
        } else {
            ("198.51.100.10", "192.0.2.10")
        };
        let mut text = format!(
            "[interface]\nlisten = \"{own}:7471\"\nprivate_key_file = \"{key}\"\n{interface}\n\
             [expert]\npaths = 2\n{expert}\n[control]\nsocket = \"{socket}\"\n",
            key = self.path(&format!("{end}.key")).display(),
            expert = self.expert,
            socket = self.path(&format!("{end}.sock")).display(),
        );
        if let Some(allowed) = allowed {
            text += &format!(
                "[[peer]]\nname = \"other\"\npublic_key = \"{}\"\nendpoint = \"{other}:7471\"\n\
                 allowed = [{allowed}]\n",
                self.public[1 - end]
            );
        }
        std::fs::write(self.path(&format!("{end}.toml")), text).unwrap();
    }

    /// Writes the configurations of both daemons for an overlay 10.78.0.0/24 and fd78::/64.
    /// `allowed` lists the prefixes behind b; b allows only the overlay addresses of a.
    pub(crate) fn configure_overlay(&self, interface: &str, allowed: &str) {
        let address = |host| format!("address = [\"10.78.0.{host}/24\", \"fd78::{host}/64\"]\n");
        self.configure(0, &(address(1) + interface), Some(allowed));
        self.configure(1, &address(2), Some("\"10.78.0.1/32\", \"fd78::1/128\""));
    }

    /// Returns the command `srd` in the network namespace of a machine, with the configuration of
    /// its daemon.
    pub(crate) fn command(&self, end: usize, words: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.space(end), SRD]).args(words);
        command.arg("-c").arg(self.path(&format!("{end}.toml")));
        command
    }

    /// Starts the daemon of a machine, and waits until it answers. Its log is appended to a file.
    pub(crate) fn start(&mut self, end: usize) {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path(&format!("{end}.log")))
            .unwrap();
        let child = self.command(end, &["up", "-v"]).stderr(log).spawn().unwrap();
        self.daemons[end] = Some(child);
        let status = |n: &mut Self| {
            let ended = n.daemons[end].as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "{}", n.log(end));
            n.srd(end, &["status"])
        };
        self.wait("a daemon that answers", status);
    }

    pub(crate) fn log(&self, end: usize) -> String {
        std::fs::read_to_string(self.path(&format!("{end}.log"))).unwrap_or_default()
    }

    /// Sends a command to the daemon of a machine, and returns whether the command succeeds.
    pub(crate) fn srd(&self, end: usize, words: &[&str]) -> bool {
        let mut command = Command::new(SRD);
        command.args(words).arg("--socket").arg(self.path(&format!("{end}.sock")));
        command.output().unwrap().status.success()
    }

    /// Ends the daemon of a machine with SIGTERM, and waits until it has ended.
    pub(crate) fn stop(&mut self, end: usize) {
        let mut child = self.daemons[end].take().unwrap();
        signal(child.id(), "TERM");
        assert!(child.wait().unwrap().success(), "{}", self.log(end));
    }

    /// Kills the daemon of a machine.
    pub(crate) fn kill(&mut self, end: usize) {
        let mut child = self.daemons[end].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub(crate) fn wait(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let begin = Instant::now();
        let mut pauses = Pauses::new(Duration::from_millis(20));
        while !done(self) {
            assert!(
                begin.elapsed() < PATIENCE,
                "{what} did not happen\n{}\n{}\n{}",
                self.log(0),
                self.log(1),
                self.network()
            );
            pauses.pause();
        }
    }

    /// Runs `make` in a network namespace, and returns its result. Sockets that it opens remain in
    /// the namespace.
    pub(crate) fn within<T: Send>(&self, space: &str, make: impl FnOnce() -> T + Send) -> T {
        let file = std::fs::File::open(format!("/run/netns/{space}")).unwrap();
        std::thread::scope(|scope| {
            let inside = scope.spawn(move || {
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(file.as_fd(), kind).unwrap();
                make()
            });
            inside.join().unwrap()
        })
    }

    /// Starts a UDP echo server at all addresses of b.
    pub(crate) fn echo(&mut self) {
        let socket =
            self.within(&self.b, || UdpSocket::bind((Ipv6Addr::UNSPECIFIED, ECHO)).unwrap());
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&stop);
        let run = move || {
            let mut buffer = [0; 2000];
            while !theirs.load(Relaxed) {
                if let Ok((n, from)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(&buffer[..n], from);
                }
            }
        };
        self.echo = Some((stop, std::thread::spawn(run)));
    }

    /// Sends a datagram from a to an address, and returns whether it is echoed.
    pub(crate) fn is_echoed(&self, to: &str) -> bool {
        let to = SocketAddr::new(to.parse().unwrap(), ECHO);
        let any: IpAddr = if to.is_ipv6() { [0; 16].into() } else { [0; 4].into() };
        self.within(&self.a, || {
            let socket = UdpSocket::bind((any, 0)).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            let mut buffer = [0; 64];
            // The receive accepts an answer from any address: the routes of b choose the source
            // address.
            socket.send_to(b"srd", to).is_ok()
                && socket.recv_from(&mut buffer).is_ok_and(|(n, _)| &buffer[..n] == b"srd")
        })
    }

    /// Returns the state of a's network that a daemon must restore when it ends.
    pub(crate) fn network(&self) -> String {
        let both = format!("-d -batch {}", self.path(ROUTES_AND_RULES.0).display());
        let show = |words: &str| must(&format!("-n {} {words}", self.a));
        let mut text = format!("== IPv4\n{}", show(&both));
        text += &format!("== IPv6\n{}", show(&format!("-6 {both}")));
        text += &format!("== addresses\n{}", show("-br addr show"));
        text += &self.within(&self.a, settings);
        text.lines().map(plain).collect()
    }

    /// Returns the differences between the network state of a and the earlier state `before`.
    pub(crate) fn difference(&self, before: &str) -> Vec<String> {
        let after = self.network();
        let beyond = |one: &str, other: &str, sign: &str| -> Vec<String> {
            let other: Vec<&str> = other.lines().collect();
            let lines = one.lines().filter(|line| !other.contains(line));
            lines.map(|line| format!("{sign} {line}")).collect()
        };
        let mut found = beyond(before, &after, "-");
        found.extend(beyond(&after, before, "+"));
        if found.is_empty() && before != after {
            found.push("the order of lines".into());
        }
        found
    }

    /// Returns the output of `ip route get` with these arguments on machine a.
    pub(crate) fn route(&self, words: &str) -> String {
        let output = ip(&format!("-n {} route get {words}", self.a));
        String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr)
    }

    /// Records every packet that the router sees from now on.
    pub(crate) fn spy(&self) -> Spy {
        let socket = self.within(&self.router, || {
            let all = rustix::net::Protocol::from_raw(
                std::num::NonZeroU32::new(u32::from(3_u16.to_be())).unwrap(),
            );
            socket_with(AddressFamily::PACKET, SocketType::DGRAM, SocketFlags::NONBLOCK, Some(all))
                .unwrap()
        });
        Spy::start(socket)
    }
}

/// Returns the settings of the present network namespace on which the ways of packets depend.
fn settings() -> String {
    let of_device = |device: &'static str| {
        ["rp_filter", "src_valid_mark", "forwarding"].map(|name| format!("conf/{device}/{name}"))
    };
    let names = ["all", "default", "v0"].into_iter().flat_map(of_device);
    let all = names.chain(["ip_forward".to_owned()]);
    let read = |name: String| {
        let value = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap();
        format!("{name}:{value}")
    };
    all.map(read).collect()
}

/// Returns a line of the network state in a comparable form: the kernel chooses a new link-local
/// address for each interface, so the address is shortened. The words of a line about `srd0` are
/// sorted.
fn plain(line: &str) -> String {
    let mut words: Vec<&str> = line
        .split_whitespace()
        .map(|w| if w.starts_with("fe80::") { "fe80::" } else { w })
        .collect();
    if words.first() == Some(&"srd0") {
        words.sort_unstable();
    }
    words.join(" ") + "\n"
}

/// Runs a program in a network namespace, and returns its output; panics if the program fails.
pub(crate) fn must_run(space: &str, words: &[&str]) -> String {
    let mut command = Command::new("ip");
    let output = command.args(["netns", "exec", space]).args(words).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Number of tests that run at the same time, in separate network namespaces. The tests mostly
/// wait.
const AT_ONCE: usize = 2;

/// Runs `test` for each element of `all`, with the element's index. Starts no further test after a
/// failure.
pub(crate) fn in_parallel<T: Sync>(all: &[T], test: impl Fn(usize, &T) + Sync) {
    struct EndAll<'a>(&'a AtomicUsize);
    impl Drop for EndAll<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                // All later indices are beyond the end of `all`, so every thread ends.
                self.0.store(usize::MAX / 2, Relaxed);
            }
        }
    }
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                let _end_all = EndAll(&next);
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    let Some(one) = all.get(number) else { return };
                    test(number, one);
                }
            });
        }
    });
}

/// Sends the signal `name` to the process `pid`.
pub(crate) fn signal(pid: u32, name: &str) {
    let pid = pid.to_string();
    let sent =
        Command::new("kill").args([&format!("-{name}"), &pid]).stdout(Stdio::null()).status();
    assert!(sent.unwrap().success());
}

impl Drop for Routed {
    fn drop(&mut self) {
        for mut child in self.daemons.iter_mut().filter_map(Option::take) {
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some((stop, thread)) = self.echo.take() {
            stop.store(true, Relaxed);
            let _ = thread.join();
        }
        for space in [&self.a, &self.b, &self.router] {
            ip(&format!("netns del {space}"));
        }
    }
}

/// Recorder of all packets that the router sees.
pub(crate) struct Spy {
    packets: Arc<Mutex<Vec<(IpAddr, IpAddr)>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Spy {
    fn start(socket: OwnedFd) -> Self {
        let packets = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (seen, ended) = (Arc::clone(&packets), Arc::clone(&stop));
        let run = move || {
            let mut buffer = [0; 2048];
            loop {
                match rustix::net::recv(&socket, &mut buffer, RecvFlags::empty()) {
                    Ok((n, _)) => {
                        if let Some(ends) = ends(&buffer[..n]) {
                            seen.lock().unwrap().push(ends);
                        }
                    }
                    Err(_) if ended.load(Relaxed) => return,
                    Err(_) => std::thread::sleep(Duration::from_millis(2)),
                }
            }
        };
        Self { packets, stop, thread: Some(std::thread::spawn(run)) }
    }

    /// Ends the recording. Returns the number of all packets, and the packets whose source or
    /// destination begins with one of the texts in `of`.
    pub(crate) fn end(mut self, of: &[&str]) -> (usize, Vec<(IpAddr, IpAddr)>) {
        std::thread::sleep(Duration::from_millis(50));
        self.stop.store(true, Relaxed);
        self.thread.take().unwrap().join().unwrap();
        let packets = self.packets.lock().unwrap();
        let is_one = |ip: &IpAddr| of.iter().any(|start| ip.to_string().starts_with(start));
        let found = packets.iter().filter(|(from, to)| is_one(from) || is_one(to)).copied();
        (packets.len(), found.collect())
    }
}

/// Returns the source and the destination of an IP packet; `None` if it is not an IP packet.
fn ends(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let v4 = |at: usize| Some(IpAddr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?));
    let v6 = |at: usize| Some(IpAddr::from(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?));
    match packet.first()? >> 4 {
        4 => Some((v4(12)?, v4(16)?)),
        6 => Some((v6(8)?, v6(24)?)),
        _ => None,
    }
}
