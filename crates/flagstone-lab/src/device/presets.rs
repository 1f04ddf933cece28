//! The devices that the papers evaluate on, and a small one for quick runs.
//!
//! Parts: K9F8G08UXM is 4096+128-byte SLC pages, 64 a block. K9WAG08U1A is a stack of K9K8G08U0A
//! dies: 2048+64-byte SLC pages, 64 a block. K9GAG08U0M is MLC: 4096+128-byte pages, 128 a block of
//! 512 KiB, 4096 blocks a die in two planes, pages of a block in ascending order only, random read
//! 60 us at most, page program 800 us and block erase 1.5 ms typically.

use super::DeviceSpec;
use flagstone::ftl::{Config, VictimPolicy};
use flagstone::nand::{Cell, Geometry, Timing};
use flagstone::units::Nanos;

/// The preset that commands take if none is named.
pub const DEFAULT: &str = "small";

/// All presets.
pub fn presets() -> Vec<DeviceSpec> {
    vec![
        small(),
        lighttx(),
        flagcommit_slc(),
        mixsl_mlc(),
        lazybtree(),
        sal_low_end(),
        sal_high_end(),
    ]
}

/// [FlagCommit] §2.1 takes two programs of a page, in any order inside a block.
const SLC: Cell = Cell::Slc {
    partial_programs: 2,
};

/// The papers' latencies hold for a whole page operation, the transfer included or left out.
const fn timing(read_us: u64, program_us: u64, erase_us: u64) -> Timing {
    Timing {
        read: Nanos::from_micros(read_us),
        program: Nanos::from_micros(program_us),
        reprogram: Nanos::from_micros(program_us),
        erase: Nanos::from_micros(erase_us),
        transfer_ps_per_byte: 0,
    }
}

/// A tenth of the blocks in reserve, collection at a twentieth, wear-aware: [FlagCommit] §5.1,
/// [MixSL] §5.1.
fn config() -> Config {
    let mut config = Config::default();
    config.over_provision = 0.10;
    config.logical_pages = None;
    config.gc_threshold = 0.05;
    config.victims = VictimPolicy::WearAware { margin: 16 };
    config.static_wear_gap = Some(64);
    config.copies_stay = false;
    config.summary_pages = true;
    config
}

const OUR_CHOICE: &str = "not in the paper: the FTL's default";
const FLAT: &str = "not in the paper: its latencies are those of the whole operation";
const ANY_ORDER: &str = "not in the paper: pages in any order, as partial programming needs it";
const PARTIAL: &str = "[FlagCommit] Table 2: partial programming level";
const NO_BAD: &str = "not in the paper: no bad blocks";

fn flagcommit_slc() -> DeviceSpec {
    DeviceSpec {
        name: "flagcommit-slc".into(),
        about: "32 GB SLC device of [FlagCommit], 2 KB pages".into(),
        geometry: Geometry {
            channels: 8,
            packages_per_channel: 1,
            planes_per_package: 8,
            blocks_per_plane: 4096,
            pages_per_block: 64,
            page_bytes: 2048,
            spare_bytes: 64,
            cell: SLC,
            strict_order: false,
        },
        timing: timing(80, 200, 1500),
        fills_gaps: false,
        copy_back: false,
        config: config(),
        ecc_bits: 4,
        endurance: 100_000,
        factory_bad: Vec::new(),
        sources: [
            (
                "channels",
                "[FlagCommit] §5.1: eight packages, fully connected",
            ),
            ("packages_per_channel", "[FlagCommit] §5.1: fully connected"),
            (
                "planes_per_package",
                "not in the paper: as in the LightTx device, eight",
            ),
            ("blocks_per_plane", "[FlagCommit] §5.1: 4 GB packages"),
            ("pages_per_block", "[FlagCommit] Table 2: 128 KB blocks"),
            (
                "page_bytes",
                "[FlagCommit] Table 2; its logical page is four of these",
            ),
            ("spare_bytes", "[FlagCommit] §2.1: 64 bytes"),
            ("cell", "[FlagCommit] §2.1"),
            ("partial_programs", PARTIAL),
            ("strict_order", ANY_ORDER),
            ("read_us", "[FlagCommit] Table 2"),
            ("program_us", "[FlagCommit] Table 2"),
            (
                "reprogram_us",
                "[FlagCommit] Table 2: partial programming latency",
            ),
            ("erase_us", "[FlagCommit] Table 2"),
            ("transfer_ns_per_byte", FLAT),
            ("over_provision", "[FlagCommit] §5.1: a tenth of the blocks"),
            ("gc_threshold", "[FlagCommit] §5.1: five percent"),
            ("victims", "[FlagCommit] §5.1: wear-aware"),
            ("wear_margin", OUR_CHOICE),
            ("static_wear_gap", OUR_CHOICE),
            ("summary_pages", OUR_CHOICE),
            ("ecc_bits", "K9K8G08U0A: one bit in 528 bytes"),
            ("endurance", "K9K8G08U0A: 100,000 erases"),
            ("factory_bad", NO_BAD),
        ]
        .into(),
    }
}

