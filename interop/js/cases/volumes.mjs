import assert from 'node:assert/strict'
import { rejects } from '../case.mjs'

export default function (define) {
  const volume = (name, body) =>
    define(name, async (c) => {
      const made = await c.sdk.Volume.create(c.unique('vol'))
      c.later(() => c.sdk.Volume.destroy(made.volumeId))
      await body(c, made)
    })

  volume('volumes/life', async (c, made) => {
    const { Volume } = c.sdk
    assert.ok((await Volume.list()).some((each) => each.volumeId === made.volumeId && each.name === made.name))
    assert.equal((await Volume.getInfo(made.volumeId)).name, made.name)
    assert.equal((await Volume.connect(made.volumeId)).name, made.name)
    assert.equal(await Volume.destroy(made.volumeId), true)
    assert.equal(await Volume.destroy(made.volumeId), false)
    await rejects(Volume.getInfo(made.volumeId), c.sdk.VolumeNotFoundError)
  })

  volume('volumes/content', async (c, made) => {
    await made.writeFile('/a.txt', 'hello')
    assert.equal(await made.readFile('/a.txt'), 'hello')
    const info = await made.getInfo('/a.txt')
    assert.deepEqual([info.name, info.type, info.size], ['a.txt', 'file', 5])
    await made.makeDir('/d')
    await made.writeFile('/d/b', new Uint8Array([0, 1, 255]).buffer)
    assert.deepEqual([...(await made.readFile('/d/b', { format: 'bytes' }))], [0, 1, 255])
    assert.deepEqual((await made.list('/')).map((each) => each.name).sort(), ['a.txt', 'd'])
    assert.equal((await made.updateMetadata('/a.txt', { mode: 0o600 })).mode & 0o777, 0o600)
    await made.remove('/a.txt')
    assert.equal(await made.exists('/a.txt'), false)
    await rejects(made.readFile('/a.txt'), c.sdk.VolumePathNotFoundError)
  })

  volume('volumes/mounted', async (c, made) => {
    await made.writeFile('/from-outside', 'in')
    const sandbox = await c.sandbox({ volumeMounts: { '/data': made } })
    assert.equal(await sandbox.files.read('/data/from-outside'), 'in')
    await sandbox.commands.run('echo out > /data/from-inside')
    assert.equal(await made.readFile('/from-inside'), 'out\n')
    assert.deepEqual((await sandbox.getInfo()).volumeMounts, [{ name: made.name, path: '/data' }])
    await sandbox.kill()
    const next = await c.sandbox({ volumeMounts: { '/other': made.name } })
    assert.equal(await next.files.read('/other/from-inside'), 'out\n')
  })

  define('volumes/unknown', async (c) => {
    await rejects(c.sdk.Volume.getInfo('nonexisting'), c.sdk.VolumeNotFoundError)
    await rejects(c.sdk.Sandbox.create({ volumeMounts: { '/data': 'no-such-volume' } }), c.sdk.SandboxError)
  })

  define('secrets/life', async (c) => {
    c.needs(c.sdk.Secret)
    const { Secret } = c.sdk
    const name = c.unique('secret')
    const made = await Secret.create(name, 'one', { metadata: { of: 'a case' } })
    c.later(() => Secret.destroy(made.secretId))
    assert.equal((await Secret.getInfo(name)).secretId, made.secretId)
    assert.ok((await Secret.update(name, 'two')).version > made.version)
    assert.equal(await Secret.destroy(name), true)
    assert.equal(await Secret.exists(name), false)
  })
}
