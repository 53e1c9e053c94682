//! `srd card up`: runs a card, which hosts the instances of a virtual private cloud.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use rustix::process::set_parent_process_death_signal;
use srd_daemon::config::{Cloud, Config, Control, Metrics, Mode};
use srd_daemon::control::ClientError;
use srd_daemon::plane::PlaneHandle;
use srd_daemon::run::Ended;
use srd_guest::Client;
use srd_guest::config::{
    self, CREDITS_S_DEFAULT, HOST_DEFAULT, PROCESSORS_MAX, SocketTaken, WORKERS_MAX, scale,
};
use srd_guest::node::{self, Node, TakenOver};
use srd_net::PollMode;

use super::SocketArg;
use crate::daemon::{self, up::in_unit};
use crate::failure::usage;
use crate::output::{say, tell};

/// Names of the options that a settings file (`--config`) replaces.
const SETTINGS: [&str; 13] = [
    "file",
    "host",
    "scale",
    "credits",
    "internet",
    "internet_private",
    "vhost_user",
    "vhost_user_client",
    "poll",
    "end_programs",
    "processors",
    "workers",
    "metrics",
];

const EXAMPLES: &str = "\
EXAMPLES
  srd card up docs/vpc/web-app.toml --internet
  ip netns exec srd-i-web python3 -m http.server 443  # a program of the instance `web`
  ip netns exec srd-i-app curl http://10.0.1.10:443/  # one of `app`: groups allow this port
  srd card status
  srd card up docs/vpc/web-app.toml --vhost-user web=/run/srd-card/web.sock
  srd card up -c /etc/srd/srd0.toml --check
  srd card up -c /etc/srd/srd0.toml --take-over       # this build instead of the one that runs

Other hosts of the cloud are named in the file of --config: srd.toml(5). The package has docs/ in
/usr/share/doc/srd.

Each instance of the file is a network namespace srd-i-NAME with devices ens5, ens6 and so on. It
takes root, iproute2, and for --internet nftables. Everything is given back at the end, but for
namespaces in which programs still run.

PRIVILEGES
  srd card up   the user srd, or where there is none a user that no other process has; no
                capability: it reads packets
  srd card-helper, which it starts: root with CAP_NET_ADMIN, CAP_SYS_ADMIN, CAP_SYS_PTRACE, CAP_KILL
                and CAP_DAC_OVERRIDE: it makes namespaces, devices and routes, opens sockets of
                vhost-user and files of flow logs, and gives everything back at the end

TAKE-OVER
  The new process gets the state of the card that runs, and no settings. With --config it reads them
  from the same file. Without, its command line has to repeat those of the card that runs:
  FILE             another file takes effect at once, as by `srd card apply`; without FILE the VPC
                   has no instances, so a card that has some is not taken over
  --host, --workers, --internet, --internet-private, --vhost-user, --vhost-user-client,
  --socket         as they were; otherwise the take-over is refused (exit code 2)
  --scale, --credits, --poll, --processors, --end-programs, --metrics and its options
                   take effect; an option that is left out has its default again

SIGNALS
  SIGTERM, SIGINT  end the card
  SIGHUP           with --config: read the file and the VPC's file again, as `srd reload`; without:
                   end the card

EXIT CODES
  0  ended by a signal, taken over by another process, or --check found nothing wrong
  1  it was started and failed, or something of this machine is in the way: another card, a port
     that another program has
  2  wrong arguments or settings, or a wrong file: nothing was started
  3  it needs root, or a program is missing: the message says which";

