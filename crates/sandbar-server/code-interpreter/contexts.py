"""Contexts: kernels with a name, a language and a folder. One cell at a time runs in each."""

import asyncio
import contextlib
import os
import uuid

import results
from javascript_kernel import JavaScriptKernel, Missing
from python_kernel import PythonKernel
from shell_kernel import BashKernel

HOME = "/home/user"
# Other names of languages.
ALIASES = {"js": "javascript", "ts": "typescript", "py": "python", "sh": "bash"}
LANGUAGES = ("python", "javascript", "typescript", "bash")
# Those that E2B has and this template has not.
ABSENT = ("r", "java", "deno")
KERNELS = {"python": PythonKernel, "javascript": JavaScriptKernel, "bash": BashKernel}
# Contexts at once: each is a process of some 60 MiB.
MOST_CONTEXTS = 64
# Seconds that a cell may take to end after it was interrupted; then its kernel is started anew.
INTERRUPTED = 15


class Refused(Exception):
    """An answer other than 200, with its text."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status, self.text = status, text


def language_of(name):
    """The language that a name means; Python where none is given."""
    if name is None or name == "":
        return "python"
    if not isinstance(name, str):
        raise Refused(400, "language: expected a string")
    known = ALIASES.get(name.lower(), name.lower())
    if known in LANGUAGES:
        return known
    offered = ", ".join(LANGUAGES)
    if known in ABSENT:
        raise Refused(400, f"language {name} is not in this template: expected one of {offered}")
    raise Refused(400, f"unknown language {name}: expected one of {offered}")


def kernel_language(language):
    """Which kernel runs a language: TypeScript shares JavaScript's."""
    return "javascript" if language == "typescript" else language


class Context:
    def __init__(self, language, cwd, env):
        self.id = str(uuid.uuid4())
        self.language, self.cwd, self.env = language, cwd, env
        self.lock = asyncio.Lock()
        # Whose cell runs; another's may be waiting.
        self.running = None
        self.kernel = None

    def shown(self):
        return {"id": self.id, "language": self.language, "cwd": self.cwd}

    async def start(self):
        if self.kernel is not None:
            return
        kernel = KERNELS[kernel_language(self.language)](self.cwd, self.env)
        await kernel.start()
        self.kernel = kernel

    async def stop(self):
        kernel, self.kernel = self.kernel, None
        if kernel is not None:
            await kernel.stop()

    async def restart(self):
        """A fresh kernel under the same name. A cell that runs ends with its kernel."""
        await self.stop()
        async with self.lock:
            await self.start()

    async def run(self, code, env, language, put):
        """Runs a cell once those before it are done, and puts what it says."""
        async with self.lock:
            self.running = asyncio.current_task()
            try:
                await self.start()
                async for event in self.kernel.execute(code, env, language):
                    await put(event)
            except Missing as why:
                await put(results.error("Unsupported", why, str(why)))
            except Exception as why:
                # It ended, or a restart took it away; whatever it was, its state is not to be trusted.
                await put(results.ended(f"{str(why) or 'the kernel ended'}; what comes next gets a fresh one"))
                await self.stop()
            finally:
                self.running = None

    async def abandon(self, task):
        """Nobody waits for the cell any more: it is interrupted, and if that does not help its kernel goes."""
        if self.running is not task or self.kernel is None:
            task.cancel()
        else:
            interrupt = asyncio.create_task(self.kernel.interrupt())
            await asyncio.wait({task}, timeout=INTERRUPTED)
            interrupt.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await interrupt
            if not task.done():
                await self.stop()
                task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task


class Contexts:
    def __init__(self, env):
        self.env = env
        self.known = {}
        self.default = {}

    def eager(self):
        """The contexts that are there from the start; Python's kernel starts at once, the other when it is asked for."""
        for language in ("python", "javascript"):
            self.default_of(language)
        return self.known[self.default["python"]]

    def default_of(self, language):
        language = kernel_language(language)
        known = self.known.get(self.default.get(language))
        if known is None:
            known = self.add(language, HOME)
            self.default[language] = known.id
        return known

    def add(self, language, cwd):
        if len(self.known) >= MOST_CONTEXTS:
            raise Refused(429, f"there are {MOST_CONTEXTS} contexts already: remove one first")
        context = Context(language, cwd, self.env)
        self.known[context.id] = context
        return context

    def get(self, name):
        context = self.known.get(name)
        if context is None:
            raise Refused(404, f"Context {name} not found")
        return context

    async def create(self, language, cwd):
        if not isinstance(cwd, str) or not os.path.isabs(cwd):
            raise Refused(400, f"cwd {cwd}: expected an absolute path")
        if not os.path.isdir(cwd):
            raise Refused(400, f"cwd {cwd} is no folder: make it first")
        context = self.add(language, cwd)
        try:
            await context.start()
        except Missing as why:
            del self.known[context.id]
            raise Refused(400, str(why)) from None
        except BaseException:
            del self.known[context.id]
            raise
        if language == "typescript" and not context.kernel.has_typescript:
            await self.remove(context.id)
            raise Refused(400, "TypeScript needs Node.js 22.13 or newer in the template")
        return context

    async def remove(self, name):
        context = self.get(name)
        del self.known[name]
        await context.stop()
