//! The experiment `walk`: each step of one `curl`, from the query for a name to the verdict on each
//! packet, as the talk explains them.

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{ChildStderr, Stdio};
use std::thread;
use std::time::Duration;

use super::cloud::{Cloud, IP, Pair, SETPRIV, UNSHARE, address};
use super::stream::listen;
use super::{Context, Experiment, Findings};
use crate::experiment::measure::programs::Program;
use srd_lab::running::Running;
use srd_sim::talk::figure::{Figure, Near, TALK};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "walk",
    about: "c7i.large: `curl http://App_Server/a_file`. The name, the route, the tables that judge \
            the first packet of each direction, the states of connection and cache, and the \
            packets that no table judges any more.",
    scale: 1,
    takes_s: 3,
    needs: &[CURL, IP, SETPRIV, UNSHARE],
    run,
};

const CURL: Program = Program { name: "curl", package: "curl" };
const PORT: u16 = 80;
/// Size of the HTTP answer in bytes. The answer consists of many packets, so that most of them use
/// the stored verdict of their flow.
const FILE_BYTES: usize = 256 * 1024;
/// Time until the trace contains all packets.
const SETTLED: Duration = Duration::from_millis(300);
const LEAVE: Duration = Duration::from_secs(3);
/// Destination port of the DNS query.
const DNS: u64 = 53;

