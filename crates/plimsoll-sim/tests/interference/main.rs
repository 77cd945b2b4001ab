//! Tests of the interference experiment against a port of the source's
//! pseudo-code, theory, and the source's table.

mod batches;
mod fixture;
mod plain;
mod reference;
mod source;
mod theory;
