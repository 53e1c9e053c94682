//! HTTP/1.1 with one request and one response per connection.
//!
//! Only the head of a request is read, because no request here has a body. Reading and writing each
//! have one deadline for all bytes, so a client that sends one byte every few seconds gains no
//! time.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Largest length of the head of a request in bytes, up to and including its empty line.
pub const HEAD_BYTES_MAX: usize = 8192;
/// Largest number of headers of a request.
pub const HEADERS_MAX: usize = 64;
/// Time within which a client must send its request.
pub const HEAD_WAIT_MAX: Duration = Duration::from_secs(5);
/// Time within which a client must read the response.
pub const RESPONSE_TAKEN_MAX: Duration = Duration::from_secs(10);

/// The parts of an HTTP request that the server uses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Whether the request is a HEAD request: the response has no body.
    pub is_head: bool,
    /// Requested path, without the query.
    pub path: String,
    /// Query: the text after the question mark.
    pub query: String,
    /// Host name or address in the request's `Host` header.
    pub host: String,
}

/// A response to an HTTP request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    /// Status of the response.
    pub status: Status,
    /// The media type of the body.
    pub content_type: &'static str,
    /// Body of the response, as text.
    pub body: String,
}

/// Status of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // named after their status lines
pub enum Status {
    Ok,
    BadRequest,
    NotFound,
    MethodNotAllowed,
    Timeout,
    Misdirected,
    HeadTooLarge,
    Unavailable,
}

impl Status {
    fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::Timeout => "408 Request Timeout",
            Self::Misdirected => "421 Misdirected Request",
            Self::HeadTooLarge => "431 Request Header Fields Too Large",
            Self::Unavailable => "503 Service Unavailable",
        }
    }
}

impl Response {
    /// Returns a response with status 200 and a body.
    pub fn ok(content_type: &'static str, body: String) -> Self {
        Self { status: Status::Ok, content_type, body }
    }

    /// Returns a response with this status and a plain text, to which a line feed is added.
    pub fn text(status: Status, body: impl Into<String>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: body.into() + "\n" }
    }

    fn bytes(&self, is_head: bool) -> Vec<u8> {
        let Self { status, content_type, body } = self;
        let allow = match status {
            Status::MethodNotAllowed => "Allow: GET, HEAD\r\n",
            _ => "",
        };
        let mut bytes = format!(
            "HTTP/1.1 {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}\
             Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\nReferrer-Policy: no-referrer\r\n\
             Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; \
             script-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'\r\n\r\n",
            status.line(),
            body.len()
        )
        .into_bytes();
        if !is_head {
            bytes.extend(body.as_bytes());
        }
        bytes
    }
}

/// Reads a request. If this fails, the error is the response to send to the client; `Err(None)`:
/// the connection has ended, and no response is sent.
pub(super) fn read(mut stream: &TcpStream) -> Result<Request, Option<Response>> {
    let deadline = Instant::now() + HEAD_WAIT_MAX;
    let (mut head, mut buffer) = (Vec::new(), [0; 1024]);
    loop {
        let timeout = || Some(Response::text(Status::Timeout, "the request did not come in time"));
        let left = left(deadline).map_err(|_| timeout())?;
        stream.set_read_timeout(Some(left)).map_err(|_| None)?;
        match stream.read(&mut buffer) {
            Ok(0) => return Err(None),
            Ok(length) => {
                if let Some(request) = add(&mut head, &buffer[..length]).map_err(Some)? {
                    return Ok(request);
                }
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(timeout());
            }
            Err(_) => return Err(None),
        }
    }
}

/// Adds received bytes to the head of a request. Returns the request if its head is complete;
/// `None` if further bytes are needed. The error is the response to an invalid request.
fn add(head: &mut Vec<u8>, bytes: &[u8]) -> Result<Option<Request>, Response> {
    head.extend_from_slice(bytes);
    // Bytes beyond the limit cannot complete a head. Bytes after a complete head are ignored.
    head.truncate(HEAD_BYTES_MAX);
    match parse(head)? {
        None if head.len() >= HEAD_BYTES_MAX => {
            let text = format!("the head of a request has at most {HEAD_BYTES_MAX} bytes");
            Err(Response::text(Status::HeadTooLarge, text))
        }
        request => Ok(request),
    }
}

