//! Colours and symbols that the terminal supports.

use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::bar;

/// Symbols of a character set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signs {
    /// Fill of the bar for normal work.
    pub normal: &'static str,
    /// Fill for batch work.
    pub batch: &'static str,
    /// Fill for idle time.
    pub idle: &'static str,
    /// The headroom line.
    pub line: &'static str,
    /// Marks truncated text.
    pub cut: &'static str,
    /// Marks the sort column in descending order.
    pub sorted: &'static str,
    /// Marks the sort column in reversed order.
    pub reversed: &'static str,
}

const UNICODE: Signs = Signs {
    normal: "█",
    batch: "▒",
    idle: "·",
    line: "┃",
    cut: "…",
    sorted: "▾",
    reversed: "▴",
};

const ASCII: Signs = Signs {
    normal: "#",
    batch: "=",
    idle: ".",
    line: "|",
    cut: "~",
    sorted: "*",
    reversed: "^",
};

const ASCII_LEVELS: bar::Set = bar::Set {
    full: "#",
    seven_eighths: "#",
    three_quarters: "+",
    five_eighths: "+",
    half: "=",
    three_eighths: "=",
    one_quarter: "-",
    one_eighth: "_",
    empty: " ",
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    has_colours: bool,
    is_unicode: bool,
}

/// Whether the locale uses Unicode, by the first variable that is set.
fn is_unicode(variable: impl Fn(&str) -> Option<String>) -> bool {
    let named = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| variable(name).filter(|value| !value.is_empty()));
    let named = named.unwrap_or_default().to_lowercase();
    named.contains("utf-8") || named.contains("utf8")
}

impl Look {
    /// Settings from the environment.
    pub fn of_environment() -> Self {
        Self::of(|name| std::env::var(name).ok())
    }

    /// Settings from the given variables.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        Self {
            has_colours: variable("NO_COLOR").is_none_or(|value| value.is_empty()),
            is_unicode: is_unicode(variable),
        }
    }

    pub fn signs(&self) -> &'static Signs {
        if self.is_unicode { &UNICODE } else { &ASCII }
    }

    /// Symbols of sparklines.
    pub fn levels(&self) -> bar::Set<'static> {
        if self.is_unicode {
            bar::NINE_LEVELS
        } else {
            ASCII_LEVELS
        }
    }

    fn coloured(&self, colour: Color) -> Style {
        if self.has_colours {
            Style::new().fg(colour)
        } else {
            Style::new()
        }
    }

    pub fn normal(&self) -> Style {
        self.coloured(Color::Green)
    }

    pub fn batch(&self) -> Style {
        self.coloured(Color::Blue)
    }

    /// Style of idle time and secondary text.
    pub fn faint(&self) -> Style {
        self.coloured(Color::DarkGray)
    }

    pub fn line(&self) -> Style {
        self.coloured(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    pub fn alarm(&self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub fn title(&self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Style of the row under the cursor and of headers.
    pub fn reversed(&self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_determines_colours_and_symbols() {
        let look = |pairs: &[(&str, &str)]| {
            Look::of(|name| {
                let found = pairs.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(look(&[("LANG", "de_DE.UTF-8")]).signs(), &UNICODE);
        assert_eq!(look(&[]).signs(), &ASCII);
        assert_eq!(look(&[("LC_ALL", "C"), ("LANG", "C.utf8")]).signs(), &ASCII);
        assert_eq!(
            look(&[("LC_ALL", ""), ("LANG", "C.utf8")]).signs(),
            &UNICODE
        );
        assert_eq!(look(&[]).normal().fg, Some(Color::Green));
        assert_eq!(look(&[("NO_COLOR", "")]).normal().fg, Some(Color::Green));
        let plain = look(&[("NO_COLOR", "1")]);
        for style in [plain.normal(), plain.batch(), plain.line(), plain.alarm()] {
            assert_eq!((style.fg, style.bg), (None, None));
        }
    }
}
