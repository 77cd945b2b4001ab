//! Facts about the target of a request, from which alone it is granted or refused.

use plimsoll_engine::knobs::Tolerance;

use super::super::Service;
use super::targets::Found;
use crate::control::authority::{Facts, Target};
use crate::control::peer::Peer;
use crate::control::target;
use crate::processes;

impl Service {
    /// Gathers the facts about a target.
    pub(super) fn facts(&self, peer: &Peer, found: &Found) -> Facts {
        let headroom = self.enforcement.enforcer().headroom();
        let in_force = |sample: plimsoll_engine::enforcer::HeadroomSample| {
            let text = sample.in_force.unwrap_or_default();
            text.parse().ok().or({
                let ppm = sample.headroom_ppm;
                (ppm > 0).then_some(plimsoll_engine::knobs::Headroom::Share(ppm))
            })
        };
        let owners = || self.requests.commands().map(|(_, command)| command.uid);
        // A headroom without a tolerance brings the default one along.
        let demand = self.table.demand();
        let mut unasked = demand;
        unasked.add(None, Some(Tolerance::default()));
        let mut facts = Facts {
            tolerance: demand.tolerance(),
            tolerance_unasked: unasked.tolerance(),
            headroom: headroom.and_then(in_force),
            owned_groups: owners().filter(|uid| *uid == peer.uid).count(),
            users_groups: owners().filter(|uid| *uid != 0).count(),
            tasks_take_cgroups: self.enforcement.scheduler().is_none(),
            ..Facts::default()
        };
        match found {
            Found::Rule(_) | Found::Cgroup(_) => (),
            Found::Command(name) => {
                if let Some(command) = self.requests.command(name) {
                    facts.target = Target::Group { owner: command.uid };
                    facts.knobs = command.knobs.clone();
                    facts.bound = command.bound.clone();
                    facts.nice = command.nice();
                }
            }
            Found::Process(process) => {
                facts.nice = process.nice;
                let found = processes::look(&self.hierarchy, process.pid);
                facts.target = Target::Process {
                    // The cgroup of a thread, or of a process whose main thread has ended, is
                    // unknown: no user owns it.
                    owner: found.as_ref().and(process.owner),
                    confined_by: found.and_then(|found| self.confined_by(process.pid, &found)),
                };
            }
        }
        facts
    }

    /// The group or cgroup that limits a process. A rule that matches it counts before the
    /// process is in its group.
    fn confined_by(&self, pid: i32, found: &processes::Found) -> Option<String> {
        let by_rule = self.config().match_process(&found.process);
        self.names_of_process(pid)
            .into_iter()
            .next()
            .or_else(|| by_rule.map(|matched| matched.rule.name.clone()))
            .or_else(|| target::confined_by(&self.hierarchy, pid))
    }
}
