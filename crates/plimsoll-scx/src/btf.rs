//! The kernel's own types, from BTF: members of structures and values of enumerators, which differ
//! between kernels.

use std::collections::HashMap;
use std::path::Path;

use libbpf_rs::AsRawLibbpf as _;
use libbpf_rs::btf::types::{Composite, DataSec, Enum, Enum64, Func, Var};
use libbpf_rs::btf::{Btf, HasSize as _};
use libbpf_rs::skel::OpenSkel as _;

use crate::Error;
use crate::skel::OpenBpfSkel;

/// Prefix with which scx's headers name the read-only variable for an enumerator in a BPF program.
const VARIABLE_PREFIX: &str = "__";

/// Prefix of the names of sched_ext's enumerators.
const ENUMERATOR_PREFIX: &str = "SCX_";

/// Enumerators that the scheduler needs.
const REQUIRED: &[&str] = &[
    "SCX_DSQ_LOCAL",
    "SCX_DSQ_LOCAL_ON",
    "SCX_ENQ_LAST",
    "SCX_ENQ_PREEMPT",
    "SCX_ENQ_REENQ",
    "SCX_ENQ_WAKEUP",
    "SCX_KICK_IDLE",
    "SCX_KICK_PREEMPT",
    "SCX_TASK_QUEUED",
    "SCX_TASK_RESET_RUNNABLE_AT",
];

/// Enumerators that are 0, and without effect, on a kernel that lacks them.
#[cfg(test)]
const OPTIONAL: &[&str] = &["SCX_ENQ_IMMED"];

pub(crate) struct KernelTypes(Btf<'static>);

impl KernelTypes {
    pub(crate) fn read(path: &Path) -> libbpf_rs::Result<Self> {
        Ok(Self(Btf::from_path(path)?))
    }

    /// Whether a structure exists and has a member of that name.
    pub(crate) fn has_member(&self, structure: &str, member: &str) -> bool {
        self.0
            .type_by_name::<Composite<'_>>(structure)
            .is_some_and(|found| found.iter().any(|m| m.name.is_some_and(|n| n == member)))
    }

    pub(crate) fn has_function(&self, name: &str) -> bool {
        self.0.type_by_name::<Func<'_>>(name).is_some()
    }

    /// All enumerators of sched_ext.
    fn enumerators(&self) -> HashMap<&str, u64> {
        // Some kernels are built without 64-bit enumerators: their BTF has the
        // lower half of the values only, in an enum of 8 bytes. These are skipped.
        let short = self
            .0
            .type_by_kind::<Enum<'_>>()
            .filter(|found| found.size() <= size_of::<u32>())
            .flat_map(|found| (0..found.len()).filter_map(move |i| found.get(i)))
            .map(|member| (member.name, member.value as u64));
        let long = self
            .0
            .type_by_kind::<Enum64<'_>>()
            .flat_map(|found| (0..found.len()).filter_map(move |i| found.get(i)))
            .map(|member| (member.name, member.value as u64));
        short
            .chain(long)
            .filter_map(|(name, value)| Some((name?.to_str()?, value)))
            .filter(|(name, _)| name.starts_with(ENUMERATOR_PREFIX))
            .collect()
    }
}

/// A variable in a program's read-only data.
#[derive(Debug)]
struct Variable {
    name: String,
    offset: usize,
    bytes: usize,
}

/// Sets each variable of the scheduler that stands for an enumerator to the kernel's value.
/// Enumerators that the kernel lacks stay 0.
pub(crate) fn import_enumerators(
    skel: &mut OpenBpfSkel<'static>,
    types: &KernelTypes,
) -> Result<(), Error> {
    let variables = rodata_variables(skel).map_err(Error::Btf)?;
    let rodata = skel.maps.rodata.initial_value_mut().unwrap_or_default();
    fill(rodata, &variables, &types.enumerators())
}

fn rodata_variables(skel: &OpenBpfSkel<'static>) -> libbpf_rs::Result<Vec<Variable>> {
    let object = skel.open_object().as_libbpf_object();
    // SAFETY: it points to the object, which lives as long as `skel`.
    let btf = Btf::from_bpf_object(unsafe { object.as_ref() })?;
    let Some(btf) = btf else {
        return Ok(Vec::new());
    };
    let Some(section) = btf.type_by_name::<DataSec<'_>>(".rodata") else {
        return Ok(Vec::new());
    };
    let variables = section.iter().filter_map(|entry| {
        let variable = btf.type_by_id::<Var<'_>>(entry.ty)?;
        Some(Variable {
            name: variable.name()?.to_str()?.to_owned(),
            offset: entry.offset as usize,
            bytes: entry.size,
        })
    });
    Ok(variables.collect())
}

