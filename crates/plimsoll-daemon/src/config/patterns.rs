//! Patterns of paths, names and command lines.

use globset::{Glob, GlobBuilder, GlobMatcher};

/// What a `*` stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wildcards {
    /// A part of a path: `*` and `?` stop at a `/`, `**` does not.
    OfPaths,
    /// Any text.
    OfText,
}

/// Patterns of which one has to match.
#[derive(Debug, Clone)]
pub struct Patterns {
    matchers: Vec<Matcher>,
}

#[derive(Debug, Clone)]
enum Matcher {
    /// It stands for itself alone, which takes no memory to find out.
    Literal(String),
    Glob(GlobMatcher),
}

impl Matcher {
    fn new(text: &str, wildcards: Wildcards) -> Result<Self, globset::Error> {
        let glob = compile(text, wildcards)?;
        Ok(match is_literal(text) {
            true => Self::Literal(text.to_owned()),
            false => Self::Glob(glob.compile_matcher()),
        })
    }

    fn is_match(&self, text: &str) -> bool {
        match self {
            Self::Literal(literal) => literal == text,
            Self::Glob(matcher) => matcher.is_match(text),
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Literal(literal) => literal,
            Self::Glob(matcher) => matcher.glob().glob(),
        }
    }
}

impl Patterns {
    /// Compiles patterns.
    ///
    /// # Errors
    /// The number of the first that is none, and what is wrong with it.
    pub fn new(texts: &[&str], wildcards: Wildcards) -> Result<Self, (usize, String)> {
        let compile = |(index, text): (usize, &&str)| {
            let matcher = Matcher::new(text, wildcards);
            matcher.map_err(|error| (index, error.kind().to_string()))
        };
        let matchers = texts.iter().enumerate().map(compile);
        Ok(Self {
            matchers: matchers.collect::<Result<_, _>>()?,
        })
    }

    /// Whether one of them matches all of a text.
    #[must_use]
    pub fn match_text(&self, text: &str) -> bool {
        self.matchers.iter().any(|matcher| matcher.is_match(text))
    }

    /// Them as they are written.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.matchers.iter().map(Matcher::text)
    }
}

impl PartialEq for Patterns {
    fn eq(&self, other: &Self) -> bool {
        self.texts().eq(other.texts())
    }
}

fn compile(text: &str, wildcards: Wildcards) -> Result<Glob, globset::Error> {
    GlobBuilder::new(text)
        .literal_separator(wildcards == Wildcards::OfPaths)
        .backslash_escape(true)
        .build()
}

/// What may stand for something else in a pattern.
const SPECIAL: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

/// Whether a pattern has no wildcard: then it stands for itself alone.
pub(super) fn is_literal(text: &str) -> bool {
    !text.contains(SPECIAL)
}

/// What every text that a pattern matches begins with, and what it ends in.
pub(super) fn ends(pattern: &str) -> (&str, &str) {
    let first = pattern.find(SPECIAL).unwrap_or(pattern.len());
    let start = &pattern[..first];
    let Some(last) = pattern.rfind(SPECIAL) else {
        return (start, pattern);
    };
    let end = match pattern[last..].strip_prefix('\\') {
        // What follows stands for itself, and is left out all the same.
        Some(rest) => rest.get(rest.chars().next().map_or(0, char::len_utf8)..),
        None => pattern.get(last + 1..),
    };
    // `**/` may be nothing at all, and so may be the `/` with it.
    let end = end.unwrap_or_default();
    let end = end.strip_prefix('/').unwrap_or(end);
    (start.strip_suffix('/').unwrap_or(start), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Patterns {
        Patterns::new(&[text], Wildcards::OfPaths).unwrap()
    }

    #[test]
    fn a_star_in_a_path_is_one_part_of_it() {
        let tenants = paths("/tenants.slice/*");
        assert!(tenants.match_text("/tenants.slice/a"));
        assert!(!tenants.match_text("/tenants.slice"));
        assert!(!tenants.match_text("/tenants.slice/a/b"));
        assert!(paths("/tenants.slice/**").match_text("/tenants.slice/a/b"));
        assert!(paths("/{a,b}.slice").match_text("/b.slice"));
    }

    #[test]
    fn a_star_in_text_is_anything() {
        let command = Patterns::new(&["java *-jar */batch.jar*"], Wildcards::OfText).unwrap();
        assert!(command.match_text("java -Xmx1g -jar /opt/batch.jar --all"));
        assert!(!command.match_text("java -jar /opt/web.jar"));
    }

    #[test]
    fn the_ends_of_a_pattern_are_those_of_all_that_it_matches() {
        for (pattern, expected) in [
            ("/a/b", ("/a/b", "/a/b")),
            ("/a/b*.service", ("/a/b", ".service")),
            ("/a/**", ("/a", "")),
            ("**/b.scope", ("", "b.scope")),
            ("/a/[b-c]x", ("/a", "x")),
            ("/a/{b,c}/d", ("/a", "d")),
            ("/a\\*b", ("/a", "b")),
            ("/ä?ö", ("/ä", "ö")),
        ] {
            assert_eq!(ends(pattern), expected, "{pattern}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_a_pattern_matches_has_its_ends(
            pattern in "(/|\\*|\\?|\\[ab\\]|\\{a,b\\}|\\\\[*a]|[ab]){1,8}",
            text in "[/ab*]{0,8}",
            other_wildcards in proptest::prelude::any::<bool>(),
        ) {
            let wildcards = if other_wildcards { Wildcards::OfText } else { Wildcards::OfPaths };
            let Ok(patterns) = Patterns::new(&[&pattern], wildcards) else {
                return Ok(());
            };
            if patterns.match_text(&text) {
                let (start, end) = ends(&pattern);
                proptest::prop_assert!(text.starts_with(start) && text.ends_with(end), "{pattern} {text}");
            }
            if is_literal(&pattern) {
                proptest::prop_assert_eq!(patterns.match_text(&text), pattern == text);
                proptest::prop_assert!(patterns.match_text(&pattern));
            }
        }
    }

    #[test]
    fn one_of_several_is_enough_and_the_bad_one_is_named() {
        let both = Patterns::new(&["a", "b*"], Wildcards::OfText).unwrap();
        assert!(both.match_text("bc") && both.match_text("a") && !both.match_text("c"));
        let (index, problem) = Patterns::new(&["a", "[b"], Wildcards::OfText).unwrap_err();
        assert_eq!(index, 1);
        assert!(!problem.is_empty());
    }
}
