//! `srd peer add` and `srd peer remove`: change the peers of a running daemon.

use super::complete::peer_names;
use super::{Target, explain};
use crate::failure::Usage;
use crate::output;
use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use rustix::fs::OFlags;
use srd_daemon::config::{FILE_BYTES_MAX, PeerForm, ReloadReport, edit};
use srd_daemon::control::Request;
use srd_daemon::snapshot::Snapshot;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

const ADD: &str = super::with_codes!(
    "  srd peer add b --public-key KEY --endpoint 192.0.2.2:7471 --allowed 10.77.0.2\n  \
     srd peer add c --public-key KEY --allowed 10.77.0.3,10.78.0.0/16 --save"
);
const REMOVE: &str = super::with_codes!("  srd peer remove b\n  srd peer remove b --save");

/// `srd peer`.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum PeerCommand {
    /// Add a peer: until the next restart or reload, or for good with --save.
    #[command(after_help = ADD)]
    Add(AddArgs),
    /// Remove a peer: until the next restart or reload, or for good with --save.
    #[command(after_help = REMOVE)]
    Remove(RemoveArgs),
}

/// `srd peer add`.
#[derive(Args, Clone, Debug)]
pub(crate) struct AddArgs {
    /// Name for the peer.
    name: String,
    /// Public key of the peer. Needed with encryption.
    #[arg(long, value_name = "KEY")]
    public_key: Option<String>,
    /// Address or name of the peer, with the port. Without it, this side waits for the peer's
    /// packets.
    #[arg(long, value_name = "ADDRESS:PORT")]
    endpoint: Option<String>,
    /// Inner addresses or prefixes behind the peer, separated by commas.
    #[arg(long, value_name = "PREFIX", required = true, value_delimiter = ',', num_args = 1..)]
    allowed: Vec<String>,
    /// File with an additional key that both sides share, as `srd genpsk` prints it. Default: no
    /// such key.
    #[arg(long, value_name = "FILE")]
    preshared_key_file: Option<PathBuf>,
    /// Do not send packets to the peer over SRD.
    #[arg(long)]
    no_express: bool,
    #[command(flatten)]
    common: CommonArgs,
}

/// `srd peer remove`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RemoveArgs {
    /// Name of the peer, or the beginning of its public key.
    #[arg(add = ArgValueCandidates::new(peer_names))]
    name: String,
    #[command(flatten)]
    common: CommonArgs,
}

/// Arguments of both commands.
#[derive(Args, Clone, Debug)]
struct CommonArgs {
    /// Change the configuration file, too. Everything else in the file stays as it is.
    #[arg(long)]
    save: bool,
    #[command(flatten)]
    target: Target,
}

/// Runs `srd peer`.
pub(super) fn run(command: &PeerCommand) -> Result<u8> {
    match command {
        PeerCommand::Add(args) => {
            let form = args.form()?;
            let request = Request::AddPeer(form.clone());
            change(&args.common, &request, |text, path| edit::add(text, path, &form).map(Some))
        }
        PeerCommand::Remove(args) => {
            let request = Request::RemovePeer { peer: args.name.clone() };
            change(&args.common, &request, |text, path| edit::remove(text, path, &args.name))
        }
    }
}

impl AddArgs {
    fn form(&self) -> Result<PeerForm> {
        // The daemon reads this file, and may run in another directory, so the path must be
        // absolute.
        let absolute = |file: &PathBuf| {
            let found = std::path::absolute(file).context("the file with the preshared key")?;
            Ok::<_, anyhow::Error>(found.display().to_string())
        };
        Ok(PeerForm {
            name: self.name.clone(),
            public_key: self.public_key.clone(),
            preshared_key_file: self.preshared_key_file.as_ref().map(absolute).transpose()?,
            endpoint: self.endpoint.clone(),
            allowed: self.allowed.clone(),
            express: self.no_express.then_some(false),
            express_udp: None,
        })
    }
}

/// New text of the configuration file; `None` if the text stays unchanged.
type Edited = Result<Option<String>, srd_daemon::config::ConfigError>;

/// Sends the change to the running daemon and then, with --save, changes the configuration file.
fn change(
    args: &CommonArgs,
    request: &Request,
    edit: impl FnOnce(&str, &Path) -> Edited,
) -> Result<u8> {
    let path = PathBuf::from(args.target.ask::<Snapshot>(&Request::status())?.file);
    // The text is edited first, so that an error in it prevents both changes.
    let edited = if args.save { Some(edited(path, edit)?) } else { None };
    let report = args.target.connect()?.ask::<ReloadReport>(request).map_err(explain)?;
    // The file is changed even if the reader of the report has left.
    let said = output::say(&report);
    if !report.failed.is_empty() {
        output::unless_closed(said)?;
        return Ok(crate::failure::RUN);
    }
    let end = match edited {
        None => "until the next restart or reload; --save changes the file, too".to_owned(),
        Some((file, None)) => format!("{} has no such peer, and stays", file.path.display()),
        Some((file, Some(text))) => {
            let what = || {
                format!(
                    "it is so until the next restart or reload, but cannot be saved to {}",
                    file.path.display()
                )
            };
            file.replace(&text).with_context(what)?;
            format!("saved to {}", file.path.display())
        }
    };
    said.and_then(|()| output::say(end))?;
    Ok(0)
}

