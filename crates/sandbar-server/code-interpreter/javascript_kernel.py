"""The JavaScript kernel: one process of Node.js that keeps its state."""

import asyncio
import contextlib
import json
import os
import shutil

import results
from child import Child

FOLDER = os.path.dirname(os.path.abspath(__file__))
# Seconds that it may take until it answers.
START = 30
# Bytes of one event: a picture as text.
MOST = 64 << 20


class Missing(Exception):
    """There is no such language here."""


class JavaScriptKernel:
    def __init__(self, cwd, env):
        self.cwd, self.env = cwd, env
        self.child = None
        self.executions = 0
        self.has_typescript = False

    async def start(self):
        node = shutil.which("node", path=self.env.get("PATH"))
        if node is None:
            raise Missing("JavaScript needs Node.js in the template, and there is no `node`")
        child = self.child = Child()
        cells, self.cells = child.pipe_to()
        stops, self.stops = child.pipe_to()
        events, out = os.pipe()
        inside = (cells, out, stops)
        command = [node, "--no-warnings", os.path.join(FOLDER, "kernel.mjs"), *map(str, inside), child.mark]
        try:
            await child.start(command, inside, self.cwd, self.env)
            reader = asyncio.StreamReader(limit=MOST)
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(events, "rb", 0)
            )
            child.transports.append(transport)
            child.spawn(self.hear(reader))
            # What programs print that a cell started, and Node.js itself.
            child.spawn(child.hear("stdout", child.process.stdout))
            child.spawn(child.hear("stderr", child.process.stderr))
            ready = await asyncio.wait_for(child.events.get(), START)
            if ready is None or ready.get("type") != "ready":
                raise EOFError("Node.js ended before it was ready")
        except BaseException:
            await self.stop()
            raise
        self.has_typescript = bool(ready.get("typescript"))

    async def hear(self, reader):
        with contextlib.suppress(ValueError, OSError):
            while text := await reader.readline():
                await self.child.events.put(json.loads(text))
        # An event that is longer than any may be is the end, too.
        if self.child is not None:
            await self.child.events.put(None)

    async def stop(self):
        child, self.child = self.child, None
        if child is not None:
            await child.stop()

    async def interrupt(self):
        if self.child is not None:
            os.write(self.stops, b"\n")

    async def execute(self, code, env, language):
        """Runs a cell; what it says comes as events."""
        if language == "typescript" and not self.has_typescript:
            raise Missing("TypeScript needs Node.js 22.13 or newer in the template")
        self.executions += 1
        cell = {"id": self.executions, "code": code, "language": language, "env": env}
        yield results.count(self.executions)
        child = self.child
        await child.write(self.cells, json.dumps(cell).encode() + b"\n")
        # The event that it is done and a mark on each output.
        ends = 0
        while ends < 3:
            event = await child.events.get()
            if event is None:
                raise EOFError("the kernel ended")
            if isinstance(event, tuple):
                stream, text = event
                if stream is None:
                    ends += 1
                else:
                    yield results.output(stream, text)
                continue
            kind = event["type"]
            if kind in ("stdout", "stderr"):
                yield results.output(kind, event["text"])
            elif kind in ("result", "display"):
                yield results.result(event["data"], kind == "result")
            elif kind == "error":
                yield results.error(event["name"], event["value"], event["traceback"])
            elif kind == "done":
                ends += 1
