//! Checks of each request before its credentials are read.
//!
//! A browser on this machine also sends requests on behalf of web pages of strangers. Such a
//! request has an `Origin` or a `Sec-Fetch-Site` header, or, if the name of the page's server
//! resolves to a loopback address (DNS rebinding), the name of that server in `Host`.

use std::net::{IpAddr, Ipv6Addr};

use crate::error::{ApiError, ApiResult};
use crate::http::HttpRequest;

/// Servers that the header `Host` may name.
#[derive(Clone, Copy)]
pub enum Hosts<'a> {
    /// Any server.
    Any,
    /// Loopback addresses and `localhost`.
    Local,
    /// Loopback addresses and `localhost`, and the names and addresses that this function accepts.
    Named(&'a dyn Fn(&str) -> bool),
}

impl std::fmt::Debug for Hosts<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Any => "Any",
            Self::Local => "Local",
            Self::Named(_) => "Named",
        })
    }
}

/// Refuses requests that pages of other servers cause.
///
/// # Errors
/// With status 403, if the request has not exactly one header `Host`, if that header names another
/// server, and if the request has the header `Origin` or comes from another site.
pub fn check(request: &HttpRequest, accepted: Hosts<'_>) -> ApiResult<()> {
    let refused = |message| Err(ApiError::with_status(403, "AccessDenied", message));
    let values = |name: &'static str| {
        request.headers.iter().filter(move |(header, _)| header == name).map(|(_, v)| v.trim())
    };
    let mut hosts = values("host");
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return refused("The request has not exactly one Host header.");
    };
    let name = name(host);
    let is_local = name.is_some_and(is_loopback);
    match accepted {
        Hosts::Local if !is_local => {
            return refused("The Host header names neither a loopback address nor localhost.");
        }
        Hosts::Named(is_own) if !is_local && !name.is_some_and(is_own) => {
            return refused("The Host header names neither this server nor a loopback address.");
        }
        _ => {}
    }
    if values("origin").next().is_some() {
        return refused("Requests of web pages, which have an Origin header, are not served.");
    }
    if values("sec-fetch-site").any(|site| !["none", "same-origin"].contains(&site)) {
        return refused("Requests of pages of other sites are not served.");
    }
    Ok(())
}

/// Returns the name or the address in a `Host` header, without the port; `None` if the header is
/// malformed.
fn name(host: &str) -> Option<&str> {
    let (name, port) = match host.rfind(':') {
        Some(colon) if !host.ends_with(']') => (&host[..colon], &host[colon + 1..]),
        _ => (host, "0"),
    };
    if port.parse::<u16>().is_err() || !port.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok().then_some(address),
        None => (!name.contains(':')).then_some(name),
    }
}

fn is_loopback(name: &str) -> bool {
    let address = name.parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(headers: &[(&str, &str)], accepted: Hosts<'_>) -> u16 {
        let headers = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let (method, path) = ("POST".to_owned(), "/".to_owned());
        let request = HttpRequest { method, path, query: String::new(), headers, body: Vec::new() };
        check(&request, accepted).map_or_else(|error| error.status, |()| 200)
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
            assert_eq!(status(&[("host", host)], Hosts::Local), 200, "{host}");
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
            assert_eq!(status(&[("host", host)], Hosts::Local), 403, "{host}");
        }
        assert_eq!(status(&[("host", "ec2.example")], Hosts::Any), 200);
        assert_eq!(status(&[], Hosts::Any), 403);
        assert_eq!(status(&[("host", "localhost"), ("host", "localhost")], Hosts::Local), 403);
    }

    #[test]
    fn a_server_on_a_network_is_served_under_its_names() {
        let is_own = |name: &str| ["ec2.example", "10.0.0.1", "fd00::1"].contains(&name);
        let status = |host: &str| status(&[("host", host)], Hosts::Named(&is_own));
        for host in
            ["ec2.example", "ec2.example:443", "10.0.0.1:80", "[fd00::1]:443", "[::1]", "localhost"]
        {
            assert_eq!(status(host), 200, "{host}");
        }
        for host in ["", "evil.example", "10.0.0.2", "fd00::1", "ec2.example:x", "[ec2.example]"] {
            assert_eq!(status(host), 403, "{host}");
        }
    }

    #[test]
    fn requests_of_web_pages_are_refused() {
        let with = |name, value| status(&[("host", "localhost"), (name, value)], Hosts::Any);
        assert_eq!(with("origin", "https://evil.example"), 403);
        assert_eq!(with("origin", "null"), 403);
        assert_eq!(with("sec-fetch-site", "cross-site"), 403);
        assert_eq!(with("sec-fetch-site", "same-site"), 403);
        assert_eq!(with("sec-fetch-site", "none"), 200);
        assert_eq!(with("sec-fetch-site", "same-origin"), 200);
    }
}
