//! A plimsoll command that runs as a child process, from its start to its report.

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plimsoll_engine::sample::Sample;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::{CommandError, Result};

/// Bound of the output of a command.
const OUTPUT_BYTES_MAX: u64 = 4 << 20;
/// Interval at which an ending command is polled.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Time for a command to end after a signal, before the next signal.
const PATIENCE: Duration = Duration::from_secs(5);

/// A running command. Dropping it ends the command.
#[derive(Debug)]
pub struct Running {
    what: String,
    child: Child,
    readers: Option<(JoinHandle<String>, JoinHandle<String>)>,
}

/// Exit status and output of a command.
#[derive(Debug)]
pub struct Ended {
    what: String,
    status: ExitStatus,
    output: String,
    errors: String,
}

/// Reads a stream to its end in a thread.
fn reader(stream: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(stream) = stream {
            // Keeps the text before an error.
            let _ = stream.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

impl Running {
    /// Starts the program with arguments, one more variable if there is one, and an empty standard
    /// input. `what` names it in messages.
    pub fn start<S: AsRef<OsStr>>(
        program: &Path,
        arguments: impl IntoIterator<Item = S>,
        variable: Option<(&str, &str)>,
        what: impl Into<String>,
    ) -> Result<Self> {
        let what = what.into();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .envs(variable)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
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

    pub fn has_ended(&mut self) -> Result<bool> {
        let status = self.child.try_wait();
        Ok(status
            .map_err(CommandError::io(format!(
                "{}: cannot wait for it",
                self.what
            )))?
            .is_some())
    }

    /// Sends SIGTERM if the command still runs; `run` forwards it and undoes its changes.
    pub fn ask_to_end(&mut self) -> Result<()> {
        if !self.has_ended()? {
            // The pid fits, and is not reused before the process is waited for.
            let pid = Pid::from_raw(self.child.id().cast_signed());
            // It may have ended just now.
            let _ = kill(pid, Signal::SIGTERM);
        }
        Ok(())
    }

    /// Ends the command and waits: by SIGTERM, by a second one, which makes `run` release the
    /// processes of its group, and then by SIGKILL.
    fn end(&mut self) -> Result<ExitStatus> {
        for _ in 0..2 {
            self.ask_to_end()?;
            let end = Instant::now() + PATIENCE;
            while Instant::now() < end && !self.has_ended()? {
                thread::sleep(LOOK_EVERY);
            }
        }
        if !self.has_ended()? {
            // The next `run` undoes its changes.
            let _ = self.child.kill();
        }
        let waited = self.child.wait();
        waited.map_err(CommandError::io(format!(
            "{}: cannot wait for it",
            self.what
        )))
    }

    /// Ends the command if it still runs, and returns its output.
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
    /// Error for a command that has failed.
    pub fn failure(&self) -> CommandError {
        let lines = self.errors.lines().map(str::trim);
        let said = lines
            .filter_map(|line| line.strip_prefix("plimsoll: "))
            .next_back();
        let reason = said.map_or_else(|| self.status.to_string(), str::to_owned);
        let what = self.what.clone();
        CommandError::Workload { what, reason }
    }

    /// Returns whether SIGTERM has ended the program in the group, which had not begun to handle it.
    pub fn was_terminated(&self) -> bool {
        self.status.code() == Some(128 + Signal::SIGTERM as i32)
    }

    /// Report on standard output, if the command printed one.
    pub fn report<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(self.output.trim()).ok()
    }

    /// Statistics of the command's group, which `run --stats` prints on standard error.
    pub fn statistics(&self) -> Option<Sample> {
        #[derive(Deserialize)]
        struct Document {
            statistics: Sample,
        }
        let json = &self.errors[self.errors.find("{\n")?..];
        let document: Document = serde_json::from_str(json.trim()).ok()?;
        Some(document.statistics)
    }

    /// Plimsoll's warnings.
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
    fn failure_is_one_line_with_the_commands_message() {
        let said = ended("", "noise\nplimsoll: weight: no permission\n", 125 << 8);
        assert_eq!(
            said.failure().to_string(),
            "demo: phase batch: the burners failed: weight: no permission"
        );
        let killed = ended("", "", 9).failure().to_string();
        assert!(killed.contains("signal: 9"), "{killed}");
        let statuses = [143 << 8, 9, 0, 125 << 8];
        let terminated = statuses.map(|status| ended("", "", status).was_terminated());
        assert_eq!(terminated, [true, false, false, false]);
        assert!(ended("{ not json", "{\n", 0).report::<u32>().is_none());
        assert!(ended("", "{\n", 0).statistics().is_none());
    }
}
