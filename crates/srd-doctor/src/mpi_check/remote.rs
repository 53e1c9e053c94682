//! Shell commands on another machine, through an agent such as `ssh`.

use crate::mpi::{Answer, ask_for};
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Default agent: `ssh` that never prompts, and that fails after five seconds if it cannot connect.
pub const SSH: &str = "ssh -o BatchMode=yes -o ConnectTimeout=5";
/// Time limit for a command on another machine.
const REMOTE_MAX: Duration = Duration::from_secs(20);
/// A machine, and the words of the agent's command that reaches it.
pub(super) struct Host<'a> {
    pub(super) name: &'a str,
    pub(super) agent: &'a [String],
}

impl Host<'_> {
    /// Runs a shell command on the machine, with the file `input` as its standard input.
    pub(super) fn run(&self, command: &str, input: Option<&Path>) -> Result<Answer, String> {
        let (program, words) = self.agent.split_first().ok_or("no agent")?;
        let mut agent = Command::new(program);
        agent.args(words).args([self.name, command]);
        match input {
            Some(file) => agent.stdin(File::open(file).map_err(|error| error.to_string())?),
            None => agent.stdin(Stdio::null()),
        };
        ask_for(&mut agent, REMOTE_MAX).map_err(|error| format!("{error:#}"))
    }

    /// Runs a shell command on the machine, with the file `input` as its standard input. Returns
    /// its standard output, or the reason why it failed.
    pub(super) fn must(&self, command: &str, input: Option<&Path>) -> Result<String, String> {
        let answer = self.run(command, input)?;
        if answer.succeeded {
            return Ok(answer.out);
        }
        let why = answer.err.lines().rfind(|line| !line.trim().is_empty());
        Err(why.unwrap_or("it failed without a word").trim().to_owned())
    }
}
