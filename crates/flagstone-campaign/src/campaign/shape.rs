//! The shape of a run: its device, the database on it and its clients.
//!
//! A shape is determined by its number, which is part of the run id; number 0 is the plain shape.
//! It combines a device, a database and client habits. Each has one of a few characters, so that
//! settings that interact occur together often:
//!
//! ```text
//! device    small      two planes, a little room
//!           wide       four or eight planes with slow programs, hardly any room, and wear
//!                      levelling that hardly rests: several collections at one instant, and
//!                      copies in flight while others begin
//!           full       as few blocks as the protocol takes
//!           odd        other planes, channels, blocks and pages, with and without summary pages
//! habits    even       four clients, transactions of a few writes
//!           dense      a few pages full of small records, which long transactions share and often
//!                      roll back (databases)
//!           sprawling  transactions larger than a block, and than what is free
//!           crowded    up to 32 clients, on the smallest log (databases)
//! ```
//!
//! Numbers from [`COLLIDING`] on have special devices and habits for databases whose collections
//! hand flags on. Several collections begin at one instant, on planes that take turns. Short
//! transactions change records in many pages, which are evicted at once, so many transactions have
//! one short-lived page and one long-lived page. For other subjects these numbers are like lower
//! ones.
//!
//! Numbers from [`TINY`] on are for runs with every outcome tried. Under protocols they have blocks
//! of a few pages and hardly any room, so that a few operations fill blocks, seal them and collect
//! them.
//!
//! Numbers from [`UNUSUAL`] on have databases with unusual settings. Pages of live transactions are
//! stolen, or written through. Whole pages are locked. Log pages are padded. Pages are written out
//! before their changes are rolled back. Clients also access pages for writes that do not follow.
//! Under indexes these numbers have stores that the keys fill, so that changes are refused. Under
//! protocols they have devices that transactions fill, and clients that continue after a refused
//! request; with every fifth number the caller also has blocks collected that it chooses. With
//! every second number clients also write pages outside of transactions, if the protocol allows
//! that. With every fourth number protocols and databases are opened with other settings each time
//! ([`super::reopening`]).

use super::Subject;
use flagstone::commit::Kind;
use flagstone::ftl::{PairedPages, VictimPolicy};
use flagstone::nand::Pairing;
use flagstone::settings::Configurable;
use flagstone::settings::Settings;
use flagstone::units::Nanos;
use flagstone_host::buffer::PolicyKind;
use flagstone_host::{Granularity, Stack};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A shape.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shape {
    /// Default numbers of concurrent transactions and of logical pages for a campaign's runs.
    pub(super) clients: u32,
    pub(super) pages: u32,
    /// Pages of an index, including its journal and metadata.
    pub(super) index_pages: u32,
    pub(super) device: DeviceShape,
    pub(super) database: DatabaseShape,
    pub(super) habits: Habits,
    /// Whether each opening of a run draws settings that may change.
    pub(super) reopens: bool,
}

/// The shape of the device.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DeviceShape {
    pub(super) channels: u32,
    pub(super) planes_per_channel: u32,
    pub(super) pages_per_block: u32,
    pub(super) page_bytes: u32,
    /// Additional blocks per plane, beyond the protocol's minimum.
    pub(super) spare_blocks: u32,
    /// Whether a transaction may find the device full.
    pub(super) may_fill: bool,
    /// Whether pages of a block must be programmed in ascending order, if the protocol can work
    /// without reprograms.
    pub(super) strict_order: bool,
    /// Which pages of a block share cells, and how that is handled. Only if it is among the faults.
    pub(super) pairing: Pairing,
    pub(super) paired_pages: PairedPages,
    pub(super) program: Nanos,
    pub(super) transfer_ps_per_byte: u64,
    pub(super) summary_pages: bool,
    pub(super) copies_stay: bool,
    pub(super) victims: VictimPolicy,
    pub(super) static_wear_gap: Option<u32>,
    /// Settings of all protocols together.
    pub(super) settings: Settings,
}

