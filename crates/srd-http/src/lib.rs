//! Figures over HTTP: one request, one answer, nothing that can be changed.
//!
//! Nothing identifies a client. So only this machine is answered unless others are allowed, and
//! only under names that are this machine's: a page from elsewhere whose name was bent to our
//! address (DNS rebinding) gets nothing.
//!
//! Bounds: [`CONNECTIONS_MAX`] connections, one request each, of at most [`HEAD_BYTES_MAX`] within
//! [`HEAD_WAIT_MAX`]; one that has not asked gives its place up if all are taken, and otherwise the
//! address with the most of them gives up its oldest to another that has two fewer or less.
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
