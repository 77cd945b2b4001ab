//! Parts that clients and servers of requests share.

use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use plimsoll_load::{Ledger, ServiceReport};

use crate::error::{LabError, Result};

/// Time after the end to wait for answers.
const GRACE: Duration = Duration::from_secs(1);

/// Sends the requests of a run; a connection that is closed meanwhile stops it, and is an error.
pub(super) fn measured(
    ledger: &Ledger,
    send: impl FnMut(u64, u64) -> io::Result<()>,
) -> Result<ServiceReport> {
    let run = ledger.run(GRACE, send);
    let run = run.map_err(|e| LabError::Load(e.to_string()))?;
    if ledger.is_stopped() {
        let why = "the server has closed a connection";
        return Err(LabError::Load(why.to_owned()));
    }
    Ok(run.report(None))
}

/// Starts a thread with a name, by which the lab's traces know it.
pub(super) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let builder = thread::Builder::new().name(name.to_owned());
    builder
        .spawn(body)
        .map_err(LabError::load("starting a thread"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use plimsoll_load::Requests;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        requests: Requests,
    }

    #[test]
    fn closed_connection_is_an_error() {
        let ledger = Ledger::new(&Line::parse_from([""]).requests);
        ledger.stop();
        let why = measured(&ledger, |_, _| Ok(())).unwrap_err();
        assert!(why.to_string().contains("closed"), "{why}");
    }
}
