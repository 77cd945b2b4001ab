//! Binding of the policy core, which `build.rs` makes from the headers.
#![allow(non_camel_case_types, dead_code)]
#![allow(clippy::all, clippy::undocumented_unsafe_blocks)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
