//! Read-only HTTP server for metrics and status pages: one request and one response per connection.
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

/// A tab of a page: a link to another part of the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tab {
    /// Name of the part.
    pub name: &'static str,
    /// Path of the part, relative to that of the present one.
    pub path: &'static str,
    /// Whether the part is the present one.
    pub is_present: bool,
}

/// Returns the HTML text `text` with `/*style*/` replaced by the style sheet, and `/*common*/` by
/// the JavaScript functions, that all pages share. `<!--tabs-->` is replaced by the tabs.
pub fn page(text: &str, tabs: &[Tab]) -> String {
    let text = text.replace("/*style*/", include_str!("page/style.css"));
    let text = text.replace("/*common*/", include_str!("page/common.js"));
    let link = |Tab { name, path, is_present }: &Tab| {
        let present = if *is_present { " aria-current=\"page\"" } else { "" };
        format!("<a href=\"{path}\"{present}>{name}</a>")
    };
    let links: String = tabs.iter().map(link).collect();
    let tabs = if links.is_empty() { links } else { format!("<nav class=\"tabs\">{links}</nav>") };
    text.replace("<!--tabs-->", &tabs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_its_tabs_or_no_sign_of_them() {
        let text = "<header></header><!--tabs--><p>";
        assert_eq!(page(text, &[]), "<header></header><p>");
        let tab = |name, path, is_present| Tab { name, path, is_present };
        let tabs = page(text, &[tab("A", "./", true), tab("B", "b/", false)]);
        let wanted = "<nav class=\"tabs\"><a href=\"./\" aria-current=\"page\">A</a>\
                      <a href=\"b/\">B</a></nav>";
        assert_eq!(tabs, format!("<header></header>{wanted}<p>"));
    }
}
