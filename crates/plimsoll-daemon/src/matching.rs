//! Matches cgroups and processes to the rules of the configuration.

use nix::unistd::Uid;

use crate::config::{Config, Match, Patterns, Rule};

/// Endings of the names of systemd units that have a cgroup.
const UNIT_ENDS: [&str; 3] = [".service", ".scope", ".slice"];

/// Properties of a process that rules match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its cgroup below the mount point, with a `/` in front.
    pub cgroup: String,
    /// The file that it runs; `None` if that is unknown, as of a kernel
    /// thread.
    pub executable: Option<String>,
    /// The user that runs it.
    pub uid: Uid,
    /// Its command line, the words with one space between them.
    pub command: String,
}

/// The rules that match a cgroup or a process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RuleMatch<'a> {
    /// The first of the file, to which it belongs.
    pub rule: &'a Rule,
    /// The second, which overlaps with the first.
    pub overlap: Option<&'a Rule>,
}

fn first<'a>(mut rules: impl Iterator<Item = &'a Rule>) -> Option<RuleMatch<'a>> {
    Some(RuleMatch {
        rule: rules.next()?,
        overlap: rules.next(),
    })
}

impl Config {
    /// The group of a cgroup, by its path below the mount point with a `/` in
    /// front. A unit's own cgroup matches `unit`; those below it do not, because
    /// they are part of it.
    #[must_use]
    pub fn match_cgroup(&self, path: &str) -> Option<RuleMatch<'_>> {
        first(self.rules.matching(path, unit_at(path)))
    }

    /// The group of a process, among the groups that are made of processes.
    #[must_use]
    pub fn match_process(&self, process: &Process) -> Option<RuleMatch<'_>> {
        let of_processes = self
            .rules
            .iter()
            .filter(|rule| rule.matches.is_of_processes());
        first(of_processes.filter(|rule| rule.matches.process_is(process)))
    }

    /// Whether any group is made of processes: only then are they watched.
    #[must_use]
    pub fn has_process_rules(&self) -> bool {
        self.rules.iter().any(|rule| rule.matches.is_of_processes())
    }
}

impl Match {
    fn process_is(&self, process: &Process) -> bool {
        let cgroup = |patterns: &Patterns| patterns.match_text(&process.cgroup);
        let unit = |patterns: &Patterns| {
            unit_of(&process.cgroup).is_some_and(|unit| patterns.match_text(unit))
        };
        let executable = |patterns: &Patterns| {
            let Some(path) = &process.executable else {
                return false;
            };
            let name = path.rsplit('/').next().unwrap_or_default();
            patterns.match_text(path) || patterns.match_text(name)
        };
        let user = |users: &Vec<Uid>| users.contains(&process.uid);
        let command = |patterns: &Patterns| patterns.match_text(&process.command);
        self.cgroup.as_ref().is_none_or(cgroup)
            && self.unit.as_ref().is_none_or(unit)
            && self.executable.as_ref().is_none_or(executable)
            && self.users.as_ref().is_none_or(user)
            && self.command.as_ref().is_none_or(command)
    }
}

fn is_unit(name: &str) -> bool {
    UNIT_ENDS
        .iter()
        .any(|end| name.len() > end.len() && name.ends_with(end))
}

/// The systemd unit that a cgroup is.
fn unit_at(path: &str) -> Option<&str> {
    path.rsplit('/').next().filter(|name| is_unit(name))
}

/// The systemd unit of a cgroup: the innermost one on its path.
fn unit_of(path: &str) -> Option<&str> {
    path.rsplit('/').find(|part| is_unit(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(groups: &str) -> Config {
        let mut text = String::from("version = 1\n");
        for (index, matches) in groups.lines().map(str::trim).enumerate() {
            text += &format!("[[group]]\nname = \"g{index}\"\nmatch = {{ {matches} }}\n");
        }
        Config::parse("p.toml", &text).unwrap()
    }

    fn of_cgroup(config: &Config, path: &str) -> Option<String> {
        config
            .match_cgroup(path)
            .map(|found| found.rule.name.clone())
    }

    fn process() -> Process {
        Process {
            cgroup: "/user.slice/user-0.slice/session-1.scope".into(),
            executable: Some("/usr/lib/rust/bin/rustc".into()),
            uid: Uid::from_raw(1000),
            command: "rustc --edition 2024 src/main.rs".into(),
        }
    }

    #[test]
    fn the_first_rule_matches_and_the_second_is_the_overlap() {
        let config = config("cgroup = \"/a/*\"\ncgroup = \"/a/b\"\ncgroup = \"/**\"");
        let found = config.match_cgroup("/a/b").unwrap();
        assert_eq!(
            (
                found.rule.name.as_str(),
                found.overlap.unwrap().name.as_str()
            ),
            ("g0", "g1")
        );
        assert_eq!(of_cgroup(&config, "/x").unwrap(), "g2");
        assert_eq!(config.match_cgroup("/x").unwrap().overlap, None);
    }

    #[test]
    fn a_unit_matches_its_own_cgroup_below_any_parent() {
        let config = config("unit = \"encode-*.service\"");
        assert!(of_cgroup(&config, "/system.slice/encode-7.service").is_some());
        assert!(of_cgroup(&config, "/user.slice/encode-7.service").is_some());
        assert!(of_cgroup(&config, "/system.slice/encode-7.service/worker").is_none());
        assert!(of_cgroup(&config, "/system.slice/encode-7.serviced").is_none());
        assert!(of_cgroup(&config, "/.service").is_none());
    }

    #[test]
    fn all_given_conditions_have_to_hold() {
        for (matches, expected) in [
            ("executable = \"rustc\"", true),
            ("executable = \"/usr/lib/rust/bin/*\"", true),
            ("executable = \"/usr/*\"", false),
            ("user = 1000", true),
            ("user = 0", false),
            ("command = \"rustc *main.rs\"", true),
            ("command = \"main.rs\"", false),
            ("user = 1000, executable = \"cargo\"", false),
            ("user = 1000, unit = \"session-*.scope\"", true),
            ("user = 1000, unit = \"user-0.slice\"", false),
            ("user = 1000, cgroup = \"/user.slice/**\"", true),
        ] {
            let found = config(matches).match_process(&process()).is_some();
            assert_eq!(found, expected, "{matches}");
        }
    }

    #[test]
    fn groups_of_processes_match_no_cgroups() {
        let config = config("user = 1000\ncgroup = \"/user.slice/**\"");
        assert!(config.has_process_rules());
        let cgroup = process().cgroup;
        assert_eq!(of_cgroup(&config, &cgroup).unwrap(), "g1");
        assert_eq!(config.match_process(&process()).unwrap().rule.name, "g0");
        let mut kernel_thread = process();
        kernel_thread.executable = None;
        assert!(config.match_process(&kernel_thread).is_some());
    }
}
