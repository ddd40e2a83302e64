import assert from 'node:assert/strict'
import { mkdtemp, mkdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { rejects, until } from '../case.mjs'

export default function (define) {
  /** Builds under a name of the case's own; the template goes with the case. */
  const build = async (c, name, template, options = {}) => {
    const lines = []
    const info = await c.sdk.Template.build(template, name, { onBuildLogs: (entry) => lines.push(entry.message), ...options })
    c.later(() => c.sdk.Sandbox.deleteSnapshot(info.templateId))
    return { info, log: lines.join('\n') }
  }

  define('templates/build', async (c) => {
    const name = c.unique('tpl')
    const template = c.sdk.Template()
      .fromTemplate('base')
      .setEnvs({ BUILT: 'with love' })
      .setWorkdir('/srv/app')
      .runCmd('echo made as $(whoami) in $(pwd) > made')
      .runCmd('echo "a line of the log"; touch /etc/by-root', { user: 'root' })
      .makeDir('/srv/app/folder')
    const { info, log } = await build(c, name, template)
    assert.ok(info.templateId && info.buildId)
    assert.match(log, /a line of the log/)
    assert.equal(await c.sdk.Template.exists(name), true)
    const sandbox = await c.sandbox(name)
    assert.match((await sandbox.commands.run('cat /srv/app/made; ls -d /srv/app/folder /etc/by-root')).stdout, /^made as user in \/srv\/app\n/)
    assert.equal((await sandbox.commands.run('echo $BUILT; pwd')).stdout, 'with love\n/srv/app\n')
  })

  define('bug-30/copied-files', async (c) => {
    const folder = await mkdtemp(join(tmpdir(), 'interop-'))
    c.later(() => rm(folder, { recursive: true }))
    await mkdir(join(folder, 'tree', 'deep'), { recursive: true })
    await writeFile(join(folder, 'one.txt'), 'one')
    await writeFile(join(folder, 'tree', 'deep', 'two.txt'), 'two'.repeat(100_000))
    const template = c.sdk.Template({ fileContextPath: folder })
      .fromTemplate('base')
      .copy('one.txt', '/srv/one.txt', { user: 'root', mode: 0o640 })
      .copy('tree', '/srv/tree')
    await build(c, c.unique('tpl'), template)
    const { info } = await build(c, c.unique('tpl'), template)
    const sandbox = await c.sandbox(info.templateId)
    assert.equal(await sandbox.files.read('/srv/one.txt', { user: 'root' }), 'one')
    assert.equal((await sandbox.files.read('/srv/tree/deep/two.txt')).length, 300_000)
    const entry = await sandbox.files.getInfo('/srv/one.txt')
    assert.deepEqual([entry.mode, entry.owner], [0o640, 'root'])
  })

  define('templates/cache', async (c) => {
    // A step of this case's own: what others build changes nothing.
    const mark = c.unique('m')
    const one = (last) => c.sdk.Template().fromTemplate('base')
      .runCmd(`: ${mark}; head -c 16 /dev/urandom | sha256sum > /tmp/drawn`)
      .runCmd(`echo ${last} > /tmp/last`)
    const drawn = async ({ info }) => (await (await c.sandbox(info.templateId)).commands.run('cat /tmp/drawn')).stdout
    const first = await drawn(await build(c, c.unique('tpl'), one('one')))
    assert.equal(await drawn(await build(c, c.unique('tpl'), one('changed'))), first)
    const anew = await build(c, c.unique('tpl'), one('one'), { skipCache: true })
    assert.notEqual(await drawn(anew), first)
  })

  define('templates/start-and-ready', async (c) => {
    const template = c.sdk.Template().fromTemplate('base')
      .runCmd('mkdir -p /home/user/www && echo served > /home/user/www/index.html')
      .setStartCmd('cd /home/user/www && exec python3 -m http.server 8000', c.sdk.waitForPort(8000))
    const { info } = await build(c, c.unique('tpl'), template)
    const sandbox = await c.sandbox(info.templateId)
    assert.equal((await sandbox.commands.run('curl -sS http://localhost:8000/')).stdout, 'served\n')
  })

  define('templates/a-step-that-fails', async (c) => {
    const name = c.unique('tpl')
    const template = c.sdk.Template().fromTemplate('base').runCmd('true').runCmd('echo said before; exit 7')
    const error = await rejects(build(c, name, template), c.sdk.BuildError)
    assert.match(error.message, /7/)
    await rejects(c.sdk.Sandbox.create(name), c.sdk.SandboxError)
  })

  define('templates/in-background', async (c) => {
    const name = c.unique('tpl')
    const template = c.sdk.Template().fromTemplate('base').runCmd('echo background')
    const info = await c.sdk.Template.buildInBackground(template, name)
    c.later(() => c.sdk.Sandbox.deleteSnapshot(info.templateId))
    const status = await until(async () => {
      const seen = await c.sdk.Template.getBuildStatus(info)
      return ['ready', 'error'].includes(seen.status) && seen
    }, 'the build is done')
    assert.equal(status.status, 'ready', JSON.stringify(status.reason))
  })

  define('templates/tags', async (c) => {
    const { Template } = c.sdk
    const name = c.unique('tpl')
    const { info } = await build(c, `${name}:v1`, Template().fromTemplate('base').runCmd('echo one > /tmp/version'))
    await Template.assignTags(`${name}:v1`, ['stable', 'other'])
    const tags = async () => (await Template.getTags(info.templateId)).map((each) => each.tag).sort()
    for (const tag of ['stable', 'other', 'v1']) assert.ok((await tags()).includes(tag), `${await tags()}`)
    await Template.removeTags(name, ['other'])
    assert.ok(!(await tags()).includes('other'))
    const sandbox = await c.sandbox(`${name}:stable`)
    assert.equal(await sandbox.files.read('/tmp/version'), 'one\n')
    await rejects(c.sdk.Sandbox.create(`${name}:other`), c.sdk.SandboxError)
  })

  define('templates/exists', async (c) => {
    assert.equal(await c.sdk.Template.exists('base'), true)
    assert.equal(await c.sdk.Template.exists(c.unique('none')), false)
  })
}
