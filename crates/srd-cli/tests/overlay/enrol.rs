//! Hosts that enrol at `srd control up --hosts`: a mesh of machines whose names, keys and addresses
//! come from one place. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::pair::{PATIENCE, ip, must, own_suffix, ready};

const SRD: &str = env!("CARGO_BIN_EXE_srd");
/// Number of machines: the controller, and four hosts.
const MACHINES: usize = 5;
/// The machine of the controller.
const CONTROLLER: usize = 0;
/// Port at which the controller serves hosts.
const PORT: u16 = 4600;

/// Machines that a switch connects. Each machine is a network namespace. Machine `n` has the
/// address `198.18.0.(n + 1)`.
struct Net {
    switch: String,
    names: Vec<String>,
    processes: Vec<Option<Child>>,
    directory: tempfile::TempDir,
}

impl Net {
    fn new(tag: &str) -> Self {
        let suffix = own_suffix();
        let switch = format!("srden{tag}s{suffix}");
        let names: Vec<String> = (0..MACHINES).map(|n| format!("srden{tag}{n}{suffix}")).collect();
        let processes = (0..MACHINES).map(|_| None).collect();
        let net = Self { switch, names, processes, directory: tempfile::tempdir().unwrap() };
        let switch = &net.switch;
        must(&format!("netns add {switch}"));
        must(&format!("-n {switch} link add br0 type bridge"));
        must(&format!("-n {switch} link set br0 up"));
        for (n, name) in net.names.iter().enumerate() {
            must(&format!("netns add {name}"));
            must(&format!("-n {switch} link add p{n} type veth peer name v0 netns {name}"));
            must(&format!("-n {switch} link set p{n} master br0"));
            must(&format!("-n {switch} link set p{n} up"));
            must(&format!("-n {name} addr add 198.18.0.{}/24 dev v0", n + 1));
            must(&format!("-n {name} link set lo up"));
            must(&format!("-n {name} link set v0 up"));
        }
        net
    }

    fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    /// Returns the command `srd` in the namespace of a machine.
    fn srd(&self, machine: usize) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[machine], SRD]);
        command
    }

    fn kill(&mut self, machine: usize) {
        if let Some(mut child) = self.processes[machine].take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Starts the controller, and waits until it serves.
    fn start_controller(&mut self) {
        let mut command = self.srd(CONTROLLER);
        command.args(["control", "up", "--state-only", "--listen", "127.0.0.1:0"]);
        command.arg("--state").arg(self.path("control.db"));
        command.arg("--admin").arg(self.path("admin.sock"));
        command.args(["--hosts", &format!("198.18.0.1:{PORT}")]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        self.processes[CONTROLLER] = Some(child);
        assert!(lines.into_iter().any(|line| line.starts_with("admin:")), "the controller ended");
    }

    /// Runs `srd control` with the socket of the controller.
    fn control(&self, words: &[&str]) -> Output {
        let mut command = Command::new(SRD);
        command.arg("control").args(words).arg("--admin").arg(self.path("admin.sock"));
        command.output().unwrap()
    }

    fn must_control(&self, words: &[&str]) -> String {
        let output = self.control(words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn listing(&self) -> Value {
        serde_json::from_str(&self.must_control(&["hosts", "--json"])).unwrap()
    }

    /// Makes a token, and writes it to the file that all hosts read.
    fn make_token(&self, uses: &str) {
        let token = self.must_control(&["token", "create", "--uses", uses, "--lifetime", "10m"]);
        let path = self.path("token");
        fs::write(&path, token).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Starts a host, which enrols unless it has enrolled.
    fn start_host(&mut self, machine: usize) {
        let text = format!(
            "[expert]\npaths = 4\n[interface]\nlisten = \"0.0.0.0:7471\"\n[enrol]\n\
             controller = \"198.18.0.1:{PORT}\"\ntoken_file = \"token\"\nname = \"h{machine}\"\n\
             directory = \"state{machine}\"\n[control]\nsocket = \"{}\"\n",
            self.path(&format!("{machine}.sock")).display()
        );
        let file = self.path(&format!("{machine}.toml"));
        fs::write(&file, text).unwrap();
        let child = self.srd(machine).arg("up").arg("-c").arg(file).spawn().unwrap();
        self.processes[machine] = Some(child);
    }

    /// Returns the state of the daemon of a host; `None` if it does not answer.
    fn status(&self, machine: usize) -> Option<Value> {
        let socket = self.path(&format!("{machine}.sock"));
        let output = Command::new(SRD).args(["status", "--json", "--socket"]).arg(socket).output();
        serde_json::from_slice(&output.unwrap().stdout).ok()
    }

    /// Returns the names of the peers of a host; `None` if its daemon does not answer.
    fn peers(&self, machine: usize) -> Option<Vec<String>> {
        let status = self.status(machine)?;
        let name = |peer: &Value| peer["name"].as_str().unwrap().to_owned();
        Some(status["peers"].as_array()?.iter().map(name).collect())
    }

    /// Whether a host gets an answer from the overlay address of another host.
    fn pings(&self, from: usize, to: usize) -> bool {
        let address = format!("10.77.0.{to}");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[from], "ping", "-q", "-c1", "-W1", &address]);
        command.output().unwrap().status.success()
    }

    fn wait(&self, what: &str, mut done: impl FnMut(&Self) -> bool) -> Duration {
        let begin = Instant::now();
        while !done(self) {
            assert!(begin.elapsed() < PATIENCE, "{what} did not happen");
            std::thread::sleep(Duration::from_millis(20));
        }
        begin.elapsed()
    }

    /// Waits until each of these hosts gets an answer from each other one.
    fn wait_for_mesh(&self, hosts: &[usize]) {
        for from in hosts {
            for to in hosts.iter().filter(|to| *to != from) {
                self.wait(&format!("a ping from {from} to {to}"), |net| net.pings(*from, *to));
            }
        }
    }

    /// Waits until this number of hosts is connected and uses the present peers.
    fn wait_for_hosts(&self, count: usize) {
        self.wait("all hosts", |net| {
            let listing = net.listing();
            let hosts = listing["hosts"].as_array().unwrap();
            let is_up_to_date = |host: &Value| {
                host["connected"] == true && host["applied"] == listing["generation"]
            };
            hosts.len() == count && hosts.iter().all(is_up_to_date)
        });
    }
}

/// Script in place of `sudo`: the user is root already, and the environment names another user.
const SUDO: &str = "#!/bin/sh\nSUDO_UID=4711 SUDO_GID=4711 exec \"$@\"\n";
/// User in [`SUDO`], to whom the files belong that the shell of this user creates.
const USER: u32 = 4711;

impl Net {
    /// Makes the file system of the machines: each has a `/run`, a `/var/lib` and a directory of
    /// the user of its own.
    fn make_files(&self) {
        fs::create_dir(self.path("bin")).unwrap();
        symlink(SRD, self.path("bin/srd")).unwrap();
        fs::write(self.path("bin/sudo"), SUDO).unwrap();
        fs::set_permissions(self.path("bin/sudo"), PermissionsExt::from_mode(0o755)).unwrap();
        for machine in 0..MACHINES {
            for name in ["run", "lib", "home"] {
                fs::create_dir(self.path(&format!("{name}{machine}"))).unwrap();
            }
        }
    }

    /// Returns a shell that runs these commands as a user of a machine types them.
    fn shell(&self, machine: usize, commands: &str) -> Command {
        let [run, lib, home] = ["run", "lib", "home"]
            .map(|name| self.path(&format!("{name}{machine}")).display().to_string());
        let script = format!(
            "mount --bind {run} /run\nmount --bind {lib} /var/lib\nhostname web-{machine}\n\
             cd {home}\n{commands}"
        );
        let path = std::env::var("PATH").unwrap();
        let mut shell = Command::new("ip");
        shell.args(["netns", "exec", &self.names[machine], "unshare", "--mount", "--uts"]);
        shell.args(["sh", "-eu", "-c", &script]);
        shell.env("PATH", format!("{}:{path}", self.path("bin").display()));
        shell
    }
}

/// Returns the commands of `docs/control-hosts.md` that the test with this name runs.
fn documented(test: &str) -> Vec<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/control-hosts.md");
    let page = fs::read_to_string(page).unwrap().replace("192.0.2.10", "198.18.0.1");
    let mark = format!("{test} -->\n```sh\n");
    let blocks = page.split(&mark).skip(1);
    blocks.map(|block| block.split("```").next().unwrap().trim().to_owned()).collect()
}

impl Drop for Net {
    fn drop(&mut self) {
        for mut child in self.processes.iter_mut().filter_map(Option::take) {
            let _ = child.kill();
            let _ = child.wait();
        }
        for name in self.names.iter().chain([&self.switch]) {
            ip(&format!("netns del {name}"));
        }
    }
}

#[test]
fn hosts_enrol_outlive_their_controller_and_are_removed() {
    if !ready() {
        return;
    }
    let mut net = Net::new("m");
    net.start_controller();
    net.make_token("3");
    // Each host enrols before the next one starts, so that its number is that of its address.
    for (count, host) in [1, 2, 3].into_iter().enumerate() {
        net.start_host(host);
        net.wait_for_hosts(count + 1);
    }
    net.wait_for_mesh(&[1, 2, 3]);
    // A reload reads the file of the host, and keeps the peers of the controller.
    let socket = net.path("1.sock");
    let reload = Command::new(SRD).args(["reload", "--socket"]).arg(socket).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&reload.stdout), "nothing has changed\n", "{reload:?}");
    assert_eq!(net.peers(1).unwrap(), ["h2", "h3"]);
    let files = fs::read_dir(net.path("state1")).unwrap().flatten();
    for file in files {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o7777, 0o600, "{file:?}");
    }

    // Without the controller, traffic goes on. A host that starts again uses its stored peers.
    net.kill(CONTROLLER);
    net.wait_for_mesh(&[1, 2, 3]);
    net.kill(2);
    net.start_host(2);
    net.wait_for_mesh(&[1, 2, 3]);

    // A fourth host enrols after the restart of the controller.
    net.start_controller();
    net.wait_for_hosts(3);
    net.make_token("1");
    net.start_host(4);
    net.wait_for_hosts(4);
    net.wait_for_mesh(&[1, 2, 3, 4]);

    // A host that is removed is shut out by all others. No token has a use left.
    assert_eq!(net.must_control(&["hosts", "remove", "h3"]), "h3 is removed\n");
    let others = [1, 2, 4];
    let spent = net.wait("the removal", |net| {
        others
            .iter()
            .all(|host| net.peers(*host).is_some_and(|peers| !peers.contains(&"h3".to_owned())))
    });
    println!("the other hosts dropped the host after {spent:?}");
    net.wait("the end of its peers", |net| net.peers(3).is_some_and(|peers| peers.is_empty()));
    assert!(!net.pings(1, 3) && !net.pings(3, 1));
    net.wait_for_mesh(&others);

    // A host changes its key while it runs.
    let key = |net: &Net| net.listing()["hosts"][1]["public_key"].as_str().unwrap().to_owned();
    for _ in 0..2 {
        let before = key(&net);
        net.must_control(&["hosts", "rotate", "h2"]);
        net.wait("the new key", |net| key(net) != before);
        net.wait("its use", |net| net.status(2).unwrap()["public_key"] == key(net));
        net.wait_for_hosts(3);
        net.wait_for_mesh(&others);
        let file = net.path("state2/private.key");
        let public = Command::new(SRD).arg("pubkey").stdin(fs::File::open(file).unwrap()).output();
        assert_eq!(String::from_utf8(public.unwrap().stdout).unwrap().trim(), key(&net));
        assert_eq!(net.listing()["hosts"][1]["rotation"], Value::Null);
        assert!(!net.path("state2/next.key").exists());
    }
    assert!(net.processes[2].as_mut().unwrap().try_wait().unwrap().is_none());
    // A start finds the same key.
    let before = key(&net);
    net.kill(2);
    net.start_host(2);
    net.wait_for_mesh(&others);
    assert_eq!(key(&net), before);
    // Regression: a host that was killed after the controller had its next key, and before it used
    // the key, started with the former one. Its peers refused it until the controller was back.
    let [private, offered] = ["private.key", "offered.key"].map(|f| net.path("state2").join(f));
    let former = fs::read(&private).unwrap();
    net.must_control(&["hosts", "rotate", "h2"]);
    net.wait("the new key", |net| key(net) != before);
    net.wait_for_hosts(3);
    net.wait_for_mesh(&others);
    net.kill(2);
    assert!(!offered.exists());
    fs::rename(&private, &offered).unwrap();
    fs::write(&private, former).unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o600)).unwrap();
    let owner = fs::metadata(&offered).unwrap();
    chown(&private, Some(owner.uid()), Some(owner.gid())).unwrap();
    net.kill(CONTROLLER);
    net.start_host(2);
    net.wait_for_mesh(&others);
    net.start_controller();
    net.wait_for_hosts(3);
    let error = String::from_utf8(net.control(&["hosts", "remove", "x"]).stderr).unwrap();
    assert!(error.contains("there is no host `x`"), "{error}");
}

