//! The server: connections of HTTP/1.1 on one thread, with bounds. Requests wait for the store and
//! for machines on other threads. Clients of other machines are served through TLS only.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::clients::{ClientSlot, Clients};
use crate::clock::now_s;
use crate::control::{Control, shared};
use crate::error::ApiError;
use crate::http::{HttpRequest, HttpResponse};
use crate::plane::Report;
use crate::stalls::Stalls;
use crate::tls::Certificates;
use crate::wire::answer;

/// Largest number of connections, and of requests that are in progress; other connections wait in
/// the kernel's queue.
pub const CONNECTIONS_MAX: usize = 256;
/// Largest body of a request.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// Largest head of a request.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// Longest time between two requests of a connection, and for the head of a request.
pub const HEAD_WAIT_MAX: Duration = Duration::from_secs(60);
/// Longest time for the body of a request.
pub const BODY_WAIT_MAX: Duration = Duration::from_secs(30);
/// Longest life of a connection. A client that reads its answer slowly cannot hold it longer.
pub const CONNECTION_LIFE_MAX: Duration = Duration::from_secs(3600);
/// Longest time in which a client takes no byte of its answer.
pub const WRITE_WAIT_MAX: Duration = Duration::from_secs(30);
/// Period between two looks at the files of certificates.
pub const RELOAD_PERIOD: Duration = Duration::from_secs(1);
/// Longest pause between two looks for changes of other controllers, also without a signal: the
/// connection that delivers signals may be cut without a notice.
pub const FOLLOW_PERIOD: Duration = Duration::from_secs(1);
/// Pause after an error of `accept`, for example if there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Header with the identifier of a request.
const REQUEST_ID: &str = "x-amzn-requestid";

/// Returns the error for plain HTTP at an address that other machines reach.
pub fn not_loopback(address: SocketAddr) -> String {
    format!(
        "{address} is no loopback address: plain HTTP is served at an address such as 127.0.0.1 or \
         [::1] only, and HTTPS at all addresses"
    )
}

/// Opens the socket for plain HTTP.
///
/// # Errors
/// If the address is not on this machine's loopback interface, or cannot be used.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    if !address.ip().is_loopback() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, not_loopback(address)));
    }
    bind(address)
}

/// Opens the socket for HTTPS.
///
/// # Errors
/// If the address cannot be used.
pub fn listen_https(address: SocketAddr) -> io::Result<TcpListener> {
    bind(address)
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Limits for connections of strangers.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest time for the handshake of TLS.
    pub handshake_wait_max: Duration,
    /// Largest number of connections of one client address; of IPv6, of one network of 64 bits.
    pub client_connections_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { handshake_wait_max: Duration::from_secs(10), client_connections_max: 64 }
    }
}

/// Function that gives clients the certificate, in PEM, of an authority that has replaced the
/// former one.
pub type Publish = Box<dyn FnMut(&str) -> Result<(), String> + Send>;

/// TLS of a server.
pub struct Https {
    /// Certificates of the server.
    pub certificates: Arc<Certificates>,
    /// Reports new and refused certificates.
    pub report: Report,
    /// Gives clients the certificate of another authority.
    pub publish: Publish,
    /// Limits for connections.
    pub limits: Limits,
}

impl std::fmt::Debug for Https {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Https").field("certificates", &self.certificates).finish_non_exhaustive()
    }
}

/// Serves plain HTTP at the socket until the process ends.
///
/// # Errors
/// If the runtime cannot start, or another controller has taken over the machines of the state.
/// This one has then stopped its own.
pub fn serve(listener: TcpListener, control: Control) -> io::Result<Infallible> {
    serve_shared(listener, Arc::new(Mutex::new(control)), None)
}