fn fill(
    rodata: &mut [u8],
    variables: &[Variable],
    enumerators: &HashMap<&str, u64>,
) -> Result<(), Error> {
    let mut filled = Vec::new();
    for variable in variables {
        let Some(name) = variable.name.strip_prefix(VARIABLE_PREFIX) else {
            continue;
        };
        let Some(value) = enumerators.get(name) else {
            continue;
        };
        let bytes = value.to_ne_bytes();
        let end = variable.offset + variable.bytes;
        if let Some(target) = rodata.get_mut(variable.offset..end)
            && target.len() == bytes.len()
        {
            target.copy_from_slice(&bytes);
            filled.push(name);
        }
    }
    match REQUIRED.iter().find(|name| !filled.contains(name)) {
        Some(missing) => Err(Error::NoConstant(missing)),
        None => Ok(()),
    }
}

/// BTF as a kernel has it, small enough to write down.
#[cfg(test)]
pub(crate) mod example {
    const KIND_STRUCT: u32 = 4;
    const KIND_ENUM: u32 = 6;
    const KIND_ENUM64: u32 = 19;

    #[derive(Default)]
    pub(crate) struct Example {
        types: Vec<u32>,
        strings: Vec<u8>,
    }

    impl Example {
        pub(crate) fn structure(mut self, name: &str, members: &[&str]) -> Self {
            self.head(name, KIND_STRUCT, members.len(), 0);
            for member in members {
                let name = self.string(member);
                // Of type void, at offset 0.
                self.types.extend([name, 0, 0]);
            }
            self
        }

        /// An enum in 32 bits, of so many bytes.
        pub(crate) fn short(mut self, bytes: u32, members: &[(&str, u32)]) -> Self {
            self.head("e", KIND_ENUM, members.len(), bytes);
            for (name, value) in members {
                let name = self.string(name);
                self.types.extend([name, *value]);
            }
            self
        }

        pub(crate) fn long(mut self, members: &[(&str, u64)]) -> Self {
            self.head("e64", KIND_ENUM64, members.len(), 8);
            for (name, value) in members {
                let name = self.string(name);
                let (low, high) = (*value as u32, (*value >> 32) as u32);
                self.types.extend([name, low, high]);
            }
            self
        }

        pub(crate) fn bytes(&self) -> Vec<u8> {
            let types = 4 * self.types.len() as u32;
            let strings = 1 + self.strings.len() as u32;
            let header = [0x0001_eb9f, 24, 0, types, types, strings];
            let words = header.iter().chain(&self.types);
            let mut bytes: Vec<u8> = words.flat_map(|word| word.to_ne_bytes()).collect();
            // The first string is the empty one.
            bytes.push(0);
            bytes.extend(&self.strings);
            bytes
        }

        fn head(&mut self, name: &str, kind: u32, members: usize, bytes: u32) {
            let name = self.string(name);
            self.types
                .extend([name, kind << 24 | members as u32, bytes]);
        }

        fn string(&mut self, text: &str) -> u32 {
            let offset = 1 + self.strings.len() as u32;
            self.strings.extend(text.bytes().chain([0]));
            offset
        }
    }
}

#[cfg(test)]
mod tests {
    use super::example::Example;
    use super::*;

    const DSQ_LOCAL: u64 = 1 << 63 | 2;

