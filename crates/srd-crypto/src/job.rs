//! Session secrets from a key that every member of a job shares. They need no public keys, no
//! scalar multiplications, and no round trip before the first packet, unless bound secrets are
//! required.
//!
//! Each side draws a 16-byte salt and has an epoch. Both are sent unencrypted in the side's first
//! packets, until the peer has shown that it has received them. The secrets of each direction are:
//!
//! ```text
//! early:  HKDF(ikm = job key, salt = sender's salt,
//!              info = "OpenSRD/2 job early " || sender's epoch || context)
//! bound:  HKDF(ikm = job key, salt = sender's salt,
//!              info = "OpenSRD/2 job bound " || sender's epoch
//!                     || receiver's salt || receiver's epoch || context)
//! ```
//!
//! New salts give new keys, so packet numbers may start at zero in every session. A collision of
//! salts is expected after about 2^64 sessions of one job key.
//!
//! # Early or bound
//!
//! An **early** secret can be computed before the first packet of the peer arrives. This is its use
//! and its weakness: it does not depend on the receiver. A recorded first flight can be opened
//! again by a receiver that has lost its state (restart, reclaimed context), by any *other* member
//! of the job, and, if reflected, by its own sender. Then delivery is no longer at most once. Early
//! secrets protect greetings. They protect datagrams only if the fabric is trusted not to record
//! and resend packets, and if the configuration permits it.
//!
//! A **bound** secret depends on the salt that the receiver drew for this session. A flight that
//! was recorded elsewhere or earlier does not open. A bound secret costs the round trip in which
//! the salts are exchanged.
//!
//! # What a job key cannot do
//!
//! Every member can impersonate every other member, and an attacker that obtains the key can read
//! all recorded traffic of the job. Draw a random key for each job (it is a key, not a password),
//! and delete the key when the job ends.

use super::kdf::{LABEL, SessionSecret, SessionSecrets, derive};

/// Bytes of a session salt.
pub const SALT_BYTES: usize = 16;

/// Public contribution of one side to a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobSide {
    /// Uniformly random salt, drawn for this session.
    pub salt: [u8; SALT_BYTES],
    /// Epoch of the side, which identifies its run.
    pub epoch: u64,
}

/// Returns the secret for packets that `sender` seals before it has received a packet from the
/// receiver.
///
/// `context`: shared data that the secret is bound to, such as the number of a job. A receiver has
/// to refuse a packet with its own salt before it calls this function, because such a packet is a
/// reflection.
pub fn early_secret(job_key: &[u8; 32], sender: &JobSide, context: &[u8]) -> SessionSecret {
    // S19: Secrets of job sessions
    let epoch = sender.epoch.to_be_bytes();
    let info = [LABEL, b"job early ", &epoch, context];
    SessionSecret::from_bytes(derive(&sender.salt, job_key, &info))
}

/// Returns the secrets of a session between `ours` and `theirs`, after both salts have been
/// exchanged; `None` if the salts are equal, which means that our own greeting was reflected.
pub fn bound_secrets(
    job_key: &[u8; 32],
    ours: &JobSide,
    theirs: &JobSide,
    context: &[u8],
) -> Option<SessionSecrets> {
    // S18: Salts of job sessions
    (ours.salt != theirs.salt).then(|| SessionSecrets {
        send: bound_secret(job_key, ours, theirs, context),
        receive: bound_secret(job_key, theirs, ours, context),
    })
}

fn bound_secret(
    job_key: &[u8; 32],
    sender: &JobSide,
    receiver: &JobSide,
    context: &[u8],
) -> SessionSecret {
    // S19: Secrets of job sessions
    let (sent, received) = (sender.epoch.to_be_bytes(), receiver.epoch.to_be_bytes());
    let info = [LABEL, b"job bound ", &sent, &receiver.salt, &received, context];
    SessionSecret::from_bytes(derive(&sender.salt, job_key, &info))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::hex;

    const A: JobSide = JobSide { salt: [1; 16], epoch: 10 };
    const B: JobSide = JobSide { salt: [2; 16], epoch: 20 };

    /// Compares with values that Python's hmac module has computed. A changed label fails this
    /// test.
    #[test]
    fn the_derivation_yields_known_secrets() {
        let early = early_secret(&[7; 32], &A, b"job 5");
        assert_eq!(
            early.bytes()[..],
            hex("8408ed6d141df65069e630f677cad6f6643ff201603eb3a1270e33eac8e96c43")[..]
        );
        let bound = bound_secrets(&[7; 32], &A, &B, b"job 5").unwrap();
        assert_eq!(
            bound.send.bytes()[..],
            hex("82b1494085d50c552c26046d577d5d833c97818f2a1cde05e701a9108be47f33")[..]
        );
    }

    #[test]
    fn both_sides_derive_the_same_secrets_crosswise() {
        let a = bound_secrets(&[7; 32], &A, &B, b"job 5").unwrap();
        let b = bound_secrets(&[7; 32], &B, &A, b"job 5").unwrap();
        assert_eq!(a.send.bytes(), b.receive.bytes());
        assert_eq!(a.receive.bytes(), b.send.bytes());
        assert_ne!(a.send.bytes(), a.receive.bytes());
    }

    #[test]
    fn every_input_matters() {
        let secret = |key: u8, ours: JobSide, theirs: JobSide, context: &[u8]| {
            *bound_secrets(&[key; 32], &ours, &theirs, context).unwrap().send.bytes()
        };
        let all = [
            secret(7, A, B, b""),
            secret(8, A, B, b""),
            secret(7, JobSide { salt: [3; 16], ..A }, B, b""),
            secret(7, JobSide { epoch: 11, ..A }, B, b""),
            secret(7, A, JobSide { salt: [3; 16], ..B }, b""),
            secret(7, A, JobSide { epoch: 21, ..B }, b""),
            secret(7, A, B, b"x"),
            *early_secret(&[7; 32], &A, b"").bytes(),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|b| a != b));
        }
    }

    #[test]
    fn a_reflected_greeting_is_refused() {
        let reflected = JobSide { epoch: 99, ..A };
        assert!(bound_secrets(&[7; 32], &A, &reflected, b"").is_none());
    }
}
