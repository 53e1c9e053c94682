//! Calls to the members of an etcd cluster.
//!
//! A call goes to one member. If the member does not answer, or has no leader, the call goes to the
//! next one, until the time limit of the call has passed.
//!
//! The files of certificates are read again as soon as one of them has changed. Later calls then go
//! through other connections. If the new content is refused, the former connections stay in use.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::http::uri::PathAndQuery;
use hyper_util::client::legacy::connect::HttpConnector;
use prost::Message;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::StreamExt;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::wire::{
    LeaseKeepAliveRequest, LeaseKeepAliveResponse, WatchCreateRequest, WatchRequest, WatchResponse,
};
use crate::server::RELOAD_PERIOD;
use crate::tls::{LastRead, Stamp, read_again, read_pem, stamp};

/// Largest number of members.
const MEMBERS_MAX: usize = 16;
/// Longest time for the connection to a member.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(1);
/// Longest time for the answer of one member.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(2);
/// Pause between two attempts of a call.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(50);
/// Time without data after which a connection is probed. etcd refuses probes at intervals below 5
/// seconds.
const PROBE_AFTER: Duration = Duration::from_secs(6);
/// Longest time for the answer to a probe.
const PROBE_WAIT_MAX: Duration = Duration::from_secs(3);
/// Longest time without an acknowledgement of data by TCP, after which a connection ends. It is
/// shorter than the pauses of TCP between repetitions become, so that calls get through soon after
/// a partition of the network has ended.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_millis(1500);
/// Largest answer in bytes.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Files with certificates and keys in PEM for connections to etcd.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Certificates of authorities that may sign the members' certificates.
    pub authorities: PathBuf,
    /// Certificate of this controller, and its key, which only the owner may read.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    fn stamps(&self) -> Vec<Stamp> {
        let identity = self.identity.iter().flat_map(|(certificate, key)| [certificate, key]);
        std::iter::once(&self.authorities).chain(identity).map(|path| stamp(path)).collect()
    }

    /// Reads the files, and returns the settings of connections.
    fn read(&self) -> Result<ClientTlsConfig, String> {
        let authorities = Certificate::from_pem(read_pem(&self.authorities, false)?);
        let config = ClientTlsConfig::new().ca_certificate(authorities);
        let Some((certificate, key)) = &self.identity else { return Ok(config) };
        let identity = Identity::from_pem(read_pem(certificate, false)?, read_pem(key, true)?);
        Ok(config.identity(identity))
    }
}

/// The error of a call.
#[derive(Debug)]
pub(super) struct CallError {
    pub(super) status: Status,
    /// Whether an attempt may have taken effect although its answer did not arrive.
    pub(super) is_uncertain: bool,
}

impl CallError {
    /// Whether the requested revision is no longer known.
    pub(super) fn is_compacted(&self) -> bool {
        self.status.code() == Code::OutOfRange
    }
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.status.message() {
            "" => write!(f, "etcd: {}", self.status.code()),
            message => write!(f, "etcd: {message}"),
        }
    }
}

/// The members of a cluster.
#[derive(Debug)]
pub(super) struct Client {
    addresses: Vec<String>,
    tls: Option<Tls>,
    connections: Mutex<Connections>,
    /// Index of the member to which calls go.
    current: AtomicUsize,
}

/// Connections to the members, of which each is opened by its first call.
#[derive(Debug)]
struct Connections {
    members: Vec<Channel>,
    /// The last read of the files of certificates.
    last: LastRead<Vec<Stamp>>,
}

impl Connections {
    fn new(members: &[String], tls: Option<&Tls>) -> Result<Self, String> {
        // A change after this line makes the next look at the files read them again.
        let stamps = tls.map(Tls::stamps).unwrap_or_default();
        let tls = tls.map(Tls::read).transpose()?;
        let channel = |member: &String| {
            let wrong = |error: tonic::transport::Error| match std::error::Error::source(&error) {
                Some(source) => format!("{member}: {error}: {source}"),
                None => format!("{member}: {error}"),
            };
            let mut endpoint = Endpoint::from_shared(member.clone()).map_err(wrong)?;
            endpoint = endpoint
                .connect_timeout(CONNECT_WAIT_MAX)
                .http2_keep_alive_interval(PROBE_AFTER)
                .keep_alive_timeout(PROBE_WAIT_MAX);
            if member.starts_with("https://") {
                let tls = tls.clone().ok_or_else(|| {
                    format!("{member}: the certificate of the authority is missing")
                })?;
                endpoint = endpoint.tls_config(tls).map_err(wrong)?;
            }
            Ok(endpoint.connect_with_connector_lazy(tcp()))
        };
        let members = members.iter().map(channel).collect::<Result<_, String>>()?;
        Ok(Self { members, last: LastRead::new(stamps) })
    }
}

