//! Two machines: network namespaces with a wire between them, and a daemon in each.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const SRD: &str = env!("CARGO_BIN_EXE_srd");
/// Maximum time of any step.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// More packets than a session needs for itself, and fewer than a transfer has.
const MANY: u64 = 100;

/// Whether the test can run; otherwise prints why not.
pub(crate) fn ready() -> bool {
    super::ready::ready(super::ready::missing_tun())
}

/// Runs `ip`, and ignores its result.
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

/// Returns an end of names that no other pair of this machine has, because tests may be threads of
/// one process.
pub(super) fn own_suffix() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Two machines and the wire between them.
pub(crate) struct Pair {
    /// Namespaces of the two machines.
    pub(crate) names: [String; 2],
    /// The namespace of the router between them, if there is one.
    pub(crate) router: Option<String>,
    /// Daemons of the two machines, if they run.
    pub(crate) daemons: [Option<Child>; 2],
    directory: tempfile::TempDir,
    /// Public keys of the two machines.
    pub(crate) public: [String; 2],
}

/// Configuration of an end, in addition to keys and addresses.
#[derive(Clone, Copy)]
pub(crate) struct Settings<'a> {
    /// Whether the mode is overlay; otherwise it is transparent.
    pub(crate) overlay: bool,
    /// Lines for `[interface]`.
    pub(crate) interface: &'a str,
    /// Lines for `[[peer]]`.
    pub(crate) peer: &'a str,
}

impl Settings<'_> {
    pub(crate) const OVERLAY: Settings<'static> =
        Settings { overlay: true, interface: "", peer: "" };
    pub(crate) const TRANSPARENT: Settings<'static> =
        Settings { overlay: false, interface: "", peer: "" };
}

impl Pair {
    /// Creates two machines at one wire.
    pub(crate) fn new(tag: &str) -> Self {
        let names = Self::namespaces(tag);
        let [a, b] = &names;
        must(&format!("link add v0 netns {a} mtu 1500 type veth peer name v0 netns {b} mtu 1500"));
        for (i, name) in (1..).zip(&names) {
            must(&format!("-n {name} addr add 198.18.0.{i}/24 dev v0"));
            must(&format!("-n {name} link set v0 up"));
            must(&format!("-n {name} link set lo up"));
        }
        Self::with_keys(names, None)
    }

    /// Creates two machines with jumbo frames and a router between them, whose interfaces are `w0`
    /// and `w1`.
    pub(crate) fn routed(tag: &str) -> Self {
        let names = Self::namespaces(tag);
        let router = format!("srdup{tag}r{}", own_suffix());
        must(&format!("netns add {router}"));
        must(&format!("netns exec {router} sysctl -qw net.ipv4.ip_forward=1"));
        for (i, name) in (1..).zip(&names) {
            let w = format!("w{}", i - 1);
            must(&format!(
                "link add v0 netns {name} mtu 9000 type veth peer name {w} netns {router} mtu 9000"
            ));
            for line in [
                format!("-n {name} link set lo up"),
                format!("-n {name} addr add 198.18.0.{i}/32 dev v0"),
                format!("-n {name} link set v0 up"),
                format!("-n {name} route add 198.18.0.254 dev v0"),
                format!("-n {name} route add default via 198.18.0.254"),
                format!("-n {router} addr add 198.18.0.254/32 dev {w}"),
                format!("-n {router} link set {w} up"),
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
        let public = [0, 1].map(|end| {
            let private = Command::new(SRD).arg("genkey").output().unwrap().stdout;
            let path = directory.path().join(format!("{end}.key"));
            std::fs::write(&path, &private).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))
                .unwrap();
            let pubkey = Command::new(SRD)
                .arg("pubkey")
                .stdin(std::fs::File::open(&path).unwrap())
                .output()
                .unwrap();
            String::from_utf8(pubkey.stdout).unwrap().trim().to_owned()
        });
        Self { names, router, daemons: [None, None], directory, public }
    }

    /// Returns the path of a file of this pair.
    pub(crate) fn path(&self, file: String) -> PathBuf {
        self.directory.path().join(file)
    }

