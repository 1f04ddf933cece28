//! Transfers between accounts, and a power cut in the middle of them.
//!
//! Each account is a page. A transfer is a transaction that writes two of them. The power is cut at
//! one flash operation after the other. After each restart the accounts must be as they were after
//! the last transfer that was acknowledged, or after the one that was under way. A device without
//! transactions is the control: it must lose money.
//!
//! `cargo run --example commit_and_cut`

use flagstone::prelude::*;

const ACCOUNTS: usize = 6;
const TRANSFERS: usize = 12;

type Balances = [u64; ACCOUNTS];

/// Transfer number `n`: from which account to which one, and how much.
fn transfer(n: usize) -> (usize, usize, u64) {
    (n % ACCOUNTS, (n * 2 + 1) % ACCOUNTS, n as u64 + 1)
}

/// The account balances after this many transfers.
fn after(transfers: usize) -> Balances {
    let mut balances = [100; ACCOUNTS];
    for (from, to, amount) in (0..transfers).map(transfer) {
        balances[from] -= amount;
        balances[to] += amount;
    }
    balances
}

/// Writes some accounts in one transaction. Returns when that is durable.
fn store(device: &mut Device, now: Nanos, accounts: &[(usize, u64)]) -> Result<Nanos, DeviceError> {
    let tx = device.begin(now)?;
    let mut now = now;
    for &(account, balance) in accounts {
        let page = Lpn(account as u32);
        now = device.write(now, tx, page, &balance.to_le_bytes())?.next;
    }
    let done = device.commit(now, tx)?;
    Ok(done.expect("these protocols answer a commit at once"))
}

/// Executes all transfers, and counts those that were acknowledged.
fn work(device: &mut Device, acknowledged: &mut usize) -> Result<(), DeviceError> {
    let mut now = device.recovered_at();
    for n in 0..TRANSFERS {
        let (from, to, _) = transfer(n);
        let balances = after(n + 1);
        now = store(device, now, &[(from, balances[from]), (to, balances[to])])?;
        *acknowledged += 1;
    }
    Ok(())
}

/// Reads all accounts.
fn balances(device: &mut Device) -> Result<Balances, DeviceError> {
    let mut found = [0; ACCOUNTS];
    for (account, balance) in found.iter_mut().enumerate() {
        let now = device.recovered_at();
        let (_, bytes) = device.read(now, None, Lpn(account as u32))?;
        let bytes = bytes.expect("the account was opened");
        *balance = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    }
    Ok(found)
}

/// What became of the accounts after a cut.
enum Outcome {
    /// The cut lies beyond the last operation.
    NoCut,
    AllOrNothing,
    Torn(Balances),
}

/// Opens the accounts, makes transfers until the power fails at operation `at`, and restarts.
fn cut(kind: Kind, at: u64) -> Result<Outcome, DeviceError> {
    let mut device = Device::with_defaults(Chip::default(), kind)?;
    let accounts: Vec<(usize, u64)> = after(0).into_iter().enumerate().collect();
    let now = device.recovered_at();
    store(&mut device, now, &accounts)?;
    let chip = device.into_flash().into_model().expect("it is a chip");

    let (dice, torn) = (at.wrapping_mul(0x9e37_79b9_7f4a_7c15), at.is_multiple_of(2));
    let power = PowerCut::new(chip).arm(Cut { at, dice, torn });
    let flash = Shared::new(power);
    let mut device = Device::with_defaults(flash.clone(), kind)?;
    let mut acknowledged = 0;
    match work(&mut device, &mut acknowledged) {
        Ok(()) => return Ok(Outcome::NoCut),
        Err(error) if error.is_power_loss() => drop(device),
        Err(error) => return Err(error),
    }

    let mut device = Device::with_defaults(flash.take().into_chip(), kind)?;
    let found = balances(&mut device)?;
    let is_whole = found == after(acknowledged) || found == after(acknowledged + 1);
    Ok(if is_whole {
        Outcome::AllOrNothing
    } else {
        Outcome::Torn(found)
    })
}

fn main() -> Result<(), DeviceError> {
    for kind in [Kind::Cfc, Kind::LightTx, Kind::Plain] {
        let (mut cuts, mut losses) = (0, 0);
        loop {
            match cut(kind, cuts)? {
                Outcome::NoCut => break,
                Outcome::AllOrNothing => {}
                Outcome::Torn(found) => {
                    if losses == 0 {
                        println!("{kind}: cut at operation {cuts}, balances {found:?}");
                    }
                    losses += 1;
                }
            }
            cuts += 1;
        }
        println!("{kind}: {cuts} power cuts, {losses} left a transfer half done");
        assert!(cuts > 0);
        assert_eq!(losses > 0, !kind.info().atomic);
    }
    Ok(())
}
