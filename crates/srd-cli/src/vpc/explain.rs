//! `srd vpc explain`: explains what happens to the packets of a connection, step by step, and why.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use srd_card::profile::InstanceType;
use srd_vpc::express;
use srd_vpc::id::EniId;
use srd_vpc::judge::{
    Condition, Direction, INTERNET_PORTS, Judgement, LINUX_PORTS, Origin, PortOf, Reason, Step,
    Verdict, explain,
};
use srd_vpc::packet::{Inner, Packet};
use srd_vpc_file::warnings::{range, ranges, stale_rules};
use srd_vpc_file::words::{self, StepRecord};
use srd_vpc_file::{Kind, VpcFile};

use super::{ends, read};
use crate::failure::{RUN, usage};
use crate::output::{JsonOutput, say};

/// Arguments of `srd vpc explain`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ExplainArgs {
    /// The file.
    file: PathBuf,
    /// The sender: an interface, an instance, an address, or `internet`.
    from: String,
    /// The receiver: an interface, an instance, an address, or `internet`.
    to: String,
    /// tcp, udp, icmp (an echo request), or a number.
    #[arg(long, default_value = "tcp")]
    protocol: String,
    /// The destination port.
    #[arg(long, default_value_t = 443)]
    port: u16,
    /// The source port. Default: any of the ports that a client uses: 32768-60999 of an instance,
    /// 1024-65535 of the internet. Lists that let answers through must allow these ports.
    #[arg(long)]
    source_port: Option<u16>,
    /// Between two names, use IPv6 addresses.
    #[arg(long)]
    ipv6: bool,
    /// Let the internet carry private addresses, too, as `srd card up --internet-private` does.
    #[arg(long)]
    internet_private: bool,
    #[command(flatten)]
    json: JsonOutput,
}

/// Source port that stands for a client's port: clients of all operating systems use it.
const SOURCE_PORT: u16 = 49152;

/// Ports on which the success of a connection depends, for JSON.
#[derive(Debug, Serialize)]
struct Ports {
    of: String,
    taken: String,
    works: Vec<String>,
}

impl Ports {
    fn new(file: &VpcFile, Condition { of, wanted, works }: &Condition) -> Self {
        let of = match of {
            PortOf::Client => String::from("the client"),
            PortOf::Nat(id) => {
                let name = file.names.name(Kind::NatGateway, id.0).unwrap_or_default();
                format!("nat_gateway {name}")
            }
        };
        let works = works.iter().map(|ports| range(*ports)).collect();
        Self { of, taken: range(*wanted), works }
    }
}

/// If security groups refused a packet, returns remarks on their stale rules.
fn notes(file: &VpcFile, judgement: &Judgement) -> Vec<String> {
    let refused = match judgement.verdict {
        Verdict::Dropped(Reason::GroupsIn) => Direction::Ingress,
        Verdict::Dropped(Reason::GroupsOut) => Direction::Egress,
        _ => return Vec::new(),
    };
    let eni = judgement.steps.iter().rev().find_map(|step| match step {
        Step::Groups { eni, direction, rule: None, .. } if *direction == refused => Some(*eni),
        _ => None,
    });
    let eni = eni.and_then(|id| file.world.enis.get(&id));
    eni.map_or_else(Vec::new, |eni| stale_rules(file, &eni.groups))
}

/// One direction of a connection, with the steps of the decision about its packets.
#[derive(Debug, Serialize)]
struct Walked {
    source: String,
    destination: String,
    steps: Vec<StepRecord>,
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
        for (number, StepRecord { at, says, passes }) in (1..).zip(&self.steps) {
            let mark = if *passes { ' ' } else { '!' };
            say(format!("{mark}{number:>3}  {at}\n        {says}"))?;
        }
        say(format!("      {}", self.verdict))
    }
}

/// Returns whether a packet is sent over SRD (ENA Express); an error is the reason why it is not.
/// Returns `None` if the packet comes from outside or reaches no interface.
fn ride(
    file: &VpcFile,
    origin: Origin,
    packet: &Packet,
    judgement: &Judgement,
) -> Option<Result<(), String>> {
    let Origin::Eni(from) = origin else { return None };
    let world = &file.world;
    let ride = express::of_judged(world, from, packet, judgement)?;
    let without = |eni: &EniId| {
        let attachment = world.enis.get(eni)?.attachment.as_ref()?;
        let kind = InstanceType::find(&world.instances.get(&attachment.instance)?.instance_type);
        kind.ok().filter(|kind| !kind.ena_srd)
    };
    let to = match judgement.verdict {
        Verdict::Delivered(to) => Some(to),
        _ => None,
    };
    Some(match [Some(from), to].iter().flatten().find_map(without) {
        Some(kind) if ride.is_ok() => Err(format!("{} has no ENA Express", kind.name)),
        _ => ride.map_err(|why| why.to_string()),
    })
}

