//! Serves the metrics over HTTP, from one thread.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// Name of the thread that serves metrics; a panic in it does not end the daemon.
pub const THREAD: &str = "metrics";
/// Connections at once. For another one, the oldest is closed, so that idle
/// clients cannot keep Prometheus out. Each may hold a text, which has many megabytes for 10,000
/// groups.
const MAX_CONNECTIONS: usize = 8;
/// Time between attempts to listen.
pub const TRY_AGAIN: Duration = Duration::from_secs(5);

/// Time between attempts to accept when the kernel has no file descriptor left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

const MAX_HEAD_BYTES: usize = 16 << 10;
const MAX_HEADERS: usize = 64;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const INDEX: &str = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
    <title>Plimsoll</title></head>\n<body><h1>Plimsoll</h1>\
    <p><a href=\"/metrics\">Metrics</a></p></body></html>\n";

/// Time limits for a client.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// For a request's head, and for an idle connection.
    pub head: Duration,
    /// For all requests of a connection; then it ends after the present one.
    pub connection: Duration,
    /// For the present reply, once the time for the connection is over.
    pub last_reply: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            connection: Duration::from_secs(60),
            last_reply: Duration::from_secs(10),
        }
    }
}

/// Serves metrics until it is stopped or dropped.
///
/// `GET /metrics` answers with OpenMetrics, with any `Accept` header. Slow, idle and too many
/// clients are disconnected.
#[derive(Debug)]
pub struct MetricsServer {
    /// Dropped to stop the thread.
    running: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Listens on `address` (port 0: any that is free) and serves what `render`
    /// makes: OpenMetrics text, as of [`openmetrics`](super::openmetrics). If that fails, tries
    /// again until it succeeds. Tells `report` each time how it went.
    ///
    /// `render` is called by the server's thread, never twice at a time. While it
    /// runs no client is served, so it should not wait for long.
    pub fn start(
        address: SocketAddr,
        render: impl Fn() -> String + Send + Sync + 'static,
        report: impl Fn(io::Result<SocketAddr>) + Send + Sync + 'static,
        limits: Limits,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (running, stopped) = oneshot::channel::<Infallible>();
        let render = Box::new(render);
        let page = Arc::new(Page { render, limits });
        // In this thread: once the daemon is ready, it serves metrics if it can.
        let mut listener = runtime.block_on(try_to_listen(address, &report));
        let thread = std::thread::Builder::new()
            .name(THREAD.into())
            .spawn(move || {
                runtime.spawn(async move {
                    loop {
                        match listener {
                            Some(listener) => break serve(listener, page).await,
                            None => sleep(TRY_AGAIN).await,
                        }
                        listener = try_to_listen(address, &report).await;
                    }
                });
                // Nothing is ever sent: this waits until the sender is dropped.
                // With the runtime every connection ends.
                let _ = runtime.block_on(stopped);
            })?;
        Ok(Self {
            running: Some(running),
            thread: Some(thread),
        })
    }

    /// Closes every connection and waits for the thread to end.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.running.take();
        if let Some(thread) = self.thread.take() {
            // A panic in it has been reported already.
            let _ = thread.join();
        }
    }
}

/// Listens if that is possible, and tells `report` the address or the failure.
async fn try_to_listen(
    address: SocketAddr,
    report: &impl Fn(io::Result<SocketAddr>),
) -> Option<TcpListener> {
    let bound = TcpListener::bind(address).await;
    let bound = bound.and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (result, listener) = match bound {
        Ok((local, listener)) => (Ok(local), Some(listener)),
        Err(error) => (Err(error), None),
    };
    report(result);
    listener
}

async fn serve(listener: TcpListener, page: Arc<Page>) {
    let mut connections = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_AGAIN).await;
            continue;
        };
        connections.retain(|task: &tokio::task::JoinHandle<()>| !task.is_finished());
        if connections.len() >= MAX_CONNECTIONS
            && let Some(oldest) = connections.pop_front()
        {
            oldest.abort();
        }
        connections.push_back(tokio::spawn(converse(stream, Arc::clone(&page))));
    }
}

/// Answers the requests of one connection. How it ends concerns only the client.
async fn converse(stream: TcpStream, page: Arc<Page>) {
    let limits = page.limits;
    let answer = service_fn(move |request| {
        let response = page.answer(&request);
        async { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), answer);
    let mut connection = pin!(connection);
    if timeout(limits.connection, connection.as_mut())
        .await
        .is_err()
    {
        connection.as_mut().graceful_shutdown();
        let _ = timeout(limits.last_reply, connection).await;
    }
}

struct Page {
    render: Box<dyn Fn() -> String + Send + Sync>,
    limits: Limits,
}

impl Page {
    fn answer(&self, request: &Request<Incoming>) -> Response<String> {
        let path = request.uri().path();
        if !["/", "/metrics"].contains(&path) {
            return plain(StatusCode::NOT_FOUND, "there is only /metrics\n");
        }
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            let allowed = HeaderValue::from_static("GET, HEAD");
            refusal.headers_mut().insert(ALLOW, allowed);
            return refusal;
        }
        if path == "/" {
            return response(StatusCode::OK, "text/html; charset=utf-8", INDEX.into());
        }
        // A request for the head gets the length alone.
        response(StatusCode::OK, OPENMETRICS, (self.render)())
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<String> {
    response(status, "text/plain; charset=utf-8", text.into())
}

fn response(status: StatusCode, content_type: &'static str, reply: String) -> Response<String> {
    let mut response = Response::new(reply);
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
