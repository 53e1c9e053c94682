//! `srd compare`: runs a command of the user with and without SRD, in turns.

use crate::daemon::Target;
use crate::failure::{Missing, usage};
use crate::lab::require_fabric;
use crate::output::{self, Attempts, JsonOutput, tell};
use anyhow::{Context, Result};
use clap::{ArgAction, Args};
use srd_bench::compare::command::{CommandLine, SERVER};
use srd_bench::compare::figure::Source;
use srd_bench::compare::lab::{Beside, Lab};
use srd_bench::compare::page::{self, RunEnvironment};
use srd_bench::compare::{Settings, hosts, lab, verdict};
use srd_bench::experiment::{CACHE, Options, Outcome, Variant, show};
use srd_daemon::control::{Request, Stats};
use srd_daemon::snapshot::{PeerSnapshot, Snapshot};
use srd_lab::{FabricConfig, HostId, priority};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Maximum time to wait for the end of another measurement on this machine.
const TURN_MAX: Duration = Duration::from_secs(60);

const NOTES: &str = "\
EXAMPLES
  In a fabric of network namespaces on this machine, as root:
  srd compare --serve 'iperf3 -s' --port 5201 \\
      --figure 'goodput, b/s=/end/sum_received/bits_per_second' -- iperf3 -J -t 5 -c {server}
  srd compare --serve 'redis-server --save \"\" --protected-mode no' --port 6379 \\
      --beside incast --figure 'p99, ms=([0-9.]+) <= 99' -- redis-benchmark -h {server} -t get
  srd compare --variants plain,bbr,express --beside collisions \\
      --serve 'cd /srv/files && python3 -m http.server 80' --port 80 -- \\
      curl -sfo /dev/null http://{server}/big

  Between this machine and a peer of `srd up`, whose server listens at both addresses:
  srd compare --peer b -- iperf3 -c {server}
  srd compare --address plain=192.0.2.7 --address express=10.64.0.2 -- ./my-job {server}

{server} in the command becomes the server's address for the transport at hand; the command finds
it in its environment, too, as SRD_SERVER. The command's time is a figure always.

VARIANTS
  plain, express, bbr, mptcp, rto50, rto5, as in `srd lab run`; between real machines plain and
  express, since nothing is changed there

EXIT CODES
  0  every run worked
  1  a run failed, or did not use the transport that it stands for
  2  bad usage: nothing was started
  3  a privilege or a program is missing";

