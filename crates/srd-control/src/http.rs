//! Requests and answers of HTTP, without a connection.

/// A request of HTTP.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    /// Method, for example `POST`.
    pub method: String,
    /// Path, as it was sent.
    pub path: String,
    /// Query, as it was sent, without the question mark.
    pub query: String,
    /// Headers with names in small letters, in their order.
    pub headers: Vec<(String, String)>,
    /// Body of the request.
    pub body: Vec<u8>,
}

impl HttpRequest {
    /// Returns the first header with this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }
}

/// An answer of HTTP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpResponse {
    /// Status code of the answer.
    pub status: u16,
    /// Type of the body.
    pub content_type: &'static str,
    /// Body of the answer.
    pub body: String,
    /// Identifier of the request, which clients read in a header. It is empty if the request was
    /// refused before it got one.
    pub request_id: String,
}

impl HttpResponse {
    /// An answer in XML.
    pub fn xml(status: u16, body: String) -> Self {
        Self::new(status, "text/xml;charset=UTF-8", body)
    }

    /// A page for browsers.
    pub fn html(body: String) -> Self {
        Self::new(200, "text/html; charset=utf-8", body)
    }

    /// An answer in JSON.
    pub fn json(status: u16, body: String) -> Self {
        Self::new(status, "application/x-amz-json-1.1", body)
    }

    fn new(status: u16, content_type: &'static str, body: String) -> Self {
        Self { status, content_type, body, request_id: String::new() }
    }
}
