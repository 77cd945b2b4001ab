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
        let failed = CommandError::io("the terminal");
        give_back();
        emulate_default_handler(signal_hook::consts::SIGTSTP)
            .and_then(|()| Self::enter())
            .and_then(|()| self.terminal.clear())
            .map_err(failed)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}
