//! Runs the program's commands inside Python: returns results as text, reports progress by
//! callback, and stops at Ctrl-C.
//!
//! A command runs on its own thread. The calling thread waits without the GIL, handles signals, and
//! reports progress.

use crate::errors::{FailedError, defect, failed};
use flagstone_lab::stop::Stop;
use flagstone_terminal::{Inside, NOT_DONE, Progress, inside};
use pyo3::prelude::*;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Interval between two checks for signals and progress.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// Stack size of a command's thread: that of a main thread.
const STACK_BYTES: usize = 8 << 20;

/// Runs `work` on its own thread as part of `program`. Calls `look` periodically and once at the
/// end. Stops `work` at Ctrl-C, or if `look` raises.
pub(crate) fn waiting<T: Send + 'static>(
    py: Python<'_>,
    program: &Inside,
    mut look: impl FnMut() -> PyResult<()>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let stop = Stop::default();
    let (ends, ended) = channel::<()>();
    let done = {
        let (program, stop) = (program.clone(), stop.clone());
        move || {
            // Dropped when the thread ends, even by a panic.
            let _ends = ends;
            stop.run(|| inside(&program, work))
        }
    };
    let thread = thread::Builder::new().name("flagstone".into());
    let worker = thread.stack_size(STACK_BYTES).spawn(done)?;
    let ended = Mutex::new(ended);
    let wait = || ended.lock().expect("one thread waits").recv_timeout(TICK);
    let waited = loop {
        match py.detach(wait) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break Ok(()),
        }
        if let Err(error) = py.check_signals().and_then(|()| look()) {
            stop.ask();
            break Err(error);
        }
    };
    let ended = py.detach(|| worker.join());
    waited?;
    look()?;
    match ended {
        Err(panic) => Err(defect(&*panic)),
        Ok(done) => done.map_err(|stopped| FailedError::new_err(stopped.to_string())),
    }
}

/// Runs a command of the program. Returns whether its verdict is good, its standard output, and its
/// lines of standard error. `progress` is called with the amount done, the total (or None), and
/// what is being done.
#[pyfunction]
#[pyo3(signature = (arguments, progress=None))]
pub(crate) fn command(
    py: Python<'_>,
    arguments: Vec<OsString>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(bool, String, Vec<String>)> {
    let program = Inside::default();
    let work = || flagstone_cli::run(arguments);
    let mut told = None;
    let look = || tell(py, &program, &progress, &mut told);
    let code = waiting(py, &program, look, work)?.map_err(|failure| failed(&failure))?;
    let notes = program.notes();
    if code == ExitCode::from(NOT_DONE) {
        // Part of the request failed; the notes say which part.
        let why = notes.iter().map(|note| note.trim_start_matches("error: "));
        return Err(FailedError::new_err(why.collect::<Vec<_>>().join("\n")));
    }
    Ok((code == ExitCode::SUCCESS, program.results(), notes))
}

/// Calls the Python callback if the progress has changed.
fn tell(
    py: Python<'_>,
    program: &Inside,
    progress: &Option<Py<PyAny>>,
    told: &mut Option<Progress>,
) -> PyResult<()> {
    let so_far = program.progress();
    if let (Some(call), Some(now)) = (progress, &so_far)
        && *told != so_far
    {
        call.call1(py, (now.done, now.all, &now.what))?;
        *told = so_far;
    }
    Ok(())
}
