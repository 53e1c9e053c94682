//! `srd perf server`: serves one measurement after the other.

use super::control::{self, Message};
use super::keys::{self, Key};
use super::params::{Params, Protection, ServerResult, Transport};
use super::received::Received;
use super::running::{IDLE_MAX, Running};
use super::{ServerArgs, srd, tcp, udp, usual_workers};
use crate::output::{say, tell};
use crate::units;
use anyhow::{Context, Result, bail};
use srd_net::{LocalEndpoint, clock};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum time until the first message of a new client is complete.
const HELLO_MAX: Duration = Duration::from_secs(5);
/// Time that a measurement may take in addition to the duration that the client announced.
const GRACE: Duration = Duration::from_secs(60);
/// Maximum number of attempts to find a port that is free for TCP and for UDP.
const PORT_ATTEMPTS_MAX: usize = 64;

/// Keys of the server.
struct Secrets {
    private: Key,
    job: Option<Key>,
}

/// State of the server that does not depend on the client.
struct Server {
    listener: TcpListener,
    secrets: Secrets,
    /// Whether only encrypted SRD may be measured, because keys were given.
    protected_only: bool,
    workers: u8,
}

/// The UDP port with the same number as the listener's TCP port. If the system chose the number,
/// the port stays bound between measurements, so that no other program takes it.
struct UdpPort {
    at: SocketAddr,
    is_chosen: bool,
    held: Option<UdpSocket>,
}

impl UdpPort {
    /// Closes the socket that reserves the port, so that a measurement can use the port.
    fn release(&mut self) {
        self.held = None;
    }

    /// Reserves the port until the next measurement, if possible.
    fn hold(&mut self) {
        if self.is_chosen && self.held.is_none() {
            self.held = UdpSocket::bind(self.at).ok();
        }
    }
}

/// Opens the listening socket. Port 0 selects a port that is free for TCP and for UDP.
fn listen(at: SocketAddr) -> Result<(TcpListener, UdpPort)> {
    let is_chosen = at.port() == 0;
    for _ in 0..PORT_ATTEMPTS_MAX {
        let listener = TcpListener::bind(at).with_context(|| {
            format!("cannot listen on {at}; another --port or --bind may be free")
        })?;
        let at = listener.local_addr()?;
        let held = match is_chosen.then(|| UdpSocket::bind(at)).transpose() {
            Ok(held) => held,
            Err(error) if error.kind() == ErrorKind::AddrInUse => continue,
            Err(error) => return Err(error).with_context(|| format!("UDP at {at}")),
        };
        return Ok((listener, UdpPort { at, is_chosen, held }));
    }
    bail!("no port of {} is free for both TCP and UDP; give one by --port", at.ip())
}

/// Serves clients until the process is stopped.
pub(super) fn run(args: &ServerArgs) -> Result<()> {
    let private = keys::private_key(args.key_file.as_deref())?;
    let secrets = Secrets { private, job: keys::job_key(&args.keys)? };
    let (listener, mut udp_port) = listen(SocketAddr::new(args.bind, args.port))?;
    let has_keys = args.key_file.is_some() || secrets.job.is_some();
    let protected_only = has_keys && !args.allow_plain;
    let workers = args.workers.unwrap_or_else(usual_workers);
    say(format_args!("srd perf server on {}", listener.local_addr()?))?;
    say(format_args!("public key {}", keys::public(&secrets.private)))?;
    let server = Server { listener, secrets, protected_only, workers };
    loop {
        let (mut control, from) = server.listener.accept().context("accept")?;
        let served = server.serve(&mut control, from.ip().to_canonical(), &mut udp_port);
        udp_port.hold();
        match served {
            Ok((params, received)) => {
                say(format_args!("{from}: {}", describe(&params, &received)))?;
            }
            Err(error) => {
                tell!("srd: {from}: {error:#}");
                let reason = format!("{error:#}");
                let _ = control::send(&mut control, &Message::Refused { reason });
            }
        }
        if args.one_off {
            return Ok(());
        }
    }
}

fn describe(params: &Params, received: &Received) -> String {
    let seconds = received.seconds();
    let rate = units::rate(received.bytes() as f64 * 8.0 / seconds.max(1e-9));
    format!(
        "{} {}, {}: {} in {seconds:.2} s, {rate}",
        params.transport.name(),
        params.mode.name(),
        params.streams_text(),
        units::bytes(received.bytes())
    )
}

