//! `srd genkey`, `srd pubkey`, `srd genpsk`: print keys as text, one on each line, in the form of
//! `wg`.

use crate::failure::Usage;
use crate::output;
use crate::secret;
use anyhow::{Context, Result};
use srd_daemon::keys::SecretKey;
use std::io::Read;

/// Maximum number of bytes that are read for a key.
const INPUT_BYTES_MAX: u64 = 1024;

/// Kind of a secret key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Private,
    Preshared,
}

/// Prints a new secret.
pub(super) fn generate(kind: Kind) -> Result<()> {
    secret::warn_of_open_output("key");
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
