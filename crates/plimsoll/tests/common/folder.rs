//! Scratch folder in which Plimsoll runs as a user would run it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A folder, and the command that is tested in it.
pub struct Folder {
    folder: TempDir,
    command: &'static str,
}

impl Folder {
    /// Creates an empty folder. `command`: the first arguments.
    pub fn for_command(command: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder, command }
    }

    pub fn with(self, name: &str, text: &str) -> Self {
        fs::write(self.path(name), text).unwrap();
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs Plimsoll in the folder, with the folder's command and further arguments.
    pub fn command(&self, words: &str) -> Command {
        let mut command = Command::new(super::binary());
        command
            .args(self.command.split_whitespace())
            .args(words.split_whitespace())
            .current_dir(self.folder.path())
            .env_remove("PLIMSOLL_ENFORCER")
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, words: &str) -> Output {
        self.command(words).output().unwrap()
    }

    /// Returns the output of a run that must succeed.
    pub fn good(&self, words: &str) -> String {
        let output = self.run(words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the JSON of a run that must succeed.
    pub fn json(&self, words: &str) -> Value {
        serde_json::from_str(&self.good(&format!("{words} --json"))).unwrap()
    }

    /// Returns the one-line error of a run that must fail.
    pub fn refusal(&self, words: &str) -> String {
        let output = self.run(words);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{words}: {errors}");
        assert_eq!(output.stdout, b"", "{words}");
        assert_eq!(errors.lines().count(), 1, "{words}: {errors}");
        errors.trim_end().to_owned()
    }
}