/// Arguments of `srd card up`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UpArgs {
    /// The VPC's file (docs/vpc.md). Without it: EC2's default VPC, without instances.
    file: Option<PathBuf>,
    /// Read all settings from this file (docs/card.md), and again at SIGHUP.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = SETTINGS)]
    config: Option<PathBuf>,
    /// Only check the settings and the VPC's file, and print their meaning.
    #[arg(long, conflicts_with = "take_over")]
    check: bool,
    /// The name of this host in the file. Instances without a host are here.
    #[arg(long, default_value = HOST_DEFAULT)]
    host: String,
    /// Divide all rates of instance types by N, for machines that are slower by this factor.
    #[arg(long, value_name = "1/N", default_value = "1/1", value_parser = scale)]
    scale: u32,
    /// Time for which a full stock of credits lasts at the full rate; 5 to 60 minutes on EC2.
    #[arg(long, value_name = "SECONDS", default_value_t = CREDITS_S_DEFAULT,
          value_parser = clap::value_parser!(u32).range(1..=3600))]
    credits: u32,
    /// Use the network of this machine as the internet: public addresses are routed to the
    /// instances, and packets of instances to other addresses leave with this machine's address.
    #[arg(long)]
    internet: bool,
    /// For experiments: let the internet of --internet carry private addresses, too, so that
    /// instances reach the private networks of this machine and the machine itself.
    #[arg(long, requires = "internet")]
    internet_private: bool,
    /// Make the interfaces of this instance sockets of vhost-user, for a virtual machine or a DPDK
    /// program, as in web=/run/srd-card/web.sock: the primary interface at this path, each other
    /// interface at this path followed by its device's name; may be given several times.
    #[arg(long = "vhost-user", value_name = "NAME=PATH", value_parser = place)]
    vhost_user: Vec<(String, PathBuf)>,
    /// Like --vhost-user, but the front end listens at the path, and the card connects to it, also
    /// when the front end returns later.
    #[arg(long = "vhost-user-client", value_name = "NAME=PATH", value_parser = place)]
    vhost_user_client: Vec<(String, PathBuf)>,
    /// Mode of waiting for packets. block: sleeps. spin: polls without sleep; less delay, and a
    /// processor that is always busy. adaptive: polls for 200 us after each packet, then sleeps.
    #[arg(long, value_name = "MODE", default_value = "block")]
    poll: PollMode,
    /// Threads that give packets to instances, beside the thread that moves packets. Each queue of
    /// a device belongs to one of them. 0: the thread that moves packets gives them to instances.
    #[arg(long, value_name = "N", default_value_t = 0,
          value_parser = clap::value_parser!(u8).range(0..=i64::from(PROCESSORS_MAX)))]
    processors: u8,
    /// Threads that move packets. Each instance belongs to one of them, which reads its packets and
    /// applies rules and limits.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u8).range(1..=i64::from(WORKERS_MAX)))]
    workers: u8,
    /// End programs in the namespace of an instance when the instance ends: by SIGTERM, and after
    /// five seconds by SIGKILL. Without this option they keep the namespace, without an interface,
    /// and the next card uses it again.
    #[arg(long)]
    end_programs: bool,
    /// Serve metrics over HTTP at this address and port, as in 127.0.0.1:9472: a page for people at
    /// /, OpenMetrics for Prometheus at /metrics.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Take over everything from the card that listens at --socket: devices, connections, credits,
    /// counters. Connections of instances survive. If it fails, that card continues as before. The
    /// settings are those of this command: repeat FILE and the options (TAKE-OVER, below).
    #[arg(long)]
    take_over: bool,
    /// Allow other machines to read the metrics.
    #[arg(long, requires = "metrics")]
    metrics_remote: bool,
    /// Answer requests for metrics under this host name as well; may be given several times.
    /// Addresses and, with --metrics-remote, the machine's own name need not be given.
    #[arg(long, value_name = "NAME", requires = "metrics", value_parser = metrics_name)]
    metrics_name: Vec<String>,
    /// For `srd run`: print a line when the card is ready, and end with standard input.
    #[arg(long, hide = true)]
    for_run: bool,
    /// For `srd control`: print a line when the card is ready, and end with standard input.
    #[arg(long, hide = true, conflicts_with = "for_run")]
    end_with_input: bool,
    #[command(flatten)]
    socket: SocketArg,
}

