//! Compares transactions that join others with vectors of bytes.

use super::*;

/// A file, and its expected contents.
struct Joining {
    medium: Recorded,
    file: StoreFile,
    dice: Dice,
    page: u64,
    /// Committed in the store.
    committed: Vec<u8>,
    /// Committed in the store or in memory.
    newest: Vec<u8>,
    /// As seen by the live transaction.
    own: Vec<u8>,
    /// Number of joined transactions, and of the store's commits for them.
    joined: (usize, usize),
}

impl Joining {
    fn new(page: u64, reserved: bool) -> Joining {
        let medium = Recorded::default();
        Joining {
            file: open(&medium, Kind::Seal),
            medium,
            dice: Dice(page + u64::from(reserved)),
            page,
            committed: Vec::new(),
            newest: Vec::new(),
            own: Vec::new(),
            joined: (0, 0),
        }
    }

    /// Writes the joined transactions to the store.
    fn flush_joined(&mut self) {
        let asked = self.file.commit_joined().expect("room");
        asked.carry_out();
        self.file.outcome().expect("the medium is well");
        self.joined.1 += usize::from(self.committed != self.newest);
        self.committed.clone_from(&self.newest);
    }

    /// Makes the live transaction commit by itself.
    fn be_alone(&mut self) {
        if self.file.has_joined() {
            self.flush_joined();
        }
        self.file.keep(false);
    }

    fn write(&mut self, reserved: usize) {
        if !self.file.has_changes() {
            let keeps = self.dice.below(4) > 0;
            self.file.keep(keeps);
        }
        if !self.file.may_join() {
            self.be_alone();
        }
        let page = self.page as usize;
        // A database gets its first page before all others.
        let at = if self.own.starts_with(MAGIC) {
            self.dice.below(60) * self.page
        } else {
            0
        };
        let mut data = vec![self.dice.below(255) as u8 + 1; page];
        if at == 0 && self.own.len() >= page && self.dice.below(2) == 0 {
            // Changes only the transaction counter.
            data.copy_from_slice(&self.own[..page]);
            data[24..28].fill(self.dice.below(255) as u8);
        }
        if at == 0 && self.own.len() >= page && self.dice.below(8) > 0 {
            // A transaction with another schema cookie does not join.
            data[40..44].copy_from_slice(&self.own[40..44]);
        }
        if at == 0 {
            data[..16].copy_from_slice(MAGIC);
            data[ZEROS].fill(0);
        }
        data[page - reserved..].fill(0);
        self.file.write(at, &data).expect("room");
        let (at, end) = (at as usize, at as usize + page);
        self.own.resize(self.own.len().max(end), 0);
        self.own[at..end].copy_from_slice(&data);
    }

    fn step(&mut self, reserved: usize) {
        match self.dice.below(16) {
            0 => {
                self.file.abort();
                self.own.clone_from(&self.newest);
            }
            1..=3 if self.file.has_changes() && self.file.may_join() => {
                self.file.join();
                self.joined.0 += 1;
                self.newest.clone_from(&self.own);
            }
            4 => {
                self.be_alone();
                self.file.commit().expect("room");
                self.newest.clone_from(&self.own);
                self.committed.clone_from(&self.own);
            }
            5 if self.file.has_joined() => self.flush_joined(),
            6 if !self.file.has_changes() => {
                self.file.drop_joined();
                self.newest.clone_from(&self.committed);
                self.own.clone_from(&self.committed);
            }
            7 if self.dice.below(4) == 0 => {
                self.be_alone();
                let size = self.dice.below(self.own.len() as u64 / self.page + 2) * self.page;
                self.file.truncate(size).expect("room");
                self.own.resize(size as usize, 0);
            }
            8 if self.dice.below(6) == 0 => {
                // A restart loses what is only in memory.
                self.file = open(&Recorded::default(), Kind::Seal);
                self.file = open(&self.medium, Kind::Seal);
                // Except for counters, which are those of the last first page that was written.
                let found = contents(&mut self.file, View::Committed);
                for counter in [24..28, 92..100] {
                    if found.len() >= 4096 {
                        self.committed[counter.clone()].copy_from_slice(&found[counter]);
                    }
                }
                self.newest.clone_from(&self.committed);
                self.own.clone_from(&self.committed);
            }
            _ => self.write(reserved),
        }
    }