/// Serves the socket until the process ends, beside other users of the control plane. With `https`,
/// serves HTTPS, and the header `Host` may have the names of the certificate.
///
/// # Errors
/// As [`serve`].
pub fn serve_shared(
    listener: TcpListener,
    control: Arc<Mutex<Control>>,
    https: Option<Https>,
) -> io::Result<Infallible> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let news = {
        let mut control = control.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(https) = &https {
            let certificates = Arc::clone(&https.certificates);
            control.serve_names(Box::new(move |name| certificates.has_name(name)));
        }
        control.settle(now_s());
        control.news()
    };
    runtime.block_on(async move {
        let follow = follow(news, Arc::clone(&control));
        let renewed = Arc::clone(&control);
        let tls = https.as_ref().map(|https| (Arc::clone(&https.certificates), https.limits));
        tokio::select! {
            served = accept(listener, control, tls) => served,
            error = follow => Err(error),
            never = renew(https, renewed) => match never {},
        }
    })
}

/// Work of [`renew`] that has failed, and is tried again.
#[derive(Default)]
struct Unfinished {
    /// Certificate of the authority that clients do not have yet.
    certificate: Option<String>,
    /// The failure that was reported last.
    reported: Option<String>,
}

impl Unfinished {
    /// Reports a failure, unless it was reported last.
    fn report(&mut self, https: &mut Https, why: String) {
        if self.reported.as_ref() != Some(&why) {
            (https.report)(&why);
            self.reported = Some(why);
        }
    }

    /// Gives clients the certificate of the authority, if they do not have it.
    fn publish(&mut self, https: &mut Https) {
        let Some(certificate) = &self.certificate else { return };
        match (https.publish)(certificate) {
            Ok(()) => {
                if self.reported.is_some() {
                    (https.report)("the certificate of the present authority is published now");
                }
                *self = Self::default();
            }
            Err(why) => self.report(https, format!("{why}; the server tries again")),
        }
    }
}

/// Takes over certificates of the operator as soon as their files change, and the authority of the
/// state as soon as it is replaced. If a certificate cannot be issued, or the certificate of the
/// authority cannot be published, for example because the disk is full, the next round tries again.
async fn renew(https: Option<Https>, control: Arc<Mutex<Control>>) -> Infallible {
    let Some(mut https) = https else { return std::future::pending().await };
    let mut unfinished = Unfinished::default();
    loop {
        tokio::time::sleep(RELOAD_PERIOD).await;
        let (certificates, control) = (Arc::clone(&https.certificates), Arc::clone(&control));
        let looked = tokio::task::spawn_blocking(move || {
            let control = control.lock().unwrap_or_else(PoisonError::into_inner);
            let authority = control.present_authority().cloned();
            drop(control);
            let followed = authority.and_then(|authority| {
                let followed = certificates.follow(&authority)?;
                Some(followed.map(|()| authority))
            });
            (certificates.reload(), followed)
        });
        let Ok((reloaded, followed)) = looked.await else { continue };
        match reloaded {
            None => {}
            Some(Ok(())) => (https.report)("the certificate was read again"),
            Some(Err(why)) => {
                (https.report)(&format!("the former certificate stays in use: {why}"));
            }
        }
        match followed {
            None => {}
            Some(Ok(authority)) => {
                (https.report)("the server has a certificate of another authority");
                let certificate = Some(authority.certificate().to_owned());
                unfinished = Unfinished { certificate, reported: None };
            }
            Some(Err(why)) => {
                let what = format!("the certificate of the former authority stays: {why}");
                unfinished.report(&mut https, what);
            }
        }
        unfinished.publish(&mut https);
    }
}

/// The places that a connection occupies until it and its last request have ended. A request goes
/// on if its client closes the connection, and may wait for hosts.
type Places = Arc<(OwnedSemaphorePermit, ClientSlot)>;