/// The shape of the database, if there is one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DatabaseShape {
    pub(super) frames: usize,
    pub(super) policy: PolicyKind,
    /// Number of log pages; `None` for the database's minimum.
    pub(super) log_pages: Option<u32>,
    pub(super) log_buffer_bytes: usize,
    pub(super) checkpoint_every: u32,
    pub(super) max_c: u8,
    pub(super) group_wait: Nanos,
    pub(super) steal: bool,
    pub(super) write_through: bool,
    pub(super) granularity: Option<Granularity>,
    /// Further settings of all recovery managers together.
    pub(super) settings: Settings,
}

/// The habits of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Habits {
    /// Maximum number of writes per transaction; at least 1.
    pub(super) writes: u32,
    /// Percent of transactions that are brief: up to three writes anywhere.
    pub(super) brief: u32,
    /// Percent of the others that have four times as many writes.
    pub(super) patient: u32,
    /// Percent of transactions, other than brief ones, that are rolled back.
    pub(super) aborts: u32,
    /// Percent of writes that go to the previous write's page.
    pub(super) stays: u32,
    /// Percent of trims that come with up to a dozen others.
    pub(super) sweeps: u32,
    /// Records per page.
    pub(super) slots: u32,
    /// Minimum and maximum size of a record.
    pub(super) bytes: (u16, u16),
    /// Percent of steps at the same instant as the previous step: a higher value means more
    /// operations in flight.
    pub(super) at_once: u32,
    /// Whether a page may have no room for a record.
    pub(super) may_overflow: bool,
    /// Whether some page accesses are for a write that does not follow.
    pub(super) touches: bool,
    /// Whether a transaction continues after a full device has refused one of its requests. It is
    /// rolled back otherwise.
    pub(super) persists: bool,
    /// Percent of steps in which the caller has a block of its choice collected.
    pub(super) collects: u32,
    /// Percent of steps in which a client writes a page outside of transactions.
    pub(super) outside: u32,
}

/// The first shape number for collections that overtake each other.
pub(super) const COLLIDING: u32 = 100_000;
/// The first number of a tiny shape.
pub(super) const TINY: u32 = 200_000;
/// The first number with unusual database settings.
pub(super) const UNUSUAL: u32 = 300_000;

/// Number of log pages of a plain database.
const LOG_PAGES: u32 = 32;

/// Size of the head of a page, and of the head of a record.
const PAGE_HEAD: u32 = 10;
const RECORD_HEAD: u32 = 4;

impl Shape {
    /// The shape with a number.
    pub(super) fn of(number: u32, subject: Subject) -> Shape {
        let mut shape = Shape::plain();
        if subject.buffers() && number.is_multiple_of(2) {
            // Room for a full journal; with the other numbers each commit applies what waits.
            shape.index_pages = 256;
        }
        if number > 0 {
            let mut dice = Pcg64Mcg::seed_from_u64(0x5a9e_0000_0000 + u64::from(number));
            let dice = &mut dice;
            shape.draw_device(dice, subject);
            shape.draw_habits(dice, subject);
            shape.draw_database(dice, subject);
            let protocol = subject.protocol();
            let has = |name| protocol.is_some_and(|kind| kind.info().has(name));
            if has("linger") {
                shape.draw_linger(dice);
            }
            if has("map_cache") {
                shape.draw_map_cache(number);
            }
            if has("trims") {
                shape.draw_trims(number);
            }
            match (number, subject) {
                (UNUSUAL.., Subject::Stack(stack)) => {
                    shape.draw_unusual(dice, stack);
                    shape.reopens = number % 4 == 3;
                    return shape;
                }
                (UNUSUAL.., Subject::Index(..)) => {
                    shape.fill_index(dice);
                    return shape;
                }
                (UNUSUAL.., Subject::Protocol(kind)) => {
                    shape.fill_device(dice);
                    if number.is_multiple_of(5) {
                        shape.habits.collects = [5, 15, 40][dice.random_range(0..3)];
                    }
                    if kind.info().outside {
                        shape.draw_outside(number);
                    }
                    shape.draw_reopening(number);
                    return shape;
                }
                _ => {}
            }
            if number >= COLLIDING && subject.hands_flags_on() {
                shape.collide(dice, subject);
            }
            if number >= TINY && matches!(subject, Subject::Protocol(_)) {
                shape.make_tiny(dice);
            }
        }
        shape
    }