    /// Writes an end's configuration.
    pub(crate) fn configure(&self, end: usize, settings: &Settings<'_>) {
        let Settings { overlay, interface, peer } = *settings;
        let (own, other) = (end + 1, 2 - end);
        let (mode, allowed) = if overlay {
            (format!("address = [\"10.77.0.{own}/24\"]"), format!("10.77.0.{other}/32"))
        } else {
            ("mode = \"transparent\"".to_owned(), format!("198.18.0.{other}/32"))
        };
        let text = format!(
            "[interface]\n{mode}\nlisten = \"198.18.0.{own}:7471\"\npaths = 4\n\
             private_key_file = \"{key}\"\n{interface}\n[control]\nsocket = \"{socket}\"\n\
             [[peer]]\nname = \"other\"\npublic_key = \"{public}\"\n\
             endpoint = \"198.18.0.{other}:7471\"\nallowed = [\"{allowed}\"]\n{peer}\n",
            key = self.path(format!("{end}.key")).display(),
            socket = self.path(format!("{end}.sock")).display(),
            public = self.public[1 - end],
        );
        std::fs::write(self.path(format!("{end}.toml")), text).unwrap();
    }

    /// Starts an end's daemon.
    pub(crate) fn start(&mut self, end: usize) {
        let config = self.path(format!("{end}.toml"));
        let child = self.command(end).arg("up").arg("-c").arg(config).spawn().unwrap();
        self.daemons[end] = Some(child);
    }

    /// Returns the command `srd` in an end's namespace.
    pub(crate) fn command(&self, end: usize) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[end], SRD]);
        command
    }

    /// Returns the answer of an end's daemon to a command, if there is one.
    pub(crate) fn ask(&self, end: usize, words: &[&str]) -> Option<Value> {
        let socket = self.path(format!("{end}.sock"));
        let mut command = Command::new(SRD);
        let output = command.args(words).arg("--socket").arg(socket).arg("--json").output();
        serde_json::from_slice(&output.unwrap().stdout).ok()
    }

    /// Waits until a condition holds.
    pub(crate) fn wait(&self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let begin = Instant::now();
        while !done(self) {
            assert!(begin.elapsed() < PATIENCE, "{what} did not happen");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until both ends report that they use SRD.
    pub(crate) fn wait_for_express(&self) {
        self.wait("SRD between the two", |pair| {
            [0, 1].iter().all(|end| {
                let status = pair.ask(*end, &["status"]);
                status.is_some_and(|s| s["peers"][0]["express"] == "on")
            })
        });
    }

    /// Runs `work` on a thread in an end's namespace; sockets that it opens stay there.
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

    /// Transfers half a second of TCP from the first machine to the second.
    pub(crate) fn transfer(&self, to: &str) {
        let mut server = self
            .command(1)
            .args(["perf", "server", "--bind", to, "--port", "9000"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let begin = Instant::now();
        let result = loop {
            let output = self
                .command(0)
                .args(["perf", "client", to, "--port", "9000", "--transport", "tcp"])
                .args(["--time", "500ms", "--json", "-"])
                .output()
                .unwrap();
            if output.status.success() {
                break serde_json::from_slice::<Value>(&output.stdout).unwrap();
            }
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            if begin.elapsed() > PATIENCE {
                let _ = server.kill();
                let _ = server.wait();
                panic!("{error}");
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        let _ = server.kill();
        let _ = server.wait();
        assert!(result["gbps"].as_f64().unwrap() > 0.0, "{result}");
    }

    /// Makes a transfer whose packets must ride SRD. It is repeated if it was interrupted, for
    /// example because a busy machine delays a daemon: packets then go without SRD for a while.
    pub(crate) fn transfer_by_srd(&self, to: &str) {
        let counts = |pair: &Self| {
            let downs = pair.counter(0, "peer_downs") + pair.counter(1, "peer_downs");
            [pair.counter(0, "ena_srd_tx_pkts"), pair.counter(0, "tx_pkts"), downs]
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

    /// Waits until more than a transfer's packets have gone without SRD since `before`.
    pub(crate) fn wait_for_plain_packets(&self, before: u64) {
        self.wait("packets without SRD", |pair| pair.counter(0, "plain_tx_pkts") > before + MANY);
    }

    /// Returns a counter of an end's daemon.
    pub(crate) fn counter(&self, end: usize, name: &str) -> u64 {
        let status = self.ask(end, &["status"]).unwrap();
        status["counters"][name].as_u64().unwrap()
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
