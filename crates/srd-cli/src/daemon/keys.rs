//! `srd genkey`, `srd pubkey`, `srd genpsk`: print keys as text, one on each line, in the form of
//! `wg`.

use crate::failure::Usage;
use crate::output::{self, tell};
use anyhow::{Context, Result};
use srd_daemon::keys::SecretKey;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

/// Maximum number of bytes that are read for a key.
const INPUT_BYTES_MAX: u64 = 1024;
/// Mode bits with which users other than the owner may read or change a file.
const OTHERS: u32 = 0o077;

/// Kind of a secret key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Private,
    Preshared,
}

/// Prints a new secret.
pub(super) fn generate(kind: Kind) -> Result<()> {
    if is_open_file(&io::stdout()) {
        tell!(
            "srd: warning: others may use the file that this key goes to; \
             set `umask 077` first, or chmod 600 it now"
        );
    }
    let key = match kind {
        Kind::Private => SecretKey::draw_private(),
        Kind::Preshared => SecretKey::draw(),
    };
    output::say(key.context("no random numbers from the kernel")?.expose())
}

/// Prints the public key of the private key in the input.
pub(super) fn public(input: impl Read) -> Result<()> {
    let mut text = String::new();
    let read = input.take(INPUT_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|e| Usage(format!("cannot read a key from standard input: {e}")))?;
    let key = SecretKey::parse(&text)
        .map_err(|e| Usage(format!("what came on standard input is no key: {e}")))?;
    output::say(key.public())
}

/// Whether the output is a file that users other than its owner may read or change.
fn is_open_file(to: &impl AsFd) -> bool {
    let facts = to.as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
    facts.is_ok_and(|facts| facts.is_file() && facts.mode() & OTHERS != 0)
}