    fn types(example: &Example) -> KernelTypes {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), example.bytes()).unwrap();
        KernelTypes::read(file.path()).unwrap()
    }

    #[test]
    fn members_are_found_in_their_own_structure_only() {
        let types = types(
            &Example::default()
                .structure("other", &["exit"])
                .structure("sched_ext_ops", &["init"]),
        );
        assert!(types.has_member("sched_ext_ops", "init"));
        assert!(!types.has_member("sched_ext_ops", "exit"));
        assert!(!types.has_member("missing", "init"));
    }

    #[test]
    fn enumerators_are_read_in_full_or_not_at_all() {
        let types = types(
            &Example::default()
                .short(4, &[("SCX_KICK_PREEMPT", 2), ("TASK_RUNNING", 0)])
                .short(8, &[("SCX_TRUNCATED", 2)])
                .long(&[("SCX_DSQ_LOCAL", DSQ_LOCAL)]),
        );
        let expected = HashMap::from([("SCX_KICK_PREEMPT", 2), ("SCX_DSQ_LOCAL", DSQ_LOCAL)]);
        assert_eq!(types.enumerators(), expected);
    }

    fn kernel(without: &str) -> Example {
        let names = REQUIRED.iter().filter(|name| **name != without);
        let members: Vec<_> = names.zip(DSQ_LOCAL..).map(|(n, v)| (*n, v)).collect();
        Example::default().long(&members)
    }

    #[test]
    fn the_scheduler_gets_its_kernels_values() {
        let mut skel = crate::loader::open().unwrap();
        import_enumerators(&mut skel, &types(&kernel("none"))).unwrap();
        let rodata = skel.maps.rodata_data.as_deref().unwrap();
        let value =
            |name: &str| DSQ_LOCAL + (0..).zip(REQUIRED).find(|of| *of.1 == name).unwrap().0;
        assert_eq!(rodata.__SCX_DSQ_LOCAL, value("SCX_DSQ_LOCAL"));
        assert_eq!(rodata.__SCX_ENQ_LAST, value("SCX_ENQ_LAST"));
        assert_eq!(rodata.__SCX_TASK_QUEUED, value("SCX_TASK_QUEUED"));
        // This kernel has no such enumerator.
        assert_eq!(rodata.__SCX_RQ_ONLINE, 0);
    }

    #[test]
    fn a_kernel_without_a_needed_enumerator_is_refused() {
        for name in REQUIRED {
            let mut skel = crate::loader::open().unwrap();
            let result = import_enumerators(&mut skel, &types(&kernel(name)));
            assert!(matches!(result, Err(Error::NoConstant(n)) if n == *name));
        }
    }

    #[test]
    fn enumerators_named_by_the_scheduler_are_required() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bpf");
        let sources: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
            .collect();
        let words = sources
            .iter()
            .flat_map(|text| text.split(|c: char| c != '_' && !c.is_ascii_alphanumeric()));
        let skel = crate::loader::open().unwrap();
        let variables = rodata_variables(&skel).unwrap();
        for word in words.filter(|word| word.starts_with(ENUMERATOR_PREFIX)) {
            let variable = format!("{VARIABLE_PREFIX}{word}");
            if variables.iter().any(|known| known.name == variable) {
                let is_listed = REQUIRED.contains(&word) || OPTIONAL.contains(&word);
                assert!(is_listed, "{word} is missing in REQUIRED");
            }
        }
    }

    #[test]
    fn variables_of_another_kind_are_left_alone() {
        let enumerators: HashMap<_, _> = REQUIRED.iter().map(|n| (*n, u64::MAX)).collect();
        let mut rodata = [0; 16];
        let variable = |name: &str, offset, bytes| Variable {
            name: name.into(),
            offset,
            bytes,
        };
        let wrong = [
            variable("SCX_DSQ_LOCAL", 0, 8),
            variable("__SCX_DSQ_LOCAL", 0, 4),
            variable("__SCX_DSQ_LOCAL", 12, 8),
        ];
        assert!(fill(&mut rodata, &wrong, &enumerators).is_err());
        assert_eq!(rodata, [0; 16]);
    }
}
