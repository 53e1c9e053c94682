//! Two machines: network namespaces with a wire between them, and a daemon in each.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use srd_net::keys::SecretKey;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::cable::{End, plug};

const SRD: &str = env!("CARGO_BIN_EXE_srd");
/// Maximum time that a test waits for one event.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// Longest time between two looks at a state.
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// A number of packets that is larger than the packets of a session without traffic, and smaller
/// than the packets of a transfer.
const MANY: u64 = 100;

/// Whether the test can run; otherwise prints why not.
pub(crate) fn ready() -> bool {
    super::ready::ready(super::ready::missing_tun())
}

/// Runs `ip`, and returns its result even if it failed.
pub(crate) fn ip(arguments: &str) -> Output {
    Command::new("ip").args(arguments.split(' ')).output().unwrap()
}

/// Runs `ip`, which must succeed. Returns its output.
pub(crate) fn must(arguments: &str) -> String {
    let output = ip(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Writes a new private key to a file that only its owner may read, and returns the public key. The
/// commands `srd genkey` and `srd pubkey` have tests of their own.
pub(crate) fn make_key(path: &Path) -> String {
    let private = SecretKey::draw_private().unwrap();
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path).unwrap();
    file.write_all((private.expose() + "\n").as_bytes()).unwrap();
    private.public().to_string()
}

/// Returns a suffix for names of network namespaces that no other test on this machine uses. A
/// process ID is not sufficient, because tests may be threads of one process.
pub(crate) fn own_suffix() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Pauses between the checks of a state for which a test waits. Each is twice as long as the check
/// before, but at least `least`. A check may start programs; without pauses, checks would take most
/// of a busy processor from the programs that the test awaits.
pub(crate) struct Pauses {
    least: Duration,
    /// Begin of the present check.
    looked_at: Instant,
}

impl Pauses {
    /// Prepares for the first check, which begins now.
    pub(crate) fn new(least: Duration) -> Self {
        Self { least, looked_at: Instant::now() }
    }

    /// Sleeps. The next check begins when this returns.
    pub(crate) fn pause(&mut self) {
        let look = self.looked_at.elapsed() * 2;
        std::thread::sleep(look.clamp(self.least, PAUSE_MAX));
        self.looked_at = Instant::now();
    }
}

/// Two machines and the wire between them.
pub(crate) struct Pair {
    /// The network namespaces of the two machines.
    pub(crate) names: [String; 2],
    /// The network namespace of the router between the machines; `None` if a wire connects them
    /// directly.
    pub(crate) router: Option<String>,
    /// The daemon of each machine; `None` if it does not run.
    pub(crate) daemons: [Option<Child>; 2],
    directory: tempfile::TempDir,
    /// Public keys of the two machines.
    pub(crate) public: [String; 2],
}

/// Settings of a machine's daemon, in addition to keys and addresses.
#[derive(Clone, Copy)]
pub(crate) struct Settings<'a> {
    /// Whether the mode is overlay; otherwise it is transparent.
    pub(crate) overlay: bool,
    /// Lines that are added to the table `[interface]`.
    pub(crate) interface: &'a str,
    /// Lines that are added to the table `[expert]`.
    pub(crate) expert: &'a str,
    /// Lines that are added to the table `[[peer]]`.
    pub(crate) peer: &'a str,
}

impl Settings<'_> {
    pub(crate) const OVERLAY: Settings<'static> =
        Settings { overlay: true, interface: "", expert: "", peer: "" };
    pub(crate) const TRANSPARENT: Settings<'static> =
        Settings { overlay: false, interface: "", expert: "", peer: "" };
}

impl Pair {
    /// Creates two machines that a wire connects directly.
    pub(crate) fn new(tag: &str) -> Self {
        let names = Self::namespaces(tag);
        let [a, b] = &names;
        let end = |namespace, addresses| End { namespace, interface: "v0", addresses };
        plug(&[end(a, &["198.18.0.1/24"]), end(b, &["198.18.0.2/24"])], "mtu 1500");
        names.iter().for_each(|name| drop(must(&format!("-n {name} link set lo up"))));
        Self::with_keys(names, None)
    }

