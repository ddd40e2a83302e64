"""The Python kernel: Jupyter's own."""

import asyncio
import os
import queue
import shutil
import sys
import tempfile

from jupyter_client.asynchronous import AsyncKernelClient
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

import results

FOLDER = os.path.dirname(os.path.abspath(__file__))
# Seconds that a kernel may take until it answers: a busy machine with a cold cache.
START = 60
# Seconds between two looks whether a silent kernel is still there.
LOOK = 1
# Seconds that the answer to a cell may lag behind its output.
ANSWER = 5

# One line, so that nothing of it stands in the user's variables.
STARTUP = "exec(compile(open({0!r}).read(), {0!r}, 'exec'), {{'__name__': 'startup'}})".format(
    os.path.join(FOLDER, "startup.py")
)

# A name of our own: Jupyter takes `python` for another.
NAME = "sandbar-python"
COMMAND = [
    sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}",
    "--IPKernelApp.exec_lines=" + STARTUP, "--HistoryManager.enabled=False", "--colors=nocolor",
]


class Specs(KernelSpecManager):
    def get_kernel_spec(self, kernel_name):
        return KernelSpec(argv=COMMAND, display_name=kernel_name, language="python")


class PythonKernel:
    """One kernel and its client."""

    def __init__(self, cwd, env):
        self.cwd, self.env = cwd, env
        self.manager = self.client = self.folder = None

    async def start(self):
        # Sockets with names, in a folder that is nobody else's: kernels take no ports.
        self.folder = tempfile.mkdtemp(prefix="kernel-")
        self.manager = AsyncKernelManager(
            kernel_name=NAME, kernel_spec_manager=Specs(), shutdown_wait_time=2,
            transport="ipc", ip=os.path.join(self.folder, "socket"),
            connection_file=os.path.join(self.folder, "connection.json"),
        )
        self.manager.client_factory = AsyncKernelClient
        await self.manager.start_kernel(env=dict(self.env), cwd=self.cwd)
        try:
            await self.connect()
        except BaseException:
            await self.stop()
            raise

    async def connect(self):
        self.client = self.manager.client()
        self.client.start_channels()
        await self.client.wait_for_ready(timeout=START)

    async def stop(self):
        if self.client is not None:
            self.client.stop_channels()
            self.client = None
        if self.manager is not None:
            manager, self.manager = self.manager, None
            await manager.shutdown_kernel(now=True)
            shutil.rmtree(self.folder, ignore_errors=True)

    async def interrupt(self):
        if self.manager is not None:
            await self.manager.interrupt_kernel()

    async def execute(self, code, env, language):
        """Runs a cell with variables set for as long as it runs; what it says comes as events."""
        if env:
            await self.quietly(setting(env))
        async for event in self.run(code):
            yield event
        if env:
            await self.quietly(RESETTING)

    async def run(self, code):
        cell = self.client.execute(code, allow_stdin=False, store_history=True)
        async for message in self.messages(cell):
            kind, content = message["msg_type"], message["content"]
            if kind == "execute_input":
                yield results.count(content["execution_count"])
            elif kind == "stream":
                yield results.output(content["name"], content["text"])
            elif kind in ("execute_result", "display_data"):
                yield results.result(content["data"], kind == "execute_result")
            elif kind == "error":
                yield results.error(content["ename"], content["evalue"], "\n".join(content["traceback"]))

    async def quietly(self, code):
        cell = self.client.execute(code, silent=True, store_history=False, allow_stdin=False)
        async for _ in self.messages(cell):
            pass

    async def messages(self, cell):
        """Messages that a cell caused, until the kernel is idle again."""
        while True:
            try:
                message = await self.client.get_iopub_msg(timeout=LOOK)
            except asyncio.CancelledError:
                if self.client is None:
                    # Its sockets were closed, and that cancels who waits on them.
                    raise EOFError("the kernel was stopped") from None
                raise
            except queue.Empty:
                if not await self.manager.is_alive():
                    raise EOFError("the kernel ended") from None
                continue
            if message["parent_header"].get("msg_id") != cell:
                continue
            if message["msg_type"] == "status":
                if message["content"]["execution_state"] == "idle":
                    break
                continue
            yield message
        deadline = asyncio.get_running_loop().time() + ANSWER
        while (left := deadline - asyncio.get_running_loop().time()) > 0:
            try:
                answer = await self.client.get_shell_msg(timeout=left)
            except queue.Empty:
                return
            if answer["parent_header"].get("msg_id") == cell:
                return


def setting(env):
    """Sets variables and keeps what they were."""
    return (
        "def __sandbar_set(env):\n"
        "    import os\n"
        "    __sandbar_set.old = {name: os.environ.get(name) for name in env}\n"
        "    os.environ.update(env)\n"
        f"__sandbar_set({env!r})\n"
    )


RESETTING = (
    "import os as __sandbar_os\n"
    "for __sandbar_name, __sandbar_value in __sandbar_set.old.items():\n"
    "    if __sandbar_value is None: __sandbar_os.environ.pop(__sandbar_name, None)\n"
    "    else: __sandbar_os.environ[__sandbar_name] = __sandbar_value\n"
    "del __sandbar_set, __sandbar_os, __sandbar_name, __sandbar_value\n"
)