/// Parses `NAME=PATH`, the value of an option for sockets of vhost-user.
fn place(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok((name.to_owned(), path.into()))
        }
        _ => Err(String::from("write NAME=PATH, as in web=/run/srd-card/web.sock")),
    }
}

/// Parses the name of a host.
fn metrics_name(text: &str) -> Result<String, String> {
    let name = srd_http::host_name(text);
    name.ok_or_else(|| String::from("write a whole name without a port, as in node7.rack.example"))
}

pub(super) fn run(args: &UpArgs) -> Result<u8> {
    let config = args.configuration()?;
    if args.check {
        let lines = srd_guest::check(config)?;
        if let Some(file) = args.config.as_ref().or(args.file.as_ref()) {
            say(format!("{} is fine", file.display()))?;
        }
        lines.iter().try_for_each(say)?;
        return Ok(0);
    }
    // The memory contains the key of metadata tokens and packets of all instances, so no core dump
    // may be written.
    srd_trust::memory::forbid_core_dumps().context("cannot forbid core dumps")?;
    let was_root = rustix::process::geteuid().is_root();
    let command = if args.for_run { "srd run" } else { "srd card up" };
    let started = if args.take_over { take_over(args, config) } else { start(config) };
    let started = started.map_err(|error| super::or_root(error, was_root, command))?;
    let Some(Node { daemon, instances }) = started else { return Ok(0) };
    if args.for_run {
        // If `srd run` is killed, this card is killed at once. At any other end of `srd run`, the
        // card ends in order.
        set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    }
    if args.for_run || args.end_with_input {
        end_with_input(daemon.handle())?;
        say("ready")?;
    } else {
        for line in instances.summary {
            match say(line) {
                Err(error) if args.take_over => not_said(&error),
                said => said?,
            }
        }
    }
    if args.for_run {
        return daemon.run().map(|_| 0);
    }
    for warning in instances.warnings {
        tell!("srd: warning: {warning}");
    }
    // The privileged helper process removes all devices and namespaces before this call returns.
    if let Ended::HandedOver(_) = daemon.run()? {
        say("another process has taken the card over")?;
    } else {
        tell!("srd: the card has ended");
    }
    Ok(0)
}

fn start(config: Config) -> Result<Option<Node>> {
    let made = srd_guest::prepare_socket(&config.control.socket);
    let made = made.or_else(|error| check_file(&config).and(Err(error)))?;
    let started = node::start(config);
    if started.is_err() {
        for directory in made {
            // A directory that has other files by now stays.
            let _ = std::fs::remove_dir(directory);
        }
    }
    started.map(Some)
}

/// Checks that the VPC's file exists, so that a wrong name is reported although a card runs.
fn check_file(config: &Config) -> Result<()> {
    let cloud = config.cloud.as_ref().filter(|cloud| !cloud.is_of_controller);
    let Some(file) = cloud.and_then(|cloud| cloud.vpc.as_ref()) else { return Ok(()) };
    match std::fs::metadata(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Ok(srd_vpc_file::read(file).map(drop)?)
        }
        _ => Ok(()),
    }
}

/// Takes over from the card that runs; `None` if that card is of a unit, and a process of the unit
/// has taken over.
fn take_over(args: &UpArgs, config: Config) -> Result<Option<Node>> {
    let socket = config.control.socket.clone();
    if args.config.is_none() && args.file.is_none() {
        let instances = instances_at(&socket)?;
        check_repeated(&instances.iter().map(String::as_str).collect::<Vec<_>>())?;
    }
    let taken = node::take_over(config, false).map_err(|error| match error.downcast_ref() {
        Some(ClientError::NotRunning(_)) => anyhow::anyhow!(nothing_to_take(args, &socket)),
        _ => error,
    });
    match taken? {
        TakenOver::Here(node) => {
            let silence_ms = node.daemon.silence().unwrap_or_default().as_secs_f64() * 1e3;
            let text = format!("took the card over: no packet moved for {silence_ms:.1} ms");
            say(text).unwrap_or_else(|error| not_said(&error));
            Ok(Some(*node))
        }
        TakenOver::InUnit(process) => {
            say(in_unit(process))?;
            Ok(None)
        }
    }
}

