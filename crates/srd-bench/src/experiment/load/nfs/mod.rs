//! The experiment `nfs`: large reads of a file on an NFS server, and small writes through TLS.
//!
//! The server is nfs-ganesha in one host of the fabric. The client is [`client`], because this
//! kernel may have no NFS client, and because it keeps many reads in flight. The connection is
//! direct, or goes through a pair of stunnels, or through `srd nfs-proxy` at both ends.
//!
//! | module | contents |
//! |---|---|
//! | [`xdr`] | calls and replies of NFS |
//! | [`client`] | one connection to the server |
//! | [`proxies`] | proxies between client and server |

mod client;
mod proxies;
mod xdr;

use crate::experiment::measure::programs::{self, Program};
use crate::experiment::measure::result::{Figure, Measured, Samples};
use crate::experiment::{Case, Experiment, Options, Stage, Variant, describe};
use anyhow::{Context, Result, bail};
use client::{Client, READ_BYTES, Writes};
use proxies::Through;
use srd_lab::config::FabricConfig;
use srd_lab::id::HostId;
use srd_lab::running::Running;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const SERVER: HostId = HostId { leaf: 1, host: 0 };
const CLIENT: HostId = HostId { leaf: 0, host: 0 };
const NFS_PORT: u16 = 2049;
/// TCP port of the TLS proxy in the client's host.
const LOCAL_PORT: u16 = 20_049;
const FILE_BYTES: u64 = 64 << 20;
const EXPORT: &str = "export";
const FILE: &str = "file";
/// Time at the start of reading that is not counted.
const SETTLE: Duration = Duration::from_secs(1);

const GANESHA: Program = Program { name: "ganesha.nfsd", package: "nfs-ganesha nfs-ganesha-vfs" };

/// The experiment `nfs`.
pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "nfs",
    summary: "How fast does a client read a file from an NFS server, and how long does a write \
              through TLS take?",
    about: "nfs-ganesha (NFS 4.0, VFS) serves a cached file of 64 MB. Reads: 1, 4 or 16 \
            connections, each with 16 reads of 256 KB in flight, the first second not counted. \
            Writes, each to stable storage: 1 KiB, 9 KiB or 1 MiB, 1 or 16 on their way. Between \
            client and server is nothing, a pair of stunnels, or `srd nfs-proxy` at both ends. \
            'no NODELAY' is that proxy with --nagle --tls-record-bytes 8192: Linux holds a small \
            segment back while another small one is unacknowledged, so two TLS records of one call \
            that are written one by one wait for each other, and one write of all does not.",
    repetitions: 3,
    variants: crate::experiment::variant::USUAL,
    programs: |_| vec![GANESHA, proxies::STUNNEL, proxies::OPENSSL],
    cases,
};

/// The client's work in a case.
#[derive(Clone, Copy, Debug)]
enum Work {
    Reads { connections: usize },
    Writes(Writes),
}

fn cases(options: &Options) -> Vec<Case> {
    let mut all = Vec::new();
    for connections in [1, 4, 16] {
        let plural = if connections == 1 { "" } else { "s" };
        let name = format!("read, {connections} connection{plural}");
        all.push((name, Work::Reads { connections }, Through::Nothing));
    }
    for through in [Through::Stunnel, Through::Proxy { connections: 1 }] {
        all.push((format!("read, {through}"), Work::Reads { connections: 1 }, through));
    }
    for connections in [5, 16] {
        let through = Through::Proxy { connections };
        let name = format!("read, {through}, {connections} connections");
        all.push((name, Work::Reads { connections: 1 }, through));
    }
    for (size, bytes) in [("1 KiB", 1 << 10), ("9 KiB", 9 << 10), ("1 MiB", 1 << 20)] {
        for depth in [1, 16] {
            for through in Through::OF_WRITES {
                let name = format!("write {size}, depth {depth}, {through}");
                all.push((name, Work::Writes(Writes { bytes, depth }), through));
            }
        }
    }
    let is_quick =
        |name: &str| name == "read, 1 connection" || name == "write 9 KiB, depth 1, proxy";
    all.retain(|(name, ..)| !options.quick || is_quick(name));
    all.into_iter().map(|(name, work, through)| case(options, &name, work, through)).collect()
}

fn case(options: &Options, name: &str, work: Work, through: Through) -> Case {
    let fabric = FabricConfig { hosts_per_leaf: 1, ..FabricConfig::default() };
    let spines = options.spines.unwrap_or(fabric.spines);
    let uplink_rate_mbps = (fabric.host_rate_mbps / u32::from(spines)).max(1);
    let fabric = FabricConfig { spines, uplink_rate_mbps, ..fabric };
    let seconds = options.seconds_or(4, 2);
    let program = options.program.clone();
    Case {
        name: name.into(),
        setting: format!("{name}, {seconds} s; {}", describe(&fabric)),
        fabric,
        hosts: vec![CLIENT, SERVER],
        only: None,
        measure: Box::new(move |stage| match work {
            Work::Reads { connections } => {
                reads(stage, connections, (through, program.as_path()), seconds)
            }
            Work::Writes(what) => writes(stage, what, (through, program.as_path()), seconds),
        }),
    }
}

