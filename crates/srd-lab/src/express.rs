//! Runs `srd up` in the hosts, and so provides overlay addresses, until a guard is dropped.
//!
//! Every participating host gets a key pair, a configuration and a daemon in its namespace. The
//! daemons are separate processes of the `srd` program, started as a user would start them; this
//! module uses only their files and commands.
//!
//! An overlay of `n` hosts is a full mesh with `n - 1` peers for each host; [`HOSTS_MAX`] limits
//! it.

mod change;

pub use change::Variation;

use crate::build::fabric::Fabric;
use crate::build::id::{Family, HostId};
use crate::programs::running::Running;
use crate::{FabricConfig, build::address, programs::command};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::net::UdpSocket;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Largest number of hosts of one overlay.
pub const HOSTS_MAX: usize = 64;
/// UDP port on which the daemons listen.
pub const PORT: u16 = 7471;
/// Name of the interface that each daemon creates.
pub const DEVICE: &str = "srd0";
/// Time limit for all daemons to reach each other.
const UP_MAX: Duration = Duration::from_secs(60);
/// Time that a daemon gets to end after SIGTERM.
const LEAVE_MAX: Duration = Duration::from_secs(20);
/// Interval of status queries to a daemon.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// Lines of a daemon's log that an error shows.
const LOG_LINES: usize = 12;
/// Destination port of the datagram that makes a daemon contact its peer.
const DISCARD_PORT: u16 = 9;

/// Returns the beginning of a command that starts a daemon with a real-time priority (1 to 50);
/// empty without a priority.
fn at_priority(priority: Option<u8>) -> Vec<String> {
    let words = |priority: u8| ["chrt".into(), "-f".into(), priority.to_string()];
    priority.map_or_else(Vec::new, |priority| words(priority).into())
}

/// Options of the daemons.
#[derive(Clone, Debug)]
pub struct OverlayOptions {
    /// The `srd` program.
    pub program: PathBuf,
    /// Directory for configurations, keys, sockets and logs.
    pub directory: PathBuf,
    /// Real-time priority of the daemons, 1 to 50. With `None`, the default, the daemons share the
    /// processors with every other process: on a machine with few processors, real-time daemons
    /// keep programs from running.
    pub realtime_priority: Option<u8>,
    /// Whether the daemons encrypt, as `srd up` does by default.
    pub encrypted: bool,
}

/// Daemons that are up and reach each other. Dropping this value stops them.
#[derive(Debug)]
pub struct Overlay<'a> {
    fabric: &'a Fabric,
    options: OverlayOptions,
    hosts: Vec<HostId>,
    keys: BTreeMap<HostId, KeyPair>,
    daemons: BTreeMap<HostId, Running>,
}

#[derive(Clone, Debug)]
struct KeyPair {
    file: PathBuf,
    public: String,
}

impl<'a> Overlay<'a> {
    /// Starts a daemon in each host and waits until each daemon reaches all other daemons.
    pub fn up(fabric: &'a Fabric, hosts: &[HostId], options: &OverlayOptions) -> Result<Self> {
        if !(2..=HOSTS_MAX).contains(&hosts.len()) {
            bail!("an overlay has 2 to {HOSTS_MAX} hosts, not {}", hosts.len());
        }
        let mut keys = BTreeMap::new();
        for host in hosts {
            fabric.config().check_host(*host)?;
            keys.insert(*host, options.key_pair(*host)?);
        }
        let mut overlay = Overlay {
            fabric,
            options: options.clone(),
            hosts: hosts.to_vec(),
            keys,
            daemons: BTreeMap::new(),
        };
        for host in hosts {
            overlay.configure(*host, &Variation::default())?;
        }
        for host in hosts {
            overlay.start(*host)?;
        }
        overlay.wait_until_up()?;
        Ok(overlay)
    }

    /// Returns the options of the daemons.
    #[must_use]
    pub fn options(&self) -> &OverlayOptions {
        &self.options
    }

