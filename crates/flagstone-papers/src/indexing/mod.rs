//! Indexes under a workload, in virtual time: page reads and writes, time, and memory.
//!
//! ```text
//!   workload what is loaded, and windows of operations      A..H, ycsb-a..f, lazy-…
//!   keys     which keys there are                           uniform, names, ascending
//!   draw     operations from a seed
//!   place    the simulated device, memory, or a file
//!   Bench    loads, warms up, measures each window          -> IndexRecord
//! ```
//!
//! One client makes one request after another. A wrong answer, such as a lost key, ends the run.
//!
//! ```
//! use flagstone_index::{IndexKind, Settings};
//! use flagstone_papers::indexing::{Bench, BenchOptions, KeyWorkload, Place};
//!
//! let options = BenchOptions { records: 1_000, ..BenchOptions::default() };
//! let bench = Bench {
//!     index: IndexKind::Linear,
//!     settings: Settings::new(),
//!     load: None,
//!     place: Place::Mem { page_bytes: 4096 },
//!     workload: KeyWorkload::new("ycsb-a", &options)?,
//!     seed: 1,
//! };
//! let record = bench.run(&|_, _| ())?;
//! assert_eq!((record.loaded, record.windows.len()), (1_000, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod draw;
mod keys;
mod place;
mod workload;
mod record;

pub use draw::{Draw, Operation};
pub use keys::{KeyKind, Keys};
pub use place::Place;
pub use record::{IndexRecord, Window};
pub use workload::{BenchOptions, KeyChoice, KeyWorkload, LoadOrder, Mix, WORKLOADS, WindowSpec};

use flagstone::units::Nanos;
use flagstone_index::{BackingStore, Index, IndexError, IndexKind, Key, MemStore, Settings, Value};
use flagstone_lab::stop;
use flagstone_lab::stopwatch::Stopwatch;

/// An index, its storage, and its workload.
#[derive(Debug, Clone)]
pub struct Bench {
    /// The index.
    pub index: IndexKind,
    /// Its settings.
    pub settings: Settings,
    /// Settings for loading, if the normal ones would be slow and give the same pages. After
    /// loading, the index is closed and reopened with its normal settings.
    pub load: Option<Settings>,
    /// Where it is stored.
    pub place: Place,
    /// The workload.
    pub workload: KeyWorkload,
    /// Seed of keys and operations.
    pub seed: u64,
}

/// Why a benchmark of an index failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The configuration cannot be measured.
    #[error("{0}")]
    Setup(String),
    /// The index failed.
    #[error("{index}, after {operations} operations: {source}")]
    Index {
        /// The index.
        index: &'static str,
        /// Number of operations before the failure.
        operations: u64,
        /// The cause.
        source: IndexError,
    },
    /// The index gave a wrong answer.
    #[error(
        "{index} does not find key {key} after {operations} operations, although it was \
             inserted"
    )]
    Lost {
        /// The index.
        index: &'static str,
        /// Number of operations before the wrong answer.
        operations: u64,
        /// The key.
        key: Key,
    },
}

/// Number of operations between progress reports.
const REPORT: u64 = 4096;

/// Number of operations drawn in advance, so that a window's processor time is that of the index.
/// Large, because the system's thread clock advances in steps of a few milliseconds.
const DRAWN: usize = 1 << 20;

/// Restores a file to its state before a run, if the run fails or is stopped.
struct Restore<'a> {
    place: &'a Place,
    before: Option<u64>,
    is_written: bool,
}

impl Drop for Restore<'_> {
    fn drop(&mut self) {
        if self.is_written {
            self.place.restore(self.before);
        }
    }
}

impl Bench {
    /// Loads the index and measures the windows. `progress` receives the number of operations done,
    /// and the total.
    ///
    /// # Errors
    /// Invalid settings, a full store, or an index that loses a key.
    pub fn run(&self, progress: &dyn Fn(u64, u64)) -> Result<IndexRecord, BenchError> {
        let info = self.index.info();
        let value_bytes = info.value_bytes(&self.settings);
        let value_bytes = value_bytes.map_err(|error| BenchError::Setup(error.to_string()))?;
        let scans = self.workload.windows.iter().any(|spec| spec.mix.scan > 0.0);
        if scans && !info.ordered {
            let error = IndexError::Unordered(info.name);
            return Err(BenchError::Setup(format!(
                "{}: {error}",
                self.workload.name
            )));
        }
        self.check_memory()?;
        let mut unless_done = Restore {
            place: &self.place,
            before: self.place.found(),
            is_written: false,
        };
        let store = self.place.open(self.most_pages(value_bytes));
        let store = store.map_err(BenchError::Setup)?;
        unless_done.is_written = true;
        let measured = self.measure(store, value_bytes, progress);
        unless_done.is_written = measured.is_err();
        measured
    }

