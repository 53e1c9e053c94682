//! Figures over HTTP: one request, one answer, nothing that can be changed.
//!
//! Clients are not authenticated. So only requests from this machine are answered unless others
//! are allowed, and only under names of this machine: a page from elsewhere whose name resolves
//! to our address (DNS rebinding) gets no answer.
//!
//! Bounds: [`CONNECTIONS_MAX`] connections, one request each, of at most [`HEAD_BYTES_MAX`]
//! within [`HEAD_WAIT_MAX`]; if all are in use, a connection without a complete request is closed
//! for a new one; otherwise the address with the most connections loses its oldest to an address
//! that has at least two fewer.
//!
//! | module | what |
//! |---|---|
//! | `server` | connections |
//! | [`places`] | how many there may be, and which give way |
//! | `http` | one request read, one response written |
//! | `host` | whether a request came under a name of ours |
//! | `names` | the names of this machine |
#![forbid(unsafe_code)]

mod host;
mod http;
mod names;
pub mod places;
mod server;

pub use http::{
    HEAD_BYTES_MAX, HEAD_WAIT_MAX, HEADERS_MAX, RESPONSE_TAKEN_MAX, Request, Response, Status,
    query_value,
};
pub use names::host_name;
pub use server::{Answer, CONNECTIONS_MAX, Listener, Server};

/// A page, with the style and the functions that all pages have in the places of `/*style*/` and
/// `/*common*/`.
pub fn page(text: &str) -> String {
    let text = text.replace("/*style*/", include_str!("page/style.css"));
    text.replace("/*common*/", include_str!("page/common.js"))
}
