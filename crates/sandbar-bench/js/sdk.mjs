// What most programs do first, with the official package in the folder that is the first argument: once for each line of standard input. Answers a line
// of JSON with the milliseconds of each part, {"create", "run"}, or {"why"}.

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'

const folder = join(process.argv[2], 'node_modules', 'e2b')
const entry = JSON.parse(await readFile(join(folder, 'package.json'))).module ?? 'dist/index.mjs'
const { Sandbox } = await import(pathToFileURL(join(folder, entry)))

for await (const _ of createInterface({ input: process.stdin })) {
  try {
    const begun = performance.now()
    const sandbox = await Sandbox.create()
    const created = performance.now()
    const result = await sandbox.commands.run('true')
    const done = performance.now()
    await sandbox.kill()
    if (result.exitCode !== 0) throw new Error(`exit code ${result.exitCode}`)
    console.log(JSON.stringify({ create: created - begun, run: done - created }))
  } catch (error) {
    console.log(JSON.stringify({ why: String(error?.stack ?? error) }))
  }
}
