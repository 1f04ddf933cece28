//! Converts a recording into the steps of a pane: operations in order, the transaction of each, and
//! its changes on flash.

use super::cells::{Names, Reader};
use super::story::{Change, Ending, Lane, Page, Pane, Step, Table, Tables};
use super::tale::{Event, Kept, Remark, Shown, Tale};
use flagstone::commit::Ruling;
use flagstone::ftl::{BlockState, Header, PageKind};
use flagstone::nand::{Fate, FlashError, Geometry, OpKind, Traced};
use flagstone::units::{Nanos, Ppn};
use std::collections::{BTreeMap, BTreeSet};

/// Converts recordings into panes.
pub(super) struct Teller {
    pub(super) reader: Reader,
    pub(super) names: Names,
    pub(super) geometry: Geometry,
    /// Logical pages to show in the mapping table; all if empty.
    pub(super) pages: BTreeSet<u32>,
    /// Whether single page reads are shown.
    pub(super) with_reads: bool,
}

/// A pane under construction.
struct Making<'a> {
    teller: &'a Teller,
    names: Names,
    flash: Vec<Option<Kept>>,
    start: Vec<Option<Page>>,
    steps: Vec<Step>,
    /// The number of the current request, decision of a restart, or cut; see [`Step::part`].
    part: u32,
    /// Future acknowledgements: instant, transaction, and text.
    coming: Vec<(Nanos, u64, String)>,
    /// The first transaction that is described individually.
    first: u64,
    /// Consecutive reads, to be shown as one step.
    reads: Vec<u32>,
    /// The transaction whose request the device is executing.
    acting: Option<String>,
    /// The page whose program was in flight at the cut: it may have landed.
    doomed: Option<(Ppn, Kept)>,
}

impl Teller {
    /// The pane for a recording.
    pub(super) fn pane(&self, name: &str, tale: &Tale, ending: Ending) -> Pane {
        let mut making = Making {
            teller: self,
            names: self.names.clone(),
            flash: vec![None; self.geometry.pages() as usize],
            start: Vec::new(),
            steps: Vec::new(),
            part: 0,
            coming: Vec::new(),
            first: 0,
            reads: Vec::new(),
            acting: None,
            doomed: None,
        };
        for event in tale.events() {
            match event {
                Event::Operation(operation) => making.operation(&operation),
                Event::Remark(remark) => making.remark(remark),
            }
        }
        making.part += 1;
        let text = "What is found then is held against what must be there".to_string();
        making.step(Lane::Restart, None, text);
        if making.start.is_empty() {
            making.start = vec![None; self.geometry.pages() as usize];
        }
        Pane {
            name: name.into(),
            start: making.start,
            steps: making.steps,
            ending,
        }
    }

    /// A physical page as text: block, and page within it.
    pub(super) fn place(&self, at: Ppn) -> String {
        let block = self.geometry.block_of(at);
        format!(
            "p{at} (block {block}, page {})",
            self.geometry.page_in_block(at)
        )
    }
}

/// A step with a text only.
fn blank(part: u32, lane: Lane, text: String) -> Step {
    Step {
        part,
        at: None,
        lane,
        who: None,
        text,
        more: Vec::new(),
        changes: Vec::new(),
        by: None,
        folded: None,
        pages: Vec::new(),
        ruled: None,
        tables: None,
    }
}

/// Microseconds; `None` for an instant that stands for "never".
fn micros(now: Nanos) -> Option<u64> {
    (now.0 < u64::MAX / 4).then_some(now.0 / 1_000)
}

