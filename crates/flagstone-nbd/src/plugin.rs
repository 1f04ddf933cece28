//! The callbacks of nbdkit.

use crate::service::{Answer, Service, What};
use crate::settings::Settings;
use nbdkit::{Error, ExtentHandle, ExtentType, Flags, FuaFlags, Result, Server, ThreadModel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

static SETTINGS: Mutex<Option<Settings>> = Mutex::new(None);
/// The service, created by the first connection.
static SERVICE: Mutex<Option<Arc<Service>>> = Mutex::new(None);

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wrong(why: String) -> Error {
    Error::new(libc::EINVAL, why)
}

/// A client's connection.
struct Connection {
    service: Arc<Service>,
    readonly: bool,
}

impl Connection {
    fn ask(&self, what: What, fua: bool) -> Result<Answer> {
        let answer = self.service.ask(what, fua);
        answer.map_err(|refusal| Error::new(refusal.errno, refusal.why))
    }
}

impl Server for Connection {
    fn name() -> &'static str {
        "flagstone"
    }

    fn longname() -> Option<&'static str> {
        Some("Flagstone stores and simulated devices")
    }

    fn description() -> Option<&'static str> {
        Some("A disk in a Flagstone store, or on a simulated flash device.")
    }

    fn version() -> Option<&'static str> {
        Some(env!("CARGO_PKG_VERSION"))
    }

    fn magic_config_key() -> Option<&'static str> {
        Some("file")
    }

    fn config_help() -> Option<&'static str> {
        Some(crate::settings::HELP)
    }

    fn config(key: &str, value: &str) -> Result<()> {
        let mut settings = locked(&SETTINGS);
        let settings = settings.get_or_insert_default();
        settings.set(key, value).map_err(wrong)
    }

    fn config_complete() -> Result<()> {
        let settings = locked(&SETTINGS);
        settings
            .as_ref()
            .unwrap_or(&Settings::default())
            .check()
            .map_err(wrong)
    }

    fn get_ready() -> Result<()> {
        // Open the disk once now, so that errors appear before nbdkit goes to the background.
        let settings = locked(&SETTINGS);
        let settings = settings.as_ref().expect("they were checked");
        settings.try_out().map_err(wrong)
    }

    fn thread_model() -> Result<ThreadModel> {
        Ok(ThreadModel::Parallel)
    }

    fn open(readonly: bool) -> Result<Box<dyn Server>> {
        let mut running = locked(&SERVICE);
        let service = match &*running {
            Some(service) => Arc::clone(service),
            None => {
                let settings = locked(&SETTINGS).clone().expect("they were checked");
                let service = Arc::new(Service::start(settings, readonly).map_err(wrong)?);
                *running = Some(Arc::clone(&service));
                service
            }
        };
        Ok(Box::new(Connection { service, readonly }))
    }

    fn unload() {
        let service = locked(&SERVICE).take();
        if let Some(Err(why)) = service.and_then(Arc::into_inner).map(Service::end) {
            eprintln!("flagstone: {why}");
        }
    }

    fn get_size(&self) -> Result<i64> {
        Ok(self.service.size() as i64)
    }

    fn can_write(&self) -> Result<bool> {
        Ok(!self.readonly)
    }

    fn can_flush(&self) -> Result<bool> {
        Ok(true)
    }

    fn can_fua(&self) -> Result<FuaFlags> {
        Ok(FuaFlags::Native)
    }

    fn can_trim(&self) -> Result<bool> {
        Ok(true)
    }

    fn can_zero(&self) -> Result<bool> {
        Ok(true)
    }

    fn can_extents(&self) -> Result<bool> {
        Ok(true)
    }

    fn can_multi_conn(&self) -> Result<bool> {
        Ok(true)
    }

    fn is_rotational(&self) -> Result<bool> {
        Ok(false)
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> Result<()> {
        let bytes = into.len();
        match self.ask(What::Read { at, bytes }, false)? {
            Answer::Bytes(bytes) => into.copy_from_slice(&bytes),
            _ => unreachable!("a read is answered by bytes"),
        }
        Ok(())
    }

    fn write_at(&self, data: &[u8], at: u64, flags: Flags) -> Result<()> {
        let data = data.to_vec();
        self.ask(What::Write { at, data }, flags.contains(Flags::FUA))?;
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.ask(What::Flush, false)?;
        Ok(())
    }

    fn trim(&self, bytes: u32, at: u64, flags: Flags) -> Result<()> {
        let bytes = bytes.into();
        self.ask(What::Trim { at, bytes }, flags.contains(Flags::FUA))?;
        Ok(())
    }

    /// Writes zeros. Ignores the flag that keeps space allocated: a page is never rewritten in
    /// place.
    fn zero(&self, bytes: u32, at: u64, flags: Flags) -> Result<()> {
        self.trim(bytes, at, flags)
    }

    fn extents(&self, bytes: u32, at: u64, flags: Flags, to: &mut ExtentHandle) -> Result<()> {
        let bytes = bytes.into();
        let most = if flags.contains(Flags::REQ_ONE) {
            1
        } else {
            usize::MAX
        };
        let Answer::Parts(parts) = self.ask(What::Parts { at, bytes, most }, false)? else {
            unreachable!("parts were asked for");
        };
        for (at, bytes, holds) in parts {
            let kind = if holds {
                ExtentType::Allocated
            } else {
                ExtentType::HoleZero
            };
            to.add(at, bytes, kind)?;
        }
        Ok(())
    }
}

impl Drop for Connection {
    /// Flushes when a client disconnects, so that its writes are durable even if nbdkit is killed
    /// later.
    fn drop(&mut self) {
        if !self.readonly {
            let _ = self.service.ask(What::Flush, false);
        }
    }
}

/// The entry point for nbdkit, generated by a macro of its crate.
mod entry {
    #![allow(
        missing_docs,
        unreachable_pub,
        unsafe_code,
        reason = "the macro writes it"
    )]
    use super::Connection;

    nbdkit::plugin!(Connection {
        config,
        config_complete,
        config_help,
        get_ready,
        thread_model,
        unload,
        can_write,
        can_flush,
        can_fua,
        can_trim,
        can_zero,
        can_extents,
        can_multi_conn,
        is_rotational,
        write_at,
        flush,
        trim,
        zero,
        extents
    });
}
