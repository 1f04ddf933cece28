//! Pages on a simulated device, with the times at which operations are done.
//!
//! Requests arrive at times of the server's clock. The reads of a request are issued at once; a
//! write is issued when the device accepts it after the previous one, since all belong to one
//! transaction. The simulation computes when each is done.

use crate::service::Timed;
use flagstone::commit::{Device, DeviceError, Info, Kind, Options};
use flagstone::ftl::{FtlError, Slot};
use flagstone::units::{Lpn, Nanos, TxId};
use flagstone_lab::device::DeviceSpec;
use flagstone_store::{Pages, StoreError, Version};

/// A simulated device.
pub(crate) struct Simulated {
    device: Device,
    /// When the next operation is issued.
    now: Nanos,
    /// When the last operation of the request is done.
    done: Nanos,
}

impl Simulated {
    /// A blank device.
    pub(crate) fn new(spec: &DeviceSpec, kind: Kind) -> Result<Simulated, String> {
        let chip = spec.chip(kind.info().format.spare_bytes(&spec.config));
        let (chip, options) = (Box::new(chip), Options::default());
        let device = Device::open(chip, kind, spec.config, &options, Nanos::ZERO);
        let device = device.map_err(|error| format!("{kind} on {}: {error}", spec.name))?;
        Ok(Simulated {
            now: device.recovered_at(),
            done: Nanos::ZERO,
            device,
        })
    }

    fn translate<T>(answer: Result<T, DeviceError>) -> Result<T, StoreError> {
        answer.map_err(|error| match error {
            DeviceError::Ftl(FtlError::Full { live, pages, .. }) => {
                StoreError::Full(format!("{live} of {pages} pages of the device are in use"))
            }
            other => StoreError::Device(other),
        })
    }

    /// Sets the end of the request to `done`, if that is later.
    fn until(&mut self, done: Nanos) {
        self.done = self.done.max(done);
    }
}

impl Timed for Simulated {
    fn start(&mut self, at: Nanos) {
        self.now = self.now.max(at);
        self.done = self.now;
    }

    fn done(&self) -> Nanos {
        self.done
    }
}

impl Pages for Simulated {
    fn page_bytes(&self) -> usize {
        self.device.geometry().page_bytes as usize
    }

    fn pages_max(&self) -> Option<u64> {
        Some(u64::from(self.device.pages()))
    }

    fn protocol(&self) -> &'static Info {
        self.device.info()
    }

    fn highest(&self) -> Option<Lpn> {
        (0..self.device.pages())
            .rev()
            .map(Lpn)
            .find(|&at| self.holds(at))
    }

    fn holds(&self, at: Lpn) -> bool {
        // The page may hold data even if only the mapping table on flash records it.
        at.0 < self.device.pages() && !matches!(self.device.ftl().slot(at), Slot::Empty)
    }

    fn begin(&mut self) -> Result<TxId, StoreError> {
        Simulated::translate(self.device.begin(self.now))
    }

    fn read(
        &mut self,
        version: Version,
        at: Lpn,
        into: &mut [u8],
    ) -> Result<Option<usize>, StoreError> {
        let (now, device) = (self.now, &mut self.device);
        let read = match version {
            Version::Of(tx) => device.read_into(now, tx, at, into),
            Version::At(snapshot) => device.read_snapshot(now, snapshot, at, into),
        };
        let (done, bytes) = Simulated::translate(read)?;
        self.until(done);
        Ok(bytes)
    }

    fn write(&mut self, tx: TxId, at: Lpn, data: &[u8]) -> Result<(), StoreError> {
        let taken = Simulated::translate(self.device.write(self.now, tx, at, data))?;
        self.now = self.now.max(taken.next);
        self.until(self.now);
        Ok(())
    }

    fn trim(&mut self, tx: TxId, at: Lpn) -> Result<(), StoreError> {
        let taken = Simulated::translate(self.device.trim(self.now, tx, at))?;
        self.now = self.now.max(taken.next);
        self.until(self.now);
        Ok(())
    }

    fn commit(&mut self, tx: TxId) -> Result<(), StoreError> {
        let mut done = Simulated::translate(self.device.commit(self.now, tx))?;
        if done.is_none() {
            // Its commit group has no other member.
            let group = Simulated::translate(self.device.acknowledged(self.now, true))?;
            done = group.iter().map(|&(_, done)| done).max();
        }
        self.until(done.unwrap_or(self.now));
        Ok(())
    }

    fn abort(&mut self, tx: TxId) -> Result<(), StoreError> {
        let done = Simulated::translate(self.device.abort(self.now, tx))?;
        self.until(done);
        Ok(())
    }

    fn close(self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagstone_store::Volume;

    fn disk(protocol: Kind) -> Volume<Simulated> {
        let spec = DeviceSpec::load("small").expect("a preset");
        let pages = Simulated::new(&spec, protocol).expect("it suits");
        Volume::create(pages, 8 << 20).expect("it fits")
    }

    /// The duration of a request that arrives at an instant.
    fn takes(
        disk: &mut Volume<Simulated>,
        at: Nanos,
        request: impl FnOnce(&mut Volume<Simulated>),
    ) -> u64 {
        disk.pages_mut().start(at);
        request(disk);
        disk.pages().done().since(at).0 / 1000
    }

    /// The device programs a page in 200 us and reads one in 25 us, on eight channels with two
    /// planes each, which work concurrently.
    #[test]
    fn requests_take_as_long_as_on_the_device() {
        for protocol in [Kind::Seal, Kind::Scc, Kind::Cfc, Kind::LightTx] {
            let mut disk = disk(protocol);
            let at = |seconds: u64| Nanos(seconds * 1_000_000_000);
            let accepted = takes(&mut disk, at(1), |disk| {
                disk.write(0, &[1; 16 * 4096]).expect("room");
            });
            let flushed = takes(&mut disk, at(2), |disk| disk.flush().expect("room"));
            let both = accepted + flushed;
            assert!(
                (200..2000).contains(&both),
                "{protocol}: {accepted} and {flushed} us"
            );
            let mut bytes = vec![0; 16 * 4096];
            let one = takes(&mut disk, at(3), |disk| {
                disk.read(0, &mut bytes[..4096]).expect("it reads");
            });
            let all = takes(&mut disk, at(4), |disk| {
                disk.read(0, &mut bytes).expect("it reads")
            });
            assert_eq!(one, 25, "{protocol}");
            assert!(
                (25..=16 * 25 / 4).contains(&all),
                "{protocol}: {all} us side by side"
            );
            assert!(bytes.iter().all(|&byte| byte == 1));
        }
    }
}
