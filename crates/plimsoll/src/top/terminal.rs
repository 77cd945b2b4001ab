//! The terminal while `top` has it: raw, on its other screen, and given back
//! on every way out.

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

/// The exit code of a program that has panicked.
const EXIT_PANICKED: i32 = 101;

/// Gives the terminal back. Where that fails nobody looks at it any more.
fn give_back() {
    let mut output = io::stdout();
    let _ = execute!(output, LeaveAlternateScreen, Show);
    let _ = output.flush();
    let _ = disable_raw_mode();
}

/// A panic's message has to be on the screen that stays. One of another
/// thread than the drawing one ends the program: it would go on drawing.
fn give_back_on_panic() {
    static ONCE: Once = Once::new();
    let drawing = thread::current().id();
    ONCE.call_once(|| {
        let earlier = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            give_back();
            earlier(info);
            if thread::current().id() != drawing {
                process::exit(EXIT_PANICKED);
            }
        }));
    });
}

/// The terminal, taken; given back when it is dropped.
pub struct Screen {
    /// What is drawn on.
    pub terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes the terminal. Call it from the thread that draws.
    pub fn take() -> Result<Self> {
        let failed = CommandError::io("the terminal");
        give_back_on_panic();
        let taken = Self::enter().and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        match taken {
            Ok(terminal) => Ok(Self { terminal }),
            Err(error) => {
                give_back();
                Err(failed(error))
            }
        }
    }

    fn enter() -> io::Result<()> {
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen)
    }

    /// Gives the terminal back, stops until somebody says go on, and takes
    /// it again.
    pub fn suspend(&mut self) -> Result<()> {
        give_back();
        emulate_default_handler(SIGTSTP)
            .and_then(|()| Self::enter())
            .map_err(CommandError::io("the terminal"))?;
        self.forget()
    }

    /// Forgets what is on the screen, so that all of it is drawn again.
    pub fn forget(&mut self) -> Result<()> {
        // `Terminal::clear` would ask where the cursor is, and the answer
        // would go to the reader of keys.
        let size = self.terminal.size();
        size.and_then(|size| self.terminal.resize(size.into()))
            .map_err(CommandError::io("the terminal"))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// Runs one of the tests below in a terminal; what it printed there, and
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
        let mut screen = Screen::take().unwrap();
        screen.terminal.draw(|_| panic!("on purpose")).unwrap();
    }

    #[test]
    #[ignore = "the test below runs it"]
    fn panics_elsewhere() {
        let _screen = Screen::take().unwrap();
        // What it leads to is the end of the program.
        let _ = thread::spawn(|| panic!("on purpose")).join();
        println!("went on");
    }

    #[test]
    fn a_panic_is_told_on_the_screen_that_stays() {
        for test in ["panics_while_it_draws", "panics_elsewhere"] {
            let (text, is_good) = in_a_terminal(test);
            assert!(!is_good, "{text:?}");
            let at = |what: &str| {
                text.find(what)
                    .unwrap_or_else(|| panic!("no {what}: {text:?}"))
            };
            assert!(at("\u{1b}[?1049h") < at("\u{1b}[?1049l"), "{text:?}");
            assert!(at("\u{1b}[?1049l") < at("on purpose"), "{text:?}");
            // A raw terminal would not go to the start of the line.
            assert!(
                text[at("on purpose")..].starts_with("on purpose\r\n"),
                "{text:?}"
            );
            assert!(!text.contains("went on"), "{text:?}");
        }
    }
}
