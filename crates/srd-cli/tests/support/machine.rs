//! A machine with a card: a namespace, files of its own, and instances of a cloud.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

use super::pair::{ip, must, ready};

pub(crate) const SRD: &str = env!("CARGO_BIN_EXE_srd");
/// How long anything here may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// After so long without an answer there is none.
pub(crate) const SILENCE: Duration = Duration::from_millis(700);

pub(crate) const WEB: [u8; 4] = [10, 0, 1, 10];
pub(crate) const WEB_PUBLIC: [u8; 4] = [198, 51, 100, 10];
pub(crate) const NAT_PUBLIC: [u8; 4] = [198, 51, 100, 5];
/// The machine's own address on the internet's side.
pub(crate) const OUTSIDE: [u8; 4] = [203, 0, 113, 1];

/// A machine with a card of its own.
pub(crate) struct Machine {
    pub(crate) namespace: String,
    pub(crate) directory: tempfile::TempDir,
    /// Before the names of its instances, so that no other test has them.
    pub(crate) prefix: String,
    /// Whether the namespace goes with it.
    pub(crate) owned: bool,
}

impl Machine {
    pub(crate) fn new(tag: &str) -> Self {
        let namespace = format!("srdcard{tag}{}", std::process::id());
        must(&format!("netns add {namespace}"));
        must(&format!("-n {namespace} link set lo up"));
        let mut machine = Self::at(tag, &namespace);
        machine.owned = true;
        machine
    }

    /// A card on a machine that there is already.
    pub(crate) fn at(tag: &str, namespace: &str) -> Self {
        let prefix = format!("t{tag}{}-", std::process::id());
        let directory = tempfile::tempdir().unwrap();
        Self { namespace: namespace.to_owned(), directory, prefix, owned: false }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A file of a cloud: `'` stands for `"`, and instances, whose names begin with `P`, get this
    /// machine's names.
    pub(crate) fn cloud(&self, name: &str, text: &str) -> String {
        let text = text.replace('\'', "\"").replace(".P", &format!(".{}", self.prefix));
        let path = self.path(name);
        fs::write(&path, text.replace("\"P", &format!("\"{}", self.prefix))).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// The example of the documentation, with instances of this machine's names.
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

    /// The command with these words, in the machine. (`ip netns exec` would hide the namespaces
    /// that it makes.)
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let program = words.iter().position(|word| *word == "--").unwrap_or(words.len());
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace)).arg(SRD);
        command.args(&words[..program]).args(["--socket", &self.socket()]);
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

    /// Starts a card, and waits until it serves.
    pub(crate) fn up(&self, words: &[&str]) -> Running {
        let log = File::create(self.path("up.log")).unwrap();
        let mut command = self.command(&[&["card", "up"], words].concat());
        let child = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let running = Running(child.spawn().unwrap());
        let began = Instant::now();
        while !self.srd(&["card", "status"]).status.success() {
            let log = fs::read_to_string(self.path("up.log")).unwrap();
            assert!(began.elapsed() < PATIENCE, "{log}");
            thread::sleep(Duration::from_millis(50));
        }
        running
    }

    /// The counters of an instance.
    pub(crate) fn counter(&self, instance: &str, name: &str) -> u64 {
        let name_of = format!("{}{instance}", self.prefix);
        self.json(&["card", "stats", &name_of])[name].as_u64().unwrap()
    }

    /// Everything that a card changes on a machine.
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
        let ours = all.lines().filter(|line| line.contains(&self.prefix));
        ours.map(str::to_owned).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for line in self.instances_left() {
            let name = line.split(' ').next().unwrap_or_default();
            ip(&format!("netns del {name}"));
        }
        if self.owned {
            ip(&format!("netns del {}", self.namespace));
        }
    }
}

/// A program that is ended with the test.
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

/// Runs `work` in a namespace.
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

/// A listener in a namespace.
pub(crate) fn listen(namespace: &str, port: u16) -> TcpListener {
    within(namespace, || TcpListener::bind(("0.0.0.0", port)).unwrap())
}

pub(crate) fn connect(namespace: &str, address: [u8; 4], port: u16) -> std::io::Result<TcpStream> {
    let to = SocketAddr::from((address, port));
    within(namespace, || TcpStream::connect_timeout(&to, SILENCE))
}

/// Sends a line, and waits for it at the other end.
pub(crate) fn passes(from: &mut TcpStream, to: &mut TcpStream) -> bool {
    to.set_read_timeout(Some(SILENCE)).unwrap();
    from.write_all(b"line").unwrap();
    let mut line = [0; 4];
    to.read_exact(&mut line).is_ok()
}

pub(crate) fn ready_with_nsenter() -> bool {
    let has = |program: &str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        found.unwrap().status.success()
    };
    let all = ["nsenter", "nft"].into_iter().all(has);
    assert!(all || std::env::var_os("CI").is_none(), "nsenter and nft belong to CI");
    if !all {
        println!("skipped: nsenter and nft are missing: apt-get install util-linux nftables");
    }
    all && ready()
}