/// Arguments of `srd compare`.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct CompareArgs {
    /// Variants to compare, in this order; the other variants are compared with the first variant.
    #[arg(long, value_delimiter = ',', value_name = "VARIANTS", default_value = "plain,express")]
    variants: Vec<Variant>,
    /// Number of runs of each variant.
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    reps: u32,
    /// A number in the output of the command: NAME=REGEX, with the number in the first group of the
    /// last match, or NAME=/JSON/POINTER. May be given several times.
    #[arg(long = "figure", value_name = "NAME=WHERE")]
    figures: Vec<Source>,
    /// Maximum duration of a run, in seconds; a longer run counts as failed.
    #[arg(long, value_name = "S", default_value_t = 300,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    time_limit: u64,
    /// Count failed runs, and continue.
    #[arg(long)]
    keep_going: bool,

    /// A peer of the running daemon: the variant plain uses the peer's endpoint, and the variant
    /// express its address behind SRD.
    #[arg(long, value_name = "NAME", conflicts_with = "addresses", help_heading = "Real machines")]
    peer: Option<String>,
    /// Address of the server for a variant; may be given once for each variant.
    #[arg(long = "address", value_name = "VARIANT=ADDRESS", value_parser = parse_address,
          help_heading = "Real machines")]
    addresses: Vec<(Variant, IpAddr)>,
    #[command(flatten)]
    target: Target,

    /// Command line of the server, for a shell in the server's host. The server is ended after each
    /// run.
    #[arg(long, value_name = "LINE", help_heading = "Lab")]
    serve: Option<String>,
    /// TCP port at which the server listens when it is ready [default: wait half a second].
    #[arg(long, value_name = "N", requires = "serve", help_heading = "Lab")]
    port: Option<u16>,
    /// Long TCP flows of other hosts during each run: nothing, collisions (on the uplinks), incast
    /// (to the server).
    #[arg(long, value_name = "LOAD", default_value = "nothing", help_heading = "Lab")]
    beside: Beside,
    /// Host that runs the command.
    #[arg(long, value_name = "HOST", default_value = "h0.0", help_heading = "Lab")]
    client: HostId,
    /// Host that runs the server.
    #[arg(long, value_name = "HOST", default_value = "h1.0", help_heading = "Lab")]
    server: HostId,
    /// Spines of the fabric.
    #[arg(long, value_name = "N", default_value_t = FabricConfig::default().spines,
          help_heading = "Lab")]
    spines: u16,
    /// Rate of each host's link, in Mb/s.
    #[arg(long, value_name = "MBPS", default_value_t = FabricConfig::default().host_rate_mbps,
          help_heading = "Lab")]
    host_rate: u32,
    /// Rate of each leaf-spine link, in Mb/s.
    #[arg(long, value_name = "MBPS", default_value_t = FabricConfig::default().uplink_rate_mbps,
          help_heading = "Lab")]
    uplink_rate: u32,
    /// MTU of every link.
    #[arg(long, value_name = "BYTES", default_value_t = FabricConfig::default().mtu,
          help_heading = "Lab")]
    mtu: u32,
    /// Seed of path hashes: the same for all variants of a repetition.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Lab")]
    seed: u32,
    /// Name of the fabric.
    #[arg(long, default_value = "compare", help_heading = "Lab")]
    name: String,
    /// Run `srd up` without encryption.
    #[arg(long, help_heading = "Lab")]
    no_encryption: bool,
    /// Run with a higher priority than the machine's other load, as measurements should.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set,
          num_args = 0..=1, default_missing_value = "true", help_heading = "Lab")]
    high_priority: bool,

    /// Write a page, the answer first, then charts and tables, to one file that needs no other.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    json: JsonOutput,
    /// The command.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    command: Vec<OsString>,
}

fn parse_address(text: &str) -> Result<(Variant, IpAddr), String> {
    let Some((variant, address)) = text.split_once('=') else {
        return Err(format!("`{text}` has no `=`: write plain=192.0.2.7"));
    };
    let variant: Variant = variant.parse()?;
    if !matches!(variant, Variant::Plain | Variant::Express) {
        return Err(format!("between real machines there are plain and express, not {variant}"));
    }
    let address = address.parse().map_err(|_| format!("`{address}` is no IP address"))?;
    Ok((variant, address))
}

/// Runs the comparison. Returns the exit code.
pub(crate) fn run(args: &CompareArgs) -> Result<u8> {
    let settings = args.settings()?;
    args.json.check()?;
    if let Some(file) = &args.report {
        output::check_writable(file)?;
    }
    let mut say = |text: &str| tell!("compare: {text}");
    let fabric = args.fabric();
    let (outcome, place) = if args.peer.is_some() || !args.addresses.is_empty() {
        args.between_hosts(&settings, &mut say)?
    } else {
        (args.in_lab(&settings, &fabric, &mut say)?, RunEnvironment::Lab(&fabric))
    };
    args.show(&outcome, place)?;
    let mut runs = outcome.cases.iter().flat_map(|case| &case.runs);
    let failed = runs.any(|run| run.measured.is_failure());
    Ok(u8::from(failed))
}

