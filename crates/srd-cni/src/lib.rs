//! `srd-cni`, a plugin of the Container Network Interface (CNI, specification 1.1.0): the interface
//! of a container or pod is an elastic network interface (ENI) in a subnet of a VPC, with security
//! groups.
//!
//! ```text
//!  runtime --ADD--> srd-cni --announces the namespace--> /run/srd-card/pods/KEY
//!                      |                                        |
//!                      +--RunInstances, tag srd:pod = KEY--> control plane --> card: device eth0
//! ```
//!
//! A pod is an instance of its own, with one interface, the limits of its type, and the services of
//! instances. `docs/cni.md` describes the design and its limits.
//!
//! | module | content |
//! |---|---|
//! | [`error`] | errors with the codes of the specification |
//! | [`environment`], [`config`] | the request: variables of the environment, configuration |
//! | [`settings`] | settings of one pod: subnet, groups, address, instance type |
//! | [`answer`] | results of the specification, for each of its versions |
//! | [`api`] | requests to the control plane: by the EC2 API, or through the daemon of this machine |
//! | [`host`] | namespaces of this machine |
//! | [`record`] | records of attachments on disk |
//! | [`plugin`] | the commands |
#![forbid(unsafe_code)]

pub mod answer;
pub mod api;
pub mod config;
pub mod environment;
pub mod error;
pub mod host;
pub mod plugin;
pub mod record;
pub mod settings;

use std::io::{Read, Write};
use std::path::Path;

use api::node::Node;
use api::{Client, Cloud};
use config::{Access, Config, INPUT_BYTES_MAX};
use environment::{Command, Environment};
use error::{Code, Failure};
use host::{Host, Machine};
use plugin::Plugin;
use record::Records;
use serde_json::Value;

/// Name of the program: runtimes start a plugin by the name in `type` of the configuration.
pub const PROGRAM: &str = "srd-cni";

/// Runs the plugin as a program: reads the environment and standard input, writes the result or the
/// error to standard output, and returns the exit code.
pub fn main() -> u8 {
    let variable = |name: &str| std::env::var(name).ok();
    let host = Machine::new(Path::new(srd_guest::pods::DIRECTORY));
    let mut input = std::io::stdin().lock();
    let mut output = std::io::stdout().lock();
    run(&variable, &mut input, &mut output, &host)
}

/// Runs the plugin with these variables of the environment. Returns the exit code. An `ADD` whose
/// result cannot be written is undone.
pub fn run(
    variable: &dyn Fn(&str) -> Option<String>,
    input: &mut dyn Read,
    output: &mut dyn Write,
    host: &dyn Host,
) -> u8 {
    let mut text = Vec::new();
    let read = input.take(INPUT_BYTES_MAX + 1).read_to_end(&mut text);
    let result = match read {
        Ok(_) => answer(variable, &text, host),
        Err(error) => {
            let what = format!("cannot read the network configuration: {error}");
            Err(Failure::new(Code::Io, what))
        }
    };
    let (code, printed, token) = match result {
        Ok(Answer { printed: None, .. }) => return 0,
        Ok(Answer { printed: Some(value), token }) => (0, value, token),
        Err(failure) => (1, failure.json(&config::version_of(&text)), None),
    };
    let written = serde_json::to_writer_pretty(&mut *output, &printed);
    let written = written.map_err(std::io::Error::from).and_then(|()| output.write_all(b"\n"));
    match written.and_then(|()| output.flush()) {
        Ok(()) => code,
        Err(_) => {
            if let Some(token) = token {
                // An error could not be written either.
                let _ = undo(variable, &text, host, &token);
            }
            1
        }
    }
}

/// The answer to a command.
struct Answer {
    /// The text for standard output; `None` if the command prints nothing.
    printed: Option<Value>,
    /// The token of the attachment that `ADD` has made.
    token: Option<String>,
}

/// Undoes an `ADD` whose result cannot be written: the runtime has ended, and may not call `DEL`
/// for a container of which it has no result. `token`: the token of its attachment.
fn undo(
    variable: &dyn Fn(&str) -> Option<String>,
    text: &[u8],
    host: &dyn Host,
    token: &str,
) -> Result<(), Failure> {
    let command = Environment::read(variable)?.command;
    match &command {
        Command::Add(attachment, _) => {
            with_plugin(text, &command, host, |plugin| plugin.undo(attachment, token))
        }
        _ => Ok(()),
    }
}

/// Runs a command.
fn answer(
    variable: &dyn Fn(&str) -> Option<String>,
    text: &[u8],
    host: &dyn Host,
) -> Result<Answer, Failure> {
    let environment = Environment::read(variable)?;
    if environment.command == Command::Version {
        let versions = answer::versions(&config::version_of(text));
        return Ok(Answer { printed: Some(versions), token: None });
    }
    let command = &environment.command;
    let done = with_plugin(text, command, host, |plugin| match command {
        Command::Add(attachment, netns) => plugin.add(attachment, netns, &environment).map(Some),
        Command::Del(attachment) => plugin.del(attachment).map(|()| None),
        Command::Check(attachment, netns) => plugin.check(attachment, netns).map(|()| None),
        Command::Status => plugin.status().map(|()| None),
        Command::Gc => plugin.gc().map(|()| None),
        Command::Version => Ok(None),
    });
    let (printed, token) = done?.unzip();
    Ok(Answer { printed, token })
}

/// Runs `work` with the plugin of a configuration, whose version has the command.
fn with_plugin<T>(
    text: &[u8],
    command: &Command,
    host: &dyn Host,
    work: impl FnOnce(&Plugin<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let config = Config::parse(text)?;
    config.check(command)?;
    let records = Records::open(&config.state_directory)?;
    let cloud: Box<dyn Cloud> = match &config.access {
        Access::Node(socket) => Box::new(Node::new(socket)),
        Access::Api(access) => Box::new(Client::new(access.clone())),
    };
    work(&Plugin { config: &config, records: &records, cloud: cloud.as_ref(), host })
}

#[cfg(test)]
mod tests;
