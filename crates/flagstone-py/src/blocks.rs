//! The `with` blocks of transactions. They are native code because of signals: a handler may raise
//! between any two Python instructions, but never within a native method. So a transaction that has
//! begun is always in a `with` statement that ends it.
//!
//! A transaction belongs to the thread and the asyncio task that began it, and to the context
//! (`contextvars`) of its block. Tasks and threads created in the block inherit a copy of the
//! context, but are not in the transaction. Their writes fail with an error, because they would
//! wait for a lock that the creator may never release.

use crate::errors::UsageError;
use crate::store::{PySavepoint, PyStore, PyWriteTx};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A transaction of a `with` block.
#[pyclass(module = "flagstone._native", frozen)]
pub(crate) struct Live {
    writer: Py<PyWriteTx>,
    /// The store that the transaction belongs to, by the address of its Python object.
    store: usize,
    thread: ThreadId,
    /// The asyncio task that began the transaction; `None` after its end.
    task: Mutex<Option<Py<PyAny>>>,
    /// Number of open savepoint blocks nested in the transaction's block.
    depth: AtomicUsize,
    is_over: AtomicBool,
}

impl Live {
    /// Returns `true` if the transaction belongs to this thread and to this task.
    fn is_of(&self, py: Python<'_>, task: Option<&Bound<'_, PyAny>>) -> bool {
        let own = locked(&self.task);
        let is_same_task = match (&*own, task) {
            (Some(own), Some(task)) => own.bind(py).is(task),
            (None, None) => true,
            _ => false,
        };
        self.thread == thread::current().id() && is_same_task
    }

