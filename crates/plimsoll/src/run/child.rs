//! Start of the command, and its exit code.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitCode, ExitStatus};

use crate::error::{CommandError, EXIT_FAILED, Result};

/// Starts a command after `prepare` has run in its process. `prepare` makes only system calls: it
/// neither allocates nor locks.
pub fn spawn_after(
    words: &[OsString],
    prepare: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) -> Result<Child> {
    let shown = words[0].to_string_lossy().into_owned();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    // SAFETY: between fork and exec, `prepare` makes system calls only, as its
    // callers promise. `Vec` iteration and making an error of a number do not
    // allocate.
    unsafe { command.pre_exec(prepare) };
    command.spawn().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => CommandError::NotFound { command: shown },
        _ => CommandError::CannotRun {
            command: shown,
            source,
        },
    })
}

/// Exit code for a signal that ended the command, or prevented its start.
pub fn killed_by(signal: i32) -> ExitCode {
    ExitCode::from(u8::try_from(128 + signal).unwrap_or(EXIT_FAILED))
}

/// Exit code of the command, or 128 + N if signal N killed it.
pub fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    // An ended process has either a code or a signal.
    ExitCode::from(
        code.and_then(|code| u8::try_from(code).ok())
            .unwrap_or(EXIT_FAILED),
    )
}
