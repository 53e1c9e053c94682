//! `srd vpc explain`: what happens to a connection, step by step, and why.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use srd_vpc::judge::{Judgement, Verdict, connection};
use srd_vpc::packet::{Inner, Packet};
use srd_vpc_file::VpcFile;
use srd_vpc_file::words::{self, Line};

use super::{ends, read};
use crate::failure::{RUN, usage};
use crate::output::{JsonOutput, say};

/// What to explain.
#[derive(Args, Clone, Debug)]
pub(crate) struct ExplainArgs {
    /// The file.
    file: PathBuf,
    /// What sends: an interface, an instance, an address, or `internet`.
    from: String,
    /// What is meant to receive: the same.
    to: String,
    /// tcp, udp, icmp (an echo request), or a number.
    #[arg(long, default_value = "tcp")]
    protocol: String,
    /// The destination port.
    #[arg(long, default_value_t = 443)]
    port: u16,
    /// The source port: lists that let answers through must allow such ports.
    #[arg(long, default_value_t = 49152)]
    source_port: u16,
    /// Between names, use IPv6 addresses.
    #[arg(long)]
    ipv6: bool,
    #[command(flatten)]
    json: JsonOutput,
}

/// One direction, for machines.
#[derive(Debug, Serialize)]
struct Walked {
    source: String,
    destination: String,
    steps: Vec<Line>,
    verdict: String,
    passes: bool,
    remedy: Option<&'static str>,
}

impl Walked {
    fn new(file: &VpcFile, packet: &Packet, judgement: &Judgement) -> Self {
        let remedy = match judgement.verdict {
            Verdict::Dropped(reason) => Some(words::why(reason).1),
            _ => None,
        };
        Self {
            source: packet.source.to_string(),
            destination: packet.destination.to_string(),
            steps: words::lines(file, judgement),
            verdict: words::verdict(file, judgement),
            passes: judgement.passes(),
            remedy,
        }
    }

    fn say(&self, title: &str, what: &str) -> Result<()> {
        say(format!("{title}: {} -> {}, {what}", self.source, self.destination))?;
        for (number, Line { at, says, passes }) in (1..).zip(&self.steps) {
            let mark = if *passes { ' ' } else { '!' };
            say(format!("{mark}{number:>3}  {at}\n        {says}"))?;
        }
        say(format!("      {}", self.verdict))
    }
}

pub(super) fn run(args: &ExplainArgs) -> Result<u8> {
    args.json.check()?;
    let file = read(&args.file)?;
    let (origin, source, destination) = ends::of(&file, &args.from, &args.to, args.ipv6)?;
    let (inner, what) = match args.protocol.as_str() {
        "tcp" => (Inner::Tcp(args.source_port, args.port), format!("TCP port {}", args.port)),
        "udp" => (Inner::Udp(args.source_port, args.port), format!("UDP port {}", args.port)),
        "icmp" if source.is_ipv4() => (Inner::Icmp(8, 0), String::from("ICMP echo request")),
        "icmp" | "icmpv6" => (Inner::Icmp(128, 0), String::from("ICMPv6 echo request")),
        other => match other.parse::<u8>() {
            Ok(number) => (Inner::Other(number), format!("protocol {number}")),
            Err(_) => return usage(format!("--protocol {other}: tcp, udp, icmp or a number")),
        },
    };
    let packet = Packet { source, destination, inner };
    let connection = connection(&file.world, origin, &packet);
    let first = Walked::new(&file, &packet, &connection.first);
    let back = connection.answer.as_ref();
    let answer_from = connection.first.packet.answer();
    let answer = back.map(|judgement| Walked::new(&file, &answer_from, judgement));
    let works = connection.works();
    args.json.write(&serde_json::json!({
        "works": works, "traffic": what, "first": first, "answer": answer,
    }))?;
    if !args.json.owns_stdout() {
        first.say("there", &what)?;
        if let Some(answer) = &answer {
            answer.say("back", "its answer")?;
        }
        let failed = [Some(&first), answer.as_ref()].into_iter().flatten().find(|w| !w.passes);
        match failed {
            None => {
                let reach = connection.first.reach.map_or("", words::reach);
                say(format!("works{}{reach}", if reach.is_empty() { "" } else { "; " }))?;
            }
            Some(walked) => {
                say(format!("does not work; remedy: {}", walked.remedy.unwrap_or_default()))?;
            }
        }
    }
    Ok(if works { 0 } else { RUN })
}
