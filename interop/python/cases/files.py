"""Files, watches and signed URLs."""

import io
import json

from case import define, equal, go, raises, request, unique, until


def in_folder(name, **options):
    def keep(body):
        @define(name, **options)
        async def whole(c):
            sandbox = await c.shared()
            await body(c, sandbox.files, await c.folder(sandbox), sandbox)

    return keep


@in_folder("files/text", smoke=True)
async def text(c, files, folder, sandbox):
    path = f"{folder}/deep/er/ü.txt"
    written = await go(files.write(path, "grüße\n"))
    equal((written.name, written.path), ("ü.txt", path))
    equal(await go(files.read(path)), "grüße\n")
    await go(files.write(path, "x"))
    equal(await go(files.read(path)), "x")
    await go(files.write(f"{folder}/empty", ""))
    equal(await go(files.read(f"{folder}/empty")), "")


@in_folder("files/bytes", smoke=True)
async def bytes_(c, files, folder, sandbox):
    data = bytes(i * 7 % 256 for i in range(300_000))
    await go(files.write(f"{folder}/a", data))
    equal(bytes(await go(files.read(f"{folder}/a", format="bytes"))) == data, True)
    await go(files.write(f"{folder}/b", io.BytesIO(data)))
    equal(bytes(await go(files.read(f"{folder}/b", format="bytes"))) == data, True)


@in_folder("files/streams")
async def streams(c, files, folder, sandbox):
    await go(files.write(f"{folder}/big", io.BytesIO(b"A" * (4 << 20)), use_octet_stream=True))
    stream, length = await go(files.read(f"{folder}/big", format="stream")), 0
    if c.is_async:
        async for chunk in stream:
            length += len(chunk)
    else:
        length = sum(len(chunk) for chunk in stream)
    equal(length, 4 << 20)


@in_folder("files/many")
async def many(c, files, folder, sandbox):
    entries = [{"path": f"{folder}/d{i % 3}/f{i}", "data": f"of {i}"} for i in range(30)]
    written = await go(files.write_files(entries))
    equal([each.path for each in written], [each["path"] for each in entries])
    for each in entries:
        equal(await go(files.read(each["path"])), each["data"])


@in_folder("files/gzip")
async def gzip(c, files, folder, sandbox):
    await go(files.write(f"{folder}/z", "zip " * 50_000, gzip=True))
    equal(await go(files.read(f"{folder}/z", gzip=True)) == "zip " * 50_000, True)
    equal((await go(files.get_info(f"{folder}/z"))).size, 200_000)


@in_folder("files/octet-stream")
async def octet_stream(c, files, folder, sandbox):
    entries = [{"path": f"{folder}/1", "data": "one"}, {"path": f"{folder}/2", "data": b"two"}]
    await go(files.write_files(entries, use_octet_stream=True))
    equal(await go(files.read(f"{folder}/1")) + await go(files.read(f"{folder}/2")), "onetwo")


@in_folder("files/metadata")
async def metadata(c, files, folder, sandbox):
    written = await go(files.write(f"{folder}/m", "x", metadata={"Kind": "a b", "other": "1"}))
    equal(written.metadata, {"kind": "a b", "other": "1"})
    equal((await go(files.get_info(f"{folder}/m"))).metadata, {"kind": "a b", "other": "1"})
    await go(files.write(f"{folder}/m", "x", metadata={"third": "3"}))
    equal((await go(files.list(folder)))[0].metadata, {"third": "3"})


@in_folder("files/info")
async def info(c, files, folder, sandbox):
    await go(files.write(f"{folder}/f", "12345"))
    await go(sandbox.commands.run("chmod 640 f && ln -s f link", cwd=folder))
    seen = await go(files.get_info(f"{folder}/f"))
    equal(
        (seen.name, seen.type, seen.size, seen.mode, seen.permissions, seen.owner, seen.group),
        ("f", c.sdk.FileType.FILE, 5, 0o640, "-rw-r-----", "user", "user"),
    )
    equal((await go(files.get_info(f"{folder}/link"))).symlink_target, f"{folder}/f")
    equal((await go(files.get_info(folder))).type, c.sdk.FileType.DIR)
    await raises(lambda: files.get_info(f"{folder}/none"), c.sdk.NotFoundException)


@in_folder("files/list")
async def list_(c, files, folder, sandbox):
    for path in ["a", "d/b", "d/e/c"]:
        await go(files.write(f"{folder}/{path}", ""))

    async def names(**depth):
        return sorted(each.path[len(folder) + 1 :] for each in await go(files.list(folder, **depth)))

    equal(await names(), ["a", "d"])
    equal(await names(depth=2), ["a", "d", "d/b", "d/e"])
    equal(await names(depth=9), ["a", "d", "d/b", "d/e", "d/e/c"])
    await raises(lambda: files.list(f"{folder}/none"), c.sdk.NotFoundException)
    await raises(lambda: files.list(f"{folder}/a"), c.sdk.InvalidArgumentException)


