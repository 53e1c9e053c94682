//! Sharing of memory with peers.

use srd_efa::Access;
use srd_efa::layer::{Refused, Shared};
use srd_host::{Call, Span};

use crate::endpoint::Endpoint;
use crate::shares::SHARES_MAX;
use crate::sink::EventSink;
use crate::{Error, Outcome, Status};

/// Access flag: peers may read the memory.
pub const SRD_SHARE_READ: u32 = 1;
/// Access flag: peers may write the memory.
pub const SRD_SHARE_WRITE: u32 = 2;

impl Endpoint {
    /// Shares memory with peers. Returns the key that a peer needs for access.
    ///
    /// # Errors
    /// `Invalid` if the length is zero or `access` is invalid; `Full` if the limit of shared areas
    /// is reached.
    ///
    /// # Safety
    /// The memory must be valid until [`Endpoint::unshare`] has returned or the endpoint was
    /// closed.
    #[allow(unsafe_code, reason = "the program vouches for its memory")]
    pub unsafe fn share(&self, span: Span, access: u32) -> Outcome<u64> {
        let (read, write) = (access & SRD_SHARE_READ != 0, access & SRD_SHARE_WRITE != 0);
        if !(read || write) || access & !(SRD_SHARE_READ | SRD_SHARE_WRITE) != 0 {
            let text = "access: give SRD_SHARE_READ, SRD_SHARE_WRITE or both";
            return Err(Error::invalid(text));
        }
        if span.length == 0 {
            return Err(Error::invalid("len: there is nothing to share in zero bytes"));
        }
        let access = Access { local_write: write, remote_write: write, remote_read: read };
        let key = random()?;
        // SAFETY: the caller fulfils the conditions of `# Safety`.
        unsafe { self.handle().call(|call| enter(call, span, access, key)) }?
    }

    /// Ends the sharing of memory. After the return no peer accesses the memory.
    ///
    /// # Errors
    /// `Handle` if no shared memory has the key.
    #[allow(unsafe_code, reason = "every call of a host is unsafe")]
    pub fn unshare(&self, key: u64) -> Outcome {
        // SAFETY: the call names no memory.
        unsafe {
            self.handle().call(|call| {
                let number = call.sink.shares.remove(key)?;
                call.layer.unshare(key);
                call.memory.remove(number);
                Ok(())
            })
        }?
    }
}

fn enter(call: Call<'_, EventSink>, span: Span, access: Access, key: u64) -> Outcome<u64> {
    let number = call.sink.shares.add(key, SHARES_MAX)?;
    call.memory.add(number, Box::new([span]));
    let (region, length) = (u64::from(number.0), span.length as u64);
    let shared = Shared { region, addr: 0, length, rkey: key, access };
    call.layer.share(shared).map_err(|refused| {
        call.memory.remove(number);
        let _ = call.sink.shares.remove(key);
        match refused {
            Refused::Again => Status::Full.into(),
            other => Error::from(other),
        }
    })?;
    Ok(key)
}

/// Returns a random key.
fn random() -> Outcome<u64> {
    let secret = srd_net::clock::secret();
    let failed =
        |error: std::io::Error| Error::new(Status::System, format!("no random numbers: {error}"));
    secret.map(|secret| secret.word()).map_err(failed)
}
