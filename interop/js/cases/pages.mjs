import assert from 'node:assert/strict'

async function all(paginator) {
  const pages = []
  while (paginator.hasNext) pages.push(await paginator.nextItems())
  return pages
}

export default function (define) {
  define('pages/metadata', async (c) => {
    const value = `${c.unique('v')} & = % ü`
    const sandbox = await c.sandbox({ metadata: { 'a key': value, other: 'x' } })
    await c.sandbox({ metadata: { 'a key': 'another' } })
    const list = async (metadata) => (await all(c.sdk.Sandbox.list({ query: { metadata } }))).flat().map((each) => each.sandboxId)
    assert.deepEqual(await list({ 'a key': value }), [sandbox.sandboxId])
    assert.deepEqual(await list({ 'a key': value, other: 'x' }), [sandbox.sandboxId])
    assert.deepEqual(await list({ 'a key': value, other: 'y' }), [])
  }, { smoke: true })

  define('bug-24/pages-of-one', async (c) => {
    const mark = c.unique('page')
    const made = []
    for (let i = 0; i < 3; i++) made.push((await c.sandbox({ metadata: { mark } })).sandboxId)
    const pages = await all(c.sdk.Sandbox.list({ limit: 1, query: { metadata: { mark } } }))
    // The newest first, each once; a last page may be empty.
    assert.deepEqual(pages.flat().map((each) => each.sandboxId), made.reverse())
    assert.ok(pages.every((page) => page.length <= 1))
  })

  define('pages/next-token', async (c) => {
    const mark = c.unique('page')
    for (let i = 0; i < 2; i++) await c.sandbox({ metadata: { mark } })
    const query = { metadata: { mark } }
    const first = c.sdk.Sandbox.list({ limit: 1, query })
    const [one] = await first.nextItems()
    const rest = c.sdk.Sandbox.list({ limit: 1, query, nextToken: first.nextToken })
    const [two] = await rest.nextItems()
    assert.notEqual(one.sandboxId, two.sandboxId)
    assert.equal(rest.hasNext, false)
  })

  define('pages/state', async (c) => {
    const mark = c.unique('state')
    const [running, paused] = [await c.sandbox({ metadata: { mark } }), await c.sandbox({ metadata: { mark } })]
    await paused.pause()
    const list = async (state) => (await all(c.sdk.Sandbox.list({ query: { metadata: { mark }, state } }))).flat().map((each) => each.sandboxId)
    assert.deepEqual(await list(['running']), [running.sandboxId])
    assert.deepEqual(await list(['paused']), [paused.sandboxId])
    assert.deepEqual((await list(['running', 'paused'])).length, 2)
    assert.deepEqual((await list(undefined)).length, 2)
  })

  define('pages/order', async (c) => {
    c.since('2.45.0')
    const mark = c.unique('order')
    const made = []
    for (let i = 0; i < 3; i++) made.push((await c.sandbox({ metadata: { mark } })).sandboxId)
    const list = async (more) => (await all(c.sdk.Sandbox.list({ limit: 2, query: { metadata: { mark } }, ...more }))).flat().map((each) => each.sandboxId)
    assert.deepEqual(await list({ order: 'asc' }), made)
    assert.deepEqual(await list({ order: 'desc' }), [...made].reverse())
    const query = (more) => ({ query: { metadata: { mark }, ...more } })
    assert.deepEqual((await list(query({ template: 'base' }))).length, 3)
    assert.deepEqual(await list(query({ template: 'no-such-template' })), [])
    assert.deepEqual(await list(query({ startedAfter: new Date(Date.now() + 3_600_000) })), [])
  })
}