impl CompareArgs {
    fn settings(&self) -> Result<Settings> {
        let mut variants = Vec::new();
        for variant in &self.variants {
            if *variant == Variant::Srd {
                return usage("`srd` is for programs that use libfabric: srd lab run mpi");
            }
            if !variants.contains(variant) {
                variants.push(*variant);
            }
        }
        let mut names: Vec<&str> = self.figures.iter().map(|figure| &*figure.name).collect();
        names.sort_unstable();
        if let Some([twice, _]) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return usage(format!("the figure `{twice}` is there twice"));
        }
        let words = CommandLine::new(self.command.clone())?;
        if let Some(program) = words.missing_program() {
            return Err(Missing(format!("{program}: no such program")).into());
        }
        let in_environment = words.shown().contains("SRD_SERVER");
        if !words.name_the_server() && !in_environment && self.serve.is_some() {
            tell!(
                "compare: the command does not name the server: write {SERVER} where its address \
                 belongs, unless it reads SRD_SERVER from its environment"
            );
        }
        Ok(Settings {
            words,
            figures: self.figures.clone(),
            variants,
            repetitions: self.reps,
            time_limit: Duration::from_secs(self.time_limit),
            keep_going: self.keep_going,
            stop: Arc::new(AtomicBool::new(false)),
        })
    }

    fn fabric(&self) -> FabricConfig {
        FabricConfig {
            spines: self.spines,
            host_rate_mbps: self.host_rate,
            uplink_rate_mbps: self.uplink_rate,
            mtu: self.mtu,
            ..FabricConfig::default()
        }
    }

    fn in_lab(
        &self,
        settings: &Settings,
        fabric: &FabricConfig,
        say: &mut dyn FnMut(&str),
    ) -> Result<Outcome> {
        let place = Lab {
            fabric: fabric.clone(),
            client: self.client,
            server: self.server,
            serve: self.serve.clone(),
            port: self.port,
            beside: self.beside,
        };
        let options = Options {
            variants: Some(settings.variants.clone()),
            repetitions: Some(settings.repetitions),
            seconds: None,
            spines: None,
            only_cases: Vec::new(),
            quick: false,
            seed: self.seed,
            keep: false,
            memcached: false,
            rate: None,
            threads: None,
            program: std::env::current_exe().context("the path of this program")?,
            realtime_priority: None,
            encrypted: !self.no_encryption,
            mpirun: None,
            provider: None,
            cache: CACHE.into(),
            name: self.name.clone(),
        };
        place.check()?;
        options.validate()?;
        require_fabric()?;
        let _priority = self.high_priority.then(|| priority::raise(TURN_MAX)).transpose()?;
        lab::run(settings, &place, &options, say)
    }

    fn between_hosts(
        &self,
        settings: &Settings,
        say: &mut dyn FnMut(&str),
    ) -> Result<(Outcome, RunEnvironment<'_>)> {
        if self.serve.is_some() || self.beside != Beside::Nothing {
            return usage("--serve and --beside are for the lab: start the server on its machine");
        }
        if !settings.words.name_the_server() {
            return usage(format!("write {SERVER} where the server's address belongs"));
        }
        let addresses = match &self.peer {
            Some(peer) => self.addresses_of(peer)?,
            None => self.addresses.iter().copied().collect(),
        };
        let mut settings = settings.clone();
        if let Some(missing) = settings.variants.iter().find(|v| !addresses.contains_key(v)) {
            return usage(format!("no address for `{missing}`: --address {missing}=ADDRESS"));
        }
        settings.stop = crate::signals::stop_flag_with_hangup()?;
        let counters = || -> Result<BTreeMap<String, f64>> {
            let stats = self.target.ask::<Stats>(&Request::Stats)?;
            Ok(stats.all().into_iter().map(|(name, count)| (name, count as f64)).collect())
        };
        if let Err(error) = counters() {
            if self.peer.is_some() {
                return Err(error);
            }
            say(&format!("no daemon says whether packets go over SRD: {error:#}"));
            let outcome = hosts::run(&settings, &addresses, None, say)?;
            return Ok((outcome, RunEnvironment::Addresses { is_counted: false }));
        }
        let outcome = hosts::run(&settings, &addresses, Some(&counters), say)?;
        let counted = RunEnvironment::Addresses { is_counted: true };
        Ok((outcome, self.peer.as_deref().map_or(counted, RunEnvironment::Peer)))
    }

    /// Returns the addresses of a peer for the two variants: its endpoint, and its address behind
    /// SRD.
    fn addresses_of(&self, name: &str) -> Result<BTreeMap<Variant, IpAddr>> {
        let request = Request::Status { paths: false, flows: 0 };
        let status = self.target.ask::<Snapshot>(&request)?;
        let Some(peer) = status.peers.iter().find(|peer| peer.name == name) else {
            let names: Vec<&str> = status.peers.iter().map(|peer| &*peer.name).collect();
            return usage(format!("there is no peer `{name}`: {}", names.join(", ")));
        };
        let Some((plain, express)) = both_addresses(peer) else {
            return usage(format!(
                "`{name}` has no endpoint, or no single address behind SRD: give both as --address"
            ));
        };
        Ok(BTreeMap::from([(Variant::Plain, plain), (Variant::Express, express)]))
    }

    fn show(&self, outcome: &Outcome, place: RunEnvironment<'_>) -> Result<()> {
        let mut attempts = Attempts::default();
        attempts.add(self.json.say(show::outcome(outcome)));
        for case in &outcome.cases {
            attempts.add(self.json.say(verdict::verdict(case).trim_end()));
        }
        if let Some(file) = &self.report {
            let written = fs::write(file, page::page(outcome, place))
                .with_context(|| format!("cannot write {}", file.display()));
            let said = format!("report: {}", file.display());
            attempts.add(written.and_then(|()| self.json.say(said)));
        }
        attempts.add(self.json.write(outcome));
        attempts.end()
    }
}