    /// So small that the collector, checkpoints and zone slides are always active, pages are
    /// evicted, and the log wraps around constantly.
    fn plain() -> Shape {
        Shape {
            clients: 4,
            pages: 24,
            index_pages: 96,
            device: DeviceShape {
                channels: 1,
                planes_per_channel: 2,
                pages_per_block: 6,
                page_bytes: 256,
                spare_blocks: 5,
                may_fill: false,
                strict_order: false,
                pairing: Pairing::None,
                paired_pages: PairedPages::Closed,
                program: Nanos::from_micros(200),
                transfer_ps_per_byte: 0,
                summary_pages: true,
                copies_stay: false,
                victims: VictimPolicy::WearAware { margin: 3 },
                static_wear_gap: Some(6),
                settings: Settings::new()
                    .with("zone_blocks", 6)
                    .with("log_heads", 2)
                    .with("group", 3)
                    .with("group_timeout_us", 900),
            },
            database: DatabaseShape {
                frames: 4,
                policy: PolicyKind::Lru,
                log_pages: Some(LOG_PAGES),
                log_buffer_bytes: 300,
                checkpoint_every: 3,
                max_c: 2,
                group_wait: Nanos::ZERO,
                steal: true,
                write_through: false,
                granularity: None,
                settings: Settings::new(),
            },
            habits: Habits {
                writes: 5,
                brief: 0,
                patient: 0,
                aborts: 20,
                stays: 0,
                sweeps: 0,
                slots: 4,
                bytes: (12, 12),
                at_once: 50,
                may_overflow: false,
                touches: false,
                persists: false,
                collects: 0,
                outside: 0,
            },
            reopens: false,
        }
    }

    /// Lets pages of the device share cells, depending on its number. Fewer pages of a block are
    /// then usable, so blocks get more pages, and the device more blocks.
    pub(super) fn pair(&mut self, number: u32) {
        let device = &mut self.device;
        let mut dice = Pcg64Mcg::seed_from_u64(0x9a1e_0000_0000 + u64::from(number));
        let (mut pairing, mut mend) = (Pairing::Distance3, PairedPages::Closed);
        if number > 0 {
            let pairings = [Pairing::Distance3, Pairing::Distance6, Pairing::Tlc];
            pairing = pairings[dice.random_range(0..3)];
            if dice.random_bool(0.2) {
                mend = PairedPages::Slc;
            }
            device.pages_per_block = device.pages_per_block.max(dice.random_range(6..17));
        }
        device.strict_order = true;
        self.share_cells(pairing, mend);
    }

    /// Lets pages of the device share cells, and adds pages for those that stay blank.
    pub(super) fn share_cells(&mut self, pairing: Pairing, mend: PairedPages) {
        let device = &mut self.device;
        (device.pairing, device.paired_pages) = (pairing, mend);
        let multiple = device.pairing.pages_multiple();
        let pages = device.pages_per_block.max(8);
        device.pages_per_block = pages.next_multiple_of(multiple);
        device.spare_blocks *= 2;
    }

