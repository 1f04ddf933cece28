"""Who is in a transaction, and when it ends: tasks, threads, generators, and signals whose handlers
raise. A write that returns is in the store, or it is in a transaction that its own block ends."""

import asyncio
import contextvars
import signal
import sys
import threading
import time
from contextlib import contextmanager

import pytest

import flagstone
from flagstone import UsageError


@pytest.fixture
def store():
    with flagstone.open("x.flag") as store:
        yield store


def in_thread(work):
    """What `work` returns in another thread, with a context of its own."""
    found = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join(60)
    assert found, "the other thread fails or hangs"
    return found[0]


def assert_no_transaction(store):
    """A write of this thread is durable when it returns."""
    store["probe"][b"k"] = value = str(time.monotonic_ns()).encode()
    assert in_thread(lambda: store["probe"].get(b"k")) == value


def test_a_task_does_not_write_in_the_transaction_of_another_one(store):
    async def main():
        is_open, tried = asyncio.Event(), asyncio.Event()

        async def first():
            with store.transaction():
                store["t"][b"first"] = b"1"
                is_open.set()
                await tried.wait()
                assert store["t"][b"first"] == b"1"
                raise LookupError

        async def second():
            await is_open.wait()
            try:
                # It reads what is durable.
                assert b"first" not in store["t"]
                for write in (lambda: store["t"].update({b"second": b"2"}), lambda: store["t"].add(b"n")):
                    with pytest.raises(UsageError, match="another task of this thread"):
                        write()
                with pytest.raises(UsageError, match="asyncio.Lock"), store.transaction():
                    pass
            finally:
                tried.set()

        outcome, _ = await asyncio.gather(first(), second(), return_exceptions=True)
        assert isinstance(outcome, LookupError), outcome
        assert not isinstance(_, BaseException), _
        store["t"][b"second"] = b"2"

    asyncio.run(main())
    assert dict(store["t"]) == {b"second": b"2"}
    assert_no_transaction(store)


def test_a_task_that_is_made_within_a_transaction_is_not_in_it(store):
    async def main():
        go_on = asyncio.Event()

        async def child():
            with pytest.raises(UsageError, match="started within a transaction"):
                store["t"][b"child"] = b"1"
            assert b"own" not in store["t"], "it reads what is durable"
            await go_on.wait()
            store["t"][b"child"] = b"2"

        with store.transaction():
            store["t"][b"own"] = b"1"
            task = asyncio.create_task(child())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        go_on.set()
        await task

    asyncio.run(main())
    assert in_thread(lambda: dict(store["t"])) == {b"own": b"1", b"child": b"2"}


def test_a_thread_with_the_context_of_a_transaction_is_told_so_and_does_not_wait_for_ever(store):
    async def main():
        with store.transaction():
            store["t"][b"own"] = b"1"
            with pytest.raises(UsageError, match="started within a transaction"):
                await asyncio.wait_for(asyncio.to_thread(store["t"].add, b"n"), 60)
            assert await asyncio.to_thread(len, store["t"]) == 0
        # The context knows of a transaction that is over, and of no other.
        await asyncio.to_thread(store["t"].add, b"n", 5)

    asyncio.run(main())
    assert store["t"].add(b"n", 0) == 5 and store["t"][b"own"] == b"1"
    with store.transaction():
        context = contextvars.copy_context()
        # A call in the same thread and task is in the block.
        context.run(store["t"].add, b"n")
    assert store["t"].add(b"n", 0) == 6


def test_a_thread_of_its_own_waits_for_its_turn(store):
    done = threading.Event()

    def work():
        store["t"][b"other"] = b"1"
        done.set()

    with store.transaction():
        thread = threading.Thread(target=work)
        thread.start()
        assert not done.wait(0.2)
    thread.join(60)
    assert store["t"][b"other"] == b"1"


def test_two_stores_have_transactions_of_their_own(store):
    with flagstone.open("y.flag") as other, store.transaction():
        with other.transaction():
            store["t"][b"x"], other["t"][b"y"] = b"1", b"2"
        assert in_thread(lambda: (dict(store["t"]), dict(other["t"]))) == ({}, {b"y": b"2"})


def test_a_generator_shares_its_block_with_who_resumes_it(store):
    @contextmanager
    def audited():
        with store.transaction():
            yield
            store["log"].add(b"n")

    with audited():
        store["t"][b"k"] = b"v"
    with pytest.raises(LookupError), audited():
        store["t"][b"k"] = b"w"
        raise LookupError
    assert dict(store["t"]) == {b"k": b"v"} and store["log"].add(b"n", 0) == 1


def test_a_generator_that_is_left_is_rolled_back(store):
    def work():
        with store.transaction():
            store["t"][b"k"] = b"v"
            yield

    generator = work()
    next(generator)
    del generator
    assert dict(store["t"]) == {}
    assert_no_transaction(store)


def test_blocks_that_end_out_of_order_are_an_error(store):
    def work(key):
        with store.transaction():
            store["t"][key] = b"v"
            yield

    first, second = work(b"1"), work(b"2")
    next(first), next(second)
    with pytest.raises(UsageError, match="end inner blocks first"):
        next(first)
    with pytest.raises(UsageError, match="end inner blocks first"):
        next(second)
    assert dict(store["t"]) == {}
    assert_no_transaction(store)
    block = store.transaction()
    with block, pytest.raises(UsageError, match="already entered"), block:
        pass


