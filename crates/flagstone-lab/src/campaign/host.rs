//! The host of a campaign: clients that begin, write, read, trim, commit and abort at random by a
//! seed, and a model of what they may see.

use super::oracle::{Contents, Oracle, Page, payload, show};
use super::scene::Story;
use flagstone::commit::{Device, DeviceError, Isolation};
use flagstone::ftl::FtlError;
use flagstone::nand::{Entry, OpKind};
use flagstone::units::{Lpn, Nanos, TxId};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet};

/// Why a host stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stop {
    /// The power failed.
    PowerLost,
    /// A page that is needed was lost to bit errors; only where these are injected.
    Damaged,
    /// Something that must not be.
    Violation(String),
}

/// A transaction of the host.
struct Client {
    name: u64,
    tx: TxId,
    writes: BTreeMap<Page, Contents>,
    nth: u16,
}

/// The clients and what they know.
pub(super) struct Host {
    pub(super) oracle: Oracle,
    clients: Vec<Client>,
    /// Transactions that wait for their group, by the device's name.
    waiting: BTreeMap<TxId, u64>,
    next_name: u64,
    pub(super) now: Nanos,
    clients_max: usize,
    pages: u32,
    /// Pages lost to bit errors are reported, not wrong.
    damage_allowed: bool,
    pub(super) steps: u64,
    story: Story,
}

type Done<T> = Result<T, Stop>;

impl Host {
    pub(super) fn new(oracle: Oracle, clients: u32, pages: u32, first_name: u64) -> Host {
        Host {
            oracle,
            clients: Vec::new(),
            waiting: BTreeMap::new(),
            next_name: first_name,
            now: Nanos::ZERO,
            clients_max: clients as usize,
            pages,
            damage_allowed: false,
            steps: 0,
            story: None,
        }
    }

    pub(super) fn allow_damage(&mut self) {
        self.damage_allowed = true;
    }

    pub(super) fn tell(&mut self, story: Story) {
        self.story = story;
    }

    /// Names that were used so far: the next host begins there, so that no payload occurs twice.
    pub(super) fn next_name(&self) -> u64 {
        self.next_name
    }

    pub(super) fn note(&self, text: impl FnOnce() -> String) {
        if let Some(story) = &self.story {
            let kind = OpKind::Note(text());
            story.borrow_mut().push(Entry {
                now: self.now,
                kind,
                error: None,
            });
        }
    }

    /// One step of some client.
    pub(super) fn step(&mut self, device: &mut Device, dice: &mut Pcg64Mcg) -> Done<()> {
        self.steps += 1;
        self.pass_time(dice);
        self.collect_groups(device)?;
        self.oracle.settle(self.now.0);
        let action = dice.random_range(0..100);
        if self.clients.is_empty() || (action < 12 && self.clients.len() < self.clients_max) {
            return self.begin(device);
        }
        let which = dice.random_range(0..self.clients.len());
        let page = self.some_page(dice);
        match action {
            ..60 => self.write(device, which, page, false),
            60..65 => self.write(device, which, page, true),
            65..75 => self.read(device, Some(which), page),
            75..78 => self.read(device, None, page),
            78..95 => self.commit(device, which),
            _ => self.abort(device, which),
        }
    }

    /// Mostly a little time passes, now and then enough for everything in flight to end.
    fn pass_time(&mut self, dice: &mut Pcg64Mcg) {
        let micros = match dice.random_range(0..10) {
            0..5 => 0,
            5..8 => dice.random_range(0..300),
            8 => dice.random_range(0..2_000),
            _ => 10_000,
        };
        self.now += Nanos::from_micros(micros);
    }

    /// Some pages are written far more often than others.
    fn some_page(&self, dice: &mut Pcg64Mcg) -> Page {
        if dice.random_bool(0.7) {
            dice.random_range(0..self.pages.div_ceil(3))
        } else {
            dice.random_range(0..self.pages)
        }
    }

    fn begin(&mut self, device: &mut Device) -> Done<()> {
        match device.begin(self.now) {
            Ok(tx) => {
                let name = self.next_name;
                self.next_name += 1;
                self.note(|| format!("#{name} begins as {tx}"));
                self.clients.push(Client {
                    name,
                    tx,
                    writes: BTreeMap::new(),
                    nth: 0,
                });
                Ok(())
            }
            Err(DeviceError::TooManyLive { .. }) if device.live().count() > 0 => Ok(()),
            Err(error) => Err(self.stop(error)),
        }
    }

    fn write(&mut self, device: &mut Device, which: usize, page: Page, trim: bool) -> Done<()> {
        let (name, tx, nth) = {
            let client = &self.clients[which];
            (client.name, client.tx, client.nth)
        };
        let contents = (!trim).then(|| payload(name, page, nth));
        self.note(|| format!("#{name} writes page {page}: {}", show(&contents)));
        let outcome = match &contents {
            Some(bytes) => device.write(self.now, tx, Lpn(page), bytes),
            None => device.trim(self.now, tx, Lpn(page)),
        };
        let own = self.clients[which].writes.contains_key(&page);
        match outcome {
            Ok(_) => {
                let taken = self.is_written_by_another(which, page);
                if taken && device.info().isolation == Isolation::NoPageConflict {
                    return Err(Stop::Violation(format!(
                        "two transactions write page {page}"
                    )));
                }
                let client = &mut self.clients[which];
                client.writes.insert(page, contents);
                client.nth += 1;
                Ok(())
            }
            Err(DeviceError::Conflict { holder, .. }) => {
                let held =
                    self.is_written_by_another(which, page) || self.waiting.contains_key(&holder);
                if held {
                    Ok(())
                } else {
                    Err(self.refused("a conflict that is none"))
                }
            }
            Err(DeviceError::WrittenTwice { .. }) if own => Ok(()),
            Err(error) => Err(self.stop(error)),
        }
    }