fn mixsl_mlc() -> DeviceSpec {
    DeviceSpec {
        name: "mixsl-mlc".into(),
        about: "32 GB MLC device of [MixSL], the rest from the K9GAG08U0M data sheet".into(),
        geometry: Geometry {
            channels: 8,
            packages_per_channel: 1,
            planes_per_package: 4,
            blocks_per_plane: 2048,
            pages_per_block: 128,
            page_bytes: 4096,
            spare_bytes: 128,
            cell: Cell::Mlc,
            strict_order: true,
        },
        timing: timing(166, 906, 1500),
        fills_gaps: false,
        copy_back: false,
        config: config(),
        ecc_bits: 32,
        endurance: 10_000,
        factory_bad: Vec::new(),
        sources: [
            (
                "channels",
                "not in the text of [MixSL]: as in the device that it compares with",
            ),
            ("packages_per_channel", "as channels"),
            (
                "planes_per_package",
                "K9GAG08U0M: two planes a die; two dies make 4 GB",
            ),
            ("blocks_per_plane", "[MixSL] §5.1: 32 GB"),
            ("pages_per_block", "K9GAG08U0M: 512 KB blocks"),
            (
                "page_bytes",
                "K9GAG08U0M; [MixSL] §5.2: larger than the SLC device's",
            ),
            ("spare_bytes", "K9GAG08U0M"),
            ("cell", "[MixSL] §5.1"),
            ("partial_programs", "[MixSL] §2.1: none on MLC"),
            ("strict_order", "K9GAG08U0M: ascending order only"),
            (
                "read_us",
                "K9GAG08U0M: 60 us, and 4,224 bytes at 25 ns, as the 80 us of the SLC device contain",
            ),
            ("program_us", "K9GAG08U0M: 800 us typical, and the same bytes"),
            ("reprogram_us", "never used: MLC pages are programmed once"),
            ("erase_us", "K9GAG08U0M: 1.5 ms typical"),
            ("transfer_ns_per_byte", FLAT),
            ("over_provision", "[MixSL] §5.1: a tenth of the blocks"),
            ("gc_threshold", "[MixSL] §5.1: five percent"),
            ("victims", "[MixSL] §5.1: wear-aware"),
            ("wear_margin", OUR_CHOICE),
            ("static_wear_gap", OUR_CHOICE),
            ("summary_pages", OUR_CHOICE),
            ("ecc_bits", "K9GAG08U0M: four bits in 512 bytes"),
            ("endurance", "[MixSL] §2.1: about 10,000 erases"),
            ("factory_bad", NO_BAD),
        ]
        .into(),
    }
}