/// Parses the head of a request; `None` if it is incomplete. The error is the response to an
/// invalid request.
fn parse(head: &[u8]) -> Result<Option<Request>, Response> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            let text = format!("a request has at most {HEADERS_MAX} headers");
            return Err(Response::text(Status::HeadTooLarge, text));
        }
        Err(e) => return Err(Response::text(Status::BadRequest, format!("not HTTP/1.1: {e}"))),
    }
    let is_head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(Response::text(Status::MethodNotAllowed, "only GET and HEAD")),
    };
    let is_host = |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case("host");
    let mut hosts = request.headers.iter().filter(is_host);
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(Response::text(Status::BadRequest, "one Host header is needed"));
    };
    let host = String::from_utf8_lossy(host.value).into_owned();
    let (path, query) = request.path.map_or(("", ""), |p| p.split_once('?').unwrap_or((p, "")));
    let (path, query) = (path.to_owned(), query.to_owned());
    Ok(Some(Request { is_head, path, query, host }))
}

/// Returns the value of a key in a query, with percent escapes decoded; `None` if the query does
/// not contain the key.
pub fn query_value(query: &str, key: &str) -> Option<String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(name, _)| *name == key).map(|(_, value)| unescape(value))
}

fn unescape(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, tail @ ..] = rest {
        let digit = |at: usize| tail.get(at).and_then(|c| char::from(*c).to_digit(16));
        let escaped = digit(0).zip(digit(1)).and_then(|(h, l)| u8::try_from(h * 16 + l).ok());
        match (first, escaped) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = tail;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Writes a response.
pub(super) fn write(mut stream: &TcpStream, response: &Response, is_head: bool) -> io::Result<()> {
    let deadline = Instant::now() + RESPONSE_TAKEN_MAX;
    let bytes = response.bytes(is_head);
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(length) => rest = &rest[length..],
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_when_all_of_it_is_there() {
        let text = b"GET /status.json?peer=a%2Fb%2B&x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n";
        for cut in 0..text.len() {
            assert_eq!(parse(&text[..cut]), Ok(None), "{cut}");
        }
        let request = parse(text).unwrap().unwrap();
        assert_eq!((request.path.as_str(), request.host.as_str()), ("/status.json", "localhost"));
        assert_eq!(query_value(&request.query, "peer").unwrap(), "a/b+");
        assert_eq!(query_value(&request.query, "pee"), None);
    }

    /// In an earlier version, a head could be longer than the limit if it did not arrive in parts
    /// of 1,024 bytes.
    #[test]
    fn regression_a_head_has_at_most_its_limit_of_bytes() {
        let status_of = |bytes: usize, part: usize| {
            let (start, end) = ("GET / HTTP/1.1\r\nHost: a\r\nX: ", "\r\n\r\n");
            let fill = "x".repeat(bytes - start.len() - end.len());
            let (text, mut head) = (format!("{start}{fill}{end}").into_bytes(), Vec::new());
            let read = text.chunks(part).find_map(|part| add(&mut head, part).transpose());
            read.unwrap().map_or_else(|response| response.status, |_| Status::Ok)
        };
        for part in [1, 1000, 1023, 1024] {
            for bytes in [100, HEAD_BYTES_MAX - 1, HEAD_BYTES_MAX] {
                assert_eq!(status_of(bytes, part), Status::Ok, "{bytes} in {part}");
            }
            for bytes in [HEAD_BYTES_MAX + 1, HEAD_BYTES_MAX + 1023, HEAD_BYTES_MAX + 5000] {
                assert_eq!(status_of(bytes, part), Status::HeadTooLarge, "{bytes} in {part}");
            }
        }
        let mut head = Vec::new();
        let short = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let more = [&short[..], &[b'x'; HEAD_BYTES_MAX]].concat();
        assert!(add(&mut head, &more).unwrap().is_some(), "bytes after the head do not count");
    }

    #[test]
    fn escapes_that_are_none_stay_as_they_are() {
        for (text, is) in [("%", "%"), ("%4", "%4"), ("%zz", "%zz"), ("a+b", "a b"), ("%41", "A")] {
            assert_eq!(unescape(text), is);
        }
    }

    #[test]
    fn what_is_no_request_of_ours_has_its_status() {
        let status = |text: &str| parse(text.as_bytes()).unwrap_err().status;
        assert_eq!(status("\x16\x03\x01\r\n\r\n"), Status::BadRequest);
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), Status::BadRequest);
        assert_eq!(status("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), Status::BadRequest);
        assert_eq!(status("POST / HTTP/1.1\r\nHost: a\r\n\r\n"), Status::MethodNotAllowed);
        let many = "X: y\r\n".repeat(HEADERS_MAX + 1);
        assert_eq!(status(&format!("GET / HTTP/1.1\r\n{many}\r\n")), Status::HeadTooLarge);
    }
}
