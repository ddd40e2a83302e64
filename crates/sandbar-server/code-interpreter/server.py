"""The code interpreter: cells are run in contexts and what they say is streamed. Listens inside the sandbox only; who may reach it, the server outside decides."""

import asyncio
import json
import os
import re
import sys

import tornado.web
from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError

import results
from contexts import HOME, Contexts, Refused, language_of

PORT = 49999
# Seconds of silence after which a line is sent that says nothing.
KEEPALIVE = float(os.environ.get("SANDBAR_KEEPALIVE", "5"))
# Bytes of a request: a cell with data in it.
MOST_BODY = 64 << 20
# Events that wait for a client that reads slowly; then the kernel waits, too.
WAITING = 1000
# What the service has of its own and cells do not.
OWN = ("SANDBAR_KEEPALIVE", "PYTHONUNBUFFERED", "SANDBAR_PORT")

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class Handler(tornado.web.RequestHandler):
    @property
    def contexts(self):
        return self.application.contexts

    def log_exception(self, kind, value, trace):
        if not isinstance(value, (Refused, StreamClosedError)):
            super().log_exception(kind, value, trace)

    def write_error(self, status_code, **kwargs):
        why = kwargs.get("exc_info", (None, None, None))[1]
        text = f"{status_code}: {self._reason}" if why is None or status_code != 500 else f"{type(why).__name__}: {why}"
        if isinstance(why, Refused):
            self.set_status(why.status)
            text = why.text
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(text)

    def document(self):
        """The body: a JSON object, or nothing."""
        if not self.request.body.strip():
            return {}
        try:
            document = json.loads(self.request.body)
        except ValueError as why:
            raise Refused(400, f"the body is no JSON: {why}") from None
        if not isinstance(document, dict):
            raise Refused(400, "the body: expected a JSON object")
        return document

    def answer(self, value, status=200):
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(value))


class Health(Handler):
    def get(self):
        self.answer("OK")


class Execute(Handler):
    gone = None

    def on_connection_close(self):
        if self.gone is not None:
            self.gone.set()

    async def post(self):
        document = self.document()
        code, name, language = (document.get(key) for key in ("code", "context_id", "language"))
        env = document.get("env_vars") or {}
        if not isinstance(code, str):
            raise Refused(400, "code: expected a string")
        if name and language:
            raise Refused(400, "Only one of context_id or language can be provided")
        check_env(env)
        if name:
            context = self.contexts.get(name)
            language = context.language
        else:
            language = language_of(language)
            context = self.contexts.default_of(language)
        await self.stream(context, code, env, language)

    async def stream(self, context, code, env, language):
        self.gone = asyncio.Event()
        self.set_header("Content-Type", "application/x-ndjson")
        self.set_header("Cache-Control", "no-cache")
        events = asyncio.Queue(WAITING)
        is_heard = True

        async def put(event):
            if is_heard:
                await events.put(event)

        async def run():
            try:
                await context.run(code, env, language, put)
            except Exception as why:
                await put(results.ended(f"{type(why).__name__}: {why}"))
            finally:
                await put(results.END)

        task = asyncio.create_task(run())
        gone = asyncio.create_task(self.gone.wait())
        try:
            await self.flush()
            while True:
                event = asyncio.create_task(events.get())
                await asyncio.wait({event, gone}, timeout=KEEPALIVE, return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    event.cancel()
                    break
                if not event.done():
                    event.cancel()
                    self.write(results.line(results.KEEPALIVE))
                    await self.flush()
                    continue
                said = event.result()
                self.write(results.line(said))
                if said is results.END:
                    break
                if events.empty():
                    await self.flush()
        except StreamClosedError:
            pass
        finally:
            gone.cancel()
            if not task.done():
                is_heard = False
                while not events.empty():
                    events.get_nowait()
                self.application.keep(context.abandon(task))


class ContextList(Handler):
    def get(self):
        self.answer([context.shown() for context in self.contexts.known.values()])

    async def post(self):
        document = self.document()
        language = language_of(document.get("language"))
        context = await self.contexts.create(language, document.get("cwd") or HOME)
        self.answer(context.shown())


class OneContext(Handler):
    async def delete(self, name):
        await self.contexts.remove(name)
        self.set_status(204)


class Restart(Handler):
    async def post(self, name):
        await self.contexts.get(name).restart()
        self.set_status(204)


class NotFound(Handler):
    def prepare(self):
        raise Refused(404, f"no such path: {self.request.path}")


def check_env(env):
    if not isinstance(env, dict):
        raise Refused(400, "env_vars: expected an object")
    for name, value in env.items():
        if not NAME.match(name):
            raise Refused(400, f"env_vars: {name!r} is no name of a variable")
        if not isinstance(value, str) or "\0" in value:
            raise Refused(400, f"env_vars: the value of {name} is no string that a variable can have")


class Service(tornado.web.Application):
    def __init__(self, env):
        routes = [
            (r"/health", Health),
            (r"/execute", Execute),
            (r"/contexts", ContextList),
            (r"/contexts/([^/]+)", OneContext),
            (r"/contexts/([^/]+)/restart", Restart),
        ]
        super().__init__(routes, default_handler_class=NotFound, log_function=lambda _: None)
        self.contexts = Contexts(env)
        self.kept = set()

    def keep(self, work):
        """Work that goes on after its request."""
        task = asyncio.create_task(work)
        self.kept.add(task)
        task.add_done_callback(self.kept.discard)


async def main():
    env = {name: value for name, value in os.environ.items() if name not in OWN}
    service = Service(env)
    server = HTTPServer(service, max_body_size=MOST_BODY, max_buffer_size=MOST_BODY + (1 << 20))
    port = int(os.environ.get("SANDBAR_PORT", PORT))
    server.listen(port, "127.0.0.1")
    print(f"listening on {port}", file=sys.stderr, flush=True)
    python = service.contexts.eager()

    async def warm():
        # Under the lock: a cell that comes meanwhile waits for it.
        async with python.lock:
            await python.start()

    service.keep(warm())
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
