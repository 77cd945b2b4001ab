//! Exit reports of schedulers.

use std::ffi::c_char;
use std::fmt;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use plimsoll_engine::runtime::RuntimeFolder;

/// Name of the file of the kernel's dump of a scheduler that was thrown out.
pub(crate) const DUMP: &str = "sched-ext.dump";

/// Exit report of a scheduler. Displayed as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitReport {
    /// The kernel's text for the kind.
    pub reason: String,
    /// Details, if there are any.
    pub message: String,
    /// The kernel's dump of runqueues and tasks: many lines, of errors only.
    pub dump: String,
}

impl ExitReport {
    pub(crate) fn new(reason: &[c_char], message: &[c_char], dump: &[u8]) -> Self {
        Self {
            reason: text(reason.iter().map(|&c| c.cast_unsigned())),
            message: text(message.iter().map(|&c| c.cast_unsigned())),
            dump: text(dump.iter().copied()),
        }
    }

    /// Writes the kernel's dump, if there is one, to a file, and returns that.
    pub(crate) fn write_dump(&self, runtime: &RuntimeFolder) -> Option<PathBuf> {
        if self.dump.is_empty() {
            return None;
        }
        let path = runtime.path().join(DUMP);
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).write(true).mode(0o600);
        let mut file = options.open(&path).ok()?;
        file.write_all(self.dump.as_bytes()).ok()?;
        Some(path)
    }
}

impl fmt::Display for ExitReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        if !self.message.is_empty() {
            write!(f, " ({})", self.message)?;
        }
        Ok(())
    }
}

/// Converts a C string, which ends with the bytes if it is not terminated.
fn text(bytes: impl Iterator<Item = u8>) -> String {
    let bytes: Vec<u8> = bytes.take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_end_at_the_first_nul_or_with_their_buffer() {
        assert_eq!(text(b"stall\0old".iter().copied()), "stall");
        assert_eq!(text(b"full".iter().copied()), "full");
    }

    #[test]
    fn a_report_is_one_line() {
        let mut report = ExitReport::new(&[], &[], b"a\nb\0");
        report.reason = "unregistered".into();
        assert_eq!(report.to_string(), "unregistered");
        report.message = "by hand".into();
        assert_eq!(report.to_string(), "unregistered (by hand)");
        assert_eq!(report.dump, "a\nb");
    }
}
