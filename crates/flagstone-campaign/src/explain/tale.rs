//! The recording of a running device: flash operations, and between them requests, table contents,
//! and decisions of restarts. Not rendered yet.

use flagstone::commit::{Ruling, Table, mapping};
use flagstone::ftl::{BlockState, Ftl};
use flagstone::nand::{Chip, Fate, Flash, OpKind, Traced};
use flagstone::units::{Lpn, Nanos, Pbn, Ppn};
use std::sync::{Arc, Mutex};

/// A recording with two writers: the flash tracer, and the code that uses the device.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tale {
    /// The flash operations, written by a [`Tracer`](flagstone::nand::Tracer).
    pub(crate) operations: Arc<Mutex<Vec<Traced>>>,
    remarks: Arc<Mutex<Vec<(usize, Remark)>>>,
}

/// An event between two flash operations.
#[derive(Debug, Clone)]
pub(crate) enum Remark {
    /// A request, or an event of the device. `who` is the transaction's name in payloads. `done` is
    /// the instant at which its commit is durable, for an acknowledgement.
    Said {
        now: Nanos,
        who: Option<u64>,
        text: String,
        done: Option<Nanos>,
    },
    /// The device identifier `tx` of transaction `who`.
    Called { who: u64, tx: u64 },
    /// The example begins here; before, the device was filled.
    Begins,
    /// The tables from this point on.
    Shows(Box<Shown>),
    /// The power failed; with the outcome of each operation in flight.
    Cut { now: Nanos, fates: Vec<Fate> },
    /// The current flash contents, page by page.
    Image(Vec<Option<Kept>>),
    /// Decisions of a restart.
    Ruled(Vec<Ruling>),
}

/// A page on flash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) spare: Vec<u8>,
    pub(crate) data: Vec<u8>,
    /// The program was interrupted: the page cannot be read, or looks blank but cannot be
    /// programmed reliably.
    pub(crate) torn: bool,
}

/// Tables of a device at an instant.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    pub(crate) mapping: Vec<(Lpn, Ppn)>,
    pub(crate) live: Vec<Ppn>,
    pub(crate) blocks: Vec<BlockState>,
    pub(crate) tables: Vec<Table>,
}

impl Shown {
    pub(crate) fn of(ftl: &Ftl, tables: Vec<Table>) -> Shown {
        let geometry = ftl.geometry();
        let pages = (0..geometry.pages()).map(Ppn);
        Shown {
            mapping: mapping(ftl),
            live: pages.filter(|&at| ftl.blocks().is_live(at)).collect(),
            blocks: (0..geometry.blocks())
                .map(|block| ftl.blocks().state(Pbn(block)))
                .collect(),
            tables,
        }
    }
}

/// All pages of a chip.
pub(crate) fn image(chip: &Chip) -> Vec<Option<Kept>> {
    let geometry = *chip.geometry();
    let page = |at: Ppn| {
        let spare = chip.peek_spare(at).to_vec();
        let torn = chip.damage(at).is_some();
        let mut data = vec![0; geometry.page_bytes as usize];
        let bytes = chip.peek(at, &mut data, &mut []).unwrap_or(0);
        data.truncate(bytes);
        let blank = spare.iter().all(|&byte| byte == 0xff) && !torn;
        (!blank).then_some(Kept { spare, data, torn })
    };
    (0..geometry.pages()).map(Ppn).map(page).collect()
}

/// An event of the recording.
pub(crate) enum Event {
    Operation(Traced),
    Remark(Remark),
}

impl Tale {
    pub(crate) fn remark(&self, remark: Remark) {
        let at = self.operations.lock().expect("one thread").len();
        self.remarks.lock().expect("one thread").push((at, remark));
    }

    /// Adds a remark about a transaction, or about the device.
    pub(crate) fn say(&self, now: Nanos, who: Option<u64>, text: impl Into<String>) {
        self.remark(Remark::Said {
            now,
            who,
            text: text.into(),
            done: None,
        });
    }

    /// All events, in order.
    pub(crate) fn events(&self) -> Vec<Event> {
        let operations = self.operations.lock().expect("one thread");
        let remarks = self.remarks.lock().expect("one thread");
        let mut remarks = remarks.iter().peekable();
        let mut all = Vec::new();
        for (at, operation) in operations.iter().enumerate() {
            while let Some((_, remark)) = remarks.next_if(|(before, _)| *before <= at) {
                all.push(Event::Remark(remark.clone()));
            }
            if !matches!(operation.kind, OpKind::Note(_)) {
                all.push(Event::Operation(operation.clone()));
            }
        }
        all.extend(remarks.map(|(_, remark)| Event::Remark(remark.clone())));
        all
    }
}
