//! `plimsoll top`: live view of the groups in a terminal.

mod args;
mod columns;
mod draw;
mod events;
mod history;
mod json;
mod model;
mod plain;
mod rates;
mod source;
mod terminal;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::thread;

use signal_hook::low_level::emulate_default_handler;

pub use args::{EXAMPLES, TopArgs};

use crate::error::{CommandError, Result};
use draw::Look as Appearance;
use events::{TopEvent, TopEvents};
use model::Model;
use source::StateSource;
use terminal::AcquiredTerminal;

/// Shows the groups until the user quits.
pub fn run(args: &TopArgs) -> Result<ExitCode> {
    let model = Model::new(args.interval, args.sort);
    if args.once {
        return once(model, args.json);
    }
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(CommandError::NoTerminal);
    }
    let term = std::env::var_os("TERM").unwrap_or_default();
    if term == "dumb" || term.is_empty() {
        return Err(CommandError::DumbTerminal { term });
    }
    let ended_by = live(model)?;
    if let Some(signal) = ended_by {
        // Ends by the same signal, so that the parent process sees it.
        let _ = emulate_default_handler(signal);
    }
    Ok(ExitCode::SUCCESS)
}

fn once(mut model: Model, as_json: bool) -> Result<ExitCode> {
    let mut source = StateSource::new();
    model.take(source.read()?);
    thread::sleep(model.interval);
    model.take(source.read()?);
    if as_json {
        json::print(&mut model)?;
    } else {
        plain::print(&mut model)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs until the user quits or a signal arrives. Returns the signal.
fn live(mut model: Model) -> Result<Option<i32>> {
    let appearance = Appearance::of_environment();
    let mut screen = AcquiredTerminal::take()?;
    let events = TopEvents::start(StateSource::new(), model.interval)?;
    loop {
        let drawn = screen
            .terminal
            .draw(|frame| draw::draw(&mut model, &appearance, frame));
        if drawn.is_err() {
            // The terminal is gone.
            return Ok(None);
        }
        let mut next = Some(events.next());
        // Handles all queued events before it draws once.
        while let Some(event) = next {
            match event {
                TopEvent::Key(key) => model.press(key),
                TopEvent::Resized => (),
                TopEvent::Updated(update) => match *update {
                    Ok(update) => model.take(update),
                    Err(error) => model.fail(error.to_string()),
                },
                TopEvent::Details(details) => model.details = *details,
                TopEvent::Suspend => screen.suspend()?,
                TopEvent::Overwritten => screen.forget()?,
                TopEvent::Signal(signal) => return Ok(Some(signal)),
                TopEvent::Quit => return Ok(None),
            }
            if model.has_quit {
                return Ok(None);
            }
            if let Some(group) = model.wanted_details.take() {
                events.request_details(group);
            }
            next = events.try_next();
        }
    }
}

#[cfg(test)]
mod testing;