/// Returns the error of a take-over for which no card runs at the socket.
fn nothing_to_take(args: &UpArgs, socket: &Path) -> String {
    let shown = socket.display();
    if let Some(file) = &args.config
        && let Ok(Config { control, .. }) = Config::load_without_keys(file)
        && daemon::runs(&control.socket, file)
    {
        let file = file.display();
        return format!(
            "no card runs at {shown}, but a node of `srd up` runs with this file: `srd up -c \
             {file} --take-over`"
        );
    }
    format!(
        "no card runs at {shown} that could be taken over: start this one without --take-over. A \
         node of `srd up` is taken over by `srd up -c FILE --take-over`"
    )
}

/// Logs that a line could not be printed. The card goes on, because after a take-over no other
/// process does.
fn not_said(error: &anyhow::Error) {
    tracing::warn!("{error:#}");
}

/// Returns the names of the instances of the card at a socket. If no card answers, the list is
/// empty, and the take-over itself reports this.
///
/// # Errors
/// A card runs, but does not return its instances.
fn instances_at(socket: &Path) -> Result<Vec<String>> {
    let is_absent = |error: &anyhow::Error| {
        let kind = error.root_cause().downcast_ref().map(std::io::Error::kind);
        matches!(kind, Some(ErrorKind::NotFound | ErrorKind::ConnectionRefused))
    };
    match Client::connect(socket).and_then(|mut client| client.status()) {
        Ok(status) => Ok(status.instances.into_iter().map(|of| of.name).collect()),
        Err(error) if is_absent(&error) => Ok(Vec::new()),
        Err(error) => Err(error.context("the instances of the card that runs are not known")),
    }
}

/// Refuses to take over from a card with these instances by a command line without a file, which
/// would end them.
fn check_repeated(instances: &[&str]) -> Result<()> {
    if instances.is_empty() {
        return Ok(());
    }
    usage(format!(
        "the card that runs has instances ({}), which end if it is taken over without FILE: repeat \
         the arguments with which that card was started, as in `srd card up cloud.toml --internet \
         --take-over`",
        instances.join(", ")
    ))
}

/// Ends the card when its standard input ends. This happens whenever the process that started it
/// ends.
fn end_with_input(daemon: PlaneHandle) -> Result<()> {
    let wait = move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        daemon.stop_surely();
    };
    std::thread::Builder::new().name("srd-input".into()).spawn(wait).context("a thread")?;
    Ok(())
}

impl UpArgs {
    /// Whether the card runs as a daemon, and logs its events.
    pub(crate) fn is_daemon(&self) -> bool {
        !self.for_run && !self.end_with_input
    }

    /// Returns the vhost-user sockets of instances by the instance's name. An error means that an
    /// instance has two sockets, or two instances have the same socket.
    fn sockets(&self) -> Result<BTreeMap<String, PathBuf>> {
        let mut all = BTreeMap::new();
        for (name, path) in self.vhost_user.iter().chain(&self.vhost_user_client) {
            match config::add_socket(&mut all, name, path.clone()) {
                Ok(()) => {}
                Err(SocketTaken::By(other)) if other != *name => {
                    return usage(format!(
                        "`{other}` and `{name}` have the socket {}: give each instance its own",
                        path.display()
                    ));
                }
                Err(_) => {
                    return usage(format!(
                        "`{name}` has two sockets: one end listens, so name it once, with \
                         --vhost-user or with --vhost-user-client"
                    ));
                }
            }
        }
        Ok(all)
    }

