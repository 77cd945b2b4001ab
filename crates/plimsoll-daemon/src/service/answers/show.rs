//! Present and planned groups.

use std::os::fd::BorrowedFd;

use plimsoll_cgroupfs::CpuGroup;
use plimsoll_cgroupfs::name::path_of;
use plimsoll_engine::cgroup::check_place;
use plimsoll_engine::enforcer::EnforcerKind;
use plimsoll_engine::knobs::Class;

use super::super::Service;
use super::super::desired::Desired;
use super::super::report::Detail;
use super::{Refused, one_line};
use crate::control::protocol::Answer;
use crate::state::{GroupState, KnobOrigin};

impl Service {
    pub(super) fn show(
        &mut self,
        target: Option<&str>,
        handle: Option<BorrowedFd<'_>>,
        details: bool,
    ) -> Result<Answer, Refused> {
        let detail = if details { Detail::Full } else { Detail::Brief };
        let Some(target) = target else {
            return Ok(Answer::State(Box::new(self.state(None, detail))));
        };
        let found = self.find(target, handle)?;
        if let Some(refused) = self.without_cgroups(&found) {
            return Err(refused);
        }
        let mut names = self.names_of(&found);
        names.retain(|name| self.table.get(name).is_some());
        Ok(Answer::State(Box::new(self.state(Some(&names), detail))))
    }

    pub(super) fn show_tasks(
        &mut self,
        target: &str,
        handle: Option<BorrowedFd<'_>>,
    ) -> Result<Answer, Refused> {
        let found = self.find(target, handle)?;
        let mut names = self.names_of(&found);
        names.retain(|name| self.table.get(name).is_some());
        if names.len() > 1 {
            let several = names.len();
            return Err(format!(
                "{target}: has {several} groups; tasks are shown of one, such as {}",
                names[0]
            ));
        }
        let state = self.state(Some(&names), Detail::WithTasks);
        Ok(Answer::State(Box::new(state)))
    }

    pub(super) fn groups_now(&self, names: &[String]) -> Answer {
        let mut groups = self.groups(names, Detail::Full);
        let of_fair_class = groups.iter_mut().filter(|group| {
            group.knobs.class == Some(Class::Batch) && group.enforcer == EnforcerKind::Cgroup
        });
        for group in of_fair_class {
            let may_attach = || self.enforcement.starter.may_attach_guard();
            group.lacks_guard = self.fair.guard.is_lacking(may_attach);
        }
        let problems = groups.iter().filter_map(|group| group.problem.clone());
        let desired_states = names.iter().filter_map(|name| self.table.desired(name));
        let demand = self.table.demand();
        let planned =
            desired_states.filter_map(|it| self.enforcement.planner.plan(it, demand).ok());
        let mut warnings: Vec<String> = planned.flat_map(|planned| planned.plan.warnings).collect();
        warnings.extend(problems);
        let real_time = groups.iter().filter_map(|group| {
            let tasks = group.statistics.as_ref()?.real_time;
            let text = format!(
                "{}: real-time tasks, {tasks} now, are held by no quota, cap or class of it",
                group.name
            );
            (tasks > 0).then_some(text)
        });
        warnings.extend(real_time);
        warnings.dedup();
        Answer::Groups { groups, warnings }
    }

    /// Answers a dry run: the group as it would be, with its plan.
    pub(super) fn planned(&self, name: &str, desired: &Desired) -> Result<Answer, Refused> {
        let mut demand = self.table.demand();
        // The group is not among those that are merged.
        demand.add(desired.knobs().headroom, desired.knobs().tolerance);
        let planned = self
            .enforcement
            .planner
            .plan(desired, demand)
            .map_err(one_line)?;
        // A group of the file is checked without its cgroups.
        if desired.is_foreign() && name.starts_with('/') {
            let group = CpuGroup::at(&self.hierarchy, path_of(name.trim_start_matches('/')));
            let mut stock = planned.knobs.clone();
            if desired.policy.is_scheduled {
                // The scheduler's limits are in no file.
                (stock.quota, stock.cap) = (None, None);
            }
            check_place(&group, &stock).map_err(one_line)?;
        }
        let in_force = self
            .enforcement
            .planner
            .in_force(desired, &planned.knobs, demand);
        let group = GroupState {
            name: name.to_owned(),
            group: desired.group.clone(),
            origin: KnobOrigin::CommandLine,
            subject: desired.policy.subject.clone(),
            knobs: in_force,
            enforcer: desired.enforcer(),
            plan: Some(self.shown_items(planned.plan.items)),
            problem: planned.loss.clone(),
            ..GroupState::default()
        };
        Ok(Answer::Groups {
            groups: vec![group],
            warnings: planned
                .plan
                .warnings
                .into_iter()
                .chain(planned.loss)
                .collect(),
        })
    }
}
