//! The HTML report: one self-contained file without scripts.

mod file;
mod page;
mod plot;

pub use file::ReportFile;
pub use page::page;
