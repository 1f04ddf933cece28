//! What a restart judges of a block without a summary, held against its table for all blocks of
//! three pages and all that can be known of one; and against all short histories of a tiny flash.

mod histories;

use super::judge::{Known, Seen, Stated};
use super::{Horizon, IS_COPY, NONE, Statement, UNSAID, statement};
use crate::cases::{Case, cases, prove, rows_that_differ};
use crate::layout::put;
use crate::units::{Nanos, Ppn};

/// A page of a block of three without a summary, and what is known of them.
#[derive(Debug, Clone)]
struct Facts {
    /// What the pages are, in order.
    pages: Vec<Seen>,
    known: Known,
    /// The page that is asked for; nothing for the summary.
    page: Option<u32>,
}

const PAGES: u32 = 3;

/// The horizon of the plane, and the highest of all planes.
const OF_PLANE: u64 = 4;
const HIGHEST: u64 = 6;

/// Numbers of pages: below the horizon of the plane, below that of another, above both.
const OLD: u64 = 2;
const ELSEWHERE: u64 = 5;
const NEW: u64 = 8;

impl Facts {
    fn all() -> Vec<Facts> {
        let kinds = [
            Seen::Blank,
            Seen::Unreadable,
            Seen::Whole(0),
            Seen::Whole(OLD),
            Seen::Whole(ELSEWHERE),
            Seen::Whole(NEW),
        ];
        let mut blocks = vec![Vec::new()];
        for _ in 0..PAGES {
            let longer = |block: &Vec<Seen>| kinds.map(|kind| [&block[..], &[kind]].concat());
            blocks = blocks.iter().flat_map(longer).collect();
        }
        let mut stated = vec![None];
        for end in [None, Some(1), Some(2), Some(3)] {
            // The question arises only for blocks that were open.
            for is_erased in [false, true]
                .into_iter()
                .take(1 + usize::from(end.is_some()))
            {
                stated.push(Some(Stated {
                    horizon: OF_PLANE,
                    end,
                    is_erased,
                }));
            }
        }
        // Of a block that was open none is stated.
        let sealed = |stated: Option<Stated>| match stated {
            Some(Stated { end: None, .. }) => [0, OLD, OF_PLANE].as_slice(),
            _ => &[0],
        };
        let stated = stated
            .into_iter()
            .flat_map(|stated| sealed(stated).iter().map(move |&sealed| (stated, sealed)));
        let stated: Vec<_> = stated.collect();
        let mut all = Vec::new();
        for pages in &blocks {
            for &(stated, sealed) in &stated {
                for bits in 0..32u32 {
                    let bit = |at: u32| bits >> at & 1 == 1;
                    let known = Known {
                        is_closed: bit(0),
                        unto: if bit(1) { ELSEWHERE } else { 0 },
                        highest: HIGHEST,
                        stated,
                        sealed,
                        never_fails: bit(2),
                        leaves_out: bit(3),
                        has_torn_summary: bit(4),
                        data_pages: PAGES,
                    };
                    for page in [None, Some(0), Some(1), Some(2)] {
                        let pages = pages.clone();
                        all.push(Facts { pages, known, page });
                    }
                }
            }
        }
        all
    }

    /// The highest number of its pages.
    fn last(&self) -> Option<u64> {
        self.pages.iter().filter_map(Seen::number).max()
    }

    /// Whether nobody asks: the mapping table on flash has all of it.
    fn is_passed_over(&self) -> bool {
        self.last().is_some_and(|last| last <= self.known.unto)
    }

    /// Whether it is to be judged by statements, for a page.
    fn asks_page(&self) -> bool {
        !self.is_passed_over() && !self.known.is_closed && self.page.is_some()
    }

    /// The same, for its summary.
    fn asks_summary(&self) -> bool {
        !self.is_passed_over() && !self.known.is_closed && self.page.is_none()
    }

    /// Whether a page up to a horizon lies behind the one that is asked for.
    fn is_before(&self, horizon: u64) -> bool {
        let behind = self.pages.iter().skip(self.page.unwrap_or(0) as usize + 1);
        behind
            .filter_map(Seen::number)
            .any(|number| number <= horizon)
    }

    /// Whether the block holds a page that was durable at the statement of its plane.
    fn holds_old(&self) -> bool {
        let mut numbers = self.pages.iter().filter_map(Seen::number);
        numbers.any(|number| number <= OF_PLANE)
    }

    /// Whether the page lies before the end that the statement gives the block, and that it is the
    /// block of then.
    fn is_before_end(&self) -> bool {
        let is_then = |stated: &Stated| !stated.is_erased || self.holds_old();
        let stated = self.known.stated.filter(is_then);
        stated.and_then(|stated| stated.end) > self.page
    }

    /// Whether the block was full at the statement.
    fn was_full(&self) -> bool {
        let is_open = |stated: Stated| stated.end.is_some();
        self.known.stated.is_some_and(|stated| !is_open(stated))
            && self.holds_old()
            && self.known.never_fails
    }

    /// Whether the page is there, or may be left out.
    fn is_there(&self) -> bool {
        match self.pages[self.page.expect("a page") as usize] {
            Seen::Whole(_) => true,
            Seen::Unreadable => false,
            Seen::Blank => self.known.leaves_out,
        }
    }