fn reads(
    stage: &Stage<'_>,
    connections: usize,
    (through, program): (Through, &Path),
    seconds: u64,
) -> Result<Measured> {
    let _server = start_server(stage)?;
    let _proxies = through.start(stage, program)?;
    let server = server_for(stage, through)?;
    let connect = || -> Result<Vec<Client>> {
        (0..connections).map(|_| Client::connect(server, &[EXPORT, FILE])).collect()
    };
    let mut clients = stage.fabric.within(CLIENT, connect)??;
    let from = Instant::now() + SETTLE;
    let end = from + Duration::from_secs(seconds);
    let bytes = thread::scope(|scope| -> Result<u64> {
        let started: Vec<_> = clients
            .iter_mut()
            .map(|client| scope.spawn(move || client.read_until(FILE_BYTES, from, end)))
            .collect();
        let joined = started
            .into_iter()
            .map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.sum()
    })?;
    let config = stage.fabric.config();
    let mbps = bytes as f64 * 8.0 / 1e6 / seconds as f64;
    let uplinks = config.uplink_rate_mbps * u32::from(config.spines);
    Ok(Measured {
        figures: vec![
            Figure::new("read", "Mb/s", mbps)
                .beside(f64::from(uplinks.min(config.host_rate_mbps)), "line rate of all uplinks"),
            Figure::new("of one path", "x", mbps / config.goodput_mbps(config.uplink_rate_mbps)),
            Figure::new("reads", "", bytes as f64 / f64::from(READ_BYTES)),
        ],
        ..Measured::default()
    })
}

/// Returns the address to which the client connects: that of the server, or that of the proxy in
/// its own host.
fn server_for(stage: &Stage<'_>, through: Through) -> Result<SocketAddr> {
    Ok(match through {
        Through::Nothing => SocketAddr::new(stage.address(SERVER)?, NFS_PORT),
        _ => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), LOCAL_PORT),
    })
}

fn writes(
    stage: &Stage<'_>,
    what: Writes,
    (through, program): (Through, &Path),
    seconds: u64,
) -> Result<Measured> {
    let _server = start_server(stage)?;
    let _proxies = through.start(stage, program)?;
    let server = server_for(stage, through)?;
    let mut client = stage.fabric.within(CLIENT, || Client::connect(server, &[EXPORT, FILE]))??;
    let end = Instant::now() + Duration::from_secs(seconds);
    let took = client.write_until(what, FILE_BYTES, end)?;
    let took_ms: Vec<_> = took.iter().map(|took| took.as_secs_f64() * 1e3).collect();
    let mut sorted = took_ms.clone();
    sorted.sort_by(f64::total_cmp);
    Ok(Measured {
        figures: vec![
            Figure::new("median write", "ms", crate::experiment::measure::result::median(&sorted))
                .beside(0.0, "none"),
            Figure::new("writes", "per second", took_ms.len() as f64 / seconds as f64),
        ],
        samples: vec![Samples { name: "write latency", unit: "ms", values: took_ms }],
        ..Measured::default()
    })
}

fn start_server(stage: &Stage<'_>) -> Result<Running> {
    if stage.variant == Variant::Mptcp {
        bail!("the NFS client has no Multipath TCP");
    }
    let export = stage.directory.join(EXPORT);
    fs::create_dir_all(&export).with_context(|| export.display().to_string())?;
    let file = export.join(FILE);
    if !file.exists() {
        let data = vec![b'f'; usize::try_from(FILE_BYTES)?];
        fs::write(&file, data).with_context(|| file.display().to_string())?;
    }
    let config = stage.directory.join("ganesha.conf");
    let text = server_config(stage.directory, &export);
    fs::write(&config, text).with_context(|| config.display().to_string())?;
    let mut command = programs::command(stage, GANESHA)?;
    command.arg("-F").arg("-f").arg(&config);
    command.arg("-L").arg(stage.directory.join("ganesha.log"));
    command.arg("-p").arg(stage.directory.join("ganesha.pid"));
    let mut server = programs::start(stage, SERVER, "ganesha", &mut command)?;
    programs::wait_for_listener(stage, SERVER, NFS_PORT, &mut server, "ganesha")?;
    Ok(server)
}

fn server_config(directory: &Path, export: &Path) -> String {
    // The server supports only NFS 4, because version 3 requires a port mapper.
    format!(
        "NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = {NFS_PORT}; Enable_NLM = false; \
         Enable_RQUOTA = false; }}\n\
         NFSV4 {{ Graceless = true; Minor_Versions = 0; RecoveryRoot = \"{}\"; }}\n\
         EXPORT {{ Export_Id = 1; Path = \"{}\"; Pseudo = \"/{EXPORT}\"; Access_Type = RW; \
         Squash = None; SecType = sys; Protocols = 4; Transports = TCP; FSAL {{ Name = VFS; }} }}\n\
         LOG {{ Default_Log_Level = EVENT; }}\n",
        directory.display(),
        export.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_exports_one_directory_over_tcp() {
        let text = server_config(Path::new("/d"), Path::new("/d/export"));
        assert!(text.contains("Path = \"/d/export\"; Pseudo = \"/export\""), "{text}");
        assert!(text.contains("RecoveryRoot = \"/d\""));
    }
}
