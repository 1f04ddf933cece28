//! The recovery table of Atomic-Write and MHL-M: every combination of what can have become of a
//! group of two log pages and of the pages that it names.

use super::*;
use crate::cases::{Case, cases, prove, rows_that_differ};
use crate::commit::show::Rulings;
use crate::commit::{Kind, Options};
use crate::ftl::{Config, Header, PageKind, header};
use crate::nand::{Cell, Flash, Geometry, small};

/// The fate of a part of the group.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    /// In the log.
    There,
    /// Never programmed, or unreadable.
    Missing,
    /// Written before the checkpoint, whose mapping table has its entries.
    Before,
}

/// The fate of the page that an entry names.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Landed {
    There,
    /// None: the entry is a trim.
    Trim,
    /// Blank.
    Blank,
    /// Holds another version of the logical page.
    OtherSeq,
    /// Holds a version of another logical page.
    OtherPage,
}

/// Group 11 maps logical page 0 in part 0 and logical page 1 in part 1.
#[derive(Debug)]
struct Facts {
    parts: [Part; 2],
    landed: [Landed; 2],
    /// Whether a later log page states that the group is durable.
    is_called_durable: bool,
}

/// The mapping of the two pages.
#[derive(Debug, PartialEq)]
enum Verdict {
    /// Both pages are mapped as the group says.
    New,
    /// Both pages are mapped as before the group.
    Absent,
    /// One page is mapped as the group says, the other as before.
    Torn,
}

/// The table in the headers of the protocols.
const TABLE: [Case<Facts, Verdict>; 4] = cases! { |facts|
    "@A": facts.parts == [Part::There; 2] && facts.is_durable() => Verdict::New;
    "@B": facts.parts.contains(&Part::Missing) && !facts.parts.contains(&Part::Before)
        => Verdict::Absent;
    "@C": facts.parts.contains(&Part::Before) => Verdict::New;
    "@D": facts.parts == [Part::There; 2] && !facts.is_durable() => Verdict::Absent;
};

const GEOMETRY: Geometry = Geometry {
    channels: 1,
    cell: Cell::Mlc,
    ..small::GEOMETRY
};

/// The places before, and those in the group.
const OLD: [Ppn; 2] = [Ppn(50 * 8), Ppn(51 * 8)];
const NEW: [Ppn; 2] = [Ppn(52 * 8), Ppn(53 * 8)];

impl Facts {
    fn all() -> Vec<Facts> {
        let parts = [Part::There, Part::Missing, Part::Before];
        let landed = [
            Landed::There,
            Landed::Trim,
            Landed::Blank,
            Landed::OtherSeq,
            Landed::OtherPage,
        ];
        let mut all = Vec::new();
        for parts in parts.iter().flat_map(|&a| parts.map(|b| [a, b])) {
            for landed in landed.iter().flat_map(|&a| landed.map(|b| [a, b])) {
                for is_called_durable in [false, true] {
                    all.push(Facts {
                        parts,
                        landed,
                        is_called_durable,
                    });
                }
            }
        }
        all
    }

    fn is_durable(&self) -> bool {
        let has_landed = |landed: &Landed| matches!(landed, Landed::There | Landed::Trim);
        self.is_called_durable || self.landed.iter().all(has_landed)
    }

    /// The entry of a page in the group.
    fn entry(&self, page: usize) -> Version {
        let (slot, seq) = match self.landed[page] {
            Landed::Trim => (Slot::Empty, 0),
            _ => (Slot::Page(NEW[page]), 50 + page as u64),
        };
        Version {
            lpn: Lpn(page as u32),
            slot,
            seq,
        }
    }

