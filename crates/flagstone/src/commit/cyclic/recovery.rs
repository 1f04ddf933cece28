//! Recovery of SCC and BPCC: collects the versions on flash, follows their links, and maps those
//! that count. The protocol defines the meaning of a link.

use super::{Cyclic, Link, NUMBER_BITS, Rule, Tables, Version, link};
use crate::commit::show::Rulings;
use crate::commit::{Options, Recovered};
use crate::ftl::{Ftl, FtlError, Header, Mounted, Slot, doubt_number};
use crate::units::{Lpn, TxId};

/// A version found on flash.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) page: Lpn,
    pub(super) slot: Slot,
    pub(super) link: Link,
}

impl Seen {
    pub(super) fn version(&self) -> Version {
        let (page, number) = (self.page, self.link.number);
        Version { page, number }
    }
}

/// The versions on flash that a protocol needs.
pub(super) trait Versions {
    /// An empty collection for a device with `pages` pages.
    fn none(pages: u32) -> Self;

    /// Adds a version. `more` is its tail after the link.
    fn see(&mut self, seen: Seen, more: &[u8]);

    /// Called last. Returns the highest number that another version could follow.
    fn sort(&mut self) -> u32;

    /// The verdict on the newest version of a page, by its link.
    fn verdict(&self, page: Lpn) -> Verdict;

    /// The number and place of the version of a page that counts. `is_committed`: whether the
    /// newest one is committed. Number 0: none.
    fn counting(&self, page: Lpn, is_committed: bool) -> (u32, Slot);

    /// The newest version of a page, and the highest number of the page that it links to. `None` if
    /// no version of the page is on flash.
    fn newest(&self, page: Lpn) -> Option<(Seen, u32)>;

    /// The row of the recovery table for the newest version of a page. `is_ring`: whether its path
    /// of links is a ring.
    fn row(&self, page: Lpn, is_ring: bool) -> &'static str;
}

/// What a link says about the version that contains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Committed,
    Uncommitted,
    /// The same as for the newest version of this page.
    AsNewestOf(Lpn),
}

/// Whether the newest version of each page is committed. Follows links until one decides, or until
/// the ring closes, which decides too. Follows every link once.
pub(super) fn judge(pages: u32, link: impl Fn(Lpn) -> Verdict) -> Vec<bool> {
    #[derive(Clone, Copy, PartialEq)]
    enum Visit {
        New,
        OnPath,
        Known(bool),
    }
    let mut visits = vec![Visit::New; pages as usize];
    let mut path = Vec::new();
    for start in 0..pages {
        let mut at = Lpn(start);
        let committed = loop {
            match visits[at.index()] {
                Visit::Known(committed) => break committed,
                Visit::OnPath => break true,
                Visit::New => {}
            }
            visits[at.index()] = Visit::OnPath;
            path.push(at);
            match link(at) {
                Verdict::Committed => break true,
                Verdict::Uncommitted => break false,
                Verdict::AsNewestOf(next) => at = next,
            }
        };
        for at in path.drain(..) {
            visits[at.index()] = Visit::Known(committed);
        }
    }
    visits
        .into_iter()
        .map(|visit| visit == Visit::Known(true))
        .collect()
}

/// Records the decision about the newest version of each page.
fn tell<V: Versions>(rulings: &mut Rulings, found: &V, is_committed: &[bool]) {
    if !rulings.listens() {
        return;
    }
    for page in (0..is_committed.len() as u32).map(Lpn) {
        let Some((newest, highest)) = found.newest(page) else {
            continue;
        };
        // Follows links like `judge`; a path without an end is a ring.
        let (mut at, mut steps) = (page, 0);
        while let Verdict::AsNewestOf(next) = found.verdict(at) {
            at = next;
            steps += 1;
            if steps > is_committed.len() {
                break;
            }
        }
        let is_ring = steps > is_committed.len();
        let (version, next) = (newest.version(), newest.link.next);
        let because = format!(
            "version {} of page {page} names version {} of page {}; the highest of page {} on flash \
             is {highest}",
            version.number, next.number, next.page, next.page
        );
        let pages = newest.slot.ppn().into_iter().collect();
        let row = found.row(page, is_ring);
        rulings.say(row, None, pages, is_committed[page.index()], because);
    }
}

/// Recovers SCC or BPCC: reads all versions, judges the newest of each page, maps those that count,
/// and passes what it has found to the rule, which records leftovers.
pub(super) fn recover<R: Rule>(
    ftl: &mut Ftl,
    mounted: Mounted,
    options: &Options,
) -> Result<Recovered, FtlError> {
    let logical_pages = ftl.logical_pages();
    let rule = R::new(options)?;
    let mut found = R::Versions::none(logical_pages);
    let blocks = ftl.blocks.for_data();
    let done = ftl.scan(mounted.done, &blocks, |at, head: Header, bytes: &[u8]| {
        let seen = Seen {
            page: head.lpn,
            slot: Slot::of(head.kind, at),
            link: Link::get(bytes),
        };
        found.see(seen, &bytes[link::SIZE..]);
    })?;
    doubt_number("version", found.sort().into(), NUMBER_BITS)?;
    let is_committed = judge(logical_pages, |at| found.verdict(at));
    let mut rulings = Rulings::new(options.tells);
    tell(&mut rulings, &found, &is_committed);
    let counting = (0..logical_pages).map(Lpn).map(|page| {
        let (number, slot) = found.counting(page, is_committed[page.index()]);
        ftl.set_slot(page, slot);
        number
    });
    let tables = Tables::new(counting.collect(), options.as_published);
    let mut protocol = Cyclic { tables, rule };
    protocol
        .rule
        .take_stock(&mut protocol.tables, ftl, &found, &is_committed);
    ftl.revive_mapped()?;
    ftl.finish_mount();
    Ok(Recovered {
        protocol: Box::new(protocol),
        last_tx: TxId(0),
        done,
        rulings: rulings.into_list(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{AsNewestOf, Committed, Uncommitted};

    #[test]
    fn a_closed_ring_is_committed_and_a_path_is_what_its_end_is() {
        let links = [
            AsNewestOf(Lpn(1)), // 0 -> 1 -> 2 -> 0: closed
            AsNewestOf(Lpn(2)),
            AsNewestOf(Lpn(0)),
            AsNewestOf(Lpn(3)), // itself
            AsNewestOf(Lpn(5)), // 4 -> 5, which is missing
            Uncommitted,
            AsNewestOf(Lpn(7)), // 6 -> 7, which has been written again
            Committed,
            AsNewestOf(Lpn(4)), // joins the path that ends in 5
        ];
        let committed = judge(links.len() as u32, |at| links[at.index()]);
        let right = [true, true, true, true, false, false, true, true, false];
        assert_eq!(committed, right);
    }
}