    /// Draws the device: small, wide, full or odd (see the head of this file), then further
    /// properties, which hardly depend on that.
    fn draw_device(&mut self, dice: &mut Pcg64Mcg, subject: Subject) {
        let device = &mut self.device;
        let mut several_at_once = false;
        match dice.random_range(0..10) {
            // Small: as `plain`.
            0..3 => {}
            // Wide.
            3..6 => {
                (device.channels, device.planes_per_channel) =
                    [(1, 4), (2, 2), (4, 1), (1, 8), (4, 2)][dice.random_range(0..5)];
                device.program = Nanos::from_micros(1000);
                device.spare_blocks = u32::from(dice.random_bool(0.5));
                device.may_fill = true;
                several_at_once = true;
            }
            // Full.
            6..8 => {
                device.planes_per_channel = dice.random_range(1..5);
                device.spare_blocks = 0;
                device.may_fill = true;
            }
            // Odd.
            _ => {
                device.channels = dice.random_range(1..4);
                device.planes_per_channel = dice.random_range(1..3);
                device.pages_per_block = dice.random_range(4..13);
                device.page_bytes = match (device.pages_per_block, subject) {
                    (..7, Subject::Protocol(_)) => [128, 256, 512][dice.random_range(0..3)],
                    (..7, _) => [256, 512][dice.random_range(0..2)],
                    _ => 512,
                };
                device.summary_pages = dice.random_bool(0.5);
                device.spare_blocks = dice.random_range(1..6);
            }
        }
        device.strict_order = subject.may_reprogram() && dice.random_bool(0.15);
        device.copies_stay = dice.random_bool(0.2);
        if dice.random_bool(0.3) {
            // A page of 256 bytes and its spare area take 80 us.
            device.transfer_ps_per_byte = 250_000;
        }
        if dice.random_bool(0.3) {
            device.victims = VictimPolicy::Greedy;
        }
        let gaps = if several_at_once {
            // Each collection for room is followed by one for wear, at the same instant.
            [Some(0), Some(1), Some(2)]
        } else {
            [Some(6), Some(2), None]
        };
        device.static_wear_gap = gaps[dice.random_range(0..3)];
        let zone_blocks = [6, 6, 0, 5, 12][dice.random_range(0..5)];
        device.settings.set("zone_blocks", zone_blocks);
        device.settings.set("group", dice.random_range(2..6_u32));
        let timeout: u64 = dice.random_range(300..3_000);
        device.settings.set("group_timeout_us", timeout);
    }

    /// Number of full blocks that SEAL lets wait: as many as planes, fewer, or more.
    fn draw_linger(&mut self, dice: &mut Pcg64Mcg) {
        if dice.random_bool(0.6) {
            self.device
                .settings
                .set("linger", dice.random_range(0..6_u32));
        }
    }

    /// Number of mapping entries in memory: all, or fewer than the device has pages. Uses random
    /// numbers of its own, as [`Self::draw_trims`].
    fn draw_map_cache(&mut self, number: u32) {
        let mut dice = Pcg64Mcg::seed_from_u64(0xdf71_0000_0000 + u64::from(number));
        let entries = [0, 1, 2, 4, 8, 16][dice.random_range(0..6)];
        self.device.settings.set("map_cache", entries);
    }

    /// Number of pages trimmed at once, and number that SEAL lists per page. Uses random numbers of
    /// its own, so that everything else stays the same.
    fn draw_trims(&mut self, number: u32) {
        let mut dice = Pcg64Mcg::seed_from_u64(0x7215_0000_0000 + u64::from(number));
        self.habits.sweeps = [0, 20, 60][dice.random_range(0..3)];
        let listed = [0, 0, 1, 2, 3, 5][dice.random_range(0..6)];
        self.device.settings.set("trims", listed);
    }

    /// Lets every fourth shape change settings at its openings. Most of these get room for a
    /// higher collection threshold. Uses random numbers of its own, as [`Self::draw_trims`].
    fn draw_reopening(&mut self, number: u32) {
        self.reopens = number % 4 == 3;
        if self.reopens {
            let mut dice = Pcg64Mcg::seed_from_u64(0x0be2_0000_0000 + u64::from(number));
            self.device.spare_blocks += dice.random_range(0..4);
        }
    }

    /// Lets clients of every second shape write outside of transactions. Uses random numbers of its
    /// own, as [`Self::draw_trims`].
    fn draw_outside(&mut self, number: u32) {
        let mut dice = Pcg64Mcg::seed_from_u64(0x0075_0000_0000 + u64::from(number));
        if number % 2 == 1 {
            self.habits.outside = [2, 5, 10][dice.random_range(0..3)];
        }
    }

