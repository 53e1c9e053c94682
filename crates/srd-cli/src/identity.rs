//! `srd control identity`: the identity of the controller, by which hosts recognize it.

use anyhow::Result;
use clap::{Args, Subcommand};
use srd_control::hosts::admin::{IdentityEnd, IdentityEntry, Request};

use crate::hosts::{AdminArgs, ListArgs};
use crate::output::say;

const EXAMPLES: &str = "\
EXAMPLES
  srd control identity rotate      # hosts accept the present identity and the next one
  srd control identity             # the hosts that do not have the next identity yet
  srd control identity finish      # hosts accept the next identity only
  srd control identity cancel      # in place of `finish`: hosts accept the former identity only
  srd control identity finish --force

docs/control-hosts.md describes each step.";

/// Arguments of `srd control identity`.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct IdentityArgs {
    #[command(subcommand)]
    command: Option<IdentityCommand>,
    #[command(flatten)]
    list: ListArgs,
}

/// Changes of the identity.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum IdentityCommand {
    /// Draw the next identity. Hosts store it, and accept both identities until the change ends. If
    /// a change is in progress, it goes on.
    #[command(after_help = EXAMPLES)]
    Rotate(AdminArgs),
    /// End the change: hosts accept the next identity only. Refused as long as hosts have not
    /// stored it.
    #[command(after_help = EXAMPLES)]
    Finish(FinishArgs),
    /// End the change, and keep the former identity. Hosts that have enrolled meanwhile, and have
    /// not connected since, have to enrol again: the command lists them.
    #[command(after_help = EXAMPLES)]
    Cancel(AdminArgs),
}

/// Arguments of `srd control identity finish`.
#[derive(Args, Clone, Debug)]
pub(crate) struct FinishArgs {
    /// Exclude hosts that have not stored the next identity: they cannot connect any more, and have
    /// to enrol again.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Runs `srd control identity`.
pub(crate) fn run(args: &IdentityArgs) -> Result<u8> {
    let lines = match &args.command {
        None => {
            let ListArgs { json, admin } = &args.list;
            json.check()?;
            let entry: IdentityEntry = admin.ask(&Request::Identity)?;
            json.write(&entry)?;
            return progress(&entry).iter().try_for_each(|line| json.say(line)).map(|()| 0);
        }
        Some(IdentityCommand::Rotate(admin)) => {
            let entry: IdentityEntry = admin.ask(&Request::RotateIdentity)?;
            let mut lines = progress(&entry);
            lines.push(
                "the change ends by `srd control identity finish`, or by `srd control identity \
                 cancel`"
                    .to_owned(),
            );
            lines
        }
        Some(IdentityCommand::Finish(FinishArgs { force, admin })) => {
            ended(&admin.ask(&Request::FinishIdentity { excludes: *force })?)
        }
        Some(IdentityCommand::Cancel(admin)) => ended(&admin.ask(&Request::CancelIdentity)?),
    };
    lines.iter().try_for_each(say)?;
    Ok(0)
}

/// Returns the lines about the identity and the progress of its change.
fn progress(entry: &IdentityEntry) -> Vec<String> {
    let IdentityEntry { present, next, hosts, without_next } = entry;
    let mut lines = vec![format!("identity: {present}")];
    let Some(next) = next else { return lines };
    let with = hosts - without_next.len().min(*hosts);
    lines.push(format!("next identity: {next}, stored by {with} of {hosts} hosts"));
    if !without_next.is_empty() {
        lines.push(format!("hosts without it: {}", without_next.join(", ")));
    }
    lines
}

/// Returns the lines about the end of a change.
fn ended(IdentityEnd { present, excluded, tokens }: &IdentityEnd) -> Vec<String> {
    let mut lines = vec![format!("the identity of the controller is {present}")];
    if !excluded.is_empty() {
        lines.push(format!(
            "excluded: {}. For each of these hosts, run `srd control hosts remove NAME`, remove \
             its state directory, and enrol it with a new token",
            excluded.join(", ")
        ));
    }
    if !tokens.is_empty() {
        lines.push(format!(
            "enrolment tokens of the other identity are removed: {}. Make others by `srd control \
             token create`",
            tokens.join(", ")
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_without_the_next_identity_are_named() {
        let entry = |next: Option<&str>, without: &[&str]| IdentityEntry {
            present: "a".to_owned(),
            next: next.map(str::to_owned),
            hosts: 3,
            without_next: without.iter().map(|name| (*name).to_owned()).collect(),
        };
        assert_eq!(progress(&entry(None, &[])), ["identity: a"]);
        let lines = progress(&entry(Some("b"), &["web-1", "web-2"]));
        assert_eq!(lines[1], "next identity: b, stored by 1 of 3 hosts");
        assert_eq!(lines[2], "hosts without it: web-1, web-2");
        assert_eq!(progress(&entry(Some("b"), &[])).len(), 2);
    }

    #[test]
    fn the_end_of_a_change_names_the_hosts_and_tokens_that_it_makes_useless() {
        let end = |excluded: &[&str], tokens: &[&str]| {
            let [excluded, tokens] =
                [excluded, tokens].map(|all| all.iter().map(|of| (*of).to_owned()).collect());
            ended(&IdentityEnd { present: "a".to_owned(), excluded, tokens })
        };
        assert_eq!(end(&[], &[]), ["the identity of the controller is a"]);
        let lines = end(&["web-1"], &["x"]);
        assert!(lines[1].contains("excluded: web-1.") && lines[1].contains("hosts remove"));
        assert!(lines[2].contains("removed: x.") && lines[2].contains("token create"));
    }
}
