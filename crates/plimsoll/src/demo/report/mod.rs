//! The HTML report: one self-contained file without scripts.

mod page;
mod plot;

pub use page::page;