    /// Loads the index into `store`, warms it up, and measures the windows in sequence.
    fn measure(
        &self,
        store: Box<dyn BackingStore>,
        value_bytes: usize,
        progress: &dyn Fn(u64, u64),
    ) -> Result<IndexRecord, BenchError> {
        let info = self.index.info();
        let refused = |error: IndexError| BenchError::Setup(error.to_string());
        let settings = self.load.as_ref().unwrap_or(&self.settings);
        let opened = self.index.open(store, settings, Nanos::ZERO);
        let (index, now) = opened.map_err(refused)?;
        let operations: u64 = self
            .workload
            .windows
            .iter()
            .map(|spec| spec.operations)
            .sum();
        let mut client = Client {
            name: info.name,
            index,
            now,
            done: 0,
            all: self.workload.load + self.workload.warm_up + operations,
            found: Vec::new(),
            progress,
        };
        let clock = Stopwatch::start();
        let mut draw = Draw::new(&self.workload, value_bytes, self.seed);
        client.load(&self.workload, &mut draw)?;
        if self.load.is_some() {
            client = client.reopened(self)?;
        }
        draw.sort_by_place(&self.workload, info);
        if let (Some(first), true) = (self.workload.windows.first(), self.workload.warm_up > 0) {
            let warm_up = WindowSpec {
                operations: self.workload.warm_up,
                ..first.clone()
            };
            for operation in draw.window(&warm_up) {
                client.make(operation)?;
            }
        }
        let load_s = clock.seconds();
        let mut windows = Vec::new();
        for spec in &self.workload.windows {
            client.index.reset_stats();
            let begun = client.now;
            let mut cpu_s = 0.0;
            let mut window = draw.window(spec).peekable();
            while window.peek().is_some() {
                // Drawing is not part of the measured time.
                let drawn: Vec<Operation> = window.by_ref().take(DRAWN).collect();
                let clock = Stopwatch::start();
                drawn
                    .into_iter()
                    .try_for_each(|operation| client.make(operation))?;
                cpu_s += clock.seconds();
            }
            if spec.flush {
                let clock = Stopwatch::start();
                client.flush()?;
                cpu_s += clock.seconds();
            }
            let virtual_ns = client.now.0 - begun.0;
            windows.push(Window::of(spec, client.index.as_ref(), virtual_ns, cpu_s));
        }
        Ok(IndexRecord::new(
            self,
            draw.present().len() as u64,
            load_s,
            windows,
        ))
    }
}

impl Bench {
    /// Checks the memory setting before a file is created: an index without memory takes its
    /// minimum, which may exceed the setting.
    fn check_memory(&self) -> Result<(), BenchError> {
        let (info, page_bytes) = (self.index.info(), self.place.page_bytes());
        let given = info.memory(&self.settings);
        let given = given.map_err(|error| BenchError::Setup(error.to_string()))?;
        let store = Box::new(MemStore::new(page_bytes, 1 << 16));
        let nothing = self.settings.clone().with("memory", 0);
        // If the index refuses, opening it for the run reports its minimum.
        let Ok((index, _)) = self.index.open(store, &nothing, Nanos::ZERO) else {
            return Ok(());
        };
        let least: u64 = index.memory().iter().map(|(_, bytes)| bytes).sum();
        if given >= least {
            return Ok(());
        }
        Err(BenchError::Setup(format!(
            "memory is {given} bytes, and {} on pages of {page_bytes} takes {least} at least: give \
             it that much, or smaller pages",
            info.name
        )))
    }

