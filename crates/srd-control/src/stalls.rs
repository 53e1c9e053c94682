//! A stream that fails with a timeout if its client reads no bytes for too long.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A stream on which a write fails that makes no progress for a time.
#[derive(Debug)]
pub(crate) struct Stalls<S> {
    stream: S,
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S> Stalls<S> {
    /// A stream on which a write waits at most for this time.
    pub(crate) fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, timer: None }
    }

    /// Starts the timer at the first write that waits, and stops it at each progress.
    fn watch<T>(
        &mut self,
        result: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.timer = None;
            return result;
        }
        let limit = self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        timer.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalls<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalls<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(result, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(context);
        self.watch(result, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(context);
        self.watch(result, context)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// A regression: a client that did not read its answer occupied one of the limited connections
    /// for an hour.
    #[test]
    fn a_client_that_takes_no_bytes_ends_the_write() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = std::net::TcpStream::connect(address).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        let error = runtime.block_on(async {
            let server = tokio::net::TcpStream::from_std(server).unwrap();
            let mut server = Stalls::new(server, Duration::from_millis(50));
            loop {
                let write =
                    |context: &mut Context<'_>| Pin::new(&mut server).poll_write(context, b"hello");
                if let Err(error) = std::future::poll_fn(write).await {
                    break error;
                }
            }
        });
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let mut hello = [0; 5];
        client.read_exact(&mut hello).unwrap();
        assert_eq!(&hello, b"hello");
    }
}
