//! A running card (`srd card up`) with the instances of one experiment.
//!
//! The card has an unnamed network namespace, which ends with the card. Therefore changes in the
//! namespace (packet rules, forwarding) do not affect this machine. The card ends with this
//! process, even if this process is killed.

use crate::experiment::measure::programs::Program;
use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use srd_lab::command::program;
use srd_lab::namespace::within;
use srd_lab::running::Running;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::Context;
use super::directory::Directory;

/// Longest time in which a card creates its instances, and longest time in which it removes them.
const READY_MAX: Duration = Duration::from_secs(20);
const LEAVE_MAX: Duration = Duration::from_secs(10);

/// Name of the card's control socket in the card's directory.
const SOCKET: &str = "card.sock";

/// Program that creates namespaces.
pub(super) const UNSHARE: Program = Program { name: "unshare", package: "util-linux" };
/// Program that makes a child end together with its parent.
pub(super) const SETPRIV: Program = Program { name: "setpriv", package: "util-linux" };
/// Program that enters namespaces.
pub(super) const IP: Program = Program { name: "ip", package: "iproute2" };

/// Two instances `a` and `b` in one subnet; the network ACL of the subnet allows everything.
pub(super) struct Pair {
    /// Instance type of `a` and `b`.
    pub(super) kind: &'static str,
    /// Instance type of `a`; `None` if it is `kind`.
    pub(super) sender: Option<&'static str>,
    /// Whether the two instances are in one cluster placement group.
    pub(super) clustered: bool,
    /// Whether the network interfaces of the two instances have ENA Express.
    pub(super) express: bool,
    /// Ingress rules of the security group of the two instances, as a list in TOML without
    /// brackets.
    pub(super) ingress: &'static str,
    /// Egress rules of the security group of the two instances, as a list in TOML without brackets.
    pub(super) egress: &'static str,
}

impl Pair {
    /// Returns a pair of one instance type, in one placement group, with rules that allow
    /// everything.
    pub(super) const fn of(kind: &'static str) -> Self {
        let (ingress, egress) = (r#""all from 0.0.0.0/0""#, r#""all to 0.0.0.0/0""#);
        Self { kind, sender: None, clustered: true, express: false, ingress, egress }
    }

    /// Sets another instance type for `a`, the sender.
    pub(super) const fn from(mut self, kind: &'static str) -> Self {
        self.sender = Some(kind);
        self
    }

    /// Places the two instances outside of placement groups.
    pub(super) const fn apart(mut self) -> Self {
        self.clustered = false;
        self
    }

    pub(super) const fn with_express(mut self) -> Self {
        self.express = true;
        self
    }

    pub(super) const fn admitting(mut self, ingress: &'static str) -> Self {
        self.ingress = ingress;
        self
    }

    pub(super) const fn sending(mut self, egress: &'static str) -> Self {
        self.egress = egress;
        self
    }

    fn text(&self) -> String {
        let Self { clustered, express, ingress, egress, .. } = self;
        let placement = if *clustered { "placement = \"near\"\n" } else { "" };
        let mut text = format!(
            "[vpc.main]\ncidr = [\"10.0.0.0/16\"]\n\
             [acl.open]\ningress = [\"100 allow all from 0.0.0.0/0\"]\n\
             egress = [\"100 allow all to 0.0.0.0/0\"]\n\
             [subnet.main]\ncidr = \"10.0.1.0/24\"\nacl = \"open\"\n\
             [placement.near]\nstrategy = \"cluster\"\n\
             [group.main]\ningress = [{ingress}]\negress = [{egress}]\n"
        );
        let kinds = [self.sender.unwrap_or(self.kind), self.kind];
        for ((name, last), kind) in [("a", 10), ("b", 11)].into_iter().zip(kinds) {
            text += &format!(
                "[instance.@{name}]\ntype = \"{kind}\"\n{placement}\
                 [interface.{name}]\nsubnet = \"main\"\naddress = [\"10.0.1.{last}\"]\n\
                 groups = [\"main\"]\ninstance = \"@{name}\"\nexpress = {express}\n\
                 udp_timeout = 60\n"
            );
        }
        text
    }
}

/// Returns the IPv4 address of the instance `a` or `b` of a [`Pair`].
pub(super) fn address(name: &str) -> &'static str {
    if name == "a" { "10.0.1.10" } else { "10.0.1.11" }
}

/// A running card. It ends when dropped.
pub(super) struct Cloud {
    card: Option<Running>,
    program: PathBuf,
    directory: Directory,
    tag: String,
}

impl Cloud {
    /// Starts a card with the two instances of `pair`.
    pub(super) fn of(context: &Context<'_>, pair: &Pair) -> Result<Self> {
        Self::up(context, &pair.text())
    }

