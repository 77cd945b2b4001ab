//! `plimsoll debug`: dumps the state of daemon and scheduler.

mod scheduler;

use std::process::ExitCode;

use plimsoll_daemon::control::protocol::{Answer, Request};
use plimsoll_engine::sample::SchedulerSample;
use serde::Serialize;

use crate::cli::DebugArgs;
use crate::error::{OwnerError, Result};
use crate::output;
use crate::owner::{Owner, not_meant};
use scheduler::Snapshot;

#[derive(Serialize)]
struct Document {
    #[serde(flatten)]
    scheduler: Option<Snapshot>,
    /// The scheduler as the daemon sees it.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<SchedulerSample>,
    /// Text of the daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    daemon: Option<String>,
}

/// Dumps the state of daemon and scheduler, and changes nothing. If one is not available, prints a
/// message and the other.
pub fn run(args: &DebugArgs) -> Result<ExitCode> {
    if let Some(group) = &args.trace {
        return super::trace::run(group, args.duration);
    }
    let daemon = Owner::of_host().and_then(|found| found.map(ask).transpose());
    let document = match (scheduler::take(), daemon) {
        (Err(error), Ok(None)) | (Err(_) | Ok(None), Err(error)) => return Err(error),
        (Ok(None), Ok(None)) => return Err(OwnerError::None.into()),
        (scheduler, daemon) => {
            let (daemon, status) = tell_error(daemon).flatten().unzip();
            Document {
                scheduler: tell_error(scheduler).flatten(),
                status: status.flatten(),
                daemon,
            }
        }
    };
    if args.output.json {
        output::print_json("plimsoll.debug/2", &document)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(snapshot) = &document.scheduler {
        scheduler::print(snapshot, document.status.as_ref())?;
    }
    if let Some(text) = &document.daemon {
        let heading = match document.scheduler {
            Some(_) => "\ndaemon\n",
            None => "daemon\n",
        };
        output::print_line(&format!("{heading}{}", text.trim_end()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn tell_error<T>(result: Result<T>) -> Option<T> {
    result
        .inspect_err(|error| output::tell(&error.to_string()))
        .ok()
}

/// The text of the daemon, and the scheduler as it sees that.
fn ask(mut daemon: Owner) -> Result<(String, Option<SchedulerSample>)> {
    let scheduler = daemon.show(None)?.scheduler;
    match daemon.ask(&Request::Debug)? {
        Answer::Text(text) => Ok((text, scheduler)),
        other => Err(not_meant(&other)),
    }
}
