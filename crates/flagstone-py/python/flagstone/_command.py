"""Runs commands of the program `flagstone` in this process, for the public functions of other
modules. Keyword arguments become options, results become records, notes become warnings."""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from . import _native
from .errors import Error
from .records import Records

#: Called with the amount of work done, the total amount (or None), and a word for the work.
Progress = Callable[[int, "int | None", str], None]


class Note(UserWarning):
    """A note in addition to a result, for example on what was left out."""


def run(
    command: str, options: Mapping[str, Any], names: Iterable[Any] = (), progress: bool | Progress | None = None
) -> tuple[bool, Records]:
    """Runs a command with --json. Returns whether its verdict is good, and its records."""
    good, text = say([*command.split(), *_arguments(options), "--json", "--", *map(_text, names)], progress)
    return good, Records(json.loads(line) for line in text.splitlines())


def say(
    arguments: list[str], progress: bool | Progress | None = None, *, notes_are_warnings: bool = True
) -> tuple[bool, str]:
    """Runs a command. Returns whether its verdict is good, and its output."""
    with _Bar(progress) as bar:
        try:
            good, text, notes = _native.command(arguments, bar)
        except Error as error:
            raise type(error)(_in_python(str(error))) from None
    for note in notes if notes_are_warnings else ():
        warnings.warn(_in_python(note.removeprefix("note: ")), Note, stacklevel=4)
    return good, text


def _arguments(options: Mapping[str, Any]) -> list[str]:
    """Command-line options. Values that are None or False are left out."""
    arguments: list[str] = []
    for name, value in options.items():
        option = f"--{name.strip('_').replace('_', '-')}"
        if value is None or value is False:
            continue
        if value is True:
            arguments.append(option)
        elif name == "settings":
            for setting, to in value.items():
                arguments.append(f"--set={setting}={_text(to)}")
        else:
            arguments.append(f"{option}={_text(value)}")
    return arguments


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    if isinstance(value, Iterable):
        return ",".join(map(_text, value))
    return str(value)


def _in_python(text: str) -> str:
    """A message with keyword names in place of command-line options."""
    text = re.sub(r"\n*For more information, try '--help'\.\s*$", "", text)
    text = re.sub(r"--set(?=[ :])", "settings:", text)
    return re.sub(
        # Does not change complete shell commands.
        r"`flagstone [^`]*`|'?--([a-z][a-z-]*)(?: <[^>]*>)?'?",
        lambda match: f"`{match[1].replace('-', '_')}`" if match[1] else match[0],
        text,
    )


class _Bar:
    """Reports progress to a function of the caller, or to tqdm if it is installed."""

    def __init__(self, progress: bool | Progress | None) -> None:
        self._call = progress if callable(progress) else None
        self._bar: Any = None
        shown = sys.stderr is not None and sys.stderr.isatty() if progress is None else progress is True
        try:
            from tqdm.auto import tqdm
        except ImportError:
            return
        self._tqdm = tqdm if shown else None

    _tqdm: Any = None

    def __enter__(self) -> Progress | None:
        return self if self._call or self._tqdm else None

    def __call__(self, done: int, of: int | None, what: str) -> None:
        if self._call:
            return self._call(done, of, what)
        if self._bar is None:
            self._bar = self._tqdm(total=of, desc=what, leave=False)
        self._bar.total = of
        self._bar.set_description(what, refresh=False)
        self._bar.n = done
        self._bar.refresh()

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
