//! Types whose values have words: the parts of a cell's name.

/// Implements `Display` and `FromStr` by a table of values and their words. `$what` is what
/// messages call such a value.
macro_rules! named {
    ($type:ident, $what:literal, $names:ident) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let name = $names.iter().find(|(value, _)| value == self);
                f.write_str(name.map_or("?", |(_, name)| name))
            }
        }

        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(word: &str) -> Result<Self, String> {
                let found = $names.iter().find(|(_, name)| *name == word);
                found.map(|(value, _)| *value).ok_or_else(|| {
                    let names = $names.map(|(_, name)| name).join(", ");
                    format!("no {} '{word}'; allowed: {names}", $what)
                })
            }
        }
    };
}

pub(crate) use named;