/// The identity of the controller changes while hosts run. One host is away until the controller
/// was killed and has started again in the middle of the change.
#[test]
fn hosts_follow_another_identity_of_their_controller_without_a_restart() {
    if !ready() {
        return;
    }
    let mut net = Net::new("i");
    net.start_controller();
    net.make_token("9");
    for (count, host) in [1, 2, 3].into_iter().enumerate() {
        net.start_host(host);
        net.wait_for_hosts(count + 1);
    }
    let identity = |net: &Net| -> Value {
        serde_json::from_str(&net.must_control(&["identity", "--json"])).unwrap()
    };
    let shown = |net: &Net, host: usize| net.status(host).unwrap()["controller"].clone();
    let present = identity(&net)["present"].clone();
    assert_eq!(shown(&net, 1)["fingerprint"], present);
    net.kill(3);
    let said = net.must_control(&["identity", "rotate"]);
    assert!(said.contains("next identity: ") && said.contains("identity finish"), "{said}");
    let next = identity(&net)["next"].clone();
    net.wait("the next identity at two hosts", |net| {
        identity(net)["without_next"] == serde_json::json!(["h3"])
    });
    let refused = String::from_utf8(net.control(&["identity", "finish"]).stderr).unwrap();
    assert!(refused.contains("next identity: h3.") && refused.contains("--force"), "{refused}");

    net.kill(CONTROLLER);
    net.start_controller();
    assert_eq!(identity(&net)["next"], next);
    // This host has the present identity only.
    net.start_host(3);
    net.wait("the next identity at all hosts", |net| {
        identity(net)["without_next"] == serde_json::json!([])
    });
    let said = net.must_control(&["identity", "finish"]);
    assert!(said.contains(next.as_str().unwrap()), "{said}");
    assert!(said.contains("tokens of the other identity are removed"), "{said}");
    for host in [1, 2, 3] {
        net.wait("the next identity only", |net| shown(net, host)["fingerprint"] == next);
    }
    assert_eq!(identity(&net)["next"], Value::Null);
    net.kill(CONTROLLER);
    net.start_controller();
    net.wait_for_hosts(3);
    net.wait_for_mesh(&[1, 2, 3]);
    for host in [1, 2] {
        assert!(net.processes[host].as_mut().unwrap().try_wait().unwrap().is_none());
    }
    // The token names the former identity.
    net.start_host(4);
    let status = net.processes[4].as_mut().unwrap().wait().unwrap();
    assert!(!status.success());
    net.make_token("1");
    net.start_host(4);
    net.wait_for_hosts(4);

    // A host that was excluded reports so, and keeps its peers.
    net.kill(3);
    net.must_control(&["identity", "rotate"]);
    net.wait("the next identity at three hosts", |net| {
        identity(net)["without_next"] == serde_json::json!(["h3"])
    });
    let said = net.must_control(&["identity", "finish", "--force"]);
    assert!(said.contains("excluded: h3.") && said.contains("hosts remove NAME"), "{said}");
    net.start_host(3);
    net.wait("the problem", |net| {
        net.status(3).is_some_and(|of| of["controller"]["problem"] == "other-controller")
    });
    net.wait_for_mesh(&[1, 2, 3, 4]);
}

