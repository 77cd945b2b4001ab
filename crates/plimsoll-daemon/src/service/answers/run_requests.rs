//! `run` and `end`, and groups for single processes.

use plimsoll_engine::EngineError;
use plimsoll_engine::group_policy::check_name;

use super::super::Service;
use super::super::command::Command;
use super::targets::{Refused, one_line, start_time_of};
use crate::config::PROCESS_GROUP;
use crate::control::protocol::{Answer, Run, SUBJECT_CHARS_MAX};

impl Service {
    pub(super) fn begin_run(&mut self, run: &Run) -> Result<Answer, Refused> {
        check_name(&run.name).map_err(one_line)?;
        if run.name.starts_with(PROCESS_GROUP) {
            return Err(format!(
                "name: `{}` is not allowed; names that begin with `{PROCESS_GROUP}` are those of \
                 groups of `plimsoll set PID`",
                run.name
            ));
        }
        let start_time = start_time_of(run.pid)?;
        let is_rule = self.file.rule(&run.name).is_some();
        if is_rule || self.table.get(&run.name).is_some() {
            let name = run.name.clone();
            return Err(EngineError::NameTaken { name }.to_string());
        }
        let command = Command {
            pid: run.pid,
            start_time,
            subject: run.subject.chars().take(SUBJECT_CHARS_MAX).collect(),
            knobs: run.knobs.clone(),
            best_effort: run.choice.best_effort,
            scheduler: self.choose(&run.knobs, run.choice)?,
            folder: Default::default(),
            members: Vec::new(),
        };
        self.begin(&run.name, command, run.choice.dry_run)
    }

    /// Makes a group for a process, or plans it.
    pub(super) fn begin(
        &mut self,
        name: &str,
        command: Command,
        dry_run: bool,
    ) -> Result<Answer, Refused> {
        if dry_run {
            return self.planned(name, &self.desired_of_command(name, &command));
        }
        self.end_empty_namesake(name)?;
        let requested = command.clone();
        self.begin_command(name, command);
        self.reconcile();
        let recycled = (!requested.lives()).then(|| format!("{}: no such process", requested.pid));
        if let Some(problem) = self.table.failure(name).or(recycled) {
            self.end_command(name);
            self.reconcile();
            return Err(problem);
        }
        self.update_folders();
        Ok(self.groups_now(&[name.to_owned()]))
    }

    /// Ends a group of the same name that is empty.
    ///
    /// # Errors
    /// When it is not: children of an earlier process with the same pid may still run in it.
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
        let last = self.groups_now(&[name.to_owned()]);
        let populated = self.is_populated(name);
        if release || !populated {
            self.end_command(name);
            self.reconcile();
        }
        Ok(last)
    }
}
