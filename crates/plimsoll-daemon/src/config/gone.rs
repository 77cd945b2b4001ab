//! Keys of earlier versions, and what took their place.

use plimsoll_engine::text_file::{FileError, Source};
use toml::de::DeTable;

/// Hint for rules that matched processes.
const PROCESSES: &str = "rules match cgroups and units; start the program with `plimsoll run`, or \
                         put it into a unit";

/// Keys that earlier versions had, with their table, and a hint for each.
const KEYS: [(&str, &str); 5] = [
    (
        "mode",
        "the scheduler takes all ordinary tasks; there is no mode",
    ),
    (
        "allow-xattr",
        "attributes of cgroups are not read; use a [[group]], or `plimsoll set`",
    ),
    ("match.executable", PROCESSES),
    ("match.command", PROCESSES),
    (
        "match.user",
        "rules match cgroups and units; match the user's slice, such as unit = \"user-1000.slice\"",
    ),
];

/// Refuses a key that earlier versions had, with its hint. `prefix`: of the keys of the table.
///
/// # Errors
/// Names the first such key.
pub(super) fn check(source: &Source, table: &DeTable<'_>, prefix: &str) -> Result<(), FileError> {
    for written in table.keys() {
        let key = format!("{prefix}{}", written.get_ref());
        if let Some((_, hint)) = KEYS.iter().find(|(gone, _)| *gone == key) {
            return Err(source.error(written.span().start, format!("{key}: {hint}")));
        }
    }
    Ok(())
}
