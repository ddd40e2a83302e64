"""What outlives sandboxes: volumes and templates."""

import tempfile
from pathlib import Path

from case import define, equal, go, raises, unique


async def volume(c):
    made = await go(c.Volume.create(unique("vol")))
    c.later(lambda: c.Volume.destroy(made.volume_id))
    return made


@define("volumes/life")
async def volumes_life(c):
    made = await volume(c)
    assert any(each.volume_id == made.volume_id for each in await go(c.Volume.list()))
    equal((await go(c.Volume.get_info(made.volume_id))).name, made.name)
    equal(await go(c.Volume.destroy(made.volume_id)), True)
    equal(await go(c.Volume.destroy(made.volume_id)), False)
    await raises(lambda: c.Volume.get_info(made.volume_id), c.sdk.VolumeNotFoundException)


@define("volumes/content")
async def volumes_content(c):
    made = await volume(c)
    await go(made.write_file("/a.txt", "hello"))
    equal(await go(made.read_file("/a.txt")), "hello")
    equal((await go(made.get_info("/a.txt"))).size, 5)
    await go(made.make_dir("/d"))
    await go(made.write_file("/d/b", b"\x00\x01\xff"))
    equal(bytes(await go(made.read_file("/d/b", format="bytes"))), b"\x00\x01\xff")
    equal(sorted(each.name for each in await go(made.list("/"))), ["a.txt", "d"])
    equal((await go(made.update_metadata("/a.txt", mode=0o600))).mode & 0o777, 0o600)
    await go(made.remove("/a.txt"))
    equal(await go(made.exists("/a.txt")), False)


@define("volumes/mounted")
async def volumes_mounted(c):
    made = await volume(c)
    await go(made.write_file("/from-outside", "in"))
    sandbox = await c.sandbox(volume_mounts={"/data": made})
    equal(await go(sandbox.files.read("/data/from-outside")), "in")
    await go(sandbox.commands.run("echo out > /data/from-inside"))
    equal(await go(made.read_file("/from-inside")), "out\n")
    await go(sandbox.kill())
    following = await c.sandbox(volume_mounts={"/other": made.name})
    equal(await go(following.files.read("/other/from-inside")), "out\n")


async def build(c, name, template, **options):
    log = []
    info = await go(c.Template.build(template, name, on_build_logs=lambda entry: log.append(entry.message), **options))
    c.later(lambda: c.Sandbox.delete_snapshot(info.template_id))
    return info, "\n".join(log)


@define("templates/build")
async def templates_build(c):
    name = unique("tpl")
    template = (
        c.Template()
        .from_template("base")
        .set_envs({"BUILT": "with love"})
        .set_workdir("/srv/app")
        .run_cmd("echo made as $(whoami) in $(pwd) > made")
        .run_cmd('echo "a line of the log"', user="root")
    )
    _, log = await build(c, name, template)
    assert "a line of the log" in log, log
    equal(await go(c.Template.exists(name)), True)
    sandbox = await c.sandbox(name)
    equal((await go(sandbox.commands.run("cat /srv/app/made"))).stdout, "made as user in /srv/app\n")
    equal((await go(sandbox.commands.run("echo $BUILT; pwd"))).stdout, "with love\n/srv/app\n")


@define("bug-30/copied-files")
async def copied_files(c):
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree" / "deep"
        tree.mkdir(parents=True)
        (Path(folder) / "one.txt").write_text("one")
        (tree / "two.txt").write_text("two" * 100_000)
        template = (
            c.Template(file_context_path=folder)
            .from_template("base")
            .copy("one.txt", "/srv/one.txt", user="root", mode=0o640)
            .copy("tree", "/srv/tree")
        )
        info, _ = await build(c, unique("tpl"), template)
    sandbox = await c.sandbox(info.template_id)
    equal(await go(sandbox.files.read("/srv/one.txt", user="root")), "one")
    equal(len(await go(sandbox.files.read("/srv/tree/deep/two.txt"))), 300_000)


@define("templates/cache")
async def templates_cache(c):
    # A step of this case's own: what others build changes nothing.
    drawing = f": {unique('m')}; head -c 16 /dev/urandom | sha256sum > /tmp/drawn"

    def one(last):
        return c.Template().from_template("base").run_cmd(drawing).run_cmd(f"echo {last} > /tmp/last")

    async def drawn(**options):
        info, _ = await build(c, unique("tpl"), one(unique("last")), **options)
        return (await go((await c.sandbox(info.template_id)).commands.run("cat /tmp/drawn"))).stdout

    first = await drawn()
    equal(await drawn(), first)
    assert await drawn(skip_cache=True) != first


@define("templates/a-step-that-fails")
async def a_step_that_fails(c):
    name = unique("tpl")
    template = c.Template().from_template("base").run_cmd("true").run_cmd("echo said before; exit 7")
    await raises(lambda: build(c, name, template), c.sdk.BuildException, "7")
    await raises(lambda: c.Sandbox.create(name), c.sdk.SandboxException)


@define("templates/tags")
async def templates_tags(c):
    name = unique("tpl")
    info, _ = await build(c, f"{name}:v1", c.Template().from_template("base").run_cmd("echo one > /tmp/version"))
    await go(c.Template.assign_tags(f"{name}:v1", ["stable", "other"]))
    await go(c.Template.remove_tags(name, ["other"]))
    tags = [each.tag for each in await go(c.Template.get_tags(info.template_id))]
    assert "stable" in tags and "other" not in tags, tags
    sandbox = await c.sandbox(f"{name}:stable")
    equal(await go(sandbox.files.read("/tmp/version")), "one\n")
