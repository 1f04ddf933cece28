//! The keys of the command line, and their combinations.

use crate::service::Timed;
use crate::simulated::Simulated;
use flagstone::commit::Kind;
use flagstone_lab::device::DeviceSpec;
use flagstone_lab::no_such;
use flagstone_store::{KeySource, OpenOptions, PageStore, Pages, StoreError, Volume, can_be_size};
use std::path::{Path, PathBuf};

/// The description of the keys in `nbdkit --help`.
pub(crate) const HELP: &str = "\
file=PATH         The store with the disk. It is created if it is missing.
size=SIZE         Size of a new disk in bytes, such as 512M or 1G.
create=force      Overwrites existing data with a new disk: a file that is
                  not empty and not a store, or a block device.
device=NAME       Instead of a file: a simulated device, in memory. A preset
                  or a TOML file; `flagstone device list` prints them.
timing=on         Requests take as long as on that device.
protocol=NAME     The commit protocol of a new store or a device (default seal).
reserve=on        Allocates at once all space that the disk can ever need.
transaction=SIZE  Maximum of unflushed bytes before a commit (default 64M).
key-file=PATH     The file with the key of an encrypted store: 32 bytes, or
                  64 hexadecimal digits. A new store is encrypted with it.
key-env=NAME      The environment variable with that key in hexadecimal.";

const KEYS: [&str; 10] = [
    "file",
    "size",
    "create",
    "device",
    "timing",
    "protocol",
    "reserve",
    "transaction",
    "key-file",
    "key-env",
];

/// The settings of the plugin, from the command line.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Settings {
    file: Option<PathBuf>,
    size: Option<u64>,
    /// Whether a new disk may overwrite existing data.
    force: Option<bool>,
    device: Option<String>,
    timing: Option<bool>,
    protocol: Option<Kind>,
    reserve: Option<bool>,
    transaction: Option<u64>,
    key_file: Option<PathBuf>,
    key_env: Option<String>,
}

/// Parses a size such as `512M`.
fn size_of(key: &str, text: &str) -> Result<u64, String> {
    let wrong = || format!("{key}={text} is not a size: use bytes, or a number with K, M, G or T");
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KIB" => 10,
        "M" | "MIB" => 20,
        "G" | "GIB" => 30,
        "T" | "TIB" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number
        .checked_mul(1 << shift)
        .filter(|&bytes| bytes > 0)
        .ok_or_else(wrong)
}

/// Parses a switch such as `on`.
fn switch_of(key: &str, text: &str) -> Result<bool, String> {
    match text {
        "on" | "true" | "yes" | "1" => Ok(true),
        "off" | "false" | "no" | "0" => Ok(false),
        _ => Err(format!("{key}={text}: use on or off")),
    }
}

