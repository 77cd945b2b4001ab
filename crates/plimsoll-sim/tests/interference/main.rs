//! Tests of the interference experiment against a port of the source's
//! pseudo-code, and the source's table.

mod batches;
mod correlation;
mod fixture;
mod plain;
mod reference;
mod source;
