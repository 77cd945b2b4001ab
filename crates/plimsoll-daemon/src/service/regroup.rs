//! Groups of processes across a reload: a process stays in its group, so the groups that may
//! have to release some are removed and made again.

use std::path::Path;

use plimsoll_engine::own_groups;

use super::Service;
use super::members::{self, Members};
use crate::config::{Config, Match, Rule};
use crate::processes;

fn process_matches(config: &Config) -> impl Iterator<Item = (&str, &Match)> {
    let rules = config.rules.iter();
    let of_processes = rules.filter(|rule: &&Rule| rule.matches.is_of_processes());
    of_processes.map(|rule| (rule.name.as_str(), &rule.matches))
}

/// The groups whose processes may belong to other groups now. That depends on the match of a
/// group, and on all groups before it.
fn outdated<'a>(before: &'a Config, now: &Config) -> Vec<(&'a str, &'a Match)> {
    let pairs = process_matches(before).zip(process_matches(now));
    let nr_same = pairs.take_while(|(before, now)| before == now).count();
    process_matches(before).skip(nr_same).collect()
}

impl Service {
    /// Removes the groups whose processes may belong to others under another configuration.
    /// Returns the members of those that match as before, for
    /// [`Service::take_back_unmatched`].
    pub(super) fn release_outdated_groups(&mut self, now: &Config) -> Members {
        let is_left = |outdated: &(&str, &Match)| process_matches(now).any(|it| it == *outdated);
        let outdated: Vec<(String, bool)> = outdated(self.config(), now)
            .iter()
            .map(|outdated| (outdated.0.to_owned(), is_left(outdated)))
            .collect();
        let mut members = Members::new();
        for (name, is_left) in outdated {
            let folder = self.enforcement.folder_of(&name);
            let (Some(folder), true) = (folder, self.table.is_of_processes(&name)) else {
                continue;
            };
            if is_left {
                members.insert(name.clone(), members::processes_below(&folder));
            }
            self.table.set_desired(&name, None);
            self.take_away(&name);
        }
        members
    }

    /// Moves members that no group of the file matches into their groups again: their parents,
    /// which a group matched, may have ended.
    pub(super) fn take_back_unmatched(&mut self, members: &Members) {
        for (name, members) in members {
            for (pid, _) in members.iter().filter(|member| members::lives(**member)) {
                let Some(found) = processes::look(&self.hierarchy, *pid) else {
                    continue;
                };
                let is_matched = self.config().match_process(&found.process).is_some();
                let is_own = own_groups::is_own(&self.hierarchy, Path::new(&found.process.cgroup));
                if !is_matched && !is_own && self.table.is_applied(name) {
                    self.take_back(name, *pid);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(matches: &[&str]) -> Config {
        let mut text = String::from("version = 1\n");
        for (index, matches) in matches.iter().enumerate() {
            text += &format!("[[group]]\nname = \"g{index}\"\nmatch = {{ {matches} }}\n");
        }
        Config::parse("p.toml", &text).unwrap()
    }

    #[test]
    fn groups_are_outdated_from_the_first_changed_match_of_processes_on() {
        let (a, b, c) = ("user = 1", "user = 2", "cgroup = \"/c\"");
        let before = config(&[c, a, b]);
        for (now, expected) in [
            (config(&[c, a, b]), &[][..]),
            (config(&["cgroup = \"/d\"", a, b]), &[]),
            (config(&[c, a, b, "user = 3"]), &[]),
            (config(&[c, a, "user = 3"]), &["g2"]),
            (config(&[c, a]), &["g2"]),
            (config(&[c, b, a]), &["g1", "g2"]),
            (config(&["user = 3", a, b]), &["g1", "g2"]),
            (config(&[]), &["g1", "g2"]),
        ] {
            let outdated = outdated(&before, &now);
            let names: Vec<&str> = outdated.into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, expected);
        }
    }
}
