"""The bash kernel: one shell that keeps its state."""

import asyncio
import os
import shlex
import signal

import results
from child import Child

FOLDER = os.path.dirname(os.path.abspath(__file__))
# Seconds between two interrupts: each ends what runs then, and a cell may go on with something else.
AGAIN = 0.2


class BashKernel:
    def __init__(self, cwd, env):
        self.cwd, self.env = cwd, env
        self.child = None
        self.executions = 0
        self.is_running = False

    async def start(self):
        child = self.child = Child()
        cells, self.cells = child.pipe_to()
        command = ["/bin/bash", "--noprofile", "--norc", os.path.join(FOLDER, "kernel.bash"), str(cells)]
        try:
            await child.start(command, (cells,), self.cwd, self.env)
        except BaseException:
            await self.stop()
            raise
        child.spawn(child.hear("stdout", child.process.stdout))
        child.spawn(child.hear("stderr", child.process.stderr))

    async def stop(self):
        child, self.child = self.child, None
        if child is not None:
            await child.stop()

    async def interrupt(self):
        while self.is_running and self.child is not None:
            self.child.signal(signal.SIGINT)
            await asyncio.sleep(AGAIN)

    async def execute(self, code, env, language):
        """Runs a cell; what it says comes as events. As in a shell, a status other than 0 is no error."""
        if "\0" in code:
            yield results.error("SyntaxError", "a cell of bash can't hold a zero byte", "")
            return
        self.executions += 1
        yield results.count(self.executions)
        self.is_running = True
        try:
            if env:
                async for event in self.cell(setting(env)):
                    yield event
            async for event in self.cell(code):
                yield event
            if env:
                async for event in self.cell(resetting(env)):
                    yield event
        finally:
            self.is_running = False

    async def cell(self, code):
        child = self.child
        await child.write(self.cells, f"{child.mark}\0{code}\0".encode(errors="replace"))
        marks = 0
        was_stopped = False
        while marks < 2:
            event = await child.events.get()
            if event is None:
                raise EOFError("the shell ended")
            stream, text = event
            if stream is None:
                marks += 1
                was_stopped |= text
            else:
                yield results.output(stream, text)
        if was_stopped:
            yield results.error("KeyboardInterrupt", "interrupted", "")


def setting(env):
    """Sets variables and keeps what they were. Their names were checked."""
    return "".join(
        f"__had_{name}=${{{name}+1}} __old_{name}=${{{name}-}}; export {name}={shlex.quote(value)}\n"
        for name, value in env.items()
    )


def resetting(env):
    return "".join(
        f'if [ "$__had_{name}" ]; then export {name}="$__old_{name}"; else unset {name}; fi; '
        f"unset __had_{name} __old_{name}\n"
        for name in env
    )