fn lighttx() -> DeviceSpec {
    DeviceSpec {
        name: "lighttx".into(),
        about: "32 GB SLC device of [LightTx], 4 KB pages".into(),
        geometry: Geometry {
            channels: 8,
            packages_per_channel: 1,
            planes_per_package: 8,
            blocks_per_plane: 2048,
            pages_per_block: 64,
            page_bytes: 4096,
            spare_bytes: 128,
            cell: SLC,
            strict_order: false,
        },
        timing: timing(25, 200, 1500),
        fills_gaps: false,
        copy_back: false,
        config: config(),
        ecc_bits: 8,
        endurance: 100_000,
        factory_bad: Vec::new(),
        sources: [
            (
                "channels",
                "[LightTx] Table 2: 8 packages; one on each channel",
            ),
            ("packages_per_channel", "not in the paper: one"),
            ("planes_per_package", "[LightTx] Table 2"),
            ("blocks_per_plane", "[LightTx] Table 2: 32 GB in all"),
            ("pages_per_block", "[LightTx] Table 2"),
            ("page_bytes", "[LightTx] Table 2"),
            ("spare_bytes", "K9F8G08UXM, the paper's part"),
            ("cell", "K9F8G08UXM, the paper's part"),
            ("partial_programs", PARTIAL),
            ("strict_order", ANY_ORDER),
            ("read_us", "[LightTx] Table 2"),
            ("program_us", "[LightTx] Table 2"),
            (
                "reprogram_us",
                "not in the paper: as a program, [FlagCommit] Table 2",
            ),
            ("erase_us", "[LightTx] Table 2"),
            ("transfer_ns_per_byte", FLAT),
            (
                "over_provision",
                "not in the paper: a tenth, as in [FlagCommit] §5.1",
            ),
            ("gc_threshold", "[LightTx] Table 2"),
            (
                "victims",
                "[LightTx] §4.1: the simulator's default, which is wear-aware",
            ),
            ("wear_margin", OUR_CHOICE),
            ("static_wear_gap", OUR_CHOICE),
            ("summary_pages", OUR_CHOICE),
            ("ecc_bits", "K9F8G08UXM: one bit in 512 bytes"),
            ("endurance", "K9F8G08UXM: 100,000 erases"),
            ("factory_bad", NO_BAD),
        ]
        .into(),
    }
}

fn lazybtree() -> DeviceSpec {
    let mut spec = flagcommit_slc();
    spec.name = "lazybtree".into();
    spec.about = "2 GB SLC chip of [LazyBtree], one operation at a time".into();
    spec.geometry.channels = 1;
    spec.geometry.planes_per_package = 1;
    spec.geometry.blocks_per_plane = 16_384;
    spec.sources.extend([
        (
            "channels",
            "[LazyBtree] §5.1 adds latencies up: nothing runs side by side",
        ),
        ("packages_per_channel", "as channels"),
        ("planes_per_package", "as channels"),
        ("blocks_per_plane", "[LazyBtree] §5.1: 2 GB"),
        ("pages_per_block", "[LazyBtree] Table 2: 128 KB blocks"),
        ("page_bytes", "[LazyBtree] Table 2"),
        ("spare_bytes", "K9WAG08U1A, the paper's part"),
        ("cell", "K9WAG08U1A, the paper's part"),
        ("read_us", "[LazyBtree] Table 1"),
        ("program_us", "[LazyBtree] Table 1"),
        (
            "reprogram_us",
            "not in the paper: as a program, [FlagCommit] Table 2",
        ),
        ("erase_us", "[LazyBtree] Table 1"),
        (
            "over_provision",
            "not in the paper: a tenth, as in [FlagCommit] §5.1",
        ),
        ("gc_threshold", "not in the paper: as in [FlagCommit] §5.1"),
        ("victims", "not in the paper: as in [FlagCommit] §5.1"),
    ]);
    spec
}

