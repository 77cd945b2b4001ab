//! `--once --json`: the document `plimsoll.top/1`.

use plimsoll_daemon::state::KnobOrigin;
use plimsoll_engine::knobs::{Class, Knobs};
use plimsoll_engine::sample::HeadroomSample;
use serde::Serialize;

use super::columns::class;
use super::model::Model;
use super::rates::{GroupRates, MachineRates};
use super::source::SourceKind;
use crate::error::Result;
use crate::output;

#[derive(Serialize)]
struct Document<'a> {
    asked: Option<SourceKind>,
    interval_usec: u64,
    machine: MachineObject,
    headroom: Option<&'a HeadroomSample>,
    problems: &'a [String],
    groups: Vec<GroupObject<'a>>,
}

#[derive(Serialize)]
struct MachineObject {
    nr_cpus: u32,
    #[serde(flatten)]
    rates: Option<MachineRates>,
}

#[derive(Serialize)]
struct GroupObject<'a> {
    name: &'a str,
    group: &'a str,
    origin: KnobOrigin,
    cgroup: String,
    subject: &'a str,
    class: Class,
    knobs: &'a Knobs,
    #[serde(flatten)]
    rates: &'a GroupRates,
    processes: Option<u64>,
    problem: Option<&'a str>,
}

pub fn print(model: &mut Model) -> Result<()> {
    let rows = model.page(usize::MAX);
    let groups = rows.iter().map(|(index, _)| {
        let (group, rates) = model.group(*index);
        GroupObject {
            name: &group.name,
            group: &group.group,
            origin: group.origin,
            cgroup: group.cgroup.clone(),
            subject: &group.subject,
            class: class(group),
            knobs: &group.knobs,
            rates,
            processes: group.statistics.as_ref().map(|sample| sample.processes),
            problem: group.problem.as_deref(),
        }
    });
    let document = Document {
        asked: model.asked,
        interval_usec: model.rates.interval_usec,
        machine: MachineObject {
            nr_cpus: model.state.machine.nr_cpus,
            rates: model.rates.machine,
        },
        headroom: model.state.headroom.as_ref(),
        problems: &model.state.daemon.problems,
        groups: groups.collect(),
    };
    output::print_json("plimsoll.top/1", &document)
}
