//! Damage of a medium: affected pages, and how they change.

use super::past::{Bytes, Log, Media};
use flagstone::ftl::{Header, PageKind, header};
use flagstone::layout::get;
use flagstone_store::MEDIUM_PAGE_BYTES;
use flagstone_store::medium::{Medium, Recorded};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Offset of a page's trailer.
const TRAILER: usize = MEDIUM_PAGE_BYTES - 64;

/// How a page is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harm {
    /// One bit flips.
    Bit,
    /// Several bits flip.
    Bits,
    /// It reads as zeros.
    Zeros,
    /// It reads as ones.
    Ones,
    /// It has its previous contents: its last write was lost.
    Older,
}

impl Harm {
    /// All kinds, with their column names.
    pub const ALL: [(Harm, &'static str); 5] = [
        (Harm::Bit, "bit"),
        (Harm::Bits, "bits"),
        (Harm::Zeros, "zeros"),
        (Harm::Ones, "ones"),
        (Harm::Older, "lost-write"),
    ];
}

/// The pages to damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Aim {
    /// Any page that was ever written.
    Any,
    /// A page with the committed version of a logical page.
    Current,
    /// The last written page of a partly filled block.
    OpenEnd,
    /// The last written page of a partly filled block of copies.
    CopyEnd,
    /// The first page of a block.
    First,
    /// The last page of a transaction.
    LastOfTx,
    /// All pages that one commit made durable.
    Commit,
    /// The mark of a block.
    Mark,
    /// The summary of a block.
    Summary,
    /// A page of a root, of the mapping table, or of a log.
    Meta,
    /// One superblock.
    Superblock,
    /// Both superblocks.
    Superblocks,
    /// The tables that a close wrote after the last block.
    Rest,
    /// Several pages of any kind.
    Several,
}

impl Aim {
    /// All aims, with their row names.
    pub const ALL: [(Aim, &'static str); 14] = [
        (Aim::Any, "any page"),
        (Aim::Current, "a current version"),
        (Aim::OpenEnd, "the end of an open block"),
        (Aim::CopyEnd, "the end of the collector's block"),
        (Aim::First, "the first page of a block"),
        (Aim::LastOfTx, "a transaction's last page"),
        (Aim::Commit, "all pages of one commit"),
        (Aim::Mark, "a mark"),
        (Aim::Summary, "a summary"),
        (Aim::Meta, "a root, map or log page"),
        (Aim::Superblock, "one superblock"),
        (Aim::Superblocks, "both superblocks"),
        (Aim::Rest, "the tables of a close"),
        (Aim::Several, "several pages"),
    ];
}

/// The role of a page of the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Superblock,
    Mark(u32),
    Page {
        block: u32,
        page: u32,
    },
    /// A page of the tables that a close left behind the last block, by its number.
    Rest(u32),
    /// Behind the store.
    Behind,
}

/// The newest superblock, as far as campaigns need it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shape {
    pages_per_block: u32,
    blocks: u32,
    /// Number of pages of the tables that a close left.
    rested: u32,
    identity: u64,
    /// Whether the newest superblock is marked as closed.
    pub(super) closed: bool,
    /// The medium page of that superblock.
    pub(super) newest: u64,
}

/// A field of a record of the format.
fn field(
    layouts: &[flagstone::layout::Layout],
    record: &str,
    name: &str,
) -> std::ops::Range<usize> {
    let mut records = layouts.iter();
    let found = records.find(|found| found.path.ends_with(record));
    let mut fields = found.expect("there is such a record").fields.iter();
    let (_, start, bytes, _) = *fields
        .find(|field| field.0 == name)
        .expect("there is such a field");
    start..start + bytes
}

fn read(medium: &Recorded, place: u64) -> Bytes {
    super::past::page_of(medium, place)
}

/// Whether a page is valid in its block: its generation matches the mark.
fn counts(mark: &[u8], page: &[u8], identity: u64) -> bool {
    let in_mark = field(flagstone_store::LAYOUTS, "::mark", "GENERATION");
    let in_page = field(flagstone_store::LAYOUTS, "::trailer", "GENERATION");
    let generation = get(mark, in_mark);
    generation != 0 && get(&page[TRAILER..], in_page) == generation ^ identity
}

impl Shape {
    /// The shape of the store on an undamaged medium.
    pub(super) fn of(medium: &Recorded) -> Shape {
        let place = |name| field(flagstone_store::LAYOUTS, "::superblock", name);
        let mut newest = (0, Shape::default());
        for copy in 0..2 {
            let page = read(medium, copy);
            let sequence = get(&page[..], place("SEQUENCE"));
            if sequence > newest.0 {
                let number = |name| get(&page[..], place(name)) as u32;
                let shape = Shape {
                    pages_per_block: number("PAGES"),
                    blocks: number("BLOCKS"),
                    rested: number("RESTED"),
                    identity: get(&page[..], place("IDENTITY")),
                    closed: number("CLOSED") == 1,
                    newest: copy,
                };
                newest = (sequence, shape);
            }
        }
        newest.1
    }

