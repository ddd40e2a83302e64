"""What a case is given: the package under test, sandboxes that end with it, and words for what a release does not have."""

import asyncio
import inspect
import os
import re
import secrets
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Callable

# Longest wait for a condition, in seconds: a busy machine's, not a bar.
LONGEST_WAIT = 60
# Between two looks at a condition, in seconds.
LOOK_EVERY = 0.05
# Longest request of the cases' own, in seconds.
LONGEST_REQUEST = 60


class Absent(Exception):
    """The release does not have what the case is about."""


class Skipped(Exception):
    """The machine does not have what the case needs."""


@dataclass
class Defined:
    name: str
    body: Callable
    smoke: bool
    suite: str


CASES = []


def define(name, smoke=False, suite="e2b"):
    assert all(other.name != name for other in CASES), f"two cases are called {name}"

    def keep(body):
        CASES.append(Defined(name, body, smoke, suite))
        return body

    return keep


async def go(value):
    """What a call gives, in either way."""
    return await value if inspect.isawaitable(value) else value


class Case:
    def __init__(self, name, sdk, version, is_async, shared=None):
        self.name, self.sdk, self.is_async, self.sharing = name, sdk, is_async, shared
        self.version = tuple(int(part) for part in version.split(".")[:3])
        self.at_end, self.one, self.lock, self.making = [], None, threading.Lock(), None
        way = "Async" if is_async else ""
        self.Sandbox = getattr(sdk, f"{way}Sandbox")
        self.Template, self.Volume = getattr(sdk, f"{way}Template", None), getattr(sdk, f"{way}Volume", None)

    async def sandbox(self, *args, **kwargs):
        """A sandbox of this case's own, killed at its end."""
        made = await go(self.Sandbox.create(*args, **kwargs))
        self.own(made.sandbox_id)
        return made

    def own(self, sandbox_id):
        self.later(lambda: self.Sandbox.kill(sandbox_id))

    def later(self, what):
        """Does something at the end of the case, the last first."""
        self.at_end.append(what)

    async def shared(self):
        """A sandbox that cases share which change nothing but a folder of their own in it."""
        sharing = self.sharing
        if self.is_async:
            sharing.making = sharing.making or asyncio.ensure_future(sharing.sandbox(timeout=600))
            return await sharing.making
        with sharing.lock:
            sharing.one = sharing.one or await sharing.sandbox(timeout=600)
        return sharing.one

    async def folder(self, sandbox):
        """A folder of this case's own in a sandbox."""
        path = f"/home/user/{unique('f')}"
        await go(sandbox.files.make_dir(path))
        return path

    async def together(self, *calls):
        """What several calls give that are under way at once."""
        if self.is_async:
            return await asyncio.gather(*(go(call()) for call in calls))
        with ThreadPoolExecutor(len(calls)) as threads:
            return list(threads.map(lambda call: call(), calls))

    def needs(self, has, what="not in this release"):
        if not has:
            raise Absent(what)

    def since(self, *version):
        """The case ends here where the release is older."""
        self.needs(self.version >= version)

    async def finish(self):
        for each in reversed(self.at_end):
            await go(each())


def unique(prefix):
    """A name that nothing else has."""
    return f"{prefix}-{secrets.token_hex(6)}"


async def until(condition, what):
    """Waits until a condition answers something, and answers that."""
    end = time.monotonic() + LONGEST_WAIT
    while True:
        seen = await go(condition())
        if seen:
            return seen
        assert time.monotonic() < end, f"waited {LONGEST_WAIT} s until {what}"
        await asyncio.sleep(LOOK_EVERY)


async def raises(call, kind, text=""):
    """Asserts that a call fails with one of the package's errors, and answers the error."""
    try:
        answer = await go(call())
    except Exception as error:
        assert isinstance(error, kind), f"expected {kind.__name__}, got {type(error).__name__}: {error}"
        assert re.search(text, str(error)), f"expected {text!r} in: {error}"
        return error
    raise AssertionError(f"expected {kind.__name__}, got {answer!r}"[:300])


def equal(seen, wanted):
    assert seen == wanted, f"expected {wanted!r}, got {seen!r}"


@dataclass
class Answer:
    status: int
    body: bytes
    headers: dict


async def request(url, method="GET", headers=None, data=None, context=None):
    """A request as somebody sends it who has no package."""
    sent = urllib.request.Request(url, method=method, headers=headers or {}, data=data)

    def send():
        try:
            with urllib.request.urlopen(sent, timeout=LONGEST_REQUEST, context=context) as answer:
                return Answer(answer.status, answer.read(), answer.headers)
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read(), error.headers)

    return await asyncio.to_thread(send)


async def to_port(sandbox_id, port, path="/", headers=None):
    """A request to a port of a sandbox as it goes without wildcard names: by headers."""
    routed = {"e2b-sandbox-id": sandbox_id, "e2b-sandbox-port": str(port), **(headers or {})}
    return await request(os.environ["E2B_SANDBOX_URL"] + path, headers=routed)