/// Serves the connections of the socket.
async fn accept(
    listener: TcpListener,
    control: Arc<Mutex<Control>>,
    tls: Option<(Arc<Certificates>, Limits)>,
) -> io::Result<Infallible> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let client_max = tls.as_ref().map(|(_, limits)| limits.client_connections_max);
    let clients = Clients::new(client_max.unwrap_or(CONNECTIONS_MAX));
    loop {
        let slot = Arc::clone(&slots).acquire_owned().await.map_err(io::Error::other)?;
        let Ok((stream, from)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Some(of_client) = clients.admit(from.ip()) else { continue };
        let places = Arc::new((slot, of_client));
        let stream = Stalls::new(stream, WRITE_WAIT_MAX);
        let (control, tls) = (Arc::clone(&control), tls.clone());
        tokio::spawn(async move {
            match tls {
                None => connection(stream, control, places).await,
                Some((certificates, limits)) => {
                    let handshake = TlsAcceptor::from(certificates.config()).accept(stream);
                    let handshake = tokio::time::timeout(limits.handshake_wait_max, handshake);
                    if let Ok(Ok(stream)) = handshake.await {
                        connection(stream, control, places).await;
                    }
                }
            }
        });
    }
}

/// Serves a connection until it ends.
async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    control: Arc<Mutex<Control>>,
    places: Places,
) {
    let answer = service_fn(|request| respond(request, Arc::clone(&control), Arc::clone(&places)));
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), answer);
    // Errors of a connection concern its client only.
    let _ = tokio::time::timeout(CONNECTION_LIFE_MAX, connection).await;
}

/// Takes over changes of other controllers as soon as they are signalled, and in each
/// [`FOLLOW_PERIOD`]. Does not wait for the hosts that these changes concern: one wait at a time,
/// on another thread, reports hosts that do not use them. Returns an error if another controller
/// has taken over the machines.
async fn follow(news: Option<Arc<Notify>>, control: Arc<Mutex<Control>>) -> io::Error {
    let Some(news) = news else { return std::future::pending().await };
    let mut wait: Option<JoinHandle<()>> = None;
    loop {
        let _ = tokio::time::timeout(FOLLOW_PERIOD, news.notified()).await;
        let control = Arc::clone(&control);
        let takes_wait = wait.as_ref().is_none_or(JoinHandle::is_finished);
        let followed = tokio::task::spawn_blocking(move || {
            shared::run_apart(&control, takes_wait, |control| {
                // The next request reports an error of the store.
                let _ = control.follow();
                let is_lost = control.give_up_machines();
                if !is_lost {
                    control.settle(now_s());
                }
                is_lost
            })
        });
        let (is_lost, unconfirmed) = followed.await.unwrap_or_default();
        if is_lost {
            return io::Error::other(
                "another controller has taken over the machines of this state; the machines here \
                 are stopped",
            );
        }
        if let Some(unconfirmed) = unconfirmed {
            wait = Some(tokio::task::spawn_blocking(move || unconfirmed.wait()));
        }
    }
}

async fn respond(
    request: Request<Incoming>,
    control: Arc<Mutex<Control>>,
    places: Places,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX).collect();
    let body = match tokio::time::timeout(BODY_WAIT_MAX, body).await {
        Ok(Ok(body)) => body.to_bytes().to_vec(),
        Ok(Err(_)) => return Ok(refusal(413, "RequestEntityTooLarge", "The body is too large.")),
        Err(_) => return Ok(refusal(408, "RequestTimeout", "The body did not arrive in time.")),
    };
    let header = |(name, value): (&hyper::header::HeaderName, &hyper::header::HeaderValue)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let request = HttpRequest {
        method: head.method.as_str().to_owned(),
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers: head.headers.iter().map(header).collect(),
        body,
    };
    let now = now_s();
    let handled = tokio::task::spawn_blocking(move || {
        let answer = shared::run(&control, |control| control.begin(&request, now));
        drop(places);
        answer
    });
    Ok(match handled.await {
        Ok(answer) => response(answer),
        Err(_) => refusal(500, "InternalError", "The request has ended in a defect."),
    })
}

fn refusal(status: u16, code: &str, message: &str) -> Response<Full<Bytes>> {
    let error = ApiError::with_status(status, code, message);
    response(HttpResponse::xml(status, answer::write_error(&error, "")))
}

fn response(answer: HttpResponse) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(answer.body)));
    *response.status_mut() =
        StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let content_type = hyper::header::HeaderValue::from_static(answer.content_type);
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, content_type);
    if let Ok(id) = hyper::header::HeaderValue::from_str(&answer.request_id)
        && !answer.request_id.is_empty()
    {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}
