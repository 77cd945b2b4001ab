//! What the service knows of whom a request is about: who may ask for it is
//! decided by that alone.

use plimsoll_engine::knobs::Tolerance;

use super::Service;
use super::answers::Found;
use crate::control::authority::{Facts, Target};
use crate::control::peer::Peer;
use crate::control::target;
use crate::processes;

impl Service {
    /// What has to be known of a target before a request is granted.
    pub(super) fn facts(&self, peer: &Peer, found: &Found) -> Facts {
        let headroom = self.shared().enforcer().headroom();
        let in_force = |sample: plimsoll_engine::enforcer::HeadroomSample| {
            let text = sample.in_force.unwrap_or_default();
            text.parse().ok().or({
                let ppm = sample.headroom_ppm;
                (ppm > 0).then_some(plimsoll_engine::knobs::Headroom::Share(ppm))
            })
        };
        let owners = || self.remembered.commands.values().map(|command| command.uid);
        // A headroom without a tolerance brings the default one along.
        let mut unasked = self.demand;
        unasked.add(None, Some(Tolerance::default()));
        let mut facts = Facts {
            tolerance: self.demand.tolerance(),
            tolerance_unasked: unasked.tolerance(),
            headroom: headroom.and_then(in_force),
            owned_groups: owners().filter(|uid| *uid == peer.uid).count(),
            users_groups: owners().filter(|uid| *uid != 0).count(),
            tasks_take_cgroups: self.planner.scheduler().is_none(),
            ..Facts::default()
        };
        match found {
            Found::Rule(_) | Found::Cgroup(_) => (),
            Found::Command(name) => {
                if let Some(command) = self.remembered.commands.get(name) {
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
                    // Where a thread is, or what has ended but for its
                    // threads, is not known: it is nobody's own.
                    owner: found.as_ref().and(process.owner),
                    confined_by: found.and_then(|found| self.confined_by(process.pid, &found)),
                };
            }
        }
        facts
    }

    /// What limits a process, or would in a moment: a rule that claims it
    /// holds before the process is in its group.
    fn confined_by(&self, pid: i32, found: &processes::Found) -> Option<String> {
        let by_rule = self.config.claim_of_process(&found.process);
        self.names_of_process(pid)
            .into_iter()
            .next()
            .or_else(|| by_rule.map(|claim| claim.rule.name.clone()))
            .or_else(|| target::confined_by(&self.hierarchy, pid))
    }
}