impl Making<'_> {
    /// Adds a step after the reads before it. Returns it, so that the caller can add details.
    fn step(&mut self, lane: Lane, now: Option<Nanos>, text: String) -> &mut Step {
        self.flush_reads();
        self.push(lane, now, text)
    }

    /// Adds a step of the transaction whose request the device is executing.
    fn push(&mut self, lane: Lane, now: Option<Nanos>, text: String) -> &mut Step {
        let mut step = blank(self.part, lane, text);
        step.at = now.and_then(micros);
        step.by.clone_from(&self.acting);
        self.steps.push(step);
        self.steps.last_mut().expect("just pushed")
    }

    /// Adds the step of a remark, or details of the last step. An acknowledgement is kept until the
    /// instant at which its commit is durable.
    fn remark(&mut self, remark: Remark) {
        match remark {
            // What was recorded before is the initial state, not a step.
            Remark::Begins => {
                self.flush_reads();
                self.steps.clear();
                self.coming.clear();
                self.start = self.image();
                self.part = 1;
                let owners = self.flash.iter().flatten();
                let owners = owners.filter_map(|kept| self.teller.reader.owner(kept, &self.names));
                let last = owners.max();
                self.first = last.unwrap_or(0) + 1;
                let text = match last.map(|last| self.names.name(last)) {
                    Some(last) => format!(
                        "The device is full of pages that others wrote before: up to {last}"
                    ),
                    None => "No page of a transaction is on the device before".into(),
                };
                self.step(Lane::Host, None, text);
            }
            Remark::Called { who, tx } => {
                self.names.by_tx.insert(tx, who);
            }
            Remark::Said {
                who: Some(who),
                text,
                done: Some(done),
                ..
            } => self.coming.push((done, who, text)),
            // A request of a transaction, or without one an event of the power.
            Remark::Said { now, who, text, .. } => {
                self.acknowledge(now);
                self.part += 1;
                let who = who.map(|who| self.names.name(who));
                self.acting.clone_from(&who);
                let lane = if who.is_some() {
                    Lane::Host
                } else {
                    Lane::Power
                };
                if who.is_none() {
                    // Acknowledgements due after the power failed never happen.
                    self.coming.clear();
                }
                self.step(lane, Some(now), text).who = who;
            }
            Remark::Shows(shown) => self.shows(*shown),
            Remark::Cut { now, fates } => self.cut(now, &fates),
            Remark::Image(pages) => {
                self.flush_reads();
                let destroyed = self.destroyed(&pages);
                self.flash = pages;
                self.doomed = None;
                let image = self.image();
                if let Some(last) = self.steps.last_mut() {
                    last.more.extend(destroyed);
                    last.changes.push(Change::All(image));
                }
            }
            Remark::Ruled(rulings) => self.ruled(&rulings),
        }
    }

    /// Describes pages that became unreadable, except those that the last step names, as a page or
    /// with its block.
    fn destroyed(&self, after: &[Option<Kept>]) -> Vec<String> {
        let told = self.steps.last().map_or(&[][..], |step| &step.more);
        let mut all = Vec::new();
        for (at, (old, new)) in (0..).map(Ppn).zip(self.flash.iter().zip(after)) {
            let is_whole = old.as_ref().is_some_and(|kept| !kept.torn);
            let is_torn = new.as_ref().is_some_and(|kept| kept.torn);
            if !is_whole || !is_torn {
                continue;
            }
            let place = format!("(p{at})");
            let block = self.teller.geometry.block_of(at);
            let erase = format!("erase of block {block} is torn");
            let is_told = |line: &String| line.contains(&place) || *line == erase;
            if !told.iter().any(is_told) {
                all.push(format!(
                    "{} can no longer be read: it shares cells with a page whose program was cut",
                    self.subject(at)
                ));
            }
        }
        all
    }

    /// All pages of the flash, as a story shows them.
    fn image(&self) -> Vec<Option<Page>> {
        let page = |kept: &Option<Kept>| {
            let kept = kept.as_ref()?;
            Some(self.teller.reader.page(kept, &self.names))
        };
        self.flash.iter().map(page).collect()
    }

    /// Adds the acknowledgements that are due by now.
    fn acknowledge(&mut self, now: Nanos) {
        let (come, coming) = std::mem::take(&mut self.coming)
            .into_iter()
            .partition(|&(done, ..)| done <= now);
        self.coming = coming;
        for (done, who, text) in come {
            let who = self.names.name(who);
            self.step(Lane::Host, Some(done), text).who = Some(who);
        }
    }

    /// Attaches the tables of the device to the last step.
    fn shows(&mut self, shown: Shown) {
        self.flush_reads();
        let teller = self.teller;
        let is_shown = |lpn: u32| teller.pages.is_empty() || teller.pages.contains(&lpn);
        let mapping = shown.mapping.iter().map(|(lpn, at)| (lpn.0, at.0));
        let row = |row: Vec<String>| row.iter().map(|cell| self.names.in_text(cell)).collect();
        let rows = |rows: Vec<Vec<String>>| rows.into_iter().map(row).collect();
        let tables = Tables {
            mapping: mapping.filter(|&(lpn, _)| is_shown(lpn)).collect(),
            live: shown.live.iter().map(|at| at.0).collect(),
            blocks: shown
                .blocks
                .iter()
                .map(|&state| state_word(state))
                .collect(),
            own: shown
                .tables
                .into_iter()
                .map(|table| Table {
                    name: table.name.replace('_', " "),
                    columns: table.columns.to_vec(),
                    rows: rows(table.rows),
                })
                .collect(),
        };
        if let Some(last) = self.steps.last_mut() {
            last.tables = Some(tables);
        }
    }

    /// The owner of a page, as shown after the page.
    fn of_owner(&self, kept: &Kept) -> String {
        let owner = self.teller.reader.owner(kept, &self.names);
        owner.map_or(String::new(), |name| {
            format!(" of {}", self.names.name(name))
        })
    }

    /// A page with its owner, as text.
    fn subject(&self, at: Ppn) -> String {
        let doomed = self.doomed.as_ref().filter(|(page, _)| *page == at);
        let kept = doomed.map(|(_, kept)| kept);
        let Some(kept) = kept.or(self.flash[at.index()].as_ref()) else {
            return format!("p{at}");
        };
        let owner = self.of_owner(kept);
        match Header::parse(&kept.spare) {
            Some(head) if head.kind == PageKind::Trims => format!("trims{owner} (p{at})"),
            Some(head) if head.is_version() => format!("page {}{owner} (p{at})", head.lpn),
            Some(head) => format!("{} page (p{at})", kind_word(&head)),
            None => format!("p{at}"),
        }
    }

    /// Adds the step of a flash operation, and changes the flash as it did. An operation at which
    /// the power fails changes nothing here: the image that follows tells its outcome.
    fn operation(&mut self, traced: &Traced) {
        let Traced { now, kind, error } = traced;
        let (now, lost) = (*now, *error == Some(FlashError::PowerLost));
        let plane = |at: Ppn| {
            let geometry = &self.teller.geometry;
            Lane::Plane(geometry.plane_of(geometry.block_of(at)))
        };
        let failed = match error {
            Some(FlashError::PowerLost) => "; here the power fails",
            Some(_) => "; it fails",
            None => "",
        };
        match kind {
            OpKind::Note(_) => {}
            OpKind::Read { at } => {
                if self.teller.with_reads {
                    self.reads.push(at.0);
                }
            }
            OpKind::Program { at, spare, data } => {
                let kept = Kept {
                    spare: spare.clone(),
                    data: data.clone(),
                    torn: false,
                };
                let lane = plane(*at);
                let text = self.program(*at, &kept);
                let owner = self.teller.reader.owner(&kept, &self.names);
                let who = owner.map(|name| self.names.name(name));
                let page = self.teller.reader.page(&kept, &self.names);
                if lost {
                    self.doomed = Some((*at, kept));
                } else {
                    self.flash[at.index()] = Some(kept);
                }
                let step = self.step(lane, Some(now), format!("{text}{failed}"));
                step.who = who;
                step.pages = vec![at.0];
                if !lost {
                    step.changes.push(Change::Pages([(at.0, page)].into()));
                }
            }
            OpKind::Reprogram { at, offset, bytes } => {
                let lane = plane(*at);
                let subject = self.subject(*at);
                let mut says = "";
                let mut change = None;
                if !lost && let Some(kept) = &mut self.flash[at.index()] {
                    let end = offset + bytes.len();
                    if kept.spare.len() < end {
                        kept.spare.resize(end, 0xff);
                    }
                    for (old, new) in kept.spare[*offset..end].iter_mut().zip(bytes) {
                        *old &= new;
                    }
                    let page = self.teller.reader.page(kept, &self.names);
                    change = Some(Change::Pages([(at.0, page)].into()));
                }
                if let Some(&flag) = bytes.first() {
                    says = self.teller.reader.what.flag(flag).unwrap_or_default();
                }
                let text = format!("reprogram: the flag of {subject} becomes {says}{failed}");
                let step = self.step(lane, Some(now), text);
                step.pages = vec![at.0];
                step.changes.extend(change);
            }
            OpKind::Erase { block } => {
                let geometry = self.teller.geometry;
                let first = geometry.page(*block, 0);
                let pages = first.index()..first.index() + geometry.pages_per_block as usize;
                if self.flash[pages.clone()].iter().all(Option::is_none) && !lost {
                    return;
                }
                if !lost {
                    self.flash[pages].fill(None);
                }
                let lane = plane(first);
                let step = self.step(lane, Some(now), format!("erase block {block}{failed}"));
                if !lost {
                    step.changes.push(Change::Erase(block.0));
                }
            }
            OpKind::Sync { until } => {
                if *until > now
                    && let Some(until) = micros(*until)
                {
                    let text = format!("the device waits for what is in flight, until {until} µs");
                    self.step(Lane::Wait, Some(now), text);
                }
            }
        }
    }

    /// Describes a program. A page whose contents exist elsewhere already is described as a copy.
    fn program(&self, at: Ppn, kept: &Kept) -> String {
        let place = self.teller.place(at);
        let Some(head) = Header::parse(&kept.spare) else {
            return format!("program {place}");
        };
        if !head.is_version() {
            return format!("program a {} page at {place}", kind_word(&head));
        }
        let owner = self.of_owner(kept);
        let is_original = |other: &Option<Kept>| {
            other.as_ref().is_some_and(|other| {
                let head_of_other = Header::parse(&other.spare);
                !kept.data.is_empty()
                    && other.data == kept.data
                    && head_of_other.is_some_and(|other| other.lpn == head.lpn)
            })
        };
        match self.flash.iter().position(is_original) {
            Some(from) if head.kind == PageKind::Trims => {
                format!("copy trims{owner} from p{from} to {place}")
            }
            None if head.kind == PageKind::Trims => {
                format!("program a list of trims{owner} at {place}")
            }
            Some(from) => format!("copy page {}{owner} from p{from} to {place}", head.lpn),
            None => format!("program page {}{owner} at {place}", head.lpn),
        }
    }

    /// Adds consecutive reads as one step.
    fn flush_reads(&mut self) {
        let reads = std::mem::take(&mut self.reads);
        if reads.is_empty() {
            return;
        }
        let some: Vec<String> = reads.iter().take(12).map(|at| format!("p{at}")).collect();
        let more = if reads.len() > 12 { ", …" } else { "" };
        let s = if reads.len() == 1 { "" } else { "s" };
        let text = format!("read {} page{s}: {}{more}", reads.len(), some.join(", "));
        self.push(Lane::Wait, None, text).pages = reads;
    }

    /// Adds the step of a power cut, with the commits in doubt and the outcome of each operation in
    /// flight.
    fn cut(&mut self, now: Nanos, fates: &[Fate]) {
        self.acknowledge(now);
        self.part += 1;
        let mut more: Vec<String> = Vec::new();
        for (_, who, _) in std::mem::take(&mut self.coming) {
            let who = self.names.name(who);
            more.push(format!(
                "{who} asked to commit, and was not told that it has: either is right"
            ));
        }
        let in_words = |fate: &Fate| {
            let what = match (fate.landed, fate.torn) {
                (true, _) => "has landed",
                (false, true) => "is torn",
                (false, false) => "did not happen",
            };
            let (verb, place) = fate.what.split_once(' ').unwrap_or((&fate.what, ""));
            let at = place.strip_prefix('p').and_then(|at| at.parse().ok());
            match at {
                Some(at) => format!("{verb} of {} {what}", self.subject(Ppn(at))),
                None => format!("{verb} of {} {what}", place.replace('b', "block ")),
            }
        };
        more.extend(fates.iter().map(in_words));
        if fates.is_empty() {
            more.push("nothing was in flight".into());
        }
        let step = self.step(Lane::Power, Some(now), "The power fails".into());
        step.more = more;
    }

    /// Adds decisions of a restart: individually for transactions of the story, otherwise in
    /// groups.
    fn ruled(&mut self, rulings: &[Ruling]) {
        self.part += 1;
        let mut groups: BTreeMap<Alike<'_>, (Vec<u32>, Vec<&str>)> = BTreeMap::new();
        for ruling in rulings {
            let of_page = |at: &Ppn| {
                let kept = self.flash[at.index()].as_ref()?;
                self.teller.reader.owner(kept, &self.names)
            };
            let by_tx = ruling.tx.and_then(|tx| self.names.of_tx(tx.0));
            let who = ruling.pages.iter().find_map(of_page).or(by_tx).unwrap_or(0);
            let is_told = who >= self.first && who > 0;
            let key = (
                is_told,
                if is_told { who } else { 0 },
                ruling.row,
                ruling.counts,
            );
            let (pages, because) = groups.entry(key).or_default();
            pages.extend(ruling.pages.iter().map(|at| at.0));
            if !because.contains(&ruling.because.as_str()) {
                because.push(&ruling.because);
            }
        }
        for ((is_told, who, row, counts), (pages, because)) in groups {
            let verdict = if counts { "counts" } else { "does not count" };
            let n = pages.len();
            let s = if n == 1 { "" } else { "s" };
            let (text, more) = if is_told {
                (
                    format!(
                        "{row}: what {} wrote {verdict} ({n} page{s})",
                        self.names.name(who)
                    ),
                    because
                        .iter()
                        .map(|text| self.names.in_text(text))
                        .collect(),
                )
            } else {
                (
                    format!("{row}: {n} page{s} of earlier transactions: {verdict}"),
                    Vec::new(),
                )
            };
            let name = is_told.then(|| self.names.name(who));
            let step = self.step(Lane::Restart, None, text);
            step.more = more;
            step.who = name;
            step.pages = pages;
            step.ruled = Some((row, counts));
        }
    }
}

/// The key of grouped decisions: whether they are described individually, the transaction's name in
/// that case, the row, and whether the pages count.
type Alike<'a> = (bool, u64, &'a str, bool);

fn kind_word(head: &Header) -> &'static str {
    match head.kind {
        PageKind::Data | PageKind::Trim => "data",
        PageKind::Trims => "trims",
        PageKind::Summary => "summary",
        PageKind::Map => "mapping",
        PageKind::Root => "root",
        PageKind::Log => "log",
    }
}

fn state_word(state: BlockState) -> &'static str {
    match state {
        BlockState::Free => "free",
        BlockState::Zone => "zone",
        BlockState::Open => "open",
        BlockState::Closing => "waits",
        BlockState::Full => "full",
        BlockState::Victim => "victim",
        BlockState::Stuck => "stuck",
        BlockState::Bad => "bad",
        BlockState::Meta => "meta",
        _ => "other",
    }
}
