//! `run` and `end`, and groups for single processes.

use std::os::fd::BorrowedFd;

use plimsoll_engine::EngineError;
use plimsoll_engine::group_policy::check_name;
use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::tasks::TaskId;

use super::super::Service;
use super::super::command::{Asked, CommandGroup};
use super::handles::{check_limitable, process_of};
use super::{Refused, one_line};
use crate::config::PROCESS_GROUP;
use crate::control::protocol::{Answer, Choice, RunRequest, SUBJECT_CHARS_MAX};

impl Service {
    pub(super) fn begin_run(
        &mut self,
        run: &RunRequest,
        handle: Option<BorrowedFd<'_>>,
    ) -> Result<Answer, Refused> {
        let checked = run.knobs.check_cpus(self.enforcement.planner.nr_cpus());
        checked.map_err(one_line)?;
        let process = process_of(&run.name, handle)?;
        // A dry run is about the command; the process of its handle is the client itself.
        if !run.choice.dry_run {
            check_limitable(&process.tid.to_string(), process)?;
        }
        let name = match run.is_numbered {
            true => format!("{}-{}", run.name, process.tid),
            false => run.name.clone(),
        };
        check_name(&name).map_err(one_line)?;
        if name.starts_with(PROCESS_GROUP) {
            return Err(format!(
                "name: `{name}` is not allowed; names that begin with `{PROCESS_GROUP}` are those \
                 of groups of `plimsoll set PID`"
            ));
        }
        let is_taken = self.file.rule(&name).is_some() || self.table.get(&name).is_some();
        if is_taken {
            return Err(EngineError::NameTaken { name }.to_string());
        }
        let subject = run.subject.chars().take(SUBJECT_CHARS_MAX).collect();
        let command = self.new_command(process, subject, &run.knobs, run.choice)?;
        if run.choice.dry_run {
            return self.planned(&name, &self.desired_of_command(&name, &command));
        }
        self.begin(&name, command)?;
        self.complete(&name);
        Ok(self.groups_now(&[name]))
    }

    /// Returns the request of a group for a process.
    ///
    /// # Errors
    /// When the owner does not let the client choose the enforcer.
    pub(super) fn new_command(
        &self,
        first: TaskId,
        subject: String,
        knobs: &Knobs,
        choice: Choice,
    ) -> Result<CommandGroup, Refused> {
        Ok(CommandGroup {
            begun: None,
            first,
            subject,
            asked: Asked {
                knobs: knobs.clone(),
                best_effort: choice.best_effort,
                is_scheduled: self.choose(None, choice)?,
            },
            members: Vec::new(),
        })
    }

    /// Makes a group for a process.
    ///
    /// # Errors
    /// When it cannot be in force, or the process has ended.
    pub(super) fn begin(&mut self, name: &str, command: CommandGroup) -> Result<(), Refused> {
        self.end_empty_namesake(name)?;
        let first = command.first;
        let commands = &mut self.requests.requested.commands;
        commands.insert(name.to_owned(), command);
        self.request_command(name);
        // Before other groups, which could take the process back.
        self.reconcile_first(name);
        let recycled = (!first.exists()).then(|| format!("{}: no such process", first.tid));
        let problem = self.table.failure(name).or(recycled);
        // A group that was left from before may have been taken over.
        let problem = problem.or_else(|| self.take_in(name, first.tid).err().map(one_line));
        if let Some(problem) = problem {
            self.end_command(name);
            self.reconcile();
            return Err(problem);
        }
        Ok(())
    }

    /// Ends the other groups' claims on the first process of a group that is in force now, and has
    /// them follow.
    pub(super) fn complete(&mut self, name: &str) {
        if let Some(first) = self.requests.command(name).map(|command| command.first) {
            self.take_out_of_others(name, first);
        }
        self.reconcile();
        self.save_requests();
    }

    /// Ends a group of the same name that is empty.
    ///
    /// # Errors
    /// When it is not empty: children of an earlier process with the same pid may still run in it.
    fn end_empty_namesake(&mut self, name: &str) -> Result<(), Refused> {
        if self.requests.command(name).is_none() {
            return Ok(());
        }
        if self.is_populated(name) {
            return Err(format!(
                "{name}: is the group of an earlier process with that pid, and its children still \
                 run in it; `plimsoll set {name}` changes their knobs, and after their end the \
                 name is free"
            ));
        }
        self.end_command(name);
        self.reconcile();
        Ok(())
    }

    pub(super) fn end_run(&mut self, name: &str, release: bool) -> Result<Answer, Refused> {
        if self.requests.command(name).is_none() {
            return Err(format!("{name}: no such group"));
        }
        let mut last = self.groups_now(&[name.to_owned()]);
        if let Answer::Groups { warnings, .. } = &mut last {
            // The answer to `run` had the warnings.
            warnings.clear();
        }
        let populated = self.is_populated(name);
        if release || !populated {
            self.end_command(name);
            self.reconcile();
        }
        Ok(last)
    }
}
