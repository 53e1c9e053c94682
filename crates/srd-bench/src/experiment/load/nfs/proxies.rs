//! The proxies between client and server: no proxy, a pair of stunnels, or `srd nfs-proxy` at both
//! ends.

use super::{CLIENT, LOCAL_PORT, NFS_PORT, SERVER};
use crate::experiment::Stage;
use crate::experiment::measure::programs::{self, Program};
use anyhow::{Context, Result};
use srd_lab::command;
use srd_lab::running::Running;
use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

/// TCP port of the TLS proxy in the server's host.
const TLS_PORT: u16 = 20_050;
/// The server's name in the certificate.
const NAME: &str = "srd-lab";
pub(super) const STUNNEL: Program = Program { name: "stunnel4", package: "stunnel4" };
pub(super) const OPENSSL: Program = Program { name: "openssl", package: "openssl" };

/// Kinds of connections between client and server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Through {
    /// The client connects to the server directly.
    Nothing,
    /// A stunnel in each host, with TCP_NODELAY.
    Stunnel,
    /// `srd nfs-proxy` in each host.
    Proxy {
        /// Largest number of connections between the two proxies.
        connections: u16,
    },
    /// `srd nfs-proxy` in each host without TCP_NODELAY; it writes each TLS record of 8 KiB
    /// separately.
    NoNodelay,
}

impl Through {
    pub(super) const OF_WRITES: [Through; 4] =
        [Self::Nothing, Self::Stunnel, Self::Proxy { connections: 1 }, Self::NoNodelay];

    /// Starts a proxy in the server's host and one in the client's host, if this kind has proxies.
    pub(super) fn start(self, stage: &Stage<'_>, program: &Path) -> Result<Vec<Running>> {
        let certificate = stage.directory.join("tls.pem");
        if self != Self::Nothing && !certificate.exists() {
            make_certificate(stage.directory, &certificate)?;
        }
        match self {
            Self::Nothing => Ok(Vec::new()),
            Self::Stunnel => stunnels(stage, &certificate),
            Self::Proxy { connections } => halves(stage, program, &certificate, (connections, &[])),
            Self::NoNodelay => {
                let more = ["--nagle", "--tls-record-bytes", "8192"];
                halves(stage, program, &certificate, (1, &more))
            }
        }
    }
}

impl fmt::Display for Through {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "direct",
            Self::Stunnel => "stunnel",
            Self::Proxy { .. } => "proxy",
            Self::NoNodelay => "proxy, no NODELAY",
        })
    }
}

fn halves(
    stage: &Stage<'_>,
    program: &Path,
    certificate: &Path,
    (connections, more): (u16, &[&str]),
) -> Result<Vec<Running>> {
    let mut server = Command::new(program);
    server.args(["nfs-proxy", "--serve", "--to", &format!("127.0.0.1:{NFS_PORT}"), "--listen"]);
    server.arg(format!("0.0.0.0:{TLS_PORT}")).arg("--cert").arg(certificate);
    server.arg("--key").arg(certificate).arg("--any-client").args(more);
    let mut client = Command::new(program);
    // The checks for the user and the port of a client are switched off: the client is this
    // program, and the fabric has no other users.
    client.args(["nfs-proxy", "--any-user", "--unprivileged-port"]);
    client.args(["--listen", &format!("127.0.0.1:{LOCAL_PORT}"), "--ca"]);
    client.arg(certificate).args(["--server-name", NAME]).args(more);
    client.args(["--connections", &connections.to_string()]);
    client.arg(SocketAddr::new(stage.address(SERVER)?, TLS_PORT).to_string());
    let started = [
        (SERVER, "nfs-proxy-server", server, TLS_PORT),
        (CLIENT, "nfs-proxy-client", client, LOCAL_PORT),
    ];
    let started = started.into_iter().map(|(host, name, mut command, port)| {
        let mut running = programs::start(stage, host, name, &mut command)?;
        programs::wait_for_listener(stage, host, port, &mut running, name)?;
        Ok(running)
    });
    started.collect()
}

fn stunnels(stage: &Stage<'_>, certificate: &Path) -> Result<Vec<Running>> {
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let server = Proxy {
        accept: SocketAddr::new(any, TLS_PORT),
        connect: SocketAddr::new(local, NFS_PORT),
        certificate: Some(certificate),
        nodelay: true,
    };
    let client = Proxy {
        accept: SocketAddr::new(local, LOCAL_PORT),
        connect: SocketAddr::new(stage.address(SERVER)?, TLS_PORT),
        certificate: None,
        nodelay: true,
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
    Ok(vec![start(SERVER, "stunnel-server", &server)?, start(CLIENT, "stunnel-client", &client)?])
}

/// Creates a key and a self-signed certificate, and writes both into one file.
fn make_certificate(directory: &Path, file: &Path) -> Result<()> {
    let config = directory.join("openssl.conf");
    // The certificate is marked as not belonging to a certificate authority: otherwise a server
    // could not use it.
    let text = format!(
        "[req]\ndistinguished_name = name\nx509_extensions = more\nprompt = no\n\
         [name]\nCN = {NAME}\n\
         [more]\nbasicConstraints = CA:FALSE\nsubjectAltName = DNS:{NAME}\n"
    );
    fs::write(&config, text).with_context(|| config.display().to_string())?;
    let mut openssl = std::process::Command::new(
        command::find_program(OPENSSL.name).context("openssl is not installed")?,
    );
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    openssl.args(["-nodes", "-days", "2", "-keyout"]).arg(file).arg("-config").arg(&config);
    openssl.arg("-out").arg("/dev/stdout");
    let certificate = command::run(&mut openssl, "").context("openssl req")?;
    let key = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    fs::write(file, key + &certificate).with_context(|| file.display().to_string())
}

struct Proxy<'a> {
    accept: SocketAddr,
    connect: SocketAddr,
    /// The server's certificate and key; `None` for the proxy in the client's host.
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
}
