//! Requests of clients and their answers.
//!
//! | file | subject |
//! | --- | --- |
//! | `dispatch.rs` | one request, to the method that answers it |
//! | `targets.rs` | the group, cgroup or process that a client names |
//! | `choice.rs` | enforcer of a client's group |
//! | `show.rs` | present and planned groups |
//! | `set.rs` | `set` and `reset` |
//! | `run_requests.rs` | `run` and `end` |
//! | `service_requests.rs` | requests that change the whole service |

mod choice;
mod dispatch;
mod handles;
mod run_requests;
mod service_requests;
mod set;
mod show;
mod targets;

/// Refusal of a request: one line for people.
type Refused = String;

fn one_line(error: impl std::fmt::Display) -> Refused {
    error.to_string()
}
