//! Attacks by local users of a machine that runs an overlay, a card and both halves of the NFS
//! proxy. The users are an ordinary user, and the user `srd` that the package creates. No attack
//! succeeds. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::machine::{PATIENCE, Running, SRD, ready_with_nsenter};
use crate::support::pair::{Pair, Settings};

/// Names and ids of an ordinary user, and of the user of the service.
const USERS: [(&str, u32); 2] = [("alice", 47_001), ("srd", 47_002)];
/// Path of the card's socket. It is the path of the product, because the permissions of the
/// directories above it matter as well.
const CARD: &str = "/run/srd-card/card.sock";
/// Programs that the scripts need, and packages that contain them.
const PROGRAMS: [(&str, &str); 3] =
    [("python3", "python3"), ("openssl", "openssl"), ("setpriv", "util-linux")];

/// An attack: a script that runs in the machine's network, and exits with 0 if it has succeeded.
struct Attempt {
    name: &'static str,
    /// Whether root runs the script, too, and must succeed, which shows that the script is right.
    /// Root does not run scripts that would break the machine.
    root_may: bool,
    script: &'static str,
}

const fn attempt(name: &'static str, root_may: bool, script: &'static str) -> Attempt {
    Attempt { name, root_may, script }
}

/// Python code that defines an RPC call without arguments (RFC 5531), as one record.
const CALL: &str = "
import socket, struct, sys, os, ssl
call = struct.pack('>IIIIIIIIII', 7, 0, 2, 100003, 4, 0, 0, 0, 0, 0)
record = struct.pack('>I', 0x80000000 | len(call)) + call
def answer(s):
    s.settimeout(20)
    s.sendall(record)
    sys.exit(0 if s.recv(4) else 1)
";

/// Makes an NFS call like the kernel's NFS client: from a port that only root may bind.
const NFS_BY_CLIENT: &str = "python3 -c \"$CALL
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
if os.getuid() == 0: s.bind(('127.0.0.1', 990))
s.connect(('127.0.0.1', 225))
answer(s)\"";

