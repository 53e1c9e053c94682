//! A file on an NFS server: large reads, and small writes through TLS.
//!
//! The server is nfs-ganesha on the host's file system. The client is [`client`]: this kernel may
//! have none, and one of ours keeps many reads in flight. TLS is a pair of stunnels.
//!
//! | module | what |
//! |---|---|
//! | [`xdr`] | calls and replies |
//! | [`client`] | one connection |

mod client;
mod xdr;

use super::programs::{self, Program};
use super::result::{Figure, Measured, Samples};
use super::{Case, Experiment, Options, Stage, Variant, describe};
use anyhow::{Context, Result, bail};
use client::{Client, READ_BYTES};
use srd_lab::command;
use srd_lab::config::FabricConfig;
use srd_lab::id::HostId;
use srd_lab::running::Running;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const SERVER: HostId = HostId { leaf: 1, host: 0 };
const CLIENT: HostId = HostId { leaf: 0, host: 0 };
const NFS_PORT: u16 = 2049;
/// Where the server's TLS proxy listens.
const TLS_PORT: u16 = 20_050;
/// Where the client's TLS proxy listens.
const LOCAL_PORT: u16 = 20_049;
const FILE_BYTES: u64 = 64 << 20;
const EXPORT: &str = "export";
const FILE: &str = "file";
/// The beginning of reading, which is not counted.
const SETTLE: Duration = Duration::from_secs(1);

const GANESHA: Program = Program { name: "ganesha.nfsd", package: "nfs-ganesha nfs-ganesha-vfs" };
const STUNNEL: Program = Program { name: "stunnel4", package: "stunnel4" };
const OPENSSL: Program = Program { name: "openssl", package: "openssl" };

/// The experiment.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "nfs",
    summary: "How fast does a client read a file from an NFS server, and how long does a small \
              write through TLS take?",
    about: "nfs-ganesha (NFS 4.0, VFS) serves a cached file of 64 MB. Reads: 1 or 4 connections, \
            each with 16 reads of 256 KB in flight, the first second not counted. Writes: one \
            after another, each to stable storage, of 1 or 9 KiB, through two TLS proxies \
            (stunnel) whose sockets have TCP_NODELAY or do not. Without it Linux holds a small \
            segment back only while another small one is on its way, so a proxy that writes a \
            whole call at once, as stunnel does, is not expected to differ.",
    repetitions: 3,
    variants: super::variant::USUAL,
    programs: |_| vec![GANESHA, STUNNEL, OPENSSL],
    cases,
};

/// What the client does.
#[derive(Clone, Copy, Debug)]
enum Work {
    Reads { connections: usize },
    Writes { bytes: usize, nodelay: bool },
}

fn cases(options: &Options) -> Vec<Case> {
    let all = [
        ("read, 1 connection", Work::Reads { connections: 1 }),
        ("read, 4 connections", Work::Reads { connections: 4 }),
        ("write 9 KiB, TCP_NODELAY", Work::Writes { bytes: 9 << 10, nodelay: true }),
        ("write 9 KiB, no TCP_NODELAY", Work::Writes { bytes: 9 << 10, nodelay: false }),
        ("write 1 KiB, TCP_NODELAY", Work::Writes { bytes: 1 << 10, nodelay: true }),
        ("write 1 KiB, no TCP_NODELAY", Work::Writes { bytes: 1 << 10, nodelay: false }),
    ];
    let chosen = all.into_iter().take(options.quick_or(1, all.len()));
    chosen.map(|(name, work)| case(options, name, work)).collect()
}

fn case(options: &Options, name: &str, work: Work) -> Case {
    let fabric = FabricConfig { hosts_per_leaf: 1, ..FabricConfig::default() };
    let spines = options.spines.unwrap_or(fabric.spines);
    let uplink_rate_mbps = (fabric.host_rate_mbps / u32::from(spines)).max(1);
    let fabric = FabricConfig { spines, uplink_rate_mbps, ..fabric };
    let seconds = options.seconds_or(8, 2);
    Case {
        name: name.into(),
        setting: format!("{name}, {seconds} s; {}", describe(&fabric)),
        fabric,
        hosts: vec![CLIENT, SERVER],
        only: None,
        measure: Box::new(move |stage| match work {
            Work::Reads { connections } => reads(stage, connections, seconds),
            Work::Writes { bytes, nodelay } => writes(stage, bytes, nodelay, seconds),
        }),
    }
}

