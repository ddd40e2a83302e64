"""What becomes of sandboxes: made, found, listed, paused, copied, ended."""

import asyncio
from datetime import datetime, timedelta, timezone

from case import define, equal, go, raises, to_port, unique, until

# A time that no case reaches, in seconds.
LONG = 1800

# A web server that counts its answers: what it says shows whether it is the same process.
COUNTER = """
import http.server
class Counter(http.server.BaseHTTPRequestHandler):
    count = 0
    def do_GET(self):
        Counter.count += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(Counter.count).encode())
    def log_message(self, *_): pass
http.server.HTTPServer(("0.0.0.0", 8080), Counter).serve_forever()
"""


async def counter(sandbox):
    """Starts the counter and waits until it has answered once."""
    await go(sandbox.files.write("counter.py", COUNTER))
    handle = await go(sandbox.commands.run("exec python3 counter.py", background=True, timeout=0))

    async def answers():
        return (await to_port(sandbox.sandbox_id, 8080)).status == 200

    await until(answers, "the server answers")
    return handle.pid


async def count(sandbox):
    return (await to_port(sandbox.sandbox_id, 8080)).body


@define("lifecycle/create-and-kill", smoke=True)
async def create_and_kill(c):
    sandbox = await c.sandbox(metadata={"of": "a case"}, timeout=LONG)
    equal(await go(sandbox.is_running()), True)
    info = await go(sandbox.get_info())
    equal((info.sandbox_id, info.state.value, info.metadata), (sandbox.sandbox_id, "running", {"of": "a case"}))
    assert info.cpu_count > 0 and info.memory_mb > 0 and info.template_id
    assert LONG / 2 < (info.end_at - info.started_at).total_seconds() < LONG * 2
    equal(await go(sandbox.kill()), True)
    equal(await go(sandbox.is_running()), False)
    equal(await go(sandbox.kill()), False)
    await raises(sandbox.get_info, c.sdk.NotFoundException)


@define("lifecycle/unknown-ids")
async def unknown_ids(c):
    equal(await go(c.Sandbox.kill("nonexistingsandbox")), False)
    for call in [c.Sandbox.connect, c.Sandbox.get_info]:
        await raises(lambda: call("nonexistingsandbox"), c.sdk.NotFoundException)
    await raises(lambda: c.Sandbox.set_timeout("nonexistingsandbox", 60), c.sdk.NotFoundException)


@define("lifecycle/wrong-key")
async def wrong_key(c):
    await raises(lambda: c.Sandbox.create(api_key="e2b_" + "0" * 40), c.sdk.AuthenticationException)


@define("lifecycle/unknown-template")
async def unknown_template(c):
    await raises(lambda: c.Sandbox.create("no-such-template"), c.sdk.SandboxException, "no-such-template")


@define("lifecycle/connect", smoke=True)
async def connect(c):
    sandbox = await c.sandbox()
    await go(sandbox.files.write("here", "yes"))
    again = await go(c.Sandbox.connect(sandbox.sandbox_id))
    equal(await go(again.files.read("here")), "yes")


@define("lifecycle/idempotent-create")
async def idempotent_create(c):
    c.since(2, 61, 0)
    key = unique("key")
    first = await c.sandbox(idempotency_key=key)
    second = await c.sandbox(idempotency_key=key)
    equal(second.sandbox_id, first.sandbox_id)


@define("bug-16/connect-never-shortens")
async def connect_never_shortens(c):
    sandbox = await c.sandbox(timeout=LONG)
    end_at = (await go(sandbox.get_info())).end_at
    await go(c.Sandbox.connect(sandbox.sandbox_id, timeout=15))
    await go(c.Sandbox.connect(sandbox.sandbox_id))
    equal((await go(sandbox.get_info())).end_at, end_at)
    await go(c.Sandbox.connect(sandbox.sandbox_id, timeout=2 * LONG))
    assert (await go(sandbox.get_info())).end_at > end_at