    fn is_written_by_another(&self, which: usize, page: Page) -> bool {
        self.clients
            .iter()
            .enumerate()
            .any(|(i, c)| i != which && c.writes.contains_key(&page))
    }

    fn read(&mut self, device: &mut Device, which: Option<usize>, page: Page) -> Done<()> {
        let own = which.and_then(|i| self.clients[i].writes.get(&page).copied());
        let right = own.unwrap_or_else(|| self.oracle.read(page));
        let tx = which.map(|i| self.clients[i].tx);
        let found = match device.read(self.now, tx, Lpn(page)) {
            Ok((_, bytes)) => bytes.map(<[u8]>::to_vec),
            Err(DeviceError::Unreadable(_)) if self.damage_allowed => return Ok(()),
            Err(error) => return Err(self.stop(error)),
        };
        if found.as_deref() == right.as_ref().map(|bytes| bytes.as_slice()) {
            return Ok(());
        }
        Err(Stop::Violation(format!(
            "{} reads {} in page {page}, not {}",
            tx.map_or_else(|| "a reader".into(), |tx| format!("{tx}")),
            show_bytes(found.as_deref()),
            show(&right)
        )))
    }

    fn commit(&mut self, device: &mut Device, which: usize) -> Done<()> {
        let client = self.clients.swap_remove(which);
        self.note(|| format!("#{} asks to commit", client.name));
        self.oracle.ask(client.name, client.writes);
        match device.commit(self.now, client.tx) {
            Ok(Some(done)) => {
                self.note(|| format!("#{} is acknowledged at {done}", client.name));
                self.oracle.acknowledge(client.name, done.0);
                Ok(())
            }
            Ok(None) => {
                self.waiting.insert(client.tx, client.name);
                Ok(())
            }
            Err(error) => Err(self.stop(error)),
        }
    }

    fn abort(&mut self, device: &mut Device, which: usize) -> Done<()> {
        let client = self.clients.swap_remove(which);
        self.note(|| format!("#{} aborts", client.name));
        match device.abort(self.now, client.tx) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.stop(error)),
        }
    }

    /// Takes the acknowledgements of groups that are complete or whose time is up.
    fn collect_groups(&mut self, device: &mut Device) -> Done<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let stuck = self.clients.len() + self.waiting.len() >= self.clients_max;
        let flush = stuck && self.clients.is_empty();
        let done = match device.acknowledged(self.now, flush) {
            Ok(done) => done,
            Err(error) => return Err(self.stop(error)),
        };
        for (tx, at) in done {
            let name = self
                .waiting
                .remove(&tx)
                .ok_or_else(|| Stop::Violation(format!("{tx} is acknowledged, did not wait")))?;
            self.note(|| format!("#{name} is acknowledged at {at}"));
            self.oracle.acknowledge(name, at.0);
        }
        Ok(())
    }

    /// Reads every page. What bit errors destroyed is left out where they are allowed.
    pub(super) fn read_all(
        &self,
        device: &mut Device,
        damaged: &mut BTreeSet<Page>,
    ) -> Done<BTreeMap<Page, Contents>> {
        let mut found = BTreeMap::new();
        for page in 0..self.pages {
            let contents = match device.read(self.now, None, Lpn(page)) {
                Ok((_, None)) => None,
                Ok((_, Some(bytes))) => match bytes.try_into() {
                    Ok(bytes) => Some(bytes),
                    Err(_) => {
                        let what = format!("page {page} holds {}", show_bytes(Some(bytes)));
                        return Err(Stop::Violation(what));
                    }
                },
                Err(DeviceError::Unreadable(_)) if self.damage_allowed => {
                    damaged.insert(page);
                    continue;
                }
                Err(DeviceError::Ftl(FtlError::PowerLost)) => return Err(Stop::PowerLost),
                Err(error) => return Err(Stop::Violation(format!("page {page}: {error}"))),
            };
            found.insert(page, contents);
        }
        Ok(found)
    }

    fn stop(&self, error: DeviceError) -> Stop {
        match error {
            DeviceError::Ftl(FtlError::PowerLost) => Stop::PowerLost,
            DeviceError::Ftl(FtlError::Unreadable { .. }) | DeviceError::Unreadable(_)
                if self.damage_allowed =>
            {
                Stop::Damaged
            }
            other => Stop::Violation(format!("the device refuses: {other}")),
        }
    }

    fn refused(&self, why: &str) -> Stop {
        Stop::Violation(why.into())
    }
}

fn show_bytes(bytes: Option<&[u8]>) -> String {
    match bytes {
        None => "nothing".into(),
        Some(bytes) => match bytes.try_into() {
            Ok(payload) => show(&Some(payload)),
            Err(_) => format!("{} foreign bytes", bytes.len()),
        },
    }
}
