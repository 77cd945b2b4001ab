//! The HTML report: one file without scripts that needs nothing else.

mod file;
mod page;
mod plot;

pub use file::ReportFile;
pub use page::page;