impl Settings {
    /// Sets a key.
    pub(crate) fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let is_new = match key {
            "file" | "key-file" => {
                // nbdkit changes its working directory when it goes to the background.
                let path = std::path::absolute(value);
                let path = path.map_err(|error| format!("{key}={value}: {error}"))?;
                let place = match key {
                    "file" => &mut self.file,
                    _ => &mut self.key_file,
                };
                place.replace(path).is_none()
            }
            "key-env" => self.key_env.replace(value.into()).is_none(),
            "size" => self.size.replace(size_of(key, value)?).is_none(),
            "create" => match value {
                "force" => self.force.replace(true).is_none(),
                _ => return Err(format!("create={value}: use force")),
            },
            "device" => {
                let is_path = value.contains('/') || value.ends_with(".toml");
                let path = is_path.then(|| std::path::absolute(value).ok()).flatten();
                let name = path.map_or(value.into(), |path| path.to_string_lossy().into_owned());
                self.device.replace(name).is_none()
            }
            "timing" => self.timing.replace(switch_of(key, value)?).is_none(),
            "reserve" => self.reserve.replace(switch_of(key, value)?).is_none(),
            "protocol" => {
                let kind = Kind::by_name(value).ok_or_else(|| {
                    let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.info().name).collect();
                    no_such("protocol", value, &names)
                })?;
                self.protocol.replace(kind).is_none()
            }
            "transaction" => self.transaction.replace(size_of(key, value)?).is_none(),
            _ => return Err(no_such("key", key, &KEYS)),
        };
        if is_new {
            Ok(())
        } else {
            Err(format!("{key}= is given twice"))
        }
    }

    /// Checks that the keys can be combined.
    pub(crate) fn check(&self) -> Result<(), String> {
        let key = self.key().map_err(|error| error.to_string())?;
        match (&self.file, &self.device) {
            (None, None) => Err("no disk to serve: give file=PATH or device=NAME".into()),
            (Some(_), Some(_)) => {
                Err("file= and device= exclude each other: give one of them".into())
            }
            (Some(_), None) if self.timing.is_some() => {
                Err("timing= works only with device=: add device=, or leave timing= out".into())
            }
            (Some(_), None) if self.force.is_some() && self.size.is_none() => {
                Err("create= works only with size=: add size=, or leave create= out".into())
            }
            (None, Some(_)) if self.force.is_some() => Err(
                "create= does not work with device=, which is always new: leave create= out".into(),
            ),
            (None, Some(_)) if self.reserve.is_some() => {
                Err("reserve= does not work with device=: leave reserve= out".into())
            }
            (None, Some(_)) if key.is_some() => Err(
                "key-file= and key-env= do not work with device=: use file=, or leave the key \
                     out"
                .into(),
            ),
            (None, Some(_)) if self.size.is_none() => {
                Err("device= needs size=, the size of the disk in bytes".into())
            }
            _ => Ok(()),
        }
    }

    /// The source of the store's key.
    fn key(&self) -> Result<Option<KeySource>, StoreError> {
        let names = ["key-file=", "key-env="];
        KeySource::one_of(self.key_file.as_deref(), self.key_env.as_deref(), names)
    }

    /// Opens or creates the disk with these settings, and closes it, to find errors early.
    pub(crate) fn try_out(&self) -> Result<(), String> {
        let Some(path) = &self.file else {
            return self.simulated().map(|_| ());
        };
        if path.exists() {
            match self.open_file(path, true) {
                Ok(_) => return Ok(()),
                // The device may be blank; only opening it for writing can tell.
                Err(StoreError::NotAStore(_)) if self.size.is_some() => {}
                Err(error) => return Err(said(path, &error)),
            }
        }
        let made = self.open_file(path, false).and_then(Volume::close);
        made.map_err(|error| said(path, &error))
    }

    /// Whether requests take simulated time.
    pub(crate) fn takes_time(&self) -> bool {
        self.timing == Some(true)
    }

    fn bounded<P: Pages>(&self, mut disk: Volume<P>) -> Volume<P> {
        if let Some(bytes) = self.transaction {
            disk.set_transaction_bytes(bytes);
        }
        disk
    }

    /// Opens the disk in a file, or creates it.
    fn open_file(&self, path: &Path, readonly: bool) -> Result<Volume<PageStore>, StoreError> {
        let is_there = path.exists();
        if !is_there && self.size.is_none() {
            return Err(StoreError::NotAStore(
                "the file does not exist: to create a disk, give its size, such as size=1G".into(),
            ));
        }
        let mut options = OpenOptions::default();
        if let Some(protocol) = self.protocol {
            options = options.with_protocol(protocol);
        }
        options.create = self.size.is_some();
        options.force = self.force == Some(true);
        if readonly {
            options = options.reading();
        }
        let options = options.with_key_from(self.key()?.as_ref())?;
        // Checked before a file is created.
        self.size.map_or(Ok(()), can_be_size)?;
        let store = PageStore::open(path, &options)?;
        let has = store.info().protocol;
        if let Some(wanted) = self.protocol.filter(|&wanted| wanted != has) {
            return Err(StoreError::Options(format!(
                "the store has the protocol {has}, not {wanted}: leave protocol= out"
            )));
        }
        let is_blank = store.highest().is_none();
        let mut disk = match self.size {
            Some(size) if is_blank && !readonly => Volume::create(store, size)?,
            Some(_) if is_blank => {
                return Err(StoreError::NotAStore("the store holds no disk".into()));
            }
            _ => Volume::open(store)?,
        };
        if self.reserve == Some(true) && !readonly {
            disk.reserve()?;
        }
        match self.size.filter(|&wanted| wanted != disk.size()) {
            None => Ok(self.bounded(disk)),
            Some(wanted) => Err(StoreError::Options(format!(
                "the disk has {} bytes, not size={wanted}, and cannot change its size: leave size= \
                 out",
                disk.size()
            ))),
        }
    }

    /// A blank disk on a simulated device.
    fn simulated(&self) -> Result<Volume<Simulated>, String> {
        let name = self.device.as_deref().unwrap_or_default();
        let spec = DeviceSpec::load(name).map_err(|error| error.to_string())?;
        let pages = Simulated::new(&spec, self.protocol.unwrap_or(Kind::Seal))?;
        let size = self.size.unwrap_or_default();
        let disk = Volume::create(pages, size).map_err(|error| error.to_string())?;
        Ok(self.bounded(disk))
    }

    /// Opens and serves the disk.
    pub(crate) fn open(&self, readonly: bool, serve: impl Serve) -> Result<(), String> {
        match &self.file {
            Some(path) => {
                let disk = self.open_file(path, readonly);
                serve.serve(disk.map_err(|error| said(path, &error))?)
            }
            None => serve.serve(self.simulated()?),
        }
    }
}

