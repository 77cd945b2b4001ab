//! Plimsoll started by itself: one running command, from its start to its
//! report.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plimsoll_engine::enforcer::Sample;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::{CommandError, Result};

/// No command prints more.
const OUTPUT_BYTES_MAX: u64 = 4 << 20;
/// How often a command that was told to end is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// A command that was told to end does so in this time, or is told again.
const PATIENCE: Duration = Duration::from_secs(5);

/// What holds a command to this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leash {
    /// Nothing; its standard input is empty.
    None,
    /// Its standard input, a pipe. A signal from the terminal does not reach
    /// it: whoever holds the leash ends it in order.
    Stdin,
}

/// A command. Dropping it ends it.
#[derive(Debug)]
pub struct Running {
    what: String,
    child: Child,
    readers: Option<(JoinHandle<String>, JoinHandle<String>)>,
}

/// What a command has left.
#[derive(Debug)]
pub struct Ended {
    what: String,
    status: ExitStatus,
    output: String,
    errors: String,
}

/// Reads a stream to its end beside everything else.
fn reader(stream: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(stream) = stream {
            // What came before an error is still worth reading.
            let _ = stream.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

impl Running {
    /// Starts the program with arguments. `what` it is begins every message.
    /// With a leash it reads from a pipe that ends with this process.
    pub fn start<S: AsRef<OsStr>>(
        program: &Path,
        arguments: impl IntoIterator<Item = S>,
        what: impl Into<String>,
        leash: Leash,
    ) -> Result<Self> {
        let what = what.into();
        let stdin = match leash {
            Leash::None => Stdio::null(),
            Leash::Stdin => Stdio::piped(),
        };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if leash == Leash::Stdin {
            command.process_group(0);
        }
        let mut child = command.spawn().map_err(CommandError::io(format!(
            "{what}: cannot start plimsoll itself"
        )))?;
        let readers = (reader(child.stdout.take()), reader(child.stderr.take()));
        Ok(Self {
            what,
            child,
            readers: Some(readers),
        })
    }

    /// The end of its leash, once.
    pub fn take_leash(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> Result<bool> {
        let status = self.child.try_wait();
        Ok(status
            .map_err(CommandError::io(format!(
                "{}: cannot wait for it",
                self.what
            )))?
            .is_some())
    }

    /// Asks it to end, if it has not; `run` passes that on and undoes what
    /// it did.
    pub fn ask_to_end(&mut self) -> Result<()> {
        if !self.has_ended()? {
            // A pid fits, and it has not been waited for: it is its own.
            let pid = Pid::from_raw(self.child.id().cast_signed());
            // It may have ended just now.
            let _ = kill(pid, Signal::SIGTERM);
        }
        Ok(())
    }

    /// Asks it to end and waits until it has. Asked twice, `run` releases
    /// what lingers in its group; after that it is beyond asking.
    fn end(&mut self) -> Result<ExitStatus> {
        for _ in 0..2 {
            self.ask_to_end()?;
            let end = Instant::now() + PATIENCE;
            while Instant::now() < end && !self.has_ended()? {
                thread::sleep(LOOK_EVERY);
            }
        }
        if !self.has_ended()? {
            // The next `run` undoes what it leaves behind.
            let _ = self.child.kill();
        }
        let waited = self.child.wait();
        waited.map_err(CommandError::io(format!(
            "{}: cannot wait for it",
            self.what
        )))
    }

    /// Ends it, if it has not ended, and takes what it has printed.
    pub fn finish(mut self) -> Result<Ended> {
        let status = self.end()?;
        let read = |reader: JoinHandle<String>| reader.join().unwrap_or_default();
        let (output, errors) = self
            .readers
            .take()
            .map(|(output, errors)| (read(output), read(errors)))
            .unwrap_or_default();
        Ok(Ended {
            what: std::mem::take(&mut self.what),
            status,
            output,
            errors,
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.readers.is_some() {
            let _ = self.end();
        }
    }
}

impl Ended {
    /// The error of a command that has not done its job.
    pub fn failure(&self) -> CommandError {
        let lines = self.errors.lines().map(str::trim);
        let said = lines
            .filter_map(|line| line.strip_prefix("plimsoll: "))
            .next_back();
        let reason = said.map_or_else(|| self.status.to_string(), str::to_owned);
        CommandError::Other(format!("{} failed: {reason}", self.what))
    }

    /// The report, if it printed one.
    pub fn report<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(self.output.trim()).ok()
    }

    /// What the kernel counted of its group.
    pub fn statistics(&self) -> Option<Sample> {
        #[derive(Deserialize)]
        struct Document {
            statistics: Sample,
        }
        let json = &self.errors[self.errors.find("{\n")?..];
        let document: Document = serde_json::from_str(json.trim()).ok()?;
        Some(document.statistics)
    }

    /// All that it printed.
    pub fn output(&self) -> &str {
        &self.output
    }

    /// What Plimsoll warned of, a sentence each.
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        self.errors
            .lines()
            .filter_map(|line| line.strip_prefix("plimsoll: "))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    fn ended(output: &str, errors: &str, status: i32) -> Ended {
        Ended {
            what: "demo: phase batch: the burners".into(),
            status: ExitStatus::from_raw(status),
            output: output.into(),
            errors: errors.into(),
        }
    }

    #[test]
    fn statistics_are_found_behind_warnings() {
        let text = "plimsoll: headroom 30%: kept on average\n{\n  \"schema\": \"plimsoll.run/1\",\n  \
                    \"statistics\": {\"usage_usec\": 7, \"processes\": 0}\n}\n";
        let ended = ended("", text, 0);
        assert_eq!(ended.statistics().unwrap().usage_usec, 7);
        let warnings: Vec<_> = ended.warnings().collect();
        assert_eq!(warnings, ["headroom 30%: kept on average"]);
    }

    #[test]
    fn a_failure_is_one_line_with_the_commands_own_words() {
        let said = ended("", "noise\nplimsoll: weight: no permission\n", 125 << 8);
        assert_eq!(
            said.failure().to_string(),
            "demo: phase batch: the burners failed: weight: no permission"
        );
        let killed = ended("", "", 9).failure().to_string();
        assert!(killed.contains("signal: 9"), "{killed}");
        assert!(ended("{ not json", "{\n", 0).report::<u32>().is_none());
        assert!(ended("", "{\n", 0).statistics().is_none());
    }
}
