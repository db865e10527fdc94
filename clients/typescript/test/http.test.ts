// Tests of the client over HTTP: services fail, cut connections and come back.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { Enricher, Importer, Inbox, InvalidError, merge, Problem, Publisher, type Place } from "expediter";

type Answer = (q: IncomingMessage & { text: string }, a: ServerResponse) => void;

/** Starts a service that gives one answer after the other, and the last one again and again. */
async function serve(t: { after(f: () => void): void }, ...answers: Answer[]): Promise<{ url: string; asked: (IncomingMessage & { text: string })[]; pause: number }> {
  const asked: (IncomingMessage & { text: string })[] = [];
  const server = createServer((q, a) => {
    let text = "";
    q.on("data", (chunk) => (text += chunk)).on("end", () => {
      const whole = Object.assign(q, { text });
      answers[Math.min(asked.push(whole), answers.length) - 1]!(whole, a);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => { server.closeAllConnections(); server.close(); });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked, pause: 1 };
}

const json = (status: number, body: unknown): Answer => (_, a) => a.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(body));
const cut: Answer = (_, a) => a.destroy();
const sse = (text: string, end: "cut" | "end" = "cut"): Answer => (_, a) => {
  a.writeHead(200, { "Content-Type": "text/event-stream" });
  a.write(text, () => (end === "cut" ? a.destroy() : a.end()));
};
const event = { event_type: "PAID", aggregate_type: "ORDER" };

test("an event has one id in every try", async (t) => {
  const service = await serve(t, json(503, {}), cut, json(429, {}), json(202, { event_id: "x" }));
  await new Publisher({ ...service, token: () => "key" }).publish(event);
  const ids = service.asked.map((q) => JSON.parse(q.text).event_id);
  assert.equal(ids.length, 4);
  assert.match(ids[0], /^[\w-]{22}$/);
  assert.equal(new Set(ids).size, 1);
  assert.equal(service.asked[3]!.headers.authorization, "Bearer key");
});

test("a refusal is final, and an invalid event is not sent", async (t) => {
  const service = await serve(t, json(409, { code: "EVENT_MISMATCH", detail: "another", errors: [{ path: "/a", problem: "b" }] }));
  const publisher = new Publisher(service);
  await assert.rejects(publisher.publish({ ...event, event_id: "1" }), (err: Problem) => err.status === 409 && err.code === "EVENT_MISMATCH" && err.errors.length === 1);
  await assert.rejects(publisher.publish({ ...event, event_id: "" }), InvalidError);
  assert.equal(service.asked.length, 1);
});

test("a token that is refused is replaced once, and a stream goes on where it was", async (t) => {
  const item = (id: number): string => `id: ${id}\ndata: {}\n\n`, no = json(401, {}), asked: (string | undefined)[] = [];
  const service = await serve(t, sse(item(1)), no, sse(item(2)), no, json(200, {}), no, no, no);
  const token = (refused?: string): string => { asked.push(refused); return refused === undefined ? "old" : refused === "old" ? "new" : refused; };
  const inbox = new Inbox({ ...service, token, user: "ada" }), seen: string[] = [];
  for await (const { id } of inbox.live()) if (seen.push(id) === 2) break;
  await inbox.mark("read");
  await assert.rejects(inbox.mark("read"), (err: Problem) => err.status === 401);
  await assert.rejects(new Inbox({ ...service, token: () => "old", user: "ada" }).mark("read"), (err: Problem) => err.status === 401);
  assert.deepEqual(seen, ["1", "2"]);
  assert.deepEqual(service.asked.map((q) => q.headers.authorization?.slice(7)), ["old", "old", "new", "old", "new", "old", "new", "old"]);
  assert.deepEqual(service.asked.slice(0, 3).map((q) => q.headers["last-event-id"]), [undefined, "1", "1"]);
  assert.deepEqual(asked, [undefined, undefined, "old", undefined, "old", undefined, "old"]);
});

test("a page that never gives a token does not hold a request forever", async (t) => {
  const service = await serve(t, json(200, {})), stop = new AbortController();
  const token = (): Promise<string> => { queueMicrotask(() => stop.abort(new Error("enough"))); return new Promise(() => {}); };
  await assert.rejects(new Inbox({ ...service, token, user: "ada" }).list({}, stop.signal), /enough/);
  assert.equal(service.asked.length, 0);
});

test("patience ends", async (t) => {
  const service = await serve(t, json(503, {}));
  await assert.rejects(new Publisher({ ...service, patience: 0 }).publish(event), (err: Problem) => err.status === 503);
  assert.equal(service.asked.length, 1);
});

test("a bound caller's request has its prefix, and one id", async (t) => {
  const service = await serve(t, cut, json(200, { requestId: "r", results: [], pending: 0 }));
  await new Enricher({ ...service, user: "a b" }).enrich({ results: [] });
  const ids = service.asked.map((q) => JSON.parse(q.text).requestId);
  assert.match(ids[0], /^a\+b:[\w-]{22}$/);
  assert.equal(ids[0], ids[1]);
});

test("a request that is answered in full has no updates, whoever has asked", async (t) => {
  const service = await serve(t, json(200, { requestId: "r", results: [], pending: 0 }), json(200, { requestId: "r", results: [], pending: 1 }), json(404, {}));
  const enricher = new Enricher(service), answer = await enricher.enrich({ results: [] });
  for await (const _ of enricher.updates(answer.requestId)) assert.fail();
  for await (const _ of new Enricher(service).updates(answer)) assert.fail();
  assert.equal(service.asked.length, 1);
  for (const of of [await enricher.enrich({ requestId: "r", results: [] }), "r"])
    await assert.rejects(async () => { for await (const _ of enricher.updates(of)) assert.fail(); }, (err: Problem) => err.status === 404);
});

test("patches resume after the last whole event", async (t) => {
  const patch = (place: string): string => JSON.stringify({ type: "RESULT_PATCH", requestId: "r/1", placeId: place, patch: { providers: { wolt: { status: "FOUND", url: place } } } });
  const service = await serve(t,
    sse(`retry: 5\n\nid: 0\nevent: snapshot\ndata: {"type":"snapshot","requestId":"r/1","pending":3,"places":[{"placeId":"a","providers":{"x":{"status":"PENDING","url":null}}}]}\n\nid: 1\r\nevent: RESULT_PATCH\r\ndata: ${patch("a")}\r\n\r\nid: 2\nevent: RESULT_PATCH\ndata: ${patch("lost")}\n`),
    json(503, {}), cut, sse(": heartbeat\n\n"),
    sse(`id: 2\nevent: RESULT_PATCH\ndata: ${patch("b")}\n\nid: \nevent: reset\ndata: {"type":"reset","requestId":"r/1"}\n\n`),
    sse(`id: 3\ndata: ${patch("c")}\n\nid: 4\nevent: complete\ndata: {"type":"complete","requestId":"r/1"}\n\n`));
  const places: Place[] = ["a", "b", "c"].map((placeId) => ({ placeId, name: placeId, providers: { other: { status: "PENDING", url: null } } })), seen: string[] = [];
  for await (const u of new Enricher(service).updates("r/1")) {
    seen.push(u.type + ":" + u.id);
    merge(places, u);
  }
  assert.deepEqual(seen, ["snapshot:0", "RESULT_PATCH:1", "RESULT_PATCH:2", "reset:", "RESULT_PATCH:3", "complete:4"]);
  assert.deepEqual(service.asked.map((q) => q.headers["last-event-id"]), [undefined, "1", "1", "1", "1", undefined]);
  assert.equal(service.asked[0]!.url, "/v1/requests/r%2F1/events");
  assert.deepEqual(places.map((p) => p.providers!["wolt"]?.url), ["a", "b", "c"]);
  assert.equal(Object.keys(places[0]!.providers!).join(), "other,x,wolt");
});

test("an import is followed until it has ended, and handed in once", async (t) => {
  const status = (id: number, status: string): string => `id: ${id}\nevent: status\ndata: ${JSON.stringify({ job_id: "j", status })}\n\n`;
  const service = await serve(t, cut, json(202, { job_id: "j" }), sse(status(1, "QUEUED")), sse(status(2, "RUNNING") + status(3, "READY"), "end"));
  const importer = new Importer(service), job = await importer.submit({ owner_id: "me", file: new File(["x"], "soup.vtt") });
  assert.equal(service.asked[0]!.headers["idempotency-key"], service.asked[1]!.headers["idempotency-key"]);
  assert.match(service.asked[1]!.text, /name="file"; filename="soup.vtt"/);
  const seen = [];
  for await (const state of importer.follow(job.job_id, { lastEventID: "0" })) seen.push(state.status);
  assert.deepEqual(seen, ["QUEUED", "RUNNING", "READY"]);
  assert.deepEqual(service.asked.slice(2).map((q) => q.headers["last-event-id"]), ["0", "1"]);
});

test("an ended stream is not asked for again, a refused one is an error, and a reader may leave", async (t) => {
  const none: Answer = (_, a) => a.writeHead(204).end();
  const service = await serve(t, none, json(404, { detail: "unknown" }), sse("id: 1\ndata: {}\n\n"), none);
  for await (const _ of new Importer(service).follow("j")) assert.fail();
  await assert.rejects(async () => { for await (const _ of new Importer(service).follow("j")) assert.fail(); }, (err: Problem) => err.status === 404);
  for await (const _ of new Inbox({ ...service, user: "ada" }).live()) break;
  assert.equal(service.asked.length, 3);
  const stop = new AbortController();
  stop.abort();
  for await (const _ of new Inbox({ ...service, user: "ada" }).live({ signal: stop.signal })) assert.fail();
});

test("an inbox is listed and marked", async (t) => {
  const service = await serve(t, json(200, { items: [], counts: {}, more: false }), json(200, { marked: 1, counts: {} }));
  const inbox = new Inbox({ ...service, url: service.url + "/", user: "a/b", type: "CUSTOMER" });
  await inbox.list({ states: ["unread", "read"], limit: 5, cursor: "c" });
  await inbox.mark("read", ["."]);
  assert.equal(service.asked[0]!.url, "/v1/users/a%2Fb/inbox?type=CUSTOMER&state=unread%2Cread&limit=5&cursor=c");
  assert.equal(service.asked[1]!.url, "/v1/users/a%2Fb/inbox?type=CUSTOMER");
  assert.deepEqual(JSON.parse(service.asked[1]!.text), { state: "read", events: ["."] });
  assert.throws(() => new Inbox({ ...service, user: ".." }), Problem);
});
