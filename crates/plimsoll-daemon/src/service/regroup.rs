//! Groups of processes under another file: a process that is in one stays
//! there, so those that may have to let go of some begin anew.

use std::path::Path;

use plimsoll_engine::own_groups;

use super::Service;
use super::commands::{self, Members};
use crate::config::{Config, Match, Rule};
use crate::processes;

fn claims(config: &Config) -> impl Iterator<Item = (&str, &Match)> {
    let rules = config.rules.iter();
    let of_processes = rules.filter(|rule: &&Rule| rule.matches.is_of_processes());
    of_processes.map(|rule| (rule.name.as_str(), &rule.matches))
}

/// The groups of which processes may belong to others now: who they are
/// depends on what a group claims, and on all groups before it.
fn outdated<'a>(before: &'a Config, now: &Config) -> Vec<(&'a str, &'a Match)> {
    let pairs = claims(before).zip(claims(now));
    let nr_same = pairs.take_while(|(before, now)| before == now).count();
    claims(before).skip(nr_same).collect()
}

impl Service {
    /// Takes groups away whose processes may belong to others under the file
    /// that is to come. Returns the processes of those that claim what they
    /// did, for [`Service::take_back_unclaimed`].
    pub(super) fn let_go_of_processes(&mut self, now: &Config) -> Members {
        let outdated = outdated(&self.config, now);
        let is_left = |claim: &(&str, &Match)| claims(now).any(|other| other == *claim);
        let outdated: Vec<(String, bool)> = outdated
            .iter()
            .map(|claim| (claim.0.to_owned(), is_left(claim)))
            .collect();
        let mut members = Members::new();
        for (name, is_left) in outdated {
            let shown = self.shared().enforcer().shown_path(&name);
            let (Ok(shown), true) = (shown, self.book.is_of_processes(&name)) else {
                continue;
            };
            if is_left {
                let below = shown.strip_prefix("/").unwrap_or(&shown);
                let folder = self.hierarchy.cpu_folder(below);
                members.insert(name.clone(), commands::processes_below(&folder));
            }
            self.book.ask(&name, None);
            self.take_away(&name);
        }
        members
    }

    /// Members that no group of the file claims by themselves were started by
    /// others, which may have gone since: they stay where they were.
    pub(super) fn take_back_unclaimed(&mut self, members: &Members) {
        for (name, members) in members {
            for (pid, _) in members.iter().filter(|member| commands::lives(**member)) {
                let Some(found) = processes::look(&self.hierarchy, *pid) else {
                    continue;
                };
                let is_claimed = self.config.claim_of_process(&found.process).is_some();
                let is_ours = own_groups::is_own(&self.hierarchy, Path::new(&found.process.cgroup));
                if !is_claimed && !is_ours && self.book.is_applied(name) {
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
    fn groups_begin_anew_from_the_first_of_processes_that_is_another() {
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
