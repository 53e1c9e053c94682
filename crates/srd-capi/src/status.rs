//! Status numbers and their texts.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;

use srd_efa::layer::{Outcome as Ending, Refused};
use srd_host::CallError;

/// Status numbers of `srd.h`, which never change their meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
#[allow(missing_docs)] // described by `text`, and in `srd.h`
pub enum Status {
    Ok = 0,
    Invalid = -1,
    Handle = -2,
    Again = -3,
    Full = -4,
    TooLong = -5,
    NotFound = -6,
    System = -7,
    Forked = -8,
    Broken = -9,
    Interrupted = -10,
    Internal = -11,
    Canceled = -20,
    Truncated = -21,
    Unreachable = -22,
    TimedOut = -23,
    Restarted = -24,
    Removed = -25,
    Key = -26,
    Protocol = -27,
}

impl Status {
    /// Every status, with its name in `srd.h`.
    pub const ALL: [(Self, &'static str); 20] = [
        (Self::Ok, "SRD_OK"),
        (Self::Invalid, "SRD_EINVAL"),
        (Self::Handle, "SRD_EHANDLE"),
        (Self::Again, "SRD_EAGAIN"),
        (Self::Full, "SRD_EFULL"),
        (Self::TooLong, "SRD_ETOOLONG"),
        (Self::NotFound, "SRD_ENOTFOUND"),
        (Self::System, "SRD_ESYSTEM"),
        (Self::Forked, "SRD_EFORKED"),
        (Self::Broken, "SRD_EBROKEN"),
        (Self::Interrupted, "SRD_EINTERRUPTED"),
        (Self::Internal, "SRD_EINTERNAL"),
        (Self::Canceled, "SRD_ECANCELED"),
        (Self::Truncated, "SRD_ETRUNCATED"),
        (Self::Unreachable, "SRD_EUNREACHABLE"),
        (Self::TimedOut, "SRD_ETIMEDOUT"),
        (Self::Restarted, "SRD_ERESTARTED"),
        (Self::Removed, "SRD_EREMOVED"),
        (Self::Key, "SRD_EKEY"),
        (Self::Protocol, "SRD_EPROTOCOL"),
    ];

    /// Returns the number of the status in C.
    #[must_use]
    pub fn number(self) -> c_int {
        self as c_int
    }

    /// Returns the meaning of the status as text.
    #[must_use]
    pub fn text(self) -> &'static CStr {
        match self {
            Self::Ok => c"no error",
            Self::Invalid => c"an argument makes no sense",
            Self::Handle => {
                c"not an endpoint, peer or key, one of another endpoint, or one that was closed"
            }
            Self::Again => c"no room now: call srd_poll and try again",
            Self::Full => c"a limit is reached: give something back first",
            Self::TooLong => c"more bytes than this can carry",
            Self::NotFound => c"nothing of the kind is waiting",
            Self::System => c"the system refused: srd_last_error says what",
            Self::Forked => {
                c"the endpoint belongs to the process that forked this one: open another"
            }
            Self::Broken => c"the endpoint's sockets were lost: close it and open another",
            Self::Interrupted => c"a signal came first",
            Self::Internal => c"the library has failed: close the endpoint, and report it please",
            Self::Canceled => c"it was cancelled",
            Self::Truncated => c"the message was longer than the buffer",
            Self::Unreachable => {
                c"the peer never answered: it is gone, packets do not pass, or its key differs"
            }
            Self::TimedOut => c"the peer answered before and has gone silent",
            Self::Restarted => {
                c"the peer has restarted, or its address belongs to another endpoint now"
            }
            Self::Removed => c"the peer was disconnected here",
            Self::Key => c"the peer refused: no such key, out of bounds, or no right to it",
            Self::Protocol => c"the peer does not do this, or answered with what makes no sense",
        }
    }

    /// Returns the status with this number; `None` if no status has it.
    #[must_use]
    pub fn of(number: c_int) -> Option<Self> {
        Self::ALL.iter().map(|(status, _)| *status).find(|status| status.number() == number)
    }

    /// Returns the status for the outcome of an operation.
    #[must_use]
    pub fn of_ending(ending: Ending) -> Self {
        match ending {
            Ending::Ok => Self::Ok,
            Ending::Cancelled => Self::Canceled,
            Ending::Truncated(_) => Self::Truncated,
            Ending::NoMessage => Self::NotFound,
            Ending::Unreachable => Self::Unreachable,
            Ending::Unresponsive => Self::TimedOut,
            Ending::Restarted => Self::Restarted,
            Ending::Removed => Self::Removed,
            Ending::BadKey => Self::Key,
            Ending::Protocol | Ending::TooLong => Self::Protocol,
        }
    }
}

/// Reason why a call failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// Return value of the call.
    pub status: Status,
    /// Cause and remedy; `None`: the general text of the status is used.
    text: Option<String>,
}

/// Result of a call.
pub type Outcome<T = ()> = Result<T, Error>;

impl Error {
    /// Returns an error with a specific text.
    pub fn new(status: Status, text: impl Into<String>) -> Self {
        Self { status, text: Some(text.into()) }
    }

    /// Returns the error for an invalid argument.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::new(Status::Invalid, text)
    }

    /// Stores the text for `srd_last_error`. Returns the status number.
    pub fn keep(self) -> c_int {
        let text = match self.text {
            None => Cow::Borrowed(self.status.text()),
            Some(text) => Cow::Owned(CString::new(text).unwrap_or_default()),
        };
        // A thread that is ending stores no text.
        let _ = LAST.try_with(|last| *last.borrow_mut() = text);
        self.status.number()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => f.write_str(text),
            None => f.write_str(&self.status.text().to_string_lossy()),
        }
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        Self { status, text: None }
    }
}

impl From<CallError> for Error {
    fn from(gone: CallError) -> Self {
        Self::from(match gone {
            CallError::Forked => Status::Forked,
            CallError::Closed => Status::Handle,
            CallError::Broken => Status::Broken,
        })
    }
}

/// Converts errors of the Messaging Layer.
impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Again => Self::from(Status::Again),
            Refused::NoSuchPeer => {
                Self::new(Status::Handle, "the peer is not known any more: connect to it again")
            }
            Refused::TooLong => Self::from(Status::TooLong),
            Refused::Invalid => Self::from(Status::Invalid),
        }
    }
}

thread_local! {
    /// Text of the last error of this thread.
    static LAST: RefCell<Cow<'static, CStr>> = const { RefCell::new(Cow::Borrowed(c"")) };
}

/// Returns the text of this thread's last error. The pointer is valid until the next error of this
/// thread.
#[must_use]
pub fn last() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_status_has_its_own_number_name_and_text() {
        let numbers: BTreeSet<c_int> = Status::ALL.iter().map(|(s, _)| s.number()).collect();
        let names: BTreeSet<&str> = Status::ALL.iter().map(|(_, name)| *name).collect();
        let texts: BTreeSet<&CStr> = Status::ALL.iter().map(|(s, _)| s.text()).collect();
        assert_eq!((numbers.len(), names.len(), texts.len()), (20, 20, 20));
        assert_eq!(Status::of(-23), Some(Status::TimedOut));
        assert_eq!(Status::of(-12), None);
    }

    #[test]
    fn threads_have_their_own_last_error() {
        let number = Error::invalid("len: too much").keep();
        assert_eq!(number, -1);
        LAST.with(|last| assert_eq!(&**last.borrow(), c"len: too much"));
        std::thread::spawn(|| LAST.with(|last| assert_eq!(&**last.borrow(), c""))).join().unwrap();
    }
}