    /// Creates two machines with jumbo frames and a router between them. The interfaces of the
    /// router are `w0` and `w1`.
    pub(crate) fn routed(tag: &str) -> Self {
        let names = Self::namespaces(tag);
        let router = format!("srdup{tag}r{}", own_suffix());
        must(&format!("netns add {router}"));
        must(&format!("netns exec {router} sysctl -qw net.ipv4.ip_forward=1"));
        for (i, name) in (1..).zip(&names) {
            let w = format!("w{}", i - 1);
            must(&format!("-n {name} link set lo up"));
            let address = format!("198.18.0.{i}/32");
            let own = [address.as_str()];
            let end = |namespace, interface, addresses| End { namespace, interface, addresses };
            let ends = [end(name, "v0", &own), end(&router, &w, &["198.18.0.254/32"])];
            plug(&ends, "mtu 9000");
            for line in [
                format!("-n {name} route add 198.18.0.254 dev v0"),
                format!("-n {name} route add default via 198.18.0.254"),
                format!("-n {router} route add 198.18.0.{i} dev {w}"),
            ] {
                must(&line);
            }
        }
        Self::with_keys(names, Some(router))
    }

    fn namespaces(tag: &str) -> [String; 2] {
        let names = ["a", "b"].map(|end| format!("srdup{tag}{end}{}", own_suffix()));
        for name in &names {
            must(&format!("netns add {name}"));
        }
        names
    }

    fn with_keys(names: [String; 2], router: Option<String>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let public = [0, 1].map(|end| make_key(&directory.path().join(format!("{end}.key"))));
        Self { names, router, daemons: [None, None], directory, public }
    }

    /// Returns the path of a file in the directory of the pair.
    pub(crate) fn path(&self, file: String) -> PathBuf {
        self.directory.path().join(file)
    }

    /// Writes the configuration of a machine's daemon.
    pub(crate) fn configure(&self, end: usize, settings: &Settings<'_>) {
        let Settings { overlay, interface, expert, peer } = *settings;
        let (own, other) = (end + 1, 2 - end);
        let (mode, allowed) = if overlay {
            (format!("address = [\"10.77.0.{own}/24\"]"), format!("10.77.0.{other}/32"))
        } else {
            ("mode = \"transparent\"".to_owned(), format!("198.18.0.{other}/32"))
        };
        let text = format!(
            "[expert]\npaths = 4\n{expert}\n\
             [interface]\n{mode}\nlisten = \"198.18.0.{own}:7471\"\n\
             private_key_file = \"{key}\"\n{interface}\n[control]\nsocket = \"{socket}\"\n\
             [[peer]]\nname = \"other\"\npublic_key = \"{public}\"\n\
             endpoint = \"198.18.0.{other}:7471\"\nallowed = [\"{allowed}\"]\n{peer}\n",
            key = self.path(format!("{end}.key")).display(),
            socket = self.path(format!("{end}.sock")).display(),
            public = self.public[1 - end],
        );
        std::fs::write(self.path(format!("{end}.toml")), text).unwrap();
    }

    /// Starts the daemon of a machine.
    pub(crate) fn start(&mut self, end: usize) {
        let config = self.path(format!("{end}.toml"));
        let child = self.command(end).arg("up").arg("-c").arg(config).spawn().unwrap();
        self.daemons[end] = Some(child);
    }