    /// Draws the habits: even, dense, sprawling or crowded (see the head of this file). Dense
    /// habits are for databases, whose pages have several records.
    fn draw_habits(&mut self, dice: &mut Pcg64Mcg, subject: Subject) {
        let records = matches!(subject, Subject::Stack(_));
        let habits = &mut self.habits;
        let _: bool = dice.random_bool(0.3); // Keeps later draws, and therefore run ids, unchanged.
        habits.aborts = dice.random_range(5..40);
        habits.patient = dice.random_range(0..20);
        match dice.random_range(0..10) {
            // Even.
            0..2 => self.clients = dice.random_range(2..8),
            // Dense.
            2..7 if records => {
                self.clients = dice.random_range(2..6);
                self.pages = dice.random_range(3..8);
                habits.writes = dice.random_range(12..32);
                habits.brief = dice.random_range(40..80);
                habits.aborts = dice.random_range(15..50);
                habits.stays = dice.random_range(85..98);
                habits.slots = dice.random_range(16..31);
                habits.may_overflow = true;
                self.database.frames = 2;
                // Percent of a page's bytes taken by its records if all exist.
                let fill = dice.random_range(60..105);
                let room = self.device.page_bytes * fill / 100 - PAGE_HEAD;
                let mean = (room / habits.slots).saturating_sub(RECORD_HEAD).max(1);
                habits.bytes = (1, (2 * mean - 1) as u16);
            }
            // Sprawling.
            2..8 => {
                self.clients = dice.random_range(1..4);
                self.pages = dice.random_range(16..49);
                habits.writes = dice.random_range(12..60);
                self.device.may_fill = true;
            }
            // Crowded, on the smallest log.
            _ => {
                self.clients = dice.random_range(12..33);
                self.database.log_pages = None;
                self.device.may_fill = true;
            }
        }
        // Four slots are the default: these habits are not dense.
        if records && habits.slots == 4 && dice.random_bool(0.5) {
            habits.bytes = (1, dice.random_range(2..40));
        }
        habits.at_once = [50, 80, 95, 99][dice.random_range(0..4)];
    }

    /// Makes collections overtake each other, for numbers from [`COLLIDING`] on: several planes,
    /// hardly any room, short transactions over many pages, and two frames.
    fn collide(&mut self, dice: &mut Pcg64Mcg, subject: Subject) {
        let device = &mut self.device;
        (device.channels, device.planes_per_channel) =
            [(4, 1), (4, 2), (4, 2), (1, 8)][dice.random_range(0..4)];
        device.pages_per_block = dice.random_range(4..7);
        device.page_bytes = 256;
        device.program = Nanos::from_micros(1000);
        let transfers = dice.random_bool(0.75);
        device.transfer_ps_per_byte = if transfers { 250_000 } else { 0 };
        device.spare_blocks = dice.random_range(0..2);
        device.may_fill = true;
        device.static_wear_gap = Some(0);
        self.clients = dice.random_range(4..13);
        self.pages = dice.random_range(24..56);
        let habits = &mut self.habits;
        habits.writes = dice.random_range(2..8);
        (habits.brief, habits.patient, habits.stays) = (0, 0, 0);
        // CFC_ex sets flags at commits, AFC_ex at rollbacks: these have to be frequent.
        habits.aborts = match subject {
            Subject::Stack(Stack::CfcEx) => dice.random_range(0..10),
            _ => dice.random_range(10..40),
        };
        habits.slots = dice.random_range(1..4);
        habits.bytes = (1, 12);
        habits.may_overflow = false;
        habits.at_once = [80, 95, 99, 99][dice.random_range(0..4)];
        let database = &mut self.database;
        database.frames = 2;
        database.log_pages = Some(LOG_PAGES);
        database.max_c = dice.random_range(2..9);
    }

