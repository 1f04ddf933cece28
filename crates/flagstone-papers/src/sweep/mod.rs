//! Sweeps: one configuration with several varied settings, as a grid or a Sobol sample.
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
//! A sweep uses the keys of experiment files ([`crate::reproduce::engine`]): a task is one run of
//! an engine. Tasks are independent, so any of them can run alone, also on another machine.
//! [`Task::from_json`] parses one, [`Task::result`] runs it, and [`Kept::bytes`] is the contents of
//! its file.
//!
//! A result depends only on task and program. It contains no machine times, so equal tasks give
//! equal files, on any machine and in any order.
//!
//! ```
//! use flagstone_papers::sweep::{Sweep, Task};
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
