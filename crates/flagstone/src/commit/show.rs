//! What a device can show about itself, for pages and stories that explain a protocol: named fields
//! of a spare area, tables in memory, and the decisions of a restart with their rows of the
//! recovery table. Nothing here affects behaviour. Collected only if
//! [`Options::tells`](super::Options::tells) is set.

use super::Info;
use super::active::Writes;
use crate::ftl::{Ftl, header};
use crate::layout::{Layout, get};
use crate::units::{Lpn, Ppn, TxId};

/// A row of the recovery table in the header of a protocol.
///
/// ```
/// use flagstone::commit::Kind;
///
/// let row = &Kind::Cfc.info().recovery[1];
/// assert_eq!(row.facts, "all heads are TRUE");
/// assert_eq!(row.verdict, "committed, with every page they lead to");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Its code: `@` and a letter. Rows of the control have a word instead.
    pub code: &'static str,
    /// The facts that select the row.
    pub facts: &'static str,
    /// The resulting verdict.
    pub verdict: &'static str,
}

/// Defines a recovery table: code, facts and verdict of each row.
macro_rules! rows {
    ($($code:literal: $facts:literal => $verdict:literal;)+) => {
        &[$($crate::commit::Row { code: $code, facts: $facts, verdict: $verdict }),+]
    };
}
pub(super) use rows;

/// A decision of a restart, with its row of the recovery table.
///
/// ```
/// use flagstone::prelude::*;
///
/// let mut device = Device::with_defaults(Chip::default(), Kind::Cfc)?;
/// let tx = device.begin(Nanos::ZERO)?;
/// let now = device.write(Nanos::ZERO, tx, Lpn(7), b"seven")?.next;
/// device.commit(now, tx)?;
///
/// let mut options = Options::default();
/// options.tells = true;
/// let (flash, config) = (device.into_flash(), Config::default());
/// let device = Device::open(flash, Kind::Cfc, config, &options, Nanos::ZERO)?;
/// let ruling = &device.rulings()[0];
/// assert_eq!(ruling.row, device.info().recovery[1].code);
/// assert_eq!((ruling.tx, ruling.counts), (Some(tx), true));
/// # Ok::<(), DeviceError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ruling {
    /// The code of the row.
    pub row: &'static str,
    /// The transaction, if the flash identifies it.
    pub tx: Option<TxId>,
    /// The affected pages, in ascending order.
    pub pages: Vec<Ppn>,
    /// Whether they count.
    pub counts: bool,
    /// A description of the facts.
    pub because: String,
}

/// Collects the rulings of a restart, if enabled.
#[derive(Debug, Default)]
pub(super) struct Rulings(Option<Vec<Ruling>>);

impl Rulings {
    /// Enabled by [`Options::tells`](super::Options::tells).
    pub(super) fn new(tells: bool) -> Rulings {
        Rulings(tells.then(Vec::new))
    }

    /// Whether rulings are collected.
    pub(super) fn listens(&self) -> bool {
        self.0.is_some()
    }

    /// Records a ruling: row, transaction, pages, whether they count, and why.
    pub(super) fn say(
        &mut self,
        row: &'static str,
        tx: Option<TxId>,
        mut pages: Vec<Ppn>,
        counts: bool,
        because: String,
    ) {
        if let Some(all) = &mut self.0 {
            pages.sort_unstable();
            all.push(Ruling {
                row,
                tx,
                pages,
                counts,
                because,
            });
        }
    }

    /// The rulings, ordered by transaction and page.
    pub(super) fn into_list(self) -> Vec<Ruling> {
        let mut all = self.0.unwrap_or_default();
        all.sort_by(|a, b| (a.tx, &a.pages).cmp(&(b.tx, &b.pages)));
        all
    }
}

/// A field of a record on flash.
///
/// ```
/// use flagstone::commit::Kind;
/// use flagstone::ftl::header;
///
/// // The spare area of a blank page.
/// let fields = Kind::Cfc.info().tail_fields(&[0xff; header::SIZE + 22]);
/// assert_eq!((fields[1].name, fields[1].bytes), ("XID", 6));
/// assert!(fields.iter().all(|field| field.is_blank()));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Field {
    /// Its name in docs/format.md.
    pub name: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// Its bytes as a little-endian number.
    pub value: u64,
    /// Its length in bytes.
    pub bytes: usize,
}

