//! A disk whose store gets no more room: a write that finds none is refused, and everything else
//! goes on. What was accepted is there after a flush.
//! The control is in src/volume/tests.rs.

mod dice;

use dice::Dice;
use flagstone::commit::Kind;
use flagstone_store::medium::{Landing, Medium, Recorded};
use flagstone_store::{OpenOptions, PageStore, StoreError, Volume};

const CHUNK: u64 = 4096;

/// A store in a file, or on a device, which has four mebibytes.
fn open(medium: &Recorded, kind: Kind, ends: bool) -> PageStore {
    let mut options = OpenOptions::default().with_protocol(kind);
    options.pages_per_block = 16;
    if ends {
        medium.end_at(4 << 20);
    }
    PageStore::on(Box::new(medium.clone()), &options).expect("a store")
}

/// A disk, and what it has to hold.
struct Held {
    disk: Volume<PageStore>,
    model: Vec<u8>,
    dice: Dice,
    refused: u32,
    written: u64,
    /// Whether a write to what the disk holds may be refused.
    may_refuse: bool,
}

impl Held {
    fn over(disk: Volume<PageStore>, seed: u64) -> Held {
        Held {
            model: vec![0; disk.size() as usize],
            disk,
            dice: Dice(seed),
            refused: 0,
            written: 0,
            may_refuse: false,
        }
    }

    /// Writes bytes. One that finds no room has changed whole chunks, or not at all.
    fn write(&mut self, at: u64, len: u64) {
        let data: Vec<u8> = (0..len).map(|_| self.dice.below(255) as u8 + 1).collect();
        let parts = self.disk.parts(at, len).expect("within");
        let is_held = parts.into_iter().all(|(.., holds)| holds);
        match self.disk.write(at, &data) {
            Ok(()) => {
                self.model[at as usize..][..data.len()].copy_from_slice(&data);
                self.written += len;
            }
            Err(StoreError::Full(why)) => {
                assert!(!is_held || self.may_refuse, "{at}, {len}: {why}");
                self.refused += 1;
                let mut now = vec![0; data.len()];
                self.disk.read(at, &mut now).expect("it reads");
                let mut done = 0;
                while done < data.len() {
                    let bytes = (CHUNK - (at + done as u64) % CHUNK) as usize;
                    let end = (done + bytes).min(data.len());
                    let before = &self.model[at as usize..][done..end];
                    let is_right = now[done..end] == *before || now[done..end] == data[done..end];
                    assert!(is_right, "{at}, {len}: {done}");
                    done = end;
                }
                self.model[at as usize..][..data.len()].copy_from_slice(&now);
            }
            Err(other) => panic!("{at}, {len}: {other}"),
        }
    }

    fn flush(&mut self) {
        self.disk.flush().expect("what was accepted has room");
    }

    fn must_be_right(&mut self) {
        let mut image = vec![7; self.model.len()];
        self.disk.read(0, &mut image).expect("it reads");
        assert!(image == self.model);
    }

    /// Writes everything once, by requests of some size, or tries to.
    fn fill(&mut self) {
        let mut at = 0;
        while at < self.disk.size() {
            let len = [512, 1024, 4096, 20_000][self.dice.below(4) as usize];
            let len = len.min(self.disk.size() - at);
            self.write(at, len);
            at += len;
            if self.dice.below(200) == 0 {
                self.flush();
            }
        }
        self.must_be_right();
        self.flush();
        self.must_be_right();
    }

    /// Overwrites, trims and flushes, until it has written so many times its size.
    fn use_it(&mut self, times: u64) {
        let size = self.disk.size();
        self.written = 0;
        for step in 0_u64.. {
            if self.written >= times * size || step > 40 * times * size / CHUNK {
                break;
            }
            let at = self.dice.below(size / 512) * 512;
            let most = [512, 4096, 70_000][self.dice.below(3) as usize];
            let len = ((self.dice.below(most / 512) + 1) * 512).min(size - at);
            match self.dice.below(40) {
                0 => self.flush(),
                1 | 2 => {
                    self.disk.trim(at, len).expect("a trim finds room");
                    self.model[at as usize..][..len as usize].fill(0);
                }
                3..8 => {
                    let (at, len) = (at / CHUNK * CHUNK, len.next_multiple_of(CHUNK));
                    self.write(at, len.min(size - at));
                }
                _ => self.write(at, len),
            }
        }
        self.must_be_right();
        self.flush();
    }
}

/// Fills a disk on a medium of so many bytes, uses it, and opens it again. Returns how many writes
/// were refused.
fn live(kind: Kind, disk: u64, medium: &Recorded, ends: bool, times: u64) -> u32 {
    println!("{kind}, a disk of {disk}");
    let made = Volume::create(open(medium, kind, ends), disk).expect("a disk");
    let mut held = Held::over(made, 7 + kind as u64);
    held.fill();
    println!("  {} refused", held.refused);
    held.use_it(times);
    println!("  {} refused", held.refused);
    let left = medium.cut(Landing::Nothing);
    left.give_at_most(Some(medium.bytes().expect("it has some")));
    held.disk = Volume::open(open(&left, kind, ends)).expect("a disk");
    held.must_be_right();
    held.use_it(1);
    assert!(held.disk.pages_mut().check().expect("it reads").is_well());
    held.refused
}

fn bounded(bytes: u64) -> Recorded {
    let medium = Recorded::default();
    medium.give_at_most(Some(bytes));
    medium
}

/// Whether a disk can have the protocol.
fn suits(kind: &&Kind) -> bool {
    kind.info().atomic && !kind.info().reprograms
}

#[test]
fn a_disk_that_is_larger_than_its_file_can_become_refuses_what_finds_no_room() {
    for &kind in Kind::ALL.iter().filter(suits) {
        let times = if kind == Kind::Seal { 10 } else { 1 };
        let refused = live(kind, 5 << 20, &bounded(4 << 20), false, times);
        assert!(refused > 0, "{kind}");
    }
}

#[test]
fn a_disk_on_a_device_takes_every_write_for_ever_or_is_not_made() {
    for &kind in Kind::ALL.iter().filter(suits) {
        let refused = Volume::create(open(&bounded(4 << 20), kind, true), 4 << 20).err();
        let refused = refused.expect("it is too large").to_string();
        let most = refused.rsplit_once("at most ").expect("it says it").1;
        let most: u64 = most.trim_end_matches(" bytes").parse().expect("bytes");
        assert!(most > 1 << 20, "{kind}: {most}");
        let times = if kind == Kind::Seal { 10 } else { 2 };
        let refused = live(kind, most, &bounded(4 << 20), true, times);
        assert_eq!(refused, 0, "{kind}");
    }
}

#[test]
fn room_that_is_reserved_for_a_disk_is_there() {
    let medium = Recorded::default();
    let mut disk = Volume::create(open(&medium, Kind::Seal, false), 3 << 20).expect("a disk");
    disk.reserve().expect("there is room");
    // Others have filled the file system.
    medium.give_at_most(Some(0));
    let mut held = Held::over(disk, 3);
    held.fill();
    held.use_it(4);
    assert_eq!(held.refused, 0);
    let small = bounded(2 << 20);
    let mut disk = Volume::create(open(&small, Kind::Seal, false), 3 << 20).expect("a disk");
    assert!(matches!(disk.reserve(), Err(StoreError::Full(_))));
}
