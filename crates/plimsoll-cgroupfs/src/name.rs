//! Names of cgroups as texts.
//!
//! The kernel's names are bytes; keys, JSON and patterns are texts. Each byte that is not UTF-8
//! becomes a private character of its own in the text, so that the text leads back to the same
//! cgroup.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// Character that stands for byte 0: the last 256 of Unicode's private characters stand for bytes.
const FIRST: u32 = 0x0010_ff00;

fn char_of(byte: u8) -> Option<char> {
    char::from_u32(FIRST + u32::from(byte))
}

/// Returns the byte that such a character stands for; `None`: the character is an ordinary one.
fn byte_of(letter: char) -> Option<u8> {
    u8::try_from(u32::from(letter).checked_sub(FIRST)?).ok()
}

/// Converts a name or a path to a text.
#[must_use]
pub fn text_of(name: impl AsRef<OsStr>) -> String {
    let mut text = String::new();
    for chunk in name.as_ref().as_bytes().utf8_chunks() {
        for letter in chunk.valid().chars() {
            // Private characters that occur in a name are stored as bytes, too: no two names have
            // one text.
            match byte_of(letter) {
                None => text.push(letter),
                Some(_) => {
                    let mut bytes = [0; 4];
                    let bytes = letter.encode_utf8(&mut bytes).bytes();
                    text.extend(bytes.filter_map(char_of));
                }
            }
        }
        text.extend(chunk.invalid().iter().copied().filter_map(char_of));
    }
    text
}

/// Converts a text back to the name or path.
#[must_use]
pub fn path_of(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    for letter in text.chars() {
        match byte_of(letter) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    OsString::from_vec(bytes).into()
}

/// Characters that show nothing, and may change how others are shown: those of Unicode's categories
/// Cf, Zl and Zp, as of version 16.
const FORMAT: [RangeInclusive<char>; 21] = [
    '\u{ad}'..='\u{ad}',
    '\u{600}'..='\u{605}',
    '\u{61c}'..='\u{61c}',
    '\u{6dd}'..='\u{6dd}',
    '\u{70f}'..='\u{70f}',
    '\u{890}'..='\u{891}',
    '\u{8e2}'..='\u{8e2}',
    '\u{180e}'..='\u{180e}',
    '\u{200b}'..='\u{200f}',
    '\u{2028}'..='\u{202e}',
    '\u{2060}'..='\u{2064}',
    '\u{2066}'..='\u{206f}',
    '\u{feff}'..='\u{feff}',
    '\u{fff9}'..='\u{fffb}',
    '\u{110bd}'..='\u{110bd}',
    '\u{110cd}'..='\u{110cd}',
    '\u{13430}'..='\u{1343f}',
    '\u{1bca0}'..='\u{1bca3}',
    '\u{1d173}'..='\u{1d17a}',
    '\u{e0001}'..='\u{e0001}',
    '\u{e0020}'..='\u{e007f}',
];

/// Prepares a text for a terminal: control characters, and bytes that are not UTF-8, become escapes
/// such as `\x1b`, characters that format others such as `\u{202e}`.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        let is_format = || FORMAT.iter().any(|range| range.contains(&letter));
        // Writing to a string cannot fail.
        let _ = match byte_of(letter) {
            Some(byte) => write!(shown, "\\x{byte:02x}"),
            None if letter.is_control() => write!(shown, "\\x{:02x}", u32::from(letter)),
            None if !letter.is_ascii() && is_format() => {
                write!(shown, "\\u{{{:x}}}", u32::from(letter))
            }
            None => {
                shown.push(letter);
                Ok(())
            }
        };
    }
    shown
}

/// Functions for `serde(with)`: a path as its text.
pub mod path_text {
    use super::{PathBuf, path_of, text_of};
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(path: &PathBuf, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&text_of(path))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        String::deserialize(from).map(|text| path_of(&text))
    }
}

/// Functions for `serde(with)`: paths as their texts.
pub mod path_texts {
    use super::{PathBuf, path_of, text_of};
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(paths.iter().map(text_of))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PathBuf>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        Ok(texts.iter().map(|text| path_of(text)).collect())
    }
}

/// Returns a cgroup's path below the mount point as a text, with a `/` in front.
#[must_use]
pub fn shown(path: &Path) -> String {
    format!("/{}", text_of(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_any_bytes_is_a_text_and_leads_back() {
        for bytes in [
            &b"plain"[..],
            b"a\xffb",
            b"\xc3\xa4 \xc3",
            b"app-x\\x2dy.scope",
            "\u{10ff41}".as_bytes(),
            b"\x1b[31m",
        ] {
            let name = OsStr::from_bytes(bytes);
            let text = text_of(name);
            assert_eq!(path_of(&text).as_os_str(), name, "{text:?}");
        }
        assert_ne!(text_of("\u{10ff41}"), text_of("A"));
        assert_eq!(text_of("/a/b"), "/a/b");
    }

    #[test]
    fn people_see_what_cannot_be_printed_as_numbers() {
        let name = OsStr::from_bytes(b"a\xff\x1b[31m\xc2\x9bz");
        assert_eq!(printable(&text_of(name)), "a\\xff\\x1b[31m\\x9bz");
        assert_eq!(printable("\u{e4}\\x2d"), "\u{e4}\\x2d");
        let odd = "a\u{202e}b\u{200b}c\u{2028}d\u{e007f}e\tf\u{85}";
        let shown = r"a\u{202e}b\u{200b}c\u{2028}d\u{e007f}e\x09f\x85";
        assert_eq!(printable(odd), shown);
    }
}