impl Client {
    /// Creates the members without connections; the first call to a member opens its connection.
    /// Needs a Tokio runtime.
    pub(super) fn new(members: &[String], tls: Option<&Tls>) -> Result<Self, String> {
        if members.is_empty() || members.len() > MEMBERS_MAX {
            return Err(format!("etcd has 1 to {MEMBERS_MAX} members"));
        }
        let connections = Mutex::new(Connections::new(members, tls)?);
        let (addresses, tls) = (members.to_vec(), tls.cloned());
        Ok(Self { addresses, tls, connections, current: AtomicUsize::new(0) })
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the files of certificates again if one of them has changed, or the last read has
    /// failed, for later calls. Returns `None` if there is nothing new. Needs a Tokio runtime.
    ///
    /// # Errors
    /// A text for the operator. The former certificates stay in use.
    fn reload(&self) -> Option<Result<(), String>> {
        let stamps = self.tls.as_ref()?.stamps();
        let read = || Connections::new(&self.addresses, self.tls.as_ref());
        read_again(&self.connections, stamps, |current| &mut current.last, read)
    }

    /// Looks for changes of the files of certificates for ever.
    pub(super) async fn follow_files(&self, report: fn(&str)) {
        if self.tls.is_none() {
            return;
        }
        loop {
            sleep(RELOAD_PERIOD).await;
            match self.reload() {
                None => {}
                Some(Ok(())) => report("the certificates for etcd were read again"),
                Some(Err(why)) => {
                    report(&format!("the former certificates for etcd stay in use: {why}"));
                }
            }
        }
    }

    fn current(&self) -> (usize, tonic::client::Grpc<Channel>) {
        let at = self.current.load(Ordering::Relaxed) % self.addresses.len();
        let grpc = tonic::client::Grpc::new(self.connections().members[at].clone());
        (at, grpc.max_decoding_message_size(ANSWER_BYTES_MAX))
    }

    /// Directs later calls to the member after `at`, unless calls already go to a member other than
    /// `at`.
    fn leave(&self, at: usize) {
        let next = (at + 1) % self.addresses.len();
        let _ = self.current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Calls a function of the API. Repeats the call, each time at another member, until `until`.
    pub(super) async fn call<Q, A>(
        &self,
        path: &'static str,
        request: &Q,
        until: Instant,
    ) -> Result<A, CallError>
    where
        Q: Message + Clone + Default + 'static,
        A: Message + Default + 'static,
    {
        let mut is_uncertain = false;
        loop {
            let (at, mut grpc) = self.current();
            let attempt = async {
                grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
                let codec = ProstCodec::<Q, A>::default();
                let path = PathAndQuery::from_static(path);
                grpc.unary(Request::new(request.clone()), path, codec).await
            };
            let wait = ANSWER_WAIT_MAX.min(until.saturating_duration_since(Instant::now()));
            let status = match timeout(wait, attempt).await {
                Ok(Ok(answer)) => return Ok(answer.into_inner()),
                Ok(Err(status)) => status,
                Err(_) => Status::deadline_exceeded("the members do not answer"),
            };
            if !is_transient(&status) {
                return Err(CallError { status, is_uncertain });
            }
            is_uncertain = true;
            self.leave(at);
            if Instant::now() + ATTEMPT_PAUSE >= until {
                return Err(CallError { status, is_uncertain });
            }
            sleep(ATTEMPT_PAUSE).await;
        }
    }

    /// Prolongs a lease, and returns the remaining seconds; 0 if it has ended.
    pub(super) async fn keep_alive(&self, id: i64) -> Result<i64, Status> {
        let (at, mut grpc) = self.current();
        let attempt = async {
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let codec = ProstCodec::<LeaseKeepAliveRequest, LeaseKeepAliveResponse>::default();
            let path = PathAndQuery::from_static("/etcdserverpb.Lease/LeaseKeepAlive");
            let requests = tokio_stream::once(LeaseKeepAliveRequest { id });
            let mut answers = grpc.streaming(Request::new(requests), path, codec).await?;
            answers.get_mut().message().await
        };
        let answer = match timeout(ANSWER_WAIT_MAX, attempt).await {
            Ok(answer) => answer,
            Err(_) => Err(Status::deadline_exceeded("the members do not answer")),
        };
        match answer {
            Ok(Some(answer)) => Ok(answer.ttl),
            Ok(None) => Err(Status::unavailable("the stream has ended")),
            Err(status) => {
                self.leave(at);
                Err(status)
            }
        }
    }

    /// Begins to watch keys. The stream ends if the member has no leader.
    pub(super) async fn watch(&self, create: WatchCreateRequest) -> Result<Watch<'_>, Status> {
        let (at, mut grpc) = self.current();
        let attempt = async {
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            // The stream of requests stays open, because the member ends the watch when this stream
            // ends.
            let first = tokio_stream::once(WatchRequest { create: Some(create) });
            let requests = first.chain(tokio_stream::pending());
            let mut request = Request::new(requests);
            request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
            let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
            let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
            grpc.streaming(request, path, codec).await
        };
        match timeout(ANSWER_WAIT_MAX, attempt).await {
            Ok(Ok(answers)) => Ok(Watch { client: self, at, answers: answers.into_inner() }),
            Ok(Err(status)) => {
                self.leave(at);
                Err(status)
            }
            Err(_) => {
                self.leave(at);
                Err(Status::deadline_exceeded("the members do not answer"))
            }
        }
    }
}

/// The connections of TCP to the members.
fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX));
    tcp
}

/// Whether another attempt may succeed.
fn is_transient(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Unknown
            | Code::Internal
            | Code::Aborted
    )
}

/// A watch at one member.
pub(super) struct Watch<'a> {
    client: &'a Client,
    at: usize,
    answers: Streaming<WatchResponse>,
}

impl Watch<'_> {
    /// Returns the next answer; `None` if the stream has ended.
    pub(super) async fn next(&mut self) -> Option<WatchResponse> {
        self.answers.message().await.ok().flatten()
    }

    /// Directs the next watch and later calls to another member.
    pub(super) fn leave(&self) {
        self.client.leave(self.at);
    }
}
