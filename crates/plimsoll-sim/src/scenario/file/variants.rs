//! Variants, and how they override the rest of the file.
//!
//! A variant overrides the file key by key. `without` removes groups.
//! `group.NAME` has knobs for that group; tables named after a kind of workload
//! have parameters for all workloads of that kind in it. The value `"none"`
//! removes a knob or parameter. The overrides are applied to the parsed tree,
//! so that an error points to the text that caused it.

use plimsoll_engine::toml_file::{
    Entries, Entry, FileError, KNOB_KEYS, Node, Source, Table, Value, nearest,
};

use super::workloads;

/// Value that removes a knob or parameter.
const NONE: &str = "none";
/// Keys of a variant.
const KEYS: [&str; 8] = [
    "name", "about", "duration", "warmup", "seed", "machine", "without", "group",
];

/// Name of a variant, and the file with its overrides applied.
pub(super) struct Overlaid {
    pub(super) name: String,
    pub(super) entries: Entries,
    /// Names of removed groups. They are still in the entries, because a
    /// group's random draws depend on its position in the file and must not
    /// change when another group is removed.
    pub(super) without: Vec<String>,
}

/// Removes the variants from a file, and applies each to a copy of the rest.
/// Empty if the file has no variants.
pub(super) fn take(source: &Source, entries: &mut Entries) -> Result<Vec<Overlaid>, FileError> {
    let Some(index) = entries.iter().position(|entry| entry.key == "variant") else {
        return Ok(Vec::new());
    };
    let variants = entries.remove(index);
    let base: &Entries = entries;
    let holder = vec![variants];
    let tables = Table::new(source, 0, &holder, "the file").tables("variant", "a variant")?;
    let mut found: Vec<Overlaid> = Vec::new();
    for table in &tables {
        let overlaid = overlay(base, table)?;
        if found.iter().any(|other| other.name == overlaid.name) {
            let problem = format!(
                "name: `{}` is already the name of another variant; allowed: a unique name",
                overlaid.name
            );
            return Err(table.error("name", problem));
        }
        found.push(overlaid);
    }
    Ok(found)
}

fn overlay(base: &Entries, variant: &Table) -> Result<Overlaid, FileError> {
    variant.check_keys(&KEYS)?;
    const NAME: &str = "the variant's name in quotes";
    let name = variant.text("name", NAME)?.filter(|name| !name.is_empty());
    let Some(name) = name else {
        return Err(variant.error("name", format!("name: `` is missing; allowed: {NAME}")));
    };
    if name.contains(char::is_control) {
        let problem =
            format!("name: `{name}` has control characters; allowed: {NAME}, in one line");
        return Err(variant.error("name", problem));
    }
    let mut entries = base.clone();
    for key in ["about", "duration", "warmup", "seed"] {
        if let Some(entry) = variant.find(key) {
            override_entry(&mut entries, entry);
        }
    }
    if let Some(machine) = variant.table("machine", "a machine")? {
        match entries.iter_mut().find(|entry| entry.key == "machine") {
            Some(Entry {
                node:
                    Node {
                        value: Value::Table(own),
                        ..
                    },
                ..
            }) => {
                machine
                    .entries()
                    .iter()
                    .for_each(|entry| override_entry(own, entry));
            }
            _ => entries.extend(variant.find("machine").cloned()),
        }
    }
    over_groups(&mut entries, variant)?;
    Ok(Overlaid {
        name: name.to_owned(),
        without: without(&mut entries, variant)?,
        entries,
    })
}

/// Replaces the value of a key, or removes the key.
fn override_entry(entries: &mut Entries, entry: &Entry) {
    entries.retain(|other| other.key != entry.key);
    if !matches!(&entry.node.value, Value::Text(text) if text == NONE) {
        entries.push(entry.clone());
    }
}

