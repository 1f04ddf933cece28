//! Which settings published claims depend on: settings that a paper leaves open are varied within
//! the allowed bounds, and claims are judged at each point.
//!
//! ```text
//!   experiments/PAPER.open.toml   settings left open, their bounds, reasons   open
//!            |
//!     a design: the default, one setting at a time, a Sobol sample            design
//!            |  and a climb from the best of them                             found
//!            |  the experiment's own runs with these settings
//!     verdicts and figures at each point                                      tried
//!            |
//!     ranks, total effects, the best point, what each claim needs             effects, found
//!            |
//!   experiments/found.toml        answers of long analyses, for reports       record
//! ```
//!
//! Defaults and verdicts of `flagstone reproduce` are unaffected. A figure's own sweep, series and
//! settings override the varied ones, like the experiment's.

mod design;
mod effects;
mod found;
mod open;
mod record;
#[cfg(test)]
mod tests;
mod tried;

pub use design::{Design, Point, PointKind};
pub use effects::{Effect, Effects};
pub use found::{Needed, Range, best, climb, needed, one_at_a_time, total_effects};
pub use open::{Open, OpenSettings};
pub use record::{Analysis, Answer, Moved, Place, Share, answers, found_for, partly, unanswered};
pub use tried::{Tried, Trier, Value};
