"""A kernel that is a process of its own and hears cells on a pipe."""

import asyncio
import codecs
import contextlib
import os
import re
import secrets
import signal

# Bytes that are read at once of what it prints.
CHUNK = 1 << 16
# Events that wait to be read; then the process waits, too.
WAITING = 1000


class Child:
    """The process, its group, and the pipes that are ours."""

    def __init__(self):
        self.process = None
        self.ends, self.tasks, self.transports = [], [], []
        self.events = asyncio.Queue(WAITING)
        # What nothing else prints: the kernel writes it to both outputs at the end of a cell, so that all before it is of that cell.
        self.mark = f"<sandbar {secrets.token_hex(16)}>"

    def pipe_to(self):
        """A pipe that we write to: its end inside and ours."""
        inside, ours = os.pipe()
        self.ends.append(ours)
        return inside, ours

    async def start(self, command, inside, cwd, env):
        """Starts it with the ends that it gets, which are closed here."""
        try:
            self.process = await asyncio.create_subprocess_exec(
                *command, cwd=cwd, env=env, pass_fds=inside, start_new_session=True,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )
        finally:
            for end in inside:
                os.close(end)
        self.spawn(self.watch())

    def spawn(self, work):
        self.tasks.append(asyncio.create_task(work))

    async def watch(self):
        """Its end is an event: what it started may hold its outputs open for longer."""
        await self.process.wait()
        await self.events.put(None)

    async def hear(self, stream, pipe):
        """Texts and marks of one output, as pairs; a mark is of no stream. What may be the beginning of one is kept back."""
        pattern = re.compile(re.escape(self.mark) + r"(?P<stopped> stopped)?\n")
        kept = ""
        async for text in self.texts(pipe):
            kept += text
            while found := pattern.search(kept):
                if found.start():
                    await self.events.put((stream, kept[: found.start()]))
                await self.events.put((None, bool(found["stopped"])))
                kept = kept[found.end():]
            at = kept.find("<")
            while at >= 0 and not self.is_beginning(kept[at:]):
                at = kept.find("<", at + 1)
            whole, kept = (kept, "") if at < 0 else (kept[:at], kept[at:])
            if whole:
                await self.events.put((stream, whole))
        if kept:
            await self.events.put((stream, kept))

    def is_beginning(self, text):
        return any(mark.startswith(text) for mark in (f"{self.mark}\n", f"{self.mark} stopped\n"))

    async def texts(self, pipe):
        """What comes on an output, as text."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while chunk := await pipe.read(CHUNK):
            if text := decoder.decode(chunk):
                yield text

    async def write(self, end, data):
        """Writes all, away from the loop: it may wait for the process."""
        try:
            await asyncio.get_running_loop().run_in_executor(None, write_all, end, data)
        except OSError:
            raise EOFError("the kernel ended") from None

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    async def stop(self):
        if self.process is not None:
            self.signal(signal.SIGKILL)
            await self.process.wait()
        for task in self.tasks:
            task.cancel()
        for transport in self.transports:
            transport.close()
        ends, self.ends = self.ends, []
        for end in ends:
            os.close(end)
        # Whoever still waits for an event is told.
        while self.events.full():
            self.events.get_nowait()
        self.events.put_nowait(None)


def write_all(end, data):
    while data:
        data = data[os.write(end, data):]
