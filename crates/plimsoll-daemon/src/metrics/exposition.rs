//! The state as OpenMetrics text.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use plimsoll_cgroupfs::name::printable;
use plimsoll_engine::enforcer::EnforcerKind;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::families::{Family, MetricKind, OF_GROUPS, OF_THE_STATE, Value, seconds_of};
use crate::state::{GroupState, Histogram, KnobOrigin, State};

const PREFIX: &str = "plimsoll";

/// Known states of the BPF scheduler; others are shown, too.
const SCHEDULER_STATES: [&str; 2] = ["running", "down"];

/// The state as OpenMetrics 1.0 text, which ends with `# EOF`.
///
/// Every metric is described, even if the state has no value for it.
#[must_use]
pub fn openmetrics(state: impl Into<Arc<State>>) -> String {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Exposition(state.into())));
    let mut text = String::new();
    // Writing to a string cannot fail, and the library refuses no value here.
    encode(&mut text, &registry).expect("writing to a string does not fail");
    text
}

struct Exposition(Arc<State>);

impl fmt::Debug for Exposition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Exposition")
    }
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let state = &*self.0;
        let groups = labelled(&state.groups);
        for family in OF_THE_STATE {
            let unit = family.unit();
            let mut metric = describe(&mut encoder, family, unit.as_ref())?;
            if let Some(value) = (family.value)(state) {
                write_value(&mut metric, family.kind, value)?;
            }
        }
        for family in OF_GROUPS {
            let unit = family.unit();
            let mut metric = describe(&mut encoder, family, unit.as_ref())?;
            for (labels, group) in &groups {
                if let Some(value) = (family.value)(group) {
                    write_value(&mut metric.encode_family(labels)?, family.kind, value)?;
                }
            }
        }
        write_group_info(&mut encoder, &groups)?;
        write_daemon_info(&mut encoder, state)?;
        write_scheduler_state(&mut encoder, state)?;
        write_control_delay(&mut encoder, &state.daemon.control_delay)
    }
}

fn describe<'a, T>(
    encoder: &'a mut DescriptorEncoder<'_>,
    family: &Family<T>,
    unit: Option<&'a Unit>,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    let kind = match family.kind {
        MetricKind::Counter => MetricType::Counter,
        MetricKind::Gauge => MetricType::Gauge,
    };
    encoder.encode_descriptor(family.name, family.help, unit, kind)
}

fn write_value(metric: &mut MetricEncoder<'_>, kind: MetricKind, value: Value) -> fmt::Result {
    match kind {
        MetricKind::Counter => metric.encode_counter::<NoLabelSet, _, u64>(&value, None),
        MetricKind::Gauge => metric.encode_gauge(&value),
    }
}

fn write_group_info(
    encoder: &mut DescriptorEncoder<'_>,
    groups: &[(GroupLabels<'_>, &GroupState)],
) -> fmt::Result {
    let help = "Class of the group and source of its knobs";
    let mut metric = encoder.encode_descriptor("group", help, None, MetricType::Info)?;
    for (labels, group) in groups {
        let class = group.knobs.class.map(|class| class.to_string());
        let about = [
            ("class", class.as_deref().unwrap_or_default()),
            ("origin", origin_name(group.origin)),
        ];
        metric.encode_family(labels)?.encode_info(&about)?;
    }
    Ok(())
}

fn write_daemon_info(encoder: &mut DescriptorEncoder<'_>, state: &State) -> fmt::Result {
    let daemon = &state.daemon;
    let help = "The program that runs";
    encoder
        .encode_descriptor("build", help, None, MetricType::Info)?
        .encode_info(&[("version", daemon.version.as_str())])?;
    let help = "How the daemon was set up";
    let about = [
        ("enforcer", enforcer_name(daemon.enforcer).to_owned()),
        ("enforce", daemon.enforce.to_string()),
    ];
    encoder
        .encode_descriptor("daemon", help, None, MetricType::Info)?
        .encode_info(&about)
}

fn write_scheduler_state(encoder: &mut DescriptorEncoder<'_>, state: &State) -> fmt::Result {
    let help = "1 for the state that the BPF scheduler is in, 0 for the others";
    let mut metric = encoder.encode_descriptor("scheduler_state", help, None, MetricType::Gauge)?;
    let Some(scheduler) = &state.scheduler else {
        return Ok(());
    };
    let unknown = !SCHEDULER_STATES.contains(&scheduler.state.as_str());
    let unknown = unknown.then_some(scheduler.state.as_str());
    for name in SCHEDULER_STATES.into_iter().chain(unknown) {
        let labels = [("state", name)];
        let holds = i64::from(scheduler.state == name);
        metric.encode_family(&labels)?.encode_gauge(&holds)?;
    }
    Ok(())
}

fn write_control_delay(encoder: &mut DescriptorEncoder<'_>, delay: &Histogram) -> fmt::Result {
    let help = "How late the daemon's control loop was";
    let (name, kind) = ("daemon_control_delay", MetricType::Histogram);
    let mut metric = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), kind)?;
    let bounds = delay.bounds_usec.iter().map(|usec| seconds_of(*usec));
    let counts = delay.counts.iter().copied().chain(std::iter::repeat(0));
    let buckets: Vec<(f64, u64)> = bounds.chain([f64::INFINITY]).zip(counts).collect();
    let count = buckets.iter().map(|(_, count)| count).sum();
    metric.encode_histogram::<NoLabelSet>(seconds_of(delay.sum_usec), count, &buckets, None)
}