    fn check(&mut self, step: usize) {
        let (page, file) = (self.page, &mut self.file);
        let views = [
            (View::Committed, &self.committed),
            (View::Newest, &self.newest),
            (View::Own, &self.own),
        ];
        for (view, model) in views {
            let got = contents(file, view);
            assert!(got == *model, "step {step}, {page}: {view:?}");
        }
        let id = file.snapshot().expect("it can be taken").expect("seal");
        assert!(contents(file, View::Snapshot(id)) == self.committed);
        file.end_snapshot(id);
        // As SQLite reads most pages.
        let at = self.dice.below(60) * 4096;
        for (view, model) in views {
            let looked = file.look(view, at, 4096).expect("it can be looked up");
            let mut bytes = [0; 4096];
            if let Some(has) = looked.and_then(|looked| looked.read(&mut bytes)) {
                bytes[has..].fill(0);
                let at = at as usize;
                assert!(bytes == model[at..at + 4096], "step {step}: {view:?}");
            }
        }
    }
}

#[test]
fn what_joins_is_as_it_would_be_alone_for_any_size_of_page() {
    for page in [512, 1024, 4096, 8192, 65536] {
        for reserved in [0, 64] {
            let mut joining = Joining::new(page, reserved > 0);
            for step in 0..900 {
                joining.step(reserved);
                joining.check(step);
            }
            let (joined, commits) = joining.joined;
            assert!(joined > 30 && commits > 10, "{joined}, {commits}");
            assert!(joined > commits, "some of them share a commit");
        }
    }
}

#[test]
fn a_transaction_that_grows_large_does_not_join() {
    let mut file = open(&Recorded::default(), Kind::Seal);
    file.keep(true);
    let mut chunks = 1;
    while file.may_join() {
        file.write(chunks * 4096, &[1; 4096]).expect("room");
        chunks += 1;
    }
    assert!(chunks > 64, "{chunks}");
    file.keep(false);
    file.write(0, &[2; 4096]).expect("room");
    assert!(!file.may_join());
    file.commit().expect("room");
    assert_eq!(file.size(View::Committed), chunks * 4096);
}

#[test]
fn a_transaction_that_changes_the_number_of_the_schema_does_not_join() {
    let medium = Recorded::default();
    let mut file = open(&medium, Kind::Seal);
    let mut page = [1; 4096];
    page[..16].copy_from_slice(MAGIC);
    page[ZEROS].fill(0);
    let mut write = |file: &mut StoreFile, place: usize| {
        page[place] += 1;
        file.keep(true);
        file.write(0, &page).expect("room");
        file.may_join()
    };
    assert!(!write(&mut file, 43), "the first page is new");
    file.commit().expect("room");
    // SQLite reads the counters first.
    file.read(View::Own, 24, &mut [0; 16]).expect("it is there");
    assert!(write(&mut file, 39));
    file.join();
    assert!(write(&mut file, 44));
    assert!(!write(&mut file, 40));
    file.abort();
    file.commit_joined().expect("room").carry_out();
    // The first page was not read since.
    let mut file = open(&medium, Kind::Seal);
    assert!(!write(&mut file, 60));
}

#[test]
fn what_has_joined_and_finds_no_room_is_gone_and_the_file_goes_on() {
    let medium = Recorded::default();
    let mut file = open(&medium, Kind::Seal);
    file.write(0, &[1; 4096]).expect("room");
    file.commit().expect("room");
    let before = contents(&mut file, View::Committed);
    medium.give_at_most(Some(medium.to_vec().len() as u64));
    let mut failed = false;
    for round in 0..200 {
        file.keep(true);
        for chunk in 0..60 {
            let at = (round * 60 + chunk + 1) * 4096;
            file.write(at, &[3; 4096]).expect("it is kept");
        }
        file.join();
        let newest = contents(&mut file, View::Committed);
        match file.commit_joined() {
            Ok(asked) => asked.carry_out(),
            Err(trouble) => {
                assert_eq!(trouble.kind, TroubleKind::Full, "{trouble}");
                assert!(!file.has_joined());
                assert!(contents(&mut file, View::Newest) == newest);
                failed = true;
                break;
            }
        }
    }
    assert!(failed);
    assert!(contents(&mut file, View::Own)[..4096] == before);
    medium.give_at_most(None);
    file.keep(true);
    file.write(0, &[9; 4096]).expect("it is kept");
    file.join();
    file.commit_joined().expect("room").carry_out();
    assert!(contents(&mut file, View::Committed)[..4096] == [9; 4096]);
}
