import assert from 'node:assert/strict'
import { rejects, until } from '../case.mjs'

export default function (define) {
  const inFolder = (name, body, options) =>
    define(name, async (c) => {
      const sandbox = await c.shared()
      await body(c, sandbox.files, await c.folder(sandbox), sandbox)
    }, options)

  inFolder('files/text', async (c, files, folder) => {
    const path = `${folder}/deep/er/ü.txt`
    const written = await files.write(path, 'grüße\n')
    assert.deepEqual([written.name, written.path, written.type], ['ü.txt', path, 'file'])
    assert.equal(await files.read(path), 'grüße\n')
    await files.write(path, 'x')
    assert.equal(await files.read(path), 'x')
    await files.write(`${folder}/empty`, '')
    assert.equal(await files.read(`${folder}/empty`), '')
  }, { smoke: true })

  inFolder('files/bytes', async (c, files, folder) => {
    const data = new Uint8Array(300_000).map((_, i) => i * 7)
    await files.write(`${folder}/a`, data.buffer)
    assert.deepEqual(await files.read(`${folder}/a`, { format: 'bytes' }), data)
    await files.write(`${folder}/b`, new Blob([data]))
    const blob = await files.read(`${folder}/b`, { format: 'blob' })
    assert.deepEqual(new Uint8Array(await blob.arrayBuffer()), data)
  }, { smoke: true })

  inFolder('files/streams', async (c, files, folder) => {
    const part = new Uint8Array(64 * 1024).fill(65)
    let left = 64
    const source = new ReadableStream({ pull: (out) => (left-- > 0 ? out.enqueue(part) : out.close()) })
    await files.write(`${folder}/big`, source)
    let length = 0
    for await (const chunk of await files.read(`${folder}/big`, { format: 'stream' })) length += chunk.length
    assert.equal(length, 64 * part.length)
  })

  inFolder('files/many', async (c, files, folder) => {
    const many = Array.from({ length: 30 }, (_, i) => ({ path: `${folder}/d${i % 3}/f${i}`, data: `of ${i}` }))
    const written = await files.write(many)
    assert.deepEqual(written.map((each) => each.path), many.map((each) => each.path))
    for (const { path, data } of many) assert.equal(await files.read(path), data)
  })

  inFolder('files/gzip', async (c, files, folder) => {
    await files.write(`${folder}/z`, 'zip '.repeat(50_000), { gzip: true })
    assert.equal(await files.read(`${folder}/z`, { gzip: true }), 'zip '.repeat(50_000))
    assert.equal((await files.getInfo(`${folder}/z`)).size, 200_000)
  })

  inFolder('files/octet-stream', async (c, files, folder) => {
    await files.write([{ path: `${folder}/1`, data: 'one' }, { path: `${folder}/2`, data: 'two' }], { useOctetStream: true })
    assert.equal((await files.read(`${folder}/1`)) + (await files.read(`${folder}/2`)), 'onetwo')
  })

  inFolder('files/metadata', async (c, files, folder) => {
    const written = await files.write(`${folder}/m`, 'x', { metadata: { Kind: 'a b', other: '1' } })
    assert.deepEqual(written.metadata, { kind: 'a b', other: '1' })
    assert.deepEqual((await files.getInfo(`${folder}/m`)).metadata, { kind: 'a b', other: '1' })
    await files.write(`${folder}/m`, 'x', { metadata: { third: '3' } })
    assert.deepEqual((await files.list(folder))[0].metadata, { third: '3' })
  })

  inFolder('files/info', async (c, files, folder, sandbox) => {
    await files.write(`${folder}/f`, '12345')
    await sandbox.commands.run(`chmod 640 f && ln -s f link`, { cwd: folder })
    const info = await files.getInfo(`${folder}/f`)
    assert.deepEqual(
      [info.name, info.type, info.size, info.mode, info.permissions, info.owner, info.group],
      ['f', 'file', 5, 0o640, '-rw-r-----', 'user', 'user']
    )
    assert.ok(info.modifiedTime instanceof Date)
    const link = await files.getInfo(`${folder}/link`)
    assert.deepEqual([link.type, link.symlinkTarget], ['file', `${folder}/f`])
    assert.equal((await files.getInfo(folder)).type, 'dir')
    await rejects(files.getInfo(`${folder}/none`), c.sdk.NotFoundError)
  })

  inFolder('files/list', async (c, files, folder) => {
    await files.write([{ path: `${folder}/a`, data: '' }, { path: `${folder}/d/b`, data: '' }, { path: `${folder}/d/e/c`, data: '' }])
    const names = async (depth) => (await files.list(folder, { depth })).map((each) => each.path.slice(folder.length + 1)).sort()
    assert.deepEqual(await names(undefined), ['a', 'd'])
    assert.deepEqual(await names(2), ['a', 'd', 'd/b', 'd/e'])
    assert.deepEqual(await names(9), ['a', 'd', 'd/b', 'd/e', 'd/e/c'])
    await rejects(files.list(`${folder}/none`), c.sdk.NotFoundError)
    await rejects(files.list(`${folder}/a`), c.sdk.InvalidArgumentError)
  })

  inFolder('files/folders', async (c, files, folder) => {
    assert.equal(await files.makeDir(`${folder}/x/y`), true)
    assert.equal(await files.makeDir(`${folder}/x/y`), false)
    assert.equal(await files.exists(`${folder}/x/y`), true)
    await files.remove(`${folder}/x`)
    assert.equal(await files.exists(`${folder}/x/y`), false)
  })

  inFolder('files/rename', async (c, files, folder) => {
    await files.write(`${folder}/old`, 'same')
    const entry = await files.rename(`${folder}/old`, `${folder}/new`)
    assert.deepEqual([entry.name, entry.path], ['new', `${folder}/new`])
    assert.equal(await files.read(`${folder}/new`), 'same')
    assert.equal(await files.exists(`${folder}/old`), false)
    await rejects(files.rename(`${folder}/none`, `${folder}/other`), c.sdk.NotFoundError)
  })

  inFolder('files/missing', async (c, files, folder) => {
    await rejects(files.read(`${folder}/none`), c.sdk.NotFoundError, /does not exist/)
    await rejects(files.read(folder), c.sdk.InvalidArgumentError)
  }, { smoke: true })

  inFolder('files/users', async (c, files, folder, sandbox) => {
    const name = c.unique('r')
    await files.write(name, 'of root', { user: 'root' })
    assert.equal(await files.read(`/root/${name}`, { user: 'root' }), 'of root')
    assert.equal((await files.getInfo(name, { user: 'root' })).owner, 'root')
    await files.write(name, 'of user')
    assert.equal((await sandbox.commands.run(`cat ~/${name}`)).stdout, 'of user')
  })

  inFolder('files/proc', async (c, files) => {
    // Such files say that they are empty.
    assert.match(await files.read('/proc/version'), /Linux/)
  })

  const watch = async (c, files, folder, options = {}) => {
    const seen = []
    const handle = await files.watchDir(folder, (event) => { seen.push(event) }, options)
    c.later(() => handle.stop())
    return { handle, saw: (type, name) => until(() => seen.find((each) => each.type === type && each.name === name), `${type} ${name} is seen`) }
  }

  inFolder('files/watch', async (c, files, folder) => {
    const { saw } = await watch(c, files, folder)
    await files.write(`${folder}/a`, '1')
    await saw('create', 'a')
    await saw('write', 'a')
    await files.rename(`${folder}/a`, `${folder}/b`)
    await saw('rename', 'a')
    await saw('create', 'b')
    await files.remove(`${folder}/b`)
    await saw('remove', 'b')
    await rejects(files.watchDir(`${folder}/none`, () => {}), c.sdk.NotFoundError)
  })

  inFolder('files/watch-recursive', async (c, files, folder) => {
    await files.makeDir(`${folder}/d`)
    const { saw } = await watch(c, files, folder, { recursive: true })
    await files.write(`${folder}/d/f`, '1')
    await saw('write', 'd/f')
    await files.makeDir(`${folder}/new`)
    await saw('create', 'new')
    // A folder made after the watch is watched too, soon after it is seen.
    await until(async () => {
      await files.write(`${folder}/new/${c.unique('g')}`, '1')
      await files.write(`${folder}/new/g`, '1')
      return true
    }, 'files are written')
    await saw('write', 'new/g')
  })

  inFolder('files/watch-entries', async (c, files, folder) => {
    const { saw } = await watch(c, files, folder, { includeEntry: true })
    await files.write(`${folder}/a`, '123')
    const { entry } = await saw('write', 'a')
    assert.deepEqual([entry.name, entry.type], ['a', 'file'])
  })

  inFolder('files/signed-urls', async (c, files, folder, sandbox) => {
    const path = `${folder}/s.txt`
    const form = new FormData()
    form.append('file', new Blob(['sent by a form']), 's.txt')
    const sent = await fetch(await sandbox.uploadUrl(path, { useSignatureExpiration: 600 }), { method: 'POST', body: form })
    assert.equal(sent.status, 200, await sent.text())
    assert.equal(await files.read(path), 'sent by a form')
    const url = await sandbox.downloadUrl(path)
    assert.equal(await (await fetch(url)).text(), 'sent by a form')
    assert.equal(await (await fetch(await sandbox.downloadUrl(path, { user: 'root' }))).text(), 'sent by a form')
    // A signature is for one path, and for reading or writing.
    const wrong = await fetch(url.replace('s.txt', 't.txt'))
    assert.equal(wrong.status, 401)
    const other = await fetch(url, { method: 'POST', body: form })
    assert.equal(other.status, 401)
    await other.text()
    const late = await fetch(await sandbox.downloadUrl(path, { useSignatureExpiration: -120 }))
    assert.deepEqual(await late.json(), { code: 401, message: 'signature is already expired' })
  })
}
