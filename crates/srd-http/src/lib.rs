//! Read-only HTTP server for figures: one request and one response per connection.
//!
//! Clients are not authenticated. So only requests from this machine are answered unless other
//! machines are allowed. Also, the request has to name this machine as its host: a foreign page
//! whose name resolves to our address (DNS rebinding) gets no answer.
//!
//! Bounds: [`CONNECTIONS_MAX`] connections, with one request each of at most [`HEAD_BYTES_MAX`]
//! within [`HEAD_WAIT_MAX`]. If all slots are in use, a new connection replaces the oldest
//! connection without a complete request. If all requests are complete, the address with the most
//! connections loses its oldest one to an address that has at least two connections fewer.
//!
//! | module | content |
//! |---|---|
//! | `server` | connections |
//! | [`places`] | slots of connections, and their replacement |
//! | `http` | reading a request, writing a response |
//! | [`exposition`] | the answer to a request for metrics |
//! | `host` | check that a request names this machine |
//! | `names` | the names of this machine |
#![forbid(unsafe_code)]

pub mod exposition;
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

/// Returns the HTML text `text` with `/*style*/` replaced by the style sheet, and `/*common*/` by
/// the JavaScript functions, that all pages share.
pub fn page(text: &str) -> String {
    let text = text.replace("/*style*/", include_str!("page/style.css"));
    text.replace("/*common*/", include_str!("page/common.js"))
}
