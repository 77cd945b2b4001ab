//! The interference experiment against a plain implementation of its source,
//! against theory, against the source's table, and its own promises.

mod fixture;
#[path = "../../benches/interference/plain.rs"]
mod plain;
mod promises;
mod reference;
mod repeatable;
mod source;
mod theory;
