//! Sweeps: one configuration varied over several settings, by a grid or by a Sobol sample.
//!
//! ```text
//!   FILE.toml     what all runs have, what is varied        file
//!      |
//!    Sweep        tasks: settings as plain data, each       task, sample
//!      |          with a name by its hash
//!    run          a result file for each task               kept
//!      |
//!     Map         which protocol wins where                 map
//! ```
//!
//! A sweep speaks the language of experiment files ([`crate::reproduce::engine`]): a task is one
//! run of an engine. Tasks share nothing, so that any of them can be run alone, on another machine
//! as well. [`Task::from_json`] reads one, [`Task::result`] runs it, and [`Kept::bytes`] are its
//! file.
//!
//! A result depends on the task and the program alone. It has no times of the machine in it, so
//! that equal tasks give equal files, on any machine and in any order.
//!
//! ```
//! use flagstone_lab::sweep::{Sweep, Task};
//!
//! let sweep = Sweep::parse(include_str!("../../sweeps/clients-and-aborts.toml"))?;
//! let task = &sweep.tasks[0];
//! // A task is plain data. Its JSON gives the same task on another machine.
//! let again = Task::from_json(&task.json())?;
//! assert_eq!(again.file_name(), task.file_name());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod file;
mod kept;
mod map;
mod sample;
mod task;

pub use file::{Axis, MapSpec, SampleSpec, Sweep};
pub use kept::{Kept, KeptError, Tasked, run};
pub use map::{Better, Map, MapCell, Side};
pub use sample::{SAMPLE_MAX, unit};
pub use task::{Task, TaskError};

#[cfg(test)]
mod tests;
