"""Stores of tables: mappings that behave as dictionaries do, transactions that are all or nothing,
threads that share flushes, and what a killed process has acknowledged."""

import contextlib
import errno
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc

import pytest

import flagstone


@pytest.fixture
def store():
    with flagstone.open("x.flag") as store:
        yield store


def test_a_store_is_there_when_it_is_opened_again():
    with flagstone.open("x.flag") as store:
        store["users"][b"k"] = b"v"
    with flagstone.open("x.flag", create=False) as store:
        assert store["users"][b"k"] == b"v"
        assert list(store) == ["users"] and "users" in store and len(store) == 1


def test_an_iteration_over_large_values_has_few_of_them_in_memory(store):
    table = store["t"]
    table.update({b"%02d" % n: bytes([n]) * (1 << 20) for n in range(40)})
    keys = [b"%02d" % n for n in range(40)]
    with store.transaction():
        assert list(table) == keys
    for read, expected in [
        (lambda: iter(table), keys),
        (lambda: reversed(table), keys[::-1]),
        (lambda: (key for key, value in table.range(b"05") if set(value) == {int(key)}), keys[5:]),
    ]:
        tracemalloc.start()
        assert list(read()) == expected
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8 << 20


def test_an_iteration_over_a_hashed_table_has_few_pairs_in_memory(store):
    table = store.table("h", "hashed")
    expected = {b"%02d" % n: bytes([n]) * (1 << 20) for n in range(40)}
    table.update(expected)
    for read, count in [
        (lambda: iter(table), 40),
        (lambda: reversed(table), 40),
        (lambda: (key for key, value in table.items() if expected[key] == value), 40),
        (lambda: iter([table.first()[0]]), 1),
        (lambda: iter([table.last()[0]]), 1),
    ]:
        tracemalloc.start()
        keys = list(read())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(keys) == len(set(keys)) == count and set(keys) <= set(expected)
        assert peak < 8 << 20
    assert list(table)[::-1] == list(reversed(table))
    pairs = iter(table.items())
    next(pairs)
    table.clear()
    assert len(list(pairs)) == 39
    with store.transaction():
        table.update(expected)
        assert set(table) == set(expected) and len(table.popitem()[1]) == 1 << 20


def test_a_table_is_a_mapping(store):
    table = store["t"]
    assert len(table) == 0 and b"k" not in table and "t" not in store
    with pytest.raises(KeyError):
        table[b"k"]
    with pytest.raises(KeyError):
        del table[b"k"]
    table[b"k"] = b"v"
    assert table == {b"k": b"v"} and b"k" in table and "k" not in table
    assert table.get(b"none") is None and table.get(b"none", 7) == 7
    assert table.setdefault(b"k", b"w") == b"v" and table.setdefault(b"n", b"w") == b"w"
    assert table.pop(b"n") == b"w" and table.pop(b"n", None) is None
    with pytest.raises(KeyError):
        table.pop(b"n")
    table.update({b"a": b"1", b"z": b"2"})
    table.update([(b"b", b"3")])
    assert list(table) == [b"a", b"b", b"k", b"z"] == list(table.keys())
    assert list(reversed(table)) == [b"z", b"k", b"b", b"a"]
    assert list(table.values()) == [b"1", b"3", b"v", b"2"]
    assert table.first() == (b"a", b"1") and table.last() == (b"z", b"2")
    assert table.get_many([b"z", b"-", b"a"]) == [b"2", None, b"1"]
    assert table.popitem() == (b"z", b"2")
    table.clear()
    assert dict(table) == {} and table.first() is None
    del store["t"]
    assert "t" not in store
    with pytest.raises(KeyError):
        del store["t"]


def test_a_store_is_a_mapping_of_the_tables_that_are_there(store):
    store["t"][b"k"] = b"v"
    assert store.get("t") == {b"k": b"v"} and store.get("none") is None and store.get("none", 7) == 7
    with store.snapshot() as then:
        assert then.get("t") == {b"k": b"v"} and then.get("none") is None