/// The steps of `docs/control-hosts.md`, by a user with `sudo` on each machine. The files `token`
/// belong to this user.
#[test]
fn a_mesh_is_made_by_the_documented_steps_of_a_user_with_sudo() {
    if !ready() {
        return;
    }
    let steps = documented("a_mesh_is_made_by_the_documented_steps_of_a_user_with_sudo");
    let [server, create, start, list] = &steps[..] else { panic!("{steps:?}") };
    let mut net = Net::new("d");
    net.make_files();
    // The shell becomes the program, so that a signal to it reaches the program.
    let up = |net: &Net, machine: usize, command: &str| {
        net.shell(machine, &format!("exec {command}")).stdout(Stdio::piped()).spawn().unwrap()
    };
    let mut child = up(&net, CONTROLLER, server);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    net.processes[CONTROLLER] = Some(child);
    assert!(lines.into_iter().any(|line| line.starts_with("admin:")), "the controller ended");
    let output = net.shell(CONTROLLER, create).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let token = net.path("home0/token");
    assert_eq!(fs::metadata(&token).unwrap().permissions().mode() & 0o7777, 0o600);
    for host in 1..=3 {
        // As `scp -p` does it.
        let copy = net.path(&format!("home{host}/token"));
        fs::copy(&token, &copy).unwrap();
        chown(&copy, Some(USER), Some(USER)).unwrap();
        net.processes[host] = Some(up(&net, host, start));
        net.wait(&format!("the host web-{host} in the list"), |net| {
            let listed = net.shell(CONTROLLER, list).output().unwrap();
            let text = String::from_utf8_lossy(&listed.stdout).into_owned();
            let of_host = |line: &&str| line.starts_with(&format!("web-{host} "));
            text.lines().find(of_host).is_some_and(|line| line.contains(" connected "))
        });
    }
    net.wait_for_mesh(&[1, 2, 3]);
}