    pub(crate) fn writer(&self, py: Python<'_>) -> Py<PyWriteTx> {
        self.writer.clone_ref(py)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

/// The context variable that holds a context's transactions: a tuple of [`Live`].
fn variable(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static VARIABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let made = VARIABLE.get_or_try_init(py, || {
        let class = py.import("contextvars")?.getattr("ContextVar")?;
        Ok::<_, PyErr>(class.call1(("flagstone_transactions",))?.unbind())
    })?;
    Ok(made.bind(py))
}

/// The transactions of this context, including ended ones.
fn transactions(py: Python<'_>) -> PyResult<Vec<Bound<'_, Live>>> {
    let all = variable(py)?.call_method1("get", (PyTuple::empty(py),))?;
    all.cast::<PyTuple>()?
        .iter()
        .map(|one| Ok(one.cast_into::<Live>()?))
        .collect()
}

/// Updates this context's transactions: removes ended ones and adds `begun`.
fn note(py: Python<'_>, begun: Option<&Bound<'_, Live>>) -> PyResult<()> {
    let mut all = transactions(py)?;
    all.retain(|one| !one.get().is_over());
    all.extend(begun.cloned());
    variable(py)?.call_method1("set", (PyTuple::new(py, all)?,))?;
    Ok(())
}

/// The asyncio task that runs in this thread; `None` outside an event loop.
fn task(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    let modules = py.import("sys")?.getattr("modules")?;
    let asyncio = modules.call_method1("get", ("asyncio",))?;
    if asyncio.is_none() {
        return Ok(None);
    }
    let running = asyncio.getattr("_get_running_loop")?.call0()?;
    if running.is_none() {
        return Ok(None);
    }
    let task = asyncio.getattr("current_task")?.call1((running,))?;
    Ok((!task.is_none()).then_some(task))
}

/// How a thread or task relates to the transactions of a store.
pub(crate) enum Place<'py> {
    /// In the block of this transaction.
    Inside(Bound<'py, Live>),
    /// In no transaction.
    Outside,
    /// In no transaction, and beginning one would deadlock; the text says why.
    Beside(&'static str),
}

/// Finds how the caller relates to the transactions of `store`. May run Python code and signal
/// handlers.
pub(crate) fn place<'py>(store: &Bound<'py, PyStore>) -> PyResult<Place<'py>> {
    let py = store.py();
    let number = store.as_ptr() as usize;
    let of_store = |one: &Bound<'py, Live>| one.get().store == number && !one.get().is_over();
    let task = task(py)?;
    if let Some(live) = transactions(py)?.into_iter().rev().find(of_store) {
        return Ok(if live.get().is_of(py, task.as_ref()) {
            Place::Inside(live)
        } else {
            Place::Beside(
                "this task or thread was started within a transaction of another task or thread, \
                 and cannot write in it: write where the transaction began, or after its end",
            )
        });
    }
    let is_of_thread = store
        .get()
        .live(py)
        .is_some_and(|live| !live.get().is_over() && live.get().thread == thread::current().id());
    Ok(if is_of_thread {
        Place::Beside(
            "another task of this thread has a write transaction, so this would deadlock: do not \
             await within a transaction, or protect transactions with an asyncio.Lock",
        )
    } else {
        Place::Outside
    })
}

/// What a block must end when it exits.
enum Entered {
    /// The transaction.
    Outermost(Py<Live>),
    /// A savepoint, at this depth.
    Savepoint(Py<Live>, Py<PySavepoint>, usize),
    /// Nothing: the enclosing block ends the transaction.
    Joined,
}

/// A `with` block for writing. `given` is the object that `as` binds; `None` for a block that is no
/// savepoint, where `as` binds the transaction.
#[pyclass(module = "flagstone._native", frozen)]
pub(crate) struct Block {
    store: Py<PyStore>,
    given: Option<Py<PyAny>>,
    entered: Mutex<Option<Entered>>,
}

#[pymethods]
impl Block {
    #[new]
    #[pyo3(signature = (store, given=None))]
    fn new(store: Py<PyStore>, given: Option<Py<PyAny>>) -> Block {
        Block {
            store,
            given,
            entered: Mutex::default(),
        }
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if locked(&self.entered).is_some() {
            return Err(UsageError::new_err(
                "this block is already entered: call transaction() for each block",
            ));
        }
        let store = self.store.bind(py);
        store.get().must_be_open(py)?;
        let (entered, writer) = match place(store)? {
            Place::Beside(why) => return Err(UsageError::new_err(why)),
            Place::Inside(live) => {
                let writer = live.get().writer.clone_ref(py);
                let entered = match self.given {
                    None => Entered::Joined,
                    Some(_) => {
                        let savepoint = Py::new(py, writer.get().savepoint(py)?)?;
                        let depth = live.get().depth.fetch_add(1, Ordering::SeqCst) + 1;
                        Entered::Savepoint(live.unbind(), savepoint, depth)
                    }
                };
                (entered, writer)
            }
            Place::Outside => {
                let task = task(py)?.map(Bound::unbind);
                // No Python code runs from here on. On an error the transaction is dropped.
                let writer = Py::new(py, store.get().write(py)?)?;
                let live = Live {
                    writer: writer.clone_ref(py),
                    store: store.as_ptr() as usize,
                    thread: thread::current().id(),
                    task: Mutex::new(task),
                    depth: AtomicUsize::new(0),
                    is_over: AtomicBool::new(false),
                };
                let live = Bound::new(py, live)?;
                note(py, Some(&live))?;
                store.get().set_live(Some(live.clone().unbind()));
                (Entered::Outermost(live.unbind()), writer)
            }
        };
        *locked(&self.entered) = Some(entered);
        Ok(match &self.given {
            Some(given) => given.clone_ref(py),
            None => writer.into_any(),
        })
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let is_good = kind.is_none();
        let entered = locked(&self.entered).take();
        match entered {
            None => Err(UsageError::new_err("this block is not entered")),
            Some(Entered::Joined) => Ok(false),
            Some(Entered::Outermost(live)) => self.end(py, &live, is_good),
            Some(Entered::Savepoint(live, savepoint, depth)) => {
                let (it, writer) = (live.get(), live.get().writer.get());
                if it.is_over() {
                    return if is_good {
                        Err(UsageError::new_err(OUT_OF_ORDER))
                    } else {
                        Ok(false)
                    };
                }
                if it.depth.load(Ordering::SeqCst) != depth {
                    return self.end(py, &live, is_good);
                }
                it.depth.fetch_sub(1, Ordering::SeqCst);
                if !is_good {
                    writer.rollback_to(py, savepoint.get())?;
                    self.count_as_change(py)?;
                }
                writer.release(py, savepoint.get())?;
                Ok(false)
            }
        }
    }
}

impl Drop for Block {
    /// Rolls back the transaction of a block that was dropped without `__exit__`.
    fn drop(&mut self) {
        let entered = self.entered.get_mut();
        let entered = entered.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Entered::Outermost(live) | Entered::Savepoint(live, ..)) = entered {
            Python::attach(|py| {
                if !live.get().is_over() {
                    // A destructor cannot report an error.
                    let _ = self.end(py, &live, false);
                }
            });
        }
    }
}

const OUT_OF_ORDER: &str = "an inner block was still open when its outer block ended, so the whole \
                            transaction was rolled back: end inner blocks first";

impl Block {
    /// Makes iterations read their next pairs again: those of before may be rolled back.
    fn count_as_change(&self, py: Python<'_>) -> PyResult<()> {
        let Some(store) = &self.given else {
            return Ok(());
        };
        let changes: u64 = store.getattr(py, "_changes")?.extract(py)?;
        store.setattr(py, "_changes", changes + 1)
    }

    /// Ends a transaction. Commits it if `is_good` and no nested block is open; otherwise rolls it
    /// back.
    fn end(&self, py: Python<'_>, live: &Py<Live>, is_good: bool) -> PyResult<bool> {
        let it = live.get();
        it.is_over.store(true, Ordering::SeqCst);
        let store = self.store.get();
        let is_newest = store.live(py).is_some_and(|newest| newest.is(live));
        if is_newest {
            store.set_live(None);
        }
        let task = locked(&it.task).take();
        let noted = note(py, None);
        let is_in_order = it.depth.load(Ordering::SeqCst) == 0;
        let writer = it.writer.get();
        let ended = if is_good && is_in_order {
            writer.commit(py)
        } else {
            writer.rollback(py);
            if is_good {
                Err(UsageError::new_err(OUT_OF_ORDER))
            } else {
                Ok(())
            }
        };
        drop(task);
        ended.and(noted).map(|()| false)
    }
}