def test_to_ask_for_one_table_lists_no_others(store, monkeypatch):
    for n in range(3):
        store.table(f"t{n}", "hashed" if n == 2 else None)[b"k"] = b"v"

    def lists(self):
        raise AssertionError("it lists all tables")

    monkeypatch.setattr(flagstone.Store, "kinds", lists)
    for place in (store, store.snapshot()):
        monkeypatch.setattr(type(place), "kinds", lists)
        assert "t0" in place and "t9" not in place and "" not in place and 7 not in place
        assert place.get("t9") is None and list(place["t2"].items()) == [(b"k", b"v")]
        assert list(place["t9"]) == [] and "n" * 300 not in place
    with store.transaction():
        assert "t0" in store and "t9" not in store
        del store["t0"]
        assert "t0" not in store
        with pytest.raises(KeyError):
            del store["t0"]


@pytest.mark.parametrize("kind", ["ordered", "hashed"])
def test_the_views_of_a_table_are_those_of_a_dictionary(store, kind):
    table, model = store.table("t", kind), {b"a": b"1", b"b": b"2", b"c": b"2"}
    table.update(model)
    for view, own in ((table.keys(), list(table)), (table.values(), list(table.values()))):
        assert list(reversed(view)) == own[::-1]
    for pair in ((b"a", b"1"), (b"a", b"2"), (b"-", b"1"), ("a", b"1"), (b"a",), 7):
        assert (pair in table.items()) == (pair in model.items()), pair
    assert b"2" in table.values() and b"3" not in table.values()
    assert bytearray(b"a") in table and memoryview(b"-") not in table

    class Taking:
        """Takes the other keys away when it is compared, as another thread may."""

        def __eq__(self, other):
            for key in model:
                table.pop(key, None)
            return False

    assert Taking() not in table.values() and len(table) == 0


def test_several_keys_get_their_values_or_none_of_them_does(store):
    store["t"].update([[b"a", b"1"], (b"b", b"2")])
    with store.transaction():
        store["t"][b"c"] = b"3"
        with pytest.raises(flagstone.UsageError):
            store["t"].update({b"a": b"9", b"z" * 100_000: b"9"})
    assert store["t"] == {b"a": b"1", b"b": b"2", b"c": b"3"}


@pytest.mark.parametrize("wrong", [[1, 2], (1, 2), range(3), "text", 7, None])
def test_what_is_not_bytes_is_neither_a_key_nor_a_value(store, wrong):
    """A list of small numbers was taken for bytes."""
    table = store["t"]
    for go in (
        lambda: table.__setitem__(wrong, b"v"),
        lambda: table.__setitem__(b"k", wrong),
        lambda: table[wrong],
        lambda: table.get_many([b"k", wrong]),
        lambda: table.update({b"k": wrong}),
        lambda: table.add(wrong),
        lambda: flagstone.open("y.flag", key=wrong or 7),
    ):
        with pytest.raises(TypeError):
            go()
    assert wrong not in table and len(table) == 0
    for right in (bytearray(b"v"), memoryview(b"v"), memoryview(b"v.")[::2]):
        table[right] = right
        assert table.pop(b"v") == b"v"


@pytest.mark.parametrize("kind", ["ordered", "hashed"])
@pytest.mark.parametrize("seed", range(3))
def test_a_table_does_what_a_dictionary_does(store, seed, kind):
    dice, table, model = random.Random(seed), store.table("t", kind), {}
    for _ in range(30):
        before = dict(model)
        try:
            with store.transaction():
                for _ in range(dice.randrange(60)):
                    key = dice.randbytes(dice.choice([1, 2, 30]))
                    if dice.random() < 0.7:
                        table[key] = model[key] = dice.randbytes(dice.choice([0, 10, 9000]))
                    else:
                        assert table.pop(key, None) == model.pop(key, None)
                assert dict(table.items()) == model and len(table) == len(model)
                if dice.random() < 0.3:
                    raise LookupError
        except LookupError:
            model = before
        assert dict(table.items()) == model and len(table) == len(model)
        if kind == "ordered":
            low, high = sorted((dice.randbytes(1), dice.randbytes(1)))
            inside = sorted((key, value) for key, value in model.items() if low <= key < high)
            assert list(table.range(low, high)) == inside
            assert list(table.range(low, high, reverse=True)) == inside[::-1]
            begins = sorted((key, value) for key, value in model.items() if key.startswith(low))
            assert list(table.prefix(low)) == begins


