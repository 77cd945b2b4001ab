//! Groups of commands and of single processes: they end with what runs in
//! them, and outlive a restart of the daemon.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use plimsoll_engine::own_groups;
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::tasks;

use super::Service;
use super::follow::is_this_process;
use super::remembered::{Command, Remembered};
use super::wish::{Place, Wish};
use crate::control::target::Process;
use crate::processes;
use crate::state::Origin;

/// A group whose command has ended is kept for whoever wants to know what it
/// has used.
const KEPT_EMPTY: Duration = Duration::from_secs(5);

/// The weakest level of `setpriority(2)`.
const NICE_MAX: i32 = 19;

/// Processes with their start times, by group.
pub(super) type Members = BTreeMap<String, Vec<(i32, u64)>>;

/// The processes of a cgroup and of all below it, with their start times.
pub(super) fn processes_below(folder: &Path) -> Vec<(i32, u64)> {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    let pids = text.lines().filter_map(|line| line.parse().ok());
    let mut members: Vec<(i32, u64)> = pids
        .filter_map(|pid| Some((pid, tasks::start_time(pid)?)))
        .collect();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            members.extend(processes_below(&entry.path()));
        }
    }
    members
}

pub(super) fn lives((pid, start_time): (i32, u64)) -> bool {
    tasks::start_time(pid) == Some(start_time)
}

/// Who is in the groups of commands that an earlier daemon kept, or was when
/// that was stopped.
pub(super) fn members(remembered: &Remembered) -> Members {
    let of_command = |command: &Command| {
        let mut members = processes_below(&command.folder);
        members.extend(&command.members);
        members.push((command.pid, command.start_time));
        members.sort_unstable();
        members.dedup();
        // A command of the group may have started this owner, which is to be limited by none.
        members.retain(|member| lives(*member) && !is_this_process(member.0));
        members
    };
    let commands = remembered.commands.iter();
    commands
        .map(|(name, command)| (name.clone(), of_command(command)))
        .collect()
}

/// Forgets what was asked of a daemon that is gone. Returns its names.
///
/// # Errors
/// When it cannot be written down.
pub fn forget(runtime: &RuntimeFolder) -> std::io::Result<Vec<String>> {
    let (remembered, _) = Remembered::read(runtime);
    Remembered::default().write(runtime)?;
    let Remembered {
        overrides,
        commands,
        burst_off,
    } = remembered;
    let names = overrides.into_keys().chain(commands.into_keys());
    let switch = burst_off.then(|| "burst-enabled".to_owned());
    Ok(names.chain(switch).collect())
}

impl Service {
    /// Asks for the groups of commands that an earlier daemon kept and that
    /// still run.
    pub(super) fn ask_commands(&mut self, members: &Members) {
        self.remembered.commands.retain(|name, command| {
            let of_group = members.get(name).into_iter().flatten();
            let first = of_group.into_iter().find(|member| lives(**member));
            if !lives((command.pid, command.start_time))
                && let Some((pid, start_time)) = first
            {
                (command.pid, command.start_time) = (*pid, *start_time);
            }
            first.is_some()
        });
        self.ask_all_commands();
        self.remember();
    }

    /// Asks for the groups of all commands, for the scheduler that there is now.
    pub(super) fn ask_all_commands(&mut self) {
        let commands = self.remembered.commands.iter();
        let wishes: Vec<(String, Wish)> = commands
            .map(|(name, command)| (name.clone(), self.wish_of_command(name, command)))
            .collect();
        for (name, wish) in wishes {
            self.book.ask(&name, Some(wish));
        }
    }

    /// The desired state of a command's group.
    pub(super) fn wish_of_command(&self, name: &str, command: &Command) -> Wish {
        Wish {
            scheduler: self.planner.scheduler().or(command.scheduler),
            ..command.wish(name)
        }
    }

    /// Moves those into their groups again that were in them before.
    pub(super) fn take_back_members(&mut self, members: &Members) {
        for (name, members) in members {
            if !self.book.is_applied(name) {
                continue;
            }
            for (pid, start_time) in members {
                if lives((*pid, *start_time)) {
                    self.take_back(name, *pid);
                }
            }
        }
    }

    /// Makes the group of a command again, with all that the command has started.
    pub(super) fn take_back_command(&mut self, name: &str) {
        let Some(first) = self.remembered.commands.get(name).map(|of| of.pid) else {
            return;
        };
        self.apply();
        if self.book.is_applied(name) {
            self.take_back(name, first);
        }
    }

