//! Keys of stores that are encrypted: from a file, a variable, or a prompt; never from the command
//! line, which other users of a machine can read.

use crate::commands::Failure;
use flagstone_store::OpenOptions;
use std::path::PathBuf;

/// Where the key of an encrypted store is.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(id = "key", multiple = false)]
pub(super) struct KeyArgs {
    /// The file with the key of an encrypted store: 32 bytes, or 64 hexadecimal digits.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// The environment variable with the key of an encrypted store, as 64 hexadecimal digits.
    #[arg(long, value_name = "NAME")]
    key_env: Option<String>,
    /// Ask for the passphrase of an encrypted store.
    #[arg(long)]
    passphrase: bool,
}

impl KeyArgs {
    /// Options with the key that the arguments name, if they name one.
    pub(super) fn give_to(&self, options: OpenOptions) -> Result<OpenOptions, Failure> {
        #[cfg(feature = "encryption")]
        {
            let mut options = options;
            options.key = self.read("passphrase")?;
            Ok(options)
        }
        #[cfg(not(feature = "encryption"))]
        match self.is_some() {
            true => Err(no_encryption()),
            false => Ok(options),
        }
    }

    /// Options with the key that a new store is to have.
    pub(super) fn lock(&self, options: OpenOptions) -> Result<OpenOptions, Failure> {
        #[cfg(feature = "encryption")]
        {
            let mut options = options;
            options.key = Some(self.choose("passphrase")?);
            Ok(options)
        }
        #[cfg(not(feature = "encryption"))]
        {
            let _ = options;
            Err(no_encryption())
        }
    }

    /// The arguments for a key in a file or a variable.
    #[cfg(feature = "encryption")]
    pub(super) fn named(key_file: Option<PathBuf>, key_env: Option<String>) -> KeyArgs {
        KeyArgs {
            key_file,
            key_env,
            passphrase: false,
        }
    }

    /// Whether any key is named.
    pub(super) fn is_some(&self) -> bool {
        self.key_file.is_some() || self.key_env.is_some() || self.passphrase
    }
}

/// What a program without encryption says.
pub(super) fn no_encryption() -> Failure {
    Failure::Usage(
        "this program was built without encryption: `cargo build --release -p flagstone-cli \
         --features encryption` builds it with it"
            .into(),
    )
}

#[cfg(feature = "encryption")]
mod given {
    use super::KeyArgs;
    use crate::commands::Failure;
    use flagstone_store::Key;
    use std::io::IsTerminal;

    impl KeyArgs {
        /// The key that the arguments name, if they name one. `what` is what a prompt asks for.
        pub(in crate::commands::store) fn read(&self, what: &str) -> Result<Option<Key>, Failure> {
            if let Some(path) = &self.key_file {
                let wrong = |why: String| Failure::Usage(format!("{}: {why}", path.display()));
                let bytes = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
                return Key::parse(&bytes)
                    .map(Some)
                    .map_err(|error| wrong(error.to_string()));
            }
            if let Some(name) = &self.key_env {
                let wrong = |why: &str| Failure::Usage(format!("the variable {name}: {why}"));
                let value = std::env::var(name).map_err(|error| wrong(&error.to_string()))?;
                let key = Key::parse(value.as_bytes());
                return key.map(Some).map_err(|error| wrong(&error.to_string()));
            }
            match self.passphrase {
                true => ask(what, false).map(Some),
                false => Ok(None),
            }
        }

        /// As [`KeyArgs::read`], for a key that is to lock something: a passphrase is asked for
        /// where nothing is named, and twice.
        pub(in crate::commands::store) fn choose(&self, what: &str) -> Result<Key, Failure> {
            match self.passphrase || !self.is_some() {
                true => ask(what, true),
                false => Ok(self.read(what)?.expect("one is named")),
            }
        }
    }

    /// Asks for a passphrase, which is not shown.
    fn ask(what: &str, twice: bool) -> Result<Key, Failure> {
        if !std::io::stdin().is_terminal() {
            return Err(Failure::Usage(format!(
                "there is no terminal to ask for the {what}: use --key-file or --key-env"
            )));
        }
        let asked = |prompt: String| rpassword::prompt_password(prompt);
        let text = asked(format!("{what}: "))?;
        if text.is_empty() {
            return Err(Failure::Usage(format!("the {what} is empty")));
        }
        if twice && asked(format!("{what}, again: "))? != text {
            return Err(Failure::Usage("the two differ: nothing was changed".into()));
        }
        Ok(Key::passphrase(text))
    }
}
