//! The server: connections of HTTP/1.1 on one thread, with bounds. Requests wait for the store and
//! for machines on other threads.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{Notify, Semaphore};

use crate::control::Control;
use crate::error::ApiError;
use crate::http::{HttpRequest, HttpResponse};
use crate::stalls::Stalls;
use crate::wire::answer;

/// Largest number of connections; other connections wait in the kernel's queue.
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
/// Pause after an error of `accept`, for example if there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Returns the error for an address that other machines reach.
pub fn not_loopback(address: SocketAddr) -> String {
    format!(
        "{address} is no loopback address: the server uses plain HTTP, so it listens at an address \
         such as 127.0.0.1 or [::1] only"
    )
}

/// Opens the socket. Without TLS, only addresses of this machine's loopback interface are served.
///
/// # Errors
/// If the address is not on the loopback interface, or cannot be used.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    if !address.ip().is_loopback() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, not_loopback(address)));
    }
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves the socket until the process ends.
///
/// # Errors
/// If the runtime cannot start, or another controller has taken over the machines of the state.
/// This one has then stopped its own.
pub fn serve(listener: TcpListener, control: Control) -> io::Result<Infallible> {
    serve_shared(listener, Arc::new(Mutex::new(control)))
}

/// Serves the socket until the process ends, beside other users of the control plane.
///
/// # Errors
/// As [`serve`].
pub fn serve_shared(listener: TcpListener, control: Arc<Mutex<Control>>) -> io::Result<Infallible> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let news = {
        let mut control = control.lock().unwrap_or_else(PoisonError::into_inner);
        control.settle(now());
        control.news()
    };
    runtime.block_on(async move {
        let follow = follow(news, Arc::clone(&control));
        tokio::select! {
            served = accept(listener, control) => served,
            error = follow => Err(error),
        }
    })
}

/// Serves the connections of the socket.
async fn accept(listener: TcpListener, control: Arc<Mutex<Control>>) -> io::Result<Infallible> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let slot = Arc::clone(&slots).acquire_owned().await.map_err(io::Error::other)?;
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let control = Arc::clone(&control);
        tokio::spawn(async move {
            let answer = service_fn(|request| respond(request, Arc::clone(&control)));
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_WAIT_MAX)
                .max_buf_size(HEAD_BYTES_MAX)
                .serve_connection(TokioIo::new(Stalls::new(stream, WRITE_WAIT_MAX)), answer);
            // Errors of a connection concern its client only.
            let _ = tokio::time::timeout(CONNECTION_LIFE_MAX, connection).await;
            drop(slot);
        });
    }
}

/// Takes over changes of other controllers as soon as they are signalled. Returns an error if
/// another controller has taken over the machines.
async fn follow(news: Option<Arc<Notify>>, control: Arc<Mutex<Control>>) -> io::Error {
    let Some(news) = news else { return std::future::pending().await };
    loop {
        news.notified().await;
        let control = Arc::clone(&control);
        let followed = tokio::task::spawn_blocking(move || {
            let mut control = control.lock().unwrap_or_else(PoisonError::into_inner);
            // The next request reports an error of the store.
            let _ = control.follow();
            let is_lost = control.give_up_machines();
            if !is_lost {
                control.settle(now());
            }
            is_lost
        });
        if followed.await.unwrap_or(false) {
            return io::Error::other(
                "another controller has taken over the machines of this state; the machines here \
                 are stopped",
            );
        }
    }
}

async fn respond(
    request: Request<Incoming>,
    control: Arc<Mutex<Control>>,
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
    let now = now();
    let handled = tokio::task::spawn_blocking(move || {
        // The state is whole even after a panic of another request, whose changes `handle` undoes.
        let mut control = control.lock().unwrap_or_else(PoisonError::into_inner);
        control.handle(&request, now)
    });
    Ok(match handled.await {
        Ok(answer) => response(answer),
        Err(_) => refusal(500, "InternalError", "The request has ended in a defect."),
    })
}

/// The time in seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
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
    response
}
