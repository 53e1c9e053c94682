//! SRD for NCCL: the network plugin `libnccl-net-srd.so`.
//!
//! NCCL moves collectives between GPUs. What leaves a machine goes through a network plugin: NCCL
//! opens connections, each for one direction, and sends and receives with tags on them. Here a
//! connection is a number in the tags of SRD's Messaging Layer ([`srd_host`]), and everything of a
//! communicator on one interface shares one endpoint.
//!
//! | module | what |
//! |---|---|
//! | [`abi`] | NCCL's binary interface |
//! | [`entry`] | calls from C: pointers end here |
//! | [`settings`], [`device`] | the environment; the interfaces that are NCCL's devices |
//! | [`plugin`], [`context`] | what the process has; what purpose to a communicator |
//! | [`port`], [`sink`] | an endpoint; where the ends of its operations go |
//! | [`control`], [`wire`] | how connections come and go; what that looks like |
//! | [`listener`], [`sender`], [`receiver`] | what NCCL holds |
//! | [`flow`] | the requests of a connection |
//! | [`table`], [`log`] | handles that are checked; NCCL's log |
//!
//! # Handles that can be checked
//!
//! NCCL holds pointers that lead nowhere: each is looked up. So an object that was closed, or never
//! was one, is an error and not a crash.
//!
//! # Memory
//!
//! Buffers travel on as addresses ([`srd_host::memory`]). A connection that is closed while
//! requests are under way is waited for a moment; if they do not end, the whole endpoint is closed,
//! after which nothing touches NCCL's memory: see [`port::Port::abandon`].
//!
//! # Panics
//!
//! None crosses the border: each call catches it and says `ncclInternalError`.

pub mod abi;
pub mod context;
pub mod control;
pub mod device;
#[allow(unsafe_code, reason = "C calls here")]
pub mod entry;
pub mod flow;
pub mod listener;
pub mod log;
pub mod plugin;
pub mod port;
pub mod receiver;
pub mod sender;
pub mod settings;
pub mod sink;
pub mod table;
pub mod wire;

use abi::NcclResult;

/// Why a call failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// For NCCL.
    pub result: NcclResult,
    /// For a person.
    pub text: String,
}

/// What a call leads to.
pub type Outcome<T = ()> = Result<T, Fault>;

impl Fault {
    /// The operating system refused something.
    pub fn system(text: impl Into<String>) -> Self {
        Self { result: NcclResult::SystemError, text: text.into() }
    }

    /// A pointer or number that makes no sense.
    pub fn argument(text: impl Into<String>) -> Self {
        Self { result: NcclResult::InvalidArgument, text: text.into() }
    }

    /// The environment does not fit.
    pub fn usage(text: impl Into<String>) -> Self {
        Self { result: NcclResult::InvalidUsage, text: text.into() }
    }

    /// A peer is gone, or does not speak this protocol.
    pub fn remote(text: impl Into<String>) -> Self {
        Self { result: NcclResult::RemoteError, text: text.into() }
    }

    /// A bug, here or in NCCL.
    pub fn internal(text: impl Into<String>) -> Self {
        Self { result: NcclResult::InternalError, text: text.into() }
    }
}

impl From<srd_host::Gone> for Fault {
    fn from(gone: srd_host::Gone) -> Self {
        Self::system(gone.to_string())
    }
}
