"""Commands and terminals."""

import random

from case import define, equal, go, raises, unique, until


@define("commands/foreground", smoke=True)
async def foreground(c):
    done = await go((await c.shared()).commands.run("echo out; echo err >&2"))
    equal((done.exit_code, done.stdout, done.stderr), (0, "out\n", "err\n"))


@define("commands/exit-code", smoke=True)
async def exit_code(c):
    sandbox = await c.shared()
    error = await raises(lambda: sandbox.commands.run("echo before; exit 3"), c.sdk.CommandExitException)
    equal((error.exit_code, error.stdout), (3, "before\n"))


@define("commands/callbacks")
async def callbacks(c):
    out, err = [], []
    await go((await c.shared()).commands.run("echo 1; echo 2 >&2; echo 3", on_stdout=out.append, on_stderr=err.append))
    equal(("".join(out), "".join(err)), ("1\n3\n", "2\n"))


@define("commands/background", smoke=True)
async def background(c):
    handle = await go((await c.shared()).commands.run("read -r line < <(echo later); echo $line", background=True))
    assert handle.pid > 0
    equal((await go(handle.wait())).stdout, "later\n")


@define("commands/envs")
async def envs(c):
    sandbox = await c.sandbox(envs={"ALL": "of the sandbox", "BOTH": "of the sandbox"})
    one = await go(sandbox.commands.run('echo "$ALL,$BOTH,$ONE"', envs={"BOTH": "of the call", "ONE": "x y"}))
    equal(one.stdout, "of the sandbox,of the call,x y\n")
    equal((await go(sandbox.commands.run('echo "$ALL,$ONE"'))).stdout, "of the sandbox,\n")


@define("commands/cwd")
async def cwd(c):
    sandbox = await c.shared()
    equal((await go(sandbox.commands.run("pwd", cwd="/tmp"))).stdout, "/tmp\n")
    equal((await go(sandbox.commands.run("pwd"))).stdout, "/home/user\n")
    await raises(lambda: sandbox.commands.run("pwd", cwd="/no/such"), c.sdk.InvalidArgumentException, "does not exist")


@define("commands/users")
async def users(c):
    sandbox = await c.shared()
    equal((await go(sandbox.commands.run("whoami"))).stdout, "user\n")
    equal((await go(sandbox.commands.run("whoami", user="root"))).stdout, "root\n")
    unknown = lambda: sandbox.commands.run("whoami", user="nobody-of-that-name")
    await raises(unknown, c.sdk.AuthenticationException)


@define("commands/stdin")
async def stdin(c):
    sandbox = await c.shared()
    handle = await go(sandbox.commands.run("cat", background=True, stdin=True))
    await go(sandbox.commands.send_stdin(handle.pid, "one\n"))
    await go(sandbox.commands.send_stdin(handle.pid, "two\n"))
    await go(sandbox.commands.close_stdin(handle.pid))
    equal((await go(handle.wait())).stdout, "one\ntwo\n")


@define("commands/stdin-stream")
async def stdin_stream(c):
    sandbox = await c.shared()
    c.needs(hasattr(sandbox.commands, "stream_input"))
    handle = await go(sandbox.commands.run("cat", background=True, stdin=True))
    if c.is_async:
        stream = sandbox.commands.stream_input(handle.pid)
        for i in range(5):
            await stream.send(f"{i}\n")
        await stream.close()
    else:
        sandbox.commands.stream_input(handle.pid, (f"{i}\n" for i in range(5)))
    await go(sandbox.commands.close_stdin(handle.pid))
    equal((await go(handle.wait())).stdout, "0\n1\n2\n3\n4\n")


@define("bug-10/end-of-stdin")
async def end_of_stdin(c):
    sandbox = await c.shared()
    handle = await go(sandbox.commands.run("wc -c", background=True, stdin=True))
    await go(handle.send_stdin("x" * 100_000))
    await go(handle.close_stdin())
    equal((await go(handle.wait())).stdout.strip(), "100000")


@define("bug-9/stdin-not-asked-for")
async def stdin_not_asked_for(c):
    sandbox = await c.shared()
    equal((await go(sandbox.commands.run("cat"))).stdout, "")
    handle = await go(sandbox.commands.run("sleep 300", background=True))
    await raises(lambda: sandbox.commands.send_stdin(handle.pid, "x"), c.sdk.SandboxException, "stdin")
    equal(await go(handle.kill()), True)


@define("commands/list-and-kill")
async def list_and_kill(c):
    sandbox = await c.shared()
    tag = unique("tag")
    handle = await go(sandbox.commands.run(f": {tag}; sleep 300", background=True, envs={"A": "b"}, cwd="/tmp"))
    [seen] = [each for each in await go(sandbox.commands.list()) if each.pid == handle.pid]
    equal((seen.cmd, seen.args), ("/bin/bash", ["-l", "-c", f": {tag}; sleep 300"]))
    equal((seen.cwd, seen.envs["A"]), ("/tmp", "b"))
    equal(await go(sandbox.commands.kill(handle.pid)), True)
    await raises(handle.wait, c.sdk.CommandExitException)

    async def is_gone():
        return all(each.pid != handle.pid for each in await go(sandbox.commands.list()))

    await until(is_gone, "it is gone from the list")
    equal(await go(sandbox.commands.kill(handle.pid)), False)


@define("commands/connect")
async def connect(c):
    sandbox = await c.shared()
    folder = await c.folder(sandbox)
    command = f"until [ -e {folder}/go ]; do sleep 0.05; done; echo went; exit 4"
    first = await go(sandbox.commands.run(command, background=True))
    await go(first.disconnect())
    second = await go(sandbox.commands.connect(first.pid))
    await go(sandbox.files.write(f"{folder}/go", ""))
    error = await raises(second.wait, c.sdk.CommandExitException)
    equal((error.exit_code, error.stdout, second.pid), (4, "went\n", first.pid))
    await raises(lambda: sandbox.commands.connect(4_000_000), c.sdk.NotFoundException)


