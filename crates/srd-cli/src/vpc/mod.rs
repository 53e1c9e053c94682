//! `srd vpc`: checks, shows and compares virtual private clouds in a file, and explains what
//! happens to a packet.
//!
//! | module | contents |
//! |---|---|
//! | [`explain`] | `srd vpc explain` |
//! | [`list`] | `srd vpc show`, `diff` and `nau` |
//! | `others` | text about gateways, addresses, logs and mirrors |

mod explain;
mod list;
mod others;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Subcommand};
use srd_card::profile::InstanceType;
use srd_vpc_file::VpcFile;
use srd_vpc_file::warnings::warnings;

use crate::failure::Usage;
use crate::output::{JsonOutput, say};

const EXAMPLES: &str = "\
EXAMPLES
  srd vpc check vpc.toml
  srd vpc show vpc.toml
  srd vpc explain vpc.toml internet web --port 443
  srd vpc explain vpc.toml web app --protocol tcp --port 8080 --json -
  srd vpc diff old.toml new.toml
  srd vpc nau vpc.toml

The format of the file is described in docs/vpc.md.";

const EXPLAIN: &str = "\
EXAMPLES
  srd vpc explain vpc.toml internet web --port 443
  srd vpc explain vpc.toml web app --protocol tcp --port 8080 --json

EXIT CODES
  0  the connection works
  1  it does not, or for some ports only
  2  wrong arguments, or a wrong file";

const DIFF: &str = "\
EXAMPLES
  srd vpc diff old.toml new.toml

EXIT CODES
  0  there is no difference
  1  there is a difference
  2  wrong arguments, or a wrong file";

const NAU: &str = "\
EXAMPLES
  srd vpc nau vpc.toml

EXIT CODES
  0  no quota is exceeded
  1  a quota is exceeded
  2  wrong arguments, or a wrong file";

/// Commands for virtual private clouds.
#[derive(Debug, Subcommand)]
pub(crate) enum VpcCommand {
    /// Check a file: the first error is printed with its line and a remedy; warnings list what is
    /// allowed but rarely intended.
    #[command(after_help = EXAMPLES)]
    Check(FileArgs),
    /// Show the objects of a file.
    #[command(after_help = EXAMPLES)]
    Show(FileArgs),
    /// Explain what happens to a connection, step by step, and why.
    #[command(after_help = EXPLAIN)]
    Explain(explain::ExplainArgs),
    /// Compare two files: which objects are added, removed and changed.
    #[command(after_help = DIFF)]
    Diff(DiffArgs),
    /// Count network address usage against the quotas.
    #[command(after_help = NAU)]
    Nau(FileArgs),
}

/// Arguments of commands for one file.
#[derive(Args, Clone, Debug)]
pub(crate) struct FileArgs {
    /// The file.
    file: PathBuf,
    #[command(flatten)]
    json: JsonOutput,
}

/// Arguments of commands for two files.
#[derive(Args, Clone, Debug)]
pub(crate) struct DiffArgs {
    /// The file before the change.
    old: PathBuf,
    /// The file after the change.
    new: PathBuf,
    #[command(flatten)]
    json: JsonOutput,
}

/// Runs the command.
pub(crate) fn run(command: &VpcCommand) -> Result<u8> {
    match command {
        VpcCommand::Check(args) => check(args),
        VpcCommand::Show(args) => list::show(args),
        VpcCommand::Explain(args) => explain::run(args),
        VpcCommand::Diff(args) => list::diff(args),
        VpcCommand::Nau(args) => list::nau(args),
    }
}

fn read(file: &Path) -> Result<VpcFile> {
    srd_vpc_file::read(file).map_err(|error| Usage(error.to_string()).into())
}

/// Returns a warning for each instance type of a file that does not exist. It is no error: the file
/// may be for a later version with further types.
fn unknown_types(file: &VpcFile) -> impl Iterator<Item = String> {
    file.types.names().filter_map(|name| {
        let unknown = InstanceType::find(name).err()?;
        let error = file.types.error(name, format!("`{name}`: {unknown}"), "")?;
        let place = error.place?;
        Some(format!("{}:{}:{}: {}", error.file.display(), place.line, place.column, error.what))
    })
}

fn check(args: &FileArgs) -> Result<u8> {
    args.json.check()?;
    let file = read(&args.file)?;
    let world = &file.world;
    let counts = list::counts(world);
    let mut warnings = warnings(&file);
    warnings.extend(unknown_types(&file));
    let found = serde_json::json!({ "valid": true, "objects": counts, "warnings": warnings });
    args.json.write(&found)?;
    if !args.json.owns_stdout() {
        let counts: Vec<_> = counts.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
        say(format!("{} is valid: {}", args.file.display(), counts.join(", ")))?;
        for warning in warnings {
            say(format!("warning: {warning}"))?;
        }
    }
    Ok(0)
}