fn reads(stage: &Stage<'_>, connections: usize, seconds: u64) -> Result<Measured> {
    let _server = start_server(stage)?;
    let server = SocketAddr::new(stage.address(SERVER)?, NFS_PORT);
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

fn writes(stage: &Stage<'_>, bytes: usize, nodelay: bool, seconds: u64) -> Result<Measured> {
    let _server = start_server(stage)?;
    let _proxies = start_proxies(stage, nodelay)?;
    let local = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), LOCAL_PORT);
    let mut client = stage.fabric.within(CLIENT, || Client::connect(local, &[EXPORT, FILE]))??;
    let data = vec![b'w'; bytes];
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut took_ms = Vec::new();
    let mut offset = 0;
    while Instant::now() < end {
        took_ms.push(client.write(offset, &data)?.as_secs_f64() * 1e3);
        offset = (offset + bytes as u64) % (FILE_BYTES / 2);
    }
    let mut sorted = took_ms.clone();
    sorted.sort_by(f64::total_cmp);
    Ok(Measured {
        figures: vec![
            Figure::new("median write", "ms", super::result::median(&sorted)).beside(0.0, "none"),
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
    // NFS 4 only: version 3 insists on a port mapper.
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

/// A TLS proxy beside the client and one beside the server.
fn start_proxies(stage: &Stage<'_>, nodelay: bool) -> Result<[Running; 2]> {
    let certificate = stage.directory.join("tls.pem");
    if !certificate.exists() {
        make_certificate(&certificate)?;
    }
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let server = Proxy {
        accept: SocketAddr::new(any, TLS_PORT),
        connect: SocketAddr::new(local, NFS_PORT),
        certificate: Some(&certificate),
        nodelay,
    };
    let client = Proxy {
        accept: SocketAddr::new(local, LOCAL_PORT),
        connect: SocketAddr::new(stage.address(SERVER)?, TLS_PORT),
        certificate: None,
        nodelay,
    };
    let start = |host, name, proxy: &Proxy<'_>| -> Result<Running> {
        let config = stage.directory.join(format!("{name}.conf"));
        fs::write(&config, proxy.config()).with_context(|| config.display().to_string())?;
        let mut command = programs::command(stage, STUNNEL)?;
        command.arg(&config);
        let mut running = programs::start(stage, host, name, &mut command)?;
        programs::wait_for_listener(stage, host, proxy.accept.port(), &mut running, name)?;
        Ok(running)
    };
    Ok([start(SERVER, "stunnel-server", &server)?, start(CLIENT, "stunnel-client", &client)?])
}

/// A key and a certificate signed with it, for one run.
fn make_certificate(file: &Path) -> Result<()> {
    let mut openssl = std::process::Command::new(
        command::find_program(OPENSSL.name).context("openssl is not installed")?,
    );
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    openssl.args(["-nodes", "-days", "2", "-subj", "/CN=srd-lab", "-keyout"]).arg(file);
    openssl.arg("-out").arg("/dev/stdout");
    let certificate = command::run(&mut openssl, "").context("openssl req")?;
    let key = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    fs::write(file, key + &certificate).with_context(|| file.display().to_string())
}

struct Proxy<'a> {
    accept: SocketAddr,
    connect: SocketAddr,
    /// The server has one.
    certificate: Option<&'a Path>,
    nodelay: bool,
}

impl Proxy<'_> {
    fn config(&self) -> String {
        let nodelay = u8::from(self.nodelay);
        let role = match self.certificate {
            Some(file) => format!("cert = {}\n", file.display()),
            None => "client = yes\n".to_owned(),
        };
        format!(
            "foreground = yes\npid =\nsyslog = no\n\
             socket = l:TCP_NODELAY={nodelay}\nsocket = r:TCP_NODELAY={nodelay}\n\
             [nfs]\n{role}accept = {}\nconnect = {}\n",
            self.accept, self.connect
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_differ_by_role_and_by_what_is_measured() {
        let proxy = |certificate, nodelay| Proxy {
            accept: "127.0.0.1:20049".parse().unwrap(),
            connect: "10.99.1.1:20050".parse().unwrap(),
            certificate,
            nodelay,
        };
        let client = proxy(None, true).config();
        assert!(client.contains("client = yes\n") && !client.contains("cert"));
        assert!(client.contains("socket = r:TCP_NODELAY=1\n"));
        assert!(client.ends_with("accept = 127.0.0.1:20049\nconnect = 10.99.1.1:20050\n"));
        let server = proxy(Some(Path::new("/x/tls.pem")), false).config();
        assert!(server.contains("cert = /x/tls.pem\n") && !server.contains("client"));
        assert!(server.contains("socket = l:TCP_NODELAY=0\n"));
    }

    #[test]
    fn the_server_exports_one_directory_over_tcp() {
        let text = server_config(Path::new("/d"), Path::new("/d/export"));
        assert!(text.contains("Path = \"/d/export\"; Pseudo = \"/export\""), "{text}");
        assert!(text.contains("RecoveryRoot = \"/d\""));
    }
}
