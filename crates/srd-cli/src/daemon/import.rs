//! `srd import`: converts the configuration of a WireGuard interface to a configuration of `srd
//! up`.

use crate::failure::Usage;
use crate::output::{self, tell};
use anyhow::Result;
use clap::Args;
use srd_daemon::config::FILE_BYTES_MAX;
use srd_daemon::config::wireguard::{self, Names};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

const NOTES: &str = "\
Every file that wg(8) and wg-quick(8) take is read. The keys stay the same: comments in the result
say which commands put them into their files. What has no counterpart becomes a comment, and a line
on standard error names it. The result is checked by: srd up -c FILE --check";

/// `srd import`.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct ImportArgs {
    /// The file, for example /etc/wireguard/wg0.conf.
    file: PathBuf,
    /// The name of the new interface.
    #[arg(long, value_name = "NAME", default_value = "srd0")]
    interface: String,
    /// Path at which the private key will be stored.
    #[arg(long, value_name = "FILE", default_value = "/etc/srd/private.key")]
    key_file: String,
}

/// Runs `srd import`.
pub(super) fn run(args: &ImportArgs) -> Result<()> {
    let file = args.file.display().to_string();
    let text = read(&args.file)?;
    let names = Names { file: &file, interface: &args.interface, key_file: &args.key_file };
    let made = wireguard::convert(&text, names).map_err(Usage)?;
    output::say(made.text.trim_end())?;
    if !made.left_out.is_empty() {
        let left_out = made.left_out.join(", ");
        tell!("srd: not taken over, as comments in the result say: {left_out}");
    }
    Ok(())
}

/// Returns the text of a WireGuard configuration. Comments may be in any encoding, because `wg`
/// ignores them.
fn read(path: &Path) -> Result<String> {
    let shown = path.display();
    let refused = |e: std::io::Error| Usage(format!("cannot read {shown}: {e}"));
    let file = File::open(path).map_err(refused)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(refused)?;
    if bytes.len() > FILE_BYTES_MAX {
        let text = format!("{shown} has more than {FILE_BYTES_MAX} bytes: is it the right file?");
        return Err(Usage(text).into());
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        let text = format!("{shown} is UTF-16: write it as UTF-8, as by iconv -f utf-16 -t utf-8");
        return Err(Usage(text).into());
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