fn origin_name(origin: KnobOrigin) -> &'static str {
    match origin {
        KnobOrigin::CommandLine => "command-line",
        KnobOrigin::File => "file",
    }
}

fn enforcer_name(kind: EnforcerKind) -> &'static str {
    match kind {
        EnforcerKind::Cgroup => "cgroup",
        EnforcerKind::SchedExt => "sched-ext",
    }
}

type GroupLabels<'a> = Vec<(&'static str, Cow<'a, str>)>;

/// The groups, each with its labels. The name is a label only where another group has the same
/// group and cgroup.
fn labelled(groups: &[GroupState]) -> Vec<(GroupLabels<'_>, &GroupState)> {
    // The cgroup is compared as it is shown: a byte that is no UTF-8 looks like its number as a
    // text.
    fn shown(group: &GroupState) -> (&str, Cow<'_, str>) {
        (&group.group, printable(&group.cgroup).into())
    }
    let mut alike: HashMap<(&str, Cow<'_, str>), u32> = HashMap::new();
    for group in groups {
        *alike.entry(shown(group)).or_default() += 1;
    }
    let with_labels = groups.iter().map(|group| {
        let key = shown(group);
        let is_alone = alike[&key] == 1;
        let mut labels = vec![("group", Cow::from(key.0)), ("cgroup", key.1)];
        if !is_alone {
            labels.push(("name", Cow::from(&group.name)));
        }
        (labels, group)
    });
    with_labels.collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use plimsoll_cgroupfs::name;

    use super::*;

    fn group(name: &str, group: &str, cgroup: &str) -> GroupState {
        GroupState {
            name: name.into(),
            group: group.into(),
            cgroup: cgroup.into(),
            ..GroupState::default()
        }
    }

    #[test]
    fn the_name_is_a_label_where_the_other_labels_are_equal() {
        let groups = vec![
            group("one", "web", ""),
            group("two", "web", ""),
            group("/web", "web", "/web"),
            // A byte that is no UTF-8, and a text that looks like it.
            group("three", "web", &name::text_of(OsStr::from_bytes(b"/\xff"))),
            group("four", "web", "/\\xff"),
        ];
        let text = openmetrics(State {
            groups,
            ..State::default()
        });
        let applied =
            |labels: &str| text.contains(&format!("plimsoll_group_applied{{{labels}}} 0\n"));
        assert!(applied(r#"group="web",cgroup="",name="one""#), "{text}");
        assert!(applied(r#"group="web",cgroup="",name="two""#), "{text}");
        assert!(applied(r#"group="web",cgroup="/web""#), "{text}");
        for name in ["three", "four"] {
            let labels = format!(r#"group="web",cgroup="/\\xff",name="{name}""#);
            assert!(applied(&labels), "{text}");
        }
    }
}