def test_a_long_table_is_read_in_parts_from_both_ends(store):
    keys = [n.to_bytes(4, "big") for n in range(3000)]
    store["t"].update((key, key) for key in keys)
    assert list(store["t"]) == keys and list(reversed(store["t"])) == keys[::-1]
    assert [key for key, _ in store["t"].prefix(b"\0\0\1")] == keys[256:512]
    assert list(store["t"].prefix(b"\xff\xff")) == [] == list(store["t"].range(b"b", b"a"))


def test_an_exception_rolls_back_and_goes_on(store):
    store["t"][b"a"] = b"1"
    with pytest.raises(ZeroDivisionError):
        with store.transaction():
            store["t"][b"a"] = b"2"
            store["new"][b"b"] = b"3"
            assert store["t"][b"a"] == b"2"
            1 / 0
    assert dict(store["t"]) == {b"a": b"1"} and list(store) == ["t"]


def test_a_block_within_a_block_is_a_savepoint(store):
    with store.transaction():
        store["t"][b"a"] = b"1"
        with pytest.raises(LookupError):
            with store.transaction():
                store["t"][b"a"] = b"2"
                store["other"][b"b"] = b"3"
                raise LookupError
        assert "other" not in store
        with store.transaction():
            store["t"][b"c"] = b"4"
    assert dict(store["t"]) == {b"a": b"1", b"c": b"4"}


def test_an_iteration_goes_on_without_what_was_rolled_back(store):
    store["t"].update({b"a": b"1", b"d": b"4"})
    with store.transaction():
        with contextlib.suppress(LookupError), store.transaction():
            store["t"].update({b"b": b"2", b"c": b"3"})
            pairs = iter(store["t"].items())
            assert next(pairs) == (b"a", b"1")
            raise LookupError
        assert list(pairs) == [(b"d", b"4")]


def test_a_snapshot_stays_as_it_was(store):
    store["t"].update({bytes([n]): b"old" for n in range(200)})
    with store.snapshot() as then:
        with store.transaction():
            for key in list(store["t"]):
                store["t"][key] = b"new"
            assert set(then["t"].values()) == {b"old"}
        assert set(then["t"].values()) == {b"old"} and set(store["t"].values()) == {b"new"}
        with pytest.raises(TypeError):
            then["t"][b"k"] = b"v"
    with pytest.raises(flagstone.UsageError, match="the snapshot is closed"):
        then["t"][b"k"]


def test_other_threads_see_what_is_committed_only(store):
    store["t"][b"k"] = b"old"
    inside, seen, go_on = threading.Event(), [], threading.Event()

    def look():
        inside.wait()
        seen.append(store["t"][b"k"])
        go_on.set()

    thread = threading.Thread(target=look)
    thread.start()
    with store.transaction():
        store["t"][b"k"] = b"new"
        inside.set()
        # The reader waits for no writer: else it would be here that nothing goes on.
        assert go_on.wait(60)
    thread.join()
    assert seen == [b"old"] and store["t"][b"k"] == b"new"


def test_threads_take_turns_and_lose_nothing(store):
    def work():
        for _ in range(50):
            store["t"].add(b"n")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store["t"].add(b"n", 0) == 200


def test_mistakes_are_clear_and_nothing_is_done(store):
    with pytest.raises(TypeError):
        store["t"]["text"] = b"v"
    with pytest.raises(TypeError):
        store["t"][b"k"] = 7
    with pytest.raises(flagstone.UsageError, match="key"):
        store["t"][b"k" * 100_000] = b"v"
    assert dict(store["t"]) == {}
    store["t"][b"k"] = b"v"
    with pytest.raises(flagstone.Error, match="a counter has 8 bytes"):
        store["t"].add(b"k")
    with pytest.raises(flagstone.UsageError, match="did you mean `hashed`"):
        store.table("h", "hash")
    with pytest.raises(flagstone.UsageError, match="drop it first"):
        store.table("t", "hashed")
    with pytest.raises(flagstone.UsageError, match="there is no protocol"):
        flagstone.open("y.flag", protocol="seel")


def test_a_store_that_is_closed_says_so():
    store = flagstone.open("x.flag")
    store.close()
    store.close()
    with pytest.raises(flagstone.UsageError, match="the store is closed"):
        store["t"][b"k"] = b"v"


