//! A damaged file: what of it is sound, and what is not, in one line each.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::Path;

use plimsoll_engine::toml_file::{Entries, FileError, Source, parse};

use super::{Config, PROBLEMS_MAX, pieces, tell};

impl Config {
    /// Reads a file as far as it is sound, for a daemon that has to start:
    /// groups that are not are left out, keys whose values are not have their
    /// defaults. If it cannot be read at all, the configuration is that of an
    /// empty file. Every problem is told, in one line with its place; a file
    /// without any is read as [`Config::read`] does.
    #[must_use]
    pub fn read_sound(path: &Path) -> (Self, Vec<String>) {
        let name = path.display().to_string();
        match Source::read(path) {
            Ok(source) => Self::sound_of(&name, &source),
            Err(FileError::At { .. }) => match read_as_text(path) {
                Ok(text) => Self::parse_sound(&name, &text),
                Err(error) => (Self::default(), vec![format!("{name}: {error}")]),
            },
            Err(error) => {
                let is_missing = path
                    .metadata()
                    .is_err_and(|e| e.kind() == ErrorKind::NotFound);
                let problem = match is_missing {
                    true => format!("{name}: is not there; no group is configured until it is"),
                    false => error.to_string(),
                };
                (Self::default(), vec![problem])
            }
        }
    }

    /// As [`Config::read_sound`], of a text. `name` is for the problems.
    #[must_use]
    pub fn parse_sound(name: &str, text: &str) -> (Self, Vec<String>) {
        Self::sound_of(name, &Source::new(name, text))
    }

    fn sound_of(name: &str, source: &Source) -> (Self, Vec<String>) {
        let mut problems = Vec::new();
        let config = match parse(source) {
            Ok(entries) => Self::take(source, &entries, &mut problems),
            Err(_) => {
                let text = pieces::sound(name, source.text(), &mut problems);
                let source = Source::new(name, &text);
                let entries = parse(&source).unwrap_or_else(|problem| {
                    tell(&mut problems, problem);
                    Entries::new()
                });
                Self::take(&source, &entries, &mut problems)
            }
        };
        (config, lines(name, &problems))
    }
}

fn lines(name: &str, problems: &[FileError]) -> Vec<String> {
    let told = problems.iter().take(PROBLEMS_MAX);
    let mut lines: Vec<String> = told.map(ToString::to_string).collect();
    if problems.len() > PROBLEMS_MAX {
        lines.push(format!("{name}: has more problems, which are not told"));
    }
    lines
}

