//! The kernel's own types, from BTF, which differ between kernels.

use std::path::Path;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Enum64, Func, Struct};

pub(crate) struct KernelTypes(Btf<'static>);

impl KernelTypes {
    pub(crate) fn read(path: &Path) -> libbpf_rs::Result<Self> {
        Ok(Self(Btf::from_path(path)?))
    }

    pub(crate) fn has_function(&self, name: &str) -> bool {
        self.0.type_by_name::<Func<'_>>(name).is_some()
    }

    pub(crate) fn has_member(&self, name: &str, member: &str) -> bool {
        let of_kernel = self.0.type_by_name::<Struct<'_>>(name);
        of_kernel.is_some_and(|kernel| {
            let mut names = kernel.iter().filter_map(|member| member.name);
            names.any(|name| name == member)
        })
    }

    /// Whether an enum of 64 bits has an enumerator.
    pub(crate) fn has_enumerator(&self, name: &str, enumerator: &str) -> bool {
        let of_kernel = self.0.type_by_name::<Enum64<'_>>(name);
        of_kernel.is_some_and(|kernel| {
            let mut names = kernel.iter().filter_map(|member| member.name);
            names.any(|name| name == enumerator)
        })
    }

    /// Whether the enumerators of an enum have their full values. Some kernels are built without
    /// 64-bit enumerators: their BTF has the lower halves only, in an enum of 8 bytes.
    pub(crate) fn has_full_enumerators(&self, name: &str) -> bool {
        self.0.type_by_name::<Enum64<'_>>(name).is_some()
    }
}

/// BTF as a kernel has it, small enough to write down.
#[cfg(test)]
pub(crate) mod example {
    const KIND_STRUCT: u32 = 4;
    const KIND_ENUM: u32 = 6;
    const KIND_FUNC: u32 = 12;
    const KIND_FUNC_PROTO: u32 = 13;
    const KIND_ENUM64: u32 = 19;
    #[derive(Default)]
    pub(crate) struct Example {
        types: Vec<u32>,
        /// Their numbers begin with 1.
        nr_types: u32,
        strings: Vec<u8>,
    }

    impl Example {
        pub(crate) fn function(mut self, name: &str) -> Self {
            // Its type: no parameters, and returns nothing.
            self.types.extend([0, KIND_FUNC_PROTO << 24, 0]);
            self.nr_types += 1;
            self.head(name, KIND_FUNC, self.nr_types);
            self
        }

        /// A struct of one member, which has no type.
        pub(crate) fn member(mut self, name: &str, member: &str) -> Self {
            let (name, member) = (self.string(name), self.string(member));
            self.types
                .extend([name, KIND_STRUCT << 24 | 1, 8, member, 0, 0]);
            self.nr_types += 1;
            self
        }

        /// An enum of 8 bytes without enumerators, of which BTF would have the lower halves.
        pub(crate) fn halved(mut self, name: &str) -> Self {
            self.head(name, KIND_ENUM, 8);
            self
        }

        /// An enum of 64 bits without enumerators.
        pub(crate) fn full(mut self, name: &str) -> Self {
            self.head(name, KIND_ENUM64, 8);
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

        fn head(&mut self, name: &str, kind: u32, size_or_type: u32) {
            let name = self.string(name);
            self.types.extend([name, kind << 24, size_or_type]);
            self.nr_types += 1;
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

    fn types(example: &Example) -> KernelTypes {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), example.bytes()).unwrap();
        KernelTypes::read(file.path()).unwrap()
    }

    #[test]
    fn enumerators_of_which_btf_has_the_lower_halves_are_not_full() {
        let types = types(&Example::default().halved("short").full("long"));
        assert!(types.has_full_enumerators("long"));
        assert!(!types.has_full_enumerators("short"));
        assert!(!types.has_full_enumerators("missing"));
    }

    #[test]
    fn enumerators_named_by_the_scheduler_have_the_values_of_the_kernel() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bpf");
        let sources: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
            .collect();
        let header = std::fs::read_to_string(format!("{folder}/kernel.bpf.h")).unwrap();
        let words = sources
            .iter()
            .flat_map(|text| text.split(|c: char| c != '_' && !c.is_ascii_alphanumeric()))
            .filter(|word| word.starts_with("SCX_") && !word.starts_with("SCX_OPS_"));
        for word in words {
            let definition = format!("#define {word} ");
            assert!(
                header.contains(&definition),
                "{word} is not in kernel.bpf.h"
            );
        }
    }
}
