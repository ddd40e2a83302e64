// Runs cases with one release of the official packages and prints a line of JSON for each:
//   {"case": NAME, "outcome": "passed" | "failed" | "absent" | "skipped", "why": TEXT}
//
//   node run.mjs --packages FOLDER --suite e2b|interpreter|cli [--smoke] [--only PART] [--at-once N] [--domain]
//
// The server and its key come from the environment, as a user's would.

import { readFile, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { pathToFileURL } from 'node:url'
import { Absent, Case, Skipped } from './case.mjs'

// Longest a case may take, in milliseconds: far above what any needs, so that one that hangs is named.
const LONGEST_CASE = 120_000

const { values: options } = parseArgs({
  options: {
    packages: { type: 'string' },
    suite: { type: 'string', default: 'e2b' },
    smoke: { type: 'boolean', default: false },
    only: { type: 'string', default: '' },
    'at-once': { type: 'string', default: '6' },
  },
})

const MODULES = { e2b: 'e2b', interpreter: '@e2b/code-interpreter', cli: '@e2b/cli', domain: 'e2b' }
const folder = join(options.packages, 'node_modules', MODULES[options.suite])
const version = JSON.parse(await readFile(join(folder, 'package.json'))).version
// The CLI is a program; there is nothing to load of it.
const sdk = options.suite === 'cli' ? {} : await import(pathToFileURL(join(folder, 'dist', 'index.mjs')))

const all = []
const define = (name, body, { smoke = false, suite = 'e2b' } = {}) => {
  if (all.some((other) => other.name === name)) throw new Error(`two cases are called ${name}`)
  all.push({ name, body, smoke, suite })
}
const cases = new URL('./cases/', import.meta.url)
for (const file of (await readdir(cases)).sort()) {
  const { default: defineAll } = await import(new URL(file, cases))
  defineAll(define)
}
const chosen = all.filter(
  (each) => each.suite === options.suite && (each.smoke || !options.smoke) && each.name.includes(options.only)
)

const shared = new Case('shared', sdk, version, options.packages)
let next = 0
const worker = async () => {
  while (next < chosen.length) await runOne(chosen[next++])
}
await Promise.all(Array.from({ length: Number(options['at-once']) }, worker))
await shared.finish()
// Streams that a failed case left open keep nobody waiting.
process.exit(0)

async function runOne({ name, body }) {
  const context = new Case(name, sdk, version, options.packages, shared)
  const started = Date.now()
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done after ${LONGEST_CASE / 1000} s`)), LONGEST_CASE)
  })
  let outcome = 'passed'
  let why
  try {
    await Promise.race([body(context), late])
  } catch (error) {
    outcome = error instanceof Absent ? 'absent' : error instanceof Skipped ? 'skipped' : 'failed'
    why = outcome === 'failed' ? told(error) : error.message
  }
  clearTimeout(timer)
  try {
    await context.finish()
  } catch (error) {
    if (outcome === 'passed') [outcome, why] = ['failed', `at its end: ${told(error)}`]
  }
  console.log(JSON.stringify({ case: name, outcome, why, ms: Date.now() - started }))
}

function told(error) {
  const where = (error?.stack ?? '').split('\n').find((line) => line.includes('/cases/')) ?? ''
  const place = where.match(/cases\/[^:]+:\d+/)?.[0] ?? ''
  return `${error?.name ?? 'Error'}: ${error?.message ?? error} ${place}`.trim()
}

// What goes wrong beside a case (a callback, a stream nobody waits for) is a fault of the run.
process.on('unhandledRejection', (error) => {
  console.log(JSON.stringify({ case: 'run/nothing-unhandled', outcome: 'failed', why: told(error) }))
})