    /// Maximum number of pages that the index needs in its store.
    fn most_pages(&self, value_bytes: usize) -> u64 {
        let keys = self.workload.most_keys();
        let pair = self.most_bytes("key_bytes", 8) + self.most_bytes("record_bytes", 0);
        // Half-full pages, and as many again for garbage collection.
        let bytes = keys * (pair + value_bytes as u64) * 4;
        let full = bytes.div_ceil(self.place.page_bytes() as u64);
        // With some settings, pages hold less than half of their capacity.
        let emptier = match self.number("load_factor") {
            Some(load) if load > 0.0 => (0.5 / load).max(1.0),
            _ => 1.0,
        };
        let nodes = match self.number("order") {
            // A node has at least this many entries, and each level of inner nodes half of those
            // below.
            Some(order) if order >= 1.0 => 2 * keys.div_ceil(order as u64),
            _ => 0,
        };
        nodes.max((full as f64 * emptier) as u64) + 2048
    }

    /// The value of a setting, if the index has it and it is a number.
    fn number(&self, name: &str) -> Option<f64> {
        let info = self.index.info();
        info.settings.iter().find(|setting| setting.name == name)?;
        self.settings.text(info, name).parse().ok()
    }

    /// The maximum length of an index's byte strings, if it has such a setting.
    fn most_bytes(&self, name: &str, otherwise: u64) -> u64 {
        let info = self.index.info();
        if info.settings.iter().all(|setting| setting.name != name) {
            return otherwise;
        }
        let lengths = self.settings.text(info, name).rsplit("..").next();
        let most = lengths.and_then(|most| most.trim().parse::<u64>().ok());
        // Values that no index accepts are refused when it is opened.
        most.unwrap_or(otherwise).min(1 << 28)
    }
}

/// The client of an index.
struct Client<'a> {
    name: &'static str,
    index: Box<dyn Index>,
    now: Nanos,
    done: u64,
    all: u64,
    found: Vec<(Key, Value)>,
    progress: &'a dyn Fn(u64, u64),
}

