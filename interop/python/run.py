"""Runs cases with one release of the official packages and prints a line of JSON for each:

    {"case": NAME, "outcome": "passed" | "failed" | "absent" | "skipped", "why": TEXT}

    PYTHONPATH=PACKAGES python3 run.py --suite e2b|interpreter|domain --way sync|async [--smoke] [--only PART] [--at-once N]

The server and its key come from the environment, as a user's would. A case is written once for both ways: what it awaits is a value
in the one and a coroutine in the other (`go`).
"""

import argparse
import asyncio
import importlib
import importlib.metadata
import json
import os
import pkgutil
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import cases
from case import CASES, Absent, Case, Skipped

# Longest a case may take, in seconds: far above what any needs, so that one that hangs is named.
LONGEST_CASE = 120

MODULES = {"e2b": ("e2b", "e2b"), "domain": ("e2b", "e2b"), "interpreter": ("e2b_code_interpreter", "e2b-code-interpreter")}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--suite", choices=MODULES, default="e2b")
    parser.add_argument("--way", choices=["sync", "async"], default="sync")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--at-once", type=int, default=6)
    options = parser.parse_args()
    module, package = MODULES[options.suite]
    sdk, version = importlib.import_module(module), importlib.metadata.version(package)
    for each in pkgutil.iter_modules(cases.__path__):
        importlib.import_module(f"cases.{each.name}")
    chosen = [
        each
        for each in CASES
        if each.suite == options.suite and (each.smoke or not options.smoke) and options.only in each.name
    ]
    is_async = options.way == "async"
    shared = Case("shared", sdk, version, is_async)

    if is_async:

        async def all_async():
            places = asyncio.Semaphore(options.at_once)

            async def one(each):
                async with places:
                    await run(each, Case(each.name, sdk, version, True, shared))

            await asyncio.gather(*map(one, chosen))
            await shared.finish()

        asyncio.run(all_async())
    else:
        # What a case awaits is there at once, so a thread is a case's.
        with ThreadPoolExecutor(options.at_once) as threads:
            make = lambda each: asyncio.run(run(each, Case(each.name, sdk, version, False, shared)))
            list(threads.map(make, chosen))
        asyncio.run(shared.finish())
    sys.stdout.flush()
    # Threads that a failed case left in a stream keep nobody waiting.
    os._exit(0)


async def run(each, context):
    started = time.monotonic()
    outcome, why = "passed", None
    try:
        # In a thread nothing interrupts a call: there the limits of the calls themselves hold, and the run's.
        await asyncio.wait_for(each.body(context), LONGEST_CASE)
    except (Absent, Skipped) as error:
        outcome, why = "absent" if isinstance(error, Absent) else "skipped", str(error)
    except BaseException as error:
        outcome, why = "failed", told(error)
    try:
        await context.finish()
    except Exception as error:
        if outcome == "passed":
            outcome, why = "failed", f"at its end: {told(error)}"
    spent = round((time.monotonic() - started) * 1000)
    # In one piece: threads print at once.
    sys.stdout.write(json.dumps({"case": each.name, "outcome": outcome, "why": why, "ms": spent}) + "\n")
    sys.stdout.flush()


def told(error):
    places = [frame for frame in traceback.extract_tb(error.__traceback__) if "/cases/" in frame.filename]
    place = f" {os.path.basename(places[-1].filename)}:{places[-1].lineno}" if places else ""
    return f"{type(error).__name__}: {error}{place}"


if __name__ == "__main__":
    main()
