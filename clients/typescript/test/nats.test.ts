// Tests of the client over NATS that no case of the wire has time for.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { NatsConnection } from "@nats-io/nats-core";
import { Jobs, UntakenError } from "expediter/nats";

const refused = { error: { code: 400, err_code: 10071, description: "wrong last sequence" } };
const stored = (subject: string, seq: number, headers: string): object =>
  ({ message: { subject, seq, hdrs: btoa(`NATS/1.0\r\nJob-Replaceable: 1\r\n${headers}\r\n\r\n`) } });

test("a job is replaced again if the old schedule has taken the new one along", async (t) => {
  const begun = Date.now(), due = new Date(begun + 400).toISOString(), sent: string[] = [], ids = new Set<string>();
  let now = begun;
  t.mock.method(Date, "now", () => now);
  const late = (answer: object): (() => object) => () => { now = begun + 300; return answer; };
  const fired = stored("jobs.mail.7", 3, "Nats-Scheduler: jobs-later.mail.7\r\nNats-Msg-Id: old");
  const answers = [
    refused, stored("jobs-later.mail.7", 1, `Nats-Schedule: @at ${due}\r\nNats-Msg-Id: old`), late({ seq: 2 }),
    fired, { success: true }, refused, fired, { seq: 4 },
  ];
  const nc = {
    request: async (to: string, data: string, options: { headers?: { get(name: string): string } }) => {
      const answer = answers[sent.length]!, id = options.headers?.get("Nats-Msg-Id");
      sent.push(`${to.replace("$JS.API.STREAM.MSG.", "")} ${options.headers?.get("Nats-Expected-Last-Subject-Sequence") ?? data}`);
      if (id) ids.add(id);
      return { json: () => (typeof answer === "function" ? answer() : answer) };
    },
  };
  const got = await new Jobs(nc as unknown as NatsConnection, "JOBS", { allowUntaken: true }).replace({ subject: "jobs.mail.7", unique: {} });
  assert.deepEqual(sent, [
    "jobs.mail.7 0", 'GET.JOBS {"last_by_subj":"*.mail.7"}', "jobs.mail.7 1", 'GET.JOBS {"last_by_subj":"jobs.mail.7"}',
    'DELETE.JOBS {"seq":2,"no_erase":true}', "jobs.mail.7 0", 'GET.JOBS {"last_by_subj":"*.mail.7"}', "jobs.mail.7 3",
  ]);
  assert.equal(ids.size, 2);
  assert.deepEqual([got.replaced, got.duplicate, got.sequence, got.state], [true, false, 4, "queued"]);
});

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
