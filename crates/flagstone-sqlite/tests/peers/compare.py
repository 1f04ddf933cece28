"""Compares results of suites on plain files and on stores: compare.py PART RESULTS EXPECTED NAME...

RESULTS has NAME.plain.xml and NAME.store.xml, as pytest's --junitxml writes them. EXPECTED has the
differences that have a reason. PART is `whole`, or `subset` if not all tests were run. Exit code 1:
a difference has no reason, or a reason has no difference.
"""

import collections
import pathlib
import sys
from xml.etree import ElementTree

WORST = ["passed", "skipped", "failed"]


def results(file):
    """How each test ended, and the first line of what it said."""
    found = {}
    for case in ElementTree.parse(file).iter("testcase"):
        how, said = "passed", ""
        for child in case:
            if child.tag in ("failure", "error", "skipped"):
                how = "skipped" if child.tag == "skipped" else "failed"
                said = (child.get("message") or "").split("\n")[0]
        test = f"{case.get('classname')}.{case.get('name')}"
        # Subtests have the name of their test.
        if test not in found or WORST.index(how) > WORST.index(found[test][0]):
            found[test] = how, said
    return found


def main(part, folder, expected, *names):
    reasons = {}
    for line in pathlib.Path(expected).read_text().splitlines():
        if line and not line.startswith("#"):
            suite, test, reason = line.split("\t")
            reasons[suite, test] = reason
    print(f"{'passed, failed, skipped':<16}{'on plain files':>16}{'on stores':>20}{'differ':>8}")
    bad, told = 0, []
    for name in names:
        on = [results(pathlib.Path(folder) / f"{name}.{kind}.xml") for kind in ("plain", "store")]
        counts = []
        for found in on:
            count = collections.Counter(how for how, _ in found.values())
            counts.append("{:6}{:5}{:5}".format(*(count[how] for how in ("passed", "failed", "skipped"))))
        tests = on[0].keys() | on[1].keys()
        if part == "whole":
            tests |= {test for suite, test in reasons if suite == name}
        differ = 0
        for test in sorted(tests):
            (plain, _), (store, said) = (found.get(test, ("missing", "")) for found in on)
            reason = reasons.get((name, test))
            if plain == store:
                if reason:
                    bad += 1
                    told.append(f"{name} {test}: {store} on both, but a difference is expected ({reason})")
                continue
            differ += 1
            bad += reason is None
            told.append(f"{name} {test}: {plain} on plain files, {store} on stores: {reason or 'NO REASON: ' + said}")
        print(f"{name:<16}{counts[0]:>16}{counts[1]:>20}{differ:>8}")
    print("\n".join(told))
    return bad > 0


sys.exit(main(*sys.argv[1:]))