impl Field {
    pub(super) fn new(
        name: &'static str,
        meaning: &'static str,
        value: u64,
        bytes: usize,
    ) -> Field {
        Field {
            name,
            meaning,
            value,
            bytes,
        }
    }

    /// Whether all bits are set: no page, or nothing written yet.
    pub fn is_blank(&self) -> bool {
        self.bytes < 8 && self.value == (1 << (8 * self.bytes)) - 1 || self.value == u64::MAX
    }
}

/// The fields of consecutive records of these layouts, as far as the bytes reach.
pub(super) fn fields_of(layouts: &[Layout], bytes: &[u8]) -> Vec<Field> {
    let mut start = 0;
    let mut all = Vec::new();
    for layout in layouts {
        for &(name, offset, size, meaning) in layout.fields {
            let place = start + offset..start + offset + size;
            if place.end <= bytes.len() {
                all.push(Field {
                    name,
                    meaning,
                    value: get(bytes, place),
                    bytes: size,
                });
            }
        }
        start += layout.size;
    }
    all
}

impl Info {
    /// The protocol's fields in a spare area, after the header of the FTL.
    pub fn tail_fields(&self, spare: &[u8]) -> Vec<Field> {
        fields_of(self.tail, spare.get(header::SIZE..).unwrap_or_default())
    }

    /// The fields of a log page: its head, then its entries.
    pub fn log_fields(&self, data: &[u8]) -> (Vec<Field>, Vec<Vec<Field>>) {
        let [head, entry] = self.log else {
            return (Vec::new(), Vec::new());
        };
        let fields = fields_of(&[*head], data);
        // The last field of a log page's head is the number of entries.
        let count = fields.last().map_or(0, |field| field.value as usize);
        let rest = data.get(head.size..).unwrap_or_default();
        let entries = rest.chunks_exact(entry.size).take(count);
        let entries = entries.map(|bytes| fields_of(&[*entry], bytes));
        (fields, entries.collect())
    }
}

/// A protocol's table in memory, for display.
///
/// ```
/// use flagstone::prelude::*;
///
/// let mut device = Device::with_defaults(Chip::default(), Kind::Cfc)?;
/// let tx = device.begin(Nanos::ZERO)?;
/// device.write(Nanos::ZERO, tx, Lpn(8), b"eight")?;
/// let tables = device.tables();
/// assert_eq!((tables[0].name, tables[0].columns[0]), ("transaction_table", "transaction"));
/// assert_eq!(tables[0].rows[0][0], tx.to_string());
/// # Ok::<(), DeviceError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Table {
    /// Its name; the same as in [`Protocol::memory`](super::Protocol::memory) if listed there.
    pub name: &'static str,
    /// The column headings.
    pub columns: &'static [&'static str],
    /// The rows, in a deterministic order.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with sorted rows.
    pub fn sorted(
        name: &'static str,
        columns: &'static [&'static str],
        mut rows: Vec<Vec<String>>,
    ) -> Table {
        rows.sort_by(|a, b| (a[0].len(), a).cmp(&(b[0].len(), b)));
        Table {
            name,
            columns,
            rows,
        }
    }
}

/// Columns of a table of live transactions.
pub(super) const LIVE: &[&str] = &["transaction", "state", "its versions", "held back"];

/// A row of a table of live transactions.
pub(super) fn live_row(tx: TxId, state: &str, versions: String, held: Option<Lpn>) -> Vec<String> {
    let held = held.map_or(String::new(), |lpn| format!("page {lpn}"));
    vec![tx.to_string(), state.into(), versions, held]
}

/// The versions of a live transaction: logical pages and places.
pub(super) fn places(writes: &Writes) -> String {
    let entries = writes.entries().iter();
    let place = entries.map(|entry| match entry.slot.ppn() {
        Some(at) => arrow(entry.lpn, at),
        None => format!("{} → nothing", entry.lpn),
    });
    place.collect::<Vec<_>>().join(", ")
}

/// A logical page and the place of a version.
pub(super) fn arrow(lpn: Lpn, at: Ppn) -> String {
    format!("{lpn} → p{at}")
}

/// Written logical pages, with their places in the mapping table.
pub fn mapping(ftl: &Ftl) -> Vec<(Lpn, Ppn)> {
    let pages = (0..ftl.logical_pages()).map(Lpn);
    pages
        .filter_map(|lpn| Some((lpn, ftl.slot(lpn).ppn()?)))
        .collect()
}
