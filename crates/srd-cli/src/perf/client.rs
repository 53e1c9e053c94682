//! `srd perf client`: runs one measurement.

use super::control::{self, Message};
use super::intervals::Intervals;
use super::keys::{self, Key};
use super::params::{Mode, Params, Protection, SIZE_MAX, ServerResult, Transport};
use super::report::{ClientResult, ConfigEcho, Report, Rtt};
use super::{ClientArgs, Switch, srd, tcp, udp, usual_workers};
use crate::failure::usage;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use srd_net::{Link, clock};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Maximum time until the server accepts a connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Maximum time until the server is ready, and until it reports. It is longer than the time for
/// which another client can occupy the server without sending anything.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Maximum time until the server gives a reason for its failure. [`FINISH_MAX`] is the maximum time
/// until it reports on a failed run.
const BLAME_MAX: Duration = Duration::from_millis(200);
const FINISH_MAX: Duration = Duration::from_secs(2);
/// The largest payload of a UDP datagram over IPv4.
const UDP_PAYLOAD_MAX: u64 = 65_507;
/// Default bytes of a write to a TCP stream.
const TCP_WRITE_BYTES: u64 = 128 << 10;
/// Default bytes of a request, and of its answer.
const REQUEST_BYTES: u64 = 64;

/// Keys with which SRD protects its packets.
struct Secrets {
    protection: srd_proto::Protection,
    announced: Protection,
    server_key: Option<Key>,
}

/// Addresses of the two ends of the data connection.
struct Addresses {
    near: SocketAddr,
    server: SocketAddr,
}

/// The client's end of the data connection, by transport.
enum Data {
    Srd(Box<srd::Client>),
    Tcp,
    Udp,
}

/// Runs one measurement and prints it.
pub(super) fn run(args: &ClientArgs) -> Result<()> {
    let secrets = secrets(args)?;
    let mut control = connect(&args.host, args.port)?;
    control.set_nodelay(true)?;
    control.set_read_timeout(Some(ANSWER_MAX))?;
    let canonical = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
    let (near, server) = (canonical(control.local_addr()?), canonical(control.peer_addr()?));
    let mut params = params(args, secrets.announced);
    let addresses = Addresses { near, server };
    let data = open(&addresses, &mut params, secrets)?;
    let hello = Message::Hello { version: control::VERSION, params: params.clone() };
    control::send(&mut control, &hello)?;
    let token = match answer(&mut control, "get ready")? {
        Message::Ready { token } => token,
        other => bail!("{server} answered a request to measure by {}", other.name()),
    };
    args.json.say(headline(&params, near, server))?;
    let client = match measure(&addresses, token, data, args, &params) {
        Ok(client) => client,
        // If the server has failed, its reason is better than this error.
        Err(error) => return Err(blame_server(&mut control, server, &params).unwrap_or(error)),
    };
    let result = finish(&mut control)?;
    if result.bytes == 0 {
        return Err(nothing_arrived(&result, server, &params));
    }
    let config = ConfigEcho { host: args.host.clone(), params };
    let report = Report::new(config, client, result);
    args.json.say(report.summary())?;
    args.json.write(&report)
}

fn secrets(args: &ClientArgs) -> Result<Secrets> {
    let plain = Secrets {
        protection: srd_proto::Protection::Plain,
        announced: Protection::Plain,
        server_key: None,
    };
    if args.transport != Transport::Srd || args.encrypt == Switch::Off {
        return Ok(plain);
    }
    if let Some(key) = keys::job_key(&args.keys)? {
        return Ok(Secrets {
            protection: srd_proto::Protection::JobKey(key),
            announced: Protection::JobKey,
            server_key: None,
        });
    }
    let Some(text) = &args.peer_key else {
        return usage(
            "encryption is on and needs a key: --peer-key with what `srd perf server` prints, \
             or --job-key-file on both ends, or --encrypt off on a network that you trust",
        );
    };
    Ok(Secrets {
        protection: srd_proto::Protection::Static(keys::draw()?),
        announced: Protection::PublicKey,
        server_key: Some(keys::public_key(text)?),
    })
}

