//! `peer-bench`: measures QUIC libraries in the same way as `srd perf` measures SRD, and prints a
//! table of all results.
//!
//! | module | contents |
//! |---|---|
//! | [`session`] | one measurement over a stream of any library: bulk data, or round trips |
//! | [`s2n`], [`quinn_peer`] | the streams of the two libraries |
//! | [`table`] | medians and ratios of a directory of results |
//!
//! The two libraries run under equal conditions: TLS 1.3 with a certificate that the server creates
//! at its start, one thread, one stream, equal flow-control windows and socket buffers, and the
//! largest packets that the library can use. Everything else has the library's defaults.

mod quinn_peer;
mod s2n;
mod session;
mod table;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Flow-control window of a stream and of a connection, in bytes. It is far above the
/// bandwidth-delay product of the measured links, so that flow control does not limit the
/// measurement.
pub(crate) const WINDOW_BYTES: u32 = 32 << 20;
/// Requested size of the socket buffers, in bytes. The kernel limits the sizes to
/// `net.core.rmem_max` and `net.core.wmem_max`.
pub(crate) const SOCKET_BUFFER_BYTES: usize = 8 << 20;
/// Server name in the certificate.
pub(crate) const SERVER_NAME: &str = "localhost";

/// Measures QUIC libraries for a comparison with SRD. `bench/run.sh` runs all measurements.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// s2n-quic, with its default TLS.
    #[command(name = "s2n-quic", subcommand)]
    S2n(End),
    /// quinn, with rustls and ring.
    #[command(subcommand)]
    Quinn(End),
    /// Prints medians and ratios of a directory of results.
    Table {
        /// Directory with files named KIND-WHO-ROUND.json, each with the JSON result of one
        /// measurement.
        directory: PathBuf,
    },
}

#[derive(Subcommand)]
enum End {
    /// Serves one measurement after another.
    Server(ServerArgs),
    /// Measures, and prints the result as JSON.
    Client(ClientArgs),
}

/// Arguments of the server and of the client.
#[derive(Args, Clone)]
pub(crate) struct Common {
    /// The server's address.
    pub(crate) address: SocketAddr,
    /// Largest IP packet that the link takes.
    #[arg(long, default_value_t = 1500)]
    pub(crate) mtu: u16,
    /// The server writes its certificate here, the client trusts it.
    #[arg(long, default_value = "peer-bench.pem")]
    pub(crate) cert: PathBuf,
}

#[derive(Args)]
struct ServerArgs {
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct ClientArgs {
    #[command(flatten)]
    common: Common,
    /// Quantity to measure.
    #[arg(long, value_enum, default_value_t = Mode::Bulk)]
    mode: Mode,
    /// Duration in seconds.
    #[arg(long, default_value_t = 3.0)]
    time: f64,
}

/// Direction of the data.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// As much as possible on one stream, from client to server.
    Bulk,
    /// 64 bytes there and back, one at a time.
    Rr,
}

/// A self-signed certificate for [`SERVER_NAME`] and its private key, both as PEM.
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Identity {
    /// Creates a certificate with its key, and writes the certificate to the file that clients
    /// read.
    fn draw(common: &Common) -> Result<Self> {
        let drawn = rcgen::generate_simple_self_signed([SERVER_NAME.to_string()])?;
        let certificate = drawn.cert.pem();
        std::fs::write(&common.cert, &certificate)
            .with_context(|| format!("cannot write {}", common.cert.display()))?;
        Ok(Self { certificate, key: drawn.key_pair.serialize_pem() })
    }
}

fn trusted(common: &Common) -> Result<String> {
    std::fs::read_to_string(&common.cert)
        .with_context(|| format!("cannot read {}: start the server first", common.cert.display()))
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::S2n(End::Server(args)) => {
            let identity = Identity::draw(&args.common)?;
            run(s2n::server(&args.common, &identity))
        }
        Command::S2n(End::Client(args)) => {
            let certificate = trusted(&args.common)?;
            let time = Duration::from_secs_f64(args.time);
            print(&run(s2n::client(&args.common, &certificate, args.mode, time))?)
        }
        Command::Quinn(End::Server(args)) => {
            let identity = Identity::draw(&args.common)?;
            run(quinn_peer::server(&args.common, &identity))
        }
        Command::Quinn(End::Client(args)) => {
            let certificate = trusted(&args.common)?;
            let time = Duration::from_secs_f64(args.time);
            print(&run(quinn_peer::client(&args.common, &certificate, args.mode, time))?)
        }
        Command::Table { directory } => {
            print!("{}", table::render(&table::read(&directory)?));
            Ok(())
        }
    }
}

/// Runs a future to its end on one thread, because an endpoint of SRD also uses one thread.
fn run<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future)
}

fn print(report: &session::Report) -> Result<()> {
    println!("{}", serde_json::to_string(report)?);
    Ok(())
}