fn edited(
    path: PathBuf,
    edit: impl FnOnce(&str, &Path) -> Edited,
) -> Result<(ConfigFile, Option<String>)> {
    let refused = |e: io::Error| Usage(format!("cannot read {}: {e}", path.display()));
    let (file, text) = ConfigFile::read(&path).map_err(refused)?;
    let edited = edit(&text, &path)?;
    Ok((file, edited))
}

/// A configuration file that was read and will be replaced. The daemon reports its path, and is not
/// trusted. So the file is replaced only if it is still the file that was read.
#[derive(Debug)]
struct ConfigFile {
    /// Path of the file with all links resolved, so that a link to the file is not replaced.
    path: PathBuf,
    facts: Metadata,
}

impl ConfigFile {
    fn read(path: &Path) -> io::Result<(Self, String)> {
        let path = fs::canonicalize(path)?;
        // Without O_NONBLOCK, opening a FIFO would wait for a writer.
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
        let flags = flags.bits().cast_signed();
        let file = File::options().read(true).custom_flags(flags).open(&path)?;
        let facts = file.metadata()?;
        if !facts.is_file() {
            return Err(io::Error::other("it is no ordinary file"));
        }
        let mut text = String::new();
        file.take(FILE_BYTES_MAX as u64 + 1).read_to_string(&mut text)?;
        if text.len() > FILE_BYTES_MAX {
            return Err(io::Error::other(format!("it has more than {FILE_BYTES_MAX} bytes")));
        }
        Ok((Self { path, facts }, text))
    }

    /// Replaces the file with a new one of the same owner and mode. At every moment, the path leads
    /// to a complete file.
    fn replace(&self, text: &str) -> Result<()> {
        let Self { path, facts } = self;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let new = path.with_file_name(name);
        // An interrupted run may have left this file.
        let _ = fs::remove_file(&new);
        // Only the bits for reading and writing are kept, because the content is new.
        let mode = facts.mode() & 0o666;
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
        let written = fchown(&file, Some(facts.uid()), Some(facts.gid()))
            .and_then(|()| file.set_permissions(Permissions::from_mode(mode)))
            .and_then(|()| file.write_all(text.as_bytes()))
            .and_then(|()| file.sync_all())
            .and_then(|()| self.check_unchanged())
            .and_then(|()| fs::rename(&new, path));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        Ok(written?)
    }

    fn check_unchanged(&self) -> io::Result<()> {
        let now = fs::symlink_metadata(&self.path)?;
        let key = |m: &Metadata| (m.dev(), m.ino(), m.size(), m.mtime(), m.mtime_nsec());
        if key(&now) == key(&self.facts) {
            return Ok(());
        }
        Err(io::Error::other("another program changed it meanwhile; try again"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_with_its_owner_and_mode_and_a_link_to_it_stays() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("a.toml"), directory.path().join("link"));
        fs::write(&path, "one").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let (file, text) = ConfigFile::read(&link).unwrap();
        assert_eq!(text, "one");
        file.replace("two").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&link).unwrap(), "two");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
    }

    #[test]
    fn regression_a_file_that_was_swapped_lends_neither_its_owner_nor_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("a.toml"), "one").unwrap();
        fs::set_permissions(at("a.toml"), Permissions::from_mode(0o4755)).unwrap();
        let (file, _) = ConfigFile::read(&at("a.toml")).unwrap();
        file.replace("two").unwrap();
        assert_eq!(fs::metadata(at("a.toml")).unwrap().mode() & 0o7777, 0o644);
        // The file is changed after it was read: by a link, or by another program.
        let (file, _) = ConfigFile::read(&at("a.toml")).unwrap();
        fs::rename(at("a.toml"), at("b.toml")).unwrap();
        std::os::unix::fs::symlink(at("b.toml"), at("a.toml")).unwrap();
        assert!(file.replace("three").unwrap_err().to_string().contains("meanwhile"));
        assert_eq!(fs::read_to_string(at("b.toml")).unwrap(), "two");
        assert!(!at("a.toml.new").exists());
        assert!(ConfigFile::read(directory.path()).is_err());
    }
}
