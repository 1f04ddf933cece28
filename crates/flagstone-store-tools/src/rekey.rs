//! The command `rekey`: changes the key of an encrypted store.

use super::key::KeyArgs;
use crate::ProgramName;
use flagstone_terminal::Failure;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `rekey`.
#[derive(Debug, clap::Args)]
pub struct Rekey {
    /// The store. It must not be open elsewhere.
    store: PathBuf,
    #[command(flatten)]
    key: KeyArgs,
    /// Read the new key from this file. Without it and --new-key-env, asks for a passphrase.
    #[arg(long, value_name = "FILE", conflicts_with = "new_key_env")]
    new_key_file: Option<PathBuf>,
    /// Read the new key from this environment variable.
    #[arg(long, value_name = "NAME")]
    new_key_env: Option<String>,
}

#[cfg(feature = "encryption")]
pub(super) fn rekey(args: &Rekey, _: ProgramName) -> Result<ExitCode, Failure> {
    let old = match args.key.read("current passphrase")? {
        Some(key) => key,
        None => {
            return Err(Failure::Usage(
                "the current key is missing: give it with --key-file, --key-env or --passphrase"
                    .into(),
            ));
        }
    };
    let new = KeyArgs::named(args.new_key_file.clone(), args.new_key_env.clone());
    let new = new.choose("new passphrase")?;
    flagstone_store::rekey(&args.store, &old, &new)?;
    flagstone_terminal::say(&format!(
        "{}: the key was changed; earlier copies of the store still have the old key",
        args.store.display()
    ));
    Ok(ExitCode::SUCCESS)
}

#[cfg(not(feature = "encryption"))]
pub(super) fn rekey(_: &Rekey, program: ProgramName) -> Result<ExitCode, Failure> {
    Err(super::key::no_encryption(program))
}
