//! The terminal in raw mode, on its alternate screen. Restored on every exit
//! path.

use std::io::{self, Stdout, Write as _};
use std::panic;
use std::process;
use std::sync::Once;
use std::thread;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use signal_hook::consts::SIGTSTP;
use signal_hook::low_level::emulate_default_handler;

use crate::error::{CommandError, Result};

/// Exit code after a panic.
const EXIT_PANICKED: i32 = 101;

/// Restores the terminal. Errors are ignored, because there is no place to
/// report them.
fn restore() {
    let mut output = io::stdout();
    let _ = execute!(output, LeaveAlternateScreen, Show);
    let _ = output.flush();
    let _ = disable_raw_mode();
}

/// Restores the terminal on a panic, so that its message appears on the normal
/// screen. A panic of any other thread ends the program, because the drawing
/// thread would continue.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    let drawing = thread::current().id();
    ONCE.call_once(|| {
        let earlier = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            restore();
            earlier(info);
            if thread::current().id() != drawing {
                process::exit(EXIT_PANICKED);
            }
        }));
    });
}

/// The acquired terminal; restored on drop.
pub struct AcquiredTerminal {
    pub terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl AcquiredTerminal {
    /// Acquires the terminal. Must be called from the drawing thread.
    pub fn take() -> Result<Self> {
        let failed = CommandError::io("the terminal");
        restore_on_panic();
        let taken = Self::enter().and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        match taken {
            Ok(terminal) => Ok(Self { terminal }),
            Err(error) => {
                restore();
                Err(failed(error))
            }
        }
    }

    fn enter() -> io::Result<()> {
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen)
    }

    /// Restores the terminal, stops the process, and acquires the terminal
    /// again after SIGCONT.
    pub fn suspend(&mut self) -> Result<()> {
        restore();
        emulate_default_handler(SIGTSTP)
            .and_then(|()| Self::enter())
            .map_err(CommandError::io("the terminal"))?;
        self.forget()
    }

    /// Discards the screen's content, so that all of it is redrawn.
    pub fn forget(&mut self) -> Result<()> {
        // Not `Terminal::clear`, which queries the cursor position: the key
        // reader would get the answer.
        let size = self.terminal.size();
        size.and_then(|size| self.terminal.resize(size.into()))
            .map_err(CommandError::io("the terminal"))
    }
}

impl Drop for AcquiredTerminal {
    fn drop(&mut self) {
        restore();
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// Runs one of the tests below in a terminal. Returns its output, and
    /// whether it succeeded.
    fn in_a_terminal(test: &str) -> (String, bool) {
        let binary = std::env::current_exe().unwrap();
        let test = format!("top::terminal::tests::{test}");
        let line = format!("{} --ignored --exact {test} --nocapture", binary.display());
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]);
        command.env("TERM", "xterm").env("RUST_BACKTRACE", "0");
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (text, output.status.success())
    }

    #[test]
    #[ignore = "the test below runs it"]
    fn panics_while_it_draws() {
        let mut screen = AcquiredTerminal::take().unwrap();
        screen.terminal.draw(|_| panic!("on purpose")).unwrap();
    }

    #[test]
    #[ignore = "the test below runs it"]
    fn panics_elsewhere() {
        let _screen = AcquiredTerminal::take().unwrap();
        // The panic ends the program.
        let _ = thread::spawn(|| panic!("on purpose")).join();
        println!("went on");
    }

    #[test]
    fn panic_message_appears_on_the_normal_screen() {
        for test in ["panics_while_it_draws", "panics_elsewhere"] {
            let (text, is_good) = in_a_terminal(test);
            assert!(!is_good, "{text:?}");
            let at = |what: &str| {
                text.find(what)
                    .unwrap_or_else(|| panic!("no {what}: {text:?}"))
            };
            assert!(at("\u{1b}[?1049h") < at("\u{1b}[?1049l"), "{text:?}");
            assert!(at("\u{1b}[?1049l") < at("on purpose"), "{text:?}");
            // In raw mode, the line would not start at the first column.
            assert!(
                text[at("on purpose")..].starts_with("on purpose\r\n"),
                "{text:?}"
            );
            assert!(!text.contains("went on"), "{text:?}");
        }
    }
}