    /// Whether the page has to be there by none of the three rules.
    fn is_free(&self) -> bool {
        !self.is_before(HIGHEST) && !self.is_before_end() && !self.was_full()
    }

    /// Whether a statement says that it had a summary: its last page has such a number.
    fn had_summary(&self) -> bool {
        self.last().unwrap_or(u64::MAX) <= self.known.sealed
    }

    /// Whether its summary was programmed, and no page is whole, on a flash that never fails.
    fn has_summary_alone(&self) -> bool {
        let is_empty = !self.pages.iter().any(|page| matches!(page, Seen::Whole(_)));
        self.known.never_fails && self.known.has_torn_summary && is_empty
    }

    fn holds_any(&self) -> bool {
        self.pages.iter().any(|page| *page != Seen::Blank)
    }

    /// Whether the code calls the page, or the summary, damaged.
    fn judged(&self, known: &Known) -> bool {
        let (pages, summary) = known.judges(&self.pages);
        self.page.map_or(summary, |page| pages.contains(&page))
    }
}

/// Whether a page of the block, or its summary, is damaged.
const TABLE: [Case<Facts, bool>; 11] = cases! { |facts|
    "@A": facts.is_passed_over() => false;
    "@B": !facts.is_passed_over() && facts.known.is_closed && facts.page.is_some() => false;
    "@C": !facts.is_passed_over() && facts.known.is_closed && facts.page.is_none()
        => facts.holds_any();
    "@D": facts.asks_page() && facts.is_there() => false;
    "@E": facts.asks_page() && !facts.is_there() && facts.is_before(HIGHEST) => true;
    "@F": facts.asks_page() && !facts.is_there() && !facts.is_before(HIGHEST)
        && facts.is_before_end() => true;
    "@G": facts.asks_page() && !facts.is_there() && !facts.is_before(HIGHEST)
        && !facts.is_before_end() && facts.was_full() => true;
    "@H": facts.asks_page() && !facts.is_there() && facts.is_free() => false;
    "@I": facts.asks_summary() && facts.had_summary() => true;
    "@J": facts.asks_summary() && !facts.had_summary() && facts.has_summary_alone() => true;
    "@K": facts.asks_summary() && !facts.had_summary() && !facts.has_summary_alone() => false;
};

#[test]
fn every_row_of_the_table_of_damage() {
    prove(&TABLE, &Facts::all(), |facts| facts.judged(&facts.known));
}

#[test]
fn blank_pages_at_the_end_need_not_be_read() {
    for mut facts in Facts::all() {
        let verdict = facts.judged(&facts.known);
        while facts.pages.last() == Some(&Seen::Blank) {
            facts.pages.pop();
            assert_eq!(facts.judged(&facts.known), verdict, "{facts:?}");
        }
    }
}

#[test]
fn each_rule_that_is_left_out_differs_from_the_table() {
    type Leave = fn(&mut Known);
    let rules: [(&str, Leave, &[&str]); 9] = [
        ("the horizon", |known| known.highest = 0, &["@E"]),
        (
            "the heads",
            |known| known.stated.iter_mut().for_each(|it| it.end = None),
            &["@F", "@H"],
        ),
        (
            "the summaries that were there",
            |known| known.sealed = 0,
            &["@I"],
        ),
        (
            "erases that came since",
            |known| known.stated.iter_mut().for_each(|it| it.is_erased = false),
            &["@H"],
        ),
        (
            "that a flash may fail",
            |known| known.never_fails = true,
            &["@H", "@K"],
        ),
        (
            "that a summary cannot be read",
            |known| known.has_torn_summary = false,
            &["@J"],
        ),
        (
            "that pages may be left out",
            |known| known.leaves_out = false,
            &["@D"],
        ),
        ("the close", |known| known.is_closed = false, &["@B", "@C"]),
        ("the mapping table", |known| known.unto = 0, &["@A"]),
    ];
    for (rule, leave_out, rows) in rules {
        let mistaken = |facts: &Facts| {
            let mut known = facts.known;
            leave_out(&mut known);
            facts.judged(&known)
        };
        assert_eq!(
            rows_that_differ(&TABLE, &Facts::all(), mistaken),
            rows,
            "{rule}"
        );
    }
}

/// What a page does not state does not count as stated.
#[test]
fn a_page_so_many_programs_later_that_it_can_state_nothing_states_nothing() {
    let mut horizon = Horizon::new(1);
    (horizon.is_on, horizon.safe, horizon.changes) = (true, 7, 3);
    let mut said = |number| {
        horizon.said = 0;
        (horizon.say(Nanos::ZERO, number, 0) != UNSAID, horizon.said)
    };
    assert_eq!(said(7 + IS_COPY - 1), (true, 3));
    assert_eq!(said(7 + IS_COPY), (false, 0));
}

/// A medium may hold anything: the page before a head is looked at.
#[test]
fn a_head_before_the_first_page_is_none() {
    let mut words = UNSAID;
    put(&mut words, statement::LAG, 1);
    put(&mut words, statement::HOST, 0);
    put(&mut words, statement::COPIES, 7);
    let (_, said) = Statement::parse(Ppn(0), 9, &words);
    assert_eq!(said.expect("a statement").heads, [NONE, 7]);
}
