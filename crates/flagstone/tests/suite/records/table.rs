//! The recovery tables of CFC_ex and AFC_ex: each combination of two flags on flash and the verdict
//! of the host's log.

use super::*;
use crate::layouts::field;
use flagstone::cases::{Case, cases, prove, rows_that_differ};
use flagstone::ftl::header;
use flagstone::nand::{Flash, Timing};

/// A transaction with an entry in each of two pages.
#[derive(Debug, Clone, Copy)]
struct Facts {
    kind: RecordKind,
    flags: [u8; 2],
    /// Whether the host's log has a commit of the transaction.
    is_logged: bool,
}

/// Whether the transaction's records count once it is resolved, and whether they still do after one
/// more restart without the log.
type Counts = [bool; 2];

/// The table in the header of `commit::records`.
const TABLE: [Case<Facts, Counts>; 3] = cases! { |facts|
    "@A": facts.flags_commit() => [true; 2];
    "@B": !facts.flags_commit() && facts.is_logged => [true; 2];
    "@C": !facts.flags_commit() && !facts.is_logged => [false; 2];
};

impl Facts {
    fn all() -> Vec<Facts> {
        let mut all = Vec::new();
        for kind in RecordKind::ALL {
            // The flag as programmed, TRUE, permanently FALSE (AFC_ex), and torn.
            let states = match kind {
                RecordKind::CfcEx => [0xff, 0x00, 0x03, 0x3f],
                RecordKind::AfcEx => [0xff, 0xf0, 0x00, 0xfc],
                added => panic!("which states has a flag of {added}?"),
            };
            for flags in states.iter().flat_map(|&a| states.map(|b| [a, b])) {
                for is_logged in [false, true] {
                    // AFC_ex makes a flag permanently FALSE only after a roll-back, so no log has a
                    // commit of its transaction.
                    if kind == RecordKind::AfcEx && is_logged && flags.contains(&0x00) {
                        continue;
                    }
                    all.push(Facts {
                        kind,
                        flags,
                        is_logged,
                    });
                }
            }
        }
        all
    }

    /// Departure D5: one TRUE flag commits under CFC_ex, one FALSE flag prevents that under AFC_ex.
    /// Majorities: 03 is TRUE and 3f is FALSE; fc is FALSE.
    fn flags_commit(&self) -> bool {
        match self.kind {
            RecordKind::CfcEx => self.flags.iter().any(|flag| matches!(flag, 0x00 | 0x03)),
            RecordKind::AfcEx => self.flags == [0xf0; 2],
            added => panic!("which flags of {added} commit?"),
        }
    }

    fn counts(&self) -> Counts {
        let mut bench = Bench::new(self.kind, 2, None);
        bench.write(0, 1, &[1], &[]);
        bench.write(1, 1, &[1], &[]);
        let tx = bench.begin();
        bench.write(0, 2, &[2], &[(tx, &[0])]);
        bench.write(1, 3, &[2], &[(tx, &[0])]);
        let pages = [0, 1].map(|page| {
            let ftl = bench.device().ftl();
            ftl.slot(Lpn(page)).ppn().expect("it was written")
        });
        bench.set_flags(pages.into_iter().zip(self.flags));
        let logged = self.is_logged.then_some(tx);
        bench.resolve(logged.as_slice());
        let first = bench.whole();
        bench.restart(2, None).expect("there is no cut");
        bench.resolve(&[]);
        [first, bench.whole()]
    }
}

impl Bench {
    /// Restarts the device with other flags in the first entries of the given pages.
    fn set_flags(&mut self, flags: impl Iterator<Item = (Ppn, u8)>) {
        self.device = None;
        let chip = std::mem::replace(&mut self.flash, small::flash())
            .take()
            .pull(2, false);
        let (geometry, mut contents) = (*chip.geometry(), chip.contents());
        let place = field("format::spare", "FLAGS");
        for (at, flag) in flags {
            let first = at.index() * contents.spare_kept + header::SIZE + place.start;
            contents.spare[first] = flag;
        }
        let chip = Chip::with_contents(geometry, Timing::default(), contents);
        self.flash = Shared::new(PowerCut::new(chip.expect("flags are free")));
        self.open().expect("there is no cut");
    }

    /// Whether both pages are as the transaction wrote them; `false` if neither is.
    fn whole(&mut self) -> bool {
        match [0, 1].map(|page| self.values(page, 1)[0]) {
            [2, 2] => true,
            [1, 1] => false,
            torn => panic!("the pages hold {torn:?}"),
        }
    }
}

#[test]
fn every_row_of_the_recovery_table() {
    prove(&TABLE, &Facts::all(), Facts::counts);
}

#[test]
fn a_recovery_that_takes_one_protocol_for_the_other_differs_from_the_table() {
    let swapped = |facts: &Facts| {
        let kind = match facts.kind {
            RecordKind::CfcEx => RecordKind::AfcEx,
            RecordKind::AfcEx => RecordKind::CfcEx,
            added => panic!("which protocol is {added} taken for?"),
        };
        [Facts { kind, ..*facts }.flags_commit() || facts.is_logged; 2]
    };
    assert_eq!(
        rows_that_differ(&TABLE, &Facts::all(), swapped),
        ["@A", "@C"]
    );
}
