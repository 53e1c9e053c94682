//! `srd vpc explain`: explains what happens to the packets of a connection, step by step, and why.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use srd_card::profile::InstanceType;
use srd_vpc_file::explain::{Query, Walked, explain};
use srd_vpc_file::words::StepRecord;

use super::read;
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

fn say_walk(walked: &Walked, title: &str, what: &str) -> Result<()> {
    say(format!("{title}: {} -> {}, {what}", walked.source, walked.destination))?;
    for (number, StepRecord { at, says, passes }) in (1..).zip(&walked.steps) {
        let mark = if *passes { ' ' } else { '!' };
        say(format!("{mark}{number:>3}  {at}\n        {says}"))?;
    }
    say(format!("      {}", walked.verdict))
}

pub(super) fn run(args: &ExplainArgs) -> Result<u8> {
    args.json.check()?;
    let mut file = read(&args.file)?;
    file.world.internet_private = args.internet_private;
    let query = Query {
        from: args.from.clone(),
        to: args.to.clone(),
        protocol: args.protocol.clone(),
        port: args.port,
        source_port: args.source_port,
        ipv6: args.ipv6,
    };
    let explanation = match explain(&file, &query, &InstanceType::lacks_express) {
        Ok(explanation) => explanation,
        Err(why) => return usage(why),
    };
    args.json.write(&explanation)?;
    if !args.json.owns_stdout() {
        let (first, answer) = (&explanation.first, explanation.answer.as_ref());
        say_walk(first, "there", &explanation.traffic)?;
        if let Some(answer) = answer {
            say_walk(answer, "back", "its answer")?;
        }
        for note in &explanation.notes {
            say(format!("note: {note}"))?;
        }
        let failed = [Some(first), answer].into_iter().flatten().find(|walked| !walked.passes);
        match failed {
            None if explanation.works_for_part => {
                say("works for part of the connections")?;
                for ports in &explanation.conditions {
                    let works = ports.works.join(", ");
                    say(format!(
                        "  {} takes one of the ports {}: answers pass to {works} only",
                        ports.of, ports.taken
                    ))?;
                }
                say("remedy: let the access control lists pass answers to all of these ports")?;
            }
            None => {
                let reach = explanation.reach;
                say(format!("works{}{reach}", if reach.is_empty() { "" } else { "; " }))?;
                match (explanation.rides_srd, &explanation.plainly) {
                    (Some(true), _) => say("rides SRD")?,
                    (_, Some(why)) => say(format!("does not ride SRD: {why}"))?,
                    _ => {}
                }
            }
            Some(walked) => {
                say(format!("does not work; remedy: {}", walked.remedy.unwrap_or_default()))?;
            }
        }
    }
    Ok(if explanation.works { 0 } else { RUN })
}
