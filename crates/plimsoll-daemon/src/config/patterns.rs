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
    matchers: Vec<GlobMatcher>,
}

impl Patterns {
    /// Compiles patterns.
    ///
    /// # Errors
    /// The number of the first that is none, and what is wrong with it.
    pub fn new(texts: &[&str], wildcards: Wildcards) -> Result<Self, (usize, String)> {
        let compile = |(index, text): (usize, &&str)| {
            let glob = compile(text, wildcards);
            glob.map(|glob| glob.compile_matcher())
                .map_err(|error| (index, error.kind().to_string()))
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
        self.matchers.iter().map(|matcher| matcher.glob().glob())
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

/// Whether a pattern has no wildcard: then it stands for itself alone.
pub(super) fn is_literal(text: &str) -> bool {
    !text.contains(['*', '?', '[', '{', '\\'])
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
    fn one_of_several_is_enough_and_the_bad_one_is_named() {
        let both = Patterns::new(&["a", "b*"], Wildcards::OfText).unwrap();
        assert!(both.match_text("bc") && both.match_text("a") && !both.match_text("c"));
        let (index, problem) = Patterns::new(&["a", "[b"], Wildcards::OfText).unwrap_err();
        assert_eq!(index, 1);
        assert!(!problem.is_empty());
    }
}