pub(super) fn run(args: &ExplainArgs) -> Result<u8> {
    args.json.check()?;
    let mut file = read(&args.file)?;
    file.world.internet_private = args.internet_private;
    let (origin, source, destination) = ends::of(&file, &args.from, &args.to, args.ipv6)?;
    let client = match (args.source_port, origin) {
        (Some(_), _) => None,
        (None, Origin::Eni(_)) => Some(LINUX_PORTS),
        (None, Origin::Internet) => Some(INTERNET_PORTS),
    };
    let source_port = args.source_port.unwrap_or(SOURCE_PORT);
    let (inner, what) = match args.protocol.as_str() {
        "tcp" => (Inner::Tcp(source_port, args.port), format!("TCP port {}", args.port)),
        "udp" => (Inner::Udp(source_port, args.port), format!("UDP port {}", args.port)),
        "icmp" if source.is_ipv4() => (Inner::Icmp(8, 0), String::from("ICMP echo request")),
        "icmp" | "icmpv6" => (Inner::Icmp(128, 0), String::from("ICMPv6 echo request")),
        other => match other.parse::<u8>() {
            Ok(number) => (Inner::Other(number), format!("protocol {number}")),
            Err(_) => return usage(format!("--protocol {other}: tcp, udp, icmp or a number")),
        },
    };
    let packet = Packet { source, destination, inner };
    let explained = explain(&file.world, origin, &packet, client);
    let connection = &explained.connection;
    let first = Walked::new(&file, &packet, &connection.first);
    let back = connection.answer.as_ref();
    let answer_from = connection.first.packet.answer();
    let answer = back.map(|judgement| Walked::new(&file, &answer_from, judgement));
    let (works, for_part) = (explained.works(), explained.works_for_part());
    let conditions: Vec<Ports> =
        explained.conditions.iter().map(|condition| Ports::new(&file, condition)).collect();
    let judgements = [Some(&connection.first), connection.answer.as_ref()];
    let notes: Vec<String> =
        judgements.into_iter().flatten().flat_map(|judgement| notes(&file, judgement)).collect();
    let ride = ride(&file, origin, &packet, &connection.first);
    let plainly = ride.as_ref().and_then(|ride| ride.as_ref().err());
    args.json.write(&serde_json::json!({
        "works": works, "works_for_part": for_part, "conditions": conditions, "notes": notes,
        "traffic": what, "first": first, "answer": answer,
        "rides_srd": ride.as_ref().map(Result::is_ok), "plainly": plainly,
    }))?;
    if !args.json.owns_stdout() {
        first.say("there", &what)?;
        if let Some(answer) = &answer {
            answer.say("back", "its answer")?;
        }
        let failed = [Some(&first), answer.as_ref()].into_iter().flatten().find(|w| !w.passes);
        for note in &notes {
            say(format!("note: {note}"))?;
        }
        match failed {
            None if for_part => {
                say("works for part of the connections")?;
                for (ports, of) in conditions.iter().zip(&explained.conditions) {
                    say(format!(
                        "  {} takes one of the ports {}: answers pass to {} only",
                        ports.of,
                        ports.taken,
                        ranges(&of.works)
                    ))?;
                }
                say("remedy: let the access control lists pass answers to all of these ports")?;
            }
            None => {
                let reach = connection.first.reach.map_or("", words::reach);
                say(format!("works{}{reach}", if reach.is_empty() { "" } else { "; " }))?;
                match &ride {
                    Some(Ok(())) => say("rides SRD")?,
                    Some(Err(why)) => say(format!("does not ride SRD: {why}"))?,
                    None => {}
                }
            }
            Some(walked) => {
                say(format!("does not work; remedy: {}", walked.remedy.unwrap_or_default()))?;
            }
        }
    }
    Ok(if works { 0 } else { RUN })
}