@in_folder("files/folders")
async def folders(c, files, folder, sandbox):
    equal(await go(files.make_dir(f"{folder}/x/y")), True)
    equal(await go(files.make_dir(f"{folder}/x/y")), False)
    equal(await go(files.exists(f"{folder}/x/y")), True)
    await go(files.remove(f"{folder}/x"))
    equal(await go(files.exists(f"{folder}/x/y")), False)


@in_folder("files/rename")
async def rename(c, files, folder, sandbox):
    await go(files.write(f"{folder}/old", "same"))
    entry = await go(files.rename(f"{folder}/old", f"{folder}/new"))
    equal((entry.name, entry.path), ("new", f"{folder}/new"))
    equal(await go(files.read(f"{folder}/new")), "same")
    equal(await go(files.exists(f"{folder}/old")), False)
    await raises(lambda: files.rename(f"{folder}/none", f"{folder}/other"), c.sdk.NotFoundException)


@in_folder("files/missing", smoke=True)
async def missing(c, files, folder, sandbox):
    await raises(lambda: files.read(f"{folder}/none"), c.sdk.NotFoundException, "does not exist")
    await raises(lambda: files.read(folder), c.sdk.InvalidArgumentException)


@in_folder("files/users")
async def users(c, files, folder, sandbox):
    name = unique("r")
    await go(files.write(name, "of root", user="root"))
    equal(await go(files.read(f"/root/{name}", user="root")), "of root")
    equal((await go(files.get_info(name, user="root"))).owner, "root")
    await go(files.write(name, "of user"))
    equal((await go(sandbox.commands.run(f"cat ~/{name}"))).stdout, "of user")


@in_folder("files/proc")
async def proc(c, files, folder, sandbox):
    # Such files say that they are empty.
    assert "Linux" in await go(files.read("/proc/version"))


async def watch(c, files, folder, **options):
    """Watches a folder, and answers what waits for an event."""
    seen = []
    if c.is_async:
        handle = await files.watch_dir(folder, on_event=seen.append, **options)
    else:
        handle = files.watch_dir(folder, **options)
    c.later(handle.stop)

    def saw(kind, name):
        def look():
            if not c.is_async:
                seen.extend(handle.get_new_events())
            return next((each for each in seen if (each.type.value, each.name) == (kind, name)), None)

        return until(look, f"{kind} {name} is seen")

    return saw


@in_folder("files/watch")
async def watch_files(c, files, folder, sandbox):
    saw = await watch(c, files, folder)
    await go(files.write(f"{folder}/a", "1"))
    await saw("create", "a")
    await saw("write", "a")
    await go(files.rename(f"{folder}/a", f"{folder}/b"))
    await saw("rename", "a")
    await saw("create", "b")
    await go(files.remove(f"{folder}/b"))
    await saw("remove", "b")
    options = {"on_event": print} if c.is_async else {}
    await raises(lambda: files.watch_dir(f"{folder}/none", **options), c.sdk.NotFoundException)


@in_folder("files/watch-recursive")
async def watch_recursive(c, files, folder, sandbox):
    await go(files.make_dir(f"{folder}/d"))
    saw = await watch(c, files, folder, recursive=True)
    await go(files.write(f"{folder}/d/f", "1"))
    await saw("write", "d/f")
    await go(files.make_dir(f"{folder}/new"))
    await saw("create", "new")
    await go(files.write(f"{folder}/new/g", "1"))
    await saw("write", "new/g")


@in_folder("files/watch-entries")
async def watch_entries(c, files, folder, sandbox):
    saw = await watch(c, files, folder, include_entry=True)
    await go(files.write(f"{folder}/a", "123"))
    entry = (await saw("write", "a")).entry
    equal((entry.name, entry.type), ("a", c.sdk.FileType.FILE))


@in_folder("files/signed-urls")
async def signed_urls(c, files, folder, sandbox):
    path = f"{folder}/s.txt"
    form = b'--b\r\nContent-Disposition: form-data; name="file"; filename="s.txt"\r\n\r\nsent by a form\r\n--b--\r\n'
    headers = {"content-type": "multipart/form-data; boundary=b"}
    upload = sandbox.upload_url(path, use_signature_expiration=600)
    sent = await request(upload, "POST", headers, form)
    equal(sent.status, 200)
    equal(await go(files.read(path)), "sent by a form")
    url = sandbox.download_url(path)
    equal((await request(url)).body, b"sent by a form")
    equal((await request(sandbox.download_url(path, user="root"))).body, b"sent by a form")
    # A signature is for one path, and for reading or writing.
    equal((await request(url.replace("s.txt", "t.txt"))).status, 401)
    equal((await request(url, "POST", headers, form)).status, 401)
    late = await request(sandbox.download_url(path, use_signature_expiration=-120))
    equal(json.loads(late.body), {"code": 401, "message": "signature is already expired"})
