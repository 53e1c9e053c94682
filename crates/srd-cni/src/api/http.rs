//! One request of HTTP/1.1 for each connection, over TCP or TLS 1.3.
//!
//! Bounds: [`CONNECT_WAIT_MAX`] for a connection, [`ANSWER_WAIT_MAX`] for each part of an answer,
//! [`ANSWER_BYTES_MAX`] for an answer.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};

/// Longest wait for a connection to one address.
pub const CONNECT_WAIT_MAX: Duration = Duration::from_secs(3);
/// Longest wait for a part of the answer. A launch takes as long as the card needs.
pub const ANSWER_WAIT_MAX: Duration = Duration::from_secs(30);
/// Largest answer in bytes.
pub const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// Longest line of a header in bytes.
const LINE_BYTES_MAX: u64 = 16 << 10;
/// Largest number of headers of an answer.
const HEADERS_MAX: usize = 100;
/// Largest number of addresses that are tried.
const ADDRESSES_MAX: usize = 4;

/// The server of the API.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Value of the header `Host`.
    pub host: String,
    name: String,
    port: u16,
    tls: Option<Arc<ClientConfig>>,
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Status.
    pub status: u16,
    /// Body.
    pub body: Vec<u8>,
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

impl Endpoint {
    /// Reads the address of a server, `http://HOST:PORT` or `https://HOST:PORT`. `ca`: file with
    /// the issuers of the server's certificate, which `https` needs.
    ///
    /// # Errors
    /// A text for the user.
    pub fn parse(url: &str, ca: Option<&Path>) -> Result<Self, String> {
        // Debug form: the text comes from a runtime, and is quoted and escaped.
        let wrong = || format!("the endpoint {url:?} has not the form http(s)://HOST:PORT");
        let (is_tls, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err(wrong()),
        };
        let host = rest.strip_suffix('/').unwrap_or(rest);
        let is_host = |c: char| c.is_ascii_alphanumeric() || ".-:[]_".contains(c);
        if host.is_empty() || !host.chars().all(is_host) {
            return Err(wrong());
        }
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => {
                (name, port.parse().map_err(|_| wrong())?)
            }
            _ => (host, if is_tls { 443 } else { 80 }),
        };
        let name = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
        let tls = match (is_tls, ca) {
            (false, _) => None,
            (true, Some(ca)) => Some(tls(ca)?),
            (true, None) => {
                return Err(format!("the endpoint {url} needs \"caFile\" in the configuration"));
            }
        };
        Ok(Self { host: host.to_owned(), name: name.to_owned(), port, tls })
    }

    /// Posts a body, and returns the answer.
    ///
    /// # Errors
    /// A text for the user, if no complete answer comes.
    pub fn post(&self, headers: &[(String, String)], body: &[u8]) -> Result<Answer, String> {
        self.exchange(headers, body).map_err(|error| error.to_string())
    }

    fn exchange(&self, headers: &[(String, String)], body: &[u8]) -> std::io::Result<Answer> {
        let mut stream = self.connect()?;
        let mut head = String::from("POST / HTTP/1.1\r\nConnection: close\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        stream.write_all(&[head.as_bytes(), body].concat())?;
        stream.flush()?;
        read(&mut BufReader::new(stream))
    }

    fn connect(&self) -> std::io::Result<Box<dyn Stream>> {
        let mut last = std::io::Error::other("the host has no address");
        for address in (self.name.as_str(), self.port).to_socket_addrs()?.take(ADDRESSES_MAX) {
            match TcpStream::connect_timeout(&address, CONNECT_WAIT_MAX) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(ANSWER_WAIT_MAX))?;
                    stream.set_write_timeout(Some(ANSWER_WAIT_MAX))?;
                    let Some(config) = &self.tls else { return Ok(Box::new(stream)) };
                    let name = ServerName::try_from(self.name.clone());
                    let name = name.map_err(std::io::Error::other)?;
                    let tls = ClientConnection::new(Arc::clone(config), name);
                    let tls = tls.map_err(std::io::Error::other)?;
                    return Ok(Box::new(StreamOwned::new(tls, stream)));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Returns the settings of TLS for servers whose certificates these issuers have signed.
fn tls(ca: &Path) -> Result<Arc<ClientConfig>, String> {
    let failed = |what: String| format!("the certificates in {}: {what}", ca.display());
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(ca).map_err(|e| failed(e.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| failed(error.to_string()))?;
        roots.add(certificate).map_err(|error| failed(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(failed("there are none".to_owned()));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_protocol_versions(&[&TLS13]).map_err(|e| failed(e.to_string()))?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

fn wrong(what: &str) -> std::io::Error {
    std::io::Error::other(format!("the answer is no HTTP: {what}"))
}

fn line(from: &mut impl BufRead) -> std::io::Result<String> {
    let mut line = Vec::new();
    from.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        return Err(wrong("a line is incomplete or too long"));
    }
    String::from_utf8(line).map(|line| line.trim_end().to_owned()).map_err(|_| wrong("no text"))
}

/// Reads an answer.
fn read(from: &mut impl BufRead) -> std::io::Result<Answer> {
    let first = line(from)?;
    let mut words = first.split(' ');
    let is_http = words.next().is_some_and(|version| version.starts_with("HTTP/1."));
    let status = words.next().and_then(|status| status.parse().ok()).filter(|_| is_http);
    let status = status.ok_or_else(|| wrong("the first line"))?;
    let (mut length, mut is_chunked) = (None, false);
    for count in 0.. {
        let line = line(from)?;
        if line.is_empty() {
            break;
        }
        if count == HEADERS_MAX {
            return Err(wrong("too many headers"));
        }
        let (name, value) = line.split_once(':').ok_or_else(|| wrong("a header"))?;
        match name.to_ascii_lowercase().as_str() {
            "content-length" => {
                let parsed = value.trim().parse::<u64>();
                length = Some(parsed.map_err(|_| wrong("its length"))?);
            }
            "transfer-encoding" => is_chunked = value.trim().eq_ignore_ascii_case("chunked"),
            _ => {}
        }
    }
    let body = match (is_chunked, length) {
        (true, _) => chunks(from)?,
        (false, Some(length)) if length > ANSWER_BYTES_MAX => return Err(wrong("it is too long")),
        (false, Some(length)) => exactly(from, length)?,
        (false, None) => {
            let mut body = Vec::new();
            from.take(ANSWER_BYTES_MAX + 1).read_to_end(&mut body)?;
            body
        }
    };
    match u64::try_from(body.len()).is_ok_and(|length| length <= ANSWER_BYTES_MAX) {
        true => Ok(Answer { status, body }),
        false => Err(wrong("it is too long")),
    }
}

fn exactly(from: &mut impl BufRead, length: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(length).read_to_end(&mut bytes)?;
    match u64::try_from(bytes.len()) == Ok(length) {
        true => Ok(bytes),
        false => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}

fn chunks(from: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    let mut left = ANSWER_BYTES_MAX;
    loop {
        let size = line(from)?;
        let size = size.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(size, 16).map_err(|_| wrong("the size of a chunk"))?;
        left = left.checked_sub(size).ok_or_else(|| wrong("it is too long"))?;
        if size == 0 {
            return Ok(body);
        }
        body.extend(exactly(from, size)?);
        line(from)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Option<(String, u16)> {
        Endpoint::parse(url, None).ok().map(|endpoint| (endpoint.name, endpoint.port))
    }

    #[test]
    fn endpoints_have_a_host_and_a_port() {
        let of = |name: &str, port| Some((name.to_owned(), port));
        assert_eq!(parsed("http://127.0.0.1:4599"), of("127.0.0.1", 4599));
        assert_eq!(parsed("http://[::1]:4599/"), of("::1", 4599));
        assert_eq!(parsed("http://[::1]"), of("::1", 80));
        assert_eq!(parsed("http://ec2.example"), of("ec2.example", 80));
        for url in [
            "",
            "ftp://a",
            "http://",
            "http://a/b",
            "http://a:b",
            "http://a b:1",
            "http://a:1\r\nX: y",
        ] {
            assert_eq!(parsed(url), None, "{url}");
        }
        let error = Endpoint::parse("https://a:1", None).unwrap_err();
        assert!(error.contains("needs \"caFile\""), "{error}");
        let missing = Endpoint::parse("https://a:1", Some(Path::new("/missing.pem"))).unwrap_err();
        assert!(missing.contains("/missing.pem"), "{missing}");
    }

    /// Answers one connection with these certificates, and returns the address.
    fn serve(name: &str) -> (String, std::net::SocketAddr, std::thread::JoinHandle<bool>) {
        let own = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        let key = rustls_pki_types::PrivateKeyDer::try_from(own.key_pair.serialize_der()).unwrap();
        let config =
            rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_protocol_versions(&[&TLS13]).unwrap().with_no_client_auth();
        let config = config.with_single_cert(vec![own.cert.der().clone()], key).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serve = move || {
            let tls = rustls::ServerConnection::new(Arc::new(config)).unwrap();
            let mut stream = BufReader::new(StreamOwned::new(tls, listener.accept().unwrap().0));
            let mut line = String::new();
            let is_read = stream.read_line(&mut line).is_ok();
            let _ = stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
            is_read && line.starts_with("POST / ")
        };
        (own.cert.pem(), address, std::thread::spawn(serve))
    }

    #[test]
    fn tls_needs_a_certificate_of_a_known_issuer_with_the_name_of_the_host() {
        let directory = tempfile::tempdir().unwrap();
        let ca = directory.path().join("ca.pem");
        for (name, is_known, passes) in
            [("localhost", true, true), ("localhost", false, false), ("other", true, false)]
        {
            let (own, address, server) = serve(name);
            let other = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
            std::fs::write(&ca, if is_known { own } else { other.cert.pem() }).unwrap();
            let url = format!("https://localhost:{}", address.port());
            let endpoint = Endpoint::parse(&url, Some(&ca)).unwrap();
            let answer = endpoint.post(&[("host".to_owned(), endpoint.host.clone())], b"x");
            assert_eq!(answer.as_ref().is_ok_and(|of| of.body == b"hi"), passes, "{answer:?}");
            assert_eq!(server.join().unwrap(), passes);
        }
        std::fs::write(&ca, "no certificate").unwrap();
        let error = Endpoint::parse("https://localhost:1", Some(&ca)).unwrap_err();
        assert!(error.contains("there are none"), "{error}");
    }

    #[test]
    fn a_body_ends_by_its_length_its_chunks_or_the_connection() {
        let body =
            |text: &str| read(&mut text.as_bytes()).map(|answer| (answer.status, answer.body));
        let ok = |status, text: &str| Some((status, text.as_bytes().to_vec()));
        assert_eq!(body("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc").ok(), ok(200, "ab"));
        let chunks = "2;x=1\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
        let chunked = format!("HTTP/1.1 400 Bad\r\ntransfer-encoding: chunked\r\n\r\n{chunks}");
        assert_eq!(body(&chunked).ok(), ok(400, "abc"));
        assert_eq!(body("HTTP/1.0 200 OK\r\n\r\nabc").ok(), ok(200, "abc"));
        for text in [
            "",
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
            "HTTP/1.1 200 OK\r\nno header\r\n\r\n",
            "HTTP/1.1 200 OK\r\n",
            "SSH-2.0-x\r\n\r\n",
        ] {
            assert!(body(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn long_answers_are_refused_at_their_bounds() {
        let header = |count: usize| {
            let headers = "A: b\r\n".repeat(count);
            read(&mut format!("HTTP/1.1 200 OK\r\n{headers}\r\n").as_bytes()).is_ok()
        };
        assert!(header(HEADERS_MAX) && !header(HEADERS_MAX + 1));
        let line = |bytes: usize| {
            let name = "A: ";
            let value = "b".repeat(bytes - name.len() - 2);
            read(&mut format!("HTTP/1.1 200 OK\r\n{name}{value}\r\n\r\n").as_bytes()).is_ok()
        };
        let bytes = usize::try_from(LINE_BYTES_MAX).unwrap();
        assert!(line(bytes) && !line(bytes + 1));
        let body = |bytes: u64| {
            let text = b"HTTP/1.0 200 OK\r\n\r\n".to_vec();
            let body = vec![b'x'; usize::try_from(bytes).unwrap()];
            read(&mut &[text, body].concat()[..]).is_ok()
        };
        assert!(body(ANSWER_BYTES_MAX) && !body(ANSWER_BYTES_MAX + 1));
    }
}
