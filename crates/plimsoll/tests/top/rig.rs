//! A terminal that tests can read.

use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::common::{Looks, binary, is_stopped, wait_for, wait_until};

/// Panics if tmux is not installed.
pub fn need_tmux() {
    let found = Command::new("tmux")
        .arg("-V")
        .stdout(Stdio::null())
        .status();
    let is_there = found.is_ok_and(|status| status.success());
    assert!(is_there, "THESE TESTS NEED TMUX: tools/install-deps native");
}

/// A shell in a terminal of tmux, with a tmux server of its own.
pub struct Terminal {
    folder: TempDir,
}

impl Terminal {
    /// Starts a terminal of 80 × 24. `confine`: prepares the command that starts it.
    pub fn new(confine: impl FnOnce(&mut Command)) -> Self {
        let terminal = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let mut command = terminal.tmux(&["-f", "/dev/null", "-u", "new-session", "-d"]);
        command.args(["-x", "80", "-y", "24", "sh"]);
        let plimsoll = binary();
        let path = format!(
            "{}:{}",
            plimsoll.parent().unwrap().display(),
            std::env::var("PATH").unwrap()
        );
        command.env_remove("NO_COLOR").env_remove("ENV");
        command.env_remove("LC_ALL").env_remove("LC_CTYPE");
        command.env("PATH", path).env("LANG", "C.UTF-8");
        confine(&mut command);
        assert!(command.status().unwrap().success(), "{command:?}");
        terminal.run(&["set-option", "-g", "status", "off"]);
        terminal.run(&["resize-window", "-x", "80", "-y", "24"]);
        terminal.until("a prompt", |text| text.starts_with(['#', '$']));
        terminal
    }

    fn tmux(&self, words: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.folder.path().join("socket"));
        command.args(words);
        command
    }

    fn run(&self, words: &[&str]) -> String {
        let output = self.tmux(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn screen(&self) -> String {
        self.run(&["capture-pane", "-p"])
    }

    /// Presses keys, by tmux's names for them.
    pub fn press(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    /// Types a line into the shell.
    pub fn type_line(&self, line: &str) {
        self.run(&["send-keys", "-l", line]);
        self.press(&["Enter"]);
    }

    /// Waits until the screen satisfies a condition, and returns it.
    pub fn until(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let mut looks = Looks::begin();
        loop {
            let screen = self.screen();
            if holds(&screen) {
                return screen;
            }
            assert!(looks.again(), "waited in vain for {what}:\n{screen}");
        }
    }

    /// Waits until a text is on the screen, and returns the screen.
    pub fn until_shown(&self, text: &str) -> String {
        self.until(text, |screen| screen.contains(text))
    }

    fn children(&self) -> Vec<i32> {
        let shell = self.run(&["display-message", "-p", "#{pane_pid}"]);
        plimsoll_engine::tasks::children(shell.trim().parse().unwrap())
    }

    /// The process that runs in the shell.
    pub fn child(&self) -> i32 {
        wait_for("a child of the shell", || self.children().first().copied())
    }

    /// Waits until nothing but the shell reads what is typed: a process that ends, or stops, may
    /// do so for a while after it has restored the screen.
    pub fn until_the_shell_reads(&self) {
        wait_until("the shell's processes have ended or are stopped", || {
            self.children().into_iter().all(is_stopped)
        });
    }

    /// Closes the terminal, as a lost connection does.
    pub fn close(&self) {
        let _ = self.tmux(&["kill-server"]).status();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let mut command = self.tmux(&["kill-server"]);
        let _ = command.stderr(Stdio::null()).status();
    }
}
