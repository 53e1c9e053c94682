//! Instance metadata over HTTP, version 2: first a token, then the data of the instance.
//!
//! A program that can make the instance send a plain GET (an open proxy, a forged request of a
//! browser) gets nothing: a token needs a PUT with a special header, and a request for one that a
//! proxy has forwarded is refused. Source: EC2 User Guide, *Use the Instance Metadata Service*.

use std::collections::BTreeMap;

use srd_proto::time::{Duration, Instant};

use super::facts::ServiceData;
use super::tokens::Tokens;

/// Maximum number of headers of a request.
const HEADERS_MAX: usize = 32;
/// Maximum size of a request in bytes.
pub(super) const REQUEST_BYTES_MAX: usize = 2048;
/// Permitted lifetimes of a token in seconds.
const TTL_S: std::ops::RangeInclusive<u64> = 1..=21_600;
const TTL_HEADER: &str = "x-aws-ec2-metadata-token-ttl-seconds";
const TOKEN_HEADER: &str = "x-aws-ec2-metadata-token";
const TOKEN_PATH: &str = "/latest/api/token";
const ROOT: &str = "/latest/meta-data";

/// A request of a guest to the metadata service.
#[derive(Debug)]
pub(super) struct GuestRequest<'a> {
    pub(super) now: Instant,
    pub(super) request: &'a [u8],
    /// Whether the guest has closed its side of the connection.
    pub(super) is_over: bool,
}

/// Returns the answer to a request; `None` while the request is incomplete.
pub(super) fn answer(
    asked: &GuestRequest<'_>,
    facts: &ServiceData,
    tokens: &Tokens,
    secret: impl FnOnce() -> Option<[u8; 32]>,
) -> Option<Vec<u8>> {
    let (now, bytes, of) = (asked.now, asked.request, facts.instance);
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        _ if bytes.is_empty() => return None,
        Ok(httparse::Status::Partial) if asked.is_over => return Some(say(400, "", &[], false)),
        Ok(httparse::Status::Partial) if bytes.len() < REQUEST_BYTES_MAX => return None,
        Ok(httparse::Status::Partial) => return Some(say(431, "", &[], false)),
        Err(_) => return Some(say(400, "", &[], false)),
    }
    let header = |name: &str| {
        let found = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        found.map(|header| header.value)
    };
    let path = request.path.unwrap_or_default();
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let head_only = request.method == Some("HEAD");
    Some(match request.method {
        Some("PUT") if path.trim_end_matches('/') == TOKEN_PATH => {
            let Some(ttl) = header(TTL_HEADER).and_then(seconds) else {
                return Some(say(400, "", &[], false));
            };
            if header("x-forwarded-for").is_some() {
                return Some(say(403, "", &[], false));
            }
            let Some(secret) = secret() else { return Some(say(503, "", &[], false)) };
            let chance = std::array::from_fn(|at| secret[at]);
            let token = tokens.issue(now, of, Duration::from_secs(ttl), chance);
            say(200, &token, &[(TTL_HEADER, &ttl.to_string())], false)
        }
        Some("GET" | "HEAD") => {
            if !header(TOKEN_HEADER).is_some_and(|token| tokens.holds(now, of, token)) {
                return Some(say(401, "", &[], head_only));
            }
            match read(path, &facts.metadata) {
                Some(text) => say(200, &text, &[], head_only),
                None => say(404, "", &[], head_only),
            }
        }
        _ => say(405, "", &[("allow", "GET, HEAD, PUT")], false),
    })
}

/// Parses the requested lifetime of a token in seconds. Returns `None` unless the text consists of
/// digits and the value is in [`TTL_S`].
fn seconds(text: &[u8]) -> Option<u64> {
    let digits =
        std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    digits?.parse().ok().filter(|ttl| TTL_S.contains(ttl))
}

/// Returns the value at a path, or the names in a directory; `None` if the path does not exist.
fn read(path: &str, metadata: &BTreeMap<String, String>) -> Option<String> {
    let path = path.trim_end_matches('/');
    match path {
        "" => return Some("latest".into()),
        "/latest" => return Some("meta-data".into()),
        _ => {}
    }
    let below = path.strip_prefix(ROOT)?;
    if !below.is_empty() && !below.starts_with('/') {
        return None;
    }
    let below = below.trim_start_matches('/');
    if let Some(value) = metadata.get(below) {
        return Some(value.clone());
    }
    let prefix = if below.is_empty() { String::new() } else { format!("{below}/") };
    let mut names: Vec<String> = Vec::new();
    for path in metadata.keys().filter_map(|path| path.strip_prefix(&prefix)) {
        let name = match path.split_once('/') {
            Some((directory, _)) => format!("{directory}/"),
            None => path.to_owned(),
        };
        if names.last() != Some(&name) {
            names.push(name);
        }
    }
    (!names.is_empty()).then(|| names.join("\n"))
}