@define("bug-3/connect-later")
async def connect_later(c):
    sandbox = await c.shared()
    first = await go(sandbox.commands.run("sleep 300", background=True, timeout=0))
    for _ in range(5):
        again = await go(sandbox.commands.connect(first.pid, timeout=0))
        equal(again.pid, first.pid)
        await go(again.disconnect())
    equal(await go(sandbox.commands.kill(first.pid)), True)
    await raises(first.wait, c.sdk.CommandExitException)


@define("bug-2/ends-at-its-timeout")
async def ends_at_its_timeout(c):
    sandbox = await c.shared()
    tag = unique("tag")
    await raises(lambda: sandbox.commands.run(f": {tag}; sleep 300", timeout=1), c.sdk.TimeoutException)

    async def is_gone():
        return not any(tag in " ".join(each.args) for each in await go(sandbox.commands.list()))

    await until(is_gone, "the process is ended")


@define("bug-27/nothing-hangs", smoke=True)
async def nothing_hangs(c):
    sandbox = await c.sandbox()
    await raises(lambda: sandbox.commands.run("sleep 300", timeout=1), c.sdk.TimeoutException)
    equal((await go(sandbox.commands.run("echo still here"))).stdout, "still here\n")


@define("bug-7/all-output-before-the-end")
async def all_output(c):
    sandbox = await c.shared()
    for i in range(20):
        seen = (await go(sandbox.commands.run("seq 1 5000"))).stdout
        assert seen.endswith("\n4999\n5000\n") and len(seen) == 23_893, f"run {i} has {len(seen)} bytes"


@define("commands/unicode")
async def unicode(c):
    command = "python3 -c 'print(\"x\" + \"€\" * 50000, end=\"\")'"
    equal((await go((await c.shared()).commands.run(command))).stdout == "x" + "€" * 50_000, True)


@define("commands/at-once")
async def at_once(c):
    sandbox = await c.shared()
    done = await c.together(*(lambda i=i: sandbox.commands.run(f"echo {i}") for i in range(20)))
    equal([each.stdout for each in done], [f"{i}\n" for i in range(20)])


@define("bug-11/kills-the-tree")
async def kills_the_tree(c):
    sandbox = await c.shared()
    # A time that no other process sleeps, to be found by.
    seconds = random.randrange(100_000, 900_000)
    handle = await go(sandbox.commands.run(f"bash -c 'sleep {seconds} & wait'", background=True))

    async def count():
        return int((await go(sandbox.commands.run(f"pgrep -c -x -f 'sleep {seconds}' || true"))).stdout)

    async def runs():
        return await count() == 1

    async def is_gone():
        return await count() == 0

    await until(runs, "the grandchild runs")
    equal(await go(handle.kill()), True)
    await until(is_gone, "the grandchild is ended")


@define("git/local")
async def git(c):
    sandbox = await c.shared()
    path = await c.folder(sandbox)
    await go(sandbox.git.init(path))
    await go(sandbox.git.configure_user("Ada", "ada@example.com", scope="local", path=path))
    await go(sandbox.files.write(f"{path}/a.txt", "a"))
    await go(sandbox.git.add(path))
    await go(sandbox.git.commit(path, "first"))
    equal((await go(sandbox.git.status(path))).is_clean, True)


async def terminal(c, sandbox, **options):
    """A terminal, and what waits for its end and answers what it showed."""
    seen = []
    size = c.sdk.PtySize(rows=31, cols=91)
    if c.is_async:
        handle = await sandbox.pty.create(size, on_data=seen.append, **options)
        wait = handle.wait
    else:
        handle = sandbox.pty.create(size, **options)
        wait = lambda: handle.wait(on_pty=seen.append)
    return handle, wait, lambda: b"".join(seen).decode()


@define("pty/create")
async def pty_create(c):
    sandbox = await c.shared()
    handle, wait, seen = await terminal(c, sandbox, envs={"A": "b"}, cwd="/tmp")
    await go(sandbox.pty.send_stdin(handle.pid, b'echo "[$(stty size) $A $PWD $TERM]"; exit 5\n'))
    equal((await raises(wait, c.sdk.CommandExitException)).exit_code, 5)
    assert "[31 91 b /tmp xterm-256color]" in seen(), seen()


@define("pty/resize")
async def pty_resize(c):
    sandbox = await c.shared()
    handle, wait, seen = await terminal(c, sandbox)
    await go(sandbox.pty.resize(handle.pid, c.sdk.PtySize(rows=44, cols=133)))
    await go(sandbox.pty.send_stdin(handle.pid, b'echo "[$(stty size)]"; exit\n'))
    await go(wait())
    assert "[44 133]" in seen(), seen()


@define("pty/connect")
async def pty_connect(c):
    sandbox = await c.shared()
    c.needs(hasattr(sandbox.pty, "connect"))
    first, _, _ = await terminal(c, sandbox)
    await go(first.disconnect())
    seen = []
    if c.is_async:
        second = await sandbox.pty.connect(first.pid, on_data=seen.append)
        wait = second.wait
    else:
        second = sandbox.pty.connect(first.pid)
        wait = lambda: second.wait(on_pty=seen.append)
    await go(sandbox.pty.send_stdin(second.pid, b'echo "<$((6 * 7))>"; exit\n'))
    equal((await go(wait())).exit_code, 0)
    assert b"<42>" in b"".join(seen)
    equal(await go(sandbox.pty.kill(4_000_000)), False)