/// The groups of a file that are tables.
fn groups(entries: &mut Entries) -> impl Iterator<Item = &mut Entries> {
    let nodes = entries
        .iter_mut()
        .filter(|entry| entry.key == "group")
        .filter_map(|entry| match &mut entry.node.value {
            Value::List(nodes) => Some(nodes),
            _ => None,
        });
    nodes.flatten().filter_map(|node| match &mut node.value {
        Value::Table(entries) => Some(entries),
        _ => None,
    })
}

/// A group's name, if it has one.
fn name_of(group: &Entries) -> Option<&str> {
    let entry = group.iter().find(|entry| entry.key == "name")?;
    match &entry.node.value {
        Value::Text(name) => Some(name),
        _ => None,
    }
}

/// Error for a name that no group has.
fn no_group(entries: &mut Entries, name: &str) -> String {
    let names: Vec<String> = groups(entries)
        .filter_map(|group| name_of(group).map(str::to_owned))
        .collect();
    let meant = nearest(name, names.iter().map(String::as_str))
        .map_or_else(String::new, |near| format!(" (perhaps `{near}`?)"));
    format!(
        "`{name}` is not a group of the file{meant}; allowed: {}",
        names.join(", ")
    )
}

fn over_groups(entries: &mut Entries, variant: &Table) -> Result<(), FileError> {
    let Some(over) = variant.table("group", "the groups of a variant, by name")? else {
        return Ok(());
    };
    for entry in over.entries() {
        let newer = over.below(entry, "a group of a variant")?;
        let mut kinds = workloads::KINDS.map(|(kind, _)| kind).to_vec();
        kinds.extend(KNOB_KEYS);
        newer.check_keys(&kinds)?;
        let Some(group) = groups(entries).find(|group| name_of(group) == Some(&entry.key)) else {
            let problem = format!("group: {}", no_group(entries, &entry.key));
            return Err(variant.error_at(&entry.key_span, problem));
        };
        for change in newer.entries() {
            if workloads::KINDS.iter().any(|(kind, _)| *kind == change.key) {
                over_workloads(group, &newer, change)?;
            } else {
                override_entry(group, change);
            }
        }
    }
    Ok(())
}

/// Overrides parameters of all workloads of a kind in a group.
fn over_workloads(group: &mut Entries, newer: &Table, change: &Entry) -> Result<(), FileError> {
    let parameters = newer.below(change, "a workload")?;
    let mut found = false;
    let lists = group.iter_mut().filter(|entry| entry.key == "workload");
    let nodes = lists.filter_map(|entry| match &mut entry.node.value {
        Value::List(nodes) => Some(nodes),
        _ => None,
    });
    for node in nodes.flatten() {
        let Value::Table(workload) = &mut node.value else {
            continue;
        };
        let is_kind = |entry: &Entry| {
            entry.key == "kind"
                && matches!(&entry.node.value, Value::Text(kind) if *kind == change.key)
        };
        if workload.iter().any(is_kind) {
            found = true;
            parameters
                .entries()
                .iter()
                .for_each(|entry| override_entry(workload, entry));
        }
    }
    if found {
        return Ok(());
    }
    let problem = format!(
        "`{}` is not a workload of this group; allowed: a kind that it has",
        change.key
    );
    Err(newer.error_at(&change.key_span, problem))
}

/// Names of the groups that a variant removes.
fn without(entries: &mut Entries, variant: &Table) -> Result<Vec<String>, FileError> {
    let mut names = Vec::new();
    for (name, span) in variant.words("without")? {
        if !groups(entries).any(|group| name_of(group) == Some(name)) {
            let problem = format!("without: {}", no_group(entries, name));
            return Err(variant.error_at(span, problem));
        }
        names.push(name.to_owned());
    }
    let stays =
        |group: &mut Entries| name_of(group).is_none_or(|name| !names.iter().any(|n| n == name));
    if !names.is_empty() && !groups(entries).any(stays) {
        let problem = "without: all groups are left out; allowed: at least one stays";
        return Err(variant.error("without", problem));
    }
    Ok(names)
}
