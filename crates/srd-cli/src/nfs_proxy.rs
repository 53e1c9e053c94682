//! `srd nfs-proxy`: carries NFS through TLS and several connections. The proxy itself is in
//! `srd_nfs`.

mod keep;
mod listen;

use crate::failure::Usage;
use anyhow::{Context, Result};
use clap::Args;
use listen::Listen;
use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use srd_daemon::notify::Notify;
use srd_nfs::accept::Acceptor;
use srd_nfs::dial::{Dialer, NFS_PORT, TLS_PORT, Target, TlsFiles};
use srd_nfs::limits::{self, CONNECTIONS_MAX, DRAIN_WAIT_MAX, Limits};
use srd_nfs::link::Pacing;
use srd_nfs::metrics::Metrics;
use srd_nfs::serve::{self, Certificates};
use srd_nfs::tls::Identity;
use srd_nfs::{client, probe, reserved};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Time in which a connection has to end after its last calls were answered.
const END_WAIT: Duration = Duration::from_secs(2);
/// After SIGUSR1, the process ends once no client has been connected for this time. It is long
/// enough because a kernel that loses its connection makes a new connection within three seconds.
const LEFT_WAIT: Duration = Duration::from_secs(5);
/// Interval at which the number of clients is checked after SIGUSR1.
const LEFT_LOOK: Duration = Duration::from_millis(100);
/// Permitted values of --tls-record-bytes. The maximum is the largest record that TLS permits.
const TLS_RECORD_BYTES: std::ops::RangeInclusive<u64> = 512..=16_384;

const NOTES: &str = "\
SIGNALS
  SIGTERM, SIGINT  takes no more calls, waits up to 5 s for replies, and ends
  SIGHUP           reads certificates and keys again, for connections from then on
  SIGUSR1          ends as with SIGTERM once no client has been connected for 5 s

ENVIRONMENT
  LISTEN_FDS       a socket that systemd listens at already (sd_listen_fds(3))
  NOTIFY_SOCKET    where systemd waits to be told that connections are taken

EXAMPLES
  srd nfs-proxy --serve --to 127.0.0.1:2049 --cert nas.pem --key nas.key --client-ca ca.pem
  srd nfs-proxy --ca ca.pem --cert client.pem --key client.key --connections 4 nas.example
  mount -t nfs4 -o port=225,vers=4.1,nosuid,nodev 127.0.0.1:/export /mnt

docs/nfs.md says what holds for each version of NFS when a connection is lost.";

