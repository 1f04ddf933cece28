//! Settings and description of SAL-hashing.

use crate::{IndexError, IndexInfo, Result, Settings};
use flagstone::settings::settings;

pub(crate) const INFO: IndexInfo = IndexInfo {
    name: "sal",
    idea: "linear hashing by groups that are written as a whole, with log regions merged on \
           searches",
    paper: "[SAL]",
    ordered: false,
    buffers: true,
    settings: settings! {
        load_factor: "0.75",
            "load factor at which a group is added, 0.1 to 1.0: records per slot of the buckets";
        group: "16", "buckets per group, a power of two from 1 to 256";
        batch: "1024", "maximum number of groups whose pages are allocated consecutively, a power \
                        of two";
        false_positive: "0.01", "false positive rate of a Bloom filter, 0.0001 to 0.5";
        log_buffer: "0.0625", "initial share of the memory for the log buffer";
        log_buffer_max: "0.15", "maximum share of the memory for the log buffer";
        ut: "0.5", "U_t: maximum page writes per change where searches cause merges";
        alpha: "0.5", "maximum cost of flushes, as a share of U_t";
        pt: "0.2",
            "p_t: a set is not flushed whose log region would outlive its searches with less";
        speedup: "0", "n: cost of a page in a single write relative to a coarse write; 0 measures \
                       it";
        write_read: "0", "cost of a write in reads; 0 measures it";
        split: "adaptive",
            "adaptive, lazy (merge full regions only) or eager (split and merge at once, and all \
             log regions at a flush)";
        append: "fill",
            "where flushed logs go: fill (the last page of the region, while they fit) or new-page \
             (always a new one)";
        virtual_split: "true", "whether overflowing buckets are split early";
        resize: "true", "whether the log buffer grows and shrinks";
        period: "256", "number of flushes and merges after which the log buffer may shrink";
        seed: "1", "seed of the random decisions";
    },
    tiny: &[
        ("group", "2"),
        ("batch", "4"),
        ("log_buffer", "0.125"),
        ("log_buffer_max", "0.5"),
        ("period", "8"),
    ],
    costs: [
        "1 read; 2 + s f if the set has a log region",
        "2 programs and 2 reads for the logs of a set together",
        "g + s + 1 reads and g programs per group, each group in one request",
    ],
};

/// When sets split and merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Split {
    Adaptive,
    Lazy,
    Eager,
}

/// Settings chosen by the user.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    pub(super) load_factor: f64,
    /// Binary logarithm of the number of buckets per group.
    pub(super) group_bits: u32,
    /// Maximum number of groups per batch, a power of two.
    pub(super) batch: u32,
    pub(super) false_positive: f64,
    pub(super) split: Split,
    /// Whether flushed logs are added to the last page of a region while they fit.
    pub(super) fills: bool,
    pub(super) virtual_split: bool,
}

impl Options {
    /// Parses the settings.
    pub(super) fn new(settings: &Settings) -> Result<Options> {
        let power = |name: &str, most: u32| -> Result<u32> {
            let number: u32 = settings.number(&INFO, name, 1, most)?;
            if !number.is_power_of_two() {
                return Err(IndexError::Settings(format!(
                    "{name} of sal is {number}: use a power of two"
                )));
            }
            Ok(number)
        };
        let words = [
            ("adaptive", Split::Adaptive),
            ("lazy", Split::Lazy),
            ("eager", Split::Eager),
        ];
        let appends = [("fill", true), ("new-page", false)];
        Ok(Options {
            load_factor: settings.number(&INFO, "load_factor", 0.1, 1.0)?,
            group_bits: power("group", 256)?.trailing_zeros(),
            batch: power("batch", 1 << 20)?.max(2),
            false_positive: settings.number(&INFO, "false_positive", 0.0001, 0.5)?,
            split: settings.choice(&INFO, "split", &words)?,
            fills: settings.choice(&INFO, "append", &appends)?,
            virtual_split: settings.flag(&INFO, "virtual_split")?,
        })
    }
}