    /// The medium page of a block's mark, which the pages of the block follow.
    fn mark(&self, block: u32) -> u64 {
        2 + u64::from(block) * (u64::from(self.pages_per_block) + 1)
    }

    /// The role of medium page `place`: two superblocks come first, then blocks, each with its
    /// mark.
    fn role(&self, place: u64) -> Role {
        let stride = u64::from(self.pages_per_block) + 1;
        let (block, page) = (
            place.wrapping_sub(2) / stride,
            place.wrapping_sub(2) % stride,
        );
        match (block, page) {
            _ if place < 2 => Role::Superblock,
            _ if block >= u64::from(self.blocks) => {
                let number = place - self.mark(self.blocks);
                if number < u64::from(self.rested) {
                    Role::Rest(number as u32)
                } else {
                    Role::Behind
                }
            }
            (block, 0) => Role::Mark(block as u32),
            (block, page) => Role::Page {
                block: block as u32,
                page: page as u32 - 1,
            },
        }
    }

    /// Whether a page of the medium belongs to a block, or is its mark.
    pub(super) fn is_in_blocks(&self, place: u64) -> bool {
        matches!(self.role(place), Role::Mark(_) | Role::Page { .. })
    }
}

/// A valid page of a block.
#[derive(Debug, Clone, Copy)]
struct Found {
    place: u64,
    block: u32,
    page: u32,
    head: Option<Header>,
    /// The number of its transaction, and whether it is the transaction's last page, under SEAL.
    tx: u64,
    is_last: bool,
    /// Whether another page of the medium held the same data before.
    is_copy: bool,
}

/// A medium before it is damaged.
pub(super) struct Site<'a> {
    media: &'a Media,
    pub(super) log: Log,
    pub(super) shape: Shape,
    pages: BTreeMap<u64, Found>,
}

