//! What a page or a terminal shows: panes of steps, each with what it changes on flash. A story is
//! data alone. Its page is a drawing of it.

use serde::Serialize;
use std::collections::BTreeMap;

/// One or two runs, side by side.
#[derive(Debug, Clone, Serialize)]
pub struct Story {
    /// What it is about.
    pub title: String,
    /// One or two sentences on it.
    pub about: String,
    /// The shape of the flash.
    pub shape: Shape,
    /// The rows of the recovery table.
    pub recovery: Vec<Rule>,
    /// What the fields of spare areas mean, by name.
    pub meanings: BTreeMap<&'static str, &'static str>,
    /// The runs.
    pub panes: Vec<Pane>,
}

/// The shape of the flash.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Shape {
    /// Planes, which work side by side.
    pub planes: u32,
    /// Blocks of each.
    pub blocks_per_plane: u32,
    /// Pages of each block.
    pub pages_per_block: u32,
}

/// A row of the recovery table.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Rule {
    /// Its code.
    pub code: &'static str,
    /// The facts.
    pub facts: &'static str,
    /// What follows.
    pub verdict: &'static str,
}

/// A run.
#[derive(Debug, Clone, Serialize)]
pub struct Pane {
    /// Which form it is.
    pub name: String,
    /// The flash and the tables at its start.
    pub start: Vec<Option<Page>>,
    /// What happened, in its order.
    pub steps: Vec<Step>,
    /// What is found in the end.
    pub ending: Ending,
}

/// Something that happens.
#[derive(Debug, Clone, Serialize)]
pub struct Step {
    /// Steps of several panes that belong together have one number.
    pub part: u32,
    /// When, in microseconds of virtual time.
    pub at: Option<u64>,
    /// The party that does it.
    pub lane: Lane,
    /// The transaction that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// What it is, in a sentence.
    pub text: String,
    /// More about it, a line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<String>,
    /// What it changes on flash, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// In whose request it happened.
    #[serde(skip)]
    pub by: Option<String>,
    /// How many steps it stands for that are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folded: Option<u32>,
    /// Pages that it is about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pages: Vec<u32>,
    /// The row of the recovery table that decides, and whether the pages count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ruled: Option<(&'static str, bool)>,
    /// The tables from here on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tables: Option<Tables>,
}

/// A party of a story.
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
    /// The restart decides.
    Restart,
}

/// A change on flash.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// Pages have new contents.
    Pages(BTreeMap<u32, Page>),
    /// A block is blank.
    Erase(u32),
    /// All pages are as given.
    All(Vec<Option<Page>>),
}

/// A page of the flash that is not blank.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Page {
    /// data, trim, summary, map, root, log, torn, unknown.
    pub kind: &'static str,
    /// Few characters for a small cell.
    pub label: String,
    /// The transaction that wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Fields of the spare area: name, and value in words.
    pub spare: Vec<(&'static str, String)>,
    /// What its data says, if that is the protocol's: entries of a log, verdicts of a summary.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub data: Vec<String>,
    /// Physical pages that it names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<u32>,
    /// Its own version, logical page and number, where links name those.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<(u64, u64)>,
    /// The version that it names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<(u64, u64)>,
    /// Its commit flag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flag: Option<&'static str>,
}

/// Tables in memory.
#[derive(Debug, Clone, Serialize)]
pub struct Tables {
    /// Logical page and place, of the pages that the story is about.
    pub mapping: Vec<(u32, u32)>,
    /// Pages that the collector keeps.
    pub live: Vec<u32>,
    /// The state of each block.
    pub blocks: Vec<&'static str>,
    /// The protocol's own.
    pub own: Vec<Table>,
}

/// A table.
#[derive(Debug, Clone, Serialize)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// What each column has.
    pub columns: Vec<&'static str>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
}

/// What is found in the end.
#[derive(Debug, Clone, Serialize)]
pub struct Ending {
    /// Whether all is as it must be.
    pub good: bool,
    /// In a sentence.
    pub text: String,
    /// Why.
    pub why: Vec<String>,
    /// Each page that the story is about: what must be there, what may be, and what is; whether
    /// that is right.
    pub pages: Vec<(u32, String, String, bool)>,
}