fn say(status: u16, body: &str, headers: &[(&str, &str)], head_only: bool) -> Vec<u8> {
    let reason = match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        431 => "Request Header Fields Too Large",
        _ => "Service Unavailable",
    };
    let length = body.len();
    let mut text = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\
         Connection: close\r\n"
    );
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text += "\r\n";
    if !head_only {
        text += body;
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail loudly
    use super::*;
    use srd_vpc::id::InstanceId;
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    const NOW: Instant = Instant::ZERO;

    fn known() -> ServiceData {
        let all = [("instance-id", "i-1"), ("placement/availability-zone", "a"), ("mac", "02:00")];
        ServiceData {
            instance: InstanceId(1),
            resolver: Ipv4Addr::new(10, 0, 0, 2),
            dns_support: true,
            metadata: all.map(|(path, value)| (path.to_owned(), value.to_owned())).into(),
            names: Arc::default(),
        }
    }

    fn ask(tokens: &Tokens, now: Instant, text: &str) -> (u16, String) {
        let asked = GuestRequest { now, request: text.as_bytes(), is_over: false };
        let answer = answer(&asked, &known(), tokens, || Some([7; 32])).unwrap();
        let text = String::from_utf8(answer).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), body.to_owned())
    }

    fn token(tokens: &Tokens, seconds: &str) -> (u16, String) {
        ask(tokens, NOW, &format!("PUT {TOKEN_PATH} HTTP/1.1\r\n{TTL_HEADER}: {seconds}\r\n\r\n"))
    }

    #[test]
    fn nothing_is_said_without_a_token() {
        let tokens = Tokens::new([1; 32]);
        let get = |token: &str| {
            format!("GET {ROOT}/instance-id HTTP/1.1\r\nX-aws-ec2-metadata-token: {token}\r\n\r\n")
        };
        let plain = format!("GET {ROOT}/instance-id HTTP/1.1\r\n\r\n");
        assert_eq!(ask(&tokens, NOW, &plain).0, 401);
        assert_eq!(ask(&tokens, NOW, &get("")).0, 401);
        let (status, token) = token(&tokens, "60");
        assert_eq!((status, token.len()), (200, 96));
        assert_eq!(ask(&tokens, NOW, &get(&token)), (200, "i-1".into()));
        assert_eq!(ask(&tokens, NOW + Duration::from_secs(60), &get(&token)).0, 401);
    }

    #[test]
    fn a_token_takes_a_time_and_no_proxy() {
        let tokens = Tokens::new([1; 32]);
        for seconds in ["0", "21601", "-1", "+60", "6 0", "60s", "soon", "", "99999999999999999999"]
        {
            assert_eq!(token(&tokens, seconds).0, 400, "{seconds}");
        }
        let plain = format!("PUT {TOKEN_PATH} HTTP/1.1\r\n\r\n");
        assert_eq!(ask(&tokens, NOW, &plain).0, 400);
        let by_proxy = format!(
            "PUT {TOKEN_PATH} HTTP/1.1\r\n{TTL_HEADER}: 60\r\nX-Forwarded-For: 10.0.0.9\r\n\r\n"
        );
        assert_eq!(ask(&tokens, NOW, &by_proxy).0, 403);
    }

    #[test]
    fn directories_list_their_names() {
        let tokens = Tokens::new([1; 32]);
        let token = token(&tokens, "60").1;
        let get = |path: &str| {
            let text = format!("GET {path} HTTP/1.1\r\n{TOKEN_HEADER}: {token}\r\n\r\n");
            ask(&tokens, NOW, &text)
        };
        assert_eq!(get(&format!("{ROOT}/")), (200, "instance-id\nmac\nplacement/".into()));
        assert_eq!(get(&format!("{ROOT}/placement/")), (200, "availability-zone".into()));
        assert_eq!(get(&format!("{ROOT}/placement/availability-zone")), (200, "a".into()));
        assert_eq!(get("/latest"), (200, "meta-data".into()));
        for path in ["/latest/meta-dataX", "/latest/user-data", "/latest/meta-data/none", "/x"] {
            assert_eq!(get(path).0, 404, "{path}");
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let tokens = Tokens::new([1; 32]);
        let say = |request: &[u8], is_over| {
            answer(&GuestRequest { now: NOW, request, is_over }, &known(), &tokens, || None)
        };
        let whole = |bytes: &[u8]| say(bytes, false);
        assert_eq!((whole(b"GET / HT"), whole(b"")), (None, None));
        assert!(say(b"GET / HT", true).unwrap().starts_with(b"HTTP/1.1 400"), "no more comes");
        assert_eq!(say(b"", true), None);
        assert!(whole(b"\x16\x03\x01\x02\x00").unwrap().starts_with(b"HTTP/1.1 400"));
        let long = [b"GET / HTTP/1.1\r\nX: ".to_vec(), vec![b'a'; REQUEST_BYTES_MAX]].concat();
        assert!(whole(&long[..REQUEST_BYTES_MAX]).unwrap().starts_with(b"HTTP/1.1 431"));
        assert!(whole(b"POST / HTTP/1.1\r\n\r\n").unwrap().starts_with(b"HTTP/1.1 405"));
        let put = format!("PUT {TOKEN_PATH} HTTP/1.1\r\n{TTL_HEADER}: 60\r\n\r\n");
        assert!(whole(put.as_bytes()).unwrap().starts_with(b"HTTP/1.1 503"), "without randomness");
    }
}