/// Arguments of `srd nfs-proxy`.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct NfsProxyArgs {
    /// Machine of the other half, or with --plain the NFS server: HOST or HOST:PORT [default port:
    /// 20050, with --plain 2049].
    #[arg(value_name = "SERVER", required_unless_present = "serve", conflicts_with = "serve")]
    server: Option<String>,
    /// Run the half beside the NFS server.
    #[arg(long, requires = "to")]
    serve: bool,
    /// Address to listen at [default: 127.0.0.1:225, with --serve 0.0.0.0:20050].
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// With --serve: the NFS server.
    #[arg(long, value_name = "HOST[:PORT]", requires = "serve")]
    to: Option<String>,
    /// Issuers of the server's certificate, in PEM.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["serve", "plain"])]
    ca: Option<PathBuf>,
    /// Certificate of this half of the proxy, and the certificates that lead to its issuer, in PEM.
    #[arg(long, value_name = "FILE", requires = "key", conflicts_with = "plain")]
    cert: Option<PathBuf>,
    /// Private key of the certificate of this half of the proxy, in PEM.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// With --serve: serve only clients with a certificate of these issuers, in PEM.
    #[arg(long, value_name = "FILE", requires = "serve", conflicts_with = "plain")]
    client_ca: Option<PathBuf>,
    /// With --client-ca: serve only clients whose certificate has this name. May be given several
    /// times.
    #[arg(long, value_name = "NAME", requires = "client_ca")]
    client_name: Vec<String>,
    /// With --serve, instead of --client-ca: serve every machine that can connect, without a
    /// certificate.
    #[arg(long, requires = "serve", conflicts_with_all = ["plain", "client_ca"])]
    any_client: bool,
    /// Lists of certificates that the issuers have revoked, in PEM, one list for each issuer.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["plain", "any_client"])]
    crl: Option<PathBuf>,
    /// The name in the server's certificate, if it is not SERVER.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["serve", "plain"])]
    server_name: Option<String>,
    /// Use no TLS: on this machine only, unless --trust-network is given.
    #[arg(long)]
    plain: bool,
    /// Allow NFS without TLS between machines, if the network is protected in another way, for
    /// example by an encrypted tunnel of `srd up`.
    #[arg(long)]
    trust_network: bool,
    /// Serve every user of a machine: also accept connections without TLS from ports 1024 and
    /// above, through which any user may access NFS as any other user.
    #[arg(long)]
    any_user: bool,
    /// Beside the client, allow a listening port of 1024 or above, which any user may have taken
    /// first.
    #[arg(long, conflicts_with = "serve")]
    unprivileged_port: bool,
    /// Maximum number of connections to the server for each client: one at first, more under load.
    #[arg(long, value_name = "N", default_value_t = 4, conflicts_with = "serve",
          value_parser = clap::value_parser!(u16).range(1..=CONNECTIONS_MAX as i64))]
    connections: u16,
    /// Maximum number of connections that are accepted at a time.
    #[arg(long, value_name = "N", default_value_t = 256,
          value_parser = clap::value_parser!(u16).range(1..))]
    clients: u16,
    /// With --serve: maximum number of connections of one address (IPv6: of one /64 prefix) at a
    /// time.
    #[arg(long, value_name = "N", default_value_t = 64, requires = "serve",
          value_parser = clap::value_parser!(u16).range(1..))]
    address_clients: u16,
    /// Maximum size of one call or reply, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20, conflicts_with = "serve",
          value_parser = clap::value_parser!(u32).range(4096..=1 << 30))]
    record_bytes: u32,
    /// Maximum bytes of calls without a reply for each client; beyond it, its next calls wait.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20, conflicts_with = "serve",
          value_parser = clap::value_parser!(u32).range(4096..))]
    outstanding_bytes: u32,
    /// Serve counters in OpenMetrics at http://ADDR:PORT/metrics.
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<SocketAddr>,
    /// Leave TCP_NODELAY off, to measure the cost.
    #[arg(long)]
    nagle: bool,
    /// Limit TLS records to this many bytes and write each record separately, to measure the cost
    /// [default: records of 16 KiB, and one write for all records of a call or reply].
    #[arg(long, value_name = "BYTES", conflicts_with = "plain",
          value_parser = clap::value_parser!(u64).range(TLS_RECORD_BYTES))]
    tls_record_bytes: Option<u64>,
    /// Send the server one NULL call, report whether it answered, and exit.
    #[arg(long, conflicts_with = "serve")]
    probe: bool,
    /// Instead of systemd: hold the socket, run the proxy as a child, and restart it whenever it
    /// fails. Prints `ready` when it serves.
    #[arg(long, conflicts_with = "probe")]
    keep: bool,
    /// Run as the child of --keep.
    #[arg(long, hide = true, conflicts_with_all = ["probe", "keep"])]
    kept: bool,
}

/// Runs `srd nfs-proxy`. Returns the exit code.
pub(crate) fn run(args: &NfsProxyArgs) -> Result<u8> {
    if args.keep {
        return keep::run(args);
    }
    // This call is the first one, because it changes the environment, which needs a process with
    // one thread.
    let listen = Listen::new(args)?;
    let proxy = Proxy::new(args, listen.at)?;
    if args.probe {
        probe::null_call(&proxy.dialer)?;
        crate::output::say(format!("{} answers", proxy.dialer.target))?;
        return Ok(0);
    }
    // Signals are registered before sockets are created, so that no signal is lost in between.
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM, SIGUSR1]).context("signals")?;
    let notify = Notify::from_environment().context("NOTIFY_SOCKET")?;
    let acceptor = proxy.start(args, listen.open()?)?;
    let allow_remote = args.metrics.is_some_and(|at| !at.ip().is_loopback());
    let metrics = args.metrics.map(|at| proxy.metrics.serve(at, allow_remote)).transpose()?;
    let ways = format!("{} to {}", acceptor.address()?, proxy.dialer.target);
    tracing::info!(target: "srd_nfs", "{ways}");
    proxy.warn(args);
    notify.ready(&ways);
    if args.kept {
        crate::output::say(keep::READY)?;
    }
    let mut ends_when_left = false;
    for signal in signals.forever() {
        match signal {
            SIGHUP => proxy.reload(),
            SIGUSR1 if ends_when_left => {}
            SIGUSR1 => {
                ends_when_left = true;
                end_when_left(proxy.metrics.clone())?;
            }
            _ => break,
        }
    }
    notify.stopping();
    tracing::info!(target: "srd_nfs", "ending: calls on their way are still answered");
    let left = acceptor.end(DRAIN_WAIT_MAX + END_WAIT);
    drop(metrics);
    if left > 0 {
        tracing::warn!(
            target: "srd_nfs",
            "{left} connections had calls without a reply: clients send them again"
        );
    }
    Ok(0)
}