/// Both SSDs of [SAL] are behind a controller that this model does not have: what it hides
/// (compression, a buffer, block mapping) is not there.
fn sal_low_end() -> DeviceSpec {
    let mut spec = mixsl_mlc();
    spec.name = "sal-low-end".into();
    spec.about = "64 GB SSD of 2008 after the OCZ Core of [SAL] §4.1, MLC".into();
    spec.geometry.channels = 4;
    spec.geometry.planes_per_package = 4;
    spec.geometry.blocks_per_plane = 8192;
    spec.timing = Timing {
        transfer_ps_per_byte: 25_000,
        ..timing(60, 800, 1500)
    };
    spec.sources.extend([
        (
            "channels",
            "assumed: four, which transfers 160 MB/s; the maker says 120 to 143 read",
        ),
        ("packages_per_channel", "assumed: one"),
        (
            "planes_per_package",
            "assumed: four, so that 16 programs side by side give 82 MB/s; the maker says 80 to 93",
        ),
        ("blocks_per_plane", "[SAL] §4.1: 64 GB"),
        (
            "pages_per_block",
            "K9GAG08U0M, assumed: MLC chips of the same maker and time",
        ),
        ("page_bytes", "[SAL] §4.1: 4 KB"),
        ("spare_bytes", "K9GAG08U0M"),
        ("cell", "assumed: MLC, as the price said"),
        ("read_us", "K9GAG08U0M: 60 us at most"),
        (
            "program_us",
            "K9GAG08U0M: 800 us typical; w/n follows from the planes and channels",
        ),
        (
            "transfer_ns_per_byte",
            "assumed: 25, chips with a bus of 40 MB/s",
        ),
        ("over_provision", "not in the paper: a tenth"),
        ("gc_threshold", "not in the paper: as in [FlagCommit] §5.1"),
        ("victims", "not in the paper: as in [FlagCommit] §5.1"),
        ("endurance", "K9GAG08U0M: about 10,000 erases"),
    ]);
    spec
}

fn sal_high_end() -> DeviceSpec {
    let mut spec = sal_low_end();
    spec.name = "sal-high-end".into();
    spec.about = "256 GB SSD of 2012 after the Intel 520 of [SAL] §4.1".into();
    spec.geometry.channels = 8;
    spec.geometry.planes_per_package = 2;
    spec.geometry.blocks_per_plane = 32_768;
    spec.timing = Timing {
        transfer_ps_per_byte: 16_000,
        ..timing(14, 19, 1500)
    };
    spec.sources.extend([
        (
            "channels",
            "SF-2281, the drive's controller: eight of 62.5 MB/s",
        ),
        (
            "planes_per_package",
            "assumed: two, so that programs hide behind transfers",
        ),
        (
            "blocks_per_plane",
            "sixteen chips of 16 GB, of which the drive offers 240",
        ),
        ("pages_per_block", "assumed: as in the low-end device"),
        ("spare_bytes", "assumed: as in the low-end device"),
        ("cell", "25 nm MLC"),
        (
            "read_us",
            "product specification: 80 us a read, the transfer included",
        ),
        (
            "program_us",
            "product specification: 85 us a write, the transfer included; buffer and compression \
             of the controller are inside this number",
        ),
        (
            "transfer_ns_per_byte",
            "SF-2281: 62.5 MB/s a channel, 500 MB/s in all",
        ),
        (
            "over_provision",
            "not in the paper: a tenth; 240 of 256 GB is less",
        ),
        ("endurance", "assumed: as in the low-end device"),
    ]);
    spec
}

fn small() -> DeviceSpec {
    let mut spec = lighttx();
    spec.name = "small".into();
    spec.about = "1 GB with the chips of [LightTx], for quick runs".into();
    spec.geometry.planes_per_package = 2;
    spec.geometry.blocks_per_plane = 256;
    spec.geometry.cell = Cell::Slc {
        partial_programs: 4,
    };
    spec.sources.extend([
        (
            "planes_per_package",
            "two instead of eight, to keep blocks a plane in proportion",
        ),
        ("blocks_per_plane", "1 GB in all"),
        (
            "partial_programs",
            "a page and three flags, so that cfc-ex and afc-ex run on it as well",
        ),
    ]);
    spec
}