def test_an_async_generator_that_the_loop_closes_ends_its_transaction(store):
    async def work():
        with store.transaction():
            store["t"][b"k"] = b"v"
            yield

    async def main():
        async for _ in work():
            break
        # The loop closes it in a task of its own.
        await asyncio.sleep(0.01)
        store["t"][b"later"] = b"v"

    asyncio.run(main())
    assert in_thread(lambda: dict(store["t"])) == {b"later": b"v"}


class Generators:
    """The control: blocks that are generators of Python, and a transaction in a variable of the
    thread. A handler that raises at the wrong moment leaves the transaction open."""

    def __init__(self, store):
        self._native, self._local = store._native, threading.local()

    @contextmanager
    def transaction(self):
        writer = self._native.write()
        self._local.writer = writer
        try:
            yield self
            writer.commit()
        finally:
            self._local.writer = None
            writer.rollback()

    def add(self, key):
        with self.transaction():
            self._local.writer.add("t", key, 1)

    def is_open(self):
        return getattr(self._local, "writer", None) is not None

    def end(self):
        self._local.writer.rollback()
        self._local.writer = None


def interrupted_at(event, work):
    """Runs `work`, and raises KeyboardInterrupt before its instruction of this number. Returns the
    exception, or nothing if `work` has fewer instructions."""
    left = event

    def trace(frame, kind, argument):
        nonlocal left
        frame.f_trace_opcodes = True
        if kind == "opcode":
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt as error:
        return error
    finally:
        sys.settrace(None)
    return None


@pytest.mark.parametrize("how", ["add", "block", "nested"])
def test_no_instruction_at_which_an_exception_arrives_leaves_a_transaction(store, how):
    def add():
        store["t"].add(b"n")

    def block():
        with store.transaction():
            store["t"].add(b"n")

    def nested():
        with store.transaction():
            with store.transaction():
                store["t"].add(b"n")

    work = {"add": add, "block": block, "nested": nested}[how]
    counted = store["t"].add(b"n", 0)
    event = 0
    # An interactive shell keeps the last exception, and with it all frames that it went through.
    while (kept := interrupted_at(event, work)) is not None:
        assert store._native.inside() is None, f"instruction {event}"
        assert_no_transaction(store)
        now = store["t"].add(b"n", 0)
        assert now - counted in (0, 1)
        counted, event, kept = now, event + 1, None
    assert event > 20


def test_the_instructions_find_a_transaction_that_a_generator_leaves_open(store):
    """The control of the test above."""
    blocks, event, left_open = Generators(store), 0, 0
    while (kept := interrupted_at(event, lambda: blocks.add(b"n"))) is not None:
        if blocks.is_open():
            left_open += 1
            blocks.end()
        kept, event = None, event + 1
    assert left_open > 0


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers")
@pytest.mark.parametrize("how", ["add", "block"])
def test_timeouts_by_signals_leave_no_transaction(store, how):
    class Timeout(Exception):
        pass

    # A signal that was sent may be delivered, by another thread, when its timer is long off.
    armed = set()

    def interrupt(*_):
        if armed:
            armed.clear()
            raise Timeout

    def work():
        if how == "add":
            store["t"].add(b"n")
        else:
            with store.transaction():
                store["t"].add(b"n")

    store["t"].add(b"n", 0)
    before = signal.signal(signal.SIGALRM, interrupt)
    done, kept, timeouts, end = 0, None, 0, time.monotonic() + 3
    try:
        while time.monotonic() < end:
            try:
                armed.add("now")
                signal.setitimer(signal.ITIMER_REAL, 0.00002 + (done + timeouts) % 97 * 0.00001)
                work()
                done += 1
                armed.clear()
            except Timeout as error:
                timeouts, kept = timeouts + 1, error
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert store._native.inside() is None, f"after {timeouts} timeouts"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert timeouts > 20, timeouts
    # A timeout may come when its commit is durable, and before it returns.
    assert done <= in_thread(lambda: store["t"].add(b"n", 0)) <= done + timeouts
    del kept


def test_control_c_is_heard_in_an_update_of_many_pairs_soon(store):
    class Interrupt(Exception):
        pass

    at = []

    def interrupt(*_):
        at.append(time.monotonic())
        raise Interrupt

    pairs = [(b"%08d" % (number * 7919 % 300_000), b"v" * 20) for number in range(300_000)]
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        began = time.monotonic()
        store["t"].update(pairs)
        whole = time.monotonic() - began
        store["t"].clear()
        began = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, whole / 3)
        with pytest.raises(Interrupt):
            store["t"].update(pairs)
        # The commit alone is not interrupted.
        took = time.monotonic() - began
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    # A handler runs between two parts, and not after all of them.
    assert at[0] - began < whole * 0.6, (at[0] - began, took, whole)
    assert len(store["t"]) == 0
    assert_no_transaction(store)


@pytest.mark.parametrize("count", [100, 1000])
def test_an_iteration_sees_what_its_transaction_has_made_of_the_table(store, count):
    table = store["t"]
    table.update((b"%04d" % number, b"") for number in range(count))
    with store.transaction():
        seen = []
        for key in table:
            if key == b"0000":
                del table[b"%04d" % (count - 1)]
                table[b"%04dz" % (count - 2)] = b"new"
                del table[b"0010"]
            seen.append(key)
    assert seen == sorted(table)
    assert b"%04dz" % (count - 2) in seen
    with store.transaction():
        back = []
        for key in reversed(table):
            if key == b"0050":
                del table[b"0049"]
            back.append(key)
    assert back == sorted(table, reverse=True)