/// A file of which some bytes are no text: in their place stands something
/// that TOML allows nowhere. Only called for one that is known to be short.
fn read_as_text(path: &Path) -> io::Result<String> {
    const BYTES_MAX: u64 = 4 << 20;
    let mut bytes = Vec::new();
    File::open(path)?.take(BYTES_MAX).read_to_end(&mut bytes)?;
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text += chunk.valid();
        if !chunk.invalid().is_empty() {
            text.push('\0');
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::super::EnforcerWanted;
    use super::*;

    const TOP: &str = "version = 1\nenforcer = \"cgroup\"\nallow-xattr = [\n  \"class\",\n]\n\n\
                       [metrics]\nlisten = \"none\"\n\n";

    /// What this thread has run: others on the machine do not count.
    fn cpu_time() -> std::time::Duration {
        let clock = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID;
        nix::time::clock_gettime(clock).unwrap().into()
    }

    /// A name that no slip of a letter makes another's.
    fn name_of(number: usize) -> String {
        format!("g{}", number.to_string().repeat(4))
    }

    fn group(number: usize) -> String {
        let name = name_of(number);
        format!(
            "[[group]]\nname = \"{name}\"\nmatch = {{ cgroup = [\n  \"/{name}.slice\",\n] }}\n\
             class = \"batch\"\nquota = \"2cpus\"\n\n"
        )
    }

    fn file(count: usize) -> String {
        let groups = (0..count).map(group).collect::<String>();
        format!("{TOP}{groups}")
    }

    fn names(config: &Config) -> Vec<&str> {
        config.rules.iter().map(|rule| rule.name.as_str()).collect()
    }

    fn only(problems: Vec<String>, expected: &str) {
        assert_eq!(problems.len(), 1, "{problems:#?}");
        assert!(problems[0].contains(expected), "{problems:#?}");
    }

    #[test]
    fn a_group_that_cannot_be_read_is_left_out_and_told_with_its_place() {
        for (damaged, expected) in [
            ("quota = \"2cup\"", "p.toml:24:9: quota: `2cup`"),
            ("quotas = \"2cpus\"", "p.toml:24:1: `quotas` is no key"),
            ("quota = \"2cpus", "p.toml:24:"),
            ("]]]", "p.toml:24:"),
            ("name = \"x\"", "p.toml:24:"),
            (
                "nice = 1\n[group.matsch]\nx = 1",
                "p.toml:25:8: `matsch` is no key",
            ),
        ] {
            let text = file(3);
            let at = text.match_indices("quota = \"2cpus\"").nth(1).unwrap().0;
            let text = format!("{}{damaged}{}", &text[..at], &text[at + 15..]);
            let (config, problems) = Config::parse_sound("p.toml", &text);
            assert_eq!(names(&config), ["g0000", "g2222"], "{damaged}");
            assert_eq!(config.enforcer, EnforcerWanted::Cgroup);
            assert_eq!(config.allow_xattr, ["class"]);
            assert_eq!(config.metrics, None);
            only(problems, expected);
        }
    }

    #[test]
    fn damage_at_the_top_leaves_defaults_for_what_it_hits() {
        for (whole, damaged, expected) in [
            (
                "\"cgroup\"\n",
                "\"cgruop\"\n",
                "p.toml:2:12: enforcer: `cgruop`",
            ),
            ("\"cgroup\"\n", "\"cgroup\n", "p.toml:2:"),
            ("enforcer", "enfrocer", "p.toml:2:1: `enfrocer` is no key"),
            ("enforcer =", "enforcer", "line 2 is left out"),
        ] {
            let text = file(2).replacen(whole, damaged, 1);
            let (config, problems) = Config::parse_sound("p.toml", &text);
            assert_eq!(names(&config), ["g0000", "g1111"], "{damaged}");
            assert_eq!(config.enforcer, EnforcerWanted::Auto);
            assert_eq!(config.allow_xattr, ["class"], "{damaged}");
            assert_eq!(config.metrics, None);
            only(problems, expected);
        }
        let text = file(2).replacen("none", "nowhere", 1);
        let (config, problems) = Config::parse_sound("p.toml", &text);
        assert_eq!(config.metrics, Config::default().metrics);
        only(problems, "p.toml:8:10: listen: `nowhere` is no address");
    }

    #[test]
    fn pieces_that_do_not_go_together_are_left_out_but_the_first() {
        let text = file(2) + "[metrics]\nlisten = \"[::1]:1\"\n" + &group(2);
        let (config, problems) = Config::parse_sound("p.toml", &text);
        assert_eq!(names(&config), ["g0000", "g1111", "g2222"]);
        assert_eq!(config.metrics, None);
        only(problems, "lines 26 to 27 are left out");
        let many = "[metrics]\n".repeat(200) + &file(1);
        let (config, problems) = Config::parse_sound("p.toml", &many);
        assert_eq!(config, Config::default());
        assert!(problems.len() < 100 && !problems.is_empty());
    }

    #[test]
    fn groups_that_take_what_is_anothers_are_left_out() {
        let text = file(2) + &group(1) + &group(2).replace("/g2222.", "/g0000.");
        let (config, problems) = Config::parse_sound("p.toml", &text);
        assert_eq!(names(&config), ["g0000", "g1111"]);
        assert_eq!(problems.len(), 2, "{problems:#?}");
        assert!(problems[0].contains("name: `g1111` is another group's too"));
        assert!(problems[1].contains("`/g0000.slice` is claimed by group `g0000` too"));
    }

    #[test]
    fn a_group_that_is_no_table_is_told() {
        let text = "version = 1\ngroup = [1, { name = \"a\", match = { cgroup = \"/a\" } }]\n";
        let (config, problems) = Config::parse_sound("p.toml", text);
        assert_eq!(names(&config), ["a"]);
        only(problems, "p.toml:2:10: group: `1` has a number");
        let (config, problems) = Config::parse_sound("p.toml", "version = 1\ngroup = 1\n");
        assert_eq!(config, Config::default());
        only(problems, "p.toml:2:9: group: `1` is a number");
    }

    #[test]
    fn a_file_that_is_not_there_or_no_file_is_one_problem() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plimsoll.toml");
        let (config, problems) = Config::read_sound(&path);
        assert_eq!(config, Config::default());
        only(
            problems,
            "plimsoll.toml: is not there; no group is configured",
        );
        let (config, problems) = Config::read_sound(folder.path());
        assert_eq!(config, Config::default());
        only(problems, "it is no regular file");
        fs::write(&path, "#".repeat((4 << 20) + 1)).unwrap();
        let (config, problems) = Config::read_sound(&path);
        assert_eq!(config, Config::default());
        only(problems, "longer than 4194304 bytes");
    }

    #[test]
    fn bytes_that_are_no_text_cost_the_group_that_has_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.toml");
        let mut bytes = file(4).into_bytes();
        let at = bytes.len() - group(3).len() - 5;
        bytes[at] = 0xff;
        // What a machine that lost its power leaves of the end of a file.
        let end = bytes.len() - 20;
        bytes[end..].fill(0);
        fs::write(&path, bytes).unwrap();
        let (config, problems) = Config::read_sound(&path);
        assert_eq!(names(&config), ["g0000", "g1111"]);
        assert_eq!(problems.len(), 2, "{problems:#?}");
        assert!(problems[0].contains("p.toml:32:") && problems[1].contains("p.toml:39:"));
        // In a comment, too.
        fs::write(&path, b"version = 1\n# \xff\n").unwrap();
        let (config, problems) = Config::read_sound(&path);
        assert_eq!(config, Config::default());
        only(problems, "p.toml:2:3: ");
    }

    #[test]
    fn a_file_of_nothing_but_damage_is_told_shortly_and_soon() {
        for junk in [
            "=\n",
            "[\n",
            "[[group]]\n=\n",
            "\"\"\"\n",
            "a = [[\n",
            "[[group]]\nname = \"a\"\n",
        ] {
            let text = junk.repeat(100_000 / junk.len());
            let (config, problems) = Config::parse_sound("p.toml", &text);
            assert!(config.rules.is_empty());
            assert!(problems.len() <= PROBLEMS_MAX + 1);
            assert!(!problems.is_empty());
        }
    }

    #[test]
    fn a_large_file_of_damaged_groups_is_read_soon() {
        let groups: String = (0..10_000).map(group).collect();
        let text = format!("{TOP}{}", groups.replace("\"batch\"", "\"botch\"")) + &group(10_000);
        let start = cpu_time();
        let (config, problems) = Config::parse_sound("p.toml", &text);
        assert_eq!(names(&config), [name_of(10_000)]);
        assert_eq!(problems.len(), PROBLEMS_MAX + 1);
        assert_eq!(
            problems[PROBLEMS_MAX],
            "p.toml: has more problems, which are not told"
        );
        let taken = cpu_time() - start;
        assert!(taken < std::time::Duration::from_secs(5), "{taken:?}");
    }

    proptest! {
        /// A sound file gives no problems, and is what it is.
        #[test]
        fn a_sound_file_is_read_as_ever(count in 0..6usize, rest in "(#\\PC*\n)?") {
            let text = file(count) + &rest;
            let (config, problems) = Config::parse_sound("p.toml", &text);
            prop_assert_eq!(&problems, &Vec::<String>::new());
            prop_assert_eq!(config, Config::parse("p.toml", &text).unwrap());
        }

        /// Problems are told if and only if the file is refused as a whole.
        #[test]
        fn any_text_is_read_and_told(text in "\\PC*", is_group in any::<bool>()) {
            let text = if is_group { format!("{}{text}\n{}", file(1), group(1)) } else { text };
            let (config, problems) = Config::parse_sound("p.toml", &text);
            match Config::parse("p.toml", &text) {
                Ok(whole) => {
                    prop_assert_eq!(&problems, &Vec::<String>::new());
                    prop_assert_eq!(config, whole);
                }
                Err(_) => prop_assert!(!problems.is_empty()),
            }
            prop_assert!(problems.iter().all(|line| line.starts_with("p.toml:")
                && !line.contains(char::is_control)));
        }

        /// Damage within one group leaves all the others.
        #[test]
        fn damage_in_one_group_leaves_the_others(
            damaged in 0..5usize,
            at in 10..100usize,
            with in "[\\PC\n\"'=#\\[\\]{}]{1,3}",
        ) {
            let others: Vec<String> = (0..5).filter(|other| *other != damaged).map(name_of).collect();
            let mut text = String::from(TOP);
            for number in 0..5 {
                let mut group = group(number);
                if number == damaged {
                    let at = at.min(group.len() - 2);
                    group.replace_range(at..at + 1, &with);
                }
                text += &group;
            }
            let (config, _) = Config::parse_sound("p.toml", &text);
            let sound = Config::parse("p.toml", &file(5)).unwrap();
            for name in others {
                let expected = sound.rules.iter().find(|rule| rule.name == name);
                let found = config.rules.iter().find(|rule| rule.name == name);
                prop_assert_eq!(found, expected, "{}", text);
            }
            prop_assert_eq!(config.enforcer, EnforcerWanted::Cgroup);
            prop_assert_eq!(config.metrics, None);
        }

        /// A file that ends too early has all groups that are whole.
        #[test]
        fn a_file_that_was_cut_has_what_is_before(whole in 0..5usize, cut in 1..60usize) {
            let text = file(whole) + &group(whole)[..cut];
            let (config, _) = Config::parse_sound("p.toml", &text);
            let expected = Config::parse("p.toml", &file(whole)).unwrap();
            prop_assert_eq!(&config.rules[..whole], &expected.rules[..]);
        }
    }
}
