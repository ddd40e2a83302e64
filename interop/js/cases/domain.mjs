// With a domain of its own: names `PORT-ID.DOMAIN`, over TLS. The names are looked up by the test, since no resolver knows them.

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { until } from '../case.mjs'

export default function (defineIn) {
  const define = (name, body) => defineIn(`domain/${name}`, body, { suite: 'domain' })

  define('host-of-a-port', async (c) => {
    const require = createRequire(join(c.packages, 'package.json'))
    const { Agent, fetch } = require('undici')
    const lookup = (_name, options, done) =>
      options.all ? done(null, [{ address: '127.0.0.1', family: 4 }]) : done(null, '127.0.0.1', 4)
    const dispatcher = new Agent({ connect: { lookup } })
    c.later(() => dispatcher.close())
    const sandbox = await c.sandbox()
    await sandbox.files.write('www/index.html', 'by its name')
    await sandbox.commands.run('exec python3 -m http.server 8000 -d www', { background: true, timeoutMs: 0 })
    const host = sandbox.getHost(8000)
    assert.equal(host, `8000-${sandbox.sandboxId}.${process.env.INTEROP_DOMAIN}`)
    const answer = await until(async () => {
      const seen = await fetch(`https://${host}/`, { dispatcher })
      return seen.status === 200 && seen
    }, 'the server answers')
    assert.equal(await answer.text(), 'by its name')
  })
}
