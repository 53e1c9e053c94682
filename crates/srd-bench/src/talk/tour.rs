//! A short tour of a cloud for the demonstration: an allowed port, a closed port, a change of a
//! network ACL during a transfer, and network credits that run out.

use crate::experiment::measure::programs::{self, IPERF3, Program};
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use super::cloud::{Cloud, IP, SETPRIV, UNSHARE, address};
use super::stream::{accept, listen};
use super::{CREDITS_S, Context, Options, credits, mutation};

const CURL: Program = Program { name: "curl", package: "curl" };
const NEEDS: [Program; 5] = [CURL, IPERF3, IP, SETPRIV, UNSHARE];
/// Longest wait of the server for its client, which tries for a second.
const CLIENT_MAX: Duration = Duration::from_secs(2);
/// Factor by which the card divides all rates.
const SCALE: u32 = 100;
/// Seconds for which the network credits last, and seconds that are measured after they are spent.
const SPEND_S: u32 = 5;
const AFTER_S: u32 = 6;

/// Results of the tour.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Tour {
    /// HTTP status that `curl` printed for a port that a security group allows.
    pub allowed: String,
    /// Exit code of `curl` for a port that no rule allows; 28 means a timeout.
    pub closed: i32,
    /// Duration of the command `srd card apply`, from its start to its end, in ms.
    pub acknowledged_ms: f64,
    /// Bytes to the port that the changed network ACL closes, received after the change. Bytes that
    /// waited in a socket during the change are not included.
    pub late_bytes: usize,
    /// Bytes to the port that stays open, in a time after the change, divided by the bytes in an
    /// equally long time before it.
    pub open_share: f64,
    /// Time of the change of the network ACL, in seconds since the start of the lines in `changed`.
    pub changed_s: f64,
    /// Name and points of a line for each of the two ports: seconds, and rate in Mb/s.
    pub changed: Vec<(String, Vec<(f64, f64)>)>,
    /// Rate in Mb/s with network credits, and rate after they were spent.
    pub credits_mbps: (f64, f64),
    /// Target rates in Mb/s of the instance type, with network credits and without, divided by the
    /// scale of the tour.
    pub type_mbps: (f64, f64),
    /// Seconds since the start, and rate in Mb/s as counted by the sender, for each second of the
    /// transfer that spends the network credits.
    pub spent: Vec<(f64, f64)>,
    /// Seconds until the network credits were spent.
    pub credits_s: f64,
}

/// Runs all steps of the tour, with the `srd` program at the path `program`.
///
/// # Errors
/// A program is missing, the card does not start, or a program fails.
pub fn tour(program: PathBuf) -> Result<Tour> {
    programs::require(&NEEDS)?;
    let options = Options { program, quick: true };
    let say = |_: &str| ();
    let context = Context { options: &options, scale: SCALE, credits_s: CREDITS_S, say: &say };
    let cloud = mutation::cloud(&context)?;
    let (https, closed) = (listen(&cloud, 443)?, listen(&cloud, 8080)?);
    let server = thread::spawn(move || answer_once(&https));
    let (code, allowed) = curl(&cloud, 443)?;
    let served = server.join().map_err(|_| anyhow::anyhow!("the server has panicked"))?;
    // If `curl` failed, its status shows this, and the server has no client.
    if code == 0 {
        served?;
    }
    let (code, _) = curl(&cloud, 8080)?;
    drop(closed);
    let changed = mutation::change(&cloud)?;
    drop(cloud);
    let spent = credits::spend(&context, SPEND_S, AFTER_S)?;
    Ok(Tour {
        allowed,
        closed: code,
        acknowledged_ms: changed.acknowledged_ms,
        late_bytes: changed.http.1,
        open_share: changed.https_share,
        changed_s: changed.asked_s,
        changed: changed.lines.into(),
        credits_mbps: (spent.with_mbps, spent.without_mbps),
        type_mbps: (context.mbps(12.5), context.mbps(0.781)),
        spent: spent.line,
        credits_s: spent.lasted_s as f64,
    })
}

/// Runs `curl` in instance `a`; returns its exit code and the HTTP status.
fn curl(cloud: &Cloud, port: u16) -> Result<(i32, String)> {
    let url = format!("http://{}:{port}/", address("b"));
    let words = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "1", &url];
    let output = cloud.command("a", &words)?.output().context("curl")?;
    let status = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok((output.status.code().unwrap_or(-1), status))
}

fn answer_once(listener: &TcpListener) -> Result<()> {
    let mut stream = accept(listener, CLIENT_MAX)?;
    stream.set_read_timeout(Some(CLIENT_MAX))?;
    let mut request = [0; 4096];
    let _ = stream.read(&mut request)?;
    stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n")?;
    Ok(())
}
