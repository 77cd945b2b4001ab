//! The metrics of the daemon. What they need may be missing: an address that
//! somebody else has, or that the machine has yet to get. Limits matter more,
//! so the daemon goes on without them, says so, and tries again.

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

/// What is wrong about them is told under this name.
const ABOUT: &str = "metrics";
/// Between attempts to listen.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// What people should know of an address before others find out.
pub fn warning_of(address: SocketAddr) -> Option<String> {
    let is_open = !address.ip().is_loopback();
    is_open.then(|| {
        format!(
            "metrics.listen: `{address}` is not loopback: whoever reaches it may read the names \
             of all cgroups; there is no password"
        )
    })
}

/// Serves metrics until it is stopped.
pub struct Metrics {
    running: Sender<Infallible>,
    thread: JoinHandle<()>,
}

impl Metrics {
    /// Begins to listen, now or as soon as that is possible.
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

    /// Closes every connection.
    pub fn stop(self) {
        drop(self.running);
        // What it panicked with has been printed.
        let _ = self.thread.join();
    }
}

struct Keeper {
    address: SocketAddr,
    handle: Handle,
    log: Arc<Log>,
}

impl Keeper {
    /// Listens until there is nobody to listen for.
    fn keep(&self, mut server: Option<MetricsServer>, stopped: &Receiver<Infallible>) {
        while server.is_none() {
            if stopped.recv_timeout(TRY_AGAIN) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
            server = self.try_to_listen();
        }
        // Nothing is ever sent: this waits for the other end to go.
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
    fn an_address_that_others_reach_is_told() {
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