/// The server's end of the data connection, by transport.
enum Data {
    Srd(Vec<LocalEndpoint>),
    Tcp { token: u64 },
    Udp(UdpSocket),
}

impl Server {
    fn serve(
        &self,
        control: &mut TcpStream,
        client: IpAddr,
        udp_port: &mut UdpPort,
    ) -> Result<(Params, Received)> {
        control.set_nodelay(true)?;
        let params = self.requested(control)?;
        let most = Duration::from_millis(params.time_ms) + GRACE;
        let deadline = Instant::now().checked_add(most).context("a time that a clock has")?;
        let token = u64::from_le_bytes(*keys::draw()?.first_chunk().unwrap_or(&[0; 8]));
        udp_port.release();
        // A client that connects over IPv4 to a server at `::` also sends its data over IPv4.
        let local = control.local_addr()?;
        let local = SocketAddr::new(local.ip().to_canonical(), local.port());
        let mut data = self.open(local, &params, token)?;
        control::send(control, &Message::Ready { token })?;
        let cpu_before = clock::process_cpu();
        let running = Running::default();
        let mut watched = control.try_clone().context("the control connection")?;
        let (received, finished) = thread::scope(|scope| {
            let watcher = scope.spawn(|| running.watch(&mut watched, deadline, IDLE_MAX));
            let received = match &mut data {
                Data::Srd(endpoints) => srd::serve(endpoints, client, &params, &running),
                Data::Udp(socket) => udp::serve(socket, client, &params, &running),
                Data::Tcp { token } => tcp::accept(&self.listener, *token, &params)
                    .and_then(|streams| tcp::serve(streams, &params, &running)),
            };
            if received.is_err() {
                // This ends the thread that watches the control connection. Otherwise it would wait
                // for the client's last message.
                let _ = control.shutdown(std::net::Shutdown::Read);
            }
            (received, watcher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let cpu_s = (clock::process_cpu().as_nanos() - cpu_before.as_nanos()) as f64 / 1e9;
        let received = received?;
        match finished? {
            Message::Finish => {}
            other => bail!("the client ended with {}", other.name()),
        }
        let (bytes, seconds) = (received.bytes(), received.seconds());
        let unauthentic = match &data {
            Data::Srd(endpoints) => srd::unauthentic(endpoints),
            _ => 0,
        };
        let result = ServerResult { bytes, seconds, cpu_s, workers: self.workers, unauthentic };
        control::send(control, &Message::Result(result))?;
        if bytes == 0 && unauthentic > 0 {
            bail!("nothing arrived: {unauthentic} packets came that another key had made");
        }
        Ok((params, received))
    }

    /// Receives the request of a client. Returns an error if the measurement is invalid or not
    /// permitted.
    fn requested(&self, control: &mut TcpStream) -> Result<Params> {
        let params = match control::receive_within(control, HELLO_MAX)? {
            Message::Hello { version: control::VERSION, params } => params,
            Message::Hello { version, .. } => bail!(
                "client speaks version {version} of `srd perf`, server {}: use the same `srd` on \
                 both",
                control::VERSION
            ),
            other => bail!("the client began with {}", other.name()),
        };
        params.check()?;
        if self.protected_only && !params.is_protected() {
            bail!(
                "the server has keys and measures encrypted SRD only: use --peer-key or \
                 --job-key-file, or start the server with --allow-plain"
            );
        }
        Ok(params)
    }

    fn open(&self, local: SocketAddr, params: &Params, token: u64) -> Result<Data> {
        Ok(match params.transport {
            Transport::Tcp => Data::Tcp { token },
            Transport::Udp => Data::Udp(udp::bind(local)?),
            Transport::Srd => {
                let protection = match (params.protection, self.secrets.job) {
                    (Protection::Plain, _) => srd_proto::Protection::Plain,
                    (Protection::PublicKey, _) => {
                        srd_proto::Protection::Static(self.secrets.private)
                    }
                    (Protection::JobKey, Some(key)) => srd_proto::Protection::JobKey(key),
                    (Protection::JobKey, None) => bail!(
                        "the server has no job key: start it with --job-key-file, or use --peer-key"
                    ),
                };
                Data::Srd(srd::bind(local, params, protection, self.workers)?)
            }
        })
    }
}