const ATTEMPTS: [Attempt; 34] = [
    // Attacks on the card's control socket.
    attempt("the card's status", true, "$SRD card status --socket $CARD"),
    attempt("another cloud for the card", true, "$SRD card apply $CLOUD --socket $CARD"),
    attempt("a program in an instance", true, "$SRD run --socket $CARD -- true"),
    attempt("counters of an instance", true, "$SRD card stats web --socket $CARD"),
    attempt(
        "a connection to the card's socket",
        true,
        "python3 -c \"
import socket, os
socket.socket(socket.AF_UNIX).connect(os.environ['CARD'])\"",
    ),
    attempt("the card's socket under another name", false, "mv $CARD $CARD.gone"),
    attempt("the card's socket removed", false, "rm -f $CARD && test ! -e $CARD"),
    attempt("a file in the card's directory", false, "touch $(dirname $CARD)/mine"),
    attempt("the card's locks replaced", false, "mv $(dirname $CARD)/locks $(dirname $CARD)/l"),
    attempt("the card's directory replaced", false, "mv $(dirname $CARD) $(dirname $CARD).gone"),
    attempt("the card's directory for everybody", false, "chmod 0777 $(dirname $CARD)"),
    // Attacks on instances.
    attempt("a network of an instance", true, "nsenter --net=/run/netns/srd-i-web true"),
    attempt("`ip netns exec`", true, "ip netns exec srd-i-web true"),
    attempt("an instance's name taken away", false, "ip netns del srd-i-web"),
    // Attacks on the overlay.
    attempt("a reload of the overlay", true, "$SRD reload --socket $UP"),
    attempt(
        "packets of the overlay",
        true,
        "timeout 20 $SRD capture -s 1 -w /dev/null --socket $UP",
    ),
    attempt("the interface switched off", false, "ip link set $OVERLAY down"),
    attempt("another reader of the interface", false, "ip tuntap add dev $OVERLAY mode tun"),
    attempt("the overlay's private key", true, "cat $KEY"),
    attempt("the private key of the NFS server's half", true, "cat $SERVER_KEY"),
    // Attacks on processes.
    attempt("the card's memory", true, "head -c 1 /proc/$CARD_PID/environ >/dev/null"),
    attempt("a descriptor of the card's", true, "ls -l /proc/$CARD_PID/fd/ | grep -q socket"),
    attempt("a signal to the card", true, "kill -0 $CARD_PID"),
    // The target is the helper process, because it belongs to root. For a process of another user,
    // root would also need CAP_SYS_RESOURCE.
    attempt("core files of the card", true, "prlimit --pid $HELPER_PID --core=1:1"),
    attempt("a signal to the NFS client's half", true, "kill -0 $NFS_PID"),
    attempt("a descriptor of the overlay's", true, "ls -l /proc/$NETWORK_PID/fd/ | grep -q socket"),
    // Attacks on ports.
    attempt(
        "the port of the NFS client's half",
        false,
        "python3 -c \"
import socket
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
s.bind(('127.0.0.1', 225)); s.listen()\"",
    ),
    attempt(
        "the first port from which cards send",
        false,
        "python3 -c \"
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
s.bind(('198.18.0.1', 960))\"",
    ),
    attempt(
        "another port from which cards send",
        false,
        "python3 -c \"
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('198.18.0.1', 1000))\"",
    ),
    // Attacks on NFS.
    attempt("NFS by the client's half", true, NFS_BY_CLIENT),
    attempt(
        "NFS by the server's half, with the certificate of the machine",
        true,
        "python3 -c \"$CALL
tls = ssl.create_default_context(cafile=os.environ['CA'])
tls.check_hostname = False
try: tls.load_cert_chain(os.environ['CLIENT_CERT'], os.environ['CLIENT_KEY'])
except OSError: pass
answer(tls.wrap_socket(socket.create_connection(('127.0.0.1', 20050))))\"",
    ),
    attempt("NFS mounted", false, "$HELPER 127.0.0.1:/ /tmp -o plain,trustnetwork"),
    // Attacks on the card's page of metrics.
    attempt(
        "the page under a name of another's",
        false,
        "python3 -c \"
import http.client, socket, sys
c = http.client.HTTPConnection('127.0.0.1', 9472, timeout=20)
c.request('GET', '/', headers={'Host': socket.gethostname() + '.evil.example:9472'})
sys.exit(c.getresponse().status != 200)\"",
    ),
    attempt("another address at the overlay", false, "ip addr add 10.77.0.99/24 dev $OVERLAY"),
];

/// The machine of the test, and all programs that run on it.
struct Site {
    pair: Pair,
    directory: tempfile::TempDir,
    running: Vec<Running>,
    card: u32,
    nfs: u32,
}