/// Other settings of `[enrol]` were taken over or ignored without a message, and the log had two
/// lines `nothing has changed`.
#[test]
fn regression_a_take_over_of_a_host_refuses_or_reports_other_settings_of_enrol() {
    if !ready() {
        return;
    }
    let mut net = Net::new("t");
    net.start_controller();
    net.make_token("1");
    net.start_host(1);
    net.wait_for_hosts(1);
    let file = net.path("1.toml");
    let text = fs::read_to_string(&file).unwrap();
    let take_over = |net: &Net| {
        let mut command = net.srd(1);
        command.args(["up", "--take-over", "-c"]).arg(&file);
        command
    };
    let refused = |net: &Net, from: &str, to: &str| {
        fs::write(&file, text.replace(from, to)).unwrap();
        let output = take_over(net).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let said = refused(&net, "name = \"h1\"", "name = \"h7\"");
    assert!(said.contains("this host has enrolled as `h1`"), "{said}");
    let said = refused(&net, "directory = \"state1\"", "directory = \"state2\"");
    assert!(said.contains("has not enrolled"), "{said}");
    let endpoint = "name = \"h1\"\nendpoint = \"198.18.0.2:7471\"";
    fs::write(&file, text.replace("name = \"h1\"", endpoint)).unwrap();
    let log = net.path("1.log");
    let next = take_over(&net).stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    let mut former = net.processes[1].replace(next).unwrap();
    let said = || fs::read_to_string(&log).unwrap();
    net.wait("the take-over", |_| said().contains("connected to the controller"));
    assert!(former.wait().unwrap().success());
    assert!(said().contains("settings of [enrol] taken over: endpoint"), "{}", said());
    assert!(!said().contains("nothing has changed"), "{}", said());
    net.wait_for_hosts(1);
}

/// Errors of a host that cannot enrol name their cause.
#[test]
fn hosts_that_cannot_enrol_end_with_an_error() {
    if !ready() {
        return;
    }
    let mut net = Net::new("e");
    let fails = |net: &mut Net, machine: usize, says: &str| {
        net.start_host(machine);
        net.kill(machine);
        let file = net.path(&format!("{machine}.toml"));
        let output = net.srd(machine).arg("up").arg("-c").arg(file).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(says), "{error}");
    };
    fails(&mut net, 1, "the enrolment token");
    net.start_controller();
    net.make_token("1");
    // The controller with this state is another one.
    net.kill(CONTROLLER);
    fails(&mut net, 1, "198.18.0.1:4600");
    fs::remove_file(net.path("control.db")).unwrap();
    net.start_controller();
    fails(&mut net, 1, "does not have the fingerprint");
    net.make_token("1");
    net.start_host(1);
    net.wait_for_hosts(1);
    fails(&mut net, 2, "no use left");
    let listing = net.listing();
    assert!(listing["refused"]["token_used"].as_u64() >= Some(1), "{listing}");
    assert_eq!(listing["hosts"].as_array().unwrap().len(), 1);
}

/// The state of the connection was in the log only, and a wrong fingerprint there only once.
#[test]
fn regression_status_shows_the_controller_and_why_the_host_is_not_connected() {
    if !ready() {
        return;
    }
    let mut net = Net::new("s");
    net.start_controller();
    net.make_token("1");
    net.start_host(1);
    net.wait_for_hosts(1);
    let controller = |net: &Net| net.status(1).unwrap()["controller"].clone();
    let wait = |net: &Net, state: &str, problem: Value| {
        net.wait(state, |net| {
            let now = controller(net);
            now["state"] == state && now["problem"] == problem
        });
    };
    wait(&net, "connected", Value::Null);
    let now = controller(&net);
    assert_eq!(now["address"], format!("198.18.0.1:{PORT}"));
    assert_eq!(now["generation"], net.listing()["generation"]);
    assert!(now["last_contact_s"].as_f64().is_some(), "{now}");

    net.kill(CONTROLLER);
    wait(&net, "disconnected", "unreachable".into());
    // The controller with this state is another one.
    fs::remove_file(net.path("control.db")).unwrap();
    net.start_controller();
    wait(&net, "disconnected", "other-controller".into());
    let socket = net.path("1.sock");
    let output = Command::new(SRD).args(["status", "--socket"]).arg(socket).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!("controller 198.18.0.1:{PORT}: disconnected for ")), "{text}");
    assert!(text.contains("\ncontroller, for "), "{text}");
    assert!(text.contains("does not have the fingerprint"), "{text}");
}
