//! Reader for TOML files written by users. Every error names line, column and the
//! allowed values.
//!
//! | file | subject |
//! | --- | --- |
//! | `error.rs` | errors, and their places |
//! | `tree.rs` | a text as a tree whose nodes carry their spans |
//! | `table.rs` | values by their keys, each of the type that is wanted |
//! | `knobs.rs` | the knobs of a group, with the words of the command line |

mod error;
mod knobs;
mod table;
mod tree;

pub use error::{FileError, Source, read_text};
pub use knobs::{KEYS as KNOB_KEYS, read as read_knobs};
pub use table::{Bounds, Table, nearest};
pub use tree::{Entries, Entry, Node, Span, Value, parse};
