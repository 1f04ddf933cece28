//! The data shown on a page or in a terminal: panes of steps, each with its changes on flash. A
//! story is plain data.

use serde::Serialize;
use std::collections::BTreeMap;

/// One or two runs, side by side.
#[derive(Debug, Clone, Serialize)]
pub struct Story {
    /// The subject.
    pub title: String,
    /// One or two sentences about it.
    pub about: String,
    /// The geometry of the flash.
    pub shape: Shape,
    /// The rows of the recovery table.
    pub recovery: Vec<Rule>,
    /// The meanings of spare area fields, by name.
    pub meanings: BTreeMap<&'static str, &'static str>,
    /// The runs.
    pub panes: Vec<Pane>,
}

/// The geometry of the flash.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Shape {
    /// Planes, which work in parallel.
    pub planes: u32,
    /// Blocks per plane.
    pub blocks_per_plane: u32,
    /// Pages per block.
    pub pages_per_block: u32,
}

/// A row of the recovery table.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Rule {
    /// Its code.
    pub code: &'static str,
    /// The facts.
    pub facts: &'static str,
    /// The verdict.
    pub verdict: &'static str,
}

/// A run.
#[derive(Debug, Clone, Serialize)]
pub struct Pane {
    /// The form of the protocol.
    pub name: String,
    /// The flash and the tables at its start.
    pub start: Vec<Option<Page>>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The final state.
    pub ending: Ending,
}

/// An event.
#[derive(Debug, Clone, Serialize)]
pub struct Step {
    /// Number shared by corresponding steps of several panes.
    pub part: u32,
    /// Instant, in microseconds of virtual time.
    pub at: Option<u64>,
    /// The party that acts.
    pub lane: Lane,
    /// The transaction concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// A sentence.
    pub text: String,
    /// Details, one per line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<String>,
    /// Changes on flash, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// The transaction whose request caused it.
    #[serde(skip)]
    pub by: Option<String>,
    /// Number of omitted steps that this step replaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folded: Option<u32>,
    /// Pages concerned.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pages: Vec<u32>,
    /// The row of the recovery table that decides, and whether the pages count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ruled: Option<(&'static str, bool)>,
    /// The tables from this step on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tables: Option<Tables>,
}

/// A party that acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Lane {
    /// A client of the device.
    Host,
    /// A plane of the flash.
    Plane(u32),
    /// The device waits.
    Wait,
    /// The power.
    Power,
    /// A decision of the restart.
    Restart,
}

/// A change on flash.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// Pages get new contents.
    Pages(BTreeMap<u32, Page>),
    /// A block is erased.
    Erase(u32),
    /// All pages are as listed.
    All(Vec<Option<Page>>),
}

/// A page of the flash that is not blank.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Page {
    /// One of: data, trim, summary, map, root, log, torn, unknown.
    pub kind: &'static str,
    /// A few characters for a small cell.
    pub label: String,
    /// The transaction that wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Fields of the spare area: name, and value as text.
    pub spare: Vec<(&'static str, String)>,
    /// The protocol's own data in it: entries of a log, verdicts of a summary.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub data: Vec<String>,
    /// Physical pages that it refers to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<u32>,
    /// Its version (logical page and number), if links refer to versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<(u64, u64)>,
    /// The version that it refers to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<(u64, u64)>,
    /// Its commit flag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flag: Option<&'static str>,
}

/// Tables in memory.
#[derive(Debug, Clone, Serialize)]
pub struct Tables {
    /// Logical page and address, for the pages that the story is about.
    pub mapping: Vec<(u32, u32)>,
    /// Pages that the collector must keep.
    pub live: Vec<u32>,
    /// The state of each block.
    pub blocks: Vec<&'static str>,
    /// The protocol's own tables.
    pub own: Vec<Table>,
}

/// A table.
#[derive(Debug, Clone, Serialize)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// The column headings.
    pub columns: Vec<&'static str>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
}

/// The final state.
#[derive(Debug, Clone, Serialize)]
pub struct Ending {
    /// Whether everything is correct.
    pub good: bool,
    /// A sentence.
    pub text: String,
    /// The reasons.
    pub why: Vec<String>,
    /// Each page that the story is about: its number, the allowed contents, the contents found, and
    /// whether these are allowed.
    pub pages: Vec<(u32, String, String, bool)>,
}
