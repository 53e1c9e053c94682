//! Echo with futures and without a runtime: any executor can run them. This example has one of a
//! dozen lines.
//!
//! ```text
//! echo_async 100        a server and a client in one process, 100 round trips
//! ```

use std::error::Error;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use bytes::Bytes;
use srd_net::{BindOptions, Endpoint};

/// A waker that unparks the thread that polls the future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

async fn serve(endpoint: &Endpoint, count: usize) -> Result<(), Box<dyn Error + Send + Sync>> {
    for _ in 0..count {
        let datagram = endpoint.recv_async().await?;
        datagram.peer.send_async(datagram.payload).await?;
    }
    Ok(())
}

async fn ask(endpoint: &Endpoint, server: &Endpoint, count: usize) -> Result<(), Box<dyn Error>> {
    let server = endpoint.connect_async(server.local_address(), None).await?;
    for i in 0..count {
        let word = Bytes::from(format!("word {i}"));
        server.send_async(word.clone()).await?;
        let answer = endpoint.recv_async().await?;
        assert_eq!(answer.payload, word);
    }
    server.flush_async().await?;
    println!("{count} round trips with {}", server.address());
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let count = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(100);
    let loopback = BindOptions::at("127.0.0.1:0".parse()?);
    let server = Arc::new(Endpoint::bind(&loopback)?);
    let client = Endpoint::bind(&loopback)?;
    let serving = server.clone();
    let thread = std::thread::spawn(move || block_on(serve(&serving, count)));
    block_on(ask(&client, &server, count))?;
    thread.join().map_err(|_| "the server died")?.map_err(|e| e as Box<dyn Error>)?;
    Ok(())
}
