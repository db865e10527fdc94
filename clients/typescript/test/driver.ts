// The driver of the suite: it reads a line of JSON for each operation, and answers by one. docs/clients.md has the operations.
import { createInterface } from "node:readline";
import { connect } from "@nats-io/transport-node";
import { Jobs, MismatchError, NatsPublisher, UntakenError } from "expediter/nats";
import * as wire from "expediter/wire";

const nc = await connect({ servers: process.env["NATS_URL"] ?? "127.0.0.1:4222" });
const jobs = new Jobs(nc, "JOBS", { allowUntaken: true }), events = new NatsPublisher(nc);

const valid = (e: wire.Event): wire.Event => {
  const fields = wire.checkEvent(e);
  if (fields.length > 0) throw new wire.InvalidError("event", fields);
  return e;
};

const job = (i: any): wire.NewJob => ({ ...i, ...(i.at && { at: new Date(i.at) }) });

const ops: Record<string, (i: any) => unknown> = {
  "token.encode": (i) => wire.encodeToken(i.id),
  "token.decode": (i) => wire.decodeToken(i.token),
  "message.id": (i) => wire.messageID(i.id),
  "cloudevent.id": (i) => wire.cloudEventID(i.source, i.id),
  "subject.import": (i) => wire.importJobSubject(i.priority, i.id),
  "subject.enrich": (i) => wire.enrichJobSubject(i.provider, i.place),
  "subject.send": (i) => wire.sendSubject(i.channel, i.type, i.user, i.id),
  "subject.dead": (i) => wire.deadSubject(i.stream, i.subject),
  "subject.event": (i) => wire.eventSubject(valid(i.event)),
  "key.inbox": (i) => wire.inboxKey(i.type, i.user, i.id),
  "request.prefix": (i) => wire.requestPrefix(i.user),
  "event.check": (i) => (valid(i.event), "valid"),
  "event.same": (i) => wire.canonicalEvent(valid(i.a)) === wire.canonicalEvent(valid(i.b)),
  publish: (i) => events.publish(i.event),
  insert: (i) => jobs.insert(job(i)),
  "insert.checked": (i) => new Jobs(nc, "JOBS").insert(job(i)),
  inspect: (i) => jobs.inspect(i.subject, i.key),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { op, in: i } = JSON.parse(line);
  let answer: object;
  try {
    if (!ops[op]) throw new Error(`there is no operation ${op}`);
    answer = { out: await ops[op](i) };
  } catch (err) {
    if (err instanceof wire.InvalidError) answer = { error: "invalid", fields: err.fields.map((f) => f.path) };
    else if (err instanceof MismatchError) answer = { error: "mismatch" };
    else if (err instanceof UntakenError) answer = { error: "untaken" };
    else throw err;
  }
  console.log(JSON.stringify(answer));
}
await nc.close();