impl Site {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns a command in the network of the machine.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.pair.names[0])).arg(program);
        command.stdin(Stdio::null());
        command
    }

    fn start(&mut self, mut command: Command, log: &str) -> u32 {
        let log = fs::File::create(self.path(log)).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().unwrap();
        let pid = child.id();
        self.running.push(Running(child));
        pid
    }

    /// Waits until a condition holds; fails if a program of the machine has ended.
    #[track_caller]
    fn wait(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !is_so(self) {
            let ended = self.running.iter_mut().any(|r| r.0.try_wait().unwrap().is_some());
            assert!(!ended && began.elapsed() < PATIENCE, "{what}: {}", self.logs());
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn logs(&self) -> String {
        let names = ["card.log", "nfs-server.log", "nfs-client.log"];
        names.map(|name| fs::read_to_string(self.path(name)).unwrap_or_default()).concat()
    }

    /// Returns the process id of the overlay's network process, which is the daemon's child.
    fn network(&self) -> u32 {
        child_of(self.pair.daemons[0].as_ref().unwrap().id())
    }

    /// Runs the script of an attack as a user; `None` is root.
    fn attempt(&self, script: &str, user: Option<u32>) -> Output {
        let mut command = self.command("setpriv");
        if let Some(user) = user {
            let id = user.to_string();
            command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--inh-caps=-all"]);
        }
        let helper = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/mount.srd-nfs");
        command.args(["sh", "-c", script]).current_dir("/tmp");
        command.env("SRD", SRD).env("HELPER", helper).env("CALL", CALL);
        command.env("CARD", CARD).env("CLOUD", self.path("cloud.toml"));
        command.env("UP", self.pair.path("0.sock".to_owned())).env("OVERLAY", "srd0");
        command.env("KEY", self.pair.path("0.key".to_owned()));
        command.env("CARD_PID", self.card.to_string()).env("NFS_PID", self.nfs.to_string());
        command.env("NETWORK_PID", self.network().to_string());
        command.env("HELPER_PID", child_of(self.card).to_string());
        for (name, file) in [
            ("CA", "ca.pem"),
            ("SERVER_KEY", "server.key"),
            ("CLIENT_CERT", "client.pem"),
            ("CLIENT_KEY", "client.key"),
        ] {
            command.env(name, self.path(file));
        }
        command.output().unwrap()
    }

    /// Whether all programs of the machine still serve.
    fn is_well(&self) -> bool {
        let srd = |words: &[&str]| self.command(SRD).args(words).output().unwrap();
        let up = self.pair.path("0.sock".to_owned());
        srd(&["card", "status", "--socket", CARD]).status.success()
            && srd(&["status", "--socket", up.to_str().unwrap()]).status.success()
            && self.attempt(NFS_BY_CLIENT, None).status.success()
    }
}

fn child_of(pid: u32) -> u32 {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

/// Runs a replacement of an NFS server, which answers each call. Like an export without `insecure`,
/// it serves only clients with source ports below 1024.
fn nfs_server(pair: &Pair) {
    let listener = pair.within(0, || TcpListener::bind("127.0.0.1:2049").unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            if stream.peer_addr().is_ok_and(|from| from.port() >= 1024) {
                continue;
            }
            thread::spawn(move || {
                let mut call = [0; 44];
                while stream.read_exact(&mut call).is_ok() {
                    call[11] = 1;
                    if stream.write_all(&call).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

/// Script that creates two certificate issuers, a server's certificate and a client's.
const CERTIFICATES: &str = "
set -e
umask 077
for of in ca server client; do
    openssl ecparam -name prime256v1 -genkey -noout -out $of.key
done
openssl req -x509 -new -key ca.key -subj /CN=test -days 2 -out ca.pem
for of in server client; do
    openssl req -new -key $of.key -subj /CN=$of -out $of.csr
    printf 'subjectAltName=DNS:%s,IP:127.0.0.1' $of >$of.ext
    openssl x509 -req -in $of.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
        -extfile $of.ext -out $of.pem
done
chmod 0644 ca.pem
";

const CLOUD_EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vpc/web-app.toml");

const CLOUD: &str = "
[vpc.main]
cidr = [\"10.0.0.0/16\"]
[subnet.s]
cidr = \"10.0.1.0/24\"
[instance.web]
type = \"c7i.large\"
[interface.web]
subnet = \"s\"
address = [\"10.0.1.10\"]
instance = \"web\"
";

fn site() -> Site {
    let mut pair = Pair::new("lu");
    let directory = tempfile::tempdir().unwrap();
    for end in [0, 1] {
        pair.configure(end, &Settings::OVERLAY);
        pair.start(end);
    }
    pair.wait_for_express();
    // The files must be protected by their own modes, so the directories of the test are open to
    // all users.
    for of in [directory.path(), pair.path(String::new()).as_path()] {
        fs::set_permissions(of, fs::Permissions::from_mode(0o755)).unwrap();
    }
    nfs_server(&pair);
    let mut site = Site { pair, directory, running: Vec::new(), card: 0, nfs: 0 };
    fs::write(site.path("cloud.toml"), CLOUD).unwrap();
    let mut make = Command::new("sh");
    make.args(["-c", CERTIFICATES]).current_dir(site.directory.path());
    let made = make.output().unwrap();
    assert!(made.status.success(), "{made:#?}");
    let mut card = site.command(SRD);
    card.args(["card", "up", "--metrics", "127.0.0.1:9472"]).arg(site.path("cloud.toml"));
    site.card = site.start(card, "card.log");
    site.wait("a card", |site| {
        site.command(SRD).args(["card", "status"]).output().unwrap().status.success()
    });
    let mut server = site.command(SRD);
    server.args(["nfs-proxy", "--serve", "--listen", "127.0.0.1:20050", "--to", "127.0.0.1:2049"]);
    for (word, file) in
        [("--cert", "server.pem"), ("--key", "server.key"), ("--client-ca", "ca.pem")]
    {
        server.arg(word).arg(site.path(file));
    }
    site.start(server, "nfs-server.log");
    let mut client = site.command(SRD);
    client.arg("nfs-proxy");
    for (word, file) in [("--ca", "ca.pem"), ("--cert", "client.pem"), ("--key", "client.key")] {
        client.arg(word).arg(site.path(file));
    }
    client.arg("127.0.0.1:20050");
    site.nfs = site.start(client, "nfs-client.log");
    site.wait("NFS", |site| site.attempt(NFS_BY_CLIENT, None).status.success());
    site
}

/// Whether the test can run: the programs of the scripts must be installed, and this machine must
/// not run a card of its own.
fn ready() -> bool {
    let has = |program: &str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        found.unwrap().status.success()
    };
    for (program, package) in PROGRAMS {
        if !has(program) {
            println!("skipped: no {program} (apt-get install {package})");
            return false;
        }
    }
    if Path::new(CARD).exists() {
        println!("skipped: this machine has a card, at {CARD}");
        return false;
    }
    ready_with_nsenter()
}

#[test]
fn local_users_gain_nothing_by_thirty_four_attempts() {
    if !ready() {
        return;
    }
    let site = site();
    for Attempt { name, root_may, script } in &ATTEMPTS {
        if *root_may {
            let output = site.attempt(script, None);
            assert!(output.status.success(), "{name}, as root: {output:#?}");
        }
        for (user, id) in USERS {
            let output = site.attempt(script, Some(id));
            let said = String::from_utf8_lossy(&output.stderr);
            println!("{name}, as {user}: {}: {}", output.status, said.lines().last().unwrap_or(""));
            assert!(!output.status.success(), "{name}, as {user}: {output:#?}");
        }
    }
    assert!(site.is_well(), "{}", site.logs());
}

/// Python code with which a local user creates a socket in a directory of that user.
const IMPOSTOR: &str = "python3 -c \"
import socket, os
fake = os.environ['FAKE']
s = socket.socket(socket.AF_UNIX); s.bind(fake); s.listen(); os.chmod(fake, 0o777)
print('listens', flush=True)
while True:
    c, _ = s.accept()
    try:
        c.recv(65536)
        c.sendall(b'{\\\"Attached\\\":{\\\"namespace\\\":\\\"../../tmp/x\\\"}}\\n')
    except OSError: pass
    c.close()\"";

#[test]
fn root_believes_no_socket_of_a_local_user() {
    if !ready() {
        return;
    }
    for (user, id) in USERS {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let own = directory.path().join("own");
        fs::create_dir(&own).unwrap();
        chown(&own, Some(id), Some(id)).unwrap();
        let fake = own.join("fake.sock");
        let mut command = Command::new("setpriv");
        let number = id.to_string();
        command.args(["--reuid", &number, "--regid", &number, "--clear-groups"]);
        command.args(["sh", "-c", &format!("exec {IMPOSTOR}")]).env("FAKE", &fake);
        let mut impostor = Running(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut said = [0; 8];
        impostor.0.stdout.take().unwrap().read_exact(&mut said).unwrap();
        let fake = fake.to_str().unwrap();
        for words in [
            &["card", "status", "--socket", fake][..],
            &["card", "apply", CLOUD_EXAMPLE, "--socket", fake],
            &["run", "--socket", fake, "--", "true"],
            &["status", "--socket", fake],
            &["reload", "--socket", fake],
        ] {
            let output = Command::new(SRD).args(words).stdin(Stdio::null()).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            println!("srd {}, at a socket of {user}: {said}", words.join(" "));
            assert!(!output.status.success(), "{words:?}: {output:#?}");
            assert!(said.contains(fake) || said.contains(&number), "it names the socket: {said}");
        }
    }
}
