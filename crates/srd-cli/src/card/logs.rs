//! `srd card logs`: shows the flow logs of the card.

use anyhow::{Result, bail};
use clap::Args;
use srd_guest::Client;
use srd_guest::protocol::{Answer, Request};

use super::SocketArg;
use crate::output::{JsonOutput, say};

/// Arguments of `srd card logs`.
#[derive(Args, Clone, Debug)]
#[command(after_help = super::with_codes!("  srd card logs\n  srd card logs --json"))]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    socket: SocketArg,
    #[command(flatten)]
    json: JsonOutput,
}

pub(super) fn run(args: &LogsArgs) -> Result<u8> {
    args.json.check()?;
    let Answer::Logs { logs } = Client::connect(&args.socket.path()?)?.ask(&Request::Logs)? else {
        bail!("the card answers something else");
    };
    args.json.write(&logs)?;
    if args.json.owns_stdout() {
        return Ok(0);
    }
    if logs.is_empty() {
        say("no flow logs: [flow_log.NAME] in the VPC's file makes one (docs/vpc.md)")?;
    }
    for log in &logs {
        let (traffic, interfaces) = (&log.traffic, log.interfaces);
        say(format!(
            "{} ({}) of {}, {traffic}, interfaces here {interfaces}",
            log.name, log.id, log.resource
        ))?;
        say(format!("  {} files in {}", log.files, log.directory))?;
        let (written, dropped) = (log.records_written, log.records_dropped);
        say(format!("  records written {written}, dropped {dropped}"))?;
        if let Some(failure) = &log.failure {
            say(format!("  the last write failed: {failure}"))?;
        }
    }
    Ok(0)
}
