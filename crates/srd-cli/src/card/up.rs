//! `srd card up`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use srd_guest::{Ended, Metrics, Options, Service, UnderlayOptions};

use super::{CREDITS_S, SocketArg, scale};
use crate::failure::usage;
use crate::output::say;

const EXAMPLES: &str = "\
EXAMPLES
  srd card up docs/vpc/web-app.toml --internet
  ip netns exec srd-i-app curl http://10.0.1.10/     # a program of the instance `app`
  srd card status
  srd card up cloud.toml --vhost-user web=/run/srd/web.sock
  srd card up cloud.toml --take-over                 # this build instead of the one that runs
  srd card up cloud.toml --host alpha --underlay 10.77.77.1 --peer beta=10.77.77.2

Each instance of the file is a network namespace srd-i-NAME with devices ens5, ens6 and so on. It
takes root, iproute2, and for --internet nftables. Everything is given back at the end.";

/// What to run.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UpArgs {
    /// The VPC's file (docs/vpc.md); EC2's default VPC without instances if none is given.
    file: Option<PathBuf>,
    /// The name of this host in the file. Instances that name no host are here.
    #[arg(long, default_value = "here")]
    host: String,
    /// Divide all rates of instance types by N, for machines that are so much slower.
    #[arg(long, value_name = "1/N", default_value = "1/1", value_parser = scale)]
    scale: u32,
    /// How long a full stock of credits lasts at the full rate; EC2 says 5 to 60 minutes.
    #[arg(long, value_name = "SECONDS", default_value_t = CREDITS_S,
          value_parser = clap::value_parser!(u32).range(1..=3600))]
    credits: u32,
    /// Let the network of this machine stand for the internet: public addresses are routed to the
    /// instances, and what they send to others leaves with this machine's address.
    #[arg(long)]
    internet: bool,
    /// The address of this machine by which other hosts of the cloud reach it: that of an overlay
    /// of `srd up`.
    #[arg(long, value_name = "ADDRESS")]
    underlay: Option<IpAddr>,
    /// Another host of the file and its address, as in beta=10.77.77.2; may be given several times.
    #[arg(long = "peer", value_name = "NAME=ADDRESS", value_parser = peer, requires = "underlay")]
    peers: Vec<(String, IpAddr)>,
    /// The network between hosts is trusted: nothing is encrypted or authenticated.
    #[arg(long, requires = "underlay")]
    plain: bool,
    /// Make the interfaces of this instance sockets of vhost-user, for a virtual machine or a DPDK
    /// program, as in web=/run/srd/web.sock: the primary one there, each other one at that path
    /// with its device's name behind it; may be given several times.
    #[arg(long = "vhost-user", value_name = "NAME=PATH", value_parser = place)]
    vhost_user: Vec<(String, PathBuf)>,
    /// Look for packets without pause: less delay, and a processor that is always busy.
    #[arg(long)]
    busy_poll: bool,
    /// Serve figures over HTTP at this address and port, as in 127.0.0.1:9472: a page for people at
    /// /, OpenMetrics for Prometheus at /metrics.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Go on with all that the card has that listens at --socket: devices, connections, credits,
    /// counters. Connections of instances live. If it fails, that card goes on as before.
    #[arg(long)]
    take_over: bool,
    /// Others than this machine may read them.
    #[arg(long, requires = "metrics")]
    metrics_remote: bool,
    #[command(flatten)]
    socket: SocketArg,
}

/// Reads `NAME=PATH`.
fn place(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok((name.to_owned(), path.into()))
        }
        _ => Err(String::from("write NAME=PATH, as in web=/run/srd/web.sock")),
    }
}

/// Reads `NAME=ADDRESS`.
fn peer(text: &str) -> Result<(String, IpAddr), String> {
    let parts = text.split_once('=');
    let read = parts.and_then(|(name, at)| Some((name.to_owned(), at.parse().ok()?)));
    read.ok_or_else(|| String::from("write NAME=ADDRESS, as in beta=10.77.77.2"))
}

pub(super) fn run(args: &UpArgs) -> Result<u8> {
    let UpArgs { file, host, scale, credits, internet, underlay, .. } = args.clone();
    let UpArgs { peers, plain, vhost_user, busy_poll, socket, .. } = args.clone();
    if let Some(at) = args.metrics
        && !at.ip().is_loopback()
        && !args.metrics_remote
    {
        return usage(format!(
            "--metrics {at}: others than this machine may ask there; write 127.0.0.1:{}, or add \
             --metrics-remote if they shall",
            at.port()
        ));
    }
    let metrics = args.metrics.map(|listen| Metrics { listen, allow_remote: args.metrics_remote });
    let vhost_user = vhost_user.into_iter().collect();
    let hosts = peers.into_iter().collect();
    let underlay = underlay.map(|address| UnderlayOptions { address, hosts, plain });
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).context("signals")?;
    let socket = socket.socket;
    let options = Options {
        file,
        host,
        scale,
        credits_s: credits,
        internet,
        underlay,
        socket,
        vhost_user,
        busy_poll,
        metrics,
    };
    let mut service =
        if args.take_over { Service::take_over(options)? } else { Service::open(options)? };
    let stopper = service.stopper();
    let wait = move || {
        if signals.forever().next().is_some() {
            stopper.stop();
        }
    };
    std::thread::Builder::new().name("srd-signals".into()).spawn(wait).context("a thread")?;
    for line in service.summary() {
        say(line)?;
    }
    if service.run()? == Ended::HandedOver {
        say("another process has taken the card over")?;
    }
    Ok(0)
}