/// Ends this process by SIGTERM once no client has been connected for [`LEFT_WAIT`].
fn end_when_left(metrics: Metrics) -> Result<()> {
    tracing::info!(target: "srd_nfs", "ending when the last client has left");
    let watch = move || {
        let mut last_seen = Instant::now();
        while last_seen.elapsed() < LEFT_WAIT {
            thread::sleep(LEFT_LOOK);
            if metrics.clients.get() > 0 {
                last_seen = Instant::now();
            }
        }
        let _ = kill_process(getpid(), Signal::TERM);
    };
    thread::Builder::new().name("srd-nfs-left".to_owned()).spawn(watch).context("a thread")?;
    Ok(())
}

struct Proxy {
    dialer: Arc<Dialer>,
    certificates: Option<Arc<Certificates>>,
    pacing: Pacing,
    limits: Limits,
    metrics: Metrics,
}

impl Proxy {
    fn new(args: &NfsProxyArgs, listen: SocketAddr) -> Result<Self> {
        let cut = args.tls_record_bytes.and_then(|bytes| usize::try_from(bytes).ok());
        let pacing = Pacing { nodelay: !args.nagle, tls_record_bytes: cut };
        let own = args.cert.clone().zip(args.key.clone());
        let own = own.map(|(certificate, key)| Identity { certificate, key });
        let to_server = !args.serve && !args.plain;
        let port = if to_server { TLS_PORT } else { NFS_PORT };
        let text = args.server.as_ref().or(args.to.as_ref()).context("no server")?;
        let target = Target::parse(text, port).map_err(|e| Usage(format!("{e:#}")))?;
        let files = |own: Option<Identity>| -> Result<TlsFiles> {
            let why = "give --ca FILE, the issuers of the server's certificate, or --plain";
            let ca = args.ca.clone().ok_or_else(|| Usage(why.into()))?;
            let (server_name, crl) = (args.server_name.clone(), args.crl.clone());
            Ok(TlsFiles { ca, crl, own, server_name })
        };
        let client_tls = to_server.then(|| files(own.clone())).transpose()?;
        let serve_tls = (args.serve && !args.plain).then(|| -> Result<serve::TlsFiles> {
            let why = "give --cert and --key, the server's certificate, or --plain";
            let own = own.clone().ok_or_else(|| Usage(why.into()))?;
            check_clients(args)?;
            Ok(serve::TlsFiles {
                own,
                client_ca: args.client_ca.clone(),
                crl: args.crl.clone(),
                client_names: args.client_name.clone(),
            })
        });
        let serve_tls = serve_tls.transpose()?;
        if !args.trust_network {
            check_plain_listen(listen, serve_tls.is_some())?;
            check_plain_target(&target, client_tls.is_some())?;
        }
        let stays_here = client_tls.is_none() && !args.trust_network;
        let certificates = serve_tls.map(|files| Certificates::read(files, pacing)).transpose()?;
        let limits = Limits {
            clients_max: usize::from(args.clients),
            address_clients_max: usize::from(args.address_clients),
            record_bytes_max: usize::try_from(args.record_bytes)?,
            outstanding_bytes_max: usize::try_from(args.outstanding_bytes)?,
            ..Limits::default()
        };
        let metrics = Metrics::default();
        let is_plain = client_tls.is_none();
        let mut dialer = Dialer::new(target, client_tls, pacing)?;
        if is_plain {
            // The target only accepts plain connections from ports below 1024: it is an NFS server,
            // or a half of the proxy with the same requirement.
            dialer = dialer.from_reserved_ports(metrics.upstreams_unprivileged.clone());
        }
        Ok(Self {
            dialer: Arc::new(if stays_here { dialer.only_here() } else { dialer }),
            certificates: certificates.map(Arc::new),
            pacing,
            limits,
            metrics,
        })
    }

