//! Metrics of the daemon. If their address is in use, or does not exist yet, the daemon reports it
//! and tries again, because limits matter more than metrics.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_daemon::log::Log;
use plimsoll_daemon::metrics::{Limits, MetricsServer, TRY_AGAIN, openmetrics};
use plimsoll_daemon::service::Handle;

use crate::error::{CommandError, Result};

/// Name under which problems are reported.
const ABOUT: &str = "metrics";

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

/// Starts to serve metrics, now or as soon as possible.
pub fn start(address: SocketAddr, handle: Handle, log: Arc<Log>) -> Result<MetricsServer> {
    if let Some(warning) = warning_of(address) {
        log.warning(ABOUT, &warning);
    }
    let source = handle.clone();
    let text = move || source.state().map_or_else(String::new, openmetrics);
    let report = move |listening: io::Result<SocketAddr>| match listening {
        Ok(address) => {
            log.info(ABOUT, &format!("metrics at http://{address}/metrics"));
            handle.note_problem(ABOUT, None);
        }
        Err(error) => {
            let text = format!(
                "metrics.listen: cannot serve metrics on `{address}`: {error}; tried again every \
                 {} s",
                TRY_AGAIN.as_secs()
            );
            handle.note_problem(ABOUT, Some(text));
        }
    };
    MetricsServer::start(address, text, report, Limits::default())
        .map_err(CommandError::io("cannot serve metrics"))
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