def test_a_store_in_use_and_what_is_none_are_refused(store, tmp_path):
    program = "import flagstone\ntry:\n    flagstone.open('x.flag')\nexcept flagstone.InUseError as e: print(e)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "in use" in done.stdout, done
    (tmp_path / "text").write_text("no store" * 2000)
    with pytest.raises(flagstone.StoreError, match="text"):
        flagstone.open("text")


def test_damage_is_told_from_other_failures(tmp_path):
    with flagstone.open("x.flag") as store:
        store["t"][b"k"] = b"a value that is stored once"
    bytes_of = (tmp_path / "x.flag").read_bytes()
    (tmp_path / "x.flag").write_bytes(bytes_of.replace(b"stored once", b"stored twic"))
    with flagstone.open("x.flag") as store:
        table = store["t"]
        for use in (
            lambda: table[b"k"],
            lambda: list(table),
            lambda: table.get_many([b"k"]),
            lambda: table.pop(b"k"),
            lambda: table.update({b"k": b"another"}),
        ):
            with pytest.raises(flagstone.DamagedError, match="table `t`"):
                use()


def test_a_store_that_is_only_read_refuses_writes():
    with flagstone.open("x.flag") as store:
        store["t"][b"k"] = b"v"
    with flagstone.open("x.flag", read_only=True) as store:
        assert store["t"][b"k"] == b"v"
        with pytest.raises(flagstone.UsageError, match="reading only"):
            store["t"][b"k"] = b"w"


@pytest.mark.parametrize("rounds", [5])
def test_a_killed_process_has_kept_its_word(rounds):
    """Each commit is printed once it has returned; what was printed must be there, and transactions
    are whole. The control is in the same process: what it does after the last commit is not."""
    program = """
        import flagstone, itertools, sys
        store = flagstone.open("x.flag")
        first = store["t"].add(b"n", 0)
        for n in itertools.count(first + 1):
            with store.transaction():
                store["t"].add(b"n")
                store["t"].add(b"m")
            print(n, flush=True)
            try:
                with store.transaction():
                    store["t"].add(b"lost")
                    raise LookupError
            except LookupError:
                pass
    """
    for _ in range(rounds):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
        )
        process.stdout.readline()
        time.sleep(random.uniform(0.05, 0.5))
        process.send_signal(signal.SIGKILL)
        acknowledged = [int(line) for line in process.communicate()[0].splitlines() if line]
        with flagstone.open("x.flag") as store:
            n = store["t"].add(b"n", 0)
            assert n == store["t"].add(b"m", 0) and b"lost" not in store["t"]
            # The last line may have been cut: it is a number below the true one then.
            assert not acknowledged or n >= acknowledged[-1] >= 1
            assert n <= (acknowledged[-1] if acknowledged else n) + 1


def test_commits_release_the_lock_of_the_interpreter(store):
    """While one thread waits in commits, another one computes."""
    counted, over = 0, threading.Event()

    def count():
        nonlocal counted
        while not over.is_set():
            counted += 1
            time.sleep(0.0005)

    thread = threading.Thread(target=count)
    thread.start()
    begun = time.monotonic()
    for n in range(300):
        store["t"][n.to_bytes(2, "big")] = b"v" * 3000
    took = time.monotonic() - begun
    over.set()
    thread.join()
    assert counted > 20 * took


