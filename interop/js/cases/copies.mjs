import assert from 'node:assert/strict'
import { rejects } from '../case.mjs'

export default function (define) {
  define('snapshots/create-and-use', async (c) => {
    const { Sandbox } = c.sdk
    const sandbox = await c.sandbox()
    await sandbox.files.write('state', 'one')
    const snapshot = await sandbox.createSnapshot()
    c.later(() => Sandbox.deleteSnapshot(snapshot.snapshotId))
    await sandbox.files.write('state', 'two')
    await sandbox.kill()
    const [a, b] = await Promise.all([c.sandbox(snapshot.snapshotId), c.sandbox(snapshot.snapshotId)])
    assert.equal(await a.files.read('state'), 'one')
    await a.files.write('state', 'of a')
    assert.equal(await b.files.read('state'), 'one')
  })

  define('snapshots/list', async (c) => {
    const { Sandbox } = c.sdk
    const sandbox = await c.sandbox()
    const made = []
    for (let i = 0; i < 3; i++) made.push((await sandbox.createSnapshot()).snapshotId)
    const seen = []
    for (const pages = sandbox.listSnapshots({ limit: 2 }); pages.hasNext; ) seen.push(...(await pages.nextItems()))
    assert.deepEqual(seen.map((each) => each.snapshotId).sort(), [...made].sort())
    for (const id of made) assert.equal(await Sandbox.deleteSnapshot(id), true)
    assert.equal(await Sandbox.deleteSnapshot(made[0]), false)
    await rejects(Sandbox.create(made[0]), c.sdk.SandboxError)
  })

  define('snapshots/names', async (c) => {
    const { Sandbox } = c.sdk
    const name = c.unique('snap')
    const sandbox = await c.sandbox()
    await sandbox.files.write('state', 'named')
    const snapshot = await sandbox.createSnapshot({ name })
    c.later(() => Sandbox.deleteSnapshot(snapshot.snapshotId))
    assert.ok(snapshot.snapshotId.includes(name), snapshot.snapshotId)
    assert.ok(snapshot.names.some((each) => each.includes(name)), `${snapshot.names}`)
    assert.equal(await (await c.sandbox(name)).files.read('state'), 'named')
  })

  define('fork/several', async (c) => {
    c.needs(c.sdk.Sandbox.fork)
    const sandbox = await c.sandbox()
    await sandbox.files.write('state', 'before')
    const forks = await sandbox.fork({ count: 2, timeoutMs: 300_000 })
    for (const each of forks) {
      if (each instanceof Error) throw each
      c.own(each.sandboxId)
    }
    assert.equal(new Set([sandbox, ...forks].map((each) => each.sandboxId)).size, 3)
    await forks[0].files.write('state', 'of the first')
    assert.deepEqual(
      await Promise.all([sandbox, ...forks].map((each) => each.files.read('state'))),
      ['before', 'of the first', 'before']
    )
  })

  define('fork/of-one-that-is-gone', async (c) => {
    c.needs(c.sdk.Sandbox.fork)
    await rejects(c.sdk.Sandbox.fork('nonexistingsandbox'), c.sdk.NotFoundError)
  })
}