fn connect(host: &str, port: u16) -> Result<TcpStream> {
    let addresses = match (host, port).to_socket_addrs() {
        Ok(addresses) => addresses,
        Err(error) => return usage(format!("cannot resolve `{host}`: {error}")),
    };
    let mut last = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT_MAX) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some((address, error)),
        }
    }
    let Some((address, error)) = last else { bail!("`{host}` has no address") };
    let advice = match error.kind() {
        ErrorKind::ConnectionRefused => "nothing listens there: start `srd perf server` on it",
        ErrorKind::TimedOut | ErrorKind::WouldBlock => {
            "no answer: is the address right, and does a firewall let the port through?"
        }
        _ => "is the address right?",
    };
    Err(error).with_context(|| format!("cannot reach {address} ({advice})"))
}

fn params(args: &ClientArgs, announced: Protection) -> Params {
    Params {
        transport: args.transport,
        mode: args.mode,
        size_bytes: args.size.unwrap_or(0),
        time_ms: u64::try_from(args.time.as_millis()).unwrap_or(u64::MAX).max(1),
        streams: args.streams,
        paths: args.paths,
        protection: announced,
        busy_poll: args.busy_poll,
        link_rate_bps: args.link_rate.unwrap_or(0),
        workers: match args.mode {
            Mode::Bulk => args.workers.unwrap_or_else(usual_workers),
            Mode::RequestResponse => 1,
        },
    }
}

/// Opens the client's end. Also sets the size in `params`, if the user gave none, because its
/// default depends on the transport.
fn open(addresses: &Addresses, params: &mut Params, secrets: Secrets) -> Result<Data> {
    let (data, most) = match params.transport {
        Transport::Tcp => (Data::Tcp, SIZE_MAX),
        Transport::Udp => (Data::Udp, UDP_PAYLOAD_MAX),
        Transport::Srd => {
            let Secrets { protection, server_key, .. } = secrets;
            let client = srd::Client::open(
                addresses.near,
                addresses.server,
                params,
                protection,
                server_key,
            )?;
            let most = client.payload_bytes_max();
            (Data::Srd(Box::new(client)), most)
        }
    };
    if params.size_bytes > most {
        let (name, size) = (params.transport.name(), params.size_bytes);
        return usage(format!("--size {size}: {name} takes at most {most} bytes at a time here"));
    }
    if params.size_bytes == 0 {
        params.size_bytes = match (params.mode, params.transport) {
            (Mode::RequestResponse, _) => REQUEST_BYTES,
            (Mode::Bulk, Transport::Tcp) => TCP_WRITE_BYTES,
            (Mode::Bulk, Transport::Srd) => most,
            (Mode::Bulk, Transport::Udp) => {
                Link::towards(addresses.server).map_or(1472, |link| link.packet_bytes_max.into())
            }
        };
    }
    Ok(data)
}

fn headline(params: &Params, near: SocketAddr, server: SocketAddr) -> String {
    let what = match params.transport {
        Transport::Srd => {
            let protected = match params.protection {
                Protection::Plain => "plain: neither authenticated nor encrypted",
                Protection::PublicKey => "encrypted, by the server's public key",
                Protection::JobKey => "encrypted, by a job key",
            };
            let workers = match params.workers {
                1 => "1 worker".to_owned(),
                workers => format!("{workers} workers"),
            };
            format!("SRD over {} paths, {workers}, {protected}", params.paths)
        }
        Transport::Tcp => "kernel TCP".to_owned(),
        Transport::Udp => "raw UDP, unreliable".to_owned(),
    };
    let how = match params.mode {
        Mode::Bulk => format!("{}, {} bytes each time", params.streams_text(), params.size_bytes),
        Mode::RequestResponse => format!("requests of {} bytes", params.size_bytes),
    };
    format!("{} -> {server}: {what}; {how}", near.ip())
}

