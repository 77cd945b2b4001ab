//! Matches cgroups to the rules of the configuration.

use std::path::Path;

use plimsoll_engine::own_groups;

use crate::config::{Config, Rule, is_unit};

/// The rules that match a cgroup.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RuleMatch<'a> {
    /// The first matching rule of the file, to which the cgroup belongs.
    pub rule: &'a Rule,
    /// The second matching rule, which overlaps with the first.
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
    /// they are part of it. A cgroup for processes that are left, which no
    /// user has made, only matches its own path.
    #[must_use]
    pub fn match_cgroup(&self, path: &str) -> Option<RuleMatch<'_>> {
        let is_left = Path::new(path).ends_with(own_groups::LEFT);
        let rules = self.rules.matching(path, unit_at(path));
        first(rules.filter(|rule| !is_left || rule.matches.names(path)))
    }
}

/// The systemd unit that a cgroup is.
fn unit_at(path: &str) -> Option<&str> {
    path.rsplit('/').next().filter(|name| is_unit(name))
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
    fn a_cgroup_for_processes_that_are_left_matches_its_path_and_no_wildcard() {
        let config = config("cgroup = \"/a/*\"\ncgroup = [\"/x\", \"/a/plimsoll-left\"]");
        assert_eq!(of_cgroup(&config, "/a/b").unwrap(), "g0");
        let found = config.match_cgroup("/a/plimsoll-left").unwrap();
        assert_eq!((&*found.rule.name, found.overlap), ("g1", None));
        assert_eq!(of_cgroup(&config, "/a/plimsoll-lefts").unwrap(), "g0");
    }

    #[test]
    fn all_given_conditions_have_to_hold() {
        let config = config("unit = \"session-*.scope\", cgroup = \"/user.slice/**\"");
        assert!(of_cgroup(&config, "/user.slice/user-0.slice/session-1.scope").is_some());
        assert!(of_cgroup(&config, "/system.slice/session-1.scope").is_none());
        assert!(of_cgroup(&config, "/user.slice/user-0.slice").is_none());
    }
}
