//! Checks of each request before its credentials are read.
//!
//! A browser on this machine also sends requests on behalf of web pages of strangers. Such a
//! request has an `Origin` or a `Sec-Fetch-Site` header, or, if the name of the page's server
//! resolves to a loopback address (DNS rebinding), the name of that server in `Host`.

use std::net::IpAddr;

use crate::error::{ApiError, ApiResult};
use crate::http::HttpRequest;

/// Refuses requests that pages of other servers cause. If `local` is set, the header `Host` has to
/// name a loopback address or `localhost`.
///
/// # Errors
/// With status 403, if the request has not exactly one header `Host`, if that header names another
/// machine, and if the request has the header `Origin` or comes from another site.
pub fn check(request: &HttpRequest, local: bool) -> ApiResult<()> {
    let refused = |message| Err(ApiError::with_status(403, "AccessDenied", message));
    let values = |name: &'static str| {
        request.headers.iter().filter(move |(header, _)| header == name).map(|(_, v)| v.trim())
    };
    let mut hosts = values("host");
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return refused("The request has not exactly one Host header.");
    };
    if local && !is_loopback(host) {
        return refused("The Host header names neither a loopback address nor localhost.");
    }
    if values("origin").next().is_some() {
        return refused("Requests of web pages, which have an Origin header, are not served.");
    }
    if values("sec-fetch-site").any(|site| !["none", "same-origin"].contains(&site)) {
        return refused("Requests of pages of other sites are not served.");
    }
    Ok(())
}

/// Whether a `Host` header, with or without a port, names a loopback address or `localhost`.
fn is_loopback(host: &str) -> bool {
    let (name, port) = match host.rfind(':') {
        Some(colon) if !host.ends_with(']') => (&host[..colon], &host[colon + 1..]),
        _ => (host, "0"),
    };
    if port.parse::<u16>().is_err() || !port.bytes().all(|b| b.is_ascii_digit()) {
        return false;
    }
    let address = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(name) => name.parse().map(IpAddr::V6),
        None => name.parse().map(IpAddr::V4),
    };
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(headers: &[(&str, &str)], local: bool) -> u16 {
        let headers = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let (method, path) = ("POST".to_owned(), "/".to_owned());
        let request = HttpRequest { method, path, query: String::new(), headers, body: Vec::new() };
        check(&request, local).map_or_else(|error| error.status, |()| 200)
    }

    #[test]
    fn names_of_this_machine_are_served() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:4599",
            "127.9.9.9:1",
            "[::1]",
            "[::1]:4599",
            "localhost",
            "LOCALHOST:4599",
        ] {
            assert_eq!(status(&[("host", host)], true), 200, "{host}");
        }
        for host in [
            "",
            ":",
            ":80",
            "evil.example",
            "evil.example:4599",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "10.0.0.1",
            "::1",
            "[::1",
            "[::2]",
            "127.0.0.1:http",
            "127.0.0.1:",
            "localhost:+80",
            "localhost:80:80",
            "localhost:99999",
            "[127.0.0.1]",
        ] {
            assert_eq!(status(&[("host", host)], true), 403, "{host}");
        }
        assert_eq!(status(&[("host", "ec2.example")], false), 200);
        assert_eq!(status(&[], false), 403);
        assert_eq!(status(&[("host", "localhost"), ("host", "localhost")], true), 403);
    }

    #[test]
    fn requests_of_web_pages_are_refused() {
        let with = |name, value| status(&[("host", "localhost"), (name, value)], false);
        assert_eq!(with("origin", "https://evil.example"), 403);
        assert_eq!(with("origin", "null"), 403);
        assert_eq!(with("sec-fetch-site", "cross-site"), 403);
        assert_eq!(with("sec-fetch-site", "same-site"), 403);
        assert_eq!(with("sec-fetch-site", "none"), 200);
        assert_eq!(with("sec-fetch-site", "same-origin"), 200);
    }
}
