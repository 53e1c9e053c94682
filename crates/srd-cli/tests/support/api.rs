//! Signed requests to `srd control up`.

#![allow(dead_code)] // each test program uses a part

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use srd_control::http::HttpRequest;
use srd_control::sign::DrawnKey;

/// Longest wait for an answer.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(120);

/// Address and access key of a server.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) at: SocketAddr,
    /// Identifier and secret of the access key.
    pub(crate) key: [String; 2],
}

impl Endpoint {
    /// Reads the file that `--key-file` writes.
    pub(crate) fn read(settings: &str) -> Self {
        let value = |name: &str| {
            let of = |line: &str| line.strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
            settings.lines().find_map(of).unwrap()
        };
        let url = value("AWS_ENDPOINT_URL");
        let at = url.trim_start_matches("http://").parse().unwrap();
        Self { at, key: ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].map(value) }
    }

    /// Sends a signed request of EC2, and returns the status and the body of the answer.
    ///
    /// # Errors
    /// If the server does not answer.
    pub(crate) fn send(&self, action: &str, parameters: &str) -> io::Result<(u16, String)> {
        self.send_to(("ec2", "2016-11-15"), action, parameters)
    }

    /// Sends a signed request of a service, in a version of its API, as [`Endpoint::send`] does.
    ///
    /// # Errors
    /// If the server does not answer.
    pub(crate) fn send_to(
        &self,
        (service, version): (&str, &str),
        action: &str,
        parameters: &str,
    ) -> io::Result<(u16, String)> {
        let [id, secret] = self.key.clone();
        let mut request = HttpRequest {
            method: "POST".to_owned(),
            path: "/".to_owned(),
            query: String::new(),
            headers: vec![("host".to_owned(), self.at.to_string())],
            body: format!("Action={action}&Version={version}&{parameters}").into_bytes(),
        };
        let key = DrawnKey { id, secret };
        key.authorize(&mut request, ("us-east-1", service), &utc("%Y%m%dT%H%M%SZ")).unwrap();
        let headers = request.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
        let mut stream = TcpStream::connect(self.at)?;
        stream.set_read_timeout(Some(ANSWER_WAIT_MAX))?;
        write!(
            stream,
            "POST / HTTP/1.1\r\nConnection: close\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n{}\r\n",
            request.body.len(),
            headers.collect::<String>()
        )?;
        stream.write_all(&request.body)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or(io::ErrorKind::UnexpectedEof)?;
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
        Ok((status, body.unwrap_or_default()))
    }
}

/// Returns the present time in this format of date(1).
fn utc(format: &str) -> String {
    let output = Command::new("date").args(["-u", &format!("+{format}")]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Returns the text of the first element with this name.
pub(crate) fn element(xml: &str, name: &str) -> String {
    let begin = format!("<{name}>");
    let rest = xml.split_once(&begin).unwrap_or_else(|| panic!("no {name} in {xml}")).1;
    rest.split('<').next().unwrap().to_owned()
}