fn both_addresses(peer: &PeerSnapshot) -> Option<(IpAddr, IpAddr)> {
    let endpoint: SocketAddr = peer.endpoint.as_deref()?.parse().ok()?;
    let single = |prefix: &String| -> Option<IpAddr> {
        let (address, length) = prefix.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        (length == if address.is_ipv4() { "32" } else { "128" }).then_some(address)
    };
    let express = peer.allowed.iter().find_map(single)?;
    Some((endpoint.ip(), express))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_of_plain_and_express() {
        let plain = (Variant::Plain, "192.0.2.7".parse().unwrap());
        assert_eq!(parse_address("plain=192.0.2.7"), Ok(plain));
        assert!(parse_address("express=fd00::2").is_ok());
        assert!(parse_address("bbr=192.0.2.7").unwrap_err().contains("plain and express"));
        assert!(parse_address("192.0.2.7").unwrap_err().contains("plain="));
        assert!(parse_address("plain=b").unwrap_err().contains("no IP address"));
    }

    #[test]
    fn a_peer_has_two_addresses_if_one_behind_srd_is_single() {
        let peer = |endpoint: Option<&str>, allowed: &[&str]| PeerSnapshot {
            endpoint: endpoint.map(str::to_owned),
            allowed: allowed.iter().map(ToString::to_string).collect(),
            ..PeerSnapshot::default()
        };
        let both = both_addresses(&peer(Some("192.0.2.7:4789"), &["10.0.0.0/8", "10.64.0.2/32"]));
        assert_eq!(both, Some(("192.0.2.7".parse().unwrap(), "10.64.0.2".parse().unwrap())));
        let six = both_addresses(&peer(Some("[fd00::1]:4789"), &["fd01::2/128"]));
        assert!(six.is_some());
        assert_eq!(both_addresses(&peer(None, &["10.64.0.2/32"])), None);
        assert_eq!(both_addresses(&peer(Some("192.0.2.7:1"), &["10.0.0.0/8"])), None);
    }
}
