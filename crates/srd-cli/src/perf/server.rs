//! `srd perf server`: one measurement after the other.

use super::control::{self, Message};
use super::keys::{self, Key};
use super::params::{Params, Protection, ServerResult, Transport};
use super::received::Received;
use super::{ServerArgs, srd, tcp, udp, usual_workers};
use crate::output::say;
use crate::units;
use anyhow::{Context, Result, bail};
use srd_net::{LocalEndpoint, clock};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How long a stranger may take to say what it wants.
const HELLO_MAX: Duration = Duration::from_secs(5);
/// How much longer than announced a client may take.
const GRACE: Duration = Duration::from_secs(60);

/// The server's secrets.
struct Secrets {
    private: Key,
    job: Option<Key>,
}

/// What holds for every client.
struct Server {
    listener: TcpListener,
    secrets: Secrets,
    workers: u8,
}

/// Serves until it is stopped.
pub(super) fn run(args: &ServerArgs) -> Result<()> {
    let private = keys::private_key(args.key_file.as_deref())?;
    let secrets = Secrets { private, job: keys::job_key(&args.keys)? };
    let at = SocketAddr::new(args.bind, args.port);
    let listener = TcpListener::bind(at)
        .with_context(|| format!("cannot listen on {at}; another --port or --bind may be free"))?;
    let workers = args.workers.unwrap_or_else(usual_workers);
    say(format_args!("srd perf server on {}", listener.local_addr()?))?;
    say(format_args!("public key {}", keys::hex(&keys::public(&secrets.private))))?;
    let server = Server { listener, secrets, workers };
    loop {
        let (mut control, from) = server.listener.accept().context("accept")?;
        match server.serve(&mut control) {
            Ok((params, received)) => {
                say(format_args!("{from}: {}", describe(&params, &received)))?;
            }
            Err(error) => {
                eprintln!("srd: {from}: {error:#}");
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

/// The data's end of the server.
enum Data {
    Srd(Vec<LocalEndpoint>),
    Tcp { token: u64 },
    Udp(UdpSocket),
}

impl Server {
    fn serve(&self, control: &mut TcpStream) -> Result<(Params, Received)> {
        control.set_nodelay(true)?;
        control.set_read_timeout(Some(HELLO_MAX))?;
        let params = match control::receive(control)? {
            Message::Hello { version: control::VERSION, params } => params,
            Message::Hello { version, .. } => bail!(
                "client speaks version {version} of `srd perf`, server {}: use the same `srd` on \
                 both",
                control::VERSION
            ),
            other => bail!("a client that begins with {other:?}"),
        };
        control.set_read_timeout(Some(Duration::from_millis(params.time_ms) + GRACE))?;
        let token = u64::from_le_bytes(*keys::draw()?.first_chunk().unwrap_or(&[0; 8]));
        let mut data = self.open(control.local_addr()?, &params, token)?;
        control::send(control, &Message::Ready { token })?;
        let cpu_before = clock::process_cpu();
        let stop = AtomicBool::new(false);
        let mut watched = control.try_clone().context("the control connection")?;
        let (received, finished) = thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let message = control::receive(&mut watched);
                stop.store(true, Ordering::Relaxed);
                message
            });
            let received = match &mut data {
                Data::Srd(endpoints) => srd::serve(endpoints, &params, &stop),
                Data::Udp(socket) => udp::serve(socket, &params, &stop),
                Data::Tcp { token } => tcp::accept(&self.listener, *token, &params)
                    .and_then(|streams| tcp::serve(streams, &params, &stop)),
            };
            if received.is_err() {
                // The watcher must not outlive this; the client sees the end of the connection.
                let _ = control.shutdown(std::net::Shutdown::Read);
            }
            (received, watcher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let cpu_s = (clock::process_cpu().as_nanos() - cpu_before.as_nanos()) as f64 / 1e9;
        let received = received?;
        match finished.context("the client is gone")? {
            Message::Finish => {}
            other => bail!("a client that ends with {other:?}"),
        }
        let (bytes, seconds) = (received.bytes(), received.seconds());
        let result = ServerResult { bytes, seconds, cpu_s, workers: self.workers };
        control::send(control, &Message::Result(result))?;
        Ok((params, received))
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
