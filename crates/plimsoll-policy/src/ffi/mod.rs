//! Generated binding of the policy core. Do not edit: `PLIMSOLL_BLESS=1 cargo
//! test -p plimsoll-policy --test bindings_are_current` regenerates
//! `bindings.rs` and `wrappers.c` from the headers.
#![allow(non_camel_case_types, dead_code)]
#![allow(clippy::all, clippy::undocumented_unsafe_blocks)]

include!("bindings.rs");
