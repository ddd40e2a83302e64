// What a case is given: the package under test, sandboxes that end with it, and words for what a release does not have.

import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'

/** The release does not have what the case is about. */
export class Absent extends Error {}

/** The machine does not have what the case needs. */
export class Skipped extends Error {}

// Longest wait for a condition, in milliseconds: a busy machine's, not a bar.
const LONGEST_WAIT = 60_000
// Between two looks at a condition, in milliseconds.
const LOOK_EVERY = 50

export class Case {
  constructor(name, sdk, version, packages, shared) {
    Object.assign(this, { name, sdk, version, packages, sharing: shared, atEnd: [], one: undefined })
  }

  /** A sandbox of this case's own, killed at its end. */
  async sandbox(first, second) {
    const made = await this.sdk.Sandbox.create(...[first, second].filter((each) => each !== undefined))
    this.own(made.sandboxId)
    return made
  }

  /** Kills a sandbox at the end of the case. */
  own(id) {
    this.atEnd.push(() => this.sdk.Sandbox.kill(id))
  }

  /** Does something at the end of the case, the last first. */
  later(what) {
    this.atEnd.push(what)
  }

  /** A sandbox that cases share which change nothing but a folder of their own in it. */
  shared() {
    this.sharing.one ??= this.sharing.sandbox({ timeoutMs: 600_000 })
    return this.sharing.one
  }

  /** A folder of this case's own in a sandbox. */
  async folder(sandbox) {
    const path = `/home/user/${this.unique('f')}`
    await sandbox.files.makeDir(path)
    return path
  }

  /** A name that nothing else has. */
  unique(prefix) {
    return `${prefix}-${randomBytes(6).toString('hex')}`
  }

  /** The case ends here where the release does not have it. */
  needs(has, what = 'not in this release') {
    if (!has) throw new Absent(what)
  }

  /** The case ends here where the release is older than `version`. */
  since(version) {
    this.needs(!older(this.version, version))
  }

  /** What there is outside in the test's rig: `url` by name, its `address`, and `other` by another name. */
  rig() {
    if (!process.env.INTEROP_RIG) throw new Skipped('no rig')
    return JSON.parse(process.env.INTEROP_RIG)
  }

  async finish() {
    for (const each of this.atEnd.reverse()) await each()
  }
}

/** Waits until `condition` answers something, and answers that. */
export async function until(condition, what) {
  const end = Date.now() + LONGEST_WAIT
  for (;;) {
    const seen = await condition()
    if (seen) return seen
    if (Date.now() > end) throw new Error(`waited ${LONGEST_WAIT / 1000} s until ${what}`)
    await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY))
  }
}

/** Asserts that a promise fails with one of the package's errors, and answers the error. */
export async function rejects(promise, kind, text) {
  let answer
  try {
    answer = await promise
  } catch (error) {
    if (kind) assert.ok(error instanceof kind, `expected ${kind.name}, got ${error?.name}: ${error?.message}`)
    if (text) assert.match(String(error.message), text)
    return error
  }
  assert.fail(`expected ${kind?.name ?? 'an error'}, got ${JSON.stringify(answer)?.slice(0, 200)}`)
}

/** Whether release `a` came before `b`. */
export function older(a, b) {
  const [x, y] = [a, b].map((each) => each.split('.').map(Number))
  for (let i = 0; i < 3; i++) if (x[i] !== y[i]) return x[i] < y[i]
  return false
}

/** A request to a port of a sandbox as it goes without wildcard names: by headers. */
export function toPort(sandbox, port, path = '/', init = {}) {
  const headers = { 'e2b-sandbox-id': sandbox.sandboxId, 'e2b-sandbox-port': String(port), ...init.headers }
  return fetch(process.env.E2B_SANDBOX_URL + path, { ...init, headers })
}