    /// A device with these facts.
    fn device(&self) -> Ftl {
        let mut chip = small::chip(GEOMETRY);
        let mut program = |at, lpn, seq| {
            let mut spare = [0xff; header::SIZE];
            let (kind, lpn) = (PageKind::Data, Lpn(lpn));
            Header { kind, lpn, seq }.emit(&mut spare);
            let done = chip.program(Nanos::ZERO, at, &[1], &spare);
            done.expect("the page is blank");
        };
        for page in 0..2 {
            let (lpn, seq) = (page as u32, 50 + page as u64);
            program(OLD[page], lpn, 10 + page as u64);
            match self.landed[page] {
                Landed::There => program(NEW[page], lpn, seq),
                Landed::OtherSeq => program(NEW[page], lpn, seq + 9),
                Landed::OtherPage => program(NEW[page], lpn + 5, seq),
                Landed::Trim | Landed::Blank => {}
            }
        }
        let config = Config::small(16, None);
        let options = Options::default().with("log_heads", 1);
        let format = Kind::Aw.info().format_on(&GEOMETRY, &options);
        let format = format.expect("a number");
        let mounted = Ftl::mount(Box::new(chip), config, format, Nanos::ZERO);
        let (mut ftl, _) = mounted.expect("the device is blank but for these pages");
        for (page, old) in OLD.into_iter().enumerate() {
            // A checkpoint has the whole group as soon as it has a part of it.
            let slot = if self.parts.contains(&Part::Before) {
                self.entry(page).slot
            } else {
                Slot::Page(old)
            };
            ftl.set_slot(Lpn(page as u32), slot);
        }
        ftl
    }

    /// The log after the checkpoint of group 10.
    fn mounted(&self) -> Mounted {
        let mut blob = vec![0; log_blob::SIZE];
        put(&mut blob, log_blob::GROUP, 10);
        put(&mut blob, log_blob::LOGS, 1);
        let mut pages = Vec::new();
        for (part, entry) in (0..2).map(|part| (part, self.entry(part))) {
            if self.parts[part] == Part::There {
                pages.push(log_page((11, 10), (part, 2), &[entry]));
            }
        }
        if self.is_called_durable {
            pages.push(log_page((12, 11), (0, 1), &[]));
        }
        let log = |(seq, data)| LogPage {
            log: 0,
            at: Ppn(0),
            seq,
            data,
        };
        Mounted {
            has_root: true,
            blob,
            logs: (60..).zip(pages).map(log).collect(),
            done: Nanos::ZERO,
            ..Mounted::default()
        }
    }

    fn verdict(&self, trusting: bool) -> Verdict {
        let mut ftl = self.device();
        let replayed = MappingLog::replay(
            &mut ftl,
            &self.mounted(),
            1,
            trusting,
            &mut Rulings::default(),
        );
        replayed.expect("the log is sound");
        let found = [0, 1].map(|page| ftl.slot(Lpn(page)));
        match found {
            _ if found == [0, 1].map(|page| self.entry(page).slot) => Verdict::New,
            _ if found == OLD.map(Slot::Page) => Verdict::Absent,
            _ => Verdict::Torn,
        }
    }
}

fn log_page(
    (group, durable): (u64, u64),
    (part, parts): (usize, u64),
    entries: &[Version],
) -> Vec<u8> {
    let mut page = vec![0; group_head::SIZE];
    put(&mut page, group_head::GROUP, group);
    put(&mut page, group_head::TX, group);
    put(&mut page, group_head::DURABLE, durable);
    put(&mut page, group_head::PART, part as u64);
    put(&mut page, group_head::PARTS, parts);
    put(&mut page, group_head::ENTRIES, entries.len() as u64);
    put_entries(&mut page, entries);
    page
}

#[test]
fn every_row_of_the_recovery_table() {
    prove(&TABLE, &Facts::all(), |facts| facts.verdict(false));
}

#[test]
fn the_printed_form_differs_from_the_table_where_a_page_has_not_landed() {
    let rows = rows_that_differ(&TABLE, &Facts::all(), |facts| facts.verdict(true));
    assert_eq!(rows, ["@D"]);
}