impl<'a> Site<'a> {
    /// Analyses a medium. With `is_seal`, spare areas tell the transactions of pages.
    pub(super) fn of(media: &'a Media, is_seal: bool) -> Site<'a> {
        let (log, shape) = (media.log(), Shape::of(&media.medium));
        let tail = |name| {
            let field = field(flagstone::commit::LAYOUTS, "seal::tail", name);
            TRAILER + header::SIZE + field.start..TRAILER + header::SIZE + field.end
        };
        let (xid, count) = (tail("XID"), tail("COUNT"));
        // Where each piece of data was written first.
        let mut firsts: BTreeMap<&[u8], (u64, u64)> = BTreeMap::new();
        for (&place, versions) in &log.pages {
            for (write, bytes) in versions {
                let first = firsts.entry(&bytes[..TRAILER]).or_insert((*write, place));
                *first = (*first).min((*write, place));
            }
        }
        let mut pages = BTreeMap::new();
        for &place in log.pages.keys() {
            let Role::Page { block, page } = shape.role(place) else {
                continue;
            };
            let bytes = read(&media.medium, place);
            let mark = read(&media.medium, shape.mark(block));
            if !counts(&mark[..], &bytes[..], shape.identity) {
                continue;
            }
            let head = Header::parse(&bytes[TRAILER..]);
            let is_version = head.is_some_and(|head| head.is_version());
            let is_data = head.is_some_and(|head| head.kind == PageKind::Data);
            let tx = if is_seal && is_version {
                get(&bytes[..], xid.clone())
            } else {
                0
            };
            let found = Found {
                place,
                block,
                page,
                head,
                tx,
                is_last: tx > 0 && get(&bytes[..], count.clone()) > 0,
                is_copy: is_data && firsts[&bytes[..TRAILER]].1 != place,
            };
            pages.insert(place, found);
        }
        Site {
            media,
            log,
            shape,
            pages,
        }
    }

    /// The last written pages of partly filled blocks.
    fn open_ends(&self) -> Vec<Found> {
        let mut ends: BTreeMap<u32, Found> = BTreeMap::new();
        for found in self.pages.values() {
            ends.insert(found.block, *found);
        }
        let is_open = |end: &Found| end.page + 1 < self.shape.pages_per_block;
        ends.into_values().filter(is_open).collect()
    }

    /// Whether damage removes a block without a trace. It does if it hits every page of a full or
    /// early-ended block, including its summary, unless the summary still looks programmed: then
    /// the block looks newly erased. It also does if it hits every page of a block and zeroes its
    /// mark: then the block looks never used.
    pub(super) fn takes_a_block(&self, damage: &Damage, left: &Recorded) -> bool {
        let looks_blank = |found: &Found| {
            let [mark, page] = [self.shape.mark(found.block), found.place].map(|it| read(left, it));
            !counts(&mark[..], &page[..], self.shape.identity)
        };
        let is_unused = |block: u32| {
            let mark = self.shape.mark(block);
            damage.pages.contains_key(&mark) && read(left, mark).iter().all(|&byte| byte == 0)
        };
        // Per block: pages, whether it has a summary, and whether all are damaged.
        let mut blocks: BTreeMap<u32, (u32, bool, bool)> = BTreeMap::new();
        for found in self.pages.values() {
            let (pages, has_summary, is_gone) =
                blocks.entry(found.block).or_insert((0, false, true));
            *pages += 1;
            let is_summary = found
                .head
                .is_some_and(|head| head.kind == PageKind::Summary);
            *has_summary |= is_summary;
            *is_gone &= damage.pages.contains_key(&found.place);
            *is_gone &= !is_summary || looks_blank(found);
        }
        let full = self.shape.pages_per_block - 1;
        blocks
            .into_iter()
            .any(|(block, (pages, has_summary, is_gone))| {
                is_gone && (has_summary || pages >= full || is_unused(block))
            })
    }

    /// Whether damage also hits another page of a transaction that one of `places` belongs to.
    pub(super) fn takes_a_page_beside(&self, damage: &Damage, places: &[u64]) -> bool {
        let tx = |place: &u64| self.pages.get(place).map_or(0, |found| found.tx);
        let all: BTreeSet<u64> = places.iter().map(tx).filter(|&tx| tx > 0).collect();
        damage.pages.keys().any(|place| all.contains(&tx(place)))
    }

    /// The pages with the newest version of each logical page.
    fn current(&self) -> Vec<u64> {
        let mut newest: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for found in self.pages.values() {
            let Some(head) = found.head.filter(Header::is_version) else {
                continue;
            };
            let held = newest.entry(head.lpn.0).or_default();
            *held = (*held).max((head.seq, found.place));
        }
        newest.into_values().map(|(_, place)| place).collect()
    }

    /// The pages that match an aim.
    fn candidates(&self, aim: Aim) -> Vec<u64> {
        let that = |is: &dyn Fn(&Found) -> bool| {
            let those = self.pages.values().filter(|found| is(found));
            those.map(|found| found.place).collect()
        };
        let kind = |found: &Found| found.head.map(|head| head.kind);
        let role = |is: &dyn Fn(Role) -> bool| {
            let written = self.log.pages.keys().copied();
            written
                .filter(|&place| is(self.shape.role(place)))
                .collect()
        };
        match aim {
            Aim::Any | Aim::Several => role(&|role| role != Role::Behind),
            Aim::Current => self.current(),
            Aim::OpenEnd => self.open_ends().iter().map(|end| end.place).collect(),
            Aim::CopyEnd => {
                let copies = self.open_ends().into_iter().filter(|end| end.is_copy);
                copies.map(|end| end.place).collect()
            }
            Aim::First => that(&|found| found.page == 0),
            Aim::LastOfTx => that(&|found| found.is_last),
            // `Damage::draw` chooses these: they depend on the commits.
            Aim::Commit => Vec::new(),
            Aim::Mark => role(&|role| matches!(role, Role::Mark(_))),
            Aim::Summary => that(&|found| kind(found) == Some(PageKind::Summary)),
            Aim::Meta => that(&|found| {
                let metas = [PageKind::Map, PageKind::Root, PageKind::Log];
                kind(found).is_some_and(|kind| metas.contains(&kind))
            }),
            Aim::Superblock | Aim::Superblocks => vec![0, 1],
            Aim::Rest => role(&|role| matches!(role, Role::Rest(_))),
        }
    }

    /// Describes a page of the medium, for a report.
    pub(super) fn about(
        &self,
        place: u64,
        written_by: &dyn Fn(&Bytes) -> Option<String>,
    ) -> String {
        let role = match self.shape.role(place) {
            Role::Superblock => {
                let which = ["the first", "the second"][place as usize];
                let newest = ["older", "newest"][usize::from(place == self.shape.newest)];
                return format!("{which} superblock, the {newest} one");
            }
            Role::Mark(block) => return format!("the mark of block {block}"),
            Role::Rest(number) => return format!("page {number} of the tables of the close"),
            Role::Behind => return format!("page {place} behind the store"),
            Role::Page { block, page } => format!("page {page} of block {block}"),
        };
        let Some(found) = self.pages.get(&place) else {
            return format!("{role} (nothing that counts)");
        };
        let mut about = vec![match found.head {
            Some(Header { kind, lpn, seq }) if found.head.is_some_and(|it| it.is_version()) => {
                let what = match kind {
                    PageKind::Trims => "list of trims up to",
                    PageKind::Trim => "trim of",
                    _ => "version of",
                };
                format!("{what} logical page {lpn}, sequence {seq}")
            }
            Some(head) => format!("{:?}, sequence {}", head.kind, head.seq).to_lowercase(),
            None => "no header that can be read".into(),
        }];
        about.extend(written_by(&read(&self.media.medium, place)));
        if found.tx > 0 {
            about.push(format!("device transaction {}", found.tx));
        }
        let traits = [
            (found.is_last, "last page of its transaction"),
            (found.is_copy, "a copy"),
            (self.current().contains(&place), "the newest version"),
            (
                self.open_ends().iter().any(|end| end.place == place),
                "the last page written in its open block",
            ),
        ];
        about.extend(traits.iter().filter(|it| it.0).map(|it| it.1.to_string()));
        format!("{role} ({})", about.join("; "))
    }
}

/// Damage that was applied.
pub(super) struct Damage {
    pub(super) aim: Aim,
    pub(super) harm: Harm,
    /// The changed pages of the medium, each with a description.
    pub(super) pages: BTreeMap<u64, String>,
}

impl Damage {
    /// Draws damage and applies it to a copy of the medium. `commit_of` maps a write to its commit.
    /// An aim without pages becomes [`Aim::Any`].
    pub(super) fn draw(
        site: &Site<'_>,
        commit_of: &dyn Fn(u64) -> usize,
        dice: &mut Pcg64Mcg,
    ) -> (Damage, Recorded) {
        let (harm, _) = Harm::ALL[dice.random_range(0..Harm::ALL.len())];
        let (mut aim, _) = Aim::ALL[dice.random_range(0..Aim::ALL.len())];
        let mut places = site.candidates(aim);
        if aim == Aim::Commit {
            let written = site.candidates(Aim::Any);
            let among = written[dice.random_range(0..written.len())];
            let of = |place: &u64| site.log.written(*place).map(commit_of);
            let commit = of(&among);
            let is_in = |place: &u64| of(place) == commit && site.shape.is_in_blocks(*place);
            places = written.into_iter().filter(is_in).collect();
        }
        if places.is_empty() {
            (aim, places) = (Aim::Any, site.candidates(Aim::Any));
        }
        let chosen: BTreeSet<u64> = match aim {
            Aim::Commit | Aim::Superblocks => places.into_iter().collect(),
            Aim::Several => (0..dice.random_range(2..6))
                .map(|_| places[dice.random_range(0..places.len())])
                .collect(),
            _ => [places[dice.random_range(0..places.len())]].into(),
        };
        let left = site.media.medium.snapshot();
        let mut pages = BTreeMap::new();
        for place in chosen {
            let before = read(&left, place);
            let (after, what) = harmed(harm, &before, &site.log.older(place), dice);
            if after != before {
                let written = left.write_at(place * MEDIUM_PAGE_BYTES as u64, &after[..]);
                written.expect("a medium in memory is written");
                pages.insert(place, what);
            }
        }
        left.sync().expect("a medium in memory is synced");
        (Damage { aim, harm, pages }, left)
    }
}

/// A damaged page, and a description. `older` has its earlier contents, newest first.
fn harmed(harm: Harm, page: &Bytes, older: &[Bytes], dice: &mut Pcg64Mcg) -> (Bytes, String) {
    let mut bytes = Bytes::clone(page);
    let changed = Arc::make_mut(&mut bytes);
    let what = match harm {
        Harm::Zeros => {
            changed.fill(0);
            "zeros".into()
        }
        Harm::Ones => {
            changed.fill(0xff);
            "ones".into()
        }
        Harm::Older if older.is_empty() => "nothing: what it held before is not known".into(),
        Harm::Older => {
            // Usually one write is lost.
            let most = older.len().min(3);
            let back = dice.random_range(0..most).min(dice.random_range(0..most));
            *changed = *older[back];
            format!("what it held {} writes before", back + 1)
        }
        Harm::Bit | Harm::Bits => {
            let count = match harm {
                Harm::Bit => 1,
                _ => dice.random_range(2..40),
            };
            // Anywhere, or at the significant places of pages, or of marks and superblocks.
            let zone = [0..MEDIUM_PAGE_BYTES, TRAILER..MEDIUM_PAGE_BYTES, 0..128];
            let zone = zone[dice.random_range(0..3)].clone();
            let mut bits = Vec::new();
            for _ in 0..count {
                let (byte, bit) = (dice.random_range(zone.clone()), dice.random_range(0..8));
                changed[byte] ^= 1 << bit;
                bits.push(format!("{byte}.{bit}"));
            }
            match bits.as_slice() {
                [bit] => format!("bit {bit} (byte.bit) flipped"),
                bits => format!("{} bits flipped, the first at byte {}", bits.len(), bits[0]),
            }
        }
    };
    (bytes, what)
}