impl Client<'_> {
    fn failed(&self, source: IndexError) -> BenchError {
        BenchError::Index {
            index: self.name,
            operations: self.done,
            source,
        }
    }

    /// Loads the initial keys: in the order of their appearance, sorted, or built at once.
    fn load(&mut self, workload: &KeyWorkload, draw: &mut Draw) -> Result<(), BenchError> {
        if workload.load_order == LoadOrder::Appearance {
            return (0..workload.load).try_for_each(|_| self.make(draw.insert()));
        }
        let mut pairs: Vec<(Key, Value)> = (0..workload.load).map(|_| draw.pair()).collect();
        pairs.sort_unstable();
        if workload.load_order == LoadOrder::Keys {
            let insert = |&(key, value): &(Key, Value)| Operation::Insert(key, value);
            return pairs.iter().try_for_each(|pair| self.make(insert(pair)));
        }
        let built = self.index.build(self.now, &pairs);
        self.now = built.map_err(|error| self.failed(error))?;
        self.done += workload.load;
        Ok(())
    }

    /// The same index, closed and reopened with its normal memory.
    fn reopened(mut self, bench: &Bench) -> Result<Self, BenchError> {
        self.flush()?;
        let store = self.index.into_store();
        let opened = bench.index.open(store, &bench.settings, self.now);
        let opened = opened.map_err(|error| BenchError::Setup(error.to_string()))?;
        (self.index, self.now) = opened;
        Ok(self)
    }

    fn flush(&mut self) -> Result<(), BenchError> {
        let flushed = self.index.flush(self.now);
        self.now = flushed.map_err(|error| self.failed(error))?;
        Ok(())
    }

    /// Makes an operation, which begins when the previous one is done. Fails if the index does not
    /// find an existing key.
    fn make(&mut self, operation: Operation) -> Result<(), BenchError> {
        let (index, now) = (&mut self.index, self.now);
        let mut lost = None;
        let done = match operation {
            Operation::Insert(key, value) => index.insert(now, key, value),
            Operation::Update(key, value) => index.update(now, key, value),
            Operation::Delete(key) => index.delete(now, key),
            Operation::Miss(key) => index.get(now, key).map(|(_, done)| done),
            Operation::Search(key) => index.get(now, key).map(|(value, done)| {
                lost = value.is_none().then_some(key);
                done
            }),
            Operation::Modify(key, value) => index.get(now, key).and_then(|(old, done)| {
                lost = old.is_none().then_some(key);
                index.update(done, key, value)
            }),
            Operation::Scan(from, to) => {
                self.found.clear();
                index.range(now, from, to, &mut self.found)
            }
        };
        self.done += 1;
        if self.done.is_multiple_of(REPORT) {
            stop::point();
            (self.progress)(self.done, self.all);
        }
        match (done, lost) {
            (Err(error), _) => Err(self.failed(error)),
            (Ok(_), Some(key)) => Err(BenchError::Lost {
                index: self.name,
                operations: self.done,
                key,
            }),
            (Ok(done), None) => {
                self.now = done;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagstone::commit::{Kind, Options};
    use flagstone_index::FileOptions;
    use flagstone_lab::device::DeviceSpec;

    fn bench(workload: &str, records: u64) -> Bench {
        let options = BenchOptions {
            records,
            ..BenchOptions::default()
        };
        Bench {
            index: IndexKind::Extendible,
            settings: Settings::new().with("memory", 16 * 4096),
            load: None,
            place: Place::Mem { page_bytes: 4096 },
            workload: KeyWorkload::new(workload, &options).unwrap(),
            seed: 1,
        }
    }

    fn sim() -> Place {
        let device = Box::new(DeviceSpec::load("small").unwrap());
        Place::Sim {
            device,
            protocol: Kind::Plain,
            options: Options::default(),
        }
    }

    #[test]
    fn a_search_beyond_the_memory_is_a_page_read_and_takes_its_time() {
        let record = Bench {
            place: sim(),
            ..bench("B", 20_000)
        }
        .run(&|_, _| {})
        .unwrap();
        let last = record.windows.last().unwrap();
        assert_eq!(last.operations, 2500);
        let misses = last.operations as f64 * (1.0 - last.hit_ratio);
        assert!((misses - last.reads as f64).abs() < 1.0, "{last:?}");
        assert_eq!(last.virtual_ns, last.reads * 25_000 + last.writes * 200_000);
        assert!(last.reads > 2000, "{last:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_record_and_memory_takes_no_time() {
        let run = |bench: &Bench| {
            let mut record = bench.run(&|_, _| {}).unwrap();
            record.load_s = 0.0;
            record.windows.iter_mut().for_each(|w| w.cpu_s = 0.0);
            record
        };
        let bench = bench("D", 5000);
        assert_eq!(run(&bench), run(&bench));
        assert_eq!(run(&bench).windows[0].virtual_ns, 0);
        let other = Bench {
            seed: 2,
            ..bench.clone()
        };
        assert_ne!(run(&bench), run(&other));
        // The storage changes the times, and nothing else.
        let on_flash = run(&Bench {
            place: sim(),
            ..bench.clone()
        });
        let counts = |record: &IndexRecord| -> Vec<(u64, u64)> {
            record.windows.iter().map(|w| (w.reads, w.writes)).collect()
        };
        assert_eq!(counts(&on_flash), counts(&run(&bench)));
        assert!(on_flash.windows[0].virtual_ns > 0);
    }

    #[test]
    fn loading_with_more_memory_changes_what_is_read_before_and_not_what_is_there() {
        let small = bench("D", 5000);
        let large = Bench {
            load: Some(Settings::new().with("memory", 1 << 24)),
            ..small.clone()
        };
        let pages = |bench: &Bench| bench.run(&|_, _| {}).unwrap().windows[0].reads;
        let (small, large) = (pages(&small), pages(&large));
        assert!(small.abs_diff(large) <= small / 50, "{small} {large}");
    }

    /// The minimum memory that each index states is enough, and one byte less is not.
    #[test]
    fn a_memory_that_is_too_small_is_refused_with_the_least_there_can_be() {
        for &index in IndexKind::ALL {
            let run = |memory: u64| {
                let mut bench = bench("B", 100);
                bench.index = index;
                bench.settings = Settings::new().with("memory", memory);
                bench.run(&|_, _| {}).map_err(|error| error.to_string())
            };
            let refused = run(10).unwrap_err();
            let numbers = refused.split(|c: char| !c.is_ascii_digit());
            let numbers: Vec<u64> = numbers.filter_map(|word| word.parse().ok()).collect();
            assert_eq!(numbers[..2], [10, 4096], "{refused}");
            let least = numbers[2];
            assert!(least >= 2 * 4096, "{refused}");
            assert!(run(least).is_ok(), "{index}: {:?}", run(least));
            assert!(run(least - 1).is_err(), "{index} with {least} less one");
        }
    }

    #[test]
    fn nodes_of_any_order_and_buckets_of_any_load_have_room() {
        for (index, name, values) in [
            (IndexKind::BPlusTree, "order", ["1", "2", "100"]),
            (IndexKind::LazyBPlusTree, "order", ["1", "2", "100"]),
            (IndexKind::Linear, "load_factor", ["0.1", "0.5", "4"]),
            (IndexKind::LazySplit, "load_factor", ["0.1", "0.5", "4"]),
        ] {
            for value in values {
                for workload in ["A", "ycsb-d"] {
                    let mut bench = bench(workload, 20_000);
                    bench.index = index;
                    bench.settings.set(name, value);
                    if name == "load_factor" && index == IndexKind::Linear {
                        bench.settings.set("contract_below", "0");
                    }
                    let done = bench.run(&|_, _| {});
                    assert!(done.is_ok(), "{index} {name}={value}: {done:?}");
                }
            }
        }
    }

    #[test]
    fn a_run_that_fails_leaves_the_file_as_it_was_found() {
        let name = format!("flagstone-bench-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let options = FileOptions {
            direct: false,
            pages: Some(40),
            ..FileOptions::default()
        };
        let mut bench = bench("A", 20_000);
        bench.place = Place::File {
            path: path.clone(),
            options,
        };
        let full = bench.run(&|_, _| {}).unwrap_err();
        assert!(matches!(full, BenchError::Index { .. }), "{full}");
        assert!(!path.exists());
        std::fs::write(&path, "").expect("a file");
        bench.run(&|_, _| {}).unwrap_err();
        assert_eq!(std::fs::metadata(&path).expect("it is kept").len(), 0);
        // Existing contents are not touched.
        std::fs::write(&path, "mine").expect("a file");
        let refused = bench.run(&|_, _| {}).unwrap_err().to_string();
        assert!(refused.contains("is not empty"), "{refused}");
        assert_eq!(std::fs::read(&path).expect("it is kept"), b"mine");
        std::fs::remove_file(&path).expect("the file");
    }

    #[test]
    fn byte_strings_of_any_length_have_room() {
        let settings = |lengths| {
            let settings = Settings::new().with("memory", 16 * 4096);
            settings
                .with("key_bytes", lengths)
                .with("record_bytes", lengths)
        };
        let pages = |lengths| {
            let record = Bench {
                index: IndexKind::PrefixBPlusTree,
                settings: settings(lengths),
                ..bench("ycsb-e", 5000)
            }
            .run(&|_, _| {})
            .unwrap();
            record.windows[0].figures["pages"]
        };
        assert!(pages("8") * 10.0 < pages("9..500"));
    }

    #[test]
    fn the_order_of_loading_decides_how_full_leaves_are() {
        let run = |load_order: LoadOrder| {
            let mut bench = bench("lazy-query-insert", 20_000);
            bench.index = IndexKind::BPlusTree;
            bench.workload.load_order = load_order;
            let record = bench.run(&|_, _| {}).unwrap();
            (record.records, record.windows[0].figures["splits"])
        };
        let [appearance, keys, packed] = LoadOrder::ALL.map(|(order, _)| run(order));
        // The number of keys is equal. The fuller the leaves, the more of them split.
        assert!((keys.0, packed.0) == (appearance.0, appearance.0));
        assert!(keys.1 < appearance.1 && appearance.1 < packed.1);
        assert!(keys.1 == 0.0 && packed.1 > 50.0, "{keys:?} {packed:?}");
    }

    #[test]
    fn what_cannot_be_run_is_said_before() {
        let error = bench("ycsb-e", 100)
            .run(&|_, _| {})
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("no order") && error.contains("ycsb-e"),
            "{error}"
        );
        let settings = Settings::new().with("memroy", 1);
        let error = Bench {
            settings,
            ..bench("A", 100)
        }
        .run(&|_, _| {})
        .unwrap_err();
        assert!(error.to_string().contains("no setting `memroy`"), "{error}");
    }
}