    /// Makes the device tiny, for numbers from [`TINY`] on: a few operations then fill, seal and
    /// collect blocks, so that runs with every outcome stay short.
    fn make_tiny(&mut self, dice: &mut Pcg64Mcg) {
        let device = &mut self.device;
        (device.channels, device.planes_per_channel) = (1, dice.random_range(1..4));
        device.pages_per_block = dice.random_range(4..7);
        device.page_bytes = 128;
        device.program = Nanos::from_micros([200, 1000][dice.random_range(0..2)]);
        device.spare_blocks = dice.random_range(0..2);
        device.may_fill = true;
        device.strict_order = false;
        device.summary_pages = true;
        device.static_wear_gap = [Some(0), Some(1), None][dice.random_range(0..3)];
        device.settings.set("linger", dice.random_range(0..4_u32));
        let undecided = [0, 1, 2, 4][dice.random_range(0..4)];
        device.settings.set("undecided", undecided);
        self.clients = dice.random_range(2..6);
        self.pages = dice.random_range(3..10);
        let habits = &mut self.habits;
        habits.writes = dice.random_range(2..6);
        (habits.brief, habits.patient) = (0, dice.random_range(0..20));
        habits.aborts = dice.random_range(5..40);
        habits.at_once = [50, 80, 90][dice.random_range(0..3)];
    }

    /// Draws the database, after the habits: those that `may_overflow` have set the frames.
    fn draw_database(&mut self, dice: &mut Pcg64Mcg, subject: Subject) {
        let database = &mut self.database;
        if !self.habits.may_overflow {
            database.frames = [2, 2, 3, 4, 6, 8][dice.random_range(0..6)];
        }
        database.policy = PolicyKind::ALL[dice.random_range(0..PolicyKind::ALL.len())];
        database.log_buffer_bytes = [300, 300, 80, 700][dice.random_range(0..4)];
        database.checkpoint_every = dice.random_range(2..6);
        database.max_c = match dice.random_range(0..2) {
            0 if !self.habits.may_overflow => dice.random_range(2..4),
            _ => dice.random_range(2..9),
        };
        let groups = dice.random_bool(0.3);
        if groups && matches!(subject.below(), super::Below::Stack(Stack::Wal)) {
            database.group_wait = Nanos::from_micros(500);
        }
    }

    /// Gives an index fewer pages than its keys need.
    fn fill_index(&mut self, dice: &mut Pcg64Mcg) {
        self.pages = dice.random_range(40..100);
        self.index_pages = dice.random_range(16..32);
        self.habits.writes = dice.random_range(3..16);
    }

    /// Lets transactions fill the device, often with several versions of a page.
    fn fill_device(&mut self, dice: &mut Pcg64Mcg) {
        let device = &mut self.device;
        (device.channels, device.planes_per_channel) = (1, dice.random_range(1..4));
        device.pages_per_block = dice.random_range(4..7);
        device.page_bytes = 256;
        device.spare_blocks = 0;
        device.may_fill = true;
        self.clients = dice.random_range(2..7);
        self.pages = dice.random_range(60..200);
        let habits = &mut self.habits;
        habits.persists = true;
        habits.writes = dice.random_range(60..400);
        habits.brief = dice.random_range(20..80);
        habits.aborts = dice.random_range(5..50);
    }

    /// Draws unusual settings of a database, for numbers from [`UNUSUAL`] on.
    fn draw_unusual(&mut self, dice: &mut Pcg64Mcg, stack: Stack) {
        self.habits.touches = true;
        let database = &mut self.database;
        // Only a database without a log can do without.
        database.steal = !matches!(stack, Stack::Force(_)) || dice.random_bool(0.75);
        // A transaction then has several versions of a page, and each takes room. Under AFC all of
        // them do until it ends, and the longest transactions fill the device.
        let keeps_all = stack == Stack::Force(Kind::Afc);
        database.write_through = dice.random_bool(0.5) && !keeps_all;
        if database.write_through {
            self.device.spare_blocks += 4;
        }
        if stack == Stack::Wal && dice.random_bool(0.3) {
            database.granularity = Some(Granularity::Page);
        }
        for flag in ["flush_aborted", "log_page_each", "log_padded", "flags_all"] {
            database.settings.set(flag, dice.random_bool(0.3));
        }
        // Padded pages soon fill a log, so it is twice as long. `None` stays the minimum log.
        database.log_pages = database.log_pages.map(|pages| 2 * pages);
    }
}