def test_control_c_ends_the_wait_for_the_turn_to_write():
    """The transaction that is waited for never ends: without the interrupt nothing would go on."""
    program = """
        import flagstone, threading
        store = flagstone.open("x.flag")
        inside, over = threading.Event(), threading.Event()

        def hold():
            with store.transaction():
                store["t"][b"held"] = b"v"
                inside.set()
                over.wait()

        holder = threading.Thread(target=hold)
        holder.start()
        inside.wait()
        print("ready", flush=True)
        try:
            store["t"][b"k"] = b"v"
        except KeyboardInterrupt:
            print("stopped", flush=True)
        over.set()
        holder.join()
        store["t"][b"later"] = b"v"
        print(list(store["t"]))
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    try:
        assert process.communicate(timeout=60)[0] == "stopped\n[b'held', b'later']\n"
    finally:
        process.kill()


def test_a_fork_has_nothing_of_the_store_and_spoils_nothing():
    program = """
        import flagstone, os, sys
        store = flagstone.open("x.flag")
        store["t"][b"a"] = b"1"
        snapshot = store.snapshot()
        with store.transaction():
            store["t"][b"b"] = b"2"
            child = os.fork()
            if child == 0:
                # All the ways in, and then an end with the destructors of Python.
                for go in (lambda: store["t"][b"a"], lambda: snapshot["t"][b"a"], store.snapshot):
                    try:
                        go()
                    except flagstone.UsageError as error:
                        assert "forked" in str(error)
                    else:
                        sys.exit(1)
                try:
                    flagstone.open("x.flag")
                except flagstone.InUseError:
                    pass
                else:
                    sys.exit(2)
                store.close()
                del store, snapshot
                sys.exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        store["t"][b"c"] = b"3"
        # A commit in a child says so as well, and not that it is over.
        child = None
        try:
            with store.transaction():
                store["t"][b"d"] = b"4"
                child = os.fork()
        except flagstone.UsageError as error:
            os._exit(8 if child == 0 and "forked" in str(error) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 8
        del store["t"][b"d"]
        print(len(snapshot["t"]), dict(store["t"]))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
    assert done.stdout == "1 {b'a': b'1', b'b': b'2', b'c': b'3'}\n", done.stderr
    with flagstone.open("x.flag", create=False) as store:
        assert len(store["t"]) == 3


def test_an_encrypted_store_opens_with_its_key_alone(tmp_path):
    word = b"nobody reads this" * 100
    keys = {"key": b"k" * 32}, {"passphrase": "correct horse"}, {"key_file": tmp_path / "key"}
    (tmp_path / "key").write_text("ab" * 32 + "\n")
    for number, right in enumerate(keys):
        path = f"{number}.flag"
        with flagstone.open(path, **right) as store:
            store["t"][b"k"] = word
        with flagstone.open(path, **right) as store:
            assert store["t"][b"k"] == word
        assert word[:17] not in (tmp_path / path).read_bytes()
        for wrong in ({}, {"key": b"w" * 32}, {"passphrase": "wrong"}):
            with pytest.raises(flagstone.WrongKeyError, match=path):
                flagstone.open(path, **wrong)
    # The control: without a key it is there to read, and a key is refused.
    with flagstone.open("plain.flag") as store:
        store["t"][b"k"] = word
    assert word[:17] in (tmp_path / "plain.flag").read_bytes()
    with pytest.raises(flagstone.WrongKeyError, match="plain.flag"):
        flagstone.open("plain.flag", key=b"k" * 32)


def test_a_key_is_changed_without_its_data():
    with flagstone.open("x.flag", key=b"1" * 32) as store:
        store["t"][b"k"] = b"v"
    with pytest.raises(flagstone.WrongKeyError):
        flagstone.rekey("x.flag", key=b"2" * 32, new_key=b"3" * 32)
    flagstone.rekey("x.flag", key=b"1" * 32, new_passphrase="new")
    with pytest.raises(flagstone.WrongKeyError):
        flagstone.open("x.flag", key=b"1" * 32)
    with flagstone.open("x.flag", passphrase="new") as store:
        assert store["t"][b"k"] == b"v"
        with pytest.raises(flagstone.InUseError):
            flagstone.rekey("x.flag", passphrase="new", new_key=b"1" * 32)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"key": b"short"}, "a key has 32 bytes"),
        ({"key": b"k" * 32, "passphrase": "p"}, "one key"),
        ({"key": b"k" * 32, "key_file": "none"}, "one key"),
        ({"key_file": "none"}, "none: No such file"),
        ({"passphrase": ""}, "the passphrase is empty"),
    ],
)
def test_a_key_that_is_none_is_refused_and_no_store_is_made(keys, message, tmp_path):
    with pytest.raises(flagstone.UsageError, match=message):
        flagstone.open("x.flag", **keys)
    assert not (tmp_path / "x.flag").exists()


def test_a_file_that_is_missing_is_told_of_as_python_does(tmp_path):
    with pytest.raises(FileNotFoundError) as missing:
        flagstone.open(tmp_path / "missing.flag", create=False)
    assert missing.value.errno == errno.ENOENT
    assert isinstance(missing.value, flagstone.StoreError)
    with pytest.raises(flagstone.UsageError):
        flagstone.open(tmp_path / "new.flag", space=0)
    assert not (tmp_path / "new.flag").exists()
