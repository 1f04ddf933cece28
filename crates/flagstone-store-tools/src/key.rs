//! Keys of encrypted stores: from a file, an environment variable or a prompt. Never from the
//! command line, which other users of the machine can read.

use crate::ProgramName;
use flagstone_store::{KeySource, OpenOptions, StoreError};
use flagstone_terminal::Failure;
use std::ffi::OsString;
use std::path::PathBuf;

/// The source of an encrypted store's key.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(id = "key_of_store", multiple = false)]
pub(super) struct KeyArgs {
    /// Read the key of an encrypted store from this file: 32 bytes, or 64 hexadecimal digits.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Read the key of an encrypted store from this environment variable: 64 hexadecimal digits.
    #[arg(long, value_name = "NAME")]
    key_env: Option<String>,
    /// Ask for the passphrase of an encrypted store.
    #[arg(long)]
    passphrase: bool,
}

impl KeyArgs {
    /// Adds the key that the arguments name to `options`, if they name one.
    pub(super) fn give_to(
        &self,
        options: OpenOptions,
        program: ProgramName,
    ) -> Result<OpenOptions, Failure> {
        #[cfg(feature = "encryption")]
        {
            let (mut options, _) = (options, program);
            options.key = self.read("passphrase")?;
            Ok(options)
        }
        #[cfg(not(feature = "encryption"))]
        if self.is_some() {
            Err(no_encryption(program))
        } else {
            Ok(options)
        }
    }

    /// Adds a key for a new store to `options`.
    pub(super) fn lock(
        &self,
        options: OpenOptions,
        program: ProgramName,
    ) -> Result<OpenOptions, Failure> {
        #[cfg(feature = "encryption")]
        {
            let (mut options, _) = (options, program);
            options.key = Some(self.choose("passphrase")?);
            Ok(options)
        }
        #[cfg(not(feature = "encryption"))]
        {
            let _ = options;
            Err(no_encryption(program))
        }
    }

    /// Key arguments that name a file or an environment variable.
    #[cfg(feature = "encryption")]
    pub(super) fn named(key_file: Option<PathBuf>, key_env: Option<String>) -> KeyArgs {
        KeyArgs {
            key_file,
            key_env,
            passphrase: false,
        }
    }

    /// Whether the arguments name a key.
    pub(super) fn is_some(&self) -> bool {
        self.source().is_some() || self.passphrase
    }

    /// Adds advice to an error: how to name a missing key, or how to copy a store that is in use.
    pub(super) fn advise(&self, error: StoreError, program: ProgramName) -> Failure {
        let is_missing = matches!(error, StoreError::Key(_)) && !self.is_some();
        let is_in_use = matches!(error, StoreError::InUse { .. });
        let failure = Failure::from(error);
        if is_missing && cfg!(feature = "encryption") {
            failure.tip("give the key with --key-file, --key-env or --passphrase")
        } else if is_missing {
            failure.tip(without_encryption(program))
        } else if is_in_use {
            failure.tip(IN_USE)
        } else {
            failure
        }
    }

    /// The arguments by which another program reads the same key.
    pub(super) fn arguments(&self) -> Result<Vec<OsString>, Failure> {
        if self.passphrase {
            return Err(Failure::Usage(
                "--sqlite does not work with --passphrase: use --key-file or --key-env".into(),
            ));
        }
        let named = |name: &str, value: OsString| vec![name.into(), value];
        Ok(match self.source() {
            Some(KeySource::File(file)) => named("--key-file", file.into()),
            Some(KeySource::Variable(name)) => named("--key-env", name.into()),
            None => Vec::new(),
        })
    }

    /// The source of the key, unless it is a prompt.
    fn source(&self) -> Option<KeySource> {
        let file = self.key_file.clone().map(KeySource::File);
        file.or_else(|| self.key_env.clone().map(KeySource::Variable))
    }
}

const IN_USE: &str = "close the store in that process, or have that process copy and check it: a \
                      database with `PRAGMA flagstone_backup='copy.flag'` and `PRAGMA \
                      flagstone_check`, tables with `Store::backup` and `Store::check_pages`; or \
                      copy the store from a snapshot of the file system (docs/store-tools.md, Copy \
                      a store)";

/// The error of a `program` that was built without encryption.
pub fn no_encryption(program: ProgramName) -> Failure {
    Failure::Usage(without_encryption(program))
}

fn without_encryption(program: ProgramName) -> String {
    format!(
        "this program was built without encryption: build it with `cargo build --release -p {} \
         --features encryption`",
        program.package
    )
}

#[cfg(feature = "encryption")]
mod given {
    use super::KeyArgs;
    use flagstone_store::Key;
    use flagstone_terminal::Failure;
    use std::io::IsTerminal;

    impl KeyArgs {
        /// Reads the key that the arguments name, if any. `what` is the prompt for a passphrase.
        pub(crate) fn read(&self, what: &str) -> Result<Option<Key>, Failure> {
            if let Some(source) = self.source() {
                let key = source.read();
                return key
                    .map(Some)
                    .map_err(|error| Failure::Usage(error.to_string()));
            }
            if !self.passphrase {
                return Ok(None);
            }
            ask(what, false).map(Some)
        }

        /// Like [`KeyArgs::read`], for a new key. If the arguments name none, asks for a passphrase
        /// twice.
        pub(crate) fn choose(&self, what: &str) -> Result<Key, Failure> {
            if self.passphrase || !self.is_some() {
                return ask(what, true);
            }
            Ok(self.read(what)?.expect("one is named"))
        }
    }

    /// Asks for a passphrase without showing it.
    fn ask(what: &str, twice: bool) -> Result<Key, Failure> {
        if !std::io::stdin().is_terminal() {
            return Err(Failure::Usage(format!(
                "cannot ask for the {what}: standard input is not a terminal; use --key-file or \
                 --key-env"
            )));
        }
        let asked = |prompt: String| rpassword::prompt_password(prompt);
        let text = asked(format!("{what}: "))?;
        if text.is_empty() {
            return Err(Failure::Usage(format!("the {what} is empty")));
        }
        if twice && asked(format!("{what}, again: "))? != text {
            return Err(Failure::Usage(
                "the two passphrases differ: nothing was changed; try again".into(),
            ));
        }
        Ok(Key::passphrase(text))
    }
}