    /// Starts a card with the configuration `text`, in which `@` is the prefix of names of
    /// instances.
    pub(super) fn up(context: &Context<'_>, text: &str) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let tag = format!("n{}x{number}", std::process::id());
        let directory = Directory::new(&tag)?;
        let program_of_cards = context.options.program.clone();
        let mut cloud = Self { card: None, program: program_of_cards, directory, tag };
        let file = cloud.write("vpc.toml", text)?;
        let log = cloud.directory.file("card.log");
        let output = File::create(&log).with_context(|| log.display().to_string())?;
        let mut command = Command::new(program("setpriv")?);
        command.args(["--pdeathsig", "TERM"]).arg(program("unshare")?).arg("--net");
        command.arg(&cloud.program).args(["card", "up"]).arg(file);
        command.args(["--scale", &context.scale.to_string()]);
        command.args(["--credits", &context.credits_s.to_string()]);
        command.arg("--socket").arg(cloud.socket());
        command.stdin(Stdio::null()).stderr(output.try_clone()?).stdout(output);
        let child = command.spawn().with_context(|| cloud.program.display().to_string())?;
        let card = cloud.card.insert(Running::new(child, LEAVE_MAX));
        let (socket, deadline) = (cloud.directory.file(SOCKET), Instant::now() + READY_MAX);
        loop {
            let ended = card.ended()?;
            let is_late = Instant::now() > deadline;
            if ended.is_some() || is_late {
                bail!("the card: {}", fs::read_to_string(&log).unwrap_or_default().trim());
            }
            let mut status = Command::new(&cloud.program);
            status.args(["card", "status", "--socket"]).arg(&socket);
            if status.output().is_ok_and(|output| output.status.success()) {
                return Ok(cloud);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn socket(&self) -> PathBuf {
        self.directory.file(SOCKET)
    }

    /// Writes a file into the card's directory, with `@` replaced by the prefix of names of
    /// instances.
    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.directory.file(name);
        fs::write(&path, text.replace('@', &self.tag))
            .with_context(|| path.display().to_string())?;
        Ok(path)
    }

    /// Applies the security group rules of `pair` to the running card; returns when they are in
    /// effect.
    pub(super) fn apply(&self, pair: &Pair) -> Result<()> {
        self.apply_text(&pair.text())
    }

    /// Applies the configuration `text` to the running card; returns when it is in effect.
    pub(super) fn apply_text(&self, text: &str) -> Result<()> {
        let file = self.write("other.toml", text)?;
        self.ask(&["apply", &file.display().to_string()]).map(drop)
    }

    /// Returns the command `srd card` with the given arguments and the card's control socket.
    pub(super) fn card(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("card").args(words).arg("--socket").arg(self.socket());
        command
    }

    /// Runs `srd card` with the given arguments; returns its JSON output.
    fn ask(&self, words: &[&str]) -> Result<Value> {
        let mut command = self.card(words);
        command.args(["--json", "-"]);
        let output = command.output().with_context(|| self.program.display().to_string())?;
        if !output.status.success() {
            bail!("srd card {}: {}", words[0], String::from_utf8_lossy(&output.stderr).trim());
        }
        serde_json::from_slice(&output.stdout).context("an answer of the card")
    }

    /// Returns the value of one of the card's counters for an instance.
    pub(super) fn counter(&self, instance: &str, name: &str) -> Result<u64> {
        let stats = self.ask(&["stats", &format!("{}{instance}", self.tag)])?;
        stats[name].as_u64().with_context(|| format!("the card has no counter {name}"))
    }

    /// Changes settings of an instance's network device with `srd card set`.
    pub(super) fn set(&self, instance: &str, words: &[&str]) -> Result<()> {
        let name = format!("{}{instance}", self.tag);
        self.ask(&[&["set", &name], words].concat()).map(drop)
    }

    /// Returns the number of packets that each queue of an instance has received.
    pub(super) fn queues(&self, instance: &str) -> Result<Vec<u64>> {
        let stats = self.ask(&["stats", &format!("{}{instance}", self.tag)])?;
        let count = |queue: u32| stats[format!("queue_{queue}_rx_cnt")].as_u64();
        Ok((0..).map_while(count).collect())
    }

    /// Returns the flows of an instance, as `srd card flows` lists them.
    pub(super) fn flows(&self, instance: &str) -> Result<Vec<Value>> {
        let flows = self.ask(&["flows", &format!("{}{instance}", self.tag)])?;
        Ok(flows.as_array().cloned().unwrap_or_default())
    }

    /// Returns the names of the allowances that packets of an instance exceeded, except the limits
    /// of flows and gateways, which have no counter on EC2.
    pub(super) fn exceeded(&self, instance: &str) -> Result<Vec<String>> {
        let stats = self.ask(&["stats", &format!("{}{instance}", self.tag)])?;
        let all = stats.as_object().into_iter().flatten();
        let ec2 = all.filter(|(name, _)| {
            name.ends_with("_allowance_exceeded")
                && !name.starts_with("flow")
                && !name.starts_with("gateway")
        });
        let moved = ec2.filter(|(_, value)| value.as_u64() > Some(0));
        Ok(moved.map(|(name, _)| name.trim_end_matches("_allowance_exceeded").to_owned()).collect())
    }

    /// Returns the name of the network namespace of an instance.
    pub(super) fn namespace(&self, instance: &str) -> String {
        format!("srd-i-{}{instance}", self.tag)
    }

    /// Returns a command that runs a program in the network namespace of an instance.
    pub(super) fn command(&self, instance: &str, words: &[&str]) -> Result<Command> {
        let mut command = Command::new(program("ip")?);
        command.args(["netns", "exec", &self.namespace(instance)]).args(words);
        Ok(command)
    }

    /// Runs a program in an instance; waits for its end and returns its output.
    pub(super) fn run(&self, instance: &str, words: &[&str]) -> Result<String> {
        let output = self.command(instance, words)?.stdin(Stdio::null()).output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{}: {}: {}", words.join(" "), output.status, said.trim());
        }
        String::from_utf8(output.stdout).context("what a program printed")
    }

    /// Runs a closure in the network namespace of an instance.
    pub(super) fn within<T: Send>(
        &self,
        instance: &str,
        work: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        within(&self.namespace(instance), work)?
    }

    /// Returns the path of a file in the card's directory, for the output of a program.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.directory.file(name)
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        if let Some(card) = self.card.take()
            && let Err(error) = card.leave()
        {
            tracing::warn!(%error, "the card");
        }
    }
}