    fn configuration(&self) -> Result<Config> {
        if let Some(file) = &self.config {
            let mut config = Config::load(file)?;
            if config.interface.mode != Mode::Cloud {
                return usage(format!(
                    "{} has an interface beside the instances: `srd up -c` runs both",
                    file.display()
                ));
            }
            let named = config.control.is_named.then(|| config.control.socket.clone());
            let socket = self.socket.given().map(Path::to_owned).or(named);
            config.control.choose(socket.unwrap_or_else(|| srd_guest::SOCKET_DEFAULT.into()));
            return Ok(config);
        }
        if let Some(at) = self.metrics
            && !at.ip().is_loopback()
            && !self.metrics_remote
        {
            return usage(format!(
                "--metrics {at}: others than this machine may ask there; write 127.0.0.1:{}, or \
                 add --metrics-remote if they shall",
                at.port()
            ));
        }
        let vhost_user = self.sockets()?;
        let client = self.vhost_user_client.iter();
        let cloud = Cloud {
            vpc: self.file.clone(),
            is_of_controller: false,
            pods: false,
            host: self.host.clone(),
            internet: self.internet,
            internet_private: self.internet_private,
            end_programs: self.end_programs,
            processors: self.processors,
            scale: self.scale,
            credits_s: self.credits,
            vhost_user,
            vhost_user_client: client.map(|(name, _)| name.clone()).collect(),
        };
        let mut config = Config::of_instances(cloud, Control::at(self.socket.own()));
        (config.interface.poll, config.interface.workers) = (self.poll, self.workers);
        config.metrics = self.metrics.map(|listen| Metrics {
            listen,
            allow_remote: self.metrics_remote,
            host_names: self.metrics_name.clone(),
        });
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{USAGE, exit_code};

    /// The new process had the default VPC, and ended all instances.
    #[test]
    fn regression_a_take_over_without_the_file_of_the_card_is_refused() {
        check_repeated(&[]).unwrap();
        let error = check_repeated(&["app", "web"]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("(app, web)") && text.contains("repeat the arguments"), "{text}");
        assert_eq!(exit_code(&error), USAGE);
    }

    /// The error was only about the card that runs.
    #[test]
    fn regression_a_missing_file_is_reported_although_a_card_runs() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("card.sock");
        let _card = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let error = |file: &str| {
            let text = format!("[cloud]\nvpc = \"{file}\"\n");
            let config = directory.path().join("card.toml");
            let mut config = Config::parse(&text, &config).unwrap();
            config.control.choose(socket.clone());
            start(config).unwrap_err()
        };
        let missing = error("cloud.toml");
        assert_eq!(exit_code(&missing), USAGE);
        assert!(missing.to_string().contains("name a readable text file"), "{missing}");
        std::fs::write(directory.path().join("cloud.toml"), "").unwrap();
        let taken = error("cloud.toml").to_string();
        assert!(taken.contains("a card serves"), "{taken}");
    }

    /// A card that did not answer the question for its instances counted as a card without any: it
    /// was taken over, and they ended.
    #[test]
    fn regression_a_card_that_does_not_return_its_instances_is_not_taken_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("card.sock");
        assert!(instances_at(&path).unwrap().is_empty(), "there is no card");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let answers = ["", "{}\n", "{\"ok\":null}\n"];
        let card = std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                std::io::Write::write_all(&mut stream, answer.as_bytes()).unwrap();
            }
            rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).unwrap();
        });
        for answer in answers {
            let error = instances_at(&path).unwrap_err();
            assert!(format!("{error:#}").contains("the instances of the card"), "{answer}");
        }
        card.join().unwrap();
        assert!(instances_at(&path).unwrap().is_empty(), "the card has ended");
    }

    #[test]
    fn the_help_of_a_take_over_has_each_option_of_settings() {
        let (_, text) = EXAMPLES.split_once("TAKE-OVER\n").unwrap();
        let (text, _) = text.split_once("SIGNALS").unwrap();
        for option in SETTINGS.into_iter().filter(|option| *option != "file") {
            let option = format!("--{}", option.replace('_', "-"));
            assert!(text.contains(&option), "{option}");
        }
    }
}
