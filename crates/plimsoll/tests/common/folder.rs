//! A scratch folder in which Plimsoll is run as a user runs it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A folder to run in, and the command that is tried there.
pub struct Folder {
    folder: TempDir,
    command: &'static str,
}

impl Folder {
    /// An empty folder. `command`: words that come before all others.
    pub fn for_command(command: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder, command }
    }

    /// The folder, with this file in it.
    pub fn with(self, name: &str, text: &str) -> Self {
        fs::write(self.path(name), text).unwrap();
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Plimsoll with the folder's command and these words, in the folder.
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

    /// What it prints where it must succeed.
    pub fn good(&self, words: &str) -> String {
        let output = self.run(words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What it prints with `--json` where it must succeed.
    pub fn json(&self, words: &str) -> Value {
        serde_json::from_str(&self.good(&format!("{words} --json"))).unwrap()
    }

    /// The one line that it says where it must fail.
    pub fn refusal(&self, words: &str) -> String {
        let output = self.run(words);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{words}: {errors}");
        assert_eq!(output.stdout, b"", "{words}");
        assert_eq!(errors.lines().count(), 1, "{words}: {errors}");
        errors.trim_end().to_owned()
    }
}