@define("lifecycle/set-timeout")
async def set_timeout(c):
    sandbox = await c.sandbox(timeout=LONG)
    before = (await go(sandbox.get_info())).end_at
    await go(sandbox.set_timeout(LONG // 2))
    assert (await go(sandbox.get_info())).end_at < before
    await go(sandbox.set_timeout(2 * LONG))
    assert (await go(sandbox.get_info())).end_at > before


@define("lifecycle/ends-at-its-timeout")
async def ends_at_its_timeout(c):
    sandbox = await c.sandbox(timeout=2)

    async def is_ended():
        return not await go(sandbox.is_running())

    await until(is_ended, "it is ended")


@define("bug-1/streams-fail-when-it-is-killed")
async def streams_fail(c):
    sandbox = await c.sandbox()
    handle = await go(sandbox.commands.run("sleep 300", background=True, timeout=0))
    gone = getattr(c.sdk, "SandboxNotRunningException", c.sdk.TimeoutException)
    if c.is_async:
        await asyncio.gather(raises(handle.wait, gone), sandbox.kill())
    else:
        sandbox.kill()
        await raises(handle.wait, gone)


@define("bug-21/all-streams-fail-when-it-is-killed")
async def all_streams_fail(c):
    sandbox = await c.sandbox()
    start = lambda: sandbox.commands.run("sleep 300", background=True, timeout=0)
    handles = await c.together(*[start] * 20)
    await go(sandbox.kill())
    for handle in handles:
        await raises(handle.wait, Exception)


@define("bug-26/connect-while-it-is-killed")
async def connect_while_killed(c):
    for _ in range(5):
        sandbox = await c.sandbox()

        async def connect():
            try:
                await go(c.Sandbox.connect(sandbox.sandbox_id))
            except c.sdk.NotFoundException:
                # It came after, and is told so.
                pass
            except c.sdk.SandboxException as error:
                assert str(error).startswith("409"), error

        connecting = connect if c.is_async else lambda: asyncio.run(connect())
        killed, _ = await c.together(sandbox.kill, connecting)
        equal(killed, True)
        await raises(lambda: c.Sandbox.connect(sandbox.sandbox_id), c.sdk.NotFoundException)


@define("bug-23/metrics-are-there")
async def metrics(c):
    sandbox = await c.sandbox()
    [first, *_] = await until(sandbox.get_metrics, "there are metrics")
    assert first.cpu_count > 0 and first.mem_total > 0 and first.disk_total > 0, first
    now = datetime.now(timezone.utc)
    past = {"start": now - timedelta(hours=2), "end": now - timedelta(hours=1)}
    equal(await go(sandbox.get_metrics(**past)), [])


async def pages(paginator):
    seen = []
    while paginator.has_next:
        seen.append(await go(paginator.next_items()))
    return seen


async def listed(c, metadata, **options):
    query = c.sdk.SandboxQuery(metadata=metadata)
    return [each.sandbox_id for page in await pages(c.Sandbox.list(query=query, **options)) for each in page]


@define("pages/metadata", smoke=True)
async def pages_metadata(c):
    value = f"{unique('v')} & = % ü"
    sandbox = await c.sandbox(metadata={"a key": value, "other": "x"})
    equal(await listed(c, {"a key": value}), [sandbox.sandbox_id])
    equal(await listed(c, {"a key": value, "other": "x"}), [sandbox.sandbox_id])
    equal(await listed(c, {"a key": value, "other": "y"}), [])


@define("bug-24/pages-of-one")
async def pages_of_one(c):
    mark = unique("page")
    made = [(await c.sandbox(metadata={"mark": mark})).sandbox_id for _ in range(3)]
    equal(await listed(c, {"mark": mark}, limit=1), made[::-1])


@define("pages/state")
async def pages_state(c):
    mark = unique("state")
    running, paused = [await c.sandbox(metadata={"mark": mark}) for _ in range(2)]
    await go(paused.pause())

    async def of(state):
        query = c.sdk.SandboxQuery(metadata={"mark": mark}, state=[state])
        return [each.sandbox_id for page in await pages(c.Sandbox.list(query=query)) for each in page]

    equal(await of(c.sdk.SandboxState.RUNNING), [running.sandbox_id])
    equal(await of(c.sdk.SandboxState.PAUSED), [paused.sandbox_id])


@define("pause/a-running-server")
async def a_running_server(c):
    sandbox = await c.sandbox()
    pid = await counter(sandbox)
    await go(sandbox.files.write("kept", "yes"))
    equal(await go(sandbox.pause()), True)
    equal(await go(sandbox.is_running()), False)
    equal((await go(sandbox.get_info())).state.value, "paused")
    equal(await go(sandbox.pause()), False)
    equal((await to_port(sandbox.sandbox_id, 8080)).status, 502)
    again = await go(c.Sandbox.connect(sandbox.sandbox_id))
    equal(await count(again), b"2")
    equal(await go(again.files.read("kept")), "yes")
    assert any(each.pid == pid for each in await go(again.commands.list()))
    # The handle from before the pause goes on with the same token.
    equal((await go(sandbox.commands.run("echo same"))).stdout, "same\n")


@define("pause/kill-while-paused")
async def kill_while_paused(c):
    sandbox = await c.sandbox()
    await go(sandbox.pause())
    equal(await go(sandbox.kill()), True)
    await raises(lambda: c.Sandbox.connect(sandbox.sandbox_id), c.sdk.NotFoundException)


@define("bug-5/output-after-each-resume")
async def output_after_each_resume(c):
    sandbox = await c.sandbox()
    command = 'while read -r line; do echo "got $line"; done'
    handle = await go(sandbox.commands.run(command, background=True, stdin=True, timeout=0))
    for i in range(6):
        await go(sandbox.pause())
        again = await go(c.Sandbox.connect(sandbox.sandbox_id))
        heard = []
        if c.is_async:
            await again.commands.connect(handle.pid, timeout=0, on_stdout=heard.append)
        else:
            attached = again.commands.connect(handle.pid, timeout=0)
        await go(again.commands.send_stdin(handle.pid, f"{i}\n"))
        if c.is_async:
            await until(lambda: f"got {i}\n" in "".join(heard), f"cycle {i} is answered")
        else:
            # As far as the answer: the stream goes on.
            for out, _, _ in attached:
                heard.append(out or "")
                if f"got {i}\n" in "".join(heard):
                    break


@define("bug-13/every-cycle-keeps-files")
async def every_cycle_keeps_files(c):
    sandbox = await c.sandbox()
    for i in range(5):
        await go(sandbox.files.write(f"cycle/{i}", f"of {i}"))
        await go(sandbox.pause())
        await go(c.Sandbox.connect(sandbox.sandbox_id))
        for j in range(i + 1):
            equal(await go(sandbox.files.read(f"cycle/{j}")), f"of {j}")


async def paused(sandbox):
    async def is_paused():
        return (await go(sandbox.get_info())).state.value == "paused"

    await until(is_paused, "it is paused")


@define("bug-12/list-after-auto-pause")
async def list_after_auto_pause(c):
    sandbox = await c.sandbox(lifecycle={"on_timeout": "pause"})
    pid = await counter(sandbox)
    await go(sandbox.set_timeout(1))
    await paused(sandbox)
    again = await go(c.Sandbox.connect(sandbox.sandbox_id))
    equal(await count(again), b"2")
    assert any(each.pid == pid for each in await go(again.commands.list()))


@define("pause/auto-resume")
async def auto_resume(c):
    sandbox = await c.sandbox(lifecycle={"on_timeout": "pause", "auto_resume": True})
    await counter(sandbox)
    await go(sandbox.pause())
    equal(await count(sandbox), b"2")
    equal((await go(sandbox.get_info())).state.value, "running")
    await go(sandbox.pause())
    equal((await go(sandbox.commands.run("echo woken"))).stdout, "woken\n")


@define("bug-28/pause-without-memory")
async def pause_without_memory(c):
    # Either honoured, which a new start of the sandbox shows, or refused.
    sandbox = await c.sandbox()
    await counter(sandbox)
    await go(sandbox.files.write("kept", "yes"))
    try:
        await go(sandbox.pause(keep_memory=False))
    except c.sdk.SandboxException as error:
        assert str(error).startswith("400: "), error
        equal(await go(sandbox.is_running()), True)
        return
    await go(c.Sandbox.connect(sandbox.sandbox_id))
    equal(await go(sandbox.files.read("kept")), "yes")
    equal((await to_port(sandbox.sandbox_id, 8080)).status, 502)


@define("snapshots/create-and-use")
async def snapshot(c):
    sandbox = await c.sandbox()
    await go(sandbox.files.write("state", "one"))
    made = await go(sandbox.create_snapshot())
    await go(sandbox.files.write("state", "two"))
    listed = [each.snapshot_id for page in await pages(sandbox.list_snapshots()) for each in page]
    equal(listed, [made.snapshot_id])
    await go(sandbox.kill())
    copy = await c.sandbox(made.snapshot_id)
    equal(await go(copy.files.read("state")), "one")
    equal(await go(c.Sandbox.delete_snapshot(made.snapshot_id)), True)
    equal(await go(c.Sandbox.delete_snapshot(made.snapshot_id)), False)


@define("fork/several")
async def fork(c):
    c.needs(hasattr(c.Sandbox, "fork"))
    sandbox = await c.sandbox()
    await go(sandbox.files.write("state", "before"))
    forks = await go(sandbox.fork(count=2, timeout=300))
    for each in forks:
        if isinstance(each, Exception):
            raise each
        c.own(each.sandbox_id)
    await go(forks[0].files.write("state", "of the first"))
    seen = [await go(each.files.read("state")) for each in [sandbox, *forks]]
    equal(seen, ["before", "of the first", "before"])


@define("network/described")
async def network(c):
    rules = {"allow_out": ["1.1.1.1", "*.example.com"], "deny_out": [c.sdk.ALL_TRAFFIC]}
    sandbox = await c.sandbox(network=rules)
    seen = (await go(sandbox.get_info())).network
    equal(seen["deny_out"], ["0.0.0.0/0"])
    assert "*.example.com" in seen["allow_out"], seen
    await go(sandbox.update_network({"deny_out": ["8.8.8.8/32"]}))
    equal((await go(sandbox.get_info())).network["deny_out"], ["8.8.8.8/32"])
    await raises(lambda: c.Sandbox.create(network={"deny_out": ["example.com"]}), c.sdk.SandboxException, "400")


@define("network/private-ports")
async def private_ports(c):
    sandbox = await c.sandbox(network={"allow_public_traffic": False})
    assert sandbox.traffic_access_token
    equal((await to_port(sandbox.sandbox_id, 8080)).status, 403)
    headers = {"e2b-traffic-access-token": sandbox.traffic_access_token}
    equal((await to_port(sandbox.sandbox_id, 8080, headers=headers)).status, 502)
    equal((await go(sandbox.commands.run("echo in"))).stdout, "in\n")