    /// Returns the hosts with a daemon.
    #[must_use]
    pub fn hosts(&self) -> &[HostId] {
        &self.hosts
    }

    /// Returns the public key of a host, if the host has a daemon.
    pub fn public_key(&self, host: HostId) -> Option<&str> {
        self.keys.get(&host).map(|pair| pair.public.as_str())
    }

    /// Starts the daemon of a host, which must not run.
    pub fn start(&mut self, host: HostId) -> Result<()> {
        let log = self.options.file(host, "log");
        let out = OpenOptions::new().create(true).append(true).open(&log);
        let out = out.with_context(|| log.display().to_string())?;
        let namespace = self.fabric.host_namespace(host)?;
        // `ip netns exec` instead of only setns: it also mounts the /sys/class/net of the host.
        let mut command = Command::new(command::program("ip")?);
        command.args(["netns", "exec", &namespace]);
        command.args(at_priority(self.options.realtime_priority));
        command.arg(&self.options.program).args(["up", "-c"]).arg(self.options.file(host, "toml"));
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        let child = command.spawn().with_context(|| format!("{command:?}"))?;
        self.daemons.insert(host, Running::new(child, LEAVE_MAX));
        Ok(())
    }

    /// Ends the daemon of a host with SIGKILL, like a crash.
    pub fn kill(&mut self, host: HostId) -> Result<()> {
        let daemon = self.daemons.remove(&host).with_context(|| format!("no daemon in {host}"))?;
        daemon.kill()
    }

    /// Waits until every daemon reaches all its peers with Express on.
    pub fn wait_until_up(&mut self) -> Result<()> {
        let deadline = Instant::now() + UP_MAX;
        for host in self.hosts.clone() {
            let mut asked = 0u32;
            loop {
                let daemon = self.daemons.get_mut(&host).context("a daemon per host")?;
                if let Some(status) = daemon.ended()? {
                    bail!("`srd up` in {host} ended ({status}){}", self.log_end(host));
                }
                let seen = self.status(host).and_then(|status| missing_peers(&status));
                let why = match seen {
                    Ok(missing) if missing.is_empty() => break,
                    Ok(missing) => format!("not up: {}", missing.join(", ")),
                    Err(error) => format!("{error:#}"),
                };
                if Instant::now() > deadline {
                    bail!(
                        "`srd up` in {host} does not see its peers after {} s: {why}{}",
                        UP_MAX.as_secs(),
                        self.log_end(host)
                    );
                }
                if asked.is_multiple_of(10) {
                    self.provoke(host)?;
                }
                asked += 1;
                thread::sleep(ASK_EVERY);
            }
        }
        Ok(())
    }

    /// Sends a datagram to each peer, because a daemon starts a handshake only if there is data to
    /// send.
    fn provoke(&self, host: HostId) -> Result<()> {
        let peers: Vec<_> = self.hosts.iter().filter(|peer| **peer != host).collect();
        self.fabric.within(host, || {
            let Ok(socket) = UdpSocket::bind("0.0.0.0:0") else { return };
            for peer in peers {
                // Without a daemon there is no route yet; the caller tries again.
                let _ = socket.send_to(b"hello", (address::overlay(*peer), DISCARD_PORT));
            }
        })
    }

