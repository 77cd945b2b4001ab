//! Tests of the interference experiment against a port of the source's
//! pseudo-code, theory, the source's table, and its own promises.

mod batches;
mod fixture;
mod plain;
mod promises;
mod reference;
mod source;
mod theory;
