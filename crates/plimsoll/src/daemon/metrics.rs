//! Metrics of the daemon. If their address is in use, or does not exist yet, the daemon reports it
//! and tries again, because limits matter more than metrics.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use plimsoll_daemon::log::Log;
use plimsoll_daemon::metrics::{MetricsServer, openmetrics};
use plimsoll_daemon::service::Handle;

use crate::error::{CommandError, Result};

/// Name under which problems are reported.
const ABOUT: &str = "metrics";
/// Time between attempts to listen.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// Returns a warning about an address that others can reach.
pub fn warning_of(address: SocketAddr) -> Option<String> {
    let is_open = !address.ip().is_loopback();
    is_open.then(|| {
        format!(
            "metrics.listen: `{address}` is not loopback: every host that reaches it can read the names \
             of all cgroups; there is no password"
        )
    })
}

/// Server of metrics; runs until it is stopped.
pub struct Metrics {
    running: Sender<Infallible>,
    thread: JoinHandle<()>,
}

impl Metrics {
    /// Starts to listen, now or as soon as possible.
    pub fn start(address: SocketAddr, handle: Handle, log: Arc<Log>) -> Result<Self> {
        if let Some(warning) = warning_of(address) {
            log.warning(ABOUT, &warning);
        }
        let (running, stopped) = channel();
        let keeper = Keeper {
            address,
            handle,
            log,
        };
        let first = keeper.try_to_listen();
        let thread = thread::Builder::new()
            .name("metrics-wait".into())
            .spawn(move || keeper.keep(first, &stopped));
        let thread = thread.map_err(CommandError::io("cannot serve metrics"))?;
        Ok(Self { running, thread })
    }

    /// Closes all connections and ends.
    pub fn stop(self) {
        drop(self.running);
        // A panic has already been printed.
        let _ = self.thread.join();
    }
}

struct Keeper {
    address: SocketAddr,
    handle: Handle,
    log: Arc<Log>,
}

impl Keeper {
    /// Listens until the server is stopped; tries again after failures.
    fn keep(&self, mut server: Option<MetricsServer>, stopped: &Receiver<Infallible>) {
        while server.is_none() {
            if stopped.recv_timeout(TRY_AGAIN) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
            server = self.try_to_listen();
        }
        // Waits for the other end to close; no message is ever sent.
        let _ = stopped.recv();
    }

    fn try_to_listen(&self) -> Option<MetricsServer> {
        let handle = self.handle.clone();
        let text = move || handle.state().map_or_else(String::new, openmetrics);
        match MetricsServer::start(self.address, Arc::new(text)) {
            Ok(server) => {
                let text = format!("metrics at http://{}/metrics", server.local_addr());
                self.log.info(ABOUT, &text);
                self.handle.note_problem(ABOUT, None);
                Some(server)
            }
            Err(error) => {
                let text = format!(
                    "metrics.listen: cannot serve metrics on `{}`: {error}; tried again every {} s",
                    self.address,
                    TRY_AGAIN.as_secs()
                );
                self.handle.note_problem(ABOUT, Some(text));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_beyond_loopback_gives_a_warning() {
        for (address, is_told) in [
            ("127.0.0.1:9464", false),
            ("127.1.2.3:1", false),
            ("[::1]:9464", false),
            ("0.0.0.0:9464", true),
            ("[::]:9464", true),
            ("192.0.2.1:9464", true),
        ] {
            let warning = warning_of(address.parse().unwrap());
            assert_eq!(warning.is_some(), is_told, "{address}");
        }
    }
}