fn run(context: &Context<'_>) -> Result<Findings> {
    let pair = Pair::of("c7i.large").admitting(r#""tcp 80 from 10.0.0.0/16""#);
    let cloud = Cloud::of(context, &pair)?;
    let name = format!("ip-{}.ec2.internal", address("b").replace('.', "-"));
    let judged = |instance| cloud.counter(instance, "judged_packets");
    let before = [judged("a")?, judged("b")?];
    let known = cloud.flows("a")?.len() + cloud.flows("b")?.len();

    (context.say)(&format!("curl http://{name}/a_file"));
    let trace = Trace::begin(&cloud)?;
    let listener = listen(&cloud, PORT)?;
    let server = thread::spawn(move || answer_once(&listener));
    let url = format!("http://{name}/a_file");
    let form = "%{http_code} %{remote_ip} %{local_port} %{size_download}";
    let words = ["curl", "-s", "-o", "/dev/null", "--noproxy", "*", "--max-time", "5"];
    let mut command = cloud.command("a", &words)?;
    let output = command.args(["-w", form, &url]).output().context("curl")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let said: Vec<&str> = said.split(' ').collect();
    let [status, reached, port, bytes] = said[..] else { bail!("curl: {output:?}") };
    if !output.status.success() {
        // On failure, the client may never have connected to the server; the server's thread would
        // then wait for ever, so it is not joined.
        bail!("curl http://{name}/a_file: {}, of {reached}, status {status}", output.status);
    }
    server.join().map_err(|_| anyhow::anyhow!("the server has panicked"))??;
    let packets = trace.end()?;

    let mut found = Findings::default();
    let name_found = f64::from(u8::from(reached == address("b")));
    exactly(&mut found, "the name leads to the server's interface", name_found, 1.0);
    exactly(&mut found, "status of HTTP", status.parse().unwrap_or(0.0), 200.0);
    exactly(&mut found, "  bytes of the file", bytes.parse().unwrap_or(0.0), FILE_BYTES as f64);
    exactly(&mut found, "flows known before", known as f64, 0.0);
    let of_flow: Vec<&Value> = packets.iter().filter(|packet| is_of(packet, PORT)).collect();
    let slow = |packet: &&&Value| packet["judged"]["by_rules"] == true;
    let evaluated = of_flow.iter().filter(slow).count();
    // Each card evaluates the rules once for each direction at either end, and stores the verdicts.
    exactly(&mut found, "slow evaluations, two ends and two directions", evaluated as f64, 4.0);
    let counted = (judged("a")? - before[0]) + (judged("b")? - before[1]);
    let figure = Figure::new("  as the cards count, with the name's", "", counted as f64);
    found.figures.push(figure.wanted(8.0, Near::AtMost, "four, and the question"));
    let hits = of_flow.len() - evaluated;
    let figure = Figure::new("packets by a kept verdict", "", hits as f64);
    found.figures.push(figure.wanted(4.0, Near::AtLeast, TALK));
    steps(&mut found.notes, &packets, &name, reached, port)?;
    states(&mut found.notes, &cloud)?;
    Ok(found)
}

fn exactly(found: &mut Findings, name: &str, here: f64, wanted: f64) {
    found.figures.push(Figure::new(name, "", here).wanted(wanted, Near::Exactly, TALK));
}

fn is_of(packet: &Value, port: u16) -> bool {
    let ports = [&packet["ports"][0], &packet["ports"][1]];
    packet["protocol"] == "tcp" && ports.into_iter().any(|of| of == port)
}

/// Adds notes about the steps of the talk, with what the trace shows of each.
fn steps(
    notes: &mut Vec<String>,
    packets: &[Value],
    name: &str,
    address: &str,
    port: &str,
) -> Result<()> {
    let asks = |packet: &&Value| packet["ports"][1] == DNS && packet["is_egress"] == true;
    let asked = packets.iter().find(asks).context("no question for the name was seen")?;
    notes.push(format!("1 name: {name} asked of {}, is {address}", text(&asked["destination"])));
    notes.push(format!("2 socket: the kernel of `a` picks port {port} and the device ens5"));
    let mut number = 3;
    let mut seen: Vec<(bool, &str, bool)> = Vec::new();
    for packet in packets.iter().filter(|packet| is_of(packet, PORT)) {
        let is_egress = packet["is_egress"] == true;
        let to_server = packet["ports"][1] == PORT;
        let end = if is_egress == to_server { "a" } else { "b" };
        let kind = (is_egress, end, to_server);
        if packet["judged"]["by_rules"] != true || seen.contains(&kind) {
            continue;
        }
        seen.push(kind);
        let verb = if is_egress { "sends" } else { "gets" };
        let what = if to_server { "the request's" } else { "the answer's" };
        let state = |flow: &Value| match flow["state"].as_str() {
            None => String::from("none"),
            Some(state) if flow["is_tracked"] == true => format!("{state}, tracked"),
            Some(state) => format!("{state}, untracked"),
        };
        notes.push(format!(
            "{number} `{end}` {verb} {what} first packet: pending, so the rules judge it; \
             connection: {} -> {}",
            state(&packet["flow"]),
            state(&packet["judged"]["flow"])
        ));
        for line in packet["judged"]["steps"].as_array().into_iter().flatten() {
            let mark = if line["passes"] == true { "allowed" } else { "refused" };
            notes.push(format!("    {mark}: {}: {}", text(&line["at"]), text(&line["says"])));
        }
        let to = &packet["end"]["gone"];
        notes.push(match to["kind"].as_str() {
            Some("interface") => {
                format!("    mapping: {} of {}", text(&to["device"]), text(&to["instance"]))
            }
            _ => String::from("    delivered to the queue of its hash"),
        });
        number += 1;
    }
    let kept = packets.iter().filter(|packet| is_of(packet, PORT));
    let kept = kept.filter(|packet| packet["judged"]["by_rules"] != true).count();
    notes.push(format!("{number} complete: {kept} packets pass by the verdicts that are kept"));
    Ok(())
}

/// Adds notes about the state of the flow that each end's card stores.
fn states(notes: &mut Vec<String>, cloud: &Cloud) -> Result<()> {
    for end in ["a", "b"] {
        let flows = cloud.flows(end)?;
        let port = format!(":{PORT}");
        let ends = |flow: &Value, key: &str| text(&flow[key]).ends_with(&port);
        for flow in flows.iter().filter(|flow| ends(flow, "local") || ends(flow, "remote")) {
            notes.push(format!(
                "`{end}` keeps {} <-> {}: connection {}, sent {}, received {}",
                text(&flow["local"]),
                text(&flow["remote"]),
                flow["connection"].as_str().unwrap_or("untracked"),
                text(&flow["sent"]),
                text(&flow["received"])
            ));
        }
    }
    Ok(())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn answer_once(listener: &TcpListener) -> Result<()> {
    let (mut stream, _) = listener.accept()?;
    let mut request = [0; 4096];
    let _ = stream.read(&mut request)?;
    let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {FILE_BYTES}\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    Ok(stream.write_all(&vec![b'x'; FILE_BYTES])?)
}

/// A running `srd card trace` of all instances.
struct Trace {
    program: Running,
    /// Standard error of the program; it stays open while the program runs.
    says: BufReader<ChildStderr>,
    file: PathBuf,
}

impl Trace {
    fn begin(cloud: &Cloud) -> Result<Self> {
        let file = cloud.file("walk.json");
        let mut command = cloud.card(&["trace", "any"]);
        command
            .arg("--json")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().context("srd card trace")?;
        let says = child.stderr.take().context("the trace says nothing")?;
        let (program, mut says) = (Running::new(child, LEAVE), BufReader::new(says));
        let mut line = String::new();
        says.read_line(&mut line)?;
        if !line.contains("following") {
            bail!("srd card trace: {}", line.trim());
        }
        Ok(Self { program, says, file })
    }

    fn end(self) -> Result<Vec<Value>> {
        thread::sleep(SETTLED);
        self.program.leave().context("srd card trace")?;
        drop(self.says);
        let lines = BufReader::new(File::open(&self.file)?).lines();
        lines.map(|line| Ok(serde_json::from_str(&line?)?)).collect()
    }
}