    /// A process with all that it has started while it was in no group.
    pub(super) fn take_back(&mut self, name: &str, pid: i32) {
        if is_this_process(pid) {
            return;
        }
        if !self.is_member(name, pid) {
            let added = self.shared().enforcer().add_process(name, pid);
            if let Err(error) = added
                && tasks::start_time(pid).is_some()
            {
                let text = format!("{name}: cannot take back process {pid}: {error}");
                self.log.error("member", &text);
                return;
            }
        }
        for child in processes::children(pid) {
            let elsewhere = processes::look(&self.hierarchy, child).is_some_and(|found| {
                !own_groups::is_own(&self.hierarchy, Path::new(&found.process.cgroup))
            });
            if elsewhere {
                self.take_back(name, child);
            }
        }
    }

    fn is_member(&self, name: &str, pid: i32) -> bool {
        let shown = self.shared().enforcer().shown_path(name);
        let process = processes::look(&self.hierarchy, pid);
        match (shown, process) {
            (Ok(shown), Some(found)) => Path::new(&found.process.cgroup).starts_with(shown),
            _ => false,
        }
    }

    /// A group for a process, or other knobs for one that is there.
    pub(super) fn begin_command(&mut self, name: &str, command: Command) {
        let wish = self.wish_of_command(name, &command);
        self.book.ask(name, Some(wish));
        self.remembered.commands.insert(name.to_owned(), command);
    }

    /// Puts back what was done for a command.
    pub(super) fn end_command(&mut self, name: &str) {
        self.remembered.commands.remove(name);
        self.empty_since.remove(name);
        self.book.ask(name, None);
        self.remember();
    }

    /// Notes where the groups of commands are, for after a kill.
    pub(super) fn note_folders(&mut self) {
        let mut changed = false;
        for (name, command) in &mut self.remembered.commands {
            let shown = self.control.shared().enforcer().shown_path(name);
            let Ok(shown) = shown else { continue };
            let below = shown.strip_prefix("/").unwrap_or(&shown);
            let folder = self.hierarchy.cpu_folder(below);
            changed |= folder != command.folder;
            command.folder = folder;
        }
        if changed {
            self.remember();
        }
    }

    /// Notes who is in the groups of commands, before all is put back.
    pub(super) fn remember_members(&mut self) {
        if self.remembered.commands.is_empty() {
            return;
        }
        self.note_folders();
        for command in self.remembered.commands.values_mut() {
            command.members = processes_below(&command.folder);
        }
        // Of those that have ended the next daemon need not know.
        let has_ended = |command: &Command| command.members.is_empty() && !command.lives();
        let commands = self.remembered.commands.iter();
        let ended: Vec<String> = commands
            .filter(|(_, command)| has_ended(command))
            .map(|(name, _)| name.clone())
            .collect();
        for name in ended {
            self.remembered.commands.remove(&name);
            self.book.ask(&name, None);
        }
        self.remember();
    }

    /// Ends the groups in which nothing runs any more.
    pub(super) fn end_commands(&mut self) {
        let now = Instant::now();
        let names: Vec<String> = self.remembered.commands.keys().cloned().collect();
        for name in names {
            let Some(entry) = self.book.get(&name) else {
                continue;
            };
            let populated = match entry.applied {
                // A group that is gone is empty.
                Some(_) => self
                    .shared()
                    .enforcer()
                    .is_populated(&name)
                    .unwrap_or(false),
                None => self
                    .remembered
                    .commands
                    .get(&name)
                    .is_some_and(|command| lives((command.pid, command.start_time))),
            };
            if populated {
                self.empty_since.remove(&name);
                continue;
            }
            let since = *self.empty_since.entry(name.clone()).or_insert(now);
            if now.saturating_duration_since(since) >= KEPT_EMPTY {
                self.end_command(&name);
            }
        }
    }
}

impl Command {
    /// Whether its first process is there.
    pub fn lives(&self) -> bool {
        lives((self.pid, self.start_time))
    }

    /// The highest nice level of its processes; where none is found, the
    /// highest that there is: nobody is let go below what is not known.
    pub fn nice(&self) -> i32 {
        let processes = processes_below(&self.folder).into_iter();
        let levels = processes.filter_map(|(pid, _)| Some(Process::read(pid)?.nice));
        levels.max().unwrap_or(NICE_MAX)
    }

    /// What is asked of its group.
    pub fn wish(&self, name: &str) -> Wish {
        Wish {
            group: name.to_owned(),
            origin: Origin::CommandLine,
            place: Place::Command {
                pid: self.pid,
                start_time: self.start_time,
                uid: self.uid,
            },
            knobs: self.knobs.clone(),
            subject: self.subject.clone(),
            best_effort: self.best_effort,
            scheduler: self.scheduler,
            rival: None,
        }
    }
}