    /// Returns the status of a daemon: the object of `srd status --json`.
    pub fn status(&self, host: HostId) -> Result<Value> {
        let mut command = Command::new(&self.options.program);
        command.args(["status", "--socket"]).arg(self.options.file(host, "sock")).arg("--json");
        let output = command.output().with_context(|| format!("{command:?}"))?;
        if !output.status.success() {
            bail!("`srd status`: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        serde_json::from_slice(&output.stdout).context("the answer of `srd status --json`")
    }

    /// Returns the sums of the counters of all daemons, by name.
    pub fn counters(&self) -> Result<BTreeMap<String, f64>> {
        let mut sum = BTreeMap::new();
        for host in &self.hosts {
            add_counters(&self.status(*host)?, &mut sum);
        }
        Ok(sum)
    }

    /// Stops all daemons; a daemon that does not end cleanly is an error.
    pub fn down(mut self) -> Result<()> {
        for daemon in self.daemons.values() {
            daemon.ask_to_leave();
        }
        while let Some((host, daemon)) = self.daemons.pop_first() {
            let status = daemon.leave().with_context(|| format!("`srd up` in {host}"))?;
            if !status.success() {
                bail!("`srd up` in {host} ended with {status}{}", self.log_end(host));
            }
        }
        Ok(())
    }

    fn log_end(&self, host: HostId) -> String {
        let file = self.options.file(host, "log");
        let text = fs::read_to_string(&file).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let end = &lines[lines.len().saturating_sub(LOG_LINES)..];
        format!("; the end of {}:\n{}", file.display(), end.join("\n"))
    }
}

impl OverlayOptions {
    fn file(&self, host: HostId, extension: &str) -> PathBuf {
        self.directory.join(format!("{host}.{extension}"))
    }

    /// Creates a key pair with `srd genkey` and `srd pubkey`; only the owner can read the file.
    fn key_pair(&self, host: HostId) -> Result<KeyPair> {
        let file = self.file(host, "key");
        let private = self.key_command("genkey", "")?;
        let mut out: File = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&file)
            .with_context(|| file.display().to_string())?;
        writeln!(out, "{private}").with_context(|| file.display().to_string())?;
        let public = self.key_command("pubkey", &format!("{private}\n"))?;
        Ok(KeyPair { file, public })
    }

    fn key_command(&self, name: &str, input: &str) -> Result<String> {
        let mut command = Command::new(&self.program);
        let text = command::run(command.arg(name), input)
            .with_context(|| format!("`{} {name}`", self.program.display()))?;
        Ok(text.trim().to_owned())
    }
}

/// Returns the configuration of one host; every other host is a peer.
fn config_text(
    config: &FabricConfig,
    host: HostId,
    keys: &BTreeMap<HostId, KeyPair>,
    options: &OverlayOptions,
) -> String {
    let quoted = |path: &Path| toml_string(&path.display().to_string());
    let protection = if options.encrypted { "encrypted" } else { "plain" };
    let mut text = format!(
        "[interface]\n\
         name = \"{DEVICE}\"\n\
         mode = \"overlay\"\n\
         address = [\"{}/16\"]\n\
         private_key_file = {}\n\
         listen = \"{}:{PORT}\"\n\
         protection = \"{protection}\"\n\
         link_rate = \"{}M\"\n\
         \n[control]\nsocket = {}\n",
        address::overlay(host),
        quoted(&keys[&host].file),
        address::host(host, Family::V4),
        config.host_rate_mbps_at_most(),
        quoted(&options.file(host, "sock")),
    );
    for (peer, key) in keys.iter().filter(|(peer, _)| **peer != host) {
        let _ = write!(
            text,
            "\n[[peer]]\n\
             name = \"{peer}\"\n\
             public_key = {}\n\
             endpoint = \"{}:{PORT}\"\n\
             allowed = [\"{}/32\"]\n",
            toml_string(&key.public),
            address::host(*peer, Family::V4),
            address::overlay(*peer),
        );
    }
    text
}

/// Returns `text` as a basic string of TOML, with quotes, backslashes and control characters
/// escaped.
fn toml_string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

/// Returns the peers that a daemon does not reach yet, each with its state, from the daemon's
/// status.
fn missing_peers(status: &Value) -> Result<Vec<String>> {
    let peers = status["peers"].as_array().context("`srd status` names no peers")?;
    if peers.is_empty() {
        bail!("`srd status` lists no peer");
    }
    let text = |peer: &Value, field: &str| peer[field].as_str().unwrap_or("?").to_owned();
    let ready = |peer: &&Value| peer["state"] == "up" && peer["express"] == "on";
    let missing = peers.iter().filter(|peer| !ready(peer)).map(|peer| {
        format!(
            "{} ({}, express {})",
            text(peer, "name"),
            text(peer, "state"),
            text(peer, "express")
        )
    });
    Ok(missing.collect())
}

/// Adds the numbers in `counters` of a daemon's status, and the retransmissions to its peers, to
/// `sum`.
fn add_counters(status: &Value, sum: &mut BTreeMap<String, f64>) {
    for (name, value) in status["counters"].as_object().into_iter().flatten() {
        if let Some(value) = value.as_f64() {
            *sum.entry(name.clone()).or_default() += value;
        }
    }
    for peer in status["peers"].as_array().into_iter().flatten() {
        let again = peer["retransmissions"].as_f64().unwrap_or(0.0);
        *sum.entry("retransmissions".into()).or_default() += again;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const A: HostId = HostId { leaf: 0, host: 0 };
    const B: HostId = HostId { leaf: 1, host: 2 };

    fn options() -> OverlayOptions {
        OverlayOptions {
            program: "srd".into(),
            directory: "/tmp/a \"quoted\" place".into(),
            realtime_priority: None,
            encrypted: true,
        }
    }

    fn keys() -> BTreeMap<HostId, KeyPair> {
        let pair = |host: HostId| KeyPair {
            file: options().file(host, "key"),
            public: format!("PUBLIC-{host}="),
        };
        [A, B].into_iter().map(|host| (host, pair(host))).collect()
    }

    #[test]
    fn configuration_names_itself_and_everybody_else() {
        let text = config_text(&FabricConfig::default(), A, &keys(), &options());
        assert!(text.contains("address = [\"10.99.0.1/16\"]\n"), "{text}");
        assert!(text.contains("listen = \"198.18.0.1:7471\"\n"));
        assert!(text.contains("link_rate = \"1000M\"\n"));
        assert!(text.contains("protection = \"encrypted\"\n"));
        assert!(text.contains("socket = \"/tmp/a \\\"quoted\\\" place/h0.0.sock\"\n"));
        assert_eq!(text.matches("[[peer]]").count(), 1, "not itself");
        assert!(text.contains("public_key = \"PUBLIC-h1.2=\"\n"));
        assert!(text.contains("endpoint = \"198.18.1.17:7471\"\n"));
        assert!(text.contains("allowed = [\"10.99.1.3/32\"]\n"));
    }

    #[test]
    fn text_becomes_one_toml_string() {
        assert_eq!(toml_string("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000A\"");
    }

    #[test]
    fn a_peer_is_missing_until_it_is_up_with_express_on() {
        let peer = |state, express| json!({"name": "b", "state": state, "express": express});
        let status = |peers: Vec<Value>| json!({ "peers": peers });
        assert!(missing_peers(&status(vec![peer("up", "on")])).unwrap().is_empty());
        let waiting = missing_peers(&status(vec![peer("up", "waiting for the peer")])).unwrap();
        assert_eq!(waiting, ["b (up, express waiting for the peer)"]);
        assert_eq!(missing_peers(&status(vec![peer("connecting", "on")])).unwrap().len(), 1);
        assert!(missing_peers(&status(vec![])).is_err());
        assert!(missing_peers(&json!({})).is_err());
    }

    #[test]
    fn counters_of_all_daemons_add_up() {
        let status = json!({
            "counters": {"ena_srd_tx_pkts": 5, "text": "no number"},
            "peers": [{"retransmissions": 2}, {"retransmissions": 1}],
        });
        let mut sum = BTreeMap::new();
        add_counters(&status, &mut sum);
        add_counters(&status, &mut sum);
        assert_eq!(sum["ena_srd_tx_pkts"], 10.0);
        assert_eq!(sum["retransmissions"], 6.0);
        assert!(!sum.contains_key("text"));
    }
}
