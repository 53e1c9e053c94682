//! `srd control key`: access keys of the API.

use anyhow::Result;
use clap::{Args, Subcommand};
use srd_control::hosts::admin::{NewKey, Request};
use srd_control::sign::KeyEntry;

use crate::hosts::{AdminArgs, ListArgs, columns, now_s, span};
use crate::output::say;
use crate::secret;

pub(crate) const EXAMPLES: &str = "\
EXAMPLES
  (umask 077; srd control key create > new.env)   # give it to the clients
  srd control key list
  srd control key deactivate SRD0123456789ABCDEF  # the former key; `activate` takes it back
  srd control key delete SRD0123456789ABCDEF

docs/control.md describes the change of a key.";

/// Commands for access keys.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make another access key, and print it as assignments for a shell. There are at most two. A
    /// key that cannot be written, because a disk is full, is deleted again.
    #[command(after_help = EXAMPLES)]
    Create(ListArgs),
    /// List the access keys, without their secrets.
    #[command(after_help = EXAMPLES)]
    List(ListArgs),
    /// Accept requests with a key again.
    #[command(after_help = EXAMPLES)]
    Activate(KeyArgs),
    /// Refuse requests with a key, at all servers of the state. The key stays in the state. The
    /// only active key cannot be deactivated.
    #[command(after_help = EXAMPLES)]
    Deactivate(KeyArgs),
    /// Delete a key. The only active key cannot be deleted.
    #[command(after_help = EXAMPLES)]
    Delete(KeyArgs),
}

/// An access key.
#[derive(Args, Clone, Debug)]
pub(crate) struct KeyArgs {
    /// Identifier of the key, as `srd control key list` prints it.
    id: String,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Runs `srd control key`.
pub(crate) fn run(command: &KeyCommand) -> Result<u8> {
    let set = |KeyArgs { id, admin }: &KeyArgs, is_active| {
        admin.ask::<()>(&Request::SetKey { id: id.clone(), is_active })
    };
    match command {
        KeyCommand::Create(args) => create(args)?,
        KeyCommand::List(args) => {
            args.json.check()?;
            let keys: Vec<KeyEntry> = args.admin.ask(&Request::Keys)?;
            args.json.write(&keys)?;
            if !args.json.owns_stdout() {
                columns(&keys.iter().map(|key| row(key, now_s())).collect::<Vec<_>>())?;
            }
        }
        KeyCommand::Activate(args) => {
            set(args, true)?;
            say(format!("the access key {} is active", args.id))?;
        }
        KeyCommand::Deactivate(args) => {
            set(args, false)?;
            say(format!("the access key {} is refused from now on", args.id))?;
        }
        KeyCommand::Delete(KeyArgs { id, admin }) => {
            let () = admin.ask(&Request::DeleteKey { id: id.clone() })?;
            say(format!("the access key {id} is deleted"))?;
        }
    }
    Ok(0)
}

/// Makes a key, and shows it. If that fails, the key is deleted again: otherwise it would be one of
/// two keys, and its secret would be lost.
fn create(ListArgs { json, admin }: &ListArgs) -> Result<()> {
    json.check()?;
    secret::warn_of_open_output("access key");
    let key: NewKey = admin.ask(&Request::CreateKey)?;
    let id = &key.id;
    let lines = format!("AWS_ACCESS_KEY_ID={id}\nAWS_SECRET_ACCESS_KEY={}", key.secret);
    let outcome = json.write_private(&key).and_then(|()| json.say(lines));
    let delete = || admin.ask::<()>(&Request::DeleteKey { id: id.clone() });
    let remedy = format!("srd control key delete {id}");
    secret::shown(outcome, &format!("the access key {id}"), delete, &remedy)
}

fn row(key: &KeyEntry, now: u64) -> [String; 3] {
    let state = if key.is_active { "active" } else { "not active" };
    let age = match key.created_at {
        0 => "made by an earlier build".to_owned(),
        at => format!("made {} ago", span(now.saturating_sub(at))),
    };
    [key.id.clone(), state.to_owned(), age]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_listed_with_its_state_and_its_age() {
        let key = |is_active, created_at| KeyEntry { id: "SRD1".to_owned(), is_active, created_at };
        assert_eq!(row(&key(true, 100), 160), ["SRD1", "active", "made 60 s ago"]);
        assert_eq!(row(&key(false, 0), 160), ["SRD1", "not active", "made by an earlier build"]);
    }
}
