// Tests of the client over NATS that no case of the wire has time for.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { NatsConnection } from "@nats-io/nats-core";
import { Jobs, UntakenError } from "expediter/nats";

test("while a worker starts, its other consumers are waited for", async () => {
  const page = (total: number, age: number, config: object): object =>
    ({ total, consumers: [{ created: "2026-01-01T00:00:00Z", ts: new Date(Date.UTC(2026, 0, 1) + age).toISOString(), config }] });
  const early = page(2, 1000, { filter_subject: "jobs.one.>" }), asked: string[] = [];
  const answers = [page(1, 1000, { filter_subject: "jobs.one.>" }), early, page(2, 0, { filter_subjects: ["jobs.*.a", "jobs.$x.b"] }), { seq: 1 }, { seq: 2 }];
  const old = [page(1, 5001, { filter_subject: "jobs.one.>" })];
  const nc = (answers: object[]): NatsConnection =>
    ({ request: async (to: string, data: string) => { asked.push(to + data); return { json: () => answers.shift() }; } }) as unknown as NatsConnection;
  const jobs = new Jobs(nc(answers), "JOBS");
  await jobs.insert({ subject: "jobs.two.a" });
  await jobs.insert({ subject: "jobs.$x.b" });
  assert.deepEqual(asked.map((what) => /"offset":\d+/.exec(what)?.[0]), ['"offset":0', '"offset":0', '"offset":1', undefined, undefined]);
  await assert.rejects(new Jobs(nc(old), "JOBS").insert({ subject: "jobs.one" }), UntakenError);
});