    /// Returns the command `srd` in the network namespace of a machine.
    pub(crate) fn command(&self, end: usize) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[end], SRD]);
        command
    }

    /// Sends a command to the daemon of a machine, and returns the answer; `None` if the daemon
    /// does not answer.
    pub(crate) fn ask(&self, end: usize, words: &[&str]) -> Option<Value> {
        let socket = self.path(format!("{end}.sock"));
        let mut command = Command::new(SRD);
        let output = command.args(words).arg("--socket").arg(socket).arg("--json").output();
        serde_json::from_slice(&output.unwrap().stdout).ok()
    }

    /// Waits until `done` returns true; panics after [`PATIENCE`].
    pub(crate) fn wait(&self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let begin = Instant::now();
        let mut pauses = Pauses::new(Duration::from_millis(50));
        while !done(self) {
            assert!(begin.elapsed() < PATIENCE, "{what} did not happen");
            pauses.pause();
        }
    }

    /// Waits until the daemons of both machines report that they use SRD.
    pub(crate) fn wait_for_express(&self) {
        self.wait("SRD between the two", |pair| {
            [0, 1].iter().all(|end| {
                let status = pair.ask(*end, &["status"]);
                status.is_some_and(|s| s["peers"][0]["express"] == "on")
            })
        });
    }

    /// Runs `work` on a thread in the network namespace of a machine. Sockets that it opens remain
    /// in that namespace.
    pub(crate) fn within<T: Send>(&self, end: usize, work: impl FnOnce() -> T + Send) -> T {
        let file = std::fs::File::open(format!("/run/netns/{}", self.names[end])).unwrap();
        std::thread::scope(|scope| {
            let inside = scope.spawn(move || {
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(file.as_fd(), kind).unwrap();
                work()
            });
            inside.join().unwrap()
        })
    }

    /// Sends data by TCP from the first machine to the address `to` of the second, for 0.3 seconds.
    pub(crate) fn transfer(&self, to: &str) {
        let mut server = self
            .command(1)
            .args(["perf", "server", "--bind", to, "--port", "9000"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let begin = Instant::now();
        let mut pauses = Pauses::new(Duration::from_millis(50));
        loop {
            let output = self
                .command(0)
                .args(["perf", "client", to, "--port", "9000", "--transport", "tcp"])
                .args(["--time", "300ms", "--json", "-"])
                .output()
                .unwrap();
            // A busy machine may delay all bytes of so short a transfer.
            let result = serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default();
            if output.status.success() && result["gbps"].as_f64() > Some(0.0) {
                break;
            }
            if begin.elapsed() > PATIENCE {
                let _ = server.kill();
                let _ = server.wait();
                panic!("{result} {}", String::from_utf8_lossy(&output.stderr));
            }
            pauses.pause();
        }
        let _ = server.kill();
        let _ = server.wait();
    }

    /// Makes a transfer whose packets must use SRD. The transfer is repeated if it was interrupted:
    /// for example, if a busy machine delays a daemon, packets go without SRD for a while.
    pub(crate) fn transfer_by_srd(&self, to: &str) {
        // The workers write their counters all the time, so those that are compared are of one
        // answer.
        let counts = |pair: &Self| {
            let names = ["ena_srd_tx_pkts", "tx_pkts", "peer_downs"];
            let [srd, all, downs] = pair.counters(0, names);
            let [downs_there] = pair.counters(1, ["peer_downs"]);
            [srd, all, downs + downs_there]
        };
        self.wait("a transfer that nothing interrupts", |pair| {
            pair.wait_for_express();
            let before = counts(pair);
            pair.transfer(to);
            let after = counts(pair);
            let [srd, all, downs] = [0, 1, 2].map(|at| after[at] - before[at]);
            assert!(srd > MANY || all <= MANY || downs > 0, "{srd} of {all} packets rode SRD");
            srd > MANY
        });
    }

    /// Makes transfers until the first machine's counter of packets without SRD has grown by more
    /// than a session without traffic needs. A busy machine may send few packets in one transfer.
    pub(crate) fn transfer_without_srd(&self, to: &str) {
        let before = self.counter(0, "plain_tx_pkts");
        self.wait("packets without SRD", |pair| {
            pair.transfer(to);
            pair.counter(0, "plain_tx_pkts") > before + MANY
        });
    }

    /// Returns the counter `name` of the daemon of a machine.
    pub(crate) fn counter(&self, end: usize, name: &str) -> u64 {
        self.counters(end, [name])[0]
    }

    /// Returns these counters of the daemon of a machine, all at one moment.
    pub(crate) fn counters<const N: usize>(&self, end: usize, names: [&str; N]) -> [u64; N] {
        let status = self.ask(end, &["status"]).unwrap();
        names.map(|name| status["counters"][name].as_u64().unwrap())
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for mut child in self.daemons.iter_mut().filter_map(Option::take) {
            let _ = child.kill();
            let _ = child.wait();
        }
        for name in self.names.iter().chain(&self.router) {
            ip(&format!("netns del {name}"));
        }
    }
}
