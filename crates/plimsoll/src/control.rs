//! How a running group is asked and changed: the process that made it
//! listens on a socket in the runtime folder and does it itself, so that
//! every kernel file has one writer.
//!
//! One request a connection: a line of JSON of limited length, answered by
//! a line of JSON.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_engine::enforcer::{EnforcerKind, Sample};
use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::plan::Plan;
use plimsoll_engine::policy_set::check_name;
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::{EngineError, journal};
use serde::{Deserialize, Serialize};

use crate::error::{CommandError, Result};

/// The version of requests and answers.
const VERSION: u32 = 1;
/// No request or answer is longer.
const LINE_BYTES_MAX: u64 = 64 * 1024;
/// Neither side waits longer for the other.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What can be asked of a running group.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Its knobs and statistics.
    Show,
    /// Lay these knobs over those in force.
    Set {
        /// What is asked for.
        knobs: Box<Knobs>,
        /// Go on without what cannot be enforced.
        best_effort: bool,
        /// Say what would be done, and do nothing.
        dry_run: bool,
    },
}

#[derive(Debug, Serialize, Deserialize)]
struct VersionedRequest {
    version: u32,
    request: Request,
}

/// What a running group answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Its state.
    State(Box<GroupState>),
    /// Why not.
    Refused(String),
}

/// A group as `show` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupState {
    /// Its name.
    pub name: String,
    /// What runs in it.
    pub subject: String,
    /// Its cgroup.
    pub cgroup: PathBuf,
    /// The process that keeps it.
    pub pid: u32,
    /// What is asked of it.
    pub knobs: Knobs,
    /// What enforces each knob.
    pub plan: serde_json::Value,
    /// Which interface of the kernel that is made of.
    #[serde(default)]
    pub enforcer: EnforcerKind,
    /// What it has used.
    pub statistics: Option<Sample>,
}

impl GroupState {
    /// A plan as part of a state.
    pub fn plan_value(plan: &Plan) -> serde_json::Value {
        // A plan has string keys only: it always serialises.
        serde_json::to_value(&plan.items).unwrap_or_default()
    }
}

/// Where a group's socket is.
pub fn socket_path(runtime: &RuntimeFolder, name: &str) -> PathBuf {
    runtime
        .path()
        .join(format!("{name}.{}", journal::SOCKET_EXTENSION))
}

/// Answers one client. Whatever it sends, it gets one answer or nothing.
pub fn serve(stream: UnixStream, answer: impl FnOnce(Request) -> Answer) {
    let timeouts = stream
        .set_read_timeout(Some(TIMEOUT))
        .and_then(|()| stream.set_write_timeout(Some(TIMEOUT)));
    if timeouts.is_err() {
        return;
    }
    let mut line = String::new();
    let mut reader = BufReader::new((&stream).take(LINE_BYTES_MAX));
    if reader.read_line(&mut line).is_err() {
        return;
    }
    let answer = match serde_json::from_str::<VersionedRequest>(&line) {
        Ok(request) if request.version == VERSION => answer(request.request),
        Ok(request) => Answer::Refused(format!(
            "request of version {}; this group speaks version {VERSION}",
            request.version
        )),
        Err(error) => Answer::Refused(format!("not a request: {error}")),
    };
    if let Ok(mut text) = serde_json::to_string(&answer) {
        text.push('\n');
        // A client that has gone needs no answer.
        let _ = (&stream).write_all(text.as_bytes());
    }
}

/// Listens for requests to a group of ours.
pub fn listen(path: &Path) -> Result<UnixListener> {
    let failed = || CommandError::io(format!("{}: cannot listen", path.display()));
    let listener = UnixListener::bind(path).map_err(failed())?;
    // The folder may be open to others.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed())?;
    Ok(listener)
}

/// Asks a group. `None`: nobody listens.
pub fn ask(runtime: &RuntimeFolder, name: &str, request: Request) -> Result<Option<GroupState>> {
    // Any other name would lead out of the runtime folder.
    if check_name(name).is_err() {
        return Ok(None);
    }
    let Ok(mut stream) = UnixStream::connect(socket_path(runtime, name)) else {
        return Ok(None);
    };
    let no_answer = |problem: String| {
        CommandError::from(EngineError::Control {
            name: name.into(),
            problem,
        })
    };
    let failed = |error: std::io::Error| no_answer(format!("did not answer: {error}"));
    stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    stream.set_write_timeout(Some(TIMEOUT)).map_err(failed)?;
    let request = VersionedRequest {
        version: VERSION,
        request,
    };
    let mut text = serde_json::to_string(&request).map_err(|e| no_answer(e.to_string()))?;
    text.push('\n');
    stream.write_all(text.as_bytes()).map_err(failed)?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX))
        .read_line(&mut line)
        .map_err(failed)?;
    if line.is_empty() {
        return Err(no_answer("has ended before it answered".into()));
    }
    match serde_json::from_str(&line) {
        Ok(Answer::State(state)) => Ok(Some(*state)),
        Ok(Answer::Refused(reason)) => Err(CommandError::Other(reason)),
        Err(error) => Err(no_answer(format!("answered something else: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(text: &[u8]) -> String {
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(text).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        serve(server, |_| Answer::Refused("asked".into()));
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn garbage_gets_an_answer_and_no_more() {
        assert!(exchange(b"garbage\n").contains("not a request"));
        assert!(exchange(b"").contains("not a request"));
        assert!(exchange(b"{\"version\":1,\"request\":\"show\"}\n").contains("asked"));
        assert!(exchange(b"{\"version\":2,\"request\":\"show\"}\n").contains("version 2"));
    }

    #[test]
    fn a_line_without_end_is_cut_off() {
        let (mut client, server) = UnixStream::pair().unwrap();
        let writer = std::thread::spawn(move || {
            let piece = vec![b'x'; 4096];
            let mut sent = 0;
            while sent < 1 << 20 && client.write_all(&piece).is_ok() {
                sent += piece.len();
            }
            sent
        });
        serve(server, |_| Answer::Refused("asked".into()));
        assert!(writer.join().unwrap() < 1 << 20);
    }
}
