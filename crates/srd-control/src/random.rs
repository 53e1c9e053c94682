//! Random bytes of the kernel.

use ring::rand::{SecureRandom, SystemRandom};

/// Draws bytes.
///
/// # Errors
/// If the kernel gives no random bytes.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| "the kernel gives no random bytes".to_owned())?;
    Ok(bytes)
}

/// Draws a number of 64 bits.
///
/// # Errors
/// If the kernel gives no random bytes.
pub(crate) fn number() -> Result<u64, String> {
    bytes().map(u64::from_le_bytes)
}