    fn start(&self, args: &NfsProxyArgs, listener: TcpListener) -> Result<Acceptor> {
        // Number of file descriptors for each client. The client's half needs three (the socket, a
        // duplicate with which to end it, and one for replies), and three for each connection to
        // the server. The server's half needs five.
        let files = if args.serve { 5 } else { 3 + 3 * usize::from(args.connections) };
        if let Err(error) = limits::permit_files(self.limits.clients_max, files) {
            tracing::warn!(target: "srd_nfs", "{error}");
        }
        let dialer = Arc::clone(&self.dialer);
        let started = if args.serve {
            let (limits, pacing, any_user) = (self.limits, self.pacing, args.any_user);
            let options = serve::Options { limits, pacing, any_user };
            serve::start(listener, dialer, self.certificates.clone(), options, &self.metrics)
        } else {
            let options = client::Options {
                limits: self.limits,
                connections_max: usize::from(args.connections),
                pacing: self.pacing,
                any_user: args.any_user,
            };
            client::start(listener, dialer, &options, &self.metrics)
        };
        started.context("threads")
    }

    /// Warns about settings of this machine that weaken security.
    fn warn(&self, args: &NfsProxyArgs) {
        listen::warn_of_lowered_ports(args);
        let is_plain = args.serve || args.plain;
        if let (true, Err(error)) = (is_plain, reserved::check()) {
            tracing::warn!(
                target: "srd_nfs",
                "connections to {} come from ports that any user may have, since this process \
                 has none below 1024 ({error}): give it CAP_NET_BIND_SERVICE; until then an \
                 export needs `insecure`, and any user of this machine may speak NFS there as \
                 anybody",
                self.dialer.target
            );
        }
    }

    fn reload(&self) {
        let serving = self.certificates.as_ref().map_or(Ok(()), |all| all.reload());
        match self.dialer.reload().and(serving) {
            Ok(()) => {
                self.metrics.reloads.inc();
                tracing::info!(target: "srd_nfs", "certificates are read again");
            }
            Err(error) => {
                self.metrics.reloads_failed.inc();
                tracing::warn!(target: "srd_nfs", "the old certificates stay: {error:#}");
            }
        }
    }
}

/// Returns an error if neither --client-ca nor --any-client is given. With AUTH_SYS, a client
/// chooses its user itself. So client machines must be authenticated, unless any machine is
/// allowed.
fn check_clients(args: &NfsProxyArgs) -> Result<(), Usage> {
    if args.client_ca.is_some() || args.any_client {
        return Ok(());
    }
    Err(Usage(
        "every machine that can connect could speak NFS as any user: give --client-ca FILE, the \
         issuers of the clients' certificates, or --any-client if that is meant"
            .into(),
    ))
}

fn check_plain_listen(listen: SocketAddr, has_tls: bool) -> Result<(), Usage> {
    if has_tls || listen.ip().is_loopback() {
        return Ok(());
    }
    Err(Usage(format!(
        "{listen} would serve other machines without TLS: listen at 127.0.0.1 or [::1], or give \
         --trust-network"
    )))
}

fn check_plain_target(target: &Target, has_tls: bool) -> Result<(), Usage> {
    if has_tls {
        return Ok(());
    }
    let host = &target.host;
    let mut addresses = (host.as_str(), target.port).to_socket_addrs().map_err(|error| {
        Usage(format!("cannot resolve `{host}`: {error}; without TLS, name 127.0.0.1 or ::1"))
    })?;
    if addresses.all(|address| address.ip().is_loopback()) {
        return Ok(());
    }
    Err(Usage(format!(
        "{target} is not on this machine, and NFS would travel without TLS: give --trust-network \
         if the network is protected otherwise, or use TLS"
    )))
}