fn measure(
    addresses: &Addresses,
    token: u64,
    data: Data,
    args: &ClientArgs,
    params: &Params,
) -> Result<ClientResult> {
    let Addresses { near, server } = *addresses;
    let cpu_before = clock::process_cpu();
    let segments_before = tcp::Segments::now();
    let (mut rtt, mut again) = (None, None);
    let bytes;
    let mut intervals;
    match data {
        Data::Srd(mut client) => {
            intervals = Intervals::start(&args.json, args.interval)?;
            if params.mode == Mode::Bulk {
                bytes = client.send_bulk(params, &mut intervals)?;
            } else {
                let payload = Bytes::from(vec![1; params.size()]);
                let once = |rtt: &mut Rtt| client.exchange(&payload, rtt);
                bytes = exchange(params, &mut intervals, &mut rtt, once)?;
            }
            again = Some(client.retransmitted_share());
        }
        Data::Tcp => {
            let streams = tcp::connect(server, token, params)?;
            intervals = Intervals::start(&args.json, args.interval)?;
            if params.mode == Mode::Bulk {
                bytes = tcp::send_bulk(streams, params, &mut intervals)?;
            } else {
                let mut one = tcp::Exchange::new(streams, params)?;
                bytes = exchange(params, &mut intervals, &mut rtt, |rtt| one.once(rtt))?;
            }
            again = Some(tcp::Segments::now().again_since(segments_before));
        }
        Data::Udp => {
            intervals = Intervals::start(&args.json, args.interval)?;
            if params.mode == Mode::Bulk {
                bytes = udp::send_bulk(near, server, params, &mut intervals)?;
            } else {
                let mut one = udp::Exchange::new(near, server, params)?;
                bytes = exchange(params, &mut intervals, &mut rtt, |rtt| one.once(rtt))?;
            }
        }
    }
    let seconds = intervals.elapsed().as_secs_f64();
    let cpu_s = (clock::process_cpu().as_nanos() - cpu_before.as_nanos()) as f64 / 1e9;
    let intervals = intervals.finish(bytes)?;
    Ok(ClientResult { bytes, seconds, cpu_s, retransmitted_share: again, rtt, intervals })
}

/// Exchanges requests and answers, one after the other, for the duration of the measurement.
/// Returns the payload bytes of both directions.
fn exchange(
    params: &Params,
    intervals: &mut Intervals<'_>,
    rtt: &mut Option<Rtt>,
    mut once: impl FnMut(&mut Rtt) -> Result<()>,
) -> Result<u64> {
    let time = Duration::from_millis(params.time_ms);
    let rtt = rtt.insert(Rtt::new());
    while intervals.elapsed() < time {
        once(rtt)?;
        intervals.tick(rtt.count() * params.size_bytes * 2)?;
    }
    Ok(rtt.count() * params.size_bytes * 2)
}

fn finish(control: &mut TcpStream) -> Result<ServerResult> {
    control::send(control, &Message::Finish)?;
    match answer(control, "report")? {
        Message::Result(result) => Ok(result),
        other => bail!("the server ended with {}", other.name()),
    }
}

fn answer(control: &mut TcpStream, what: &str) -> Result<Message> {
    let message = control::receive(control).with_context(|| {
        format!("the server did not {what}; it may be busy with another measurement, or stopped")
    })?;
    match message {
        Message::Refused { reason } => bail!("the server refuses: {reason}"),
        message => Ok(message),
    }
}

/// Returns the reason for a failed run, if the server sends it at once; otherwise `None`.
fn blame_server(
    control: &mut TcpStream,
    server: SocketAddr,
    params: &Params,
) -> Option<anyhow::Error> {
    control.set_read_timeout(Some(BLAME_MAX)).ok()?;
    match control.peek(&mut [0]) {
        Ok(_) => match control::receive(control).ok()? {
            Message::Refused { reason } => Some(anyhow::anyhow!("the server gave up: {reason}")),
            _ => None,
        },
        // The server has not failed. Its result shows whether it rejected packets because of their
        // key.
        Err(_) => {
            control.set_read_timeout(Some(FINISH_MAX)).ok()?;
            let result = finish(control).ok().filter(|result| result.unauthentic > 0)?;
            Some(nothing_arrived(&result, server, params))
        }
    }
}

/// Returns the error for a run in which no data arrived, with the reason if it is known.
fn nothing_arrived(result: &ServerResult, server: SocketAddr, params: &Params) -> anyhow::Error {
    if result.unauthentic > 0 {
        let remedy = match params.protection {
            Protection::JobKey => "give both ends the same --job-key-file",
            _ => "give --peer-key what this server has printed as its public key",
        };
        return anyhow::anyhow!(
            "nothing arrived at {server}: {} packets came there that another key had made, so \
             the keys of the two ends differ; {remedy}",
            result.unauthentic
        );
    }
    anyhow::anyhow!(
        "nothing arrived at {server}: does a firewall let UDP from port {} on through? If the \
         machines are busy, a longer --time may help",
        server.port()
    )
}