/// Receives the opened disk. The disk may be a store or a simulated device.
pub(crate) trait Serve {
    /// Serves the disk.
    fn serve<P: Pages + Timed>(self, disk: Volume<P>) -> Result<(), String>;
}

fn said(path: &Path, error: &StoreError) -> String {
    let (text, path) = (error.to_string(), path.display().to_string());
    if text.contains(&path) {
        text
    } else {
        format!("{path}: {text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(keys: &[(&str, &str)]) -> Result<Settings, String> {
        let mut settings = Settings::default();
        for (key, value) in keys {
            settings.set(key, value)?;
        }
        settings.check().map(|()| settings)
    }

    #[test]
    fn what_is_wrong_with_keys_is_said() {
        let cases: [(&[(&str, &str)], &str); 18] = [
            (&[], "give file=PATH or device=NAME"),
            (&[("fil", "x")], "did you mean `file`"),
            (&[("file", "x"), ("device", "small")], "exclude each other"),
            (&[("file", "x"), ("file", "y")], "file= is given twice"),
            (
                &[("file", "x"), ("timing", "on")],
                "timing= works only with device=",
            ),
            (&[("device", "small")], "needs size="),
            (
                &[("file", "x"), ("key-file", "k"), ("key-env", "K")],
                "key-file= and key-env= are two keys",
            ),
            (
                &[("device", "small"), ("size", "1M"), ("key-env", "K")],
                "key-file= and key-env= do not work with device=",
            ),
            (&[("timing", "maybe")], "use on or off"),
            (&[("reserve", "maybe")], "use on or off"),
            (&[("create", "on")], "use force"),
            (&[("file", "x"), ("create", "force")], "add size="),
            (
                &[("device", "small"), ("size", "1M"), ("create", "force")],
                "always new",
            ),
            (
                &[("device", "small"), ("size", "1M"), ("reserve", "on")],
                "reserve= does not work with device=",
            ),
            (&[("size", "1Q")], "size=1Q is not a size"),
            (&[("size", "0")], "is not a size"),
            (&[("transaction", "99999999999T")], "is not a size"),
            (&[("protocol", "seel")], "did you mean `seal`"),
        ];
        for (keys, expected) in cases {
            let why = with(keys).expect_err(expected);
            assert!(why.contains(expected), "{keys:?}: {why}");
        }
        let bytes = |text| size_of("size", text).expect("a size");
        assert_eq!(bytes("4096"), 4096);
        assert_eq!(
            (bytes("3k"), bytes("2GiB"), bytes("1T")),
            (3072, 2 << 30, 1 << 40)
        );
    }

    /// An image of a file system that begins with zeros.
    #[test]
    fn a_disk_takes_the_place_of_nothing_unasked() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("other.img");
        let name = path.to_str().expect("text");
        let mut image = vec![0; 100_000];
        image[0x8001..0x8006].copy_from_slice(b"CD001");
        std::fs::write(&path, &image).expect("room");
        let keys = [("file", name), ("size", "1M"), ("create", "force")];
        for keys in [&keys[..1], &keys[..2]] {
            let why = with(keys).expect("they go together").try_out();
            let why = why.expect_err("it is no store");
            assert!(why.contains("not a Flagstone store"), "{why}");
            assert!(std::fs::read(&path).expect("it can be read") == image);
        }
        let forced = with(&keys).expect("they go together");
        forced.try_out().expect("it is given up");
        // An existing disk is kept.
        let disk = forced.open_file(&path, false).expect("a disk");
        assert_eq!(disk.size(), 1 << 20);
    }

    #[test]
    fn a_disk_keeps_its_size_and_its_protocol() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk.flag");
        let path = path.to_str().expect("it is text");
        let tried = |more: &[(&str, &str)]| {
            let keys: Vec<_> = [&[("file", path)], more].concat();
            with(&keys).and_then(|settings| settings.try_out())
        };
        let why = tried(&[]).expect_err("there is none");
        assert!(why.contains("size=1G") && why.contains(path), "{why}");
        tried(&[("size", "1M"), ("protocol", "scc")]).expect("it is made");
        tried(&[]).expect("it is there");
        tried(&[("size", "1024K")]).expect("that is its size");
        let why = tried(&[("size", "2M")]).expect_err("another size");
        assert!(why.contains("has 1048576 bytes, not size="), "{why}");
        let why = tried(&[("protocol", "seal")]).expect_err("another protocol");
        assert!(why.contains("has the protocol scc"), "{why}");
        let bytes = || std::fs::metadata(path).expect("a file").len();
        tried(&[("reserve", "off")]).expect("it is there");
        let before = bytes();
        std::fs::remove_file(path).expect("it was there");
        tried(&[("size", "32M"), ("reserve", "on")]).expect("it is made");
        assert!(before < 16 << 20 && bytes() > 32 << 20, "{}", bytes());
        std::fs::write(path, b"something else").expect("a file");
        let why = tried(&[("size", "1M")]).expect_err("it is no store");
        assert!(why.contains("not a Flagstone store"), "{why}");
    }

    #[test]
    fn a_disk_is_encrypted_where_there_is_a_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
        let (disk, key, other) = (path("disk.flag"), path("key"), path("other"));
        std::fs::write(&key, "0b".repeat(32)).expect("a file");
        std::fs::write(&other, "0c".repeat(32)).expect("a file");
        let tried = |keys: &[(&str, &str)]| {
            let all = [&[("file", &disk[..])], keys].concat();
            with(&all).and_then(|settings| settings.try_out())
        };
        let made = tried(&[("size", "1M"), ("key-file", &key)]);
        if !cfg!(feature = "encryption") {
            let why = made.expect_err("there is no encryption");
            assert!(why.contains("built without encryption"), "{why}");
            assert!(
                !std::fs::exists(&disk).expect("a folder"),
                "nothing was made"
            );
            return;
        }
        made.expect("it is made");
        tried(&[("key-file", &key)]).expect("it opens");
        let none = path("none");
        for (keys, expected) in [
            (&[][..], "is encrypted"),
            (&[("key-file", &other[..])], "not the key"),
            (&[("key-file", &none)], "the key file"),
            (
                &[("key-env", "NO_SUCH_VARIABLE")],
                "the variable NO_SUCH_VARIABLE",
            ),
        ] {
            let why = tried(keys).expect_err(expected);
            assert!(why.contains(expected), "{keys:?}: {why}");
        }
    }

    /// In the background nbdkit has another working directory, where the store was once created.
    #[test]
    fn paths_mean_what_they_meant_when_they_were_given() {
        let settings = with(&[("file", "disk.flag")]).expect("keys");
        let path = settings.file.expect("it was given");
        assert!(
            path.is_absolute() && path.ends_with("disk.flag"),
            "{path:?}"
        );
        let device = with(&[("device", "my.toml"), ("size", "1M")])
            .expect("keys")
            .device;
        assert!(device.is_some_and(|name| name.starts_with('/')));
        let device = with(&[("device", "small"), ("size", "1M")])
            .expect("keys")
            .device;
        assert_eq!(device.as_deref(), Some("small"));
    }

    #[test]
    fn simulated_devices_are_looked_for_by_name_and_size() {
        let tried = |keys: &[(&str, &str)]| with(keys).and_then(|settings| settings.try_out());
        let why = tried(&[("device", "smal"), ("size", "1M")]).expect_err("no such device");
        assert!(why.contains("did you mean `small`"), "{why}");
        let why = tried(&[("device", "small"), ("size", "9G")]).expect_err("too large");
        assert!(why.contains("use at most"), "{why}");
        let plain = [("device", "small"), ("size", "1M"), ("protocol", "plain")];
        let why = tried(&plain).expect_err("not atomic");
        assert!(why.contains("another protocol"), "{why}");
        tried(&[("device", "small"), ("size", "1M")]).expect("it can be served");
    }
}
