//! Patterns of paths and names.

use globset::{Glob, GlobBuilder};
use thiserror::Error;

/// Endings of the names of systemd units that have a cgroup.
const UNIT_ENDS: [&str; 3] = [".service", ".scope", ".slice"];

/// Reason why a text is no pattern. Messages print it behind the text.
#[derive(Debug, Error)]
pub enum PatternError {
    #[error("is empty")]
    Empty,
    #[error("is the root, which has no limits")]
    Root,
    #[error("does not begin with a `/`")]
    Relative,
    #[error("ends in a `/`")]
    TrailingSlash,
    #[error("has an empty part, `.` or `..`, which no cgroup's path has")]
    NoPart,
    #[error("has a `/`, which no unit's name has; `cgroup` has patterns of paths")]
    PathOfUnit,
    #[error("ends in none of .service, .scope and .slice")]
    NoUnit,
    #[error("has the mount point, below which patterns begin, in front")]
    MountPoint,
    #[error("is no pattern ({})", .0.kind())]
    Syntax(#[source] globset::Error),
}

/// Failure to compile the patterns into one set: their automaton would take more than 10 MiB.
#[derive(Debug, Error)]
#[error(
    "the patterns are too large together; allowed: about 20,000 short patterns with wildcards, \
     any number without"
)]
pub struct TooLarge(#[from] globset::Error);

/// Parses one pattern: `*` and `?` stop at a `/`, `**` does not. A backslash is itself, as in the
/// names that systemd escapes (`app-x\x2dy.scope`); `[*]` is a star.
pub(super) fn parse(text: &str) -> Result<Glob, PatternError> {
    if text.is_empty() {
        return Err(PatternError::Empty);
    }
    GlobBuilder::new(text)
        .literal_separator(true)
        .backslash_escape(false)
        .build()
        .map_err(PatternError::Syntax)
}

/// Parses the pattern of a cgroup's path; refuses one that no cgroup below the root can match.
pub(super) fn parse_cgroup(text: &str) -> Result<Glob, PatternError> {
    match text.strip_prefix('/') {
        None if !text.is_empty() => Err(PatternError::Relative),
        Some("") => Err(PatternError::Root),
        Some(path) if path.ends_with('/') => Err(PatternError::TrailingSlash),
        Some(path) if path.split('/').any(is_no_part) => Err(PatternError::NoPart),
        Some(path) if path.starts_with("sys/fs/cgroup/") => Err(PatternError::MountPoint),
        _ => parse(text),
    }
}

pub(super) fn parse_unit(text: &str) -> Result<Glob, PatternError> {
    if text.contains('/') {
        return Err(PatternError::PathOfUnit);
    }
    if !text.is_empty() && !text.contains(['*', '?', '[', '{']) && !is_unit(text) {
        return Err(PatternError::NoUnit);
    }
    parse(text)
}

/// Whether a name is that of a systemd unit which can have a cgroup.
pub(crate) fn is_unit(name: &str) -> bool {
    UNIT_ENDS
        .iter()
        .any(|end| name.len() > end.len() && name.ends_with(end))
}

fn is_no_part(part: &str) -> bool {
    matches!(part, "" | "." | "..")
}

#[cfg(test)]
mod tests {
    use globset::GlobSet;

    use super::*;

    fn patterns(texts: &[&str]) -> GlobSet {
        let globs = texts.iter().map(|text| parse(text).unwrap());
        GlobSet::new(globs).unwrap()
    }

    #[test]
    fn a_star_in_a_path_is_one_part_of_it() {
        let path = |text| patterns(&[text]);
        let tenants = path("/tenants.slice/*");
        assert!(tenants.is_match("/tenants.slice/a"));
        assert!(!tenants.is_match("/tenants.slice"));
        assert!(!tenants.is_match("/tenants.slice/a/b"));
        assert!(path("/tenants.slice/**").is_match("/tenants.slice/a/b"));
        assert!(path("/{a,b}.slice").is_match("/b.slice"));
    }

    #[test]
    fn a_name_as_systemd_writes_it_is_taken_literally() {
        let name = r"app-x\x2dy-565.scope";
        assert!(patterns(&[name]).is_match(name));
        assert!(patterns(&[r"app-x\x2d*.scope"]).is_match(name));
        assert!(patterns(&[r"app-[x]\*"]).is_match(name));
        assert!(patterns(&["a[*]b"]).is_match("a*b"));
        // The character that stands for the byte 0xff, which is no UTF-8.
        assert!(patterns(&["/*"]).is_match("/\u{10ffff}"));
    }

    #[test]
    fn patterns_that_no_cgroup_matches_are_refused() {
        for (text, expected) in [
            ("", "is empty"),
            ("/", "is the root, which has no limits"),
            ("a", "does not begin with a `/`"),
            ("/a/", "ends in a `/`"),
            ("/a//b", "has an empty part"),
            ("/../a", "has an empty part, `.` or `..`"),
            ("/sys/fs/cgroup/cpu/a", "has the mount point"),
            ("/[b", "is no pattern (unclosed character class"),
        ] {
            let error = parse_cgroup(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn patterns_that_no_unit_matches_are_refused() {
        for (text, expected) in [
            ("", "is empty"),
            ("/system.slice/a.service", "has a `/`"),
            ("nginx", "ends in none of .service"),
            ("nginx.timer", "ends in none of .service"),
            ("[b", "is no pattern (unclosed character class"),
        ] {
            let error = parse_unit(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        assert!(parse_unit("user@*.service").is_ok());
    }
}
