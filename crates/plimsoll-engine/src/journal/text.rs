//! Journal as text: JSON, a line each.

use std::io;

use serde::Serialize;

use super::entry::{Entry, Header, VERSION};

/// Length of the text about a damaged line.
const DAMAGE_CHARS_MAX: usize = 100;

/// Readable contents of a journal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parsed {
    /// Header; `None`: nothing was written yet, or its line is damaged.
    pub header: Option<Header>,
    pub entries: Vec<Entry>,
    /// Unreadable lines, each with its number and the error.
    pub damaged: Vec<String>,
}

pub(super) fn line(value: &impl Serialize) -> io::Result<String> {
    let mut text = serde_json::to_string(value)?;
    text.push('\n');
    Ok(text)
}

/// Formats each entry as a line.
pub(super) fn lines(entries: &[Entry]) -> io::Result<String> {
    let mut text = String::new();
    for entry in entries {
        text.push_str(&line(entry)?);
    }
    Ok(text)
}

/// Parses the text of a journal. A last line without a newline was cut off by a crash and is
/// ignored.
///
/// # Errors
/// When the journal is of another version.
pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, String> {
    let mut parsed = Parsed::default();
    let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
        return Ok(parsed);
    };
    for (index, line) in bytes[..end].split(|byte| *byte == b'\n').enumerate() {
        // An error may quote a part of the line of any length.
        let damaged = |error: serde_json::Error| {
            let text = format!("line {}: {error}", index + 1);
            text.chars().take(DAMAGE_CHARS_MAX).collect()
        };
        if index > 0 {
            match serde_json::from_slice(line) {
                Ok(entry) => parsed.entries.push(entry),
                Err(error) => parsed.damaged.push(damaged(error)),
            }
            continue;
        }
        check_version(line)?;
        match serde_json::from_slice(line) {
            Ok(header) => parsed.header = Some(header),
            Err(error) => parsed.damaged.push(damaged(error)),
        }
    }
    Ok(parsed)
}

/// Refuses a header of another version, whether the rest of it is valid or not.
fn check_version(line: &[u8]) -> Result<(), String> {
    let header: serde_json::Value = serde_json::from_slice(line).unwrap_or_default();
    match header["version"].as_u64() {
        Some(version) if version != u64::from(VERSION) => Err(format!(
            "it is of version {version}, this is version {VERSION}; use the plimsoll that wrote it"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::tests::samples::{self, entry};

    fn header(version: u32) -> Header {
        Header {
            boot: None,
            version,
            ..samples::header("a")
        }
    }

    #[test]
    fn a_torn_last_line_is_a_change_never_made() {
        let whole = line(&header(VERSION)).unwrap();
        let one = line(&entry("1")).unwrap();
        for cut in 0..one.len() - 1 {
            let parsed = parse(format!("{whole}{one}{}", &one[..cut]).as_bytes()).unwrap();
            assert_eq!(parsed.entries, [entry("1")]);
            assert_eq!(parsed.damaged, <[String; 0]>::default());
        }
        for cut in 0..whole.len() - 1 {
            assert_eq!(parse(&whole.as_bytes()[..cut]).unwrap(), Parsed::default());
        }
    }

    #[test]
    fn damage_in_the_middle_is_told_and_the_rest_is_read() {
        let whole = line(&header(VERSION)).unwrap();
        let one = line(&entry("1")).unwrap();
        let two = line(&entry("2")).unwrap();
        let mut bytes = format!("{whole}{one}garbage\n").into_bytes();
        bytes.extend([0xff, 0, b'\n']);
        bytes.extend(two.as_bytes());
        let parsed = parse(&bytes).unwrap();
        assert_eq!(parsed.header, Some(header(VERSION)));
        assert_eq!(parsed.entries, [entry("1"), entry("2")]);
        let lines: Vec<_> = parsed.damaged.iter().map(|text| &text[..7]).collect();
        assert_eq!(lines, ["line 3:", "line 4:"]);
        let headless = parse(format!("{{\n{one}").as_bytes()).unwrap();
        assert_eq!((headless.header, headless.damaged.len()), (None, 1));
        assert_eq!(headless.entries, [entry("1")]);
    }

    #[test]
    fn another_version_is_refused() {
        for version in [VERSION - 1, VERSION + 1] {
            let other = line(&header(version)).unwrap();
            assert!(
                parse(other.as_bytes())
                    .unwrap_err()
                    .contains("this is version")
            );
        }
        let strange = b"{\"version\": 9, \"is\": \"otherwise quite different\"}\n";
        assert!(parse(strange).unwrap_err().contains("version 9"));
    }
}
