//! The listener for hosts: TLS connections with bounds.
//!
//! A stranger costs a connection for at most ten seconds, and nothing afterwards. At most
//! [`STRANGERS_MAX`] connections have not identified their host yet; further ones wait in the
//! kernel's queue. One client address has at most [`STRANGERS_OF_CLIENT_MAX`] of them; further ones
//! are closed.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustls::ServerConfig;
use srd_enrol::tls;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use super::HOSTS_MAX;
use super::hub::Hub;
use super::session::{self, Stranger};
use crate::clients::Clients;

/// Largest number of connections that have not identified their host yet.
pub const STRANGERS_MAX: usize = 128;
/// Largest number of such connections of one client address. Several hosts may have one address,
/// behind a translator of addresses.
pub const STRANGERS_OF_CLIENT_MAX: usize = 32;
/// Largest number of connections.
pub const CONNECTIONS_MAX: usize = HOSTS_MAX + STRANGERS_MAX;
/// Pause after an error of `accept`, for example if there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Opens the socket for hosts.
///
/// # Errors
/// If the address cannot be used.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves the socket on a thread of its own, until the process ends. [`Table::begin`] must have
/// prepared the store. Each connection gets an identity that the store has at its beginning.
///
/// # Errors
/// If the store has no identity, or the thread cannot start.
///
/// [`Table::begin`]: super::table::Table::begin
pub fn start(listener: TcpListener, hub: Arc<Hub>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let hosts = hub.hosts().clone();
    if hosts.table().identity.is_none() {
        return Err(io::Error::other("the store has no identity"));
    }
    let tls = tls::of_controller(move || hosts.table().identities()).map_err(io::Error::other)?;
    let serve = move || runtime.block_on(accept(listener, tls, hub));
    thread::Builder::new().name("srd-hosts".to_owned()).spawn(serve)?;
    Ok(())
}

async fn accept(listener: TcpListener, tls: Arc<ServerConfig>, hub: Arc<Hub>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let acceptor = TlsAcceptor::from(tls);
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
    let clients = Clients::new(STRANGERS_OF_CLIENT_MAX);
    loop {
        let connection = Arc::clone(&connections).acquire_owned().await;
        let stranger = Arc::clone(&strangers).acquire_owned().await;
        let (Ok(connection), Ok(stranger)) = (connection, stranger) else { return };
        let Ok((stream, from)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // A client with too many connections is disconnected.
        let Some(slot) = clients.admit(from.ip()) else { continue };
        let stranger = Stranger { _permit: stranger, _slot: slot };
        let (acceptor, hub) = (acceptor.clone(), Arc::clone(&hub));
        tokio::spawn(async move {
            session::run(stream, from, (acceptor, stranger), hub).await;
            drop(connection);
        });
    }
}
