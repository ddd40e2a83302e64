"""The code interpreter."""

from case import define, equal, go, raises


def case(name):
    return define(f"interpreter/{name}", suite="interpreter")


@case("state")
async def state(c):
    sandbox = await c.sandbox()
    await go(sandbox.run_code("x = 41"))
    done = await go(sandbox.run_code("x + 1"))
    equal((done.text, done.execution_count), ("42", 2))


@case("streams")
async def streams(c):
    out, err = [], []
    code = 'import sys; print("one"); print("two", file=sys.stderr)'
    keep = lambda lines: lambda line: lines.append(line.line)
    done = await go((await c.shared()).run_code(code, on_stdout=keep(out), on_stderr=keep(err)))
    equal(("".join(out), "".join(err), "".join(done.logs.stdout)), ("one\n", "two\n", "one\n"))


@case("errors")
async def errors(c):
    error = (await go((await c.shared()).run_code("1 / 0"))).error
    equal(error.name, "ZeroDivisionError")
    assert "1 / 0" in error.traceback, error.traceback


@case("rich-results")
async def rich_results(c):
    code = """
from IPython.display import display, HTML, Markdown, SVG, JSON, Latex
display(HTML("<b>h</b>")); display(Markdown("*m*")); display(SVG("<svg xmlns='http://www.w3.org/2000/svg'/>"))
display(JSON({"a": 1})); display(Latex("$x$"))
"""
    results = (await go((await c.shared()).run_code(code))).results
    of = lambda kind: next((getattr(each, kind) for each in results if getattr(each, kind)), None)
    equal((of("html"), of("markdown"), of("latex"), of("json")), ("<b>h</b>", "*m*", "$x$", {"a": 1}))
    assert "<svg" in of("svg")


@case("envs")
async def envs(c):
    sandbox = await c.sandbox(envs={"ALL": "sandbox"})
    code = 'import os; (os.environ.get("ALL"), os.environ.get("ONE"))'
    equal((await go(sandbox.run_code(code, envs={"ONE": "call"}))).text, "('sandbox', 'call')")
    equal((await go(sandbox.run_code(code))).text, "('sandbox', None)")


@case("contexts")
async def contexts(c):
    sandbox = await c.sandbox()
    context = await go(sandbox.create_code_context(cwd="/tmp"))
    equal((context.language, context.cwd), ("python", "/tmp"))
    await go(sandbox.run_code("x = 1", context=context))
    equal((await go(sandbox.run_code("import os; (x, os.getcwd())", context=context))).text, "(1, '/tmp')")
    equal((await go(sandbox.run_code("x"))).error.name, "NameError")
    assert any(each.id == context.id for each in await go(sandbox.list_code_contexts()))
    await go(sandbox.restart_code_context(context))
    equal((await go(sandbox.run_code("x", context=context))).error.name, "NameError")
    await go(sandbox.remove_code_context(context))
    await raises(lambda: sandbox.run_code("1", context=context), c.sdk.NotFoundException)


@case("javascript")
async def javascript(c):
    sandbox = await c.shared()
    await go(sandbox.run_code("const x = 20; let y = 1", language="js"))
    equal((await go(sandbox.run_code("x + y", language="javascript"))).text, "21")


@case("bash")
async def bash(c):
    done = await go((await c.shared()).run_code("x=3; echo $((x * 2))", language="bash"))
    equal("".join(done.logs.stdout), "6\n")


@case("timeout")
async def timeout(c):
    sandbox = await c.sandbox()
    await raises(lambda: sandbox.run_code("import time; time.sleep(300)", timeout=2), c.sdk.TimeoutException)
    # Whoever gives up interrupts: the kernel is free again.
    equal((await go(sandbox.run_code('"free"'))).text, "free")
